# SPDX-License-Identifier: Apache-2.0
"""A day in the laboratory by a clock of its own: characterise, tests of rising level, pauses, mistakes, reports.

The rig is a simulator, everything else is what ``rths test`` and ``rths identify`` use. Whatever moves, or may
move, is played tick by tick: every act, 0.5 s behind it, and all around what goes wrong in a pause. A rig that
rests in a pause is looked at once a second; of a rung that is held in slow time 40 ticks are played, and its clock
goes on by a minute. Seeds draw everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
from day_operator import SECOND, Draws, Sitting
from day_rig import AXIS, Column, scenario_of
from hours import Hours

from rths_nodes.analysis.identification.experiments import Cycles
from rths_nodes.app.commands import characterise, report
from rths_nodes.app.commands import test as command
from rths_nodes.core.validation import from_data
from rths_nodes.loop.procedure_record import RUNGS, RungRecord
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording import bag, plain, procedure
from rths_nodes.recording.reading import read_run

MORNING = datetime.fromisoformat("2030-06-03T08:00:00+02:00")
CYCLES = from_data(Cycles, {"amplitude": 2e-3, "frequency": 0.5})
"""Below the level at which the column wears; and slow: the half sample by which its velocity is late adds
c omega^2 dt / 2, here 0.3 %, to its stiffness."""
TEST, CYCLIC = ("a", "e", "g"), ("g",)
ERRS = 0.5
"""Share of acts before which the operator errs, where a mistake is left that fits."""
MOST_SITTINGS = 10
"""A test is begun anew at most so often."""


# -- mistakes ---------------------------------------------------------------------------------------------------


def _armed_wrongly(sitting: Sitting, **wrong: str) -> None:
    _refused(sitting, "arm", **(sitting.hashes() | wrong))


def _refused(sitting: Sitting, act: str, **arguments: object) -> None:
    """Nothing but the record is another one behind a refusal."""
    port, drive = sitting.port, sitting.session.drive
    before = sitting.session.state, drive.command.tobytes(), port.ticks, sitting.session.clearance.barred()
    refused = sitting.ask(act, **arguments)
    assert isinstance(refused, ValueError), f"{act} {arguments} in {sitting.state}: {refused!r}"
    assert before == (
        sitting.session.state,
        drive.command.tobytes(),
        port.ticks,
        sitting.session.clearance.barred(),
    )
    last = sitting.record.acts[-1]
    assert (last.act, last.refused) == (act, str(refused))


def _coffee(sitting: Sitting) -> None:
    """Somebody looks elsewhere for longer than anything stays armed."""
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
"""What an operator does wrong, and where."""
OF_SECOND = ("no second person", "the operator twice")
"""Mistakes with rung g alone."""


# -- the day ----------------------------------------------------------------------------------------------------


class Day:
    """A day of so many ``hours`` with that ``seed``, in a ``folder``; ``levels`` are shares of the full motion.

    ``seen`` counts what has happened.
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
        """Test, rung and time of what has loaded the specimen."""

    def now(self) -> str:
        """The time of the day as a text."""
        return datetime.fromtimestamp(self.clock.now / SECOND).astimezone().isoformat(timespec="seconds")

    def play(self) -> None:
        """All of it; raises AssertionError where something is wrong at any time."""
        parts = len(self.levels) + 2
        share = (self.end - self.begin) // parts
        self.characterises("morning", self.begin + share)
        for number, level in enumerate(self.levels, 1):
            self.tests_at(f"test_{number}", level, TEST, self.begin + (number + 1) * share)
        self.characterises("evening", self.end)
        assert self.clock.now >= self.end
        assert self.largest > 2.0 * Column().level  # it has worn

    def characterises(self, name: str, until: int) -> None:
        """Cycles below the wear show the stiffness that the largest excursion of the day has left."""
        sitting = self.tests_at(name, 1.0, CYCLIC, until)
        rung = [each for each in sitting.record.rungs if each.outcome == "finished"][-1]
        found = characterise.read([str(sitting.runner.folder / rung.recording)])
        stiffness = found[AXIS][0].storage_stiffness
        expected = Column().worn(self.largest).stiffness
        assert abs(stiffness / expected - 1.0) < 0.01, (name, stiffness, expected, self.largest)

    def _scenario(self, level: float, planned: tuple[str, ...]) -> Scenario:
        scenario = scenario_of(self.folder, level, self.duration, self.known, self.seed)
        return characterise.plan(scenario, [AXIS], [CYCLES])[0][2] if planned is CYCLIC else scenario

    def tests_at(self, name: str, level: float, planned: tuple[str, ...], until: int) -> Sitting:
        """A test, begun anew until its last rung has finished, and nobody doubts it."""
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
            self._nothing_is_lost(sitting)
            self.sittings.append(sitting)
            self.seen.update(sitting.done)
            if sitting.satisfied:
                return sitting
        raise AssertionError(f"{name}: was begun {MOST_SITTINGS} times")

    def _errs(self, sitting: Sitting) -> None:
        """The operator makes a mistake, now and then."""
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
        """The specimen is as it was left, and the operator writes into the rig file which stiffness was found."""
        self.largest = max(self.largest, sitting.watch.largest)
        self.column = Column().worn(self.largest)
        if sitting.session.offsets is not None:
            self.stale = sitting.session.offsets.hash
        checks = sitting.record.checks.get(AXIS)
        if checks is not None and checks.stiffness and 0.3 < checks.stiffness / Column().stiffness < 1.3:
            self.known = checks.stiffness

    # -- what is left -------------------------------------------------------------------------------------

    def _reports(self, sitting: Sitting) -> None:
        folder, record = sitting.runner.folder, sitting.record
        path = procedure.last_moving(folder)
        if path is None:
            report.write_record(record, folder / command.REPORT)
        else:
            report.write(read_run(path), folder / command.REPORT, False, procedure.of_recording(path))
        page = (folder / command.REPORT).read_text()
        assert record.test_id in page
        assert page.rstrip().endswith("</html>")

    def _nothing_is_lost(self, sitting: Sitting) -> None:
        """Each act, trip, recording and load stands in what was written, as it was."""
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
            told = f"{record.test_id}, rung {rung.name}, {rung.outcome}: {rung.reason}"
            assert rung.outcome in ("finished", "held", "tripped", "failed"), told
            assert rung.outcome == "finished" or rung.reason, told
            self._recorded(sitting, rung, told)
        rows = record.specimen.history[len(self.loads) :]
        assert [(row["rung"], row["date"]) for row in rows] == [(rung.name, rung.started) for rung in moved]
        for row, rung in zip(rows, moved, strict=True):
            assert row["displacement"].keys() == {AXIS}, f"{record.test_id}, rung {rung.name}: {row}"
            assert row["displacement"][AXIS] == rung.peaks[AXIS]["displacement"]
        self.loads += [(record.test_id, rung.name, rung.started) for rung in moved]

    def _recorded(self, sitting: Sitting, rung: RungRecord, told: str) -> None:
        """The recording has what the sensors have shown, sample by sample, to the bit."""
        place = sitting.runner.folder / rung.recording
        run = read_run(place)
        if run.notes:
            assert rung.outcome == "failed", told
            bag.recover(place)
            run = read_run(place)
            assert len(run.time) > 1, told
        assert len(run.time) == rung.samples + 1, told
        tares, rows = sitting.session.offsets.tares(), np.array(sitting.logs[rung.recording])
        shown = np.column_stack([rows[:, 0] - tares.displacement[0], rows[:, 1] - tares.force[0]])
        found = np.column_stack([run.displacement[:, 0], run.force[:, 0]])
        if not any(words.startswith("held after sample") for words in rung.remarks):
            assert found.tobytes() == shown[: len(found)].tobytes(), told
        left = iter(shown)
        for sample, row in enumerate(found):  # while a rung is held the test has no samples
            if not any(row.tobytes() == each.tobytes() for each in left):
                raise AssertionError(f"{told}: sample {sample} = {row.tolist()} was not measured")
