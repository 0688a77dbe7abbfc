# SPDX-License-Identifier: Apache-2.0
"""Nodes with inboxes that the test fills, test clocks, runs in one process, and network namespaces."""

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
from rths_nodes.core.wire import encode, mark_of
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros import names

RUN = mark_of("by hand")
"""Run of the nodes that a test creates without a run of their own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder with ``nodes``."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.nodes)


class Tray:
    """Inbox that the test fills."""

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()

    def put(self, data: bytes) -> None:
        self._waiting.append(data)

    def take(self) -> bytes | None:
        return self._waiting.popleft() if self._waiting else None

    def waited(self) -> int:
        return 0


class NullWriter:
    """Recording that stores the topics of its messages, and the information of its end."""

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


def trays(_: Any) -> Any:
    """Create an interposer that replaces each inbox of a node by a Tray, and stores sent messages by topic."""
    from rths_nodes.ros.transport.topics import Interposer  # needs ROS 2

    class Trays(Interposer):
        def __init__(self) -> None:
            self.sent: dict[str, list[bytes]] = {}

        def inbox(self, topic: str, inbox: Any) -> Any:
            return Tray()

        def sender(self, topic: str, send: Any) -> Any:
            messages = self.sent[topic] = []

            def store_and_send(data: bytes) -> None:
                messages.append(data)
                send(data)

            return store_and_send

    return Trays()


@contextmanager
def node_by_hand(
    role: str, namespace: str = names.NAMESPACE, clock: Any = None, interpose: Any = None, **values: Any
) -> Iterator[Any]:
    """Run the active node ``role`` in ``namespace``, with a Tray for each of its inboxes."""
    from rths_nodes.ros.hosting import composed

    record = {"record": "nowhere"} if role == names.RECORDER else {}
    parameters = {"scenario": "chen_ricles_2010"} | record | values
    options = {"interpose": interpose or trays} | ({"clock": clock} if clock else {})
    with composed.ros_context() as context:
        node = composed.make_node(
            role, NullWriter, context, parameters, cli_args=composed.in_namespace(f"/{namespace}"), **options
        )
        node.start()
        if not node.topics.run.mark:
            node.topics.join(RUN)
        try:
            yield node
        finally:
            node.destroy_node()


def put(node: Any, topic: str, /, **values: Any) -> None:
    """Put a message of a topic with a low rate into the inbox of ``node``; it belongs to the run of the node."""
    header = {"run": node.topics.run.mark}
    node.topics.inboxes[topic].put(encode(names.TOPICS[topic].message, header | values))


def put_sample(node: Any, topic: str, sample: Any, stamp: int = 0) -> None:
    """Put a Target, Command or Measurement into the inbox of ``node``."""
    node.topics.inboxes[topic].put(getattr(node.topics.codec, f"pack_{topic}")(sample, stamp))


def put_state(node: Any, state: State, sample: int, reason: str = "") -> None:
    """Let ``node`` receive a TestState immediately."""
    put(node, "test_state", state=int(state), sample=sample, reason=reason)
    node.handshake.receive_state()


def put_summary(node: Any, sender: str, /, **sent: int) -> None:
    """Put the Summary of ``sender``, with its numbers of sent messages, into the inbox of ``node``."""
    numbers = flatten(sent, "sent")
    put(node, "summary", node=sender, names=list(numbers), values=list(numbers.values()))


def work(node: Any) -> None:
    """Let ``node`` work until it has nothing to do."""
    while node.work():
        pass


@pytest.fixture(scope="session")
def by_hand() -> SimpleNamespace:
    """Nodes with inboxes that the test fills, and the functions that fill them."""
    puts = {"put": put, "put_sample": put_sample, "put_state": put_state, "put_summary": put_summary}
    return SimpleNamespace(node=node_by_hand, work=work, **puts)


@contextmanager
def nodes_in_one_process(options: dict[str, Any], axes: Sequence[str] = (), **made: Any) -> Iterator[Any]:
    """Start the nodes of a run in one process; yield them by peer, and their context."""
    from rths_nodes.app import hosts
    from rths_nodes.loop.options import run_options
    from rths_nodes.ros.hosting import composed, node_processes

    with composed.ros_context() as context:
        nodes = {}
        for d in node_processes.describe(run_options(options), axes):
            values = d.parameters, composed.in_namespace(f"/{d.namespace}")
            nodes[d.peer] = composed.make_node(d.role, hosts.open_writer, context, *values, **made)
        for node in nodes.values():
            node.start()
        yield nodes, context
        for node in nodes.values():
            node.destroy_node()


@pytest.fixture(scope="session")
def composed_nodes() -> Callable[..., Any]:
    return nodes_in_one_process


@pytest.fixture
def act_during_run(tmp_path: Path) -> Callable[..., SimpleNamespace]:
    """Runs nodes in one process, and calls ``action(nodes by peer)`` once after sample 100.

    Returns the ``nodes``, which are destroyed, the ``machine`` of the rig, the result of the action, and the
    recorded ``run``.
    """

    def run(
        action: Callable[[dict[str, Any]], Any], scenario: str, *overrides: str, axes: Sequence[str] = ()
    ) -> SimpleNamespace:
        import rths_nodes
        from rths_nodes.ros.hosting.executor import LoopExecutor

        results = []
        options = {"scenario": scenario, "overrides": overrides, "host": "composed", "record": tmp_path / "run"}
        with nodes_in_one_process(options, axes) as (nodes, context):

            def idle() -> None:
                if nodes["actuator"].rig.sample > 100 and not results:
                    results.append(action(nodes))

            LoopExecutor(list(nodes.values()), context, idle).run()
            nodes["recorder"].close()
        machine = nodes["actuator"].rig.machine
        assert results, machine.reason
        recording = rths_nodes.read(tmp_path / "run")
        return SimpleNamespace(nodes=nodes, machine=machine, result=results[0], run=recording)

    return run


class Clock:
    """Clock that advances by 1 us per reading. ``on_read`` is called once, before the next reading."""

    def __init__(self) -> None:
        self.now = 1_000_000_000
        self.on_read: Callable[[], None] | None = None

    def monotonic_ns(self) -> int:
        if self.on_read is not None:
            on_read, self.on_read = self.on_read, None
            on_read()
        self.now += 1_000  # busy waits must end
        return self.now

    def time_ns(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


@pytest.fixture
def clock() -> Clock:
    return Clock()


class StillClock(Clock):
    """Clock that only the test advances."""

    def monotonic_ns(self) -> int:
        return self.now


class PatientClock(Clock):
    """Clock that advances by sleeps and readings only, so that a busy machine makes no sample late.

    Sleeps take real time as well, which the middleware and the disk of the recorder need.
    """

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
        super().sleep(seconds)


@pytest.fixture
def run_patiently(tmp_path: Path) -> Callable[..., SimpleNamespace]:
    """Runs a test on the host composed with a :class:`PatientClock`, recorded into ``tmp_path / "run"``.

    Returns its ``result``, the recorded ``run``, and the numbers of ``missed`` periods and ``late`` Commands.
    """

    def run(scenario: str, overrides: Sequence[str], *faults: str, pace: str = "realtime") -> SimpleNamespace:
        import rths_nodes
        from rths_nodes.app import hosts
        from rths_nodes.loop.options import run_options
        from rths_nodes.ros.hosting import composed, node_processes

        options = {"scenario": scenario, "overrides": overrides, "host": "composed", "pace": pace}
        options |= {"record": tmp_path / "run", "faults": faults}
        with composed.ros_context() as context:
            test = composed.ComposedTest(clock=PatientClock())
            for d in node_processes.describe(run_options(options)):
                test.add(d.role, hosts.open_writer, context, d.parameters).start()
            result, rig = test.run(context), test.rig
            result.judge([node.phase.exit_code for node in test.nodes])
            missed, late = rig.pacer.missed if rig.pacer else 0, rig.rig.late_commands
            for node in test.nodes:
                node.destroy_node()
        recording = rths_nodes.read(tmp_path / "run")
        return SimpleNamespace(result=result, run=recording, missed=missed, late=late)

    return run


@pytest.fixture
def still_clock() -> StillClock:
    return StillClock()


def until(condition: Callable[[], Any]) -> None:
    """Wait for discovery, at most 10 s."""
    end = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < end, "not discovered"
        time.sleep(0.01)


@pytest.fixture(params=[True, False], ids=["with gids", "without"])
def stream(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A node that publishes Commands by its ``outlet``, and a node that receives them by its ``inbox``.

    ``stranger`` creates a publisher of a foreign node, ``eavesdropper`` a foreign inbox that has discovered the
    outlet; both belong to ``run``. Without gids, only the content of a message identifies its publisher.
    """
    from rclpy.node import Node

    from rths_nodes.core.wire import RunMark
    from rths_nodes.ros.hosting import composed
    from rths_nodes.ros.transport import endpoints
    from rths_nodes.ros.transport.endpoints import StreamPublisher

    if not request.param:
        monkeypatch.setattr(endpoints, "GID", "none")
    row, run = names.TOPICS["command"], RunMark(mark_of("one", "drawn"))
    kind, qos = endpoints.message_class(row.type), endpoints.quality(row)
    with composed.ros_context() as context:
        sender, receiver, foreign = nodes = [
            Node(name, context=context, namespace="rths") for name in ("speaker", "listener", "other")
        ]
        outlet = StreamPublisher(sender.create_publisher(kind, "command", qos))

        def inbox_of(node: Any) -> Any:
            subscriptions = outlet.publisher.get_subscription_count()
            inbox = endpoints.open_inbox(
                node, row, endpoints.ByHand(), run, name="command", speakers=("/rths/speaker",)
            )
            until(lambda: outlet.publisher.get_subscription_count() == subscriptions + 1)
            until(lambda: inbox.guard.look() or inbox.guard.complete)
            outlet.look()
            return inbox

        yield SimpleNamespace(
            run=run,
            outlet=outlet,
            inbox=inbox_of(receiver),
            stranger=lambda: foreign.create_publisher(kind, "command", qos),
            eavesdropper=lambda: inbox_of(foreign),
            until=until,
        )
        for node in nodes:
            node.destroy_node()


