# SPDX-License-Identifier: Apache-2.0
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
from served_test import Operator, with_node

from rths_nodes.loop.indices.live_columns import LAST, OF_AXIS, PER_CURVE
from rths_nodes.msg import Live, LiveCurves
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.names import MOTION

pytestmark = pytest.mark.nodes

LOSSY = QoSProfile(depth=5000, reliability=ReliabilityPolicy.BEST_EFFORT)
LATCHED = QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL)
BIT, MOVE = 1e-5, 0.9e-3
"""The last bit of the sensor, and nearly the small move of the check, m."""


def measured(live: list[Live], curves: list[LiveCurves]) -> tuple[np.ndarray, float]:
    """The last measured displacements of the last motion that was drawn, by axis, and the largest of all, m."""
    if not curves or not live:
        return np.full(1, np.nan), 0.0
    names = curves[-1].names
    at = [place for place, name in enumerate(names) if name.endswith("/measured")]
    values = [np.array(told.values).reshape(-1, len(names), PER_CURVE)[:, at] for told in live]
    last = [each for each, told in zip(values, live, strict=True) if told.run == curves[-1].run]
    largest = max(float(np.nanmax(np.abs(each))) for each in values)
    return (last[-1][-1, :, LAST] if last else np.full(len(at), np.nan)), largest


def test_motions_of_a_procedure_are_drawn(tmp_path: Path) -> None:
    """The check moves the rig a little, and back; the position is where it stands in the end."""
    with composed.ros_context() as context, with_node(tmp_path) as session:
        node = Node("page", context=context, start_parameter_services=False)
        live = Ear(node, Live, "/rths_0/live", LOSSY)
        curves = Ear(node, LiveCurves, "/rths_0/live_curves", LATCHED)
        Operator(session).climb("position")
        stands = session.runner.session.measured.displacement
        end, shown, largest = time.monotonic() + 20.0, np.full(1, np.nan), 0.0
        # the last columns come once a motion is seen to be over
        while time.monotonic() < end and not (largest > MOVE and np.allclose(shown, stands, rtol=0.0, atol=BIT)):
            time.sleep(0.05)
            live.listen()
            curves.listen()
            shown, largest = measured(live.heard, curves.heard)
        node.destroy_node()
    axes = list(session.runner.session.scenario.axes)
    names = curves.heard[-1].names
    assert names == [f"{axis}/{name}" for name in OF_AXIS for axis in axes]
    frames = [told.run for told in curves.heard]
    assert all(frame.startswith(MOTION) for frame in frames)
    assert len({frame.rpartition(" ")[0] for frame in frames}) == 1, "of one procedure"
    assert sorted(set(frames)) == sorted(frames)
    assert largest > MOVE
    np.testing.assert_allclose(shown, stands, atol=BIT)
