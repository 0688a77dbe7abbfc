# SPDX-License-Identifier: Apache-2.0
"""Rows of a test in the history of its specimen."""

from __future__ import annotations

from rths_nodes.procedure.records import RUNGS, ProcedureRecord, RungRecord


def tell_specimen(record: ProcedureRecord, entry: RungRecord) -> bool:
    """Begin or complete the row of a rung of ``record`` in the history of its specimen; whether it loads it.

    It has no numbers as long as the rung is under way. What was simulated is no load.
    """
    if record.simulation or entry.name not in RUNGS or not RUNGS[entry.name].moves:
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
