# SPDX-License-Identifier: Apache-2.0
"""Square-root unscented Kalman filter, additive noise, of inner states and parameters together.

R. van der Merwe, E. A. Wan: The square-root unscented Kalman filter for state and parameter-estimation. IEEE
International Conference on Acoustics, Speech, and Signal Processing, 2001, 3461-3464, Algorithm 3.1 with alpha =
1, kappa = 0, beta = 2: then no weight is negative, and the points are at sqrt(n) standard deviations. The
correction of ``square_root.py`` replaces the paper's downdate of the Cholesky factor, which fails when rounding
makes it indefinite; in exact arithmetic both agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rths_nodes.core.samples import Array
from rths_nodes.mechanics.updating.square_root import Answer, Belief, triangular

CENTRE = 2.0
"""Weight of the centre in covariances, beta of a Gaussian; in means it is zero."""

Point = list[float]


def points(belief: Belief) -> Array:
    """Sigma points ``(n, 2 n + 1)``, the mean first."""
    mean = belief.mean[:, None]
    reach = math.sqrt(len(belief.mean)) * belief.root
    return np.hstack((mean, mean + reach, mean - reach))


def predicted(belief: Belief, moved: Callable[[Point], Point], noise: Array) -> Belief:
    """Return the belief after each point has been ``moved``, plus ``noise`` ``(n,)``, standard deviations."""
    at = np.array([moved(point) for point in points(belief).T.tolist()]).T
    mean = at[:, 1:].mean(axis=1)
    return Belief(mean, triangular(np.hstack((_weighted(at - mean[:, None]), np.diag(noise)))))


def answered(belief: Belief, force: Callable[[Point], float]) -> Answer:
    at = points(belief)
    forces = np.array([force(point) for point in at.T.tolist()])
    expected = float(forces[1:].mean())
    return Answer(expected, _weighted(at - belief.mean[:, None]), _weighted(forces - expected))


def _weighted(deviations: Array) -> Array:
    found = deviations / math.sqrt(deviations.shape[-1] - 1)
    found[..., 0] = math.sqrt(CENTRE) * deviations[..., 0]
    return found
