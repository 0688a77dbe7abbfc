# SPDX-License-Identifier: Apache-2.0
"""Cost of a page, and time of its stop: python benchmarks/page.py --beside | --stops N | --flood N | --curves N

    --beside   compares the loop in real time, with `rths page` and three watchers on WebSockets, to the loop
               alone, in pairs of alternating order. Pairs of two runs alone show the resolution of the machine.
               Prints the medians over the pairs of the ratios of median and p99 of the loop.
    --stops N  N runs on the simulator, each stopped by POST /stop at a random time after its first second
               (earlier, the middleware may not have discovered the services). Prints the time from the request to
               the stamp of the first Measurement whose Command belonged to the safe stop, and to the answer. With
               --busy K, K processes keep the processors busy.
    --flood N  N stops of a node that accepts them, without and then with 16 threads of another user, each of which
               keeps opening connections. Prints the time from sending to acceptance, and the ratio to the floor
               without the flood. If started by root, the flood runs as user 65534. The exit code is 1 if a stop
               was not accepted.
    --curves N N runs that show their own page. Prints the time from the first sample until a watcher has the first
               column.

Runs are chen_ricles_2010 in real time. The time of a stop does not depend on the browser: a click is a request.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from memory import PATIENCE

from rths_nodes.app import hosts
from rths_nodes.core.samples import FLAG_TRIPPED
from rths_nodes.core.wire import decode
from rths_nodes.recording import bag

SCENARIO = "chen_ricles_2010"
ROWS = (("composed", 1024.0), ("composed", 4096.0), ("processes", 1024.0))
NAMESPACE = f"page_{os.getpid()}"
"""ROS namespace that no other process uses."""
WATCHERS = 3
WATCH = """
import asyncio, sys, time, aiohttp
async def watch():
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(sys.argv[1].replace("http", "ws") + "live") as socket:
            async for message in socket:
                if sys.argv[2:] == ["first"] and message.type is aiohttp.WSMsgType.BINARY:
                    return print(time.time_ns())
asyncio.run(watch())
"""
"""Receive all messages of a page; with ``first``, only until the first column, and print its time, ns."""
STOP = """
import json, random, sys, time, urllib.request
address = sys.argv[1]
while True:
    with urllib.request.urlopen(address + "situation", timeout=10.0) as answer:
        if json.load(answer).get("run", {}).get("state") == "RUNNING":
            break
    time.sleep(0.02)
time.sleep(random.uniform(1.0, 1.5))  # time for discovery
headers = {"X-Rths-Page": "1", "Content-Type": "application/json"}
request = urllib.request.Request(address + "stop", b'{"kind": "stop"}', headers)
began = time.time_ns()
with urllib.request.urlopen(request, timeout=10.0) as answer:
    assert json.load(answer)["confirmed"]
print(began, time.time_ns())
"""

FLOOD = """
import random, socket, sys, threading
port, waits = int(sys.argv[1]), sys.argv[2] == "waits"
headers = b" HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nContent-Length: 0\\r\\n\\r\\n"
requests = [line + headers for line in (b"POST /stop", b"GET /situation")]
def flood():
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=10.0) as connection:
                connection.sendall(random.choice(requests))
                while waits and connection.recv(65536):
                    pass
        except OSError:
            pass
for _ in range(8):
    threading.Thread(target=flood).start()
"""
RIG = """
import sys, time
from std_srvs.srv import Trigger
import rclpy
rclpy.init()
rig = rclpy.create_node("actuator", namespace=sys.argv[1])
def accept(_, answer):
    answer.success, answer.message = True, str(time.time_ns())
    return answer
