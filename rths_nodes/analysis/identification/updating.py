# SPDX-License-Identifier: Apache-2.0
"""Model updating from a recording: the model of a specimen is updated sample by sample, as in the loop.

Displacement and force are taken at the same instant; otherwise a lag would appear as negative damping.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rths_nodes.analysis.identification.from_recording import paired
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.samples import Array
from rths_nodes.laboratory.corrections import low_pass
from rths_nodes.mechanics import updating
from rths_nodes.mechanics.updating import Copy, Open
from rths_nodes.recording.run import Run

NOISE = 0.02
"""Default rms noise of the force, relative to the large force."""
LARGE = 0.99
"""Quantile of the force's magnitude that is used as the large force, because larger values may be spikes."""
UNCERTAINTY = 0.3
"""Default relative standard deviation of the initial values."""
FEWEST = 100


@dataclass(frozen=True, eq=False)
class Followed:
    """Holds the history of an updated model: ``m`` parameters at ``n`` samples, in SI units.

    ``estimate``, ``deviation`` (one standard deviation) and ``released`` (values for use in a loop) are ``(n,
    m)``. ``force`` is the measured force, ``expected`` the predicted force and ``spread`` the standard deviation
    of their difference, ``(n,)`` N. ``mean_square`` of the innovation and ``use`` of each sample (``WORDS`` of
    ``mechanics/updating.py``) are ``(n,)``.
    """

    axis: str
    model: str
    law: str
    names: tuple[str, ...]
    units: tuple[str, ...]
    initial: Array
    lower: Array
    upper: Array
    uncertainty: float
    noise: float
    time: Array
    estimate: Array
    deviation: Array
    released: Array
    force: Array
    expected: Array
    spread: Array
    mean_square: Array
    use: NDArray[np.int8]

    @property
    def left(self) -> Array:
        """Smallest remaining fraction of the initial uncertainty of each parameter, ``(m,)``."""
        return np.asarray((self.deviation / (self.uncertainty * self.initial)).min(axis=0))

    @property
    def unexplained(self) -> NDArray[np.bool_]:
        return self.mean_square > updating.UNEXPLAINED

    @property
    def identified(self) -> tuple[bool, ...]:
        """True for each identified parameter, ``(m,)``; all false unless the model explains the specimen."""
        explained = not self.unexplained.any()
        return tuple(bool(explained and left <= updating.IDENTIFIED) for left in self.left)

    @property
    def at_bound(self) -> tuple[str, ...]:
        stood = (self.estimate <= self.lower) | (self.estimate >= self.upper)
        return tuple(name for name, ever in zip(self.names, stood.T, strict=True) if ever.any())

    @property
    def counts(self) -> dict[str, int]:
        return {
            text: int((self.use == use).sum()) for use, text in updating.WORDS.items() if (self.use == use).any()
        }


def copy_for(run: Run, axis: str, model: str, stated: Data, opened: Sequence[Open] = ()) -> Copy:
    """Return an updatable model of type ``model`` with the parameters of the test.

    Values in ``stated`` replace these parameters. Raises ConfigError if a value is invalid.
    """
    data = run.scenario.data()
    sections = [data["structure"].get("restoring_force") if data.get("structure") else None]
    sections += [data["axes"].get(axis, {}).get("specimen")]
    values: Data = {}
    for section in sections:
        if isinstance(section, dict) and section.get("type") == model:
            values = {name: value for name, value in section.items() if name != "type" and value is not None}
    return Copy(model, values | stated, opened)


