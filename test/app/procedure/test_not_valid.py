# SPDX-License-Identifier: Apache-2.0
"""Tests of rungs with too many bridged samples, which end the ladder, and of other outcomes of a test."""

from __future__ import annotations

from pathlib import Path

import pytest
from messages import each_mentions, mentions
from rich.text import Text

import rths_nodes
from rths_nodes.app.cli import main
from rths_nodes.app.commands.procedures import _history
from rths_nodes.app.commands.terminal import progress
from rths_nodes.app.procedure.answers import Answers
from rths_nodes.app.procedure.console import Console, counts
from rths_nodes.app.procedure.procedure_runner import Ladder, ProcedureRunner
from rths_nodes.core.validation import from_data
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.procedure_record import HeldRecord, ProcedureRecord, RungRecord, SpecimenRecord, verdict
from rths_nodes.loop.scenario import files
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.timing import LateData
from rths_nodes.recording import procedure

NAME = "chen_ricles_2010"
BRIDGED = "not valid: 55 % bridged (at most 2 %)"
WHEN = "2030-01-02T12:00:00+00:00"


def finished(rung: str, bridged: int = 1705) -> RungRecord:
    return RungRecord(rung, WHEN, samples=3080, outcome="finished", bridged=bridged)


@pytest.fixture
def runner(tmp_path: Path) -> ProcedureRunner:
    """Test with two rungs on the rig."""
    ladder = Ladder(files.load(NAME, ["duration=1"], rig="bench_simulated"), ("f", "g"), 0.3, None, realtime=False)
    record = ProcedureRecord("t", NAME, "", operator="A. Tester", planned=["f", "g"])
    return ProcedureRunner(ladder, record, tmp_path / "t")


@pytest.mark.parametrize(("acknowledged", "code"), [(False, ExitCode.TRIPPED), (True, ExitCode.HELD)])
def test_trip_is_the_outcome_unless_acknowledged(
    runner: ProcedureRunner, acknowledged: bool, code: ExitCode
) -> None:
    runner.do("connect")
    runner.session.to(State.TRIPPED, "port.silence: no datagram")
    if acknowledged:
        runner.do("acknowledge")
    runner.do("finish")
    assert runner.conclude("", "", "") is code
    assert mentions(runner.record.reason, "port.silence") is not acknowledged


def test_bridged_rung_counts_only_by_decision_of_operator(runner: ProcedureRunner) -> None:
    rung = finished("f")
    runner.record.rungs.append(rung)
    assert (rung.ending, verdict(rung)) == (BRIDGED, BRIDGED)
    assert (runner.climbed, runner.next_rung) == ([], "f")
    runner.record.count(rung)
    assert (runner.climbed, runner.next_rung) == (["f"], "g")
    assert each_mentions(runner.record.deviations, ("rung f", BRIDGED, "A. Tester"))
    assert rung.ending == BRIDGED


def test_missed_ticks_and_gaps_count_as_bridged(runner: ProcedureRunner, tmp_path: Path) -> None:
    rung = finished("f", 0)
    rung.take_late(LateData(10, 3329, 3.25, 0.01))
    assert each_mentions(rung.remarks, ("10", "bridged"), ("3329", "missed"))
    runner.record.rungs.append(rung)
    assert runner.climbed == []
    assert "3250 ms" in rung.not_valid
    procedure.write(runner.record, tmp_path / "written")
    assert procedure.read(tmp_path / "written").rungs[0].not_valid == rung.not_valid


def test_test_with_bridged_rung_is_held_with_reason(runner: ProcedureRunner) -> None:
    runner.record.rungs.append(finished("f"))
    assert runner.conclude("", "", "") is ExitCode.HELD
    assert (runner.record.outcome, runner.record.reason) == ("held", f"rung f: {BRIDGED}")


def test_test_with_bridged_last_rung_is_not_valid(runner: ProcedureRunner) -> None:
    runner.record.rungs += [finished("f", 30), finished("g")]
    assert runner.conclude("", "", f"rung g: {BRIDGED}") is ExitCode.NOT_VALID
    record = procedure.read(runner.folder)
    assert (record.outcome, record.ending) == ("finished", BRIDGED)
    assert record.rungs[-1].bridged == 1705


