# SPDX-License-Identifier: Apache-2.0
"""Linearisation of a specimen at rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.samples import Array
from rths_nodes.core.simulators import Specimen

SMALL = 1e-7
"""Steps of displacement (m), velocity (m/s) and internal states for the linearisation."""
STEEPER = 0.01
"""Largest relative growth of slopes when the step shrinks from ten times ``SMALL`` to ``SMALL``. The slopes of a
friction force grow more."""


@dataclass(frozen=True, eq=False)
class SmallSpecimen:
    """Specimen linearised at rest, with displacement d, velocity v, acceleration a and internal states z.

    F = m a + k d + c v + p z and z' = A z + b d + e v. The fields are k, c, A, p, b, e and m, in this order.
    """

    stiffness: float
    damping: float
    states: Array
    force_of_state: Array
    displacement_to_state: Array
    velocity_to_state: Array
    mass: float

    @classmethod
    def of(cls, specimen: Specimen) -> SmallSpecimen:
        """Linearise ``specimen`` at rest by central differences. Raises ValueError if these diverge."""
        larger, slopes = np.abs(slopes_of(specimen, 10.0 * SMALL)), slopes_of(specimen, SMALL)
        if (np.abs(slopes) > (1.0 + STEEPER) * larger + STEEPER * larger.max()).any():
            raise ValueError(
                f"the specimen cannot be linearised: its slopes still grow when the steps shrink from "
                f"{10.0 * SMALL:g} to {SMALL:g} m and m/s"
            )
        force, rates = slopes[0], slopes[1:]
        return cls(
            float(force[0]), float(force[1]), rates[:, 2:], force[2:], rates[:, 0], rates[:, 1], specimen.mass
        )

    @property
    def slope(self) -> float:
        """Initial stiffness, N/m, including states proportional to the displacement, e.g. the states of steel."""
        follows = ~(self.states.any(axis=0) | self.states.any(axis=1) | (self.displacement_to_state != 0.0))
        return self.stiffness + float(self.force_of_state[follows] @ self.velocity_to_state[follows])

    def at(self, s: Frequencies) -> Complex:
        """Return the dynamic stiffness F / d (N/m) at the complex frequencies ``s`` (rad/s)."""
        stiffness: Complex = np.asarray(self.stiffness + s * (self.damping + s * self.mass), complex)
        if len(self.force_of_state):
            memory = s[:, None, None] * np.eye(len(self.states)) - self.states
            driven = self.displacement_to_state + s[:, None] * self.velocity_to_state
            stiffness = stiffness + np.linalg.solve(memory, driven[..., None])[..., 0] @ self.force_of_state
        return stiffness


def slopes_of(specimen: Specimen, small: float) -> Array:
    """Return the derivatives of the force and of each state's rate, one row each, by central differences.

    Columns are displacement, velocity and internal states; ``small`` is the step of each.
    """
    rest = [0.0, 0.0, *specimen.initial_state]

    def seen(point: Sequence[float]) -> Array:
        displacement, velocity, *state = point
        rates = specimen.rate(state, displacement, velocity)
        return np.array([specimen.force(state, displacement, velocity), *rates])

    columns = []
    for index in range(len(rest)):
        sides = [seen([x + sign * small * (k == index) for k, x in enumerate(rest)]) for sign in (1.0, -1.0)]
        columns.append((sides[0] - sides[1]) / (2.0 * small))
    return np.column_stack(columns)
