"""Adaptive compensation by a discrete model of the loading system (SADC; Wang et al., TADC, Eqs. 3-5).

The loading system is taken for a model that is already the inverse of its delay and of its amplitude error,

    y_ac(j) = theta . [y_m(j), y_m(j - s), y_m(j - 2 s)]           Eq. (3), least squares with forgetting, Eq. (5)
    y_ac(k) = theta^ . [y_a(k), y_a(k - s), y_a(k - 2 s)]          Eq. (4)

with the target y_a, the measured displacement y_m and the output y_ac of this compensator. At sample k the newest
pair is the displacement measured at k - 1 and the output of that same sample; the model therefore contains the
delay of transport. The spacing s is not in print; 5 samples at 1024 Hz give parameters like those published.

In front of a polynomial extrapolation (``chain``) it is the adaptive stage of the two-stage method, TADC, and
identifies what that leaves over.

What is added to the published law. Started within the running test (P = 1000 I in 1/mm^2, updates from 0.5 s on,
no soft start) the law as printed bursts: three parameters learned from the first few samples of a motion that has
hardly begun make forces of MN. While ``guarded``,

- the parameters in use follow the identified ones along a straight line, no faster than ``parameter_rate``: every
  point of that line is a mixture of two predictors, and what is identified stays as published;
- parameters whose magnitudes sum up to more than ``largest_gain``, by which they may enlarge a target, are not
  taken over;
- learning rests while all measured taps are below ``quiet_amplitude``: from noise there is nothing to learn, and
  the covariance would grow without end.

``guarded: false`` is the published law; it belongs behind a soft start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rths_nodes.control.compensators.ahead import Ahead, lead_parameter
from rths_nodes.core.checks import TestContext
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.frequency_response import Complex, Frequencies, taps
from rths_nodes.core.parameters import flag, integer, number, params, text, vector
from rths_nodes.core.samples import Array, Motion
from rths_nodes.core.signals import Taps, ThreeParameterLeastSquares

TAPS = 3
"""Parameters of the model, Eq. (3)."""

PER_MM2 = 1e6
"""1/mm^2 in 1/m^2."""

BURSTING_PER_MM2 = 100.0
"""First covariance from which the published law bursts within the loop, at motions of millimetres.

