# SPDX-License-Identifier: Apache-2.0
"""Tests of stops of the executive while Python is blocked, suspended or dead: the program brakes, then exits."""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from messages import mentions

from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.executive.running import (
    BRAKED,
    ENDED,
    HEAD,
    OPERATOR,
    PARENT,
    SILENT,
    TRIP,
    Control,
    RowLayout,
    live_parts,
)
from rths_nodes.loop.options import NAMESPACE
from rths_nodes.loop.scenario import files
from rths_nodes.ros.names import ACTUATOR
from rths_nodes.ros.names import TRIP as TRIP_TOPIC

NAME, LONG = "chen_ricles_2010", ["duration=30"]
TEST = """\
import ctypes, json, sys
from rths_nodes.app import hosts
from rths_nodes.loop.interrupts import orderly_stop

def progress(sample, _):
    if sample > int(sys.argv[3]) and not blocked:
        blocked.append(sample)
        print("under way", flush=True)
        ctypes.PyDLL(None).usleep(int(sys.argv[1]))  # holds the GIL

blocked = []
options = dict(engine="executive", pace="realtime", progress=progress, host=sys.argv[2])
with orderly_stop() as interrupted:
    result = hosts.run("{name}", {overrides}, interrupted=interrupted, **options)
print(json.dumps([result.outcome, result.reason]))
"""
TIMEOUT_S = 60.0
HOSTS = ("embedded", "composed")


