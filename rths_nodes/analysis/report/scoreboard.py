"""One self-contained HTML page about a scoreboard, in the style of the report of a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rths_nodes.analysis.figures import scoreboard as figures
from rths_nodes.analysis.published_indices import heading, legend
from rths_nodes.analysis.report.document import template
from rths_nodes.analysis.study_table import StudyTable
from rths_nodes.analysis.units import grouped, rounded
from rths_nodes.core.version import __version__


def write(
    path: Path,
    table: StudyTable,
    scores: Sequence[Any],
    published: Sequence[Any],
    settings: Mapping[str, str],
    facts: Mapping[str, str],
    axes: tuple[str, str],
    which: str = "",
) -> None:
    """Write the page. Raises OSError.

    ``scores`` and ``published`` are rows as ``app/studies/scoreboard.py`` makes them; ``settings`` by law, as
    YAML; ``facts`` what stands in the head; ``axes`` the indices of tracking and response; ``which`` set of
    published indices is meant by their numbers.
    """
    labels = list(dict.fromkeys(_label(table, score) for score in scores if score.runs))
    told = [index for index in table.indices if any(index in of.values for of in published)]
    contents: dict[str, Any] = {
        "title": table.title,
        "description": table.description,
        "badge": f"{sum(1 for score in scores if score.runs)} rows, {grouped(len(table))} runs",
        "facts": {
            **facts,
            "rths_nodes": __version__,
            "Written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        },
        "indices": [heading(which, index) for index in table.indices],
        "legend": legend(which, table.indices),
        "blocks": len({score.block for score in scores if score.runs}) > 1,
        "scores": [_row(score, table.indices) for score in scores],
        "published": [(of.case, of.note, [rounded(of.values.get(index)) for index in told]) for of in published],
        "published_indices": [heading(which, index) for index in told],
        "figures": figures.drawn(table, labels, *axes),
        "settings": settings,
        "version": __version__,
    }
    Path(path).write_text(template("scoreboard.html.j2").render(contents), encoding="utf-8")


def markdown(
    table: StudyTable, scores: Sequence[Any], published: Sequence[Any], facts: Mapping[str, str], which: str = ""
) -> str:
    """The table for a text: the worst of each index, what was published below; with version and date."""
    words = [f"rths_nodes {__version__}", f"{datetime.now(UTC):%Y-%m-%d}", f"{len(table)} runs"]
    words += [f"{name.lower()}: {value}" for name, value in facts.items() if name != "Scenario"]
    indices, about = [heading(which, index) for index in table.indices], legend(which, table.indices)
    rows = [
        [score.law, score.block, *(rounded(score.worst.get(index)) for index in table.indices), outcome(score)]
        for score in scores
    ]
    rows += [
        [of.case, "", *(rounded(of.values.get(index)) for index in table.indices), f"published: {of.note}"]
        for of in published
    ]
    lines = [
        f"Scoreboard of `{table.scenario}`, the worst of each index ({'; '.join(words)}):",
        "",
        f"| compensator | block | {' | '.join(indices)} | outcome |",
        f"|---|---|{'---|' * len(indices)}---|",
        *(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows),
        "",
    ]
    return "\n".join([*lines, f"{about}.", ""] if about else lines)


def _label(table: StudyTable, score: Any) -> str:
    """As the column ``law`` of the table names it."""
    both = f"{score.law} {score.block}"
    return both if both in table.columns["law"] else score.law


def _row(score: Any, indices: Sequence[str]) -> dict[str, Any]:
    return {
        "law": score.law,
        "block": score.block,
        "outcome": outcome(score).partition(":")[0],
        "why": outcome(score).partition(": ")[2],
        "cells": [_cell(score, index) for index in indices],
    }


def _cell(score: Any, index: str) -> tuple[str, str]:
    """The worst, and the median where that is another one."""
    median, worst = score.median.get(index), score.worst.get(index)
    alike = not score.runs or rounded(median) == rounded(worst)
    return rounded(worst), "" if alike else rounded(median)


def outcome(score: Any) -> str:
    """How the runs of a compensator ended, in words."""
    if not score.runs:
        return f"not run: {score.what}"
    if not score.failures:
        return "stable"
    return f"unstable: {score.failures} of {score.runs} runs, {score.what}"
