# SPDX-License-Identifier: Apache-2.0
"""A rig is commissioned against the emulator: every planted fault is found, none is invented on a healthy one.

All is judged in samples of the rig's own counter, so that no machine is too slow for it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from emulated_bench import EmulatedBench, rig_text
from messages import mentions, naming

from rths_nodes.app.cli import main
from rths_nodes.app.commands.commission import AtTerminal
from rths_nodes.app.emulation import emulator, planted
from rths_nodes.app.emulation.emulator import Switches
from rths_nodes.app.emulation.planted import Planted
from rths_nodes.app.procedure.answers import Answers
from rths_nodes.app.procedure.console import Console
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import HYDRAULICS_HIGH
from rths_nodes.laboratory.ports.session import SessionPort
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
from rths_nodes.procedure.commissioning.rig import Bench, Dash
from rths_nodes.procedure.commissioning.stops import by_place
from rths_nodes.procedure.commissioning.trials import TRIALS, commission, scenario_of

if not any(map(shutil.which, ("cc", "gcc", "clang"))):
    pytest.skip("no C compiler here", allow_module_level=True)

HIGHEST, SESSION = "from the highest speed", "session of the receiver"
FAULTS = {
    planted.BRAKING: ("closed", 1, CLOSED, "rests after 14.6 ms"),
    planted.HARD: ("closed", 1, CLOSED, "the axis brakes in 3 samples instead of the stated 8"),
    planted.STROKE: ("limits", 1, STROKE, "20.4 mm"),
    planted.VELOCITY: ("limits", 1, VELOCITY, "0.42 m/s"),
    planted.WATCHDOG: ("killed", 1, KILLED, "the session does not end"),
    planted.ENDLESS: ("killed", 1, KILLED, "the axis does not brake"),
    planted.BRIDGE: ("killed", 2, KILLED, "brakes after 40 ms"),
    planted.SWAPPED: ("signs", 2, SIGN, "south moved instead"),
    planted.SIGN: ("signs", 1, SIGN, "north -1 mm: the axis moved in the wrong direction"),
    planted.INTERLOCK: ("interlock", 1, INTERLOCK, "nothing was detected within 1 s"),
    planted.JUMP: ("pressure", 1, PRESSURE, "north moves "),
}
"""Planted fault -> part that finds it, axes of the rig, cause of the row, what it says."""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[..., EmulatedBench]]:
    """Makes an emulated rig with its person."""
    made: list[EmulatedBench] = []

    def make(n_axes: int = 1, *faults: str, mounted: float = 0.0) -> EmulatedBench:
        made.append(EmulatedBench(tmp_path, n_axes, faults, mounted))
        return made[-1]

    yield make
    for each in made:
        each.close()


def failing(rows: list[CommissioningRow]) -> list[CommissioningRow]:
    return [row for row in rows if row.verdict == FAILED]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("n_axes", [1, 2])
def test_a_healthy_rig_passes_every_row(bench: Callable[..., EmulatedBench], n_axes: int) -> None:
    far = bench(n_axes)
    rows = commission(far.bench)
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
    assert len(far.bench.build) == 16
    assert len(far.asked) == 18 + (n_axes - 1)
    operator = [row for row in rows if row.cause == STOPPED]
    assert [row.what for row in operator] == ["checking", "positioning", "armed", HIGHEST]
    highest = next(row for row in rows if row.cause == CLOSED and HIGHEST in row.what)
    assert operator[-1].speed == highest.speed
    assert [words for words in far.cleared if not mentions(words, "north", "mm", "mm/s")] == far.cleared[
        2 : n_axes + 1
    ]


def test_the_way_back_before_a_process_is_killed_is_cleared(bench: Callable[..., EmulatedBench]) -> None:
    far = bench(1)
    far.bench.home = np.array([2e-3])
    rows = commission(far.bench, {"killed": TRIALS["killed"]})
    assert failing(rows) == []
    assert [words for words in far.cleared if mentions(words, "first position", "north", "2 mm at")]


@pytest.mark.parametrize(
    "fault",
    FAULTS,
)
def test_a_planted_fault_is_found(bench: Callable[..., EmulatedBench], fault: str) -> None:
    part, n_axes, cause, words = FAULTS[fault]
    rows = failing(commission(bench(n_axes, fault).bench, {part: TRIALS[part]}))
    assert {row.cause for row in rows} == {cause}
    assert words in rows[0].measured


@pytest.mark.parametrize("fault", [planted.WATCHDOG, planted.ENDLESS, planted.BRIDGE])
def test_a_pulled_cable_finds_what_the_receiver_does_without_commands(
    bench: Callable[..., EmulatedBench], fault: str
) -> None:
    rows = commission(bench(1, fault).bench, {"cable": TRIALS["cable"]})
    assert [(row.cause, row.what) for row in failing(rows)] == [(CABLE, "north")]


def test_every_planted_fault_has_its_row() -> None:
    assert FAULTS.keys() == planted.KINDS.keys()


@pytest.mark.parametrize("part", ["closed", "interlock", "pressure"])
def test_a_healthy_rig_passes_what_finds_the_faults(bench: Callable[..., EmulatedBench], part: str) -> None:
    rows = commission(bench(2).bench, {part: TRIALS[part]})
    assert rows
    assert failing(rows) == []


@pytest.mark.parametrize("part", ["closed", "cable"])
def test_without_a_listener_a_new_session_shows_where_the_rig_rests(
    bench: Callable[..., EmulatedBench], monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setattr(SessionPort, "ear", property(lambda port: None, lambda port, ear: None), raising=False)
    rows = commission(bench(1).bench, {part: TRIALS[part]})
    assert failing(rows) == []
    assert mentions(next(row for row in rows if row.what == "north").resolution, "times", "not measured")


def test_a_fast_motion_of_an_axis_that_is_not_free_ends(bench: Callable[..., EmulatedBench]) -> None:
    """0.5 MN/m: 0.5 kN in the small move, and 1 kN is allowed; the fast motion goes by some millimetres."""
    far = bench(1, mounted=5e5).bench
    with far.opened() as rig:
        far.fast = Dash.fastest(far.scenario, rig.stated(), np.array([0.04]))
    (row,) = commission(far, {"it": TRIALS["fast stop"]})
    assert (row.cause, row.what, row.verdict) == (STOPPED, HIGHEST, FAILED)
    assert mentions(row.measured, "axes.north", "1 kN", "small_move.force")


def test_a_rig_that_rests_beyond_its_motion_fails(bench: Callable[..., EmulatedBench]) -> None:
    far = bench(1).bench
    with far.opened() as rig:
        stated = rig.stated()
    for sent, failed in ((0.0, False), (5e-3, True), (-5e-3, True)):
        rows = by_place(far, CLOSED, np.array([[sent]]), np.array([1e-2]), stated, 2)
        assert [row.verdict == FAILED for row in rows] == [failed]


def test_in_lockstep_a_slow_test_computer_keeps_its_session(
    bench: Callable[..., EmulatedBench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulator, "QUIET_S", 0.02)
    far = bench()
    operate = far.meanwhile

    def pause(words: str, tick: Callable[[], object], moves: bool = False) -> None:
        time.sleep(0.2)
        operate(words, tick, moves)

    monkeypatch.setattr(far, "meanwhile", pause)
    rows = commission(far.bench, {"interlock": TRIALS["interlock"]})
    assert [row.verdict for row in rows] == [PASSED, PASSED]


def test_who_acts_before_the_axes_move_does_it_once_more(bench: Callable[..., EmulatedBench]) -> None:
    far = bench(1)
    far.hasty = 1
    rows = commission(far.bench, {"interlock": TRIALS["interlock"]})
    assert failing(rows) == []
    assert [words for words in far.asked if mentions(words, "before", "moved")] == [far.asked[1]]


def test_after_a_wrong_sign_nothing_else_is_moved(bench: Callable[..., EmulatedBench]) -> None:
    far = bench(1, planted.SIGN)
    rows = commission(far.bench)
    assert [row.cause for row in rows] == [SIGN]
    assert len(far.asked) == 1


@pytest.mark.parametrize(
    ("keys", "seen", "verdict", "words"),
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
def test_a_calibration_is_listed_and_an_expired_one_signed_for(
    bench: Callable[..., EmulatedBench], keys: str, seen: bool, verdict: str, words: tuple[str, ...]
) -> None:
    far = bench(1)
    far.file.write_text(
        far.file.read_text().replace(
            "force: {unit: kN", f"force: {{{keys}, unit: kN" if keys else "force: {unit: kN"
        )
    )
    person = Person(seen)
    rows = commission(Bench(scenario_of(files.load_rig(far.file)), False, person), {"it": TRIALS["calibrations"]})
    assert [(row.what, row.verdict) for row in rows] == [
        ("north: displacement", NOT_TRIED),
        ("north: force", verdict),
    ]
    assert mentions(rows[1].measured, *words)
    assert bool(person.asked) is ("2026" in keys)


class Person:
    """Answers each question for a statement the same way."""

    def __init__(self, seen: bool) -> None:
        self.seen, self.asked = seen, list[str]()

    def witness(self, words: str) -> bool:
        self.asked.append(words)
        return self.seen


def test_what_is_not_witnessed_is_not_tried(bench: Callable[..., EmulatedBench]) -> None:
    rows = commission(Bench(bench(1).bench.scenario, False, Person(False)), {"it": TRIALS["witnessed"]})
    assert [(row.cause, row.verdict) for row in rows] == [
        (cause, NOT_TRIED) for cause in (EMERGENCY, END_STOPS, CONTROLLER)
    ]


def test_a_specimen_ends_it(bench: Callable[..., EmulatedBench]) -> None:
    """5 MN/m: the small move of 1 mm would be 5 kN, and 1 kN is allowed."""
    rows = commission(bench(1, mounted=5e6).bench)
    assert [row.verdict for row in rows] == [FAILED]
    assert mentions(rows[0].measured, "specimen", "mounted")


def test_a_rig_file_without_what_bounds_the_moves_is_refused(tmp_path: Path) -> None:
    text = rig_text(25010, 2).replace("servo_rate: 1024.0\n", "")
    file = tmp_path / "bench.yaml"
    file.write_text(text.replace("    small_move: {displacement: 1.0e-3, velocity: 40.0e-3, force: 1.0e3}\n", ""))
    with pytest.raises(ConfigError) as refused:
        scenario_of(files.load_rig(file))
    assert [problem.partition(":")[0] for problem in refused.value.problems] == [
        "servo_rate",
        "axes.north.small_move",
        "axes.south.small_move",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bench_simulated"], ("port.type", "simulator")),
        (["bench_udp"], ("terminal", "operator")),
        (["bench_udp", "--out", f"{__file__}/a.yaml"], (f"{__file__}/a.yaml", "written")),
        (["nothing"], ("rig", "unknown", "nothing")),
    ],
)
def test_what_cannot_be_commissioned_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: tuple[str, ...]
) -> None:
    assert main(["commission", *arguments]) == 2
    assert mentions(capsys.readouterr().err, *words)


def test_a_real_rig_that_is_not_commissioned_is_told_by_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bench.yaml"
    file.write_text(rig_text(25010, 1, emulator=False))
    assert main(["check", "chen_ricles_2010", "--rig", str(file)]) == 0
    assert mentions(capsys.readouterr().out, "caution", "commissioned")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("interlock", ("SWITCH", "POSITION")),
        ("door open", ("unknown", "switch", "door")),
        ("cable open", ("unknown", "open", "in", "out")),
    ],
)
def test_a_switch_that_is_none_is_refused(words: str, told: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*told)):
        Switches().turn(words)


def test_switches_are_turned_at_their_sample() -> None:
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


def test_a_new_session_reports_the_switches_that_were_turned_before(bench: Callable[..., EmulatedBench]) -> None:
    far = bench(1)
    for line in ("interlock closed", "pressure high"):
        far.emulator.switches.turn(line)
    with far.bench.opened():
        pass  # the emulator has prepared this session before they were turned
    with far.bench.opened() as rig:
        assert rig.rows[0].hydraulics == HYDRAULICS_HIGH


def test_swapped_axes_need_two() -> None:
    with pytest.raises(ConfigError, match=naming("rig", "two axes")):
        Planted([planted.SWAPPED], 1)


def test_the_warning_is_shown_after_clear(capsys: pytest.CaptureFixture[str]) -> None:
    typed = iter(["", "CLEAR"])
    lead = AtTerminal(Console(Answers(), lambda _: next(typed), print), "EMULATED", 0.0, "horn is on for 3 s")
    lead.ready("all axes move together: north 1 mm at 2 mm/s", moves=True)
    refused, warned = capsys.readouterr().out.splitlines()
    assert mentions(refused, "CLEAR", "nothing", "moved")
    assert mentions(warned, "horn", "3 s")
