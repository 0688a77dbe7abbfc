# SPDX-License-Identifier: Apache-2.0
"""Recursive least squares with exponential forgetting, in square-root form, for a force linear in its parameters.

L. Ljung: System Identification, 2nd ed. 1999, section 11.2: what was measured a time T ago counts by the factor
exp(-1) less. Without forgetting, and with a wide first belief, it is the least squares of all samples.
"""

from __future__ import annotations

import math

from rths_nodes.core.samples import Array
from rths_nodes.mechanics.updating.square_root import Answer, Belief


def predicted(belief: Belief, period: float, forgetting: float) -> Belief:
    """Belief a ``period`` (s) later; ``forgetting`` is the time T (s), inf for none."""
    return Belief(belief.mean, belief.root * math.exp(0.5 * period / forgetting))


def answered(belief: Belief, row: Array, rest: float) -> Answer:
    """Answer of the force ``row`` ``(n,)`` N times the numbers, and ``rest`` (N)."""
    return Answer(float(row @ belief.mean) + rest, belief.root, row @ belief.root)
