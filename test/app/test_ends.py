# SPDX-License-Identifier: Apache-2.0
"""Ends of a test, for each host, pace and cause: outcome, exit code and recording."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ends import (
    FAULTS,
    FILE_SIZES,
    LONG,
    NAME,
    OF_PROCESSES,
    OVERRIDES,
    SERVICES,
    SIGNALS,
    UNDER_WAY,
    WAYS,
    called,
    largest_file,
)
from messages import mentions, naming

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_TRIPPED
from rths_nodes.loop.interrupts import orderly_stop
from rths_nodes.loop.options import COMPOSED, EMBEDDED, LOCKSTEP, PROCESSES, REALTIME
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.recording import bag

COLUMNS = {
    "embedded": (EMBEDDED, LOCKSTEP),
    "composed": (COMPOSED, LOCKSTEP),
    "composed in real time": (COMPOSED, REALTIME),
    "processes": (PROCESSES, LOCKSTEP),
    "processes in real time": (PROCESSES, REALTIME),
}
OFTEN = {
    "composed": {"limit", "monitor", "node killed", "actuator killed", "SIGTERM"},
    "composed in real time": {"stop service", "deactivated", "disk full", "refused", "SIGHUP", "SIGXCPU"},
    "processes": {"actuator hangs"},
    "processes in real time": {"refused", "actuator told to stop"},
}
"""Cells that run with every change; the others, which start many nodes, are soak tests."""


def cells() -> Iterator[Any]:
    for column in COLUMNS:
        for way in WAYS:
            if column == "embedded":
                if way not in {*SERVICES, *FAULTS, *OF_PROCESSES}:
                    yield pytest.param(column, way, id=f"{column}-{way}")
            elif way not in OF_PROCESSES or column.startswith("processes"):
                marks = [pytest.mark.nodes, *([] if way in OFTEN[column] else [pytest.mark.soak])]
                yield pytest.param(column, way, id=f"{column}-{way}", marks=marks)


@pytest.fixture
def with_ros() -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")


def signal_actuator(number: signal.Signals) -> None:
    """Send a signal to the process of the actuator node."""
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        if b"actuator" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
            os.kill(int(child), number)


@dataclass
class Once:
    """Progress callback that calls ``action`` once the rig moves."""

    action: Callable[[], object]
    done: bool = False

    def __call__(self, sample: int, samples: int) -> None:
        if sample > UNDER_WAY and not self.done:
            self.done = True
            self.action()


def run_to_end(column: str, way: str, record: Path, patience: list[str]) -> hosts.RunResult | None:
    """Return the result of the test; None if it is refused before any node starts."""
    host, pace = COLUMNS[column]
    with ExitStack() as stack:
        action: Callable[[], object] = lambda: None  # noqa: E731
        if way in SERVICES:
            action = stack.enter_context(called(way))
        elif way in OF_PROCESSES:
            action = partial(signal_actuator, OF_PROCESSES[way])
        elif way in SIGNALS:
            action = partial(os.kill, os.getpid(), signal.Signals[way])
        stack.enter_context(largest_file(FILE_SIZES.get(way)))
        interrupted = stack.enter_context(orderly_stop())
        options: dict[str, Any] = {"host": host, "pace": pace, "record": record, "faults": FAULTS.get(way, ())}
        overrides = [*patience, *OVERRIDES.get(way, [LONG])]
        try:
            return hosts.run(
                NAME, overrides, keep=False, progress=Once(action), interrupted=interrupted, **options
            )
        except ConfigError:
            return None


@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.parametrize(("column", "way"), cells())
def test_outcome_exit_code_and_recording_agree(
    column: str, way: str, tmp_path: Path, patience: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if column != "embedded":
        pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
        from rths_nodes.ros.hosting import node_processes

        if way == "actuator hangs":  # elsewhere a busy machine may keep a node waiting for longer
            monkeypatch.setattr(node_processes, "HANGS_S", 2.0)
    if (column, way) == ("embedded", "disk full"):
        with pytest.raises(RuntimeError, match=naming("recording", "aborted")):  # exit code 1 of rths run
            run_to_end(column, way, tmp_path / "run", patience)
        return
    result = run_to_end(column, way, tmp_path / "run", patience)
    if result is None:
        assert WAYS[way] is ExitCode.REFUSED
        return
    assert (result.outcome, result.exit_code) == (WAYS[way].outcome, WAYS[way]), result.reason
    assert bool(result.reason) == (way != "finished")
    assert len(set(result.reason.split("; "))) == len(result.reason.split("; ")), "repeated reason"
    if way in ("refused", "disk full"):
        return
    run = rths_nodes.read(tmp_path / "run")
    # once the rig is at rest, the recorder cannot know that another node has failed
    assert run.outcome in (result.outcome, *(["tripped"] if way == "node killed" else []))
    assert bool(run.information["reason"]) == (way != "finished")
    if way in ("actuator killed", "actuator hangs"):
        assert mentions(run.information["reason"], "node", "died" if way == "actuator killed" else "hangs")
    elif result.samples and way != "finished":
        assert run.flags[-1] & FLAG_TRIPPED, "the safe stop is in the recording"
        steps = np.diff(run.command[:, 0])
        assert abs(steps[-1]) <= run.scenario.axes["story_1"].limits.deceleration * run.scenario.dt**2 * 1.001


@pytest.mark.nodes
@pytest.mark.usefixtures("with_ros")
@pytest.mark.parametrize("lost", ["stop", "warn"])
def test_deleted_recording_is_detected_within_a_second(lost: str, tmp_path: Path, patience: list[str]) -> None:
    delete = Once(partial(shutil.rmtree, tmp_path / "run"))
    overrides = ["duration=3", *patience, f"heartbeat.recorder_lost={lost}"]
    result = hosts.run(
        NAME, overrides, host=COMPOSED, pace=REALTIME, record=tmp_path / "run", progress=delete, keep=False
    )
    if lost == "stop":
        assert (result.outcome, result.exit_code) == ("failed", ExitCode.FAILED)
        assert mentions(result.reason, "recording", "deleted")
        assert result.samples < UNDER_WAY + 2 * result.scenario.servo_rate
    else:
        assert result.outcome == "finished"
        assert result.exit_code in (ExitCode.FINISHED, ExitCode.NOT_VALID)  # a busy machine misses samples
        assert not result.messages["complete"]
        assert mentions(" ".join(result.notes), "recording", "end at sample")


@pytest.mark.nodes
@pytest.mark.usefixtures("with_ros")
def test_killed_recorder_ends_the_test_and_leaves_a_recording(tmp_path: Path, patience: list[str]) -> None:
    result = hosts.run(
        NAME,
        ["duration=20", *patience],
        host=COMPOSED,
        pace=REALTIME,
        separate=["recorder"],
        record=tmp_path / "run",
        faults=["kill@1:recorder"],
    )
    assert result.exit_code == 1
    assert mentions(result.reason, "died", "SIGKILL")
    assert result.samples < 10 * 1024
    bag.recover(tmp_path / "run")
    # the recorder buffers 0.1 s by the clock; on a busy machine it has received more by then
    assert len(rths_nodes.read(tmp_path / "run").time) > 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": "processes", "separate": ["recorder"]}, ("separate", "processes")),
        ({"host": "composed", "separate": ["actuator"]}, ("separate", "actuator", "monitor", "recorder")),
        ({"host": "composed", "separate": ["recorder"], "record": None}, ("separate", "recorder", "not recorded")),
    ],
)
def test_separate_nodes_are_refused_if_impossible(options: Any, message: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=naming(*message)):
        hosts.run(NAME, **({"record": tmp_path / "run"} | options))


@pytest.mark.nodes
@pytest.mark.soak
@pytest.mark.usefixtures("with_ros")
@pytest.mark.parametrize("seconds", [0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
def test_unrelated_node_named_actuator_does_not_end_the_test(seconds: float, tmp_path: Path) -> None:
    """The node leaves after some seconds. Only a refusal is allowed, because two nodes have one name."""
    import rclpy
    from rclpy.context import Context
    from rclpy.node import Node

    from rths_nodes.core.wire import encode
    from rths_nodes.loop.supervision.states import State
    from rths_nodes.ros.names import TOPICS
    from rths_nodes.ros.transport.endpoints import message_class, quality

    topic, context = TOPICS["test_state"], Context()
    rclpy.init(context=context)
    stranger = Node("actuator", context=context, namespace="rths")
    states = stranger.create_publisher(message_class(topic.type), topic.name, quality(topic))
    state = {"state": int(State.TRIPPED), "reason": "a stranger", "run_id": "another", "scenario_hash": "another"}
    states.publish(encode(topic.message, state))
    leave = threading.Timer(seconds, stranger.destroy_node)
    leave.start()
    try:
        result = hosts.run(NAME, ["duration=1"], host=PROCESSES, record=tmp_path / "run", keep=False)
    finally:
        leave.join()
        rclpy.shutdown(context=context)
    assert (result.outcome, result.exit_code) in (("finished", 0), ("refused", 2)), result.reason
    assert "a stranger" not in result.reason
