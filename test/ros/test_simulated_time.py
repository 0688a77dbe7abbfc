# SPDX-License-Identifier: Apache-2.0
"""What tools that draw and tools that use_sim_time hear of a test: joint_states with a frame, and /clock."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from ear import Ear
from messages import naming
from rclpy.node import Node
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.recording import bag
from rths_nodes.ros.hosting import composed

NAME, SHORT = "chen_ricles_2010", "duration=1.5"
SAMPLE = 1e9 / 1024.0
"""ns."""


@pytest.mark.parametrize("clock", [True, False])
def test_the_time_of_a_test_in_lockstep_runs_with_its_samples(clock: bool, tmp_path: Any) -> None:
    with composed.ros_context() as context:
        node = Node("tool", context=context, start_parameter_services=False)
        time, joints = Ear(node, Clock, "/clock"), Ear(node, JointState, "/rths/joint_states")

        def listen(*_: int) -> None:
            time.listen()
            joints.listen()

        done = hosts.run(NAME, [SHORT], host="composed", record=tmp_path / "run", clock=clock, progress=listen)
        listen()
        node.destroy_node()
    assert done.exit_code == 0
    stamps = [told.clock.sec * 10**9 + told.clock.nanosec for told in time.heard]
    measured = {stamp for topic, _, stamp in bag.read(tmp_path / "run").messages() if topic == "/rths/measurement"}
    assert set(stamps) <= measured
    assert stamps == sorted(stamps)
    if clock:  # every tenth sample, from when the tool was found
        assert len(stamps) > 10
        assert np.diff(stamps).max() <= 11 * SAMPLE
        assert max(measured) - stamps[-1] <= 11 * SAMPLE
    else:
        assert stamps == []
    assert {told.header.frame_id for told in joints.heard} == {"rths"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"host": "composed", "pace": "realtime"}, ("clock", "lockstep")),
        ({}, ("host", "embedded")),
    ],
)
def test_where_there_is_no_simulated_time_it_is_refused(options: dict[str, str], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        hosts.run(NAME, [SHORT], clock=True, **options)
