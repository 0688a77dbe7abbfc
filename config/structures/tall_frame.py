# SPDX-License-Identifier: Apache-2.0
"""Write tall_frame_mass.npz and tall_frame_stiffness.npz: a plane moment frame of 37 stories and 8 bays.

    python tall_frame.py [FOLDER]

Euler-Bernoulli beams and columns with consistent mass (Przemieniecki, Theory of Matrix Structural Analysis, 1968,
chapters 5 and 11), with the mass of the floors at their nodes. Columns are clamped at the base. A node has three
degrees of freedom (x, z, ry). Nodes are numbered along the floors from the bottom, so the matrices are banded. SI
units.
"""

import sys
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array, save_npz

STORIES, BAYS = 37, 8
HEIGHT, WIDTH = 3.6, 7.2
"""Height of a story and width of a bay, m."""
MODULUS, DENSITY = 210e9, 7850.0
"""Modulus of elasticity (N/m^2) and density (kg/m^3) of steel."""
COLUMN = (0.060, 2.5e-3)
BEAM = (0.020, 1.2e-3)
"""Area (m^2) and second moment of area (m^4)."""
FLOOR_MASS = 12e3
"""Mass at every node in addition to the steel, kg."""


def element(length: float, section: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Return mass and stiffness of a beam in local coordinates: (u, w, rotation) at both ends."""
    area, inertia = section
    axial, bending = MODULUS * area / length, MODULUS * inertia / length**3
    mass, square = DENSITY * area * length, length * length
    bar = axial * np.array([[1.0, -1.0], [-1.0, 1.0]])
    bar_mass = mass / 6.0 * np.array([[2.0, 1.0], [1.0, 2.0]])
    beam = bending * np.array(
        [
            [12.0, 6.0 * length, -12.0, 6.0 * length],
            [6.0 * length, 4.0 * square, -6.0 * length, 2.0 * square],
            [-12.0, -6.0 * length, 12.0, -6.0 * length],
            [6.0 * length, 2.0 * square, -6.0 * length, 4.0 * square],
        ]
    )
    beam_mass = (
        mass
        / 420.0
        * np.array(
            [
                [156.0, 22.0 * length, 54.0, -13.0 * length],
                [22.0 * length, 4.0 * square, 13.0 * length, -3.0 * square],
                [54.0, 13.0 * length, 156.0, -22.0 * length],
                [-13.0 * length, -3.0 * square, -22.0 * length, 4.0 * square],
            ]
        )
    )
    along, across = np.ix_([0, 3], [0, 3]), np.ix_([1, 2, 4, 5], [1, 2, 4, 5])
    matrices = np.zeros((2, 6, 6))
    matrices[0][along], matrices[0][across] = bar_mass, beam_mass
    matrices[1][along], matrices[1][across] = bar, beam
    return matrices[0], matrices[1]


def frame(stories: int = STORIES, bays: int = BAYS) -> tuple[coo_array, coo_array]:
    """Return mass (kg) and stiffness (N/m, N, N m) of a frame, ``3 stories (bays + 1)`` rows, in CSR format."""
    lines = bays + 1
    free = 3 * stories * lines

    def node(floor: int, line: int) -> np.ndarray:
        first = 3 * ((floor - 1) * lines + line)  # negative at the base, which is fixed
        return np.arange(first, first + 3)

    upright = np.kron(np.eye(2), np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
    column = [upright.T @ matrix @ upright for matrix in element(HEIGHT, COLUMN)]
    beam = element(WIDTH, BEAM)
    indices, entries = [], []
    for floor in range(1, stories + 1):
        for line in range(lines):
            indices.append(np.concatenate([node(floor - 1, line), node(floor, line)]))
            entries.append(column)
            if line < bays:
                indices.append(np.concatenate([node(floor, line), node(floor, line + 1)]))
                entries.append(beam)
    rows = np.repeat(np.array(indices), 6, axis=1).ravel()
    columns = np.tile(np.array(indices), 6).ravel()
    kept = (rows >= 0) & (columns >= 0)
    matrices = []
    for number in range(2):
        values = np.array([pair[number] for pair in entries]).ravel()[kept]
        matrices.append(coo_array((values, (rows[kept], columns[kept])), shape=(free, free)).tocsr())
    moving = np.tile([1.0, 1.0, 0.0], free // 3)
    at_nodes = coo_array((FLOOR_MASS * moving, (np.arange(free), np.arange(free))), shape=(free, free))
    return (matrices[0] + at_nodes).tocsr(), matrices[1]


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
    for name, matrix in zip(("mass", "stiffness"), frame(), strict=True):
        save_npz(folder / f"tall_frame_{name}.npz", matrix)