def awaited(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + TIMEOUT_S
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


class Watched:
    """A test in another Python that holds the GIL for ``blocked_s``, with its program and control block."""

    def __init__(self, blocked_s: float, host: str, first: int = 200) -> None:
        text = TEST.format(name=NAME, overrides=LONG)
        command = [sys.executable, "-c", text, str(round(1e6 * blocked_s)), host, str(first)]
        path = os.pathsep.join(sys.path)
        self.python = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path})
        assert self.python.stdout is not None
        assert self.python.stdout.readline() == b"under way\n"
        pid = self.python.pid
        self.program = Path("/proc", Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        memory = next(path for path in (self.program / "fd").iterdir() if "rths_executive" in os.readlink(path))
        with memory.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.control = Control.from_buffer(self._map)

    def send(self, number: int) -> None:
        os.kill(self.python.pid, number)

    def stops_by(self, word: int) -> bool:
        """Return true if the program brakes because of this stop word, and exits."""
        return awaited(lambda: self.control.state == ENDED) and self.control.stopped_by == word

    def ending(self) -> tuple[str, str]:
        """Return outcome and reason as Python reports them."""
        assert self.python.stdout is not None
        outcome, reason = json.loads(self.python.stdout.readline())
        return outcome, reason

    def gone(self) -> bool:
        def ended() -> bool:
            try:
                return "Z" in (self.program / "stat").read_text().split()
            except OSError:
                return True

        return awaited(ended)

    def check_deceleration(self) -> None:
        """The safe stop stays within the declared deceleration."""
        parts = live_parts(checked_loop(files.load(NAME, LONG)).assembly)
        assert not isinstance(parts, str)
        control, layout = self.control, RowLayout(parts)
        rows = np.frombuffer(self._map, np.float64, control.slots * layout.words, 8 * control.ring)
        count = min(control.head, control.slots)
        order = np.arange(control.head - count, control.head) % control.slots
        rows = rows.reshape(control.slots, -1)[order]
        kinds = rows.view(np.int64)[:, 1]
        first = int(np.flatnonzero(kinds == BRAKED)[0])
        command = rows[first - 2 :, HEAD + layout.samples["command"].start]
        scenario = files.load(NAME)
        largest = scenario.axes["story_1"].limits.deceleration * scenario.dt**2
        assert np.abs(np.diff(command, 2)).max() <= largest * (1.0 + 1e-9)

    def close(self) -> None:
        self.python.kill()
        self.python.wait()
        assert self.python.stdout is not None
        self.python.stdout.close()


@pytest.fixture
def watched(request: pytest.FixtureRequest) -> Iterator[Watched]:
    if "composed" in request.param:
        pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    test = Watched(*request.param)
    yield test
    test.close()


@pytest.mark.nodes
@pytest.mark.parametrize(
    ("watched", "number", "word"),
    [
        pytest.param((20.0, host), number, word, id=f"{name} {host}")
        for host in HOSTS
        for number, word, name in (
            (signal.SIGTERM, OPERATOR, "terminated"),
            (signal.SIGSTOP, SILENT, "suspended"),
            (signal.SIGKILL, PARENT, "killed"),
        )
    ],
    indirect=["watched"],
)
def test_program_brakes_without_python(watched: Watched, number: int, word: int) -> None:
    watched.send(number)
    assert watched.stops_by(word)
    watched.check_deceleration()
    assert watched.gone()


@pytest.mark.nodes
@pytest.mark.parametrize(("kind", "word"), [("stop", OPERATOR), ("trip", TRIP)])
@pytest.mark.parametrize("watched", [(20.0, "composed")], indirect=True)
def test_page_stops_while_python_is_blocked(watched: Watched, kind: str, word: int) -> None:
    assert stop_by_page(kind)
    assert watched.stops_by(word)
    watched.check_deceleration()
    assert not stop_by_page(kind)


@pytest.mark.nodes
@pytest.mark.parametrize("watched", [(20.0, "embedded")], indirect=True)
def test_program_stops_on_sigint(watched: Watched) -> None:
    pid = int(watched.program.name)
    os.kill(pid, signal.SIGTSTP)  # Ctrl-Z does not suspend it
    os.kill(pid, signal.SIGINT)
    assert watched.stops_by(OPERATOR)


CAUSES: dict[str, tuple[tuple[str, ...], Callable[[Watched], object], int]] = {
    "Ctrl-C": (HOSTS, lambda watched: watched.send(signal.SIGINT), OPERATOR),
    "SIGTERM": (HOSTS, lambda watched: watched.send(signal.SIGTERM), OPERATOR),
    "terminal closed": (HOSTS, lambda watched: watched.send(signal.SIGHUP), OPERATOR),
    "suspended": (HOSTS, lambda watched: watched.send(signal.SIGSTOP), SILENT),
    "killed": (HOSTS, lambda watched: watched.send(signal.SIGKILL), PARENT),
    "page, stop": (("composed",), lambda watched: stop_by_page("stop"), OPERATOR),
    "page, trip": (("composed",), lambda watched: stop_by_page("trip"), TRIP),
    "topic": (("composed",), lambda watched: publish_trip(), TRIP),
    "service": (("composed",), lambda watched: call_stop(), OPERATOR),
}
"""Causes of a stop: hosts, action and stop word."""


def stop_by_page(kind: str) -> bool:
    from rths_nodes.ros.transport.line import stop_executive

    return stop_executive(NAMESPACE, kind)


def publish_trip() -> None:
    import rclpy

    from rths_nodes.msg import Trip
    from rths_nodes.ros.hosting.composed import ros_context

    with ros_context() as context:
        node = rclpy.create_node("passer_by", context=context)
        publisher = node.create_publisher(Trip, f"/{NAMESPACE}/{TRIP_TOPIC}", 1)
        awaited(lambda: publisher.get_subscription_count() > 0)
        for _ in range(5):
            publisher.publish(Trip(reason="a passer-by"))
            time.sleep(0.05)
        node.destroy_node()


def call_stop() -> None:
    import rclpy
    from std_srvs.srv import Trigger

    from rths_nodes.ros.hosting.composed import ros_context

    with ros_context() as context:
        node = rclpy.create_node("passer_by", context=context)
        client = node.create_client(Trigger, f"/{NAMESPACE}/{ACTUATOR}/stop")
        awaited(client.service_is_ready)
        client.call_async(Trigger.Request())
        time.sleep(0.2)
        node.destroy_node()


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(120))
def test_random_stops(seed: int) -> None:
    """A stop at a random sample, with Python free or blocked for up to 0.5 s."""
    chance = random.Random(f"stops {seed}")
    cause = list(CAUSES)[seed % len(CAUSES)]
    hosts, stop, word = CAUSES[cause]
    host, blocked_s = chance.choice(hosts), chance.choice([0.0, chance.uniform(0.1, 0.5)])
    watched = Watched(blocked_s, host, chance.randrange(4000))
    try:
        stop(watched)
        assert watched.stops_by(word), (cause, host, watched.control.stopped_by)
        watched.check_deceleration()
        assert watched.gone()
        assert watched.control.lost == 0
        if word in (OPERATOR, TRIP):
            outcome, reason = watched.ending()
            assert outcome == ("held" if word == OPERATOR else "tripped")
            assert mentions(reason, f"sample {watched.control.stopped_at}")
    finally:
        watched.close()
