# SPDX-License-Identifier: Apache-2.0
"""The record of a test says what happened: where the rig was held, the controller as last read, one identity."""

from __future__ import annotations

from pathlib import Path

import pytest
from messages import mentions
from rig_runner import conducted, consoled, positioned, referenced

from rths_nodes.analysis.report.document import render
from rths_nodes.analysis.report.procedure import first_words
from rths_nodes.core.samples import HYDRAULICS_LOW
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario.rehearsal import hash_of
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording import procedure
from rths_nodes.recording.reading import read_run


def armed_and_run(runner, rung: str) -> None:
    step = runner.ladder.step(rung)
    offsets = runner.session.offsets
    runner.do("arm", rung=rung, scenario_hash=step.hash, offsets_hash=offsets.hash)
    runner.do("run", clear="CLEAR")


def test_a_stop_is_recorded_with_place_and_force_of_every_axis(tmp_path: Path) -> None:
    runner = conducted(tmp_path / "test")
    positioned(runner)
    step = runner.ladder.step("d")
    runner.do("arm", rung="d", scenario_hash=step.hash, offsets_hash=runner.session.offsets.hash)
    runner.do("stop", reason="loose bolt")
    assert runner.state is State.HELD
    runner.do("finish")
    (held,) = procedure.read(tmp_path / "test").held
    assert (held.state, held.reason) == ("held", "loose bolt")
    zero, measured = runner.session.offsets.tares(), runner.session.measured
    assert held.displacement == {
        "story_1": pytest.approx(float(measured.displacement[0] - zero.displacement[0]), abs=1e-4)
    }
    assert list(held.force) == ["story_1"]


def test_the_terminal_shows_place_force_time_and_next_step_of_a_held_rig(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = consoled(tmp_path / "test").runner
    positioned(runner)
    step = runner.ladder.step("d")
    runner.do("arm", rung="d", scenario_hash=step.hash, offsets_hash=runner.session.offsets.hash)
    runner.do("stop", reason="loose bolt")
    held = runner.record.held[-1]
    x, force = held.displacement["story_1"], held.force["story_1"]
    shown = capsys.readouterr().out.splitlines()[-1]
    assert mentions(shown, held.time[11:19], f"{1e3 * x:.3f} mm", f"{1e-3 * force:.3f} kN", "unload")
    runner.session.close()


def test_the_controller_is_recorded_as_last_read(tmp_path: Path) -> None:
    runner = conducted(tmp_path / "test")
    positioned(runner)
    before = runner.record.controller["hydraulics"]
    runner.session.drive.measured.hydraulics = HYDRAULICS_LOW
    runner.session.rest_of(State.HELD, "")
    assert (before, runner.record.controller["hydraulics"]) == ("not reported", "low")
    runner.session.close()


def test_a_test_that_ends_after_a_wrong_sign_has_it_as_reason(tmp_path: Path) -> None:
    runner = conducted(tmp_path / "test", "axes.story_1.sensors.force_scale=-1")
    runner.do("rehearse")
    referenced(runner)
    runner.do("check", clear="CLEAR")
    runner.do("finish")
    assert runner.conclude("", "", "") is ExitCode.HELD
    record = procedure.read(tmp_path / "test")
    assert mentions(record.reason, "rung d", "story_1", "wrong sign")
    assert record.sample is None  # the rung before was a simulation
    assert mentions(first_words(record), "held", "wrong sign")
    assert "sample" not in first_words(record)


def test_a_test_has_one_hash_and_one_identity(tmp_path: Path) -> None:
    runner = conducted(tmp_path / "test")
    runner.record.scenario_hash = hash_of(runner.ladder.scenario)
    positioned(runner)
    armed_and_run(runner, "d")
    runner.do("position", clear="CLEAR")
    armed_and_run(runner, "g")
    runner.do("finish")
    pages = {}
    for rung in ("rung_d", "rung_g"):
        run = read_run(tmp_path / "test" / rung)
        assert run.information["run_id"] == f"test_{rung}"
        pages[rung] = render(run, False, procedure.of_recording(tmp_path / "test" / rung))
        assert run.information["scenario_hash"] not in pages[rung]
    assert "of the rung<" not in pages["rung_g"]
    assert mentions(pages["rung_d"], "of the rung", runner.ladder.step("d").hash)
    assert runner.ladder.step("g").hash == runner.record.scenario_hash
