# SPDX-License-Identifier: Apache-2.0
"""Actuators whose motion does not depend on the specimen.

The kernel of such an actuator is

    step(constants, state, command) -> state, displacement, velocity

and the kernel of the specimen is

    step(constants, state, displacement, velocity) -> state, force

The second kernel advances the inner states of the specimen at constant velocity. A specimen with mass also resists
the change of velocity, and starts at rest. A sample has at least ``INCREMENTS`` increments, more if the states
decay fast. If more than ``HARD_LIMIT`` increments are needed, the states become NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rths_nodes.core.arithmetic import all_nan, ceiling
from rths_nodes.core.decay import HARD_LIMIT, LONGEST, decay_of
from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.kernels import Function, Kernel, ToNumber, advance_of, no_state
from rths_nodes.core.simulators import Actuator, Specimen

INCREMENTS = 4
"""Smallest number of RK4 steps per sample."""
LEAST = float(INCREMENTS)
LONGEST_WAY = HARD_LIMIT * LONGEST
"""Largest number of decay times per sample. If a sample has more, the states become NaN."""


Both = tuple[object, object]
Going = Callable[..., tuple[object, float, float]]
Constants = tuple[float, float, tuple[float, float, float], object]
"""Period (s), velocity (m/s) up to which ``INCREMENTS`` suffice, numbers of ``Decay``, and specimen constants."""


def without_states(force: Callable[..., float]) -> ToNumber:
    def step(k: object, s: tuple[()], displacement: float, velocity: float) -> tuple[tuple[()], float]:
        return s, force(k, s, displacement, velocity)

    return step


def with_states(force: Callable[..., float], rate: Callable[..., tuple[float, ...]]) -> ToNumber:
    advance = advance_of(rate)

    def step(
        k: Constants, s: tuple[tuple[float, ...], float], displacement: float, velocity: float
    ) -> tuple[object, float]:
        """Advance the inner states by Runge-Kutta increments at constant velocity, then compute the force."""
        dt, fastest, decay, specimen = k
        inner, x = s
        v = (displacement - x) / dt
        left, h = LEAST, dt / LEAST
        if abs(v) > fastest:
            left, h = divided(decay, v, dt)
            if left == 0.0:
                left, h, inner = 1.0, dt, all_nan(inner)
        while left > 0.0:
            middle, end = x + 0.5 * h * v, x + h * v
            inner = advance(specimen, inner, h, x, v, middle, v, end, v)
            x = end
            left -= 1.0
        return (inner, displacement), force(specimen, inner, displacement, velocity)

    return step


def divided(decay: tuple[float, float, float], velocity: float, dt: float) -> tuple[float, float]:
    """Return the number of increments in a sample at ``velocity`` (m/s), and their length (s).

    The increments end when the states have settled. The number is 0 if too many increments are needed.
    """
    at_rest, per_velocity, settling = decay
    times = (at_rest + per_velocity * abs(velocity)) * dt
    moving = settling if times > settling else times
    if not moving <= LONGEST_WAY:
        return 0.0, dt
    increments = ceiling(moving / LONGEST)
    return increments, dt * (moving / times) / increments


def with_inertia(move: ToNumber) -> ToNumber:
    def step(
        k: tuple[float, float, object], s: tuple[float, object], displacement: float, velocity: float
    ) -> tuple[object, float]:
        """Add the inertia force, mass times the change of velocity per ``dt``, to the force of the specimen."""
        mass, dt, specimen = k
        before, inner = s
        inner, force = move(specimen, inner, displacement, velocity)
        return (velocity, inner), force + mass * (velocity - before) / dt

    return step


def path_of(specimen: Specimen) -> Kernel:
    """Return the kernel that moves ``specimen``. The kernel's ``constants`` function takes the period (s)."""
    (_, _, force, rate, _), of_specimen = specimen.bound()
    initial: tuple[float, ...] = tuple(specimen.initial_state)
    decay, mass = decay_of(specimen), specimen.mass
    if initial:
        light = Kernel(
            lambda dt: (dt, decay.fastest(dt / INCREMENTS), decay.numbers, of_specimen),
            lambda k: (initial, 0.0),
            with_states(force, rate),
        )
    else:
        light = Kernel(lambda dt: of_specimen, no_state, without_states(force))
    if not mass:
        return light
    return Kernel(
        lambda dt: (mass, dt, light.constants(dt)), lambda k: (0.0, light.rest(k[2])), with_inertia(light.step)
    )


class SpecimenPath:
    """Moves ``specimen`` once every ``dt`` s. :meth:`move` takes m and m/s, and returns the force, N."""

    def __init__(self, specimen: Specimen, dt: float) -> None:
        path = path_of(specimen)
        self._constants, self._rest, self._step = path.constants(dt), path.rest, path.step
        self.reset()

    def reset(self) -> None:
        self.state = self._rest(self._constants)

    def move(self, displacement: float, velocity: float) -> float:
        self.state, force = self._step(self._constants, self.state, displacement, velocity)
        return float(force)


def with_specimen(go: Going, move: ToNumber) -> Function:
    def step(k: Both, s: Both, command: float) -> tuple[Both, tuple[float, float, float]]:
        """Advance an actuator that is not affected by its specimen, then advance the specimen."""
        of_actuator, of_specimen = k
        state, inner = s
        state, displacement, velocity = go(of_actuator, state, command)
        inner, force = move(of_specimen, inner, displacement, velocity)
        return (state, inner), (displacement, velocity, force)

    return step


def with_force(go: Going, force: Callable[..., float]) -> Function:
    def step(k: Both, s: Both, command: float) -> tuple[Both, tuple[float, float, float]]:
        """Advance an actuator, then compute the force of a specimen without states."""
        of_actuator, of_specimen = k
        state, none = s
        state, displacement, velocity = go(of_actuator, state, command)
        return (state, none), (displacement, velocity, force(of_specimen, (), displacement, velocity))

    return step


class Unloaded(Actuator):
    """Base of actuators whose motion does not depend on the specimen.

    The motion is the kernel ``MOTION``, or the kernel that :meth:`motion_of` returns.
    """

    MOTION: ClassVar[Kernel]

    @classmethod
    def motion_of(cls, params: object) -> Kernel:
        return cls.MOTION

    @classmethod
    def kernel_of(cls, params: AnyParams, specimen: Specimen) -> Kernel:
        motion, path = cls.motion_of(params), path_of(specimen)
        step = with_specimen(motion.step, path.step)
        if not (specimen.initial_state or specimen.mass):
            step = with_force(motion.step, specimen.bound()[0].force)
        return Kernel(
            lambda plant, dt: (motion.constants(plant, dt), path.constants(dt)),
            lambda k: (motion.rest(k[0]), path.rest(k[1])),
            step,
        )
