# SPDX-License-Identifier: Apache-2.0
"""Stability at the corners of the bounds of copies that follow their specimen.

The integrator has the constants of the copies' initial values, as in the test; the copies stand at a corner. At
small motion only their elastic stiffness counts: corners that have it in common are one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rths_nodes.analysis.stability.crossings import growing_motions
from rths_nodes.analysis.stability.impulses import Impulses
from rths_nodes.analysis.stability.motions import modes_of, places_of
from rths_nodes.analysis.stability.of_scenario import sampled_loop
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.scenario.updating import USED, Copies
from rths_nodes.numerical.structures.laws import Lawful

SMALL = 1e-9
"""m: a move that no copy yields in."""


def unstable_corners(scenario: Scenario, known: dict[str, Impulses] | None = None) -> Iterator[str]:
    """Say at which corners a motion grows; nothing for copies that do not follow. Raises what judging raises.

    ``known`` as of :func:`sampled_loop`, from a loop of the same scenario.
    """
    if scenario.updating is None or scenario.updating.mode != USED:
        return
    copies, structure = Copies(scenario), Assembly(scenario).structure
    assert structure is not None
    known = {} if known is None else known
    seen: list[Array] = []
    for shares in copies.corners:
        stiffness = stiffness_at(structure, copies, shares.tolist())
        if any(np.allclose(stiffness, other, rtol=1e-6, atol=0.0) for other in seen):
            continue
        seen.append(stiffness)
        loop = sampled_loop(scenario, known, stiffness)
        if growing_motions(loop, places_of(modes_of(loop))):
            values = zip(copies.learns.names, shares * copies.learns.initial, copies.learns.units, strict=True)
            yield ", ".join(f"{name} = {value:.4g} {unit}".rstrip() for name, value, unit in values)


def stiffness_at(structure: Structure, copies: Copies, shares: list[float]) -> Array:
    """Elastic stiffness ``(n_dof, n_dof)`` N/m of a structure with copies at ``shares`` of their first values."""
    force = structure.restoring_force
    assert isinstance(force, Lawful)
    _, constants, memory = force.law
    for name, copy in copies.followers().items():
        constants, memory = force.renewed(name, constants, memory, copy.change(shares))
    n = len(structure.influence)
    columns = [
        force.law.force(constants, memory, SMALL if n == 1 else SMALL * unit)[1] / SMALL for unit in np.eye(n)
    ]
    return np.column_stack([np.atleast_1d(column) for column in columns])


def refuse_unstable(scenario: Scenario) -> None:
    """Raises ConfigError for copies that follow to where a motion grows, or where nobody can tell."""
    try:
        found = list(unstable_corners(scenario))
    except ConfigError as error:
        raise error.within("updating.mode = 'used': the stability cannot be judged") from error
    if found:
        raise ConfigError(
            f"updating.parameters: the loop is unstable at a corner of the bounds, {found[0]}: narrow them, or "
            "take mode: shadow"
        )
