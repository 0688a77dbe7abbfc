# SPDX-License-Identifier: Apache-2.0
"""Tests of simulated days in the laboratory: every sample keeps the invariants of safety, no record is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from day_operator import HAPPENS, SECOND, Draws, Sitting
from day_rig import AXIS, Column, scenario_of
from loop_parts import Hours

from rths_nodes.analysis.identification.experiments import Cycles
from rths_nodes.analysis.report import document
from rths_nodes.app.commands import identify
from rths_nodes.app.commands import procedures as command
from rths_nodes.app.procedure import procedure_runner
from rths_nodes.core.validation import from_data
from rths_nodes.loop.procedure_record import RUNGS, ProcedureRecord, RungRecord
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.handover import OperatorRequests
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.session import RigSession
from rths_nodes.recording import bag, plain, procedure
from rths_nodes.recording.reading import read_run

# A day in the laboratory in simulated time: characterisation, tests of rising level, pauses, mistakes, reports.
#
# The rig is a simulator, all other parts are those of ``rths test`` and ``rths identify``. Every possible motion
# is simulated tick by tick: each act, 0.5 s after it, and the time around a fault in a pause. A rig at rest in a
# pause has one tick per second; a rung that is held in slow time has 40 ticks, and the clock then advances by a
# minute. A seed draws all events.

MORNING = datetime.fromisoformat("2030-06-03T08:00:00+02:00")
CYCLES = from_data(Cycles, {"amplitude": 2e-3, "frequency": 0.5})
"""Cycles below the level of damage; and slow, because the lag of the velocity, half a sample, adds
c omega^2 dt / 2, here 0.3 %, to the stiffness."""
TEST, CYCLIC = ("a", "e", "g"), ("g",)
ERRS = 0.5
"""Share of acts that are preceded by a mistake, if one fits."""
MOST_SITTINGS = 10
"""Largest number of attempts at a test."""


# -- mistakes ---------------------------------------------------------------------------------------------------


def _armed_wrongly(sitting: Sitting, **wrong: str) -> None:
    _refused(sitting, "arm", **(sitting.hashes() | wrong))


def _refused(sitting: Sitting, act: str, **arguments: object) -> None:
    """Check that a refusal changes only the record."""
    port, drive = sitting.port, sitting.session.drive

    def values() -> tuple[object, ...]:
        return sitting.session.state, drive.command.tobytes(), port.ticks, sitting.session.clearance.barred()

    before = values()
    refused = sitting.ask(act, **arguments)
    assert isinstance(refused, ValueError), f"{act} {arguments} in {sitting.state}: {refused!r}"
    assert before == values()
    last = sitting.record.acts[-1]
    assert (last.act, last.refused) == (act, str(refused))


def _coffee(sitting: Sitting) -> None:
    """Wait longer than a rung stays armed."""
    sitting.trouble.append("coffee")
    sitting.moves_on(61, SECOND)
    sitting.session.possible()
    assert sitting.state == "HELD", sitting.state
    sitting.settles()


MISTAKES: dict[str, tuple[State, Callable[[Sitting], object]]] = {
    "another scenario": (State.POSITIONED, lambda on: _armed_wrongly(on, scenario_hash="0123456789abcdef")),
    "stale offsets": (State.POSITIONED, lambda on: _armed_wrongly(on, offsets_hash=on.stale)),
    "a rung that is not planned": (State.POSITIONED, lambda on: _armed_wrongly(on, rung="d")),
    "another rung's hash": (
        State.POSITIONED,
        lambda on: _armed_wrongly(on, rung="e" if on.runner.next_rung == "g" else "g"),
    ),
    "runs what is not armed": (State.POSITIONED, lambda on: _refused(on, "run")),
    "unloads at the start": (State.POSITIONED, lambda on: _refused(on, "unload")),
    "no second person": (State.POSITIONED, lambda on: _armed_wrongly(on, second=" ")),
    "the operator twice": (State.POSITIONED, lambda on: _armed_wrongly(on, second=on.record.operator.upper())),
    "coffee while armed": (State.ARMED, _coffee),
    "ends while armed": (State.ARMED, lambda on: _refused(on, "finish")),
    "arms too early": (State.REFERENCED, lambda on: _armed_wrongly(on)),
    "goes unchecked": (State.CONNECTED, lambda on: _refused(on, "position")),
    "connects twice": (State.CONNECTED, lambda on: _refused(on, "connect")),
    "offsets of somebody else": (
        State.CONNECTED,
        lambda on: _refused(on, "confirm_offsets", hash=on.stale, unloaded=True),
    ),
    "arms from where it is held": (State.HELD, lambda on: _armed_wrongly(on)),
    "resumes nothing": (State.HELD, lambda on: _refused(on, "resume")),
    "checks too late": (State.HELD, lambda on: _refused(on, "check")),
}
"""State and action of each mistake of an operator."""
OF_SECOND = ("no second person", "the operator twice")
"""Mistakes that are possible with rung g only."""


# -- the day ----------------------------------------------------------------------------------------------------


class Day:
    """A day of ``hours``, recorded in a ``folder``; ``levels`` are shares of the full motion.

    ``seen`` counts the events.
    """

    def __init__(self, seed: int, folder: Path, levels: tuple[float, ...], hours: float, duration: float) -> None:
        self.seed, self.folder, self.levels, self.duration = seed, folder, levels, duration
        self.tests = folder / "tests"
        self.clock, self.chance = Hours(), Draws(seed)
        self.begin = self.clock.now = round(MORNING.timestamp()) * SECOND
        self.end = self.begin + round(3600 * hours) * SECOND
        self.column, self.known, self.largest = Column(), None, 0.0
        self.stale = "0123456789abcdef"
        self.seen: Counter[str] = Counter()
        self.sittings: list[Sitting] = []
        self.loads: list[tuple[str, str, str]] = []
        """Test, rung and time of each load of the specimen."""

    def now(self) -> str:
        """Time of the day as text."""
        return datetime.fromtimestamp(self.clock.now / SECOND).astimezone().isoformat(timespec="seconds")

    def play(self) -> None:
        """Play the whole day; raise AssertionError at the first violation."""
        parts = len(self.levels) + 2
        share = (self.end - self.begin) // parts
        self.characterises("morning", self.begin + share)
        for number, level in enumerate(self.levels, 1):
            self.tests_at(f"test_{number}", level, TEST, self.begin + (number + 1) * share)
        self.characterises("evening", self.end)
        assert self.clock.now >= self.end
        assert self.largest > 2.0 * Column().level  # it is damaged

    def characterises(self, name: str, until: int) -> None:
        """Cycles below the damage level identify the stiffness left by the largest excursion of the day."""
        sitting = self.tests_at(name, 1.0, CYCLIC, until)
        rung = [rung for rung in sitting.record.rungs if rung.outcome == "finished"][-1]
        axes = identify.read_cyclic([str(sitting.runner.folder / rung.recording)])
        stiffness = axes[AXIS][0].storage_stiffness
        expected = Column().worn(self.largest).stiffness
        assert abs(stiffness / expected - 1.0) < 0.01, (name, stiffness, expected, self.largest)

    def _scenario(self, level: float, planned: tuple[str, ...]) -> Scenario:
        scenario = scenario_of(self.folder, level, self.duration, self.known, self.seed)
        return identify.cyclic_tests(scenario, [AXIS], [CYCLES])[0][2] if planned is CYCLIC else scenario

    def tests_at(self, name: str, level: float, planned: tuple[str, ...], until: int) -> Sitting:
        """Repeat a test until its last rung has finished without a fault."""
        for number in range(1, MOST_SITTINGS + 1):
            folder = self.tests / (name if number == 1 else f"{name}_{number}")
            sitting = Sitting(
                self._scenario(level, planned), planned, folder, self.column, self.clock, self.chance
            )
            sitting.stale = self.stale
            history = command._history(self.tests, sitting.record.specimen.id)
            sitting.record.specimen.history = history
            assert [(row["test"], row["rung"], row["date"]) for row in history] == self.loads
            sitting.conduct(until, self._errs)
            self._learns(sitting)
            self._reports(sitting)
            self._check_record(sitting)
            self.sittings.append(sitting)
            self.seen.update(sitting.done)
            if sitting.satisfied:
                return sitting
        raise AssertionError(f"{name}: was begun {MOST_SITTINGS} times")

    def _errs(self, sitting: Sitting) -> None:
        """Make a mistake of the operator, now and then."""
        if self.chance.random() > ERRS or not sitting.next():
            return
        full = sitting.runner.next_rung == "g"

        def fits(name: str) -> bool:
            return MISTAKES[name][0] is sitting.session.state and (full or name not in OF_SECOND)

        if sitting.runner.next_rung and (name := self.chance.deal("mistakes", tuple(MISTAKES), fits)):
            sitting.done.append(name)
            MISTAKES[name][1](sitting)
            sitting.judge()

    def _learns(self, sitting: Sitting) -> None:
        """Degrade the specimen, and let the operator write its identified stiffness into the rig file."""
        self.largest = max(self.largest, sitting.watch.largest)
        self.column = Column().worn(self.largest)
        if sitting.session.offsets is not None:
            self.stale = sitting.session.offsets.hash
        checks = sitting.record.checks.get(AXIS)
        if checks is not None and checks.stiffness and 0.3 < checks.stiffness / Column().stiffness < 1.3:
            self.known = checks.stiffness

    # -- files --------------------------------------------------------------------------------------------

    def _reports(self, sitting: Sitting) -> None:
        folder, record = sitting.runner.folder, sitting.record
        path = procedure.last_moving(folder)
        if path is None:
            document.write_record(record, folder / command.REPORT)
        else:
            document.write_report(read_run(path), folder / command.REPORT, False, procedure.of_recording(path))
        page = (folder / command.REPORT).read_text()
        assert record.test_id in page
        assert page.rstrip().endswith("</html>")

    def _check_record(self, sitting: Sitting) -> None:
        """Check that the files contain each act, trip, recording and load."""
        record, folder = sitting.record, sitting.runner.folder
        text = plain.text_of(record, procedure.VERSION, procedure.HEAD)
        assert (folder / procedure.FILE).read_bytes() == text
        assert len(record.acts) == sitting.asked
        assert not any(act.under_way for act in record.acts)
        assert record.outcome
        assert record.ended
        assert record.outcome == "finished" or record.reason, record.test_id
        moved = [rung for rung in record.rungs if RUNGS[rung.name].moves]
        for rung in moved:
            situation = f"{record.test_id}, rung {rung.name}, {rung.outcome}: {rung.reason}"
            assert rung.outcome in ("finished", "held", "tripped", "failed"), situation
            assert rung.outcome == "finished" or rung.reason, situation
            self._check_recording(sitting, rung, situation)
        rows = record.specimen.history[len(self.loads) :]
        assert [(row["rung"], row["date"]) for row in rows] == [(rung.name, rung.started) for rung in moved]
        for row, rung in zip(rows, moved, strict=True):
            assert row["displacement"].keys() == {AXIS}, f"{record.test_id}, rung {rung.name}: {row}"
            assert row["displacement"][AXIS] == rung.peaks[AXIS]["displacement"]
        self.loads += [(record.test_id, rung.name, rung.started) for rung in moved]

    def _check_recording(self, sitting: Sitting, rung: RungRecord, situation: str) -> None:
        """Check that the recording equals the readings of the sensors, sample by sample and bit by bit."""
        folder = sitting.runner.folder / rung.recording
        run = read_run(folder)
        if run.notes:
            assert rung.outcome == "failed", situation
            bag.recover(folder)
            run = read_run(folder)
            assert len(run.time) > 1, situation
        assert len(run.time) == rung.samples + 1, situation
        tares, rows = sitting.session.offsets.tares(), np.array(sitting.logs[rung.recording])
        shown = np.column_stack([rows[:, 0] - tares.displacement[0], rows[:, 1] - tares.force[0]])
        recorded = np.column_stack([run.displacement[:, 0], run.force[:, 0]])
        if not any(remark.startswith("held after sample") for remark in rung.remarks):
            assert recorded.tobytes() == shown[: len(recorded)].tobytes(), situation
        readings = iter(shown)
        for sample, row in enumerate(recorded):  # while a rung is held the test has no samples
            if not any(row.tobytes() == reading.tobytes() for reading in readings):
                raise AssertionError(f"{situation}: sample {sample} = {row.tolist()} was not measured")


@pytest.fixture
def day(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Day]:
    """Makes a day whose clock is used by sessions and records, and whose specimen counts as real."""

    def make(seed: int, levels: tuple[float, ...], hours: float, duration: float) -> Day:
        day = Day(seed, tmp_path, levels, hours, duration)
        monkeypatch.setattr(procedure_runner, "RigSession", partial(RigSession, clock=day.clock))
        monkeypatch.setattr(procedure_runner, "now", day.now)
        return day

    monkeypatch.setattr(ProcedureRecord, "simulation", "")
    # a held rung in lockstep waits for its operator, who runs in this thread
    monkeypatch.setattr(OperatorRequests, "wait", lambda self, seconds=0.0: None)
    return make


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_day_of_eight_hours(day: Callable[..., Day], seed: int) -> None:
    simulated = day(seed, (0.2, 0.4, 0.6, 0.8, 1.0), 8.0, 10.0)
    simulated.play()
    events, mistakes = (names & simulated.seen.keys() for names in ({*HAPPENS}, {*MISTAKES}))
    assert min(len(events), len(mistakes)) > 10, simulated.seen
    assert simulated.seen["trip"] > 5


def test_hour_of_one_test(day: Callable[..., Day]) -> None:
    """After the test the rig is held until the hour has elapsed."""
    simulated = day(8, (), 1.0, 1.0)
    simulated.tests_at("test_1", 0.8, TEST, simulated.end)
    assert simulated.clock.now >= simulated.end
    assert simulated.seen["trip"]
