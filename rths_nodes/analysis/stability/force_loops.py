# SPDX-License-Identifier: Apache-2.0
"""Rig whose force axes bear their loads, and measurement of their force loops (``loops.py``).

At small motion, a force loop must not change the forces of other axes. The loads change the stiffness of the other
axes (P-Delta), whose loop is judged with the force axes fixed at their loads.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator

import numpy as np

from rths_nodes.analysis.stability.loops import ForceLoop
from rths_nodes.core import registry
from rths_nodes.core.control import Floats
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.protocols import Rig
from rths_nodes.core.samples import Array
from rths_nodes.laboratory.corrections import low_pass
from rths_nodes.laboratory.force_control import NODES
from rths_nodes.loop.scenario.schema import Scenario

FADED = 1e-9
"""Relative value below which a response has ended."""
PATIENCE = 128
"""Number of quiet samples after which a response has ended."""
LONGEST = 100_000
GLIDE = 256
"""Number of samples of a glide between positions; a step would overshoot and might crush a specimen."""
STILL = 1e-12
"""Largest change of a force in ``GLIDE`` samples at rest, relative to the load."""
EXACT = 1e-7
TRIES = 40
GLIDES = 1_000
SMALL = 1e-7
"""Displacement (m) of a force axis to measure its effect on its own force and on the other axes."""
ROUGH = 1e-8
"""Largest change of a force in ``GLIDE`` samples at rest, relative to the force, for an axis without load."""
APART = 1e-6
"""Change of force below which another axis is unaffected, relative to the change of the force axis."""


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
    forces = (float(loaded.push(index, SMALL * (k == 0))[column]) for k in range(LONGEST))
    plant = _answer(forces, name, 10.0 * STILL * rest) / SMALL
    law = _answer(_of_law(control.law, loaded, index, float(plant.sum()), scenario.dt), name)
    late = 1 + axis.sensors.force_delay + (scenario.transport_samples if by_nodes else 0)
    low = low_pass(axis, scenario.dt) if by_nodes else None
    return ForceLoop(name, control.closed_by, loaded.loads[index], law, plant, late, scenario.dt, low)


def _of_law(params: object, loaded: LoadedRig, index: int, stiffness: float, dt: float) -> Iterator[float]:
    load, position = loaded.loads[index], float(loaded.places[index])
    laws = [registry.build("force_controller", params, dt) for _ in range(2)]
    for law in laws:
        law.begin(position, load, 0.0, 0.0)
    missing, before = SMALL * stiffness, 0.0
    for k in range(LONGEST):
        shown = (load, load - missing * (k == 0))
        still, moved = (law.step(load, force, 0.0) for law, force in zip(laws, shown, strict=True))
        now = (moved - still) / missing
        yield now - before
        before = now


def _answer(values: Iterator[float], name: str, noise: float = 0.0) -> Array:
    """Return ``values`` until they have decayed, or raise ConfigError. Values below ``noise`` are rounding."""
    response: list[float] = []
    largest, loud = noise, 0
    for value in values:
        response.append(value)
        largest = max(largest, abs(value))
        if abs(value) > max(FADED * largest, noise):
            loud = len(response)
        if largest > noise and len(response) > 2 * loud + PATIENCE:
            return np.array(response[:loud])
    raise ConfigError(
        f"axes.{name}: the response of the force loop is zero or does not fade within {LONGEST} samples, so the "
        "stability cannot be judged before the test"
    )


class LoadedRig:
    """Holds the force axes of ``rig`` where they bear their loads, while commands move the other axes.

    The force axes are at ``places`` (m), with their largest ``loads`` (N). Raises ConfigError if a specimen cannot
    bear a load, or if force axes are coupled.
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
        """Advance one sample with commands (m), and return displacements (m) and forces (N) of the moved axes."""
        places, forces = self.rig.follow([*command, *self.places.tolist()], auxiliary)
        return places[: self._n], forces[: self._n]

    def push(self, index: int, size: float) -> Array:
        """Return the forces (N) relative to rest, ``(n_axes,)``, after one more sample.

        The force axis is commanded ``size`` (m) from its place; all other axes are at their places.
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
        slope = (self._glide(index, SMALL) - before) / SMALL
        self._glide(index, 0.0)
        if not slope > 0.0:
            raise ConfigError(
                f"axes.{self.names[index]}: the force of the specimen does not rise with displacement, so the "
                "stability cannot be judged before the test"
            )
        return slope

    def _glide(self, index: int, position: float) -> float:
        """Move to ``position`` (m), wait for rest, and return the force, N; NaN if the rig never rests."""
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
        self._glide(index, float(self.places[index]) + SMALL)
        changed = np.abs(np.array(self.rig.force) - rest)
        self.places[index] -= SMALL
        self.reset()
        axis = self._n + index
        if (np.delete(changed, axis) > APART * changed[axis]).any():
            raise ConfigError(
                f"axes.{self.names[index]}: the force loop changes the forces of other axes at small motion, so "
                "the loops are coupled and their stability cannot be judged before the test"
            )
