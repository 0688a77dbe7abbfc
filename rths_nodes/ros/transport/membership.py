# SPDX-License-Identifier: Apache-2.0
"""Membership of a node in a run, by the TestState of the actuator node."""

from __future__ import annotations

from collections.abc import Callable

from rths_nodes.core.data import Data
from rths_nodes.core.durations import SECOND
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.transport.peers import PublisherGuard

LIVE_NS = 1 * SECOND
"""Longest delay of a live message of the actuator node from ARMED on."""
OLD_NS = 60 * SECOND
"""Age of an active or ended test, at the start of this node, from which it counts as replayed."""

_STATES = frozenset(map(int, State))


class Membership:
    """Judges whether TestStates belong to this run; before the test, a node may join another run.

    ``join`` is called with the ``frame_id`` of that run and raises ConfigError if none can have it; ``on_refused``
    gets the reason. ``scenario_hash`` restricts the test; None: any. Once the test is ``settled()``, other runs
    are ignored. A replayed recording has older stamps than the actuator node. Unless ``guard()`` is certain of the
    publisher, a test that is active or ended is neither joined nor followed by old messages. The first message,
    sent once, may precede the name of its publisher: it is kept, for :meth:`cleared`.
    """

    def __init__(
        self,
        scenario_hash: str | None,
        join: Callable[[str], None],
        guard: Callable[[], PublisherGuard],
        settled: Callable[[], bool],
        on_refused: Callable[[str], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._hash, self._join = scenario_hash, join
        self._guard, self._settled, self._on_refused = guard, settled, on_refused
        self._now = clock.time_ns
        self._began = self._now()
        self._joined_at = 0
        """Stamp of the TestState that defined the run, ns."""
        self._in_doubt: tuple[Data, int] | None = None
        """A TestState with the number of its possible publishers."""

    def counts(self, told: Data) -> bool:
        """True for a TestState of this run, which it may define."""
        self._in_doubt = None
        return self._counts(told)

    def cleared(self) -> list[Data]:
        """Return the last TestState if its publisher is now known and counts; polled."""
        if self._in_doubt is None or not self._guard().certain:
            return []
        told, publishers = self._in_doubt
        self._in_doubt = None
        return [told] if self._guard().count >= publishers and self._counts(told) else []

    def _certain(self, told: Data) -> bool:
        if self._guard().certain:
            return True
        if publishers := self._guard().doubtful:
            self._in_doubt = told, publishers
        return False

    def _counts(self, told: Data) -> bool:
        state, stamp, known = told["state"], told["stamp"], self._guard().run.frame_id
        if state not in _STATES:
            return False
        if told["frame_id"] and told["frame_id"] == known:
            live = abs(self._now() - stamp) <= LIVE_NS
            return state < State.ARMED or live or self._certain(told)
        if self._settled() or stamp < self._joined_at:
            return False
        if state == State.IDLE and not known:
            return self._certain(told)  # refused, perhaps because this node is of another run
        if self._hash not in (None, told["scenario_hash"]):
            return False
        if state > State.ARMED and (stamp < self._began - OLD_NS or not self._certain(told)):
            return False
        try:
            self._join(told["frame_id"])
        except ConfigError as error:
            self._on_refused(f"TestState of the actuator node: {error}")
            return False
        self._joined_at = stamp
        return True
