# SPDX-License-Identifier: Apache-2.0
"""Every option of a run changes what a listener of the rig, the processes or the recording show of the test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from diagnostic_msgs.msg import DiagnosticArray
from ear import Ear
from messages import mentions
from rclpy.node import Node
from rclpy.qos import ReliabilityPolicy

from rths_nodes.app import hosts
from rths_nodes.loop.options import PYTHON, options
from rths_nodes.recording import bag
from rths_nodes.ros.hosting import composed

pytestmark = pytest.mark.nodes

NAME = "chen_ricles_2010"


@dataclass
class Seen:
    """What a run of one process, and this process during the run, have shown."""

    result: Any = None
    nodes: set[str] = field(default_factory=set)
    best_effort: bool = False
    clock: bool = False
    inputs: dict[str, str] = field(default_factory=dict)
    """How messages of the loop reach each node, by its diagnostics."""

    def look(self, node: Node) -> None:
        self.nodes |= {"/".join((space.rstrip("/"), name)) for name, space in node.get_node_names_and_namespaces()}
        publishers = node.get_publishers_info_by_topic("/rths/measurement")
        self.best_effort |= any(
            each.qos_profile.reliability == ReliabilityPolicy.BEST_EFFORT for each in publishers
        )
        self.clock |= bool(node.get_publishers_info_by_topic("/clock"))


def of_run(tmp_path: Path, **chosen: Any) -> Seen:
    seen = Seen()
    data = {"scenario": NAME, "overrides": ["duration=1"]} | chosen
    if data.get("host", "embedded") == "embedded":
        seen.result = hosts.run(**data)
        return seen
    with composed.ros_context() as context:
        node = Node("onlooker", context=context, start_parameter_services=False)
        diagnostics = Ear(node, DiagnosticArray, "/diagnostics")
        data.setdefault("record", tmp_path / "run")
        seen.result = hosts.run(**data, progress=lambda *_: seen.look(node))
        diagnostics.listen()
        node.destroy_node()
    for status in (status for message in diagnostics.heard for status in message.status):
        seen.inputs[status.name] = next(each.value for each in status.values if each.key == "inputs")
    return seen


def _information(seen: Seen) -> dict[str, str]:
    return bag.read(seen.result.recording).information


COMPOSED, PROCESSES = {"host": "composed"}, {"host": "processes"}
EFFECTS: dict[str, tuple[dict[str, Any], Any, Callable[[Seen], object], object, object]] = {
    # option: other options, its value, what is looked at, without the option, with the option
    "scenario": (
        {},
        "predefined_sine",
        lambda seen: seen.result.scenario.name,
        "chen_ricles_2010",
        "predefined_sine",
    ),
    "rig": ({}, "bench_simulated", lambda seen: seen.result.scenario.rig_file is not None, False, True),
    "case": (
        {"scenario": "phillips_spencer_2012"},
        "c",
        lambda seen: seen.result.scenario.compensator.coupled,
        True,
        False,
    ),
    "overrides": ({}, ["duration=0.5"], lambda seen: seen.result.samples, 1030, 520),
    "host": ({}, "composed", lambda seen: "/rths/integrator" in seen.nodes, False, True),
    "engine": ({}, "python", lambda seen: seen.result.engine, "kernels", "python"),
    "pace": (COMPOSED, "realtime", lambda seen: "period" in seen.result.timing, False, True),
    "actuator_nodes": (COMPOSED, "per_axis", lambda seen: "/rths/story_1/axis" in seen.nodes, False, True),
    "separate": (COMPOSED, ["monitor"], lambda seen: seen.inputs["rths/monitor"], "process", "sockets"),
    "namespace": (COMPOSED, "north", lambda seen: "/north/integrator" in seen.nodes, False, True),
    "record": ({}, None, lambda seen: seen.result.recording is not None, False, True),
    "run_id": (COMPOSED, "monday_1", lambda seen: _information(seen)["run_id"] == "monday_1", False, True),
    "reliability": (COMPOSED, "best_effort", lambda seen: seen.best_effort, False, True),
    "transport": (PROCESSES, "topics", lambda seen: seen.inputs["rths/monitor"], "sockets", "topics"),
    "faults": ({}, ["drop@0.5:command"], lambda seen: seen.result.late.bridged > 0, False, True),
    "clock": (COMPOSED, True, lambda seen: seen.clock, False, True),
}


def test_every_option_of_a_run_is_here() -> None:
    assert {*EFFECTS, "peer_timeout"} == set(options(PYTHON))


@pytest.mark.parametrize("option", EFFECTS)
def test_an_option_has_its_effect(option: str, tmp_path: Path) -> None:
    others, value, shown, without, expected = EFFECTS[option]
    value = tmp_path / "recorded" if option == "record" else value
    assert shown(of_run(tmp_path / "plain", **others)) == without
    assert shown(of_run(tmp_path / "chosen", **others | {option: value})) == expected


def test_nodes_that_are_not_ready_within_peer_timeout_end_the_test(tmp_path: Path) -> None:
    seen = of_run(tmp_path, host="processes", peer_timeout=1e-3)
    assert seen.result.exit_code == 1
    assert mentions(seen.result.reason, "not ready", "0.001 s")
