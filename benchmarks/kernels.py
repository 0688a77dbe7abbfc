"""Time of kernels by themselves, plain and compiled: python benchmarks/kernels.py

The loop of `chen_ricles_2010` over the kernels of its components alone, without messages, limits, indices or
recording: ramp, adaptive inverse, actuator with its specimen, and once in a step the integrator. It runs in plain
Python and compiled from the same text by numba; both give the displacements of the embedded loop to the bit, or
the exit code is 1. Times are the least of a few runs, in steps of a plain loop (`v -= 0.01 * x; x += 0.01 * v`)
that was timed around each of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import numpy as np

from rths_nodes.app.doctor import floor
from rths_nodes.app.studies.compiling import compiled
from rths_nodes.core import registry
from rths_nodes.core.kernels import copied
from rths_nodes.core.samples import Array
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.recording.run import Collector

NAME = "chen_ricles_2010"


def loop_of(follow: Any, ramp: Any, compensate: Any, actuate: Any, integrate: Any) -> Callable[..., Any]:
    """The loop over these kernels: displacements at each sample, from constants and first states."""

    def run(samples: int, substeps: int, constants: Any, states: Any, excitation: Any, measured: Any) -> Any:
        of_ramp, of_compensator, of_actuator, of_integrator = constants
        line, law, rig, solver = states
        displacement, force = 0.0, 0.0
        for sample in range(samples):
            substep = sample % substeps
            if substep == 0:
                solver, told = integrate(of_integrator, solver, force, excitation, sample // substeps)
                line = follow(of_ramp, line, told[0], told[1], told[2])
            x, v, a = ramp(of_ramp, line, substep + 1)
            law, command = compensate(of_compensator, law, x, v, a, displacement, force, False, False)
            rig, shown = actuate(of_actuator, rig, command)
            displacement, _, force = shown
            measured[sample] = displacement
        return measured

    return run


def parts(seconds: float) -> tuple[int, int, Any, Any, Any, tuple[Callable[..., Any], ...], Array]:
    """Samples, sub-steps, constants, first states, excitation and kernels; what the embedded loop measures."""
    scenario = files.load(NAME, [f"duration={seconds}"])
    assembly = Assembly(scenario)
    structure, dt = assembly.structure, scenario.dt
    axis = next(iter(scenario.axes.values()))
    ramp = registry.class_of("ramp", scenario.ramp).kernel_of(scenario.ramp)
    law = registry.class_of("compensator", scenario.compensator).kernel_of(scenario.compensator)
    specimen = registry.build("specimen", axis.specimen)
    actuator = registry.class_of("actuator", axis.actuator).kernel_of(axis.actuator, specimen)
    integrator = registry.class_of("integrator", scenario.integrator).kernel_of(scenario.integrator, structure)
    of_ramp = ramp.constants(scenario.ramp, dt, scenario.samples_per_step)
    of_law, of_actuator = law.constants(scenario.compensator, dt), actuator.constants(axis.actuator, dt)
    external = assembly.external_force
    of_integrator = integrator.constants(scenario.integrator, structure, external, scenario.step)
    states = (
        ramp.start(of_ramp, 0.0, 0.0, 0.0),
        law.rest(of_law),
        actuator.rest(of_actuator),
        integrator.rest(of_integrator),
    )
    loop = Loop(Assembly(scenario))
    collector = Collector(scenario, loop.assembly.names)
    loop.run([collector])
    kernels = ramp.follow, ramp.step, law.step, actuator.step, integrator.step
    constants = of_ramp, of_law, of_actuator, of_integrator
    wanted = collector.run({}, {}, {}).true_displacement[1:, 0]
    return scenario.samples, scenario.samples_per_step, constants, states, external[:, 0].copy(), kernels, wanted


def least(run: Callable[..., Any], given: tuple[Any, ...], runs: int) -> tuple[Array, float, float]:
    """Displacements, the least time of a sample (s), and that in plain steps."""
    samples, substeps, constants, states, excitation = given
    found, steps, fastest = np.zeros(samples), np.inf, np.inf
    for _ in range(runs):
        before, first = floor.python_step(), copied(states)
        begun = perf_counter_ns()
        found = run(samples, substeps, constants, first, excitation, np.zeros(samples))
        spent = 1e-9 * (perf_counter_ns() - begun) / samples
        fastest, steps = min(fastest, spent), min(steps, spent / min(before, floor.python_step()))
    return found, fastest, steps


def main() -> int:
    """Print both, and whether they are what the embedded loop gives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    *given, kernels, wanted = parts(options.seconds)
    same = True
    for words, runs, made in (("plain", options.runs, loop_of(*kernels)), ("compiled", 4 * options.runs, None)):
        run = made or compiled(loop_of(*kernels))
        if made is None:
            least(run, tuple(given), 1)  # compiles
        found, seconds, steps = least(run, tuple(given), runs)
        equal = np.array_equal(found, wanted)
        same = same and equal
        bits = "the same bits" if equal else f"{np.abs(found - wanted).max():.3g} m off"
        print(f"{NAME}, kernels {words}: {1e6 * seconds:8.3f} us a sample, {steps:7.2f} plain steps, {bits}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
