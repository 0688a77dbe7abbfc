# SPDX-License-Identifier: Apache-2.0
"""Foreign publishers, second rigs and messages that make no sense: nothing moves the rig, nothing ends a node."""

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
from rths_nodes.core.wire.layout import ENCAPSULATION, HEAD, RunMark, mark_of, number_of
from rths_nodes.core.wire.plain import encode
from rths_nodes.loop.options import run_options
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.supervision.states import State, StopRequest
from rths_nodes.recording import bag
from rths_nodes.ros import names
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.hosting import descriptions as launching
from rths_nodes.ros.nodes.handshake import COMPLAINT_NS, LIVE_NS
from rths_nodes.ros.nodes.phase import Phase
from rths_nodes.ros.transport import endpoints, peers
from rths_nodes.ros.transport.endpoints import message_class, quality
from rths_nodes.ros.transport.topics import Interposer

NAME = "chen_ricles_2010"
SHORT = "duration=1.5"
TOLD = [
    each
    for each in names.TOPICS.values()
    if each.type.startswith("rths_nodes/") and not (each.apart or each.section)
]


# What a foreign node may send


def numbers(value: float, count: int) -> list[np.ndarray]:
    return [np.full(1, value) for _ in range(count)]


def samples(codec, topic: str, sample: int, value: float, flags: int = 0) -> bytes:
    """A well-formed message of a stream."""
    if topic == "target":
        return codec.pack_target(Target(sample, *numbers(value, 6), flags=flags), 0)
    if topic == "command":
        return codec.pack_command(Command(sample, *numbers(value, 2), flags=flags), 0)
    if topic == "compensator_state":
        return codec.pack_state([value] * codec.sizes[2], sample, flags, 0)
    return codec.pack_measurement(Measurement(sample, *numbers(value, 3), flags=flags), 0)


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
    """Messages on ``topic``, of the run of ``codec``, that would do harm at ``sample`` if anybody listened."""
    if topic.stream:
        near = [sample, sample + 1, sample + 2, 0, max(sample - 1, 0), sample + 1000, 4_294_967_295]
        values = [1e-3, 1.0, -1e300, float("nan"), float("inf"), 0.0]
        good = [
            samples(codec, topic.name, n, x, flags) for n in near for x in values for flags in (0, 2, 0xFFFFFFFF)
        ]
    else:
        header = {"run": codec.run.mark, "stamp": time.time_ns()}
        good = [encode(topic.message, header | lie) for lie in LIES[topic.name]]
    short = [good[0][:n] for n in (4, 5, 11, len(good[0]) - 1)]
    long = [good[0] + bytes(n) for n in (1, 3, 9, 40)]  # the middleware takes no more
    return [*good, *short, *long, ENCAPSULATION + b"\xff" * 60, b"\x00\x00\x00\x00" + bytes(60)]


class Stranger:
    """A node that publishes on every topic of the rig; it may have any name."""

    def __init__(self, context, name: str = "stranger", namespace: str = "lab") -> None:
        self.node = Node(name, context=context, namespace=namespace, start_parameter_services=False)
        self.publishers = {
            topic: self.node.create_publisher(
                message_class(topic.type), f"/{names.NAMESPACE}/{topic.name}", quality(topic)
            )
            for topic in TOLD
        }
        self.sent = dict.fromkeys((topic.name for topic in TOLD), 0)

    def publish(self, codec, sample: int, most: int) -> None:
        """At most ``most`` messages on every topic."""
        for topic, publisher in self.publishers.items():
            messages = hostile(codec, topic, sample)
            start = self.sent[topic.name]
            for number in range(most):
                publisher.publish(messages[(start + number) % len(messages)])
            self.sent[topic.name] += most


