# SPDX-License-Identifier: Apache-2.0
"""End of a node: stop requests, loss of the actuator node, and the Summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rths_nodes.core.data import flatten
from rths_nodes.core.durations import SECOND
from rths_nodes.loop.interrupts import SAME_REQUEST_S
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.ros.nodes.phase import NodeContext, Phase

PATIENCE_NS = 500_000_000
"""Time from the last Measurement for which an interrupted node waits for the end of the test, ns."""

SAME_REQUEST_NS = round(SAME_REQUEST_S * SECOND)
"""Time within which signals count as one request, ns, because a terminal and launch both forward Ctrl-C."""

LEADER_LOST_NS = 1_000_000_000
"""Time after the departure of the actuator node within which its last messages may still arrive, ns."""

OVERDUE_NS = 6_000_000_000
"""Time after a test after which the actuator node is considered gone, ns.

The actuator node leaves within 5 s (``Completion``). If the datagram that announces the departure is lost, the
middleware keeps the participant for another 20 s."""


class Shutdown:
    """Ends the participation of a node in a test, from stop requests to the node's Summary.

    ``final()`` returns the last sample and the numbers of the Summary.
    """

    def __init__(
        self,
        context: NodeContext,
        final: Callable[[], tuple[int, Mapping[str, float]]],
        on_reported: Callable[[], object] = lambda: None,
    ) -> None:
        self._place, self._phase = context.location, context.phase
        self._topics, self._deferred = context.topics, context.deferred
        self._final, self._on_reported = final, on_reported
        self._now = context.clock.monotonic_ns
        self._asked_at = self._patient_from = self.exit_asked_at = self._led_until = self._ended_at = 0
        self.interrupted = False
        self.leader_lost = False
        """True once the actuator node has left. The state of the test is then unknown."""
        self.summary: dict[str, float] = {}
        self._counted: dict[str, int] | None = None

    def interrupt(self) -> None:
        """Handle a stop signal. After a second signal, a node does not wait any longer.

        The actuator node stops the test. Other nodes wait a limited time for the end of the test.
        """
        now = self._now()
        if self._asked_at and now - self._asked_at < SAME_REQUEST_NS:
            return
        if self._asked_at or self._phase.ended:  # a second signal: do not wait any longer
            self.exit_asked_at = self.exit_asked_at or now
        self._asked_at = self._patient_from = now
        self.interrupted = True

    @property
    def interrupted_for(self) -> int:
        """Time since the last stop request, ns; 0 without a request."""
        return self._now() - self._asked_at if self._asked_at else 0

    @property
    def exit_now(self) -> bool:
        return bool(self.exit_asked_at)

    def be_patient(self) -> None:
        self._patient_from = self._now()

    @property
    def patience_over(self) -> bool:
        return self.interrupted and self._now() - self._patient_from > PATIENCE_NS

    def look_for_leader(self) -> None:
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
            self.lose_leader(ExitCode.FAILED, "the actuator node has left during the test")

    def lose_leader(self, exit_code: int = ExitCode.FINISHED, problem: str = "") -> None:
        self.leader_lost = True
        if problem and not self._phase.problem:
            self._phase.blame(exit_code, problem)

    @property
    def abandoned(self) -> bool:
        """True if the test has ended or was aborted, and no actuator node needs this node."""
        if self.leader_lost or (self._phase.ended and not self._phase.begun):
            return True
        return (self._phase.ended or self.interrupted) and self._topics.guards["test_state"].gone

    def leave(self, receive_state: Callable[[], None]) -> None:
        if self.abandoned or self.exit_now or (self.patience_over and not self._phase.ended):
            if not self.reported:
                self.report()
            receive_state()  # a finished test can still trip
            self._phase.to(Phase.GONE)

    @property
    def reported(self) -> bool:
        return self._counted is not None and self._counted == self._topics.stream_counts

    def report(self) -> None:
        self.publish(*self._final())

    def publish(self, sample: int, numbers: Mapping[str, float]) -> None:
        self._deferred.send()
        self._counted = self._topics.stream_counts
        # stream names of an axis node are relative to the rig
        below = f"{self._place.axis}/" if self._place.axis else ""
        sent = {f"{below}{stream}": count for stream, count in self._counted.items()}
        self.summary = dict(numbers) | flatten(sent, "sent") | self._topics.dropped(self._place.peer)
        values = [float(value) for value in self.summary.values()]
        self._topics.publish(
            "summary",
            {"node": self._place.peer, "sample": max(sample, 0), "names": list(self.summary), "values": values},
        )
        self._phase.report()
        self._on_reported()
