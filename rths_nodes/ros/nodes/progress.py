"""How a node that only listens says how far it is, and that it is alive."""

from __future__ import annotations

from rths_nodes.ros.nodes.context import NodeContext

PROGRESS_SAMPLES = 64
"""Samples between two messages in lockstep: well within the window in which the actuator may run ahead."""


class ProgressReports:
    """Progress of a node: the rig waits for it, or, in real time, for a message every ``period``, s."""

    def __init__(self, context: NodeContext, lockstep: bool, period: float) -> None:
        self._node, self._topics, self._now = context.place.peer, context.topics, context.clock.monotonic_ns
        self._lockstep = lockstep
        self._period = round(period * 1e9)
        self._told_of, self._due = -1, 0

    def tell_if_due(self, sample: int) -> None:
        """Tell now and then that the node has got to ``sample``."""
        now = self._now()
        if sample - self._told_of < PROGRESS_SAMPLES if self._lockstep else now < self._due:
            return
        self._told_of, self._due = sample, now + self._period
        self.tell(sample)

    def tell(self, sample: int, done: bool = False) -> None:
        """Tell it, and whether the node is ``done`` with the test."""
        values = {"node": self._node, "sample": max(sample, 0)}
        self._topics.tell("progress", values | ({"done": True} if done else {}))
