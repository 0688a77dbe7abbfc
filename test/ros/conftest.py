# SPDX-License-Identifier: Apache-2.0
"""Nodes whose inboxes are filled by hand: what arrives, and when, is the test's choice."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import relay

from rths_nodes.core.data import flatten
from rths_nodes.core.wire.layout import mark_of
from rths_nodes.core.wire.plain import encode
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros import names

RUN = mark_of("by hand")
"""The run that nodes by hand take part in which have not told one themselves."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder starts nodes."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.nodes)


class Tray:
    """Stands for an Inbox."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()

    def put(self, data: bytes) -> None:
        self._waiting.append(data)

    def take(self) -> bytes | None:
        return self._waiting.popleft() if self._waiting else None

    def waited(self) -> int:
        return 0


class NullWriter:
    """A recording that keeps only what it is told at its end."""

    information: dict[str, str]

    def __init__(self, *_: Any) -> None:
        self.written: list[str] = []

    def add(self, topic: str, kind: str, reliable: bool, latched: bool) -> None: ...

    def write(self, topic: str, data: bytes, stamp_ns: int) -> None:
        self.written.append(topic)

    def flush_if_due(self) -> None: ...

    def flush(self) -> None: ...

    def close(self, information: dict[str, str]) -> None:
        self.information = information


def trays() -> Any:
    """What puts a Tray in place of each inbox of a node, and keeps what it sends in ``sent`` by topic."""
    from rths_nodes.ros.transport.topics import Interposer  # not where ROS 2 is missing

    class Trays(Interposer):
        def __init__(self) -> None:
            self.sent: dict[str, list[bytes]] = {}

        def inbox(self, topic: str, inbox: Any) -> Any:
            return Tray()

        def sender(self, topic: str, send: Any) -> Any:
            kept = self.sent[topic] = []

            def keep(data: bytes) -> None:
                kept.append(data)
                send(data)

            return keep

    return lambda _: Trays()


@contextmanager
def node_by_hand(
    role: str, namespace: str = names.NAMESPACE, clock: Any = None, interpose: Any = None, **values: Any
) -> Iterator[Any]:
    """The node ``role`` in ``namespace``, active, with a Tray for each of its inboxes."""
    from rths_nodes.ros.hosting import composed

    own = {"record": "nowhere"} if role == names.RECORDER else {}
    options = {"interpose": interpose or trays()} | ({"clock": clock} if clock else {})
    with composed.ros_context() as context:
        given = {"scenario": "chen_ricles_2010"} | own | values
        words = ["--ros-args", "-r", f"__ns:=/{namespace}"]
        node = composed.make_node(role, NullWriter, context, given, cli_args=words, **options)
        node.start()
        if not node.topics.run.mark:
            node.topics.join(RUN)
        try:
            yield node
        finally:
            node.destroy_node()


def put(node: Any, topic: str, /, **values: Any) -> None:
    """A message at a low rate, of the run of the ``node``."""
    header = {"run": node.topics.run.mark}
    node.topics.inboxes[topic].put(encode(names.TOPICS[topic].message, header | values))


def put_state(node: Any, state: State, sample: int, reason: str = "") -> None:
    """A TestState, heard at once."""
    put(node, "test_state", state=int(state), sample=sample, reason=reason)
    node.handshake.receive_state()


def put_summary(node: Any, speaker: str, /, **sent: int) -> None:
    """The Summary of ``speaker``, with the numbers of messages that it has sent."""
    numbers = flatten(sent, "sent")
    put(node, "summary", node=speaker, names=list(numbers), values=list(numbers.values()))


@pytest.fixture(scope="session")
def by_hand() -> SimpleNamespace:
    """Nodes by hand, and what is put into their inboxes."""
    return SimpleNamespace(node=node_by_hand, put=put, put_state=put_state, put_summary=put_summary)


class Clock:
    """Runs when it is told to. ``on_read`` is called once, before the next look at it."""

    def __init__(self) -> None:
        self.now = 1_000_000_000
        self.on_read: Callable[[], None] | None = None

    def monotonic_ns(self) -> int:
        if self.on_read is not None:
            called, self.on_read = self.on_read, None
            called()
        self.now += 1_000  # who waits actively must get somewhere
        return self.now

    def time_ns(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


@pytest.fixture
def clock() -> Clock:
    return Clock()


class StillClock(Clock):
    """A clock that moves only when the test moves it."""

    def monotonic_ns(self) -> int:
        return self.now


class PatientClock(Clock):
    """The time of a test, of which a machine that stands still takes nothing: only sleeps and looks count.

    It really sleeps, too, because the middleware and the recorder's disk need their time.
    """

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
        super().sleep(seconds)


@pytest.fixture
def run_patiently(tmp_path: Path) -> Callable[..., SimpleNamespace]:
    """Runs a test in the host composed by a :class:`PatientClock`, recorded into ``tmp_path / "run"``.

    What comes out is its ``result`` and ``run``, and what the rig counted: ``missed`` periods, ``late`` Commands.
    """

    def run(scenario: str, overrides: Sequence[str], *faults: str, pace: str = "realtime") -> SimpleNamespace:
        import rths_nodes
        from rths_nodes.app import hosts
        from rths_nodes.loop.options import run_options
        from rths_nodes.ros.hosting import composed, descriptions

        chosen = {"scenario": scenario, "overrides": overrides, "host": "composed", "pace": pace}
        nodes = descriptions.describe(run_options(chosen | {"record": tmp_path / "run", "faults": faults}))
        with composed.ros_context() as context:
            test = composed.ComposedTest(clock=PatientClock())
            for each in nodes:
                test.add(each.role, hosts.open_writer, context, each.parameters).start()
            result, rig = test.run(context), test.rig
            result.judge([node.phase.exit_code for node in test.nodes])
            missed, late = rig.pacer.missed if rig.pacer else 0, rig.rig.late_commands
            for node in test.nodes:
                node.destroy_node()
        recorded = rths_nodes.read(tmp_path / "run")
        return SimpleNamespace(result=result, run=recorded, missed=missed, late=late)

    return run


@pytest.fixture
def still_clock() -> StillClock:
    return StillClock()


def until(true: Callable[[], Any], seconds: float = 10.0) -> None:
    """Discovery takes its time."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "not found"
        time.sleep(0.01)


