"""The monitor node, sample by sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from rths_nodes.loop import Loop
from rths_nodes.ros.monitor_node import STATUS_RATE
from rths_nodes.safety import State


@pytest.mark.parametrize("at_a_time", [1, 32])
def test_the_status_is_told_twenty_times_a_second_however_the_samples_come(at_a_time: int, by_hand: Any) -> None:
    with by_hand.node("monitor", pace="realtime", overrides=["duration=1"]) as node:
        loop = Loop(node.scenario)
        loop.rig.connect()
        loop.rig.machine.to(State.ARMED)
        inboxes, codec = node.inboxes, node.codec
        target = loop.substructure.first()
        loop.commands.target(target)
        inboxes["target"].put(codec.pack_target(target, 0))
        measured = loop.rig.first()
        for sample in range(node.scenario.samples):
            inboxes["measurement"].put(codec.pack_measurement(measured, 0))
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
        assert np.isfinite(measured.displacement).all()
        expected = STATUS_RATE * node.scenario.samples * node.scenario.dt
        assert expected - 1 <= node.sent["sync_status"] <= expected + 2
