# SPDX-License-Identifier: Apache-2.0
"""Recorder node: writes messages of the rig and of other programs, unchanged, into a recording."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.subscription import Subscription
from rclpy.topic_endpoint_info import TopicEndpointInfo

from rths_nodes.core.data import Data, flatten, unflatten
from rths_nodes.core.durations import SECOND
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import PACKAGE
from rths_nodes.core.wire import HEAD
from rths_nodes.core.yaml_text import dump
from rths_nodes.loop.options import EXECUTIVE, NODE_PER_AXIS, ONE_NODE
from rths_nodes.loop.outcomes import ExitCode, of_state, reported_death
from rths_nodes.loop.pacing import Clock
from rths_nodes.loop.provenance import information
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import from_text
from rths_nodes.loop.scenario.updating import TOPIC, Copies
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros import names
from rths_nodes.ros.nodes.base import OpenWriter, RthsNode, Writer
from rths_nodes.ros.nodes.monitor import WENT_ON, ended_early
from rths_nodes.ros.nodes.participation import Phase, ProgressReports
from rths_nodes.ros.nodes.settings import reported_sections
from rths_nodes.ros.transport.endpoints import ByHand, ignore, message_class
from rths_nodes.ros.transport.rclpy_private import RCLError, take_bytes

LOOK_NS, LOOKS = SECOND // 2, 4
KEPT = 1000
A_TURN = 64


def full_names(node: Node, topics: Iterable[str]) -> list[str]:
    """Return the full names of additional topics. Raises ConfigError for an invalid or already recorded topic."""
    recorded = {node.resolve_topic_name(row.name) for row in names.TOPICS.values() if row.recorded}
    full = list(names.ALSO_RECORDED)
    for topic in topics:
        try:
            full.append(str(node.resolve_topic_name(topic)))
        except (ValueError, RCLError) as error:
            raise ConfigError(f"record_topics: {topic!r}: {' '.join(str(error).split())}") from error
        if full[-1] in recorded:
            raise ConfigError(f"record_topics: {full[-1]} is always recorded. Omit this topic")
    return list(dict.fromkeys(full))


class FurtherTopics:
    """Records ``topics`` (full names) once they have publishers, and the arrival times of the messages."""

    def __init__(
        self, node: Node, topics: Sequence[str], writer: Writer, warn: Callable[[str], object], clock: Clock
    ) -> None:
        self._node, self._writer, self._warn, self._now = node, writer, warn, clock.monotonic_ns
        self._waiting = list(topics)
        self._subscriptions: dict[str, Subscription] = {}
        self._unmatched = Counter[str]()
        """Number of consecutive checks in which a topic had publishers that its subscription does not match."""
        self._group = ByHand()
        self._next_look = 0

    def look(self) -> None:
        now = self._now()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_NS
        for topic in self._waiting[:]:
            if publishers := self._node.get_publishers_info_by_topic(topic):
                self._waiting.remove(topic)
                self._subscribe(topic, publishers)
        for topic, subscription in self._subscriptions.items():
            unmatched = self._node.count_publishers(topic) - subscription.get_publisher_count()
            self._unmatched[topic] = self._unmatched[topic] + 1 if unmatched > 0 else 0
            if self._unmatched[topic] == LOOKS:
                self._warn(
                    f"record_topics: {topic}: messages of {unmatched} publishers are not recorded, because the "
                    "first publishers have another QoS or type"
                )

    def _subscribe(self, topic: str, publishers: Sequence[TopicEndpointInfo]) -> None:
        kinds = sorted({str(info.topic_type) for info in publishers})
        profiles = [info.qos_profile for info in publishers]
        reliable = all(profile.reliability == ReliabilityPolicy.RELIABLE for profile in profiles)
        latched = all(profile.durability == DurabilityPolicy.TRANSIENT_LOCAL for profile in profiles)
        try:
            if len(kinds) > 1:
                raise ConfigError(f"the topic has publishers of {' and '.join(kinds)}")
            if kinds[0].startswith(f"{PACKAGE}/"):
                raise ConfigError("the topic belongs to another rig, which has its own recorder")
            message = message_class(kinds[0])
            self._writer.add(topic, kinds[0], reliable, latched)
        except (ConfigError, ImportError, AttributeError) as error:
            self._warn(f"record_topics: {topic} is not recorded ({error})")
            return
        qos = QoSProfile(
            depth=KEPT,
            reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
            durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
        )
        self._subscriptions[topic] = self._node.create_subscription(
            message, topic, ignore, qos, callback_group=self._group, raw=True
        )

    def record(self) -> None:
        for topic, subscription in self._subscriptions.items():
            take = take_bytes(subscription)
            for _ in range(A_TURN):
                if (received := take(subscription.msg_type, True)) is None:
                    break
                data, information = received
                self._writer.write(topic, data, information["received_timestamp"] or time.time_ns())

    def close(self) -> None:
        for subscription in self._subscriptions.values():
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()


def optional(writer: Writer, on_lost: Callable[[str], None]) -> Any:
    """Return a :class:`Writer` that ignores calls once ``writer`` has failed. ``on_lost`` receives the reason."""
    lost = False

    def guarded(act: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: object) -> None:
            nonlocal lost
            try:
                if not lost:
                    act(*arguments)
            except RuntimeError as error:  # the recording cannot continue
                lost = True
                on_lost(str(error))

        return call

    def close(information: dict[str, str]) -> None:
        if not lost:
            writer.close(information)

    acts = {name: guarded(getattr(writer, name)) for name in ("add", "write", "flush", "flush_if_due")}
    return SimpleNamespace(fileno=writer.fileno, close=close, **acts)


SUMMARIES_NS = 4_500_000_000
"""Waiting time for missing messages after the test, ns. The actuator node waits longer. The middleware took up to
2.8 s to repair a stalled stream."""
EXIT_NOW_NS = 100_000_000
"""Waiting time for missing messages after an exit request, ns."""


class RecorderNode(RthsNode):
    """Records a test. Missing messages are reported as gaps, and nodes without a Summary as ``silent``."""

    role = names.RECORDER
    writer: Writer | None = None

    def __init__(self, open_writer: OpenWriter, **kwargs: Any) -> None:
        self._open_writer = open_writer
        super().__init__(on_received=self._record, **kwargs)
        self.closed = False

    def build(self, assembly: Assembly) -> None:
        scenario = assembly.scenario
        value = self.settings.value
        if not value("record"):
            raise ConfigError("record: missing. Set the directory of the recording")
        rows = [topic for topic in names.subscribed_by(self.role) if topic.recorded and topic.wanted(scenario)]
        self._full = {topic.name: self.resolve_topic_name(topic.name) for topic in rows}
        self.information = information(
            scenario,
            value("run_id"),
            value("host"),
            value("pace"),
            self.settings.faults,
            NODE_PER_AXIS if self.settings.axes else ONE_NODE,
            EXECUTIVE if scenario.engine == EXECUTIVE else "",
        )
        self._streams = [topic.name for topic in rows if topic.stream]
        self._rare = [topic.name for topic in rows if not topic.stream]
        self._apart = dict.fromkeys(self._streams, 1)
        self._firsts = {"command": 1}
        """First message numbers other than 0. The first Command belongs to sample 1."""
        if scenario.updating is not None:
            copies = Copies(scenario)
            self._apart[TOPIC], self._firsts[TOPIC] = copies.every, copies.first
        self._next = {name: self._first(name) for name in self._streams}
        self._holes = dict.fromkeys(self._streams, 0)
        self._lost = dict.fromkeys(self._streams, 0)
        self._sent: dict[str, int] = {}
        self._sections: dict[str, dict[str, object]] = {}
        self._received_from: set[str] = set()
        self._ended_at = 0
        self._trip = ""
        self._breach = ""
        self._progress = ProgressReports(self.shared, not self.settings.clocked, scenario.heartbeat.period)
        further = full_names(self, filter(None, value("record_topics")))
        topics = [(self._full[topic.name], topic) for topic in rows]
        self.writer = self._open_writer(value("record"), topics, self.information)
        self._broken_off: dict[str, int] = {}
        if self.settings.clocked and scenario.heartbeat.recorder_lost == "warn":
            self.writer = optional(self.writer, self._go_on_without)
        self.closed = False
        self.outside.callback(self.safely, self.close)
        self._further = FurtherTopics(self, further, self.writer, self.get_logger().warning, self.clock)
        self.outside.callback(self._further.close)

    def _go_on_without(self, reason: str) -> None:
        self._broken_off = {"sample": self.last_sample}
        self.get_logger().warning(f"{reason}; the rig continues without a recording")

    def look(self) -> bool:
        looked = super().look()
        if looked:
            self._record_rare()
            if not self.closed:
                self._further.look()
            if self.phase.ended and self.writer is not None:
                self.writer.flush()
        return looked

    def _record(self, topic: str, data: bytes, values: Data) -> None:
        assert self.writer is not None
        self.writer.write(self._full[topic], data, values["stamp"])

    def _record_rare(self) -> None:
        for topic in self._rare:
            if topic != "test_state":  # the handshake records this topic
                for values in self.topics.received(topic):
                    if topic == "summary":
                        self._receive_summary(values)
                    elif topic == "trip":
                        self._trip = f"{values['source']}: {values['reason']}"
                        self._breach = self._breach or (self._trip if values["sample"] else "")
                    elif topic == "node_status" and values["scenario_hash"] == self.settings.hash:
                        self._sections[values["node"]] = reported_sections(values)

    def _receive_summary(self, values: Data) -> None:
        self._received_from.add(values["node"])
        counts = unflatten(dict(zip(values["names"], values["values"], strict=False)), "sent")
        for name, count in counts.items():
            # a driver may report unknown streams or invalid counts
            if name in self._next and isinstance(count, float) and math.isfinite(count):
                self._sent[name] = int(count)

    def work(self, limit: int = 1_000_000) -> bool:
        if self.closed or self.writer is None:
            self.phase.to(Phase.GONE)
            return False
        busy = False
        for name in self._streams:
            busy |= self._drain(name, limit)
        self._further.record()
        if self.phase.ended:
            self.writer.flush()  # the middleware may hang after the end of the test
        else:
            self.writer.flush_if_due()
        sample = self._next["measurement"] - 1
        self._progress.publish_if_due(sample)
        if not busy:
            self._finish(sample)
        return busy

    def _drain(self, name: str, limit: int) -> bool:
        assert self.writer is not None
        take, write, full = self.topics.inboxes[name].take, self.writer.write, self._full[name]
        expected, start, apart = self._next[name], limit, self._apart[name]
        while limit > 0 and (data := take()) is not None:
            if len(data) < HEAD.size:
                self.topics.drop_malformed()
                continue
            sec, nanosec, number = HEAD.unpack_from(data)
            write(full, data, sec * SECOND + nanosec)
            if number != expected:
                self._holes[name] += 1
                self._lost[name] += max(0, number - expected) // apart
            expected = number + apart
            limit -= 1
        self._next[name] = expected
        if limit < start:
            self.shutdown.be_patient()
        return limit < start

    def _finish(self, sample: int) -> None:
        if not (self.phase.ended or self.shutdown.interrupted or self.shutdown.leader_lost):
            return
        self._record_rare()
        if not (self._complete() or self._waited_enough()):
            return
        self.handshake.receive_state()  # the state may be outdated: a finished test can still trip
        assert self.writer is not None
        self.writer.flush()
        numbers = {"gaps": self.gaps, "lost": self.lost, "silent": dict.fromkeys(sorted(self._silent()), 1)}
        numbers |= {"broken_off": self._broken_off} if self._broken_off else {}
        self.phase.remark(recording_gaps(numbers) if self.phase.begun else "")
        self.shutdown.publish(sample, flatten(numbers, "recording"))
        self._publish_done()
        self.phase.to(Phase.GONE)

    def surprise(self, error: Exception) -> None:
        """Handle ``error``, and report the recording as done, so that the rig does not wait for it."""
        super().surprise(error)
        with suppress(Exception):  # the node may not be configured yet
            self._publish_done()

    def _publish_done(self) -> None:
        self._progress.publish(self.last_sample, done=True)

    def _complete(self) -> bool:
        if not self.phase.ended:
            return False
        return not self._silent() and not any(map(self._tail_missing, self._streams))

    def _silent(self) -> set[str]:
        actuator_ended = self.phase.ended and names.ACTUATOR in self._received_from
        if actuator_ended and not self._sent.get("measurement", self.phase.test.sample):
            return set()  # the test was stopped before it began: no samples, no other Summaries
        return set(self.settings.peers) - {self.role, names.CONSOLE} - self._received_from

    def _tail_missing(self, name: str) -> bool:
        if name in self._sent:
            return self._next[name] < self._first(name) + self._sent[name] * self._apart[name]
        # a third-party actuator node may not count its messages
        return name == "measurement" and self.phase.ended and self._next[name] <= self.phase.test.sample > 0

    def _first(self, stream: str) -> int:
        return self._firsts.get(stream, 0)

    def _waited_enough(self) -> bool:
        now, shutdown = self._now(), self.shutdown
        if not self.phase.ended:
            return shutdown.exit_now or shutdown.patience_over or shutdown.abandoned
        self._ended_at = self._ended_at or now
        leaves_now = shutdown.exit_now and now - shutdown.exit_asked_at > EXIT_NOW_NS
        return leaves_now or now - self._ended_at > SUMMARIES_NS

    @property
    def last_sample(self) -> int:
        return self._next["measurement"] - 1

    def counters(self) -> dict[str, int]:
        return super().counters() | {"lost": sum(self._lost.values())}

    @property
    def gaps(self) -> dict[str, int]:
        return {name: holes + self._tail_missing(name) for name, holes in self._holes.items()}

    @property
    def lost(self) -> dict[str, int]:
        """Number of missing messages per stream. Missing messages at the end are unknown without a Summary."""
        tails = {
            name: sent - (self._next[name] - self._first(name)) // self._apart[name]
            for name, sent in self._sent.items()
        }
        return {name: lost + max(0, tails.get(name, 0)) for name, lost in self._lost.items()}

    def close(self) -> None:
        """Close the recording. Call this method last, because indexing takes time."""
        if self.writer is None or self.closed:
            return
        self.closed = True
        outcome, why = self.judged = self._judge()
        self.writer.close(
            {
                "scenario": self._effective_scenario(),
                "outcome": outcome.outcome,
                "reason": why,
                "samples": str(self._next["measurement"]),
                "gaps": str(sum(self.gaps.values())),
                "lost": ", ".join(f"{count} of {name}" for name, count in self.lost.items() if count),
                "silent": " ".join(sorted(self._silent())),
            }
        )

    def _judge(self) -> tuple[ExitCode, str]:
        test = self.phase.test
        if death := reported_death():  # only launch knows how a node died
            return ExitCode.FAILED, death
        if test.state is State.FINISHED and self._breach:
            return ExitCode.TRIPPED, f"{self._breach}; {WENT_ON}"
        if early := ended_early(test, self.scenario.samples):
            return ExitCode.FAILED, early
        problem = self.phase.problem
        if self.phase.ended:
            return of_state(test.state), test.reason or problem
        reasons = "; ".join(dict.fromkeys(filter(None, (problem, self._trip, test.reason))))
        last = f"the test did not end; its last Measurement is {self.last_sample}"
        return ExitCode.FAILED, reasons or last

    def _effective_scenario(self) -> str:
        data = self.scenario.data()
        for sections in self._sections.values():
            for path, section in sections.items():
                *outer, name = path.split(".")
                branch: Any = data
                for key in outer:
                    branch = branch.get(key) if isinstance(branch, dict) else None
                if isinstance(branch, dict) and name in branch:
                    branch[name] = section
        with suppress(ConfigError):
            return dump(from_text(dump(data), "node_status").data())
        return self.information["scenario"]


def recording_gaps(recording: Mapping[str, Mapping[str, float]]) -> str:
    gaps = [f"{count:.0f} in {name}" for name, count in recording.get("gaps", {}).items() if count]
    silent = recording.get("silent", {})
    broken_off = recording.get("broken_off", {})
    problems = [f"the messages end at sample {broken_off['sample']:.0f}"] if broken_off else []
    problems += [f"gaps: {', '.join(gaps)}"] if gaps else []
    problems += [f"no Summary from {', '.join(silent)}"] if silent else []
    return f"the recording may not be complete: {'; '.join(problems)}" if problems else ""
