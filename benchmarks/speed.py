# SPDX-License-Identifier: Apache-2.0
"""Speed of the hosts, relative to the floors of the machine: python benchmarks/speed.py

Prints the lockstep speed of `chen_ricles_2010` in samples per second and relative to real time, as the median of a
few runs, and floors measured in the same run: a plain Python loop, and a ping-pong between two processes over a
socket.

Then prints the cost of a sample on the host embedded in steps of that plain loop, without histories, over kernels
and stage by stage: the shortest processor time of a few runs, with the step measured before and after each run.
Stage by stage, also prints the 99th percentile of a sample divided by the median. Each sample counts with its
shortest time over the runs, because disturbances affect different samples in each run. Also prints the cost of the
command stage per sample: the computation of a compensator node between its messages. `benchmarks/kernels.py`
measures the kernels alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from time import perf_counter_ns

import floor
import numpy as np
from processor_time import least

from rths_nodes.app import hosts
from rths_nodes.core.samples import Measurement, Target
from rths_nodes.loop.compiled.running import KernelLoop, loop_over_kernels
from rths_nodes.loop.embedded import Loop, Sink
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.command import CommandStage

RATE = 1024.0
SERVO_HYDRAULIC = "axes.story_1.actuator.type=servo_hydraulic"
TARGETS = {
    "embedded, plant 1": (25.0 * RATE, [], {"host": "embedded", "keep": False}),
    "embedded, plant S": (10.0 * RATE, [SERVO_HYDRAULIC], {"host": "embedded", "keep": False}),
    "composed, recording": (8000.0, [], {"host": "composed", "record": True}),
    "processes, recording": (2000.0, [], {"host": "processes", "record": True}),
}
"""Required samples per second, overrides, and options of ``hosts.run``."""
LOOPS = {
    "chen_ricles_2010": ("chen_ricles_2010", "", 20.0, 400),
    "RTHS benchmark, case 1": ("rths_benchmark_2020", "case_1", 8.0, 700),
    "three coupled axes with LQG": ("phillips_spencer_2012", "d", 5.0, 2500),
}
"""Scenario, case, duration (s), and largest cost of a sample, plain steps."""
UNDISTURBED = 7
"""Number of runs after which each sample was very probably undisturbed in at least one."""


class Timed(Loop):
    """Embedded loop that stores the times at which its samples end in ``ends``, ns."""

    def __init__(self, assembly: Assembly) -> None:
        super().__init__(assembly)
        self.ends: list[int] = []

    def _show(self, measured: Measurement) -> None:
        super()._show(measured)
        self.ends.append(perf_counter_ns())


def over_kernels(scenario: Scenario) -> KernelLoop:
    """Return the loop over kernels in plain Python."""
    loop = loop_over_kernels(Loop(Assembly(scenario)), compiled=False)
    assert isinstance(loop, KernelLoop), loop
    return loop


def steps_a_sample(name: str, case: str, duration: float, runs: int) -> tuple[float, float, float, float]:
    """Return the cost of a sample over kernels (s, plain steps) and stage by stage (plain steps, p99 / median)."""
    scenario = files.load(name, [f"duration={duration}"], case)
    _, mean, steps = least(lambda: over_kernels(scenario).run, scenario.samples, runs)
    _, _, by_stages = least(lambda: Loop(Assembly(scenario)).run, scenario.samples, runs)
    loops = [Timed(Assembly(scenario)) for _ in range(max(runs, UNDISTURBED))]
    for loop in loops:
        loop.run()
    undisturbed = np.min([np.diff(loop.ends) for loop in loops], axis=0)
    return mean, steps, by_stages, float(np.percentile(undisturbed, 99.0) / np.median(undisturbed))


class CommandStageInput(Sink):
    """Sink that stores the messages to the command stage in the order of their processing."""

    def __init__(self) -> None:
        self.messages: list[Target | Measurement] = []
        self._measured: Measurement

    def target(self, target: Target) -> None:
        self.messages.append(deepcopy(target))

    def measurement(self, measured: Measurement) -> None:
        self._measured = deepcopy(measured)

    def state(self, sample: int, values: Sequence[float]) -> None:
        self.messages.append(self._measured)


def steps_of_stage(name: str, case: str, duration: float, runs: int) -> float:
    """Return the cost of the command stage per sample with the messages of a run, plain steps."""
    scenario = files.load(name, [f"duration={duration}"], case)
    received = CommandStageInput()
    Loop(Assembly(scenario)).run([received])

    def make() -> Callable[[], None]:
        stage = CommandStage(Assembly(scenario))

        def run() -> None:
            for message in received.messages:
                if isinstance(message, Target):
                    stage.target(message)
                else:
                    stage.next(message)

        return run

    return least(make, scenario.samples, runs)[2]


def measure(overrides: list[str], options: dict[str, object]) -> float:
    """Return the samples per second from the first sample to the last."""
    with tempfile.TemporaryDirectory() as folder:
        record = {"record": Path(folder) / "run"} if "record" in options else {}
        report = hosts.run("chen_ricles_2010", overrides, **options | record)
    assert report.exit_code == 0, report.reason
    return report.samples / report.timing["running_s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="runs of each host; default: %(default)d")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args()
    result = {
        "plain Python loop, steps/s": 1.0 / floor.python_step(),
        "socket ping-pong, round trips/s": 1.0 / floor.ping_pong(20_000, in_real_time=False)["median_s"],
    }
    for name, value in result.items():
        print(f"floor: {name:38} {value:10.0f}")
    print(f"{'host':24} {'samples/s':>10} {'x real time':>12} {'wanted':>8}")
    for name, (target, overrides, run_options) in TARGETS.items():
        rate = statistics.median(measure(overrides, run_options) for _ in range(options.runs))
        result[name] = rate
        mark = "" if rate >= target else "  below"
        print(f"{name:24} {rate:10.0f} {rate / RATE:12.1f} {target:8.0f}{mark}")
    head = f"{'us a sample':>12} {'plain steps':>12} {'wanted':>8}"
    print(f"{'embedded, over kernels':32} {head} {'by stages':>12} {'p99/median':>11} {'command stage':>14}")
    for name, (scenario, case, duration, wanted) in LOOPS.items():
        seconds, steps, by_stages, ratio = steps_a_sample(scenario, case, duration, options.runs)
        stage = steps_of_stage(scenario, case, duration, options.runs)
        result[f"{name}, plain steps a sample"] = steps
        result[f"{name}, plain steps a sample by stages"] = by_stages
        result[f"{name}, 99th percentile over median"] = ratio
        result[f"{name}, plain steps of the command stage"] = stage
        mark = "" if steps <= wanted else "  above"
        row = f"{1e6 * seconds:12.1f} {steps:12.0f} {wanted:8d} {by_stages:12.0f} {ratio:11.2f} {stage:14.0f}"
        print(f"{name:32} {row}{mark}")
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
