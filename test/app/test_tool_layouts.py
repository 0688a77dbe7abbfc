# SPDX-License-Identifier: Apache-2.0
"""Every topic, field and axis that a layout names is there."""

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
from rths_nodes.core.wire.layout import fields
from rths_nodes.loop.scenario import files
from rths_nodes.ros import rig_model
from rths_nodes.ros.names import TOPICS

JOINT = {"position", "velocity", "effort"}
STREAM = re.compile(r"/lab/rig/(\w+)\.(\w+)\[(\d+)\]")
SCENARIOS = ["chen_ricles_2010", "three_independent_axes", "two_actuator_coupler"]


@pytest.fixture(params=SCENARIOS)
def written(request: Any, tmp_path: Path) -> tuple[Any, Path]:
    folder = tmp_path / "layouts"
    assert main(["layouts", request.param, "--namespace", "/lab/rig", "--out", str(folder)]) == 0
    return files.load(request.param), folder


def test_plotjuggler_draws_joints_that_are_published(written: tuple[Any, Path]) -> None:
    scenario, folder = written
    root = ElementTree.parse(folder / "plotjuggler.xml").getroot()
    curves = [curve.get(key) for curve in root.iter("curve") for key in ("name", "curve_x", "curve_y")]
    found = set()
    for name in filter(None, curves):
        if name.startswith("/"):
            topic, axis, field = name.removeprefix("/lab/rig/").split("/")
            assert TOPICS[topic].type == "sensor_msgs/msg/JointState"
            assert field in JOINT
            found.add((topic, axis))
    assert found == {(topic, axis) for topic in layouts.SHOWN for axis in scenario.axes}
    assert [tab.get("tab_name") for tab in root.iter("Tab")] == list(scenario.axes)
    chosen = {topic.get("name") for topic in root.iter("topic")}
    assert chosen == {f"/lab/rig/{topic}" for topic in layouts.SHOWN}


def test_foxglove_draws_streams_that_are_recorded(written: tuple[Any, Path]) -> None:
    scenario, folder = written
    layout = json.loads((folder / "foxglove.json").read_text(encoding="utf-8"))
    panels = layout["configById"]
    named = [path for panel in panels.values() for path in (*panel.get("paths", ()), panel.get("xAxisPath"))]
    found = set()
    for path in filter(None, named):
        topic, field, axis = STREAM.fullmatch(path["value"]).groups()  # type: ignore[union-attr]
        assert TOPICS[topic].recorded
        assert field in {name for name, _, bound in fields(TOPICS[topic].message) if bound}
        found.add(int(axis))
    assert found == set(range(len(scenario.axes)))
    assert set(leaves(layout["layout"])) == set(panels)
    assert panels["RawMessages!state"]["topicPath"] == "/lab/rig/test_state"


def leaves(layout: Any) -> Iterator[str]:
    if isinstance(layout, str):
        yield layout
    else:
        assert 0.0 < layout["splitPercentage"] < 100.0
        yield from leaves(layout["first"])
        yield from leaves(layout["second"])


def test_rviz_shows_a_model_whose_joints_are_the_axes(written: tuple[Any, Path]) -> None:
    scenario, folder = written
    robot = ElementTree.parse(folder / "rig.urdf").getroot()
    joints = {joint.get("name"): joint for joint in robot.iter("joint")}
    assert list(joints) == list(scenario.axes)
    links = {link.get("name") for link in robot.iter("link")}
    for name, axis in scenario.axes.items():
        limit = joints[name].find("limit")
        assert limit is not None
        assert float(str(limit.get("upper"))) == pytest.approx(axis.limits.stroke)
        assert {part.get("link") for part in joints[name] if part.get("link")} <= links
    view = yaml.safe_load((folder / "rig.rviz").read_text(encoding="utf-8"))["Visualization Manager"]
    (model,) = (each for each in view["Displays"] if each["Class"].endswith("RobotModel"))
    assert model["Description Topic"]["Value"] == "/lab/rig/robot_description"
    assert view["Global Options"]["Fixed Frame"] == f"{model['TF Prefix']}/{rig_model.GROUND}"


def test_the_model_is_one_for_urdfdom(written: tuple[Any, Path]) -> None:
    if shutil.which("check_urdf") is None:
        pytest.skip("check_urdf is not installed here")
    _, folder = written
    done = subprocess.run(["check_urdf", str(folder / "rig.urdf")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
