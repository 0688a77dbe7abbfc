# SPDX-License-Identifier: Apache-2.0
"""What the actuator node does after the last sample: judgement, Summary, and when it leaves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.nodes.actuator import JUDGED_NS, LINGER_NS, TRUTH_NS, Completion
from rths_nodes.ros.nodes.clock_exchange import ClockQuestions
from rths_nodes.ros.nodes.observers import RigClock, RigContext
from rths_nodes.ros.nodes.phase import NodeContext, Phase, PhaseMachine
from rths_nodes.ros.transport.wiring import NodeLocation


class Rig:
    """A rig at rest. It settles a finished test as one that the monitor has tripped."""

    def __init__(self, state: State) -> None:
        self.machine = SimpleNamespace(state=state, reason="energy")
        self.tripped = False
        self.failure = ""
        self.done: list[str] = []
        self.port = SimpleNamespace(disarm_watchdog=lambda: self.done.append("disarmed"))

    def close(self) -> None:
        self.done.append("closed")

    def settle(self) -> None:
        if self.tripped:
            self.machine.state = State.TRIPPED


class Shutdown:
    """How far the node is with its Summary, and how patient the operator is."""

    reported = exit_now = patience_over = False

    def report(self) -> None:
        self.reported = True


class Bench:
    """The end of a test that ended as ``state``, with monitor and recorder."""

    def __init__(self, clock: Any, state: State = State.FINISHED) -> None:
        self.clock, self.rig, self.shutdown, self.phase = clock, Rig(state), Shutdown(), PhaseMachine()
        self.phase.to(Phase.CONFIGURED)
        self.times = RigClock(0.01, 5, None, clock)
        self.times.begin()
        self.progress: list[dict[str, Any]] = []
        self.trips: list[str] = []
        self.observers: Any = SimpleNamespace(done=set())
        self.truth_complete = True
        parts: Any = self
        observers = ["monitor", "recorder"]
        rig: Any = self.rig
        shutdown: Any = self.shutdown
        clocks = ClockQuestions(
            NodeContext(NodeLocation("actuator", "/rths"), self.phase, parts, parts, parts), ()
        )
        context = RigContext(rig, self.times, parts, shutdown, self.phase, clock)
        self.end = Completion(context, parts, parts, observers, clocks)

    def receive_trips(self) -> None:
        self.rig.tripped = bool(self.trips)

    def pass_on(self) -> bool:
        return self.truth_complete

    def announce_change(self) -> None: ...

    def received(self, topic: str) -> list[dict[str, Any]]:
        assert topic == "progress"
        heard, self.progress = self.progress, []
        return heard

    def work(self, *done: str, wait: int = 0) -> tuple[bool, bool]:
        """Whether the Summary is told and whether the node is gone, after ``wait`` ns and once ``done`` are."""
        self.clock.now += wait
        self.progress += [{"node": node, "done": True} for node in done]
        self.end.work()
        return self.shutdown.reported, self.phase.gone


@pytest.fixture
def bench(still_clock: Any) -> Bench:
    return Bench(still_clock)


def test_a_finished_test_is_judged_then_reported_then_recorded(bench: Bench) -> None:
    bench.progress = [{"node": "monitor", "done": False}]
    assert bench.work() == (False, False)
    assert bench.rig.done == ["disarmed"]
    assert bench.work("monitor") == (True, False)
    assert bench.work("recorder") == (True, True)
    assert bench.rig.done == ["disarmed", "closed"]
    assert bench.phase.exit_code == 0


def test_what_the_monitor_finds_in_the_last_samples_trips_the_test(bench: Bench) -> None:
    assert bench.work("recorder") == (False, False)
    bench.trips = ["energy"]
    assert bench.work("monitor") == (True, True)
    assert (bench.phase.exit_code, bench.phase.problem) == (3, "energy")


@pytest.mark.parametrize("state", [State.HELD, State.TRIPPED])
def test_nothing_more_is_found_in_a_test_that_was_stopped(state: State, still_clock: Any) -> None:
    assert Bench(still_clock, state).work() == (True, False)


def test_a_monitor_that_is_gone_is_not_waited_for_long(bench: Bench) -> None:
    bench.work()
    assert bench.work("recorder", wait=JUDGED_NS - 1) == (False, False)
    assert bench.work(wait=1) == (True, False)
    assert bench.work(wait=LINGER_NS - JUDGED_NS) == (True, False)
    assert bench.work(wait=1) == (True, True)


def test_a_recorder_that_gave_up_while_the_rig_moved_is_not_waited_for(still_clock: Any) -> None:
    bench = Bench(still_clock, State.TRIPPED)
    bench.observers.done = {"recorder"}
    assert bench.work("monitor") == (True, True)


def test_a_rig_that_has_failed_makes_a_failed_test(bench: Bench) -> None:
    bench.rig.failure, bench.rig.machine.state = "its model was killed", State.TRIPPED
    bench.work()
    assert bench.phase.exit_code == 1


def test_true_states_under_way_are_waited_for_a_little(still_clock: Any) -> None:
    bench = Bench(still_clock, State.TRIPPED)
    bench.truth_complete = False
    assert bench.work() == (False, False)
    assert bench.work(wait=TRUTH_NS - 1) == (False, False)
    assert bench.work(wait=1) == (True, False)


def test_who_is_asked_to_exit_waits_for_nobody(bench: Bench) -> None:
    bench.shutdown.exit_now = True
    assert bench.work() == (True, True)


def test_no_observer_is_waited_for_in_a_test_that_never_began(bench: Bench) -> None:
    bench.times.began_at, bench.rig.machine.state = 0, State.HELD
    bench.truth_complete = False
    assert bench.work() == (True, False)
    bench.shutdown.patience_over = True
    assert bench.work() == (True, True)
