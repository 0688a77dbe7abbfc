# SPDX-License-Identifier: Apache-2.0
"""Tests of nodes in a pause: the compensator waits for its Target, the rig ticks without samples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_SLOWED, FLAG_TRIPPED, Command, Measurement, Target
from rths_nodes.ros.nodes.phase import Phase

PERIOD = round(1e9 / 1024)
LONGEST = 10
"""Samples in 10 ms at 1024 Hz."""
PAUSES = ["substeps=1", "compensator.type=none", "bridge.when_late=pause"]


class Node:
    """Node whose messages come from the test."""

    def __init__(self, node) -> None:
        self.node = node
        self.codec = node.topics.codec

    def put(self, topic: str, data: bytes) -> None:
        self.node.topics.inboxes[topic].put(data)

    def target(self, step: int) -> None:
        rows = (np.array([x]) for x in (1e-5 * step, 1e-5 * 1024, 0.0, 0.0, 0.0, 0.0))
        self.put("target", self.codec.pack_target(Target(step, *rows), 0))

    def measurement(self, sample: int, flags: int = 0) -> None:
        measured = Measurement(sample, *(np.zeros(1) for _ in range(3)), flags=flags)
        self.put("measurement", self.codec.pack_measurement(measured, 0))

    def command(self, sample: int) -> None:
        value = np.array([1e-5 * sample])
        self.put("command", self.codec.pack_command(Command(sample, value, value), 0))

    def commands(self) -> list[tuple[int, int]]:
        """Return samples and flags of the Commands that a compensator sends now."""
        sent = self.node.interposer.sent["command"]
        before = len(sent)
        while self.node.work() or self.node.work():  # a late Command is sent at the second call
            pass
        commands = [self.codec.unpack_command(data)[0] for data in sent[before:]]
        return [(command.sample, command.flags) for command in commands]


@pytest.fixture
def exhausted(by_hand, clock) -> Iterator[Node]:
    """A compensator that has bridged as many samples as it may."""
    with by_hand.node("compensator", clock=clock, pace="realtime", overrides=PAUSES) as node:
        compensator = Node(node)
        compensator.target(0)
        compensator.target(1)
        for sample in range(LONGEST + 1):
            compensator.measurement(sample)
            compensator.commands()
            clock.now = node.deadline or clock.now
            compensator.commands()
        assert node.stage.bridged == LONGEST
        yield compensator


def test_compensator_waits_for_target_without_timeout(exhausted, clock):
    exhausted.measurement(LONGEST + 1)
    for _ in range(100):
        clock.now += PERIOD
        assert exhausted.commands() == []
    assert exhausted.node.deadline is None, "only messages wake it up"
    for step in range(2, LONGEST + 3):
        exhausted.target(step)
    assert exhausted.commands() == [(LONGEST + 2, 0)]
    exhausted.measurement(LONGEST + 2, FLAG_SLOWED)
    exhausted.target(LONGEST + 3)
    assert exhausted.commands() == [(LONGEST + 3, 0)]


def test_compensator_stops_waiting_when_rig_has_tripped(exhausted, clock):
    exhausted.measurement(LONGEST + 1)
    assert exhausted.commands() == []
    exhausted.measurement(LONGEST + 2, FLAG_TRIPPED)
    clock.now += PERIOD
    assert exhausted.commands() == []
    assert exhausted.node.last_sample == LONGEST + 2


def test_rig_ticks_without_samples(by_hand, clock):
    options = {"clock": clock, "pace": "realtime", "peers": ["actuator"], "overrides": PAUSES}
    with by_hand.node("actuator", **options) as node:
        rig = Node(node)
        node.phase.to(Phase.READY)
        node.work()
        node.work()
        assert node.running

        def turn() -> list[Measurement]:
            sent = node.interposer.sent["measurement"]
            before = len(sent)
            node.work()
            if node.slack is not None:
                clock.now = max(clock.now, node.pacer.due)
                node.tick()
            return [rig.codec.unpack_measurement(data)[0] for data in sent[before:]]

        for sample in range(1, 5):
            rig.command(sample)
            turn()
        assert node.rig.sample == 4
        for _ in range(LONGEST):
            clock.now = node.deadline
            assert [measured.flags for measured in turn()] == [FLAG_BRIDGED]
        last = node.rig.sample
        clock.now = node.deadline
        for _ in range(50):
            assert turn() == [], "a tick without a sample"
        assert (node.rig.sample, node.rig.ticks) == (last, last + 50)
        measurements: list[Measurement] = []
        for sample in range(last + 1, last + 40):
            rig.command(sample)
            while node.rig.sample < sample:
                measurements += turn()
        assert [measured.sample for measured in measurements] == list(range(last + 1, last + 40))
        assert measurements[0].flags == FLAG_SLOWED
        assert measurements[-1].flags == 0
        assert node.counters()["slowed"] == sum(measured.flags == FLAG_SLOWED for measured in measurements)
        assert node.pacer.missed == 0


def test_slow_step_does_not_delay_next_step(by_hand, clock):
    """The integrator rests from the Measurement it has answered, not from its answer."""
    with by_hand.node("integrator", clock=clock, pace="realtime", overrides=["substeps=20"]) as node:
        step = node.stage.next

        def slow(measured: Measurement) -> Target | None:
            clock.now += 15 * PERIOD
            return step(measured)

        node.stage.next = slow
        began = clock.now
        Node(node).measurement(0)
        node.work()
        assert len(node.interposer.sent["target"]) == 2
        assert node.rests
        assert node.deadline - began == pytest.approx(18.5 * PERIOD, abs=20_000)
