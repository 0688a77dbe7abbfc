# SPDX-License-Identifier: Apache-2.0
"""Colours, line styles and matplotlib settings of the figures, on the screen and on paper."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.lines import Line2D

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import (
    FLAG_BRIDGED,
    FLAG_SATURATED,
    FLAG_SLIPPED,
    FLAG_SLOWED,
    FLAG_SOFT_START,
    FLAG_TRIPPED,
)

P = ParamSpec("P")
Drawing = tuple[str, str, Callable[[], Figure]]
"""Title and caption of a figure, and the function that draws the figure."""
Entry = tuple[str, str, Any]
"""Legend entry: label, colour, line style."""

INK, FAINT, BAND, ZERO = "#1a1a1a", "#8c8c8c", "#bdbdbd", "#999999"
ERROR = "#8e4585"
"""Colour of the energy that tracking errors add."""
LIMIT = "#b3261e"
BAND_WIDTH = 2.8
"""Line width of the target, points."""
DASHES = (0, (3, 1.2))
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
"""Colours of Okabe & Ito (2008), distinguishable with any colour vision."""
LINES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)))
SHADES = (
    (FLAG_SOFT_START, "soft start", "#b0b7bf"),
    (FLAG_BRIDGED, "bridged", "#E69F00"),
    (FLAG_SLOWED, "slowed", "#009E73"),
    (FLAG_SLIPPED, "slipped", "#CC79A7"),
    (FLAG_SATURATED, "sensor saturated", "#56B4E9"),
    (FLAG_TRIPPED, "safe stop", "#D55E00"),
)
IN_GREY = ("-", (0, (4, 1.4)), (0, (1.2, 1.0)), (0, (5, 1.2, 1.2, 1.2)), (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))
HATCHES = dict(
    zip((colour for _, _, colour in SHADES), ("", "////", "....", "\\\\\\\\", "++", "xxx"), strict=True)
)
RASTER = 170.0
"""Resolution of rasterized parts, dots per inch."""
STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "axes.labelsize": 8.0,
    "axes.titlesize": 8.0,
    "axes.titlelocation": "left",
    "xtick.major.size": 0.0,
    "ytick.major.size": 0.0,
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
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.0,
    "lines.solid_joinstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "figure.dpi": 100,
    "figure.figsize": (7.4, 4.6),
    "savefig.dpi": RASTER,
    "path.simplify_threshold": 0.4,
}

ON_PAGE = STYLE | dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize", "legend.fontsize"), 9.0)
"""Style on a test's page, which phones and paper show at a reduced size."""

INCH = 25.4
HIGHEST = 247.0
"""Largest height of a figure on a journal page, mm."""
PANEL = 56.0
"""Smallest width of a panel on paper, mm."""
SMALLEST, LOW = 0.72, 1.2
"""Smallest factor on the height of a panel for paper; smallest height of a panel including labels, inches."""
LETTER, BESIDE = 0.0085, 6.6
"""Width of a letter in a legend, inches per point; width of an entry's line and gaps, in letters."""
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
"""Style on paper: one font, 7 to 7.5 points, embedded in the file."""


def on_paper(millimetres: float) -> Mapping[str, Any]:
    return STYLE | PRINT | {"figure.figsize": (millimetres / INCH, 0.68 * millimetres / INCH)}


def printed() -> float | None:
    """Return the paper width of the current style, inches; None on the screen."""
    width: float = matplotlib.rcParams["figure.figsize"][0]
    return width if matplotlib.rcParams["pdf.fonttype"] == PRINT["pdf.fonttype"] else None


