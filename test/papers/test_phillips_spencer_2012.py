# SPDX-License-Identifier: Apache-2.0
"""Tests of the six cases of Phillips & Spencer (2012): tracking, response, and neglected coupling."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from messages import doubts

from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.response_errors import IdealResponse, ideal_response, measured_names
from rths_nodes.app import hosts
from rths_nodes.core import registry
from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.recording.run import Run

NAME = "phillips_spencer_2012"
TRACKING = {"c": ((1.71, 1.99, 0.90), 0.05), "e": ((0.49, 0.57, 0.26), 0.10)}
"""RMS errors of the three floors in %, and the relative margin."""
SHORT = "duration=12"
"""Strong part of the record: the same errors to two digits in a third of the time."""
QUIET = (SHORT, *(f"axes.floor_{n}.sensors={{}}" for n in (1, 2, 3)), "port.auxiliary_noise_rms=null")


@cache
def run(case: str, *overrides: str) -> Run:
    return hosts.run(files.load(NAME, case=case), overrides).read()


@cache
def ideal() -> IdealResponse:
    """Response of case (a): the undivided structure with damper and controller."""
    loaded = files.load(NAME)
    assembly = Assembly(loaded)
    structure = assembly.structure
    damper = registry.build("specimen", loaded.rig.damper)
    controller = registry.build("semi_active", loaded.semi_active, structure, loaded.step, measured_names(3))
    return ideal_response(structure, damper, assembly.ground_acceleration, loaded.step, controller)


def tracking(run: Run) -> Array:
    """RMS tracking error of each floor on the true displacement, %."""
    return np.array([axis["error_norm_percent"] for axis in Evaluation(run).indices(true=True).values()])


def response(run: Run, displacement: Array | None = None) -> Array:
    """RMS error of each floor against case (a), %; of the integrator's displacement by default."""
    x = run.dof_displacement if displacement is None else displacement
    exact = ideal().displacement[: len(x)]
    error = x[: len(exact)] - exact
    return np.asarray(100.0 * np.sqrt((error**2).sum(axis=0) / (exact**2).sum(axis=0)))


def test_damper_force_matches_paper() -> None:
    assert np.abs(ideal().damper_force).max() == pytest.approx(1487.0, rel=0.02)


def test_monitor_trips_unstable_test_without_compensation() -> None:
    unstable = run("b")
    assert unstable.outcome == "tripped"
    assert "monitor.energy_error_percent" in unstable.information["reason"]
    assert unstable.time[-1] < 3.0
    assert np.isfinite(unstable.displacement).all()


@pytest.mark.parametrize(
    ("case", "length"), [("c", (SHORT,)), *(pytest.param(case, (), marks=pytest.mark.soak) for case in TRACKING)]
)
def test_uncoupled_tracking_matches_table_3_1(case: str, length: tuple[str, ...]) -> None:
    expected, margin = TRACKING[case]
    np.testing.assert_allclose(tracking(run(case, *length)), expected, rtol=margin)


@pytest.mark.parametrize(
    ("case", "first", "rest", "length"),
    [
        ("f", 0.06, 0.02, (SHORT,)),
        pytest.param("d", 0.15, 0.02, (), marks=pytest.mark.soak),
        pytest.param("f", 0.06, 0.02, (), marks=pytest.mark.soak),
    ],
)
def test_coupled_law_bounds_tracking_and_response_errors(
    case: str, first: float, rest: float, length: tuple[str, ...]
) -> None:
    result = run(case, *length)
    errors = tracking(result)
    assert errors[0] < first
    assert np.all(errors[1:] < rest)
    assert np.all(response(result) < 2.0)


def test_uncoupled_response_errors_exceed_8_percent() -> None:
    assert np.all(response(run("c", SHORT)) > 8.0)


@pytest.mark.soak
def test_response_errors_match_page() -> None:
    """The error of the specimen includes the tracking error."""
    result = run("c")
    np.testing.assert_allclose(response(result), [11.04, 10.36, 10.52], atol=0.01)
    np.testing.assert_allclose(response(result, result.true_displacement), [11.38, 10.75, 10.75], atol=0.01)


def test_staircase_command_tracks_well_but_distorts_response() -> None:
    """Command and force are held over the step; the tracking error does not show the delay."""
    naive = run("d", "rig.hold=staircase", "integrator={type: exact}", *QUIET)
    assert np.all(tracking(naive) < 0.5)
    assert np.all(response(naive) > 20.0)
    scenario = files.load(NAME, ["rig.hold=staircase", "integrator={type: exact}"], "d")
    assert any("staircase" in caution for caution in doubts(scenario))


def test_lead_includes_transport_samples() -> None:
    assert np.all(tracking(run("d", "port.transport_samples=2", *QUIET, "duration=6")) < 0.3)
