# SPDX-License-Identifier: Apache-2.0
"""The end of a node: when it is asked to stop, when nobody leads it any more, and what it tells at last."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rths_nodes.core.durations import SECOND
from rths_nodes.core.flat_names import flatten
from rths_nodes.loop.interrupts import SAME_REQUEST_S
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.ros.nodes.context import NodeContext
from rths_nodes.ros.nodes.phase import Cause, Phase

PATIENCE_NS = 500_000_000
"""An interrupted node waits this long, from the last Measurement on, to hear that the test has ended."""

SAME_REQUEST_NS = round(SAME_REQUEST_S * SECOND)
"""Signals within this time are one request: Ctrl-C reaches a node from the terminal and from launch."""

LEADER_LOST_NS = 1_000_000_000
"""Time after the actuator node has left in which its last messages may still come."""

OVERDUE_NS = 6_000_000_000
"""Time after the test in which the actuator node can still be there: it stays 5 s at most (``Completion``).

A participant says once, without being acknowledged, that it leaves. Where that datagram is lost, the middleware
counts the participant as present for another 20 s.
"""


class Shutdown:
    """Leads a node out of a test: from requests to stop to its Summary.

    ``final()`` gives the last sample that the node has worked in, and the numbers of its Summary; ``on_told`` is
    called when that is published.
    """

    def __init__(
        self,
        context: NodeContext,
        final: Callable[[], tuple[int, Mapping[str, float]]],
        on_told: Callable[[], object] = lambda: None,
    ) -> None:
        self._place, self._phase = context.place, context.phase
        self._topics, self._deferred = context.topics, context.deferred
        self._final, self._on_told = final, on_told
        self._now = context.clock.monotonic_ns
        self._asked_at = self._patient_from = self.exit_asked_at = self._led_until = self._ended_at = 0
        self.interrupted = False
        """True when the node was asked to stop."""
        self.leader_lost = False
        """True when the actuator node has left: nobody says any more where the test stands."""
        self.summary: dict[str, float] = {}
        """Numbers that were told last; empty before."""
        self._counted: dict[str, int] | None = None

    # -- requests to stop ---------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """A signal asks to stop: the actuator node stops the test in order, the others wait for that, not long."""
        now = self._now()
        if self._asked_at and now - self._asked_at < SAME_REQUEST_NS:
            return
        if self._asked_at or self._phase.ended:  # somebody will not come any more
            self.exit_asked_at = self.exit_asked_at or now
        self._asked_at = self._patient_from = now
        self.interrupted = True

    @property
    def interrupted_for(self) -> int:
        """Time since the node was asked to stop, ns; 0 where it was not."""
        return self._now() - self._asked_at if self._asked_at else 0

    @property
    def exit_now(self) -> bool:
        """True when the node was asked to stop again, or after the end of the test."""
        return bool(self.exit_asked_at)

    def be_patient(self) -> None:
        """Measurements still come: where the node was interrupted, the end of the test is worth waiting for."""
        self._patient_from = self._now()

    @property
    def patience_over(self) -> bool:
        """True when an interrupted node has waited long enough for the end of the test."""
        return self.interrupted and self._now() - self._patient_from > PATIENCE_NS

    # -- the leader ---------------------------------------------------------------------------------------

    def look_for_leader(self) -> None:
        """The actuator node may leave without a word that arrives: nobody is waited for then."""
        guard, now = self._topics.guards.get("test_state"), self._now()
        if guard is None:
            return
        self._ended_at = (self._ended_at or now) if self._phase.ended else 0
        if self._phase.ended and now - self._ended_at > OVERDUE_NS:
            self.lose_leader()
        if not self._phase.under_way:
            self._led_until = 0
        elif guard.subscription.get_publisher_count():
            self._led_until = now
        elif self._led_until and now - self._led_until > LEADER_LOST_NS and not self.leader_lost:
            self.lose_leader(Cause(ExitCode.FAILED, "the actuator node has left in the middle of the test"))

    def lose_leader(self, cause: Cause | None = None) -> None:
        """The actuator node is not there any more; with a ``cause``, that is why the test came to no end."""
        self.leader_lost = True
        if cause is not None and not self._phase.problem:
            self._phase.blame(cause.exit_code, cause.problem)

    @property
    def abandoned(self) -> bool:
        """True when the test is over, or given up, and the actuator node has left, or waits for this one."""
        if self.leader_lost or (self._phase.ended and not self._phase.begun):
            return True
        return (self._phase.ended or self.interrupted) and self._topics.guards["test_state"].gone

    def leave(self, hear_state: Callable[[], None]) -> None:
        """Be gone once the test is over, or given up, and everybody has heard what this node had to say."""
        if self.abandoned or self.exit_now or (self.patience_over and not self._phase.ended):
            if not self.reported:
                self.report()
            hear_state()  # a finished test may have become a tripped one in the end
            self._phase.to(Phase.GONE)

    # -- the Summary --------------------------------------------------------------------------------------

    @property
    def reported(self) -> bool:
        """True when the Summary is told and nothing was sent since."""
        return self._counted is not None and self._counted == self._topics.stream_counts

    def report(self) -> None:
        self.tell(*self._final())

    def tell(self, sample: int, numbers: Mapping[str, float]) -> None:
        """Publish a Summary: ``numbers``, and how many messages of each stream this node has sent and dropped."""
        self._deferred.send()
        self._counted = self._topics.stream_counts
        # those of an axis by their names below the rig, whose own streams are the actuator node's
        below = f"{self._place.axis}/" if self._place.axis else ""
        sent = {f"{below}{stream}": count for stream, count in self._counted.items()}
        self.summary = dict(numbers) | flatten(sent, "sent") | self._topics.dropped(self._place.peer)
        values = [float(value) for value in self.summary.values()]
        self._topics.tell(
            "summary",
            {"node": self._place.peer, "sample": max(sample, 0), "names": list(self.summary), "values": values},
        )
        self._phase.report()
        self._on_told()
