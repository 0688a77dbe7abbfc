# SPDX-License-Identifier: Apache-2.0
"""Port udp compared with the simulator in the same process: python benchmarks/udp.py [--rounds 6]

Runs `chen_ricles_2010` in real time at 1024 Hz on the host composed, alternately with the port `simulator` and
with the port `udp` and `rths emulate` on loopback. Prints median and 99th percentile of the loop (from a
Measurement to its Command) for each port, and their ratios, as medians over the pairs. The promised ratio is at
most 1.2. Also prints the transport that the test needed, and the bridged samples.

With --executive, measures the executive at 1024 and 4096 Hz, from the received state to the sent command, with
`rths emulate` or the C program linux_loop of examples/udp_target on the other processor. After each run, a
computation with the same median runs alone in a paced loop. Its 99.9th percentile is the floor: the machine itself
interrupts computations for that long.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import floor
from memory import PATIENCE

from rths_nodes.app import hosts
from rths_nodes.core.resources import resource

NAME = "chen_ricles_2010"
UDP = "port={{type: udp, emulator: true, transport_samples: 1, port: {}, silence: 1}}"
CALM = [*PATIENCE, "ground_motion.scale=0.05"]
"""Overrides for a motion small enough to stay within the limits even when samples are bridged."""
BOUND = 1.2
"""Largest allowed ratio of udp and simulator."""
LINUX_LOOP = 0.25, 0.76, 10, 1.7e6, 7.6e6
"""Stroke (m), velocity (m/s), deceleration (m/s^2), force (N) and stiffness (N/m) of the rig of linux_loop."""
GOALS = 5.0, 15.0, 40.0, 0.5
"""Largest allowed median, 99th and 99.9th percentile (us), and bridged samples (%)."""


def loop_of(port: str, seconds: float, host: str) -> dict[str, Any]:
    """Return the timing of one run."""
    result = hosts.run(NAME, [*CALM, f"duration={seconds}", port], host=host, pace="realtime", keep=False)
    if result.exit_code:
        sys.exit(f"{port}: {result.outcome}: {result.reason}")
    return result.timing


def emulator(overrides: list[str]) -> list[str]:
    """Return the command of ``rths emulate``."""
    rths = [sys.executable, "-m", "rths_nodes.app.cli", "emulate", NAME, "--json", "--own-clock"]
    return rths + [argument for override in overrides for argument in ("--set", override)]


@contextmanager
def serving(command: list[str]) -> Iterator[None]:
    """Run an emulated rig; enters the ``with`` block when the rig is ready."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as rig:
        try:
            assert rig.stdout is not None
            if not rig.stdout.readline():
                sys.exit(f"{command[0]} ended: exit code {rig.wait()}")
            yield
        finally:
            rig.terminate()


def far_side(program: str, overrides: list[str], port: int, rate: float, folder: str) -> list[str]:
    """Return the command of the rig on the last processor: ``emulate``, or the C program ``linux_loop``."""
    command = emulator(overrides)
    if program == "linux_loop":
        target = resource("examples", "udp_target")
        files = [str(target / "linux_loop.c"), str(target / "rths_target.c"), "-lm", "-o", f"{folder}/linux_loop"]
        subprocess.run(["cc", "-O2", "-std=c99", "-ffp-contract=off", *files], check=True)
        command = [f"{folder}/linux_loop", *map(str, (port, rate, *LINUX_LOOP))]
    return ["taskset", "-c", str(max(os.sched_getaffinity(0))), *command]


def executive(program: str, rounds: int, seconds: float, port: int) -> int:
    """Print the time from state to command for each round and rate. Return 1 if a median misses its goal."""
    print(f"far side {program}; rate Hz, round: p50, p99, p99.9, max us; % bridged, longest transport; floor, us")
    missed = 0
    for rate in (1024.0, 4096.0):
        rows = []
        overrides = [*CALM, f"servo_rate={rate}", f"duration={seconds}", UDP.format(port)]
        options = {"host": "embedded", "engine": "executive", "pace": "realtime", "keep": False}
        for number in range(rounds):
            with (
                tempfile.TemporaryDirectory() as folder,
                serving(far_side(program, overrides, port, rate, folder)),
            ):
                result = hosts.run(NAME, overrides, **options)
            if result.exit_code not in (0, 4):  # 4: not valid, because of many bridged samples
                sys.exit(f"{result.outcome}: {result.reason}")
            loop, counts = result.timing["loop"], result.timing["port"]
            times = [1e6 * loop[f"{key}_s"] for key in ("median", "p99", "p999", "max")]
            bridged = 100.0 * counts["bridged"] / result.samples
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
    parser.add_argument("--rounds", type=int, default=6, help="default: %(default)d")
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of a run; default: %(default)g")
    parser.add_argument("--host", default="composed", help="default: %(default)s")
    parser.add_argument("--port", type=int, default=25010, help="UDP port; default: %(default)d")
    parser.add_argument("--executive", choices=("emulate", "linux_loop"), help="measure the executive instead")
    options = parser.parse_args()
    if options.executive:
        return executive(options.executive, options.rounds, options.seconds, options.port)
    udp, simulator = UDP.format(options.port), "port={type: simulator, transport_samples: 1}"
    rows: dict[str, list[tuple[float, float]]] = {"simulator": [], "udp": []}
    print("round  port       median us  p99 us  needed  bridged  lost")
    for number in range(options.rounds):
        for name in ("simulator", "udp") if number % 2 else ("udp", "simulator"):
            port, rig = (udp, serving(emulator([*CALM, udp]))) if name == "udp" else (simulator, nullcontext())
            with rig:
                timing = loop_of(port, options.seconds, options.host)
            median, p99 = (1e6 * timing["loop"][key] for key in ("median_s", "p99_s"))
            rows[name].append((median, p99))
            port_timing = timing.get("port", {})
            needed, lost = (port_timing.get(key, 0.0) for key in ("transport_median", "lost"))
            counts = f"{needed:7.0f} {timing['bridged']:8.0f} {lost:5.0f}"
            print(f"{number:5}  {name:9} {median:10.1f} {p99:7.1f} {counts}")
    ratios = [
        statistics.median(u[k] / s[k] for u, s in zip(rows["udp"], rows["simulator"], strict=True)) for k in (0, 1)
    ]
    met = max(ratios) <= BOUND
    verdict = "met" if met else "NOT MET"
    print(f"udp / simulator: median {ratios[0]:.2f}, p99 {ratios[1]:.2f}; {verdict}: <= {BOUND}")
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
