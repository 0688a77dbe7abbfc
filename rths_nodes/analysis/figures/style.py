# SPDX-License-Identifier: Apache-2.0
"""Colours, line styles and the matplotlib settings of the figures."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from rths_nodes.core.samples import (
    FLAG_BRIDGED,
    FLAG_SATURATED,
    FLAG_SLIPPED,
    FLAG_SLOWED,
    FLAG_SOFT_START,
    FLAG_TRIPPED,
)

P = ParamSpec("P")
Entry = tuple[str, str, Any]
"""Entry of a legend: label, colour, line style."""

INK, FAINT, BAND, ZERO = "#1a1a1a", "#8c8c8c", "#bdbdbd", "#999999"
ERROR = "#8e4585"
"""Energy added by errors."""
LIMIT = "#b3261e"
"""Colour of a limit."""
BAND_WIDTH = 2.8
"""Line width of the target, points: a broad band below the measured displacement."""
DASHES = (0, (3, 1.2))
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
"""Okabe & Ito (2008): distinguishable with any colour vision. One colour per axis."""
LINES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)))
"""Line styles of the first, second and third six."""
SHADES = (
    (FLAG_SOFT_START, "soft start", "#b0b7bf"),
    (FLAG_BRIDGED, "bridged", "#E69F00"),
    (FLAG_SLOWED, "slowed", "#009E73"),
    (FLAG_SLIPPED, "slipped", "#CC79A7"),
    (FLAG_SATURATED, "sensor saturated", "#56B4E9"),
    (FLAG_TRIPPED, "safe stop", "#D55E00"),
)
IN_GREY = ("-", (0, (4, 1.4)), (0, (1.2, 1.0)), (0, (5, 1.2, 1.2, 1.2)), (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))
"""Line styles of the six colours on grey paper."""
HATCHES = dict(
    zip((colour for _, _, colour in SHADES), ("", "////", "....", "\\\\\\\\", "++", "xxx"), strict=True)
)
"""Hatches of the shades on grey paper."""
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
    "savefig.dpi": RASTER,
    "path.simplify_threshold": 0.4,
}

ON_PAGE = STYLE | dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize", "legend.fontsize"), 9.0)
"""Style on the page of a test, which phones and paper show at a reduced size."""


@contextmanager
def in_style(style: Mapping[str, Any] = STYLE) -> Iterator[None]:
    """Draw in this style on matplotlib's defaults, whatever the user's matplotlibrc has."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(style)
        yield


def save(path: Path, draw: Callable[P, Figure], *args: P.args, **options: P.kwargs) -> None:
    """Save what ``draw`` draws, in this style, as ``path`` (PNG, SVG or PDF by its suffix). Raises OSError."""
    with in_style():
        figure = draw(*args, **options)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def svg(figure: Figure, title: str) -> str:
    """Return the figure as an SVG element of the page, without prolog, with unique ids.

    ``savefig`` would draw it twice, once to find its layout, which ``print_svg`` does, too.
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
    """Return a colour and a line style for each name."""
    n = len(PALETTE)
    return [(name, PALETTE[k % n], LINES[k // n % len(LINES)]) for k, name in enumerate(names)]


def in_grey(colour: str, line: object, width: float) -> tuple[str, object, float]:
    """Return colour, style and width of a line that is distinguishable in grey: by dashes, then by width."""
    if colour not in PALETTE:
        return colour, line, width
    again = LINES.index(line) if line in LINES else 0
    return colour, IN_GREY[PALETTE.index(colour)], width * (1.0 + 0.6 * again)
