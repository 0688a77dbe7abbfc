# SPDX-License-Identifier: Apache-2.0
"""A process that is suspended by SIGSTOP in real time: the test runs to its end, and is not valid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.loop.outcomes import ExitCode

pytestmark = [pytest.mark.nodes, pytest.mark.usefixtures("fresh_programs")]

NAME = "chen_ricles_2010"
CALM = ("servo_rate=256", "substeps=3", "ground_motion.scale=0.005", "port.longest_wait=10", "duration=2")
PATIENT = ("heartbeat.monitor=5", "heartbeat.recorder=5", "bridge.max_bridge=0.2")
SUSPENDED_S = 0.4


@pytest.mark.parametrize("host", ["processes", "composed"])
def test_a_test_whose_actuator_was_suspended_is_not_valid(host: str, tmp_path: Path) -> None:
    fault = f"freeze@0.5:actuator,{SUSPENDED_S}"
    record = tmp_path / "run"
    done = hosts.run(NAME, (*CALM, *PATIENT), host=host, pace="realtime", faults=[fault], record=record)
    assert (done.outcome, done.reason) == ("finished", "")
    assert done.exit_code == ExitCode.NOT_VALID
    assert done.timing["missed"] >= 0.9 * SUSPENDED_S * 256
    assert done.timing["longest_gap_s"] >= 0.9 * SUSPENDED_S
    assert done.ending.startswith("not valid: ")
    for part in ("% missed", "(at most 2 %)", "no sample for", "ms (bridge.max_bridge = 200 ms)"):
        assert part in done.ending
    run = rths_nodes.read(record)
    assert run.ending == done.ending
    assert done.ending == f"{run.not_valid}"


def test_the_command_line_says_so_and_ends_with_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", NAME, "--host", "composed", "--pace", "realtime", "--fault", "freeze@0.5:actuator,0.4"]
    words += [word for each in (*CALM, *PATIENT) for word in ("--set", each)]
    assert main([*words, "--json", "--record", str(tmp_path / "run")]) == 4
    report = json.loads(capsys.readouterr().out)
    assert report["outcome"] == "finished"
    assert report["ending"].startswith("not valid: ")
    assert report["timing"]["longest_gap_s"] > 0.01
