"""Nodes whose inboxes are filled by hand: what arrives, and when, is the test's choice."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rths_nodes.core.flat_names import flatten
from rths_nodes.core.wire.plain import encode
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros import names


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

    def write(self, topic: str, data: bytes, stamp_ns: int) -> None:
        self.written.append(topic)

    def flush_if_due(self) -> None: ...

    def flush(self) -> None: ...

    def close(self, information: dict[str, str]) -> None:
        self.information = information


@contextmanager
def node_by_hand(role: str, namespace: str = names.NAMESPACE, **values: Any) -> Iterator[Any]:
    """The node ``role`` in ``namespace``, active, with a Tray for each of its inboxes."""
    from rths_nodes.ros.hosting import composed  # not where ROS 2 is missing

    own = {"record": "nowhere"} if role == names.RECORDER else {}
    with composed.ros_context() as context:
        given = {"scenario": "chen_ricles_2010"} | own | values
        words = ["--ros-args", "-r", f"__ns:=/{namespace}"]
        node = composed.make_node(role, NullWriter, context, given, cli_args=words)
        node.start()
        subscriptions, node.inboxes = node.inboxes, {name: Tray() for name in node.inboxes}
        try:
            yield node
        finally:
            node.inboxes = subscriptions
            node.destroy_node()


def put(node: Any, topic: str, /, **values: Any) -> None:
    """A message at a low rate."""
    node.inboxes[topic].put(encode(names.TOPICS[topic].message, values))


def put_state(node: Any, state: State, sample: int, reason: str = "") -> None:
    """A TestState, heard at once."""
    put(node, "test_state", state=int(state), sample=sample, reason=reason)
    node._next_look = 0
    node._ready_told = True  # there are no endpoints to be matched
    node.look()


def put_summary(node: Any, speaker: str, /, **sent: int) -> None:
    """The last words of ``speaker``, with the numbers of messages that it has sent."""
    numbers = flatten(sent, "sent")
    put(node, "summary", node=speaker, names=list(numbers), values=list(numbers.values()))


@pytest.fixture(scope="session")
def by_hand() -> SimpleNamespace:
    """Nodes by hand, and what is put into their inboxes."""
    return SimpleNamespace(node=node_by_hand, put=put, put_state=put_state, put_summary=put_summary)


class Clock:
    """Stands for the module ``time``: it runs when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000_000_000

    def monotonic_ns(self) -> int:
        self.now += 1_000  # who waits actively must get somewhere
        return self.now

    def monotonic(self) -> float:
        return self.monotonic_ns() * 1e-9

    def time_ns(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    from rths_nodes.loop import pacing
    from rths_nodes.ros.nodes import actuator, base, compensator, integrator, monitor

    for module in (actuator, compensator, integrator, monitor, pacing, base):
        monkeypatch.setattr(module, "time", clock)
    return clock
