# SPDX-License-Identifier: Apache-2.0
"""Layouts of other tools refer only to existing topics, fields and axes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from rths_nodes.app.cli import main
from rths_nodes.app.commands import layouts
from rths_nodes.core.wire import definition, fields_of
from rths_nodes.loop.scenario import files
from rths_nodes.ros import stack_files
from rths_nodes.ros.names import TOPICS

STREAM = re.compile(r"/lab/rig/(\w+)\.(\w+)\[(\d+)\]")


@pytest.fixture(params=["chen_ricles_2010", "three_independent_axes", "two_actuator_coupler"])
def layout(request: Any, tmp_path: Path) -> tuple[Any, Path]:
    """A scenario, and the folder with its layouts."""
    folder = tmp_path / "layouts"
    assert main(["layouts", request.param, "--namespace", "/lab/rig", "--out", str(folder)]) == 0
    return files.load(request.param), folder


def test_plotjuggler_curves_are_published_joints(layout: tuple[Any, Path]) -> None:
    scenario, folder = layout
    root = ElementTree.parse(folder / "plotjuggler.xml").getroot()
    curves = [curve.get(key) for curve in root.iter("curve") for key in ("name", "curve_x", "curve_y")]
    drawn = set()
    for name in filter(None, curves):
        if name.startswith("/"):
            topic, axis, field = name.removeprefix("/lab/rig/").split("/")
            assert TOPICS[topic].type == "sensor_msgs/msg/JointState"
            assert field in ("position", "velocity", "effort")
            drawn.add((topic, axis))
    assert drawn == {(topic, axis) for topic in layouts.SHOWN for axis in scenario.axes}
    assert [tab.get("tab_name") for tab in root.iter("Tab")] == list(scenario.axes)
    assert {topic.get("name") for topic in root.iter("topic")} == {f"/lab/rig/{topic}" for topic in layouts.SHOWN}


def test_foxglove_plots_are_recorded_streams(layout: tuple[Any, Path]) -> None:
    scenario, folder = layout
    data = json.loads((folder / "foxglove.json").read_text(encoding="utf-8"))
    panels = data["configById"]
    paths = [path for panel in panels.values() for path in (*panel.get("paths", ()), panel.get("xAxisPath"))]
    axes = set()
    for path in filter(None, paths):
        topic, field, axis = STREAM.fullmatch(path["value"]).groups()
        assert TOPICS[topic].recorded
        assert field in {name for name, _, bound in fields_of(definition(TOPICS[topic].message)) if bound}
        axes.add(int(axis))
    assert axes == set(range(len(scenario.axes)))
    assert set(leaves(data["layout"])) == set(panels)
    assert panels["RawMessages!state"]["topicPath"] == "/lab/rig/test_state"


def leaves(split: Any) -> Iterator[str]:
    if isinstance(split, str):
        yield split
    else:
        assert 0.0 < split["splitPercentage"] < 100.0
        yield from leaves(split["first"])
        yield from leaves(split["second"])


def test_rviz_model_has_axes_as_joints(layout: tuple[Any, Path]) -> None:
    scenario, folder = layout
    robot = ElementTree.parse(folder / "rig.urdf").getroot()
    joints = {joint.get("name"): joint for joint in robot.iter("joint")}
    assert list(joints) == list(scenario.axes)
    links = {link.get("name") for link in robot.iter("link")}
    for name, axis in scenario.axes.items():
        assert float(joints[name].find("limit").get("upper")) == pytest.approx(axis.limits.stroke)
        assert {part.get("link") for part in joints[name] if part.get("link")} <= links
    view = yaml.safe_load((folder / "rig.rviz").read_text(encoding="utf-8"))["Visualization Manager"]
    (model,) = (display for display in view["Displays"] if display["Class"].endswith("RobotModel"))
    assert model["Description Topic"]["Value"] == "/lab/rig/robot_description"
    assert view["Global Options"]["Fixed Frame"] == f"{model['TF Prefix']}/{stack_files.GROUND}"


@pytest.mark.skipif(shutil.which("check_urdf") is None, reason="check_urdf is not installed here")
def test_urdfdom_accepts_the_model(layout: tuple[Any, Path]) -> None:
    _, folder = layout
    done = subprocess.run(["check_urdf", str(folder / "rig.urdf")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