class Namespaces:
    """Two network namespaces that emulate two machines; ``run_in`` are the prefixes of commands in them."""

    def __init__(self) -> None:
        self.names = [f"rths_{os.getpid()}_{end}" for end in "ab"]
        self.run_in = tuple(["ip", "netns", "exec", name] for name in self.names)

    def ip(self, arguments: str) -> None:
        subprocess.run(["ip", *arguments.split()], check=True, capture_output=True)

    def connect(self) -> None:
        """Configure the device ``cable`` at both ends."""
        for number, name in enumerate(self.names, 1):
            for command in (f"addr add 10.77.0.{number}/24 dev cable", "link set cable up", "link set lo up"):
                self.ip(f"-n {name} {command}")
            self.ip(f"-n {name} route add 224.0.0.0/4 dev cable")

    def __enter__(self) -> Namespaces:
        try:
            for name in self.names:
                self.ip(f"netns add {name}")
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            pytest.skip(f"network namespaces are not available: {error}")
        return self

    def __exit__(self, *raised: object) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@pytest.fixture
def two_machines() -> Iterator[Any]:
    """Prefixes of commands in two network namespaces that a cable connects."""
    with Namespaces() as namespaces:
        first, second = namespaces.names
        namespaces.ip(f"-n {first} link add cable type veth peer name cable netns {second}")
        namespaces.connect()
        yield namespaces.run_in


@pytest.fixture
def two_laboratories() -> Iterator[Callable[..., Any]]:
    """As ``two_machines``, by a relay with ``delay`` and ``jitter`` of a frame, ms, and the ``lost`` share."""
    with Namespaces() as namespaces, ExitStack() as stack:

        def apart(delay: float, jitter: float = 0.0, lost: float = 0.0) -> Any:
            command = [sys.executable, relay.__file__, *namespaces.names, *map(str, (delay, jitter, lost))]
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                pytest.skip("/dev/net/tun is not available")
            namespaces.connect()
            return namespaces.run_in

        yield apart
