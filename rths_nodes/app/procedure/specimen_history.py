# SPDX-License-Identifier: Apache-2.0
"""Rows of a test in the history of its specimen."""

from __future__ import annotations

from pathlib import Path

from rths_nodes.app.procedure import comparison
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.procedure_record import ProcedureRecord, RungRecord, moves
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.records import RecordingError


def tell_specimen(record: ProcedureRecord, entry: RungRecord) -> bool:
    """Begin or complete the row of a rung in the history of its specimen; return whether it loads it.

    The row has no numbers while the rung is under way. Simulated rungs do not count.
    """
    if record.simulation or not moves(entry.name):
        return False
    largest = {
        name: {axis: values[name] for axis, values in entry.peaks.items()} for name in ("displacement", "force")
    }
    named = {"date": entry.started, "test": record.test_id, "rung": entry.name}
    rows = record.specimen.history
    begun = [row for row in rows if all(row.get(key) == value for key, value in named.items())]
    if not begun:
        rows.append({})
    row = begun[-1] if begun else rows[-1]
    row |= named | {"level": entry.level} | largest
    return True


def tell_broken_off(record: ProcedureRecord, entry: RungRecord, recording: Path) -> None:
    """Complete an aborted rung from its recording: it has loaded the specimen."""
    try:
        run = read_run(recording)
    except (ConfigError, RecordingError) as error:
        entry.remarks.append(f"its recording cannot be read: {error}")
        return
    entry.samples, entry.peaks = len(run.time) - 1, comparison.peaks(run)
    entry.remarks.append("it broke off: its peaks are those of what was recorded until then")
    tell_specimen(record, entry)
