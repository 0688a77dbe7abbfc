"""Ramps: from Targets at the integration step to motions at the servo rate (Chen & Ricles 2010, Eq. 2).

A ramp hands on displacement, velocity and acceleration that belong together: those of its own curve, not the
integrator's; the curve of ``hermite`` has the integrator's at every target. The velocity of an integrator that
publishes a late one is put right before (``loop/stages/in_time.py``).

A ramp that needs no Target at the first sub-steps of a step has their number as ``predicted`` and, for them,
``predict(substep)``, which gives before ``follow`` what ``step`` gives after it.
"""

from __future__ import annotations

import numpy as np

from rths_nodes.core.parameters import integer, number, params
from rths_nodes.core.rounding import ROUNDING
from rths_nodes.core.samples import Array, Motion, Target

TABLE = {
    "linear": ":LinearRamp",
    "quadratic": ":QuadraticRamp",
    "hermite": ":HermiteRamp",
    "predictor_corrector": ":PredictorCorrectorRamp",
}


class LinearRamp:
    """Straight line between targets, Eq. (2): the papers' ramp.

    Its slope jumps at each target; an inverse compensator turns that into a sawtooth at the step rate.
    """

    @params
    class Params:
        pass

    def __init__(self, params: Params, dt: float, substeps: int, n_dof: int) -> None:
        self._step = dt * substeps
        self._substeps = substeps
        self._acceleration = np.zeros(n_dof)

    def start(self, target: Target) -> None:
        """Stand at Target 0."""
        self._from = self._to = target.displacement.copy()

    def follow(self, target: Target) -> None:
        self._from, self._to = self._to, target.displacement.copy()
        self._difference = self._to - self._from
        self._velocity = self._difference / self._step

    def step(self, substep: int) -> Motion:
        displacement = substep / self._substeps * self._difference + self._from
        return Motion(displacement, self._velocity, self._acceleration)


class QuadraticRamp:
    """Parabola through the last three targets: the slope jumps by a third difference only.

    The recommended ramp behind an inverse compensator. Before the first target the motion is continued
    backwards with the velocity and acceleration of the start.
    """

    @params
    class Params:
        pass

    def __init__(self, params: Params, dt: float, substeps: int, n_dof: int) -> None:
        self._step = dt * substeps
        self._substeps = substeps

    def start(self, target: Target) -> None:
        """Stand at Target 0."""
        h = self._step
        self._to = target.displacement.copy()
        self._from = self._to - h * target.velocity + 0.5 * h**2 * target.acceleration

    def follow(self, target: Target) -> None:
        before, self._from, self._to = self._from, self._to, target.displacement.copy()
        self._slope = (self._to - before) / (2.0 * self._step)
        self._acceleration = (self._to - 2.0 * self._from + before) / self._step**2

    def step(self, substep: int) -> Motion:
        time = substep / self._substeps * self._step
        velocity = self._slope + time * self._acceleration
        displacement = self._from + time * (self._slope + 0.5 * time * self._acceleration)
        return Motion(displacement, velocity, self._acceleration)


class HermiteRamp:
    """Curve of fifth degree with the displacement, velocity and acceleration of both targets at its ends.

    The integrator's own motion: for compensators that use derivatives of the target. With one sub-step it hands on
    the targets as they are; with more, velocity and acceleration run on smoothly from step to step.
    """

    @params
    class Params:
        pass

    def __init__(self, params: Params, dt: float, substeps: int, n_dof: int) -> None:
        step = dt * substeps
        tables = hermite_weights(np.arange(1, substeps) / substeps)
        scale = np.array([1.0, step, step**2, 1.0, step, step**2])
        weights = [table * scale / step**order for order, table in enumerate(tables)]
        self._weights = np.array(weights).transpose(1, 0, 2).copy()
        self._substeps = substeps

    def start(self, target: Target) -> None:
        """Stand at Target 0."""
        self._to = _end(target)

    def follow(self, target: Target) -> None:
        before, self._to = self._to, _end(target)
        if self._substeps > 1:
            self._ends = np.array(before + self._to)

    def step(self, substep: int) -> Motion:
        if substep == self._substeps:
            return Motion(*self._to)
        displacement, velocity, acceleration = self._weights[substep - 1].dot(self._ends)
        return Motion(displacement, velocity, acceleration)


def _end(target: Target) -> tuple[Array, Array, Array]:
    return target.displacement.copy(), target.velocity.copy(), target.acceleration.copy()


