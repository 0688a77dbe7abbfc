# SPDX-License-Identifier: Apache-2.0
"""Memory and schedule of a long test: python benchmarks/memory.py

Runs ten minutes of `chen_ricles_2010` in lockstep on each host, with recording on the node hosts, and prints the
resident memory of all its processes after 10, 50 and 95 % of the test. `make hour` does the same for an hour of
real time at 256 Hz, and compares the duration of the test with its samples and with the ticks that slipped.
`--study FILE` runs that study without any compiled libraries, and prints its duration and the largest memory of
all its processes, where a page that several processes share counts once (proportional set size).
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
"""Of the scenario, Hz."""
ALPHA = 29.0
"""Of its actuator, in samples."""
LOOKS_S = 0.5
"""Time between two looks at the memory of a study, s."""
PATIENCE = ("bridge.max_bridge=1", "heartbeat.monitor=5", "heartbeat.recorder=5")
"""A run in real time that is held up by something else is to be measured, not ended."""


def resident_mb() -> float:
    """Resident memory of this process and its children."""
    return sum(pages(pid) for pid in family(os.getpid())) * os.sysconf("SC_PAGE_SIZE") / 1e6


def family(first: int) -> list[int]:
    """Process ``first``, its children, and theirs."""
    everybody = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    parents = {pid: parent_of(pid) for pid in everybody}
    found = [first]
    for known in found:
        found += [pid for pid, parent in parents.items() if parent == known]
    return found


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
    """Memory of a process; what it shares with others counts in part."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(1024e-6 * float(line.split()[1]) for line in lines if line.startswith("Pss:"))


def study(file: str) -> None:
    """Run the study ``file`` as a process that finds nothing compiled, and print its time and largest memory."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "rths_nodes.app.cli", "study", file, "--out", f"{folder}/study", "--json"]
        begun, largest = perf_counter(), 0.0
        running = subprocess.Popen(words, stdout=subprocess.DEVNULL, env=os.environ | {"XDG_CACHE_HOME": folder})
        while running.poll() is None:
            largest = max(largest, sum(map(proportional_mb, family(running.pid))))
            sleep(LOOKS_S)
        if running.returncode:
            sys.exit(f"{file}: exit code {running.returncode}")
        print(f"{file}: {perf_counter() - begun:.1f} s, at most {largest:.0f} MB in all processes")


def watcher(seen: dict[float, float]) -> Callable[[int, int], None]:
    """A progress callback that notes the memory when a share of the test is first reached."""

    def watch(sample: int, samples: int) -> None:
        for share in (0.1, 0.5, 0.95):
            if sample >= share * samples and share not in seen:
                seen[share] = resident_mb()

    return watch


def at_rate(rate: float) -> list[str]:
    """Overrides for another servo rate: steps and delay of the actuator stay nearly what they were."""
    delay = ALPHA / RATE * rate
    alpha = max(1.0, delay)
    return [
        f"servo_rate={rate}",
        f"substeps={max(1, round(rate / 102.4))}",
        f"axes.story_1.actuator.alpha={alpha}",
        f"compensator.alpha_es={alpha}",
    ]


def overrides(options: argparse.Namespace) -> list[str]:
    """Changes to the scenario; in real time with patience: the machine's stalls are counted, and end nothing."""
    found = [f"duration={options.seconds}"]
    if options.rate != RATE:
        found += at_rate(options.rate)
    if options.pace == "realtime":
        found += PATIENCE
    return found


def drift(report: hosts.RunResult, rate: float) -> str:
    """By how much a run in real time took longer than its samples and slipped ticks account for."""
    timing = report.timing
    slots = report.samples + timing["missed"]
    return (
        f"  {timing['running_s']:.4f} s for {report.samples} samples and {timing['missed']:.0f} ticks slipped "
        f"({timing['bridged']:.0f} bridged): {1e3 * (timing['running_s'] - slots / rate):+.3f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="of test; default: %(default)s")
    parser.add_argument("--hosts", nargs="+", choices=HOSTS, default=list(HOSTS))
    parser.add_argument("--pace", choices=PACES, default="lockstep", help="default: %(default)s")
    parser.add_argument("--rate", type=float, default=RATE, help="servo rate, Hz; default: %(default)s")
    parser.add_argument("--study", metavar="FILE", help="memory of this study, in place of all that")
    options = parser.parse_args()
    if options.study:
        study(options.study)
        return
    print("host          10 %      50 %      95 %   growth, MB of resident memory")
    for host in options.hosts:
        seen: dict[float, float] = {}
        with tempfile.TemporaryDirectory() as folder:
            record = None if host == "embedded" else Path(folder) / "run"
            report = hosts.run(
                "chen_ricles_2010",
                overrides(options),
                host=host,
                pace=options.pace,
                record=record,
                keep=False,
                progress=watcher(seen),
            )
        if report.exit_code:
            sys.exit(f"{host}: {report.outcome} after {report.samples} samples: {report.reason}")
        first, *_, last = seen.values()
        print(f"{host:10}" + "".join(f"{value:10.1f}" for value in seen.values()) + f"{last - first:9.1f}")
        if options.pace == "realtime":
            print(drift(report, options.rate))


if __name__ == "__main__":
    main()
