# SPDX-License-Identifier: Apache-2.0
"""A recorder that comes to no end after the test: the run ends all the same, and nothing recorded is lost."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.recording import bag
from rths_nodes.ros.hosting import node_processes
from rths_nodes.ros.names import RECORDER

NAME, SHORT = "chen_ricles_2010", "duration=1"
PROGRAM = Path(__file__).with_name("hanging_recorder.py")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a test with a recorder of its own process, which ends as the words say."""
    started = node_processes._started

    def instead(peer: str, command: list[str], environment: dict[str, str]) -> Any:
        ours = [command[0], str(PROGRAM), *command[3:]] if peer == RECORDER else command
        return started(peer, ours, environment)

    def run(end: str, **options: Any) -> Any:
        monkeypatch.setenv("RTHS_TEST_END", end)
        monkeypatch.setattr(node_processes, "_started", instead)
        return hosts.run(NAME, [SHORT], record=tmp_path / "run", **options)

    return run


COMPOSED = {"host": "composed", "separate": [RECORDER]}
BY_TOPIC = {"host": "processes", "transport": "topics"}
BY_ITSELF = "the recorder node died (exit code 1)"
KILLED = "the recorder node hangs: its main thread does not run"


@pytest.mark.parametrize(
    ("end", "options", "hangs_s", "why"),
    [
        ("tell hang", COMPOSED, 120.0, BY_ITSELF),
        pytest.param("tell hang", BY_TOPIC, 120.0, BY_ITSELF, marks=pytest.mark.soak),
        ("tell stop", COMPOSED, 120.0, KILLED),
        pytest.param("close hang", COMPOSED, 3.0, KILLED, marks=pytest.mark.soak),
        ("close stop", BY_TOPIC, 120.0, KILLED),
    ],
    ids=str,
)
def test_one_that_hangs_after_the_test_is_ended_and_its_file_can_be_made_whole(
    end: str,
    options: dict[str, Any],
    hangs_s: float,
    why: str,
    run: Any,
    different: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_processes, "HANGS_S", hangs_s)
    began = time.monotonic()
    report = run(end, **options)
    assert time.monotonic() - began < 0.5 * node_processes.INDEXING_S
    assert (report.exit_code, report.outcome) == (1, "failed")
    assert report.reason.startswith(why)
    recording = tmp_path / "run"
    assert mentions(report.notes, "recover", recording)
    assert not bag.recover(recording).was_complete
    found = rths_nodes.read(recording)
    assert different(found, rths_nodes.run(NAME, [SHORT])) == []


def test_one_that_indexes_is_waited_for(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_processes, "HANGS_S", 1.0)
    report = run("close work", **COMPOSED)
    assert (report.exit_code, report.reason, report.notes) == (0, "", [])
    assert report.messages["complete"]
