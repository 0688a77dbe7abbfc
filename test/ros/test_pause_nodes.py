# SPDX-License-Identifier: Apache-2.0
"""The nodes in a pause: the compensator waits for its Target, the rig ticks without samples."""

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
    """A node with its inboxes and its clock by hand."""

    def __init__(self, node, clock) -> None:
        self.node, self.clock = node, clock
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
        """Numbers and flags of the Commands that a compensator answers with now."""
        sent = self.node.interposer.sent["command"]
        before = len(sent)
        while self.node.work() or self.node.work():  # what is late it says at the second look
            pass
        found = [self.codec.unpack_command(data)[0] for data in sent[before:]]
        return [(command.sample, command.flags) for command in found]


@pytest.fixture
def exhausted(by_hand, clock) -> Iterator[Node]:
    """A compensator that may bridge no more."""
    with by_hand.node("compensator", clock=clock, pace="realtime", overrides=PAUSES) as node:
        compensator = Node(node, clock)
        compensator.target(0)
        compensator.target(1)
        for sample in range(LONGEST + 1):
            compensator.measurement(sample)
            compensator.commands()
            clock.now = node.deadline or clock.now
            compensator.commands()
        assert node.stage.bridged == LONGEST
        yield compensator


def test_the_compensator_waits_for_the_target_however_long(exhausted, clock):
    exhausted.measurement(LONGEST + 1)
    for _ in range(100):
        clock.now += PERIOD
        assert exhausted.commands() == []
    assert exhausted.node.deadline is None, "nothing to wake up for but messages"
    for step in range(2, LONGEST + 3):
        exhausted.target(step)
    assert exhausted.commands() == [(LONGEST + 2, 0)]
    exhausted.measurement(LONGEST + 2, FLAG_SLOWED)
    exhausted.target(LONGEST + 3)
    assert exhausted.commands() == [(LONGEST + 3, 0)]


def test_it_does_not_wait_when_the_rig_has_stopped(exhausted, clock):
    exhausted.measurement(LONGEST + 1)
    assert exhausted.commands() == []
    exhausted.measurement(LONGEST + 2, FLAG_TRIPPED)
    clock.now += PERIOD
    assert exhausted.commands() == []
    assert exhausted.node.last_sample == LONGEST + 2


def test_the_rig_ticks_without_samples(by_hand, clock):
    options = {"clock": clock, "pace": "realtime", "peers": ["actuator"], "overrides": PAUSES}
    with by_hand.node("actuator", **options) as node:
        rig = Node(node, clock)
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
            assert turn() == [], "a tick of no sample"
        assert (node.rig.sample, node.rig.ticks) == (last, last + 50)
        found: list[Measurement] = []
        for sample in range(last + 1, last + 40):
            rig.command(sample)
            while node.rig.sample < sample:
                found += turn()
        numbers = [measured.sample for measured in found]
        assert numbers == list(range(last + 1, last + 40))
        assert found[0].flags == FLAG_SLOWED
        assert found[-1].flags == 0
        assert node.counters()["slowed"] == sum(measured.flags == FLAG_SLOWED for measured in found)
        assert node.pacer.missed == 0


def test_a_slow_step_does_not_make_the_next_one_late(by_hand, clock):
    """The integrator rests from the Measurement on that it has answered, not from its answer on."""
    overrides = ["substeps=20"]
    with by_hand.node("integrator", clock=clock, pace="realtime", overrides=overrides) as node:
        integrator = Node(node, clock)
        following = node.stage.next

        def slow(measured: Measurement) -> Target | None:
            clock.now += 15 * PERIOD
            return following(measured)

        node.stage.next = slow
        began = clock.now
        integrator.measurement(0)
        node.work()
        assert len(node.interposer.sent["target"]) == 2
        assert node.rests
        assert node.deadline - began == pytest.approx(18.5 * PERIOD, abs=20_000)
