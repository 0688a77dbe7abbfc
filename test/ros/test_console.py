# SPDX-License-Identifier: Apache-2.0
"""The runner's ear."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from rths_nodes.core.wire.layout import mark_of
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.hosting.console import Console


@pytest.fixture
def console() -> Iterator[Console]:
    with composed.ros_context() as context:
        made = Console(context, "rths", ("actuator",), "mine")
        yield made
        made.destroy_node()


def tell(console: Console, run_id: str, state: State, reason: str = "") -> None:
    values: dict[str, Any] = {"state": int(state), "reason": reason, "sample": 7, "run_id": run_id}
    values |= {"run": mark_of(run_id), "stamp": time.time_ns(), "scenario_hash": "abc"}
    console._receive("test_state", values)


def test_the_state_of_another_run_is_not_that_of_this_one(console: Console) -> None:
    """Before the test another node may be there under the name of the actuator."""
    tell(console, "other", State.TRIPPED, "a limit of somebody else")
    assert (console.result.state, console.result.reason, console.state_received) == (State.IDLE, "", False)
    tell(console, "mine", State.ARMED)
    tell(console, "mine", State.FINISHED)
    tell(console, "other", State.HELD, "interrupted before the test began")
    assert (console.result.state, console.result.reason) == (State.FINISHED, "")


def test_numbers_that_were_told_before_the_test_are_not_of_it(console: Console) -> None:
    before = {"node": "actuator", "names": ["timing.missed"], "values": [99.0]}
    console._receive("summary", before)
    tell(console, "mine", State.ARMED)
    assert (console.result.numbers, console.reported) == ({}, set())
    console._receive("summary", before | {"values": [1.0]})
    assert (console.result.numbers, console.reported) == ({"timing.missed": 1.0}, {"actuator"})
