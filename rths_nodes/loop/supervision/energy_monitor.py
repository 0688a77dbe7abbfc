"""Hybrid simulation energy monitor: the energy that the error of the axes feeds in, over the input energy."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from rths_nodes.core.samples import FLAG_SOFT_START, NO_ENERGIES, Array, Target
from rths_nodes.loop.supervision.kernels import targets

FEW = 4
"""So many Targets are counted one by one; for more, arrays are quicker."""


class EnergyMonitor:
    """HSEM (Mosqueda et al. 2007; Chen & Ricles 2010, Fig. 11), and the extremes of what the Targets tell.

    HSEM = (integral r_e d(d_m) - integral r_e d(d_c)) / integral F dx by trapezoids; positive: the actuator lags
    and feeds energy into the structure. The running form adds ``reference`` (J), as the strain energy at first
    yield, to the denominator, because the input energy is near zero when a test begins. Of the Targets it has the
    largest and the smallest displacement of the ``n_dof`` degrees of freedom as well.

    A Target waits until the numbers are needed: counted in a row, it costs a tenth.
    """

    def __init__(self, n_dof: int, reference: float) -> None:
        self._n = n_dof
        self._reference = reference
        self._state = targets.rest(n_dof)
        self._begun = False
        self._after = array("q")
        """Of each Target that waits: the last sample at which it does not count yet."""
        self._displacement, self._external, self._told = array("d"), array("d"), array("d")

    def target(self, target: Target, after: int) -> None:
        """Target i, which counts at the samples behind ``after``.

        It brings the external force of step i - 1, or the input energy up to it; the work is counted from the end
        of a soft start on.
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
        """The motion begins at ``displacement`` ``(n_dof,)`` m; at the first Target if not called."""
        self._begun, self._state = True, targets.start(self._state, displacement)

    def take(self, sample: int) -> None:
        """Count what counts at ``sample``."""
        if count := bisect_left(self._after, sample):
            end = count * self._n
            x, f, told = self._displacement[:end], self._external[:end], self._told[:count]
            del self._after[:count], self._displacement[:end], self._external[:end], self._told[:count]
            self.over(*(np.frombuffer(each).reshape(count, -1) for each in (x, f, told)))

    def over(self, displacement: Array, external: Array, told: Array) -> Array:
        """Count Targets in a row, ``(n, n_dof)`` m, N and ``(n, 1)`` J: the input energies ``(n,)`` J."""
        if len(told) and not self._begun:
            self.start(displacement[0].tolist())
        if len(told) > FEW and np.isnan(told).all():
            return self._in_arrays(displacement, external)
        found = []
        for x, f, energy in zip(displacement.tolist(), external.tolist(), told.ravel().tolist(), strict=True):
            self._state, given = targets.step((), self._state, x, f, energy)
            found.append(given)
        return np.array(found)

    @np.errstate(invalid="ignore", over="ignore")
    def _in_arrays(self, displacement: Array, external: Array) -> Array:
        """``kernels/targets.py`` in arrays, with the same sums from left to right: the same bits."""
        energy, earlier, before, force, highest, lowest = self._state
        moved, pulled = np.vstack((earlier, before, displacement)), np.vstack((force, external))
        works = (pulled[1:] + pulled[:-1]) * np.diff(moved[:-1], axis=0)
        energies = np.add.accumulate(np.append(energy, 0.5 * np.add.accumulate(works, axis=1)[:, -1]))[1:]
        self._state = targets.State(
            float(energies[-1]),
            moved[-2].tolist(),
            moved[-1].tolist(),
            pulled[-1].tolist(),
            np.maximum(highest, displacement.max(axis=0)).tolist(),
            np.minimum(lowest, displacement.min(axis=0)).tolist(),
        )
        return energies

    @property
    def _now(self) -> targets.State:
        return targets.State(*self._state)

    @property
    def input(self) -> float:
        """Work of the external forces, J."""
        return self._now.energy

    @property
    def last(self) -> Sequence[float]:
        """Displacement of the last Target ``(n_dof,)``, m."""
        return self._now.before

    @property
    def highest(self) -> Sequence[float]:
        """Largest displacements ``(n_dof,)``, m."""
        return self._now.highest

    @property
    def lowest(self) -> Sequence[float]:
        """Smallest displacements ``(n_dof,)``, m."""
        return self._now.lowest

    def percent(self, error: float) -> float:
        """HSEM at the end of the test, for an energy error in J; nan without input energy."""
        return targets.percent(error, self.input)

    def running_percent(self, error: float) -> float:
        """The running form."""
        return targets.percent(error, abs(self.input) + self._reference)

    def running_percents(self, errors: Array, given: Array) -> Array:
        """The running form over a history, for energy errors and input energies ``(n,)`` J at the same samples."""
        scales = np.abs(given) + self._reference
        return np.array([targets.percent(*each) for each in zip(errors.tolist(), scales.tolist(), strict=True)])
