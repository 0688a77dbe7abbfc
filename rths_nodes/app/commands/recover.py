# SPDX-License-Identifier: Apache-2.0
"""``rths recover``: complete an interrupted recording, or the record of an interrupted test."""

from __future__ import annotations

from pathlib import Path

from rths_nodes.analysis.overlay import peaks_of
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.procedure.ladder import update_specimen
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.procedure_record import ProcedureRecord, RungRecord
from rths_nodes.recording import bag, procedure
from rths_nodes.recording.plain import now
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.records import RecordingError

OUTCOME = "interrupted"
KILLED = "the program that conducted the test was killed"


def add_arguments(add: arguments.Arguments) -> None:
    add.recording("folder of a recording, or of a test (runs/<test id>)")
    text = "write the complete recording to DIR and leave the original unchanged, e.g. because a disk is full"
    add("--out DIR", text)


def run(options: arguments.Options) -> int:
    if procedure.exists(options.recording):
        if options.out:
            raise ConfigError("--out: applies to a recording only; the record of a test is completed in place")
        for note in recover(options.recording) or ["the record is complete; there is nothing to recover"]:
            print(f"{options.recording}: {note}")
        return ExitCode.FINISHED
    recovered = bag.recover(options.recording, options.out)
    if recovered.was_complete:
        print(f"{options.recording}: is complete; there is nothing to recover ({recovered.messages} messages)")
    else:
        where = f" in {options.out}" if options.out else ""
        print(
            f"{options.recording}: recovered {recovered.messages} messages{where}, "
            f"{recovered.lost_bytes} bytes lost"
        )
    terminal.tell(f"{options.recording}: {note}" for note in recovered.notes)
    try:
        terminal.tell(read_run(recovered.path).notes)
    except ConfigError as error:
        terminal.tell(f"cannot be read as a test: {problem}" for problem in error.problems)
        return ExitCode.FAILED
    return ExitCode.FINISHED


def recover(folder: Path | str) -> list[str]:
    if procedure.under_way(folder):
        raise ConfigError(f"{folder}: the test is still running")
    record = procedure.read(folder)
    if record.outcome:
        return []
    notes = []
    for act in record.acts:
        if act.under_way:
            act.under_way, act.result = False, f"{OUTCOME}: {KILLED}, and it is unknown how far the act progressed"
            notes.append(f"act {act.act}: {act.result}")
    for rung in record.rungs:
        if not rung.outcome:
            notes += _rung(record, rung, Path(folder))
    record.outcome, record.reason, record.ended = OUTCOME, KILLED, record.ended or now()
    procedure.write(record, folder)
    return [*notes, f"outcome: {OUTCOME}: {KILLED}"]


def _rung(record: ProcedureRecord, rung: RungRecord, folder: Path) -> list[str]:
    rung.outcome, rung.reason = OUTCOME, KILLED
    path = folder / rung.recording
    notes = [f"rung {rung.name}: {OUTCOME}"]
    try:
        if not rung.recording or not path.is_dir():
            raise ConfigError("nothing was recorded")
        recovered = bag.recover(path)
        run = read_run(path)
        rung.samples, rung.peaks = len(run.time) - 1, peaks_of(run)
        notes += [f"recording {rung.recording}: {recovered.messages} messages, {recovered.lost_bytes} bytes lost"]
    except (ConfigError, RecordingError) as error:
        rung.remarks.append(f"the recording cannot be read: {error}")
        notes.append(f"rung {rung.name}: {rung.remarks[-1]}")
    if update_specimen(record, rung):
        notes.append(f"history of the specimen {record.specimen.id}: completed with rung {rung.name}")
    return notes
