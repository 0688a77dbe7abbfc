# SPDX-License-Identifier: Apache-2.0
"""Time of the loop over kernels, in plain Python and compiled, and compile time: python benchmarks/kernels.py

    chen_ricles_2010               ten samples per step, adaptive inverse, actuator with its specimen
    rths_benchmark_2020, case_1    three floors, learning inverse, hydraulic actuator, noisy and late sensors
    phillips_spencer_2012, d       three coupled axes with a damper, its controller, and noisy sensors

``loop`` is the generated function alone. ``whole`` is a run as in a study, with noise, limits, indices and
histories. The exit code is 1 unless plain and compiled runs reproduce the histories of the embedded loop bit by
bit. Times are processor times: the shortest of a few runs, also in steps of a plain Python loop (`v -= 0.01 * x; x
+= 0.01 * v`), which is timed before and after each run. The compiler is timed with an empty cache, and in a new
process that finds the compiled library in the cache.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from time import thread_time_ns
from typing import Any, NamedTuple

import numpy as np
from processor_time import least

from rths_nodes.core.samples import Array
from rths_nodes.loop.compiled import running
from rths_nodes.loop.compiled.parts import Parts, parts_of
from rths_nodes.loop.compiled.running import KernelLoop, Way, forces_of, given, in_arrays, plain, room
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.indices.tracking import CHUNK
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.recording.run import Collector

CASES = {
    "chen_ricles_2010": ("", 30.0),
    "rths_benchmark_2020": ("case_1", 20.0),
    "phillips_spencer_2012": ("d", 10.0),
}
"""Case of each scenario, and its duration, s."""


class Bench(NamedTuple):
    """Scenario for repeated runs, and the true displacements of the embedded loop (m)."""

    name: str
    case: str
    seconds: float
    samples: int = 0
    expected: Array = np.zeros(0)

    def loop(self) -> Loop:
        return Loop(Assembly(files.load(self.name, [f"duration={self.seconds}"], self.case)))

    def parts(self, loop: Loop | None = None) -> Parts:
        parts = parts_of((loop or self.loop()).assembly)
        assert isinstance(parts, Parts), parts
        return parts


def bench(name: str, longest: float) -> Bench:
    """Return the scenario with the result of its embedded loop, at most ``longest`` s."""
    case, seconds = CASES[name]
    scenario = Bench(name, case, min(seconds, longest))
    loop = scenario.loop()
    collector = Collector(loop.scenario, loop.assembly.names)
    loop.run([collector])
    return scenario._replace(samples=loop.scenario.samples, expected=collector.run().true_displacement)


def complete_run(scenario: Bench, way: Way) -> Callable[[], Array]:
    """Prepare a run with histories in memory."""
    embedded = scenario.loop()
    loop = KernelLoop(embedded, scenario.parts(embedded), way)
    collector = Collector(embedded.scenario, embedded.assembly.names)

    def run() -> Array:
        loop.run([collector])
        assert loop.by_kernels
        return collector.run().true_displacement

    return run


def function_alone(scenario: Bench, way: Way) -> Callable[[], Any]:
    """Prepare a call of the generated function for the first chunk."""
    count, parts = min(scenario.samples, CHUNK), scenario.parts()
    constants, states = tuple(parts.constants.values()), tuple(parts.states.values())
    if way.compiled:
        constants, states = in_arrays(constants, tables=True), in_arrays(states)
    inputs = given(parts, count, forces_of(parts, way.compiled), not way.compiled)
    out = room(parts, count, count)
    for table in out:
        if isinstance(table, np.ndarray):
            table.fill(0)  # maps the pages: a run has used the tables for an earlier chunk
    return lambda: way.run(0, count, constants, states, inputs, out)


def report(scenario: Bench, way: Way, runs: int) -> bool:
    """Print the times of a scenario. Return true if the run reproduces the embedded loop bit by bit."""
    count = min(scenario.samples, CHUNK)
    _, seconds, steps = least(lambda: function_alone(scenario, way), count, 4 * runs)
    (result, *_), run, run_steps = least(lambda: complete_run(scenario, way), scenario.samples, runs)
    equal = np.array_equal(result, scenario.expected)
    title = f"{scenario.name}{', ' * bool(scenario.case)}{scenario.case}"
    title += ", compiled" if way.compiled else ", plain"
    times = f"loop {1e6 * seconds:8.3f} us per sample, {steps:8.2f} plain steps"
    times += f"; whole {1e6 * run:8.3f} us, {run_steps:8.2f} plain steps"
    print(f"{title:46} {times}; {'the same bits' if equal else 'OTHER BITS'}", flush=True)
    return equal


def compiling(scenario: Bench) -> tuple[Way, float, float]:
    """Return the compiled loop, and the processor times (s) to compile it and to load it in another process."""
    parts = scenario.parts()
    before = sum(os.times()[:4])  # includes child processes, among them the compiler
    way = running.way_of(parts)
    cold = sum(os.times()[:4]) - before
    command = [sys.executable, __file__, "--warm", scenario.name]
    return way, cold, json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def warm(name: str) -> float:
    """Return the processor time (s) to load the compiled loop, including its import."""
    parts = Bench(name, CASES[name][0], 1.0).parts()
    before = thread_time_ns()
    assert running.way_of(parts).compiled
    return 1e-9 * (thread_time_ns() - before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="runs of each loop; default: %(default)d")
    parser.add_argument("--seconds", type=float, default=30.0, help="longest test, s; default: %(default)g")
    parser.add_argument("--warm", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.warm:
        print(json.dumps(warm(options.warm)))
        return 0
    same = True
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        for name in CASES:
            scenario = bench(name, options.seconds)
            same &= report(scenario, plain(scenario.parts()), 1)
            way, cold, loaded = compiling(scenario)
            print(f"{name:46} compiled in {cold:.1f} s, loaded in {loaded:.2f} s", *way.notes, flush=True)
            same &= report(scenario, way, options.runs)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
