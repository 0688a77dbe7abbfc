# SPDX-License-Identifier: Apache-2.0
"""Figure under construction: panels that matplotlib lays out, tables of the curves, and the drawn tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.transforms import ScaledTranslation

from rths_nodes.analysis.figures.style import (
    BAND,
    BAND_WIDTH,
    FAINT,
    HATCHES,
    INCH,
    LETTER,
    SHADES,
    ZERO,
    Entry,
    columns_of,
    in_grey,
    printed,
    styled,
)
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.overlay import Aligned
from rths_nodes.core.data import Data
from rths_nodes.core.samples import Array
from rths_nodes.recording.run import Run

COLUMNS = 12
CELLS, RASTER = 1200, 12_000
"""A plot without a time axis is ``CELLS`` dots wide. Its curves that cross more than ``RASTER`` dots are drawn as
images."""
DOTS = 300
"""Largest number of samples in a panel that are marked with dots."""
LABELS, TITLE, LINE = 0.42, 0.2, 0.18
"""Heights in inches: axis label with tick labels, title, and legend line."""
BELOW, ASIDE = 0.028, 0.066
"""Distances from a panel to the axis labels below and at its side, inches per point of font size."""


class Paper(NamedTuple):
    """Paper of a figure: ``width`` in inches, and ``scale``, a factor on panel heights.

    If ``stacked`` is true, every row has a single panel. If ``grey`` is true, the figure has no colours.
    """

    width: float = 7.4
    scale: float = 1.0
    stacked: bool = False
    grey: bool = False


PAGE = Paper(scale=0.66)
TWO_COLUMNS = 120.0
"""Smallest paper width with panels side by side, mm."""


def paper_of_style(screen: Paper = PAGE) -> Paper:
    """Return grey paper of the width in force, or ``screen`` if the style in force is not for paper."""
    width = printed()
    if width is None:
        return screen
    if width * INCH < TWO_COLUMNS:
        return Paper(width, 0.72, stacked=True, grey=True)
    return Paper(width, min(1.0, width / PAGE.width), grey=True)


class Base(NamedTuple):
    """Independent variable of curves: suffix of the table's file, values ``(n,)``, and column heading."""

    name: str
    values: Array
    head: str = "time (s)"


