# SPDX-License-Identifier: Apache-2.0
"""Common code of all figures: styles, panels, legends, files, and histories of one or several tests."""

from __future__ import annotations

import html
import io
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.overlay import Aligned
from rths_nodes.analysis.units import COLUMN
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import (
    FLAG_BRIDGED,
    FLAG_SATURATED,
    FLAG_SLIPPED,
    FLAG_SLOWED,
    FLAG_SOFT_START,
    FLAG_TRIPPED,
    Array,
)
from rths_nodes.core.text_files import replaced, write, write_columns
from rths_nodes.core.version import __version__

Look = Data
"""Options of a matplotlib line."""
INK, FAINT, BAND, ZERO, LIMIT = "#1a1a1a", "#8c8c8c", "#bdbdbd", "#999999", "#b3261e"
DASHES = (0, (3, 1.2))
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
"""Colours of Okabe & Ito (2008), distinguishable with any colour vision."""
LINES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)))
IN_GREY = ("-", (0, (4, 1.4)), (0, (1.2, 1.0)), (0, (5, 1.2, 1.2, 1.2)), (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))
"""Line styles that replace colours in greyscale prints."""
TARGET: Look = {"color": BAND, "lw": 2.8, "label": "target"}
SHADES = (
    (FLAG_SOFT_START, "soft start", "#b0b7bf", ""),
    (FLAG_BRIDGED, "bridged", "#E69F00", "////"),
    (FLAG_SLOWED, "slowed", "#009E73", "...."),
    (FLAG_SLIPPED, "slipped", "#CC79A7", "\\\\\\\\"),
    (FLAG_SATURATED, "sensor saturated", "#56B4E9", "++"),
    (FLAG_TRIPPED, "safe stop", "#D55E00", "xxx"),
)
"""Flagged intervals that are shaded: flag, name, colour, and hatch for greyscale prints."""
TICKS = {"major.size": 0.0, "color": "#555555", "labelcolor": INK}
STYLE: Data = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 8.0,
    "figure.titlesize": "medium",
    "figure.figsize": (7.4, 4.6),
    "axes.titlesize": "medium",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#777777",
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.xmargin": 0.0,
    "axes.formatter.limits": (-2, 5),
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.0,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "legend.columnspacing": 1.4,
    "legend.labelspacing": 0.2,
    "legend.borderaxespad": 0.2,
    "savefig.dpi": 170.0,
    "path.simplify_threshold": 0.4,
}
STYLE |= {f"{axis}tick.{key}": value for axis in "xy" for key, value in TICKS.items()}
ON_PAGE = STYLE | {"font.size": 9.0}
"""Style for the page of a test, with a larger font, because phones and paper show the page reduced in size."""
INCH = 25.4
PRINT = {
    "font.size": 7.5,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "svg.fonttype": "path",
    "svg.hashsalt": "rths_nodes",
    "pdf.fonttype": 42,
    "savefig.dpi": 600,
    "hatch.linewidth": 0.4,
}
"""Style for print: fonts of 7 to 7.5 points, embedded in the file."""


def on_paper(millimetres: float) -> Data:
    return STYLE | PRINT | {"figure.figsize": (millimetres / INCH, 0.68 * millimetres / INCH)}


def printed() -> float | None:
    """Return the figure width (inches) of the current print style, or None in a screen style."""
    width: float = matplotlib.rcParams["figure.figsize"][0]
    return width if matplotlib.rcParams["pdf.fonttype"] == PRINT["pdf.fonttype"] else None