def test_two_percent_bridged_are_valid(runner: ProcedureRunner) -> None:
    runner.record.rungs += [finished("f", 61), finished("g", 61)]
    assert runner.conclude("", "", "") is ExitCode.FINISHED
    assert runner.record.ending == "finished"


@pytest.mark.parametrize(("simulated", "loads"), [("", 1), ("simulated", 0), ("emulated", 0)])
def test_only_real_rungs_load_the_specimen(runner: ProcedureRunner, simulated: str, loads: int) -> None:
    runner.record.port, runner.record.simulated = "udp", simulated
    runner.ladder.judged(runner.record, finished("g"), runner.ladder.step("g"), None)
    assert len(runner.record.specimen.history) == loads


def test_history_of_specimen_excludes_simulations(tmp_path: Path) -> None:
    for name, port, simulated in (
        ("steel", "udp", ""),
        ("emulated", "udp", "emulated"),
        ("old", "simulator", ""),  # a record of an earlier version
    ):
        specimen = SpecimenRecord("D-17", [{"test": name, "rung": "g"}])
        record = ProcedureRecord(name, NAME, "", port=port, simulated=simulated, specimen=specimen)
        procedure.write(record, tmp_path / name)
    assert [row["test"] for row in _history(tmp_path, "D-17")] == ["steel"]


def test_elastic_rung_stops_at_the_elastic_limit(runner: ProcedureRunner) -> None:
    ladder = runner.ladder
    limits = ladder.scenario.limits["story_1"]
    elastic_limit = ladder.scenario.axes["story_1"].rig_axis.elastic_limit
    assert elastic_limit is not None
    assert ladder.stops(ladder.step("g"))["story_1"] == {"displacement": limits.stroke, "force": limits.force}
    assert ladder.stops(ladder.step("f"))["story_1"]["displacement"] == elastic_limit


def test_run_with_too_many_bridged_samples_exits_with_4(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Targets are five samples late, every second one of 200: the same samples on every machine."""
    options = ["--set=duration=3", "--fault=delay@0.3:target,5,200,2", f"--record={tmp_path / 'r'}"]
    assert main(["run", NAME, *options]) == 4
    verdict = "not valid: 45 % bridged (at most 2 %)"
    assert f"{NAME}: {verdict} after 3080 samples" in " ".join(capsys.readouterr().out.split())
    run = rths_nodes.read(tmp_path / "r")
    assert (run.outcome, run.ending, run.not_valid) == ("finished", verdict, verdict)


@pytest.mark.parametrize(
    ("typed", "leads", "expected"), [("y", True, True), ("n", True, False), (None, False, False)]
)
def test_console_asks_whether_a_bridged_rung_counts(
    runner: ProcedureRunner, typed: str | None, leads: bool, expected: bool
) -> None:
    """A file of answers ends the test there."""
    output: list[str] = []
    ask = None if typed is None else (lambda question: output.append(question) or typed)
    console = Console(from_data(Answers, {}), ask, output.append)
    console.attach(runner, progress, leads)
    runner.record.rungs[:] = [finished("f")]
    assert counts(console, runner.record.rungs[0]) is expected
    assert runner.climbed == (["f"] if expected else [])
    assert console.stopped == ("" if leads else f"rung f: {BRIDGED}")
    assert not leads or mentions(output[0], "rung f", BRIDGED, "count")


def test_lost_rig_is_printed_in_red(runner: ProcedureRunner) -> None:
    output: list[object] = []
    console = Console(from_data(Answers, {}), None, output.append)
    console.attach(runner, progress, True)
    for state in (State.CONNECTED, State.REFERENCED):
        console._changed(state, "")
    assert output == []
    reason = "port.silence: no datagram"
    runner.record.held.append(HeldRecord(WHEN, "tripped", reason, {"story_1": 0.012}, {"story_1": -3e3}))
    console._changed(State.TRIPPED, reason)
    console._printer.wait()
    shown, rest = output
    assert isinstance(shown, Text)
    assert mentions(str(rest), "12.000 mm", "-3.000 kN", "acknowledge")
    assert (str(shown), shown.style) == ("TRIPPED: port.silence: no datagram", "bold red")
