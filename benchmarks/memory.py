# SPDX-License-Identifier: Apache-2.0
"""Memory and schedule of a long test: python benchmarks/memory.py

Runs ten minutes of `chen_ricles_2010` in lockstep on each host, with recording on the node hosts, and prints the
resident memory of all its processes after 10, 50 and 95 % of the test. `make hour` does the same for an hour of
real time at 256 Hz, and compares the duration of the test with its samples and slipped ticks. `--study FILE` runs
a study without cached libraries, and prints its duration and the largest memory of all its processes together
(proportional set size: a page that several processes share counts once).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, sleep

from rths_nodes.app import hosts
from rths_nodes.loop.options import HOSTS, PACES

RATE = 1024.0
"""Servo rate of the scenario, Hz."""
ALPHA = 29.0
"""Alpha of its actuator, samples."""
LOOKS_S = 0.5
"""Period at which the memory of a study is measured, s."""
PATIENCE = ("bridge.max_bridge=1", "heartbeat.monitor=5", "heartbeat.recorder=5")
"""Long timeouts for real time: stalls of the machine are measured and do not end the run."""


def resident_mb() -> float:
    """Return the resident memory of this process and its descendants, MB."""
    return sum(pages(pid) for pid in family(os.getpid())) * os.sysconf("SC_PAGE_SIZE") / 1e6


def family(first: int) -> list[int]:
    """Return the ids of process ``first`` and all its descendants."""
    parents = {int(entry.name): parent_of(int(entry.name)) for entry in Path("/proc").glob("[0-9]*")}
    members = [first]
    for member in members:
        members += [pid for pid, parent in parents.items() if parent == member]
    return members


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def pages(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0


def proportional_mb(pid: int) -> float:
    """Return the proportional set size of a process, MB."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(1024e-6 * float(line.split()[1]) for line in lines if line.startswith("Pss:"))


def study(file: str) -> None:
    """Run the study ``file`` with an empty cache, and print its duration and largest memory."""
    with tempfile.TemporaryDirectory() as folder:
        rths = [sys.executable, "-m", "rths_nodes.app.cli", "study", file, "--out", f"{folder}/study", "--json"]
        start, largest = perf_counter(), 0.0
        running = subprocess.Popen(rths, stdout=subprocess.DEVNULL, env=os.environ | {"XDG_CACHE_HOME": folder})
        while running.poll() is None:
            largest = max(largest, sum(map(proportional_mb, family(running.pid))))
            sleep(LOOKS_S)
        if running.returncode:
            sys.exit(f"{file}: exit code {running.returncode}")
        print(f"{file}: {perf_counter() - start:.1f} s, at most {largest:.0f} MB in all processes")


def progress_into(memory: dict[float, float]) -> Callable[[int, int], None]:
    """Return a progress callback that stores the resident memory after 10, 50 and 95 % of the test."""

    def progress(sample: int, samples: int) -> None:
        for share in (0.1, 0.5, 0.95):
            if sample >= share * samples and share not in memory:
                memory[share] = resident_mb()

    return progress


def at_rate(rate: float) -> list[str]:
    """Return overrides for another servo rate that nearly keep integration step and actuator delay, s."""
    alpha = max(1.0, ALPHA / RATE * rate)
    return [
        f"servo_rate={rate}",
        f"substeps={max(1, round(rate / 102.4))}",
        f"axes.story_1.actuator.alpha={alpha}",
        f"compensator.alpha_es={alpha}",
    ]


def overrides(options: argparse.Namespace) -> list[str]:
    """Return the overrides of the scenario for the command line."""
    duration = f"duration={options.seconds}"
    rate = at_rate(options.rate) if options.rate != RATE else ()
    return [duration, *rate, *(PATIENCE if options.pace == "realtime" else ())]


def drift(report: hosts.RunResult, rate: float) -> str:
    """Format the time that a run in real time took in addition to its samples and slipped ticks."""
    timing = report.timing
    slots = report.samples + timing["missed"]
    return (
        f"  {timing['running_s']:.4f} s for {report.samples} samples and {timing['missed']:.0f} ticks slipped "
        f"({timing['bridged']:.0f} bridged): {1e3 * (timing['running_s'] - slots / rate):+.3f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="duration of a test; default: %(default)s")
    parser.add_argument("--hosts", nargs="+", choices=HOSTS, default=list(HOSTS))
    parser.add_argument("--pace", choices=PACES, default="lockstep", help="default: %(default)s")
    parser.add_argument("--rate", type=float, default=RATE, help="servo rate, Hz; default: %(default)s")
    parser.add_argument("--study", metavar="FILE", help="only measure the memory of this study")
    options = parser.parse_args()
    if options.study:
        study(options.study)
        return
    print("host          10 %      50 %      95 %   growth, MB of resident memory")
    for host in options.hosts:
        memory: dict[float, float] = {}
        with tempfile.TemporaryDirectory() as folder:
            record = None if host == "embedded" else Path(folder) / "run"
            report = hosts.run(
                "chen_ricles_2010",
                overrides(options),
                host=host,
                pace=options.pace,
                record=record,
                keep=False,
                progress=progress_into(memory),
            )
        if report.exit_code:
            sys.exit(f"{host}: {report.outcome} after {report.samples} samples: {report.reason}")
        first, *_, last = memory.values()
        print(f"{host:10}" + "".join(f"{value:10.1f}" for value in memory.values()) + f"{last - first:9.1f}")
        if options.pace == "realtime":
            print(drift(report, options.rate))


if __name__ == "__main__":
    main()
