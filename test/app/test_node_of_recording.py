# SPDX-License-Identifier: Apache-2.0
"""Tests of ``rths test-node``, which compares the messages of a node with a recording."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_fixtures import RunCommand
from messages import mentions

from rths_nodes.app import hosts
from rths_nodes.app.commands.node_test import compared
from rths_nodes.core.samples import Command, Measurement
from rths_nodes.loop.stages.command import CommandStage

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
PAPER = "chen_ricles_2010"


def record(folder: Path, *overrides: str, **options: object) -> str:
    hosts.run(PAPER, ["duration=0.3", *overrides], record=folder / "recording", **options)
    return str(folder / "recording")


@pytest.mark.nodes
@pytest.mark.parametrize(("node", "messages"), [("compensator", 310), ("integrator", 32)])
def test_node_repeats_a_recording(node: str, messages: int, tmp_path: Path, output: RunCommand) -> None:
    report = json.loads(output("test-node", node, record(tmp_path), "--json"))
    assert (report["messages"], report["equal"]) == (messages, messages)
    assert report["outcome"] == "finished"


@pytest.mark.nodes
def test_tripped_recording_is_repeated_up_to_its_stop(tmp_path: Path, output: RunCommand) -> None:
    recording = record(tmp_path, "ground_motion.scale=3", "axes.story_1.limits.stroke=0.0005")
    report = json.loads(output("test-node", "compensator", recording, "--json"))
    assert 0 < report["messages"] == report["equal"] < 310


@pytest.mark.nodes
def test_difference_of_one_bit_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: RunCommand
) -> None:
    recording, step = record(tmp_path), CommandStage.next

    def change_a_bit(stage: CommandStage, measured: Measurement) -> Command | None:
        command = step(stage, measured)
        if command is not None and command.sample == 200:
            command.command = np.nextafter(command.command, 1.0)
        return command

    monkeypatch.setattr(CommandStage, "next", change_a_bit)
    report = output("test-node", "compensator", recording, code=3)
    assert mentions(report, "309", "310", "command")
    assert mentions(report, "sample 200", "recorded", "published")


def test_recording_with_bridged_samples_is_refused(tmp_path: Path, refusal: RunCommand) -> None:
    recording = record(tmp_path, faults=["delay@0.1:target,3"])
    assert mentions(refusal("test-node", "compensator", recording), "bridged", "samples")


def test_times_are_not_compared() -> None:
    sample = np.arange(1, 4, dtype=np.uint32)
    old = {"sample": sample, "nanosec": np.array([1, 2, 3]), "command": np.array([[0.0], [1.0], [np.nan]])}
    new = old | {"nanosec": np.array([4, 5, 6])}
    assert compared(old, new, 3, "sample") == {"messages": 3, "compared": 3, "equal": 3}
    report = compared(old, new | {"command": np.array([[-0.0], [1.0], [np.nan]])}, 3, "sample")
    assert (report["equal"], report["first_difference"]["sample"]) == (2, 1)
    assert compared(old, {}, 3, "sample")["compared"] == 0
