# SPDX-License-Identifier: Apache-2.0
"""Responses of a simulated rig at small motion: impulse responses of the axes, and force loops.

**Impulse responses** are the responses of the axes' forces to one Target, through the stages of the loop in order.
This Target differs from rest by so little that every stage is linear. Adaptation is off. Sensors have no errors
other than the delay and the filter of the force.

**Force loops** control the force axes, which bear their loads. At small motion, a force loop must not change the
forces of other axes. The loads change the stiffness of the other axes (P-Delta). The loop of these axes is
therefore judged with the force axes fixed at the positions where they bear their loads (:class:`LoadedRig`).
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rths_nodes.analysis.stability.loops import KINDS, ForceLoop, Impulses
from rths_nodes.core import registry
from rths_nodes.core.control import Floats
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.protocols import Rig
from rths_nodes.core.samples import Array, Measurement, Motion, Target
from rths_nodes.core.validation import walk
from rths_nodes.laboratory.corrections import low_pass
from rths_nodes.laboratory.force_control import NODES
from rths_nodes.laboratory.ports.simulator import SeparateAxes
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.command import InTime
from rths_nodes.loop.stages.numerical import force_lead_of
from rths_nodes.mechanics.butterworth import Butterworth
from rths_nodes.numerical.reductions import Observation

SMALL = 1e-9
"""Displacement of the Target, m. Velocity and acceleration are this value divided by the step or its square."""
LARGER = 10.0
"""Size of a second impulse relative to the first. Their responses must have the same ratio."""
STEEPER = 0.01
"""Largest permitted relative difference between the responses to the small and the larger impulse."""
FADED, COMPARED = 1e-10, 1e-4
"""Fraction of its peak below which a response has ended. ``COMPARED`` applies to the response to the larger
impulse, which is used only for comparison."""
QUIET = 1.25
LONGEST = 200_000
BLOCK = 64
PATIENCE = 64
"""Number of quiet samples after which a response has ended, in addition to the memory of ramp, compensator and
transport."""
FED_BACK = 8
MOVED = 2
LOOP_FADED = 1e-9
"""Fraction of its largest value below which the response of a force loop has ended."""
LOOP_PATIENCE = 128
"""A force loop's response with n samples has ended after n + ``LOOP_PATIENCE`` quiet samples."""
LOOP_LONGEST = 100_000
GLIDE = 256
"""Number of samples of a ramp between positions. A step would overshoot and might crush a specimen."""
STILL = 1e-12
"""Largest change of the force in ``GLIDE`` samples at rest, relative to the load."""
EXACT = 1e-7
TRIES = 40
GLIDES = 1_000
PUSHED = 1e-7
"""Displacement (m) applied to a force axis to measure its effect on the force of this axis and on other axes."""
ROUGH = 1e-8
"""Replaces ``STILL`` for an axis without load, relative to the force."""
APART = 1e-6
"""Force change of another axis, relative to the force axis, below which the other axis counts as unaffected."""


