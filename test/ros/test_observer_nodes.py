# SPDX-License-Identifier: Apache-2.0
"""Tests of the monitor and recorder nodes, with messages delivered by hand, and of their end of a test."""

from __future__ import annotations

import math
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions, naming
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from std_msgs.msg import String

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.core.data import unflatten
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.wire import EMPTY, ENCAPSULATION, decode
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.indices.tracking import CHUNK
from rths_nodes.loop.options import run_options
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.supervision.states import State
from rths_nodes.msg import Measurement
from rths_nodes.recording import bag
from rths_nodes.ros import names
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.hosting.node_processes import describe
from rths_nodes.ros.hosting.processes import Result
from rths_nodes.ros.nodes import monitor
from rths_nodes.ros.nodes import recorder as recorder_node
from rths_nodes.ros.nodes.participation import Shutdown
from rths_nodes.ros.nodes.recorder import LOOK_NS, FurtherTopics, full_names

NAME = "chen_ricles_2010"


def work(node):
    """Process all waiting messages; return whether the node has finished."""
    while node.work():
        pass
    return node.phase.gone


# -- monitor ----------------------------------------------------------------------------------------------


def run_before(node, without=0, at_a_time=1):
    """Deliver a test of the reference loop ``without`` its last Measurements; return its last sample."""
    loop = Loop(Assembly(node.scenario))
    loop.rig.connect()
    loop.rig.machine.to(State.ARMED)
    inboxes, codec = node.topics.inboxes, node.topics.codec
    target = loop.substructure.first()
    loop.commands.target(target)
    inboxes["target"].put(codec.pack_target(target, 0))
    measured = loop.rig.first()

    def put_measured():
        if measured.sample <= node.scenario.samples - without:
            inboxes["measurement"].put(codec.pack_measurement(measured, 0))

    for sample in range(node.scenario.samples):
        put_measured()
        target = loop.substructure.next(measured)
        if target is not None:
            loop.commands.target(target)
            inboxes["target"].put(codec.pack_target(target, 0))
        command = loop.commands.next(measured)
        inboxes["command"].put(codec.pack_command(command, 0))
        measured = loop.rig.tick(command)
        if (sample + 1) % at_a_time == 0:
            while node.work(at_a_time):
                pass
    put_measured()
    return int(measured.sample)


@pytest.mark.parametrize("at_a_time", [1, 32])
def test_monitor_publishes_status_at_fixed_rate(at_a_time, by_hand):
    with by_hand.node("monitor", pace="realtime", overrides=["duration=1"]) as node:
        run_before(node, at_a_time=at_a_time)
        expected = monitor.RATE * node.scenario.samples * node.scenario.dt
        assert expected - 1 <= node.topics.outlets["sync_status"].sent <= expected + 2


def test_monitor_computes_delay_only_while_no_measurement_waits(by_hand):
    """In real time; the indices equal those of the embedded loop bit for bit."""
    with by_hand.node("monitor", pace="realtime", overrides=["duration=4.5"]) as node:
        last = run_before(node, at_a_time=10**9)
        while node.stage.sample < last:
            assert node.spares == (node.stage.sample >= CHUNK - 1)
            assert node.work(1)
        parts = 0
        while node.spares:
            assert node.work(1)
            parts += 1
        assert parts > 1
        assert node.stage.metrics() == Loop(Assembly(node.scenario)).run().metrics


@pytest.mark.parametrize("missing", [0, 1, 40])
def test_monitor_waits_for_missing_samples_and_reports_them(missing, by_hand, clock, monkeypatch):
    monkeypatch.setattr(Shutdown, "abandoned", False)  # as if there were an actuator node
    with by_hand.node("monitor", clock=clock, pace="realtime", overrides=["duration=1"]) as node:
        by_hand.put_state(node, State.FINISHED, run_before(node, without=missing))
        work(node)
        clock.now += monitor.QUIET_NS // 2
        node.work()
        assert bool(node.shutdown.summary) == (not missing)
        clock.now += monitor.QUIET_NS
        node.work()
        assert node.shutdown.summary.get("unseen.samples", 0) == missing
        result = Result(State.FINISHED, numbers=node.shutdown.summary)
        result.judge([0])
        samples = f"{missing} sample{'s'[: missing > 1]}"
        note = f"the indices exclude the last {samples}, which the monitor has not received"
        assert (note in result.notes) == bool(missing)


