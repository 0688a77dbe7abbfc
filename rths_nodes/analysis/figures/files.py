# SPDX-License-Identifier: Apache-2.0
"""Figures in separate files: drawings for print, and tables of their curves."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path

from rths_nodes.analysis.figures.drawing import Drawing
from rths_nodes.analysis.figures.style import in_style, on_paper
from rths_nodes.analysis.paper import COLUMN
from rths_nodes.core.samples import Array
from rths_nodes.core.version import __version__

DIGITS = "%.12g"


def for_print(figures: Iterable[Drawing], millimetres: float = COLUMN) -> list[Drawing]:
    """Draw ``figures``, which are made on request, for paper ``millimetres`` wide."""
    with in_style(on_paper(millimetres)):
        return [*figures]


def write_figures(figures: Sequence[Drawing], folder: Path, kind: str = "pdf") -> None:
    """Write each figure as ``kind`` (pdf or svg), and all captions as ``captions.txt``, to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    captions = []
    for figure in figures:
        path = folder / f"{figure.name}.{kind}"
        date = {"CreationDate" if kind == "pdf" else "Date": None}
        with in_style(on_paper(COLUMN)):
            about = {"Title": figure.title, "Creator": f"rths_nodes {__version__}", **date}
            figure.savefig(path, metadata=about)
        captions.append(f"{path.name}\n{figure.title}. {figure.caption}\n")
    (folder / "captions.txt").write_text("\n".join(captions), encoding="utf-8")


def write_curves(figures: Sequence[Drawing], folder: Path) -> None:
    """Write all samples of the curves of each figure to ``folder`` as CSV.

    The first column is the independent variable; an empty cell is a gap in the curve. Curves with different time
    axes are in separate files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for figure in figures:
        for name, columns in tables(figure):
            with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as stream:
                rows = csv.writer(stream, lineterminator="\n")
                rows.writerow(columns)
                rows.writerows(zip_longest(*map(_texts, columns.values()), fillvalue=""))


def _texts(values: Array) -> list[str]:
    return [DIGITS % value if value == value else "" for value in values.tolist()]


def tables(figure: Drawing) -> list[tuple[str, dict[str, Array]]]:
    names: list[str] = []
    for base, _ in figure.tables:
        name = figure.name if len(figure.tables) == 1 else f"{figure.name}_{base.name}"
        names.append(name if name not in names else f"{name}_{len(names) + 1}")
    columns = [{base.head: base.values} | curves for base, curves in figure.tables]
    return list(zip(names, columns, strict=True))
