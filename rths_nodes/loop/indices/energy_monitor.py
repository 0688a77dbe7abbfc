# SPDX-License-Identifier: Apache-2.0
"""Hybrid simulation energy monitor (HSEM): ratio of the energy of the tracking error to the input energy."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import MutableSequence, Sequence
from typing import NamedTuple

import numpy as np

from rths_nodes.core.arithmetic import INF
from rths_nodes.core.samples import FLAG_SOFT_START, NO_ENERGIES, Array, Target

FEW = 4
"""Largest number of Targets that are processed one by one. Arrays are faster for more Targets."""


class State(NamedTuple):
    """Input ``energy`` (J), and lists with one value per degree of freedom, which are updated in place.

    ``before`` and ``earlier`` are the displacements (m) of the last and the second-to-last Target. ``force`` is
    the last external force (N). ``highest`` and ``lowest`` are the extreme displacements (m).
    """

    energy: float
    earlier: MutableSequence[float]
    before: MutableSequence[float]
    force: MutableSequence[float]
    highest: MutableSequence[float]
    lowest: MutableSequence[float]


def rest(n_dof: int) -> State:
    return State(0.0, [0.0] * n_dof, [0.0] * n_dof, [0.0] * n_dof, [-INF] * n_dof, [INF] * n_dof)


def start(state: State, displacement: Sequence[float]) -> State:
    """Begin the motion at ``displacement`` (m). The change to this displacement adds no energy."""
    energy, earlier, before, force, highest, lowest = state
    for n in range(len(displacement)):
        earlier[n] = displacement[n]
        before[n] = displacement[n]
        force[n] = 0.0
    return energy, earlier, before, force, highest, lowest  # type: ignore[return-value]


def step(
    constants: tuple[()], state: State, displacement: Sequence[float], external: Sequence[float]
) -> tuple[State, float]:
    """Advance by a Target. Return the state and the input energy (J).

    The energy increases by (F_i + F_i-1) / 2 (x_i-1 - x_i-2), summed over all degrees of freedom. Target i
    contains the displacement x_i (m) of step i, and F_i (N), the external force of step i - 1.
    """
    energy, earlier, before, force, highest, lowest = state
    work = 0.0
    for n in range(len(displacement)):
        x, f = displacement[n], external[n]
        work += (f + force[n]) * (before[n] - earlier[n])
        if not lowest[n] <= x <= highest[n]:
            highest[n] = larger(x, highest[n])
            lowest[n] = -larger(-x, -lowest[n])
        earlier[n] = before[n]
        before[n] = x
        force[n] = f
    energy += 0.5 * work
    return (energy, earlier, before, force, highest, lowest), energy  # type: ignore[return-value]


def larger(a: float, b: float) -> float:
    """Return the larger number, or NaN if either number is NaN."""
    return a if not a <= b and b == b else b


class EnergyMonitor:
    """Computes HSEM (Mosqueda et al. 2007; Chen & Ricles 2010, Fig. 11), and the extreme displacements.

    HSEM is the work of the measured force along the displacement error (measured minus target), divided by the
    input energy. The trapezoidal rule integrates both. HSEM is positive if the actuator lags and adds energy. The
    input energy is near zero at first, so the running form adds ``reference`` (J) to the denominator, e.g. the
    strain energy at first yield. Targets are queued until results are requested, because processing them together
    takes a tenth of the time.
    """

    def __init__(self, n_dof: int, reference: float) -> None:
        self._n = n_dof
        self._reference = reference
        self._state = rest(n_dof)
        self._begun = False
        self._after = array("q")
        self._displacement, self._external, self._told = array("d"), array("d"), array("d")

    def target(self, target: Target, after: int) -> None:
        """Queue Target i, which applies to samples after number ``after``.

        The Target contains the external force of step i - 1, or the input energy up to that step. Work during a
        soft start is not included.
        """
        displacement = target.displacement.tolist()
        if not self._begun or target.flags & FLAG_SOFT_START:
            self.start(displacement)
            if target.flags & FLAG_SOFT_START:
                return
        self._after.append(after)
        self._displacement.fromlist(displacement)
        self._external.fromlist(target.external_force.tolist())
        self._told.append(math.nan if target.energies is NO_ENERGIES else target.energies.item(0))

    def start(self, displacement: list[float]) -> None:
        """Begin the motion at ``displacement`` ``(n_dof,)`` m. By default, the first Target begins the motion."""
        self._begun, self._state = True, start(self._state, displacement)

    def take(self, sample: int) -> None:
        if count := bisect_left(self._after, sample):
            end = count * self._n
            x, f, elastic = self._displacement[:end], self._external[:end], self._told[:count]
            del self._after[:count], self._displacement[:end], self._external[:end], self._told[:count]
            self.over(*(np.frombuffer(buffer).reshape(count, -1) for buffer in (x, f, elastic)))

    def over(self, displacement: Array, external: Array, elastic: Array) -> Array:
        """Process n Targets together. Return the input energies ``(n,)`` J.

        ``displacement`` (m) and ``external`` (N) are ``(n, n_dof)``. ``elastic`` ``(n, 1)`` contains the input
        energies from the Targets (J), or NaN if unknown.
        """
        if len(elastic) > FEW and np.isnan(elastic).all():
            return self._count(displacement, external)
        if len(elastic) and not self._begun:
            self.start(displacement[0].tolist())
        energies = []
        for x, f, energy in zip(displacement.tolist(), external.tolist(), elastic.ravel().tolist(), strict=True):
            self._state, counted = step((), self._state, x, f)
            if energy == energy:  # a Target that omits degrees of freedom contains the energy
                counted, self._state = energy, State(energy, *self._state[1:])
            energies.append(counted)
        return np.array(energies)

    @np.errstate(invalid="ignore", over="ignore")
    def _count(self, displacement: Array, external: Array) -> Array:
        if not self._begun:
            self.start(displacement[0].tolist())
        energy, earlier, before, force, highest, lowest = self._state
        moved = np.hstack([np.transpose([earlier, before]), displacement.T])
        pulled = np.hstack([np.transpose([force]), external.T])
        work = np.zeros(pulled.shape[1] - 1)
        for x, f in zip(moved, pulled, strict=True):
            work += (f[1:] + f[:-1]) * (x[1:-1] - x[:-2])
        energies = np.add.accumulate(np.append(energy, 0.5 * work))[1:]
        self._state = State(
            float(energies[-1]),
            moved[:, -2].tolist(),
            moved[:, -1].tolist(),
            pulled[:, -1].tolist(),
            np.maximum(highest, moved[:, 2:].max(axis=1)).tolist(),
            np.minimum(lowest, moved[:, 2:].min(axis=1)).tolist(),
        )
        return energies

    def resume(self, state: State) -> None:
        energy, *columns = state
        self._begun, self._state = True, State(energy, *(np.array(column).tolist() for column in columns))

    @property
    def now(self) -> State:
        return State(*self._state)

    @property
    def input(self) -> float:
        """Work of the external forces, J."""
        return self.now.energy

    def percent(self, error: float) -> float:
        """Return the final HSEM, in %, for an energy ``error`` (J), or NaN if the input energy is zero."""
        return 100.0 * error / self.input if self.input else math.nan

    @property
    def scale(self) -> float:
        return abs(self.input) + self._reference

    def running_percent(self, error: float) -> float:
        return 100.0 * error / self.scale if self.scale else math.nan

    @np.errstate(invalid="ignore", over="ignore")
    def running_percents(self, errors: Array, residual: Array) -> Array:
        """Return the running form of HSEM ``(n,)`` in % from energy errors and input energies ``(n,)`` J."""
        scales = np.abs(residual) + self._reference
        percents = np.full(len(errors), math.nan)
        np.divide(100.0 * errors, scales, out=percents, where=scales != 0.0)
        return percents
