# SPDX-License-Identifier: Apache-2.0
"""Time of a step of a large structure: python benchmarks/large_frames.py

Prints the median time of a complete step of the numerical stage (integrator, energies, Target) for 10, 100, 1000
and 3000 degrees of freedom. Mass, damping and stiffness have a half bandwidth of 30. Also prints the ratio to a
floor, measured alternately: one solution and one product with each of the three banded matrices, by LAPACK and
BLAS alone. `fits` is the fraction of a step of 10 samples at 1024 Hz. `--memory N` runs a complete test of 30 s
with N degrees of freedom and prints its largest resident memory.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from pathlib import Path
from time import perf_counter, perf_counter_ns

import numpy as np
from scipy.linalg import get_blas_funcs, get_lapack_funcs
from scipy.sparse import coo_array, csr_array, save_npz

from rths_nodes.core.samples import Measurement
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import load
from rths_nodes.loop.stages.numerical import NumericalStage
from rths_nodes.mechanics.structure import dense, diagonal

SIZES, HALF_BANDWIDTH = (10, 100, 1000, 3000), 30
INTEGRATORS = ("cr", "newmark", "kr_alpha", "hht_alpha")
TURN, TURNS = 20, 15
"""Consecutive measurements per turn; turns of step and floor."""
MOST = 3.0
"""Largest allowed ratio of step and floor for 1000 degrees of freedom."""


def matrices(n: int) -> tuple[csr_array, csr_array]:
    """Return mass and stiffness (SI) of a chain with springs between masses up to ``HALF_BANDWIDTH`` apart."""
    generator = np.random.default_rng(1)
    width = min(HALF_BANDWIDTH, n - 1)
    stiffness = diagonal(np.full(n, 1e5))
    for apart in range(1, width + 1):
        springs = generator.uniform(0.5e5, 1e6, n - apart)
        low = np.arange(n - apart)
        rows = np.concatenate([low, low + apart, low, low + apart])
        columns = np.concatenate([low, low + apart, low + apart, low])
        values = np.concatenate([springs, springs, -springs, -springs])
        stiffness = stiffness + coo_array((values, (rows, columns)), shape=(n, n)).tocsr()
    mass = diagonal(np.full(n, 1e3)) + 1e-6 * stiffness
    return mass.tocsr(), stiffness.tocsr()


def assembly_of(n: int, integrator: str, duration: float) -> Assembly:
    """Build a test of ``duration`` s on the matrices of ``n`` degrees of freedom."""
    with tempfile.TemporaryDirectory() as folder:
        overrides = [
            *("structure.node=[]", "interface=[x_1]", f"observed=[x_{n}]", "structure.experimental_at=[1]"),
            *("structure.experimental_stiffness=[[2.0e4]]", "axes.brace.specimen.stiffness=2.0e4"),
            *("axes.brace.specimen.damping=0", "axes.brace.limits.stroke=1", "axes.brace.limits.velocity=9"),
            *(f"duration={duration}", f"integrator={{type: {integrator}}}"),
        ]
        for name, matrix in zip(("mass", "stiffness"), matrices(n), strict=True):
            save_npz(Path(folder) / f"{name}.npz", matrix)
            overrides.append(f"structure.{name}={folder}/{name}.npz")
        assembly = Assembly(load("tall_frame", overrides))
        assert assembly.structure is not None  # reads the matrices before the folder is removed
    return assembly


class Floor:
    """One solution, and one product each with mass, damping and stiffness, without the rest of the step."""

    def __init__(self, assembly: Assembly) -> None:
        structure, dt = assembly.structure, assembly.scenario.step
        assert structure is not None
        mass, damping, stiffness = map(dense, (structure.mass, structure.damping, structure.stiffness))
        n = len(mass)
        width = self._width = min(HALF_BANDWIDTH, n - 1)

        def band(matrix: np.ndarray) -> np.ndarray:
            rows = [np.append(np.diagonal(matrix, -k), np.zeros(k)) for k in range(width + 1)]
            return np.asfortranarray(rows)

        self._bands = [band(matrix) for matrix in (mass, damping, stiffness)]
        dynamic = band(4.0 * mass + 2.0 * dt * damping + dt**2 * stiffness)
        factorise, self._solve = get_lapack_funcs(("pbtrf", "pbtrs"), (dynamic,))
        self._factor, failed = factorise(dynamic, lower=1)
        assert not failed
        (self._multiply,) = get_blas_funcs(("sbmv",), (dynamic,))
        self._vector = np.random.default_rng(2).normal(size=n)

    def __call__(self) -> None:
        for band in self._bands:
            self._multiply(self._width, 1.0, band, self._vector, lower=1)
        self._solve(self._factor, self._vector, lower=1)


def measured(n: int, integrator: str) -> tuple[float, float, float]:
    """Return the time of the set-up, and the median times of a step and of the floor, s."""
    start = perf_counter()
    assembly = assembly_of(n, integrator, 1.0 + TURN * TURNS / 102.4)
    stage = NumericalStage(assembly)
    setup = perf_counter() - start
    floor = Floor(assembly)
    steps, floors = [], []
    sample = 0
    for _ in range(TURNS):
        for _ in range(TURN):
            force = np.array([2e4 * stage.integrator.displacement[0]])
            message = Measurement(sample, np.zeros(1), force, np.zeros(1))
            began = perf_counter_ns()
            stage.next(message)
            steps.append(perf_counter_ns() - began)
            sample += stage.substeps
        for _ in range(TURN):
            began = perf_counter_ns()
            floor()
            floors.append(perf_counter_ns() - began)
    return setup, 1e-9 * float(np.median(steps)), 1e-9 * float(np.median(floors))


def table(sizes: list[int], integrators: list[str], figure: str) -> bool:
    """Print the table. Return true if the ratio for 1000 degrees of freedom is at most MOST."""
    met, curves = True, {}
    print(f"{'integrator':<11} {'n':>5} {'set-up s':>9} {'step us':>9} {'floor us':>9} {'ratio':>6} {'fits %':>7}")
    for integrator in integrators:
        rows = []
        for n in sizes:
            setup, step, bare = measured(n, integrator)
            missed = n == 1000 and step > MOST * bare
            met &= not missed
            print(
                f"{integrator:<11} {n:>5} {setup:>9.2f} {1e6 * step:>9.1f} {1e6 * bare:>9.1f} {step / bare:>6.2f} "
                f"{100.0 * step * 102.4:>7.2f}{'  NOT MET' if missed else ''}"
            )
            rows.append((n, 1e6 * step, 1e6 * bare))
        curves[integrator] = np.array(rows)
    if figure:
        draw(curves, figure)
    return met


def draw(curves: dict[str, np.ndarray], file: str) -> None:
    """Draw steps and floor over the degrees of freedom, log-log."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    chart, axes = pyplot.subplots(figsize=(6.0, 4.0), layout="constrained")
    for name, rows in curves.items():
        axes.loglog(rows[:, 0], rows[:, 1], "o-", label=name)
    axes.loglog(rows[:, 0], rows[:, 2], "k--", label="floor: one solution, three products")
    axes.axhline(1e6 / 102.4, color="0.6", label="step of 10 samples at 1024 Hz")
    axes.set(xlabel="degrees of freedom", ylabel="median of a step, µs")
    axes.legend()
    chart.savefig(file, dpi=150)


def memory(n: int) -> None:
    """Run a complete test and print the largest resident memory of this process, MB."""
    loop = Loop(assembly_of(n, "cr", 30.0))
    outcome = loop.run([])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"{n} degrees of freedom, {outcome.samples} samples: {peak:.0f} MB {outcome.reason}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--integrators", nargs="+", default=list(INTEGRATORS))
    parser.add_argument("--figure", default="", metavar="FILE", help="also draw the log-log figure")
    parser.add_argument("--memory", type=int, metavar="N", help="only run a test with N degrees of freedom")
    options = parser.parse_args()
    if options.memory:
        memory(options.memory)
    else:
        sys.exit(0 if table(options.sizes, options.integrators, options.figure) else 1)
