# SPDX-License-Identifier: Apache-2.0
"""examples/look_on: a node and a script that follow a test, and stop it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
pytest.importorskip("aiohttp", reason="aiohttp is not installed here")

from messages import mentions
from page_of_test import page, test_beside

from rths_nodes.recording.reading import read_run

pytestmark = pytest.mark.nodes

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "look_on"


def started(name: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / name), *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def said(program: subprocess.Popen[str]) -> str:
    told, _ = program.communicate(timeout=60.0)
    assert program.returncode == 0, told
    return told


@pytest.mark.parametrize(("most", "outcome"), [("1e9", "finished"), ("1000", "held")])
def test_a_node_tells_the_peaks_of_a_test_and_stops_it(most: str, outcome: str, tmp_path: Path) -> None:
    watcher = started("watcher_node.py", "--most", most)
    with test_beside(tmp_path / "run", "--set", "duration=6") as running:
        running.wait(90.0)
    told, run = said(watcher), read_run(tmp_path / "run")
    assert run.information["outcome"] == outcome
    assert "chen_ricles_2010 has begun" in told
    assert ("stopping the test" in told) is (outcome == "held")
    largest = re.search(r"ended after \d+ samples.*; largest force (\S+) N", told)
    assert largest, told
    if outcome == "finished":
        peak = abs(run.force).max()
        assert float(largest[1]) <= 1.001 * peak


@pytest.mark.parametrize(("most", "outcome"), [("1", "finished"), ("1e-6", "held")])
def test_a_script_follows_a_test_by_its_page_and_stops_it(most: str, outcome: str, tmp_path: Path) -> None:
    with page() as address, test_beside(tmp_path / "run", "--set", "duration=6") as running:
        told = said(started("watcher_script.py", address, "--most", most))
        running.wait(60.0)
    assert read_run(tmp_path / "run").information["outcome"] == outcome
    lines = told.splitlines()
    assert lines[0] == "chen_ricles_2010 has begun"
    assert mentions(lines[1], "error", "mm")
    assert lines[-1].startswith(f"{outcome} after ")
