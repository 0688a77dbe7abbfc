# SPDX-License-Identifier: Apache-2.0
"""The figures of a page as files of their own: as drawings for print, and as tables of their curves."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import matplotlib
import numpy as np

from rths_nodes.analysis.figures.plan import Base, Column, Plan
from rths_nodes.analysis.figures.render import Layout, render
from rths_nodes.analysis.figures.style import STYLE
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.core.version import __version__

FORMATS = ("pdf", "svg")
NARROWEST, WIDEST, COLUMN = 60.0, 400.0, 85.0
"""Widths of a figure, mm: the least, the largest, that of a column of a journal."""
TWO_COLUMNS = 120.0
"""Width from which on panels stand side by side, mm."""
DIGITS = "%.12g"
"""Format of a number in a table."""
INCH = 25.4
PRINT = {
    "font.size": 7.5,
    "axes.labelsize": 7.5,
    "axes.titlesize": 7.5,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "svg.fonttype": "path",
    "svg.hashsalt": "rths_nodes",
    "pdf.fonttype": 42,
    "savefig.dpi": 600,
    "hatch.linewidth": 0.4,
}
"""Style that is different on paper: letters that are there on every machine, of 7 to 7.5 points."""


def check_width(millimetres: float) -> None:
    """Refuses a width on which nothing can be drawn. Raises ConfigError."""
    if not NARROWEST <= millimetres <= WIDEST:
        raise ConfigError(f"--width = {millimetres:g} mm: must be {NARROWEST:g} to {WIDEST:g} mm")


def write_figures(
    plans: Iterable[Plan], folder: Path, kind: str = "pdf", millimetres: float = COLUMN
) -> list[Path]:
    """Each plan drawn to a file in ``folder``, so wide, readable in grey; and ``captions.txt``. Raises OSError.

    ``kind`` is one of ``FORMATS``. The same plans give the same bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written, captions = [], []
    for plan in plans:
        path = folder / f"{plan.name}.{kind}"
        with matplotlib.rc_context(STYLE | PRINT):
            render(plan, paper(millimetres)).savefig(path, metadata=_metadata(kind, plan.title))
        written.append(path)
        captions.append(f"{path.name}\n{plan.title}. {plan.caption}\n")
    (folder / "captions.txt").write_text("\n".join(captions), encoding="utf-8")
    return written


def paper(millimetres: float) -> Layout:
    """Sizes of a figure that is so wide."""
    width = millimetres / INCH
    margins = Layout(width, left=0.56, right=0.1, bottom=0.41, gap=0.11, title=0.18, label=0.41)
    found = replace(margins, line=0.15, letter=0.06, grey=True)
    if millimetres >= TWO_COLUMNS:
        return replace(found, scale=min(1.0, width / Layout.width))
    return replace(found, scale=0.72, stacked=True)


def _metadata(kind: str, title: str) -> dict[str, str | None]:
    by = f"rths_nodes {__version__}"
    if kind == "pdf":
        return {"Title": title, "Creator": by, "CreationDate": None}
    return {"Title": title, "Creator": by, "Date": None}


def write_curves(plans: Iterable[Plan], folder: Path) -> list[Path]:
    """Tables of all curves of each plan as CSV in ``folder``, with every sample. Raises OSError.

    The first line names the columns with their units, the first column is what the rows stand for; empty: nothing
    is drawn there. A figure whose curves run over different times has a file for each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for plan in plans:
        for name, columns in tables(plan):
            path = folder / f"{name}.csv"
            with path.open("w", encoding="utf-8", newline="") as stream:
                rows = csv.writer(stream, lineterminator="\n")
                rows.writerow([head for head, _ in columns])
                rows.writerows(zip(*(_texts(values) for _, values in columns), strict=True))
            written.append(path)
    return written


def _texts(values: Array) -> list[str]:
    return [DIGITS % value if value == value else "" for value in values.tolist()]


@dataclass
class _Table:
    """Columns over one base."""

    base: Base
    columns: list[Column] = field(default_factory=list)

    def takes(self, base: Base) -> bool:
        """``base`` runs as that of this table, as far as both go."""
        n = min(len(base.values), len(self.base.values))
        same = base.name == self.base.name and base.of == self.base.of
        return same and np.array_equal(base.values[:n], self.base.values[:n])

    def add(self, base: Base, column: Column, panel: str) -> None:
        """A column, if it is not there yet; one of the same name with other values is told by its panel."""
        self.base = max(self.base, base, key=lambda each: len(each.values))
        there = dict(self.columns)
        head, values = column
        if head in there and np.array_equal(there[head], values, equal_nan=True):
            return
        self.columns.append((f"{panel}: {head}" if head in there else head, values))

    def all(self) -> list[Column]:
        n = len(self.base.values)
        filled = [(head, np.append(values, np.full(n - len(values), np.nan))) for head, values in self.columns]
        return [(str(self.base.of), self.base.values), *filled]


def tables(plan: Plan) -> list[tuple[str, list[Column]]]:
    """Name of the file and columns of each table of a plan."""
    found: list[_Table] = []
    for panel in plan.panels:
        for shown in panel.shown:
            table = next((table for table in found if table.takes(shown.base)), None)
            if table is None:
                table = _Table(shown.base)
                found.append(table)
            for column in shown.columns():
                table.add(shown.base, column, panel.title or str(panel.y))
    return list(zip(_names(plan.name, found), (table.all() for table in found), strict=True))


def _names(plan: str, found: Sequence[_Table]) -> list[str]:
    if len(found) == 1:
        return [plan]
    names: list[str] = []
    for table in found:
        name, number = f"{plan}_{table.base.name}", 1
        while (unique := name if number == 1 else f"{name}_{number}") in names:
            number += 1
        names.append(unique)
    return names
