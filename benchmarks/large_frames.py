# SPDX-License-Identifier: Apache-2.0
"""Time of a step of a large structure: python benchmarks/large_frames.py

Prints the median time of a complete step of the numerical stage (integrator, energies, Target) for 10, 100, 1000
and 3000 degrees of freedom. Mass, damping and stiffness fill a band of 30 next to the diagonal. Also prints the
ratio to a floor that is measured alternately: one solution and one product with each of the three matrices, by
LAPACK and BLAS alone, on their bands. `fits` is the fraction of a step of 10 samples at 1024 Hz. `--memory N` runs
a complete test of 30 s with N degrees of freedom in a separate process and prints its largest resident memory.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
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
from rths_nodes.mechanics.sparse import dense, diagonal

SIZES, HALF_BANDWIDTH = (10, 100, 1000, 3000), 30
INTEGRATORS = ("cr", "newmark", "kr_alpha", "hht_alpha")
TURN, TURNS = 20, 15
"""Steps measured in a row; turns of step and floor."""
MOST = 3.0
"""Times the floor: what must hold for 1000 degrees of freedom."""


def matrices(n: int) -> tuple[csr_array, csr_array]:
    """Mass and stiffness of masses that are joined by springs up to ``HALF_BANDWIDTH`` places away, SI."""
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
    """A test of ``duration`` s on the matrices of ``n`` degrees of freedom."""
    with tempfile.TemporaryDirectory() as folder:
        given = []
        for name, matrix in zip(("mass", "stiffness"), matrices(n), strict=True):
            save_npz(Path(folder) / f"{name}.npz", matrix)
            given.append(f"structure.{name}={folder}/{name}.npz")
        given += ["structure.node=[]", "interface=[x_1]", f"observed=[x_{n}]", "structure.experimental_at=[1]"]
        given += ["structure.experimental_stiffness=[[2.0e4]]", "axes.brace.specimen.stiffness=2.0e4"]
        given += ["axes.brace.specimen.damping=0", "axes.brace.limits.stroke=1", "axes.brace.limits.velocity=9"]
        given += [f"duration={duration}", f"integrator={{type: {integrator}}}"]
        assembly = Assembly(load("tall_frame", given))
        assert assembly.structure is not None  # read while the files are there
    return assembly


class Floor:
    """One solution and a product with mass, damping and stiffness of a structure, bare."""

    def __init__(self, assembly: Assembly) -> None:
        structure, dt = assembly.structure, assembly.scenario.step
        assert structure is not None
        mass, damping, stiffness = (dense(one) for one in (structure.mass, structure.damping, structure.stiffness))
        n = len(mass)
        width = self._width = min(HALF_BANDWIDTH, n - 1)

        def band(matrix: np.ndarray) -> np.ndarray:
            rows = [np.append(np.diagonal(matrix, -k), np.zeros(k)) for k in range(width + 1)]
            return np.asfortranarray(rows)

        self._bands = [band(one) for one in (mass, damping, stiffness)]
        dynamic = band(4.0 * mass + 2.0 * dt * damping + dt**2 * stiffness)
        factorise, self._solve = get_lapack_funcs(("pbtrf", "pbtrs"), (dynamic,))
        self._factor, failed = factorise(dynamic, lower=1)
        assert not failed
        (self._multiply,) = get_blas_funcs(("sbmv",), (dynamic,))
        self._vector = np.random.default_rng(2).normal(size=n)

    def __call__(self) -> None:
        for one in self._bands:
            self._multiply(self._width, 1.0, one, self._vector, lower=1)
        self._solve(self._factor, self._vector, lower=1)


def measured(n: int, integrator: str) -> tuple[float, float, float]:
    """Seconds of the set-up; median seconds of a step and of the floor."""
    began = perf_counter()
    assembly = assembly_of(n, integrator, 1.0 + TURN * TURNS / 102.4)
    stage = NumericalStage(assembly)
    ready = perf_counter() - began
    floor = Floor(assembly)
    times: tuple[list[int], list[int]] = ([], [])
    sample = 0
    for _ in range(TURNS):
        for kept, one in zip(times, ("step", "floor"), strict=True):
            for _ in range(TURN):
                if one == "step":
                    force = np.array([2e4 * stage.integrator.displacement[0]])
                    message = Measurement(sample, np.zeros(1), force, np.zeros(1))
                    start = perf_counter_ns()
                    stage.next(message)
                    kept.append(perf_counter_ns() - start)
                    sample += stage.substeps
                else:
                    start = perf_counter_ns()
                    floor()
                    kept.append(perf_counter_ns() - start)
    step, bare = (float(np.median(kept)) * 1e-9 for kept in times)
    return ready, step, bare


def table(sizes: list[int], integrators: list[str], figure: str) -> bool:
    """Prints the table; true where what must hold for 1000 degrees of freedom does."""
    met, curves = True, {}
    print(f"{'integrator':<11} {'n':>5} {'set-up s':>9} {'step us':>9} {'floor us':>9} {'ratio':>6} {'fits %':>7}")
    for integrator in integrators:
        rows = []
        for n in sizes:
            ready, step, bare = measured(n, integrator)
            share = 100.0 * step * 102.4
            worse = n == 1000 and step > MOST * bare
            met &= not worse
            words = "  NOT MET" if worse else ""
            print(
                f"{integrator:<11} {n:>5} {ready:>9.2f} {1e6 * step:>9.1f} {1e6 * bare:>9.1f} {step / bare:>6.2f} "
                f"{share:>7.2f}{words}"
            )
            rows.append((n, 1e6 * step, 1e6 * bare))
        curves[integrator] = np.array(rows)
    if figure:
        draw(curves, figure)
    return met


def draw(curves: dict[str, np.ndarray], file: str) -> None:
    """Steps and floor over the degrees of freedom, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn, axes = pyplot.subplots(figsize=(6.0, 4.0), layout="constrained")
    for name, rows in curves.items():
        axes.loglog(rows[:, 0], rows[:, 1], "o-", label=name)
    axes.loglog(rows[:, 0], rows[:, 2], "k--", label="floor: a solution, three products")
    axes.axhline(1e6 / 102.4, color="0.6", label="step of 10 samples at 1024 Hz")
    axes.set(xlabel="degrees of freedom", ylabel="median of a step, µs")
    axes.legend()
    drawn.savefig(file, dpi=150)


def memory(n: int) -> None:
    """A whole test in this process: its largest resident memory in MB."""
    loop = Loop(assembly_of(n, "cr", 30.0))
    outcome = loop.run([])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"{n} degrees of freedom, {outcome.samples} samples: {peak:.0f} MB {outcome.reason}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--integrators", nargs="+", default=list(INTEGRATORS))
    parser.add_argument("--figure", default="", help="file for the log-log figure")
    parser.add_argument("--memory", type=int, help="degrees of freedom of a whole test")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory and options.here:
        memory(options.memory)
    elif options.memory:
        sys.exit(subprocess.run([sys.executable, __file__, "--memory", str(options.memory), "--here"]).returncode)
    else:
        sys.exit(0 if table(options.sizes, options.integrators, options.figure) else 1)
