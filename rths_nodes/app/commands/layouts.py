# SPDX-License-Identifier: Apache-2.0
"""``rths layouts``: layouts of a test for ROS 2 tools: PlotJuggler, Foxglove (Lichtblick), RViz.

They name the topics of one scenario's axes in one namespace. PlotJuggler and RViz show axes as joints; Foxglove
plots the streams of every sample, which recordings contain as well.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from string import Template
from xml.etree import ElementTree

from rths_nodes.app.commands import arguments, terminal
from rths_nodes.core.resources import resource
from rths_nodes.loop.options import ACTUATOR_NODES, NAMESPACE, ONE_NODE, checked_namespace
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.ros import stack_files
from rths_nodes.ros.hosting.descriptions import axes_with_nodes
from rths_nodes.ros.names import COMMANDS, STATES, TARGETS

COLORS = {TARGETS: "#1f77b4", COMMANDS: "#7f7f7f", STATES: "#d62728"}
"""Curves in drawing order: measured over command over target."""
SHOWN = {TARGETS: "target", COMMANDS: "command", STATES: "measured"}
GROUND = "ground"
"""Fixed link."""
THICK, WIDE, APART = 0.5, 6.0, 5.0
"""Height, width and distance of the slabs of the model, relative to the stroke of their axis."""


def layouts(scenario: Scenario, namespace: str) -> dict[str, str]:
    """Return the text of each file by name."""
    rig, axes = f"/{namespace}", list(scenario.axes)
    return {
        "plotjuggler.xml": plotjuggler(rig, axes),
        "foxglove.json": json.dumps(foxglove(rig, axes), indent=1) + "\n",
        "rig.urdf": urdf(scenario),
        "rig.rviz": rviz(rig),
    }


# -- PlotJuggler 3 ----------------------------------------------------------------------------------------


def plotjuggler(rig: str, axes: Sequence[str]) -> str:
    """A tab for each axis: displacements, force, and force against displacement."""
    root = ElementTree.Element("root")
    tabs = _below(root, "tabbed_widget", name="Main Window", parent="main_window")
    for axis in axes:
        tab = _below(tabs, "Tab", tab_name=axis, containers="1")
        rows = _splitter(_below(tab, "Container"), "-", 2)
        _plot(
            rows,
            f"{axis}: displacement [m]",
            [(f"{rig}/{stream}/{axis}/position", COLORS[stream]) for stream in SHOWN],
        )
        columns = _splitter(rows, "|", 2)
        effort = f"{rig}/{STATES}/{axis}/effort"
        _plot(columns, f"{axis}: force [N]", [(effort, COLORS[STATES])])
        loop = _plot(columns, f"{axis}: force [N] against displacement [m]", [], "XYPlot")
        curve = {"curve_x": f"{rig}/{STATES}/{axis}/position", "curve_y": effort}
        _below(loop, "curve", name=f"{axis}: force", color=COLORS[STATES], **curve)
    _below(tabs, "currentTabIndex", index="0")
    _below(root, "use_relative_time_offset", enabled="1")
    _below(root, "previouslyLoaded_Streamer", name="ROS2 Topic Subscriber")
    chosen = _below(_below(_below(root, "Plugins"), "plugin", ID="ROS2 Topic Subscriber"), "selected_topics")
    for topic in SHOWN:
        _below(chosen, "topic", name=f"{rig}/{topic}")
    return _xml(root)


def _splitter(above: ElementTree.Element, orientation: str, count: int) -> ElementTree.Element:
    sizes = ";".join([f"{1.0 / count:g}"] * count)
    return _below(above, "DockSplitter", orientation=orientation, count=str(count), sizes=sizes)


def _plot(
    above: ElementTree.Element, title: str, curves: Sequence[tuple[str, str]], mode: str = "TimeSeries"
) -> ElementTree.Element:
    area = _below(above, "DockArea", name=title)
    plot = _below(area, "plot", mode=mode, style="Lines", flip_x="false", flip_y="false")
    _below(plot, "range", left="0", right="1", bottom="-1", top="1")
    _below(plot, "limitY")
    for name, color in curves:
        _below(plot, "curve", name=name, color=color)
    return plot


def _below(above: ElementTree.Element, tag: str, **attributes: str) -> ElementTree.Element:
    return ElementTree.SubElement(above, tag, attributes)


def _xml(root: ElementTree.Element) -> str:
    ElementTree.indent(root, " ")
    return "<?xml version='1.0' encoding='UTF-8'?>\n" + ElementTree.tostring(root, encoding="unicode") + "\n"


# -- Foxglove ---------------------------------------------------------------------------------------------


def foxglove(rig: str, axes: Sequence[str]) -> dict[str, object]:
    """A column for each axis: displacements, force against displacement; the state below."""
    panels: dict[str, object] = {}
    columns = []
    for number, axis in enumerate(axes):
        moved, pushed = f"{rig}/measurement.displacement[{number}]", f"{rig}/measurement.force[{number}]"
        aims = f"{rig}/command.target[{number}]", f"{rig}/command.command[{number}]"
        names = zip((*aims, moved), SHOWN.items(), strict=True)
        tracks = [_path(value, label, COLORS[topic]) for value, (topic, label) in names]
        panels[f"Plot!{axis}"] = {"title": f"{axis}: displacement [m]", "paths": tracks}
        panels[f"Plot!{axis}_force"] = {
            "title": f"{axis}: force [N] against displacement [m]",
            "xAxisVal": "custom",
            "xAxisPath": {"value": moved, "enabled": True},
            "paths": [_path(pushed, "force", COLORS[STATES])],
        }
        columns.append(_split("column", f"Plot!{axis}", f"Plot!{axis}_force", 60))
    panels["RawMessages!state"] = {"topicPath": f"{rig}/test_state"}
    layout = _beside(columns)
    return {
        "configById": panels,
        "globalVariables": {},
        "userNodes": {},
        "playbackConfig": {"speed": 1.0},
        "layout": _split("column", layout, "RawMessages!state", 80),
    }


def _path(value: str, label: str, color: str) -> dict[str, object]:
    return {"value": value, "enabled": True, "timestampMethod": "headerStamp", "label": label, "color": color}


def _split(direction: str, first: object, second: object, percent: float) -> dict[str, object]:
    return {"direction": direction, "first": first, "second": second, "splitPercentage": percent}


def _beside(columns: Sequence[object]) -> object:
    first, *further = columns
    return _split("row", first, _beside(further), 100.0 / len(columns)) if further else first


# -- RViz -------------------------------------------------------------------------------------------------


def urdf(scenario: Scenario) -> str:
    """Axes as stacked slabs, each a prismatic joint along x within its stroke (m)."""
    robot = ElementTree.Element("robot", name=scenario.name)
    _slab(robot, GROUND, max(axis.limits.stroke for axis in scenario.axes.values()), "0.3 0.3 0.3 1")
    height = 0.0
    for name, axis in scenario.axes.items():
        limits = axis.limits
        height += APART * limits.stroke
        _slab(robot, f"{name}_slab", limits.stroke, "0.84 0.15 0.16 1")
        joint = _below(robot, "joint", name=name, type="prismatic")
        _below(joint, "parent", link=GROUND)
        _below(joint, "child", link=f"{name}_slab")
        _below(joint, "origin", xyz=f"0 0 {height:g}", rpy="0 0 0")
        _below(joint, "axis", xyz="1 0 0")
        bounds = {"lower": -limits.stroke, "upper": limits.stroke}
        bounds |= {"effort": limits.force, "velocity": limits.velocity}
        _below(joint, "limit", **{key: f"{value:g}" for key, value in bounds.items()})
    return _xml(robot)


def _slab(robot: ElementTree.Element, name: str, stroke: float, color: str) -> None:
    visual = _below(_below(robot, "link", name=name), "visual")
    size = f"{WIDE * stroke:g} {WIDE * stroke:g} {THICK * stroke:g}"
    _below(_below(visual, "geometry"), "box", size=size)
    _below(_below(visual, "material", name=f"of_{name}"), "color", rgba=color)


def rviz(rig: str) -> str:
    """The model, from the robot_state_publisher in the rig's namespace, which is also its frame_prefix."""
    template = resource("config", "templates", "layouts", "rig.rviz.tmpl").read_text(encoding="utf-8")
    return Template(template).substitute(prefix=rig.strip("/"), ground=GROUND)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_scenario(parser)
    parser.add_argument("--namespace", default=NAMESPACE, help="of the rig; default: %(default)s")
    parser.add_argument(
        "--actuator-nodes",
        choices=ACTUATOR_NODES,
        default=ONE_NODE,
        help="as of the test: per_axis puts the nodes of axes into the policy of SROS 2; default: %(default)s",
    )
    parser.add_argument("--out", metavar="DIR", default="layouts", help="folder; default: %(default)s")


