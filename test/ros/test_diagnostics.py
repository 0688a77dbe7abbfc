# SPDX-License-Identifier: Apache-2.0
"""Messages of nodes on /diagnostics, once a second of their clock, decoded as by any ROS tool."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from ear import Ear
from served_test import directly

from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.nodes.operator import OperatorNode


def receive(ear: Ear) -> list[DiagnosticStatus]:
    time.sleep(0.2)
    ear.listen()
    return [status for message in ear.heard for status in message.status]


def values_of(status: DiagnosticStatus) -> dict[str, str]:
    return {entry.key: entry.value for entry in status.values}


def test_node_publishes_once_a_second_of_its_clock(by_hand, clock):
    with by_hand.node("compensator", clock=clock, namespace="shaker_2") as node:
        ear = Ear(node, DiagnosticArray, "/diagnostics", 10)
        published = [node.diagnostics.publish_if_due()]
        for _ in range(30):
            clock.now += 100_000_000
            published.append(node.diagnostics.publish_if_due())
        assert [n for n, yes in enumerate(published) if yes] == [0, 10, 20, 30]
        statuses = receive(ear)
    assert len(statuses) == 4
    assert {(s.level, s.name, s.hardware_id) for s in statuses} == {
        (DiagnosticStatus.OK, "shaker_2/compensator", "shaker_2")
    }
    values = values_of(statuses[-1])
    assert (values["scenario"], values["role"], values["sample"]) == ("chen_ricles_2010", "compensator", "-1")


def test_recent_problem_is_a_warning_and_trip_an_error(by_hand, clock):
    with by_hand.node("integrator", clock=clock) as node:
        ear = Ear(node, DiagnosticArray, "/diagnostics", 10)
        node.topics.malformed += 2
        node.diagnostics.publish_if_due()
        clock.now += 1_000_000_000
        node.diagnostics.publish_if_due()
        by_hand.put_state(node, State.TRIPPED, 7, "too far")
        clock.now += 1_000_000_000
        node.diagnostics.publish_if_due()
        recent, past, tripped = receive(ear)
    assert (recent.level, recent.message) == (DiagnosticStatus.WARN, "2 malformed")
    assert past.level == DiagnosticStatus.OK
    assert values_of(recent)["malformed"] == values_of(past)["malformed"] == "2"
    assert (tripped.level, tripped.message) == (DiagnosticStatus.ERROR, "too far")
    assert values_of(tripped)["state"] == "TRIPPED"


def test_exception_is_published_immediately(by_hand, clock):
    with by_hand.node("integrator", clock=clock) as node:
        ear = Ear(node, DiagnosticArray, "/diagnostics", 10)
        node.surprise(RuntimeError("no such thing"))
        status = receive(ear)[-1]
    assert (status.level, status.message) == (DiagnosticStatus.ERROR, "integrator: RuntimeError: no such thing")


PROGRAM = """
import sys
from rths_nodes.app import hosts
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.ros.nodes.actuator import Completion

seen = []
def noting(method):
    def noted(self):
        seen.append(set(sys.modules))
        return method(self)
    return noted

RigStage.begin, Completion.work = noting(RigStage.begin), noting(Completion.work)
hosts.run(
    "chen_ricles_2010", ["duration=2.2"], host="composed", pace="realtime", record=sys.argv[1], keep=False
)
print(sorted(seen[1] - seen[0]))
"""


def test_nothing_is_imported_while_the_rig_moves(tmp_path):
    """An import takes tens of milliseconds, also an import by a library at its first use."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_operator_node_reports_a_trip_as_error(tmp_path, monkeypatch):
    with directly(tmp_path) as session:
        node, levels = OperatorNode(session.served, "rths_tripped"), []
        monkeypatch.setattr(node._diagnostics, "publish", lambda message: levels.append(message.status[0].level))
        try:
            for state in (State.HELD, State.TRIPPED):
                session.runner.session.state = state
                node._diagnose()
        finally:
            session.runner.session.state = State.IDLE
            node.close()
    assert levels == [DiagnosticStatus.OK, DiagnosticStatus.ERROR]
