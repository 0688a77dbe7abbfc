# SPDX-License-Identifier: Apache-2.0
"""Square-root unscented Kalman filter with additive noise, for internal states and parameters together.

R. van der Merwe, E. A. Wan: The square-root unscented Kalman filter for state and parameter-estimation. Proc.
ICASSP, 2001, Algorithm 3.1 with alpha = 1, kappa = 0, beta = 2. No weight is negative, and the points are at
sqrt(n) standard deviations.

The covariance P = S S' is never formed: each step computes S by an orthogonal triangularisation, so that no
rounding makes a variance negative. The paper's downdate of the Cholesky factor fails if rounding makes the
covariance indefinite. The correction of the square-root cubature filter replaces it (I. Arasaratnam, S. Haykin:
Cubature Kalman filters. IEEE Transactions on Automatic Control 54(6), 2009, 1254-1269). With the deviations X of
states and parameters and Y of the force, for a measured force f with noise r (rms):

    K = X Y' / (Y Y' + r^2),  mean + K (f - expected),  S S' = (X - K Y) (X - K Y)' + r^2 K K'
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rths_nodes.core.samples import Array


class Belief(NamedTuple):
    """Gaussian belief: ``mean`` ``(n,)`` and the lower triangular ``root`` ``(n, n)`` of the covariance."""

    mean: Array
    root: Array

    @property
    def deviation(self) -> Array:
        return np.asarray(np.sqrt(np.square(self.root).sum(axis=1)))


class Answer(NamedTuple):
    """Expected force (N) of a belief, with weighted deviations at c points.

    ``numbers`` ``(n, c)`` are the deviations of states and parameters. ``forces`` ``(c,)`` are the deviations of
    the force.
    """

    expected: float
    numbers: Array
    forces: Array

    def spread(self, noise: float) -> float:
        """Return the standard deviation (N) of measured minus expected force; ``noise`` is in N rms."""
        return math.sqrt(float(self.forces @ self.forces) + noise**2)


def triangular(columns: Array) -> Array:
    """Return lower triangular S ``(n, n)`` with S S' = X X', for X = ``columns`` ``(n, c >= n)``."""
    return np.asarray(np.linalg.qr(columns.T, mode="r")).T


def corrected(answer: Answer, mean: Array, measured: float, noise: float) -> Belief:
    """Return the belief after a ``measured`` force (N) with ``noise`` (N rms, > 0); ``answer`` is for ``mean``."""
    gain = answer.numbers @ answer.forces / answer.spread(noise) ** 2
    left = answer.numbers - np.outer(gain, answer.forces)
    return Belief(mean + gain * (measured - answer.expected), triangular(np.column_stack((left, noise * gain))))


def capped(belief: Belief, most: Array) -> Belief:
    """Return ``belief`` with standard deviations limited to ``most`` ``(n,)``, the initial uncertainty."""
    factor = np.minimum(1.0, most / np.maximum(belief.deviation, 1e-300))
    return Belief(belief.mean, belief.root * factor[:, None])


CENTRE = 2.0
"""Weight of the central point in covariances, beta of a Gaussian distribution. The weight in means is zero."""

Point = list[float]


def points(belief: Belief) -> Array:
    """Return the sigma points ``(n, 2 n + 1)``, the mean first."""
    mean = belief.mean[:, None]
    reach = math.sqrt(len(belief.mean)) * belief.root
    return np.hstack((mean, mean + reach, mean - reach))


def predicted(belief: Belief, moved: Callable[[Point], Point], noise: Array) -> Belief:
    """Return the belief after ``moved`` moves each point; ``noise`` ``(n,)`` are added standard deviations."""
    at = np.array([moved(point) for point in points(belief).T.tolist()]).T
    mean = at[:, 1:].mean(axis=1)
    return Belief(mean, triangular(np.hstack((_weighted(at - mean[:, None]), np.diag(noise)))))


def answered(belief: Belief, force: Callable[[Point], float]) -> Answer:
    at = points(belief)
    forces = np.array([force(point) for point in at.T.tolist()])
    expected = float(forces[1:].mean())
    return Answer(expected, _weighted(at - belief.mean[:, None]), _weighted(forces - expected))


def _weighted(deviations: Array) -> Array:
    weighted = deviations / math.sqrt(deviations.shape[-1] - 1)
    weighted[..., 0] = math.sqrt(CENTRE) * deviations[..., 0]
    return weighted
