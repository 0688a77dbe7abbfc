# SPDX-License-Identifier: Apache-2.0
"""Work in the slack before a tick."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock, Pacer
from rths_nodes.ros.nodes.base import RthsNode

OBSERVE_LIMIT = 16
"""Samples per turn of an observer while the loop waits, and ticks that it may lag."""
BEHIND_NS = 20_000_000
"""Longest lag of an observer at a low servo rate, at least one tick."""


class SlackBudget:
    """Recent duration of a task, to judge whether it fits before the tick.

    ``remembered`` is the share that each :meth:`decay` keeps.
    """

    def __init__(self, remembered: float = 0.9, clock: Clock = SYSTEM_CLOCK) -> None:
        self._needed = 0.0
        self._remembered = remembered
        self._now = clock.monotonic_ns

    def decay(self) -> None:
        """Reduce the recent duration, so that a task which was slow once is tried again."""
        self._needed *= self._remembered

    def fits(self, pacer: Pacer) -> bool:
        return pacer.slack > self._needed

    def run(self, task: Callable[[], object]) -> bool:
        """Run ``task`` and time it unless it returns False (nothing to do); return True if it worked."""
        started = self._now()
        did = task() is not False
        if did:
            self._needed = max(self._needed, self._now() - started)
        return did


class SlackUser:
    """Runs an observer within the slack of the loop, one sample at a time.

    An observer that lags too far works two samples per tick, even if the tick is late; a longer burst would delay
    many.
    """

    def __init__(self, node: RthsNode, clock: Clock = SYSTEM_CLOCK) -> None:
        self._node = node
        self._budgets = {False: SlackBudget(clock=clock), True: SlackBudget(clock=clock)}
        """Budgets of normal samples, and of longer work, which waits for a slack of its own."""
        self._behind = 0

    def use_slack(self, pacer: Pacer, spare: bool = True) -> None:
        """Work the overdue samples and, if the slack is ``spare``, the samples that fit."""
        node = self._node
        self._budgets[node.works and node.heavy].decay()
        if node.works and node.spares and not node.heavy:
            self._budgets[True].decay()
        self._behind += 1
        must = 2 if self._behind > min(OBSERVE_LIMIT, max(1, BEHIND_NS // pacer.period)) else 0
        while node.works and (must > 0 or (spare and self._budgets[self._heavy].fits(pacer))):
            must -= 1
            if not self._budgets[self._heavy].run(partial(node.safely, node.work, 1)):
                self._behind = 0
                return
            self._behind = max(0, self._behind - 1)

    @property
    def _heavy(self) -> bool:
        """True if the next sample, or the work without a sample, takes longer than most."""
        return self._node.heavy or (self._behind == 0 and self._node.spares)
