# SPDX-License-Identifier: Apache-2.0
"""Linearised discrete-time and continuous-time loops of a scenario."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from rths_nodes.analysis.stability.impulses import Way, force_loops
from rths_nodes.analysis.stability.loops import HZ, ContinuousLoop, Impulses, Response, SampledLoop, WholeStructure
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies, taps
from rths_nodes.core.parameters import type_of
from rths_nodes.core.protocols import StepMatrices, Structure
from rths_nodes.core.samples import Array
from rths_nodes.core.simulators import Specimen
from rths_nodes.core.validation import walk
from rths_nodes.laboratory.corrections import low_pass
from rths_nodes.loop.scenario.assembly import Assembly, transformation
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.numerical import force_lead_of
from rths_nodes.mechanics.butterworth import Butterworth
from rths_nodes.mechanics.small_specimen import SmallSpecimen
from rths_nodes.mechanics.structure import is_sparse, massless, numbered
from rths_nodes.numerical.structures.restoring_forces import LinearRestoringForce

SAME = 0.01
"""Largest relative difference between the specimens' stiffness and the declared experimental stiffness."""
MOST_STEPS = 100
FASTEST = 1e6
"""Largest permitted phase angle of a mode per step, rad."""
BEHIND = frozenset(
    ("name", "description", "duration", "seed", "ground_motion", "structure", "indices", "monitor", "recording")
    + ("cases", "scatter")
)
"""Sections of a scenario that do not affect the responses from Targets to forces."""


def sampled_loop(
    scenario: Scenario, cache: dict[str, Impulses] | None = None, stiffness: Array | None = None
) -> SampledLoop:
    """Return the loop of ``scenario`` in discrete time. Raises ConfigError if the loop cannot be judged.

    ``cache`` stores the responses from Targets to forces, which take most of the time. Scenarios that differ only
    in structure share these responses. ``stiffness`` ``(n_dof, n_dof)`` N/m replaces the stiffness of the
    restoring force, but not in the constants of the integrator.
    """
    assembly = Assembly(scenario)
    structure = _structure_of(assembly)
    way = Way(assembly)
    matrices = _small_motion(assembly, structure, way)
    if stiffness is not None:
        matrices = replace(matrices, stiffness=matrices.stiffness - structure.stiffness + stiffness)
    integrator = _integrator(scenario, structure, stiffness)
    integrator(1.0)  # raises ConfigError for unknown integrators
    impulses = _impulses(assembly, way, {} if cache is None else cache)
    if impulses.at_once is not None:
        pushed = transformation(assembly)[1] @ impulses.at_once
        matrices = replace(matrices, stiffness=matrices.stiffness + pushed)
    return SampledLoop(
        matrices,
        *transformation(assembly),
        integrator,
        impulses,
        scenario.step,
        scenario.samples_per_step,
        tuple(_assumptions(assembly, structure, matrices, way)),
        scenario.rig is None and impulses.at_once is None,
        force_loops(scenario, way.loaded),
        way.feeds_back,
    )


def _impulses(assembly: Assembly, way: Way, computed: dict[str, Impulses]) -> Impulses:
    if not assembly.observation.complete:
        return way.impulses(assembly.observation)
    parts = {key: value for key, value in assembly.scenario.data().items() if key not in BEHIND}
    key = repr((parts, assembly.names.interface, way.auxiliary.tolist()))
    if key not in computed:
        computed[key] = way.impulses(assembly.observation)
    return computed[key]


def _structure_of(assembly: Assembly) -> Structure:
    if assembly.structure is not None:
        return assembly.structure
    kind = type(assembly.scenario.integrator).type_name
    if registry.load("integrator", kind).external:
        raise ConfigError(f"integrator.type = {kind!r}: contains the structure, so the loop cannot be judged")
    raise ConfigError(
        "structure: missing; a test with prescribed displacements has no loop that could be unstable"
    )


