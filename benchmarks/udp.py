# SPDX-License-Identifier: Apache-2.0
"""The port udp beside the simulator in the same process: python benchmarks/udp.py [--rounds 6]

Runs `chen_ricles_2010` in real time at 1024 Hz on the host composed, in turns with the port `simulator` and with
the port `udp` against `rths emulate` on loopback, and prints median and 99th percentile of the loop (from a
Measurement to its Command) for each, and their ratios: the median of the pairs. Promised is at most 1.2 times.
Beside it the transport that the test needed, and what was bridged.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from typing import Any

from rths_nodes.app import hosts
from rths_nodes.core.data import flatten

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--host", default="composed")
    parser.add_argument("--port", type=int, default=25010)
    given = parser.parse_args()
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