class Meddler(Interposer):
    """Between a node and its topics: calls ``actions`` around each Measurement, makes a peer send ``lies``.

    ``applied`` keeps the command of each Measurement, m. ``lies`` are a topic, the role of who hears them, and
    what makes them of codec and number.
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
        at = 100 if topic == "target" else 1000
        return Lying(inbox, at, lambda: self._lies[2](self._node.topics.codec, at))  # once the run is known


def composed_run(directory: Path, disturb=None, overrides=(SHORT,), lies=None, **options):
    """A run in one process; ``disturb(nodes by role, context)`` gives what is called around each Measurement."""
    descriptions = launching.describe(
        run_options(
            {"scenario": NAME, "overrides": overrides, "host": "composed", "run_id": "one", "record": directory}
            | options
        )
    )
    applied, actions = [], []

    def make(d, context):
        meddle = partial(Meddler, actions=actions, applied=applied, lies=lies)
        return composed.make_node(d.role, hosts.open_writer, context, d.parameters, interpose=meddle)

    with composed.ros_context() as context:
        nodes = {d.role: make(d, context) for d in descriptions}
        for node in nodes.values():
            node.start()
        if disturb:
            actions.append(disturb(nodes, context))
        result = composed.ComposedTest(list(nodes.values())).run(context)
        codes = {role: node.phase.exit_code for role, node in nodes.items()}
        result.judge(list(codes.values()))
        for node in nodes.values():
            node.destroy_node()
    return SimpleNamespace(result=result, codes=codes, applied=np.array(applied))


def histories(directory: Path) -> dict[str, bytes]:
    return {name: values.tobytes() for name, values in rths_nodes.read(directory).arrays().items()}


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, bytes]:
    run = hosts.run(NAME, [SHORT]).read()
    return {name: values.tobytes() for name, values in run.arrays().items()}


# Foreign messages


MESSAGES = 10_000
BURST = 250
"""More than a small queue would hold, on both sides of every Measurement that is chosen."""


@pytest.fixture
def tells_gids() -> bool:
    """Whether a message of this distribution says which publisher it is from; Jazzy's do not."""
    with composed.ros_context() as context:
        node = Node("ear", context=context)
        heard = node.create_subscription(Empty, "word", print, 1, raw=True)
        publisher = node.create_publisher(Empty, "word", 1)
        while not publisher.get_subscription_count():
            time.sleep(0.01)
        publisher.publish(Empty())
        while (found := heard.handle.take_message(Empty, True)) is None:
            time.sleep(0.01)
        node.destroy_node()
    return endpoints.GID in found[1]


@pytest.mark.parametrize(
    "told",
    [
        "by bytes and gid",
        *(pytest.param(way, marks=pytest.mark.soak) for way in ("by bytes alone", "by gid alone")),
    ],
)
def test_ten_thousand_foreign_messages_on_every_topic_change_no_bit(
    told, undisturbed, tmp_path, monkeypatch, tells_gids
):
    """As of a second rig, or a recording; ``by gid``: somebody even copies the mark of the run."""
    if told == "by bytes alone":
        monkeypatch.setattr(endpoints, "GID", "none")
    elif told == "by gid alone" and not tells_gids:
        pytest.skip("this distribution does not say whose a message is")
    strangers = []

    def disturb(nodes, context):
        stranger = Stranger(context)
        strangers.append(stranger)
        codec = nodes["actuator"].topics.codec
        if told != "by gid alone":
            codec = Assembly(files.load(NAME)).codec(RunMark(mark_of("one", "another time")))
        stranger.publish(codec, 0, BURST)  # also before anybody is ready

        def action(sample: int) -> None:
            if sample % 64 == 1 and stranger.sent["trip"] < MESSAGES:
                stranger.publish(codec, sample, BURST)

        return action

    found = composed_run(tmp_path / "run", disturb)
    assert set(strangers[0].sent.values()) == {MESSAGES}
    assert (found.result.outcome, set(found.codes.values())) == ("finished", {0}), found.result.reason
    assert histories(tmp_path / "run") == undisturbed
    assert rths_nodes.read(tmp_path / "run").information["gaps"] == "0"
    notes = [note for note in found.result.notes if "foreign messages were dropped" in note]
    assert len(notes) == 1
    for name in ("target", "command", "measurement", "true_state", "compensator_state"):
        assert f"{MESSAGES} from /lab/stranger on {name}" in notes[0]
    if tells_gids and told != "by bytes alone":  # else what may say which run it is has to be looked at
        assert "malformed" not in notes[0], "they were not even looked at"


