# SPDX-License-Identifier: Apache-2.0
"""``rths layouts``: write files for the use of a rig with PlotJuggler, Foxglove, RViz, ros2 bag and SROS 2."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from rths_nodes.app.commands import arguments, terminal
from rths_nodes.core.text_files import write
from rths_nodes.loop.options import ACTUATOR_NODES, NAMESPACE, ONE_NODE, checked_namespace
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.ros import stack_files
from rths_nodes.ros.hosting.node_processes import axes_with_nodes
from rths_nodes.ros.names import COMMANDS, STATES, TARGETS
from rths_nodes.ros.stack_files import below, rviz, urdf, xml_text

COLORS = {TARGETS: "#1f77b4", COMMANDS: "#7f7f7f", STATES: "#d62728"}
"""Colours of curves in drawing order: the target is at the back, the measured curve in front."""
SHOWN = {TARGETS: "target", COMMANDS: "command", STATES: "measured"}


def layouts(scenario: Scenario, namespace: str) -> dict[str, str]:
    rig, axes = f"/{namespace}", list(scenario.axes)
    return {
        "plotjuggler.xml": plotjuggler(rig, axes),
        "foxglove.json": json.dumps(foxglove(rig, axes), indent=1) + "\n",
        "rig.urdf": urdf(scenario),
        "rig.rviz": rviz(rig),
    }


# -- PlotJuggler 3 ----------------------------------------------------------------------------------------


def plotjuggler(rig: str, axes: Sequence[str]) -> str:
    root = ElementTree.Element("root")
    tabs = below(root, "tabbed_widget", name="Main Window", parent="main_window")
    for axis in axes:
        tab = below(tabs, "Tab", tab_name=axis, containers="1")
        rows = _splitter(below(tab, "Container"), "-")
        _plot(
            rows,
            f"{axis}: displacement [m]",
            [(f"{rig}/{stream}/{axis}/position", COLORS[stream]) for stream in SHOWN],
        )
        columns = _splitter(rows, "|")
        effort = f"{rig}/{STATES}/{axis}/effort"
        _plot(columns, f"{axis}: force [N]", [(effort, COLORS[STATES])])
        loop = _plot(columns, f"{axis}: force [N] against displacement [m]", [], "XYPlot")
        curve = {"curve_x": f"{rig}/{STATES}/{axis}/position", "curve_y": effort}
        below(loop, "curve", name=f"{axis}: force", color=COLORS[STATES], **curve)
    below(tabs, "currentTabIndex", index="0")
    below(root, "use_relative_time_offset", enabled="1")
    below(root, "previouslyLoaded_Streamer", name="ROS2 Topic Subscriber")
    chosen = below(below(below(root, "Plugins"), "plugin", ID="ROS2 Topic Subscriber"), "selected_topics")
    for topic in SHOWN:
        below(chosen, "topic", name=f"{rig}/{topic}")
    return xml_text(root)


def _splitter(above: ElementTree.Element, orientation: str) -> ElementTree.Element:
    return below(above, "DockSplitter", orientation=orientation, count="2", sizes="0.5;0.5")


def _plot(
    above: ElementTree.Element, title: str, curves: Sequence[tuple[str, str]], mode: str = "TimeSeries"
) -> ElementTree.Element:
    area = below(above, "DockArea", name=title)
    plot = below(area, "plot", mode=mode, style="Lines", flip_x="false", flip_y="false")
    below(plot, "range", left="0", right="1", bottom="-1", top="1")
    below(plot, "limitY")
    for name, color in curves:
        below(plot, "curve", name=name, color=color)
    return plot


# -- Foxglove ---------------------------------------------------------------------------------------------


def foxglove(rig: str, axes: Sequence[str]) -> dict[str, object]:
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


def layouts_arguments(add: arguments.Arguments) -> None:
    add.scenario()
    add("--namespace NAME", "namespace of the rig", NAMESPACE)
    text = "actuator nodes of the test; per_axis adds the nodes of the axes to the policy of SROS 2"
    add("--actuator-nodes", text, ONE_NODE, choices=ACTUATOR_NODES)
    add("--out DIR", "folder to write", "layouts")


def layouts_command(options: arguments.Options) -> None:
    scenario = arguments.scenario(options)
    name, folder = checked_namespace(options.namespace), Path(options.out)
    axes = axes_with_nodes(scenario, options.actuator_nodes)
    with terminal.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in (layouts(scenario, name) | stack_files.of_rig(name, axes)).items():
            write(folder / file, text.encode())
    publisher = f"ros2 run robot_state_publisher robot_state_publisher {folder}/rig.urdf"
    aggregator = "ros2 run diagnostic_aggregator aggregator_node --ros-args"
    print(f"PlotJuggler: ros2 run plotjuggler plotjuggler -l {folder}/plotjuggler.xml")
    print(f"Foxglove: import the layout {folder}/foxglove.json; a connection to a test requires foxglove_bridge")
    print(f"RViz: {publisher} --ros-args -r __ns:=/{name} -p frame_prefix:={name}/")
    print(f"      rviz2 -d {folder}/rig.rviz")
    print(f"ros2 bag: ros2 bag record --qos-profile-overrides-path {folder}/rosbag2_qos.yaml -a")
    print(f"diagnostic_aggregator: {aggregator} --params-file {folder}/diagnostics.yaml")
    print(f"SROS 2: ros2 security create_enclave KEYSTORE /{name}/ENCLAVE, then create_permission with the policy")
    print(f"      {folder}/sros2_policy.xml")
