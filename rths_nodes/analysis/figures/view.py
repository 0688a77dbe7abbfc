# SPDX-License-Identifier: Apache-2.0
"""Tests in figures: a single test over its recording, or several overlaid tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from rths_nodes.analysis.figures.sheet import Base, Sheet, label, level
from rths_nodes.analysis.figures.style import SHADES, ZERO, Entry, styled
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.overlay import Aligned
from rths_nodes.core.samples import Array
from rths_nodes.recording.run import Run

DOTS = 700
"""Dots across a plot over time. A stretch of flagged samples is at least one dot wide."""
Words = tuple[str, str]
"""Title and caption of a figure."""
Column = tuple[int, Entry, str]
"""Number of an axis or degree of freedom, its style, and the suffix of its quantities."""


class View:
    """A single test, or several overlaid tests with the first in front. ``of`` and ``run`` belong to the first
    test.

    A single test is drawn over its recording, with its flagged stretches. Each axis has a colour, and all axes
    share a panel. If there are several tests, each test has a colour, and each axis a panel.
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
        """Return legend entries of the tests. For a single test, return its ``entries`` if there are several."""
        return self.entries if not self.alone else entries if len(entries) > 1 else []

    def legend(self, sheet: Sheet, entries: Sequence[Entry]) -> None:
        sheet.legend(entries, [(name, colour) for name, colour, _ in self.shades])

    def titled(self, title: str, result: str) -> str:
        return f"{title}: {result}" if self.alone else title

    def groups(self, entries: Sequence[Entry]) -> list[list[Column]]:
        """Return the entries of each panel: all entries for a single test, otherwise one each."""
        columns = [
            (number, entry, f" {entry[0]}".rstrip() if len(entries) > 1 else "")
            for number, entry in enumerate(entries)
        ]
        return [columns] if self.alone else [[column] for column in columns]

    def head(self, test: Aligned, name: str) -> str:
        return name if self.alone else f"{test.name}: {name}"

    def time(self, sheet: Sheet, panel: Axes, title: str) -> None:
        """Set up a panel over the time of the longest test, with the flagged stretches."""
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

        ``shown`` has base and values ``(n,)`` of each test; the values are empty if the test lacks them.
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
        """Draw a quantity (name, unit) in a separate panel; return None if no test has it.

        ``shown`` has, for each test, a base and a row ``(n,)`` for each entry of the figure; rows may be empty.
        ``aim`` is the value of a faint line. With ``dots``, single values are marked.
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
    """Return label, colour, and start and length (s) of the flagged stretches, widened to be visible."""
    shades = []
    least, dt = max(1, len(run.time) // DOTS), run.scenario.dt
    for flag, name, colour in SHADES:
        marked = (run.flags & flag) != 0
        if marked.any():
            cells = np.add.reduceat(marked, np.arange(0, len(marked), least)) > 0
            edges = np.flatnonzero(np.diff(np.concatenate(([0], cells, [0])))).reshape(-1, 2)
            # sample k is at the end of its period
            stretches = [((first * least - 1) * dt, (end - first) * least * dt) for first, end in edges.tolist()]
            shades.append((f"{name} ({int(marked.sum())})", colour, stretches))
    return shades