def follow(
    run: Run,
    axis: str,
    copy: Copy,
    law: str = "ukf",
    noise: float | None = None,
    uncertainty: float = UNCERTAINTY,
    start: float | None = None,
    end: float | None = None,
) -> Followed:
    """Return the history of ``copy``, updated by samples from ``start`` to ``end`` (s); ``noise`` is in N rms.

    Raises ConfigError if an argument is invalid, or if motion or force is missing.
    """
    if axis not in run.axes:
        raise unknown("--axis", "axis", axis, run.axes)
    if law not in updating.LAWS:
        raise unknown("--law", "law", law, updating.LAWS)
    if law == "rls" and not copy.linear:
        raise ConfigError(
            f"--law rls: the force of {copy.model} must be known to be linear in {', '.join(copy.names)}. Use "
            "--law ukf"
        )
    for name, value in (("--noise", noise), ("--uncertainty", uncertainty)):
        if value is not None and not 0.0 < value < np.inf:
            raise ConfigError(f"{name} = {value:g}: must be > 0")
    time, x, force, flagged, period = _samples(run, axis, start, end)
    good = np.isfinite(x) & np.isfinite(force) & ~flagged
    large = float(np.quantile(np.abs(force[good]), LARGE)) if good.any() else 0.0
    if not (large > 0.0 and np.ptp(x[good]) > 0.0):
        raise ConfigError(f"{axis}: there is no motion or no force between these times")
    noise = NOISE * large if noise is None else noise
    prior = np.full(len(copy.names), uncertainty)
    settings = updating.Settings(period, noise, prior, run.scenario.axes[axis].limits.velocity)
    rows = _followed(copy, law, settings, (x, np.gradient(x, period), force, flagged), int(time[0] / period))
    scale = copy.initial
    estimate, deviation, released = (scale * np.array([row[column] for row in rows]) for column in range(3))
    expected, spread, mean_square = (np.array([row[column] for row in rows]) for column in range(3, 6))
    return Followed(
        axis,
        copy.model,
        law,
        copy.names,
        copy.units,
        scale,
        scale * copy.lower,
        scale * copy.upper,
        uncertainty,
        noise,
        time,
        estimate,
        deviation,
        released,
        force,
        expected,
        spread,
        mean_square,
        np.array([row[6] for row in rows], dtype=np.int8),
    )


def _samples(
    run: Run, axis: str, start: float | None, end: float | None
) -> tuple[Array, Array, Array, NDArray[np.bool_], float]:
    column, dt, section = run.axes.index(axis), run.scenario.dt, run.scenario.axes[axis]
    moved, bad = run.displacement[:, column], (run.flags & updating.UNUSABLE) != 0
    broken = ~np.isfinite(moved)
    if broken.all():
        raise ConfigError(f"{axis}: no displacement in this recording")
    if low_pass(section, dt) is not None and broken.any():
        last = np.maximum.accumulate(np.where(broken, np.argmin(broken), np.arange(len(moved))))
        moved, bad = moved[last], bad | broken  # non-finite values would remain in the filter
    x, force = paired(moved, run.force[:, column], section, dt)
    delay = len(moved) - len(x)
    bad = bad[: len(x)] | bad[delay:]
    every = max(1, round(updating.PERIOD / dt))
    taken = np.arange(0, len(x), every)
    time = run.time[taken]
    inside = (time >= (start or 0.0)) & (time <= (np.inf if end is None else end))
    if inside.sum() < FEWEST:
        raise ConfigError(
            f"{axis}: has {inside.sum()} samples (one per {every * dt:.3g} s) between these times; must have >= "
            f"{FEWEST}"
        )
    taken = taken[inside]
    return time[inside], x[taken], force[taken], bad[taken], every * dt


def _followed(
    copy: Copy,
    law: str,
    settings: updating.Settings,
    columns: tuple[Array, Array, Array, NDArray[np.bool_]],
    before: int,
) -> list[tuple[Array, Array, Array, float, float, float, int]]:
    estimator, x = updating.LAWS[law](copy, settings), columns[0]
    state = updating.at_rest(estimator, copy, float(x[np.isfinite(x)][0]))._replace(lost=before)
    m, rows = len(copy.names), []
    for row in zip(*(column.tolist() for column in columns), strict=True):
        state, result = updating.step(estimator, copy, settings, state, updating.Sample(*row))
        belief = state.belief
        parameters = belief.mean[:m], belief.deviation[:m], state.released
        rows.append((*parameters, result.expected, result.spread, state.mean_square, result.use))
    return rows
