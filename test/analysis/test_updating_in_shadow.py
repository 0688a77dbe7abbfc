# SPDX-License-Identifier: Apache-2.0
"""Model updating in shadow of recordings: samples of the same moment, specimens of a rig, what is refused."""

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
    """The test of the paper, with its spring and dashpot as specimen."""
    return rths_nodes.run("chen_ricles_2010", ["duration=6", *overrides])


def of_specimen(specimen: dict[str, Any]) -> Run:
    scenario = load("chen_ricles_2010", ["duration=8", "axes.story_1.sensors.force_noise_rms=500"])
    return rths_nodes.run(replace(scenario, [(["axes", AXIS, "specimen"], specimen)]))


@pytest.mark.parametrize("law", ["ukf", "rls"])
@pytest.mark.parametrize("late", [0, 12])
def test_the_lag_of_a_load_cell_is_not_learnt_as_negative_damping(law: str, late: int) -> None:
    run = recorded(f"axes.story_1.sensors.force_delay={late}", "axes.story_1.sensors.force_noise_rms=1000")
    found = follow(run, AXIS, copy_for(run, AXIS, "kelvin_voigt", OFF), law)
    assert found.identified == (True, True)
    assert found.estimate[-1] == pytest.approx([7.6e6, 0.64e6], rel=0.05)
    assert found.counts == {"learnt from": len(found.time)}


def test_samples_that_are_not_of_one_moment_would_give_another_damping() -> None:
    """By k times the lag, 12 samples of 7.6 MN/m: the test above cannot pass by chance."""
    late = recorded("axes.story_1.sensors.force_delay=12", "axes.story_1.sensors.force_noise_rms=1000")
    run = dataclasses.replace(late, scenario=recorded().scenario)
    found = follow(run, AXIS, copy_for(run, AXIS, "kelvin_voigt", OFF), "rls")
    assert found.estimate[-1, 1] < 0.64e6 - 0.7 * 7.6e6 * 12 / 1024


def test_an_absorber_of_a_rig_is_found_by_its_law() -> None:
    """Bouc-Wen with beta = gamma = 0.5, integrated by the actuator that moves it."""
    specimen = {"stiffness": 10e6, "yield_force": 80e3, "post_yield_ratio": 0.1}
    run = of_specimen({"type": "elastoplastic_absorber"} | specimen)
    given = {
        "stiffness": 13e6,
        "yield_displacement": 0.7 * 0.008,
        "post_yield_ratio": 0.1,
        "beta": 0.5,
        "gamma": 0.5,
    }
    opened = [Open("stiffness"), Open("yield_displacement")]
    found = follow(run, AXIS, copy_for(run, AXIS, "bouc_wen", given, opened))
    assert found.identified == (True, True)
    assert found.estimate[-1] == pytest.approx([10e6, 0.008], rel=0.05)
    assert found.left.max() <= 1.0 / 12.0


def test_rubber_that_slips_is_told_not_to_be_a_spring_with_a_dashpot() -> None:
    run = of_specimen({"type": "slipping_elastomeric"})
    found = follow(run, AXIS, copy_for(run, AXIS, "kelvin_voigt", {"stiffness": 17e6, "damping": 1e6}), "rls")
    assert found.unexplained.any()
    assert found.identified == (False, False)
    assert mentions(found.counts, "model", "explain")
    assert (found.released >= found.lower).all()


def test_flagged_samples_and_those_outside_of_the_times_are_left_out() -> None:
    run = recorded()
    flags = run.flags.copy()
    flags[2000:3000] |= FLAG_BRIDGED
    broken = dataclasses.replace(run, flags=flags, force=np.where(flags[:, None] > 0, 1e9, run.force))
    found = follow(broken, AXIS, copy_for(run, AXIS, "kelvin_voigt", OFF), noise=5e3, start=1.0, end=5.0)
    assert found.counts["flagged"] == 100
    assert found.time[0] >= 1.0
    assert found.time[-1] <= 5.0
    assert found.estimate[-1] == pytest.approx([7.6e6, 0.64e6], rel=0.05)
    held = found.estimate[np.flatnonzero(found.use == 1)]
    assert (held == held[0]).all()


def test_a_copy_begins_with_the_law_of_the_test() -> None:
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
def test_what_cannot_be_followed_is_refused(words: dict[str, Any], message: tuple[str, ...]) -> None:
    run = recorded()
    given = {"axis": AXIS} | words
    copy = copy_for(run, AXIS, given.pop("model", "kelvin_voigt"), {})
    with pytest.raises(ConfigError) as refused:
        follow(run, copy=copy, **given)
    assert mentions(str(refused.value), *message)


def test_where_nothing_moves_nothing_is_learnt() -> None:
    run = recorded()
    still = dataclasses.replace(run, displacement=np.zeros_like(run.displacement))
    with pytest.raises(ConfigError, match=naming("no motion", "between")):
        follow(still, AXIS, copy_for(run, AXIS, "kelvin_voigt", {}))


def test_it_is_drawn(tmp_path: Path) -> None:
    run = recorded()
    found = follow(run, AXIS, copy_for(run, AXIS, "kelvin_voigt", OFF), "rls")
    save(tmp_path / "shadow.svg", None, draw, found, "a test")
    text = (tmp_path / "shadow.svg").read_text()
    for words in ("copy of story_1 in shadow, model kelvin_voigt, law rls", "copies would have", "force (kN)"):
        assert words in text
