# SPDX-License-Identifier: Apache-2.0
"""Figure of an identification: measured and fitted response of every axis to every command, and coherence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from rths_nodes.analysis.figures.drawing import Drawing
from rths_nodes.analysis.figures.style import FAINT, INK, Look, styled
from rths_nodes.analysis.identification.frequency_responses import NONE, FrequencyResponse, InverseFit
from rths_nodes.analysis.units import PERCENT
from rths_nodes.core.frequency_response import Complex

SEEN = 0.5
"""Smallest coherence at which the phase is meaningful."""
LOWEST = 1e-6
"""Smallest drawn magnitude."""
MEASURED: Look = {"color": FAINT, "lw": 2.2, "label": "measured"}
FITTED: Look = {"color": INK, "lw": 0.9, "label": "fitted"}


def draw(measured: FrequencyResponse, fit: InverseFit, axes: Sequence[str], title: str) -> Drawing:
    """Draw magnitude, phase and coherence for each command: Figs. 3.2 and 3.3 of Phillips & Spencer (2012)."""
    n, frequency, figure = len(axes), measured.frequency, Drawing()
    figure.head(f"{title}: displacement over command")
    panels = figure.panels(2 * n + 1, n, 1.5, 3.1 * n + 0.6, sharex=True)
    fitted = fit.response(frequency)
    for j, of in enumerate(axes):
        for i, axis in enumerate(axes):
            order = "zero" if fit.orders[i, j] == NONE else f"order {fit.orders[i, j]}"
            pair = f"{axis} of {of}\n" if n > 1 else ""
            panels[i, j].set_title(f"{pair}inverse: {order}, error {PERCENT * fit.error[i, j]:.2g} %")
            for values, look in ((measured.response, MEASURED), (fitted, FITTED)):
                size = np.maximum(np.abs(values[:, i, j]), LOWEST)
                panels[i, j].plot(frequency, 20.0 * np.log10(size), **look)
            _phase(panels[n + i, j], measured, fitted, (i, j))
            panels[i, 0].set_ylabel("magnitude (dB)")
            panels[n + i, 0].set_ylabel(f"{axis}\nphase (°)" if n > 1 else "phase (°)")
        for values, (name, look) in zip(measured.coherence[:, :, j].T, styled(axes).items(), strict=True):
            panels[2 * n, j].plot(frequency, values, label=f"coherence with {name}" if n > 1 else "", **look)
        panels[2 * n, j].set(ylim=(0.0, 1.05), xlabel="frequency (Hz)")
    panels[2 * n, 0].set_ylabel("coherence")
    figure.finish()
    return figure


def _phase(panel: Axes, measured: FrequencyResponse, fitted: Complex, entry: tuple[int, int]) -> None:
    i, j = entry
    angle = np.unwrap(np.angle(fitted[:, i, j]))
    beyond = np.angle(measured.response[:, i, j] / fitted[:, i, j])
    seen = np.where(measured.coherence[:, i, j] > SEEN, angle + beyond, np.nan)
    panel.plot(measured.frequency, np.degrees(seen), **MEASURED)
    panel.plot(measured.frequency, np.degrees(angle), **FITTED)
