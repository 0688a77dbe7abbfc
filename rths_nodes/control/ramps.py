# SPDX-License-Identifier: Apache-2.0
"""Ramps: interpolate the Targets of integration steps to motions at the servo rate (Chen & Ricles 2010, Eq. 2).

A ramp returns displacement, velocity and acceleration of its own curve. Only ``hermite`` reproduces the
integrator's velocity and acceleration at every target. ``loop/stages/command.py`` corrects a velocity that an
integrator publishes late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from rths_nodes.core.control import Ramp, Rows, motion_of, rows_of
from rths_nodes.core.kernels import Function
from rths_nodes.core.parameters import AnyParams, integer, number, params
from rths_nodes.core.samples import ROUNDING, Motion, Target

TABLE = {
    "linear": ":LinearRamp",
    "quadratic": ":QuadraticRamp",
    "hermite": ":HermiteRamp",
    "predictor_corrector": ":PredictorCorrectorRamp",
}
FEW = 3
"""Largest number of degrees of freedom for which floats are faster than arrays."""
Triple = tuple[float, float, float]
Step = tuple[float, int]
Four = tuple[float, float, float, float]
"""State of a linear or quadratic ramp, or coefficients (m) of a cubic polynomial in the fraction of a step."""


class RampKernel(NamedTuple):
    constants: Function
    """``constants(params, dt, substeps) -> constants``, with the servo period ``dt`` in s."""
    start: Function
    """``start(constants, x, v, a) -> state`` at Target 0."""
    follow: Function
    """``follow(constants, state, x, v, a) -> state`` for the step that ends at the Target ``(x, v, a)``."""
    step: Function
    """``step(constants, state, substep) -> x, v, a``."""
    predict: Function
    """``step`` for a predicted substep, called before ``follow``."""


class OfKernel(Ramp):
    """Ramp that computes its motion with a ``kernel``.

    If ``apart`` is true, each degree of freedom has its own state. Otherwise one state holds arrays for all
    degrees of freedom. If ``hands_on`` is true, a step has no substeps and Targets are returned unchanged.
    """

    hands_on = False

    def __init__(self, params: AnyParams, dt: float, substeps: int, n_dof: int) -> None:
        self.kernel: RampKernel = self.kernel_of(params)
        self._constants = self.kernel.constants(params, dt, substeps)
        self._n, self.apart = n_dof, n_dof <= FEW
        self._states: list[object] = []

    def bound(self) -> tuple[RampKernel, object]:
        return self.kernel, self._constants

    def take(self, change: Callable[[list[object]], list[object]]) -> None:
        self._states = change(self._states)

    def start(self, target: Target) -> None:
        self._states = [self.kernel.start(self._constants, *row) for row in self._motions(target, rows_of(target))]

    def follow(self, target: Target) -> None:
        self.follow_rows(target, rows_of(target))

    def follow_rows(self, target: Target, rows: Rows) -> None:
        k, follow, motions = self._constants, self.kernel.follow, self._motions(target, rows)
        self._states = [follow(k, s, x, v, a) for s, (x, v, a) in zip(self._states, motions, strict=True)]

    def step(self, substep: int) -> Motion:
        return motion_of(self.rows(substep))

    def predict(self, substep: int) -> Motion:
        return motion_of(self.predicted_rows(substep))

    def predicted_rows(self, substep: int) -> Rows:
        return self.rows(substep, predicted=True)

    def _motions(self, target: Target, rows: Rows) -> Iterable[tuple[object, ...]]:
        if self.apart:
            return zip(*rows, strict=True)
        return ((target.displacement.copy(), target.velocity.copy(), target.acceleration.copy()),)

    def rows(self, substep: int, predicted: bool = False) -> Rows:
        k, states = self._constants, self._states
        step = self.kernel.predict if predicted else self.kernel.step
        x, v, a = step(k, states[0], substep)
        if not self.apart:  # a zero acceleration is a scalar for all degrees of freedom
            return x.tolist(), v.tolist(), a.tolist() if isinstance(a, np.ndarray) else [a] * self._n
        if self._n == 1:
            return (x,), (v,), (a,)
        x, v, a = zip((x, v, a), *[step(k, state, substep) for state in states[1:]], strict=True)
        return x, v, a


def duration(params: object, dt: float, substeps: int) -> Step:
    return dt * substeps, substeps


def start_line(k: Step, x: float, v: float, a: float) -> Four:
    """Return the line at Target 0: start and end (m), difference of both (m), and slope (m/s)."""
    nothing = x - x  # an array of zeros if x is an array
    return x, x, nothing, nothing


def follow_line(k: Step, s: Four, x: float, v: float, a: float) -> Four:
    """Return the line from the last Target to the new Target, whose displacement is ``x`` (m)."""
    step, _ = k
    _, before, _, _ = s
    difference = x - before
    return before, x, difference, difference / step


def on_line(k: Step, s: Four, substep: int) -> Triple:
    """Return the motion on the line at substep j of n: start + difference j / n (Chen & Ricles 2010, Eq. 2)."""
    _, substeps = k
    before, _, difference, velocity = s
    return substep / substeps * difference + before, velocity, 0.0


class LinearRamp(OfKernel):
    """Straight line between targets (Chen & Ricles 2010, Eq. 2).

    Its slope jumps at each target. An inverse compensator converts these jumps to a sawtooth at the step rate.
    """

    SOURCES = ("chen_ricles_2010",)

    @params
    class Params:
        pass

    KERNEL = RampKernel(duration, start_line, follow_line, on_line, on_line)


def start_parabola(k: Step, x: float, v: float, a: float) -> Four:
    """Return the parabola at Target 0: start and end (m), initial slope (m/s), and curvature (m/s^2)."""
    step, _ = k
    return x - step * v + 0.5 * (step * step) * a, x, v, a


def follow_parabola(k: Step, s: Four, x: float, v: float, a: float) -> Four:
    """Return the parabola through the last two targets and the new target ``x`` (m)."""
    step, _ = k
    before, last, _, _ = s
    return last, x, (x - before) / (2.0 * step), (x - 2.0 * last + before) / (step * step)


def on_parabola(k: Step, s: Four, substep: int) -> Triple:
    """Return the motion on the parabola at ``substep``."""
    step, substeps = k
    begin, _, slope, acceleration = s
    time = substep / substeps * step
    return begin + time * (slope + 0.5 * time * acceleration), slope + time * acceleration, acceleration


class QuadraticRamp(OfKernel):
    """Parabola through the last three targets.

    The jump of its slope at a target is proportional to the third difference of the targets. Use this ramp with an
    inverse compensator. Constant acceleration is assumed before the first target.
    """

    SOURCES = ("chen_ricles_2010",)

    @params
    class Params:
        pass

    KERNEL = RampKernel(duration, start_parabola, follow_parabola, on_parabola, on_parabola)


Curve = tuple[float, float, float, float, float, float, float, float, float]
"""Displacement, velocity and acceleration of the last target; then the coefficients (m) of the curve that ends at
this target, a polynomial in the fraction of the step."""


def start_curve(k: Step, x: float, v: float, a: float) -> Curve:
    nothing = x - x
    return x, v, a, x, nothing, nothing, nothing, nothing, nothing


def follow_curve(k: Step, s: Curve, x: float, v: float, a: float) -> Curve:
    """Return the new target and the coefficients c0 to c5 (m) of the curve that ends at this target."""
    step, _ = k
    x0, v0, a0, _, _, _, _, _, _ = s
    gone, c1, by_v = x - x0, step * v0, step * v
    c2, by_a = 0.5 * (step * step) * a0, 0.5 * (step * step) * a
    c3 = 10.0 * gone - 6.0 * c1 - 4.0 * by_v - 3.0 * c2 + by_a
    c4 = -15.0 * gone + 8.0 * c1 + 7.0 * by_v + 3.0 * c2 - 2.0 * by_a
    c5 = 6.0 * gone - 3.0 * c1 - 3.0 * by_v - c2 + by_a
    return x, v, a, x0, c1, c2, c3, c4, c5


def on_curve(k: Step, s: Curve, substep: int) -> Triple:
    """Return the motion on the curve at ``substep``. The last substep returns exactly the target."""
    step, substeps = k
    x, v, a, c0, c1, c2, c3, c4, c5 = s
    if substep == substeps:
        return x, v, a
    t = substep / substeps
    x = c0 + t * (c1 + t * (c2 + t * (c3 + t * (c4 + t * c5))))
    v = (c1 + t * (2.0 * c2 + t * (3.0 * c3 + t * (4.0 * c4 + t * (5.0 * c5))))) / step
    a = (2.0 * c2 + t * (6.0 * c3 + t * (12.0 * c4 + t * (20.0 * c5)))) / (step * step)
    return x, v, a


class HermiteRamp(OfKernel):
    """Fifth-degree polynomial that matches displacement, velocity and acceleration of the targets at both ends.

    Use this ramp with compensators that need the integrator's own derivatives of the target.
    """

    @params
    class Params:
        pass

    KERNEL = RampKernel(duration, start_curve, follow_curve, on_curve, on_curve)

    def __init__(self, params: Params, dt: float, substeps: int, n_dof: int) -> None:
        super().__init__(params, dt, substeps, n_dof)
        self.hands_on = substeps == 1

    def start(self, target: Target) -> None:
        self._handed_on = rows_of(target)
        super().start(target)

    def follow_rows(self, target: Target, rows: Rows) -> None:
        self._handed_on = rows
        if not self.hands_on:
            super().follow_rows(target, rows)

    def rows(self, substep: int, predicted: bool = False) -> Rows:
        return self._handed_on if self.hands_on and not predicted else super().rows(substep, predicted)


Prediction = tuple[float, int, int, int]
"""Length of a step (s), numbers of substeps and predicted substeps, and order of the polynomial."""
Predicted = tuple[Four, Four, float, float, float, float]
"""Polynomials (m) of this step and of the next step, in the fraction of a step; error of the prediction at the end
of this step (m); last three targets (m, newest first)."""


def prediction(params: PredictorCorrectorRamp.Params, dt: float, substeps: int) -> Prediction:
    return dt * substeps, substeps, int(params.predicted_share * substeps + ROUNDING), params.order


def through(order: int, x: float, before: float, earlier: float, first: float) -> Four:
    """Return the polynomial (coefficients in m) through the last ``order`` + 1 targets; ``x`` is the newest."""
    one = x - before
    if order == 1:
        return x, one, 0.0 * one, 0.0 * one
    two = one - (before - earlier)
    if order == 2:
        return x, one + 0.5 * two, 0.5 * two, 0.0 * two
    three = two - (before - 2.0 * earlier + first)
    return x, one + 0.5 * two + three / 3.0, 0.5 * (two + three), three / 6.0


def start_prediction(k: Prediction, x: float, v: float, a: float) -> Predicted:
    """Return the state at Target 0. Earlier targets are extrapolated backwards with ``v`` and ``a``."""
    step, _, _, order = k
    before = x - step * v + 0.5 * (step * step) * a
    earlier = x - 2.0 * step * v + 2.0 * (step * step) * a
    first = x - 3.0 * step * v + 4.5 * (step * step) * a
    curve = through(order, x, before, earlier, first)
    return curve, curve, 0.0 * x, x, before, earlier


def follow_prediction(k: Prediction, s: Predicted, x: float, v: float, a: float) -> Predicted:
    """Return the next state, with the prediction error of the new target and a prediction of the next target."""
    _, _, _, order = k
    _, curve, _, before, earlier, first = s
    c0, c1, c2, c3 = curve
    error = x - (c0 + c1 + c2 + c3)
    return curve, through(order, x, before, earlier, first), error, x, before, earlier


def predicted_at(k: Prediction, s: Predicted, substep: int) -> Triple:
    step, substeps, _, _ = k
    return along_polynomial(s[1], step, substep / substeps)


def along_polynomial(curve: Four, step: float, t: float) -> Triple:
    """Return the motion on the polynomial ``curve`` at the fraction ``t`` of a ``step`` (s)."""
    c0, c1, c2, c3 = curve
    v = (c1 + t * (2.0 * c2 + t * (3.0 * c3))) / step
    return c0 + t * (c1 + t * (c2 + t * c3)), v, (2.0 * c2 + t * (6.0 * c3)) / (step * step)


def corrected_at(k: Prediction, s: Predicted, substep: int) -> Triple:
    """Return the prediction plus (3 r^2 - 2 r^3) times its error. r grows from 0 to 1 after the predicted part."""
    step, substeps, predicted, _ = k
    curve, _, error, _, _, _ = s
    x, v, a = along_polynomial(curve, step, substep / substeps)
    if substep <= predicted:
        return x, v, a
    start = predicted / substeps
    r = (substep / substeps - start) / (1.0 - start)
    rate = 1.0 / (step * (1.0 - start))
    x = x + r * r * (3.0 - 2.0 * r) * error
    return x, v + 6.0 * r * (1.0 - r) * rate * error, a + (6.0 - 12.0 * r) * (rate * rate) * error


class PredictorCorrectorRamp(OfKernel):
    """Prediction from past targets while the next target is computed, then a smooth correction to that target.

    Use this ramp if the integrator needs more than one sample to compute a step. In the first ``predicted_share``
    of a step the motion follows the polynomial through the last ``order`` + 1 targets. Then a cubic removes the
    error of this prediction by the end of the step. The slope jumps only at the start of a step. The speed
    of the correction is at most 1.5 times the error divided by the duration of the correction.
    """

    @params
    class Params:
        predicted_share: float = number(
            "share of the step in which the target is predicted, rounded down to whole samples",
            "1",
            0.6,
            at_least=0.0,
            at_most=0.8,
        )
        order: int = integer("order of the predicting polynomial", default=2, at_least=1, at_most=3)

    KERNEL = RampKernel(prediction, start_prediction, follow_prediction, corrected_at, predicted_at)

    def __init__(self, params: Params, dt: float, substeps: int, n_dof: int) -> None:
        super().__init__(params, dt, substeps, n_dof)
        _, _, self.predicted, _ = prediction(params, dt, substeps)
