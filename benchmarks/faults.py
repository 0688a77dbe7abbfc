# SPDX-License-Identifier: Apache-2.0
"""Time until a run ends after one of its nodes is killed or frozen: python benchmarks/faults.py

Starts `chen_ricles_2010` in real time as processes, then kills one node with SIGKILL or freezes it with SIGSTOP.
Prints the time until the first sample of the safe stop, until no process of the loop remains, and until the
recorder has closed the recording. Promised limits: 50 ms to the first sample of the safe stop after the loss of
integrator or compensator, 250 ms after the loss of the monitor, and 1 s to the end of the loop. For a killed
recorder, also prints the duration missing from the recovered recording.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from rths_nodes.core.samples import FLAG_TRIPPED
from rths_nodes.recording import bag
from rths_nodes.recording.reading import read_run
from rths_nodes.ros.names import LOOP, MONITOR, NODES, RECORDER


def nodes_of(parent: int) -> dict[str, int]:
    """Return the process ids of the nodes that ``parent`` started, by role."""
    nodes = {}
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_text().split("\0") if entry.name.isdigit() else []
            command = (entry / "cmdline").read_text().split("\0") if environment else []
        except OSError:
            continue
        if f"RTHS_PARENT={parent}" in environment and "rths_nodes.app.node" in command:
            nodes[command[command.index("rths_nodes.app.node") + 1]] = int(entry.name)
    return nodes


def running(pid: int) -> bool:
    """Return true if the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def strike(role: str, number: signal.Signals) -> tuple[float, float, float, float]:
    """Send a signal to a node. Return the times (s) to the safe stop, end of the loop and end of the run, and the
    duration of the lost samples (s).
    """
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "run"
        test = ["run", "chen_ricles_2010", "--host", "processes", "--pace", "realtime", "--record", str(record)]
        runner = subprocess.Popen([sys.executable, "-m", "rths_nodes.app.cli", *test], stdout=subprocess.DEVNULL)
        journal = record / "run_0.mcap"
        while not (journal.exists() and journal.stat().st_size > 1_000_000):
            time.sleep(0.02)
            if runner.poll() is not None:
                raise SystemExit(f"the run ended before {role} received {number.name}")
        pids = nodes_of(runner.pid)
        os.kill(pids[role], number)
        struck, struck_ns = time.monotonic(), time.time_ns()
        while any(running(pid) for name, pid in pids.items() if name not in (RECORDER, role)):
            time.sleep(0.002)
        loop = time.monotonic() - struck
        runner.wait()
        everything = time.monotonic() - struck
        bag.recover(record)
        run = read_run(record)
        stamps = [stamp for topic, _, stamp in bag.read(record).messages() if topic.endswith("/measurement")]
        lost = (struck_ns - stamps[-1]) * 1e-9 if role == RECORDER else 0.0
        driven = np.flatnonzero(run.flags & FLAG_TRIPPED)
        safe = (stamps[driven[0]] - struck_ns) * 1e-9 if len(driven) else float("nan")
        return safe, loop, everything, lost


CASES = [*((role, signal.SIGKILL) for role in NODES), *((role, signal.SIGSTOP) for role in (*LOOP[:2], MONITOR))]
"""Node and signal. Not frozen: the actuator node, which the watchdog of the port handles, and the recorder."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="runs of each case; default: %(default)d")
    options = parser.parse_args()
    print("                        safe, ms   loop gone   all gone   lost, s (medians of the runs)")
    for role, number in CASES:
        columns = zip(*(strike(role, number) for _ in range(options.runs)), strict=True)
        safe, loop, everything, lost = (statistics.median(values) for values in columns)
        shown = f"{1e3 * safe:11.0f}" if math.isfinite(safe) else f"{'-':>11}"
        print(f"{role:12}{number.name:>9}{shown}{loop:12.2f}{everything:11.2f}{lost:11.2f}")


if __name__ == "__main__":
    main()
