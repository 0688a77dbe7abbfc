# SPDX-License-Identifier: Apache-2.0
"""The graph of nodes and topics in doc/ros/graph.md is that of the code, and its rates are those of a test."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from rths_nodes.app import hosts
from rths_nodes.recording import bag
from rths_nodes.ros import names
from rths_nodes.ros.nodes.monitor import RATE

DOC = Path(__file__).resolve().parents[2] / "doc"


@pytest.fixture(scope="module")
def graph() -> Any:
    found = importlib.util.spec_from_file_location("graph", DOC / "graph.py")
    assert found is not None
    assert found.loader is not None
    made = importlib.util.module_from_spec(found)
    found.loader.exec_module(made)
    return made


def test_the_page_shows_the_graph_of_the_code(graph: Any) -> None:
    page = (DOC / "ros" / "graph.md").read_text(encoding="utf-8")
    (shown,) = (block[1] for block in graph.BLOCK.findall(page))
    assert shown == graph.graph(), "python doc/graph.py"


def test_every_topic_is_in_it_with_its_rate(graph: Any) -> None:
    apart = {row.name for row in names.TOPICS.values() if row.apart or row.section} | {names.FORMER_TRIP}
    assert set(graph.RATES) == set(names.TOPICS) - apart | {names.CLOCK.name, names.DIAGNOSTICS.name}
    assert all(f"{name}: {rate}" in graph.graph() for name, rate in graph.RATES.items())


def test_the_rates_are_those_of_a_test(graph: Any, tmp_path: Path) -> None:
    result = hosts.run("chen_ricles_2010", ["duration=2"], host="composed", record=tmp_path / "run")
    scenario = result.scenario
    counted = counts(tmp_path / "run")
    numbers = {"step": scenario.samples // scenario.substeps + 1, "sample": scenario.samples + 1}
    for name, rate in graph.RATES.items():
        for noun, number in numbers.items():
            if rate == graph.BY_NUMBER.format(noun):
                assert abs(counted[name] - number) <= 1, name
    seconds = scenario.samples / scenario.servo_rate
    assert counted["sync_status"] == pytest.approx(RATE * seconds, abs=2)


def counts(folder: Path) -> Counter[str]:
    """Messages of a recording by topic."""
    return Counter(topic.rpartition("/")[2] for topic, _, _ in bag.read(folder).messages())
