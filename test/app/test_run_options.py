# SPDX-License-Identifier: Apache-2.0
"""Effects of the options of a run on the node graph, the diagnostics, the recording or the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from ear import node_inputs
from messages import mentions
from rclpy.node import Node
from rclpy.qos import ReliabilityPolicy

from rths_nodes.app import hosts
from rths_nodes.loop.options import PYTHON, options
from rths_nodes.recording import bag

pytestmark = pytest.mark.nodes

NAME = "chen_ricles_2010"


@dataclass
class Observations:
    """Result of a run, and what a listener observed during the run."""

    result: Any = None
    nodes: set[str] = field(default_factory=set)
    best_effort: bool = False
    clock: bool = False
    inputs: dict[str, str] = field(default_factory=dict)
    """Transport by which each node receives messages of the loop."""

    def look(self, node: Node) -> None:
        self.nodes |= {"/".join((space.rstrip("/"), name)) for name, space in node.get_node_names_and_namespaces()}
        publishers = node.get_publishers_info_by_topic("/rths/measurement")
        self.best_effort |= any(
            publisher.qos_profile.reliability == ReliabilityPolicy.BEST_EFFORT for publisher in publishers
        )
        self.clock |= bool(node.get_publishers_info_by_topic("/clock"))


def observe(tmp_path: Path, **changes: Any) -> Observations:
    """Run a test and observe it, by ROS if it has nodes."""
    run = Observations()
    data = {"scenario": NAME, "overrides": ["duration=1"]} | changes
    if data.get("host", "embedded") == "embedded":
        run.result = hosts.run(**data)
        return run
    with node_inputs() as (node, run.inputs):
        data.setdefault("record", tmp_path / "run")
        run.result = hosts.run(**data, progress=lambda *_: run.look(node))
    return run


COMPOSED, PROCESSES = {"host": "composed"}, {"host": "processes"}
EFFECTS: dict[str, tuple[dict[str, Any], Any, Callable[[Observations], object], object, object]] = {
    # option: further options, its value, the observation, its value without and with the option
    "scenario": ({}, "predefined_sine", lambda run: run.result.scenario.name, NAME, "predefined_sine"),
    "rig": ({}, "bench_simulated", lambda run: run.result.scenario.rig_file is not None, False, True),
    "case": (
        {"scenario": "phillips_spencer_2012"},
        "c",
        lambda run: run.result.scenario.compensator.coupled,
        True,
        False,
    ),
    "overrides": ({}, ["duration=0.5"], lambda run: run.result.samples, 1030, 520),
    "host": ({}, "composed", lambda run: "/rths/integrator" in run.nodes, False, True),
    "engine": ({}, "python", lambda run: run.result.engine, "kernels", "python"),
    "pace": (COMPOSED, "realtime", lambda run: "period" in run.result.timing, False, True),
    "actuator_nodes": (COMPOSED, "per_axis", lambda run: "/rths/story_1/axis" in run.nodes, False, True),
    "separate": (COMPOSED, ["monitor"], lambda run: run.inputs["rths/monitor"], "process", "sockets"),
    "namespace": (COMPOSED, "north", lambda run: "/north/integrator" in run.nodes, False, True),
    "record": ({}, None, lambda run: run.result.recording is not None, False, True),
    "run_id": (
        COMPOSED,
        "monday_1",
        lambda run: bag.read(run.result.recording).information["run_id"] == "monday_1",
        False,
        True,
    ),
    "reliability": (COMPOSED, "best_effort", lambda run: run.best_effort, False, True),
    "transport": (PROCESSES, "topics", lambda run: run.inputs["rths/monitor"], "sockets", "topics"),
    "faults": ({}, ["drop@0.5:command"], lambda run: run.result.late.bridged > 0, False, True),
    "clock": (COMPOSED, True, lambda run: run.clock, False, True),
}


def test_all_options_of_a_run_are_tested() -> None:
    assert {*EFFECTS, "peer_timeout"} == set(options(PYTHON))


@pytest.mark.parametrize("option", EFFECTS)
def test_option_has_its_effect(option: str, tmp_path: Path) -> None:
    further, value, observation, without, expected = EFFECTS[option]
    value = tmp_path / "recorded" if option == "record" else value
    assert observation(observe(tmp_path / "plain", **further)) == without
    assert observation(observe(tmp_path / "chosen", **further | {option: value})) == expected


def test_peer_timeout_ends_a_test_whose_nodes_are_not_ready(tmp_path: Path) -> None:
    result = observe(tmp_path, host="processes", peer_timeout=1e-3).result
    assert result.exit_code == 1
    assert mentions(result.reason, "not ready", "0.001 s")