def hermite_weights(times: Array) -> Array:
    """Weights of value, first and second derivative at 0 and at 1, in this order, for the curve at ``times``.

    For value, first and second derivative there, ``(3, len(times), 6)``.
    """
    powers = np.arange(6)
    factorials = np.array([1.0, 1.0, 2.0])
    at_one = np.array([[1.0] * 6, powers, powers * (powers - 1)])
    conditions = np.vstack([np.diag(factorials) @ np.eye(3, 6), at_one])
    coefficients = np.linalg.inv(conditions)
    value = np.vander(times, 6, increasing=True)
    first, second = np.zeros_like(value), np.zeros_like(value)
    first[:, 1:] = value[:, :-1] * powers[1:]
    second[:, 1:] = first[:, :-1] * powers[1:]
    return np.array([value, first, second]) @ coefficients


class PredictorCorrectorRamp:
    """Prediction from past targets while the next is being computed, then correction towards it without a jump.

    For an integrator slower than one sample: its target is not needed in the first ``predicted_share`` of a step,
    where the motion goes on along the polynomial through the last ``order`` + 1 targets. The rest adds the error
    that this prediction will have at the end of the step, by a cubic 3 s^2 - 2 s^3 with no slope at its ends: the
    displacement never jumps, its slope only where a step begins, and the correction is not faster than 1.5 times
    the error over the rest of the step. Before the first target the motion is continued backwards with the
    velocity and acceleration of the start.
    """

    @params
    class Params:
        predicted_share: float = number(
            "share of the step that is predicted, rounded down to whole samples",
            "1",
            0.6,
            at_least=0.0,
            at_most=0.8,
        )
        order: int = integer("order of the polynomial", default=2, at_least=1, at_most=3)

    def __init__(self, params: Params, dt: float, substeps: int, n_dof: int) -> None:
        self._step = dt * substeps
        self._order = params.order
        times = np.arange(substeps + 1) / substeps
        self._prediction = [table / self._step**k for k, table in enumerate(extrapolation(times, params.order))]
        self.predicted = int(params.predicted_share * substeps + ROUNDING)
        start = self.predicted / substeps
        s = np.clip((times - start) / (1.0 - start), 0.0, 1.0)
        rate = (s > 0.0) / (self._step * (1.0 - start))
        shapes = (3.0 * s**2 - 2.0 * s**3, 6.0 * (s - s**2) * rate, (6.0 - 12.0 * s) * rate**2)
        self._correction = list(np.array(shapes).T.tolist())

    def start(self, target: Target) -> None:
        """Stand at Target 0."""
        back = -self._step * np.arange(self._order + 2)[:, None]
        # newest first; the last row makes place when the first target comes
        self._targets = target.displacement + back * target.velocity + 0.5 * back**2 * target.acceleration

    def follow(self, target: Target) -> None:
        self._targets = np.vstack([target.displacement, self._targets[:-1]])
        self._past = self._targets[1:]
        self._error = self._targets[0] - self._prediction[0][-1] @ self._past

    def predict(self, substep: int) -> Motion:
        """Motion at a sub-step of the predicted share, before :meth:`follow`; the same as after it."""
        return self._predicted(substep, self._targets[:-1])

    def _predicted(self, substep: int, past: Array) -> Motion:
        return Motion(*(table[substep].dot(past) for table in self._prediction))

    def step(self, substep: int) -> Motion:
        predicted = self._predicted(substep, self._past)
        if substep <= self.predicted:
            return predicted
        x, v, a = predicted.displacement, predicted.velocity, predicted.acceleration
        by_x, by_v, by_a = self._correction[substep]
        return Motion(x + by_x * self._error, v + by_v * self._error, a + by_a * self._error)


def extrapolation(times: Array, order: int) -> tuple[Array, Array, Array]:
    """Weights of past values, spaced by 1 and the newest first, for the polynomial through them at ``times`` >= 0.

    For value, first and second derivative, shapes ``(len(times), order + 1)``.
    """
    powers = np.arange(order + 1)
    # coefficients of the polynomial from its values at 0, -1, -2, ...
    from_values = np.linalg.inv(np.vander(-powers.astype(float), order + 1, increasing=True))
    value = np.vander(times, order + 1, increasing=True)
    first, second = np.zeros_like(value), np.zeros_like(value)
    first[:, 1:] = value[:, :-1] * powers[1:]
    second[:, 1:] = first[:, :-1] * powers[1:]
    return value @ from_values, first @ from_values, second @ from_values
