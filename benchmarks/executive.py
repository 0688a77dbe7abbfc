# SPDX-License-Identifier: Apache-2.0
"""The executive beside a bare paced loop: python benchmarks/executive.py [--pairs 10] [--seconds 5]

Runs a simulated test and, by turns, the same program without the loop: same priority, spin and ring, and a busy
thread of Python beside both. Prints medians over the pairs of the time from tick to finished row, and the share
of a processor that Python takes with histories in memory and with a recording. The quantiles of each run go to
benchmarks/results/executive.json with facts about the machine.
"""

from __future__ import annotations

import argparse
import json
import resource
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
QUANTILES = {"p50": 50.0, "p99": 99.0, "p99.9": 99.9}


@contextmanager
def busy_thread() -> Iterator[None]:
    """Keep the lock of the interpreter in use during the block."""
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
    """Return quantiles (us) from tick to finished row of one run, and the share of missed ticks."""
    loop = ExecutiveLoop(checked_loop(at_rate(named(scenario), rate, seconds)), True, bare)
    with busy_thread():
        outcome = loop.run()
    taken = 1e-3 * np.array(loop.taken)
    row = {name: float(np.percentile(taken, percent)) for name, percent in QUANTILES.items()}
    return row | {"max": float(taken.max()), "missed": outcome.timing["missed"] / max(len(taken), 1)}


def pairs(scenario: str, rate: float, seconds: float, count: int) -> dict[str, Any]:
    """Return the runs of ``count`` pairs at one rate, and the medians over them."""
    kinds: dict[str, list[dict[str, float]]] = {"bare": [], "executive": []}
    for number in range(count):
        for kind in sorted(kinds, reverse=number % 2 == 1):
            kinds[kind].append(measured(scenario, rate, seconds, kind == "bare"))
    medians = {
        kind: {name: float(np.median([run[name] for run in runs])) for name in runs[0]}
        for kind, runs in kinds.items()
    }
    return {"rate": rate, "runs": kinds, "medians": medians}


def python_share(scenario: str, rate: float, seconds: float, recorded: bool) -> dict[str, float]:
    """Return the share of a processor that Python takes beside the program, and the median of the loop in us."""
    with tempfile.TemporaryDirectory(prefix="rths_") as folder:
        record = {"record": Path(folder) / "run"} if recorded else {}
        test = at_rate(named(scenario), rate, seconds)
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        done = hosts.run(test, engine="executive", pace="realtime", keep=not recorded, **record)
        after, wall = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - began
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"processor": used / wall, "p50": 1e6 * done.timing["loop"]["median_s"], "samples": done.samples}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="chen_ricles_2010")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = []
    for rate in RATES:
        row = pairs(options.scenario, rate, options.seconds, options.pairs)
        rows.append(row)
        for kind, found in row["medians"].items():
            figures = ", ".join(f"{name} {found[name]:.2f}" for name in (*QUANTILES, "max"))
            print(f"{rate:6.0f} Hz {kind:9}: {figures} us; {100 * found['missed']:.3f} % missed", flush=True)
    shares = {
        name: python_share(options.scenario, 4096.0, options.seconds, name == "recorded")
        for name in ("in memory", "recorded")
    }
    for name, share in shares.items():
        print(f"  4096 Hz {name}: Python takes {100 * share['processor']:.0f} % of a processor")
    options.out.parent.mkdir(exist_ok=True)
    machine = {fact.name: fact.data() for fact in doctor.facts()}
    text = json.dumps({"machine": machine, "pairs": rows, "python": shares}, indent=1)
    options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
