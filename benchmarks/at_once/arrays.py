"""Arrays with the runs last, and the noise of the sensors of many runs."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

BLOCK = 4096
"""Samples of noise drawn at a time."""
Array = np.ndarray[Any, np.dtype[np.float64]]


def product(matrices: Array, values: Array) -> Array:
    """``(..., i, j, runs)`` times ``(..., j, runs)``."""
    found: Array = np.einsum("...ijn,...jn->...in", matrices, values)
    return found


def stacked(matrices: Sequence[Array]) -> Array:
    """One array with the runs last."""
    return np.ascontiguousarray(np.stack(matrices, axis=-1))


class Noise:
    """The noise of all sensors, the same streams as those of ``laboratory/sensing.py``: by axis and by run."""

    def __init__(self, seeds: Sequence[int], axes: Sequence[str]) -> None:
        keys = [[seed, zlib.crc32(axis.encode())] for axis in axes for seed in seeds]
        self._streams = [np.random.default_rng(np.random.SeedSequence(key)) for key in keys]
        self._shape = (BLOCK, 2, len(axes), len(seeds))
        self._drawn, self._sample = np.zeros((0, *self._shape[1:])), 0

    def next(self) -> Array:
        """Of the next sample, displacement and force, with the rms 1: ``(2, axes, runs)``."""
        within = self._sample % BLOCK
        if not within:
            blocks = [stream.standard_normal((BLOCK, 2)) for stream in self._streams]
            self._drawn = np.stack(blocks, axis=-1).reshape(self._shape)
        self._sample += 1
        found: Array = self._drawn[within]
        return found
