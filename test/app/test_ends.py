# SPDX-License-Identifier: Apache-2.0
"""For every host, pace and way to end: the outcome, the exit code, and a recording that says the same."""

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

WITHOUT_ROS = set(WAYS) - set(SERVICES) - set(FAULTS) - set(OF_PROCESSES)
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
"""What is tried with every change; the rest, which starts many nodes, with the soak tests."""


def cells() -> Iterator[Any]:
    for column in COLUMNS:
        for way in WAYS:
            if column == "embedded":
                if way in WITHOUT_ROS:
                    yield pytest.param(column, way, id=f"{column}-{way}")
                continue
            if way in OF_PROCESSES and not column.startswith("processes"):
                continue
            marks = [pytest.mark.nodes, *([] if way in OFTEN[column] else [pytest.mark.soak])]
            yield pytest.param(column, way, id=f"{column}-{way}", marks=marks)


def signal_actuator(number: signal.Signals) -> None:
    """A signal to the process of the actuator node."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    for child in children:
        words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        if b"actuator" in words:
            os.kill(int(child), number)


@dataclass
class Once:
    """Does ``action`` once the rig moves; called with sample and samples."""

    action: Callable[[], object]
    done: bool = False

    def __call__(self, sample: int, samples: int) -> None:
        if sample > UNDER_WAY and not self.done:
            self.done = True
            self.action()


def ended(column: str, way: str, record: Path, patience: list[str], **options: Any) -> hosts.RunResult | None:
    """What ``rths run`` makes of the test; None where it is refused before any node starts."""
    host, pace = COLUMNS[column]
    with ExitStack() as stack:
        action: Callable[[], object] = lambda: None  # noqa: E731
        if way in SERVICES:
            action = stack.enter_context(called(way))
        elif way in OF_PROCESSES:
            action = partial(signal_actuator, OF_PROCESSES[way])
        elif way in SIGNALS:
            action = lambda: os.kill(os.getpid(), signal.Signals[way])  # noqa: E731
        stack.enter_context(largest_file(FILE_SIZES.get(way)))
        interrupted = stack.enter_context(orderly_stop())
        given = {"host": host, "pace": pace, "record": record, "faults": FAULTS.get(way, ())} | options
        overrides = [*patience, *OVERRIDES.get(way, [LONG])]
        try:
            return hosts.run(NAME, overrides, keep=False, progress=Once(action), interrupted=interrupted, **given)
        except ConfigError:
            return None


@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.parametrize(("column", "way"), cells())
def test_the_outcome_the_exit_code_and_the_recording_agree(
    column: str, way: str, tmp_path: Path, patience: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if column != "embedded":
        pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
        from rths_nodes.ros.hosting import node_processes

        if way == "actuator hangs":  # elsewhere a node may be kept waiting for longer
            monkeypatch.setattr(node_processes, "HANGS_S", 2.0)
    if (column, way) == ("embedded", "disk full"):
        with pytest.raises(
            RuntimeError, match=naming("recording", "aborted")
        ):  # of which rths run makes exit code 1
            ended(column, way, tmp_path / "run", patience)
        return
    found = ended(column, way, tmp_path / "run", patience)
    if found is None:
        assert WAYS[way] is ExitCode.REFUSED
        return
    assert (found.outcome, found.exit_code) == (WAYS[way].outcome, WAYS[way]), found.reason
    assert bool(found.reason) == (way != "finished")
    assert len(set(found.reason.split("; "))) == len(found.reason.split("; ")), "nothing is said twice"
    if way in ("refused", "disk full"):
        return
    run = rths_nodes.read(tmp_path / "run")
    # the recorder lives: where the rig has come to rest it cannot know that another node has failed
    assert run.outcome in (found.outcome, *(["tripped"] if way == "node killed" else []))
    assert bool(run.information["reason"]) == (way != "finished")
    if way in ("actuator killed", "actuator hangs"):
        what = "died" if way == "actuator killed" else "hangs"
        assert mentions(run.information["reason"], "node", what)
    elif found.samples and way != "finished":
        assert run.flags[-1] & FLAG_TRIPPED, "the safe stop is in the recording"
        steps = np.diff(run.command[:, 0])
        assert abs(steps[-1]) <= run.scenario.axes["story_1"].limits.deceleration * run.scenario.dt**2 * 1.001


@pytest.mark.nodes
@pytest.mark.parametrize("lost", ["stop", "warn"])
def test_a_recording_that_is_deleted_under_way_is_missed_within_a_second(
    lost: str, tmp_path: Path, patience: list[str]
) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    delete = Once(lambda: shutil.rmtree(tmp_path / "run"))
    overrides = ["duration=3", *patience, f"heartbeat.recorder_lost={lost}"]
    found = hosts.run(
        NAME, overrides, host=COMPOSED, pace=REALTIME, record=tmp_path / "run", progress=delete, keep=False
    )
    if lost == "stop":
        assert (found.outcome, found.exit_code) == ("failed", ExitCode.FAILED)
        assert mentions(found.reason, "recording", "deleted")
        assert found.samples < UNDER_WAY + 2 * found.scenario.servo_rate
    else:
        assert found.outcome == "finished"
        assert found.exit_code in (ExitCode.FINISHED, ExitCode.NOT_VALID)  # a busy machine misses samples
        assert found.messages is not None
        assert not found.messages["complete"]
        assert mentions(" ".join(found.notes), "recording", "end at sample")


@pytest.mark.nodes
@pytest.mark.soak
@pytest.mark.parametrize("seconds", [0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
def test_a_stranger_under_the_name_of_the_actuator_that_leaves_is_not_taken_for_it(
    seconds: float, tmp_path: Path
) -> None:
    """Either the test is refused, because two nodes have one name, or it is not disturbed."""
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    import rclpy
    from rclpy.context import Context
    from rclpy.node import Node

    from rths_nodes.core.wire.plain import encode
    from rths_nodes.loop.supervision.states import State
    from rths_nodes.ros.names import TOPICS
    from rths_nodes.ros.transport.endpoints import message_class, quality

    topic, context = TOPICS["test_state"], Context()
    rclpy.init(context=context)
    stranger = Node("actuator", context=context, namespace="rths")
    states = stranger.create_publisher(message_class(topic.type), topic.name, quality(topic))
    said = {"state": int(State.TRIPPED), "reason": "a stranger", "run_id": "another", "scenario_hash": "another"}
    states.publish(encode(topic.message, said))
    leave = threading.Timer(seconds, stranger.destroy_node)
    leave.start()
    try:
        found = hosts.run(NAME, ["duration=1"], host=PROCESSES, record=tmp_path / "run", keep=False)
    finally:
        leave.join()
        rclpy.shutdown(context=context)
    assert (found.outcome, found.exit_code) in (("finished", 0), ("refused", 2)), found.reason
    assert "a stranger" not in found.reason
