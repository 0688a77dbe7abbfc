# SPDX-License-Identifier: Apache-2.0
"""Tests of ``rths commission`` against the emulator: planted faults are detected, a healthy rig passes.

Durations are counted in samples of the rig, so that a slow machine does not matter.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_compiler import require_compiler
from command_fixtures import RunCommand
from emulated_bench import EmulatedBench, rig_text
from messages import mentions, naming

from rths_nodes.app import emulation
from rths_nodes.app.commands import procedures
from rths_nodes.app.commands.procedures import AtTerminal
from rths_nodes.app.emulation import Planted, Switches
from rths_nodes.app.procedure.answers import Answers
from rths_nodes.app.procedure.console import Console
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.protocols import ReportedState
from rths_nodes.core.samples import FLAG_BRIDGED, HYDRAULICS_HIGH, Measurement
from rths_nodes.laboratory.ports.session import SessionListener, SessionPort
from rths_nodes.loop.commissioning import (
    CABLE,
    CALIBRATION,
    CAUSES,
    CLOSED,
    CONTROLLER,
    EMERGENCY,
    END_STOPS,
    FAILED,
    INTERLOCK,
    KILLED,
    NOT_TRIED,
    PASSED,
    PRESSURE,
    SIGN,
    STOPPED,
    STROKE,
    UNTRIED,
    VELOCITY,
    WITNESSED,
    CommissioningRow,
)
from rths_nodes.loop.scenario import files
from rths_nodes.procedure.commissioning import rig as commissioned_rig
from rths_nodes.procedure.commissioning import stops
from rths_nodes.procedure.commissioning.rig import Bench, Dash, Refused
from rths_nodes.procedure.commissioning.stops import by_place
from rths_nodes.procedure.commissioning.trials import TRIALS, commission, scenario_of
from rths_nodes.procedure.drive import awaited
from rths_nodes.recording.records import RecordingError

require_compiler()

HIGHEST, SESSION = "from the highest speed", "session of the receiver"
FAULTS = {
    emulation.BRAKING: ("closed", 1, CLOSED, "rests after 14.6 ms"),
    emulation.HARD: ("closed", 1, CLOSED, "the axis brakes in 3 samples instead of the stated 8"),
    emulation.STROKE: ("limits", 1, STROKE, "20.4 mm"),
    emulation.VELOCITY: ("limits", 1, VELOCITY, "0.42 m/s"),
    emulation.WATCHDOG: ("killed", 1, KILLED, "the session does not end"),
    emulation.ENDLESS: ("killed", 1, KILLED, "the axis does not brake"),
    emulation.BRIDGE: ("killed", 2, KILLED, "brakes after 40 ms"),
    emulation.SWAPPED: ("signs", 2, SIGN, "south moved instead"),
    emulation.SIGN: ("signs", 1, SIGN, "north -1 mm: the axis moved in the wrong direction"),
    emulation.DEAD_INTERLOCK: ("interlock", 1, INTERLOCK, "nothing was detected within 1 s"),
    emulation.JUMP: ("pressure", 1, PRESSURE, "north moves "),
}
"""Planted fault -> trial that detects it, number of axes, cause and text of the failing row."""


MakeBench = Callable[..., EmulatedBench]


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[MakeBench]:
    """Start an emulated rig with an operator."""
    benches: list[EmulatedBench] = []

    def make(n_axes: int = 1, *faults: str, mounted: float = 0.0) -> EmulatedBench:
        benches.append(EmulatedBench(tmp_path, n_axes, faults, mounted))
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()


def failing(rows: list[CommissioningRow]) -> list[CommissioningRow]:
    return [row for row in rows if row.verdict == FAILED]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("n_axes", [1, 2])
def test_healthy_rig_passes_every_trial(make_bench: MakeBench, n_axes: int) -> None:
    emulated = make_bench(n_axes)
    rows = commission(emulated.bench)
    assert failing(rows) == []
    names = ["north", "south"][:n_axes]
    assert {row.cause for row in rows} == {*CAUSES, *UNTRIED, EMERGENCY, END_STOPS, CONTROLLER, CALIBRATION}
    for cause in (SIGN, VELOCITY):
        assert [row.what for row in rows if row.cause == cause] == names
    fast = [f"{name}, {HIGHEST}" for name in names]
    assert [row.what for row in rows if row.cause == CLOSED] == [*names, *fast]
    assert [row.what for row in rows if row.cause == KILLED] == [*names, SESSION, *fast, f"{SESSION}, {HIGHEST}"]
    assert {row.what for row in rows if row.verdict == WITNESSED} == {"rig"}
    for row in rows:
        assert " 0 m" not in row.measured
        assert bool(row.speed) is (row.verdict in (PASSED, FAILED) and "session" not in row.what)
    assert len(emulated.bench.build) == 16
    assert len(emulated.asked) == 18 + (n_axes - 1)
    operator = [row for row in rows if row.cause == STOPPED]
    assert [row.what for row in operator] == ["checking", "positioning", "armed", HIGHEST]
    highest = next(row for row in rows if row.cause == CLOSED and HIGHEST in row.what)
    assert operator[-1].speed == highest.speed
    without_speed = [text for text in emulated.cleared if not mentions(text, "north", "mm", "mm/s")]
    assert without_speed == emulated.cleared[2 : n_axes + 1]


def test_return_before_killed_process_needs_clear(make_bench: MakeBench) -> None:
    emulated = make_bench(1)
    emulated.bench.home = np.array([2e-3])
    rows = commission(emulated.bench, {"killed": TRIALS["killed"]})
    assert failing(rows) == []
    assert any(mentions(text, "first position", "north", "2 mm at") for text in emulated.cleared)


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_detected(make_bench: MakeBench, fault: str) -> None:
    trial, n_axes, cause, text = FAULTS[fault]
    rows = failing(commission(make_bench(n_axes, fault).bench, {trial: TRIALS[trial]}))
    assert {row.cause for row in rows} == {cause}
    assert text in rows[0].measured


@pytest.mark.parametrize("fault", [emulation.WATCHDOG, emulation.ENDLESS, emulation.BRIDGE])
def test_pulled_cable_detects_faults_of_watchdog(make_bench: MakeBench, fault: str) -> None:
    rows = commission(make_bench(1, fault).bench, {"cable": TRIALS["cable"]})
    assert [(row.cause, row.what) for row in failing(rows)] == [(CABLE, "north")]


def test_session_that_fails_after_opening_closes_its_port(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated, closed = make_bench(1), list[SessionPort]()
    emulated.emulator.switches.turn("interlock open")
    monkeypatch.setattr(SessionPort, "close", lambda port: (closed.append(port), port.safe()))
    with pytest.raises(Refused, match="interlock"), emulated.bench.opened():
        pass
    assert len(closed) == 1


def test_process_to_be_killed_reports_stopped_rig_as_refusal(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a session that cannot be opened may be tried again."""
    emulated, (pipe, theirs) = make_bench(1), multiprocessing.Pipe()
    emulated.emulator.switches.turn("interlock open")
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    monkeypatch.setattr(stops, "end_with", lambda parent: None)
    pipe.send(os.getpid())
    stops.drive_until_killed(theirs, emulated.bench.scenario.data(), False, Dash(np.zeros(1), 1, 2, 1e-3))
    with pytest.raises(Refused, match="interlock"):
        stops._received(pipe)