@pytest.mark.parametrize("state", [State.RUNNING, State.STOPPING])
def test_monitor_trips_once_if_test_continues_after_interrupt(state, by_hand, clock):
    """Our actuator node receives the interrupt, too; a foreign driver receives a Trip."""
    with by_hand.node("monitor", clock=clock, overrides=["duration=1"]) as node:
        by_hand.put_state(node, State.RUNNING, 0)
        clock.now += monitor.UNHEARD_NS
        node.look()
        node.work()
        node.shutdown.interrupt()
        by_hand.put_state(node, state, 1)
        for elapsed, trips in ((monitor.UNHEARD_NS // 2, 0), (monitor.UNHEARD_NS, 1), (monitor.UNHEARD_NS, 1)):
            clock.now += elapsed
            node.shutdown.be_patient()  # Measurements still arrive
            node.look()
            node.work()
            assert node.topics.outlets["trip"].sent == (trips if state is State.RUNNING else 0)


# -- recorder ---------------------------------------------------------------------------------------------

ENDS = (State.FINISHED, State.TRIPPED, State.HELD)
SENT = {  # three driven samples and one of a safe stop: first number, count
    "measurement": (0, 5),
    "true_state": (0, 5),
    "target": (0, 2),
    "command": (1, 3),
    "compensator_state": (0, 4),
}
FOUR_SAMPLES = ["duration=0.001", "substeps=4"]
STREAMS = {
    "integrator": ("target",),
    "compensator": ("command", "compensator_state"),
    "actuator": ("measurement", "true_state"),
    "monitor": (),
}
"""Streams that each node publishes."""


@pytest.fixture
def recorder(by_hand):
    with by_hand.node("recorder", overrides=FOUR_SAMPLES) as node:
        yield node


@pytest.fixture
def deliver_test(by_hand, recorder):
    """Delivers a test without the last message of each ``late`` stream and the summaries of ``silent`` nodes."""

    def deliver(end=State.FINISHED, late=(), silent=()):
        for topic, (first, count) in SENT.items():
            send(recorder, topic, *range(first, first + count - (topic in late)))
        by_hand.put_state(recorder, end, 4)
        for node in STREAMS:
            if node not in silent:
                summarize(by_hand, recorder, node)

    return deliver


def send(recorder, topic, *numbers):
    for number in numbers:
        header = ENCAPSULATION + struct.pack("<3I4x", 1, 0, EMPTY) + recorder.topics.run.field
        recorder.topics.inboxes[topic].put(header + struct.pack("<I", number))


def summarize(by_hand, recorder, node):
    by_hand.put_summary(recorder, node, **{topic: SENT[topic][1] for topic in STREAMS[node]})


def closed(recorder):
    recorder.close()
    return recorder.writer.information


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.name.lower())
@pytest.mark.parametrize("late", SENT)
def test_recorder_waits_for_last_message_of_each_stream(deliver_test, recorder, end, late):
    deliver_test(end, late=(late,))
    assert not work(recorder)
    send(recorder, late, sum(SENT[late]) - 1)
    assert work(recorder)
    information = closed(recorder)
    assert (information["outcome"], information["gaps"], information["samples"]) == (end.name.lower(), "0", "5")
    assert recorder.phase.note == ""


def test_recorder_flushes_at_end_of_test(by_hand, recorder, tmp_path, monkeypatch):
    """The middleware may hang for ever while other nodes leave."""
    monkeypatch.setattr(bag, "FLUSH_INTERVAL", 1e9)
    rows = [(name, names.TOPICS[topic]) for topic, name in recorder._full.items()]
    recorder.writer = hosts.open_writer(str(tmp_path / "run"), rows, recorder.information)

    def written():
        counts = bag.read(tmp_path / "run").counts
        return {topic: counts[recorder._full[topic]] for topic in ("measurement", "target")}

    send(recorder, "measurement", 0, 1)
    work(recorder)
    assert written() == {"measurement": 0, "target": 0}, "not due"
    by_hand.put(recorder, "test_state", state=int(State.FINISHED), sample=4)
    recorder.look()
    assert written() == {"measurement": 2, "target": 0}, "once the end is received"
    send(recorder, "measurement", 2)
    send(recorder, "target", 0)
    assert not work(recorder)
    assert written() == {"measurement": 3, "target": 1}


@pytest.mark.parametrize("silent", STREAMS)
def test_recorder_waits_for_summary_of_each_node(deliver_test, by_hand, recorder, silent):
    deliver_test(silent=(silent,))
    assert not work(recorder)
    summarize(by_hand, recorder, silent)
    assert work(recorder)


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.name.lower())
def test_recorder_counts_missing_ends_as_gaps(deliver_test, recorder, end, monkeypatch):
    monkeypatch.setattr(recorder_node, "SUMMARIES_NS", -1)
    deliver_test(end, late=("target", "command"))
    assert work(recorder)
    assert closed(recorder)["gaps"] == "2"
    assert mentions(recorder.phase.note, "complete", "gaps", "1")
    result = Result()
    result.numbers |= recorder.shutdown.summary
    result.judge([0])
    assert result.notes == [recorder.phase.note]


