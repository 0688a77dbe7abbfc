# SPDX-License-Identifier: Apache-2.0
"""Assembly: builds the components of a scenario."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rths_nodes.control.setups import ScaledSetup
from rths_nodes.core import registry
from rths_nodes.core.control import accelerations
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.parameters import ChecksScenario, TestContext, evolved, type_of
from rths_nodes.core.protocols import Compensator, Integrator, Port, Ramp, Reduction, SemiActive, Setup, Structure
from rths_nodes.core.samples import Array, Motion
from rths_nodes.core.text_files import size_of
from rths_nodes.core.validation import walk
from rths_nodes.core.wire import Codec, RunMark, bound_of
from rths_nodes.laboratory.calibration import in_order_of_rig
from rths_nodes.laboratory.force_control import NODES, ForceLoops
from rths_nodes.laboratory.ports.wrappers import CalibratedPort, CorrectedPort, ForceLoopPort, NamedPort
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.scenario.updating import Copies
from rths_nodes.mechanics.structure import combined_load, is_sparse
from rths_nodes.numerical.reductions import (
    GroundForce,
    Observation,
    Recovery,
    Reduced,
    Selection,
    refuse_tested_elsewhere,
)
from rths_nodes.numerical.structures.restoring_forces import is_linear

MOST = 4 << 30
"""Largest memory that a test may use, bytes."""
PER_SAMPLE = 3
"""Number of values stored per sample, for measured durations and their statistics."""
PER_STEP = 8
"""Number of values stored per step, for time, ground motion and intermediate results."""
PER_DEGREE = 2
"""Number of values stored per step and degree of freedom, for the external force and a copy of it."""
PER_REMEMBERED = 8
"""Number of values (8 bytes each) stored per sample that a component remembers."""
NUMBER = 8
FEW = 8
"""Largest number of degrees of freedom for which the external force is computed by columns, for speed."""


def check_memory(scenario: Scenario, n_dof: int) -> None:
    remembered = scenario.servo_rate * sum(span for _, part in walk(scenario) for span in part.spans().values())
    per_step = PER_STEP + PER_DEGREE * n_dof
    numbers = PER_SAMPLE * scenario.samples + per_step * scenario.steps + PER_REMEMBERED * round(remembered)
    _refuse_beyond(scenario, NUMBER * numbers, "excitation, measured times and components")


def check_histories(scenario: Scenario, per_sample: int, per_step: int) -> None:
    _refuse_beyond(scenario, NUMBER * (per_sample * scenario.samples + per_step * scenario.steps), "histories")


def _refuse_beyond(scenario: Scenario, needed: int, noun: str) -> None:
    if needed > MOST:
        raise ConfigError(
            f"duration * servo_rate = {scenario.samples} samples ({scenario.steps} steps): {noun} would need "
            f"{size_of(needed)} of memory, which must be <= {size_of(MOST)}"
        )


@dataclass(frozen=True)
class Names:
    """Names of the values that components exchange, in order."""

    interface: tuple[str, ...]
    """Degrees of freedom that the setup transforms to axes."""
    observed: tuple[str, ...]
    """Degrees of freedom in a Target: first the interface, then other observed degrees of freedom."""
    model: tuple[str, ...]
    """Degrees of freedom of the structure or, without a structure, axes and observed degrees of freedom."""
    axes: tuple[str, ...]
    state: tuple[str, ...]
    """Internal quantities of the compensator. The names contain the axis, such as ``axes.story_1.alpha``."""
    auxiliary: tuple[str, ...]
    inputs: tuple[str, ...]
    updating: tuple[str, ...] = ()
    """Recorded quantities of model updating, with units."""

    def codec(self, scenario: Scenario, run: RunMark | None = None) -> Codec:
        sizes = (len(self.observed), len(self.axes), len(self.state), len(self.auxiliary), len(self.inputs))
        return Codec(*sizes, run, len(scenario.force_axes), len(self.updating))

    def test_constants(self, scenario: Scenario) -> dict[str, object]:
        return {
            "scenario": scenario.name,
            "servo_rate": scenario.servo_rate,
            "substeps": scenario.samples_per_step,
            "samples": scenario.samples,
            "transport_samples": scenario.transport_samples,
            "axis_names": list(self.axes),
            "degree_of_freedom_names": list(self.observed),
            "auxiliary_names": list(self.auxiliary),
            "input_names": list(self.inputs),
        }


class Assembly:
    """Builds the components of a scenario, each on first use, and shares them.

    Components have state, so an assembly serves one run only. :meth:`fresh` and :meth:`twin` build independent
    instances. ``port``, which a procedure keeps open, replaces the port of the scenario. Raises ConfigError if a
    component cannot be built.
    """

    def __init__(self, scenario: Scenario, port: Port | None = None) -> None:
        self.scenario = scenario
        self._handed = port
        self._first: Assembly | None = None
        self._loaded = True

    def twin(self, loaded: bool = True) -> Assembly:
        """Return an assembly with new instances. Its ground acceleration is zero unless ``loaded`` is true.

        Names, ground motion and a linear structure are immutable and shared. Raises ConfigError for a component
        with ``external = True`` (a socket, a process, a rig), which exists only once.
        """
        twin = Assembly(self.scenario)
        twin._first, twin._loaded = self, loaded
        return twin

    def fresh(self, name: str) -> Any:
        return getattr(self.twin(), name)

    def _build(self, family: str, params: object, *arguments: object) -> Any:
        cls = registry.class_of(family, params)
        if self._first is not None and cls.external:
            raise ConfigError(
                f"{family}.type = {type_of(params)!r}: no second instance can be built, because this component "
                "is outside the process and exists only once"
            )
        if self._first is None:
            self.scenario.check_fit(family, self._parts)
        return registry.build(family, params, *arguments)

    @cached_property
    def _parts(self) -> tuple[tuple[str, ChecksScenario, TestContext], ...]:
        return tuple(self.scenario.parts())

    @cached_property
    def full_structure(self) -> Structure | None:
        params = self.scenario.structure
        first = None if self._first is None else self._first.full_structure
        if first is not None and is_linear(first):
            return first  # a linear structure has no state, and building it again is slow
        return None if params is None else self._build("structure", params)

    @cached_property
    def structure(self) -> Structure | None:
        params, full = self.scenario.reduction, self.full_structure
        if params is None:
            return full
        if full is None or not self.scenario.interface:
            raise ConfigError(
                "reduction: requires a structure, and an interface with the names of the tested degrees of freedom"
            )
        if self._first is not None:
            return self._first.structure
        reduction: Reduction = self._build("reduction", params)
        at = places("interface", self.scenario.interface, full)
        refuse_tested_elsewhere(full, at, full.names)
        condensed: Any = Reduced(reduction, full, at)
        return condensed  # type: ignore[no-any-return]

    @cached_property
    def ground_acceleration(self) -> Array:
        """Ground acceleration ``(steps + 1,)`` m/s^2 at every step of the test, without the soft start."""
        if self._first is not None:
            acceleration = self._first.ground_acceleration
            return acceleration if self._loaded else np.zeros_like(acceleration)
        scenario = self.scenario
        check_memory(scenario, 1 if self._is_large else len(self._model))
        times = scenario.step * np.arange(scenario.steps - scenario.soft_start_steps + 1)
        motion = self._build("ground_motion", scenario.ground_motion, scenario.seed)
        sampled: Array = motion.sample(times)
        return sampled

    @cached_property
    def external_force(self) -> Array:
        """Force of the ground motion on the numerical substructure, ``(steps + 1, n_dof)`` N.

        The force is the inertial force of both substructures, unless the structure defines another load. The force
        is zero without a structure. A sparse structure has a :class:`GroundForce` instead of an array.
        """
        return self._ground_force(None if self.structure is None else self.structure.ground_load)

    @property
    def force_on_whole(self) -> Array:
        return self._ground_force(None if self.structure is None else combined_load(self.structure))

    def _ground_force(self, pattern: Array | None) -> Array:
        acceleration = self.ground_acceleration
        if pattern is None or not (self._loaded or self._is_large):
            return np.zeros((len(acceleration), len(self._model)))
        if self._is_large:
            by_rows: Any = GroundForce(-acceleration, pattern)
            return by_rows  # type: ignore[no-any-return]
        if len(pattern) > FEW:
            return np.asarray(np.outer(-acceleration, pattern))
        force: Array = np.empty((len(acceleration), len(pattern)))
        np.multiply(-acceleration, pattern[:, None], out=force.T, order="C")
        return force

    @property
    def _is_large(self) -> bool:
        return self.structure is not None and is_sparse(self.structure.mass)

    @cached_property
    def integrator(self) -> Integrator:
        scenario = self.scenario
        built: Integrator = self._build(
            "integrator", scenario.integrator, self.structure, self.external_force, scenario.step
        )
        built.excite(self.ground_acceleration)
        return built

    @property
    def late_velocity(self) -> bool:
        """True if the integrator's velocity lags its displacement. Does not build the integrator."""
        late: bool = registry.class_of("integrator", self.scenario.integrator).late_velocity
        return late

    @cached_property
    def reference_energy(self) -> float:
        """Energy that the running energy monitor adds to the input energy in its denominator, J."""
        stated = self.scenario.monitor.reference_energy
        if stated is not None:
            return stated
        return 0.0 if self.structure is None else float(self.structure.elastic_energy)

    @cached_property
    def ramp(self) -> Ramp:
        scenario = self.scenario
        n_dof = self.observation.n_interface
        built: Ramp = self._build("ramp", scenario.ramp, scenario.dt, scenario.samples_per_step, n_dof)
        return built

    @cached_property
    def setup(self) -> Setup:
        scenario = self.scenario
        n_dof = self.observation.n_interface
        built: Setup = self._build("setup", scenario.setup, n_dof, len(scenario.moved_axes))
        if not scenario.scaled:
            return built
        scales = scenario.similitude
        moved = scales[: len(scenario.moved_axes)]
        return ScaledSetup(built, [scale.length for scale in moved], [scale.force for scale in scales])

    @cached_property
    def compensator(self) -> Compensator:
        """Compensator of all moved axes. Its ``lead`` includes a transport delay that its model omits."""
        scenario, params = self.scenario, self.scenario.compensator
        if registry.class_of("compensator", params).transport_in_lead:
            params = evolved(params, lead=params.lead + scenario.transport_samples * scenario.dt)
        built: Compensator = self._build("compensator", params, scenario.dt, len(scenario.moved_axes))
        return built

    @cached_property
    def controller(self) -> SemiActive | None:
        params = self.scenario.semi_active
        if params is None:
            return None
        inputs = registry.class_of("semi_active", params).inputs
        if inputs != self.names.inputs:
            has = ", ".join(self.names.inputs) or "none"
            raise ConfigError(
                f"semi_active: the controller sets {', '.join(inputs)}, but the auxiliary inputs of the rig are "
                f"{has}"
            )
        built: SemiActive = self._build("semi_active", params, self.structure, self.scenario.step, self._channels)
        return built

    @property
    def _channels(self) -> tuple[str, ...]:
        """Names of auxiliary channels. Accelerations are numbered by the degree of freedom that the axis moves."""
        axes = transformation(self)[0].tolist()
        n = len(self._model)
        of_units = {tuple(unit): name for unit, name in zip(np.eye(n).tolist(), accelerations(n), strict=True)}
        of_axes = {
            name: of_units.get(tuple(axis), f"{name} of an axis")
            for name, axis in zip(accelerations(len(axes)), axes, strict=True)
        }
        return tuple(of_axes.get(name, name) for name in self.names.auxiliary)

    @cached_property
    def port(self) -> Port:
        if self._handed is not None:
            return self._handed
        scenario, rig = self.scenario, None
        if scenario.rig is not None:
            rig = self._build("rig", scenario.rig, scenario.dt, len(scenario.axes))
        params = scenario.port
        if params.builds_axes:
            scenario.check_fit("axes", self._parts)
        name = type(params).type_name
        built_in = name in registry.built_in("port")
        # a simulator replaces the rig of the rig file, and uses SI units and axis coordinates
        real = scenario.rig_file is not None and not params.builds_axes
        axes = in_order_of_rig(scenario.axes) if real else scenario.axes
        built: Port = self._build("port", params, axes, scenario.dt, scenario.seed, rig)
        port: Port = built if built_in else NamedPort(built, name)
        if real and scenario.rig_file:
            port = CalibratedPort(port, scenario.axes, scenario.rig_file.auxiliary)
        if scenario.rig_file is not None:
            corrected = CorrectedPort(port, scenario.axes, scenario.dt, simulated=not real)
            port = corrected if corrected.names else port
        loops = ForceLoops(scenario.axes, NODES, scenario.dt)
        return ForceLoopPort(port, loops) if loops else port

    @cached_property
    def _model(self) -> tuple[str, ...]:
        if self._first is not None:
            return self._first._model
        scenario = self.scenario
        return (*scenario.moved_axes, *scenario.observed) if self.structure is None else self.structure.names

    @cached_property
    def observation(self) -> Observation:
        """Observed degrees of freedom. Raises ConfigError if a name is unknown or too many are observed."""
        if self._first is not None:
            return self._first.observation
        scenario, full = self.scenario, self.full_structure
        model: object = self.structure
        most = bound_of("Target", "displacement")
        if full is None and not scenario.interface:
            n_axes = len(scenario.moved_axes)
            n_model = n_axes + len(scenario.observed)
            _refuse_too_many(n_model, most)
            if scenario.observed:
                return Selection(n_model, range(n_axes), range(n_model), complete=True)
            return Observation(n_axes)
        if full is None:
            raise ConfigError(
                "interface: must be left out if there is no structure, because the axes are the degrees of freedom"
            )
        names = full.names
        if not scenario.interface:
            if len(names) > most:
                raise ConfigError(
                    f"interface: missing, but the structure has {len(names)} degrees of freedom and a Target can "
                    f"contain only {most}. Name the degrees of freedom that the setup transforms to axes, e.g. "
                    f"{names[-1]}"
                )
            return Observation(len(names))
        interface = places("interface", scenario.interface, full)
        observed = interface + places("observed", scenario.observed, full)
        _refuse_too_many(len(observed), most)
        refuse_tested_elsewhere(full, interface, names)
        if isinstance(model, Reduced):
            return Recovery(model, interface, observed)
        return Selection(len(names), interface, observed)

    @cached_property
    def names(self) -> Names:
        if self._first is not None:
            return self._first.names
        model, axes, scenario = self._model, tuple(self.scenario.axes), self.scenario
        seen = self.observation  # raises ConfigError if the degrees of freedom do not fit into messages
        interface = scenario.interface or model[: seen.n_interface]
        port = self.port
        pairs = [name.rstrip("]").partition("[") for name in self.compensator.state_names]
        state = tuple(f"axes.{axes[int(index)]}.{name}" if index else name for name, _, index in pairs)
        observed = (interface + scenario.observed)[: seen.n_observed]
        columns = () if scenario.updating is None else Copies(scenario).columns
        return Names(interface, observed, model, axes, state, port.auxiliary_names, port.auxiliary_inputs, columns)

    def codec(self, run: RunMark | None = None) -> Codec:
        return self.names.codec(self.scenario, run)


def transformation(assembly: Assembly) -> tuple[Array, Array]:
    """Return the setup's matrices at rest: for motions ``(n_axes, n_dof)`` and for forces ``(n_dof, n_axes)``."""
    setup, seen = assembly.setup, assembly.observation
    nothing = np.zeros(seen.n_interface)
    moved = (seen.interface(unit) for unit in np.eye(len(assembly._model)))
    axes = [setup.axes(Motion(nothing, unit, nothing)).velocity.copy() for unit in moved]
    units = np.eye(len(assembly.scenario.moved_axes))
    forces = [seen.spread(setup.forces(unit, nothing)).copy() for unit in units]
    return np.column_stack(axes), np.column_stack(forces)


def places(key: str, names: tuple[str, ...], structure: Structure) -> list[int]:
    numbers = {name: number for number, name in enumerate(structure.names)}
    for name in names:
        if name not in numbers:
            raise unknown(key, "degree of freedom", name, numbers)
    return [numbers[name] for name in names]


def _refuse_too_many(observed: int, most: int) -> None:
    if observed > most:
        raise ConfigError(
            f"interface, observed: name {observed} degrees of freedom, but must name <= {most}, because a Target "
            "cannot contain more"
        )
