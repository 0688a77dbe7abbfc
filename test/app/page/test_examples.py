# SPDX-License-Identifier: Apache-2.0
"""Tests of examples/look_on: a node and a script that follow a test and stop it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from programs import begun, child_environment

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
pytest.importorskip("aiohttp", reason="aiohttp is not installed here")

from messages import mentions
from page_of_test import page, test_beside

from rths_nodes.recording.reading import read_run

pytestmark = pytest.mark.nodes

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "look_on"


def start(name: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    return begun(command, env=child_environment(PYTHONUNBUFFERED="1"), stderr=subprocess.STDOUT)


def output_of(program: subprocess.Popen[str]) -> str:
    output, _ = program.communicate(timeout=60.0)
    assert program.returncode == 0, output
    return output


@pytest.mark.parametrize(("most", "outcome"), [("1e9", "finished"), ("1000", "held")])
def test_watcher_node_prints_peaks_and_stops_the_test(most: str, outcome: str, tmp_path: Path) -> None:
    watcher = start("watcher_node.py", "--most", most)
    with test_beside(tmp_path / "run", "--set", "duration=6") as running:
        running.wait(90.0)
    output, run = output_of(watcher), read_run(tmp_path / "run")
    assert run.information["outcome"] == outcome
    assert "chen_ricles_2010 has begun" in output
    assert ("stopping the test" in output) is (outcome == "held")
    largest = re.search(r"ended after \d+ samples.*; largest force (\S+) N", output)
    assert largest, output
    if outcome == "finished":
        assert float(largest[1]) <= 1.001 * abs(run.force).max()


@pytest.mark.parametrize(("most", "outcome"), [("1", "finished"), ("1e-6", "held")])
def test_watcher_script_prints_errors_and_stops_the_test(most: str, outcome: str, tmp_path: Path) -> None:
    with page() as address, test_beside(tmp_path / "run", "--set", "duration=6") as running:
        lines = output_of(start("watcher_script.py", address, "--most", most)).splitlines()
        running.wait(60.0)
    assert read_run(tmp_path / "run").information["outcome"] == outcome
    assert lines[0] == "chen_ricles_2010 has begun"
    assert mentions(lines[1], "error", "mm")
    assert lines[-1].startswith(f"{outcome} after ")
