# SPDX-License-Identifier: Apache-2.0
"""Compensators defined by a kernel, with one state per axis, or a single state for coupled axes.

    step(constants, state, x, v, a, m, f, rests, preparing) -> state, command

Arguments are the target x (m), v (m/s), a (m/s^2) of the next sample, and the displacement m (m) and force f (N)
measured at the last sample. ``rests`` and ``preparing`` are the attributes ``flagged`` and ``preparing`` of
:class:`Motion`. The step of a :class:`CoupledKernel` receives tuples with one number per axis instead.

The parameter ``lead`` extrapolates the target by the time L:

    d(t + L) = x + L v + L^2/2 a + L^3/6 j,   its derivatives likewise,   j = (a_k - a_{k-1}) / dt

The series is exact for a cubic motion. The lead L compensates delays after the measurement of the displacement,
e.g. a late force signal. The transport delay is not added to L.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rths_nodes.core.arithmetic import NAN, Numbers
from rths_nodes.core.control import Compensator, Floats
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.kernels import Function, Kernel, ToNumber, inherits, no_state
from rths_nodes.core.parameters import AnyParams, Field, TestContext, number, params
from rths_nodes.core.samples import Array, Motion

LONGEST = 0.1
"""Longest lead, s, for which the Taylor series is valid in motions of a few Hz."""
OfLead = tuple[float, float, object]
LeadState = tuple[float, object]


def lead_parameter() -> Field:
    return number(
        "time by which the target and its derivatives are extrapolated; the transport delay is not added",
        "s",
        0.0,
        at_least=0.0,
        at_most=LONGEST,
    )


def ahead(step: ToNumber) -> ToNumber:
    """Return ``step`` with the target extrapolated by the lead. Its state begins with the last acceleration."""

    def led(
        k: OfLead, s: LeadState, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
    ) -> tuple[object, float]:
        """Call the inner step with the target extrapolated by the lead."""
        lead, dt, constants = k
        before, inner = s
        inner, command = step(constants, inner, *read_ahead(lead, dt, before, x, v, a), m, f, rests, preparing)
        return (a, inner), command

    return led


def read_ahead(lead: float, dt: float, before: float, x: float, v: float, a: float) -> tuple[float, float, float]:
    """Return x, v, a of the target extrapolated by ``lead`` (s). ``before`` is the acceleration ``dt`` (s) ago."""
    jerk = (a - before) / dt
    if before != before:  # NaN at the first sample: the acceleration does not jump at the start
        jerk = 0.0
    half = 0.5 * lead
    return x + lead * (v + half * (a + lead / 3.0 * jerk)), v + lead * (a + half * jerk), a + lead * jerk


def with_lead(kernel: Kernel, lead: float) -> Kernel:
    """Return ``kernel`` with the target extrapolated by ``lead`` (s); unchanged if ``lead`` is 0."""
    if not lead:
        return kernel
    constants, rest, step = kernel
    return Kernel(lambda params, dt: (lead, dt, constants(params, dt)), lambda k: (NAN, rest(k[2])), ahead(step))


def response(lead: float, omega: Frequencies) -> Complex:
    """Return the frequency response ``(n,)`` of the ``lead`` (s) at ``omega`` (rad/s) for exact derivatives."""
    s = 1j * np.asarray(omega) * lead
    return np.asarray(1.0 + s * (1.0 + 0.5 * s * (1.0 + s / 3.0)), complex)


def ramp_seen(test: TestContext) -> str:
    return "" if test.behind else test.ramp


def acceleration_cautions(test: TestContext) -> list[str]:
    if ramp_seen(test) != "linear":
        return []
    return ["this compensator uses the acceleration, which is zero on the linear ramp. Set ramp.type = quadratic"]


class OnNumbers(Compensator):
    """A compensator whose method ``commands`` uses floats instead of arrays."""

    _n_axes: int

    @abstractmethod
    def commands(
        self, x: Floats, v: Floats, a: Floats, measured: Floats, force: Floats, rests: bool, preparing: bool
    ) -> list[float]: ...

    def step(self, target: Motion, measured: Array) -> Array:
        motion = target.displacement.tolist(), target.velocity.tolist(), target.acceleration.tolist()
        force = target.force.tolist() or [0.0] * self._n_axes
        return np.array(self.commands(*motion, measured.tolist(), force, target.flagged, target.preparing))


Shown = Callable[..., Numbers | Array]
"""``shown(constants, state)`` returns the recorded numbers of one axis or of coupled axes."""


class Bound(NamedTuple):
    """Kernel and states of a compensator, for a loop that calls kernels directly.

    ``states`` has one entry per axis, or a single entry if the axes are coupled. The functions ``shown`` return
    the numbers of ``state()``, in order. If ``renewed`` is defined, these numbers change only in steps after which
    ``renewed(state)`` is true.
    """

    step: Function
    constants: object
    states: Sequence[object]
    coupled: bool
    shown: Sequence[Shown]
    renewed: Callable[..., bool] | None = None


def nothing(k: object, s: object) -> tuple[()]:
    return ()


def behind_lead(shown: Shown) -> Shown:
    def of_inner(k: tuple[float, float, object], s: tuple[float, object]) -> Numbers | Array:
        _, _, constants = k
        _, inner = s
        return shown(constants, inner)

    return of_inner


class CoupledKernel(NamedTuple):
    """Kernel for all axes together, with the fields of :class:`rths_nodes.core.kernels.Kernel`."""

    constants: Function
    rest: Function
    step: Function


class PerAxis(OnNumbers):
    """A compensator defined by its ``KERNEL``, with a state for each axis.

    ``SHOWN`` returns the recorded numbers of a state. ``state_units`` maps their names (without axis) to units.
    """

    SHOWN: ClassVar[Shown] = staticmethod(nothing)
    renewed: Callable[..., bool] | None = None
    reads_ahead: ClassVar[bool] = False
    """True if the kernel itself extrapolates the target by the parameter ``lead``."""
    inherited: ClassVar[tuple[str, ...]] = ("commands", "state")
    """Methods that a subclass must not override if a loop is to call the kernel directly."""

    def __init__(self, params: AnyParams, dt: float, n_axes: int) -> None:
        self._p, self._dt, self._n_axes = params, dt, n_axes
        self._leads = bool(self._lead_of(params))
        self._shown: Shown = behind_lead(self.SHOWN) if self._leads else self.SHOWN
        kernel = self.kernel_of(params)
        constants, self._rest, self._step = kernel
        self._constants, self._coupled = constants(params, dt), isinstance(kernel, CoupledKernel)
        self.state_names = tuple(f"{name}[{axis}]" for axis in range(n_axes) for name in self.state_units)
        self.reset()

    @classmethod
    def kernel_of(cls, params: AnyParams) -> Kernel | CoupledKernel:
        return with_lead(cls.own_kernel(params), cls._lead_of(params))

    @classmethod
    def own_kernel(cls, params: AnyParams) -> Any:
        return cls.KERNEL

    @classmethod
    def _lead_of(cls, params: object) -> float:
        return 0.0 if cls.reads_ahead else getattr(params, "lead", 0.0)

    def reset(self) -> None:
        self.states = [self._rest(self._constants) for _ in range(1 if self._coupled else self._n_axes)]

    def commands(
        self, x: Floats, v: Floats, a: Floats, measured: Floats, force: Floats, rests: bool, preparing: bool
    ) -> list[float]:
        step, k, states, commands = self._step, self._constants, self.states, []
        if self._coupled:
            rows = map(tuple, (x, v, a, measured, force))
            states[0], together = step(k, states[0], *rows, rests, preparing)
            return list(together)
        for axis, state in enumerate(states):
            states[axis], command = step(
                k, state, x[axis], v[axis], a[axis], measured[axis], force[axis], rests, preparing
            )
            commands.append(command)
        return commands

    def lead_response(self, omega: Frequencies) -> Complex:
        return response(self._p.lead, omega)

    def state(self) -> list[float]:
        return [*chain.from_iterable(map(self._shown, repeat(self._constants), self.states))]

    def bound(self) -> Bound | None:
        if not inherits(type(self), PerAxis, *self.inherited):
            return None
        parts = self._step, self._constants, self.states, self._coupled
        return Bound(*parts, (self._shown,), self.renewed)


def of_kernel(name: str, kernel: Kernel | Function) -> type[PerAxis]:
    """Return a compensator class without parameters. ``kernel`` can be a step function alone."""
    complete = kernel if isinstance(kernel, Kernel) else Kernel(lambda params, dt: (), no_state, kernel)
    content = {"Params": params(type("Params", (), {})), "KERNEL": complete, "__doc__": complete.step.__doc__}
    return type(name, (PerAxis,), content | {"__module__": complete.step.__module__})
