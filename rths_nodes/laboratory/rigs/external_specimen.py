# SPDX-License-Identifier: Apache-2.0
"""Actuators of this package that move a specimen computed by another process.

Every ``every`` samples the specimen follows the displacement and velocity of the actuators; its acceleration is
the difference quotient of the velocity. Between these samples a known stiffness K_0 continues the force:

    F = F_m + K_0 (x - x_m)

F_m and x_m are force and displacement when the specimen last moved. An actuator whose motion depends on its
specimen uses the same force within a sample. For a linear static specimen the force is exact at any step length. A
yielding specimen has the stiffness K_0 until the end of a step.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.samples import Array
from rths_nodes.core.simulators import Rig, Specimen


class Followed(Rig):
    """Base of rigs with a specimen that follows the actuators; ``_stiffness`` ``(n_axes, n_axes)`` N/m is K_0."""

    external = True
    name = ""

    def _hold(self, actuators: Mapping[str, object], every: int, dt: float) -> None:
        self._n = n = len(actuators)
        self._every, self._step = every, every * dt
        self._felt = [_Felt() for _ in range(n)]
        self._actuators = [
            registry.build("actuator", actuator, dt, felt)
            for actuator, felt in zip(actuators.values(), self._felt, strict=True)
        ]
        self._stiffness = np.zeros((n, n))
        self.reset()

    def reset(self) -> None:
        self.failure = ""
        self.displacement, self.velocity, self.force = np.zeros((3, self._n))
        self._before: tuple[Array, Array, Array] = (self.displacement, self.velocity, self.force)
        self._samples = 0
        self._feel()
        for actuator in self._actuators:
            actuator.reset()

    def step(self, command: Array, auxiliary: Array) -> None:
        self.share_scheduling()
        for actuator, value in zip(self._actuators, command.tolist(), strict=True):
            actuator.step(value)
        self.displacement = np.array([actuator.displacement for actuator in self._actuators])
        self.velocity = np.array([actuator.velocity for actuator in self._actuators])
        self._samples += 1
        if not self.failure:
            self._follow()

    def _follow(self) -> None:
        x, v = self.displacement, self.velocity
        before_x, before_v, before_force = self._before
        if self._samples % self._every:
            self.force = before_force + self._stiffness @ (x - before_x)
        else:
            try:
                self.force = self._ask(x, v, (v - before_v) / self._step)
            except RuntimeError as error:
                self.failure = f"{self.name}: {error}"
                return
            self._before = x, v, self.force
        self._feel()

    def _feel(self) -> None:
        of_axis = zip(self._felt, self.displacement.tolist(), self.force.tolist(), strict=True)
        for index, (felt, x, force) in enumerate(of_axis):
            felt.stiffness, felt.displacement, felt.at = float(self._stiffness[index, index]), x, force

    @abstractmethod
    def share_scheduling(self) -> None: ...

    @abstractmethod
    def _ask(self, x: Array, v: Array, a: Array) -> Array:
        """Return forces ``(n_axes,)`` N after a step to the given displacement, velocity and acceleration (SI).

        Raises RuntimeError if no answer arrives.
        """


class _Felt(Specimen):
    initial_state = ()

    def __init__(self) -> None:
        self.stiffness = self.displacement = self.at = 0.0

    def force(self, state: Sequence[float], displacement: float, velocity: float) -> float:
        return self.at + self.stiffness * (displacement - self.displacement)

    def rate(self, state: Sequence[float], displacement: float, velocity: float) -> tuple[float, ...]:
        return ()
