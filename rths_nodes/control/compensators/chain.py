# SPDX-License-Identifier: Apache-2.0
"""Two compensators in series: the output of the first is the target of the second.

Both stages receive the same measurement. Two-stage adaptive delay compensation (TADC, Wang et al.) is the chain of
`discrete_model` and `polynomial`. The polynomial compensates most of the delay, and the model compensates the
remainder (Fig. 1).
"""

from __future__ import annotations

from itertools import chain

from rths_nodes.control.compensators.per_axis import (
    Bound,
    OnNumbers,
    Shown,
    ahead,
    behind_lead,
    lead_parameter,
    read_ahead,
    response,
)
from rths_nodes.core import registry
from rths_nodes.core.arithmetic import NAN, Numbers
from rths_nodes.core.control import Floats
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies, in_series
from rths_nodes.core.kernels import ToNumber
from rths_nodes.core.parameters import OfParams, component, params, type_of
from rths_nodes.core.samples import Array

Constants = tuple[float, object, object]
State = tuple[object, tuple[float, float], object]


def between(dt: float, s: tuple[float, float], output: float) -> tuple[tuple[float, float], float, float]:
    """Return the next state, and the velocity and acceleration of ``output`` (m) from backward differences."""
    before, velocity_before = s
    velocity = (output - before) / dt
    return (output, velocity), velocity, (velocity - velocity_before) / dt


def chained(first: ToNumber, second: ToNumber) -> ToNumber:
    def step(
        k: Constants, s: State, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
    ) -> tuple[object, float]:
        """Return the command of the second compensator, whose target is the command of the first."""
        dt, of_first, of_second = k
        one, middle, two = s
        one, output = first(of_first, one, x, v, a, m, f, rests, preparing)
        middle, velocity, acceleration = between(dt, middle, output)
        two, command = second(of_second, two, output, velocity, acceleration, m, f, rests, preparing)
        return (one, middle, two), command

    return step


def of_stage(shown: Shown, index: int) -> Shown:
    """Return ``shown`` of the first (``index`` 0) or second compensator for the state of the chain."""

    def of_first(k: Constants, s: State) -> Numbers | Array:
        """Return the recorded numbers of the first compensator."""
        _, constants, _ = k
        state, _, _ = s
        return shown(constants, state)

    def of_second(k: Constants, s: State) -> Numbers | Array:
        """Return the recorded numbers of the second compensator."""
        _, _, constants = k
        _, _, state = s
        return shown(constants, state)

    return of_second if index else of_first


class Chain(OnNumbers):
    """Two compensators in series: the output of the first is the target of the second. Chains can be nested."""

    @params
    class Params:
        first: OfParams = component("compensator", "compensator that receives the target of the test")
        second: OfParams = component(
            "compensator", "compensator whose target is the output of the first", after="first"
        )
        lead: float = lead_parameter()

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        self._dt, self._lead = dt, params.lead
        stages = {"first": params.first, "second": params.second}
        built = {name: registry.build("compensator", stage, dt, n_axes) for name, stage in stages.items()}
        names: list[str] = []
        units: dict[str, str] = {}
        limits: dict[str, tuple[float, float]] = {}
        for prefix, stage in built.items():
            if stage.external:
                raise ConfigError(
                    f"compensator.{prefix}.type = {type_of(stages[prefix])!r}: cannot be part of a chain, "
                    "because it runs in another process"
                )
            names += [f"{prefix}.{name}" for name in stage.state_names]
            units |= {f"{prefix}.{name}": unit for name, unit in stage.state_units.items()}
            limits |= {f"{prefix}.{name}": bounds for name, bounds in stage.state_limits.items()}
        self._both = self._first, self._second = built["first"], built["second"]
        self.state_names, self.state_units, self.state_limits = tuple(names), units, limits
        self._n_axes = n_axes
        self.reset()

    def reset(self) -> None:
        self._first.reset()
        self._second.reset()
        self._between = [(0.0, 0.0)] * self._n_axes
        self._acceleration: Floats = [NAN] * self._n_axes

    def commands(
        self, x: Floats, v: Floats, a: Floats, measured: Floats, force: Floats, rests: bool, preparing: bool
    ) -> list[float]:
        if self._lead:
            rows = zip(self._acceleration, x, v, a, strict=True)
            self._acceleration = a
            x, v, a = zip(*[read_ahead(self._lead, self._dt, *row) for row in rows], strict=True)
        output = self._first.commands(x, v, a, measured, force, rests, preparing)
        derivatives = [between(self._dt, s, now) for s, now in zip(self._between, output, strict=True)]
        self._between = [s for s, _, _ in derivatives]
        motion = output, [v for _, v, _ in derivatives], [a for _, _, a in derivatives]
        commands: list[float] = self._second.commands(*motion, measured, force, rests, preparing)
        return commands

    def frequency_response(self, omega: Frequencies) -> Complex:
        first, second = (stage.frequency_response(omega) for stage in (self._first, self._second))
        chain = in_series(first, second)
        led = response(self._lead, omega)
        return chain * (led if chain.ndim == 1 else led[:, None, None])

    def state(self) -> list[float]:
        return list(chain(self._first.state(), self._second.state()))

    def bound(self) -> Bound | None:
        first, second = (stage.bound() for stage in self._both)
        if first is None or second is None or first.coupled or second.coupled:
            return None
        states: list[object] = list(zip(first.states, self._between, second.states, strict=True))
        shown = [of_stage(stage, 0) for stage in first.shown] + [of_stage(stage, 1) for stage in second.shown]
        step, constants = chained(first.step, second.step), (self._dt, first.constants, second.constants)
        if not self._lead:
            return Bound(step, constants, states, False, shown)
        states = list(zip(self._acceleration, states, strict=True))
        arguments = (self._lead, self._dt, constants), states, False, [behind_lead(stage) for stage in shown]
        return Bound(ahead(step), *arguments)
