# SPDX-License-Identifier: Apache-2.0
"""Response of the whole structure, and errors of a test relative to it (Phillips & Spencer 2012, Table 3.1).

A linear structure, including its declared experimental part, is computed by exact steps of a first-order system.
The loads vary linearly within a step. Degrees of freedom without mass are allowed.

Otherwise, the setup couples the numerical substructure and the specimens exactly, without actuators, delay or
ramp. The motion is integrated by the classical Runge-Kutta method, with steps halved until convergence.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rths_nodes.analysis.histories import Evaluation, absolute_acceleration
from rths_nodes.analysis.units import PERCENT
from rths_nodes.core import registry
from rths_nodes.core.control import DAMPER_DISPLACEMENT, DAMPER_FORCE, accelerations
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Function
from rths_nodes.core.protocols import SemiActive, Specimen, Structure
from rths_nodes.core.samples import EMPTY, Array, Measurement, Motion, Recent
from rths_nodes.core.simulators import NoSpecimen
from rths_nodes.core.yaml_text import dump
from rths_nodes.laboratory.rigs.linear_with_specimen import constants, rest_of, step_of, substeps_of
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly, transformation
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.structure import combined, combined_load, first_order, is_sparse, massless, transition
from rths_nodes.numerical.structures.damping import modes
from rths_nodes.numerical.structures.restoring_forces import is_linear, trial_force

BLOCK = 64
_displacements = Recent(2)
"""Cache of displacements, for tests with the same structure and ground motion."""
COARSEST = 0.5
"""Largest initial Runge-Kutta step, as a phase angle of the fastest mode, rad."""
FINEST = 4096
"""Largest number of Runge-Kutta steps in an integration step."""
States = list[tuple[float, ...]]
MODES = 40
"""Number of modes to which a large structure is reduced, in addition to its static shapes."""
IRRELEVANT = {"name": "reference", "description": "", "cases": {}, "monitor": {}, "recording": {}}
"""Scenario keys without effect on the response of the whole structure."""


class LinearResponse:
    """Computes the motion of the axes of a linear structure at the servo rate.

    ``matrices`` are mass, damping and stiffness. ``axes`` ``(n_axes, n_dof)`` maps degrees of freedom to axes.
    """

    def __init__(self, matrices: tuple[Array, Array, Array], axes: Array, dt: float) -> None:
        self._system, self._inputs, rows = first_order(*matrices)
        self._rows = axes @ rows
        self._steps = transition(self._system, self._inputs, dt)

    def motion(self, force: Array) -> Array:
        """Return x, x' and x'' from rest, ``(samples, 3, n_axes)``, under a ``force`` ``(samples, n_dof)`` N."""
        states = self._states(force)
        rates = states @ self._system.T + force @ self._inputs.T
        over_rates = self._rows @ self._system
        return np.stack([states @ self._rows.T, rates @ self._rows.T, rates @ over_rates.T], axis=1)

    def displacement(self, force: Array) -> Array:
        return np.asarray(self._states(force) @ self._rows.T)

    def _states(self, force: Array) -> Array:
        phi, before, now = self._steps
        return recursion(phi, force[:-1] @ before.T + force[1:] @ now.T)


def states_its_test(assembly: Assembly) -> bool:
    structure = assembly.structure
    if structure is None or is_sparse(structure.mass) or not is_linear(structure):
        return False
    return bool(structure.experimental_stiffness.any())


def _linear_response(assembly: Assembly) -> LinearResponse:
    structure = assembly.structure
    if structure is None or not states_its_test(assembly):
        raise ConfigError(
            "structure: must be linear and declare experimental_stiffness, because both are required to compute "
            "the response of the whole structure"
        )
    return LinearResponse(combined(structure), np.eye(len(structure.influence)), assembly.scenario.step)


