"""When the test may begin, and what is refused before anything moves."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from rths_nodes.core.wire.run_mark import frame_of
from rths_nodes.ros.nodes.phase import Phase
from rths_nodes.ros.nodes.start_of_test import StartGate, StartRefused

SECOND = 1_000_000_000


class Own:
    """The node itself, its topics and its handshake, as the test wants them."""

    now, duplicate = Phase.READY, False

    def missing(self) -> str:
        return "/rths/monitor on /rths/trip"

    def duplicated(self) -> bool:
        return self.duplicate


@pytest.fixture
def own() -> Any:
    return Own()


@pytest.fixture
def gate(own: Any, still_clock: Any) -> StartGate:
    """For two peers, which have 30 s; sections are told as they are."""
    peers = ["integrator", "monitor"]
    sections = lambda told: told["parameters"]  # noqa: E731
    gate = StartGate("actuator", peers, "abc", "frame", 30.0, own, own, own, sections, still_clock)
    gate.activate()
    return gate


def status(node: str, **values: Any) -> dict[str, Any]:
    told = {"node": node, "ready": True, "problem": "", "scenario_hash": "abc", "parameters": {}}
    return told | {"frame_id": frame_of("one")} | values


def refusal(gate: StartGate) -> tuple[str, int]:
    with pytest.raises(StartRefused) as caught:
        gate.may_begin()
    return str(caught.value), caught.value.exit_code


def test_it_opens_when_every_peer_and_the_node_itself_are_ready(gate: StartGate, own: Any) -> None:
    gate.hear([status("integrator")])
    assert not gate.may_begin()
    gate.hear([status("monitor", ready=False)])
    assert not gate.may_begin()
    own.now = Phase.MATCHING
    gate.hear([status("monitor")])
    assert not gate.may_begin()
    own.now = Phase.READY
    assert gate.may_begin()


def test_another_scenario_is_refused_at_once(gate: StartGate) -> None:
    gate.hear([status("monitor", ready=False, scenario_hash="")])
    words = "monitor runs another scenario, or another run, than actuator: hash none, here abc (frame)"
    assert refusal(gate) == (words, 2)


def test_peers_have_their_time_from_the_activation_on(gate: StartGate, still_clock: Any) -> None:
    still_clock.now += 100 * SECOND
    gate.activate()
    gate.hear([status("monitor", ready=False, problem="no disk")])
    still_clock.now += 30 * SECOND
    assert not gate.may_begin()
    still_clock.now += 1
    assert refusal(gate) == ("not ready within 30 s: integrator, monitor (no disk)", 1)


def test_where_only_the_node_itself_is_not_ready_it_says_whom_it_waits_for(
    gate: StartGate, own: Any, still_clock: Any
) -> None:
    gate.hear([status("integrator"), status("monitor")])
    own.now = Phase.MATCHING
    still_clock.now += 31 * SECOND
    words = "not ready within 30 s: actuator (waits for /rths/monitor on /rths/trip)"
    assert refusal(gate) == (words, 1)


def test_two_nodes_must_not_run_with_different_values(gate: StartGate) -> None:
    gate.hear([status("monitor", parameters={"bridge": 1}), status("integrator", parameters={"bridge": 1})])
    assert gate.may_begin()
    gate.hear([status("monitor", parameters={"bridge": 2})])
    words = "bridge: integrator and monitor run with different values; use overrides, for all nodes"
    assert refusal(gate) == (words, 2)


def test_a_name_that_is_there_twice_is_waited_for(gate: StartGate, own: Any) -> None:
    """The handshake itself refuses it after a while."""
    gate.hear([status("integrator"), status("monitor")])
    own.duplicate = True
    assert not gate.may_begin()
    own.duplicate = False
    assert gate.may_begin()


def test_who_does_not_know_the_run_is_not_ready(gate: StartGate) -> None:
    gate.hear([status("integrator"), status("monitor", frame_id="")])
    assert not gate.may_begin()
    gate.hear([status("monitor")])
    assert gate.may_begin()


def test_a_discovery_server_that_is_set_is_named_where_nobody_comes(
    gate: StartGate, still_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROS_DISCOVERY_SERVER", "10.0.0.1:11811")
    still_clock.now += 31 * SECOND
    told, code = refusal(gate)
    assert "ROS_DISCOVERY_SERVER=10.0.0.1:11811" in told
    assert code == 1
