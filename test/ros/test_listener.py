# SPDX-License-Identifier: Apache-2.0
"""An onlooker keeps ten minutes of columns of one run, and hands them out in turns."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import naming
from rclpy.exceptions import InvalidHandle

from rths_nodes.core.errors import ConfigError
from rths_nodes.msg import Live, LiveCurves, SyncStatus
from rths_nodes.ros.hosting import listener as module
from rths_nodes.ros.hosting.listener import AT_ONCE, MOST_COLUMNS, RigListener
from rths_nodes.ros.hosting.stop_client import StopClient

pytestmark = pytest.mark.nodes


@pytest.fixture
def onlooker() -> Iterator[RigListener]:
    made = RigListener("rths", "page")
    yield made
    made.close()
    made.close()


def curves(run: str) -> LiveCurves:
    told = LiveCurves(servo_rate=1024.0, names=["a/target"], units=["m"], limited=[0], limits=["stroke"])
    told.low, told.high = [-0.1], [0.1]
    told.run = run
    return told


def live(run: str, first: int, columns: int) -> Live:
    told = Live(first=first, column=10, values=array("f", [0.0] * 4 * columns))
    told.run = run
    return told


def everything(onlooker: RigListener, number: int = -1) -> tuple[int, list[int]]:
    """The last number, and the first samples of all columns, as a watcher gets them."""
    found: list[int] = []
    while True:
        _, number, columns = onlooker.since(number)
        if not columns:
            return number, found
        assert len(columns) <= AT_ONCE
        found += [first for first, _, _ in columns]


def test_a_watcher_gets_every_column_once_and_of_another_run_all_anew(onlooker: RigListener) -> None:
    onlooker._curves(curves("one"))
    for number in range(1000):
        onlooker._live(live("one", 50 * number, 5))
    number, found = everything(onlooker)
    assert found == list(range(0, 50_000, 50))
    onlooker._live(live("another", 7, 5))  # of a run that is over
    assert onlooker.since(number)[2] == []
    onlooker._live(live("one", 50_000, 5))
    number, found = everything(onlooker, number)
    assert found == [50_000]
    onlooker._curves(curves("two"))
    onlooker._live(live("two", 0, 5))
    situation, _, columns = onlooker.since(number)
    assert situation["curves"]["run"] == "two"
    assert [first for first, _, _ in columns] == [0]


def test_ten_minutes_are_kept(onlooker: RigListener, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_COLUMNS == 10 * 60 * 100
    monkeypatch.setattr(module, "MOST_COLUMNS", 1000)
    onlooker._curves(curves("one"))
    for number in range(5000):
        onlooker._live(live("one", 50 * number, 5))
    _, found = everything(onlooker)
    assert found == list(range(50 * 4800, 50 * 5000, 50))


def test_numbers_that_are_none_are_null(onlooker: RigListener) -> None:
    onlooker._sync_status(SyncStatus(sample=3, control_error=[float("nan")], energy_error_percent=float("inf")))
    told = onlooker.situation()
    assert told["sync"]["control_error"] == [None]
    assert told["sync"]["energy_error_percent"] is None


def test_a_stop_is_an_event(onlooker: RigListener) -> None:
    onlooker.note({"stop": "page at 127.0.0.1: stopped"})
    onlooker.note({"reaches": True})
    assert onlooker.situation()["stop_reaches"] is True
    assert onlooker.situation()["events"][-1]["words"] == "page at 127.0.0.1: stopped"


def test_a_stop_that_nobody_hears_is_an_error() -> None:
    stopper = StopClient("rths", "page_stop")
    stopper.start()
    try:
        with pytest.raises(ConfigError, match=naming("node", "rig")):
            asyncio.run(stopper.stop("stop"))
    finally:
        stopper.close()


@pytest.mark.parametrize(
    ("raised", "warned"),
    [(InvalidHandle("gone"), []), (ValueError("odd"), ["a message was dropped (ValueError: odd)"])],
)
def test_only_what_cannot_be_read_is_told(
    onlooker: RigListener, raised: Exception, warned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscription that is given up while the executor looks at it has lost nothing."""
    turns, told = iter([raised]), []

    def spin(timeout_sec: float) -> None:
        for each in turns:
            raise each
        onlooker._leaving.set()

    monkeypatch.setattr(onlooker._executor, "spin_once", spin)
    monkeypatch.setattr(onlooker._node, "get_logger", lambda: SimpleNamespace(warning=told.append))
    onlooker._spin()
    assert told == warned