def linear_displacement(assembly: Assembly) -> Array:
    """Return the displacement, ``(steps + 1, n_dof)`` m. The array may be shared; do not modify it."""
    structure = assembly.structure
    assert structure is not None  # callers have checked states_its_test
    step = np.array(assembly.scenario.step)
    key = (step, *combined(structure), combined_load(structure), assembly.ground_acceleration)
    return _displacements.result(
        key, lambda: np.asfortranarray(_linear_response(assembly).displacement(assembly.force_on_whole))
    )


def recursion(phi: Array, driven: Array) -> Array:
    """Return the states of z[k + 1] = phi z[k] + driven[k] from rest, ``(steps + 1, n)``.

    Blocks of steps are first computed from rest, all at once. Then the response of each block to its initial state
    is added.
    """
    steps, n = driven.shape
    blocks = -(-steps // BLOCK)
    rows = np.zeros((blocks * BLOCK, n))
    rows[:steps] = driven
    rows = rows.reshape(blocks, BLOCK, n)
    powers = np.empty((BLOCK, n, n))
    powers[0] = phi
    for power in range(1, BLOCK):
        rows[:, power] += rows[:, power - 1] @ phi.T
        powers[power] = phi @ powers[power - 1]
    begins = np.zeros((blocks, n))
    for block in range(1, blocks):
        begins[block] = powers[-1] @ begins[block - 1] + rows[block - 1, -1]
    rows += (begins @ powers.reshape(BLOCK * n, n).T).reshape(blocks, BLOCK, n)
    return np.vstack([np.zeros((1, n)), rows.reshape(-1, n)[:steps]])


@dataclass(frozen=True, eq=False)
class Response:
    """Response of the whole structure at every integration step of a test.

    ``times`` (s) are ``(steps + 1,)``, on the structure's time axis from the end of the soft start. Displacement
    (m), velocity (m/s) and acceleration (m/s^2) are ``(steps + 1, n_dof)``. ``force`` of the specimens is ``(steps
    + 1, n_axes)`` N. ``substeps`` is the number of Runge-Kutta steps in an integration step. ``error`` is the
    relative change of the displacement in the last halving of these steps.
    """

    times: Array
    displacement: Array
    velocity: Array
    acceleration: Array
    force: Array
    substeps: int
    error: float


def response(scenario: Scenario, tolerance: float = 1e-4) -> Response:
    """Return the response of the whole structure to the excitation, without actuators and delay.

    The step is halved until the displacements change by less than ``tolerance`` times their largest value. Raises
    ConfigError if there is no structure or the rig is coupled, and ArithmeticError if no step is small enough.
    """
    if scenario.rig is not None:
        raise ConfigError("rig: must not be coupled. Use rths_nodes.analysis.response_errors.ideal_response")
    assembly = Assembly(scenario)
    structure = assembly.structure
    if structure is None:
        raise ConfigError("structure: missing; the response of the whole structure requires a structure")
    model = _Whole(assembly, structure)
    mass, _, stiffness = combined(structure)
    substeps = max(1, math.ceil(scenario.step * modes(mass, stiffness)[0][-1] / COARSEST))
    with np.errstate(over="ignore", invalid="ignore"):  # too large a step diverges and is then halved
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
    raise ArithmeticError(
        f"the response of the whole structure does not converge with {substeps} Runge-Kutta steps per "
        "integration step"
    )


def has_undeclared_mass(assembly: Assembly) -> bool:
    structure, scenario = assembly.structure, assembly.scenario
    if structure is None or scenario.rig is not None or structure.experimental_mass.any():
        return False
    with suppress(ConfigError):  # a real axis has no model
        return any(registry.build("specimen", scenario.model_of(axis, "specimen")).mass for axis in scenario.axes)
    return False


class _Whole:
    def __init__(self, assembly: Assembly, structure: Structure) -> None:
        scenario = assembly.scenario
        self._structure = structure
        self._dt = scenario.step
        self._external = assembly.force_on_whole
        self._setup, self._seen = assembly.setup, assembly.observation
        self._specimens = [
            registry.build("specimen", scenario.model_of(axis, "specimen")) for axis in scenario.axes
        ]
        tested, masses = structure.experimental_mass, [specimen.mass for specimen in self._specimens]
        if any(masses) and not tested.any():  # without a declared mass, use the specimens' mass at small rotations
            axes_of, forces_of = transformation(assembly)
            tested = forces_of @ np.diag(masses) @ axes_of
        self._inverse = np.linalg.inv(structure.mass + tested)

    def run(self, substeps: int) -> tuple[Array, Array, Array, Array]:
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
        at, rate = self._seen.interface(x), self._seen.interface(v)
        motion = self._setup.axes(Motion(at, rate, rate))
        places = zip(self._specimens, states, motion.displacement.tolist(), motion.velocity.tolist(), strict=True)
        rates = [(specimen.force(s, d, w), specimen.rate(s, d, w)) for specimen, s, d, w in places]
        forces = np.array([force for force, _ in rates])
        load = load - self._structure.damping @ v - trial_force(self._structure, x)
        load = load - self._seen.spread(self._setup.forces(forces, at))
        return self._inverse @ load, [rate for _, rate in rates], forces

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


class IdealResponse(NamedTuple):
    displacement: Array
    """Displacement, ``(samples, n_dof)`` m, relative to the ground."""
    velocity: Array
    acceleration: Array
    """Absolute acceleration, ``(samples, n_dof)`` m/s^2."""
    damper_force: Array
    voltage: Array
    """Voltage, ``(samples,)`` V, applied since the previous sample."""


def measured_names(n_dof: int) -> tuple[str, ...]:
    return (*accelerations(n_dof), DAMPER_DISPLACEMENT, DAMPER_FORCE)


def ideal_of(scenario: Scenario) -> IdealResponse:
    assembly, rig = Assembly(scenario), scenario.rig
    structure, controller = assembly.structure, None
    if structure is None:
        raise ConfigError("structure: missing; the response of the whole structure requires a structure")
    n = len(structure.influence)
    damper: Specimen = NoSpecimen() if rig.damper is None else registry.build("specimen", rig.damper)
    if scenario.semi_active is not None:
        names = measured_names(n)
        controller = registry.build("semi_active", scenario.semi_active, structure, scenario.step, names)
    seen = assembly.observation
    location = seen.spread(assembly.setup.forces(rig.location(), np.zeros(seen.n_interface))).copy()
    arguments = structure, damper, assembly.ground_acceleration, scenario.step, controller, location
    return ideal_response(*arguments, rig.longest_substep)


def ideal_response(
    structure: Structure,
    damper: Specimen,
    ground_acceleration: Array,
    dt: float,
    controller: SemiActive | None = None,
    location: Array | None = None,
    longest_substep: float = 1.0 / 8000.0,
) -> IdealResponse:
    """Return the response of the whole ``structure`` with ``damper``, from rest.

    ``ground_acceleration`` ``(samples,)`` m/s^2 has a value every ``dt`` (s) and is linear between samples.
    ``location`` ``(n_dof,)`` is the elongation of the damper per unit displacement. By default the damper connects
    the ground and the first degree of freedom. ``controller`` receives the quantities of :func:`measured_names`
    and sets the voltage of the damper in every sample. Raises ConfigError if the structure is nonlinear.
    """
    if not is_linear(structure):
        raise ConfigError("structure: must have a linear restoring force for the ideal response")
    n, samples = len(structure.influence), len(ground_acceleration)
    shape = np.eye(n)[0] if location is None else np.asarray(location, float)
    mass, damping, stiffness = combined(structure)
    # z' = A z + b f with the state z = (x, x') and the force f of the damper
    lower = -np.linalg.solve(mass, np.column_stack([stiffness, damping, shape]))
    system = np.vstack([np.hstack([np.zeros((n, n)), np.eye(n)]), lower[:, :-1]])
    column = np.concatenate([np.zeros(n), lower[:, -1]])
    ground = np.concatenate([np.zeros(n), -structure.influence])[:, None]
    rows = (np.concatenate([shape, np.zeros(n)]), np.concatenate([np.zeros(n), shape]))
    substeps = substeps_of(dt, longest_substep)
    plant = constants((system, ground), column, rows, np.zeros((0, 2 * n + 1)), damper, dt, substeps)
    step: Function = step_of(damper)
    state = rest_of(damper)(plant)
    state.system[2 * n + 1] = ground_acceleration[0]
    absolute = np.column_stack([system[n:], column[n:]])
    seen, voltage = np.zeros((samples, 2 * n + 1)), np.zeros(samples)
    for k in range(samples):
        voltage[k] = damper.voltage or 0.0
        if k:
            state, _ = step(plant, state, ground_acceleration[k : k + 1], float(voltage[k]))
        state_of_structure, _, _, displacement, _, force = state
        seen[k, :-1], seen[k, -1] = state_of_structure[: 2 * n], force
        if controller is not None:
            relative = absolute @ seen[k] - structure.influence * ground_acceleration[k]
            auxiliary = np.array([*relative, displacement, force])
            measured = Measurement(k, EMPTY, EMPTY, EMPTY, auxiliary)
            damper.voltage = float(controller.step(measured, ground_acceleration[k])[0])
    return IdealResponse(seen[:, :n], seen[:, n : 2 * n], seen @ absolute.T, seen[:, -1], voltage)


def whole_response(scenario: Scenario) -> tuple[Array, Array]:
    """Return the displacement (m) and absolute acceleration (m/s^2) of the whole structure.

    Both are ``(steps + 1, n_dof)``, for the observed degrees of freedom, and begin at the end of the soft start.
    Raises ConfigError if the response cannot be computed.
    """
    data = scenario.data() | IRRELEVANT | {"compensator": {"type": "none"}, "soft_start": None, "time_ratio": 1}
    return _whole_response(dump(data))


@lru_cache(maxsize=2)  # variants of a scenario share the result
def _whole_response(text: str) -> tuple[Array, Array]:
    scenario = files.from_text(text, "reference")
    if hasattr(scenario.rig, "damper"):
        ideal, seen = ideal_of(scenario), Assembly(scenario).observation
        return seen.motion(ideal.displacement), seen.motion(ideal.acceleration)
    structure = Assembly(scenario).structure
    if structure is not None and is_sparse(structure.mass):
        count = min(MODES, int((~massless(structure.mass)).sum()))
        scenario = files.load(scenario, [f"reduction={{type: modal, modes: {count}}}"])
    assembly = Assembly(scenario)
    if scenario.rig is None:
        result = response(scenario)
        displacement, acceleration = result.displacement, result.acceleration
    else:
        displacement, _, acceleration = _linear_response(assembly).motion(assembly.force_on_whole).swapaxes(0, 1)
    assert assembly.structure is not None  # both functions refuse a test without a structure
    seen = assembly.observation
    ground = np.outer(assembly.ground_acceleration, seen.influence(assembly.structure))
    return seen.motion(displacement), seen.motion(acceleration) + ground


def response_errors(evaluation: Evaluation) -> dict[str, dict[str, float]]:
    """Return the rms errors (%) of ``displacement`` and absolute ``acceleration`` by degree of freedom.

    An error is 100 sqrt(sum (a - b)^2 / sum b^2), summed over the completed steps. Values a belong to the test,
    and values b to the whole structure.
    """
    displacement, acceleration = whole_response(evaluation.scenario)
    start = evaluation.first_step
    errors = {
        "displacement": _percent(evaluation.run.dof_displacement[start:], displacement),
        "acceleration": _percent(absolute_acceleration(evaluation)[start:], acceleration),
    }
    names = evaluation.run.dof_names
    return {dof: {name: float(values[n]) for name, values in errors.items()} for n, dof in enumerate(names)}


def _percent(computed: Array, exact: Array) -> Array:
    n = min(len(computed), len(exact))
    squares = np.square(exact[:n]).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(PERCENT * np.sqrt(np.square(computed[:n] - exact[:n]).sum(axis=0) / squares))
