# SPDX-License-Identifier: Apache-2.0
"""``force_lead``: measured forces that come late are brought up to now, by the slope of the last samples."""

from __future__ import annotations

import numpy as np
import pytest

from rths_nodes.core.samples import FLAG_BRIDGED, Measurement
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.numerical import ForceLead, force_lead_of

NOTHING = np.zeros(1)


def measurement(sample: int, force: float, flags: int = 0) -> Measurement:
    return Measurement(sample, NOTHING, np.array([force]), NOTHING, flags=flags)


@pytest.mark.parametrize("span", [1, 2, 7])
def test_it_is_exact_on_a_ramp(span: int) -> None:
    lead = ForceLead(1.5, span, 1)
    for k in range(20):
        lead.add(measurement(k, 3.0 * k))
    assert lead.now()[0] == pytest.approx(3.0 * (19 + 1.5))


def test_a_slope_over_one_sample_multiplies_the_noise_by_2_9_and_over_more_by_less() -> None:
    generator = np.random.default_rng(1)
    noise = generator.normal(size=40_000)
    found = {}
    for span in (1, 4):
        lead, seen = ForceLead(1.5, span, 1), []
        for k, force in enumerate(noise.tolist()):
            lead.add(measurement(k, force))
            seen.append(lead.now()[0])
        found[span] = np.std(seen)
    assert found[1] == pytest.approx(np.hypot(2.5, 1.5), rel=0.02)
    # weights of a line through five: 1.5 (2, 1, 0, -1, -2) / 10 on top of the newest
    assert found[4] == pytest.approx(np.sqrt(1.3**2 + 0.15**2 + 0.15**2 + 0.3**2), rel=0.02)


def test_it_is_frozen_on_flagged_samples_and_until_a_span_has_gone_by() -> None:
    lead = ForceLead(2.0, 1, 1)
    for k in range(5):
        lead.add(measurement(k, float(k)))
    assert lead.now()[0] == 6.0
    lead.add(measurement(5, 100.0, FLAG_BRIDGED))
    assert lead.now()[0] == 102.0  # the slope of before
    lead.add(measurement(6, 0.0))
    assert lead.now()[0] == 2.0
    lead.add(measurement(7, 1.0))
    assert lead.now()[0] == 3.0


def test_half_a_step_is_added_for_an_integrator_that_holds_and_only_then() -> None:
    """chen_ricles: ten samples a step; exact holds unless it extrapolates itself, runge_kutta always does."""
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


def test_without_it_nothing_is_extrapolated() -> None:
    scenario = files.load("chen_ricles_2010")
    assert force_lead_of(scenario, Assembly(scenario).integrator) is None


def test_it_makes_up_for_a_late_force() -> None:
    """A perfect actuator whose force is four samples late: the error falls by more than nine tenths."""
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
        loop, found = Loop(Assembly(files.load("chen_ricles_2010", overrides))), []

        class Seen:
            target = staticmethod(lambda target: found.append(float(target.displacement[0])))
            command = measurement = truth = staticmethod(lambda _: None)
            state = staticmethod(lambda sample, values: None)

        loop.run([Seen()])
        return np.array(found)

    exact = response([*changes, "force_lead=0"])
    uncorrected, corrected = response(late), response([*late, f"force_lead={4 / 2048}"])
    assert np.abs(corrected - exact).max() < 0.1 * np.abs(uncorrected - exact).max()
