# SPDX-License-Identifier: Apache-2.0
"""Rate of foreign messages that a rig tolerates: python benchmarks/strangers.py

A foreign process publishes messages on every topic of the rig, at several rates. Half of the messages cannot be
read, the other half belongs to another run. With `--services`, the process sends requests to the parameter
services of the nodes instead, from clients that leave after a second. At the same time `chen_ricles_2010` runs in
real time. For each rate, prints the outcome of the test, the bridged and missed samples, the time of the loop, and
the ratio of the 99th percentile to the first row, which is the floor without foreign messages. Rates apply to one
topic or service.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rths_nodes.core.samples import Command, Measurement, Target
from rths_nodes.core.wire.codec import Codec
from rths_nodes.core.wire.layout import ENCAPSULATION, RunMark, mark_of
from rths_nodes.core.wire.plain import encode
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.ros import names

NAME = "chen_ricles_2010"
TOPICS = [topic for topic in names.TOPICS.values() if topic.type.startswith("rths_nodes/")]
SERVICES = ("get_parameters", "list_parameters", "describe_parameters")
CLIENT_S = 1.0
"""Life of a client, s. It leaves requests behind whose answers the middleware cannot deliver."""
BURSTS = 500.0
"""Times a second that the stranger sends what is due."""


def foreign_codec() -> Codec:
    """Return a codec of messages as the rig has them, but of another run."""
    return Assembly(files.load(NAME)).codec(RunMark(mark_of("of somebody else")))


def messages(topic: names.Topic, codec: Codec) -> list[bytes]:
    """One that cannot be read, and one of another run."""
    x, y = np.zeros(codec.sizes[0]), np.zeros(codec.sizes[1])
    made = {
        "target": lambda: codec.pack_target(Target(500, x, x, x, x, x, x), 0),
        "command": lambda: codec.pack_command(Command(500, y, y), 0),
        "measurement": lambda: codec.pack_measurement(Measurement(500, y, y, y), 0),
        "true_state": lambda: codec.pack_measurement(Measurement(500, y, y, y), 0),
        "compensator_state": lambda: codec.pack_state([0.0] * codec.sizes[2], 500, 0, 0),
        "updating_state": lambda: codec.pack_updating([], 500, 0, 0),  # the test updates nothing
    }
    header = {"run": codec.run.mark}
    whole = made[topic.name]() if topic.stream else encode(topic.message, header)
    return [ENCAPSULATION + b"\xff" * (len(whole) - len(ENCAPSULATION)), whole]


Row = tuple[Callable[[Any], object], list[Any]]
"""What sends a message, and the messages that it sends in turn."""


def publishers(node: Any) -> list[Row]:
    """A publisher on each topic of the rig."""
    from rths_nodes.ros.transport.endpoints import message_class, quality

    codec = foreign_codec()

    def publisher(topic: names.Topic) -> Any:
        return node.create_publisher(message_class(topic.type), f"/{names.NAMESPACE}/{topic.name}", quality(topic))

    return [(publisher(topic).handle.publish_raw, messages(topic, codec)) for topic in TOPICS]


def clients(node: Any) -> list[Row]:
    """A client of each parameter service that reads, of each node of the loop. No answer is taken."""
    from rcl_interfaces import srv

    found = []
    for role in names.LOOP:
        for service in SERVICES:
            kind = getattr(srv, service.title().replace("_", ""))
            client = node.create_client(kind, f"/{names.NAMESPACE}/{role}/{service}")
            found.append((client.handle.send_request, [kind.Request()]))
    return found


def flood(rate: float, services: bool) -> None:
    """Send ``rate`` messages a second by each row, until this process is ended."""
    from rclpy.node import Node

    from rths_nodes.ros.hosting.composed import ros_context

    rows_of, life = (clients, CLIENT_S) if services else (publishers, math.inf)
    with ros_context() as context:
        began, sent = time.monotonic(), 0
        while True:
            node = Node("stranger", context=context, namespace="lab", start_parameter_services=False)
            rows, end = rows_of(node), time.monotonic() + life
            while time.monotonic() < end:
                due = int((time.monotonic() - began) * rate)
                for number in range(sent, due):
                    for send, each in rows:
                        send(each[number % len(each)])
                sent = due
                print(sent, flush=True)
                time.sleep(1.0 / BURSTS)
            node.destroy_node()


def run(host: str, rate: float, seconds: float, services: bool = False) -> dict[str, Any]:
    """Return the result of `rths run --json`, and how many messages a second the stranger has sent."""
    stranger = None
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told"
        if rate:
            with told.open("w") as file:
                words = [sys.executable, __file__, "--flood", str(rate), *(["--services"] if services else [])]
                stranger = subprocess.Popen(words, stdout=file)
            while not told.stat().st_size:
                time.sleep(0.05)
        began, before = time.monotonic(), _last(told)
        words = ["run", NAME, "--host", host, "--pace", "realtime", "--json", "--set", f"duration={seconds:g}"]
        words += ["--record", str(Path(folder) / "run")]
        done = subprocess.run(
            [sys.executable, "-m", "rths_nodes.app.cli", *words], capture_output=True, text=True, check=False
        )
        sent = (_last(told) - before) / (time.monotonic() - began)
        if stranger:
            stranger.kill()
            stranger.wait()
    if not done.stdout:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout) | {"sent": sent}


def _last(told: Path) -> int:
    lines = told.read_text().splitlines() if told.exists() else []
    return int(lines[-2]) if len(lines) > 1 else 0  # the last one may not be whole


def line(host: str, rate: float, found: dict[str, Any], floor: float) -> str:
    """One row of the table; ``floor`` is the 99th percentile of the loop without a stranger, s."""
    timing = found["timing"]
    loop = timing.get("loop", {})
    median, p99 = (1e6 * loop.get(name, float("nan")) for name in ("median_s", "p99_s"))
    dropped = sum("foreign messages" in note for note in found["notes"])
    counts = [timing.get(name, 0) for name in ("bridged", "missed")]
    row = f"{host:10}{rate:8.0f}{found['sent']:8.0f}  {found['outcome']:9}{found['samples']:8d}"
    row += f"{counts[0]:8.0f}{counts[1]:8.0f}{median:9.0f}{p99:9.0f}{p99 * 1e-6 / floor:8.2f}"
    return f"{row}   {found['reason'] or ('strangers dropped' if dropped else '')}"


HEAD = (
    "host        rate a   sent a  outcome    samples bridged  missed  loop, us     p99   ratio\n"
    + " " * 11
    + "one     one"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=float, nargs="*", default=[0.0, 100.0, 300.0, 1000.0, 3000.0])
    parser.add_argument("--hosts", nargs="*", default=["processes", "composed"])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--flood", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--services", action="store_true", help="requests to services in place of messages")
    options = parser.parse_args()
    if options.flood:
        flood(options.flood, options.services)
    what = f"{len(names.LOOP) * len(SERVICES)} services" if options.services else f"{len(TOPICS)} topics"
    print(f"{what}, {os.cpu_count()} processors\n{HEAD}", flush=True)
    for host in options.hosts:
        floor = float("nan")
        for rate in options.rates:
            for _ in range(options.runs):
                found = run(host, rate, options.seconds, options.services)
                if math.isnan(floor):
                    floor = found["timing"].get("loop", {}).get("p99_s", floor)
                print(line(host, rate, found, floor), flush=True)


if __name__ == "__main__":
    main()
