# SPDX-License-Identifier: Apache-2.0
"""Cost of a page, and time of its stop: python benchmarks/page.py --beside | --stops N | --flood N | --curves N

    --beside   compares the loop in real time, with `rths page` and three watchers on WebSockets, to the loop
               alone, in pairs of alternating order. Pairs of two runs alone show the resolution of the machine.
               Prints the medians over the pairs of the ratios of median and p99 of the loop.
    --stops N  N runs on the simulator, each stopped by POST /stop at a random time after its first second
               (earlier, the middleware may not have discovered the services). Prints the time from the request to
               the stamp of the first Measurement whose Command belonged to the safe stop, and to the answer. With
               --busy K, K processes take all the processor time that they get.
    --flood N  N stops of a node that accepts them, without and then with 16 threads of another user, each of which
               keeps opening connections. Prints the time from sending to acceptance, and the ratio to the floor
               without the flood. If started by root, the flood runs as the user nobody. The exit code is 1 if a
               stop was not accepted.
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
from rths_nodes.core.wire.plain import decode
from rths_nodes.recording import bag

SCENARIO = "chen_ricles_2010"
ROWS = (("composed", 1024.0), ("composed", 4096.0), ("processes", 1024.0))
NAMESPACE = f"page_{os.getpid()}"
"""Nothing else on this machine is meant."""
WATCHERS = 3
WATCH = """
import asyncio, sys, aiohttp
async def watch():
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(sys.argv[1].replace("http", "ws") + "live") as socket:
            async for _ in socket:
                pass
asyncio.run(watch())
"""
FIRST = """
import asyncio, sys, time, aiohttp
async def watch():
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(sys.argv[1].replace("http", "ws") + "live") as socket:
            async for told in socket:
                if told.type is aiohttp.WSMsgType.BINARY:
                    return time.time_ns()
print(asyncio.run(watch()))
"""
STOP = """
import json, random, sys, time, urllib.request
address = sys.argv[1]
while True:
    with urllib.request.urlopen(address + "situation", timeout=10.0) as answer:
        if json.load(answer).get("run", {}).get("state") == "RUNNING":
            break
    time.sleep(0.02)
time.sleep(random.uniform(1.0, 1.5))  # the middleware has found everybody by then
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
rest = b" HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nContent-Length: 0\\r\\n\\r\\n"
asked = [line + rest for line in (b"POST /stop", b"GET /situation")]
def flood():
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=10.0) as one:
                one.sendall(random.choice(asked))
                while waits and one.recv(65536):
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


@contextmanager
def page() -> Iterator[tuple[str, int]]:
    """``rths page`` at any port: its address and process."""
    words = [sys.executable, "-m", "rths_nodes.app.cli", "page", "--port", "0", "--namespace", NAMESPACE]
    with subprocess.Popen(words, stdout=subprocess.PIPE, encoding="utf-8") as serving:
        try:
            assert serving.stdout is not None
            found = re.search(r"http://\S+", serving.stdout.readline())
            assert found
            yield found[0], serving.pid
        finally:
            serving.send_signal(signal.SIGINT)


