"""What the actuator node does before the first sample: arm the rig, or give the test up, and say so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from rths_nodes.loop.clock_offset import Exchange
from rths_nodes.loop.supervision.states import State, TestMachine
from rths_nodes.loop.supervision.stop_request import StopRequest
from rths_nodes.ros.nodes.accompaniment import StateAnnouncer
from rths_nodes.ros.nodes.clock_exchange import ClockQuestions
from rths_nodes.ros.nodes.phase import Phase, PhaseMachine
from rths_nodes.ros.nodes.start_of_test import FOUND_S, StartOfTest, StartRefused


class Bench:
    """A rig at its start position, and what its surroundings say."""

    def __init__(self) -> None:
        self.port = SimpleNamespace(simulated=True)
        self.rig: Any = SimpleNamespace(machine=TestMachine(), sample=0, stop_request=None, port=self.port)
        for state in (State.CONNECTED, State.REFERENCED, State.POSITIONED):
            self.rig.machine.to(state)
        self.phase = PhaseMachine()
        for phase in (Phase.CONFIGURED, Phase.MATCHING, Phase.READY):
            self.phase.to(phase)
        self.shutdown: Any = SimpleNamespace(interrupted=False)
        self.opens, self.open_s = False, 0.0
        self.refused: StartRefused | None = None
        self.told: list[tuple[int, str]] = []
        self.heard_of: list[Any] = []
        self.guards_closed = False
        parts: Any = self
        announcer = StateAnnouncer(self.rig, parts, self.phase, {"run_id": "one"})
        self.clocks = ClockQuestions("actuator", (), parts)
        self.start = StartOfTest(
            parts, self.rig, announcer, parts, self.shutdown, self.phase, self.clocks, longest_way=0.001
        )

    def hear(self, statuses: list[Any]) -> None:
        self.heard_of += statuses

    def may_begin(self) -> bool:
        if self.refused is not None:
            raise self.refused
        return self.opens

    def heard(self, topic: str) -> list[Any]:
        return [topic]

    def close_guards(self) -> None:
        self.guards_closed = True

    def tell(self, topic: str, values: dict[str, Any]) -> None:
        assert (topic, values["run_id"]) == ("test_state", "one")
        self.told.append((values["state"], values["reason"]))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_rig_is_armed_once_the_gate_is_open(bench: Bench) -> None:
    assert not bench.start.work()
    assert not bench.start.work()
    assert (bench.told, bench.heard_of) == ([(State.POSITIONED, "")], ["node_status"] * 2)
    bench.opens = True
    assert bench.start.work()
    assert (bench.rig.machine.state, bench.guards_closed) == (State.ARMED, True)
    assert bench.told[-1] == (State.ARMED, "")
    assert (bench.phase.now, bench.start.farewell) == (Phase.IN_TEST, 0.0)


def test_a_rig_that_can_hurt_somebody_waits_until_an_emergency_stop_finds_it(bench: Bench) -> None:
    """A publisher that the middleware had not matched yet lost its stop in one of 30 tests, up to 2.8 s long."""
    bench.opens, bench.port.simulated = True, False
    for since in (0.0, 2.8, FOUND_S - 0.01):
        bench.open_s = since
        assert not bench.start.work()
    bench.open_s = FOUND_S
    assert bench.start.work()


def test_a_refused_test_is_given_up_and_the_peers_are_waited_for(bench: Bench) -> None:
    bench.refused = StartRefused("monitor runs another scenario", 2)
    assert not bench.start.work()
    assert bench.told[-1] == (State.IDLE, "refused: monitor runs another scenario")
    assert (bench.phase.gone, bench.phase.exit_code) == (True, 2)
    assert bench.phase.problem == "monitor runs another scenario"
    assert bench.start.farewell == FOUND_S


def test_a_node_that_is_there_twice_waits_for_nobody(bench: Bench) -> None:
    bench.start.refuse("2 nodes are called /rths/monitor")
    assert (bench.phase.gone, bench.phase.exit_code, bench.start.farewell) == (True, 2, 0.0)


@pytest.mark.parametrize(
    ("interrupted", "request_", "state", "reason"),
    [
        (True, None, State.HELD, "interrupted"),
        (True, StopRequest("emergency stop"), State.HELD, "emergency stop"),
        (False, StopRequest("emergency stop"), State.TRIPPED, "emergency stop"),
        (False, StopRequest("stop service", end=State.HELD), State.HELD, "stop service"),
    ],
)
def test_a_test_that_is_stopped_before_it_begins_ends_at_once(
    bench: Bench, interrupted: bool, request_: Any, state: State, reason: str
) -> None:
    bench.shutdown.interrupted, bench.rig.stop_request = interrupted, request_
    assert not bench.start.work()
    assert bench.told[-1] == (state, f"{reason} before the test began")
    assert bench.start.farewell == FOUND_S


def test_a_machine_that_is_more_than_a_sample_away_is_refused_in_real_time(bench: Bench) -> None:
    bench.opens = True
    bench.clocks.before["compensator"] = [Exchange(5.0, way) for way in (0.0012, 0.0009, 0.0013)]
    assert not bench.start.work()
    assert bench.rig.machine.state is State.IDLE
    assert bench.phase.exit_code == 2
    words = "the way to the compensator node and back takes 1.2 ms (median of 3): must be <= 1 ms, a sample"
    assert words in bench.told[-1][1]


def test_a_machine_that_tells_no_time_is_refused(bench: Bench) -> None:
    bench.opens = True
    bench.clocks.before["compensator"] = []
    assert not bench.start.work()
    assert (bench.phase.exit_code, bench.phase.problem) == (1, "compensator: no answer on clock_answer")
