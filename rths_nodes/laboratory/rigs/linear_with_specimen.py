"""A linear system with one nonlinear specimen in it, stepped exactly but for the specimen's force."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rths_nodes.core.decay import HARD_LIMIT, Decay, decay_of
from rths_nodes.core.discretisation import transition
from rths_nodes.core.protocols import Specimen
from rths_nodes.core.rounding import ROUNDING
from rths_nodes.core.samples import Array
from rths_nodes.laboratory.runge_kutta import advance_of


def substeps_of(dt: float, longest: float) -> int:
    """The number of equal sub-steps of a sample of ``dt`` (s) that are no longer than ``longest`` (s)."""
    return max(1, math.ceil(dt / longest * (1.0 - ROUNDING)))


class NoSpecimen:
    """In the place of a specimen where there is none."""

    initial_state: tuple[float, ...] = ()
    decay = Decay()

    def force(self, state: Sequence[float], displacement: float, velocity: float) -> float:
        return 0.0

    def rate(self, state: Sequence[float], displacement: float, velocity: float) -> tuple[float, ...]:
        return ()


class LinearWithSpecimen:
    """z' = A z + B u + e F, F the force of a specimen at the displacement and velocity that are linear in z.

    A ``(n, n)``, B ``(n, m)``, e ``(n,)``, and the rows ``(n,)`` that give displacement and velocity. In each of
    the ``substeps`` of a sample the linear part is exact for inputs that run straight, as the force does from its
    value before to the one that the specimen has after a first pass with the force held; the specimen's states go
    on by RK4 along the velocity of that pass, in more than one increment where they forget fast. The error is of
    second order in the sub-step.
    """

    def __init__(
        self,
        linear: tuple[Array, Array],
        specimen_column: Array,
        specimen_rows: tuple[Array, Array],
        specimen: Specimen,
        dt: float,
        substeps: int,
    ) -> None:
        system, inputs = linear
        self.specimen = specimen
        self._advance = advance_of(specimen)
        self._decay = decay_of(specimen)
        self._fastest = self._decay.fastest(dt / substeps)
        self._most = HARD_LIMIT / substeps
        self._n, self._substeps, self._h = len(system), substeps, dt / substeps
        phi, before, now = transition(system, np.column_stack([inputs, specimen_column]), self._h)
        with_specimen = np.vstack([np.eye(self._n), *specimen_rows])  # the state, then displacement and velocity
        self._matrix = with_specimen @ np.column_stack([phi, before[:, -1] + now[:, -1]])
        self._correction = with_specimen @ now[:, -1]
        self._drive = np.vstack([with_specimen @ part for part in self._driven(before[:, :-1], now[:, :-1])])
        self._inputs = np.zeros(2 * inputs.shape[1])
        self._force = 0.0
        self.reset()

    def _driven(self, before: Array, now: Array) -> list[Array]:
        """Per sub-step the matrix ``(n, 2 m)`` from the inputs at both ends of the sample."""
        parts = []
        for index in range(self._substeps):
            start, end = index / self._substeps, (index + 1) / self._substeps
            parts.append(np.hstack([(1.0 - start) * before + (1.0 - end) * now, start * before + end * now]))
        return parts

    def reset(self) -> None:
        """At rest at zero, the specimen as built."""
        self.state_and_force = np.zeros(self._n + 1)
        self._specimen_state = list(self.specimen.initial_state)
        self._place = (0.0, 0.0)
        self._keep_force()

    @property
    def force(self) -> float:
        """Of the specimen, N."""
        return self._force

    @property
    def displacement(self) -> float:
        """Of the specimen, m."""
        return self._place[0]

    def step(self, before: Array, now: Array) -> None:
        """One sample on, the inputs ``(m,)`` straight from ``before`` to ``now``.

        ``state_and_force`` ``(n + 1,)`` is z with F behind it, changed in place.
        """
        n, m = self._n, len(before)
        self._inputs[:m], self._inputs[m:] = before, now
        driven = self._drive.dot(self._inputs).reshape(self._substeps, n + 2)
        onward, state, force = self._matrix.dot, self.state_and_force, self.specimen.force
        for drive in driven:
            after = onward(state)
            after += drive
            self._move(*after[n:].tolist())
            change = force(self._specimen_state, *self._place) - self._force
            if change:
                after += change * self._correction
                self._place = tuple(after[n:].tolist())
            state[:n] = after[:n]
            self._force = state[n] = force(self._specimen_state, *self._place)

    def _keep_force(self) -> None:
        self._force = self.specimen.force(self._specimen_state, *self._place)
        self.state_and_force[self._n] = self._force

    def _move(self, x1: float, v1: float) -> None:
        """The specimen's states along a velocity that runs straight from the present one to ``v1`` (m/s)."""
        (x0, v0), self._place = self._place, (x1, v1)
        if not self._specimen_state:
            return
        fastest = max(abs(v0), abs(v1))
        if fastest <= self._fastest:
            self._increment(self._h, x0, v0, x1, v1)
        else:
            self._increments(self._decay.increments(fastest, self._h), x0, v0, x1, v1)

    def _increments(self, needed: float, x0: float, v0: float, x1: float, v1: float) -> None:
        """The way in equal times; between its ends the displacement is cubic, by both velocities.

        Where they would be too many, the states become nan.
        """
        if not needed <= self._most:
            self._specimen_state = [math.nan] * len(self._specimen_state)
            return
        number, h, x, v = int(needed), self._h, x0, v0
        for index in range(1, number + 1):
            s = index / number
            rest = 1.0 - s
            ahead = rest * rest * (x0 + s * (2.0 * x0 + h * v0)) + s * s * (x1 + rest * (2.0 * x1 - h * v1))
            faster = v0 + s * (v1 - v0)
            self._increment(h / number, x, v, ahead, faster)
            x, v = ahead, faster

    def _increment(self, h: float, x0: float, v0: float, x1: float, v1: float) -> None:
        """One RK4 step of ``h`` (s)."""
        middle = 0.5 * (x0 + x1) + 0.125 * h * (v0 - v1), 0.5 * (v0 + v1)
        self._specimen_state = self._advance(self._specimen_state, h, (x0, v0), middle, (x1, v1))