class LoadedRig:
    """Rig whose force axes are held where they bear their loads, while commands move the other axes.

    ``places`` (m) are the positions of the force axes, and ``loads`` (N) their largest loads. Raises ConfigError
    if a specimen cannot bear a load, or if force axes are coupled.
    """

    def __init__(self, scenario: Scenario, rig: Rig) -> None:
        self._n, self.names = len(scenario.moved_axes), scenario.force_axes
        self.loads = [load.largest for name in self.names if (load := scenario.axes[name].own_load) is not None]
        self.auxiliary_inputs, self.none = rig.auxiliary_inputs, np.zeros(len(rig.auxiliary_inputs))
        self.rig, self.places = rig, np.zeros(len(self.names))
        self.rig.reset()
        for index in range(len(self.names)):
            self._put_on(index)
        self._settled = copy.deepcopy(self.rig)
        self.rest_force = np.array(self.rig.force)
        for index in range(len(self.names)):
            self._refuse_coupled(index)
        self.reset()

    def reset(self) -> None:
        self.rig = copy.deepcopy(self._settled)

    @property
    def auxiliary(self) -> Array:
        return np.array(self.rig.auxiliary)

    def follow(self, command: Floats, auxiliary: Array) -> tuple[list[float], list[float]]:
        """Advance one sample with commands (m) of the moved axes. Return displacements (m) and forces (N)."""
        places, forces = self.rig.follow([*command, *self.places.tolist()], auxiliary)
        return places[: self._n], forces[: self._n]

    def push(self, index: int, size: float) -> Array:
        """Advance one sample and return the forces (N) relative to the forces at rest, ``(n_axes,)``.

        Force axis ``index`` is commanded ``size`` (m) away from its position. All other axes stay at their
        positions.
        """
        command = np.concatenate((np.zeros(self._n), self.places))
        command[self._n + index] += size
        self.rig.step(command, self.none)
        return np.asarray(self.rig.force - self.rest_force)

    def _put_on(self, index: int) -> None:
        wanted, axis = self.loads[index], self._n + index
        position, force, slope = 0.0, float(self.rig.force[axis]), self._slope(index)
        for _ in range(TRIES):
            if abs(wanted - force) <= EXACT * abs(wanted):
                return
            there = position + (wanted - force) / slope
            now = self._glide(index, there)
            if not math.isfinite(now) or now == force:
                break
            slope, position, force = (now - force) / (there - position), there, now
        raise ConfigError(
            f"axes.{self.names[index]}.load: the simulated specimen cannot bear {wanted:g} N, so the stability "
            "cannot be judged before the test"
        )

    def _slope(self, index: int) -> float:
        before = float(self.rig.force[self._n + index])
        slope = (self._glide(index, PUSHED) - before) / PUSHED
        self._glide(index, 0.0)
        if not slope > 0.0:
            raise ConfigError(
                f"axes.{self.names[index]}: the force of the specimen does not rise with displacement, so the "
                "stability cannot be judged before the test"
            )
        return slope

    def _glide(self, index: int, position: float) -> float:
        """Move a force axis to ``position`` (m). Return the settled force (N), or NaN if it does not settle."""
        axis, start = self._n + index, float(self.places[index])
        still = STILL * abs(self.loads[index])
        for share in np.linspace(0.0, 1.0, GLIDE):
            self.places[index] = start + share * (position - start)
            self.follow([0.0] * self._n, self.none)
        before = math.inf
        for _ in range(GLIDES):
            force = float(self.rig.force[axis])
            if abs(force - before) <= (still or ROUGH * abs(force)):
                return force
            before = force
            for _ in range(GLIDE):
                self.follow([0.0] * self._n, self.none)
        return math.nan

    def _refuse_coupled(self, index: int) -> None:
        rest = self.rest_force
        self._glide(index, float(self.places[index]) + PUSHED)
        changed = np.abs(np.array(self.rig.force) - rest)
        self.places[index] -= PUSHED
        self.reset()
        axis = self._n + index
        if (np.delete(changed, axis) > APART * changed[axis]).any():
            raise ConfigError(
                f"axes.{self.names[index]}: the force loop changes the forces of other axes at small motion, so "
                "the loops are coupled and their stability cannot be judged before the test"
            )


class _Faded:
    """Detects the end of a response computed in blocks. ``loud`` is the length of the response, samples."""

    def __init__(self, patience: int, share: float) -> None:
        self._patience, self._share = patience, share
        self._samples, self._largest, self._sent = 0, np.zeros(2), False
        self.loud = 0

    def after(self, block: Array, sent: NDArray[np.bool_]) -> bool:
        """Return True if the response ends in ``block``. ``sent`` is true for samples with a nonzero command."""
        samples = self._samples + np.arange(len(block))
        size = np.abs(block).max(axis=2)
        largest = np.maximum(np.maximum.accumulate(size), self._largest)
        above = (size > self._share * largest).any(axis=1)
        loud = np.maximum(np.maximum.accumulate(np.where(above, samples + 1, 0)), self.loud)
        sent = np.logical_or.accumulate(sent) | self._sent
        ended = np.flatnonzero(~(sent & (loud == 0)) & (samples > QUIET * loud + self._patience))
        last = int(ended[0]) if len(ended) else len(block) - 1
        self._samples += len(block)
        self._largest, self._sent, self.loud = largest[last], bool(sent[last]), int(loud[last])
        return len(ended) > 0


