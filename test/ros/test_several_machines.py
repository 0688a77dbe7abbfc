# SPDX-License-Identifier: Apache-2.0
"""One test on two machines: each starts some of the nodes. Two network namespaces with a cable stand for them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions

import rths_nodes
from rths_nodes.core.samples import FLAG_BRIDGED
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.ros import names
from rths_nodes.ros.names import ACTUATOR, COMPENSATOR, INTEGRATOR, MONITOR, RECORDER

NAME = "chen_ricles_2010"
RIG = (ACTUATOR, MONITOR, RECORDER)
MODEL = (INTEGRATOR, COMPENSATOR)
DEPTH = 17
"""Samples at 1024 Hz: 10 to 12 ms there and back, and what the relay, a program, adds to single frames."""


class Machine:
    """The processes that one machine has started, by ``words`` in front of each command."""

    def __init__(self, words: Sequence[str], here: Sequence[str], folder: Path, *values: str) -> None:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET",
        }
        self.processes = {}
        for role in here:
            given = [f"scenario:={NAME}", "run_id:=monday", f"nodes:=[{','.join(here)}]", *values]
            given += [f"record:={folder / 'run'}"] if role == RECORDER else []
            command = [*words, sys.executable, "-m", "rths_nodes.app.node", role, "--ros-args"]
            command += [part for value in given for part in ("-p", value)]
            self.processes[role] = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1, text=True
            )

    def end(self) -> dict[str, tuple[int, str]]:
        """Exit code and words of each process, once all have ended."""
        try:
            told = {role: process.communicate(timeout=60) for role, process in self.processes.items()}
            return {role: (self.processes[role].returncode, "".join(words)) for role, words in told.items()}
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()


def test_two_machines_give_the_bits_of_one(two_machines: Any, tmp_path: Path, different: Any) -> None:
    """The streams between the nodes of a machine go by socket where all who speak there are on it."""
    short = "overrides:=['duration=1']"
    rig, model = (
        Machine(two_machines[0], RIG, tmp_path, short),
        Machine(two_machines[1], MODEL, tmp_path, short),
    )
    ended = rig.end() | model.end()
    assert {role: code for role, (code, _) in ended.items()} == dict.fromkeys(names.NODES, 0), ended
    assert mentions(ended[ACTUATOR][1], "rths:", ExitCode.FINISHED.ending, "1030")
    assert mentions(ended[INTEGRATOR][1], "rths:", "1030", "validity", "monitor's machine"), ended
    assert ExitCode.FINISHED.ending not in ended[INTEGRATOR][1], "its nodes do not count late samples"
    run = rths_nodes.read(tmp_path / "run")
    assert (run.information["outcome"], run.information["gaps"]) == ("finished", "0")
    clocks = run.timing["clocks"]
    assert set(clocks) == set(MODEL)
    for found in clocks.values():  # the two machines have the same clock
        assert abs(found["offset_s"]) <= found["bound_s"] < 0.05
        assert abs(found["drift_s"]) <= found["drift_bound_s"]
        assert 0.0 < found["round_trip_median_s"] <= found["round_trip_max_s"]
    assert different(rths_nodes.run(NAME, ["duration=1"]), run) == []


def test_another_scenario_on_the_other_machine_is_refused_with_both_hashes(
    two_machines: Any, tmp_path: Path
) -> None:
    """Also where it differs in what only one node uses: the recording would tell another compensator."""
    rig = Machine(two_machines[0], RIG, tmp_path, "overrides:=['duration=1']")
    model = Machine(two_machines[1], MODEL, tmp_path, "overrides:=['duration=1','compensator.alpha_es=20']")
    ended = rig.end() | model.end()
    code, words = ended[ACTUATOR]
    assert code == 2, ended
    hashes = [
        rths_nodes.load(NAME, ["duration=1", *more]).whole_hash("monday")
        for more in ([], ["compensator.alpha_es=20"])
    ]
    assert mentions(words, "scenario", "actuator")
    assert all(each in words for each in hashes)
    assert {ended[role][0] for role in MODEL} == {2}, ended


def test_a_machine_whose_partner_does_not_come_says_whom_it_waits_for(tmp_path: Path) -> None:
    """The actuator node, which bounds the start of a test on one machine, is on the other one."""
    (code, words), *_ = Machine((), (COMPENSATOR,), tmp_path, "peer_timeout:=0.5").end().values()
    assert code == 1
    assert mentions(words, "ready", "0.5 s")


def together(network: Any, folder: Path, *values: str) -> dict[str, tuple[int, str]]:
    """A test over a ``network`` of two machines: exit code and words of each process."""
    rig, model = (Machine(words, here, folder, *values) for words, here in zip(network, (RIG, MODEL), strict=True))
    return rig.end() | model.end()


def test_commands_under_way_between_two_laboratories_give_the_bits_of_one_machine(
    two_laboratories: Any, tmp_path: Path, different: Any
) -> None:
    """In lockstep, over a network that delays, loses and reorders."""
    overrides = ["duration=0.5", "hops.depth=8"]
    ended = together(two_laboratories(2.0, 1.0, 0.01), tmp_path, f"overrides:={overrides}")
    assert {code for code, _ in ended.values()} == {0}, ended
    assert different(rths_nodes.run(NAME, overrides), rths_nodes.read(tmp_path / "run")) == []


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_two_laboratories_5_ms_apart_run_a_test_in_real_time(two_laboratories: Any, tmp_path: Path) -> None:
    """5 ms +- 1 ms each way are some 12 samples at 1024 Hz; without a depth for them the test is refused."""
    network, hermite = two_laboratories(5.0, 1.0), "ramp.type=hermite"

    def run(*overrides: str) -> dict[str, tuple[int, str]]:
        folder = tmp_path / str(len(overrides))
        return together(network, folder, f"overrides:={list(overrides)}", "pace:=realtime", "peer_timeout:=20.0")

    code, words = run(hermite)[ACTUATOR]
    assert code == 2
    assert mentions(words, "<= 0.977 ms", "hops.depth"), words
    ended = run(hermite, f"hops.depth={DEPTH}")
    assert {code for code, _ in ended.values()} == {0}, ended
    found = rths_nodes.read(tmp_path / "2" / "run")
    reference = rths_nodes.run(NAME, [hermite, f"port.transport_samples={DEPTH}"])
    norms = [run.metrics["axes"]["story_1"]["error_norm_percent"] for run in (found, reference)]
    assert norms[0] <= 1.1 * norms[1]


@pytest.mark.soak
def test_in_real_time_what_comes_late_over_the_cable_is_bridged(two_machines: Any, tmp_path: Path) -> None:
    values = ("overrides:=['duration=5','bridge.max_bridge=1.0']", "pace:=realtime")
    rig, model = (
        Machine(words, here, tmp_path, *values) for words, here in zip(two_machines, (RIG, MODEL), strict=True)
    )
    ended = rig.end() | model.end()
    assert {code for code, _ in ended.values()} == {0}, ended
    run = rths_nodes.read(tmp_path / "run")
    assert run.information["gaps"] == "0"
    assert ((run.flags & FLAG_BRIDGED) > 0).mean() < 0.2
