# SPDX-License-Identifier: Apache-2.0
"""Partition of a structure into a numerical and an experimental part, and modes of the whole structure.

The experimental part is declared in the structure, or follows from models or measured stiffnesses of specimens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario.assembly import Assembly, transformation
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.small_specimen import SmallSpecimen
from rths_nodes.mechanics.structure import Matrix, is_sparse, massless
from rths_nodes.numerical.structures.damping import frequencies_and_ratios, modes

STATED, MODEL, MEASURED = (
    "from the declaration of the structure",
    "from the specimens' models at small motion",
    "from the measurements of the small move",
)
LARGEST = 64


@dataclass(frozen=True, eq=False)
class Partition:
    """Numerical and experimental parts of a structure, and modes of the whole structure.

    Each part consists of matrices ``(n_dof, n_dof)``: mass (kg), damping (N s/m) and stiffness (N/m). ``source``
    is the origin of the experimental part. ``frequencies`` (Hz) and damping ``ratios`` of the whole structure are
    ``(m,)``; unknown ratios are NaN. If the experimental part is unknown, its matrices are zero, and ``source``,
    ``frequencies`` and ``ratios`` are empty.
    """

    names: tuple[str, ...]
    numerical: tuple[Matrix, Matrix, Matrix]
    experimental: tuple[Matrix, Matrix, Matrix]
    source: str
    frequencies: Array
    ratios: Array


def partition(assembly: Assembly, measured: Mapping[str, float]) -> Partition:
    """Return the partition of the structure. ``measured`` holds stiffnesses (N/m) of specimens by axis.

    Raises ConfigError if the structure is missing or has too many degrees of freedom.
    """
    structure = assembly.structure
    if structure is None:
        raise ConfigError("structure: missing; a test with prescribed displacements has no partition")
    n = len(structure.influence)
    if is_sparse(structure.mass) or n > LARGEST:
        raise ConfigError(f"structure: has {n} degrees of freedom; must have <= {LARGEST} for a partition")
    stated = (structure.experimental_mass, structure.experimental_damping, structure.experimental_stiffness)
    numerical = (structure.mass, structure.damping, structure.stiffness)
    source, experimental = STATED, stated
    if not any(matrix.any() for matrix in stated):
        tested, source = of_axes(assembly.scenario, measured)
        axes_of, forces_of = transformation(assembly)
        experimental = tuple(forces_of @ matrix @ axes_of for matrix in tested)
    mass, damping, stiffness = (part + lab for part, lab in zip(numerical, experimental, strict=True))
    frequencies = ratios = np.zeros(0)
    if source and not massless(mass).any():
        frequencies, ratios = frequencies_and_ratios(mass, damping, stiffness)
    elif source:
        frequencies = modes(mass, stiffness)[0] / (2.0 * np.pi)
        ratios = np.full(len(frequencies), np.nan)
    names = tuple(structure.names)
    return Partition(names, numerical, experimental, source, frequencies, ratios)


def of_axes(scenario: Scenario, measured: Mapping[str, float]) -> tuple[tuple[Matrix, Matrix, Matrix], str]:
    """Return mass, damping and stiffness of the specimens, and the source of these matrices as text.

    Each matrix is ``(n, n)`` for the n axes that the structure moves. If the specimens are unknown, the matrices
    are zero and the source is empty.
    """
    n = len(scenario.moved_axes)  # a force-controlled axis is not moved by the structure
    nothing = np.zeros((n, n))
    unknown = (nothing, nothing, nothing), ""
    if scenario.rig is not None:
        if not hasattr(scenario.rig, "model"):
            return unknown
        moved = [list(scenario.axes).index(name) for name in scenario.moved_axes]
        return tuple(specimen[np.ix_(moved, moved)] for specimen in scenario.rig.model()[:3]), MODEL
    axes = [scenario.axes[name] for name in scenario.moved_axes]
    if all(axis.specimen is not None for axis in axes):
        try:
            small = [SmallSpecimen.of(registry.build("specimen", axis.specimen)) for axis in axes]
        except ValueError:  # a specimen is not linear at small motion
            return unknown
        rows = [(specimen.mass, specimen.damping, specimen.slope) for specimen in small]
        mass, damping, stiffness = (np.diag(column) for column in zip(*rows, strict=True))
        return (mass, damping, stiffness), MODEL
    if all(name in measured for name in scenario.moved_axes):
        return (nothing, nothing, np.diag([measured[name] for name in scenario.moved_axes])), MEASURED
    return unknown