def continuous_loop(scenario: Scenario) -> ContinuousLoop:
    """Return the loop in continuous time. Raises ConfigError if a component has no frequency response."""
    assembly = Assembly(scenario)
    structure = _structure_of(assembly)
    if scenario.rig is not None:
        raise ConfigError("rig: a coupled rig has no response per axis in continuous time")
    if assembly.setup.takes_loads:
        raise ConfigError("setup: the added forces of the loads have no response per axis in continuous time")
    matrices = _small_motion(assembly, structure)
    return ContinuousLoop(
        matrices.mass,
        matrices.damping,
        matrices.stiffness,
        matrices.axes_of,
        matrices.forces_of,
        matrices.specimens,
        _response(assembly.compensator, "compensator", "compensator", scenario.compensator),
        _actuators(scenario),
        scenario.dt,
        scenario.transport_samples * scenario.dt,
        time_ratio=float(scenario.time_ratio),
    )


def _integrator(
    scenario: Scenario, structure: Structure, stiffness: Array | None
) -> Callable[[float], Sequence[StepMatrices]]:
    name = type(scenario.integrator).type_name
    kept = ("names", "influence", "elastic_energy", "experimental_damping", "experimental_stiffness", "stiffness")

    def steps(ratio: float) -> Sequence[StepMatrices]:
        scaled = SimpleNamespace(
            **{attribute: getattr(structure, attribute) for attribute in kept},
            mass=structure.mass / ratio**2,
            experimental_mass=structure.experimental_mass / ratio**2,
            damping=structure.damping / ratio,
            restoring_force=LinearRestoringForce(structure.stiffness if stiffness is None else stiffness),
        )
        nothing = np.zeros((2 * MOST_STEPS + 1, len(structure.influence)))
        integrator = registry.build("integrator", scenario.integrator, scaled, nothing, scenario.step)
        if integrator.period > MOST_STEPS:
            raise ConfigError(
                f"integrator.type = {name!r}: repeats only after {integrator.period} steps (more than "
                f"{MOST_STEPS}), so the stability cannot be judged before the test"
            )
        matrices: Sequence[StepMatrices] = integrator.linearised()
        if not matrices:
            raise ConfigError(
                f"integrator.type = {name!r}: does not provide its steps at small motion (method linearised), so "
                "the stability cannot be judged before the test"
            )
        return matrices

    return steps


def _small_motion(assembly: Assembly, structure: Structure, way: Way | None = None) -> WholeStructure:
    scenario = assembly.scenario
    if is_sparse(structure.mass):
        raise ConfigError(
            f"structure: {len(structure.influence)} degrees of freedom are too many to judge the stability "
            "before the test. Set reduction, at least for rths stability (--set)"
        )
    if massless(structure.mass).any():
        raise ConfigError(
            f"structure: degrees of freedom {numbered(massless(structure.mass))} have no mass, so the stability "
            "cannot be judged before the test"
        )
    loaded = None if way is None else way.loaded
    if scenario.rig is not None and loaded is None and not hasattr(scenario.rig, "model"):
        raise ConfigError(
            f"rig.type = {type(scenario.rig).type_name!r}: does not describe the specimen without its "
            "actuators, so the stability cannot be judged before the test"
        )
    axes_of, forces_of = transformation(assembly)
    mass, damping, stiffness = structure.mass, structure.damping, structure.stiffness
    if scenario.rig is None:
        models = {name: scenario.model_of(name, "specimen") for name in scenario.moved_axes}
        specimens = tuple(
            _small(registry.build("specimen", params), f"axes.{name}.specimen", params)
            for name, params in models.items()
        )
    elif way is not None and loaded is not None:
        specimens, tested = (), way.at_slow_motion()
        damping, stiffness = (
            part + forces_of @ matrix @ axes_of for part, matrix in zip((damping, stiffness), tested, strict=True)
        )
        axes_of, forces_of = axes_of[:0], forces_of[:, :0]
    else:
        assert way is not None
        tested = scenario.rig.model()
        mass, damping, stiffness = (
            part + forces_of @ of_axes @ axes_of
            for part, of_axes in zip((mass, damping, stiffness), tested[:3], strict=True)
        )
        location = scenario.rig.location()
        specimens = ()
        if scenario.rig.damper is not None:
            damper = registry.build("specimen", scenario.rig.damper)
            if len(way.auxiliary) and damper.voltage is not None:
                damper.voltage = float(way.auxiliary[0])
            specimens = (_small(damper, "rig.damper", scenario.rig.damper),)
        axes_of, forces_of = location[None, :] @ axes_of, forces_of @ location[:, None]
        axes_of, forces_of = axes_of[: len(specimens)], forces_of[:, : len(specimens)]
    matrices = WholeStructure(
        mass, damping, stiffness, axes_of, forces_of, specimens, time_ratio=float(scenario.time_ratio)
    )
    if not matrices.scale * scenario.step < FASTEST:
        raise ConfigError(
            f"structure with its specimens: highest natural frequency of {matrices.scale / HZ:.3g} Hz; must be < "
            f"{FASTEST / HZ / scenario.step:.3g} Hz at this step. Check the masses, the specimens and the setup"
        )
    return matrices