@contextmanager
def in_style(style: Mapping[str, Any] = STYLE) -> Iterator[None]:
    """Apply ``style`` to matplotlib's defaults inside a ``with`` block. The user's matplotlibrc is ignored."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(style)
        yield


def save(
    path: Path, millimetres: float | None, draw: Callable[P, Figure], *args: P.args, **options: P.kwargs
) -> None:
    """Save the figure that ``draw`` returns as ``path`` (PNG, SVG or PDF by suffix).

    ``millimetres`` is the width of the paper, None for the screen. Raises ConfigError if the figure does not fit.
    """
    with in_style(on_paper(millimetres) if millimetres else STYLE):
        figure = draw(*args, **options)
        if millimetres:
            fit(figure)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


class PrintFigure(Figure):
    """Figure whose files always have the style for paper."""

    def savefig(self, *places: Any, **options: Any) -> None:
        with in_style(on_paper(INCH * self.get_figwidth())):
            super().savefig(*places, **options)


def in_grey_lines(drawn: Artist) -> None:
    for line in drawn.findobj(Line2D):
        if isinstance(line, Line2D) and line.get_color() in PALETTE and line.get_linestyle() == "-":
            _, dashes, thick = in_grey(str(line.get_color()), "-", line.get_linewidth())
            line.set(linestyle=dashes, linewidth=thick)


def fit(figure: Figure) -> None:
    """Fit ``figure`` to the paper width of the current style: arrange panels, set the size and the line styles.

    The title is removed. A figure that already has the paper's width keeps its layout and title. Raises
    ConfigError if the figure would be too tall.
    """
    width = matplotlib.rcParams["figure.figsize"][0]
    in_grey_lines(figure)
    if abs(figure.get_figwidth() - width) < 1e-9:
        _check_height(figure)
        return
    for text in figure.texts:  # the title belongs in the caption
        text.set_text("")
        text.set_in_layout(False)
    rows = [[*row] for _, row in groupby(figure.axes, key=lambda panel: _subplot(panel).rowspan.start)]
    across = max(1, int(width * INCH / PANEL))
    pieces = [row[first : first + across] for row in rows for first in range(0, len(row), across)]
    before = figure.get_figwidth() / max(map(len, rows))
    across = max(map(len, pieces))
    height = min(1.0, max(SMALLEST, width / across / before)) * figure.get_figheight() * len(pieces) / len(rows)
    figure.set_size_inches(width, max(LOW * len(pieces), min(height, HIGHEST / INCH)))
    _check_height(figure)
    grid = figure.add_gridspec(len(pieces), across)
    for number, piece in enumerate(pieces):
        for column, panel in enumerate(piece):
            panel.set_subplotspec(grid[number, column])
        if len(pieces) > len(rows):
            piece[0].tick_params(labelleft=True)
            piece[0].set_ylabel(piece[0].get_ylabel() or _shared_label(piece[0], rows))


def _check_height(figure: Figure) -> None:
    width, height = (round(INCH * size) for size in figure.get_size_inches())
    if height > HIGHEST:
        raise ConfigError(f"--width = {width} mm: the figure would be {height} mm high; must be <= {HIGHEST:g} mm")


def _subplot(panel: Axes) -> SubplotSpec:
    subplot = panel.get_subplotspec()
    assert subplot is not None
    return subplot


def _shared_label(panel: Axes, rows: Sequence[Sequence[Axes]]) -> str:
    first = next(row[0] for row in rows if panel in row)
    return first.get_ylabel() if panel.get_shared_y_axes().joined(panel, first) else ""


def columns_of(labels: Sequence[str], width: float) -> int:
    """Return the number of ``labels`` that fit in one legend line of ``width`` inches, at least 1."""
    letter = LETTER * float(matplotlib.rcParams["font.size"])
    return max(1, min(len(labels), int(width / letter / (max(map(len, labels)) + BESIDE))))


def legend_above(panel: Axes, title: str = "", panels: int = 1) -> None:
    """Draw a legend above a panel. ``panels`` is the number of panels side by side on wide paper."""
    entries = dict(zip(*panel.get_legend_handles_labels()[::-1], strict=True))  # list equal curves once
    width = matplotlib.rcParams["figure.figsize"][0]
    space = width / min(panels, max(1, int(width * INCH / PANEL)))
    look = {"borderaxespad": 0.2, "handlelength": 1.8, "columnspacing": 1.4, "labelspacing": 0.2}
    if entries:
        panel.legend(
            entries.values(),
            entries.keys(),
            loc="lower left",
            bbox_to_anchor=(0.0, 1.0),
            ncols=columns_of([*entries], space - 0.5),
            title=title or None,
            alignment="left",
            frameon=False,
            title_fontsize=matplotlib.rcParams["axes.titlesize"],
            **look,
        )
    elif title:
        panel.set_title(title)


def svg(figure: Figure, title: str) -> str:
    """Return the figure as an SVG element of the page, without prolog, with unique ids.

    ``savefig`` would draw the figure twice; ``print_svg`` draws it once.
    """
    label = html.escape(title)
    figure.set_dpi(RASTER)
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


def styled(names: Iterable[str]) -> list[Entry]:
    n = len(PALETTE)
    return [(name, PALETTE[k % n], LINES[k // n % len(LINES)]) for k, name in enumerate(names)]


def in_grey(colour: str, line: object, width: float) -> tuple[str, object, float]:
    if colour not in PALETTE:
        return colour, line, width
    again = LINES.index(line) if line in LINES else 0
    return colour, IN_GREY[PALETTE.index(colour)], width * (1.0 + 0.6 * again)
