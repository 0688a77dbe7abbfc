"""Curves of the motions of a procedure, as whoever looks on hears them."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from ear import Ear
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from served_test import Operator, by_service

from rths_nodes.loop.supervision.live import LAST, OF_AXIS, PER_CURVE
from rths_nodes.msg import Live, LiveCurves
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.names import MOTION

pytestmark = pytest.mark.nodes

LOSSY = QoSProfile(depth=5000, reliability=ReliabilityPolicy.BEST_EFFORT)
LATCHED = QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL)


def test_motions_of_a_procedure_are_drawn(tmp_path: Path) -> None:
    """The check moves the rig a little, and back; the position is where it stands in the end."""
    with composed.ros_context() as context, by_service(tmp_path) as session:
        node = Node("page", context=context, start_parameter_services=False)
        live = Ear(node, Live, "/rths_0/live", LOSSY)
        curves = Ear(node, LiveCurves, "/rths_0/live_curves", LATCHED)
        Operator(session).climb("position")
        end = time.monotonic() + 20.0
        while len({told.header.frame_id for told in live.heard}) < len(curves.heard) or not curves.heard:
            live.listen()
            curves.listen()
            assert time.monotonic() < end
            time.sleep(0.05)
        stands = session.runner.session.measured
        node.destroy_node()
    axes = list(session.runner.session.scenario.axes)
    names = curves.heard[-1].names
    assert names == [f"{axis}/{name}" for name in OF_AXIS for axis in axes]
    frames = [told.header.frame_id for told in curves.heard]
    assert all(frame.startswith(MOTION) for frame in frames)
    assert len({frame.rpartition(" ")[0] for frame in frames}) == 1, "of one procedure"
    assert sorted(set(frames)) == sorted(frames)
    last = [told for told in live.heard if told.header.frame_id == frames[-1]]
    values = np.concatenate([np.array(told.values).reshape(-1, len(names), PER_CURVE) for told in last])
    at = [names.index(f"{axis}/measured") for axis in axes]
    np.testing.assert_allclose(values[-1, at, LAST], stands.displacement, atol=1e-5)  # the last bit of the sensor