@contextmanager
def in_style(style: Data | float | None = None) -> Iterator[None]:
    """Apply ``style`` to matplotlib's defaults inside a ``with`` block. The user's matplotlibrc is ignored.

    A number is the figure width (mm) and selects the print style. The default is the screen style.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(on_paper(style) if isinstance(style, (int, float)) else style or STYLE)
        yield


def styled(names: Iterable[str]) -> dict[str, Look]:
    """Return a distinct look for each name: colour, line style and, in print, line width."""
    looks: dict[str, Look] = {}
    for number, name in enumerate(names):
        repeat, colour = divmod(number, len(PALETTE))
        looks[name] = {"color": PALETTE[colour], "ls": LINES[repeat % len(LINES)]}
        if printed() is not None:
            looks[name] |= {"ls": IN_GREY[colour], "lw": 1.0 + 0.6 * (repeat % len(LINES))}
    return looks


def level(panel: Axes, value: float = 0.0, colour: str = ZERO, line: object = "-") -> None:
    panel.axhline(value, color=colour, ls=line, lw=0.7, zorder=1.5)


def limit(panel: Axes, value: float) -> None:
    if math.isfinite(value):
        level(panel, value, LIMIT, DASHES)


P = ParamSpec("P")
Words = tuple[str, str]
"""Title and caption of a figure."""
WIDTH, NARROW, PANEL, HIGHEST = 7.4, 0.75, 56.0, 247.0
"""``WIDTH``: width of a figure on the screen, inches. ``NARROW``: relative height of panels if a row wraps.
``PANEL``: smallest width of a panel on paper, mm. ``HIGHEST``: largest height of a figure on paper, mm."""
BOTTOM, LINE, LETTER, UPRIGHT, HANDLE = 0.25, 0.18, 0.0085, 0.008, 6.6
"""``BOTTOM``: height of the lowest axis label, inches. ``LINE``: height of a legend line, inches. ``LETTER``:
width of a letter in a legend, inches per point of font size. ``UPRIGHT``: the same width in a vertical label.
``HANDLE``: width of a legend entry without its text, in letters."""
TALL = 8.0
"""Largest figure height that is still readable on half a sheet, inches."""
RASTER, DOTS, SHADED = 12_000, 300, 700
"""``RASTER``: number of samples above which a loop (e.g. a hysteresis) is drawn as an image. ``DOTS``: largest
number of samples drawn with markers. ``SHADED``: number of intervals of a time axis shaded separately."""


class Base(NamedTuple):
    """Independent variable of curves: suffix of the table's file, values ``(n,)``, and column heading."""

    name: str
    values: Array
    head: str = "time (s)"


