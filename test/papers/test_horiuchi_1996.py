# SPDX-License-Identifier: Apache-2.0
"""Tests of the four experiments of Horiuchi et al. (1996) against the findings of the paper."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from rths_nodes.analysis import response_errors
from rths_nodes.app import hosts
from rths_nodes.loop.scenario import files
from rths_nodes.recording.run import Run


@cache
def run(name: str, case: str = "", *overrides: str) -> Run:
    """Run a case of ``horiuchi_1996_<name>`` in the embedded host."""
    return hosts.run(files.load(f"horiuchi_1996_{name}", case=case), overrides).read()


def largest(run: Run, dof: int = 0) -> float:
    return float(np.abs(run.dof_displacement[:, dof]).max())


PERFECT = ("axes.story_1.actuator.delay=0", "compensator.type=none")


# Fig. 7: computed spring as specimen


def test_verification_diverges_without_compensation() -> None:
    diverged = run("verification", "no_compensation")
    assert diverged.outcome == "tripped"
    assert largest(diverged, 3) > 2.0 * largest(run("verification", "order_3"), 3)


def resonance(run: Run) -> float:
    """Amplification of the top floor at the first mode in a noise test: ratio of the rms over 1.8 to 2.2 Hz."""
    x = run.dof_displacement[1:, 3]
    ground = -run.external_force[:, 0] / 10.0e3
    frequencies = np.fft.rfftfreq(len(x), 1.0 / run.scenario.servo_rate)
    band = (frequencies > 1.8) & (frequencies < 2.2)
    response, excitation = np.abs(np.fft.rfft(x))[band], np.abs(np.fft.rfft(ground))[band]
    return float(np.sqrt((response**2).sum() / (excitation**2).sum()))


def test_third_order_preserves_first_mode_within_3_percent() -> None:
    exact = resonance(run("verification", "", *PERFECT))
    assert resonance(run("verification", "order_3")) == pytest.approx(exact, rel=0.03)


def test_third_order_preserves_resonance_within_3_percent() -> None:
    exact = largest(run("verification", "harmonic", *PERFECT), 3)
    assert largest(run("verification", "harmonic"), 3) == pytest.approx(exact, rel=0.03)


def test_tracking_error_decreases_with_order() -> None:
    runs = [run("verification", f"order_{n}", "duration=8") for n in (1, 2, 3, 4)]
    errors = [float(run.metrics["axes"]["story_1"]["error_norm_percent"]) for run in runs]
    assert errors == sorted(errors, reverse=True)


# Fig. 8: column of fibre-reinforced plastic


def test_column_force_softens_beyond_design_level() -> None:
    levels = {"level_05": 0.5, "level_10": 1.0, "level_15": 1.5, "level_20": 2.0, "level_30": 3.0, "level_40": 4.0}
    force = {level: float(np.abs(run("frp_column", case).force).max()) for case, level in levels.items()}
    assert force[1.0] / force[0.5] == pytest.approx(2.0, rel=1e-3)  # linear up to the design level
    slopes = np.diff(list(force.values())) / np.diff(list(force))
    assert np.all(slopes[1:] < 0.5 * slopes[0])
    assert force[4.0] < 0.5 * 4.0 * force[1.0]


# Fig. 9: energy absorber of a piping system


@pytest.mark.parametrize("case", ["half", pytest.param("full", marks=pytest.mark.soak), "double"])
def test_absorber_hybrid_response_matches_whole_structure(case: str) -> None:
    scenario = files.load("horiuchi_1996_energy_absorber", ["duration=8"], case)
    hybrid, reference = hosts.run(scenario).read(), response_errors.response(scenario)
    peak = float(np.abs(reference.displacement[:, 0]).max())
    assert largest(hybrid) == pytest.approx(peak, rel=0.02)
    error = hybrid.dof_displacement - reference.displacement[: len(hybrid.dof_displacement)]
    assert np.sqrt((error**2).sum() / (reference.displacement**2).sum()) < 0.02


# Fig. 10: first story of a four-story building


def test_response_grows_in_slow_tests_without_damper_force() -> None:
    response = [largest(run("four_story", f"ratio_{ratio}", "duration=4")) for ratio in (1, 2, 10)]
    assert response == sorted(response)
    assert response[-1] > 1.5 * response[0]


def test_rate_independent_specimen_responds_alike_at_any_speed() -> None:
    specimen = "axes.story_1.specimen={type: kelvin_voigt, stiffness: 16.4e6, damping: 0}"
    column = (specimen, "axes.story_1.limits.force=1e6", "duration=3")
    real_time, slow = (run("four_story", case, *column) for case in ("ratio_1", "ratio_10"))
    assert largest(slow) == pytest.approx(largest(real_time), rel=0.01)
    error = slow.dof_displacement - real_time.dof_displacement
    assert np.sqrt((error**2).sum() / (real_time.dof_displacement**2).sum()) < 0.01
