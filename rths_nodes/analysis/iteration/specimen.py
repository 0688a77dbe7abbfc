# SPDX-License-Identifier: Apache-2.0
"""Specimens identified in a run: a spring, a dashpot and a mass on each axis, and their softening."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rths_nodes.analysis.iteration.spectra import Spectra
from rths_nodes.core.samples import Array


class Specimens(NamedTuple):
    """Mass (kg), damping (N s/m), stiffness (N/m) and fit by axis, ``(n_axes,)``."""

    mass: Array
    damping: Array
    stiffness: Array

    def force(self, motion: Array) -> Array:
        """Force ``(samples, n_axes)`` N under a ``motion`` ``(samples, 3, n_axes)``."""
        x, v, a = np.moveaxis(motion, 1, 0)
        return np.asarray(self.stiffness * x + self.damping * v + self.mass * a)


def answer(spectra: Spectra, expected: Specimens, moved: Array, force: Array, cutoff: float) -> Array:
    """Return the force over the ``expected`` specimens' for the same motion below ``cutoff``, ``(n_axes,)``.

    By least squares of ``force`` ``(samples, n_axes)`` N; nan without an expectation. For springs it is the ratio
    of the stiffnesses; for dampers, which have none, of the damping.
    """
    by, f = expected.force(spectra.motion(moved, cutoff)), spectra.low_passed(force, cutoff)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((by * f).sum(axis=0) / (by * by).sum(axis=0))


def fitted(spectra: Spectra, moved: Array, force: Array, cutoff: float) -> Specimens:
    """Return spring, dashpot and mass by non-negative least squares of ``force`` below ``cutoff``."""
    from scipy.optimize import nnls

    motion, f = spectra.motion(moved, cutoff), spectra.low_passed(force, cutoff)
    rows = []
    for axis in range(moved.shape[1]):
        columns = motion[:, :, axis]
        size = np.sqrt(np.square(columns).sum(axis=0))
        size[size == 0.0] = 1.0
        shares, _ = nnls(columns / size, f[:, axis])
        rows.append(shares / size)
    stiffness, damping, mass = np.array(rows).T
    return Specimens(mass, damping, stiffness)