def test_process_to_be_killed_drives_no_rig_after_its_parent(make_bench: MakeBench) -> None:
    spawn = multiprocessing.get_context("spawn")
    pipe, theirs = spawn.Pipe()
    bench, dash = make_bench(1).bench, Dash(np.zeros(1), 1, 2, 1e-3)
    process = spawn.Process(target=stops.drive_until_killed, args=(theirs, bench.scenario.data(), False, dash))
    process.start()
    pipe.send(1)  # its parent has another number
    process.join(60.0)
    assert (process.exitcode, pipe.poll()) == (1, False)


def test_rig_that_counts_no_samples_ends_trial_of_cable(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rig sends the same state again and again, and does not stop."""
    calls = 0

    def states(ear: SessionListener, seconds: float) -> list[ReportedState]:
        nonlocal calls
        calls += 1
        assert calls < 1000
        return [ReportedState(Measurement(9, np.zeros(1), np.zeros(1), np.zeros(1)), 9, "")]

    monkeypatch.setattr(SessionListener, "states", states)
    rows = failing(commission(make_bench(1).bench, {"cable": TRIALS["cable"]}))
    assert mentions(rows[0].measured, "rig", "not stopped")


def test_every_planted_fault_has_its_row() -> None:
    assert FAULTS.keys() == emulation.PLANTED.keys()


@pytest.mark.parametrize("trial", ["closed", "interlock", "pressure"])
def test_healthy_rig_passes_fault_trials(make_bench: MakeBench, trial: str) -> None:
    rows = commission(make_bench(2).bench, {trial: TRIALS[trial]})
    assert rows
    assert failing(rows) == []


@pytest.mark.parametrize("trial", ["closed", "cable"])
def test_rest_is_found_by_new_session_without_listener(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch, trial: str
) -> None:
    monkeypatch.setattr(SessionPort, "ear", property(lambda port: None, lambda port, ear: None), raising=False)
    rows = commission(make_bench(1).bench, {trial: TRIALS[trial]})
    assert failing(rows) == []
    assert mentions(next(row for row in rows if row.what == "north").resolution, "times", "not measured")


def test_fast_motion_against_specimen_is_stopped(make_bench: MakeBench) -> None:
    """0.5 MN/m give 0.5 kN in the small move of 1 mm, where 1 kN is allowed; the fast motion is longer."""
    bench = make_bench(1, mounted=5e5).bench
    with bench.opened() as rig:
        bench.fast = Dash.fastest(rig, np.array([0.04]))
    (row,) = commission(bench, {"it": TRIALS["fast stop"]})
    assert (row.cause, row.what, row.verdict) == (STOPPED, HIGHEST, FAILED)
    assert mentions(row.measured, "axes.north", "1 kN", "small_move.force")


def test_rest_beyond_motion_fails(make_bench: MakeBench) -> None:
    bench = make_bench(1).bench
    with bench.opened():
        pass
    for sent, failed in ((0.0, False), (5e-3, True), (-5e-3, True)):
        rows = by_place(bench, np.array([[sent]]), np.array([1e-2]), 2)
        assert [row.verdict == FAILED for row in rows] == [failed]


def test_slow_computer_keeps_session_in_lockstep(make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulation, "QUIET_S", 0.02)
    emulated = make_bench()
    operate = emulated.ask

    def pause(*arguments: Any, **options: bool) -> None:
        time.sleep(0.2)
        operate(*arguments, **options)

    monkeypatch.setattr(emulated, "ask", pause)
    rows = commission(emulated.bench, {"interlock": TRIALS["interlock"]})
    assert [row.verdict for row in rows] == [PASSED, PASSED]


def test_jump_before_answer_of_operator_is_detected(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The axis jumps when the interlock closes, and rests before the operator presses Enter."""
    emulated = make_bench(1)
    operate, position = emulated.ask, emulated.emulator.switches.position

    def ask(instruction: str, tick: Callable[[], object] | None = None, moves: bool = False) -> None:
        operate(instruction, tick, moves)
        for _ in range(1000 if tick and "close the interlock" in instruction else 0):
            tick()

    def leads(fault: Planted, command: Any, hydraulics: int) -> Any:
        return command + 1e-3 * (position.get("interlock") == "closed")

    monkeypatch.setattr(emulated, "ask", ask)
    monkeypatch.setattr(Planted, "leads", leads)
    rows = commission(emulated.bench, {"interlock": TRIALS["interlock"]})
    assert [row.what for row in failing(rows)] == ["closed"]


def test_early_action_of_operator_is_repeated(make_bench: MakeBench) -> None:
    emulated = make_bench(1)
    emulated.hasty = 1
    rows = commission(emulated.bench, {"interlock": TRIALS["interlock"]})
    assert failing(rows) == []
    assert [text for text in emulated.asked if mentions(text, "before", "moved")] == [emulated.asked[1]]


def test_wrong_sign_ends_commissioning(make_bench: MakeBench) -> None:
    emulated = make_bench(1, emulation.SIGN)
    rows = commission(emulated.bench)
    assert [row.cause for row in rows] == [SIGN]
    assert len(emulated.asked) == 1


@pytest.mark.parametrize("trial", ["signs", "closed"])
@pytest.mark.parametrize("quantity", ["displacement", "force"])
def test_sensor_that_measures_no_number_fails(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch, quantity: str, trial: str
) -> None:
    """The axis had passed, and a specimen at its load cell was not noticed."""
    bench = make_bench(2).bench

    def unplugged(*arguments: Any) -> Measurement:
        measured = awaited(*arguments)
        if measured.sample > 20:
            getattr(measured, quantity)[1] = np.nan
        return measured

    monkeypatch.setattr(commissioned_rig, "awaited", unplugged)
    rows = commission(bench, {trial: TRIALS[trial]})
    assert len(failing(rows)) == len(rows)
    assert mentions(rows[-1].measured, "south", "nan")


def test_rig_that_rests_without_commands_ends_commissioning(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a suspended process had continued, the rig went to its command far faster than announced."""

    def late(*arguments: Any) -> Measurement:
        measured = awaited(*arguments)
        return replace(measured, flags=measured.flags | FLAG_BRIDGED)

    monkeypatch.setattr(commissioned_rig, "awaited", late)
    monkeypatch.setattr(SessionPort, "active_command", property(lambda port: np.zeros(1)))
    (row,) = commission(make_bench(1).bench, {"limits": TRIALS["limits"]})
    assert (row.verdict, mentions(row.measured, "suspended")) == (FAILED, True)


@pytest.mark.parametrize(
    ("keys", "signed", "verdict", "parts"),
    [
        ("", True, NOT_TRIED, ("certificate", "class", "valid until")),
        (
            "certificate: F-7, accuracy: 'class 1, ISO 7500-1', expires: 2999-01-01",
            True,
            WITNESSED,
            ("F-7", "7500-1"),
        ),
        ("certificate: F-7, expires: 2026-01-01", True, WITNESSED, ("expired", "signed", "2026-01-01")),
        ("certificate: F-7, expires: 2026-01-01", False, FAILED, ("expired", "2026-01-01")),
    ],
)
def test_expired_calibration_needs_signature(
    make_bench: MakeBench, keys: str, signed: bool, verdict: str, parts: tuple[str, ...]
) -> None:
    emulated = make_bench(1)
    channel = f"force: {{{keys}, unit: kN" if keys else "force: {unit: kN"
    emulated.file.write_text(emulated.file.read_text().replace("force: {unit: kN", channel))
    person = Person(signed)
    bench = Bench(scenario_of(files.load_rig(emulated.file)), False, person)
    displacement, force = commission(bench, {"it": TRIALS["calibrations"]})
    assert (displacement.what, displacement.verdict) == ("north: displacement", NOT_TRIED)
    assert (force.what, force.verdict) == ("north: force", verdict)
    assert mentions(force.measured, *parts)
    assert bool(person.asked) is ("2026" in keys)


class Person:
    """Give the same answer to every question for a signature."""

    def __init__(self, answer: bool) -> None:
        self.answer, self.asked = answer, list[str]()

    def agrees(self, question: str) -> bool:
        self.asked.append(question)
        return self.answer


def test_unwitnessed_trials_count_as_not_tried(make_bench: MakeBench) -> None:
    rows = commission(Bench(make_bench(1).bench.scenario, False, Person(False)), {"it": TRIALS["witnessed"]})
    assert [(row.cause, row.verdict) for row in rows] == [
        (cause, NOT_TRIED) for cause in (EMERGENCY, END_STOPS, CONTROLLER)
    ]


def test_mounted_specimen_ends_commissioning(make_bench: MakeBench) -> None:
    """5 MN/m give 5 kN in the small move of 1 mm, where 1 kN is allowed."""
    rows = commission(make_bench(1, mounted=5e6).bench)
    assert [row.verdict for row in rows] == [FAILED]
    assert mentions(rows[0].measured, "specimen", "mounted")


def test_rig_file_without_bounds_of_moves_is_refused(tmp_path: Path) -> None:
    text = rig_text(25010, 2).replace("servo_rate: 1024.0\n", "")
    file = tmp_path / "bench.yaml"
    file.write_text(text.replace("    small_move: {displacement: 1.0e-3, velocity: 40.0e-3, force: 1.0e3}\n", ""))
    with pytest.raises(ConfigError) as excinfo:
        scenario_of(files.load_rig(file))
    keys = [problem.partition(":")[0] for problem in excinfo.value.problems]
    assert keys == ["servo_rate", "axes.north.small_move", "axes.south.small_move"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["bench_simulated"], ("port.type", "simulator")),
        (["bench_udp"], ("terminal", "operator")),
        (["bench_udp", "--out", f"{__file__}/a.yaml"], (f"{__file__}/a.yaml", "written")),
        (["nothing"], ("rig", "unknown", "nothing")),
    ],
)
def test_invalid_arguments_are_refused(refusal: RunCommand, arguments: list[str], parts: tuple[str, ...]) -> None:
    assert mentions(refusal("commission", *arguments), *parts)


def test_commissioning_is_written_again_on_request(
    make_bench: MakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, written = ["A", "B", "y", "y", "y", "y"], list[Path]()

    def write(result: object, out: Path) -> None:
        written.append(out)
        if len(written) == 1:
            raise RecordingError("the disk is full")

    monkeypatch.setattr(procedures, "_write", write)
    monkeypatch.setattr(procedures, "commission", partial(commission, trials={"it": TRIALS["signs"]}))
    emulated, dialogue = make_bench(1), Console(Answers(), lambda question: answers.pop(0), print)
    emulated.settle = lambda: None
    code = procedures._commission(emulated.bench, emulated, dialogue, tmp_path / "out.yaml")
    assert (code, written, answers) == (0, [tmp_path / "out.yaml"] * 2, [])


def test_check_warns_of_uncommissioned_rig(tmp_path: Path, output: RunCommand) -> None:
    file = tmp_path / "bench.yaml"
    file.write_text(rig_text(25010, 1, emulator=False))
    assert mentions(output("check", "chen_ricles_2010", "--rig", str(file)), "caution", "commissioned")


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("interlock", ("SWITCH", "POSITION")),
        ("door open", ("unknown", "switch", "door")),
        ("cable open", ("unknown", "open", "in", "out")),
    ],
)
def test_invalid_switch_command_is_refused(command: str, parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        Switches().turn(command)


def test_switches_turn_at_given_sample() -> None:
    switches = Switches()
    assert switches.at(20) == {}
    switches.turn("cable out @+20")
    switches.turn("interlock open @ 30")
    switches.turn("pressure low")
    assert switches.at(29) == {"pressure": "low"}
    assert switches.at(30) == {"pressure": "low", "interlock": "open"}
    assert not switches.out()
    assert switches.at(40) == {"pressure": "low", "interlock": "open", "cable": "out"}
    assert switches.out()


def test_new_session_reports_earlier_switches(make_bench: MakeBench) -> None:
    emulated = make_bench(1)
    for command in ("interlock closed", "pressure high"):
        emulated.emulator.switches.turn(command)
    with emulated.bench.opened():
        pass  # the emulator prepared this session before the switches were turned
    with emulated.bench.opened() as rig:
        assert rig.rows[0].hydraulics == HYDRAULICS_HIGH


def test_swapped_axes_need_two_axes() -> None:
    with pytest.raises(ConfigError, match=naming("rig", "two axes")):
        Planted([emulation.SWAPPED], 1)


def test_warning_is_shown_after_clear(capsys: pytest.CaptureFixture[str]) -> None:
    lines = iter(["", "CLEAR"])
    operator = AtTerminal(Console(Answers(), lambda _: next(lines), print), "EMULATED", 0.0, "horn is on for 3 s")
    operator.ask("all axes move together: north 1 mm at 2 mm/s", moves=True)
    refusal, warning = capsys.readouterr().out.splitlines()
    assert mentions(refusal, "CLEAR", "nothing", "moved")
    assert mentions(warning, "horn", "3 s")
