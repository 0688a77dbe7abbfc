# SPDX-License-Identifier: Apache-2.0
"""Results of many runs for Python and notebooks."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rths_nodes.analysis.paper import COLUMN
from rths_nodes.analysis.published_indices import heading
from rths_nodes.analysis.study_table import HIGH, StudyTable, index_title, index_unit
from rths_nodes.analysis.units import rounded
from rths_nodes.core.errors import ConfigError, show

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from rths_nodes.analysis.figures.drawing import Drawing
    from rths_nodes.app.studies.candidates import Identified
    from rths_nodes.loop.scenario.schema import Case


class Study(StudyTable):
    __doc__ = StudyTable.__doc__

    def __repr__(self) -> str:
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes().items())
        return f"<Study {self.title}: {outcomes}; {', '.join(self.indices)}>"

    def _repr_html_(self) -> str:
        rows = [
            [self.title_of(index), group, *cells] for index in self.indices for group, cells in self.summary(index)
        ]
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

        rows = {group: rows.tolist() for group, rows in self.groups.items()}
        return plot_by_label(self, index, rows, ax, style, width)


@dataclass(frozen=True)
class Score:
    """Results of a compensator in a block of runs.

    ``median``, ``high`` and ``worst`` are magnitudes of each index; HIGH % of the runs do not exceed ``high``.
    ``failures`` is the number of unfinished runs. ``what`` is the reason why runs failed or why the compensator
    took no part. ``place`` is the rank, empty without runs, with an = if the seeds do not separate neighbouring
    ranks.
    """

    law: str
    block: str
    runs: int
    failures: int
    what: str
    median: Mapping[str, float]
    high: Mapping[str, float]
    worst: Mapping[str, float]
    place: str = ""

    @property
    def unstable(self) -> float:
        return self.failures / self.runs if self.runs else math.nan

    @property
    def kind(self) -> str:
        return "unstable" if self.failures else "stable" if self.runs else "not run"

    def outcome(self) -> str:
        failed = f"{self.failures} of {self.runs} runs, " if self.failures else ""
        return f"{self.kind}: {failed}{self.what}" if self.kind != "stable" else self.kind


@dataclass(frozen=True, eq=False)
class Scoreboard:
    """Scoreboard with its runs and published values, the identification of the rig, and settings by law.

    ``which`` is the set that numbers the indices. ``axes`` are the tracking index, which determines the rank, and
    the response index.
    """

    table: Study
    scores: Sequence[Score]
    published: Mapping[str, Case]
    axes: tuple[str, str]
    which: str
    identified: Identified
    settings: Mapping[str, Mapping[str, object]]
    facts: Mapping[str, str]

    @property
    def headings(self) -> list[str]:
        numbers = {index: heading(self.which, index) for index in self.table.indices}
        return [
            index_title(index) if number == index else f"{number} ({index_unit(index)})"
            for index, number in numbers.items()
        ]

    @property
    def rows(self) -> list[tuple[str, str, str, Mapping[str, float], str, str]]:
        """Place, name, block, high value of each index, outcome and kind; rows of published values are last."""
        rows = [(row.place, row.law, row.block, row.high, row.outcome(), row.kind) for row in self.scores]
        for name, case in self.published.items():
            note = f"published: {case.note}" if case.note else "published"
            rows.append(("", show(name).strip("'"), "", case.published, note, "published"))
        return rows

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
        return _pandas().DataFrame(columns(self))

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


def drawings(board: Scoreboard) -> Iterator[Drawing]:
    from rths_nodes.analysis.figures.studies import scoreboard_drawings

    levels, rows = board.table.columns["law"], [row for row in board.scores if row.runs]
    labels = [label for row in rows for label in (f"{row.law} {row.block}", row.law) if label in levels]
    return scoreboard_drawings(board.table, labels, *board.axes)


def columns(board: Scoreboard) -> dict[str, list[object]]:
    scores = board.scores
    fields = {"place": "place", "compensator": "law", "block": "block", "runs": "runs", "failures": "failures"}
    columns = {name: [getattr(score, field) for score in scores] for name, field in fields.items()}
    columns["outcome"] = [score.outcome() for score in scores]
    for index in board.table.indices:
        columns[f"{index}_median"] = [score.median.get(index) for score in scores]
        columns[f"{index}_{HIGH:g}_percent"] = [score.high.get(index) for score in scores]
        columns[f"{index}_worst"] = [score.worst.get(index) for score in scores]
    return columns


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
