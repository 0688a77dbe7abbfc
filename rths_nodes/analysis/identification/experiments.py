"""Tests that identify a rig: noise on one axis at a time (Phillips & Spencer 2012, section 3.1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from rths_nodes.core import channels, registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import number, params
from rths_nodes.core.strict import as_data
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.overrides import replace
from rths_nodes.loop.scenario.schema import Scenario


@params
class Noise:
    """What an actuator is driven with; the others stand still."""

    rms: float = number("root mean square of the displacement", "m", 3e-4, more_than=0.0)
    lower_frequency: float = number("lower end of the band", "Hz", 0.25, more_than=0.0)
    upper_frequency: float = number("upper end of the band", "Hz", 50.0, more_than=0.0)
    duration: float = number("of the test of each axis", "s", 60.0, more_than=0.0, at_most=3600.0)
    period: float | None = number(
        "after which the noise repeats itself; never if left out", "s", None, more_than=0.0
    )

    def validate(self, path: str) -> None:
        """Refuses a band that ends before it begins."""
        if self.lower_frequency >= self.upper_frequency:
            raise ConfigError(
                f"{path}.lower_frequency = {self.lower_frequency:g} Hz: must be < upper_frequency = "
                f"{self.upper_frequency:g} Hz"
            )


TAPER = 1.0
"""Rise and fall of the noise, s; a tenth of the duration where that is shorter."""


def driven(scenario: Scenario, axis: int, noise: Noise) -> Scenario:
    """The test in which ``axis`` moves with ``noise`` and the others are commanded to stand still.

    Rig, sensors, port and limits are those of ``scenario``; structure, compensator and ground motion are left out.
    A damper with a voltage is switched at random. Raises ConfigError when the rig cannot be driven so.
    """
    if not 2.0 * noise.upper_frequency < scenario.servo_rate:
        raise ConfigError(
            f"upper_frequency = {noise.upper_frequency:g} Hz: must be below half the servo_rate, "
            f"{0.5 * scenario.servo_rate:g} Hz"
        )
    motion = {
        "type": "band_limited_noise",
        "rms": noise.rms,
        "lower_frequency": noise.lower_frequency,
        "upper_frequency": noise.upper_frequency,
        "duration": noise.duration,
        "taper": min(TAPER, 0.1 * noise.duration),
        "period": noise.period,
    }
    name = list(scenario.axes)[axis]
    changes: dict[str, Any] = {
        "name": f"{scenario.name}.identify_{name}",
        "substeps": 1,
        "time_ratio": 1,
        "soft_start": None,
        "duration": noise.duration,
        "ground_motion": {"type": "none"},
        "structure": None,
        "integrator": {"type": "prescribed", "displacement": motion},
        "ramp": {"type": "linear"},
        "setup": {"type": "matrix", "matrix": _alone(len(scenario.axes), axis)},
        "compensator": {"type": "none"},
        "semi_active": _switching(scenario),
        "monitor": {},
        "force_lead": None,
        "indices": "none",
        "cases": {},
    }
    return replace(scenario, [([key], value) for key, value in changes.items()])


def _alone(count: int, axis: int) -> list[list[float]]:
    """A setup that moves ``axis`` alone when all degrees of freedom are the same: the others are differences."""
    matrix = np.eye(count)
    matrix[:, axis] -= 1.0
    matrix[axis, axis] = 1.0
    return [[float(entry) for entry in row] for row in matrix]


def _switching(scenario: Scenario) -> dict[str, Any] | None:
    """The controller of the rig's auxiliary inputs; that of the test where it is none that we know."""
    inputs = Assembly(scenario).port.auxiliary_inputs
    if inputs != (channels.DAMPER_VOLTAGE,):
        return as_data(scenario.semi_active) if inputs else None
    known = registry.load("semi_active", "random_switching").Params
    voltage = getattr(scenario.semi_active, "voltage", 0.0) or known().voltage
    return {"type": "random_switching", "voltage": voltage}
