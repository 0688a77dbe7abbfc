"""How fast a run ends when one of its nodes is killed: python benchmarks/faults.py

Starts `chen_ricles_2010` in real time as processes, kills one node with SIGKILL, and prints the time until no
process of the loop is left, and until the recorder has closed the recording; a second is promised for the first.
For a killed recorder, what is missing in the recovered recording, too.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rths_nodes.record import bag
from rths_nodes.ros.names import NODES, RECORDER


def nodes_of(parent: int) -> dict[str, int]:
    """Process ids of the node processes of a runner, by role."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_text().split("\0") if entry.name.isdigit() else []
            words = (entry / "cmdline").read_text().split("\0") if environment else []
        except OSError:
            continue
        if f"RTHS_PARENT={parent}" in environment and "rths_nodes.node" in words:
            found[words[words.index("rths_nodes.node") + 1]] = int(entry.name)
    return found


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill(role: str) -> tuple[float, float, float]:
    """Seconds until the loop and until everything is gone, and seconds of samples that were lost."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "run"
        words = ["run", "chen_ricles_2010", "--host", "processes", "--pace", "realtime", "--record", str(record)]
        runner = subprocess.Popen([sys.executable, "-m", "rths_nodes.cli", *words], stdout=subprocess.DEVNULL)
        journal = record / "run_0.mcap"
        while not (journal.exists() and journal.stat().st_size > 1_000_000):
            time.sleep(0.02)
        pids = nodes_of(runner.pid)
        os.kill(pids[role], signal.SIGKILL)
        killed, killed_ns = time.monotonic(), time.time_ns()
        while any(running(pid) for name, pid in pids.items() if name != RECORDER):
            time.sleep(0.002)
        loop = time.monotonic() - killed
        runner.wait()
        everything = time.monotonic() - killed
        bag.recover(record)
        messages = bag.read(record).messages()
        last = max(stamp for topic, _, stamp in messages if topic.endswith("/measurement"))
        lost = (killed_ns - last) * 1e-9 if role == RECORDER else 0.0
        return loop, everything, lost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    print("killed        loop gone   all gone   lost, s (medians of the runs)")
    for role in NODES:
        columns = zip(*(kill(role) for _ in range(options.runs)), strict=True)
        loop, everything, lost = (statistics.median(values) for values in columns)
        print(f"{role:12}{loop:11.2f}{everything:11.2f}{lost:11.2f}")


if __name__ == "__main__":
    main()
