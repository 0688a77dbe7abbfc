# SPDX-License-Identifier: Apache-2.0
"""Runs of a test under a mandate: what the last one has told, the next one, and its rehearsal.

The session says whether a run may be let go; here is computed what it would be.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import asdict
from pathlib import Path

import numpy as np

from rths_nodes.analysis.iteration import corrections
from rths_nodes.analysis.iteration.convergence import HISTORY, TRACKING, Row
from rths_nodes.analysis.iteration.corrections import Corrections, Rehearsal, Settings
from rths_nodes.analysis.units import plain
from rths_nodes.app.procedure import comparison
from rths_nodes.app.procedure.ladder import Ladder
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario import inputs
from rths_nodes.loop.scenario.rehearsal import elastic_limits
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.acts import ActRefused
from rths_nodes.procedure.mandate import RUNG, FirstRun, Planned, Terms, Told, without_limit
from rths_nodes.procedure.records import REHEARSAL, ProcedureRecord, RungRecord
from rths_nodes.procedure.session import RigSession
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.records import RecordingError
from rths_nodes.recording.run import Run

HISTORIES = "iteration"
"""Folder of the histories that the runs play, within that of the test."""


class UnderMandate:
    """Iteration of the test of ``ladder`` on the rig of ``session``, in its ``folder``, written into ``record``.

    What the first run has told is computed where it is asked for first.
    """

    def __init__(self, ladder: Ladder, session: RigSession, record: ProcedureRecord, folder: Path) -> None:
        self._ladder, self._session, self._record, self._folder = ladder, session, record, folder
        self._of: RungRecord | None = None
        self._work: Corrections | None = None
        self._terms: Terms | None = None
        self._rehearsal: Rehearsal | None = None
        self._unfit: Exception | None = None
        self._one = threading.Lock()
        self._corrected = 0
        """Number of the run that the corrections have come to."""

    @property
    def armed(self) -> bool:
        """A mandate is good."""
        return self._session.mandate_armed is not None

    @property
    def over(self) -> bool:
        """The last mandate is over, and no further run follows."""
        return bool(self._record.mandates) and not self.armed

    @property
    def words(self) -> str:
        """Number of the next run, and the mandate that is armed; empty where none is."""
        mandate = self._session.mandate_armed
        return "" if mandate is None else f"run {mandate.next_number} under the mandate {mandate.terms.hash}"

    @property
    def not_agreed(self) -> str:
        """Why the last mandate is over, where its runs do not agree; empty where they do, or there is none."""
        last = self._record.mandates[-1] if self.over else None
        return "" if last is None or last.converged else last.ended

    @property
    def planned(self) -> bool:
        """A run is rehearsed, and may be armed."""
        mandate = self._session.mandate_armed
        return mandate is not None and mandate.planned is not None

    @property
    def terms(self) -> Terms:
        """Terms of the mandate that may be armed. Raises ConfigError where there can be none."""
        first = self._session.first_run()
        if first is None:
            raise ConfigError(f"mandate: {self._session.possible()['mandate']}")
        with self._one:
            if self._of is not first:
                self._of, self._corrected, self._terms, self._unfit = first, 1, None, None
                try:
                    self._work, self._terms = self._learned(first)
                except (ConfigError, RecordingError) as error:
                    self._unfit = error
            if self._unfit is not None:
                raise ConfigError(*str(self._unfit).splitlines())
            assert self._terms is not None
            return self._terms

    def to_arm(self) -> str:
        """The hash that somebody names next: that of the run that is rehearsed, or of the mandate."""
        return self._ladder.step(RUNG).hash if self.armed else self.terms.hash

    def arm(self, mandate_hash: str, offsets_hash: str) -> str:
        """Arm the mandate; what that is, in words. Raises ConfigError."""
        terms, work = self.terms, self._work
        assert work is not None
        signed = self._session.mandate(terms, _told(work.rows[0]), mandate_hash, offsets_hash)
        if RUNG not in self._record.planned:
            self._record.planned.append(RUNG)
        written, inverse = self._record.mandates[-1], work.inverse
        assert inverse is not None
        written.identified = {
            "late_s": dict(zip(work.base.axes, inverse.late.tolist(), strict=True)),
            "learned_to_hz": inverse.learned_to,
            "known_to_hz": inverse.known_to,
        }
        written.rows.append(_row(work.rows[0], self._of))
        words = f"at most {terms.runs} further runs within {terms.good_for / 60.0:g} minutes, {terms.mode}"
        return f"mandate {terms.hash} is armed: {words}{f', by {signed}' if signed else ''}"

    def rehearse(self) -> str:
        """Compute the next run, and rehearse it on the identified model; how it went, in words.

        Raises ActRefused where no mandate is armed.
        """
        mandate, work, ladder = self._session.mandate_armed, self._work, self._ladder
        if mandate is None or work is None:
            raise ActRefused(f"rehearse: rung {RUNG}: no mandate is armed")
        number, place = mandate.next_number, self._folder / HISTORIES
        place.mkdir(exist_ok=True)
        if self._corrected != number:
            work.correct()
            self._corrected = number
        rehearsal = work.rehearsed()
        slower = [
            f"axes.{axis}.limits.velocity={bound.velocity!r}" for axis, bound in mandate.terms.bounds.items()
        ]
        source = self.words
        scenario = inputs.kept(work.planned(number, place, source, slower), self._folder)
        told, bounds = (
            {axis: asdict(each) for axis, each in of.items()} for of in (rehearsal.peaks, mandate.terms.bounds)
        )
        ladder.iterate(scenario, told, bounds)
        planned = Planned(number, ladder.step(RUNG).hash, rehearsal.peaks)
        self._rehearsal = rehearsal
        try:
            self._session.plan_run(planned)
        except ActRefused as refused:
            if self.armed:
                raise
            return f"run {number} is not made, and the mandate is over: {refused}"
        return f"run {number} is rehearsed as {planned.scenario_hash}: expected error {rehearsal.missed:.3g} %"

    def learn(self, entry: RungRecord, run: Run | None) -> str:
        """Take in a run under the mandate, as ``entry`` and its recording tell of it; how it went, in words."""
        work, rehearsal = self._work, self._rehearsal
        assert work is not None
        assert rehearsal is not None
        row = Row(entry.run, entry.outcome, entry.reason, recording=entry.recording)
        try:
            if entry.outcome == "finished" and run is not None and not entry.not_valid:
                work.learn(entry.run, run.outcome, entry.reason, entry.recording, run)
                row = work.rows[-1]
                entry.differences |= _differences(run, rehearsal)
            elif entry.outcome == "finished":
                row = Row(entry.run, entry.not_valid or "not recorded", recording=entry.recording)
        finally:  # what cannot be learned from ends it, too
            over = self._session.tell_run(_told(row))
        self._record.mandates[-1].rows.append(
            _row(row, entry) | {"expected": {axis: asdict(most) for axis, most in rehearsal.peaks.items()}}
        )
        told = f"run {entry.run}: error {plain(row.error)} %, noise {plain(row.noise)} %"
        return f"; {told}{f'; the mandate is over: {over}' if over else ''}"

    def _learned(self, first: RungRecord) -> tuple[Corrections, Terms]:
        scenario, session = self._ladder.scenario, self._session
        offsets = session.offsets
        assert offsets is not None  # there was a first run
        run = read_run(self._folder / first.recording)
        check(scenario, self._ladder.iteration)
        work = Corrections(scenario, Settings(mode_of(scenario, self._ladder.iteration)), run)
        axes, n = tuple(scenario.axes), work.base.samples + 1
        tares = offsets.tares()
        histories = run.command[:n], run.displacement[:n], run.force[:n]
        told = FirstRun(
            first.scenario_hash,
            offsets.hash,
            first.code,
            _hash(*histories),
            corrections.peaks(axes, *histories, run.scenario.dt),
            dict(zip(axes, zip(tares.command.tolist(), tares.force.tolist(), strict=True), strict=True)),
            scenario.samples * scenario.dt,
        )
        return work, Terms.of(told, work.settings.mode, session.scenario.limits, elastic_limits(scenario))


def check(scenario: Scenario, given: str | None) -> None:
    """Raises ConfigError for a test that cannot be iterated under a mandate, as far as that is known before it.

    ``given`` is the mode that somebody has asked for; None: the one that the test has by itself.
    """
    corrections.check(scenario)
    if scenario.soft_start is not None:
        raise ConfigError("soft_start: must be left out for a mandate: what repeats begins with the test")
    known = elastic_limits(scenario)
    if missing := next(filter(None, (without_limit(axis, known) for axis in scenario.axes)), ""):
        raise ConfigError(missing)
    if mode_of(scenario, given) == HISTORY:
        try:
            Corrections(scenario, Settings(HISTORY))
        except ConfigError as error:
            raise ConfigError(*error.problems, "iteration: tracking corrects the commands alone") from None


def mode_of(scenario: Scenario, given: str | None) -> str:
    """The mode that is ``given``, else whole histories where there is a structure."""
    return given or (TRACKING if scenario.structure is None else HISTORY)


def _told(row: Row) -> Told:
    return Told(row.number, row.outcome, row.error, row.noise, row.answer)


def _row(row: Row, entry: RungRecord | None) -> dict[str, object]:
    """Row of the record: as of ``rths iterate``, with the rung's recording and hash."""
    named = {} if entry is None else {"recording": entry.recording, "scenario_hash": entry.scenario_hash}
    return asdict(row) | named


def _hash(*histories: Array) -> str:
    found = hashlib.sha256()
    for each in histories:
        found.update(np.ascontiguousarray(each).tobytes())
    return found.hexdigest()[:16]


def _differences(run: Run, rehearsal: Rehearsal) -> dict[str, float]:
    """By displacement and force of each axis: a run beside its rehearsal, rms over rms."""
    found = {}
    pairs = ("displacement", run.displacement, rehearsal.displacement), ("force", run.force, rehearsal.force)
    for name, measured, expected in pairs:
        for column, axis in enumerate(run.axes):
            then = expected[:, column]
            off = comparison.difference(measured[: len(then), column], then)
            found[f"{name} of {axis}{REHEARSAL}"] = off
    return found
