# SPDX-License-Identifier: Apache-2.0
"""Self-contained HTML pages about a scoreboard and about a study."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rths_nodes.analysis.figures import studies as figures
from rths_nodes.analysis.figures.drawing import Drawing, on_page
from rths_nodes.analysis.index_definitions import definitions
from rths_nodes.analysis.published_indices import heading, legend
from rths_nodes.analysis.report.document import template, write_page
from rths_nodes.analysis.study_table import HIGH, StudyTable, in_cell, index_title, index_unit
from rths_nodes.analysis.units import grouped, rounded
from rths_nodes.core.data import Data
from rths_nodes.core.errors import show
from rths_nodes.core.version import __version__


@dataclass(frozen=True)
class Score:
    """Results of a compensator in a block of runs.

    ``median``, ``high`` and ``worst`` are magnitudes of each index; HIGH % of the runs do not exceed ``high``.
    ``failures`` is the number of unfinished runs. ``what`` is the reason why runs failed or why the compensator
    took no part. ``place`` is the rank, empty without runs, with an = if the seeds do not separate neighbouring
    ranks.
    """

    law: str
    block: str
    runs: int
    failures: int
    what: str
    median: Mapping[str, float]
    high: Mapping[str, float]
    worst: Mapping[str, float]
    place: str = ""

    @property
    def unstable(self) -> float:
        return self.failures / self.runs if self.runs else math.nan

    @property
    def kind(self) -> str:
        return "unstable" if self.failures else "stable" if self.runs else "not run"

    def outcome(self) -> str:
        failed = f"{self.failures} of {self.runs} runs, " if self.failures else ""
        return f"{self.kind}: {failed}{self.what}" if self.kind != "stable" else self.kind


@dataclass(frozen=True)
class Published:
    case: str
    note: str
    values: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Scoreboard:
    """Holds the runs of a scoreboard, the resulting ranking, and the published values.

    ``which`` is the set that numbers the indices. ``axes`` are the tracking index, which determines the rank, and
    the response index.
    """

    table: StudyTable
    scores: Sequence[Score]
    published: Sequence[Published]
    axes: tuple[str, str]
    which: str = ""

    @property
    def headings(self) -> list[str]:
        return [self._heading(index) for index in self.table.indices]

    def _heading(self, index: str) -> str:
        number = heading(self.which, index)
        return index_title(index) if number == index else f"{number} ({index_unit(index)})"

    @property
    def rows(self) -> list[tuple[str, str, str, Mapping[str, float], str, str]]:
        """Place, name, block, high value of each index, outcome and kind; rows of published values are last."""
        rows = [
            (score.place, score.law, score.block, score.high, score.outcome(), score.kind) for score in self.scores
        ]
        notes = [
            (published, f"published{': ' if published.note else ''}{published.note}")
            for published in self.published
        ]
        return rows + [
            ("", show(published.case).strip("'"), "", published.values, note, "published")
            for published, note in notes
        ]

    def drawings(self) -> Iterator[Drawing]:
        labels = list(dict.fromkeys(_label(self.table, score) for score in self.scores if score.runs))
        return figures.scoreboard_drawings(self.table, labels, *self.axes)

    def columns(self) -> dict[str, list[object]]:
        scores = self.scores
        columns: dict[str, list[object]] = {
            "place": [score.place for score in scores],
            "compensator": [score.law for score in scores],
            "block": [score.block for score in scores],
            "runs": [score.runs for score in scores],
            "failures": [score.failures for score in scores],
            "outcome": [score.outcome() for score in scores],
        }
        for index in self.table.indices:
            columns[f"{index}_median"] = [score.median.get(index) for score in scores]
            columns[f"{index}_{HIGH:g}_percent"] = [score.high.get(index) for score in scores]
            columns[f"{index}_worst"] = [score.worst.get(index) for score in scores]
        return columns


def write(path: Path, board: Scoreboard, settings: Mapping[str, str], facts: Mapping[str, str]) -> None:
    """Write the page with ``facts`` in the header and ``settings`` (YAML) by compensator."""
    table, scores, published = board.table, board.scores, board.published
    titles = board.headings
    shown_indices = [index for index in table.indices if any(index in row.values for row in published)]
    contents: Data = {
        "title": table.title,
        "description": table.description,
        "badge": f"{sum(1 for score in scores if score.runs)} rows, {grouped(len(table))} runs",
        "facts": {
            **facts,
            "rths_nodes": __version__,
            "Written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        },
        "indices": titles,
        "definitions": [(title, *row[1:]) for title, row in zip(titles, definitions(table.indices), strict=True)],
        "blocks": len({score.block for score in scores if score.runs}) > 1,
        "scores": [_row(score, table.indices) for score in scores],
        "high": f"{HIGH:g}",
        "published": [
            (row.case, row.note, [rounded(row.values.get(index)) for index in shown_indices]) for row in published
        ],
        "published_indices": [
            title for title, index in zip(titles, table.indices, strict=True) if index in shown_indices
        ],
        "figures": on_page(board.drawings()),
        "settings": settings,
    }
    write_page(path, template("scoreboard.html.j2").render(contents))


def markdown(board: Scoreboard, facts: Mapping[str, str]) -> str:
    table = board.table
    header = [f"rths_nodes {__version__}", f"{datetime.now(UTC):%Y-%m-%d}", f"{len(table)} runs"]
    header += [f"{name.lower()}: {value}" for name, value in facts.items() if name != "Scenario"]
    cells = [
        [rank, name, block, *(rounded(values.get(index)) for index in table.indices), outcome]
        for rank, name, block, values, outcome, _ in board.rows
    ]
    lines = [
        f"Scoreboard of `{table.scenario}`. {HIGH:g} % of the runs do not exceed the value of an index "
        f"({'; '.join(header)}):",
        "",
        f"| place | compensator | block | {' | '.join(board.headings)} | outcome |",
        f"|---|---|---|{'---|' * len(table.indices)}---|",
        *(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in cells),
        "",
    ]
    about = legend(board.which, table.indices)
    return "\n".join([*lines, f"{about}.", ""] if about else lines)


def _label(table: StudyTable, score: Score) -> str:
    both = f"{score.law} {score.block}"
    return both if both in table.columns["law"] else score.law


def _row(score: Score, indices: Sequence[str]) -> dict[str, object]:
    return {
        "place": score.place,
        "law": score.law,
        "block": score.block,
        "outcome": score.kind,
        "why": score.outcome().partition(": ")[2],
        "cells": [_cell(score, index) for index in indices],
    }


def _cell(score: Score, index: str) -> tuple[str, str]:
    median, high = score.median.get(index), score.high.get(index)
    alike = not score.runs or rounded(median) == rounded(high)
    return rounded(high), "" if alike else rounded(median)


WORST = 10
"""Number of worst runs listed per index, at least one per group."""
ROWS = 100
REASONS = 20


def write_study(table: StudyTable, path: Path) -> None:
    write_page(path, render_study(table))


def render_study(table: StudyTable) -> str:
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
        "summary": [_by_group(table, index) for index in table.indices],
        "effects": [_effect(table, factor) for factor in table.shown_factors if not table.continuous(factor)],
        "figures": on_page(figures.drawings(table)),
        "worst": [(table.title_of(index), _worst(table, index)) for index in table.indices],
        "reasons": _reasons(table),
        "definitions": definitions(table.indices),
    }
    return template("study.html.j2").render(contents)


def _by_group(table: StudyTable, index: str) -> list[tuple[str, list[str]]]:
    cells = table.cells()
    rows = []
    for cell, spread in zip(cells, table.spreads(index, cells), strict=True):
        values = spread.median, spread.low, spread.high, spread.worst
        rows.append((cell.group, [spread.finished, *map(in_cell, values)]))
    return rows


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
    return [
        (
            columns["name"][row],
            rounded(values[row]) if table.finished[row] else columns["outcome"][row],
            columns["reason"][row],
        )
        for group in table.groups
        for row in table.worst(index, count, group)
    ]


def _reasons(table: StudyTable) -> list[tuple[str, str, int, str]]:
    reasons: dict[tuple[str, str], list[str]] = {}
    rows = zip(table.columns["outcome"], table.columns["reason"], table.columns["name"], strict=True)
    for outcome, reason, name in rows:
        if outcome != "finished":
            reasons.setdefault((outcome, reason), []).append(name)
    return [(outcome, reason, len(names), names[0]) for (outcome, reason), names in reasons.items()][:REASONS]
