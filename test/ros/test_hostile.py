# SPDX-License-Identifier: Apache-2.0
"""Foreign publishers, second rigs and invalid messages: none moves the rig or ends a node."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions
from rclpy.node import Node
from std_msgs.msg import Empty

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_TRIPPED, Command, Measurement, Target
from rths_nodes.core.wire import ENCAPSULATION, HEAD, RunMark, encode, mark_of, number_of
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.supervision.states import State, StopRequest
from rths_nodes.recording import bag
from rths_nodes.ros import names
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.nodes.participation import COMPLAINT_NS, LIVE_NS, Phase
from rths_nodes.ros.transport import endpoints
from rths_nodes.ros.transport.endpoints import message_class, quality
from rths_nodes.ros.transport.topics import Interposer

NAME = "chen_ricles_2010"
SHORT = "duration=1.5"
PUBLISHED = [
    topic
    for topic in names.TOPICS.values()
    if topic.type.startswith("rths_nodes/") and not (topic.apart or topic.section)
]


def samples(codec, topic: str, sample: int, value: float, flags: int = 0) -> bytes:
    """Return a valid message of a stream."""
    row = np.full(1, value)
    if topic == "target":
        return codec.pack_target(Target(sample, *[row] * 6, flags=flags), 0)
    if topic == "command":
        return codec.pack_command(Command(sample, row, row, flags=flags), 0)
    if topic == "compensator_state":
        return codec.pack_state([value] * codec.sizes[2], sample, flags, 0)
    return codec.pack_measurement(Measurement(sample, row, row, row, flags=flags), 0)


LIES = {
    "sync_status": [{"sample": 4_000_000_000}],
    "test_state": [{"state": state, "sample": 5, "reason": "a lie"} for state in range(256)],
    "node_status": [{"node": node, "problem": "a lie", "scenario_hash": "0"} for node in names.NODES],
    "trip": [{"source": node, "reason": "a lie"} for node in (*names.NODES, "runner")],
    "summary": [{"node": node, "names": ["metrics.lie"], "values": [1.0]} for node in names.NODES],
    "live": [{"first": 4_000_000_000, "column": 10, "values": [1.0] * 24}],
    "live_curves": [{"names": ["lie/target"], "units": ["m"]}],
    "progress": [{"node": node, "sample": 4_000_000_000, "done": True} for node in names.NODES],
}


def hostile(codec, topic: names.Topic, sample: int) -> list[bytes]:
    """Return messages of the run of ``codec`` that would do harm at ``sample`` if they were accepted."""
    if topic.stream:
        near = [sample, sample + 1, sample + 2, 0, max(sample - 1, 0), sample + 1000, 4_294_967_295]
        values = [1e-3, 1.0, -1e300, float("nan"), float("inf"), 0.0]
        flags = (0, 2, 0xFFFFFFFF)
        valid = [samples(codec, topic.name, n, x, flag) for n in near for x in values for flag in flags]
    else:
        header = {"run": codec.run.mark, "stamp": time.time_ns()}
        valid = [encode(topic.message, header | lie) for lie in LIES[topic.name]]
    short = [valid[0][:n] for n in (4, 5, 11, len(valid[0]) - 1)]
    long = [valid[0] + bytes(n) for n in (1, 3, 9, 40)]  # the middleware accepts no more
    return [*valid, *short, *long, ENCAPSULATION + b"\xff" * 60, b"\x00\x00\x00\x00" + bytes(60)]


class Stranger:
    """A node that publishes on every topic of the rig."""

    def __init__(self, context, name: str = "stranger") -> None:
        self.node = Node(name, context=context, namespace="lab", start_parameter_services=False)
        self.publishers = {
            topic: self.node.create_publisher(
                message_class(topic.type), f"/{names.NAMESPACE}/{topic.name}", quality(topic)
            )
            for topic in PUBLISHED
        }
        self.sent = 0

    def publish(self, codec, sample: int, count: int) -> None:
        """Publish ``count`` messages on every topic."""
        for topic, publisher in self.publishers.items():
            messages = hostile(codec, topic, sample)
            for number in range(self.sent, self.sent + count):
                publisher.publish(messages[number % len(messages)])
        self.sent += count


LIES_BEGIN = {"target": 100, "command": 1000, "measurement": 1000}
"""Numbers of the messages before which lies are received."""


class Meddler(Interposer):
    """Calls ``actions`` before and after each Measurement, and adds ``lies`` to the messages of a peer.

    ``applied`` stores the command of each Measurement, m. ``lies`` are a topic, the role of its receiver, and a
    function that returns the messages, of codec and sample.
    """

    def __init__(self, node, actions, applied, lies) -> None:
        self._node, self._actions, self._applied, self._lies = node, actions, applied, lies

    def sender(self, topic, send):
        if self._node.location.role != "actuator" or topic != "measurement":
            return send

        def interfering(data):
            sample = self._node.topics.codec.unpack_measurement(data)[0]
            self._applied.append(sample.command[0])
            for action in self._actions:
                action(sample.sample)
            send(data)
            for action in self._actions:
                action(sample.sample)

        return interfering

    def inbox(self, topic, inbox):
        if self._lies is None or self._lies[:2] != (topic, self._node.location.role):
            return inbox
        at = LIES_BEGIN[topic]
        return LyingInbox(inbox, at, lambda: self._lies[2](self._node.topics.codec, at))  # once the run is known


class LyingInbox:
    """An inbox that receives also the messages ``lies()``, before the message with the number ``at``."""

    def __init__(self, inbox, at: int, lies) -> None:
        self.subscription, self.guard, self.waited = inbox.subscription, inbox.guard, inbox.waited
        self._take, self._at, self._lies, self._waiting = inbox.take, at, lies, []

    def take(self) -> bytes | None:
        if self._waiting:
            return self._waiting.pop(0)
        data = self._take()
        if data is not None and len(data) > HEAD.size and number_of(data) == self._at:
            self._waiting, self._at = [*self._lies(), data], -1
            return self._waiting.pop(0)
        return data


@pytest.fixture
def composed_run(composed_nodes):
    """Runs nodes in one process; ``disturb(nodes, context)`` returns an action before and after Measurements."""

    def composed_run(directory: Path, disturb=None, lies=None):
        options = {"scenario": NAME, "overrides": (SHORT,), "host": "composed", "run_id": "one"}
        actions, applied = [], []
        meddle = partial(Meddler, actions=actions, applied=applied, lies=lies)
        with composed_nodes(options | {"record": directory}, interpose=meddle) as (nodes, context):
            if disturb:
                actions.append(disturb(nodes, context))
            result = composed.ComposedTest(list(nodes.values())).run(context)
            codes = [node.phase.exit_code for node in nodes.values()]
            result.judge(codes)
        return SimpleNamespace(result=result, codes=set(codes), applied=np.array(applied))

    return composed_run


@pytest.fixture(scope="module")
def undisturbed() -> rths_nodes.Run:
    return hosts.run(NAME, [SHORT]).read()


# Foreign messages


MESSAGES = 10_000
BURST = 250
"""Messages before and after each chosen Measurement, more than a small queue can hold."""


@pytest.fixture
def have_gids() -> bool:
    """True if messages of this distribution have the gid of their publisher; those of Jazzy do not."""
    with composed.ros_context() as context:
        node = Node("ear", context=context)
        subscription = node.create_subscription(Empty, "word", print, 1, raw=True)
        publisher = node.create_publisher(Empty, "word", 1)
        while not publisher.get_subscription_count():
            time.sleep(0.01)
        publisher.publish(Empty())
        while (message := subscription.handle.take_message(Empty, True)) is None:
            time.sleep(0.01)
        node.destroy_node()
    return endpoints.GID in message[1]


@pytest.mark.parametrize(
    "identified",
    [
        "by bytes and gid",
        *(pytest.param(means, marks=pytest.mark.soak) for means in ("by bytes alone", "by gid alone")),
    ],
)
def test_foreign_messages_on_every_topic_change_no_bit(
    identified, undisturbed, tmp_path, monkeypatch, have_gids, composed_run, different
):
    """Messages of a second rig or a recording; with ``by gid alone`` they have the mark of this run."""
    if identified == "by bytes alone":
        monkeypatch.setattr(endpoints, "GID", "none")
    elif identified == "by gid alone" and not have_gids:
        pytest.skip("messages have no gid in this distribution")
    strangers = []

    def disturb(nodes, context):
        stranger = Stranger(context)
        strangers.append(stranger)
        codec = nodes["actuator"].topics.codec
        if identified != "by gid alone":
            codec = Assembly(files.load(NAME)).codec(RunMark(mark_of("one", "another time")))
        stranger.publish(codec, 0, BURST)  # before any node is ready

        def action(sample: int) -> None:
            if sample % 64 == 1 and stranger.sent < MESSAGES:
                stranger.publish(codec, sample, BURST)

        return action

    test = composed_run(tmp_path / "run", disturb)
    assert strangers[0].sent == MESSAGES
    assert (test.result.outcome, test.codes) == ("finished", {0}), test.result.reason
    run = rths_nodes.read(tmp_path / "run")
    assert different(run, undisturbed) == []
    assert run.information["gaps"] == "0"
    (note,) = [note for note in test.result.notes if "foreign messages were dropped" in note]
    for name in ("target", "command", "measurement", "true_state", "compensator_state"):
        assert f"{MESSAGES} from /lab/stranger on {name}" in note
    if have_gids and identified != "by bytes alone":  # without gid, the content must be read
        assert "malformed" not in note


def test_replayed_recording_of_same_run_id_is_foreign(undisturbed, tmp_path, monkeypatch, composed_run, different):
    """Replay before and during the test, without gids."""
    monkeypatch.setattr(endpoints, "GID", "none")
    composed_run(tmp_path / "monday")
    recording = ((topic.rpartition("/")[2], data) for topic, data, _ in bag.read(tmp_path / "monday").messages())
    messages = [(names.TOPICS[topic], data) for topic, data in recording if topic in names.TOPICS]
    time.sleep(2.0 * LIVE_NS * 1e-9)

    def disturb(nodes, context):
        player = Stranger(context, "player")
        for topic, data in messages:
            if not topic.stream:
                player.publishers[topic].publish(data)
        rest = iter(messages)

        def action(sample: int) -> None:
            for topic, data in itertools.islice(rest, 8):
                player.publishers[topic].publish(data)

        return action

    test = composed_run(tmp_path / "tuesday", disturb)
    assert (test.result.outcome, test.codes) == ("finished", {0}), test.result.reason
    assert different(rths_nodes.read(tmp_path / "tuesday"), undisturbed) == []
    assert mentions(test.result.notes, "/lab/player", "measurement")


def begin(node) -> None:
    """Let the actuator node send Measurement 0."""
    node.phase.to(Phase.READY)
    node.rig.machine.to(State.ARMED)
    node.work()


def test_message_of_undiscovered_peer_is_kept(by_hand, monkeypatch):
    with by_hand.node("actuator", peers=["actuator", "monitor"]) as node:
        guard, publishers = node.topics.guards["progress"], endpoints.publishers
        monkeypatch.setattr(endpoints, "publishers", lambda *_: [("", b"a"), ("", b"b")])
        for gid, message in ((b"a", b"1"), (b"b", b"x"), (b"a", b"2")):
            guard.meet(gid, message)
        assert not guard.waiting
        assert not guard.complete
        monkeypatch.setattr(endpoints, "publishers", lambda *_: [("/rths/monitor", b"a"), ("/lab/b", b"b")])
        guard.look()
        assert (list(guard.waiting), guard.known, guard.complete) == ([(b"2", b"a")], {b"a"}, True)
        assert guard.foreign() == {"/lab/b": 1}
        guard.close()
        guard.meet(b"c", b"y")
        assert guard.foreign() == {"/lab/b": 1, "unknown": 1}
        for number in range(200):
            guard.meet(b"%d" % number, b"y")
        assert sum(guard.foreign().values()) == 202
        assert len(guard._dropped) == endpoints.MOST_FOREIGN + 1
        assert publishers(node, guard.topic) == []


@pytest.mark.parametrize("names", [[""], []])
def test_publisher_without_name_is_counted_as_such(names, by_hand, monkeypatch):
    with by_hand.node("integrator", peers=["integrator", "actuator"]) as node:
        node.topics.outlets.clear()
        monkeypatch.setattr(endpoints, "publishers", lambda *_: [(name, b"a") for name in names])
        count = " (publishers without a name so far: 1)" if names else ""
        assert re.fullmatch(f"/rths/actuator on /rths/[a-z_]+{re.escape(count)}", node.topics.missing())


def test_restarted_peer_is_accepted_before_the_test(by_hand, monkeypatch):
    with by_hand.node("actuator", peers=["actuator", "monitor"]) as node:
        guard = node.topics.guards["progress"]
        monkeypatch.setattr(endpoints, "publishers", lambda *_: [("/rths/monitor", b"a")])
        guard.look()
        monkeypatch.setattr(endpoints, "publishers", lambda *_: [("/rths/monitor", b"a"), ("/rths/monitor", b"b")])
        guard.meet(b"b", b"1")
        assert guard.known == {b"a"}, "the first publisher stays"
        monkeypatch.setattr(endpoints, "publishers", lambda *_: [("/rths/monitor", b"b")])
        guard.look()
        assert (guard.known, list(guard.waiting)) == ({b"b"}, [(b"1", b"b")])


def test_two_publishers_with_the_name_of_a_peer_are_uncertain(by_hand, monkeypatch):
    with by_hand.node("integrator", peers=["integrator", "actuator"]) as node:
        guard = node.topics.guards["test_state"]
        guard.go_without_gids()
        for count, certain in (1, True), (2, False):
            there = [("/rths/actuator", bytes([gid])) for gid in range(count)]
            monkeypatch.setattr(endpoints, "publishers", lambda *_, there=there: there)
            assert guard.certain is certain


@pytest.mark.parametrize("role", ["actuator", "compensator"])
def test_duplicate_node_is_refused_before_motion(role, tmp_path, monkeypatch, composed_run):
    monkeypatch.setattr("rths_nodes.ros.nodes.participation.DUPLICATE_NS", 100_000_000)
    duplicates = []

    def disturb(nodes, context):
        values = {"scenario": NAME, "overrides": [SHORT], "run_id": "one"}
        duplicates.append(composed.make_node(role, hosts.open_writer, context, values))
        duplicates[0].start()
        return lambda sample: pytest.fail("the rig moves")

    result = composed_run(tmp_path / "run", disturb).result
    duplicates[0].destroy_node()
    assert (result.outcome, result.exit_code) == ("refused", 2)
    assert mentions(result.reason, "2", f"/rths/{role}", "/rths/node_status", "namespace", "ROS_DOMAIN_ID")


@pytest.mark.parametrize("problem", ["client", ""])
def test_node_that_has_refused_ends_a_composed_test(problem, tmp_path, composed_run):
    def disturb(nodes, context):
        nodes["integrator"].refuse(problem)
        return lambda sample: pytest.fail("the rig moves")

    result = composed_run(tmp_path / "run", disturb).result
    assert (result.outcome, result.exit_code) == ("refused", 2)
    assert mentions(result.reason, problem or "namespace")


@pytest.mark.parametrize("topic", ["measurement", "command"])
def test_peer_with_other_messages_is_refused_by_name(topic, by_hand, clock):
    """A topic of another type stands for other versions of the messages, because both change the type hash."""
    with composed.ros_context() as context:
        other = Node("actuator", context=context, namespace=names.NAMESPACE)
        endpoint = (
            other.create_publisher(Empty, topic, 1)
            if topic == "measurement"
            else other.create_subscription(Empty, topic, print, 1)
        )
        with by_hand.node("compensator", peers=["actuator", "compensator"], clock=clock) as node:
            for _ in range(1000):
                if node.topics.other_versions():
                    break
                time.sleep(0.01)
            for _ in range(2):
                clock.now += COMPLAINT_NS
                node.look()
            assert (node.phase.gone, node.phase.exit_code) == (True, 2)
            assert mentions(node.phase.problem, "/rths/actuator", "std_msgs/msg/Empty", f"/rths/{topic}")
        assert endpoint is not None
        other.destroy_node()


# Invalid messages of peers


RECEIVERS = {
    "target": ("compensator", "monitor"),
    "command": ("actuator", "monitor"),
    "measurement": ("integrator", "compensator", "monitor"),
}
PAIRS = [(topic, role) for topic, roles in RECEIVERS.items() for role in roles]


@pytest.fixture
def lying_run(composed_run, tmp_path):
    """Runs nodes of which ``role`` receives also the messages ``lies(codec, sample)`` on ``topic``."""

    def lying_run(topic: str, role: str, lies):
        test = composed_run(tmp_path / "run", lies=(topic, role, lies))
        limits = files.load(NAME).axes["story_1"].limits
        assert (np.abs(test.applied) <= limits.stroke).all()
        assert (np.abs(np.diff(test.applied)) * 1024 <= limits.velocity).all()
        assert test.codes <= {0, 3}, "a node has failed"
        return test

    return lying_run


@pytest.mark.parametrize(("topic", "role"), PAIRS)
def test_unreadable_and_old_messages_are_dropped(topic, role, undisturbed, lying_run, different, tmp_path):
    def lies(codec, at):
        valid = samples(codec, topic, at, 1.0)
        unreadable = [valid + bytes(40), b"\0\0\0\0" + valid[4:], valid[:4] + b"\xff" * 60]
        old = [samples(codec, topic, number, 1.0) for number in (0, 1, at - 1)]
        old = old if role != "monitor" or topic != "target" else []
        return 50 * [*old, b"", valid[:4], valid[:11], valid[:-1], *unreadable]

    test = lying_run(topic, role, lies)
    assert (test.result.outcome, test.result.exit_code) == ("finished", 0), test.result.reason
    assert different(rths_nodes.read(tmp_path / "run"), undisturbed) == []
    dropped = f"malformed messages were dropped: 350 by {role}"
    assert any(dropped in note for note in test.result.notes), test.result.notes


@pytest.mark.parametrize(
    ("topic", "role", "ahead"),
    [
        ("measurement", "integrator", 1000),
        *((t, r, n) for t, r in PAIRS if r in ("compensator", "actuator") for n in (1, 4_000_000_000)),
    ],
)
def test_sample_number_from_the_future_trips(topic, role, ahead, lying_run):
    result = lying_run(topic, role, lambda codec, at: 10 * [samples(codec, topic, at + ahead, 0.0)]).result
    assert (result.outcome, result.exit_code) == ("tripped", 3)
    at = LIES_BEGIN[topic]
    assert mentions(result.reason, topic.capitalize(), at + ahead, at)
    assert role == "actuator" or f"{role}: " in result.reason


@pytest.mark.parametrize(("topic", "role"), [pair for pair in PAIRS if pair[1] != "monitor"])
@pytest.mark.parametrize("value", [float("nan"), -1e300])
def test_impossible_values_trip(topic, role, value, lying_run):
    result = lying_run(topic, role, lambda codec, at: [samples(codec, topic, at, value)]).result
    assert (result.outcome, result.exit_code) == ("tripped", 3)
    assert "Traceback" not in result.reason


def test_effective_sample_of_a_trip_is_limited_to_the_window(by_hand):
    with by_hand.node("actuator", peers=["actuator", "monitor"]) as node:
        begin(node)
        by_hand.put(node, "trip", source="monitor", reason="energy", effective_sample=4_000_000_000)
        node.work()
        assert node.rig.stop_request == StopRequest("monitor: energy", 512)


def test_progress_of_unknown_node_does_not_delay_the_rig(by_hand):
    with by_hand.node("actuator", peers=["actuator", "monitor"]) as node:
        begin(node)
        node.rig.sample = 600
        by_hand.put(node, "progress", node="somebody", sample=0)
        by_hand.put(node, "progress", node="monitor", sample=599)
        by_hand.put_sample(node, "command", Command(601, np.zeros(1), np.zeros(1)))
        assert node.work()


FLOOD = """
import sys, time
sys.path.insert(0, {folder!r})
from rths_nodes.loop.scenario.assembly import Assembly
from test_hostile import Stranger, composed, files, hostile, mark_of, NAME
codec = Assembly(files.load(NAME)).codec()
codec.run.become(mark_of("another_run"))
with composed.ros_context() as context:
    stranger = Stranger(context)
    bursts = {{topic: hostile(codec, topic, 500) for topic in stranger.publishers}}
    print("begun", flush=True)
    for burst in range({messages} // 20):
        for topic, publisher in stranger.publishers.items():
            for number in range(20 * burst, 20 * burst + 20):
                publisher.publish(bursts[topic][number % len(bursts[topic])])
        time.sleep(0.002)
    time.sleep(100)
"""


@pytest.fixture
def flood(monkeypatch) -> Iterator[subprocess.Popen]:
    """A process that publishes 10 000 messages on every topic, about 50 000 messages per second."""
    command = [sys.executable, "-c", FLOOD.format(folder=str(Path(__file__).parent), messages=MESSAGES)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.soak
def test_flood_of_another_process_changes_no_bit(flood, undisturbed, tmp_path):
    """The messages have the mark of another run. The load may delay a message too long; then the rig trips."""
    command = [sys.executable, "-m", "rths_nodes.app.cli", "run", NAME, "--host", "processes", "--json"]
    command += ["--record", str(tmp_path / "run"), "--set", SHORT]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, errors = run.communicate(timeout=100)
    assert flood.poll() is None
    assert "Traceback" not in out + errors
    report = json.loads(out)
    ending = (run.returncode, report["outcome"])
    assert ending == (0, "finished") or (ending == (3, "tripped") and "no Command" in report["reason"]), out
    recording = rths_nodes.read(tmp_path / "run")
    driven = int(np.count_nonzero((recording.flags & FLAG_TRIPPED) == 0))
    assert recording.displacement[:driven].tobytes() == undisturbed.displacement[:driven].tobytes()
    assert any("/lab/stranger on " in note for note in report["notes"])


@pytest.mark.parametrize("host", ["embedded", "composed"])
def test_run_has_the_selected_namespace(host, undisturbed, tmp_path, different):
    hosts.run(NAME, [SHORT], host=host, namespace="/lab/rig_2", record=tmp_path / "run")
    topics = bag.read(tmp_path / "run").topics.keys() - names.ALSO_RECORDED
    assert all(topic.startswith("/lab/rig_2/") for topic in topics)
    assert different(rths_nodes.read(tmp_path / "run"), undisturbed) == []


@pytest.mark.parametrize("name", ["", "two words", "2nd", "a//b", "a__b", "r\u00e4th"])
def test_invalid_namespaces_are_refused(name):
    with pytest.raises(ConfigError, match="namespace = "):
        hosts.run(NAME, [SHORT], namespace=name)