def run(options: argparse.Namespace) -> int:
    scenario = arguments.scenario(options)
    name, folder = checked_namespace(options.namespace), Path(options.out)
    axes = axes_with_nodes(scenario, options.actuator_nodes)
    with terminal.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in (layouts(scenario, name) | stack_files.of_rig(name, axes)).items():
            (folder / file).write_text(text, encoding="utf-8")
    publisher = f"ros2 run robot_state_publisher robot_state_publisher {folder}/rig.urdf"
    aggregator = "ros2 run diagnostic_aggregator aggregator_node --ros-args"
    print(f"PlotJuggler: ros2 run plotjuggler plotjuggler -l {folder}/plotjuggler.xml")
    print(f"Foxglove: import the layout {folder}/foxglove.json; it takes recordings, and tests by foxglove_bridge")
    print(f"RViz: {publisher} --ros-args -r __ns:=/{name} -p frame_prefix:={name}/")
    print(f"      rviz2 -d {folder}/rig.rviz")
    print(f"ros2 bag: ros2 bag record --qos-profile-overrides-path {folder}/rosbag2_qos.yaml -a")
    print(f"diagnostic_aggregator: {aggregator} --params-file {folder}/diagnostics.yaml")
    print(f"SROS 2: ros2 security create_enclave KEYSTORE /{name}/ENCLAVE, and create_permission with")
    print(f"      {folder}/sros2_policy.xml")
    return ExitCode.FINISHED
