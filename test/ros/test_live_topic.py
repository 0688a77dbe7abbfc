# SPDX-License-Identifier: Apache-2.0
"""What the live curves show is true: every column against the recording, every sample, on hosts with nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from ear import Ear
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from rths_nodes.app import hosts
from rths_nodes.loop.indices.live_columns import OF_AXIS
from rths_nodes.msg import Live, LiveCurves
from rths_nodes.recording.reading import read_run
from rths_nodes.ros.hosting import composed

pytestmark = pytest.mark.nodes

LOSSY = QoSProfile(depth=5000, reliability=ReliabilityPolicy.BEST_EFFORT)
LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)


def watched(scenario: str, overrides: list[str], **options: Any) -> tuple[Any, list[Any], Any]:
    """A run, the columns that somebody has heard of it, and what the curves are called."""
    with composed.ros_context() as context:
        node = Node("page", context=context, start_parameter_services=False)
        live, curves = Ear(node, Live, "/rths/live", LOSSY), Ear(node, LiveCurves, "/rths/live_curves", LATCHED)

        def listen(*_: int) -> None:
            live.listen()
            curves.listen()

        done = hosts.run(scenario, overrides, progress=listen, **options)
        listen()
        node.destroy_node()
    assert done.exit_code == 0
    return done, live.heard, curves.heard[-1]


def recorded(folder: Path) -> np.ndarray:
    """The curves of every sample of a recording that has finished, ``(n, 6 axes)``; the indicator is left out."""
    run = read_run(folder)
    return np.hstack([run.target, run.command, run.displacement, run.force, run.target - run.displacement])


@pytest.mark.parametrize(
    ("scenario", "options"),
    [
        ("chen_ricles_2010", {"host": "composed"}),
        ("chen_ricles_2010", {"host": "composed", "pace": "realtime"}),
        ("three_independent_axes", {"host": "processes"}),
    ],
)
def test_the_columns_are_those_of_the_recording(scenario: str, options: dict[str, Any], tmp_path: Path) -> None:
    done, heard, curves = watched(scenario, ["duration=2"], record=tmp_path / "run", **options)
    axes = list(done.scenario.axes)
    assert curves.names == [f"{axis}/{name}" for name in OF_AXIS for axis in axes]
    assert len(curves.units) == len(curves.names)
    limits = dict(zip(curves.limits, curves.high, strict=True))
    assert limits["stroke"] == done.scenario.limits[axes[-1]].stroke
    rows = recorded(tmp_path / "run")
    for told in heard:
        values = np.array(told.values).reshape(-1, len(curves.names), 4)
        for number, column in enumerate(values):
            start = told.first + number * told.column
            part = rows[start : start + told.column].astype(np.float32)
            known = column[: rows.shape[1]]
            np.testing.assert_array_equal(known[:, 1], part.min(axis=0))
            np.testing.assert_array_equal(known[:, 2], part.max(axis=0))
            np.testing.assert_array_equal(known[:, 0], part[0])
            np.testing.assert_array_equal(known[:, 3], part[-1])
    samples = [len(told.values) // (4 * len(curves.names)) * told.column for told in heard]
    assert sum(samples) > 0.5 * len(rows)  # who comes late, or is held up, misses some: it is best effort
    assert heard[-1].first + samples[-1] >= len(rows), "the end is told"
