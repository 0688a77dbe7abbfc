# SPDX-License-Identifier: Apache-2.0
"""Response errors: the response of a test against that of the structure computed in one piece.

Tracking says how well the actuators followed their targets, response whether the targets were those of the
structure (Phillips & Spencer 2012, Table 3.1). A test can track well and be wrong.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from rths_nodes.analysis import energy
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.reference import monolithic
from rths_nodes.analysis.reference.linear import linear_response
from rths_nodes.analysis.reference.monolithic import ideal_of
from rths_nodes.analysis.units import PERCENT
from rths_nodes.core.samples import Array
from rths_nodes.core.yaml_text import dump
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.sparse import is_sparse
from rths_nodes.mechanics.structure import massless

MODES = 40
"""Modes of the reduction of a large structure, with the static shapes under forces at its interface."""

IRRELEVANT = {"name": "reference", "description": "", "cases": {}, "monitor": {}, "recording": {}}
"""Entries of a scenario that do not change the response of the whole structure."""


def whole_response(scenario: Scenario) -> tuple[Array, Array]:
    """Return displacement (m) and absolute acceleration (m/s^2) of the whole structure at every step of the test.

    Both ``(steps + 1, n_dof)`` of the observed degrees of freedom, from the end of a soft start. Raises
    ConfigError for a test without a structure.
    """
    data = scenario.data() | IRRELEVANT | {"compensator": {"type": "none"}, "soft_start": None, "time_ratio": 1}
    return _whole_response(dump(data))


@lru_cache(maxsize=2)  # variants of one scenario share it
def _whole_response(text: str) -> tuple[Array, Array]:
    scenario = files.from_text(text, "reference")
    if hasattr(scenario.rig, "damper"):
        ideal = ideal_of(scenario)
        return ideal.displacement, ideal.acceleration
    scenario = _small_enough(scenario)
    assembly = Assembly(scenario)
    found = monolithic.response(scenario) if scenario.rig is None else linear_response(assembly)
    assert assembly.structure is not None  # both refuse a test without
    seen = assembly.observation
    ground = np.outer(assembly.ground_acceleration, seen.influence(assembly.structure))
    return seen.motion(found.displacement), seen.motion(found.acceleration) + ground


def _small_enough(scenario: Scenario) -> Scenario:
    """Return the scenario itself, or with a modal reduction of a structure too large for many steps."""
    structure = Assembly(scenario).structure
    if structure is None or not is_sparse(structure.mass):
        return scenario
    count = min(MODES, int((~massless(structure.mass)).sum()))
    return files.load(scenario, [f"reduction={{type: modal, modes: {count}}}"])


def response_errors(of: Evaluation) -> dict[str, dict[str, float]]:
    """Return RMS errors (%) of ``displacement`` and ``acceleration`` (absolute) by degree of freedom.

    100 sqrt(sum (a - b)^2 / sum b^2), b the whole structure, over the made steps. Raises ConfigError for a test
    without a structure.
    """
    displacement, acceleration = whole_response(of.scenario)
    start = of.first_step
    pairs = {
        "displacement": (of.run.dof_displacement[start:], displacement),
        "acceleration": (energy.absolute_acceleration(of)[start:], acceleration),
    }
    errors = {name: _percent(*pair) for name, pair in pairs.items()}
    names = of.run.dof_names
    return {dof: {name: float(values[n]) for name, values in errors.items()} for n, dof in enumerate(names)}


def _percent(found: Array, exact: Array) -> Array:
    n = min(len(found), len(exact))
    squares = np.square(exact[:n]).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(PERCENT * np.sqrt(np.square(found[:n] - exact[:n]).sum(axis=0) / squares))
