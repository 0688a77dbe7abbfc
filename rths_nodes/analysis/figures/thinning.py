# SPDX-License-Identifier: Apache-2.0
"""Curves thinned out for drawing, without losing their extremes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rths_nodes.analysis.histories import Indices
from rths_nodes.core.samples import Array


def largest(values: Array) -> float:
    """The largest magnitude; nan if there is no finite value."""
    usable = np.abs(values[np.isfinite(values)])
    return float(usable.max()) if usable.size else math.nan


def bars(histogram: Mapping[str, object]) -> tuple[Array, Array]:
    """Edges (s) and counts of a recorded histogram, without the empty ends; both empty if nothing was counted."""
    edges, counts = (np.array(histogram.get(key, ()), dtype=float) for key in ("edges_s", "counts"))
    filled = np.flatnonzero(counts > 0.0)
    if not len(filled) or len(edges) != len(counts) + 1:
        return np.zeros(0), np.zeros(0)
    first, end = filled[0], filled[-1] + 1
    return edges[first : end + 1], counts[first:end]


def strongest(time: Array, values: Array, length: float) -> tuple[float, float]:
    """The ``length`` seconds in which ``values`` ``(n, n_axes)`` move most (largest variance, summed)."""
    width = min(len(time), 1 + round(length / (time[1] - time[0])) if len(time) > 1 else 1)
    scale = np.abs(values).max(axis=0)
    scaled = values / np.where(scale > 0.0, scale, 1.0)
    first, second = (
        np.vstack((np.zeros(values.shape[1]), np.cumsum(power, axis=0))) for power in (scaled, scaled**2)
    )
    mean, square = ((sums[width:] - sums[:-width]) / width for sums in (first, second))
    start = int(np.argmax((square - mean**2).sum(axis=1)))
    return float(time[start]), float(time[start + width - 1])


def envelope(n: int, values: Array, columns: int) -> Indices:
    """Which of ``n`` samples to draw: of each column's first, lowest, highest and last one; all if few.

    ``values (n,)``. The picture is the same as that of all samples, if it is ``columns`` dots wide.
    """
    if n <= 4 * columns:
        return np.arange(n)
    edges = np.linspace(0, n, columns + 1).astype(int)
    keep = np.unique(np.concatenate((edges[:-1], edges[1:] - 1)))
    extremes = [
        start + pick(values[start:stop]) for start, stop in pairwise(edges) for pick in (np.argmin, np.argmax)
    ]
    return np.union1d(keep, np.array(extremes, dtype=int))


def thinned(x: Array, y: Array, cells: int) -> Indices:
    """Which points of the curve y(x) to draw: not those that stay in the dot of the one before."""
    if not len(x):
        return np.arange(0)
    grid = [np.floor((v - v.min()) / (float(np.ptp(v)) or 1.0) * cells) for v in (x, y)]
    moved = (np.diff(grid[0]) != 0.0) | (np.diff(grid[1]) != 0.0)
    return np.union1d(np.concatenate(([0], 1 + np.flatnonzero(moved))), [len(x) - 1])


def intervals(marked: Sequence[bool] | NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and last number of each stretch of marked samples."""
    padded = np.concatenate(([0], np.asarray(marked, dtype=np.int8), [0]))
    starts, ends = np.flatnonzero(np.diff(padded) == 1), np.flatnonzero(np.diff(padded) == -1) - 1
    return list(zip(starts.tolist(), ends.tolist(), strict=True))
