# SPDX-License-Identifier: Apache-2.0
"""Tests that move one axis at a time, with noise or in cycles. Force axes are loaded first and stay loaded."""

from __future__ import annotations

import math

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.control import DAMPER_VOLTAGE
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import integer, number, params
from rths_nodes.core.validation import to_data
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import replace
from rths_nodes.loop.scenario.force_axes import SHARE
from rths_nodes.loop.scenario.schema import Scenario

TAPER = 1.0
"""Rise time and fall time of the noise, s; at most a tenth of the duration."""
SETTLED = 1.0
"""Duration of the constant loads before the motion begins, s."""
RAMP, SETTLING = 2, 1
"""Number of cycles of a smooth rise or fall; number of cycles between the rise and the evaluated cycles."""


@params
class Noise:
    """Noise that drives one actuator while the other actuators are at rest."""

    rms: float = number("root mean square of the displacement", "m", 3e-4, more_than=0.0)
    lower_frequency: float = number("lower end of the frequency band", "Hz", 0.25, more_than=0.0)
    upper_frequency: float = number("upper end of the frequency band", "Hz", 50.0, more_than=0.0)
    duration: float = number("duration of the test of each axis", "s", 60.0, more_than=0.0, at_most=3600.0)
    period: float | None = number(
        "period of the noise; default: the noise is not periodic", "s", None, more_than=0.0
    )

    @property
    def band(self) -> tuple[float, float]:
        return self.lower_frequency, self.upper_frequency

    def validate(self, path: str) -> None:
        if self.lower_frequency >= self.upper_frequency:
            raise ConfigError(
                f"{path}.lower_frequency = {self.lower_frequency:g} Hz: must be < upper_frequency = "
                f"{self.upper_frequency:g} Hz"
            )


@params
class Cycles:
    """Cyclic motion of one actuator while the other actuators are at rest."""

    amplitude: float = number("amplitude of the displacement", "m", more_than=0.0)
    frequency: float = number("frequency of the cycles", "Hz", more_than=0.0)
    cycles: int = integer("number of evaluated cycles", default=5, at_least=1, at_most=10_000)
    voltage: float = number("voltage of a damper with a voltage input", "V", 0.0, at_least=0.0)

    @property
    def begin(self) -> float:
        return (RAMP + SETTLING) / self.frequency

    @property
    def periods(self) -> int:
        return 2 * RAMP + SETTLING + self.cycles


def driven(scenario: Scenario, axis: int, noise: Noise) -> Scenario:
    """Return the scenario in which only ``axis`` moves, with ``noise``. Raises ConfigError if too fast."""
    _resolved(scenario, "upper_frequency", noise.upper_frequency)
    motion = {
        "type": "band_limited_noise",
        "rms": noise.rms,
        "lower_frequency": noise.lower_frequency,
        "upper_frequency": noise.upper_frequency,
        "duration": noise.duration,
        "taper": min(TAPER, 0.1 * noise.duration),
        "period": noise.period,
    }
    inputs = Assembly(scenario).port.auxiliary_inputs
    semi_active = to_data(scenario.semi_active) if inputs else None
    if inputs == (DAMPER_VOLTAGE,):
        voltage = 0.0 if scenario.semi_active is None else scenario.semi_active.voltage
        law = registry.load("semi_active", "random_switching").Params
        semi_active = {"type": "random_switching", "voltage": voltage or law().voltage}
    return _moving(scenario, axis, motion, noise.duration, "identify", semi_active)


def cycled(scenario: Scenario, axis: int, cycles: Cycles) -> Scenario:
    """Return the scenario in which ``axis`` moves in ``cycles``. Raises ConfigError beyond its limits."""
    _resolved(scenario, "frequency", cycles.frequency)
    name = scenario.moved_axes[axis]
    limits, speed = scenario.axes[name].limits, 2.0 * math.pi * cycles.frequency * cycles.amplitude
    for limit, bound, reached, unit in (
        ("stroke", limits.stroke, cycles.amplitude, "m"),
        ("velocity", limits.velocity, speed, "m/s"),
    ):
        if reached > bound:
            raise ConfigError(
                f"amplitude = {cycles.amplitude:g} m at {cycles.frequency:g} Hz: reaches {reached:.4g} {unit}; "
                f"must be <= axes.{name}.limits.{limit} = {bound:g} {unit}"
            )
    motion = {
        "type": "harmonic",
        "amplitude": cycles.amplitude,
        "frequency": cycles.frequency,
        "periods": cycles.periods,
        "ramp_periods": RAMP,
    }
    constant = None
    if Assembly(scenario).port.auxiliary_inputs:
        constant = {"type": "passive", "voltage": cycles.voltage}
    elif cycles.voltage:
        raise ConfigError(
            f"voltage = {cycles.voltage:g} V: no part of the rig of {scenario.name} has a voltage input"
        )
    return _moving(scenario, axis, motion, cycles.periods / cycles.frequency, "characterise", constant)


def _resolved(scenario: Scenario, name: str, frequency: float) -> None:
    if not 2.0 * frequency < scenario.servo_rate:
        raise ConfigError(
            f"{name} = {frequency:g} Hz: must be below half the servo_rate, {0.5 * scenario.servo_rate:g} Hz"
        )


def _moving(
    scenario: Scenario, axis: int, motion: dict[str, object], duration: float, word: str, semi_active: object
) -> Scenario:
    """Return the scenario without structure, compensator and ground motion, in which only ``axis`` moves.

    A scaled specimen is driven and loaded at its own scale.
    """
    name, begin = scenario.moved_axes[axis], loaded_at(scenario)
    if begin:
        motion, duration = {"type": "delayed", "delay": begin, "motion": motion}, begin + duration
    alone = np.eye(len(scenario.moved_axes))
    alone[:, axis] -= 1.0
    alone[axis, axis] = 1.0
    changes: dict[str, object] = {
        "name": f"{scenario.name}.{word}_{name}",
        "substeps": 1,
        "time_ratio": 1,
        "soft_start": None,
        "duration": duration,
        "ground_motion": {"type": "none"},
        "structure": None,
        "integrator": {"type": "prescribed", "displacement": motion},
        "ramp": {"type": "linear"},
        "setup": {"type": "matrix", "matrix": alone.tolist()},
        "compensator": {"type": "none"},
        "semi_active": semi_active,
        "updating": None,
        "interface": [],
        "observed": [],
        "reduction": None,
        "monitor": {},
        "force_lead": None,
        "indices": "none",
        "cases": {},
    }
    pairs: list[tuple[list[str], object]] = [([key], value) for key, value in changes.items()]
    for axis_name in scenario.force_axes:
        load = scenario.axes[axis_name].own_load
        pairs += [(["axes", axis_name, "load"], to_data(load)), (["axes", axis_name, "load", "held_from"], None)]
    if scenario.scaled:
        pairs += [(["axes", axis_name, "rig_axis", "similitude"], {}) for axis_name in scenario.axes]
    return replace(scenario, pairs)


def loaded_at(scenario: Scenario) -> float:
    """Return the time (s) at which all loads have settled, rounded up to a sample; 0 without loads."""
    longest = 0.0
    for name in scenario.force_axes:
        load, limits = scenario.axes[name].own_load, scenario.axes[name].limits
        assert load is not None
        assert limits.force_rate is not None
        longest = max(longest, load.held_for + load.rise + abs(load.largest) / (SHARE * limits.force_rate))
    return math.ceil((longest + SETTLED) * scenario.servo_rate) / scenario.servo_rate if longest else 0.0
