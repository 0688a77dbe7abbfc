# SPDX-License-Identifier: Apache-2.0
"""Tests of ``force_lead``: late measured forces are extrapolated by the slope of the last samples."""

from __future__ import annotations

import numpy as np
import pytest
from loop_parts import History

from rths_nodes.core.samples import FLAG_BRIDGED, Measurement
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.numerical import ForceLead, force_lead_of


def measurement(sample: int, force: float, flags: int = 0) -> Measurement:
    return Measurement(sample, np.zeros(1), np.array([force]), np.zeros(1), flags=flags)


@pytest.mark.parametrize("span", [1, 2, 7])
def test_force_lead_is_exact_on_a_ramp(span: int) -> None:
    lead = ForceLead(1.5, span, 1)
    for k in range(20):
        lead.add(measurement(k, 3.0 * k))
    assert lead.now()[0] == pytest.approx(3.0 * (19 + 1.5))


def test_noise_amplification_by_span() -> None:
    noise = np.random.default_rng(1).normal(size=40_000)
    deviations = {}
    for span in (1, 4):
        lead, forces = ForceLead(1.5, span, 1), []
        for k, force in enumerate(noise.tolist()):
            lead.add(measurement(k, force))
            forces.append(lead.now()[0])
        deviations[span] = np.std(forces)
    assert deviations[1] == pytest.approx(np.hypot(2.5, 1.5), rel=0.02)
    # a line through five samples adds the weights 1.5 (2, 1, 0, -1, -2) / 10 to the newest
    assert deviations[4] == pytest.approx(np.sqrt(1.3**2 + 0.15**2 + 0.15**2 + 0.3**2), rel=0.02)


def test_slope_is_frozen_on_flagged_samples() -> None:
    lead = ForceLead(2.0, 1, 1)
    for k in range(5):
        lead.add(measurement(k, float(k)))
    assert lead.now()[0] == 6.0
    lead.add(measurement(5, 100.0, FLAG_BRIDGED))
    assert lead.now()[0] == 102.0  # by the slope before
    lead.add(measurement(6, 0.0))
    assert lead.now()[0] == 2.0
    lead.add(measurement(7, 1.0))
    assert lead.now()[0] == 3.0


def test_half_a_step_is_added_if_integrator_holds_forces() -> None:
    """Ten samples per step; exact holds the force unless it extrapolates, runge_kutta always extrapolates."""
    base = [
        "structure.restoring_force.type=linear",
        "structure.restoring_force.stiffness=11.76e6",
        "force_lead=0.002",
    ]
    expected = {
        "integrator.type=exact": 0.002 * 1024 + 5.0,
        "integrator.measured_force=extrapolated": 0.002 * 1024,
        "integrator.type=runge_kutta": 0.002 * 1024,
        "integrator.type=cr": 0.002 * 1024,
    }
    for change, samples in expected.items():
        kind = ["integrator.type=exact"] if "measured_force" in change else []
        scenario = files.load("chen_ricles_2010", [*base, *kind, change])
        lead = force_lead_of(scenario, Assembly(scenario).integrator)
        assert lead is not None
        assert lead._samples == pytest.approx(samples)
        assert len(lead._forces) == 11


def test_default_has_no_force_lead() -> None:
    scenario = files.load("chen_ricles_2010")
    assert force_lead_of(scenario, Assembly(scenario).integrator) is None


def test_force_lead_corrects_late_force() -> None:
    """For a perfect actuator and a force delay of 4 samples the error falls by more than 90 %."""
    changes = [
        "duration=4",
        "substeps=1",
        "servo_rate=2048",
        "compensator.type=none",
        "axes.story_1.actuator.type=pure_delay",
        "structure.restoring_force.type=linear",
        "structure.restoring_force.stiffness=11.76e6",
        "integrator.type=exact",
    ]
    late = [*changes, "axes.story_1.sensors.force_delay=4"]

    def response(overrides: list[str]) -> np.ndarray:
        sink, displacements = History(), []
        sink.target = lambda target: displacements.append(float(target.displacement[0]))  # type: ignore
        Loop(Assembly(files.load("chen_ricles_2010", overrides))).run([sink])
        return np.array(displacements)

    exact = response([*changes, "force_lead=0"])
    uncorrected, corrected = response(late), response([*late, f"force_lead={4 / 2048}"])
    assert np.abs(corrected - exact).max() < 0.1 * np.abs(uncorrected - exact).max()