def test_a_recording_that_is_replayed_does_not_count_as_the_run_of_its_name(undisturbed, tmp_path, monkeypatch):
    """Also where no message says whose it is: another test of the same run id, before and during this one."""
    monkeypatch.setattr(endpoints, "GID", "none")
    composed_run(tmp_path / "monday")
    recorded = ((topic.rpartition("/")[2], data) for topic, data, _ in bag.read(tmp_path / "monday").messages())
    messages = [(topic, data) for topic, data in recorded if topic in names.TOPICS]
    time.sleep(2.0 * LIVE_NS * 1e-9)

    def disturb(nodes, context):
        player = Stranger(context, "player")
        for topic, data in messages:
            if not names.TOPICS[topic].stream:
                player.publishers[names.TOPICS[topic]].publish(data)
        rest = iter(messages)

        def action(sample: int) -> None:
            for topic, data in itertools.islice(rest, 8):
                player.publishers[names.TOPICS[topic]].publish(data)

        return action

    found = composed_run(tmp_path / "tuesday", disturb)
    assert (found.result.outcome, set(found.codes.values())) == ("finished", {0}), found.result.reason
    assert histories(tmp_path / "tuesday") == undisturbed
    assert any(mentions(note, "/lab/player", "measurement") for note in found.result.notes)


def begin(node) -> None:
    """The actuator node at Measurement 0."""
    node.phase.to(Phase.READY)
    node.rig.machine.to(State.ARMED)
    node.work()


def test_what_comes_from_a_peer_that_is_not_known_yet_is_kept(by_hand, monkeypatch):
    with by_hand.node("actuator", peers=["actuator", "monitor"]) as node:
        guard, told = node.topics.guards["progress"], peers.publishers
        monkeypatch.setattr(peers, "publishers", lambda *_: [("", b"a"), ("", b"b")])
        for gid, message in ((b"a", b"1"), (b"b", b"x"), (b"a", b"2")):
            guard.meet(gid, message)
        assert not guard.waiting
        assert not guard.complete
        monkeypatch.setattr(peers, "publishers", lambda *_: [("/rths/monitor", b"a"), ("/lab/b", b"b")])
        guard.look()
        assert (list(guard.waiting), guard.known, guard.complete) == ([(b"2", b"a")], {b"a"}, True)
        assert guard.foreign() == {"/lab/b": 1}
        guard.close()
        guard.meet(b"c", b"y")
        assert guard.foreign() == {"/lab/b": 1, "unknown": 1}
        for number in range(200):
            guard.meet(b"%d" % number, b"y")
        assert sum(guard.foreign().values()) == 202
        assert len(guard._dropped) == peers.MOST_FOREIGN + 1
        assert told(node, guard.topic) == []


@pytest.mark.parametrize("names", [[""], []])
def test_a_peer_that_is_there_without_a_name_is_told_from_one_that_is_not(names, by_hand, monkeypatch):
    with by_hand.node("integrator", peers=["integrator", "actuator"]) as node:
        node.topics.outlets.clear()
        monkeypatch.setattr(peers, "publishers", lambda *_: [(name, b"a") for name in names])
        there = " (publishers without a name so far: 1)" if names else ""
        assert re.fullmatch(f"/rths/actuator on /rths/[a-z_]+{re.escape(there)}", node.topics.missing())


def test_a_peer_that_comes_back_is_let_in_until_the_test_begins(by_hand, monkeypatch):
    with by_hand.node("actuator", peers=["actuator", "monitor"]) as node:
        guard = node.topics.guards["progress"]
        monkeypatch.setattr(peers, "publishers", lambda *_: [("/rths/monitor", b"a")])
        guard.look()
        monkeypatch.setattr(peers, "publishers", lambda *_: [("/rths/monitor", b"a"), ("/rths/monitor", b"b")])
        guard.meet(b"b", b"1")
        assert guard.known == {b"a"}, "who was there first, stays"
        monkeypatch.setattr(peers, "publishers", lambda *_: [("/rths/monitor", b"b")])
        guard.look()
        assert (guard.known, list(guard.waiting)) == ({b"b"}, [(b"1", b"b")])


