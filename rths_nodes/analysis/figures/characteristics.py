# SPDX-License-Identifier: Apache-2.0
"""Figure of a characterisation: loops, stiffness and loss factor of the specimen, and response of the actuator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rths_nodes.analysis.figures.drawing import Drawing
from rths_nodes.analysis.figures.style import FAINT, styled
from rths_nodes.analysis.identification.characteristics import Cyclic, Equivalent
from rths_nodes.analysis.units import KN, MM, MS

CURVES = (
    ("storage stiffness (kN/mm)", "storage_stiffness", KN / MM),
    ("loss factor", "loss_factor", 1.0),
    ("gain of the actuator", "gain", 1.0),
    ("delay of the actuator (ms)", "delay", MS),
)
MARKERS = "osv^Dx"


def draw(tests_of: Mapping[str, Sequence[Cyclic]], alike: Mapping[str, Equivalent], title: str) -> Drawing:
    figure = Drawing()
    figure.head(f"{title}: cyclic tests")
    panels = figure.panels(len(tests_of), 1 + len(CURVES), 2.2, 14.5)
    for (loops, *row), (axis, tests) in zip(panels, tests_of.items(), strict=True):
        families = _by_amplitude(tests)
        for number, (name, look) in enumerate(styled(families).items()):
            look["label"] = f"amplitude {name}"
            for test in families[name]:
                path, pull = (np.append(values, values[0]) for values in (test.displacement, test.force))
                loops.plot(MM * path, KN * pull, **look)
            frequencies = [test.frequency for test in families[name]]
            for panel, (_, quantity, factor) in zip(row, CURVES, strict=True):
                values = [factor * getattr(test, quantity) for test in families[name]]
                panel.plot(frequencies, values, marker=MARKERS[number % len(MARKERS)], ms=3.5, mfc="none", **look)
        row[0].axhline(KN / MM * alike[axis].stiffness, color=FAINT, lw=0.8, zorder=0)
        loops.set(xlabel="displacement (mm)", ylabel="force (kN)", title=axis if len(tests_of) > 1 else "")
        for panel, (quantity, _, _) in zip(row, CURVES, strict=True):
            panel.set(xlabel="frequency (Hz)", ylabel=quantity)
        for panel in (loops, *row):
            panel.margins(0.08)
    figure.finish()
    return figure


def _by_amplitude(tests: Sequence[Cyclic]) -> dict[str, list[Cyclic]]:
    families: dict[str, list[Cyclic]] = {}
    for test in sorted(tests, key=lambda test: test.wanted):
        families.setdefault(f"{MM * test.wanted:.3g} mm", []).append(test)
    return {label: sorted(family, key=lambda test: test.frequency) for label, family in families.items()}
