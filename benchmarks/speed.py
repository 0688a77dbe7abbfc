"""How fast the hosts are, beside what the machine can do at best: python benchmarks/speed.py

Lockstep speed of `chen_ricles_2010` in samples per second (and times real time), as the median of a few runs,
and floors measured in the same run: a plain Python loop, and a ping-pong between two processes over a socket.

Then what a sample of the embedded loop, the engine of every study, costs in steps of that plain loop, without any
histories: the mean of a run, and its 99th percentile over its median, the least of a few runs, with the step
measured around each of them. Kernels by themselves are in `benchmarks/kernels.py`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from rths_nodes.app import hosts
from rths_nodes.app.doctor import floor
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly

RATE = 1024.0
SERVO_HYDRAULIC = "axes.story_1.actuator.type=servo_hydraulic"
TARGETS = {
    "embedded, plant 1": (25.0 * RATE, [], {"host": "embedded", "keep": False}),
    "embedded, plant S": (10.0 * RATE, [SERVO_HYDRAULIC], {"host": "embedded", "keep": False}),
    "composed, recording": (8000.0, [], {"host": "composed", "record": True}),
    "processes, recording": (2000.0, [], {"host": "processes", "record": True}),
}


LOOPS = {
    "chen_ricles_2010": ("chen_ricles_2010", "", 20.0, 400),
    "RTHS benchmark, case 1": ("rths_benchmark_2020", "case_1", 8.0, 700),
    "three coupled axes with LQG": ("phillips_spencer_2012", "d", 5.0, 2500),
}
"""Scenario, case, duration (s), and the steps of a plain loop that a sample may cost."""


def steps_a_sample(name: str, case: str, duration: float, runs: int) -> tuple[float, float, float]:
    """Mean time of a sample (s), in steps of a plain Python loop, and the 99th percentile over the median."""
    found = []
    for _ in range(runs):
        before = floor.python_step()
        loop = Loop(Assembly(files.load(name, [f"duration={duration}"], case))).run().timing["loop"]
        step = min(before, floor.python_step())
        found.append((loop["mean_s"], loop["mean_s"] / step, loop["p99_s"] / loop["median_s"]))
    mean, steps, ratio = (min(each) for each in zip(*found, strict=True))
    return mean, steps, ratio


def measure(overrides: list[str], options: dict[str, object]) -> float:
    """Samples per second from the first sample to the last."""
    with tempfile.TemporaryDirectory() as folder:
        given = dict(options)
        if given.pop("record", False):
            given["record"] = Path(folder) / "run"
        report = hosts.run("chen_ricles_2010", overrides, **given)
    assert report.exit_code == 0, report.reason
    return report.samples / report.timing["running_s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    result = {
        "plain Python loop, steps/s": 1.0 / floor.python_step(),
        "socket ping-pong, round trips/s": 1.0 / floor.ping_pong(20_000, in_real_time=False)["median_s"],
    }
    for name, value in result.items():
        print(f"floor: {name:38} {value:10.0f}")
    print(f"{'host':24} {'samples/s':>10} {'x real time':>12} {'wanted':>8}")
    for name, (target, overrides, given) in TARGETS.items():
        rate = statistics.median(measure(overrides, given) for _ in range(options.runs))
        result[name] = rate
        mark = "" if rate >= target else "  below"
        print(f"{name:24} {rate:10.0f} {rate / RATE:12.1f} {target:8.0f}{mark}")
    print(f"{'embedded loop alone':32} {'us a sample':>12} {'plain steps':>12} {'wanted':>8} {'p99/median':>11}")
    for name, (scenario, case, duration, wanted) in LOOPS.items():
        seconds, steps, ratio = steps_a_sample(scenario, case, duration, options.runs)
        result[f"{name}, plain steps a sample"] = steps
        result[f"{name}, 99th percentile over median"] = ratio
        mark = "" if steps <= wanted else "  above"
        print(f"{name:32} {1e6 * seconds:12.1f} {steps:12.0f} {wanted:8d} {ratio:11.2f}{mark}")
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
