# SPDX-License-Identifier: Apache-2.0
"""Handover of a procedure to a run, beside its port: tares of the sensors, and what the operator asks for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from rths_nodes.core.samples import FLAG_FROZEN, Array, Command, Measurement

LOOK_S = 0.05
"""Between two looks whether somebody else wants the run to end, while it is held in lockstep, s."""


@dataclass(frozen=True)
class Tares:
    """Where the test counts from, ``(n_axes,)``: its zero in the numbers of sensors and controller, m and N.

    ``reach`` is the largest measured displacement from there, m, in addition to its limits; inf: no further bound.
    """

    displacement: Array
    force: Array
    command: Array
    reach: Array

    @classmethod
    def none(cls, n_axes: int) -> Tares:
        """The test counts as the sensors do."""
        zero = np.zeros(n_axes)
        return cls(zero, zero, zero, np.full(n_axes, np.inf))

    def rows(self) -> list[tuple[float, float, float, float]]:
        """Displacement, force, command and reach of each axis, in plain floats."""
        columns = (self.displacement, self.force, self.command, self.reach)
        return list(zip(*(column.tolist() for column in columns), strict=True))


@dataclass
class Relaxation:
    """One hold: the sample at which the test stood, how many ticks, and the forces (N) at its begin and end."""

    sample: int
    ticks: int
    before: list[float]
    after: list[float]


class OperatorRequests:
    """Requests of an operator, in another thread, to the run under way; the rig's stage looks at each tick."""

    def __init__(self) -> None:
        self.stop_reason = ""
        """Why the run has to stop, and be held; empty while nobody asks."""
        self.held = False
        """True from a hold to its resume: the test stands still, and goes on afterwards."""
        self.frozen = False
        """True once copies of the specimen are to stay as they are, to the end of the run."""
        self._changed = threading.Event()

    def stop(self, reason: str) -> None:
        """The run ends by a safe stop, held; the first reason counts."""
        self.stop_reason = self.stop_reason or reason
        self._changed.set()

    def hold(self) -> None:
        """The motion slows down to rest; the numerical time stands still."""
        self._changed.clear()
        self.held = True

    def resume(self) -> None:
        """The motion goes on from where it was held."""
        self.held = False
        self._changed.set()

    def freeze(self) -> None:
        """Nothing is learnt for copies of the specimen any more."""
        self.frozen = True

    def wait(self, seconds: float = LOOK_S) -> None:
        """In lockstep, where nothing ticks while the test is held: until somebody asks for something."""
        self._changed.wait(seconds)


@dataclass
class Handover:
    """Data and callbacks that the stage of the rig takes from a handed port.

    ``presented`` turns an untared Measurement, which the limits have judged, into that of the test. ``at_rest`` is
    told when a held rig has come to rest, ``under_way`` when it follows the test again, ``stopping`` why it stops;
    ``lost`` says why the rig does not follow any more, empty where it does. ``following`` says why the rig does
    not follow a Command, which counts from the zero of the test, with the untared Measurement that came with it;
    the flag is true while the test pauses.
    """

    tares: Tares
    presented: Callable[[Measurement], Measurement]
    requests: OperatorRequests = field(default_factory=OperatorRequests)
    at_rest: Callable[[], None] = lambda: None
    under_way: Callable[[], None] = lambda: None
    stopping: Callable[[str], None] = lambda reason: None
    lost: Callable[[], str] = lambda: ""
    following: Callable[[Command, Measurement, bool], str] = lambda command, shown, paused: ""
    holds: list[Relaxation] = field(default_factory=list)
    """Relaxation of the forces in each hold so far."""
    frozen_at: int | None = None
    """First sample of which nothing was learnt, because the operator had frozen the copies; None: they are not."""

    def flags(self, sample: int) -> int:
        """Return what the requests of the operator add to the flags of ``sample``."""
        if not self.requests.frozen:
            return 0
        if self.frozen_at is None:
            self.frozen_at = sample
        return FLAG_FROZEN

    def rest(self, sample: int, forces: Sequence[float]) -> None:
        """A tick at rest, held behind ``sample``, with the measured ``forces`` (N)."""
        if not self.holds or self.holds[-1].sample != sample:
            self.holds.append(Relaxation(sample, 0, list(forces), list(forces)))
            self.at_rest()
        self.holds[-1].ticks += 1
        self.holds[-1].after = list(forces)
