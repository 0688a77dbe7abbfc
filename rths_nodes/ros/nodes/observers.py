# SPDX-License-Identifier: Apache-2.0
"""Timing of a test in the actuator node, and supervision of monitor and recorder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rths_nodes.core.data import Data
from rths_nodes.core.durations import SECOND, Durations
from rths_nodes.loop.pacing import ANSWERED, SYSTEM_CLOCK, Clock, Pacer
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.heartbeat import Heartbeat
from rths_nodes.loop.supervision.states import LOCKSTEP_WINDOW
from rths_nodes.loop.timing import LateData, timing
from rths_nodes.ros.names import RECORDER
from rths_nodes.ros.nodes.phase import NodeContext, PhaseMachine
from rths_nodes.ros.nodes.shutdown import Shutdown
from rths_nodes.ros.transport.topics import NodeTopics

KEPT = 4096


class RigClock:
    """Stamps samples and measures durations. ``pacer`` sets the ticks in real time and is None in lockstep.

    ``dt`` is the servo period, s. ``measured_at``, ``began_at`` and ``ended_at`` are the times of the last
    Measurement, of Measurement 0 and of the end (ns of ``clock``); 0 means unknown. ``loop`` has durations from
    Measurement to Command; ``work`` has durations from tick to Measurement.
    """

    def __init__(self, dt: float, samples: int, pacer: Pacer | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.pacer = pacer
        self.loop, self.work = Durations(samples), Durations(samples)
        self.measured_at = self.began_at = self.ended_at = 0
        self._sent_at = [0] * KEPT
        self._paused = 0
        self._dt = dt
        self._answer_time = round(ANSWERED * dt * SECOND)
        self._started_ns = self._tick_at = 0
        self._now = clock.monotonic_ns
        self._wall_clock = clock.time_ns

    def start(self) -> None:
        self._started_ns = self._wall_clock()

    def begin(self) -> None:
        self.began_at = self._now()

    def end(self) -> None:
        self.ended_at = self._now()

    @property
    def missed(self) -> int:
        return self.pacer.missed if self.pacer else 0

    def stamp_of_tick(self, tick: int) -> int:
        """Return the nominal time of ``tick``, ns since 1970.

        Ticks during a pause are counted, but have no samples.
        """
        return self._started_ns + round((tick + self.missed) * self._dt * SECOND)

    def tick(self) -> None:
        self._tick_at = self._now()

    def pause(self) -> None:
        self._paused += 1

    def measured(self, sample: int) -> int:
        now = self._now()
        if sample:
            self.work.add(now - (self.pacer.began if self.pacer else self._tick_at))
        self.measured_at = self._sent_at[sample % KEPT] = now
        missed = self.pacer.missed if self.pacer else 0
        return self._started_ns + round((sample + missed + self._paused) * self._dt * SECOND)

    def answered(self, sample: int, waited: int = 0) -> None:
        self.loop.add(self._now() - waited - self._sent_at[(sample - 1) % KEPT])

    @property
    def waited(self) -> int:
        """Time since the last Measurement was sent, ns."""
        return int(self._now() - self.measured_at)

    @property
    def deadline(self) -> int | None:
        return max(self.pacer.due, self.measured_at + self._answer_time) if self.pacer else None

    def durations(self) -> dict[str, Durations]:
        durations = {"loop": self.loop, "work": self.work}
        return durations | {"lateness": self.pacer.lateness} if self.pacer else durations

    def summary(self, late: LateData, late_commands: int) -> Data:
        lateness = self.pacer.lateness.seconds if self.pacer else np.empty(0)
        running = (self.ended_at - self.began_at) / SECOND if self.began_at else 0.0
        period = self._dt if self.pacer else None
        counts = {"slipped": self.pacer.slips if self.pacer else 0, "late_commands": late_commands}
        return counts | timing(running, self.loop.seconds, lateness, self.missed, late.bridged, period, late.gap)


@dataclass(frozen=True)
class RigContext:
    rig: RigStage
    times: RigClock
    topics: NodeTopics
    shutdown: Shutdown
    phase: PhaseMachine
    clock: Clock = SYSTEM_CLOCK


PROGRESS_SAMPLES = 64
"""Number of samples between Progress messages in lockstep, well below LOCKSTEP_WINDOW."""


class ProgressReports:
    def __init__(self, context: NodeContext, lockstep: bool, period: float) -> None:
        self._node, self._topics, self._now = context.location.peer, context.topics, context.clock.monotonic_ns
        self._lockstep = lockstep
        self._period = round(period * 1e9)
        self._told_of, self._due = -1, 0

    def publish_if_due(self, sample: int) -> None:
        now = self._now()
        if sample - self._told_of < PROGRESS_SAMPLES if self._lockstep else now < self._due:
            return
        self._told_of, self._due = sample, now + self._period
        self.publish(sample)

    def publish(self, sample: int, done: bool = False) -> None:
        values = {"node": self._node, "sample": max(sample, 0)}
        self._topics.publish("progress", values | ({"done": True} if done else {}))


class LockstepWindow:
    """Lets the rig run at most ``LOCKSTEP_WINDOW`` samples ahead of the slowest of ``observers``.

    The rig trips if it waits longer than ``patience`` ns for a Progress message.
    """

    def __init__(self, context: RigContext, observers: Sequence[str], patience: int) -> None:
        self._rig, self._times, self._topics = context.rig, context.times, context.topics
        self._patience = patience
        self.done: set[str] = set()
        self._seen = dict.fromkeys(observers, -1)
        self._window = LOCKSTEP_WINDOW - context.rig.ahead
        self._open_until = self._window - 1

    def begin(self, now: int) -> None: ...

    def look(self, now: int) -> None:
        """Do nothing, because ``follow`` polls when necessary."""

    def effective(self, sample: int) -> int:
        """Return the sample at which a trip takes effect: ``sample``, limited to the window ahead of the rig."""
        return min(sample, self._rig.sample + LOCKSTEP_WINDOW)

    def follow(self) -> bool:
        rig = self._rig
        # after a stop request the run is short, and after a breach the monitor sends nothing
        if rig.sample < self._open_until or not self._seen or rig.stop_request:
            return True
        for message in self._topics.received("progress"):
            if message["node"] in self._seen:
                self._seen[message["node"]] = message["sample"]
            if message["done"]:
                self.done.add(message["node"])
        self._open_until = min(self._seen.values()) + self._window
        within = rig.sample < self._open_until
        if not within and self._times.waited > self._patience:
            slowest = min(self._seen, key=self._seen.__getitem__)
            rig.trip(f"no Progress from the {slowest} node for {self._patience / SECOND:.2g} s")
        return within


class SignsOfLife:
    """Trips the rig if ``heartbeat`` reports a lost observer.

    If this observer is in ``optional``, ``warn`` is called instead.
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
        self._heartbeat.begin(now)

    def look(self, now: int) -> None:
        for message in self._topics.received("progress"):
            behind = (self._rig.sample - message["sample"]) * self._dt
            self._heartbeat.received(message["node"], now, round(behind * SECOND))
            if message["done"]:
                self.done.add(message["node"])
        for peer, warning in self._heartbeat.lost(now):
            if peer in self._optional:
                self._warn(warning)
            else:
                self._rig.trip(warning)

    def effective(self, sample: int) -> int:
        return 0

    def follow(self) -> bool:
        return True


def watch_observers(
    context: RigContext,
    scenario: Scenario,
    observers: Sequence[str],
    warn: Callable[[str], None],
    clocked: bool,
) -> LockstepWindow | SignsOfLife:
    if not clocked:
        return LockstepWindow(context, observers, round(scenario.port.longest_wait * SECOND))
    # the monitor also waits for a Target that is bridged or lost
    missing = scenario.bridge.max_bridge + (scenario.samples_per_step + scenario.hops.depth) * scenario.dt
    heartbeat = Heartbeat(scenario.heartbeat, observers, scenario.dt, missing)
    optional = [RECORDER] if scenario.heartbeat.recorder_lost == "warn" else []
    return SignsOfLife(context, heartbeat, scenario.dt, optional, warn)
