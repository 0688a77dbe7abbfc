"""How fast the hosts are, beside what the machine can do at best: python benchmarks/speed.py

Lockstep speed of `chen_ricles_2010` in samples per second (and times real time), as the median of a few runs,
and floors measured in the same run: a plain Python loop, and a ping-pong between two processes over a socket.

Then what a sample of the embedded loop, the engine of every study, costs in steps of that plain loop, without any
histories: the median of a run, the least of a few runs, with the step measured around each of them.
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
    "chen_ricles_2010": ("chen_ricles_2010", "", 20.0, 420),
    "RTHS benchmark, case 1": ("rths_benchmark_2020", "case_1", 8.0, 350),
    "three coupled axes with LQG": ("phillips_spencer_2012", "d", 5.0, 2000),
}
"""Scenario, case, duration (s), and the steps of a plain loop that a sample may cost."""


def steps_a_sample(name: str, case: str, duration: float, runs: int) -> tuple[float, float]:
    """Time of a sample, s, and how many steps of a plain Python loop that is."""
    found = []
    for _ in range(runs):
        before = floor.python_step()
        outcome = Loop(Assembly(files.load(name, [f"duration={duration}"], case))).run()
        found.append((outcome.timing["loop"]["median_s"], min(before, floor.python_step())))
    return min(sample for sample, _ in found), min(sample / step for sample, step in found)


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
    print(f"{'embedded loop alone':32} {'us a sample':>12} {'plain steps':>12} {'wanted':>8}")
    for name, (scenario, case, duration, wanted) in LOOPS.items():
        seconds, steps = steps_a_sample(scenario, case, duration, options.runs)
        result[f"{name}, plain steps a sample"] = steps
        mark = "" if steps <= wanted else "  above"
        print(f"{name:32} {1e6 * seconds:12.1f} {steps:12.0f} {wanted:8d}{mark}")
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