class Drawing(Figure):
    """Figure with a file name, title and caption. ``tables`` holds all samples of its curves."""

    def __init__(self, name: str = "", title: str = "", caption: str = "") -> None:
        super().__init__(layout="constrained")
        self.name, self.title, self.caption, self.heading, self.svg = name, title, caption, "", ""
        self.tables: list[tuple[Base, dict[str, Array]]] = []

    @property
    def tall(self) -> bool:
        return self.get_figheight() > TALL

    def panels(
        self, rows: int, columns: int = 1, height: float = 1.3, width: float = WIDTH, **options: Any
    ) -> NDArray[np.object_]:
        """Create panels ``(rows, columns)``, each ``height`` inches high. On narrow paper, long rows wrap.

        ``width`` is the width of the figure on the screen, inches. ``options`` are passed to ``Figure.subplots``.
        """
        width = printed() or width
        across = beside(columns)
        below = -(-columns // across)
        if below > 1:
            height *= NARROW
            options |= {"sharex": options.get("sharex") is True, "width_ratios": None}
        self.set_size_inches(width, rows * below * height + BOTTOM)
        panels = self.subplots(rows * below, across, squeeze=False, **options)
        grid: NDArray[np.object_] = np.reshape(panels, (rows, -1))
        for panel in grid[:, columns:].ravel():
            panel.remove()
        return grid[:, :columns]

    def curve(
        self,
        panel: Axes,
        base: Base,
        head: str,
        values: Array,
        over: tuple[str, Array] | None = None,
        rows: slice | None = None,
        **look: Any,
    ) -> None:
        """Draw ``values`` ``(n,)`` versus ``base``, or versus ``over`` (heading and values). NaN leaves a gap.

        ``rows`` selects the drawn samples. The table contains all samples; ``head`` is their column heading.
        """
        if over is not None:
            self.record(base, *over)
            panel.margins(x=0.04)
        self.record(base, head, values)
        x, y = base.values[: len(values)] if over is None else over[1], values
        if rows is not None:
            x, y = x[rows], y[rows]
        panel.plot(x, y, rasterized=over is not None and len(y) > RASTER, **look)

    def band(self, panel: Axes, base: Base, head: str, ends: Array, look: Look) -> None:
        """Fill the range between ``ends`` ``(2, n)``. In headings, ``lower`` or ``upper`` replaces ``{}``."""
        for values, end in zip(ends, ("lower", "upper"), strict=True):
            self.record(base, head.replace("{}", end), values)
        panel.fill_between(base.values[: ends.shape[1]], *ends, lw=0.0, **look)

    def record(self, base: Base, head: str, values: Array) -> None:
        for other, columns in self.tables:
            if base[::2] == other[::2] and np.array_equal(base.values, other.values):
                columns.setdefault(head, values)
                return
        self.tables.append((base, {head: values}))

    def finish(self) -> None:
        """Wrap and align the labels of the y axes. Draw a common legend for all panels that have no legend.

        On the screen, the heading of the figure is drawn above the legend. On paper, it belongs in the caption.
        """
        entries: dict[str, Artist] = {}
        letters = (self.get_figheight() - BOTTOM) / (UPRIGHT * float(matplotlib.rcParams["font.size"]))
        for panel in self.axes:
            if grid := panel.get_subplotspec():
                panel.set_ylabel(textwrap.fill(panel.get_ylabel(), int(letters / grid.get_gridspec().nrows)))
            if panel.get_legend() is None:
                for handle, name in zip(*panel.get_legend_handles_labels(), strict=True):
                    entries.setdefault(name, handle)
        heading = self.heading if printed() is None else ""
        if entries:
            across = columns_of([*entries], self.get_figwidth())
            reserved = LINE * (math.ceil(len(entries) / across) + len(heading.splitlines()))
            height = self.get_figheight() + reserved
            self.set_figheight(height)
            above = {"loc": "upper left", "ncols": across, "title": heading, "alignment": "left"}
            self.legend([*entries.values()], [*entries], **above)
            # matplotlib 3.6 cannot place a legend outside of the panels
            self.set_layout_engine("constrained", rect=(0.0, 0.0, 1.0, 1.0 - reserved / height))
        elif heading:
            self.suptitle(heading, x=0.01, ha="left")
        self.align_ylabels()


def save(
    path: Path, millimetres: float | None, draw: Callable[P, Drawing], *args: P.args, **options: P.kwargs
) -> None:
    """Save the figure that ``draw(*args, **options)`` returns as ``path`` (PNG, SVG or PDF by suffix).

    ``millimetres`` is the width in print, or None for the screen. Raises ConfigError if the figure is too high.
    """
    with in_style(millimetres):
        figure = draw(*args, **options)
        width, height = (round(INCH * size) for size in figure.get_size_inches())
        if millimetres and height > HIGHEST:
            raise ConfigError(
                f"--width = {width} mm: the figure would be {height} mm high; the height must be <= {HIGHEST:g} mm"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path) as beside:
            figure.savefig(beside)


def svg(figure: Figure, title: str) -> str:
    """Return ``figure`` as an SVG element for an HTML page, without XML prolog and with unique ids."""
    label = html.escape(title)
    figure.set_dpi(matplotlib.rcParams["savefig.dpi"])
    with matplotlib.rc_context({"svg.hashsalt": label}), io.StringIO() as buffer:
        FigureCanvasSVG(figure).print_svg(buffer)
        text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:xlink)?="[^"]*"', "", text)
    text = re.sub(r'<g id="[^"]*">', "<g>", re.sub(r'<g id="[^"]*"/>', "", text))
    text = re.sub(r"(font: [\d.]+px)[^;\"]*", r"\1 var(--face)", text)
    text = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(?<=\.\d\d)\d+|\n", "", path[0]), text)
    text = re.sub(r"\n\s*", "\n", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def beside(columns: int) -> int:
    """Return the number of panels, at most ``columns``, that fit side by side. On the screen, all panels fit."""
    width = printed()
    return columns if width is None else max(1, min(columns, int(width * INCH / PANEL)))


def columns_of(labels: Sequence[str], width: float) -> int:
    """Return the number of ``labels`` (at least 1) that fit in one line of a legend ``width`` inches wide."""
    letter = LETTER * float(matplotlib.rcParams["font.size"])
    return max(1, min(len(labels), int(width / letter / (max(map(len, labels)) + HANDLE))))


def legend_above(panel: Axes, title: str = "") -> None:
    entries = dict(zip(*panel.get_legend_handles_labels()[::-1], strict=True))
    if not entries:
        panel.set_title(title)
        return
    across = columns_of([*entries], panel.bbox.width / panel.figure.dpi)
    above = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "alignment": "left", "frameon": False}
    panel.legend([*entries.values()], [*entries], ncols=across, title=title or None, **above)


