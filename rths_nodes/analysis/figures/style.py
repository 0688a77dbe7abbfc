# SPDX-License-Identifier: Apache-2.0
"""Colours, line styles and matplotlib settings of the figures, on the screen and on paper."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import matplotlib
from matplotlib.axes import Axes

from rths_nodes.core.data import Data
from rths_nodes.core.samples import (
    FLAG_BRIDGED,
    FLAG_SATURATED,
    FLAG_SLIPPED,
    FLAG_SLOWED,
    FLAG_SOFT_START,
    FLAG_TRIPPED,
)

Look = Data
"""Options of a matplotlib line."""
INK, FAINT, BAND, ZERO, LIMIT = "#1a1a1a", "#8c8c8c", "#bdbdbd", "#999999", "#b3261e"
DASHES = (0, (3, 1.2))
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
"""Colours of Okabe & Ito (2008), distinguishable with any colour vision."""
LINES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)))
IN_GREY = ("-", (0, (4, 1.4)), (0, (1.2, 1.0)), (0, (5, 1.2, 1.2, 1.2)), (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))
"""Line styles that replace colours on grey paper."""
TARGET: Look = {"color": BAND, "lw": 2.8, "label": "target"}
SHADES = (
    (FLAG_SOFT_START, "soft start", "#b0b7bf", ""),
    (FLAG_BRIDGED, "bridged", "#E69F00", "////"),
    (FLAG_SLOWED, "slowed", "#009E73", "...."),
    (FLAG_SLIPPED, "slipped", "#CC79A7", "\\\\\\\\"),
    (FLAG_SATURATED, "sensor saturated", "#56B4E9", "++"),
    (FLAG_TRIPPED, "safe stop", "#D55E00", "xxx"),
)
"""Flag, name, colour, and hatch on grey paper, of each kind of flagged stretch."""
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
"""Style on a test's page, which phones and paper show at a reduced size."""
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
"""Style on paper: one font, 7 to 7.5 points, embedded in the file."""


def on_paper(millimetres: float) -> Data:
    return STYLE | PRINT | {"figure.figsize": (millimetres / INCH, 0.68 * millimetres / INCH)}


def printed() -> float | None:
    """Return the paper width of the current style, inches; None on the screen."""
    width: float = matplotlib.rcParams["figure.figsize"][0]
    return width if matplotlib.rcParams["pdf.fonttype"] == PRINT["pdf.fonttype"] else None


@contextmanager
def in_style(style: Data | float | None = None) -> Iterator[None]:
    """Apply ``style`` to matplotlib's defaults inside a ``with`` block. The user's matplotlibrc is ignored.

    A number is the width of paper, mm. The default is the style for the screen.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(on_paper(style) if isinstance(style, (int, float)) else style or STYLE)
        yield


def styled(names: Iterable[str]) -> dict[str, Look]:
    """Return a distinct look for each name: by colour on the screen, also by dashes and width on paper."""
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
