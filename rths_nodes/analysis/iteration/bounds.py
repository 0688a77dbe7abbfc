# SPDX-License-Identifier: Apache-2.0
"""Bounds of a corrected run: peaks by axis, relative to the first run's, and elastic limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rths_nodes.core.samples import Array

UNITS = {"command": "m", "velocity": "m/s", "force": "N"}
"""Peaks bounded by the first run's, with their units."""


@dataclass(frozen=True)
class Peaks:
    """Peaks of an axis from the zero of the test: ``command`` m, its ``velocity`` m/s, displacement m, force N."""

    command: float
    velocity: float
    displacement: float
    force: float


def peaks(axes: Sequence[str], command: Array, moved: Array, force: Array, dt: float) -> dict[str, Peaks]:
    """Return the peaks of a run by axis; the histories are ``(samples, n_axes)``."""
    rates = np.abs(np.diff(command, axis=0)) / dt
    columns = [np.abs(each).max(axis=0).tolist() for each in (command, rates, moved, force)]
    return {axis: Peaks(*row) for axis, row in zip(axes, zip(*columns, strict=True), strict=True)}


def of_first(name: str, now: Mapping[str, Peaks], first: Mapping[str, Peaks]) -> float:
    """Return the largest ratio of a peak of a run to the first one's, over axes."""
    largest = [max(getattr(each, name) for each in run.values()) for run in (now, first)]
    return float(largest[0] / max(largest[1], 1e-300))


def above_first(number: int, planned: Mapping[str, Peaks], first: Mapping[str, Peaks], factor: float) -> list[str]:
    """Describe the ``planned`` peaks of run ``number`` above ``factor`` times those of the ``first`` run."""
    return [
        f"axes.{axis}: run {number} would have a {name} of {value:.6g} {unit}, {value / before:.3g} times that of "
        f"run 1: must be <= {factor:g} times, {factor * before:.6g} {unit}"
        for axis, most in first.items()
        for name, unit in UNITS.items()
        if (value := getattr(planned[axis], name)) > factor * (before := getattr(most, name))
    ]


def beyond_elastic(number: int, reached: Mapping[str, Peaks], elastic: Mapping[str, float]) -> list[str]:
    """Describe the axes that reach their ``elastic`` limit (m) in run ``number``, by command or displacement."""
    return [
        f"axes.{axis}: run {number} has a displacement of {1e3 * far:.4g} mm: must be < elastic_limit = "
        f"{1e3 * limit:.4g} mm of the rig file"
        for axis, limit in elastic.items()
        if not (far := max(reached[axis].command, reached[axis].displacement)) < limit
    ]