class _Felt:
    """Converts the forces of the axes to the delayed, filtered, weighted forces at the integrator, in blocks."""

    def __init__(self, late: Sequence[int], filters: Sequence[Butterworth | None], weights: Array) -> None:
        self._late, self._filters, self._weights = late, filters, weights
        self._on_the_way = np.zeros((max(late), len(late)))
        self._before = np.zeros((len(weights) - 1, len(late)))
        for filter_of_axis in filters:
            if filter_of_axis is not None:
                filter_of_axis.start(0.0)

    def after(self, forces: Array) -> Array:
        n, longest = len(forces), len(self._on_the_way)
        samples = np.concatenate((self._on_the_way, forces))
        self._on_the_way = samples[n:]
        rows = [longest - late for late in self._late]
        here = np.column_stack([samples[row : row + n, axis] for axis, row in enumerate(rows)])
        for axis, filter_of_axis in enumerate(self._filters):
            if filter_of_axis is not None:
                here[:, axis] = [filter_of_axis.step(value) for value in here[:, axis].tolist()]
        samples = np.concatenate((self._before, here))
        self._before = samples[n:]
        newest = len(self._weights) - 1
        return np.asarray(sum(w * samples[newest - age : newest - age + n] for age, w in enumerate(self._weights)))


class Way:
    """Computes the rig's response to Targets. Raises ConfigError if a component cannot be built."""

    def __init__(self, assembly: Assembly) -> None:
        self.scenario = scenario = assembly.scenario
        self.axes = {name: scenario.axes[name] for name in scenario.moved_axes}
        self.n_axes, self.per_step = len(self.axes), scenario.samples_per_step
        if assembly.compensator.external:
            raise ConfigError(
                f"compensator.type = {type(scenario.compensator).type_name!r}: is computed in another process, "
                "so the stability cannot be judged before the test"
            )
        self._ramp, self._setup, self._compensator = assembly.ramp, assembly.setup, assembly.compensator
        self._late_velocity = assembly.late_velocity
        rig = _rig(scenario)
        self.loaded = LoadedRig(scenario, rig) if scenario.force_axes else None
        self._rig = rig if self.loaded is None else self.loaded
        self.transport = scenario.transport_samples
        self.auxiliary = self._inputs(assembly)
        spans = sum(sum(part.spans().values()) for _, part in walk(scenario.compensator, "compensator"))
        self._late = [axis.sensors.force_delay for axis in self.axes.values()]
        self._filters = [low_pass(axis, scenario.dt) for axis in self.axes.values()]
        lead = None if scenario.force_lead is None else force_lead_of(scenario, assembly.integrator)
        self._weights = np.ones(1) if lead is None else lead.weights
        delays = [0.0 if one is None else one.delay for one in self._filters]
        late = self.transport + max(self._late) + math.ceil(4.0 * max(delays) / scenario.dt)
        self._patience = PATIENCE + 4 * self.per_step + late + round(spans / scenario.dt)
        self._rig.reset()
        self._rest_force = np.array(self._rig.follow([0.0] * self.n_axes, self.auxiliary)[1])
        nothing, rest = [0.0] * self.n_axes, self._rest_force.tolist()
        still = self._answer(nothing, rest)
        self._by_force = self._answer(nothing, (self._rest_force + 1.0).tolist()) != still
        self.feeds_back = self._by_force or self._answer([SMALL] * self.n_axes, rest) != still
        """True if the commands depend on measured displacements or forces."""

    def _answer(self, measured: Floats, force: Floats) -> list[Floats]:
        """Return the compensator's first commands for a target at rest and constant measurements."""
        zeros, compensator = [0.0] * self.n_axes, self._compensator
        compensator.reset()
        return [compensator.commands(zeros, zeros, zeros, measured, force, True, False) for _ in range(FED_BACK)]

    def _inputs(self, assembly: Assembly) -> Array:
        inputs, nothing = np.zeros(len(self._rig.auxiliary_inputs)), np.zeros(self.n_axes)
        if not len(inputs) or assembly.controller is None:
            return inputs
        measured = Measurement(0, nothing, nothing, nothing, np.array(self._rig.auxiliary))
        return np.array(assembly.controller.step(measured, 0.0))

    def impulses(self, seen: Observation) -> Impulses:
        """Return the responses at the interface ``seen``. Raises ConfigError if any is nonlinear or persists."""
        step, n_dof = self.per_step * self.scenario.dt, seen.n_interface
        responses, nothing = [], np.zeros(n_dof)
        moving = [self._setup.axes(Motion(nothing, unit, nothing)).velocity.any() for unit in np.eye(n_dof)]
        for column in range(KINDS * n_dof):
            kind, dof = divmod(column, n_dof)
            if not moving[dof]:
                responses.append(np.zeros((0, 2, self.n_axes)))
                continue
            size = SMALL / step**kind
            response = self._response(n_dof, kind, dof, size)
            if kind == 0:
                self._check(response, self._response(n_dof, kind, dof, LARGER * size, COMPARED))
            responses.append(response / size)
        longest = max(len(response) for response in responses)
        padded = [np.pad(one, ((0, longest - len(one)), (0, 0), (0, 0))) for one in responses]
        forces, displacements = np.stack(padded, axis=-1).transpose(1, 0, 2, 3)
        at_once = self._at_once(n_dof)
        if not seen.complete:
            of_model = np.kron(np.eye(KINDS), np.array([seen.interface(unit) for unit in np.eye(seen.n_model)]).T)
            forces, displacements = forces @ of_model, displacements @ of_model
            at_once = None if at_once is None else at_once @ of_model[:n_dof, : seen.n_model]
        return Impulses(forces, displacements, 1 - self.per_step, at_once, self._delay)

    def _at_once(self, n_dof: int) -> Array | None:
        """Return the forces per displacement (N/m) that the setup adds because of loads, or None if none."""
        if self.loaded is None or not self._setup.takes_loads:
            return None
        forces, nothing = self.loaded.rest_force, np.zeros(n_dof)
        rest = self._setup.forces(forces, nothing).copy()
        poses = [self._setup.forces(forces, SMALL * unit) - rest for unit in np.eye(n_dof)]
        units = [self._setup.forces(unit, nothing).copy() for unit in np.eye(len(forces))]
        if any(row.any() for row in units[self.n_axes :]):
            raise ConfigError(
                "setup: uses the forces of force-controlled axes even at rest. The loops are therefore coupled, "
                "and the stability cannot be judged before the test"
            )
        return np.asarray(np.linalg.pinv(np.column_stack(units[: self.n_axes])) @ np.column_stack(poses) / SMALL)

    def at_slow_motion(self) -> tuple[Array, Array]:
        """Return damping C (N s/m) and stiffness K (N/m) of the loaded specimens, ``(n_axes, n_axes)`` each.

        K + C s = F(s) / X(s) follows from the sums and first moments in time of the forces F and displacements X.
        """
        moments = []
        for unit in np.eye(self.n_axes):
            answer = self._record(_push(unit), _Felt([0] * self.n_axes, [None] * self.n_axes, np.ones(1))) / SMALL
            times = self.scenario.dt * np.arange(len(answer))
            moments.append(np.stack((answer.sum(axis=0), -np.tensordot(times, answer, 1))))
        (force, moved), (force_moment, moved_moment) = np.stack(moments, axis=-1)
        stiffness = force @ np.linalg.inv(moved)
        damping = (force_moment - stiffness @ moved_moment) @ np.linalg.inv(moved)
        return np.asarray(damping), np.asarray(stiffness)

    def _check(self, small: Array, large: Array) -> None:
        for one, other in zip(small.transpose(1, 0, 2), large.transpose(1, 0, 2), strict=True):
            n = min(len(one), len(other))
            if n and np.abs(other[:n] / LARGER - one[:n]).max() > STEEPER * np.abs(one).max():
                raise ConfigError(
                    "the path from the ramp to the specimens is not linear at small motion "
                    f"({SMALL:g} and {LARGER * SMALL:g} m), so the stability cannot be judged before the test"
                )

    def _response(self, n_dof: int, kind: int, dof: int, size: float, share: float = FADED) -> Array:
        rest, nothing, parts = np.zeros(n_dof), np.zeros((KINDS, n_dof)), np.zeros((KINDS, n_dof))
        parts[kind, dof] = size
        ramp, moved, compensator, n = self._ramp, self._setup.moved, self._compensator, self.per_step
        in_time = InTime(n * self.scenario.dt, 0) if self._late_velocity else None

        def target(step: int) -> Target:
            displacement, velocity, acceleration = parts if step == MOVED else nothing
            response = Target(step, displacement, velocity, acceleration, rest, rest, rest)
            return response if in_time is None else in_time.of(response)

        def command(sample: int, measured: Floats, force: Floats) -> Floats:
            step, substep = divmod(sample, n)
            if substep == 0:
                ramp.follow(target(step + 1))
            x, v, a = moved(ramp.rows(substep + 1))
            return compensator.commands(x, v, a, measured, force, True, False)

        compensator.reset()
        ramp.start(target(0))
        return self._record(command, share=share)[(MOVED - 1) * n :]

    def _delay(self) -> float:
        longest = 0.0
        for unit in np.eye(self.n_axes):
            response = self._record(_push(unit))[:, 1] @ unit
            longest = max(longest, float(response @ np.arange(len(response)) / response.sum()))
        return longest * self.scenario.dt

    def _load_cells(self) -> Callable[[Floats], Floats]:
        """Return a function that delays and filters forces, or the identity if forces do not affect commands."""
        if not self._by_force:
            return lambda force: force
        filters = [low_pass(axis, self.scenario.dt) for axis in self.axes.values()]
        felt, rest = _Felt(self._late, filters, np.ones(1)), self._rest_force
        return lambda force: (rest + felt.after(np.array([force]) - rest)[0]).tolist()

    def _record(
        self, commands: Callable[[int, Floats, Floats], Floats], felt: _Felt | None = None, share: float = FADED
    ) -> Array:
        """Return the rig's response to ``commands``, from rest until it has decayed, ``(samples, 2, n_axes)``.

        The forces are the output of ``felt``, by default the forces at the integrator.
        """
        self._rig.reset()
        follow, auxiliary = self._rig.follow, self.auxiliary
        line: deque[Floats] = deque([0.0] * self.n_axes for _ in range(self.transport))
        felt = felt or _Felt(self._late, self._filters, self._weights)
        blocks: list[Array] = []
        shown = self._load_cells()
        measured, force = [0.0] * self.n_axes, self._rest_force.tolist()
        faded, finite = _Faded(self._patience, share), True
        for first in range(0, LONGEST, BLOCK):
            rows, moving = [], []
            for sample in range(first, first + BLOCK):
                command = commands(sample, measured, shown(force))
                line.append(command)
                moving.append(any(command))
                measured, force = follow(line.popleft(), auxiliary)
                rows.append((force, measured))
                finite = math.isfinite(sum(force, sum(measured)))
                if not finite:
                    break
            block, sent = np.array(rows), np.array(moving)
            with np.errstate(invalid="ignore"):  # forces that diverge become infinite
                block[:, 0] = felt.after(block[:, 0] - self._rest_force)
            blocks.append(block)
            if faded.after(block, sent):
                return np.concatenate(blocks)[: faded.loud]
            if not finite:
                break
        raise ConfigError(
            f"the rig's response to a Target does not fade within {LONGEST} samples, so the stability cannot be "
            "judged before the test"
        )


