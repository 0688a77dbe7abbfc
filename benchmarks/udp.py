# SPDX-License-Identifier: Apache-2.0
"""The port udp compared with the simulator in the same process: python benchmarks/udp.py [--rounds 6]

Runs `chen_ricles_2010` in real time at 1024 Hz on the host composed, alternately with the port `simulator` and
with the port `udp` and `rths emulate` on loopback. Prints median and 99th percentile of the loop (from a
Measurement to its Command) for each port, and their ratios, as medians over the pairs. The promised ratio is at
most 1.2. Also prints the transport that the test needed, and the bridged samples.

With --executive: the executive at 1024 and 4096 Hz, from the received state to the sent command, with `rths
emulate` or the C program linux_loop of examples/udp_target on the other processor. After each run, a computation
with the same median runs alone in a paced loop. Its 99.9th percentile is the floor: the machine itself interrupts
computations for that long.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import floor

from rths_nodes.app import hosts
from rths_nodes.core.data import flatten
from rths_nodes.core.resources import resource

NAME = "chen_ricles_2010"
CALM = ["bridge.max_bridge=1", "heartbeat.monitor=5", "heartbeat.recorder=5", "ground_motion.scale=0.05"]
"""So small a motion stays within the limits wherever a bridge takes it."""
BOUND = 1.2


def loop_of(port: str, seconds: float, host: str) -> dict[str, Any]:
    """The timing of one run."""
    done = hosts.run(NAME, [*CALM, f"duration={seconds}", port], host=host, pace="realtime", keep=False)
    if done.exit_code:
        sys.exit(f"{port}: {done.outcome}: {done.reason}")
    return done.timing


def over_udp(port: str, seconds: float, host: str) -> dict[str, Any]:
    """The same against an emulator in a process of its own."""
    command = [sys.executable, "-m", "rths_nodes.app.cli", "emulate", NAME, "--json", "--own-clock"]
    for each in (*CALM, port):
        command += ["--set", each]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as emulator:
        try:
            assert emulator.stdout is not None
            json.loads(emulator.stdout.readline())
            return loop_of(port, seconds, host)
        finally:
            emulator.terminate()


@contextmanager
def far_side(which: str, sets: list[str], port: int, rate: float) -> Iterator[None]:
    """Run the rig on the last processor: ``emulate``, or the C program ``linux_loop``."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "rths_nodes.app.cli", "emulate", NAME, "--json", "--own-clock"]
        command += [word for each in sets for word in ("--set", each)]
        if which == "linux_loop":
            program, target = f"{folder}/linux_loop", resource("examples", "udp_target")
            files = [str(target / "linux_loop.c"), str(target / "rths_target.c")]
            flags = ["-O2", "-std=c99", "-ffp-contract=off"]
            subprocess.run(["cc", *flags, *files, "-lm", "-o", program], check=True)
            command = [program, *map(str, (port, rate, *LINUX_LOOP))]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        last = str(max(os.sched_getaffinity(0)))
        with subprocess.Popen(["taskset", "-c", last, *command], stdout=subprocess.PIPE, env=environment) as rig:
            try:
                assert rig.stdout is not None
                rig.stdout.readline()
                yield
            finally:
                rig.terminate()


LINUX_LOOP = 0.25, 0.76, 10, 1.7e6, 7.6e6
"""Stroke (m), velocity (m/s), deceleration (m/s^2), force (N) and stiffness (N/m) of the rig of linux_loop."""
GOALS = 5.0, 15.0, 40.0, 0.5
"""us, us, us, %: median, 99th and 99.9th percentile; bridged samples."""


def executive(which: str, rounds: int, seconds: float, port: int) -> int:
    """Print the time from state to command for each round and rate; return 1 if a median misses its goal."""
    print(f"far side {which}; rate Hz, round: p50, p99, p99.9, max us; % bridged, longest transport; floor, us")
    missed = 0
    for rate in (1024.0, 4096.0):
        rows = []
        udp = f"port={{type: udp, emulator: true, transport_samples: 1, port: {port}, silence: 1}}"
        sets = [*CALM, f"servo_rate={rate}", f"duration={seconds}", udp]
        for number in range(rounds):
            with far_side(which, sets, port, rate):
                done = hosts.run(NAME, sets, host="embedded", engine="executive", pace="realtime", keep=False)
            if done.exit_code not in (0, 4):  # a test with many bridged samples is not valid
                sys.exit(f"{done.outcome}: {done.reason}")
            loop, counts = done.timing["loop"], done.timing["port"]
            times = [1e6 * loop[f"{key}_s"] for key in ("median", "p99", "p999", "max")]
            bridged = 100.0 * counts["bridged"] / done.samples
            least = 1e6 * floor.computing(rate, seconds / 2.0, loop["median_s"])["p999_s"]
            rows.append((*times[:3], bridged, least))
            shown = ", ".join(f"{time:.1f}" for time in times)
            transport = counts["transport_largest"]
            print(f"{rate:g}, {number}: {shown}; {bridged:.2f}, {transport}; {least:.1f}", flush=True)
        *medians, least = (statistics.median(column) for column in zip(*rows, strict=True))
        met = all(median <= goal for median, goal in zip(medians, GOALS, strict=True))
        missed += not met
        shown = ", ".join(f"{median:.2f}" for median in medians)
        verdict = "met" if met else "NOT MET"
        print(f"{rate:g}, medians: {shown}; floor {least:.1f} us: {verdict}: <= {GOALS}", flush=True)
    return int(missed > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--host", default="composed")
    parser.add_argument("--port", type=int, default=25010)
    parser.add_argument("--executive", choices=("emulate", "linux_loop"))
    given = parser.parse_args()
    if given.executive:
        return executive(given.executive, given.rounds, given.seconds, given.port)
    udp = f"port={{type: udp, emulator: true, transport_samples: 1, port: {given.port}, silence: 1}}"
    simulator = "port={type: simulator, transport_samples: 1}"
    rows: dict[str, list[tuple[float, float]]] = {"simulator": [], "udp": []}
    print("round  port       median us  p99 us  needed  bridged  lost")
    for number in range(given.rounds):
        for name in ("simulator", "udp") if number % 2 else ("udp", "simulator"):
            run = over_udp if name == "udp" else loop_of
            timing = run(udp if name == "udp" else simulator, given.seconds, given.host)
            median, rare = (1e6 * timing["loop"][key] for key in ("median_s", "p99_s"))
            rows[name].append((median, rare))
            told = flatten(timing.get("port", {}), "port")
            needed, lost = (told.get(f"port.{key}", 0.0) for key in ("transport_median", "lost"))
            counts = f"{needed:7.0f} {timing['bridged']:8.0f} {lost:5.0f}"
            print(f"{number:5}  {name:9} {median:10.1f} {rare:7.1f} {counts}")
    ratios = [
        statistics.median(u[k] / s[k] for u, s in zip(rows["udp"], rows["simulator"], strict=True)) for k in (0, 1)
    ]
    met = max(ratios) <= BOUND
    print(
        f"udp / simulator: median {ratios[0]:.2f}, p99 {ratios[1]:.2f}; {'met' if met else 'NOT MET'}: <= {BOUND}"
    )
    return not met


if __name__ == "__main__":
    sys.exit(main())
