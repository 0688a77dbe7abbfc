# SPDX-License-Identifier: Apache-2.0
"""The reference of a test: the response of the whole structure, computed in one piece, without a rig.

Numerical substructure and specimens move together exactly (the setup ties them, no actuator, no delay, no ramp),
integrated by the classical Runge-Kutta method with steps that are halved until nothing changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array, Motion
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.structure import combined
from rths_nodes.numerical.structures.damping import modes
from rths_nodes.numerical.structures.laws import trial_force

COARSEST = 0.5
"""Angle of the fastest known mode in one step to begin with, rad."""

FINEST = 4096
"""Runge-Kutta steps within one integration step at which the halving ends."""

States = list[tuple[float, ...]]


@dataclass(frozen=True, eq=False)
class Response:
    """Response of the whole structure at every integration step of a test.

    times ``(steps + 1,)`` s in the time of the structure, from the end of the soft start; displacement (m),
    velocity (m/s), acceleration (m/s^2) ``(steps + 1, n_dof)``; force of each specimen ``(steps + 1, n_axes)`` N;
    ``substeps`` Runge-Kutta steps in one integration step; ``error``: what halving them changed last, relative to
    the largest displacement.
    """

    times: Array
    displacement: Array
    velocity: Array
    acceleration: Array
    force: Array
    substeps: int
    error: float


def response(scenario: Scenario, tolerance: float = 1e-4) -> Response:
    """The response of the whole structure of ``scenario`` to its excitation, interpolated between its steps.

    The step is halved until the displacements change by less than ``tolerance`` of the largest one. Raises
    ConfigError for a scenario without a structure or with a coupled rig, ArithmeticError when no step is small
    enough.
    """
    if scenario.rig is not None:
        raise ConfigError(
            "rig: the whole with a coupled rig is computed by rths_nodes.analysis.reference.coupled.ideal_response"
        )
    assembly = Assembly(scenario)
    structure = assembly.structure
    if structure is None:
        raise ConfigError("structure: missing; a test without one has no response of the whole structure")
    model = _Whole(assembly, structure)
    mass, _, stiffness = combined(structure)
    substeps = max(1, math.ceil(scenario.step * modes(mass, stiffness)[0][-1] / COARSEST))
    with np.errstate(over="ignore", invalid="ignore"):  # too large a step runs away: it is halved
        coarse = model.run(substeps)
        while substeps < FINEST:
            substeps *= 2
            fine = model.run(substeps)
            change = float(np.abs(fine[0] - coarse[0]).max())
            size = float(np.abs(fine[0]).max())
            if change <= tolerance * size:
                times: Array = scenario.step * np.arange(len(fine[0]), dtype=np.float64)
                return Response(times, *fine, substeps, change / size if size else 0.0)
            coarse = fine
    raise ArithmeticError(f"the response of the whole structure does not settle with {substeps} steps in one")


class _Whole:
    """The equation of motion of both substructures together."""

    def __init__(self, assembly: Assembly, structure: Structure) -> None:
        scenario = assembly.scenario
        self._structure = structure
        self._dt = scenario.step
        self._external = assembly.force_on_whole
        self._setup, self._seen = assembly.setup, assembly.observation
        self._specimens = [
            registry.build("specimen", scenario.model_of(axis, "specimen")) for axis in scenario.axes
        ]
        self._inverse = np.linalg.inv(structure.mass + structure.experimental_mass)

    def run(self, substeps: int) -> tuple[Array, Array, Array, Array]:
        """Displacement, velocity, acceleration and axis forces at every integration step."""
        steps, n_dof = self._external.shape
        history = [np.zeros((steps, n_dof)) for _ in range(3)]
        forces = np.zeros((steps, len(self._specimens)))
        self._structure.restoring_force.reset()
        x = v = np.zeros(n_dof)
        states: States = [tuple(specimen.initial_state) for specimen in self._specimens]
        for index, load in enumerate(self._external):
            a, _, forces[index] = self._rates(load, x, v, states)
            for record, value in zip(history, (x, v, a), strict=True):
                record[index] = value
            if index + 1 < steps:
                slope = (self._external[index + 1] - load) / substeps
                for part in range(substeps):
                    x, v, states = self._step(self._dt / substeps, load + part * slope, slope, x, v, states)
        return history[0], history[1], history[2], forces

    def _rates(self, load: Array, x: Array, v: Array, states: States) -> tuple[Array, States, Array]:
        """Acceleration, rates of the specimens' inner states and axis forces."""
        at, rate = self._seen.interface(x), self._seen.interface(v)
        motion = self._setup.axes(Motion(at, rate, rate))
        places = zip(self._specimens, states, motion.displacement.tolist(), motion.velocity.tolist(), strict=True)
        found = [(specimen.force(s, d, w), specimen.rate(s, d, w)) for specimen, s, d, w in places]
        forces = np.array([force for force, _ in found])
        load = load - self._structure.damping @ v - trial_force(self._structure, x)
        load = load - self._seen.spread(self._setup.forces(forces, at))
        return self._inverse @ load, [rate for _, rate in found], forces

    def _step(
        self, h: float, load: Array, slope: Array, x: Array, v: Array, states: States
    ) -> tuple[Array, Array, States]:
        v1, (a1, s1, _) = v, self._rates(load, x, v, states)
        middle = load + 0.5 * slope
        v2 = v + 0.5 * h * a1
        a2, s2, _ = self._rates(middle, x + 0.5 * h * v1, v2, _moved(states, 0.5 * h, s1))
        v3 = v + 0.5 * h * a2
        a3, s3, _ = self._rates(middle, x + 0.5 * h * v2, v3, _moved(states, 0.5 * h, s2))
        v4 = v + h * a3
        a4, s4, _ = self._rates(load + slope, x + h * v3, v4, _moved(states, h, s3))
        x = x + h / 6.0 * (v1 + 2.0 * (v2 + v3) + v4)
        v = v + h / 6.0 * (a1 + 2.0 * (a2 + a3) + a4)
        self._structure.restoring_force.force(x)
        for weight, slopes in ((1.0, s1), (2.0, s2), (2.0, s3), (1.0, s4)):
            states = _moved(states, weight * h / 6.0, slopes)
        return x, v, states


def _moved(states: States, h: float, rates: States) -> States:
    return [
        tuple(value + h * rate for value, rate in zip(state, slopes, strict=True))
        for state, slopes in zip(states, rates, strict=True)
    ]
