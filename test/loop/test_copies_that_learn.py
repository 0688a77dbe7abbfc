# SPDX-License-Identifier: Apache-2.0
"""Model updating in the loop, in shadow: nothing else changes, and it learns what the recording tells."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from absorber import AXIS, NOISE, OFF, OPEN, TRUE, frame, section
from messages import each_mentions, mentions

import rths_nodes
from rths_nodes.analysis.figures.sheet import Sheet, View
from rths_nodes.analysis.figures.updating import copies
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.identification.updating import follow
from rths_nodes.analysis.report.document import remarks
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_SLIPPED, Measurement
from rths_nodes.loop.compiled.parts import parts_of
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.overrides import replace
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.scenario.updating import Copies, learning_notes
from rths_nodes.loop.stages.numerical import Learning
from rths_nodes.mechanics.updating.step import FLAGGED, NOT_FINITE
from rths_nodes.recording.run import Run

SECONDS = "duration=4"


@cache
def shadowed() -> Run:
    return rths_nodes.run(frame(SECONDS, updating=section()))


def test_nothing_else_of_the_test_has_another_bit() -> None:
    """Without shadow the loop over kernels has computed it, with it the stages."""
    plain, found = rths_nodes.run(frame(SECONDS)), shadowed()
    one, other = plain.arrays(), found.arrays()
    assert one.keys() == other.keys()
    for name, values in one.items():
        if not name.startswith("updating"):
            np.testing.assert_array_equal(values, other[name], err_msg=name)
    assert plain.metrics == found.metrics
    assert len(found.updating) == 410 > len(plain.updating) == 0


@pytest.mark.parametrize("late", [0, 7, 25])
def test_it_learns_what_the_recording_tells(late: int) -> None:
    """To the bit where the load cell has no delay, in all but the last pair; else of other pairs, and alike."""
    delay = [f"axes.{AXIS}.sensors.force_delay={late}"] if late else []
    scenario = frame(SECONDS, *delay, updating=section())
    run = rths_nodes.run(scenario) if late else shadowed()
    found = follow(run, AXIS, Copies(scenario).learns, noise=NOISE)
    n, m = len(run.updating), len(OPEN)
    offline = np.hstack((found.estimate, found.deviation, found.released))[:n]
    if not late:
        np.testing.assert_array_equal(run.updating[:, : 3 * m], offline)
        np.testing.assert_array_equal(run.updating[:, -1], found.use[:n])
        assert run.updating_time[0] == 10 / 1024
        assert n == len(found.time) - 1
    np.testing.assert_allclose(run.updating[-1, :m], offline[-1, :m], rtol=0.02)
    np.testing.assert_allclose(run.updating[-1, :m], [TRUE[name] for name in OPEN], rtol=0.05)


def test_what_is_recorded_has_names_units_and_an_end_in_numbers() -> None:
    run = shadowed()
    assert run.updating_names == (
        "stiffness [N/m]",
        "yield_displacement [m]",
        "deviation of stiffness [N/m]",
        "deviation of yield_displacement [m]",
        "released stiffness [N/m]",
        "released yield_displacement [m]",
        "expected force [N]",
        "spread of force [N]",
        "mean square of innovation",
        "told",
    )
    told = run.integrator["updating"]
    assert told["learnt"] == len(run.updating)
    assert told["stiffness"]["estimate"] == run.updating[-1, 0]
    assert told["stiffness"]["initial"] == OFF["stiffness"]
    assert 0.0 < told["stiffness"]["left"] < 1.0 / 12.0
    assert not told["first_unexplained_sample"]


def test_a_recording_gives_it_back(tmp_path: Path) -> None:
    scenario = frame("duration=0.5", updating=section())
    live = rths_nodes.run(scenario)
    rths_nodes.run(scenario, record=tmp_path / "run")
    read = rths_nodes.read(tmp_path / "run")
    assert read.updating_names == live.updating_names
    np.testing.assert_array_equal(read.updating, live.updating)
    np.testing.assert_array_equal(read.updating_time, live.updating_time)
    assert read.scenario.updating == scenario.updating


def test_the_loop_over_kernels_says_why_it_has_none() -> None:
    reason = parts_of(Assembly(frame(updating=section())))
    assert mentions(reason, "updating", "copies", "updated", "outside")


def test_bad_samples_are_told_and_change_no_parameter() -> None:
    learning = Learning(frame(updating=section()))
    rng, found = np.random.default_rng(1), []
    one = np.zeros(1)
    for k in range(800):
        x = 0.02 * np.sin(2.0 * np.pi * k / 1024)
        force = np.array([TRUE["stiffness"] * 0.3 * x + NOISE * rng.normal()])
        flags = FLAG_SLIPPED if k in (300, 310) else 0
        if k == 400:
            force = np.array([np.nan])
        learning.add(Measurement(k, one + x, force, one, flags=flags))
        if (learnt := learning.learn()) is not None:
            found.append(learnt)
        assert learning.learn() is None
    numbers = [number for number, _ in found]
    assert numbers == list(range(10, 800, 10))
    told = {number: round(values[-1]) for number, values in found}
    assert [told[310], told[320], told[410]] == [FLAGGED, FLAGGED, NOT_FINITE]  # pairs of one period before
    rows = dict(found)
    for number in (310, 320, 410):
        assert rows[number][:2] == pytest.approx(rows[number - 10][:2], rel=1e-12)
        assert rows[number][4:6] == rows[number - 10][4:6]


FRAME = {
    "type": "shear_frame",
    "masses": [1e5, 1e5, 1e5],
    "stiffnesses": [9e7, 8e7, 7e7],
    "restoring_forces": {
        "story_1": {"type": "bilinear", "yield_force": 7.5e5, "post_yield_ratio": 0.05},
        "story_2": {"type": "bilinear", "yield_force": 7.5e5, "post_yield_ratio": 0.05},
        "story_3": {"type": "elastic_plastic", "yield_force": 7.5e5},
    },
}


def of_frame(updating: dict[str, Any]) -> Scenario:
    matrix = {"type": "matrix", "matrix": [[1.0, 0.0, 0.0]]}
    return replace(frame(), [(["structure"], FRAME), (["setup"], matrix), (["updating"], updating)])


BILINEAR = {"stiffness": {"bounds": [4e7, 2e8], "initial": 9e7}}


def test_copies_keep_their_ratio_to_the_specimen() -> None:
    copies = Copies(of_frame(section(of=["story_1", "story_2"], parameters=BILINEAR)))
    assert {name: law.stiffness for name, law in copies.laws.items()} == {"story_1": 9e7, "story_2": 8e7}
    assert copies.learns.initial.tolist() == [9e7]
    assert copies.corners.tolist() == [[4.0 / 9.0], [20.0 / 9.0]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"of": []}, ("updating.of", "story_1", "story_2", "story_3")),
        ({"of": ["story_4"]}, ("updating.of", "unknown", "story_4")),
        ({"of": ["story_1", "story_1"]}, ("updating.of", "story_1", "copy")),
        (
            {"of": ["story_3"]},
            ("updating.of", "story_3", "elastic_plastic", "bouc_wen"),
        ),
        (
            {"of": ["story_1", "story_2"], "parameters": {"yield_force": {"bounds": [4e5, 2e6]}}},
            ("updating.of", "story_1", "9e+07", "story_2", "8e+07"),
        ),
        ({"axis": "story_9"}, ("updating.axis", "unknown", "story_9")),
        ({"law": "rls"}, ("updating.law", "rls", "linear")),
        ({"law": "kf"}, ("updating.law", "unknown", "kf", "ukf", "rls")),
        ({"noise": 0.0}, ("updating.noise", "0 N", "> 0")),
        ({"parameters": {}}, ("updating.parameters",)),
        (
            {"parameters": {"elasticity": {"bounds": [1, 2]}}},
            ("updating.parameters", "unknown", "elasticity"),
        ),
        ({"parameters": {"stiffness": {}}}, ("updating.parameters.stiffness.bounds", "missing")),
        (
            {"parameters": {"stiffness": {"bounds": [2e8, 1e7]}}},
            ("updating.parameters.stiffness.bounds", "[200000000.0, 10000000.0]"),
        ),
        (
            {"parameters": {"stiffness": {"bounds": [1e8, 2e8]}}},
            ("updating.parameters.stiffness", "1e+08", "2e+08", "> 0", "9e+07"),
        ),
        (
            {"parameters": {"post_yield_ratio": {"bounds": [0.01, 1.5]}}},
            ("updating.parameters.post_yield_ratio", "1.5"),
        ),
        ({"mode": "on"}, ("updating.mode", "unknown", "on", "shadow", "used")),
        ({"from": "story_1"}, ("updating.from", "unknown")),
    ],
)
def test_what_cannot_be_updated_is_refused(changes: dict[str, Any], message: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refused:
        of_frame(section(of=["story_1"], parameters=BILINEAR) | changes)
    assert mentions(str(refused.value), *message)


def test_a_structure_without_restoring_forces_has_no_copies() -> None:
    with pytest.raises(ConfigError) as refused:
        replace(frame(), [(["structure", "restoring_force"], None), (["updating"], section())])
    assert mentions(str(refused.value), "updating.of", "unknown", "x")


def test_what_was_learnt_is_told_in_words() -> None:
    run = shadowed()
    (words,) = learning_notes(run.integrator, run.scenario)
    assert mentions(words, "story_1", "1.3e+07")
    assert words.count("(identified; released ") == 2
    assert learning_notes({}, run.scenario) == learning_notes(run.integrator, frame()) == []


def test_a_specimen_that_the_model_does_not_explain_is_told_and_told_first() -> None:
    """Rubber that slips: bounded, and nothing counts as identified."""
    scenario = frame("duration=5", updating=section(), specimen={"type": "slipping_elastomeric"})
    run = rths_nodes.run(scenario)
    told = learning_notes(run.integrator, scenario)
    assert mentions(told[0], "model", "copies")
    assert told[1].count("(not identified") == 2
    copies = Copies(scenario)
    shares = run.updating[:, :2] / copies.learns.initial
    assert (shares >= copies.learns.lower - 1e-12).all()
    assert (shares <= copies.learns.upper + 1e-12).all()


def test_the_report_draws_it() -> None:
    sheet = Sheet()
    words = copies(sheet, View.one(Evaluation(shadowed())))
    assert words is not None
    assert each_mentions(
        [panel.get_ylabel().replace("\n", " ") for panel in sheet.figure.axes],
        ("stiffness",),
        ("yield", "displacement"),
        ("square", "innovation"),
    )
    assert words[0] == "Copies of story_1: learnt"
    assert copies(Sheet(), View.one(Evaluation(rths_nodes.run(frame("duration=0.2"))))) is None
    assert any("Copies of story_1 (in shadow)" in words for words in remarks(Evaluation(shadowed())))
