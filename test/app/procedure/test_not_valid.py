# SPDX-License-Identifier: Apache-2.0
"""A rung of which too much was bridged: it has run, but the ladder does not go on behind it by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from messages import each_mentions, mentions
from rich.text import Text

import rths_nodes
from rths_nodes.app.cli import main
from rths_nodes.app.commands.terminal import progress
from rths_nodes.app.commands.test import _history
from rths_nodes.app.procedure.answers import Answers
from rths_nodes.app.procedure.console import Console, counts
from rths_nodes.app.procedure.ladder import Ladder
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner
from rths_nodes.core.validation import from_data
from rths_nodes.loop.indices.late_periods import LateData
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.procedure_record import HeldRecord, ProcedureRecord, RungRecord, SpecimenRecord, verdict
from rths_nodes.loop.scenario import files
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording import procedure

NAME, RIG = "chen_ricles_2010", "bench_simulated"
BRIDGED = "not valid: 55 % bridged (at most 2 %)"
WHEN = "2030-01-02T12:00:00+00:00"


def climbed(rung: str, bridged: int = 1705) -> RungRecord:
    return RungRecord(rung, WHEN, samples=3080, outcome="finished", bridged=bridged)


@pytest.fixture
def runner(tmp_path: Path) -> ProcedureRunner:
    """Of a test with two rungs on the rig."""
    ladder = Ladder(files.load(NAME, ["duration=1"], rig=RIG), ("f", "g"), 0.3, None, realtime=False)
    record = ProcedureRecord("t", NAME, "", operator="A. Tester", planned=["f", "g"])
    return ProcedureRunner(ladder, record, tmp_path / "t")


def ended(runner: ProcedureRunner, stopped: str = "") -> ExitCode:
    return runner.conclude("", "", stopped)


@pytest.mark.parametrize(("acknowledged", "code"), [(False, ExitCode.TRIPPED), (True, ExitCode.HELD)])
def test_a_trip_that_ended_the_test_is_its_outcome(
    runner: ProcedureRunner, acknowledged: bool, code: ExitCode
) -> None:
    runner.do("connect")
    runner.session.to(State.TRIPPED, "port.silence: no datagram")
    if acknowledged:
        runner.do("acknowledge")
    runner.do("finish")
    assert ended(runner) is code
    assert mentions(runner.record.reason, "port.silence") is not acknowledged


def test_it_is_not_climbed_unless_the_operator_says_that_it_counts(runner: ProcedureRunner) -> None:
    rung = climbed("f")
    runner.record.rungs.append(rung)
    assert (rung.ending, verdict(rung)) == (BRIDGED, BRIDGED)
    assert (runner.climbed, runner.next_rung) == ([], "f")
    runner.record.count(rung)
    assert (runner.climbed, runner.next_rung) == (["f"], "g")
    assert each_mentions(runner.record.deviations, ("rung f", BRIDGED, "A. Tester"))
    assert rung.ending == BRIDGED


def test_missed_ticks_and_gaps_count_as_bridged_samples_do(runner: ProcedureRunner, tmp_path: Path) -> None:
    rung = climbed("f", 0)
    rung.take_late(LateData(10, 3329, 3.25, 0.01))
    assert each_mentions(rung.remarks, ("10", "bridged"), ("3329", "missed"))
    runner.record.rungs.append(rung)
    assert runner.climbed == []
    assert "3250 ms" in rung.not_valid
    procedure.write(runner.record, tmp_path / "written")
    assert procedure.read(tmp_path / "written").rungs[0].not_valid == rung.not_valid


def test_a_test_that_ends_behind_it_is_held_and_says_why(runner: ProcedureRunner) -> None:
    runner.record.rungs.append(climbed("f"))
    assert ended(runner) is ExitCode.HELD
    assert (runner.record.outcome, runner.record.reason) == ("held", f"rung f: {BRIDGED}")


def test_where_it_was_the_last_one_the_test_has_finished_and_is_not_valid(runner: ProcedureRunner) -> None:
    runner.record.rungs += [climbed("f", 30), climbed("g")]
    assert ended(runner, f"rung g: {BRIDGED}") is ExitCode.NOT_VALID
    read = procedure.read(runner.folder)
    assert (read.outcome, read.ending) == ("finished", BRIDGED)
    assert read.rungs[-1].bridged == 1705


def test_two_in_a_hundred_are_valid(runner: ProcedureRunner) -> None:
    runner.record.rungs += [climbed("f", 61), climbed("g", 61)]
    assert ended(runner) is ExitCode.FINISHED
    assert runner.record.ending == "finished"


@pytest.mark.parametrize(("simulated", "loads"), [("", 1), ("simulated", 0), ("emulated", 0)])
def test_what_is_simulated_loads_no_specimen(runner: ProcedureRunner, simulated: str, loads: int) -> None:
    runner.record.port, runner.record.simulated = "udp", simulated
    runner._judged(climbed("g"), runner.ladder.step("g"), None)
    assert len(runner.record.specimen.history) == loads


def test_the_history_of_a_specimen_leaves_out_what_was_simulated(tmp_path: Path) -> None:
    for name, port, simulated in (
        ("steel", "udp", ""),
        ("emulated", "udp", "emulated"),
        ("old", "simulator", ""),  # a record of before it was told
    ):
        specimen = SpecimenRecord("D-17", [{"test": name, "rung": "g"}])
        record = ProcedureRecord(name, NAME, "", port=port, simulated=simulated, specimen=specimen)
        procedure.write(record, tmp_path / name)
    assert [row["test"] for row in _history(tmp_path, "D-17")] == ["steel"]


def test_the_stop_of_a_rung_below_the_elastic_limit_is_that(runner: ProcedureRunner) -> None:
    ladder = runner.ladder
    limits = ladder.scenario.limits["story_1"]
    elastic = ladder.scenario.axes["story_1"].rig_axis
    assert elastic is not None
    assert elastic.elastic_limit is not None
    assert ladder.stops(ladder.step("g"))["story_1"] == {"displacement": limits.stroke, "force": limits.force}
    assert ladder.stops(ladder.step("f"))["story_1"]["displacement"] == elastic.elastic_limit


def test_a_run_of_which_too_much_was_bridged_says_so_and_ends_with_4(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Targets that come five samples late, every second one of 200: the same samples on every machine."""
    words = [
        "run",
        NAME,
        "--set=duration=3",
        "--fault",
        "delay@0.3:target,5,200,2",
        "--record",
        str(tmp_path / "r"),
    ]
    assert main(words) == 4
    shown = capsys.readouterr().out
    words_of_it = "not valid: 45 % bridged (at most 2 %)"
    assert f"{NAME}: {words_of_it} after 3080 samples" in " ".join(shown.split())
    run = rths_nodes.read(tmp_path / "r")
    assert (run.outcome, run.ending, run.not_valid) == ("finished", words_of_it, words_of_it)


