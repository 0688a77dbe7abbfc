# SPDX-License-Identifier: Apache-2.0
"""Self-contained HTML page about a study."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from rths_nodes.analysis.figures import studies as figures
from rths_nodes.analysis.figures.drawing import on_page
from rths_nodes.analysis.index_definitions import definitions
from rths_nodes.analysis.report.document import template, write_page
from rths_nodes.analysis.study_table import StudyTable, in_cell
from rths_nodes.analysis.units import grouped, rounded
from rths_nodes.core.version import __version__

WORST = 10
"""Number of worst runs listed per index, at least one per group."""
ROWS = 100
REASONS = 20


def write_study(table: StudyTable, path: Path) -> None:
    outcomes = table.outcomes()
    contents: dict[str, object] = {
        "title": table.title,
        "description": table.description,
        "badge": f"{grouped(outcomes.get('finished', 0))} of {grouped(len(table))} finished",
        "kind": "good" if set(outcomes) <= {"finished"} else "bad",
        "facts": {
            "Scenario": table.scenario,
            "Runs": ", ".join(f"{grouped(count)} {outcome}" for outcome, count in outcomes.items()),
            "Factors": ", ".join((*table.factors, *table.drawn)) or "none",
            "rths_nodes": __version__,
            "Written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        },
        "several": len(table.groups) > 1,
        "titles": [table.title_of(index) for index in table.indices],
        "summary": [table.summary(index) for index in table.indices],
        "effects": [_effect(table, factor) for factor in table.shown_factors if not table.continuous(factor)],
        "figures": on_page(figures.drawings(table)),
        "worst": [(table.title_of(index), _worst(table, index)) for index in table.indices],
        "reasons": _reasons(table),
        "definitions": definitions(table.indices),
    }
    write_page(path, template("study.html.j2").render(contents))


def _effect(table: StudyTable, factor: str) -> tuple[str, list[tuple[str, str, list[str]]]]:
    cells = table.cells(factor)[:ROWS]
    spreads = [table.spreads(index, cells) for index in table.indices]
    rows = []
    for cell, of_cell in zip(cells, zip(*spreads, strict=True), strict=True):
        values = [in_cell(value) for spread in of_cell for value in (spread.median, spread.worst)]
        rows.append((cell.group, cell.level, [of_cell[0].finished, *values]))
    return table.title_of(factor), rows


def _worst(table: StudyTable, index: str) -> list[tuple[str, str, str]]:
    values, columns = table.values(index), table.columns
    count = max(1, WORST // len(table.groups))
    rows = [row for group in table.groups for row in table.worst(index, count, group)]
    shown = [rounded(values[row]) if table.finished[row] else columns["outcome"][row] for row in rows]
    return [(columns["name"][row], text, columns["reason"][row]) for row, text in zip(rows, shown, strict=True)]


def _reasons(table: StudyTable) -> list[tuple[str, str, int, str]]:
    """Return outcome, reason, number of runs and first run of each reason why runs did not finish."""
    names: dict[tuple[str, str], list[str]] = {}
    for outcome, reason, name in zip(*(table.columns[key] for key in ("outcome", "reason", "name")), strict=True):
        if outcome != "finished":
            names.setdefault((outcome, reason), []).append(name)
    return [(*cause, len(runs), runs[0]) for cause, runs in names.items()][:REASONS]