def _push(unit: Array) -> Callable[[int, Floats, Floats], Floats]:
    first, nothing = (SMALL * unit).tolist(), [0.0] * len(unit)
    return lambda sample, *_: nothing if sample else first


def _rig(scenario: Scenario) -> Any:
    if scenario.rig is not None:
        if registry.class_of("rig", scenario.rig).external:
            raise ConfigError(
                f"rig.type = {type(scenario.rig).type_name!r}: its specimen is in another process, so the "
                "stability cannot be judged before the test"
            )
        return registry.build("rig", scenario.rig, scenario.dt, len(scenario.axes))
    for name in scenario.axes:
        for noun in ("specimen", "actuator"):
            scenario.model_of(name, noun)  # raises ConfigError for a real axis, which has no model
    return SeparateAxes(scenario.axes, scenario.dt)


def force_loops(scenario: Scenario, loaded: LoadedRig | None) -> tuple[ForceLoop, ...]:
    return () if loaded is None else tuple(_loop(scenario, loaded, n) for n in range(len(scenario.force_axes)))


def _loop(scenario: Scenario, loaded: LoadedRig, index: int) -> ForceLoop:
    name = scenario.force_axes[index]
    axis, column = scenario.axes[name], len(scenario.moved_axes) + index
    control = axis.force_control
    assert control is not None
    by_nodes = control.closed_by == NODES
    loaded.reset()
    rest = float(np.abs(loaded.rest_force[column]))
    forces = (float(loaded.push(index, PUSHED * (k == 0))[column]) for k in range(LOOP_LONGEST))
    plant = _answer(forces, name, 10.0 * STILL * rest) / PUSHED
    law = _answer(_of_law(control.law, loaded, index, float(plant.sum()), scenario.dt), name)
    late = 1 + axis.sensors.force_delay + (scenario.transport_samples if by_nodes else 0)
    low = low_pass(axis, scenario.dt) if by_nodes else None
    return ForceLoop(name, control.closed_by, loaded.loads[index], law, plant, late, scenario.dt, low)


