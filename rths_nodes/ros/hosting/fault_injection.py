# SPDX-License-Identifier: Apache-2.0
"""Faults of a node: lost messages, wrong sensor values, slow answers, suspension and death.

Faults of streams act in the inboxes of loop nodes. Monitor and recorder receive the original messages. The faults
``kill``, ``freeze`` and ``disk_full`` at sample k act when the node receives Measurement k. In the actuator node
they act before Measurement k is sent. In the host ``processes``, ``kill`` and ``freeze`` are signals (SIGKILL,
SIGSTOP, SIGCONT). In the host ``composed``, a dead or frozen node remains in the process but
processes no messages.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from rths_nodes.core.protocols import Port
from rths_nodes.core.wire import HEAD, Codec, number_of
from rths_nodes.loop import faults as kinds
from rths_nodes.loop.faults import FaultyPort, FaultyStream, flip_bit, of_port, poison
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.ros.names import ACTUATOR, LOOP, RECORDER
from rths_nodes.ros.nodes.base import RthsNode
from rths_nodes.ros.nodes.recorder import RecorderNode
from rths_nodes.ros.transport.endpoints import Inbox
from rths_nodes.ros.transport.topics import Interposer, Send


def interpose(node: RthsNode) -> Interposer:
    """Return the layer that inserts the faults of ``node``. Raises ConfigError if a fault cannot be inserted."""
    settings = node.settings
    faults = [kinds.parse(text) for text in settings.faults]
    host = "processes" if node.own_process else "composed"
    pace = "lockstep" if settings.lockstep else "realtime"
    kinds.check(faults, settings.scenario, host, pace, RECORDER in settings.peers)
    return _Faults(node, faults) if faults else Interposer()


class _Faults(Interposer):
    holds_up = True

    def __init__(self, node: RthsNode, faults: Sequence[kinds.Fault]) -> None:
        self._node, self._faults, self._clock = node, faults, node.clock
        self._role = node.location.role
        scenario = node.settings.scenario
        self._rate, self._seed, self._substeps = scenario.servo_rate, scenario.seed, scenario.samples_per_step
        self._dead = False
        self._frozen_until = 0
        mine = [fault for fault in faults if kinds.node_of(fault) == self._role]
        self._slow = [fault for fault in mine if isinstance(fault, kinds.Slow)]
        strikes = [fault for fault in mine if not isinstance(fault, kinds.Slow)]
        self._strikes = deque(
            (kinds.first_sample(fault, self._rate), self._strike(fault))
            for fault in sorted(strikes, key=lambda fault: fault.time)
        )

    def port(self, port: Port) -> Port:
        axis, settings, faults = self._node.location.axis, self._node.settings, self._faults
        if axis:
            faults = [fault for fault in faults if not isinstance(fault, kinds.OF_AXIS) or fault.axis == axis]
        elif self._role != ACTUATOR or settings.axes:
            return port
        axes = (axis,) if axis else tuple(settings.scenario.axes)
        return FaultyPort(port, faults, axes, self._rate) if any(map(of_port, self._faults)) else port

    def inbox(self, topic: str, inbox: Inbox) -> Any:
        faulty: Inbox | SimpleNamespace = inbox
        # keep the positions, because the index of a fault is part of its seed
        faults = [None if of_port(fault) or isinstance(fault, kinds.Slow) else fault for fault in self._faults]
        if self._role in LOOP and topic in kinds.STREAMS and topic in map(kinds.stream_of, faults):
            change = _poisoner(topic, self._node.topics.codec)
            stream = FaultyStream(topic, faults, self._rate, self._seed, flip_bit, change)
            faulty = self._faulty(inbox, stream, _sent_at(topic, self._substeps))
        if topic == "measurement" and self._role != ACTUATOR:
            faulty = self._struck_inbox(faulty) if self._strikes else faulty
        return faulty

    def _faulty(self, inbox: Inbox, stream: FaultyStream[bytes], sent_at: Callable[[int], int]) -> SimpleNamespace:
        """Return ``inbox`` with the faults of ``stream`` applied. Message n was sent at sample ``sent_at(n)``."""
        newest, arrived = 0, deque[bytes]()

        def take() -> bytes | None:
            nonlocal newest
            while (data := inbox.take()) is not None:
                if len(data) < HEAD.size:
                    arrived.append(data)  # a foreign message, which the node drops
                    continue
                sample = sent_at(number_of(data))
                newest = max(newest, sample)
                stream.put(sample, data)
            node = self._node
            now = node.last_sample if self._role == ACTUATOR else node.measurements.expected - 1
            arrived.extend(stream.take(math.inf if node.phase.ended else max(now, newest)))
            return arrived.popleft() if arrived else None

        return SimpleNamespace(take=take, waited=lambda: 0)  # delays are not measured

    def _struck_inbox(self, inbox: Inbox | SimpleNamespace) -> SimpleNamespace:
        """Return an inbox that triggers faults at Measurements, and is empty while the node is dead or frozen."""
        held: bytes | None = None

        def take() -> bytes | None:
            nonlocal held
            if not self.may_work():
                return None
            data, held = held or inbox.take(), None
            self._strike_at(data or b"")
            if not self.may_work():
                data, held = None, data
            return data

        return SimpleNamespace(take=take, waited=inbox.waited)

    def _strike_at(self, data: bytes) -> None:
        if len(data) >= HEAD.size:
            while self._strikes and self.may_work() and number_of(data) >= self._strikes[0][0]:
                self._strikes.popleft()[1]()

    def sender(self, topic: str, send: Send) -> Send:
        if self._role == ACTUATOR and topic == "measurement":
            send = self._struck(send)
        for fault in self._slow:
            if topic == kinds.NODES[fault.node]:
                send = self._slowed(send, fault, _sent_at(topic, self._substeps))
        return send

    def may_work(self) -> bool:
        return not self._dead and self._clock.monotonic_ns() >= self._frozen_until

    def _struck(self, send: Send) -> Send:
        def late(data: bytes) -> None:
            self._strike_at(data)
            if not self._dead:
                send(data)

        return late

    def _slowed(self, send: Send, fault: kinds.Slow, sent_at: Callable[[int], int]) -> Send:
        first, left = kinds.first_sample(fault, self._rate), fault.count

        def slow(data: bytes) -> None:
            nonlocal left
            if left and sent_at(number_of(data)) >= first:
                left -= 1
                self._clock.sleep(fault.seconds)
            send(data)

        return slow

    def _strike(self, fault: kinds.Fault) -> Callable[[], None]:
        if isinstance(fault, kinds.DiskFull):
            return self._fill_disk
        if not isinstance(fault, kinds.Freeze):
            return self._die
        return _freezer(fault.seconds) if self._node.own_process else lambda: self._stand_still(fault.seconds)

    def _die(self) -> None:
        if self._node.own_process:
            os.kill(os.getpid(), signal.SIGKILL)
        self._dead = True
        self._node.phase.end(
            ExitCode.FAILED, f"the {self._node.location.peer} node died (killed by fault injection)", silent=True
        )

    def _stand_still(self, seconds: float) -> None:
        """Freeze the node for ``seconds``. The actuator node sleeps, because all other nodes wait for it."""
        if self._role == ACTUATOR:
            self._clock.sleep(seconds)
        else:
            self._frozen_until = self._clock.monotonic_ns() + round(seconds * 1e9)

    def _fill_disk(self) -> None:
        assert isinstance(self._node, RecorderNode)
        assert self._node.writer is not None
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, self._node.writer.fileno())
        os.close(full)


def _sent_at(stream: str, substeps: int) -> Callable[[int], int]:
    if stream == "target":
        return lambda step: max(step - 1, 0) * substeps
    return lambda sample: sample - 1 if stream == "command" else sample


def _poisoner(stream: str, codec: Codec) -> Callable[[bytes, float, str], bytes]:
    unpack, pack = getattr(codec, f"unpack_{stream}"), getattr(codec, f"pack_{stream}")

    def change(data: bytes, value: float, field: str) -> bytes:
        sample, stamp = unpack(data)
        return pack(poison(stream, sample, value, field), stamp)

    return change


def _freezer(seconds: float) -> Callable[[], None]:
    """Return a function that suspends this process for ``seconds``, through a shell that is already running."""
    pid = os.getpid()
    script = f"read -r line || exit; kill -STOP {pid}; sleep {seconds}; kill -CONT {pid}; echo"
    shell = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def freeze() -> None:
        assert shell.stdin is not None
        assert shell.stdout is not None
        shell.stdin.write(b"\n")
        shell.stdout.read(1)  # the shell writes after it has suspended and continued the process

    return freeze
