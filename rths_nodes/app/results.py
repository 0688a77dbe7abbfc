# SPDX-License-Identifier: Apache-2.0
"""Histories and results of a test, for Python and notebooks."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rths_nodes.analysis.units import COLUMN, MM, MM2, MS, shown
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.recording import run

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

INDICES = (
    ("max error", "max_error_m", MM, "mm"),
    ("of max target", "max_error_percent", 1.0, "%"),
    ("error norm", "error_norm_percent", 1.0, "%"),
    ("delay", "delay_s", MS, "ms"),
    ("tracking indicator", "tracking_indicator_m2", MM2, "mm²"),
)


def indices(metrics: Data) -> dict[str, list[str]]:
    rows = metrics.get("axes", {}).items()
    return {axis: [shown(row[key], factor, unit) for _, key, factor, unit in INDICES] for axis, row in rows}


class Run(run.Run):
    __doc__ = f"""{run.Run.__doc__}
    Examples
    --------
    >>> import rths_nodes
    >>> test = rths_nodes.run("chen_ricles_2010", duration=2.0)
    >>> test
    <Run chen_ricles_2010: finished, 2050 samples (2.002 s); story_1: max error 0.9442 mm, error norm 4.4 %>
    >>> test.displacement.shape
    (2051, 1)
    """

    @classmethod
    def from_run(cls, other: run.Run) -> Run:
        return cls(**vars(other))

    def __repr__(self) -> str:
        head = f"{self.scenario.name}: {self.ending}, {self._length()}"
        rows = [f"{axis}: max error {row[0]}, error norm {row[2]}" for axis, row in indices(self.metrics).items()]
        return f"<Run {'; '.join([head, *rows])}>"

    @property
    def samples(self) -> int:
        """Number of the last sample. Row 0 is the state before the test."""
        return max(0, len(self.time) - 1)

    def _length(self) -> str:
        return f"{self.samples} samples ({self.samples * self.scenario.dt:.4g} s)"

    def _repr_html_(self) -> str:
        from rths_nodes.analysis.figures.plot import ERROR, TRACKING, picture

        head = f"<b>{html.escape(self.scenario.name)}</b>: {html.escape(self.ending)}"
        reason = f", {html.escape(self.information['reason'])}" if self.information.get("reason") else ""
        titles = "".join(f"<th>{title}</th>" for title, *_ in INDICES)
        rows = "".join(
            f"<tr><td>{axis}</td>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
            for axis, row in indices(self.metrics).items()
        )
        figure = ""
        if np.isfinite(self.displacement).any():
            figure = f'<img alt="tracking and control error" src="{picture(self, (TRACKING, ERROR))}">'
        table = f"<table><tr><th>axis</th>{titles}</tr>{rows}</table>" if rows else ""
        return f"<p>{head}{reason}, {self._length()}</p>{table}{figure}"

    def _group(self, table: str) -> list[run.History]:
        groups = dict(run.groups_of(self))
        if table not in groups:
            raise unknown("table", "table", table, groups)
        return groups[table]

    def to_dataframe(self, table: str = "samples") -> pandas.DataFrame:
        """Return a pandas table with one row per sample and one column per quantity and axis.

        Parameters
        ----------
        table : {'samples', 'steps', 'updating'}
            Samples of the rig, integration steps, or quantities of updated models.

        Returns
        -------
        pandas.DataFrame
            Columns such as ``axis_1.force (N)``; the index is the time, s. In the table of samples,
            row k is sample k, and row 0 is the state before the test.

        Raises
        ------
        ConfigError
            If the run has no such table, or pandas is not installed.

        Examples
        --------
        >>> import rths_nodes
        >>> table = rths_nodes.run("predefined_sine", duration=0.5).to_dataframe()
        >>> table.columns[:2].tolist()
        ['axis_1.target (m)', 'axis_1.command (m)']
        """
        try:
            import pandas
        except ImportError:
            raise ConfigError("to_dataframe: requires pandas (pip install pandas)") from None
        # some columns lack values of the last step; pandas fills them with NaN
        histories = run.columns_of(self._group(table))
        series = {name: pandas.Series(values) for name, values in histories.items()}
        return pandas.DataFrame(series).set_index(next(iter(series)))

    def to_csv(self, path: str | os.PathLike[str], table: str = "samples") -> None:
        """Write a table as CSV: a column for the time, then the columns of :meth:`to_dataframe`.

        Parameters
        ----------
        path : path-like
            File to write; its folder is created.
        table : {'samples', 'steps', 'updating'}
            Table to write.

        Raises
        ------
        ConfigError
            If the run has no such table.
        OSError
            If the file cannot be written.

        Examples
        --------
        >>> import rths_nodes, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rths_nodes.run("predefined_sine", duration=0.5).to_csv(f"{folder}/sine.csv")
        ...     open(f"{folder}/sine.csv").readline().split(",")[:2]
        ['time (s)', 'axis_1.target (m)']
        """
        run.write_csv(self._group(table), Path(path))

    def to_mat(self, path: str | os.PathLike[str]) -> None:
        """Write all histories to a MATLAB file, with ``units``, ``axes`` and a description of the ``test``.

        Parameters
        ----------
        path : path-like
            File to write, ``.mat``.

        Raises
        ------
        OSError
            If the file cannot be written.

        Examples
        --------
        >>> import rths_nodes, scipy.io, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rths_nodes.run("predefined_sine", duration=0.5).to_mat(f"{folder}/sine.mat")
        ...     scipy.io.loadmat(f"{folder}/sine.mat")["force"].shape
        (513, 1)
        """
        run.write_mat(self, Path(path))

    def plot(
        self, quantity: str = "tracking", ax: Axes | None = None, style: str | None = None, width: float = COLUMN
    ) -> Axes:
        """Draw a quantity of the run, in mm and kN.

        Parameters
        ----------
        quantity : str
            ``tracking`` (target and measured displacement), ``error``, ``hysteresis``, or the name of an array,
            such as ``command``, ``force``, ``compensator``, ``dof_acceleration``.
        ax : matplotlib.axes.Axes, optional
            Axes to draw on; default: axes of a new pyplot figure.
        style : {'paper', 'screen'}, optional
            Style of the package; default: the caller's matplotlib style. ``paper`` is for journals: fonts are
            embedded, and lines are distinguishable in greyscale.
        width : float, optional
            Width of a new figure in the style ``paper``, mm: 89 for one journal column, 183 for two.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ConfigError
            If the quantity or style is unknown; the message lists the valid values.

        Examples
        --------
        >>> import rths_nodes
        >>> from matplotlib.figure import Figure
        >>> panel = Figure().subplots()
        >>> rths_nodes.run("predefined_sine", duration=0.5).plot("error", panel).get_ylabel()
        'control error (mm)'
        """
        from rths_nodes.analysis.figures import plot

        return plot.plot(self, quantity, ax, style, width)
