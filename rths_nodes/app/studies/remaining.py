# SPDX-License-Identifier: Apache-2.0
"""Remaining work of many pieces, with costs measured on pieces of the same or the most similar kind."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from rths_nodes.app.studies.tasks import Progress
from rths_nodes.core.samples import Array

EVERY_S = 0.5
Kind = tuple[Hashable, ...]
"""Keys of pieces with equal cost, most important key first. All kinds have the same length."""


class Remaining:
    """Estimates completed and total work (s) from the completed fractions of the pieces.

    Each piece has a kind and a size; without ``sizes``, all sizes are equal. At most ``at_once`` pieces run in
    parallel (0: unknown).
    """

    def __init__(
        self,
        kinds: Sequence[Kind],
        sizes: Sequence[float] | None = None,
        at_once: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        numbers: dict[Kind, int] = {}
        self._kind = np.array([numbers.setdefault(kind, len(numbers)) for kind in kinds], dtype=int)
        self._kinds = list(numbers)
        self._sizes = np.ones(len(kinds)) if sizes is None else np.array(sizes, dtype=float)
        self._at_once, self._clock = at_once, clock
        self._shares, self._spent, self._looked = np.zeros(len(kinds)), np.zeros(len(numbers)), clock()
        self._told = 0.0, float(self._sizes.sum())

    def __call__(self, shares: Sequence[float]) -> tuple[float, float]:
        """Return completed and total work (s) for the completed fractions ``shares`` of the pieces.

        Return 0 and the sum of the sizes until a cost is known.
        """
        now, new = self._clock(), np.asarray(shares, dtype=float)
        if now - self._looked < EVERY_S and not np.all(new >= 1.0):
            return self._told
        under_way = (new > 0.0) & (self._shares < 1.0)
        count = int(under_way.sum())
        if count:
            elapsed = (now - self._looked) * min(1.0, (self._at_once or count) / count)
            self._spent += elapsed * self._by_kind(under_way.astype(float))
        self._shares, self._looked = new, now
        done, left = self._by_kind(new * self._sizes), self._by_kind((1.0 - new) * self._sizes)
        if not self._spent.any() or not done.any():
            return self._told
        costs = [self._cost(kind, done) for kind in range(len(self._kinds))]
        spent = float(self._spent.sum())
        self._told = spent, spent + float(left @ np.array(costs))
        return self._told

    def _by_kind(self, values: Array) -> Array:
        return np.bincount(self._kind, values, len(self._kinds)).astype(float)

    def _cost(self, kind: int, done: Array) -> float:
        finished = [other for other in range(len(self._kinds)) if done[other] > 0.0]
        alike = [_common(self._kinds[other], self._kinds[kind]) for other in finished]
        nearest = [other for other, common in zip(finished, alike, strict=True) if common == max(alike)]
        return float(self._spent[nearest].sum() / done[nearest].sum())


def _common(one: Kind, other: Kind) -> float:
    """Return the similarity of two kinds. An equal key has more weight than all later keys together."""
    return sum(0.5**position for position, (a, b) in enumerate(zip(one, other, strict=True)) if a == b)


def weighed(
    report: Callable[[float, float], None],
    kinds: Sequence[Kind],
    sizes: Sequence[float] | None = None,
    at_once: int = 0,
) -> Progress:
    remaining = Remaining(kinds, sizes, at_once)
    return lambda shares: report(*remaining(shares))
