# SPDX-License-Identifier: Apache-2.0
"""Tests of one test on two machines that each start some nodes: two network namespaces with a cable."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions
from programs import start_node

import rths_nodes
from rths_nodes.core.samples import FLAG_BRIDGED
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.ros import names
from rths_nodes.ros.names import ACTUATOR, COMPENSATOR, INTEGRATOR, MONITOR, RECORDER

NAME, SHORT = "chen_ricles_2010", "duration=1"
RIG = (ACTUATOR, MONITOR, RECORDER)
MODEL = (INTEGRATOR, COMPENSATOR)
DEPTH = 17
"""Samples at 1024 Hz: 10 to 12 ms for the round trip, and the delay that the relay program adds to some frames."""


def start(prefix: Sequence[str], roles: Sequence[str], folder: Path, *values: str) -> dict[str, Any]:
    """Start the nodes of one machine by ``prefix``; return their processes."""
    common = (f"scenario:={NAME}", "run_id:=monday", f"nodes:=[{','.join(roles)}]")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return {role: start_node(role, folder, *common, *values, prefix=prefix, **pipes) for role in roles}


def finish(processes: dict[str, Any]) -> dict[str, tuple[int, str]]:
    """Wait for the processes; return exit code and output of each."""
    try:
        outputs = {role: "".join(process.communicate(timeout=60)) for role, process in processes.items()}
        return {role: (processes[role].returncode, output) for role, output in outputs.items()}
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def run(network: Any, folder: Path, *values: str) -> dict[str, tuple[int, str]]:
    """Run a test over a ``network`` of two machines; return exit code and output of each process."""
    return finish(start(network[0], RIG, folder, *values) | start(network[1], MODEL, folder, *values))


def test_two_machines_give_same_bits_as_one(two_machines: Any, tmp_path: Path, different: Any) -> None:
    """The streams between the nodes of a machine go by socket if all their publishers are on it."""
    ended = run(two_machines, tmp_path, f"overrides:=['{SHORT}']")
    assert {role: code for role, (code, _) in ended.items()} == dict.fromkeys(names.NODES, 0), ended
    assert mentions(ended[ACTUATOR][1], "rths:", ExitCode.FINISHED.ending, "1030")
    assert mentions(ended[INTEGRATOR][1], "rths:", "1030", "validity", "monitor's machine"), ended
    assert ExitCode.FINISHED.ending not in ended[INTEGRATOR][1], "its nodes do not count late samples"
    recording = rths_nodes.read(tmp_path / "run")
    assert (recording.information["outcome"], recording.information["gaps"]) == ("finished", "0")
    clocks = recording.timing["clocks"]
    assert set(clocks) == set(MODEL)
    for clock in clocks.values():  # both machines have the same clock
        assert abs(clock["offset_s"]) <= clock["bound_s"] < 0.05
        assert abs(clock["drift_s"]) <= clock["drift_bound_s"]
        assert 0.0 < clock["round_trip_median_s"] <= clock["round_trip_max_s"]
    assert different(rths_nodes.run(NAME, [SHORT]), recording) == []


def test_different_scenario_on_second_machine_is_refused(two_machines: Any, tmp_path: Path) -> None:
    """Also if only one node uses the difference: the recording would name another compensator."""
    change = "compensator.alpha_es=20"
    ended = finish(
        start(two_machines[0], RIG, tmp_path, f"overrides:=['{SHORT}']")
        | start(two_machines[1], MODEL, tmp_path, f"overrides:=['{SHORT}','{change}']")
    )
    code, output = ended[ACTUATOR]
    assert code == 2, ended
    assert mentions(output, "scenarios", "actuator")
    for overrides in ([SHORT], [SHORT, change]):
        assert rths_nodes.load(NAME, overrides).whole_hash("monday") in output
    assert {ended[role][0] for role in MODEL} == {2}, ended


def test_missing_second_machine_is_reported(tmp_path: Path) -> None:
    """The actuator node, which bounds the start of a test on one machine, would be on the second one."""
    code, output = finish(start((), (COMPENSATOR,), tmp_path, "peer_timeout:=0.5"))[COMPENSATOR]
    assert code == 1
    assert mentions(output, "ready", "0.5 s")


def test_hops_between_laboratories_give_same_bits(two_laboratories: Any, tmp_path: Path, different: Any) -> None:
    """In lockstep, over a network that delays, loses and reorders."""
    overrides = ["duration=0.5", "hops.depth=8"]
    ended = run(two_laboratories(2.0, 1.0, 0.01), tmp_path, f"overrides:={overrides}")
    assert {code for code, _ in ended.values()} == {0}, ended
    assert different(rths_nodes.run(NAME, overrides), rths_nodes.read(tmp_path / "run")) == []


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_real_time_between_laboratories_needs_hops(two_laboratories: Any, tmp_path: Path) -> None:
    """5 ms +- 1 ms each way are some 12 samples at 1024 Hz."""
    network, hermite = two_laboratories(5.0, 1.0), "ramp.type=hermite"

    def run_in_real_time(*overrides: str) -> dict[str, tuple[int, str]]:
        folder = tmp_path / str(len(overrides))
        return run(network, folder, f"overrides:={list(overrides)}", "pace:=realtime", "peer_timeout:=20.0")

    code, output = run_in_real_time(hermite)[ACTUATOR]
    assert code == 2
    assert mentions(output, "<= 0.977 ms", "hops.depth"), output
    ended = run_in_real_time(hermite, f"hops.depth={DEPTH}")
    assert {code for code, _ in ended.values()} == {0}, ended
    recording = rths_nodes.read(tmp_path / "2" / "run")
    reference = rths_nodes.run(NAME, [hermite, f"port.transport_samples={DEPTH}"])
    norms = [result.metrics["axes"]["story_1"]["error_norm_percent"] for result in (recording, reference)]
    assert norms[0] <= 1.1 * norms[1]


@pytest.mark.soak
def test_late_data_over_cable_are_bridged(two_machines: Any, tmp_path: Path) -> None:
    ended = run(two_machines, tmp_path, "overrides:=['duration=5','bridge.max_bridge=1.0']", "pace:=realtime")
    assert {code for code, _ in ended.values()} == {0}, ended
    recording = rths_nodes.read(tmp_path / "run")
    assert recording.information["gaps"] == "0"
    assert ((recording.flags & FLAG_BRIDGED) > 0).mean() < 0.2
