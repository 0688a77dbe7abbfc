"""What is done in the time that is left before a tick, and whether it fits in."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from rths_nodes.loop.pacing import Pacer
from rths_nodes.ros.nodes.base import RthsNode

OBSERVE_LIMIT = 16
"""Samples that an observer may take at a time while the loop waits for messages; and ticks that it may be behind
in the slack of the loop."""
BEHIND_NS = 20_000_000
"""It may not be further behind than this, either (but a tick), at a low servo rate."""


class SlackBudget:
    """Whether what is done now and then fits in before the tick, going by how long it took lately."""

    def __init__(self, remembered: float = 0.9) -> None:
        self._needs = 0.0
        self._remembered = remembered

    def forget(self) -> None:
        """Some time is over: what it took once is soon of no account."""
        self._needs *= self._remembered

    def into(self, pacer: Pacer) -> bool:
        """True while as much time is left."""
        return pacer.slack > self._needs

    def timed(self, action: Callable[[], Any]) -> bool:
        """Do it; whether it did anything: it says so, or says nothing."""
        started = time.monotonic_ns()
        did = action() is not False
        if did:
            self._needs = max(self._needs, time.monotonic_ns() - started)
        return did


class SlackUser:
    """An observer in the process of the loop: it works, a sample at a time, while that fits in before the tick.

    Once it is too far behind, it takes a sample more than a tick brings, even if that
    makes a tick late: spread, because a burst would make many late.
    """

    def __init__(self, node: RthsNode) -> None:
        self._node = node
        self._fits = {False: SlackBudget(), True: SlackBudget()}
        """For most samples, and for heavy ones, which are soon the first thing in the slack of a tick."""
        self._behind = 0

    def use_slack(self, pacer: Pacer, spare: bool = True) -> None:
        """Work as often as it must and, in the ``spare`` time, as often as what it took lately is left."""
        node = self._node
        self._fits[node.works and node.heavy].forget()
        self._behind += 1
        must = 2 if self._behind > min(OBSERVE_LIMIT, max(1, BEHIND_NS // pacer.period)) else 0
        while node.works and (must > 0 or (spare and self._fits[node.heavy].into(pacer))):
            must -= 1
            if not self._fits[node.heavy].timed(partial(node.safely, node.work, 1)):
                self._behind = 0
                return
            self._behind -= 1
