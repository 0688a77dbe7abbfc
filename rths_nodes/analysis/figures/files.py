# SPDX-License-Identifier: Apache-2.0
"""Figures of a page in separate files: drawings for print, and tables of their curves."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from rths_nodes.analysis.figures import sheets
from rths_nodes.analysis.figures.sheet import PAGE, Paper, Sheet
from rths_nodes.analysis.figures.style import STYLE, in_style
from rths_nodes.analysis.figures.view import View
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.core.version import __version__

FORMATS = ("pdf", "svg")
NARROWEST, WIDEST, COLUMN = 60.0, 400.0, 85.0
"""Smallest and largest width of a figure, and width of a journal column, mm."""
TWO_COLUMNS = 120.0
"""Smallest width with panels side by side, mm."""
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
"""Style for paper: a font available on every computer, 7 to 7.5 points."""


def check_width(millimetres: float) -> None:
    """Raise ConfigError for a width that is too small or too large."""
    if not NARROWEST <= millimetres <= WIDEST:
        raise ConfigError(f"--width = {millimetres:g} mm: must be {NARROWEST:g} to {WIDEST:g} mm")


def draw(view: View, millimetres: float = COLUMN) -> list[Sheet]:
    """Draw the figures for paper of this width, readable in grey."""
    width = millimetres / INCH
    paper = Paper(width, 0.72, stacked=True, grey=True)
    if millimetres >= TWO_COLUMNS:
        paper = Paper(width, min(1.0, width / PAGE.width), grey=True)
    with in_style(STYLE | PRINT):
        return sheets(view, paper)


def write_figures(drawn: Sequence[Sheet], folder: Path, kind: str = "pdf") -> None:
    """Write each sheet to ``folder`` in one of ``FORMATS``, and ``captions.txt``; reproducible. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    captions = []
    for sheet in drawn:
        path = folder / f"{sheet.name}.{kind}"
        date = {"CreationDate" if kind == "pdf" else "Date": None}
        with in_style(STYLE | PRINT):
            about = {"Title": sheet.title, "Creator": f"rths_nodes {__version__}", **date}
            sheet.figure.savefig(path, metadata=about)
        captions.append(f"{path.name}\n{sheet.title}. {sheet.caption}\n")
    (folder / "captions.txt").write_text("\n".join(captions), encoding="utf-8")


def write_curves(drawn: Sequence[Sheet], folder: Path) -> None:
    """Write tables of all curves of each sheet as CSV to ``folder``, with every sample. Raises OSError.

    The first line names the columns with their units, the first column is the independent variable; empty: nothing
    is drawn there. A figure whose curves run over different times has a file for each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for sheet in drawn:
        for name, columns in tables(sheet):
            with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as stream:
                rows = csv.writer(stream, lineterminator="\n")
                rows.writerow(columns)
                rows.writerows(zip_longest(*map(_texts, columns.values()), fillvalue=""))


def _texts(values: Array) -> list[str]:
    return [DIGITS % value if value == value else "" for value in values.tolist()]


def tables(sheet: Sheet) -> list[tuple[str, dict[str, Array]]]:
    """Return the file name and columns of each table of a sheet."""
    names: list[str] = []
    for table in sheet.tables:
        name = sheet.name if len(sheet.tables) == 1 else f"{sheet.name}_{table.base.name}"
        names.append(name if name not in names else f"{name}_{len(names) + 1}")
    columns = [{table.base.head: table.base.values} | table.columns for table in sheet.tables]
    return list(zip(names, columns, strict=True))