def test_recorder_names_node_without_summary(deliver_test, recorder, monkeypatch):
    monkeypatch.setattr(recorder_node, "SUMMARIES_NS", -1)
    deliver_test(State.TRIPPED, silent=("integrator",))
    assert work(recorder)
    assert mentions(recorder.phase.note, "complete", "integrator")
    information = closed(recorder)
    assert (information["gaps"], information["silent"]) == ("0", "integrator")


def test_hole_and_missing_end_are_two_gaps(by_hand, recorder, monkeypatch):
    monkeypatch.setattr(recorder_node, "SUMMARIES_NS", -1)
    send(recorder, "measurement", 0, 2, 3)
    by_hand.put_state(recorder, State.FINISHED, 4)
    by_hand.put_summary(recorder, "actuator", measurement=5, true_state=0)
    assert work(recorder)
    assert recorder.gaps["measurement"] == 2


def test_last_sample_replaces_missing_count_of_actuator(deliver_test, by_hand, recorder):
    deliver_test(late=("measurement",), silent=("actuator",))
    by_hand.put_summary(recorder, "actuator")
    assert not work(recorder)
    assert recorder.gaps["measurement"] == 1
    send(recorder, "measurement", 4)
    assert work(recorder)
    assert closed(recorder)["gaps"] == "0"


def test_second_summary_replaces_first(deliver_test, by_hand, recorder):
    deliver_test(State.TRIPPED)
    by_hand.put_summary(recorder, "compensator", command=4, compensator_state=4)
    assert not work(recorder)
    send(recorder, "command", 4)
    assert work(recorder)


@pytest.mark.parametrize("count", [math.nan, math.inf, {"x": 3.0}])
def test_impossible_count_of_a_driver_is_ignored(deliver_test, by_hand, recorder, count):
    by_hand.put_summary(recorder, "actuator", measurement=count)
    recorder._record_rare()
    deliver_test(State.TRIPPED)
    assert work(recorder)
    assert closed(recorder)["gaps"] == "0"


def test_recorder_needs_only_summary_if_test_never_began(by_hand, recorder):
    by_hand.put_state(recorder, State.HELD, 0)
    assert not work(recorder)
    by_hand.put_summary(recorder, "actuator", measurement=0, true_state=0)
    assert work(recorder)
    assert closed(recorder)["gaps"] == "0"


def test_interrupt_after_end_stops_waiting(deliver_test, recorder, monkeypatch):
    monkeypatch.setattr(recorder_node, "EXIT_NOW_NS", -1)
    deliver_test(late=("true_state",))
    assert not work(recorder)
    recorder.shutdown.interrupt()
    assert work(recorder)
    assert closed(recorder)["gaps"] == "1"


def test_two_signals_of_ctrl_c_are_one_request(deliver_test, recorder):
    recorder.shutdown.interrupt()
    deliver_test(State.HELD, late=("true_state",), silent=STREAMS)
    recorder.shutdown.interrupt()
    assert not recorder.shutdown.exit_now
    assert not work(recorder)


