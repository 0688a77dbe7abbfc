# SPDX-License-Identifier: Apache-2.0
"""Figure of an identification: measured and fitted response of every axis to every command, and coherence."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from rths_nodes.analysis.figures.style import FAINT, INK, columns_of, styled
from rths_nodes.analysis.identification.frequency_responses import NONE, FrequencyResponse, InverseFit
from rths_nodes.analysis.units import PERCENT
from rths_nodes.core.frequency_response import Complex
from rths_nodes.core.samples import Array

COLUMN, ROW = 3.1, 1.35
SEEN = 0.5
"""Smallest coherence at which the phase is meaningful."""
LOWEST_DB = -120.0


def draw(measured: FrequencyResponse, fit: InverseFit, axes: Sequence[str], title: str) -> Figure:
    """Draw magnitude, phase and coherence for each command: Figs. 3.2 and 3.3 of Phillips & Spencer (2012)."""
    n = len(axes)
    figure = Figure(
        figsize=(COLUMN * n + 0.6, ROW * (2 * n + 1) + 0.5), layout=ConstrainedLayoutEngine(hspace=0.02)
    )
    figure.suptitle(f"{title}: displacement over command", x=0.01, ha="left", fontsize=8.5)
    panels = figure.subplots(2 * n + 1, n, sharex=True, squeeze=False)
    fitted = fit.response(measured.frequency)
    for i in range(n):
        for j in range(n):
            _magnitude(panels[i, j], measured, fitted, (i, j))
            panels[i, j].set_title(f"{_pair(axes, i, j)}inverse: {_fit_text(fit, i, j)}")
            _phase(panels[n + i, j], measured, fitted, (i, j))
        panels[i, 0].set_ylabel("magnitude (dB)")
        panels[n + i, 0].set_ylabel(f"{axes[i]}\nphase (°)" if n > 1 else "phase (°)")
    for j in range(n):
        _coherence(panels[2 * n, j], measured.frequency, measured.coherence[:, :, j], axes)
        panels[2 * n, j].set_xlabel("frequency (Hz)")
    panels[2 * n, 0].set_ylabel("coherence")
    handles = [*panels[0, 0].get_lines(), *(panels[2 * n, 0].get_lines() if n > 1 else ())]
    labels = ["measured", "fitted", *(f"coherence with {axis}" for axis in axes if n > 1)]
    width = min(figure.get_figwidth(), matplotlib.rcParams["figure.figsize"][0])
    figure.legend(handles, labels, loc="outside upper left", ncols=columns_of(labels, width))
    return figure


def _pair(axes: Sequence[str], i: int, j: int) -> str:
    return f"{axes[i]} of {axes[j]}\n" if len(axes) > 1 else ""


def _fit_text(fit: InverseFit, i: int, j: int) -> str:
    order = "zero" if fit.orders[i, j] == NONE else f"order {fit.orders[i, j]}"
    return f"{order}, error {PERCENT * fit.error[i, j]:.2g} %"


def _magnitude(panel: Axes, measured: FrequencyResponse, fitted: Complex, entry: tuple[int, int]) -> None:
    for values, colour, width in ((measured.response, FAINT, 2.2), (fitted, INK, 0.9)):
        size = np.maximum(np.abs(values[:, entry[0], entry[1]]), 10.0 ** (LOWEST_DB / 20.0))
        panel.plot(measured.frequency, 20.0 * np.log10(size), color=colour, lw=width)


def _phase(panel: Axes, measured: FrequencyResponse, fitted: Complex, entry: tuple[int, int]) -> None:
    i, j = entry
    coherent = measured.coherence[:, i, j] > SEEN
    angle = np.unwrap(np.angle(fitted[:, i, j]))
    beyond = np.angle(measured.response[:, i, j] / fitted[:, i, j])
    seen = np.where(coherent, angle + beyond, np.nan)
    panel.plot(measured.frequency, np.degrees(seen), color=FAINT, lw=2.2)
    panel.plot(measured.frequency, np.degrees(angle), color=INK, lw=0.9)


def _coherence(panel: Axes, frequency: Array, coherence: Array, axes: Sequence[str]) -> None:
    for values, (name, colour, line) in zip(coherence.T, styled(axes), strict=True):
        panel.plot(frequency, values, color=colour, ls=line, label=name)
    panel.set_ylim(0.0, 1.05)
