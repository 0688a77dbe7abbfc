"""Sums of many consecutive powers of e^{-angle}, as a response in discrete time is one, and where they change."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.fft import next_fast_len

from rths_nodes.core.frequency_response import Complex
from rths_nodes.core.samples import Array

CHANGED = 0.1
"""Of its magnitude: change of a sum from one angle of its grid to the next."""


class Lines(NamedTuple):
    """A sum of e^{-angle power} times a row for each of consecutive powers, the rows in blocks side by side.

    ``first`` power; ``blocks`` ``(few, few * columns)``: place in its block, then block and column.
    """

    first: float
    blocks: Array
    shape: tuple[int, ...]

    @classmethod
    def of(cls, first: float, lines: Array) -> Lines:
        """``lines`` ``(t, ...)`` for the powers from ``first`` on."""
        flat = lines.reshape(len(lines), -1)
        few = math.ceil(math.sqrt(len(flat)))
        padded = np.pad(flat, ((0, few * few - len(flat)), (0, 0)))
        blocks = padded.reshape(few, few, -1).transpose(1, 0, 2).reshape(few, -1)
        return cls(first, np.ascontiguousarray(blocks), lines.shape[1:])

    def at(self, angles: Complex) -> Complex:
        """The sum at the ``angles`` ``(n,)``, ``(n, ...)``: within the blocks, then of the blocks.

        So few waves are needed at a time that they stay near the processor.
        """
        few = len(self.blocks)
        fine = np.exp(-np.multiply.outer(angles, np.arange(few)))
        coarse = np.exp(-np.multiply.outer(angles, self.first + few * np.arange(few)))
        inside = np.vstack([fine.real, fine.imag]) @ self.blocks
        real, imag = inside.reshape(2, len(angles), few, -1)
        found = (coarse[:, None, :] @ real + 1j * (coarse[:, None, :] @ imag))[:, 0]
        return np.asarray(found.reshape(len(angles), *self.shape))

    def grid(self) -> Array:
        """Angles (rad) between 0 and pi: from one to the next the sum changes by ``CHANGED`` of its magnitude.

        Every column counts alike, whatever its unit. A resonance whose terms have faded to 1e-10 at the last power
        is several times as wide as the distance of the angles that are looked at.
        """
        few = len(self.blocks)
        lines = self.blocks.reshape(few, few, -1).transpose(1, 0, 2).reshape(few * few, -1)
        largest = np.abs(lines).max(axis=0)
        lines = lines[:, largest > 0.0] / largest[largest > 0.0]
        points = next_fast_len(4 * len(lines), real=True)
        angles = 2.0 * math.pi / points * np.arange(points // 2 + 1)
        sizes, changes = np.zeros(len(angles)), np.zeros(len(angles) - 1)
        late = np.exp(-1j * self.first * angles)
        for column in lines.T:  # one at a time: all of a large structure would fill the memory
            values = np.fft.rfft(column, points) * late
            sizes += np.abs(values) ** 2
            changes += np.abs(np.diff(values)) ** 2
        larger = np.maximum(np.maximum(sizes[1:], sizes[:-1]), np.finfo(float).tiny)
        passed = np.diff(np.floor(np.cumsum(np.sqrt(changes / larger)) / CHANGED), prepend=0.0) > 0.0
        return np.asarray(angles[1:][passed])
