# SPDX-License-Identifier: Apache-2.0
"""Figures of model updating in shadow and in the loop: parameters with their uncertainty, and the innovation."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rths_nodes.analysis.figures.drawing import Base, Drawing, Recordings, Row, Words
from rths_nodes.analysis.figures.style import BAND, DASHES, FAINT, INK, LIMIT, PALETTE, Look
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.identification.from_recording import Followed
from rths_nodes.analysis.units import KN
from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario.updating import USED, Copies
from rths_nodes.mechanics.updating import LEARNT, UNEXPLAINED
from rths_nodes.recording.run import Run


def copies(figure: Drawing, tests: Recordings) -> Words | None:
    run = tests.run
    if run.scenario.updating is None or not len(run.updating):
        return None
    copy = Copies(run.scenario).learns
    m, used = len(copy.names), run.scenario.updating.mode == USED
    base, innovation = Base("updating", run.updating_time), run.updating[:, 3 * m + 2]
    shares = run.updating[:, : 3 * m].reshape(-1, 3, m) / copy.initial
    released = "copies have" if used else "copies would have"
    rows = _parameters(base, copy.names, shares, (copy.lower, copy.upper), released)
    tests.over_time(figure, [*rows, _innovation(base, innovation)], 1.1)
    strange = bool((innovation > UNEXPLAINED).any())
    verdict = "the model does not explain the specimen" if strange else "learnt"
    use = "The copies follow the estimate." if used else "The test did not use the estimate (mode shadow)."
    return f"Copies of {run.scenario.updating.axis}: {verdict}", (
        f"Parameters of {copy.model} divided by their initial values, with bounds. {use} The mean square of the "
        f"innovation is 1 if the model is right; above {UNEXPLAINED:g} the copies return towards 1."
    )


def _parameters(
    base: Base, names: Iterable[str], shares: Array, bounds: tuple[Array, Array], released: str
) -> list[Row]:
    """Return rows of mean, deviation and released value: ``shares`` ``(n, 3, m)`` of the initial values."""
    looks: dict[str, Look] = {
        "one standard deviation": {"color": BAND},
        "estimate": {"color": PALETTE[0]},
        released: {"color": PALETTE[1], "ls": DASHES},
    }
    rows = []
    for name, (mean, wide, values), *limits in zip(names, shares.transpose(2, 1, 0), *bounds, strict=True):
        curves = [np.array([mean - wide, mean + wide]), mean, values]
        parts = (", one standard deviation, {}", "", f", {released}")
        heads = [f"{name}{part} (of the initial value)" for part in parts]
        rows.append(Row(name.replace("_", " "), "", looks, [(base, curves)], None, limits, heads=heads))
    return rows


def _innovation(base: Base, values: Array) -> Row:
    return Row("mean square of innovation", "", {"": {"color": INK}}, [(base, [values])], None, [UNEXPLAINED])


def draw(followed: Followed, run: Run) -> Drawing:
    figure, base = Drawing(), Base("updating", followed.time)
    heading = f"copy of {followed.axis} in shadow, model {followed.copy.model}, law {followed.law}"
    figure.heading = f"{run.scenario.name}: {heading}"
    shares = np.stack((followed.estimate, followed.deviation, followed.released), axis=1) / followed.copy.initial
    names = [
        f"{name}{'' if identified else ', not identified'}"
        for name, identified in zip(followed.copy.names, followed.identified, strict=True)
    ]
    bounds = followed.copy.lower, followed.copy.upper
    rows = _parameters(base, names, shares, bounds, "copies would have")
    looks: dict[str, Look] = {
        "measured": {"color": FAINT, "lw": 1.8},
        "expected": {"color": INK},
        "copies rest": {"color": LIMIT, "ls": "", "marker": "|", "ms": 4.0},
    }
    forces = [KN * followed.force, KN * followed.expected, np.where(followed.use == LEARNT, np.nan, 0.0)]
    rows += [Row("force", "kN", looks, [(base, forces)], None), _innovation(base, followed.mean_square)]
    Recordings.one(Evaluation(run)).over_time(figure, rows, 1.3)
    figure.finish()
    return figure