@pytest.fixture(params=[True, False], ids=["with gids", "without"])
def stream(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A node that speaks on the topic of the Commands, by its ``outlet``, and one that listens, by its ``inbox``.

    ``stranger`` makes a publisher of somebody else's, ``eavesdropper`` somebody else's inbox that has found the
    speaker; both are of ``run``. Where a distribution tells no gids, and with those of the others left out, the
    bytes alone say whose a message is.
    """
    from rclpy.node import Node

    from rths_nodes.core.wire.layout import RunMark
    from rths_nodes.ros.hosting import composed
    from rths_nodes.ros.transport import endpoints
    from rths_nodes.ros.transport.endpoints import StreamPublisher

    if not request.param:
        monkeypatch.setattr(endpoints, "GID", "none")
    row, run = names.TOPICS["command"], RunMark(mark_of("one", "drawn"))
    kind, qos = endpoints.message_class(row.type), endpoints.quality(row)
    with composed.ros_context() as context:
        speaker, listener, other = nodes = [
            Node(name, context=context, namespace="rths") for name in ("speaker", "listener", "other")
        ]
        outlet = StreamPublisher(speaker.create_publisher(kind, "command", qos))

        def inbox_of(node: Any) -> Any:
            there = outlet.publisher.get_subscription_count()
            found = endpoints.open_inbox(
                node, row, endpoints.ByHand(), run, name="command", speakers=("/rths/speaker",)
            )
            until(lambda: outlet.publisher.get_subscription_count() == there + 1)
            until(lambda: found.guard.look() or found.guard.complete)
            outlet.look()
            return found

        yield SimpleNamespace(
            run=run,
            outlet=outlet,
            inbox=inbox_of(listener),
            stranger=lambda: other.create_publisher(kind, "command", qos),
            eavesdropper=lambda: inbox_of(other),
            until=until,
        )
        for node in nodes:
            node.destroy_node()


class Namespaces:
    """Two network namespaces, each as a machine: ``run_in`` are the words that run a command there."""

    def __init__(self) -> None:
        self.names = [f"rths_{os.getpid()}_{end}" for end in "ab"]
        self.run_in = tuple(["ip", "netns", "exec", name] for name in self.names)

    def ip(self, words: str) -> None:
        subprocess.run(["ip", *words.split()], check=True, capture_output=True)

    def connect(self) -> None:
        """Addresses for the devices ``cable`` that the ends have."""
        for number, name in enumerate(self.names, 1):
            for words in ("addr add 10.77.0.{}/24 dev cable", "link set cable up", "link set lo up"):
                self.ip(f"-n {name} {words.format(number)}")
            self.ip(f"-n {name} route add 224.0.0.0/4 dev cable")

    def __enter__(self) -> Namespaces:
        try:
            for name in self.names:
                self.ip(f"netns add {name}")
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            pytest.skip(f"no network namespaces here: {error}")
        return self

    def __exit__(self, *raised: object) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@pytest.fixture
def two_machines() -> Iterator[Any]:
    """Two network namespaces with a cable between them: what runs a command in each."""
    with Namespaces() as namespaces:
        first, second = namespaces.names
        namespaces.ip(f"-n {first} link add cable type veth peer name cable netns {second}")
        namespaces.connect()
        yield namespaces.run_in


@pytest.fixture
def two_laboratories() -> Iterator[Callable[..., Any]]:
    """As ``two_machines``, far apart: called with delay and jitter of a frame (ms), and the share that is lost."""
    with Namespaces() as namespaces, ExitStack() as stack:

        def apart(delay: float, jitter: float = 0.0, lost: float = 0.0) -> Any:
            numbers = [str(each) for each in (delay, jitter, lost)]
            command = [sys.executable, relay.__file__, *namespaces.names, *numbers]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                pytest.skip("no /dev/net/tun here")
            namespaces.connect()
            return namespaces.run_in

        yield apart
