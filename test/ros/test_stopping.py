# SPDX-License-Identifier: Apache-2.0
"""Tests of stops of a test from outside, and of the heartbeats that the rig needs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

import rclpy
from messages import mentions
from rcl_interfaces.msg import Parameter, ParameterValue
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import Empty
from std_srvs.srv import Trigger
from stranger import stranger

from rths_nodes.app import hosts
from rths_nodes.core import wire
from rths_nodes.core.wire import RunMark, encode, mark_of
from rths_nodes.loop.supervision.states import State
from rths_nodes.msg import Trip
from rths_nodes.ros import names
from rths_nodes.ros.hosting import composed, node_processes
from rths_nodes.ros.names import NodeLocation
from rths_nodes.ros.nodes.base import LOOK_NS
from rths_nodes.ros.nodes.course import StopRequests
from rths_nodes.ros.nodes.participation import PROGRESS_SAMPLES, NodeContext, PhaseMachine, ProgressReports
from rths_nodes.ros.transport import endpoints
from rths_nodes.ros.transport.endpoints import ByHand, open_inbox
from rths_nodes.ros.transport.service_thread import LoopCalls

SECOND = 1_000_000_000


@pytest.fixture
def operator() -> Iterator[Node]:
    context = Context()
    rclpy.init(context=context)
    node = Node("operator", context=context)
    yield node
    node.destroy_node()
    rclpy.shutdown(context=context)


def call(node: Node, name: str, kind: Any = Trigger, seconds: float = 30.0, **request: Any) -> Any:
    """Return the response of a service; None if the middleware lost it, as it may after a recent discovery."""
    client = node.create_client(kind, name)
    assert client.wait_for_service(timeout_sec=30.0)
    executor = SingleThreadedExecutor(context=node.context)
    executor.add_node(node)
    future = client.call_async(kind.Request(**request))
    executor.spin_until_future_complete(future, timeout_sec=seconds)
    executor.shutdown()
    return future.result()


def ask(node: Node, name: str, kind: Any, **request: Any) -> Any:
    """Call a service until there is a response."""
    responses = (call(node, name, kind, seconds=2.0, **request) for _ in range(10))
    return next(response for response in responses if response is not None)


def press(node: Node) -> None:
    publish(node, Empty(), "/rths/emergency_stop")


def publish(node: Node, message: Any, name: str, **qos: Any) -> None:
    publisher = node.create_publisher(type(message), name, QoSProfile(depth=1, **qos))
    while not publisher.get_subscription_count():
        time.sleep(0.01)
    publisher.publish(message)


def run_while(action: Callable[[], Any], host: str, *overrides: str, **options: Any) -> tuple[Any, Any]:
    """Run a test during ``action``; return the results of both."""
    options = {"host": host, "pace": "realtime"} | options
    reports: list[hosts.RunResult] = []
    run = threading.Thread(target=lambda: reports.append(hosts.run("chen_ricles_2010", overrides, **options)))
    run.start()
    try:
        result = action()
    finally:
        run.join(timeout=60.0)
        print(f"{reports[0].outcome}: {reports[0].reason}" if reports else "still running")  # if the action fails
    return reports[0], result


@pytest.mark.parametrize("name", ["trip", "emergency_stop"])
def test_trip_service_trips_at_once(operator: Node, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    report, response = run_while(lambda: call(operator, f"/rths/actuator/{name}"), "composed")
    assert response is None or response.success
    if report.samples:  # the call may precede the test
        assert (report.outcome, report.exit_code) == ("tripped", 3)
    assert mentions(report.reason, "trip service")
    assert mentions(capfd.readouterr().err, "service", "emergency_stop", "trip") == (name != "trip")


def test_stop_service_works_without_slack(operator: Node, patience: list[str]) -> None:
    """At 4096 Hz other services are rarely served."""
    rate = ("servo_rate=4096", "substeps=40")
    report, _ = run_while(lambda: call(operator, "/rths/actuator/stop"), "composed", *rate, *patience)
    assert (report.outcome, "stop service" in report.reason) == ("held", True)


REQUEST = Trip(source="a camera", reason="a person in the area \x1b[31m")


@pytest.mark.parametrize("durability", [DurabilityPolicy.VOLATILE, DurabilityPolicy.TRANSIENT_LOCAL])
def test_trip_request_of_any_program_is_received(
    operator: Node, patience: list[str], tmp_path: Path, durability: DurabilityPolicy
) -> None:
    request = partial(publish, operator, REQUEST, "/rths/trip", durability=durability)
    report, _ = run_while(request, "composed", *patience, record=tmp_path / "run")
    assert (report.outcome, report.exit_code) == ("tripped", 3), report.reason
    assert mentions(report.reason, "a camera", "?[31m")
    assert not any("foreign" in note for note in report.notes), "it was accepted"


def test_latched_trip_request_from_before_test_is_received(operator: Node, patience: list[str]) -> None:
    qos = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    operator.create_publisher(Trip, "/rths/trip", qos).publish(REQUEST)
    report, _ = run_while(lambda: None, "composed", *patience)
    assert (report.outcome, report.exit_code) == ("tripped", 3), report.reason
    assert mentions(report.reason, "a camera", "?[31m")


@pytest.mark.parametrize("durability", ["VOLATILE", "TRANSIENT_LOCAL"])
def test_no_trip_request_of_other_process_is_lost(durability: str) -> None:
    """Each publisher is new. A latched one does not wait until a subscription has discovered it."""
    publishers = 100
    with composed.ros_context() as context:
        node, group, reasons = Node("actuator", namespace="rths", context=context), ByHand(), set[str]()
        former = open_inbox(node, names.TOPICS[names.FORMER_TRIP], group, RunMark())
        requests = StopRequests(node, group, former, (reasons.add, reasons.add), LoopCalls(), reasons.add)
        try:
            with stranger("trip", durability, str(publishers)):
                end = time.monotonic() + 60.0
                while len(reasons) < publishers and time.monotonic() < end:
                    requests.receive()
                    time.sleep(0.001)
        finally:
            requests.close()
            node.destroy_node()
    assert {reason.rpartition(" ")[2] for reason in reasons} == set(map(str, range(publishers)))


def test_trip_request_on_former_topic_is_received_and_reported(
    operator: Node, patience: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    report, _ = run_while(lambda: press(operator), "processes", *patience)
    assert (report.outcome, report.exit_code) == ("tripped", 3), report.reason
    assert mentions(report.reason, "trip requested")
    assert mentions(capfd.readouterr().err, "topic", "emergency_stop", "trip")


@pytest.mark.parametrize(
    ("run", "source", "reason"),
    [
        ("", "camera", ("camera", "why")),
        ("", "", ("requested", "why")),
        ("", names.MONITOR, None),
        ("", names.axis_node("story_1"), None),
        ("rths_0123456789abcdef01", "a camera", None),
    ],
)
def test_trip_of_run_or_in_name_of_node_is_no_request(
    run: str, source: str, reason: tuple[str, ...] | None
) -> None:
    values = {"run": run, "source": source, "reason": "why"}
    request = endpoints.request_in(encode("Trip", values))
    assert request is None if reason is None else mentions(request, *reason)
    assert endpoints.request_in(encode("Trip", values)[:-8]) is None
    assert endpoints.request_in(encode("Trip", values | {"frame_id": "world"})) == request


@pytest.mark.parametrize("source", ["", "camera", "robots_of_the_laboratory"])
def test_trip_request_of_earlier_version_is_accepted(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "definition", lambda message: endpoints.VERSION_2)
    request = encode("Trip", {"source": source, "reason": "why"})
    of_peer = encode("Trip", {"frame_id": mark_of("one"), "source": source, "reason": "why"})
    monkeypatch.undo()
    assert mentions(str(endpoints.request_in(request)), *filter(None, (source, "why")))
    assert endpoints.request_in(of_peer) is None


@pytest.mark.parametrize(
    ("host", "lost"), [("processes", "integrator"), pytest.param("composed", "recorder", marks=pytest.mark.soak)]
)
def test_trip_request_is_received_before_discovery_is_complete(
    operator: Node, monkeypatch: pytest.MonkeyPatch, host: str, lost: str, tmp_path: Path
) -> None:
    """A node that has not discovered the actuator node cannot receive that the test has ended."""
    start = node_processes._started

    def started(peer: str, command: Any, environment: Any) -> Any:
        return start(peer, command, environment | ({"ROS_DOMAIN_ID": "0"} if peer == lost else {}))

    monkeypatch.setattr(node_processes, "_started", started)
    separate = {"separate": [lost]} if host == "composed" else {}
    report, _ = run_while(lambda: press(operator), host, record=tmp_path / "run", **separate)
    assert (report.outcome, report.exit_code, report.samples) == ("tripped", 3, 0), report.reason
    assert mentions(report.reason, "trip requested")


def test_parameters_can_be_read_during_test(operator: Node, patience: list[str]) -> None:
    sets = ("duration=4", "servo_rate=4096", "substeps=40", *patience)
    request = partial(ask, operator, "/rths/monitor/get_parameters", GetParameters, names=["pace"])
    report, response = run_while(request, "composed", *sets)
    assert report.outcome == "finished", report.reason
    assert response.values[0].string_value == "realtime"


def test_invalid_parameter_request_does_not_stop_test(operator: Node, patience: list[str]) -> None:
    invalid = Parameter(name="pace", value=ParameterValue(type=99))
    request = partial(ask, operator, "/rths/actuator/set_parameters", SetParameters, parameters=[invalid])
    report, response = run_while(request, "composed", "duration=4", *patience)
    assert report.outcome == "finished", report.reason
    assert not any(result.successful for result in response.results)


# -- one actuator node ------------------------------------------------------------------------------------


def run_rig(node: Any) -> None:
    node.rig.machine.to(State.ARMED)
    node.work()


def beat(by_hand: Any, clock: Any, node: Any, *peers: str) -> Any:
    """Deliver heartbeats of ``peers``; 10 ms later read the slack, by which the executor makes the node check."""
    for peer in peers:
        by_hand.put(node, "progress", node=peer, sample=5)
    clock.now += 10_000_000
    return node.slack


@pytest.mark.parametrize(
    ("peer", "overrides", "reason"),
    [
        ("monitor", [], ("heartbeat.monitor", "0.2 s", "<= 0.2 s")),
        ("recorder", [], ("heartbeat.recorder", "1.5 s", "<= 1.5 s")),
        ("recorder", ["heartbeat.recorder_lost=warn"], ()),
        ("monitor", ["heartbeat.recorder_lost=warn"], ("heartbeat.monitor", "silent")),
    ],
)
def test_silent_observer_stops_rig(
    by_hand: Any, clock: Any, peer: str, overrides: list[str], reason: tuple[str, ...]
) -> None:
    peers = ["actuator", "monitor", "recorder"]
    with by_hand.node("actuator", clock=clock, pace="realtime", peers=peers, overrides=overrides) as node:
        run_rig(node)
        for _ in range(200):
            beat(by_hand, clock, node, *(other for other in ("monitor", "recorder") if other != peer))
        request = node.rig.stop_request
        assert mentions(request.reason if request else "", *reason)
        assert bool(request) == bool(reason)
        assert ("heartbeat.recorder" in node.phase.note) == (not reason)


def test_monitor_that_sees_no_samples_stops_rig(by_hand: Any, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with by_hand.node("actuator", clock=clock, pace="realtime", peers=["actuator", "monitor"]) as node:
        run_rig(node)
        trips = []
        for sample in range(0, 1000, 10):
            monkeypatch.setattr(node.rig, "sample", sample)
            beat(by_hand, clock, node, "monitor")
            trips.append(bool(node.rig.stop_request))
        assert mentions(node.rig.stop_request.reason, "heartbeat.monitor", "0.21 s", "<= 0.2 s")
        allowed = node.scenario.heartbeat.monitor + node.scenario.bridge.max_bridge + node.scenario.step
        assert trips.index(True) * 0.01 == pytest.approx(allowed, abs=0.03)


def test_silent_observers_do_not_trip_in_lockstep(by_hand: Any, clock: Any) -> None:
    with by_hand.node("actuator", clock=clock, peers=["actuator", "monitor", "recorder"]) as node:
        run_rig(node)
        clock.now += 4 * SECOND  # the timeout for the Command itself is a little longer
        node.work()
        assert not node.rig.stop_request


@pytest.mark.parametrize("role", ["monitor", "recorder"])
def test_observers_send_heartbeats_in_real_time(by_hand: Any, clock: Any, role: str) -> None:
    with by_hand.node(role, clock=clock, pace="realtime") as node:
        sent = node.interposer.sent["progress"]
        for _ in range(3):
            node.work()
        assert len(sent) == 1
        clock.now += round(node.scenario.heartbeat.period * SECOND)
        node.work()
        assert len(sent) == 2


def test_observers_report_progress_in_lockstep() -> None:
    published: list[dict[str, Any]] = []
    topics: Any = SimpleNamespace(publish=lambda topic, values: published.append(values))
    context = NodeContext(NodeLocation("monitor", "/rths"), PhaseMachine(), topics, topics, topics)
    reports = ProgressReports(context, lockstep=True, period=0.1)
    for sample in range(200):
        reports.publish_if_due(sample)
    assert published == [{"node": "monitor", "sample": PROGRESS_SAMPLES * n - 1} for n in (1, 2, 3)]


def test_cleaned_up_node_can_be_configured_again(by_hand: Any, clock: Any) -> None:
    with by_hand.node("actuator", clock=clock) as node:
        node.trigger_deactivate()
        node.trigger_cleanup()
        clock.now += LOOK_NS
        assert not node.look()
        node.trigger_configure()
        node.trigger_activate()
        clock.now += LOOK_NS
        assert node.look()
        assert (node.phase.gone, node.phase.problem) == (False, "")
