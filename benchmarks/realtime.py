"""Real time beside the machine's own floor: python benchmarks/realtime.py

Runs `chen_ricles_2010` in real time on both node hosts, with recorder and monitor, and before and after each a
bare paced loop with the same period, scheduling and waiting. Printed are missed ticks (as a share, and as a
ratio to the floor), gaps in the recording, and percentiles of loop and lateness.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import rths_nodes
from rths_nodes import hosts
from rths_nodes.ros.pacing import Pacer, real_time
from rths_nodes.timing import statistics

PLUS = 0.01
"""Share of ticks that may be missed beyond three times the floor."""


def floor(rate: float, seconds: float) -> dict[str, float]:
    """A bare paced loop: what this machine misses by itself."""
    ticks = round(rate * seconds)
    pacer = Pacer(1.0 / rate, ticks)
    with real_time(True) as refused:
        pacer.start()
        for _ in range(ticks):
            pacer()
    for words in refused:
        print(f"note: {words}")
    return {"missed": pacer.missed / ticks} | statistics(pacer.lateness.seconds)


def run(host: str, rate: float, seconds: float) -> tuple[hosts.Report, str]:
    """A run and the gaps in its recording."""
    with tempfile.TemporaryDirectory() as folder:
        overrides = [f"servo_rate={rate}", f"duration={seconds}"]
        report = hosts.run("chen_ricles_2010", overrides, host=host, pace="realtime", record=Path(folder) / "run")
        assert report.exit_code == 0, report.reason
        return report, rths_nodes.read(report.recording).information["gaps"]


def line(name: str, values: dict[str, float]) -> str:
    keys = ("median_s", "p99_s", "p999_s", "max_s")
    return f"  {name:22}" + "".join(f"{values[key] * 1e6:10.0f}" for key in keys)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=1024.0, help="Hz; default: %(default)s")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    rate, seconds = options.rate, options.seconds
    results = {}
    print(f"{rate:g} Hz, {seconds:g} s; times in microseconds: median, p99, p99.9, max")
    for host in ("composed", "processes"):
        before = floor(rate, seconds / 2)
        report, gaps = run(host, rate, seconds)
        after = floor(rate, seconds / 2)
        bare = (before["missed"] + after["missed"]) / 2
        missed = report.timing["missed"] / report.samples
        allowed = 3.0 * bare + PLUS
        print(f"{host}: missed {100 * missed:.2f} % of the ticks, the bare loop {100 * bare:.2f} %")
        print(f"  allowed {100 * allowed:.2f} %: {'met' if missed <= allowed else 'NOT MET'}; gaps: {gaps}")
        print(line("lateness, bare loop", before))
        print(line("lateness", report.timing["lateness"]))
        print(line("loop", report.timing["loop"]))
        results[host] = {"missed": missed, "floor": bare, "gaps": int(gaps), "timing": report.timing}
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
