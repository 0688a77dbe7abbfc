# SPDX-License-Identifier: Apache-2.0
"""Section ``watch`` of a rig file: sensors, expectations and pulse of a watcher on another computer.

Criteria have no defaults. All times are bounded, so that the pulse ends at most 50 ms after a limit is exceeded.
"""

from __future__ import annotations

from rths_nodes.core.addresses import check_address
from rths_nodes.core.errors import ConfigError, join
from rths_nodes.core.parameters import integer, number, params, section, sections, text
from rths_nodes.laboratory.calibration import DisplacementChannel, ForceChannel

LONGEST_S = 0.04
"""Largest ``late``, ``silence`` and ``velocity_over``, s."""
TOLD_HZ = 200.0
"""Default rate at which the test publishes state messages, Hz."""
LEAST_TOLD = 6.0
"""Smallest number of messages within the time ``late``. All messages except one may be lost."""


@params
class Tolerance:
    """Largest differences, for one axis, between the values of the test and the values of the watcher."""

    displacement: float = number("tolerance of measured displacements", "m", more_than=0.0)
    force: float = number("tolerance of measured forces", "N", more_than=0.0)
    command: float = number(
        "tolerance between the command and the displacement that the watcher measures; must exceed the lag of "
        "the axis in a valid test",
        "m",
        more_than=0.0,
    )


@params
class WatchLimits:
    """Limits of an axis that the watcher checks with its own sensors, in every state."""

    displacement: float = number("largest magnitude", "m", more_than=0.0, at_most=100.0)
    velocity: float = number("largest magnitude", "m/s", more_than=0.0, at_most=1e3)
    velocity_over: float = number(
        "time between the two displacements from which a velocity is computed; the displacements contain noise",
        "s",
        more_than=0.0,
        at_most=LONGEST_S,
    )
    force: float = number("largest magnitude", "N", more_than=0.0, at_most=1e9)
    persistence: int = integer(
        "number of consecutive samples beyond a limit after which the pulse ends", "samples", at_least=1
    )


@params
class WatchedAxis:
    """The watcher's own sensors of one axis, and the values that the watcher expects."""

    displacement: DisplacementChannel = section(DisplacementChannel, "displacement sensor of the watcher")
    force: ForceChannel = section(ForceChannel, "load cell of the watcher")
    tolerance: Tolerance = section(Tolerance, "largest differences from the values of the test")
    limits: WatchLimits = section(WatchLimits, "limits of the watcher")
    rest: float = number(
        "largest motion of an axis at rest that the watcher measures; must exceed the noise, the relaxation, "
        "and the lag of an actuator whose command is at rest",
        "m",
        more_than=0.0,
    )

    def validate(self, path: str) -> None:
        for key, channel, unit in (("displacement", self.displacement, "m"), ("force", self.force, "N")):
            limit, end = getattr(self.limits, key), channel.range_si
            if limit >= end:
                raise ConfigError(
                    f"{join(path, 'limits')}.{key} = {limit:g} {unit}: must be < {end:g} {unit}, the range of "
                    "the sensor"
                )
        if self.rest <= self.displacement.step_si:
            raise ConfigError(
                f"{path}.rest = {self.rest:g} m: must be > {self.displacement.step_si:g} m, the resolution of "
                "the displacement sensor"
            )


@params
class WatchSensors:
    """Sensors of the watcher. The watcher receives only their datagrams *state* (doc/udp.md)."""

    address: str = text("address of the data acquisition system that sends the samples")
    port: int = integer("UDP port of the watcher", at_least=1, at_most=65535)
    rate: float = number("samples per second", "Hz", at_least=100.0, at_most=100e3)
    delay: float = number(
        "longest time from the measurement of a sample until the watcher receives the sample",
        "s",
        at_least=0.0,
        at_most=0.02,
    )

    def validate(self, path: str) -> None:
        check_address(self.address, f"{path}.address")


@params
class WatchPulse:
    address: str = text("address of the interlock")
    port: int = integer("UDP port of the interlock", at_least=1, at_most=65535)
    period: float = number("time between two pulses", "s", 0.005, at_least=0.001, at_most=0.01)

    def validate(self, path: str) -> None:
        check_address(self.address, f"{path}.address")


@params
class WatchSection:
    """A watcher with its own sensors on another computer, and its pulse."""

    sensors: WatchSensors = section(WatchSensors, "connection to the sensors of the watcher")
    pulse: WatchPulse = section(WatchPulse, "the pulse to the interlock")
    axes: dict[str, WatchedAxis] = sections(WatchedAxis, "all axes of the rig, by name")
    late: float = number(
        "longest time from a measurement of the test until the watcher receives the measured values",
        "s",
        more_than=0.0,
        at_most=LONGEST_S,
    )
    silence: float = number(
        "longest time without a sample of the watcher's sensors", "s", more_than=0.0, at_most=LONGEST_S
    )
    told: float = number("state messages of the test per second", "Hz", TOLD_HZ, at_least=50.0, at_most=1000.0)

    def validate(self, path: str) -> None:
        least = LEAST_TOLD / self.told
        if self.late < least:
            raise ConfigError(
                f"{path}.late = {self.late:g} s: must be >= {least:g} s, the time of {LEAST_TOLD:g} messages of "
                f"the test at {path}.told = {self.told:g} Hz"
            )
        if self.silence < 2.0 / self.sensors.rate:
            raise ConfigError(
                f"{path}.silence = {self.silence:g} s: must be >= {2.0 / self.sensors.rate:g} s, the time of two "
                f"samples at sensors.rate = {self.sensors.rate:g} Hz"
            )
        for name, axis in self.axes.items():
            if axis.limits.velocity_over < 1.0 / self.sensors.rate:
                raise ConfigError(
                    f"{path}.axes.{name}.limits.velocity_over = {axis.limits.velocity_over:g} s: must be >= "
                    f"{1.0 / self.sensors.rate:g} s, the time of one sample at sensors.rate = "
                    f"{self.sensors.rate:g} Hz"
                )
