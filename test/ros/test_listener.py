# SPDX-License-Identifier: Apache-2.0
"""Listeners of a rig: the page's listener, with ten minutes of columns of one run, and the runner's console."""

from __future__ import annotations

import asyncio
import json
import time
from array import array
from collections.abc import Iterator
from math import nan as NAN
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import naming
from rclpy.exceptions import InvalidHandle

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.wire import mark_of
from rths_nodes.loop.supervision.states import State
from rths_nodes.msg import Live, LiveCurves, SyncStatus
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.hosting import listener as module
from rths_nodes.ros.hosting.listener import AT_ONCE, MOST_COLUMNS, RigListener, StopClient
from rths_nodes.ros.hosting.node_processes import NodeDescription
from rths_nodes.ros.hosting.processes import Console, Result, exit_codes

pytestmark = pytest.mark.nodes


@pytest.fixture
def listener() -> Iterator[RigListener]:
    listener = RigListener("rths", "page")
    yield listener
    listener.close()
    listener.close()


def curves(run: str) -> LiveCurves:
    limits = {"limited": [0], "limits": ["stroke"], "low": [-0.1], "high": [0.1]}
    return LiveCurves(run=run, servo_rate=1024.0, names=["a/target"], units=["m"], **limits)


def live(run: str, first: int) -> Live:
    return Live(run=run, first=first, column=10, values=array("f", [0.0] * 4 * 5))


def columns_since(listener: RigListener, number: int = -1) -> tuple[int, list[int]]:
    """Return the last number, and the first samples of all columns since ``number``."""
    samples: list[int] = []
    while True:
        _, number, columns = listener.since(number)
        if not columns:
            return number, samples
        assert len(columns) <= AT_ONCE
        samples += [first for first, _, _ in columns]


def test_watcher_receives_each_column_of_a_run_once(listener: RigListener) -> None:
    listener._curves(curves("one"))
    for number in range(1000):
        listener._live(live("one", 50 * number))
    number, samples = columns_since(listener)
    assert samples == list(range(0, 50_000, 50))
    listener._live(live("another", 7))  # of a run that has ended
    assert listener.since(number)[2] == []
    listener._live(live("one", 50_000))
    number, samples = columns_since(listener, number)
    assert samples == [50_000]
    listener._curves(curves("two"))
    listener._live(live("two", 0))
    situation, _, columns = listener.since(number)
    assert situation["curves"]["run"] == "two"
    assert [first for first, _, _ in columns] == [0]


def test_ten_minutes_are_kept(listener: RigListener, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_COLUMNS == 10 * 60 * 100
    monkeypatch.setattr(module, "MOST_COLUMNS", 1000)
    listener._curves(curves("one"))
    for number in range(5000):
        listener._live(live("one", 50 * number))
    assert columns_since(listener)[1] == list(range(50 * 4800, 50 * 5000, 50))


def test_nan_and_inf_become_null(listener: RigListener) -> None:
    listener._sync_status(SyncStatus(sample=3, control_error=[NAN], energy_error_percent=float("inf")))
    listener._curves(LiveCurves(run="one", servo_rate=NAN, limited=[0], limits=["a"], low=[NAN], high=[NAN]))
    listener._test_state(module.TestState(run="one", servo_rate=float("-inf")))
    situation = listener.since(-1)[0]
    sync, text = situation["sync"], json.dumps(situation, allow_nan=False)
    assert (sync["control_error"], sync["energy_error_percent"]) == ([None], None)
    assert text.count('"servo_rate": null') == 2


def test_stop_is_an_event(listener: RigListener) -> None:
    listener.note({"stop": "page at 127.0.0.1: stopped"})
    listener.note({"reaches": True})
    assert listener.since(-1)[0]["stop_reaches"] is True
    assert listener.since(-1)[0]["events"][-1]["words"] == "page at 127.0.0.1: stopped"


def test_stop_without_rig_is_an_error() -> None:
    client = StopClient("rths", "page_stop")
    client.start()
    try:
        with pytest.raises(ConfigError, match=naming("node", "rig")):
            asyncio.run(client.stop("stop"))
    finally:
        client.close()


@pytest.mark.parametrize(
    ("error", "warnings"),
    [(InvalidHandle("gone"), []), (ValueError("odd"), ["a message was dropped (ValueError: odd)"])],
)
def test_only_unreadable_messages_are_reported(
    listener: RigListener, error: Exception, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscription that is destroyed during a turn of the executor has lost nothing."""
    errors, reports = [error], []

    def spin(timeout_sec: float) -> None:
        if errors:
            raise errors.pop()
        listener._leaving.set()

    monkeypatch.setattr(listener._executor, "spin_once", spin)
    monkeypatch.setattr(listener._node, "get_logger", lambda: SimpleNamespace(warning=reports.append))
    listener._spin()
    assert reports == warnings


@pytest.fixture
def console() -> Iterator[Console]:
    with composed.ros_context() as context:
        console = Console(context, [NodeDescription("actuator", "rths", {"run_id": "mine"})])
        yield console
        console.destroy_node()


def receive_state(console: Console, run_id: str, state: State, reason: str = "") -> None:
    values: dict[str, Any] = {"state": int(state), "reason": reason, "sample": 7, "run_id": run_id}
    values |= {"run": mark_of(run_id), "stamp": time.time_ns(), "scenario_hash": "abc"}
    console._receive("test_state", values)


def test_console_ignores_the_state_of_another_run(console: Console) -> None:
    """Before the test, another node may be present under the name of the actuator node."""
    receive_state(console, "other", State.TRIPPED, "a limit of another rig")
    assert (console.result.state, console.result.reason) == (State.IDLE, "")
    receive_state(console, "mine", State.ARMED)
    receive_state(console, "mine", State.FINISHED)
    receive_state(console, "other", State.HELD, "interrupted before the test began")
    assert (console.result.state, console.result.reason) == (State.FINISHED, "")


def test_console_ignores_a_summary_before_the_test(console: Console) -> None:
    summary = {"node": "actuator", "names": ["timing.missed"], "values": [99.0]}
    console._receive("summary", summary)
    receive_state(console, "mine", State.ARMED)
    assert (console.result.numbers, console.reported) == ({}, set())
    console._receive("summary", summary | {"values": [1.0]})
    assert (console.result.numbers, console.reported) == ({"timing.missed": 1.0}, {"actuator"})


@pytest.mark.parametrize("interrupted", [True, False])
def test_interrupt_by_the_runner_is_no_reason(interrupted: bool) -> None:
    """The runner interrupts the other nodes once a node has left before the test."""
    left = SimpleNamespace(popen=SimpleNamespace(returncode=2), ended_by_us=False)
    processes: Any = SimpleNamespace(send=print, see_out=lambda _: [])
    processes.counted, processes.why = lambda _: [left], lambda _: "left"
    result = Result(State.HELD, "interrupted", interrupted=interrupted)
    console: Any = SimpleNamespace(listen=lambda: None, result=result, reported=set())
    assert exit_codes(processes, console, result, lambda: None, [left]) == [2]  # type: ignore[list-item]
    assert result.reason == ("left; interrupted" if interrupted else "left")