def label(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit not in ("", "1") else name


def on_page(figures: Iterable[Drawing]) -> list[Drawing]:
    with in_style(ON_PAGE):
        drawn = []
        for figure in figures:
            figure.svg = svg(figure, figure.title)
            drawn.append(figure)
        return drawn


def for_print(figures: Iterable[Drawing], millimetres: float) -> list[Drawing]:
    with in_style(millimetres):
        return [*figures]


def write_figures(figures: Sequence[Drawing], folder: Path, kind: str) -> None:
    """Write each figure as ``kind`` (pdf or svg), and all captions as ``captions.txt``, to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    captions = []
    for figure in figures:
        path = folder / f"{figure.name}.{kind}"
        date = {"CreationDate" if kind == "pdf" else "Date": None}
        with in_style(COLUMN), replaced(path) as beside:
            about = {"Title": figure.title, "Creator": f"rths_nodes {__version__}", **date}
            figure.savefig(beside, metadata=about)
        captions.append(f"{path.name}\n{figure.title}. {figure.caption}\n")
    write(folder / "captions.txt", "\n".join(captions).encode())


def write_curves(figures: Sequence[Drawing], folder: Path) -> None:
    """Write all samples of the curves to CSV files in ``folder``. The first column is the independent variable.

    An empty cell is a gap in a curve. Curves with different independent variables are in separate files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for figure in figures:
        for name, columns in tables(figure):
            write_columns({head: values.tolist() for head, values in columns.items()}, folder / f"{name}.csv")


def tables(figure: Drawing) -> list[tuple[str, dict[str, Array]]]:
    names: list[str] = []
    for base, _ in figure.tables:
        name = figure.name if len(figure.tables) == 1 else f"{figure.name}_{base.name}"
        names.append(name if name not in names else f"{name}_{len(names) + 1}")
    lengths = [max(map(len, columns.values())) for _, columns in figure.tables]
    rows = zip(lengths, figure.tables, strict=True)
    columns = [{base.head: base.values[:n]} | histories for n, (base, histories) in rows]
    return list(zip(names, columns, strict=True))


class Row(NamedTuple):
    """Quantity over time, drawn for each test.

    ``looks`` holds the look of each history by name. ``bases`` and ``shown`` hold base and histories of each test.
    A history is ``(n,)``, or ``(2, n)`` for a filled range; it is empty if a test lacks it. A faint line marks
    ``aim``, and dashed lines mark the finite ``limits``. If ``dots`` is true, the samples of a short history are
    marked. ``heads`` are the column headings in tables, by default made of row name, history name and unit. In the
    heading of a range, ``{}`` is replaced by ``lower`` or ``upper``.
    """

    name: str
    unit: str
    looks: Mapping[str, Look]
    bases: Sequence[Base]
    shown: Sequence[Sequence[Array] | Array]
    aim: float | None = 0.0
    limits: Sequence[float] = ()
    dots: bool = False
    heads: Sequence[str] = ()


class Recordings:
    """Data of the figures: a single test, or several overlaid tests.

    ``of`` (evaluation) and ``run`` belong to the first test. For a single test, each axis has a colour, flagged
    intervals are shaded, and time is the time of the recording. For several tests, each test has a colour and
    each axis has a panel.
    """

    def __init__(self, tests: Sequence[Aligned]) -> None:
        self.tests, self.first = tests, tests[0]
        self.of, self.run, self.alone = self.first.of, self.first.run, self.first.recorded
        self.samples = [Base("samples", test.time) for test in tests]
        self.counted = [Base("samples", test.counted) for test in tests]
        self.steps = [Base("steps", test.step_time) for test in tests]
        self.ends = 0.0, max([self.run.scenario.dt, *(float(test.time[-1]) for test in tests if len(test.time))])

    @property
    def axes(self) -> dict[str, Look]:
        return styled(self.run.axes)

    @property
    def looks(self) -> dict[str, Look]:
        return styled(test.name for test in self.tests)

    @classmethod
    def one(cls, evaluation: Evaluation) -> Recordings:
        return cls([Aligned("", evaluation, recorded=True)])

    def titled(self, title: str, result: str) -> str:
        return f"{title}: {result}" if self.alone else title

    def head(self, test: Aligned, name: str) -> str:
        return name if self.alone else f"{test.name}: {name}"

    def over_time(self, figure: Drawing, rows: Sequence[Row], height: float = 1.2) -> list[Axes]:
        """Draw each row in one panel or, for several tests, one panel per history. Return the nonempty panels."""
        numbers = range(max((len(row.looks) for row in rows), default=0))
        groups = [numbers] if self.alone else [range(n, n + 1) for n in numbers]
        parts = [(row, [n for n in group if n < len(row.looks)]) for group in groups for row in rows]
        parts = [(row, part) for row, part in parts if any(len(rows[n]) for rows in row.shown for n in part)]
        panels: list[Axes] = [*figure.panels(len(parts), height=height, sharex=True)[:, 0]] if parts else []
        for panel, (row, part) in zip(panels, parts, strict=True):
            name = row.name if self.alone else row.name + suffix_of(row.looks, part[0])
            self.time(panel, label(name, row.unit))
            for number in part:
                self.curves(figure, panel, row, number, slice(None) if row.dots else None)
            if row.aim is not None:
                level(panel, row.aim)
            for value in row.limits if self.alone else ():
                limit(panel, value)
        return panels

    def curves(
        self, figure: Drawing, panel: Axes, row: Row, number: int, rows: slice | None = None, name: str = ""
    ) -> None:
        """Draw history ``number`` of each test. For ``rows``, see :meth:`Drawing.curve`."""
        suffix, look = suffix_of(row.looks, number), [*row.looks.values()][number]
        for depth, (test, base, histories) in enumerate(zip(self.tests, row.bases, row.shown, strict=True)):
            if len(history := histories[number]):
                ranged = ", {}" * (history.ndim > 1)
                heading = row.heads[number] if row.heads else label(row.name + suffix + ranged, row.unit)
                head = self.head(test, heading)
                style: Data = {"label": name or suffix.strip()} | look
                if not self.alone:
                    style = {"label": test.name, "zorder": 2.9 - 0.9 * depth / len(self.tests)}
                    style |= self.looks[test.name]
                if history.ndim > 1:
                    figure.band(panel, base, head, history, style)
                    continue
                if rows is not None and len(history[rows]) <= DOTS:
                    style |= {"marker": ".", "ms": 2.5}
                figure.curve(panel, base, head, history, rows=rows, **style)

    def time(self, panel: Axes, title: str) -> None:
        """Label the panel and, for a single test, shade flagged intervals. Short intervals are widened."""
        run, dt, least = self.run, self.run.scenario.dt, max(1, len(self.run.time) // SHADED)
        for flag, name, colour, hatch in SHADES if self.alone else ():
            marked = (run.flags & flag) != 0
            if marked.any():
                cells = np.add.reduceat(marked, np.arange(0, len(marked), least)) > 0
                edges = np.flatnonzero(np.diff(np.concatenate(([0], cells, [0])))).reshape(-1, 2) * least
                # sample k is at the end of its period
                stretches = [((first - 1) * dt, (end - first) * dt) for first, end in edges.tolist()]
                look: Look = {"color": colour, "alpha": 0.3}
                if printed() is not None:
                    look = {"facecolor": "#e8e8e8", "edgecolor": "#8c8c8c", "hatch": hatch}
                look |= {"lw": 0.0, "label": f"{name} ({int(marked.sum())})"}
                panel.broken_barh(stretches, (0.0, 1.0), transform=panel.get_xaxis_transform(), **look)
        panel.set(xlim=self.ends, ylabel=title)
        grid = panel.get_subplotspec()
        if grid is None or grid.is_last_row():
            panel.set_xlabel("time (s)")


def suffix_of(names: Iterable[str], number: int) -> str:
    several = [*names]
    return f" {several[number]}" if len(several) > 1 else ""
