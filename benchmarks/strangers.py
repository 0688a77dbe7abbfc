# SPDX-License-Identifier: Apache-2.0
"""Rate of foreign messages that a rig tolerates: python benchmarks/strangers.py

A foreign process publishes messages on every topic of the rig, at several rates, while `chen_ricles_2010` runs in
real time. Half of the messages are malformed, the other half belong to another run. With `--services`, the process
sends requests to the parameter services of the nodes instead, from clients that leave after a second. For each
rate, prints the outcome of the test, the bridged and missed samples, the time of the loop, and the ratio of the
99th percentile to the first row, which is the floor without foreign messages. Rates apply to one topic or service.
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
from rths_nodes.core.wire import ENCAPSULATION, Codec, RunMark, encode, mark_of
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.ros import names

NAME = "chen_ricles_2010"
TOPICS = [topic for topic in names.TOPICS.values() if topic.type.startswith("rths_nodes/")]
SERVICES = ("get_parameters", "list_parameters", "describe_parameters")
CLIENT_S = 1.0
"""Lifetime of a client, s. The middleware cannot deliver the answers to its last requests."""
BURSTS = 500.0
"""Rate of the bursts in which the stranger sends, Hz."""


def foreign_codec() -> Codec:
    """Return a codec for messages of another run on the same rig."""
    return Assembly(files.load(NAME)).codec(RunMark(mark_of("another run")))


def messages(topic: names.Topic, codec: Codec) -> list[bytes]:
    """Return a malformed message and a message of another run."""
    x, y = np.zeros(codec.sizes[0]), np.zeros(codec.sizes[1])
    packed = {
        "target": lambda: codec.pack_target(Target(500, x, x, x, x, x, x), 0),
        "command": lambda: codec.pack_command(Command(500, y, y), 0),
        "measurement": lambda: codec.pack_measurement(Measurement(500, y, y, y), 0),
        "true_state": lambda: codec.pack_measurement(Measurement(500, y, y, y), 0),
        "compensator_state": lambda: codec.pack_state([0.0] * codec.sizes[2], 500, 0, 0),
        "updating_state": lambda: codec.pack_updating([], 500, 0, 0),  # the test has no updating
    }
    message = packed[topic.name]() if topic.stream else encode(topic.message, {"run": codec.run.mark})
    return [ENCAPSULATION + b"\xff" * (len(message) - len(ENCAPSULATION)), message]


Row = tuple[Callable[[Any], object], list[Any]]
"""Function that sends a message, and its messages in turn."""


def publishers(node: Any) -> list[Row]:
    """Create a publisher on each topic of the rig."""
    from rths_nodes.ros.transport.endpoints import message_class, quality

    codec = foreign_codec()

    def publisher(topic: names.Topic) -> Any:
        return node.create_publisher(message_class(topic.type), f"/{names.NAMESPACE}/{topic.name}", quality(topic))

    return [(publisher(topic).handle.publish_raw, messages(topic, codec)) for topic in TOPICS]


def clients(node: Any) -> list[Row]:
    """Create a client of each reading parameter service of each node of the loop. Answers are not taken."""
    from rcl_interfaces import srv

    rows: list[Row] = []
    for role in names.LOOP:
        for service in SERVICES:
            kind = getattr(srv, service.title().replace("_", ""))
            client = node.create_client(kind, f"/{names.NAMESPACE}/{role}/{service}")
            rows.append((client.handle.send_request, [kind.Request()]))
    return rows


def flood(rate: float, services: bool) -> None:
    """Send ``rate`` messages per second with each row until this process is killed. Prints the number sent."""
    from rclpy.node import Node

    from rths_nodes.ros.hosting.composed import ros_context

    rows_of, life = (clients, CLIENT_S) if services else (publishers, math.inf)
    with ros_context() as context:
        start, sent = time.monotonic(), 0
        while True:
            node = Node("stranger", context=context, namespace="lab", start_parameter_services=False)
            rows, end = rows_of(node), time.monotonic() + life
            while time.monotonic() < end:
                due = int((time.monotonic() - start) * rate)
                for number in range(sent, due):
                    for send, messages in rows:
                        send(messages[number % len(messages)])
                sent = due
                print(sent, flush=True)
                time.sleep(1.0 / BURSTS)
            node.destroy_node()


def run(host: str, rate: float, seconds: float, services: bool = False) -> dict[str, Any]:
    """Return the result of `rths run --json`, and the rate at which the stranger sent (``sent``)."""
    stranger = None
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts"
        if rate:
            with counts.open("w") as file:
                command = [sys.executable, __file__, "--flood", str(rate), *(["--services"] if services else [])]
                stranger = subprocess.Popen(command, stdout=file)
            while not counts.stat().st_size:
                time.sleep(0.05)
        start, before = time.monotonic(), _last(counts)
        rths = [sys.executable, "-m", "rths_nodes.app.cli", "run", NAME, "--host", host, "--pace", "realtime"]
        rths += ["--json", "--set", f"duration={seconds:g}", "--record", f"{folder}/run"]
        done = subprocess.run(rths, capture_output=True, text=True, check=False)
        sent = (_last(counts) - before) / (time.monotonic() - start)
        if stranger:
            stranger.kill()
            stranger.wait()
    if not done.stdout:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout) | {"sent": sent}


def _last(counts: Path) -> int:
    lines = counts.read_text().splitlines() if counts.exists() else []
    return int(lines[-2]) if len(lines) > 1 else 0  # the last line may be incomplete


def line(host: str, rate: float, result: dict[str, Any], floor: float) -> str:
    """Return a row of the table; ``floor`` is the 99th percentile of the loop without a stranger, s."""
    timing = result["timing"]
    loop = timing.get("loop", {})
    median, p99 = (1e6 * loop.get(name, float("nan")) for name in ("median_s", "p99_s"))
    dropped = any("foreign messages" in note for note in result["notes"])
    bridged, missed = (timing.get(name, 0) for name in ("bridged", "missed"))
    row = f"{host:10}{rate:8.0f}{result['sent']:8.0f}  {result['outcome']:9}{result['samples']:8d}"
    row += f"{bridged:8.0f}{missed:8.0f}{median:9.0f}{p99:9.0f}{p99 * 1e-6 / floor:8.2f}"
    return f"{row}   {result['reason'] or ('foreign messages dropped' if dropped else '')}"


HEAD = (
    f"{'host':10}{'Hz':>8}{'sent Hz':>8}  {'outcome':9}{'samples':>8}{'bridged':>8}{'missed':>8}"
    f"{'loop, us':>9}{'p99':>9}{'ratio':>8}"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=float, nargs="*", default=[0.0, 100.0, 300.0, 1000.0, 3000.0])
    parser.add_argument("--hosts", nargs="*", default=["processes", "composed"])
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of a run, s; default: %(default)g")
    parser.add_argument("--runs", type=int, default=1, help="runs per rate; default: %(default)d")
    parser.add_argument("--flood", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--services", action="store_true", help="send requests to services instead of messages")
    options = parser.parse_args()
    if options.flood:
        flood(options.flood, options.services)
    targets = f"{len(names.LOOP) * len(SERVICES)} services" if options.services else f"{len(TOPICS)} topics"
    print(f"{targets}, {os.cpu_count()} processors\n{HEAD}", flush=True)
    for host in options.hosts:
        floor = float("nan")
        for rate in options.rates:
            for _ in range(options.runs):
                result = run(host, rate, options.seconds, options.services)
                if math.isnan(floor):
                    floor = result["timing"].get("loop", {}).get("p99_s", floor)
                print(line(host, rate, result, floor), flush=True)


if __name__ == "__main__":
    main()