rig.create_service(Trigger, "actuator/stop", accept)
rclpy.spin(rig)
"""
NOBODY = 65534
RTHS = [sys.executable, "-m", "rths_nodes.app.cli"]


@contextmanager
def page() -> Iterator[tuple[str, int]]:
    """Run ``rths page`` at a free port and yield its address and process id."""
    command = [*RTHS, "page", "--port", "0", "--namespace", NAMESPACE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as server:
        try:
            assert server.stdout is not None
            address = re.search(r"http://\S+", server.stdout.readline())
            assert address
            yield address[0], server.pid
        finally:
            server.send_signal(signal.SIGINT)


@contextmanager
def running(count: int, command: Sequence[str], **options: Any) -> Iterator[None]:
    """Run ``count`` processes of a command, with ``options`` of Popen, for the duration of the ``with`` block."""
    processes = [subprocess.Popen(command, **options) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def loop(host: str, rate: float, seconds: float, watched: bool) -> tuple[float, float, float]:
    """Return median and p99 of the loop in a run, and the processor time of the page during it, s."""
    overrides = [f"servo_rate={rate:g}", f"substeps={round(rate / 102.4)}", f"duration={seconds}", *PATIENCE]
    with ExitStack() as stack:
        if watched:
            address, process = stack.enter_context(page())
            watch = [sys.executable, "-c", WATCH, address]
            stack.enter_context(running(WATCHERS, watch, preexec_fn=lambda: os.nice(19)))
            time.sleep(1.0)
            before = processor_s(process)
        result = hosts.run(SCENARIO, overrides, host=host, pace="realtime", record=None, namespace=NAMESPACE)
        spent = processor_s(process) - before if watched else 0.0
    assert result.exit_code == 0, result.reason
    return result.timing["loop"]["median_s"], result.timing["loop"]["p99_s"], spent


def processor_s(process: int) -> float:
    """Return the processor time of a process and its descendants, s."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return ticks / float(os.sysconf("SC_CLK_TCK")) + sum(processor_s(int(child)) for child in children)


def beside(pairs: int, seconds: float, rows: Sequence[tuple[str, float]]) -> None:
    """Print the ratios of a run with a page to a run alone, and of two runs alone, for each host."""
    for host, rate in rows:
        ratios_of: dict[str, list[tuple[float, float]]] = {"page": [], "alone": []}
        shares = []
        for number in range(pairs):
            for kind in ("page", "alone"):
                order = (True, False) if number % 2 else (False, True)
                pair = {}
                for second in order:
                    median, p99, spent = loop(host, rate, seconds, second and kind == "page")
                    pair[second] = (median, p99)
                    if second and kind == "page":
                        shares.append(spent / seconds)
                ratios_of[kind].append((pair[True][0] / pair[False][0], pair[True][1] / pair[False][1]))
        columns = []
        for kind, ratios in ratios_of.items():
            median, p99 = map(statistics.median, zip(*ratios, strict=True))
            columns.append(f"{kind}: median {median:.3f}, p99 {p99:.3f}")
        share = 100.0 * statistics.median(shares)
        print(f"{host} {rate:g} Hz, {pairs} pairs: {'; '.join(columns)}; page {share:.1f} % of a core", flush=True)


def stop_once(address: str, folder: Path) -> tuple[float, float]:
    """Return the times (s) from a request to the first braking sample and to the answer."""
    client = subprocess.Popen([sys.executable, "-c", STOP, address], stdout=subprocess.PIPE, encoding="utf-8")
    options: dict[str, Any] = {"host": "composed", "pace": "realtime", "namespace": NAMESPACE}
    try:
        result = hosts.run(SCENARIO, record=folder, interrupted=lambda: False, **options)
        times, _ = client.communicate(timeout=20.0)
    finally:
        client.kill()
    assert result.outcome == "held", result.reason
    began, answered = map(int, times.split())
    recording = bag.read(str(folder))
    for topic, data, stamp in recording.messages():
        if not topic.endswith("/measurement"):
            continue
        if decode("Measurement", data, recording.definitions[topic])["flags"] & FLAG_TRIPPED:
            return 1e-9 * (stamp - began), 1e-9 * (answered - began)
    raise AssertionError("no sample belongs to a safe stop")


def curves_once(folder: Path) -> float:
    """Return the time (s) from the first Measurement of a run to the first column that a watcher receives."""
    command = [*RTHS, "run", SCENARIO, "--page", "--page-port", "0", "--pace", "realtime"]
    command += ["--namespace", NAMESPACE, "--set", "duration=12", "--record", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8") as run:
        assert run.stdout is not None
        address = next(filter(None, (re.search(r"http://\S+/", line) for line in run.stdout)))
        watch = [sys.executable, "-c", WATCH, address[0], "first"]
        received = subprocess.run(watch, capture_output=True, check=True).stdout
        run.stdout.read()
    stamps = (stamp for topic, _, stamp in bag.read(str(folder)).messages() if topic.endswith("/measurement"))
    return 1e-9 * (int(received) - next(stamps))


def stops(count: int, journal: Path | None, busy: int) -> None:
    """Print the times of ``count`` stops next to ``busy`` processes. Stops in the ``journal`` count."""
    lines = journal.read_text("utf-8").splitlines() if journal is not None and journal.exists() else []
    times = [tuple(json.loads(line)) for line in lines]
    with (
        running(busy, [sys.executable, "-c", "while True: pass"]),
        page() as (address, _),
        tempfile.TemporaryDirectory() as folder,
    ):
        while len(times) < count:
            times.append(stop_once(address, Path(folder) / str(len(times))))
            if journal is not None:
                with journal.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(times[-1]) + "\n")
    for name, values in zip(("first braking sample", "answer"), 1e3 * np.array(times).T, strict=True):
        median, p99 = np.percentile(values, (50.0, 99.0))
        print(f"{name}: {median:.1f} ms, p99 {p99:.1f}, largest {values.max():.1f}, {count} stops")


