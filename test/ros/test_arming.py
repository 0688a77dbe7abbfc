# SPDX-License-Identifier: Apache-2.0
"""Before the first sample the actuator node arms the rig, or gives the test up, and says so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions

from rths_nodes.core.wire.layout import mark_of
from rths_nodes.core.yaml_text import dump
from rths_nodes.loop.supervision.hops import HopsParams
from rths_nodes.loop.supervision.states import State, StopRequest, TestMachine
from rths_nodes.loop.timing import Exchange
from rths_nodes.ros.nodes.after_measurement import AfterMeasurement
from rths_nodes.ros.nodes.arming import FOUND_S, Arming
from rths_nodes.ros.nodes.clock_exchange import ClockQuestions
from rths_nodes.ros.nodes.observers import RigContext
from rths_nodes.ros.nodes.phase import NodeContext, Phase, PhaseMachine
from rths_nodes.ros.transport.wiring import NodeLocation

SECOND = 1_000_000_000


class Bench:
    """A rig at its start position, and what its surroundings say; two peers have 30 s to be ready."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.port = SimpleNamespace(simulated=True)
        self.rig: Any = SimpleNamespace(machine=TestMachine(), sample=0, stop_request=None, port=self.port)
        for state in (State.CONNECTED, State.REFERENCED, State.POSITIONED):
            self.rig.machine.to(state)
        self.phase = PhaseMachine()
        for phase in (Phase.CONFIGURED, Phase.MATCHING, Phase.READY):
            self.phase.to(phase)
        self.shutdown: Any = SimpleNamespace(interrupted=False)
        self.duplicate = False
        self.told: list[tuple[int, str]] = []
        self.statuses: list[dict[str, Any]] = []
        self.guards_closed = False
        parts: Any = self
        settings: Any = SimpleNamespace(
            peers=("actuator", "integrator", "monitor", "console"),
            hash="abc",
            scenario=SimpleNamespace(name="frame", dt=0.001, hops=HopsParams()),
            lockstep=False,
            value=lambda name: {"peer_timeout": 30.0}[name],
        )
        context = RigContext(self.rig, parts, parts, self.shutdown, self.phase, clock)
        announcer = AfterMeasurement(context, parts, {"run_id": "one"})
        self.clocks = ClockQuestions(
            NodeContext(NodeLocation("actuator", "/rths"), self.phase, parts, parts, parts), ()
        )
        self.arming = Arming(context, settings, parts, announcer, self.clocks)
        self.arming.activate()

    def received(self, topic: str) -> list[Any]:
        assert topic == "node_status"
        heard, self.statuses = self.statuses, []
        return heard

    def missing(self) -> str:
        return "/rths/monitor on /rths/trip"

    def duplicated(self) -> bool:
        return self.duplicate

    def close_guards(self) -> None:
        self.guards_closed = True

    def publish(self, topic: str, values: dict[str, Any]) -> None:
        assert (topic, values["run_id"]) == ("test_state", "one")
        self.told.append((values["state"], values["reason"]))

    def work(self, *statuses: dict[str, Any]) -> bool:
        """Whether the rig is armed, once ``statuses`` were heard."""
        self.statuses += statuses
        return self.arming.work()

    def refusal(self, *statuses: dict[str, Any]) -> tuple[str, int]:
        """Why the test is given up, and the exit code."""
        assert not self.work(*statuses)
        assert self.phase.gone
        assert self.told[-1] == (State.IDLE, f"refused: {self.phase.problem}")
        return self.phase.problem, self.phase.exit_code


@pytest.fixture
def bench(still_clock: Any) -> Bench:
    return Bench(still_clock)


def status(node: str, sections: Any = None, **values: Any) -> dict[str, Any]:
    told = {"node": node, "ready": True, "problem": "", "scenario_hash": "abc"}
    return told | {"parameters": dump(sections or {}), "run": mark_of("one")} | values


BOTH = status("integrator"), status("monitor")

# -- who has to be ready ----------------------------------------------------------------------------------


def test_the_rig_is_armed_once_every_peer_and_the_node_itself_are_ready(bench: Bench) -> None:
    assert not bench.work()
    assert not bench.work(status("integrator"))
    assert not bench.work(status("monitor", ready=False))
    bench.phase.now = Phase.MATCHING
    assert not bench.work(status("monitor"))
    assert (bench.told, bench.guards_closed) == ([(State.POSITIONED, "")], False)
    bench.phase.now = Phase.READY
    assert bench.work()
    assert (bench.rig.machine.state, bench.guards_closed) == (State.ARMED, True)
    assert bench.told[-1] == (State.ARMED, "")
    assert (bench.phase.now, bench.arming.farewell) == (Phase.IN_TEST, 0.0)


