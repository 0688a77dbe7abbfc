# SPDX-License-Identifier: Apache-2.0
"""Time of the loop over kernels, plain and compiled, and of its compiler: python benchmarks/kernels.py

    chen_ricles_2010               ten samples per step, adaptive inverse, actuator with its specimen
    rths_benchmark_2020, case_1    three floors, learning inverse, hydraulic actuator, noisy and late sensors
    phillips_spencer_2012, d       three coupled axes with a damper, its controller, and noisy sensors

``loop`` is the function of the module alone. ``whole`` is a run as in a study, with noise, limits, indices and
histories. The exit code is 1 unless plain and compiled runs give the histories of the embedded loop to the bit.
Times are processor times: the shortest of a few runs, also in steps of a plain Python loop (`v -= 0.01 * x; x +=
0.01 * v`) that is timed around each run. The compiler is timed once in an empty folder, and in a new process that
finds the compiled library there.
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
from rths_nodes.loop.compiled import native
from rths_nodes.loop.compiled.history import given, room
from rths_nodes.loop.compiled.parts import Parts, parts_of
from rths_nodes.loop.compiled.running import KernelLoop, Way, forces_of, in_arrays, plain
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.indices.delay import CHUNK
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
    """A scenario that is run again and again, and the true displacements of the embedded loop (m)."""

    name: str
    case: str
    seconds: float
    samples: int
    wanted: Array

    def loop(self) -> Loop:
        return Loop(Assembly(files.load(self.name, [f"duration={self.seconds}"], self.case)))

    def parts(self) -> Parts:
        found = parts_of(self.loop().assembly)
        assert isinstance(found, Parts), found
        return found


def bench(name: str, longest: float) -> Bench:
    """The scenario, no longer than ``longest`` (s)."""
    case, seconds = CASES[name]
    made = Bench(name, case, min(seconds, longest), 0, np.zeros(0))
    loop = made.loop()
    collector = Collector(loop.scenario, loop.assembly.names)
    loop.run([collector])
    return made._replace(samples=loop.scenario.samples, wanted=collector.run().true_displacement)


def whole(of: Bench, way: Way) -> Callable[[], Callable[[], Array]]:
    """Runs with histories in memory."""

    def make() -> Callable[[], Array]:
        embedded = of.loop()
        parts = parts_of(embedded.assembly)
        assert isinstance(parts, Parts)
        loop, collector = KernelLoop(embedded, parts, way), Collector(embedded.scenario, embedded.assembly.names)

        def run() -> Array:
            loop.run([collector])
            assert loop.by_kernels
            return collector.run().true_displacement

        return run

    return make


def alone(of: Bench, way: Way) -> Callable[[], Callable[[], Any]]:
    """The function of the module, over the first chunk."""
    count = min(of.samples, CHUNK)

    def make() -> Callable[[], Any]:
        parts = of.parts()
        constants, states = tuple(parts.constants.values()), tuple(parts.states.values())
        if way.compiled:
            constants, states = in_arrays(constants, tables=True), in_arrays(states)
        known = given(parts, count, forces_of(parts, way.compiled), not way.compiled)
        out = room(parts, count, count)
        for table in out:
            if isinstance(table, np.ndarray):
                table.fill(0)  # as in a run, which has used them for the chunk before: the pages are there
        return lambda: way.run(0, count, constants, states, known, out)

    return make


def told(of: Bench, way: Way, runs: int) -> bool:
    """Print a line; whether the run gives what the embedded loop does."""
    _, seconds, steps = least(alone(of, way), min(of.samples, CHUNK), 4 * runs)
    (found, *_), in_all, steps_in_all = least(whole(of, way), of.samples, runs)
    equal = np.array_equal(found, of.wanted)
    words = f"{of.name}{', ' * bool(of.case)}{of.case}, {'compiled' if way.compiled else 'plain'}"
    each = f"loop {1e6 * seconds:8.3f} us a sample, {steps:8.2f} plain steps"
    in_all_words = f"whole {1e6 * in_all:8.3f} us, {steps_in_all:8.2f} plain steps"
    print(f"{words:46} {each}; {in_all_words}; {'the same bits' if equal else 'OTHER BITS'}", flush=True)
    return equal


def compiling(of: Bench) -> tuple[Way, float, float]:
    """The compiled loop; time of the processor (s) to compile it, and to find it in another process."""
    parts = of.parts()
    before = sum(os.times()[:4])  # of a child, which compiles, too
    way = native.way_of(parts)
    cold = sum(os.times()[:4]) - before
    words = [sys.executable, __file__, "--warm", of.name]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return way, cold, json.loads(done.stdout)


def warm(name: str) -> float:
    """Time of the processor (s) until the compiled loop is there, its import included."""
    case, _ = CASES[name]
    parts = parts_of(Assembly(files.load(name, ["duration=1"], case)))
    assert isinstance(parts, Parts)
    before = thread_time_ns()
    assert native.way_of(parts).compiled
    return 1e-9 * (thread_time_ns() - before)


def main() -> int:
    """Print all, and whether they are what the embedded loop gives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0, help="of a test, at most; default: %(default)g")
    parser.add_argument("--warm", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.warm:
        print(json.dumps(warm(options.warm)))
        return 0
    same = True
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        for name in CASES:
            of = bench(name, options.seconds)
            same = told(of, plain(of.parts()), 1) and same
            way, cold, found = compiling(of)
            print(f"{name:46} compiled in {cold:.1f} s, found in {found:.2f} s", *way.notes, flush=True)
            same = told(of, way, options.runs) and same
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
