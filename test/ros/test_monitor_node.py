# SPDX-License-Identifier: Apache-2.0
"""The monitor node, sample by sample."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.indices.delay import CHUNK
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.hosting.results import Result
from rths_nodes.ros.nodes import monitor
from rths_nodes.ros.nodes.monitor import RATE
from rths_nodes.ros.nodes.shutdown import Shutdown


def run_before(node: Any, without: int = 0, at_a_time: int = 1) -> int:
    """A test of the reference loop put before ``node``, ``without`` the last Measurements; its last sample."""
    loop = Loop(Assembly(node.scenario))
    loop.rig.connect()
    loop.rig.machine.to(State.ARMED)
    inboxes, codec = node.topics.inboxes, node.topics.codec
    target = loop.substructure.first()
    loop.commands.target(target)
    inboxes["target"].put(codec.pack_target(target, 0))
    measured = loop.rig.first()

    def put_measured() -> None:
        if measured.sample <= node.scenario.samples - without:
            inboxes["measurement"].put(codec.pack_measurement(measured, 0))

    for sample in range(node.scenario.samples):
        put_measured()
        target = loop.substructure.next(measured)
        if target is not None:
            loop.commands.target(target)
            inboxes["target"].put(codec.pack_target(target, 0))
        command = loop.commands.next(measured)
        inboxes["command"].put(codec.pack_command(command, 0))
        measured = loop.rig.tick(command)
        if (sample + 1) % at_a_time == 0:
            while node.work(at_a_time):
                pass
    put_measured()
    return int(measured.sample)


@pytest.mark.parametrize("at_a_time", [1, 32])
def test_the_status_is_told_twenty_times_a_second_however_the_samples_come(at_a_time: int, by_hand: Any) -> None:
    with by_hand.node("monitor", pace="realtime", overrides=["duration=1"]) as node:
        run_before(node, at_a_time=at_a_time)
        expected = RATE * node.scenario.samples * node.scenario.dt
        assert expected - 1 <= node.topics.sent["sync_status"] <= expected + 2


def test_a_chunk_of_the_delay_waits_until_no_measurement_does(by_hand: Any) -> None:
    """In real time; the indices are those of the embedded loop to the bit."""
    with by_hand.node("monitor", pace="realtime", overrides=["duration=4.5"]) as node:
        last = run_before(node, at_a_time=10**9)
        while node.stage.sample < last:
            assert node.spares == (node.stage.sample >= CHUNK - 1)
            assert node.work(1)
        parts = 0
        while node.spares:
            assert node.work(1)
            parts += 1
        assert parts > 1
        metrics = node.stage.metrics()
        assert metrics == Loop(Assembly(node.scenario)).run().metrics


@pytest.mark.parametrize("missing", [0, 1, 40])
def test_what_is_missing_in_the_end_is_waited_for_and_told(
    missing: int, by_hand: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Shutdown, "abandoned", False)  # as if the actuator node were here
    with by_hand.node("monitor", clock=clock, pace="realtime", overrides=["duration=1"]) as node:
        last = run_before(node, without=missing)
        by_hand.put_state(node, State.FINISHED, last)
        while node.work():
            pass
        clock.now += monitor.QUIET_NS // 2
        node.work()
        assert bool(node.shutdown.summary) == (not missing)
        clock.now += monitor.QUIET_NS
        node.work()
        assert node.shutdown.summary.get("unseen.samples", 0) == missing
        told = Result(State.FINISHED, numbers=node.shutdown.summary)
        told.judge([0])
        last = f"{missing} sample{'s'[: missing > 1]}"
        words = f"the indices exclude the last {last}, which the monitor has not received"
        assert (words in told.notes) == bool(missing)


@pytest.mark.parametrize("state", [State.RUNNING, State.STOPPING])
def test_a_test_that_goes_on_after_an_interrupt_is_tripped_once(state: State, by_hand: Any, clock: Any) -> None:
    """Our actuator node hears the interrupt, too; a driver of somebody else hears a Trip."""
    with by_hand.node("monitor", clock=clock, overrides=["duration=1"]) as node:
        by_hand.put_state(node, State.RUNNING, 0)
        clock.now += monitor.UNHEARD_NS
        node.look()
        node.work()
        node.shutdown.interrupt()
        by_hand.put_state(node, state, 1)
        for waited, trips in ((monitor.UNHEARD_NS // 2, 0), (monitor.UNHEARD_NS, 1), (monitor.UNHEARD_NS, 1)):
            clock.now += waited
            node.shutdown.be_patient()  # Measurements still come
            node.look()
            node.work()
            assert node.topics.sent["trip"] == (trips if state is State.RUNNING else 0)
