# SPDX-License-Identifier: Apache-2.0
"""Stops of the executive while Python is blocked, suspended or dead: the program alone brakes, and then ends."""

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
from rths_nodes.loop.executive.memory import Control
from rths_nodes.loop.executive.messages import BRAKED, RowLayout
from rths_nodes.loop.executive.parts import live_parts
from rths_nodes.loop.executive.running import ENDED, OPERATOR, PARENT, SILENT, TRIP
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
        ctypes.PyDLL(None).usleep(int(sys.argv[1]))  # holds the lock of the interpreter

blocked = []
how = dict(engine="executive", pace="realtime", progress=progress, host=sys.argv[2])
with orderly_stop() as interrupted:
    done = hosts.run("{name}", {overrides}, interrupted=interrupted, **how)
print(json.dumps([done.outcome, done.reason]))
"""
PATIENCE_S = 60.0
HOSTS = ("embedded", "composed")


def awaited(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


class Watched:
    """A test in another Python, whose interpreter holds its lock for some time; its program and control block."""

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
        """Return whether the program brakes because of this stop word, and ends."""
        ended = awaited(lambda: self.control.state == ENDED)
        return ended and self.control.stopped_by == word

    def ending(self) -> tuple[str, str]:
        """Return outcome and reason, as Python reports them."""
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

    def acceleration(self, deceleration: float) -> float:
        """Return the largest acceleration of the safe stop, divided by the declared one."""
        parts = live_parts(checked_loop(files.load(NAME, LONG)).assembly)
        assert not isinstance(parts, str)
        control, layout = self.control, RowLayout(parts)
        rows = np.frombuffer(self._map, np.float64, control.slots * layout.words, 8 * control.ring)
        count = min(control.head, control.slots)
        order = np.arange(control.head - count, control.head) % control.slots
        rows = rows.reshape(control.slots, -1)[order]
        kinds = rows.view(np.int64)[:, 1]
        first = int(np.flatnonzero(kinds == BRAKED)[0])
        command = rows[first - 2 :, layout.begins()[0] + layout.samples["command"].start]
        dt = files.load(NAME).dt
        return float(np.abs(np.diff(command, 2)).max()) / dt**2 / deceleration

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
        pytest.param((20.0, host), number, word, id=f"{words} {host}")
        for host in HOSTS
        for number, word, words in (
            (signal.SIGTERM, OPERATOR, "terminated"),
            (signal.SIGSTOP, SILENT, "suspended"),
            (signal.SIGKILL, PARENT, "killed"),
        )
    ],
    indirect=["watched"],
)
def test_the_program_brakes_without_python(watched: Watched, number: int, word: int) -> None:
    watched.send(number)
    assert watched.stops_by(word)
    limits = files.load(NAME).axes["story_1"].limits
    assert watched.acceleration(limits.deceleration) <= 1.0 + 1e-9
    assert watched.gone()


@pytest.mark.nodes
@pytest.mark.parametrize(("kind", "word"), [("stop", OPERATOR), ("trip", TRIP)])
@pytest.mark.parametrize("watched", [(20.0, "composed")], indirect=True)
def test_the_page_sets_the_stop_word_while_python_is_blocked(watched: Watched, kind: str, word: int) -> None:
    assert stop_by_page(kind)
    assert watched.stops_by(word)
    limits = files.load(NAME).axes["story_1"].limits
    assert watched.acceleration(limits.deceleration) <= 1.0 + 1e-9
    assert not stop_by_page(kind)


@pytest.mark.nodes
@pytest.mark.parametrize("watched", [(20.0, "embedded")], indirect=True)
def test_the_program_itself_can_be_stopped(watched: Watched) -> None:
    pid = int(watched.program.name)
    os.kill(pid, signal.SIGTSTP)  # Ctrl-Z does not suspend it
    os.kill(pid, signal.SIGINT)
    assert watched.stops_by(OPERATOR)


WAYS: dict[str, tuple[tuple[str, ...], Callable[[Watched], object], int]] = {
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
"""Ways to stop a test: the hosts that have it, what is done, and the stop word."""


def stop_by_page(kind: str) -> bool:
    from rths_nodes.ros.hosting.stop_client import stop_executive

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
    """A stop by a random way at a random sample, with Python free or blocked for up to 0.5 s."""
    chance = random.Random(f"stops {seed}")
    way = list(WAYS)[seed % len(WAYS)]
    hosts, stop, word = WAYS[way]
    host, blocked_s, first = (
        chance.choice(hosts),
        chance.choice([0.0, chance.uniform(0.1, 0.5)]),
        chance.randrange(4000),
    )
    watched = Watched(blocked_s, host, first)
    try:
        stop(watched)
        assert watched.stops_by(word), (way, host, watched.control.stopped_by)
        limits = files.load(NAME).axes["story_1"].limits
        assert watched.acceleration(limits.deceleration) <= 1.0 + 1e-9
        assert watched.gone()
        assert watched.control.lost == 0
        if word in (OPERATOR, TRIP):
            outcome, reason = watched.ending()
            assert outcome == ("held" if word == OPERATOR else "tripped")
            assert mentions(reason, f"sample {watched.control.stopped_at}")
    finally:
        watched.close()
