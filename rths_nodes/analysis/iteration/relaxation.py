# SPDX-License-Identifier: Apache-2.0
"""Relaxation of the iteration of whole histories: which targets the next run gets.

A run measures displacements y and forces f. Under f the numerical substructure moves by x = S(f). Where x = y at
every moment, the two substructures are one structure, whatever the actuators did: a delay moves y and f together.
The residual is r = Q (x - y). Of a linear specimen E the residual of plain iteration (y_j+1 = x_j) is multiplied,
at each frequency, by -G E, with G the receptance of the numerical part: that grows where the specimen is stiffer
than the numerical part, which is everywhere near a resonance of it.

    constant       z = x - (1 - w) r
    aitken         the same, w_j = -w_j-1 r_j-1 (r_j - r_j-1) / |r_j - r_j-1|^2   (Irons & Tuck 1969; Kuettler &
                   Wall 2008)
    quasi_newton   z = x + sum c_i (x_i - x_j), c least squares of r_j + sum c_i (r_i - r_j) = 0   (IQN-ILS,
                   Degroote, Bathe & Vierendeels 2009), after a first step of constant
    model          z = y + (1 + G E)^-1 r, E the spring, dashpot and mass that the run itself has told:
                   z = x - (response of the structure that holds E to the force E r)

All of them get the displacement that was reached, not the one that was wanted: a rig that tracks badly teaches
nothing wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rths_nodes.analysis.iteration.specimen import Specimens
from rths_nodes.analysis.iteration.substructure import Substructure
from rths_nodes.core.samples import Array

WEAKEST = 1e-3
"""Singular values of the differences of residuals below this part of the largest are left out: noise."""
LARGEST = 2.0
"""Of the relaxation of Aitken: two residuals that hardly differ say nothing."""


@dataclass(frozen=True, eq=False)
class Step:
    """Result of a run: ``computed`` x ``(samples, 3, n_axes)``, ``residual`` r likewise, the ``specimens`` E."""

    computed: Array
    residual: Array
    specimens: Specimens


class Constant:
    """A part of the residual, the same in every run."""

    def __init__(self, omega: float, part: Substructure) -> None:
        self.omega = omega

    def next(self, step: Step) -> Array:
        """Target ``(samples, 3, n_axes)`` of the next run."""
        return step.computed - (1.0 - self.omega) * step.residual


class Aitken(Constant):
    """A part of the residual, by how the last two residuals differ."""

    _before: Array | None = None

    def next(self, step: Step) -> Array:
        now = step.residual[:, 0]
        if self._before is not None:
            change = now - self._before
            square = float(np.square(change).sum())
            found = -self.omega * float((self._before * change).sum()) / square if square else self.omega
            self.omega = math.copysign(min(abs(found), LARGEST), found)
        self._before = now
        return super().next(step)


class QuasiNewton(Constant):
    """The combination of all runs so far whose residual is least."""

    def __init__(self, omega: float, part: Substructure) -> None:
        super().__init__(omega, part)
        self._steps: list[Step] = []

    def next(self, step: Step) -> Array:
        before, self._steps = self._steps, [*self._steps, step]
        if not before:
            return super().next(step)
        columns = np.array([(each.residual - step.residual)[:, 0].ravel() for each in before]).T
        weights = np.linalg.lstsq(columns, -step.residual[:, 0].ravel(), rcond=WEAKEST)[0]
        target = step.computed.copy()
        for weight, each in zip(weights.tolist(), before, strict=True):
            target += weight * (each.computed - step.computed)
        return target


class Model:
    """The residual through the structure that holds the specimens as the run has told them."""

    def __init__(self, omega: float, part: Substructure) -> None:
        self._part = part

    def next(self, step: Step) -> Array:
        return step.computed - self._part.pushed(step.residual, step.specimens)


RELAXATIONS: dict[str, Callable[[float, Substructure], Constant | Model]] = {
    "constant": Constant,
    "aitken": Aitken,
    "quasi_newton": QuasiNewton,
    "model": Model,
}
"""Relaxations by name; built with the (first) relaxation factor and the numerical part."""