# A second node of the same name


@pytest.mark.parametrize("role", ["actuator", "compensator"])
def test_a_second_node_of_a_name_is_refused_before_anything_moves(role, tmp_path, monkeypatch):
    monkeypatch.setattr("rths_nodes.ros.nodes.handshake.DUPLICATE_NS", 100_000_000)
    twins = []

    def disturb(nodes, context):
        values = {"scenario": NAME, "overrides": [SHORT], "run_id": "one"}
        twins.append(composed.make_node(role, hosts.open_writer, context, values))
        twins[0].start()
        return lambda sample: pytest.fail("the rig moves")

    found = composed_run(tmp_path / "run", disturb)
    twins[0].destroy_node()
    assert (found.result.outcome, found.result.exit_code) == ("refused", 2)
    assert mentions(found.result.reason, "2", f"/rths/{role}", "/rths/node_status")
    assert mentions(found.result.reason, "namespace", "ROS_DOMAIN_ID")


# A peer with other messages


@pytest.mark.parametrize("topic", ["measurement", "command"])
def test_a_peer_with_other_messages_is_refused_by_its_name(topic, by_hand, clock):
    """Stands for version 1: a type of another content behind a topic of ours has another hash."""
    with composed.ros_context() as context:
        other = Node("actuator", context=context, namespace=names.NAMESPACE)
        old = (
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
        assert old is not None
        other.destroy_node()


# Peers that send nonsense


class Lying:
    """An Inbox whose peers also send what ``lies(expected)`` gives, before the message of that number."""

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


LISTENERS = {
    "target": ("compensator", "monitor"),
    "command": ("actuator", "monitor"),
    "measurement": ("integrator", "compensator", "monitor"),
}
PAIRS = [(topic, role) for topic, roles in LISTENERS.items() for role in roles]


def lying_run(directory: Path, topic: str, role: str, lies_of):
    found = composed_run(directory, lies=(topic, role, lies_of))
    limits = files.load(NAME).axes["story_1"].limits
    assert (np.abs(found.applied) <= limits.stroke).all(), "nothing else was sent to the rig"
    assert (np.abs(np.diff(found.applied)) * 1024 <= limits.velocity).all()
    assert set(found.codes.values()) <= {0, 3}, "no node ends by an exception"
    return found


@pytest.mark.parametrize(("topic", "role"), PAIRS)
def test_what_cannot_be_read_or_is_old_is_dropped(topic, role, undisturbed, tmp_path):
    def lies(codec, at):
        old = [samples(codec, topic, number, 1.0) for number in (0, 1, at - 1)]
        return 50 * [*(old if role != "monitor" or topic != "target" else []), *unreadable(codec, topic, at)]

    found = lying_run(tmp_path / "run", topic, role, lies)
    assert (found.result.outcome, found.result.exit_code) == ("finished", 0), found.result.reason
    assert histories(tmp_path / "run") == undisturbed
    dropped = f"malformed messages were dropped: 350 by {role}"
    assert any(dropped in note for note in found.result.notes), found.result.notes


def unreadable(codec, topic: str, number: int) -> list[bytes]:
    good = samples(codec, topic, number, 1.0)
    return [b"", good[:4], good[:11], good[:-1], good + bytes(40), b"\0\0\0\0" + good[4:], good[:4] + b"\xff" * 60]


@pytest.mark.parametrize(
    ("topic", "role", "ahead"),
    [
        ("measurement", "integrator", 1000),
        *((t, r, n) for t, r in PAIRS if r in ("compensator", "actuator") for n in (1, 4_000_000_000)),
    ],
)
def test_a_number_from_the_future_trips(topic, role, ahead, tmp_path):
    found = lying_run(
        tmp_path / "run", topic, role, lambda codec, at: 10 * [samples(codec, topic, at + ahead, 0.0)]
    )
    assert (found.result.outcome, found.result.exit_code) == ("tripped", 3)
    at = 100 if topic == "target" else 1000
    assert mentions(found.result.reason, topic.capitalize(), at + ahead, at)
    assert role == "actuator" or f"{role}: " in found.result.reason


@pytest.mark.parametrize(("topic", "role"), [pair for pair in PAIRS if pair[1] != "monitor"])
@pytest.mark.parametrize("value", [float("nan"), -1e300])
def test_values_that_no_rig_has_trip(topic, role, value, tmp_path):
    found = lying_run(tmp_path / "run", topic, role, lambda codec, at: [samples(codec, topic, at, value)])
    assert (found.result.outcome, found.result.exit_code) == ("tripped", 3)
    assert "Traceback" not in found.result.reason


def test_a_trip_takes_effect_within_the_window_whatever_its_sender_says(by_hand):
    with by_hand.node("actuator", peers=["actuator", "monitor"]) as node:
        begin(node)
        by_hand.put(node, "trip", source="monitor", reason="energy", effective_sample=4_000_000_000)
        node.work()
        assert node.rig.stop_request == StopRequest("monitor: energy", 512)


def test_progress_of_somebody_who_does_not_observe_does_not_hold_the_rig_up(by_hand):
    with by_hand.node("actuator", peers=["actuator", "monitor"]) as node:
        begin(node)
        node.rig.sample = 600
        by_hand.put(node, "progress", node="somebody", sample=0)
        by_hand.put(node, "progress", node="monitor", sample=599)
        command = Command(601, np.zeros(1), np.zeros(1))
        node.topics.inboxes["command"].put(node.topics.codec.pack_command(command, 0))
        assert node.work()


# In processes


def start(record: Path, *words: str) -> subprocess.Popen:
    """`rths run` as a user starts it."""
    command = [sys.executable, "-m", "rths_nodes.app.cli", "run", NAME, "--host", "processes", "--json"]
    return subprocess.Popen(
        [*command, "--record", str(record), "--set", SHORT, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


FLOOD = """
import sys, time
sys.path.insert(0, {folder!r})
from rths_nodes.loop.scenario.assembly import Assembly
from test_hostile import Stranger, composed, files, hostile, NAME
codec = Assembly(files.load(NAME)).codec()
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
def flood() -> Iterator[subprocess.Popen]:
    """A process that publishes ten thousand messages on every topic, about 50 000 a second."""
    words = [sys.executable, "-c", FLOOD.format(folder=str(Path(__file__).parent), messages=MESSAGES)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout.readline() == "begun\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.soak
def test_a_process_that_floods_every_topic_moves_nothing_and_ends_no_node(flood, tmp_path):
    """It may take so much of the machine that a message is missing for too long: then the rig trips."""
    run = start(tmp_path / "run")
    out, errors = run.communicate(timeout=100)
    assert flood.poll() is None
    assert "Traceback" not in out + errors
    report = json.loads(out)
    ended = (run.returncode, report["outcome"])
    assert ended == (0, "finished") or (ended == (3, "tripped") and "no Command" in report["reason"]), out
    found, reference = rths_nodes.read(tmp_path / "run"), hosts.run(NAME, [SHORT]).read()
    driven = int(np.count_nonzero((found.flags & FLAG_TRIPPED) == 0))
    assert found.displacement[:driven].tobytes() == reference.displacement[:driven].tobytes()
    assert any("/lab/stranger on " in note for note in report["notes"])


@pytest.mark.parametrize("host", ["embedded", "composed"])
def test_a_run_has_the_namespace_that_was_asked_for(host, undisturbed, tmp_path):
    hosts.run(NAME, [SHORT], host=host, namespace="/lab/rig_2", record=tmp_path / "run")
    assert all(
        topic.startswith("/lab/rig_2/") for topic in bag.read(tmp_path / "run").topics.keys() - names.ALSO_RECORDED
    )
    assert histories(tmp_path / "run") == undisturbed


@pytest.mark.parametrize("name", ["", "two words", "2nd", "a//b", "a__b", "r\u00e4th"])
def test_a_namespace_that_cannot_be_is_refused(name):
    with pytest.raises(ConfigError, match="namespace = "):
        hosts.run(NAME, [SHORT], namespace=name)