def _of_law(params: object, loaded: LoadedRig, index: int, stiffness: float, dt: float) -> Iterator[float]:
    load, position = loaded.loads[index], float(loaded.places[index])
    laws = [registry.build("force_controller", params, dt) for _ in range(2)]
    for law in laws:
        law.begin(position, load, 0.0, 0.0)
    missing, before = PUSHED * stiffness, 0.0
    for k in range(LOOP_LONGEST):
        shown = (load, load - missing * (k == 0))
        still, moved = (law.step(load, force, 0.0) for law, force in zip(laws, shown, strict=True))
        now = (moved - still) / missing
        yield now - before
        before = now


def _answer(values: Iterator[float], name: str, noise: float = 0.0) -> Array:
    """Return ``values`` until they decay. Values up to ``noise`` count as 0. Raises ConfigError without decay."""
    response: list[float] = []
    largest, loud = noise, 0
    for value in values:
        response.append(value)
        largest = max(largest, abs(value))
        if abs(value) > max(LOOP_FADED * largest, noise):
            loud = len(response)
        if largest > noise and len(response) > 2 * loud + LOOP_PATIENCE:
            return np.array(response[:loud])
    raise ConfigError(
        f"axes.{name}: the response of the force loop is zero or does not fade within {LOOP_LONGEST} samples, so "
        "the stability cannot be judged before the test"
    )