def _small(specimen: Specimen, path: str, params: object) -> SmallSpecimen:
    try:
        return SmallSpecimen.of(specimen)
    except ValueError as error:
        raise ConfigError(
            f"{path}.type = {type_of(params)!r}: is not linear at small motion ({error}), so the stability "
            "cannot be judged before the test"
        ) from None


def _response(part: Any, family: str, path: str, params: object) -> Response:
    names = registry.names(family)
    usable = [name for name in names if hasattr(registry.load(family, name), "frequency_response")]
    for inner_path, inner in walk(params, path):
        name = type_of(inner)
        mine = name in names and isinstance(inner, registry.load(family, name).Params)
        if mine and name not in usable:
            raise ConfigError(
                f"{inner_path}.type = {name!r}: has no frequency response, so the stability cannot be judged "
                f"before the test. Usable types: {', '.join(usable) or 'none'}"
            )
    response: Response = part.frequency_response
    return response


def _actuators(scenario: Scenario) -> tuple[Response, ...]:
    responses = []
    lead = None if scenario.force_lead is None else force_lead_of(scenario, Assembly(scenario).integrator)
    weights = np.ones(1) if lead is None else lead.weights
    for name in scenario.moved_axes:
        axis, params = scenario.axes[name], scenario.model_of(name, "actuator")
        specimen = registry.build("specimen", scenario.model_of(name, "specimen"))
        actuator = registry.build("actuator", params, scenario.dt, specimen)
        response = _response(actuator, "actuator", f"axes.{name}.actuator", params)
        late, low = axis.sensors.force_delay, low_pass(axis, scenario.dt)
        if lead is not None or late or low is not None:
            ages = scenario.dt * (late + np.arange(len(weights), dtype=np.float64))
            response = partial(_felt, response, ages, weights, low)
        responses.append(response)
    return tuple(responses)


def _felt(
    unfiltered: Response, ages: Array, weights: Array, low: Butterworth | None, omega: Frequencies
) -> Complex:
    filtered = unfiltered(omega) * taps(omega, weights, ages)
    return filtered if low is None else filtered * low.frequency_response(omega)


def _assumptions(assembly: Assembly, structure: Structure, matrices: WholeStructure, way: Way) -> Iterator[str]:
    scenario, compensator = assembly.scenario, assembly.compensator
    yield "small motion: specimens, numerical substructure and setup are linearised at rest"
    if scenario.force_axes:
        yield f"{', '.join(scenario.force_axes)}: judged at the largest load, independent of the other axes"
    yield "integrator, ramp, compensator, transport and rig are in discrete time; sensors have no error"
    if compensator.state_names:
        name = type(scenario.compensator).type_name
        yield f"{name}: judged with its initial parameters, without learning"
    if way.feeds_back:
        yield (
            f"{type(scenario.compensator).type_name}: feeds measurements back; a further delay acts on the "
            "forces, but not within this feedback, so the critical delay of the rig may be shorter"
        )
    if scenario.semi_active is not None:
        yield f"{type(scenario.semi_active).type_name}: judged with its output at rest"
    stated = structure.experimental_stiffness
    slopes = np.diag([specimen.slope for specimen in matrices.specimens])
    tested = matrices.stiffness - structure.stiffness + matrices.forces_of @ slopes @ matrices.axes_of
    if stated.any() and not np.allclose(tested, stated, rtol=SAME, atol=SAME * np.abs(stated).max()):
        yield "the specimens' stiffness is used; the structure declares a different experimental stiffness"
    weightless = not any(specimen.mass for specimen in matrices.specimens)
    if structure.experimental_mass.any() and scenario.rig is None and weightless:
        yield "the tested mass is omitted, because the simulated specimens have no inertia"
