"""Faults in a node: what its inboxes lose, what its sensors show, how it is slow, stands still or dies.

A fault on a stream is put before the inbox of the loop's node that receives it; monitor and recorder see what was
sent. Its clock is the number of the sample that this node knows of, so that a fault means the same in every host.
Everything else a node does to itself, when it takes Measurement k or, the actuator node, when it would send it. In
a process of its own that is real: SIGKILL, SIGSTOP and SIGCONT. In the host composed, where one process has all
nodes, a dead or frozen node gets no turn any more.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from rths_nodes.core.wire.layout import HEAD, number_of
from rths_nodes.loop.faults.kinds import NODES, STREAMS, DiskFull, Freeze, Slow, first_sample, node_of
from rths_nodes.loop.faults.streams import FaultyPort, FaultyStream, flip_bit, of_sensors, poison
from rths_nodes.ros.names import ACTUATOR, AXIS, LOOP

_FREEZER = """
import os, select, signal, sys
pid, seconds = int(sys.argv[1]), float(sys.argv[2])
if os.read(0, 1):
    os.kill(pid, signal.SIGSTOP)
    select.select([0], [], [], seconds)
    os.kill(pid, signal.SIGCONT)
    os.write(1, b".")
"""
"""A frozen process cannot wake itself. This one ends when the process that it shall freeze does."""


def put_in(node: Any, faults: Sequence[Any]) -> None:
    """Put those of ``faults`` that concern ``node`` into it; its stage and its endpoints are there."""
    node.__dict__.pop("send", None)  # of an earlier configuration
    if node.role in LOOP:
        _put_on_streams(node, faults)
    if any(map(of_sensors, faults)):
        _put_on_sensors(node, faults)
    for fault in faults:
        if node_of(fault) == node.role:
            _put_on_node(node, fault)


def _put_on_sensors(node: Any, faults: Sequence[Any]) -> None:
    """They are where the port of their axis is: in the actuator node, or where the axis has a node of its own."""
    rate, axes = node.scenario.servo_rate, tuple(node.scenario.axes)
    if node.role == ACTUATOR and not node.axes:
        node.rig.port = FaultyPort(node.rig.port, faults, axes, rate)
    elif node.role == AXIS:
        mine = [fault for fault in faults if getattr(fault, "axis", node.axis) == node.axis]
        node.stage.port = FaultyPort(node.stage.port, mine, (node.axis,), rate)


# -- streams ----------------------------------------------------------------------------------------------


class FaultyInbox:
    """Stands before an Inbox whose messages pass through ``stream``.

    ``sent_at(number)`` is the sample at which the message of a number is sent, ``clock()`` the sample that the
    node knows of.
    """

    def __init__(
        self, inbox: Any, stream: FaultyStream[bytes], sent_at: Callable[[int], int], clock: Callable[[], float]
    ) -> None:
        self.subscription, self._take = inbox.subscription, inbox.take
        self._stream, self._sent_at, self._clock = stream, sent_at, clock
        self._newest = 0
        self._arrived: deque[bytes] = deque()

    def take(self) -> bytes | None:
        """The next message that has arrived; None when there is none."""
        while (data := self._take()) is not None:
            if len(data) < HEAD.size:
                self._arrived.append(data)  # no message of ours: for the node to drop
                continue
            sample = self._sent_at(number_of(data))
            self._newest = max(self._newest, sample)
            self._stream.put(sample, data)
        self._arrived += self._stream.take(max(self._clock(), self._newest))
        return self._arrived.popleft() if self._arrived else None

    def waited(self) -> int:
        """Nothing: a message that was kept back on purpose comes when it comes out."""
        return 0


def _put_on_streams(node: Any, faults: Sequence[Any]) -> None:
    scenario, codec = node.scenario, node.codec
    # their places are part of the seed
    mine = [None if of_sensors(fault) or isinstance(fault, Slow) else fault for fault in faults]
    for name in STREAMS:
        if name in node.inboxes and any(getattr(fault, "stream", "") == name for fault in mine):
            unpack, pack = getattr(codec, f"unpack_{name}"), getattr(codec, f"pack_{name}")
            stream = FaultyStream(
                name, mine, scenario.servo_rate, scenario.seed, flip_bit, _poisoner(name, unpack, pack)
            )
            sent_at = _sent_at(name, scenario.samples_per_step)
            node.inboxes[name] = FaultyInbox(node.inboxes[name], stream, sent_at, lambda: _clock(node))


def _sent_at(stream: str, substeps: int) -> Callable[[int], int]:
    """Number of a message of ``stream`` -> the sample at which it is sent."""
    if stream == "target":
        return lambda step: max(step - 1, 0) * substeps
    return lambda sample: sample - 1 if stream == "command" else sample


def _clock(node: Any) -> float:
    """The last sample that ``node`` knows of; after the test everything has arrived."""
    if node.ended:
        return math.inf
    return float(node.rig.sample if node.role == ACTUATOR else node._expected - 1)


def _poisoner(
    name: str, unpack: Callable[[bytes], tuple[Any, int]], pack: Callable[[Any, int], bytes]
) -> Callable[[bytes, float, str], bytes]:
    def change(data: bytes, value: float, field: str) -> bytes:
        sample, stamp = unpack(data)
        return pack(poison(sample, name, value, field), stamp)

    return change


# -- the node itself --------------------------------------------------------------------------------------


def _put_on_node(node: Any, fault: Any) -> None:
    first = first_sample(fault, node.scenario.servo_rate)
    if isinstance(fault, Slow):
        _be_slow(node, fault, first)
        return
    strike = _strike(node, fault)
    if node.role == ACTUATOR:
        _strike_before_sending(node, strike, first)
    else:
        node.inboxes["measurement"] = StruckInbox(node, node.inboxes["measurement"], strike, first)


class StruckInbox:
    """Stands before the inbox of the Measurements: number ``first`` lets ``strike`` happen to ``node``."""

    def __init__(self, node: Any, inbox: Any, strike: Callable[[], None], first: int) -> None:
        self.subscription, self.waited, self._take = inbox.subscription, inbox.waited, inbox.take
        self._node, self._strike, self._first = node, strike, first
        self._struck = False
        self._held: bytes | None = None

    def take(self) -> bytes | None:
        """The next message, unless the node is dead or stands still."""
        if self._struck and not self._node.works:
            return None
        data = self._held or self._take()
        self._held = None
        if data is None or self._struck or len(data) < HEAD.size or number_of(data) < self._first:
            return data
        self._struck = True
        self._strike()
        if self._node.works:
            return data
        self._held = data
        return None


def _strike_before_sending(node: Any, strike: Callable[[], None], first: int) -> None:
    send, struck = node.send, False

    def late(topic: str, data: bytes) -> None:
        nonlocal struck
        if topic == "measurement" and not struck and node.rig.sample >= first:
            struck = True
            strike()
        if not node.died:
            send(topic, data)

    node.send = late


def _be_slow(node: Any, fault: Slow, first: int) -> None:
    stream = NODES[fault.node]
    sent_at = _sent_at(stream, node.scenario.samples_per_step)
    send, left = node.send, fault.count

    def slow(topic: str, data: bytes) -> None:
        nonlocal left
        if topic == stream and left and sent_at(number_of(data)) >= first:
            left -= 1
            time.sleep(fault.seconds)
        send(topic, data)

    node.send = slow


def _strike(node: Any, fault: Any) -> Callable[[], None]:
    """What ``fault`` does to ``node`` when its time has come."""
    if isinstance(fault, DiskFull):
        return lambda: _fill_disk(node)
    if not isinstance(fault, Freeze):
        return lambda: _die(node)
    if not node.own_process:
        return lambda: _stand_still(node, fault.seconds)
    freezer = _start_freezer(fault.seconds)
    return lambda: _freeze(freezer)


def _die(node: Any) -> None:
    if node.own_process:
        os.kill(os.getpid(), signal.SIGKILL)
    node.died = node.done = True
    node.problem, node.exit_code = f"the {node.identity} node died (kill on purpose)", 1


def _stand_still(node: Any, seconds: float) -> None:
    """In a process with others: no turn for the node. They wait for the actuator node in any case."""
    if node.role == ACTUATOR:
        time.sleep(seconds)
    else:
        node.frozen_until = time.monotonic_ns() + round(seconds * 1e9)


def _start_freezer(seconds: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", "-c", _FREEZER, str(os.getpid()), str(seconds)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)


def _freeze(freezer: subprocess.Popen[bytes]) -> None:
    """Until the freezer has woken this process again: nothing is done in between."""
    assert freezer.stdin is not None
    assert freezer.stdout is not None
    freezer.stdin.write(b".")
    freezer.stdout.read(1)


def _fill_disk(node: Any) -> None:
    """From now on the kernel finds no space for what the recorder writes."""
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, node.writer.fileno())
    os.close(full)
