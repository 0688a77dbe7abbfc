"""The runner's ear."""

from __future__ import annotations

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from rths_nodes.ros.hosting import composed
from rths_nodes.ros.hosting.console import Console


def test_who_has_waited_for_others_and_is_ready_has_no_problem() -> None:
    """What a node waited for at the start must not stand as the reason for its death."""
    with composed.ros_context() as context:
        console = Console(context, "rths", ("actuator",))
        for problem in ("waits for /rths/monitor on /rths/trip", ""):
            console._hear("node_status", {"node": "actuator", "problem": problem})
        assert not console.problems["actuator"]
        console.destroy_node()
