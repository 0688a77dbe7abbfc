# SPDX-License-Identifier: Apache-2.0
"""Self-contained HTML page about a study, in the style of a test report."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from rths_nodes.analysis.figures import studies
from rths_nodes.analysis.report.document import template, write_page
from rths_nodes.analysis.study_table import StudyTable
from rths_nodes.analysis.units import grouped, rounded
from rths_nodes.core.version import __version__

WORST = 10
"""Number of named runs per index."""
REASONS = 20
"""Largest number of listed reasons of runs without a result."""


def write(table: StudyTable, path: Path) -> None:
    """Write the page about ``table``. Raises OSError."""
    write_page(path, render(table))


def render(table: StudyTable) -> str:
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
        "summary": [(index, _numbers(table.summary(index))) for index in table.indices],
        "effects": _effects(table),
        "figures": studies.drawn(table),
        "worst": [(index, _worst(table, index)) for index in table.indices],
        "reasons": _reasons(table),
    }
    return template("study.html.j2").render(contents)


def _numbers(of: dict[str, float]) -> list[str]:
    return [rounded(of[name]) for name in ("median", "low", "high", "worst")]


def _effects(table: StudyTable) -> list[tuple[str, list[tuple[str, list[str]]]]]:
    found = []
    for factor in table.factors:
        if table.continuous(factor):
            continue
        levels = {index: table.levels(factor, index) for index in table.indices}
        rows = []
        for number, level in enumerate(levels[table.indices[0]]):
            of = [levels[index][number] for index in table.indices]
            cells = [rounded(value) for each in of for value in (each.median, each.worst)]
            rows.append((level.label, [str(level.runs), *cells]))
        found.append((factor, rows))
    return found


def _worst(table: StudyTable, index: str) -> list[tuple[str, str, str]]:
    values, columns = table.values(index), table.columns
    return [
        (
            columns["name"][row],
            rounded(values[row]) if table.finished[row] else columns["outcome"][row],
            columns["reason"][row],
        )
        for row in table.worst(index, WORST)
    ]


def _reasons(table: StudyTable) -> list[tuple[str, str, int, str]]:
    found: dict[tuple[str, str], list[str]] = {}
    rows = zip(table.columns["outcome"], table.columns["reason"], table.columns["name"], strict=True)
    for outcome, reason, name in rows:
        if outcome != "finished":
            found.setdefault((outcome, reason), []).append(name)
    return [(outcome, reason, len(names), names[0]) for (outcome, reason), names in found.items()][:REASONS]
