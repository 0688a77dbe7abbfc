# SPDX-License-Identifier: Apache-2.0
"""Actuators whose motion does not depend on the specimen; the specimen follows them. The kernel of the actuator
alone is

    step(constants, state, command) -> state, displacement, velocity

``specimen_path`` adds the specimen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rths_nodes.core.actuator import Actuator
from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.kernels import Function, Kernel, ToNumber
from rths_nodes.core.specimen import Specimen
from rths_nodes.laboratory.actuators.specimen_path import path_of

Both = tuple[object, object]
Going = Callable[..., tuple[object, float, float]]


def with_specimen(go: Going, move: ToNumber) -> Function:
    def step(k: Both, s: Both, command: float) -> tuple[Both, tuple[float, float, float]]:
        """Step of an actuator that is not affected by the force of its specimen."""
        of_actuator, of_specimen = k
        state, inner = s
        state, displacement, velocity = go(of_actuator, state, command)
        inner, force = move(of_specimen, inner, displacement, velocity)
        return (state, inner), (displacement, velocity, force)

    return step


def with_force(go: Going, force: Callable[..., float]) -> Function:
    def step(k: Both, s: object, command: float) -> tuple[object, tuple[float, float, float]]:
        """Step of an actuator and a specimen without states."""
        of_actuator, of_specimen = k
        s, displacement, velocity = go(of_actuator, s, command)
        return s, (displacement, velocity, force(of_specimen, (), displacement, velocity))

    return step


class Unloaded(Actuator):
    """Actuator made of its ``MOTION``, or of :meth:`motion_of` applied to its parameters."""

    MOTION: ClassVar[Kernel]

    @classmethod
    def motion_of(cls, params: object) -> Kernel:
        return cls.MOTION

    @classmethod
    def kernel_of(cls, params: AnyParams, specimen: Specimen) -> Kernel:
        motion, path = cls.motion_of(params), path_of(specimen)
        if not (specimen.initial_state or specimen.mass):
            return Kernel(
                lambda plant, dt: (motion.constants(plant, dt), path.constants(dt)),
                lambda k: motion.rest(k[0]),
                with_force(motion.step, specimen.bound()[0].force),
            )
        return Kernel(
            lambda plant, dt: (motion.constants(plant, dt), path.constants(dt)),
            lambda k: (motion.rest(k[0]), path.rest(k[1])),
            with_specimen(motion.step, path.step),
        )
