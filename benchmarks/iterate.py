# SPDX-License-Identifier: Apache-2.0
"""Iterative tests on many rigs: python benchmarks/iterate.py plants | cases | map [--engine python]

plants   tracking on 20 plants of the RTHS benchmark without a compensator: runs until the error reaches the sensor
         noise, and error of the true displacement
cases    complete histories in the four cases of the benchmark, with the delay of its actuator and with 25 and 50
         ms more, on the declared specimen and on a specimen that is 20 % softer: runs until both substructures
         agree, and error of the true displacement relative to the whole structure; for comparison, the loop in
         real time
map      convergence of each relaxation on an oscillator, by tested share of the stiffness and by delay: number of
         runs (at most 10), or ``-`` without convergence; largest factor of plain iteration by share

``map`` makes the table of doc/measured/iterate.md.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

import numpy as np

import rths_nodes
from rths_nodes.analysis.iteration.corrections import HISTORY, RELAXATIONS, TRACKING, Settings
from rths_nodes.app.commands.iterate import Iteration, iterate
from rths_nodes.app.studies import study
from rths_nodes.app.studies.engine import Where
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario

BENCHMARK = "rths_benchmark_2020"
UNCOMPENSATED = "compensator.type=none"
CASES = ("case_1", "case_2", "case_3", "case_4")
SPECIMEN = 1190.0e3
"""Stiffness of the specimen in the benchmark, N/m."""
OSCILLATOR = "sdof_by_iteration"
STIFFNESS = 157914.0
"""Stiffness of the whole oscillator, N/m."""
MASS, RATIO, SOFT = 1000.0, 0.03, 0.85
"""Mass (kg) and damping ratio of the oscillator, and stiffness of the specimen relative to the declared one."""
SHARES = (0.03, 0.05, 0.07, 0.1, 0.25, 0.5, 0.9)
DELAYS = (0, 30, 100)
"""Transport delay of the port, samples (nearly ms); the actuator of the oscillator adds its own."""


def iterated(scenario: Scenario, settings: Settings, engine: str) -> Iteration:
    """Run an iteration without a recording."""
    with tempfile.TemporaryDirectory() as folder:
        return iterate(scenario, settings, Path(folder), False, Where(engine=engine).engine_of)


def plants(count: int, engine: str) -> None:
    """Print a row for each plant, and the largest values."""
    base = files.load(BENCHMARK, [UNCOMPENSATED], "case_1")
    print("| plant | runs | error of run 1 (%) | error of the last (%) | true (%) | measured error over noise |")
    print("|---|---|---|---|---|---|")
    table = []
    for plant in study.plants(base, count, 1):
        scenario = plant.of(base)
        sensors = scenario.axes["floor_1"].sensors
        noise = math.hypot(sensors.displacement_noise_rms, sensors.displacement_resolution / math.sqrt(12.0))
        rows = iterated(scenario, Settings(TRACKING), engine).rows
        table.append((len(rows), rows[0].error, rows[-1].error, rows[-1].true, rows[-1].missed / noise))
        print(f"| {plant.number} | {_row(table[-1])} |", flush=True)
    print(f"| worst | {_row(tuple(np.max(table, axis=0)))} |")


def cases(engine: str) -> None:
    """Print a row for each case, delay and specimen."""
    print("| case | more delay (ms) | specimen | in real time | runs | error (%) | true (%) | command | force |")
    print("|---|---|---|---|---|---|---|---|---|")
    for case in CASES:
        for samples in (1, 103, 206):
            for ratio in (1.0, 0.8):
                overrides = [UNCOMPENSATED, f"port.transport_samples={samples}"]
                overrides += [f"axes.floor_1.specimen.specimen.stiffness={ratio * SPECIMEN}"]
                scenario = files.load(BENCHMARK, overrides, case)
                loop = rths_nodes.run(scenario).outcome if ratio == 1.0 else ""
                rows = iterated(scenario, Settings(HISTORY), engine).rows
                head = f"{case} | {(samples - 1) / 4.096:.0f} | {ratio:g} | {loop} | {len(rows)}"
                errors = f"{rows[-1].error:.2g} | {rows[-1].true:.2g}"
                command, force = max(row.command for row in rows), max(row.force for row in rows)
                print(f"| {head} | {errors} | {command:.2f} | {force:.2f} |", flush=True)


def largest_factor(share: float) -> float:
    """Return the maximum of k_e / |k_n - m w^2 + i c w| over w for the oscillator with a tested ``share``."""
    w = math.sqrt(STIFFNESS / MASS) * np.linspace(0.5, 1.5, 20001)
    damping = 2.0 * RATIO * math.sqrt(STIFFNESS * MASS)
    numerical = (1.0 - share) * STIFFNESS - MASS * w**2 + 1j * damping * w
    return float(np.max(SOFT * share * STIFFNESS / np.abs(numerical)))


def by_relaxation(engine: str) -> None:
    """Print a table for each relaxation."""
    print("largest factor: " + ", ".join(f"{largest_factor(share):.3f} ({share:g})" for share in SHARES))
    for name in RELAXATIONS:
        print(f"\n{name}: tested share of the stiffness, by transport delay (samples)\n")
        print("| share | " + " | ".join(map(str, DELAYS)) + " |")
        print("|---|" + "---|" * len(DELAYS))
        for share in SHARES:
            cells = []
            for delay in DELAYS:
                overrides = [UNCOMPENSATED, f"port.transport_samples={delay}"]
                overrides += [f"structure.experimental_stiffness=[[{share * STIFFNESS}]]"]
                overrides += [f"axes.story.specimen.stiffness={SOFT * share * STIFFNESS}"]
                result = iterated(
                    files.load(OSCILLATOR, overrides), Settings(HISTORY, 10, relaxation=name), engine
                )
                cells.append(f"{len(result.rows)}" if result.verdict == "converged" else "-")
            print(f"| {share:g} | " + " | ".join(cells) + " |", flush=True)


def _row(values: tuple[float, ...]) -> str:
    return " | ".join(f"{value:.3g}" for value in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("plants", "cases", "map"))
    parser.add_argument("--plants", type=int, default=20, metavar="N", help="number; default: %(default)s")
    parser.add_argument("--engine", default="compiled", help="python or compiled; default: %(default)s")
    options = parser.parse_args()
    if options.what == "plants":
        plants(options.plants, options.engine)
    elif options.what == "cases":
        cases(options.engine)
    else:
        by_relaxation(options.engine)


if __name__ == "__main__":
    main()
