# SPDX-License-Identifier: Apache-2.0
"""The six cases of Phillips & Spencer (2012): tracking, response, and what neglect of the coupling costs."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from doubts import doubts

from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.response_errors import IdealResponse, ideal_response, measured_names
from rths_nodes.app import hosts
from rths_nodes.core import registry
from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.recording.run import Run

NAME = "phillips_spencer_2012"
TRACKING = {
    "c": ((1.71, 1.99, 0.90), 0.05),
    "e": ((0.49, 0.57, 0.26), 0.10),
}
"""RMS errors of the three floors in %, and the relative margin."""
SHORT = "duration=12"
"""The strong part of the record: the same errors to two digits, in a third of the time."""
QUIET = (
    SHORT,
    *(f"axes.floor_{floor}.sensors={{}}" for floor in (1, 2, 3)),
    "port.auxiliary_noise_rms=null",
)


@cache
def run(case: str, *overrides: str) -> Run:
    return hosts.run(files.load(NAME, case=case), overrides).read()


@cache
def ideal() -> IdealResponse:
    """Case (a): the structure in one piece, with damper and controller."""
    loaded = files.load(NAME)
    assembly = Assembly(loaded)
    structure = assembly.structure
    damper = registry.build("specimen", loaded.rig.damper)
    controller = registry.build("semi_active", loaded.semi_active, structure, loaded.step, measured_names(3))
    return ideal_response(structure, damper, assembly.ground_acceleration, loaded.step, controller)


def tracking(run: Run) -> Array:
    """RMS tracking error of each floor on the true displacement, %."""
    found = Evaluation(run).indices(true=True)
    return np.array([axis["error_norm_percent"] for axis in found.values()])


def response(run: Run, displacement: Array | None = None) -> Array:
    """RMS error of each floor's displacement against case (a), %: the integrator's, unless another is given."""
    made = run.dof_displacement if displacement is None else displacement
    exact = ideal().displacement[: len(made)]
    error = made[: len(exact)] - exact
    return np.asarray(100.0 * np.sqrt((error**2).sum(axis=0) / (exact**2).sum(axis=0)))


def test_the_force_of_the_damper_is_that_of_the_paper() -> None:
    assert np.abs(ideal().damper_force).max() == pytest.approx(1487.0, rel=0.02)


def test_without_compensation_the_monitor_ends_an_unstable_test() -> None:
    unstable = run("b")
    assert unstable.outcome == "tripped"
    assert "monitor.energy_error_percent" in unstable.information["reason"]
    assert unstable.time[-1] < 3.0
    assert np.isfinite(unstable.displacement).all()


@pytest.mark.parametrize(
    ("case", "length"), [("c", (SHORT,)), *(pytest.param(case, (), marks=pytest.mark.soak) for case in TRACKING)]
)
def test_without_coupling_tracking_is_poor_as_in_table_3_1(case: str, length: tuple[str, ...]) -> None:
    expected, margin = TRACKING[case]
    np.testing.assert_allclose(tracking(run(case, *length)), expected, rtol=margin)


@pytest.mark.parametrize(
    ("case", "first", "others", "length"),
    [
        ("f", 0.06, 0.02, (SHORT,)),
        pytest.param("d", 0.15, 0.02, (), marks=pytest.mark.soak),
        pytest.param("f", 0.06, 0.02, (), marks=pytest.mark.soak),
    ],
)
def test_with_coupling_tracking_and_response_are_good(
    case: str, first: float, others: float, length: tuple[str, ...]
) -> None:
    made = run(case, *length)
    errors = tracking(made)
    assert errors[0] < first
    assert np.all(errors[1:] < others)
    assert np.all(response(made) < 2.0)


def test_without_coupling_the_response_is_ten_percent_wrong() -> None:
    assert np.all(response(run("c", SHORT)) > 8.0)


@pytest.mark.soak
def test_the_response_by_integrator_and_by_specimen() -> None:
    """As the page has them. The specimen's has the error of tracking in it."""
    made = run("c")
    np.testing.assert_allclose(response(made), [11.04, 10.36, 10.52], atol=0.01)
    np.testing.assert_allclose(response(made, made.true_displacement), [11.38, 10.75, 10.75], atol=0.01)


def test_a_staircase_with_the_force_of_the_last_tick_tracks_well_and_is_wrong() -> None:
    """The naive way: a held command, the force held over the step. Tracking does not show it."""
    naive = run("d", "rig.hold=staircase", "integrator={type: exact}", *QUIET)
    assert np.all(tracking(naive) < 0.5)
    assert np.all(response(naive) > 20.0)
    loaded = files.load(NAME, ["rig.hold=staircase", "integrator={type: exact}"], "d")
    assert any("staircase" in words for words in doubts(loaded))


def test_transport_costs_next_to_nothing_because_it_is_added_to_the_lead() -> None:
    late = run("d", "port.transport_samples=2", *QUIET, "duration=6")
    assert np.all(tracking(late) < 0.3)
