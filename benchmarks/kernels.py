"""Time of kernels by themselves, plain and compiled: python benchmarks/kernels.py

Loops over the kernels of the components of a scenario alone, without messages, limits, indices or recording:

    chen_ricles_2010               ramp, adaptive inverse, actuator with its specimen, the integrator once in a
                                   step; in plain Python, and compiled from the same text by numba
    rths_benchmark_2020, case_1    three floors, learning inverse, hydraulic actuator, noisy and late sensors
    phillips_spencer_2012, d       three coupled axes with a damper, its controller, and noisy sensors

All give the displacements of the embedded loop to the bit, or the exit code is 1. Noise is drawn beforehand. Times
are of the processor, the least of a few runs, beside steps of a plain loop (`v -= 0.01 * x; x += 0.01 * v`)
that is timed around each of them.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from processor_time import least

from rths_nodes.app.compiling.kernels import compiled
from rths_nodes.core import registry
from rths_nodes.core.arithmetic import dot
from rths_nodes.core.kernels import copied
from rths_nodes.core.samples import Array
from rths_nodes.laboratory.sensing import BLOCK, Noise, SensorPair
from rths_nodes.laboratory.sensors import converted
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.numerical import force_lead_of
from rths_nodes.recording.run import Collector

Run = Callable[[], Array]
"""Gives the displacements of the first axis; its time counts."""


class Bench(NamedTuple):
    """A loop over kernels: its samples, a run from the first states, displacements of the embedded loop (m)."""

    name: str
    samples: int
    make: Callable[[], Run]
    wanted: Array


def ready(name: str, case: str, seconds: float) -> tuple[Assembly, Array]:
    """The parts of a scenario, and the true displacements of the first axis in the embedded loop."""
    scenario = files.load(name, [f"duration={seconds}"], case)
    loop = Loop(Assembly(scenario))
    collector = Collector(scenario, loop.assembly.names)
    loop.run([collector])
    return Assembly(scenario), collector.run({}, {}, {}).true_displacement[1:, 0]


def of_chen(seconds: float, make: Callable[..., Any] = lambda run: run) -> Bench:
    """The slice; ``make`` turns the loop into the one that runs, as by compiling it."""
    assembly, wanted = ready("chen_ricles_2010", "", seconds)
    scenario, structure, dt = assembly.scenario, assembly.structure, assembly.scenario.dt
    axis = next(iter(scenario.axes.values()))
    ramp = registry.class_of("ramp", scenario.ramp).kernel_of(scenario.ramp)
    law = registry.class_of("compensator", scenario.compensator).kernel_of(scenario.compensator)
    specimen = registry.build("specimen", axis.specimen)
    actuator = registry.class_of("actuator", axis.actuator).kernel_of(axis.actuator, specimen)
    integrator = registry.class_of("integrator", scenario.integrator).kernel_of(scenario.integrator, structure)
    constants = (
        ramp.constants(scenario.ramp, dt, scenario.samples_per_step),
        law.constants(scenario.compensator, dt),
        actuator.constants(axis.actuator, dt),
        integrator.constants(scenario.integrator, structure, assembly.external_force, scenario.step),
    )
    states = (
        ramp.start(constants[0], 0.0, 0.0, 0.0),
        law.rest(constants[1]),
        actuator.rest(constants[2]),
        integrator.rest(constants[3]),
    )
    run = make(one_axis(ramp.follow, ramp.step, law.step, actuator.step, integrator.step))
    samples, substeps = scenario.samples, scenario.samples_per_step
    external = assembly.external_force[:, 0].copy()

    def again() -> Run:
        first = copied(states)
        return lambda: run(samples, substeps, constants, first, external, np.zeros(samples))

    return Bench("chen_ricles_2010", samples, again, wanted)


def one_axis(follow: Any, ramp: Any, compensate: Any, actuate: Any, integrate: Any) -> Callable[..., Any]:
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


def noise_of(samples: int, seed: Sequence[int], rms: Sequence[float]) -> Array:
    """Noise of Measurement 0 and of all samples, a row each."""
    stream = Noise(seed, rms)
    blocks = [stream.numbers()[::-1] for _ in range(samples // BLOCK + 1)]
    return np.concatenate(blocks)


class Parts:
    """Kernels, constants and first states of what both scenarios with a step of one sample have."""

    def __init__(self, name: str, case: str, seconds: float) -> None:
        self.assembly, self.wanted = ready(name, case, seconds)
        scenario = self.scenario = self.assembly.scenario
        dt, self.samples, n = scenario.dt, scenario.samples, len(scenario.axes)
        assert scenario.samples_per_step == 1, name
        integrator: Any = self.assembly.integrator
        self.integrate, self.of_integrator = integrator.kernel.step, integrator.constants
        self.solver, self.excitation = integrator.state, integrator.excitation
        self.n_dof = len(integrator.displacement)
        law = registry.class_of("compensator", scenario.compensator).kernel_of(scenario.compensator)
        self.compensate, self.of_law = law.step, law.constants(scenario.compensator, dt)
        self.law = law.rest(self.of_law)
        setup = registry.class_of("setup", scenario.setup).kernel_of(scenario.setup)
        self.to_axes, self.to_structure = setup.axes, setup.forces
        self.of_setup = setup.constants(scenario.setup, self.n_dof, n)
        self.sensors = []
        for axis, each in scenario.axes.items():
            kernel, rms = SensorPair.kernel_of(each.sensors), each.sensors
            given = [scenario.seed, zlib.crc32(axis.encode())]
            noise = noise_of(self.samples, given, [rms.displacement_noise_rms, rms.force_noise_rms]).tolist()
            constants = kernel.constants(each.sensors, dt)
            self.sensors.append((kernel.step, constants, kernel.rest(constants), noise))


def of_benchmark(seconds: float) -> Bench:
    """One hydraulic actuator below three floors, whose force is late and led."""
    p = Parts("rths_benchmark_2020", "case_1", seconds)
    axis = next(iter(p.scenario.axes.values()))
    actuator = registry.build("actuator", axis.actuator, p.scenario.dt, registry.build("specimen", axis.specimen))
    rig_kernel, of_rig = actuator.bound()
    lead = force_lead_of(p.scenario, p.assembly.integrator)
    assert lead is not None
    weights = lead.weights[::-1].tolist()
    resolution, limit = axis.output.converter
    sense, of_sensors, _, noise = p.sensors[0]
    transport = p.scenario.port.transport_samples

    def make() -> Run:
        (_, _, sensed, _) = copied(p.sensors[0])
        law, solver, rig = copied(p.law), copied(p.solver), rig_kernel.rest(of_rig)
        return lambda: run(law, solver, rig, sensed)

    def run(law: Any, solver: Any, rig: Any, sensed: Any) -> Array:
        integrate, compensate, actuate = p.integrate, p.compensate, rig_kernel.step
        found, line, pose = np.zeros(p.samples), deque([0.0] * transport), [0.0] * p.n_dof
        sensed, (moved, force, _) = sense(of_sensors, sensed, 0.0, 0.0, *noise[0], 0)
        forces = deque([0.0] * len(weights), maxlen=len(weights))
        for index in range(p.samples):
            forces.append(force)
            felt = p.to_structure(p.of_setup, (dot(weights, forces),), pose)
            solver, (x, v, a, _, _) = integrate(p.of_integrator, solver, np.array(felt), p.excitation, index)
            pose = x.tolist()
            (d,), (rate,), (curvature,) = p.to_axes(p.of_setup, pose, v.tolist(), a.tolist())
            law, command = compensate(p.of_law, law, d, rate, curvature, moved, force, False, False)
            line.append(converted(command, resolution, limit))
            rig, (true, _, push) = actuate(of_rig, rig, line.popleft())
            sensed, (moved, force, _) = sense(of_sensors, sensed, true, push, *noise[index + 1], index + 1)
            found[index] = true
        return found

    return Bench("rths_benchmark_2020, case_1", p.samples, make, p.wanted)


def of_phillips(seconds: float) -> Bench:
    """Three coupled axes, a damper and its controller."""
    p = Parts("phillips_spencer_2012", "d", seconds)
    scenario, n = p.scenario, len(p.scenario.axes)
    rig_kernel = registry.class_of("rig", scenario.rig).kernel_of(scenario.rig, n)
    of_rig = rig_kernel.constants(scenario.rig, scenario.dt)
    port: Any = p.assembly.port
    control = registry.class_of("semi_active", scenario.semi_active).kernel_of(scenario.semi_active)
    of_control = control.constants(scenario.semi_active, p.assembly.structure, scenario.step, port.auxiliary_names)
    ground = p.assembly.ground_acceleration.tolist()
    rms = scenario.port.auxiliary_noise_rms
    beside = noise_of(p.samples, [scenario.seed, zlib.crc32(b"auxiliary"), len(rms)], rms)

    def make() -> Run:
        states = copied((p.law, p.solver)), rig_kernel.rest(of_rig), control.rest(of_control)
        return lambda: run(*states[0], *states[1:])

    def run(law: Any, solver: Any, rig: Any, controller: Any) -> Array:
        integrate, compensate, actuate = p.integrate, p.compensate, rig_kernel.step
        found, pose, (true, _, push, channels) = np.zeros(p.samples), [0.0] * n, rig_kernel.shown(of_rig, rig)
        for index in range(p.samples):
            moved, forces = [], []
            pairs = zip(p.sensors, true.tolist(), push.tolist(), strict=True)
            for (sense, of_sensors, sensed, noise), at, of in pairs:
                _, (x, f, _) = sense(of_sensors, sensed, at, of, *noise[index], index)
                moved.append(x)
                forces.append(f)
            felt = np.array(p.to_structure(p.of_setup, forces, pose))
            solver, (x, v, a, _, _) = integrate(p.of_integrator, solver, felt, p.excitation, index)
            controller, voltage = control.step(
                of_control, controller, channels + beside[index], ground[index], 0.0
            )
            pose = x.tolist()
            target = p.to_axes(p.of_setup, pose, v.tolist(), a.tolist())
            law, commands = compensate(p.of_law, law, *target, moved, forces, False, False)
            rig, (true, _, push, channels) = actuate(of_rig, rig, np.array(commands), np.array(voltage))
            found[index] = true[0]
        return found

    return Bench("phillips_spencer_2012, d", p.samples, make, p.wanted)


def told(words: str, bench: Bench, runs: int) -> bool:
    """Print a line; whether it gives what the embedded loop does."""
    (found, *_), seconds, steps = least(bench.make, bench.samples, runs)
    equal = np.array_equal(found, bench.wanted)
    bits = "the same bits" if equal else f"{np.abs(found - bench.wanted).max():.3g} m off"
    print(f"{bench.name + ', ' + words:38} {1e6 * seconds:8.3f} us a sample, {steps:8.2f} plain steps, {bits}")
    return equal


def main() -> int:
    """Print all, and whether they are what the embedded loop gives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0, help="of a test, at most; default: %(default)g")
    options = parser.parse_args()
    seconds, runs = options.seconds, options.runs
    same = told("plain", of_chen(seconds), runs)
    fast = of_chen(seconds, compiled)
    least(fast.make, fast.samples, 1)  # compiles
    same = told("compiled", fast, 4 * runs) and same
    same = told("plain", of_benchmark(min(seconds, 8.0)), runs) and same
    same = told("plain", of_phillips(min(seconds, 5.0)), runs) and same
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