def test_recording_stores_scenario_of_nodes(by_hand, recorder):
    for node, sections, scenario_hash in (
        ("compensator", "compensator: {type: none}", recorder.settings.hash),
        ("monitor", "monitor: {type: nonsense", recorder.settings.hash),
        ("actuator", "{duration.x: 3, rig.name: a, ramp.a.b: 1}", recorder.settings.hash),  # of another version
        ("integrator", "integrator: {type: central_difference}", "of another run"),
    ):
        by_hand.put(recorder, "node_status", node=node, scenario_hash=scenario_hash, parameters=sections)
    work(recorder)
    recorder._record_rare()
    data = yaml.safe_load(closed(recorder)["scenario"])
    assert data == files.load(NAME, [*FOUR_SAMPLES, "compensator.type=none"]).data()


@pytest.mark.parametrize(
    ("case", "parameters", "changes"),
    [
        ("alpha_29_k_p_0", {}, []),
        ("", {"compensator.type": "none"}, ["compensator.type=none"]),  # has no state
    ],
    ids=["case", "parameter"],
)
def test_composed_recording_equals_embedded_run(case, parameters, changes, tmp_path):
    options = {"scenario": NAME, "overrides": ["duration=1"], "case": case, "record": tmp_path / "run"}
    descriptions = describe(run_options(options))
    for description in descriptions:
        if description.role == "compensator":
            description.parameters.update(parameters)
    assert composed.run(descriptions, hosts.open_writer).exit_code == 0
    run, reference = rths_nodes.read(tmp_path / "run"), files.load(NAME, ["duration=1", *changes], case)
    assert run.scenario.data() == reference.data()
    assert (run.compensator_names == ()) == bool(parameters)
    assert (run.displacement == hosts.run(reference).read().displacement).all()


@pytest.mark.parametrize("host", ["composed", pytest.param("processes", marks=pytest.mark.soak)])
@pytest.mark.parametrize("end", ["finished", "tripped", "held"])
def test_recording_has_all_sent_messages(host, end, tmp_path):
    progress = []
    report = hosts.run(
        NAME,
        [
            "duration=10" if end == "held" else "duration=3",
            *(["axes.story_1.limits.force=1.0e5"] if end == "tripped" else []),
        ],
        host=host,
        record=tmp_path / "run",
        progress=lambda sample, samples: progress.append(sample),
        interrupted=lambda: end == "held" and bool(progress) and progress[-1] > 200,
    )
    assert (report.outcome, report.notes) == (end, [])
    recording = bag.read(tmp_path / "run")
    assert (recording.information["gaps"], recording.information["silent"]) == ("0", "")
    sent = {}
    for topic, data, _ in recording.messages():
        if topic == "/rths/summary":
            summary = decode("Summary", data)
            sent |= unflatten(dict(zip(summary["names"], summary["values"], strict=True)), "sent")
    assert sent == {topic: recording.counts[f"/rths/{topic}"] for topic in SENT}
    reference = rths_nodes.run(NAME, ["duration=10"]).displacement
    run = rths_nodes.read(tmp_path / "run")
    driven = int((run.flags & 8 == 0).sum())
    assert (run.displacement[:driven] == reference[:driven]).all()


# Recording of further topics, of programs that do not take part in the test

OVERRIDES = ["duration=4"]
ROBOT = "/robot/measurement"  # ends like a stream of the test


@pytest.fixture
def robot() -> Iterator[Node]:
    with composed.ros_context() as context:
        node = Node("robot", namespace="robot", context=context)
        yield node
        node.destroy_node()


def test_topic_of_another_program_is_recorded(robot: Node, tmp_path: Path, different: Any) -> None:
    publisher = robot.create_publisher(String, ROBOT, 10)
    values = {"scenario": NAME, "overrides": OVERRIDES, "recorder:record": tmp_path / "run"}
    values["recorder:record_topics"] = f"[{ROBOT}, not_there]"
    arguments = [part for name, value in values.items() for part in ("-p", f"{name}:={value}")]
    command = [sys.executable, "-m", "rths_nodes.app.node", "rig", "--ros-args", "-r", "__ns:=/rths", *arguments]
    rig = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    sent = 0
    while rig.poll() is None:
        publisher.publish(String(data=f"pose {sent}"))
        sent += 1
        with suppress(subprocess.TimeoutExpired):
            rig.wait(0.02)
    assert rig.returncode == 0
    recording = bag.read(tmp_path / "run")
    assert recording.information["gaps"] == "0"
    assert all(recording.counts[topic] > 0 for topic in (*names.ALSO_RECORDED, ROBOT))
    assert recording.topics[ROBOT].type == "std_msgs/msg/String"
    assert "/rths/not_there" not in recording.topics
    poses = [deserialize_message(data, String).data for topic, data, _ in recording.messages() if topic == ROBOT]
    first = int(poses[0].partition(" ")[2])
    assert poses == [f"pose {first + number}" for number in range(len(poses))]
    assert different(rths_nodes.read(tmp_path / "run"), rths_nodes.run(NAME, OVERRIDES)) == []


