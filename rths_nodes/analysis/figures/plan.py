# SPDX-License-Identifier: Apache-2.0
"""Content of a figure, as numbers and words: the one description from which it is drawn and its table is written.

A plan knows neither matplotlib nor the size of the paper; ``render.py`` draws it, ``files.py`` writes its table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rths_nodes.analysis.figures.style import ZERO, Entry
from rths_nodes.core.samples import Array

Column = tuple[str, Array]
"""Head, with its unit, and values ``(n,)`` of a column of a table."""
COLUMNS = 700
"""Dots across a plot over time: finer than this nothing is drawn."""


class Quantity(NamedTuple):
    """A name with its unit; as text, the label of an axis and the head of a column."""

    name: str
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.unit})" if self.unit not in ("", "1") else self.name


TIME = Quantity("time", "s")
DISPLACEMENT, FORCE = Quantity("displacement", "mm"), Quantity("restoring force", "kN")


@dataclass(frozen=True, eq=False)
class Base:
    """Independent variable of a table: a ``name`` for its file, and the first column ``values (n,)``."""

    name: str
    of: Quantity
    values: Array

    def first(self, n: int) -> Base:
        return self if n == len(self.values) else Base(self.name, self.of, self.values[:n])


class Look(NamedTuple):
    """Colour, style and width (points) of a line; ``dots``: with its single values, if there are few."""

    colour: str
    line: object = "-"
    width: float = 1.0
    dots: bool = False

    @classmethod
    def of(cls, entry: Entry, width: float = 1.0, dots: bool = False) -> Look:
        """Return a look with the colour and line style of an entry of a legend."""
        return cls(entry[1], entry[2], width, dots)


@dataclass(frozen=True, eq=False)
class Curve:
    """``values (n,)`` of a quantity over ``base``, or over ``across (n,)`` of another; nan: nothing is drawn."""

    base: Base
    of: Quantity
    values: Array
    look: Look
    over: Quantity | None = None
    across: Array | None = None

    @property
    def x(self) -> Array:
        """Values on the horizontal axis."""
        return self.base.values if self.across is None else self.across

    def columns(self) -> list[Column]:
        """Return the columns of its table, without that of the base."""
        own = [(str(self.of), self.values)]
        return own if self.across is None else [(str(self.over), self.across), *own]


@dataclass(frozen=True, eq=False)
class Band:
    """All between ``lower`` and ``upper (n,)`` of a quantity."""

    base: Base
    of: Quantity
    lower: Array
    upper: Array
    colour: str

    def columns(self) -> list[Column]:
        """Return the columns of its table, without that of the base."""
        name, unit = self.of
        return [
            (str(Quantity(f"{name}, {end}", unit)), values)
            for end, values in (("lower", self.lower), ("upper", self.upper))
        ]


@dataclass(frozen=True, eq=False)
class Bars:
    """A histogram: ``counts (n,)`` between the values of the base and ``upper (n,)``, of the quantity ``to``."""

    base: Base
    of: Quantity
    to: Quantity
    upper: Array
    counts: Array
    colour: str

    @property
    def edges(self) -> Array:
        """``(n + 1,)``."""
        return np.append(self.base.values[:1], self.upper)

    def columns(self) -> list[Column]:
        return [(str(self.to), self.upper), (str(self.of), self.counts)]


Shown = Curve | Band | Bars


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes with what is drawn between them, the first at the back."""

    x: Quantity
    y: Quantity
    shown: Sequence[Shown]
    title: str = ""
    span: tuple[float, float] | None = None
    """Part of the horizontal axis that is shown; None: all, with a margin unless ``over_time``."""
    limits: tuple[float, float] | None = None
    """Limits of the vertical axis; None: those of what is drawn."""
    levels: Sequence[tuple[float, Look]] = ()
    """Horizontal lines."""
    marks: Sequence[tuple[float, Look]] = ()
    """Vertical lines."""
    frame: tuple[float, float] | None = None
    """Part of the horizontal axis that another panel magnifies."""
    over_time: bool = False
    """Flagged stretches of time are shaded."""
    diagonal: tuple[float, float] | None = None
    """Ends of a line at 45 degrees."""
    square: bool = False
    """The unit is as long on both axes."""
    logarithmic: str = ""
    """Axes with logarithmic scale: ``x``, ``y`` or both."""
    ticks: Sequence[float] = ()
    """Numbers on the horizontal axis; empty: chosen by the drawing."""
    legend: Sequence[Entry] = ()
    """Legend of this panel alone."""
    columns: int = COLUMNS
    """Dots across it."""


ZERO_LINE = (0.0, Look(ZERO, "-", 0.6))
"""A faint line at zero."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A figure: ``name`` (of its files), title, caption, rows of panels with their heights (inches)."""

    name: str
    title: str
    caption: str
    rows: Sequence[Sequence[Panel]]
    heights: Sequence[float]
    legend: Sequence[Entry] = ()
    shades: Sequence[Entry] = ()
    """Label, colour and stretches (s) of flagged samples."""
    widths: Sequence[float] = (1.0,)
    """Shares of the panels in a row."""
    across: int = 0
    """Places in a row of square panels, if they do not have these shares."""

    @property
    def panels(self) -> list[Panel]:
        return [panel for row in self.rows for panel in row]