def stop_accepted(port: int) -> float:
    """Return the time (s) from sending a stop to its acceptance at the rig; NaN if it was not accepted."""
    body = b'{"kind": "stop"}'
    head = f"POST /stop HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Rths-Page: 1\r\nContent-Length: {len(body)}\r\n\r\n"
    began = time.time_ns()
    with socket.create_connection(("127.0.0.1", port), timeout=20.0) as connection:
        connection.sendall(head.encode() + body)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    if not answer.startswith(b"HTTP/1.1 200 "):
        return math.nan
    return 1e-9 * (int(json.loads(answer.partition(b"\r\n\r\n")[2])["words"]) - began)


def series(port: int, count: int) -> np.ndarray:
    """Return the times (s) of ``count`` stops with random pauses of 0 to 10 ms."""
    times = []
    for _ in range(count):
        time.sleep(random.uniform(0.0, 0.01))
        times.append(stop_accepted(port))
    return np.array(times)


def flood(count: int) -> bool:
    """Print the times of stops without and with a flood. Return false if a stop was not accepted."""
    options: dict[str, Any] = {"user": NOBODY, "extra_groups": (), "cwd": "/"} if os.getuid() == 0 else {}
    accepted, floor = True, math.nan
    with running(1, [sys.executable, "-c", RIG, NAMESPACE]), page() as (address, _):
        port = int(address.rstrip("/").rpartition(":")[2])
        while math.isnan(stop_accepted(port)):  # the middleware has not discovered the rig yet
            pass
        for kind in ("", "waits", "leaves"):
            clients = ["/usr/bin/python3", "-c", FLOOD, str(port), kind]
            with running(2 if kind else 0, clients, start_new_session=True, **options):
                time.sleep(1.0)
                times = series(port, count)
            arrived = times[np.isfinite(times)]
            accepted &= len(arrived) == count
            median, p99 = np.percentile(arrived, (50.0, 99.0)) if len(arrived) else (math.nan, math.nan)
            floor = floor if kind else p99
            print(
                f"flood that {kind}: " if kind else "floor: ",
                f"{len(arrived)} of {count} stops accepted, median {1e3 * median:.1f} ms, p99 {1e3 * p99:.1f} ms "
                f"({p99 / floor:.1f} of the floor), largest {1e3 * max(arrived, default=math.nan):.1f} ms",
                flush=True,
            )
    return accepted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--pairs", type=int, default=20, help="for --beside; default: %(default)d")
    parser.add_argument("--seconds", type=float, default=8.0, help="duration of a run; default: %(default)g")
    rows = "; ".join(f"{row}: {host} at {rate:g} Hz" for row, (host, rate) in enumerate(ROWS))
    parser.add_argument("--row", type=int, action="append", choices=range(len(ROWS)), help=f"{rows}; default: all")
    parser.add_argument("--stops", type=int, default=0, metavar="N")
    parser.add_argument("--busy", type=int, default=0, metavar="K", help="busy processes during --stops")
    parser.add_argument("--flood", type=int, default=0, metavar="N")
    parser.add_argument("--curves", type=int, default=0, metavar="N")
    parser.add_argument("--journal", type=Path, metavar="FILE", help="adds stops to FILE and counts those in it")
    options = parser.parse_args()
    if options.beside:
        beside(options.pairs, options.seconds, [ROWS[row] for row in options.row or range(len(ROWS))])
    if options.flood and not flood(options.flood):
        raise SystemExit(1)
    if options.curves:
        with tempfile.TemporaryDirectory() as folder:
            late = [curves_once(Path(folder) / str(number)) for number in range(options.curves)]
        print(f"first column: median {statistics.median(late):.2f} s, at most {max(late):.2f} s, {len(late)} runs")
    if options.stops:
        stops(options.stops, options.journal, options.busy)


if __name__ == "__main__":
    main()
