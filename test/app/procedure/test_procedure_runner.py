# SPDX-License-Identifier: Apache-2.0
"""Tests of the procedure runner: stops during computations, and the record of how a test ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from messages import mentions, naming
from rig_runner import arm, conducted, consoled, positioned, referenced
from stop_at import elsewhere

from rths_nodes.analysis.report.document import render
from rths_nodes.analysis.report.procedure import first_words
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import HYDRAULICS_LOW
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording import procedure
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.run import Run


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[ProcedureRunner]:
    runner = conducted(tmp_path / "test")
    yield runner
    runner.session.close()


def stop_elsewhere(runner: ProcedureRunner) -> None:
    """Stop from another thread, which is answered before the test continues."""
    results: list[str] = []
    assert elsewhere(lambda: results.append(runner.do("stop", reason="wait"))) is None
    assert results == [""]


def test_stop_during_rehearsal_prevents_arming(runner: ProcedureRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three stops were refused during its half second, and the rig was armed."""
    positioned(runner)
    rehearsed = runner.ladder.rehearsed

    def stopped(name: str, progress: object = None) -> object:
        stop_elsewhere(runner)
        return rehearsed(name)

    monkeypatch.setattr(runner.ladder, "rehearsed", stopped)
    with pytest.raises(ConfigError, match=naming("arm", "wait")):
        arm(runner, "d")
    assert runner.state is State.POSITIONED
    assert mentions(runner.record.acts[-1].refused, "arm", "wait")
    monkeypatch.undo()
    arm(runner, "d")
    assert runner.state is State.ARMED


def test_stop_ends_rehearsal_before_connecting(runner: ProcedureRunner) -> None:
    stopped: list[int] = []

    def progress(sample: int, samples: int) -> None:
        if not stopped:
            stopped.append(sample)
            stop_elsewhere(runner)

    runner.ladder.progress = progress
    assert mentions(runner.do("rehearse"), "rung a", "held")


def test_stop_between_parts_of_an_act_prevents_the_second(runner: ProcedureRunner) -> None:
    """A console computes a rehearsal, asks for a hash, and arms then."""
    positioned(runner)
    with runner.session.act():
        assert not runner.ladder.abandoned()
        stop_elsewhere(runner)
        assert runner.ladder.abandoned()
        with pytest.raises(ConfigError, match=naming("arm", "wait")):
            arm(runner, "g")
    with runner.session.act():
        assert not runner.ladder.abandoned()
        runner.do("stop", reason="enough")  # in the thread of the act
        assert runner.ladder.abandoned()
    assert runner.state is State.POSITIONED


def test_stop_is_recorded_and_shown_with_position_and_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = consoled(tmp_path / "test").runner
    positioned(runner)
    arm(runner, "d")
    runner.do("stop", reason="loose bolt")
    assert runner.state is State.HELD
    shown = capsys.readouterr().out.splitlines()[-1]
    runner.do("finish")
    (held,) = procedure.read(tmp_path / "test").held
    assert (held.state, held.reason) == ("held", "loose bolt")
    zero, measured = runner.session.offsets.tares(), runner.session.drive.measured
    displacement = float(measured.displacement[0] - zero.displacement[0])
    assert held.displacement == {"story_1": pytest.approx(displacement, abs=1e-4)}
    assert list(held.force) == ["story_1"]
    x, force = held.displacement["story_1"], held.force["story_1"]
    assert mentions(shown, held.time[11:19], f"{1e3 * x:.3f} mm", f"{1e-3 * force:.3f} kN", "unload")


def test_controller_is_recorded_as_last_read(runner: ProcedureRunner) -> None:
    positioned(runner)
    before = runner.record.controller["hydraulics"]
    runner.session.drive.measured.hydraulics = HYDRAULICS_LOW
    runner.session.rest_of(State.HELD, "")
    assert (before, runner.record.controller["hydraulics"]) == ("not reported", "low")


def test_stop_at_the_end_of_a_rung_is_recorded(runner: ProcedureRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread of the stop may be writing the differences of the rung, to which no key may be added then."""
    positioned(runner)
    arm(runner, "d")
    rehearsed, writing = runner.ladder.rehearsed, []

    def stopped(*arguments: Any) -> Run:
        writing.append(iter(runner.record.rungs[-1].differences))
        return rehearsed(*arguments)

    monkeypatch.setattr(runner.ladder, "rehearsed", stopped)
    runner.do("run", clear="CLEAR")
    assert len(list(writing[-1])) == 2


def test_wrong_sign_is_the_reason_of_a_held_test(tmp_path: Path) -> None:
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


def test_recordings_of_a_test_share_hash_and_identity(runner: ProcedureRunner, tmp_path: Path) -> None:
    runner.record.scenario_hash = runner.ladder.scenario.whole_hash()
    positioned(runner)
    arm(runner, "d")
    runner.do("run", clear="CLEAR")
    runner.do("position", clear="CLEAR")
    arm(runner, "g")
    runner.do("run", clear="CLEAR")
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