On the paper's frame under a sine the largest errors are 12, 23, 92 and 549 % for 1, 10, 100 and 1000 1/mm^2.
"""

PEAK_TO_RMS = 4.0
"""Peaks of a Gaussian noise within a second or so, over its rms."""


class DiscreteModel:
    """Compensation by an adaptive discrete model with three parameters (SADC), per axis."""

    @params
    class Params:
        spacing: int = integer("distance of the samples of the model", "samples", 5, at_least=1, at_most=100_000)
        forgetting: float = number(
            "forgetting factor rho per sample; 1 never forgets", "1", 0.9996, more_than=0.0, at_most=1.0
        )
        initial: tuple[float, ...] = vector(
            "first parameters; [1, 0, 0] sends the target, others come from an offline fit", "1", (1.0, 0.0, 0.0)
        )
        initial_covariance_per_mm2: float = number(
            "first covariance of the parameters: large is quick and wild; published 1000, with a soft start",
            "1/mm^2",
            1.0,
            more_than=0.0,
            at_most=1e9,
        )
        after_soft_start: str = text(
            "what becomes of the covariance after a soft start", "keep", choices=("keep", "reset")
        )
        update_after: float = number("time of the test from which on it learns", "s", 0.5, at_least=0.0)
        guarded: bool = flag("keep to the three limits below; false is the published law", default=True)
        parameter_rate: float = number(
            "largest rate of the parameters in use, as a vector", "1/s", 30.0, more_than=0.0
        )
        largest_gain: float = number(
            "largest sum of the magnitudes of the parameters in use", "1", 100.0, more_than=0.0
        )
        quiet_amplitude: float = number(
            "measured displacement below which learning rests; four times the noise or more",
            "m",
            5e-5,
            at_least=0.0,
        )
        lead: float = lead_parameter()

        def validate(self, path: str) -> None:
            """Refuses initial parameters that are not three, or beyond their own limit."""
            if len(self.initial) != TAPS:
                raise ConfigError(f"{path}.initial = {show(list(self.initial))}: must be {TAPS} numbers")
            if self.guarded and _gain(self.initial) > self.largest_gain:
                raise ConfigError(
                    f"{path}.initial = {show(list(self.initial))}: the sum of their magnitudes must be <= "
                    f"largest_gain = {self.largest_gain:g}"
                )

        def cautions(self, test: TestContext) -> list[str]:
            """Warns of the published start within the loop, and of noise from which it would learn."""
            noise = max(test.displacement_noise_rms, default=0.0)
            quiet = self.quiet_amplitude if self.guarded else 0.0
            found = []
            if self._starts_wildly(test):
                found.append(
                    f"initial_covariance_per_mm2 = {self.initial_covariance_per_mm2:g} 1/mm^2 without a soft "
                    "start whose covariance is kept: may burst when it begins to learn within the loop"
                )
            if noise * PEAK_TO_RMS > quiet:
                found.append(
                    f"learns from the noise, {noise:g} m rms: in a quiet time of a few seconds the parameters, "
                    "and with them the command, go to zero; keep it guarded, with a quiet_amplitude of "
                    f"{PEAK_TO_RMS:g} times that"
                )
            return found

        def _starts_wildly(self, test: TestContext) -> bool:
            prepared = test.has_soft_start and self.after_soft_start == "keep"
            wild = self.initial_covariance_per_mm2 >= BURSTING_PER_MM2
            return wild and not prepared and test.has_structure

    state_units: Mapping[str, str] = {f"theta_{tap + 1}": "1" for tap in range(TAPS)}

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        self._p = params
        self._dt = dt
        self._axes = [_Axis(params, dt) for _ in range(n_axes)]
        self._command = np.zeros(n_axes)
        self._ahead = Ahead(params.lead, dt, n_axes)
        self.state_names = tuple(f"{name}[{axis}]" for axis in range(n_axes) for name in self.state_units)
        self.reset()

    def reset(self) -> None:
        """At rest, nothing learned."""
        for axis in self._axes:
            axis.reset()
        self._ahead.reset()
        self._preparing = False
        self._sample = 0

    def step(self, target: Motion, measured: Array) -> Array:
        preparing = target.preparing
        if self._preparing and not preparing:
            self._begin_test()
        self._preparing = preparing
        self._sample += not preparing
        learning = not target.flagged and (preparing or self._sample * self._dt >= self._p.update_after)
        command = self._command
        wanted_ahead = self._ahead.of(target).displacement
        values = zip(self._axes, wanted_ahead.tolist(), measured.tolist(), strict=True)
        for index, (axis, wanted, seen) in enumerate(values):
            taps = axis.measured.push(seen)
            if learning:
                axis.learn(taps)
                if not preparing:
                    axis.take_over()
            command[index] = axis.answer(wanted)
        return command

    def _begin_test(self) -> None:
        """The soft start is over: the rig is at rest, and what was learned counts."""
        for axis in self._axes:
            axis.rest()
            axis.theta = axis.model.theta if axis.allowed(axis.model.theta) else axis.theta
            if self._p.after_soft_start == "reset":
                axis.model.forget()

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Command over target at ``omega`` (rad/s) with the initial parameters, Eq. (4)."""
        spacing = self._p.spacing * self._dt
        own = taps(omega, self._p.initial, [tap * spacing for tap in range(TAPS)])
        return own * self._ahead.response(omega)

    def state(self) -> list[float]:
        return [value for axis in self._axes for value in axis.theta]


class _Axis:
    """One axis: the parameters in use, the model that learns, the past of target, measurement and output."""

    def __init__(self, params: DiscreteModel.Params, dt: float) -> None:
        self._initial = list(params.initial)
        self._rate = params.parameter_rate * dt if params.guarded else math.inf
        self._largest = params.largest_gain if params.guarded else math.inf
        self._quiet = params.quiet_amplitude if params.guarded else 0.0
        self.target = Taps(TAPS, params.spacing)
        self.measured = Taps(TAPS, params.spacing)
        self.model = ThreeParameterLeastSquares(
            params.initial, params.initial_covariance_per_mm2 * PER_MM2, params.forgetting
        )

    def reset(self) -> None:
        self.model.reset()
        self.theta = self._initial
        self.rest()

    def rest(self) -> None:
        """The past is forgotten: a rig at rest at zero."""
        self.target.reset()
        self.measured.reset()
        self._output = 0.0

    def learn(self, seen: list[float]) -> None:
        """Eqs. (3) and (5) with the newest pair: the last measurement and the output of that same sample."""
        if max(seen) >= self._quiet or min(seen) <= -self._quiet:
            self.model.update(seen, self._output)

    def take_over(self) -> None:
        """Move the parameters in use towards the identified ones, as far as the limits allow."""
        theta, wanted = self.theta, self.model.theta
        distance = math.dist(theta, wanted)
        if distance > self._rate:
            part = self._rate / distance
            (a, b, c), (x, y, z) = theta, wanted
            wanted = [a + part * (x - a), b + part * (y - b), c + part * (z - c)]
        if self.allowed(wanted):
            self.theta = wanted

    def allowed(self, theta: list[float]) -> bool:
        """True when no target is enlarged beyond the limit."""
        return _gain(theta) <= self._largest

    def answer(self, wanted: float) -> float:
        """Eq. (4)."""
        now, before, earlier = self.target.push(wanted)
        a, b, c = self.theta
        self._output = output = a * now + b * before + c * earlier
        return output


def _gain(theta: tuple[float, ...] | list[float]) -> float:
    """The largest factor by which ``theta`` can enlarge a bounded target."""
    a, b, c = theta
    return abs(a) + abs(b) + abs(c)
