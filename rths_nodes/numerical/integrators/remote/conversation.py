# SPDX-License-Identifier: Apache-2.0
"""Answers to a remote client, and the choice of its trial responses for the rig. No socket and no clock."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from rths_nodes.core.arithmetic import matvec
from rths_nodes.core.errors import ClientLeft, IntegratorError
from rths_nodes.core.samples import Array
from rths_nodes.numerical.integrators.remote.protocol import (
    ACTIONS,
    COMMIT,
    DAMPING,
    DIE,
    FORCE,
    MASS,
    TRIAL,
    Request,
)

ROUNDING = 1e-6
"""Tolerance of times, as a share of a step: those of a client are sums of many steps."""

LONGEST_TALK = 10_000
"""Requests from commitState to commitState: a client that says more iterates without end."""


@dataclass(frozen=True)
class Part:
    """The experimental substructure as it is known before the test: ``(n, n)`` N/m, N s/m and kg."""

    stiffness: Array
    damping: Array
    mass: Array

    def matrix(self, action: int) -> Array:
        """The matrix that ``action`` asks for: for a stiffness, initial or tangent, the declared one."""
        return {DAMPING: self.damping, MASS: self.mass}.get(action, self.stiffness)


@dataclass(frozen=True)
class Plan:
    """Steps that are expected of the client: ``static_steps``, then time steps from ``start_time`` on.

    A time step of the client has the length ``iterations * dt`` s, and each of its iterations is a Target; the
    test has ``steps`` of these time steps.
    """

    steps: int
    static_steps: int
    start_time: float
    iterations: int
    dt: float

    @property
    def time_step(self) -> float:
        """Time step of the client, s."""
        return self.iterations * self.dt


class Conversation:
    """Answers the client, request by request.

    Before and in the static stage the force is that of the declared stiffness, and nothing moves. In the dynamic
    stage a new trial response is ``due`` once the client asks for its force: displacement ``(n,)`` m from the end
    of the static stage, None while none is due. The rig goes there, and :meth:`force` makes the answer.

    Which trial responses are new is read from their times: integrators set them at t + dt or t + alpha_F dt, ask
    some forces twice, and some first at the start. ``offset`` (m) and ``static_force`` (N) are those of the static
    stage. ``steps`` counts the time steps that were committed since, ``asked`` the requests by action.
    """

    def __init__(self, n: int, part: Part, plan: Plan) -> None:
        self._part, self._plan = part, plan
        self.due: Array | None = None
        self.offset = self.static_force = np.zeros(n)
        self.steps = 0
        self.asked: Counter[int] = Counter()
        self.idle = True
        """True between commitState and the next trial response: the client may leave."""
        self._static = plan.static_steps
        self._trial = Request(TRIAL, np.zeros(n), np.zeros(n), 0.0)
        self._fresh = False
        self._index = self._iteration = self._requests = 0
        self._imposed, self._time = self.offset, plan.start_time
        self._force = self.static_force

    @property
    def where(self) -> str:
        """Where the client is, in words."""
        if self._static:
            return f"in static step {self._plan.static_steps - self._static + 1} of {self._plan.static_steps}"
        return f"after {self.steps} of {self._plan.steps} steps, at its time {self._trial.time:g} s"

    def hear(self, request: Request) -> Array | None:
        """The numbers of the answer; None where there is none, or where a displacement is ``due`` first.

        Raises ClientLeft when the client ends, IntegratorError when it does what was not agreed upon.
        """
        self.asked[request.action] += 1
        self._requests += 1
        if self._requests > LONGEST_TALK:
            raise IntegratorError(f"the client has made {LONGEST_TALK} requests without commitState {self.where}")
        if request.action == TRIAL:
            self._try(request)
            return None
        if request.action == COMMIT:
            self._commit()
            return None
        if request.action == DIE:
            raise ClientLeft(f"the client has ended its analysis {self.where}")
        if request.action == FORCE:
            return self._ask()
        return self._part.matrix(request.action)

    def force(self, measured: Array) -> Array:
        """The answer to getForce: what was ``measured`` there, and the force of the static stage."""
        self.due = None
        self._force = measured + self.static_force
        return self._force

    def _try(self, request: Request) -> None:
        if self._static and request.velocity.any():
            raise IntegratorError(
                f"the client has velocities {self.where}: must be a static analysis; its commitState are counted "
                "(static_steps)"
            )
        self._trial, self._fresh, self.idle = request, True, False

    def _commit(self) -> None:
        self._requests, self.idle = 0, True
        if not self._static:
            self.steps += 1
            return
        self._static -= 1
        if not self._static:
            self._imposed = self.offset = self._trial.displacement
            self._force = self.static_force = matvec(self._part.stiffness, self.offset)
            self._fresh = False

    def _ask(self) -> Array | None:
        trial = self._trial
        if self._static:
            return matvec(self._part.stiffness, trial.displacement)
        if not self._fresh:
            return self._force
        self._fresh = False
        index = math.ceil((trial.time - self._plan.start_time) / self._plan.time_step - ROUNDING)
        again = np.array_equal(trial.displacement, self._imposed)
        if again and index == self._index and (index == 0 or self._plan.iterations == 1):
            return self._force
        self._check_time(index, trial.time)
        self._imposed = trial.displacement
        self.due = trial.displacement - self.offset
        return None

    def _check_time(self, index: int, time: float) -> None:
        """Raises IntegratorError unless time step ``index`` is the next one, or a next iteration of this one."""
        plan = self._plan
        if index == self._index and 0 < self._iteration < plan.iterations:
            self._iteration += 1
            return
        step = plan.time_step
        if index == self._index:
            raise IntegratorError(
                f"the client asks for the force at another displacement in the same time step {self.where}: must "
                f"be {plan.iterations} iterations in a step of {step:g} s"
            )
        late = self._index > 0 and abs(time - self._time - step) > ROUNDING * step + 1e-12 * abs(time)
        if index != self._index + 1 or late:
            before = plan.start_time if self._index == 0 else self._time
            gravity = not (self._index or plan.static_steps)
            hint = " (static_steps = 0: a gravity analysis before it must be counted there)" if gravity else ""
            raise IntegratorError(
                f"the client goes from time {before:g} s to {time:g} s: its step must be {step:g} s, "
                f"iterations * substeps / servo_rate, from start_time on{hint}"
            )
        if self._index and self._iteration != plan.iterations:
            raise IntegratorError(
                f"the client has made {self._iteration} iterations {self.where}: must be {plan.iterations}"
            )
        self._index, self._iteration, self._time = index, 1, time

    def summary(self) -> str:
        """Say what the client has asked, and how often."""
        counts = ", ".join(f"{ACTIONS[action]} {count}" for action, count in sorted(self.asked.items()))
        return counts or "nothing"
