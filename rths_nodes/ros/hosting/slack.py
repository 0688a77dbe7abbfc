# SPDX-License-Identifier: Apache-2.0
"""Work that is done in the time left before a tick, as far as it fits in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock, Pacer
from rths_nodes.ros.nodes.base import RthsNode

OBSERVE_LIMIT = 16
"""Samples that an observer works in one go while the loop waits for messages, and ticks that it may lag behind."""
BEHIND_NS = 20_000_000
"""At a low servo rate an observer may not lag behind for longer than this, but always for one tick."""


class SlackBudget:
    """Time that a task took lately, which tells whether it fits in before the tick.

    ``remembered`` is the share of that time which is left after each :meth:`decay`.
    """

    def __init__(self, remembered: float = 0.9, clock: Clock = SYSTEM_CLOCK) -> None:
        self._needed = 0.0
        self._remembered = remembered
        self._now = clock.monotonic_ns

    def decay(self) -> None:
        """Let an old duration count for less, so that a task which was slow once is tried again."""
        self._needed *= self._remembered

    def fits(self, pacer: Pacer) -> bool:
        """True when the task would be done before the tick."""
        return pacer.slack > self._needed

    def run(self, task: Callable[[], object]) -> bool:
        """Run ``task``, and time it unless it returns False: then there was nothing to do. True when there was."""
        started = self._now()
        did = task() is not False
        if did:
            self._needed = max(self._needed, self._now() - started)
        return did


class SlackUser:
    """Runs an observer in the process of the loop, one sample at a time, as far as that fits in before the tick.

    An observer that lags too far behind works two samples per tick, even if that makes the tick late: a longer
    burst would make many ticks late.
    """

    def __init__(self, node: RthsNode, clock: Clock = SYSTEM_CLOCK) -> None:
        self._node = node
        self._budgets = {False: SlackBudget(clock=clock), True: SlackBudget(clock=clock)}
        """For normal samples, and for what takes longer, which waits for a slack that it has for itself."""
        self._behind = 0

    def use_slack(self, pacer: Pacer, spare: bool = True) -> None:
        """Work the samples that must be worked and, if the slack is ``spare``, those that fit in."""
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
        """True when what comes next takes longer than most: a heavy sample, or what is done when none waits."""
        return self._node.heavy or (self._behind == 0 and self._node.spares)
