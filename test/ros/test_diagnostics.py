# SPDX-License-Identifier: Apache-2.0
"""What nodes tell on /diagnostics: once a second of their clock, decoded as any ROS tool does."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.serialization import deserialize_message
from served_test import directly

from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.nodes.operator import OperatorNode


class Listener:
    """A typed subscription to /diagnostics, emptied by hand."""

    def __init__(self, node) -> None:
        self._handle = node.create_subscription(DiagnosticArray, "/diagnostics", lambda _: None, 10).handle

    def take(self) -> list[DiagnosticStatus]:
        heard = []
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            if (found := self._handle.take_message(DiagnosticArray, True)) is not None:
                heard += deserialize_message(found[0], DiagnosticArray).status
        return heard


def told(status: DiagnosticStatus) -> dict[str, str]:
    return {entry.key: entry.value for entry in status.values}


def test_once_a_second_of_the_clock(by_hand, clock):
    with by_hand.node("compensator", clock=clock, namespace="shaker_2") as node:
        listener = Listener(node)
        published = [node.diagnostics.publish_if_due()]
        for _ in range(30):
            clock.now += 100_000_000
            published.append(node.diagnostics.publish_if_due())
        assert [n for n, yes in enumerate(published) if yes] == [0, 10, 20, 30]
        heard = listener.take()
    assert len(heard) == 4
    assert {(s.level, s.name, s.hardware_id) for s in heard} == {
        (DiagnosticStatus.OK, "shaker_2/compensator", "shaker_2")
    }
    assert told(heard[-1])["scenario"] == "chen_ricles_2010"
    assert (told(heard[-1])["role"], told(heard[-1])["sample"]) == ("compensator", "-1")


def test_what_happened_in_the_last_second_warns_and_a_trip_is_an_error(by_hand, clock):
    with by_hand.node("integrator", clock=clock) as node:
        listener = Listener(node)
        node.topics.malformed += 2
        node.diagnostics.publish_if_due()
        clock.now += 1_000_000_000
        node.diagnostics.publish_if_due()
        by_hand.put_state(node, State.TRIPPED, 7, "too far")
        clock.now += 1_000_000_000
        node.diagnostics.publish_if_due()
        warned, fine, tripped = listener.take()
    assert (warned.level, warned.message, told(warned)["malformed"]) == (DiagnosticStatus.WARN, "2 malformed", "2")
    assert (fine.level, told(fine)["malformed"]) == (DiagnosticStatus.OK, "2")
    assert (tripped.level, tripped.message) == (DiagnosticStatus.ERROR, "too far")
    assert told(tripped)["state"] == "TRIPPED"


def test_a_surprise_is_told_at_once(by_hand, clock):
    with by_hand.node("integrator", clock=clock) as node:
        listener = Listener(node)
        node.surprise(RuntimeError("no such thing"))
        last = listener.take()[-1]
    assert (last.level, last.message) == (DiagnosticStatus.ERROR, "integrator: RuntimeError: no such thing")


def test_nothing_is_imported_while_the_rig_moves(tmp_path):
    """An import takes tens of milliseconds; so does what a library imports when it is first used."""
    program = """
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
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", program, str(tmp_path / "run")]
    found = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=60, check=True)
    assert found.stdout.splitlines()[-1] == "[]"


def test_the_operator_node_reports_a_tripped_procedure_as_an_error(tmp_path, monkeypatch):
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
