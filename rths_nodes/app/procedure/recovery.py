# SPDX-License-Identifier: Apache-2.0
"""Completion of the record of a killed test: its last rung, and the history of the specimen."""

from __future__ import annotations

from pathlib import Path

from rths_nodes.app.procedure import comparison
from rths_nodes.app.procedure.procedure_runner import now
from rths_nodes.app.procedure.specimen_history import tell_specimen
from rths_nodes.core.errors import ConfigError
from rths_nodes.procedure.records import ProcedureRecord, RungRecord
from rths_nodes.recording import bag, procedure
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.records import RecordingError

OUTCOME = "interrupted"
KILLED = "whoever conducted the test was killed"


def recover(folder: Path | str) -> list[str]:
    """Complete the record in ``folder``, and the recording of the rung under way; return a report.

    A complete record is not changed. Raises ConfigError without a record or for a running test, and RecordingError
    if it cannot be written.
    """
    if procedure.under_way(folder):
        raise ConfigError(f"{folder}: the test is under way at this moment")
    record = procedure.read(folder)
    if record.outcome:
        return []
    told = []
    for act in record.acts:
        if act.under_way:
            act.under_way, act.result = False, f"{OUTCOME}: {KILLED}: it is not known how far it came"
            told.append(f"act {act.act}: {act.result}")
    for rung in record.rungs:
        if not rung.outcome:
            told += _rung(record, rung, Path(folder))
    record.outcome, record.reason, record.ended = OUTCOME, KILLED, record.ended or now()
    procedure.write(record, folder)
    return [*told, f"outcome: {OUTCOME}: {KILLED}"]


def _rung(record: ProcedureRecord, rung: RungRecord, folder: Path) -> list[str]:
    rung.outcome, rung.reason = OUTCOME, KILLED
    place = folder / rung.recording
    told = [f"rung {rung.name}: {OUTCOME}"]
    try:
        if not rung.recording or not place.is_dir():
            raise ConfigError("nothing was recorded of it")
        found = bag.recover(place)
        run = read_run(place)
        rung.samples, rung.peaks = len(run.time) - 1, comparison.peaks(run)
        told += [f"recording {rung.recording}: {found.messages} messages, {found.lost_bytes} bytes lost"]
    except (ConfigError, RecordingError) as error:
        rung.remarks.append(f"its recording tells nothing: {error}")
        told.append(f"rung {rung.name}: {rung.remarks[-1]}")
    if tell_specimen(record, rung):
        told.append(f"history of the specimen {record.specimen.id}: completed by rung {rung.name}")
    return told