@contextmanager
def running(count: int, words: Sequence[str], niceness: int = 0) -> Iterator[None]:
    """Run ``count`` processes of the same ``words`` meanwhile."""
    started = [subprocess.Popen(words, preexec_fn=lambda: os.nice(niceness)) for _ in range(count)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


def loop(host: str, rate: float, seconds: float, watched: bool) -> tuple[float, float, float]:
    """Median and p99 of the loop (s) of a run, and processor time (s) of the page in it."""
    overrides = [f"servo_rate={rate:g}", f"substeps={round(rate / 102.4)}", f"duration={seconds}", *PATIENCE]
    with ExitStack() as stack:
        spent = 0.0
        if watched:
            address, process = stack.enter_context(page())
            stack.enter_context(running(WATCHERS, [sys.executable, "-c", WATCH, address], 19))
            time.sleep(1.0)
            spent = processor_s(process)
        result = hosts.run(SCENARIO, overrides, host=host, pace="realtime", record=None, namespace=NAMESPACE)
        spent = processor_s(process) - spent if watched else 0.0
    assert result.exit_code == 0, result.reason
    return result.timing["loop"]["median_s"], result.timing["loop"]["p99_s"], spent


def processor_s(process: int) -> float:
    """Time of the processor that a process and what it has started have taken, s."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return own + sum(processor_s(int(each)) for each in children)


def beside(pairs: int, seconds: float, rows: Sequence[tuple[str, float]]) -> None:
    """Print for each host the ratios with a page, and those of two runs alone."""
    for host, rate in rows:
        found: dict[str, list[tuple[float, float]]] = {"page": [], "alone": []}
        shares = []
        for number in range(pairs):
            for kind in ("page", "alone"):
                order = (True, False) if number % 2 else (False, True)
                two = {}
                for second in order:
                    median, p99, spent = loop(host, rate, seconds, second and kind == "page")
                    two[second] = (median, p99)
                    if second and kind == "page":
                        shares.append(spent / seconds)
                found[kind].append((two[True][0] / two[False][0], two[True][1] / two[False][1]))
        words = []
        for kind, ratios in found.items():
            medians, tails = zip(*ratios, strict=True)
            words.append(f"{kind}: median {statistics.median(medians):.3f}, p99 {statistics.median(tails):.3f}")
        share = 100.0 * statistics.median(shares)
        print(f"{host} {rate:g} Hz, {pairs} pairs: {'; '.join(words)}; page {share:.1f} % of a core", flush=True)


def stop_once(address: str, folder: Path) -> tuple[float, float]:
    """Time (s) from a request to the first braking sample, and to the answer."""
    asking = subprocess.Popen([sys.executable, "-c", STOP, address], stdout=subprocess.PIPE, encoding="utf-8")
    how: dict[str, Any] = {"host": "composed", "pace": "realtime", "namespace": NAMESPACE}
    try:
        result = hosts.run(SCENARIO, record=folder, interrupted=lambda: False, **how)
        told, _ = asking.communicate(timeout=20.0)
    finally:
        asking.kill()
    assert result.outcome == "held", result.reason
    began, answered = map(int, told.split())
    recording = bag.read(str(folder))
    for topic, data, stamp in recording.messages():
        if not topic.endswith("/measurement"):
            continue
        if decode("Measurement", data, recording.definitions[topic])["flags"] & FLAG_TRIPPED:
            return 1e-9 * (stamp - began), 1e-9 * (answered - began)
    raise AssertionError("nothing has braked")


def curves_once(folder: Path) -> float:
    """Time (s) from the first Measurement of a run to the first column that a watcher of its page gets."""
    words = [
        "run",
        SCENARIO,
        "--page",
        "--page-port",
        "0",
        "--pace",
        "realtime",
        "--namespace",
        NAMESPACE,
        "--set",
        "duration=12",
    ]
    command = [sys.executable, "-m", "rths_nodes.app.cli", *words, "--record", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8") as run:
        assert run.stdout is not None
        found = next(filter(None, (re.search(r"http://\S+/", line) for line in run.stdout)))
        told = subprocess.run([sys.executable, "-c", FIRST, found[0]], capture_output=True, check=True).stdout
        run.stdout.read()
    stamps = (stamp for topic, _, stamp in bag.read(str(folder)).messages() if topic.endswith("/measurement"))
    return 1e-9 * (int(told) - next(stamps))


def stops(count: int, journal: Path | None, others: int) -> None:
    """Print how soon ``count`` stops brake beside busy ``others``; those in the ``journal`` count."""
    lines = journal.read_text("utf-8").splitlines() if journal is not None and journal.exists() else []
    found = [tuple(json.loads(line)) for line in lines]
    with (
        running(others, [sys.executable, "-c", "while True: pass"]),
        page() as (address, _),
        tempfile.TemporaryDirectory() as folder,
    ):
        while len(found) < count:
            found.append(stop_once(address, Path(folder) / str(len(found))))
            if journal is not None:
                with journal.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(found[-1]) + "\n")
    for name, values in zip(("first braking sample", "answer"), np.array(found).T, strict=True):
        median, tail = np.percentile(values, (50.0, 99.0))
        print(
            f"{name}: {1e3 * median:.1f} ms, p99 {1e3 * tail:.1f}, largest {1e3 * values.max():.1f}, {count} stops"
        )


def stop_accepted(port: int) -> float:
    """Time (s) from sending a stop to its acceptance at the rig; nan if it was not accepted."""
    body = b'{"kind": "stop"}'
    head = f"POST /stop HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Rths-Page: 1\r\nContent-Length: {len(body)}\r\n\r\n"
    began = time.time_ns()
    with socket.create_connection(("127.0.0.1", port), timeout=20.0) as one:
        one.sendall(head.encode() + body)
        answer = b"".join(iter(lambda: one.recv(65536), b""))
    if not answer.startswith(b"HTTP/1.1 200 "):
        return math.nan
    return 1e-9 * (int(json.loads(answer.partition(b"\r\n\r\n")[2])["words"]) - began)


def series(port: int, count: int) -> np.ndarray:
    """Times (s) of ``count`` stops, 0 to 10 ms after each other."""
    times = []
    for _ in range(count):
        time.sleep(random.uniform(0.0, 0.01))
        times.append(stop_accepted(port))
    return np.array(times)


def flood(count: int) -> bool:
    """Print how soon stops are accepted without and with a flood; False if one was not accepted."""
    other = {"user": NOBODY, "extra_groups": (), "cwd": "/"} if os.getuid() == 0 else {}
    accepted, floor = True, math.nan
    with running(1, [sys.executable, "-c", RIG, NAMESPACE]), page() as (address, _):
        port = int(address.rstrip("/").rpartition(":")[2])
        while math.isnan(stop_accepted(port)):  # the middleware has not discovered the rig yet
            pass
        for kind in ("", "waits", "leaves"):
            words = ["/usr/bin/python3", "-c", FLOOD, str(port), kind]
            started = [subprocess.Popen(words, start_new_session=True, **other) for _ in range(2 if kind else 0)]
            try:
                time.sleep(1.0)
                times = series(port, count)
            finally:
                for each in started:
                    each.kill()
                    each.wait()
            arrived = times[np.isfinite(times)]
            accepted &= len(arrived) == count
            median, tail = np.percentile(arrived, (50.0, 99.0)) if len(arrived) else (math.nan, math.nan)
            floor = floor if kind else tail
            print(
                f"flood that {kind}: " if kind else "floor: ",
                f"{len(arrived)} of {count} stops accepted, median {1e3 * median:.1f} ms, p99 {1e3 * tail:.1f} ms "
                f"({tail / floor:.1f} of the floor), largest {1e3 * max(arrived, default=math.nan):.1f} ms",
                flush=True,
            )
    return accepted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=8.0, help="of a run; default: %(default)g")
    parser.add_argument(
        "--row", type=int, action="append", choices=range(len(ROWS)), help="of the hosts; default: all"
    )
    parser.add_argument("--stops", type=int, default=0, metavar="N")
    parser.add_argument("--busy", type=int, default=0, metavar="K", help="busy processes beside the stops")
    parser.add_argument("--flood", type=int, default=0, metavar="N")
    parser.add_argument("--curves", type=int, default=0, metavar="N")
    parser.add_argument("--journal", type=Path, help="keeps the stops that were made")
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
