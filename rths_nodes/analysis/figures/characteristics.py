# SPDX-License-Identifier: Apache-2.0
"""Figure of a characterisation: loops, stiffness and loss factor of the specimen, and response of the actuator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rths_nodes.analysis.figures.style import FAINT, columns_of, styled
from rths_nodes.analysis.identification.characteristics import Cyclic, Equivalent
from rths_nodes.analysis.units import KN, MM, MS

COLUMN, ROW = 2.9, 2.2
CURVES = (
    ("storage stiffness (kN/mm)", "storage_stiffness", KN / MM),
    ("loss factor", "loss_factor", 1.0),
    ("gain of the actuator", "gain", 1.0),
    ("delay of the actuator (ms)", "delay", MS),
)
MARKERS = "osv^Dx"


def draw(tests_of: Mapping[str, Sequence[Cyclic]], alike: Mapping[str, Equivalent], title: str) -> Figure:
    columns = 1 + len(CURVES)
    figure = Figure(figsize=(COLUMN * columns, ROW * len(tests_of) + 0.5), layout="constrained")
    figure.suptitle(f"{title}: cyclic tests", x=0.01, ha="left", fontsize=8.5)
    panels = figure.subplots(len(tests_of), columns, squeeze=False)
    for row, (axis, tests) in zip(panels, tests_of.items(), strict=True):
        families = _by_amplitude(tests)
        for (label, colour, line), family in zip(styled(families), families.values(), strict=True):
            marker = MARKERS[list(families).index(label) % len(MARKERS)]
            for test in family:
                closed = (np.append(values, values[0]) for values in (test.displacement, test.force))
                path, pull = closed
                row[0].plot(MM * path, KN * pull, color=colour, ls=line, lw=0.7, label=label)
            for panel, (_, name, factor) in zip(row[1:], CURVES, strict=True):
                values = [factor * getattr(test, name) for test in family]
                look = {"color": colour, "ls": line, "marker": marker, "ms": 3.5, "mfc": "none"}
                panel.plot([test.frequency for test in family], values, label=label, **look)
        row[1].axhline(KN / MM * alike[axis].stiffness, color=FAINT, lw=0.8, zorder=0)
        _name(row, axis if len(tests_of) > 1 else "")
    entries = {
        label: line for row in panels for line, label in zip(*row[0].get_legend_handles_labels(), strict=True)
    }
    labels = [f"amplitude {label}" for label in entries]
    ncols = columns_of(labels, matplotlib.rcParams["figure.figsize"][0])
    figure.legend(entries.values(), labels, loc="outside upper left", ncols=ncols)
    return figure


def _name(row: Sequence[Axes], axis: str) -> None:
    row[0].set_title(axis)
    row[0].set_xlabel("displacement (mm)")
    row[0].set_ylabel("force (kN)")
    row[0].margins(0.05)
    for panel, (label, _, _) in zip(row[1:], CURVES, strict=True):
        panel.set_ylabel(label)
        panel.set_xlabel("frequency (Hz)")
        panel.margins(0.08)


def _by_amplitude(tests: Sequence[Cyclic]) -> dict[str, list[Cyclic]]:
    families: dict[str, list[Cyclic]] = {}
    for test in sorted(tests, key=lambda test: test.wanted):
        families.setdefault(f"{MM * test.wanted:.3g} mm", []).append(test)
    return {label: sorted(family, key=lambda test: test.frequency) for label, family in families.items()}
