# SPDX-License-Identifier: Apache-2.0
"""The simulated column under an actuator, by its equilibrium and by the work that is done on it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.control.setups.upright_load import UprightLoad
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import EMPTY, Motion
from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.rigs.axially_loaded_column import AxiallyLoadedColumn

DT, STIFFNESS, LATERAL = 1.0 / 1024.0, 1e9, 1e6
DATA = {
    "column_length": 3.0,
    "axial_stiffness": STIFFNESS,
    "lateral": {"type": "kelvin_voigt", "stiffness": LATERAL, "damping": 0.0},
    "horizontal": {"type": "first_order", "alpha": 1.0},
    "vertical": {"type": "first_order", "alpha": 1.0},
}
"""Actuators without a delay."""


def column(**changes: Any) -> AxiallyLoadedColumn:
    return AxiallyLoadedColumn(from_data(AxiallyLoadedColumn.Params, DATA | changes), DT, 2)


def at(rig: AxiallyLoadedColumn, drift: float, extension: float) -> tuple[float, float]:
    rig.step(np.array([drift, extension]), EMPTY)
    return float(rig.force[0]), float(rig.force[1])


def test_at_rest_the_load_is_stiffness_times_extension() -> None:
    assert at(column(), 0.0, 0.5e-3) == (0.0, pytest.approx(500e3))
    assert at(column(frame_stiffness=STIFFNESS), 0.0, 0.5e-3)[1] == pytest.approx(250e3), "in series"


def test_a_drift_of_20_mm_takes_67_kn_from_an_actuator_that_holds_its_place() -> None:
    rig = column()
    before = at(rig, 0.0, 0.5e-3)[1]
    assert before - at(rig, 0.020, 0.5e-3)[1] == pytest.approx(66.7e3, rel=2e-3)


def test_p_delta_is_in_the_horizontal_force() -> None:
    """An upright load takes P u / h from the lateral stiffness; an inclined one pushes with P u / L besides."""
    upright = at(column(), 0.020, 0.5e-3 + 0.020**2 / 6.0)
    assert upright[0] == pytest.approx(LATERAL * 0.020 - upright[1] * 0.020 / 3.0, rel=1e-3)
    inclined = at(column(actuator_length=2.0), 0.020, 0.5e-3 + 0.020**2 * (1.0 / 6.0 + 0.25))
    assert inclined[1] == pytest.approx(upright[1], rel=1e-3)
    assert inclined[0] == pytest.approx(upright[0] - inclined[1] * 0.010, rel=2e-3)


@pytest.mark.parametrize("length", [None, 1.5])
def test_on_a_closed_way_the_actuators_do_no_work(length: float | None) -> None:
    """Everything is elastic: geometry and forces belong together."""
    rig, n = column(actuator_length=length), 4000
    angle = np.linspace(0.0, 2.0 * math.pi, n + 1)
    way = np.stack([0.05 * np.sin(angle), 3e-4 * (1.0 - np.cos(angle)) + 2e-4 * np.sin(2.0 * angle)], 1)
    force = np.array([at(rig, *place) for place in way])
    work = (0.5 * (force[1:] + force[:-1]) * np.diff(way, axis=0)).sum(0)
    there = np.abs(0.5 * (force[1:] + force[:-1]) * np.diff(way, axis=0)).sum(0)
    assert abs(work.sum()) < 1e-5 * there.sum()
    assert abs(work[0]) > 1e-3 * there[0], "neither of them alone"


def test_the_setup_takes_the_push_of_the_inclined_actuator_out() -> None:
    setup = UprightLoad(from_data(UprightLoad.Params, {"actuator_length": 2.0}), 1, 1)
    rig, drift = column(actuator_length=2.0), 0.020
    force = np.array(at(rig, drift, 0.7e-3))
    upright = LATERAL * drift - force[1] * drift / 3.0
    assert setup.forces(force, np.array([drift]))[0] == pytest.approx(upright, rel=1e-3)
    motion = Motion(np.array([drift]), np.zeros(1), np.zeros(1))
    assert setup.axes(motion).displacement[0] == setup.degrees_of_freedom(np.array([drift]))[0] == drift


def test_a_column_that_crushes_keeps_what_it_still_bears() -> None:
    rig = column(crushing_force=400e3, crushed_force=50e3)
    assert at(rig, 0.0, 0.399e-3)[1] == pytest.approx(399e3)
    assert at(rig, 0.0, 0.401e-3)[1] == pytest.approx(50e3)
    assert at(rig, 0.0, 0.300e-3)[1] == pytest.approx(50e3)
    rig.reset()
    assert at(rig, 0.0, 0.399e-3)[1] == pytest.approx(399e3)


def test_what_makes_no_column_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("3", "axes", "2")):
        AxiallyLoadedColumn(from_data(AxiallyLoadedColumn.Params, DATA), DT, 3)
    with pytest.raises(ConfigError, match=naming("crushed_force", "2 N", "<= crushing_force", "1 N")):
        from_data(AxiallyLoadedColumn.Params, DATA | {"crushing_force": 1.0, "crushed_force": 2.0}, "rig")
