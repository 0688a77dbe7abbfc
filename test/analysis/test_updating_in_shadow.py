# SPDX-License-Identifier: Apache-2.0
"""Tests of model updating in shadow of recordings."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming

import rths_nodes
from rths_nodes.analysis.figures.style import save
from rths_nodes.analysis.figures.updating import draw
from rths_nodes.analysis.identification.updating import copy_for, follow
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_BRIDGED
from rths_nodes.loop.scenario.files import load
from rths_nodes.loop.scenario.overrides import replace
from rths_nodes.mechanics.updating.copies import Open
from rths_nodes.recording.run import Run

AXIS = "story_1"
OFF = {"stiffness": 1.3 * 7.6e6, "damping": 0.7 * 0.64e6}


@cache
def recorded(*overrides: str) -> Run:
    """The test of the paper with a spring and dashpot as specimen."""
    return rths_nodes.run("chen_ricles_2010", ["duration=6", *overrides])


def of_specimen(specimen: dict[str, Any]) -> Run:
    scenario = load("chen_ricles_2010", ["duration=8", "axes.story_1.sensors.force_noise_rms=500"])
    return rths_nodes.run(replace(scenario, [(["axes", AXIS, "specimen"], specimen)]))


@pytest.mark.parametrize("law", ["ukf", "rls"])
@pytest.mark.parametrize("late", [0, 12])
def test_load_cell_delay_is_not_learned_as_damping(law: str, late: int) -> None:
    run = recorded(f"axes.story_1.sensors.force_delay={late}", "axes.story_1.sensors.force_noise_rms=1000")
    result = follow(run, AXIS, copy_for(run, AXIS, "kelvin_voigt", OFF), law)
    assert result.identified == (True, True)
    assert result.estimate[-1] == pytest.approx([7.6e6, 0.64e6], rel=0.05)
    assert result.counts == {"learnt from": len(result.time)}


def test_unaligned_samples_give_wrong_damping() -> None:
    """The error is k times the lag: 12 samples of 7.6 MN/m. Shows that the test above is sensitive."""
    delayed = recorded("axes.story_1.sensors.force_delay=12", "axes.story_1.sensors.force_noise_rms=1000")
    run = dataclasses.replace(delayed, scenario=recorded().scenario)
    result = follow(run, AXIS, copy_for(run, AXIS, "kelvin_voigt", OFF), "rls")
    assert result.estimate[-1, 1] < 0.64e6 - 0.7 * 7.6e6 * 12 / 1024


def test_absorber_is_identified_by_bouc_wen() -> None:
    """Bouc-Wen with beta = gamma = 0.5, integrated in the actuator's model."""
    specimen = {"stiffness": 10e6, "yield_force": 80e3, "post_yield_ratio": 0.1}
    run = of_specimen({"type": "elastoplastic_absorber"} | specimen)
    fixed = {"post_yield_ratio": 0.1, "beta": 0.5, "gamma": 0.5}
    initial = {"stiffness": 13e6, "yield_displacement": 0.7 * 0.008} | fixed
    opened = [Open("stiffness"), Open("yield_displacement")]
    result = follow(run, AXIS, copy_for(run, AXIS, "bouc_wen", initial, opened))
    assert result.identified == (True, True)
    assert result.estimate[-1] == pytest.approx([10e6, 0.008], rel=0.05)
    assert result.left.max() <= 1.0 / 12.0


def test_slipping_rubber_is_unexplained_by_kelvin_voigt() -> None:
    run = of_specimen({"type": "slipping_elastomeric"})
    result = follow(run, AXIS, copy_for(run, AXIS, "kelvin_voigt", {"stiffness": 17e6, "damping": 1e6}), "rls")
    assert result.unexplained.any()
    assert result.identified == (False, False)
    assert mentions(result.counts, "model", "explain")
    assert (result.released >= result.lower).all()


def test_flagged_samples_and_other_times_are_excluded() -> None:
    run = recorded()
    flags = run.flags.copy()
    flags[2000:3000] |= FLAG_BRIDGED
    broken = dataclasses.replace(run, flags=flags, force=np.where(flags[:, None] > 0, 1e9, run.force))
    result = follow(broken, AXIS, copy_for(run, AXIS, "kelvin_voigt", OFF), noise=5e3, start=1.0, end=5.0)
    assert result.counts["flagged"] == 100
    assert result.time[0] >= 1.0
    assert result.time[-1] <= 5.0
    assert result.estimate[-1] == pytest.approx([7.6e6, 0.64e6], rel=0.05)
    held = result.estimate[np.flatnonzero(result.use == 1)]
    assert (held == held[0]).all()


def test_copy_starts_with_parameters_of_test() -> None:
    run = recorded()
    assert copy_for(run, AXIS, "kelvin_voigt", {}).initial.tolist() == [7.6e6, 0.64e6]
    frame = copy_for(run, AXIS, "bouc_wen", {"stiffness": 5e6})
    assert frame.initial.tolist() == pytest.approx([5e6, 0.01, 0.01])
    assert frame.values["beta"] == 0.55


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"axis": "story_2"}, ("--axis", "unknown", "story_2")),
        ({"law": "kf"}, ("--law", "unknown", "kf")),
        ({"model": "bouc_wen", "law": "rls"}, ("--law", "bouc_wen")),
        ({"noise": 0.0}, ("--noise", "0", "> 0")),
        ({"uncertainty": -1.0}, ("--uncertainty", "-1", "> 0")),
        ({"start": 5.9}, ("0.00977 s", ">= 100")),
    ],
)
def test_invalid_arguments_are_refused(words: dict[str, Any], message: tuple[str, ...]) -> None:
    run = recorded()
    arguments = {"axis": AXIS} | words
    copy = copy_for(run, AXIS, arguments.pop("model", "kelvin_voigt"), {})
    with pytest.raises(ConfigError) as error:
        follow(run, copy=copy, **arguments)
    assert mentions(str(error.value), *message)


def test_recording_without_motion_is_refused() -> None:
    run = recorded()
    still = dataclasses.replace(run, displacement=np.zeros_like(run.displacement))
    with pytest.raises(ConfigError, match=naming("no motion", "between")):
        follow(still, AXIS, copy_for(run, AXIS, "kelvin_voigt", {}))


def test_estimates_are_drawn(tmp_path: Path) -> None:
    run = recorded()
    result = follow(run, AXIS, copy_for(run, AXIS, "kelvin_voigt", OFF), "rls")
    save(tmp_path / "shadow.svg", None, draw, result, "a test")
    text = (tmp_path / "shadow.svg").read_text()
    for label in ("copy of story_1 in shadow, model kelvin_voigt, law rls", "copies would have", "force (kN)"):
        assert label in text
