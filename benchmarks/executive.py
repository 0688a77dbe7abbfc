# SPDX-License-Identifier: Apache-2.0
"""The executive compared with a bare paced loop: python benchmarks/executive.py [--pairs 10] [--seconds 10]

Runs a simulated test and, alternately, the same program without the loop, with the same priority, spin and ring
buffer, while a Python thread is busy. Prints the time from tick to finished row for each rate, as medians over the
pairs. Then runs the test at 4096 Hz with histories in memory, with a recording, and with nodes, topics and a
recording, alternately. Prints the median of the loop and the share of a processor that Python takes during the
loop. Writes the quantiles of each run and facts about the machine to benchmarks/results/executive.json.

In runs of less than 5 s, the 99.9th percentile at 1024 Hz depends on five samples.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from latency import at_rate, named

from rths_nodes.app import hosts
from rths_nodes.app.commands import doctor
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.executive.running import ExecutiveLoop

RESULTS = Path(__file__).parent / "results" / "executive.json"
RATES = 1024.0, 4096.0, 10_000.0
GOALS = {"p50": 0.5, "p99": 3.0, "p99.9": 20.0, "missed": 0.001}
"""Largest allowed differences from the bare loop: quantiles in us, fraction of missed ticks."""
QUANTILES = {"p50": 50.0, "p99": 99.0, "p99.9": 99.9}


@contextmanager
def busy_thread() -> Iterator[None]:
    """Run a thread that competes for the interpreter lock for the duration of the ``with`` block."""
    ended = threading.Event()

    def burn() -> None:
        while not ended.is_set():
            sum(range(1000))

    thread = threading.Thread(target=burn)
    thread.start()
    yield
    ended.set()
    thread.join()


def measured(scenario: str, rate: float, seconds: float, bare: bool) -> dict[str, float]:
    """Return the quantiles (us) from tick to finished row of one run, and the fraction of missed ticks."""
    loop = ExecutiveLoop(checked_loop(at_rate(named(scenario), rate, seconds)), True, bare)
    with busy_thread():
        outcome = loop.run()
    times = 1e-3 * np.array(loop.taken)
    row = {name: float(np.percentile(times, percent)) for name, percent in QUANTILES.items()}
    return row | {"max": float(times.max()), "missed": outcome.timing["missed"] / max(len(times), 1)}


def pairs(scenario: str, rate: float, seconds: float, count: int) -> dict[str, Any]:
    """Return the runs of ``count`` pairs at one rate, and their medians."""
    kinds: dict[str, list[dict[str, float]]] = {"bare": [], "executive": []}
    for number in range(count):
        for kind in sorted(kinds, reverse=number % 2 == 1):
            kinds[kind].append(measured(scenario, rate, seconds, kind == "bare"))
    medians = {
        kind: {name: float(np.median([run[name] for run in runs])) for name in runs[0]}
        for kind, runs in kinds.items()
    }
    excess = {name: medians["executive"][name] - medians["bare"][name] for name in GOALS}
    return {"rate": rate, "seconds": seconds, "runs": kinds, "medians": medians, "excess": excess}


KINDS = {
    "in memory": {"host": "embedded", "keep": True},
    "recorded": {"host": "embedded", "keep": False},
    "nodes, topics, recorded": {"host": "composed", "keep": False},
}
"""Options of ``hosts.run`` for each reader of the program's rows."""


def cost_of_readers(scenario: str, rate: float, seconds: float, kind: str) -> dict[str, float]:
    """Return the median of the loop (us) and the share of a processor that Python takes during the loop.

    The share is measured from the first to the last call of ``progress``. It excludes starting the nodes and
    reading the recording.
    """
    calls: list[tuple[float, float]] = []

    def progress(_sample: int, _samples: int) -> None:
        calls.append((time.process_time(), time.monotonic()))

    with tempfile.TemporaryDirectory(prefix="rths_") as folder:
        options = KINDS[kind] | ({} if kind == "in memory" else {"record": Path(folder) / "run"})
        test = at_rate(named(scenario), rate, seconds)
        result = hosts.run(test, engine="executive", pace="realtime", progress=progress, **options)
    used, wall = np.subtract(calls[-1], calls[0])
    return {
        "processor": float(used / wall),
        "seconds": float(wall),
        "p50": 1e6 * result.timing["loop"]["median_s"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="chen_ricles_2010", help="NAME or NAME:CASE; default: %(default)s")
    parser.add_argument("--pairs", type=int, default=10, help="pairs of runs; default: %(default)d")
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of a run, s; default: %(default)g")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, metavar="HZ")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON file; default: %(default)s")
    options = parser.parse_args()
    rows = []
    for rate in options.rates:
        row = pairs(options.scenario, rate, options.seconds, options.pairs)
        rows.append(row)
        for kind, median in row["medians"].items():
            figures = ", ".join(f"{name} {median[name]:.2f}" for name in (*QUANTILES, "max"))
            print(f"{rate:6.0f} Hz {kind:9}: {figures} us; {100 * median['missed']:.3f} % missed", flush=True)
        met = all(row["excess"][name] <= goal for name, goal in GOALS.items())
        figures = ", ".join(f"{name} {row['excess'][name]:.2f} <= {GOALS[name]:g} us" for name in QUANTILES)
        print(f"{rate:6.0f} Hz excess   : {figures}: {'met' if met else 'NOT MET'}", flush=True)
    costs: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for number in range(options.pairs):
        for kind in sorted(KINDS, reverse=number % 2 == 1):
            costs[kind].append(cost_of_readers(options.scenario, 4096.0, options.seconds, kind))
    for kind, runs in costs.items():
        p50, share = (float(np.median([run[key] for run in runs])) for key in ("p50", "processor"))
        print(
            f"  4096 Hz {kind}: loop p50 {p50:.3f} us; Python takes {100 * share:.0f} % of a processor", flush=True
        )
    options.out.parent.mkdir(exist_ok=True)
    machine = {fact.name: fact.data() for fact in doctor.facts()}
    text = json.dumps({"machine": machine, "pairs": rows, "readers": costs}, indent=1)
    options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
