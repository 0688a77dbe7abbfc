# SPDX-License-Identifier: Apache-2.0
"""Results of many runs for Python and notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from rths_nodes.analysis.paper import COLUMN
from rths_nodes.analysis.study_table import StudyTable, in_cell
from rths_nodes.analysis.units import rounded
from rths_nodes.app.studies import competition
from rths_nodes.core.errors import ConfigError

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


class Study(StudyTable):
    __doc__ = StudyTable.__doc__

    @classmethod
    def from_table(cls, table: StudyTable) -> Study:
        return cls(**{field.name: getattr(table, field.name) for field in fields(table)})

    def __repr__(self) -> str:
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes().items())
        return f"<Study {self.title}: {outcomes}; {', '.join(self.indices)}>"

    def _repr_html_(self) -> str:
        cells, rows = self.cells(), []
        for index in self.indices:
            for cell, spread in zip(cells, self.spreads(index, cells), strict=True):
                values = spread.median, spread.low, spread.high, spread.worst
                rows.append([self.title_of(index), cell.group, spread.finished, *map(in_cell, values)])
        return _table(["index", "group", "finished", "median", "5 %", "95 %", "worst"], rows)

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a pandas table with one row per run: outcome, factors, drawn values, indices.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        ConfigError
            If pandas is not installed.

        Examples
        --------
        >>> import rths_nodes
        >>> levels = {"compensator.alpha_es": {"list": [15, 29]}}
        >>> table = rths_nodes.study(scenario="predefined_sine", set={"duration": 0.5}, factors=levels, jobs=1)
        >>> table.to_dataframe()["outcome"].tolist()
        ['finished', 'finished']
        """
        return _pandas().DataFrame({key: value for key, value in self.columns.items() if key != "scenario"})

    def plot(self, index: str, ax: Axes | None = None, style: str | None = None, width: float = COLUMN) -> Axes:
        """Draw the magnitudes of an index by group: runs, median, and range from 5 to 95 %.

        Parameters
        ----------
        index : str
            Name in ``indices``, or another index column.
        ax, style, width : optional
            As in :meth:`rths_nodes.Run.plot`.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ConfigError
            If the index is unknown.

        Examples
        --------
        >>> import rths_nodes
        >>> from matplotlib.figure import Figure
        >>> short, levels = {"duration": 0.5}, {"compensator.alpha_es": {"list": [15, 29]}}
        >>> table = rths_nodes.study(scenario="predefined_sine", set=short, factors=levels, jobs=1)
        >>> table.plot("max_error_mm", Figure().subplots()).get_xlabel()
        'largest control error (mm)'
        """
        from rths_nodes.analysis.figures.plot import plot_by_label

        return plot_by_label(
            self, index, {group: rows.tolist() for group, rows in self.groups.items()}, ax, style, width
        )


class Scoreboard(competition.Outcome):
    __doc__ = competition.Outcome.__doc__

    def __repr__(self) -> str:
        best = next((score for score in self.scores if score.runs), None)
        first = "" if best is None else f"; best {best.law}, {self.axes[0]} {rounded(best.high[self.axes[0]])}"
        return f"<Scoreboard {self.table.scenario}: {len(self.table)} runs{first}>"

    def _repr_html_(self) -> str:
        rows = [
            [rank, law, block, *(rounded(values.get(index)) for index in self.table.indices), outcome]
            for rank, law, block, values, outcome, _ in self.rows
        ]
        return _table(["place", "compensator", "block", *self.headings, "outcome"], rows)

    def to_dataframe(self) -> pandas.DataFrame:
        """Return the ranking as a pandas table: place, compensator, runs, and the spread of each index.

        Returns
        -------
        pandas.DataFrame

        Raises
        ------
        ConfigError
            If pandas is not installed.

        Examples
        --------
        >>> import rths_nodes
        >>> short = {"duration": 1.0, "servo_rate": 512.0}
        >>> board = rths_nodes.scoreboard("chen_ricles_2010", short, laws=["none", "inverse"], jobs=1)
        >>> board.to_dataframe()["compensator"].tolist()
        ['inverse', 'none']
        """
        return _pandas().DataFrame(self.columns())

    def plot(
        self, index: str = "", ax: Axes | None = None, style: str | None = None, width: float = COLUMN
    ) -> Axes:
        """Draw the magnitudes of an index by compensator, as in :meth:`Study.plot`.

        Parameters
        ----------
        index : str
            Index; default: the ranking index.
        ax, style, width : optional
            As in :meth:`rths_nodes.Run.plot`.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ConfigError
            If the index is unknown.

        Examples
        --------
        >>> import rths_nodes
        >>> from matplotlib.figure import Figure
        >>> short = {"duration": 1.0, "servo_rate": 512.0}
        >>> board = rths_nodes.scoreboard("chen_ricles_2010", short, laws=["none", "inverse"], jobs=1)
        >>> [label.get_text() for label in board.plot("J2", Figure().subplots()).get_yticklabels()]
        ['none', 'inverse']
        """
        from rths_nodes.analysis.figures.plot import plot_by_label

        laws = self.table.columns["law"]
        rows = {law: [n for n, other in enumerate(laws) if other == law] for law in dict.fromkeys(laws)}
        return plot_by_label(self.table, index or self.axes[0], rows, ax, style, width)


def _pandas() -> pandas:
    try:
        import pandas
    except ImportError:
        raise ConfigError("to_dataframe: needs pandas (pip install pandas)") from None
    return pandas


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["".join(f"<th>{html.escape(head)}</th>" for head in heads)]
    lines += ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
