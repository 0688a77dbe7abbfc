# SPDX-License-Identifier: Apache-2.0
"""Specimen force: the load-cell force less fixture inertia and friction, then low-pass filtered.

The force is positive if it opposes a positive displacement. The load cell measures

    measured = specimen + m a + F_c tanh(v / v_s)

m is the mass of a fixture between load cell and specimen, and a is its acceleration (a separate channel). F_c is
the friction, v_s the smoothing velocity, and v the difference quotient of the measured displacement. A Butterworth
low-pass filter follows; the rig file declares its delay. The uncorrected force becomes an auxiliary channel, to
which the limits apply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rths_nodes.core.arithmetic import finite, tanh
from rths_nodes.core.errors import ConfigError, join, show, unknown
from rths_nodes.core.kernels import ToNumber
from rths_nodes.core.parameters import integer, number, params, text
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.butterworth import Butterworth

Friction = tuple[float, float, float]
"""Fixture mass (kg), friction (N), and inverse of the smoothing velocity (s/m)."""
UNCORRECTED = "uncorrected_force_"
"""Name prefix of the auxiliary channel with the uncorrected force of an axis."""
SAME_DELAY = 0.1
_ACCELERATION = "m/s^2"


@params
class Corrections:
    """Parts of a load-cell force that are not due to the specimen."""

    fixture_mass: float | None = number("mass between load cell and specimen", "kg", None, more_than=0.0)
    acceleration: str | None = text(
        "auxiliary channel with the acceleration of the fixture mass, positive in the positive direction of "
        "the axis",
        None,
    )
    friction: float | None = number("Coulomb friction between load cell and specimen", "N", None, more_than=0.0)
    smoothing_velocity: float | None = number(
        "velocity v_s of the smoothed sign function tanh(v / v_s)", "m/s", None, more_than=0.0
    )

    def validate(self, path: str) -> None:
        if self == type(self)():
            raise ConfigError(
                f"{path}: corrects nothing. Set fixture_mass and acceleration, or friction and smoothing_velocity"
            )
        for one, other, why in (
            ("fixture_mass", "acceleration", "the inertia of the mass is computed from this channel"),
            (
                "friction",
                "smoothing_velocity",
                "the sign of a noisy velocity changes from sample to sample",
            ),
        ):
            present = [getattr(self, name) is not None for name in (one, other)]
            if present == [True, False]:
                raise ConfigError(f"{join(path, one)} = {getattr(self, one):g}: needs {other}, because {why}")
            if present == [False, True]:
                raise ConfigError(
                    f"{join(path, other)} = {show(getattr(self, other))}: has no effect without {one}"
                )

    def check_channels(self, units: Mapping[str, str], path: str) -> None:
        if self.fixture_mass is None or units.get(str(self.acceleration)) == _ACCELERATION:
            return
        if accelerations := [name for name, unit in units.items() if unit == _ACCELERATION]:
            raise unknown(f"{path}.acceleration", "acceleration channel", self.acceleration, accelerations)
        raise ConfigError(
            f"{path}.fixture_mass = {self.fixture_mass:g} kg: the rig has no acceleration channel (m/s^2, g) "
            f"for the inertia of this mass (auxiliary channels: {', '.join(units) or 'none'})"
        )


@params
class FeedbackFilter:
    order: int = integer("order of the Butterworth filter", at_least=1, at_most=8)
    cutoff: float = number("cutoff frequency, at which half of the power passes", "Hz", more_than=0.0)
    delay: float = number(
        "declared delay of the force at low frequency; must be within 10 % of the filter's delay",
        "s",
        more_than=0.0,
    )

    def check_rate(self, rate: float, path: str) -> None:
        if self.cutoff >= 0.5 * rate:
            raise ConfigError(
                f"{path}.cutoff = {self.cutoff:g} Hz: must be < {0.5 * rate:g} Hz, half the servo_rate"
            )
        delay = self.built(1.0 / rate).delay
        if abs(self.delay - delay) > SAME_DELAY * delay:
            raise ConfigError(
                f"{path}.delay = {self.delay:g} s: must be within {SAME_DELAY:.0%} of {delay:.4g} s, the group "
                f"delay of this filter at 0 Hz"
            )

    def built(self, dt: float) -> Butterworth:
        return Butterworth(self.order, self.cutoff, dt)


def low_pass(axis: Any, dt: float) -> Butterworth | None:
    rig = axis.rig_axis
    return None if rig is None or rig.feedback_filter is None else rig.feedback_filter.built(dt)


def corrections_in_words(axis: Any, simulated: bool) -> list[str]:
    lines = []
    if (corrections := axis.corrections) is not None:
        mass = (
            [f"{corrections.fixture_mass:g} kg times {corrections.acceleration}"]
            if corrections.fixture_mass
            else []
        )
        friction = [f"{corrections.friction:g} N of friction"] if corrections.friction else []
        unless = " (not on a simulator, which reports the force of the specimen)" if simulated else ""
        lines.append(f"subtracted from the force: {' and '.join(mass + friction)}{unless}")
    if (low := axis.feedback_filter) is not None:
        description = f"{low.cutoff:g} Hz, order {low.order}, delay {1e3 * low.delay:g} ms"
        lines.append(f"low-pass filter of the force: {description}")
    return lines


def of_specimen(k: Friction, shown: float, velocity: float, acceleration: float) -> float:
    """Return the specimen force (N): the load-cell force ``shown`` less fixture inertia and friction."""
    mass, friction, per_velocity = k
    if mass:
        shown -= mass * acceleration
    if friction:
        shown -= friction * tanh(velocity * per_velocity)
    return shown


def filtering(low_pass: ToNumber, settled: Callable[..., object]) -> ToNumber:
    """Return a kernel step that corrects a force and filters it with ``low_pass``.

    ``settled`` returns the initial state of the filter, which restarts after a non-finite value.
    """

    def step(
        k: tuple[Friction, object], s: tuple[bool, object], shown: float, velocity: float, acceleration: float
    ) -> tuple[object, float]:
        of_correction, of_filter = k
        begun, inner = s
        force = of_specimen(of_correction, shown, velocity, acceleration)
        if not finite(force):
            return (False, inner), force
        if not begun:
            inner = settled(of_filter, force)
        inner, force = low_pass(of_filter, inner, force)
        return (True, inner), force

    return step


def unfiltered(
    k: Friction, s: tuple[()], shown: float, velocity: float, acceleration: float
) -> tuple[object, float]:
    return s, of_specimen(k, shown, velocity, acceleration)


def friction_of(corrections: Corrections, channels: Sequence[str], path: str) -> tuple[Friction, int]:
    """Return the constants of :func:`of_specimen`, and the acceleration's index in ``channels`` (-1: no channel).

    Raises ConfigError if ``channels`` (names with units) lack a required acceleration.
    """
    split = [name.rstrip("]").partition(" [") for name in channels]
    corrections.check_channels({name: unit for name, _, unit in split}, path)
    mass, channel, friction, per_velocity = 0.0, -1, 0.0, 0.0
    if corrections.fixture_mass is not None:
        mass = corrections.fixture_mass
        channel = [name for name, _, _ in split].index(str(corrections.acceleration))
    if corrections.friction is not None and corrections.smoothing_velocity is not None:
        friction, per_velocity = corrections.friction, 1.0 / corrections.smoothing_velocity
    return (mass, friction, per_velocity), channel


def shown_forces(names: Sequence[str], axes: Sequence[str]) -> list[tuple[int, int]]:
    """Return pairs of indices, one pair for each axis whose force is corrected.

    A pair holds the index of the axis in ``axes``, and of its uncorrected force in ``names``.
    """
    plain = [name.partition(" [")[0] for name in names]
    named = ((index, f"{UNCORRECTED}{axis}") for index, axis in enumerate(axes))
    return [(index, plain.index(channel)) for index, channel in named if channel in plain]


def forces_shown(
    forces: list[float], auxiliary: Sequence[float] | Array, originals: Sequence[tuple[int, int]]
) -> list[float]:
    """Return the load-cell forces (N) of all axes, given the corrected ``forces``.

    ``originals`` are the pairs from :func:`shown_forces`.
    """
    corrected = forces.copy()
    for axis, channel in originals:
        if channel < len(auxiliary):  # a simulator may lack the channels of the rig
            corrected[axis] = float(auxiliary[channel])
    return corrected
