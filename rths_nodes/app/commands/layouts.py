# SPDX-License-Identifier: Apache-2.0
"""``rths layouts``: files by which other tools of ROS 2 know a rig, and show its tests, in one command."""

from __future__ import annotations

import argparse
from pathlib import Path

from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.tool_layouts import layouts
from rths_nodes.loop.options import ACTUATOR_NODES, NAMESPACE, ONE_NODE, checked_namespace
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.ros import stack_files
from rths_nodes.ros.hosting.descriptions import axes_with_nodes


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
    """Write the files, and say how each is opened."""
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