class Bench:
    """Further topics of a recorder node, its writer and warnings."""

    def __init__(self, node: Node, clock: Any, *topics: str) -> None:
        self.added: dict[str, tuple[Any, ...]] = {}
        self.written: list[tuple[str, bytes, int]] = []
        self.warnings: list[str] = []
        self._clock = clock
        writer: Any = SimpleNamespace(add=self._add, write=lambda *message: self.written.append(message))
        self.topics = FurtherTopics(node, topics, writer, self.warnings.append, clock)

    def _add(self, topic: str, *announced: Any) -> None:
        if topic == "/refused":
            raise ConfigError("definition not installed")
        self.added[topic] = announced

    def look_until(self, condition: Any) -> None:
        for _ in range(1000):
            self._clock.now += LOOK_NS
            self.topics.look()
            self.topics.record()
            if condition():
                return
            time.sleep(0.005)
        pytest.fail(f"{self.added}, {self.warnings}")


def test_subscription_has_the_qos_of_its_publishers(robot: Node, still_clock: Any) -> None:
    lossy = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
    latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    bench = Bench(robot, still_clock, "/lossy", "/latched")
    robot.create_publisher(String, "/lossy", lossy)
    robot.create_publisher(String, "/latched", latched).publish(String(data="before"))
    bench.look_until(lambda: bench.written)
    string = "std_msgs/msg/String"
    assert bench.added == {"/lossy": (string, False, False), "/latched": (string, True, True)}
    ((topic, data, stamp),) = bench.written
    assert (topic, deserialize_message(data, String).data) == ("/latched", "before")
    assert stamp > 0
    assert not bench.warnings
    bench.topics.close()


def test_later_publisher_that_does_not_match_is_reported_once(robot: Node, still_clock: Any) -> None:
    bench = Bench(robot, still_clock, "/camera")
    robot.create_publisher(String, "/camera", 10)
    bench.look_until(lambda: bench.added)
    robot.create_publisher(String, "/camera", QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT))
    bench.look_until(lambda: bench.warnings)
    still_clock.now += LOOK_NS
    bench.topics.look()
    (warning,) = bench.warnings
    assert mentions(warning, "/camera", "1 publishers", "QoS")


@pytest.mark.parametrize(
    ("topic", "kind", "reason"),
    [("/refused", String, "definition not installed"), ("/other_rig/measurement", Measurement, "another rig")],
)
def test_topic_that_cannot_be_recorded_is_reported_once(
    topic: str, kind: type, reason: str, robot: Node, still_clock: Any
) -> None:
    bench = Bench(robot, still_clock, topic)
    robot.create_publisher(kind, topic, 10)
    bench.look_until(lambda: bench.warnings)
    for _ in range(3):
        still_clock.now += LOOK_NS
        bench.topics.look()
    (warning,) = bench.warnings
    assert mentions(warning, topic, reason)
    assert not bench.added


@pytest.mark.parametrize("topic", ["two words", "/rths/measurement", "test_state"])
def test_invalid_names_and_topics_of_the_test_are_refused(topic: str) -> None:
    with composed.ros_context() as context:
        node = Node("recorder", namespace="rths", context=context)
        try:
            with pytest.raises(ConfigError, match=naming("record_topics", topic)):
                full_names(node, [topic])
            assert full_names(node, ["pose", "/pose", "pose"]) == [*names.ALSO_RECORDED, "/rths/pose", "/pose"]
        finally:
            node.destroy_node()
