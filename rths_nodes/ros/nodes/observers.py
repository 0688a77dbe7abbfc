# SPDX-License-Identifier: Apache-2.0
"""Progress of monitor and recorder, and how the rig waits for them.

In lockstep it waits (:class:`LockstepWindow`); in real time it continues while they are alive
(:class:`SignsOfLife`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rths_nodes.core.durations import SECOND
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.heartbeat import Heartbeat
from rths_nodes.loop.supervision.states import LOCKSTEP_WINDOW
from rths_nodes.ros.names import RECORDER
from rths_nodes.ros.nodes.phase import NodeContext
from rths_nodes.ros.nodes.rig_clock import RigContext

PROGRESS_SAMPLES = 64
"""Samples between messages in lockstep: well within the window."""


class ProgressReports:
    """Progress of a node for the waiting rig; in real time every ``period``, s."""

    def __init__(self, context: NodeContext, lockstep: bool, period: float) -> None:
        self._node, self._topics, self._now = context.location.peer, context.topics, context.clock.monotonic_ns
        self._lockstep = lockstep
        self._period = round(period * 1e9)
        self._told_of, self._due = -1, 0

    def tell_if_due(self, sample: int) -> None:
        now = self._now()
        if sample - self._told_of < PROGRESS_SAMPLES if self._lockstep else now < self._due:
            return
        self._told_of, self._due = sample, now + self._period
        self.tell(sample)

    def tell(self, sample: int, done: bool = False) -> None:
        values = {"node": self._node, "sample": max(sample, 0)}
        self._topics.tell("progress", values | ({"done": True} if done else {}))


class LockstepWindow:
    """Lets the rig run at most ``LOCKSTEP_WINDOW`` samples ahead of the slowest of ``observers``.

    It trips after waiting for Progress longer than ``patience``, ns.
    """

    def __init__(self, context: RigContext, observers: Sequence[str], patience: int) -> None:
        self._rig, self._times, self._topics = context.rig, context.times, context.topics
        self._patience = patience
        self.done: set[str] = set()
        """Observers that have completed this test."""
        self._seen = dict.fromkeys(observers, -1)
        self._open_until = LOCKSTEP_WINDOW - 1

    def begin(self, now: int) -> None: ...

    def look(self, now: int) -> None:
        """Do nothing: ``follow`` polls when it has to."""

    def effective(self, sample: int) -> int:
        """Return the sample at which a trip for ``sample`` takes effect: within the window."""
        return min(sample, self._rig.sample + LOCKSTEP_WINDOW)

    def follow(self) -> bool:
        """True if the next tick is within the window."""
        rig = self._rig
        # a requested stop bounds the run, and the monitor is silent after a breach
        if rig.sample < self._open_until or not self._seen or rig.stop_request:
            return True
        for message in self._topics.heard("progress"):
            if message["node"] in self._seen:
                self._seen[message["node"]] = message["sample"]
            if message["done"]:
                self.done.add(message["node"])
        self._open_until = min(self._seen.values()) + LOCKSTEP_WINDOW
        within = rig.sample < self._open_until
        if not within and self._times.waited > self._patience:
            slowest = min(self._seen, key=self._seen.__getitem__)
            rig.trip(f"no Progress of the {slowest} node for {self._patience / SECOND:.2g} s")
        return within


class SignsOfLife:
    """Trips the rig when ``heartbeat`` counts an observer as lost; for one of ``optional`` only ``warn`` is
    called.

    ``dt`` is the servo period, s.
    """

    def __init__(
        self,
        context: RigContext,
        heartbeat: Heartbeat,
        dt: float,
        optional: Sequence[str] = (),
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        self._rig, self._topics, self._heartbeat = context.rig, context.topics, heartbeat
        self._dt = dt
        self._optional = frozenset(optional)
        self.done: set[str] = set()
        self._warn = warn

    def begin(self, now: int) -> None:
        """Count silence from Measurement 0 at ``now``, ns."""
        self._heartbeat.begin(now)

    def look(self, now: int) -> None:
        """Take Progress and check for lost observers, every few milliseconds."""
        for message in self._topics.heard("progress"):
            behind = (self._rig.sample - message["sample"]) * self._dt
            self._heartbeat.heard(message["node"], now, round(behind * SECOND))
            if message["done"]:
                self.done.add(message["node"])
        for peer, warning in self._heartbeat.lost(now):
            if peer in self._optional:
                self._warn(warning)
            else:
                self._rig.trip(warning)

    def effective(self, sample: int) -> int:
        """Return 0: a trip takes effect at once."""
        return 0

    def follow(self) -> bool:
        return True


def watch_observers(
    context: RigContext, scenario: Scenario, observers: Sequence[str], warn: Callable[[str], None]
) -> LockstepWindow | SignsOfLife:
    """Return the watch over ``observers``: SignsOfLife if the clock has a pacer, else LockstepWindow."""
    if context.times.pacer is None:
        return LockstepWindow(context, observers, round(scenario.port.longest_wait * SECOND))
    # the monitor also waits for a Target that is bridged or lost
    missing = scenario.bridge.max_bridge + (scenario.samples_per_step + scenario.hops.depth) * scenario.dt
    heartbeat = Heartbeat(scenario.heartbeat, observers, scenario.dt, missing)
    optional = [RECORDER] if scenario.heartbeat.recorder_lost == "warn" else []
    return SignsOfLife(context, heartbeat, scenario.dt, optional, warn)
