# SPDX-License-Identifier: Apache-2.0
"""Faults of a node: lost messages, wrong sensors, slow answers, suspension and death.

Faults of streams act in the inboxes of loop nodes; monitor and recorder receive the original messages. The faults
kill, freeze and disk_full at sample k act when the node receives Measurement k or, in the actuator node, before
Measurement k is sent. In the host ``processes``, kill and freeze are signals (SIGKILL, SIGSTOP, SIGCONT). In the
host ``composed``, a dead or frozen node does not work.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from rths_nodes.core.protocols import Port
from rths_nodes.core.wire.codec import Codec
from rths_nodes.core.wire.layout import HEAD, number_of
from rths_nodes.loop.faults.kinds import (
    NODES,
    OF_AXIS,
    STREAMS,
    DiskFull,
    Fault,
    Freeze,
    Slow,
    check,
    first_sample,
    node_of,
    parse,
    stream_of,
)
from rths_nodes.loop.faults.streams import FaultyPort, FaultyStream, flip_bit, of_port, poison
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.ros.names import ACTUATOR, AXIS, LOOP, RECORDER, Topic
from rths_nodes.ros.nodes.base import Interpose, OpenWriter, RthsNode, Writer
from rths_nodes.ros.transport.endpoints import Inbox
from rths_nodes.ros.transport.topics import Interposer, Send

CurrentWriter = Callable[[], Writer | None]


def with_faults(
    open_writer: OpenWriter, own_process: bool = False, clock: Clock = SYSTEM_CLOCK
) -> tuple[OpenWriter, Interpose]:
    """Return two functions. The first opens recordings. The second inserts the faults of one node."""
    writer: Writer | None = None

    def opened(directory: str, topics: list[tuple[str, Topic]], information: dict[str, str]) -> Writer:
        nonlocal writer
        writer = open_writer(directory, topics, information)
        return writer

    def interpose(node: RthsNode) -> Interposer:
        faults = [parse(text) for text in node.settings.faults]
        host = "processes" if own_process else "composed"
        pace = "lockstep" if node.settings.lockstep else "realtime"
        check(faults, node.settings.scenario, host, pace, RECORDER in node.settings.peers)
        return _Faults(node, faults, own_process, clock, lambda: writer) if faults else Interposer()

    return opened, interpose


class _Faults(Interposer):
    holds_up = True

    def __init__(
        self, node: RthsNode, faults: Sequence[Fault], own_process: bool, clock: Clock, writer: CurrentWriter
    ) -> None:
        self._node, self._faults, self._own_process, self._clock = node, list(faults), own_process, clock
        self._writer = writer
        self._role = node.location.role
        scenario = node.settings.scenario
        self._rate, self._seed, self._substeps = scenario.servo_rate, scenario.seed, scenario.samples_per_step
        self._dead = False
        self._frozen_until = 0
        mine = [fault for fault in faults if node_of(fault) == self._role]
        self._slow = [fault for fault in mine if isinstance(fault, Slow)]
        self._strikes = [
            (first_sample(fault, self._rate), self._strike(fault)) for fault in mine if not isinstance(fault, Slow)
        ]

    def port(self, port: Port) -> Port:
        location, settings = self._node.location, self._node.settings
        if not any(map(of_port, self._faults)):
            return port
        if location.role == AXIS:
            mine = [
                fault for fault in self._faults if not isinstance(fault, OF_AXIS) or fault.axis == location.axis
            ]
            return FaultyPort(port, mine, (location.axis,), self._rate)
        if location.role == ACTUATOR and not settings.axes:
            return FaultyPort(port, self._faults, tuple(settings.scenario.axes), self._rate)
        return port

    def inbox(self, topic: str, inbox: Inbox) -> Any:
        faulty: Any = inbox
        # keep the positions, because the index of a fault is part of its seed
        faults = [None if of_port(fault) or isinstance(fault, Slow) else fault for fault in self._faults]
        if self._role in LOOP and topic in STREAMS and topic in map(stream_of, faults):
            change = _poisoner(topic, self._node.topics.codec)
            stream = FaultyStream(topic, faults, self._rate, self._seed, flip_bit, change)
            faulty = FaultyInbox(faulty, stream, _sent_at(topic, self._substeps), self._known_sample)
        if topic == "measurement" and self._role != ACTUATOR:
            for first, strike in self._strikes:
                faulty = StruckInbox(faulty, strike, first, self.may_work)
        return faulty

    def sender(self, topic: str, send: Send) -> Send:
        if self._role == ACTUATOR and topic == "measurement":
            for first, strike in self._strikes:
                send = self._struck(send, strike, first)
        for fault in self._slow:
            if topic == NODES[fault.node]:
                send = self._slowed(send, fault, _sent_at(topic, self._substeps))
        return send

    def may_work(self) -> bool:
        return not self._dead and self._clock.monotonic_ns() >= self._frozen_until

    def _known_sample(self) -> float:
        if self._node.phase.ended:
            return math.inf
        node = self._node
        return node.last_sample if self._role == ACTUATOR else node.measurements.expected - 1

    def _struck(self, send: Send, strike: Callable[[], None], first: int) -> Send:
        struck = False

        def late(data: bytes) -> None:
            nonlocal struck
            if not struck and number_of(data) >= first:
                struck = True
                strike()
            if not self._dead:
                send(data)

        return late

    def _slowed(self, send: Send, fault: Slow, sent_at: Callable[[int], int]) -> Send:
        first, left = first_sample(fault, self._rate), fault.count

        def slow(data: bytes) -> None:
            nonlocal left
            if left and sent_at(number_of(data)) >= first:
                left -= 1
                self._clock.sleep(fault.seconds)
            send(data)

        return slow

    def _strike(self, fault: Fault) -> Callable[[], None]:
        if isinstance(fault, DiskFull):
            return self._fill_disk
        if not isinstance(fault, Freeze):
            return self._die
        if not self._own_process:
            return lambda: self._stand_still(fault.seconds)
        freezer = _start_freezer(fault.seconds)
        return lambda: _freeze(freezer)

    def _die(self) -> None:
        if self._own_process:
            os.kill(os.getpid(), signal.SIGKILL)
        self._dead = True
        self._node.phase.end(
            ExitCode.FAILED, f"the {self._node.location.peer} node died (killed on purpose)", silent=True
        )

    def _stand_still(self, seconds: float) -> None:
        """Freeze the node. The actuator node only sleeps instead, because all other nodes wait for it."""
        if self._role == ACTUATOR:
            self._clock.sleep(seconds)
        else:
            self._frozen_until = self._clock.monotonic_ns() + round(seconds * 1e9)

    def _fill_disk(self) -> None:
        writer = self._writer()
        assert writer is not None
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, writer.fileno())
        os.close(full)


class FaultyInbox:
    """Inbox that adds the faults of ``stream``.

    ``sent_at(number)`` is the sample at which message ``number`` is sent. ``clock()`` is the last known sample.
    """

    def __init__(
        self, inbox: Any, stream: FaultyStream[bytes], sent_at: Callable[[int], int], clock: Callable[[], float]
    ) -> None:
        self.subscription, self._take = inbox.subscription, inbox.take
        self._stream, self._sent_at, self._clock = stream, sent_at, clock
        self._newest = 0
        self._arrived: deque[bytes] = deque()

    def take(self) -> bytes | None:
        while (data := self._take()) is not None:
            if len(data) < HEAD.size:
                self._arrived.append(data)  # a foreign message, which the node drops
                continue
            sample = self._sent_at(number_of(data))
            self._newest = max(self._newest, sample)
            self._stream.put(sample, data)
        self._arrived += self._stream.take(max(self._clock(), self._newest))
        return self._arrived.popleft() if self._arrived else None

    def waited(self) -> int:
        """Return 0, because delays are not measured."""
        return 0


class StruckInbox:
    """Inbox of Measurements that calls ``strike()`` at Measurement ``first``.

    After this call, the inbox returns messages only while ``may_work()`` is true.
    """

    def __init__(self, inbox: Any, strike: Callable[[], None], first: int, may_work: Callable[[], bool]) -> None:
        self.subscription, self.waited, self._take = inbox.subscription, inbox.waited, inbox.take
        self._strike, self._first, self._may_work = strike, first, may_work
        self._struck = False
        self._held: bytes | None = None

    def take(self) -> bytes | None:
        if self._struck and not self._may_work():
            return None
        data = self._held or self._take()
        self._held = None
        if data is None or self._struck or len(data) < HEAD.size or number_of(data) < self._first:
            return data
        self._struck = True
        self._strike()
        if self._may_work():
            return data
        self._held = data
        return None


def _sent_at(stream: str, substeps: int) -> Callable[[int], int]:
    if stream == "target":
        return lambda step: max(step - 1, 0) * substeps
    return lambda sample: sample - 1 if stream == "command" else sample


def _poisoner(stream: str, codec: Codec) -> Callable[[bytes, float, str], bytes]:
    unpack, pack = getattr(codec, f"unpack_{stream}"), getattr(codec, f"pack_{stream}")

    def change(data: bytes, value: float, field: str) -> bytes:
        sample, stamp = unpack(data)
        return pack(poison(sample, stream, value, field), stamp)

    return change


def _start_freezer(seconds: float) -> subprocess.Popen[bytes]:
    pid = os.getpid()
    script = f"read -r line || exit; kill -STOP {pid}; sleep {seconds}; kill -CONT {pid}; echo"
    return subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)


def _freeze(freezer: subprocess.Popen[bytes]) -> None:
    assert freezer.stdin is not None
    assert freezer.stdout is not None
    freezer.stdin.write(b"\n")
    freezer.stdout.read(1)
