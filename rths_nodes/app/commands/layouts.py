# SPDX-License-Identifier: Apache-2.0
"""``rths layouts``: files by which PlotJuggler, Foxglove and RViz show the tests of a scenario in one command."""

from __future__ import annotations

import argparse
from pathlib import Path

from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.tool_layouts import layouts
from rths_nodes.loop.options import NAMESPACE, checked_namespace
from rths_nodes.loop.outcomes import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_scenario(parser)
    parser.add_argument("--namespace", default=NAMESPACE, help="of the rig; default: %(default)s")
    parser.add_argument("--out", metavar="DIR", default="layouts", help="folder; default: %(default)s")


def run(options: argparse.Namespace) -> int:
    """Write the files, and say how each is opened."""
    scenario = arguments.scenario(options)
    name, folder = checked_namespace(options.namespace), Path(options.out)
    with terminal.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in layouts(scenario, name).items():
            (folder / file).write_text(text, encoding="utf-8")
    publisher = f"ros2 run robot_state_publisher robot_state_publisher {folder}/rig.urdf"
    print(f"PlotJuggler: ros2 run plotjuggler plotjuggler -l {folder}/plotjuggler.xml")
    print(f"Foxglove: import the layout {folder}/foxglove.json; it takes recordings, and tests by foxglove_bridge")
    print(f"RViz: {publisher} --ros-args -r __ns:=/{name} -p frame_prefix:={name}/")
    print(f"      rviz2 -d {folder}/rig.rviz")
    return ExitCode.FINISHED