class Sheet:
    """Builds a figure. Add rows of panels, draw curves in them, then call :meth:`finish`."""

    def __init__(self, name: str = "", paper: Paper = PAGE) -> None:
        self.name, self.paper = name, paper
        self.title = self.caption = self.svg = ""
        self.tall = False
        self.tables: list[tuple[Base, dict[str, Array]]] = []
        self.figure = Figure()
        self._rows: list[tuple[float, list[tuple[int, Axes]]]] = []
        self._legend_lines = 0

    def row(self, height: float, *widths: int) -> list[Axes]:
        """Add a row of panels, ``height`` inches high; ``widths`` are in grid columns."""
        panels = [(width, self.figure.add_subplot()) for width in widths or (COLUMNS,)]
        if self.paper.stacked:
            self._rows += [(height, [(COLUMNS, panel)]) for _, panel in panels]
        else:
            self._rows.append((height, panels))
        return [panel for _, panel in panels]

    def record(self, base: Base, head: str, values: Array) -> None:
        """Add a column ``values`` ``(n,)`` to the table of ``base``. A base may be longer than its columns."""
        base = base._replace(values=base.values[: len(values)])
        for number, (other, columns) in enumerate(self.tables):
            n = min(len(base.values), len(other.values))
            same = (base.name, base.head) == (other.name, other.head)
            if same and np.array_equal(base.values[:n], other.values[:n]):
                self.tables[number] = max(other, base, key=lambda one: len(one.values)), columns
                break
        else:
            columns = {}
            self.tables.append((base, columns))
        columns.setdefault(head, values)

    def curve(
        self,
        panel: Axes,
        base: Base,
        head: str,
        values: Array,
        look: Entry,
        width: float = 1.0,
        over: tuple[str, Array] | None = None,
        within: tuple[float, float] | None = None,
    ) -> None:
        """Draw ``values`` ``(n,)`` versus their base, or versus the column ``over``, with gaps at NaN.

        ``within`` limits the curve to an interval of the independent variable. If the interval contains few
        samples, each sample is marked.
        """
        if over is not None:
            self.record(base, *over)
        self.record(base, head, values)
        x, y = base.values[: len(values)] if over is None else over[1], values
        style = self.line(look, width)
        if within is not None:
            inside = (x >= within[0]) & (x <= within[1])
            x, y = x[inside], y[inside]
            style |= {"marker": ".", "ms": 2.5} if 0 < len(x) <= DOTS else {}
        panel.plot(x, y, rasterized=over is not None and _cells(x, y) > RASTER, **style)
        if over is not None:
            panel.margins(x=0.04)

    def line(self, look: Entry, width: float) -> Data:
        colour, line, width = in_grey(look[1], look[2], width) if self.paper.grey else (look[1], look[2], width)
        return {"color": colour, "ls": line, "lw": width}

    def fill(self, colour: str) -> Data:
        if self.paper.grey and colour in HATCHES:
            return {"facecolor": "#e8e8e8", "edgecolor": "#8c8c8c", "hatch": HATCHES[colour], "lw": 0.0}
        return {"color": colour, "alpha": 0.3, "lw": 0.0}

    def band(self, panel: Axes, base: Base, name: str, unit: str, ends: tuple[Array, Array], colour: str) -> None:
        for values, end in zip(ends, ("lower", "upper"), strict=True):
            self.record(base, label(f"{name}, {end}", unit), values)
        panel.fill_between(base.values, *ends, color=colour, lw=0.0)

    def legend(self, entries: Sequence[Entry], shades: Sequence[tuple[str, str]] = ()) -> None:
        labels = [entry[0] for entry in (*entries, *shades)]
        if not labels:
            return
        handles: list[Artist] = [
            Line2D([], [], **self.line(entry, BAND_WIDTH if entry[1] == BAND else 1.2)) for entry in entries
        ]
        handles += [Patch(**self.fill(colour)) for _, colour in shades]
        across = columns_of(labels, self.paper.width)
        self._legend_lines = math.ceil(len(labels) / across)
        spacing = {"handlelength": 1.8, "columnspacing": 1.4, "labelspacing": 0.2, "borderaxespad": 0.1}
        self.figure.legend(handles, labels, loc="outside upper left", ncols=across, **spacing)

    def finish(self) -> Figure:
        """Lay out the panels, without tick labels that the row below repeats, and return the figure."""
        decorated = 0.0
        for (_, row), (_, after) in pairwise([*self._rows, (0.0, [])]):
            repeated = len(row) == len(after) and all(
                (panel.get_xlabel(), panel.get_xlim()) == (other.get_xlabel(), other.get_xlim())
                for (_, panel), (_, other) in zip(row, after, strict=True)
            )
            for _, panel in row if repeated else ():
                panel.tick_params(labelbottom=False)
                panel.set_xlabel("")
            decorated += (0.1 if repeated else LABELS) + TITLE * any(panel.get_title("left") for _, panel in row)
        upright = 0.85 * LETTER * _letters()
        heights = [
            max(self.paper.scale * height, upright * max(len(panel.get_ylabel()) for _, panel in row))
            for height, row in self._rows
        ]
        grid = self.figure.add_gridspec(len(heights), COLUMNS, height_ratios=heights)
        for number, (_, row) in enumerate(self._rows):
            first = 0
            for width, panel in row:
                panel.set_subplotspec(grid[number, first : first + width])
                self._labels(panel, self.paper.width * width / COLUMNS)
                first += width
        height = sum(heights) + decorated + LINE * self._legend_lines + 0.1
        self.figure.set_size_inches(self.paper.width, height)
        # not as the figure's layout engine: matplotlib would lay out and draw the figure again on saving
        ConstrainedLayoutEngine(h_pad=0.03, w_pad=0.04, hspace=0.0, wspace=0.0).execute(self.figure)
        return self.figure

    def _labels(self, panel: Axes, width: float) -> None:
        size, inches = _letters(), self.figure.dpi_scale_trans
        for axis, away in ((panel.xaxis, (0.0, -BELOW * size)), (panel.yaxis, (-ASIDE * size, 0.0))):
            at = 0.5 if axis is panel.xaxis else 0.0, 0.5 if axis is panel.yaxis else 0.0
            axis.set_label_coords(*at, panel.transAxes + ScaledTranslation(*away, inches))
        if panel.get_xscale() == "linear":
            panel.locator_params(axis="x", nbins=max(3, round(1.2 * width)))


