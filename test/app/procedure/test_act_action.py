# SPDX-License-Identifier: Apache-2.0
"""Acts that take their time are an action of ROS 2: progress is its feedback, a cancel is the act stop."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from served_test import Client, Operator, Session, by_service

from rths_nodes.app.procedure.services import KEY, STRANGER
from rths_nodes.core.wire.acts import Answer, Request, of_message
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.acts import ACTS

pytestmark = [pytest.mark.nodes]
pytest.importorskip("rclpy")

SUCCEEDED, CANCELED, ABORTED = 4, 5, 6
"""Ends of a goal, as in action_msgs/msg/GoalStatus."""


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A test of 60 s of motion, which nobody waits for, through the middleware."""
    with by_service(tmp_path, 0, 60.0) as session:
        yield session


def client_of(session: Session) -> Client:
    assert session.client is not None
    return session.client


def running(session: Session, feedback: list[Any]) -> Any:
    """The goal ``run``, once the rig moves."""
    operator, client = Operator(session), client_of(session)
    operator.climb("arm")
    goal = client.goal(operator.request("run"), lambda told: feedback.append(told.feedback))
    while not (feedback and feedback[-1].sample):
        client.spin(1.0)
    return goal


def test_a_cancel_ends_a_run_held_and_the_goal_as_cancelled(session: Session) -> None:
    feedback: list[Any] = []
    goal, client = running(session, feedback), client_of(session)
    assert len(client.answer(goal.cancel_goal_async()).goals_canceling) == 1
    done = client.answer(goal.get_result_async())
    assert done.status == CANCELED
    assert of_message(Answer, done.result).state == State.HELD
    assert session.runner.record.rungs[-1].outcome == "held"
    stop = session.runner.record.acts[-1]
    assert (stop.act, stop.way) == ("stop", STRANGER)  # whoever cancels
    assert "the action was cancelled" in stop.arguments["reason"]
    assert State.RUNNING in {told.state for told in feedback}
    samples = [told.sample for told in feedback if told.state == State.RUNNING]
    assert samples == sorted(samples)
    assert {told.samples for told in feedback} <= {0, session.runner.ladder.scenario.samples}


def leaves(session: Session, wait: Callable[[float], None] = time.sleep) -> None:
    """The client of a run that moves leaves, and the run is held for that."""
    running(session, [])
    client_of(session).close()
    end = time.monotonic() + 30.0
    while session.runner.state is not State.HELD:
        assert time.monotonic() < end
        wait(0.01)
    assert "the operator's program has left" in session.runner.session.reason


def test_an_act_whose_client_has_left_is_stopped(session: Session) -> None:
    leaves(session)


def test_an_act_whose_client_has_left_is_stopped_also_while_another_one_follows_it(session: Session) -> None:
    other = Client("rths_0")
    leaves(session, other.spin)
    other.close()


def test_an_act_that_is_refused_is_aborted_with_the_reason(session: Session) -> None:
    client = client_of(session)
    done = client.answer(client.goal(Request("connect")).get_result_async())
    assert (done.status, done.result.reason) == (ABORTED, client.send(Request("connect")).reason)
    assert "is not signed" in done.result.reason
    assert session.runner.state is State.IDLE
    done = client.answer(client.goal(Operator(session).request("position")).get_result_async())
    assert (done.status, done.result.reason) == (ABORTED, "position: the rig is not connected")


def test_an_act_that_was_done_has_succeeded(session: Session) -> None:
    client = client_of(session)
    done = client.answer(client.goal(Operator(session).request("connect")).get_result_async())
    assert (done.status, done.result.state) == (SUCCEEDED, State.CONNECTED)
    assert session.done == [("connect", KEY)]


def test_the_service_does_no_act_that_takes_its_time(session: Session) -> None:
    """A client that no longer waits for a service would leave a moving rig behind it."""
    operator = Operator(session)
    lasting = [name for name, act in ACTS.items() if act.lasting]
    assert lasting
    for name in lasting:
        told = client_of(session).by_service(operator.request(name))
        assert "takes its time: ask for it by the action" in told.reason
    assert session.runner.record.acts == []


def test_the_page_tells_which_acts_take_their_time() -> None:
    page = (Path(__file__).resolve().parents[3] / "doc" / "ros.md").read_text(encoding="utf-8")
    rows = {
        row.split("|")[1].strip(): row.split("|")[3]
        for row in page.splitlines()
        if "rths_nodes/" in row and "/Act`" in row
    }
    for place, lasting in (("service", False), ("action", True)):
        assert set(re.findall(r"`(\w+)`", rows[place])) == {
            name for name, act in ACTS.items() if act.lasting is lasting
        }


def test_a_cancel_before_an_act_has_begun_lets_it_not_begin(session: Session) -> None:
    """Nobody knows which of both the executor takes first."""
    operator, client = Operator(session), client_of(session)
    operator.climb("check")
    goal = client.goal(operator.request("position"))
    client.answer(goal.cancel_goal_async())
    done = client.answer(goal.get_result_async())
    ends = {CANCELED: (State.REFERENCED, State.HELD), SUCCEEDED: (State.POSITIONED,)}
    time.sleep(0.2)
    assert session.runner.state in ends[done.status]


def test_the_node_outlives_a_request_that_fails(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it does one that rclpy cannot read, which ends its executor in the same way."""
    client, possible = client_of(session), session.runner.possible
    failed: list[str] = []

    def fails_once() -> dict[str, str]:
        if not failed:
            failed.append("once")
            raise RuntimeError("once")
        return possible()

    monkeypatch.setattr(session.runner, "possible", fails_once)
    never = client.asked(Request())
    while not failed:
        client.spin(0.01)
    assert client.by_service(Request()).done
    assert not never.done()


ROS2 = shutil.which("ros2") or shutil.which("ros2", path=str(Path(sys.executable).parent))


@pytest.mark.skipif(ROS2 is None, reason="the program ros2 is not installed here")
def test_control_c_of_ros2_action_send_goal_ends_held(session: Session) -> None:
    operator = Operator(session)
    operator.climb("arm")
    goal = json.dumps(asdict(operator.request("run")))
    assert ROS2 is not None
    asking = subprocess.Popen(
        [ROS2, "action", "send_goal", "/rths_0/operator/act", "rths_nodes/action/Act", goal, "--feedback"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    heard: list[str] = []
    assert asking.stdout is not None
    reading = threading.Thread(target=lambda: heard.extend(asking.stdout or ()), daemon=True)
    reading.start()
    while session.runner.state is not State.RUNNING:
        assert asking.poll() is None, heard
        time.sleep(0.01)
    time.sleep(0.5)
    asking.send_signal(signal.SIGINT)
    end = time.monotonic() + 30.0
    while session.runner.state is not State.HELD:
        assert time.monotonic() < end, heard
        time.sleep(0.01)
    asking.wait(30.0)
    reading.join(30.0)
    assert "samples: " in "".join(heard)
    assert session.runner.record.rungs[-1].outcome == "held"
