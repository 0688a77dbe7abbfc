# SPDX-License-Identifier: Apache-2.0
"""Iterative tests on many rigs: python benchmarks/iterate.py plants | cases | map [--engine python]

plants   tracking on 20 plants of the RTHS benchmark without a compensator: runs until the error is at the noise of
         the sensor, and error of the true displacement
cases    whole histories in the four cases of the benchmark, with the delay of its actuator and with 25 and 50 ms
         more, on the declared specimen and on a specimen that is a fifth softer: runs until both substructures
         agree, and error of the true displacement relative to the structure in one piece; for comparison, the loop
         in real time
map      convergence of each relaxation on an oscillator, by tested share of the stiffness and by delay: number of
         runs (at most 10), or ``-`` without convergence; largest factor of plain iteration by share

The table of doc/measured/iterate.md comes from ``map``.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

import numpy as np

import rths_nodes
from rths_nodes.analysis.iteration.convergence import HISTORY, TRACKING, Rule
from rths_nodes.analysis.iteration.corrections import RELAXATIONS, Settings
from rths_nodes.app.commands.iterate import Iteration, iterate
from rths_nodes.app.studies import ensembles
from rths_nodes.app.studies.engine import Where
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario

BENCHMARK = "rths_benchmark_2020"
UNCOMPENSATED = "compensator.type=none"
CASES = ("case_1", "case_2", "case_3", "case_4")
SPECIMEN = 1190.0e3
"""N/m, as the benchmark states it."""
OSCILLATOR = "sdof_by_iteration"
STIFFNESS = 157914.0
"""N/m of it in one piece."""
MASS, RATIO, SOFT = 1000.0, 0.03, 0.85
"""kg, damping ratio in one piece, and stiffness of the specimen relative to the stated one."""
SHARES = (0.03, 0.05, 0.07, 0.1, 0.25, 0.5, 0.9)
DELAYS = (0, 30, 100)
"""Samples (ms, nearly) behind the port of the oscillator, beside its actuator."""


def done(scenario: Scenario, settings: Settings, engine: str) -> Iteration:
    """An iteration that is not recorded."""
    with tempfile.TemporaryDirectory() as folder:
        return iterate(scenario, settings, Path(folder), False, Where(engine=engine).engine_of)


def plants(count: int, engine: str) -> None:
    """A row for each plant, and the worst of them."""
    base = files.load(BENCHMARK, [UNCOMPENSATED], "case_1")
    print("| plant | runs | error of run 1 (%) | error of the last (%) | true (%) | measured error over noise |")
    print("|---|---|---|---|---|---|")
    table = []
    for plant in ensembles.plants(base, count, 1):
        scenario = plant.of(base)
        sensors = scenario.axes["floor_1"].sensors
        noise = math.hypot(sensors.displacement_noise_rms, sensors.displacement_resolution / math.sqrt(12.0))
        found = done(scenario, Settings(TRACKING), engine)
        first, last = found.rows[0], found.rows[-1]
        table.append((len(found.rows), first.error, last.error, last.true, last.missed / noise))
        print(f"| {plant.number} | {_row(table[-1])} |", flush=True)
    print(f"| worst | {_row(tuple(np.max(table, axis=0)))} |")


def cases(engine: str) -> None:
    """A row for each case, delay and specimen."""
    print("| case | more delay (ms) | specimen | in real time | runs | error (%) | true (%) | command | force |")
    print("|---|---|---|---|---|---|---|---|---|")
    for case in CASES:
        for samples in (1, 103, 206):
            for part in (1.0, 0.8):
                changed = [UNCOMPENSATED, f"port.transport_samples={samples}"]
                changed += [f"axes.floor_1.specimen.specimen.stiffness={part * SPECIMEN}"]
                scenario = files.load(BENCHMARK, changed, case)
                loop = rths_nodes.run(scenario).outcome if part == 1.0 else ""
                found = done(scenario, Settings(HISTORY), engine)
                last = found.rows[-1]
                words = f"{case} | {(samples - 1) / 4.096:.0f} | {part:g} | {loop} | {len(found.rows)}"
                more = max(row.command for row in found.rows), max(row.force for row in found.rows)
                print(
                    f"| {words} | {last.error:.2g} | {last.true:.2g} | {more[0]:.2f} | {more[1]:.2f} |", flush=True
                )


def largest_factor(share: float) -> float:
    """Return the maximum of k_e / |k_n - m w^2 + i c w| over w, of the oscillator with a ``share`` under test."""
    w = math.sqrt(STIFFNESS / MASS) * np.linspace(0.5, 1.5, 20001)
    damping = 2.0 * RATIO * math.sqrt(STIFFNESS * MASS)
    numerical = (1.0 - share) * STIFFNESS - MASS * w**2 + 1j * damping * w
    return float(np.max(SOFT * share * STIFFNESS / np.abs(numerical)))


def by_relaxation(engine: str) -> None:
    """A table for each relaxation."""
    print("largest factor: " + ", ".join(f"{largest_factor(share):.3f} ({share:g})" for share in SHARES))
    for name in RELAXATIONS:
        print(f"\n{name}: share of the stiffness under test by delay behind the port (samples)\n")
        print("| share | " + " | ".join(map(str, DELAYS)) + " |")
        print("|---|" + "---|" * len(DELAYS))
        for share in SHARES:
            cells = []
            for delay in DELAYS:
                changed = [UNCOMPENSATED, f"port.transport_samples={delay}"]
                changed += [f"structure.experimental_stiffness=[[{share * STIFFNESS}]]"]
                changed += [f"axes.story.specimen.stiffness={SOFT * share * STIFFNESS}"]
                found = done(files.load(OSCILLATOR, changed), Settings(HISTORY, Rule(10), name), engine)
                cells.append(f"{len(found.rows)}" if found.verdict == "converged" else "-")
            print(f"| {share:g} | " + " | ".join(cells) + " |", flush=True)


def _row(values: tuple[float, ...]) -> str:
    return " | ".join(f"{value:.3g}" for value in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("plants", "cases", "map"))
    parser.add_argument("--plants", type=int, default=20, metavar="N", help="of plants; default: %(default)s")
    parser.add_argument("--engine", default="compiled", help="python or compiled; default: %(default)s")
    given = parser.parse_args()
    if given.what == "plants":
        plants(given.plants, given.engine)
    elif given.what == "cases":
        cases(given.engine)
    else:
        by_relaxation(given.engine)


if __name__ == "__main__":
    main()