def label(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit not in ("", "1") else name


def _letters() -> float:
    return float(matplotlib.rcParams["font.size"])


def level(panel: Axes, value: float = 0.0, colour: str = FAINT, line: object = "-", width: float = 0.6) -> None:
    panel.axhline(value, color=colour, ls=line, lw=width, zorder=1.5)


def _cells(x: Array, y: Array) -> int:
    usable = np.isfinite(x) & np.isfinite(y)
    if not usable.any():
        return 0
    cells = [np.floor((v - v.min()) / (float(np.ptp(v)) or 1.0) * CELLS) for v in (x[usable], y[usable])]
    return int(np.count_nonzero(np.diff(cells).any(axis=0)))


TIME_DOTS = 700
Words = tuple[str, str]
"""Title and caption of a figure."""
Column = tuple[int, Entry, str]
"""Number of an axis or degree of freedom, its style, and the suffix of its quantities."""


class View:
    """Draws a single test, or several overlaid tests with the first in front.

    ``of`` and ``run`` belong to the first test. For a single test, each axis has a colour, flagged stretches are
    shaded, and time is the time of the recording. For several tests, each test has a colour and each axis has a
    panel.
    """

    def __init__(self, tests: Sequence[Aligned]) -> None:
        self.tests, self.first = tests, tests[0]
        self.of, self.run, self.alone = self.first.of, self.first.run, self.first.recorded
        self.axes, self.entries = styled(self.run.axes), styled(test.name for test in tests)
        self.samples = [Base("samples", test.time) for test in tests]
        self.counted = [Base("samples", test.counted) for test in tests]
        self.steps = [Base("steps", test.step_time) for test in tests]
        self.shades = _shades(self.run) if self.alone else []
        self.ends = 0.0, max([self.run.scenario.dt, *(float(test.time[-1]) for test in tests if len(test.time))])

    @classmethod
    def one(cls, evaluation: Evaluation) -> View:
        return cls([Aligned("", evaluation, recorded=True)])

    def several(self, entries: list[Entry]) -> list[Entry]:
        return self.entries if not self.alone else entries if len(entries) > 1 else []

    def legend(self, sheet: Sheet, entries: Sequence[Entry]) -> None:
        sheet.legend(entries, [(name, colour) for name, colour, _ in self.shades])

    def titled(self, title: str, result: str) -> str:
        return f"{title}: {result}" if self.alone else title

    def groups(self, entries: Sequence[Entry]) -> list[list[Column]]:
        columns = [
            (number, entry, f" {entry[0]}".rstrip() if len(entries) > 1 else "")
            for number, entry in enumerate(entries)
        ]
        return [columns] if self.alone else [[column] for column in columns]

    def head(self, test: Aligned, name: str) -> str:
        return name if self.alone else f"{test.name}: {name}"

    def time(self, sheet: Sheet, panel: Axes, title: str) -> None:
        for _, colour, stretches in self.shades:
            panel.broken_barh(stretches, (0.0, 1.0), transform=panel.get_xaxis_transform(), **sheet.fill(colour))
        panel.set(xlim=self.ends, xlabel="time (s)", ylabel=title)

    def curves(
        self,
        sheet: Sheet,
        panel: Axes,
        column: Column,
        quantity: tuple[str, str],
        shown: Sequence[tuple[Base, Array]],
        width: float = 1.0,
        within: tuple[float, float] | None = None,
    ) -> None:
        """Draw a curve for each test, the first in front.

        ``shown`` holds base and values ``(n,)`` of each test. The values are empty if the test lacks the quantity.
        """
        (_, look, suffix), (name, unit) = column, quantity
        for test, entry, (base, values) in [*zip(self.tests, self.entries, shown, strict=True)][::-1]:
            if len(values):
                head = label(self.head(test, name + suffix), unit)
                sheet.curve(panel, base, head, values, look if self.alone else entry, width, within=within)

    def over_time(
        self,
        sheet: Sheet,
        height: float,
        quantity: tuple[str, str],
        group: Sequence[Column],
        shown: Sequence[tuple[Base, Sequence[Array] | Array]],
        width: float = 1.0,
        aim: float | None = 0.0,
        dots: bool = False,
    ) -> Axes | None:
        """Draw a quantity (name, unit) in a separate panel; return None if no test has the quantity.

        ``shown`` holds a base for each test and a row ``(n,)`` for each entry of the figure; rows may be empty. A
        faint line marks the value ``aim``. If ``dots`` is true, curves of at most ``DOTS`` samples have marks.
        """
        if not any(len(rows[number]) for _, rows in shown for number, _, _ in group):
            return None
        (panel,) = sheet.row(height)
        name = quantity[0] if self.alone else quantity[0] + group[0][2]
        self.time(sheet, panel, label(name, quantity[1]))
        within = self.ends if dots else None
        for column in group:
            histories = [(base, rows[column[0]]) for base, rows in shown]
            self.curves(sheet, panel, column, quantity, histories, width, within)
        if aim is not None:
            level(panel, aim, ZERO)
        return panel


def _shades(run: Run) -> list[tuple[str, str, list[tuple[float, float]]]]:
    """Return label, colour, and start and length (s) of flagged stretches. Short stretches are widened."""
    shades = []
    least, dt = max(1, len(run.time) // TIME_DOTS), run.scenario.dt
    for flag, name, colour in SHADES:
        marked = (run.flags & flag) != 0
        if marked.any():
            cells = np.add.reduceat(marked, np.arange(0, len(marked), least)) > 0
            edges = np.flatnonzero(np.diff(np.concatenate(([0], cells, [0])))).reshape(-1, 2)
            # sample k is at the end of its period
            stretches = [((first * least - 1) * dt, (end - first) * least * dt) for first, end in edges.tolist()]
            shades.append((f"{name} ({int(marked.sum())})", colour, stretches))
    return shades