def test_another_scenario_is_refused_at_once(bench: Bench) -> None:
    words = "monitor has another scenario or run id than actuator: its hash is none instead of abc (frame)"
    assert bench.refusal(status("monitor", ready=False, scenario_hash="")) == (words, 2)
    assert bench.arming.farewell == FOUND_S, "the peers are waited for"


def test_peers_have_their_time_from_the_activation_on(bench: Bench) -> None:
    bench.clock.now += 100 * SECOND
    bench.arming.activate()
    bench.clock.now += 30 * SECOND
    assert not bench.work(status("monitor", ready=False, problem="no disk"))
    assert not bench.phase.gone
    bench.clock.now += 1
    assert bench.refusal() == ("not ready within 30 s: integrator, monitor (no disk)", 1)


def test_where_only_the_node_itself_is_not_ready_it_says_whom_it_waits_for(bench: Bench) -> None:
    bench.phase.now = Phase.MATCHING
    bench.clock.now += 31 * SECOND
    words = "not ready within 30 s: actuator (waits for /rths/monitor on /rths/trip)"
    assert bench.refusal(*BOTH) == (words, 1)


def test_two_nodes_must_not_run_with_different_values(bench: Bench) -> None:
    bench.duplicate = True
    assert not bench.work(status("monitor", {"bridge": 1}), status("integrator", {"bridge": 1}))
    assert not bench.phase.gone
    words = "bridge: integrator and monitor have different values. Set overrides for all nodes"
    assert bench.refusal(status("monitor", {"bridge": 2})) == (words, 2)


def test_a_name_that_is_there_twice_is_waited_for(bench: Bench) -> None:
    """The handshake itself refuses it after a while."""
    bench.duplicate = True
    assert not bench.work(*BOTH)
    bench.duplicate = False
    assert bench.work()


def test_who_does_not_know_the_run_is_not_ready(bench: Bench) -> None:
    assert not bench.work(status("integrator"), status("monitor", run=""))
    assert bench.work(status("monitor"))


def test_a_discovery_server_that_is_set_is_named_where_nobody_comes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROS_DISCOVERY_SERVER", "10.0.0.1:11811")
    bench.clock.now += 31 * SECOND
    told, code = bench.refusal()
    assert "ROS_DISCOVERY_SERVER=10.0.0.1:11811" in told
    assert code == 1


# -- what else is waited for ------------------------------------------------------------------------------


def test_a_rig_that_can_hurt_somebody_waits_until_a_trip_request_finds_it(bench: Bench) -> None:
    """A publisher that the middleware had not matched yet lost its stop in one of 30 tests, up to 2.8 s long."""
    bench.port.simulated = False
    began = bench.clock.now
    for since in (0.0, 2.8, FOUND_S - 0.01):
        bench.clock.now = began + round(since * SECOND)
        assert not bench.work(*BOTH)
    bench.clock.now = began + round(FOUND_S * SECOND)
    assert bench.work()


def test_a_node_that_is_there_twice_waits_for_nobody(bench: Bench) -> None:
    bench.arming.refuse("2 nodes are called /rths/monitor")
    assert (bench.phase.gone, bench.phase.exit_code, bench.arming.farewell) == (True, 2, 0.0)


@pytest.mark.parametrize(
    ("interrupted", "request_", "state", "reason"),
    [
        (True, None, State.HELD, "interrupted"),
        (True, StopRequest("trip requested"), State.HELD, "trip requested"),
        (False, StopRequest("trip requested"), State.TRIPPED, "trip requested"),
        (False, StopRequest("stop service", end=State.HELD), State.HELD, "stop service"),
    ],
)
def test_a_test_that_is_stopped_before_it_begins_ends_at_once(
    bench: Bench, interrupted: bool, request_: Any, state: State, reason: str
) -> None:
    bench.shutdown.interrupted, bench.rig.stop_request = interrupted, request_
    assert not bench.work()
    assert bench.told[-1][0] == state
    assert mentions(bench.told[-1][1], reason)
    assert bench.arming.farewell == FOUND_S


def test_a_machine_that_is_more_than_a_sample_away_is_refused_in_real_time(bench: Bench) -> None:
    bench.clocks.before["compensator"] = [Exchange(5.0, way) for way in (0.0012, 0.0009, 0.0013)]
    words, code = bench.refusal(*BOTH)
    assert bench.rig.machine.state is State.IDLE
    assert code == 2
    assert mentions(words, "1.2 ms", "3", "<= 1 ms")


def test_a_machine_that_tells_no_time_is_refused(bench: Bench) -> None:
    bench.clocks.before["compensator"] = []
    words, code = bench.refusal(*BOTH)
    assert code == 1
    assert mentions(words, "compensator", "clock_answer")
