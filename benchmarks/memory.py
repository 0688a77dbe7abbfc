"""Memory over a long test: python benchmarks/memory.py

Runs `chen_ricles_2010` for ten minutes of test in lockstep on each host, with recording on the node hosts, and
prints the resident memory of all its processes at a tenth, half and the end of the test.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from rths_nodes import hosts


def resident_mb() -> float:
    """Resident memory of this process and its children."""
    here = os.getpid()
    family = [here] + [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and parent_of(int(entry.name)) == here
    ]
    return sum(pages(pid) for pid in family) * os.sysconf("SC_PAGE_SIZE") / 1e6


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


def watcher(seen: dict[float, float]) -> Callable[[int, int], None]:
    """A progress callback that notes the memory when a share of the test is first reached."""

    def watch(sample: int, samples: int) -> None:
        for share in (0.1, 0.5, 0.95):
            if sample >= share * samples and share not in seen:
                seen[share] = resident_mb()

    return watch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="of test; default: %(default)s")
    parser.add_argument("--hosts", nargs="+", choices=hosts.HOSTS, default=list(hosts.HOSTS))
    options = parser.parse_args()
    print("host          10 %      50 %      95 %   growth, MB of resident memory")
    for host in options.hosts:
        seen: dict[float, float] = {}
        with tempfile.TemporaryDirectory() as folder:
            record = None if host == "embedded" else Path(folder) / "run"
            overrides = [f"duration={options.seconds}"]
            report = hosts.run(
                "chen_ricles_2010", overrides, host=host, record=record, keep=False, progress=watcher(seen)
            )
        assert report.exit_code == 0, report.reason
        first, *_, last = seen.values()
        print(f"{host:10}" + "".join(f"{value:10.1f}" for value in seen.values()) + f"{last - first:9.1f}")


if __name__ == "__main__":
    main()
