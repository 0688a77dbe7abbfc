# SPDX-License-Identifier: Apache-2.0
"""Figures in separate files: drawings for print, and tables of their curves."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path

from matplotlib.figure import Figure

from rths_nodes.analysis.figures import sheets
from rths_nodes.analysis.figures.sheet import Sheet, View, paper_of_style
from rths_nodes.analysis.figures.style import Drawing, fit, in_style, on_paper
from rths_nodes.analysis.paper import COLUMN
from rths_nodes.core.samples import Array
from rths_nodes.core.version import __version__

DIGITS = "%.12g"


def draw(view: View, millimetres: float = COLUMN) -> list[Sheet]:
    with in_style(on_paper(millimetres)):
        return sheets(view, paper_of_style())


def write_figures(drawn: Sequence[Sheet], folder: Path, kind: str = "pdf") -> None:
    """Write each sheet as ``kind`` (pdf or svg), and all captions as ``captions.txt``, to ``folder``."""
    _write([(sheet.name, sheet.title, sheet.caption, sheet.figure) for sheet in drawn], folder, kind)


def write_drawings(drawings: Iterable[Drawing], folder: Path, kind: str, millimetres: float) -> None:
    """Write figures for paper ``millimetres`` wide. Raises ConfigError if a figure does not fit."""
    figures = []
    with in_style(on_paper(millimetres)):
        for title, caption, draw_it in drawings:
            figure = draw_it()
            fit(figure)
            figures.append((re.sub(r"\W+", "_", title).strip("_").lower(), title, caption, figure))
    _write(figures, folder, kind)


def _write(figures: Sequence[tuple[str, str, str, Figure]], folder: Path, kind: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    captions = []
    for name, title, caption, figure in figures:
        path = folder / f"{name}.{kind}"
        date = {"CreationDate" if kind == "pdf" else "Date": None}
        with in_style(on_paper(COLUMN)):
            about = {"Title": title, "Creator": f"rths_nodes {__version__}", **date}
            figure.savefig(path, metadata=about)
        captions.append(f"{path.name}\n{title}. {caption}\n")
    (folder / "captions.txt").write_text("\n".join(captions), encoding="utf-8")


def write_curves(drawn: Sequence[Sheet], folder: Path) -> None:
    """Write all samples of the curves of each sheet to ``folder`` as CSV.

    The first column is the independent variable; an empty cell is a gap in the curve. Curves with different time
    axes are in separate files.
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
    names: list[str] = []
    for base, _ in sheet.tables:
        name = sheet.name if len(sheet.tables) == 1 else f"{sheet.name}_{base.name}"
        names.append(name if name not in names else f"{name}_{len(names) + 1}")
    columns = [{base.head: base.values} | curves for base, curves in sheet.tables]
    return list(zip(names, columns, strict=True))