def test_a_console_asks_whether_it_counts_and_a_file_of_answers_ends_there(runner: ProcedureRunner) -> None:
    """What the console does behind such a rung."""
    said: list[str] = []
    for typed, leads, expected in (("y", True, True), ("n", True, False), (None, False, False)):
        ask = None if typed is None else (lambda question, typed=typed: said.append(question) or typed)
        console = Console(from_data(Answers, {}), ask, said.append)
        console.attach(runner, progress, leads)
        runner.record.rungs[:] = [climbed("f")]
        assert counts(console, runner.record.rungs[0]) is expected
        assert runner.climbed == (["f"] if expected else [])
        assert console.stopped == ("" if leads else f"rung f: {BRIDGED}")
    assert mentions(said[0], "rung f", BRIDGED, "count")


def test_a_rig_that_is_lost_at_rest_is_printed_in_red(runner: ProcedureRunner) -> None:
    said: list[object] = []
    console = Console(from_data(Answers, {}), None, said.append)
    console.attach(runner, progress, True)
    for state in (State.CONNECTED, State.REFERENCED):
        console._changed(state, "")
    assert said == []
    reason = "port.silence: no datagram"
    runner.record.held.append(HeldRecord(WHEN, "tripped", reason, {"story_1": 0.012}, {"story_1": -3e3}))
    console._changed(State.TRIPPED, reason)
    shown, rest = said
    assert isinstance(shown, Text)
    assert mentions(str(rest), "12.000 mm", "-3.000 kN", "acknowledge")
    assert (str(shown), shown.style) == ("TRIPPED: port.silence: no datagram", "bold red")
