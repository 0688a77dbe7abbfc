# SPDX-License-Identifier: Apache-2.0
"""Channels of a real rig: conversion between the numbers of its port and SI units in axis coordinates.

A rig file (``loop/scenario/rig_file.py``) declares the channels. ``scale`` is the sensor value, in ``unit``, for
which the port reports 1. ``sign`` is the direction of the sensor:

    value in SI = sign * scale * (unit in SI) * number

Converted values are not tared; limits apply to these untared values. The rig file can also bound motions outside a
test; motions without bounds are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.core.errors import ConfigError, join, show, unknown
from rths_nodes.core.expressions import FORCES, LENGTHS, SI
from rths_nodes.core.limits import Limits
from rths_nodes.core.parameters import flag, integer, matrix, number, params, section, text
from rths_nodes.core.samples import EMPTY, FLAG_SATURATED, MODE_FORCE, Array, Command, Measurement, by_force
from rths_nodes.laboratory.corrections import Corrections, FeedbackFilter

COLUMNS = ("amplitude, m", "frequency, Hz", "storage stiffness, N/m", "loss factor", "gain", "delay, s")
CERTAINTY = 3.0
"""Half-width of the uncertainty band, in standard deviations."""
LEAST_KNOWN = 0.02
"""Smallest relative uncertainty of a measured stiffness, due to the sensors and the slow motion."""
VERIFYING = 0.03
"""Largest relative uncertainty at which a known stiffness verifies the scales of the sensors. A larger uncertainty
would hide a scale error of 10 %."""
STEPS = 20
"""Smallest displacement in a small move, in multiples of the sensor's resolution."""


class Expected(NamedTuple):
    stiffness: float
    """Stiffness expected in the small move, N/m."""
    known_to: float | None
    """Relative uncertainty of the stiffness; None if unknown."""
    basis: str
    independent: bool
    """True if the stiffness was measured with sensors that are not part of this rig."""


@params
class Characterised:
    """Results of cyclic tests on the specimen and the actuator of an axis, in axis coordinates.

    Delays include the transport delay. The stiffness was measured with the sensors of the rig, and does not verify
    their scales. If the small move gives a different stiffness, a scale or the specimen has changed.
    """

    scenario: str = text("name of the scenario of the tests")
    date: str = text("date of the tests")
    simulated: bool = flag("the results are from a simulator; the small move on a real rig refuses them", False)
    stiffness: float = number(
        "storage stiffness in the slowest test with the smallest amplitude", "N/m", more_than=0.0
    )
    stiffness_scatter: float = number(
        "standard deviation of the stiffness over the cycles and frequencies of the smallest amplitude",
        "N/m",
        at_least=0.0,
    )
    loss_factor: float = number(
        "loss stiffness divided by storage stiffness in the slowest test with the smallest amplitude", "1"
    )
    loss_factor_scatter: float = number("standard deviation of the loss factor over the cycles", "1", at_least=0.0)
    equivalent_stiffness: float = number("stiffness of the Kelvin-Voigt model that fits all tests best", "N/m")
    equivalent_damping: float = number("damping of the Kelvin-Voigt model that fits all tests best", "N s/m")
    tests: tuple[tuple[float, ...], ...] = matrix(f"a row for each test: {'; '.join(COLUMNS)}")

    def validate(self, path: str) -> None:
        key = join(path, "tests")
        for index, row in enumerate(self.tests):
            if len(row) != len(COLUMNS):
                raise ConfigError(
                    f"{key}[{index}]: must have {len(COLUMNS)} numbers ({'; '.join(COLUMNS)}), but has {len(row)}"
                )
            for column in (0, 1, 4):
                if row[column] <= 0.0:
                    raise ConfigError(f"{key}[{index}]: {COLUMNS[column]} = {row[column]:g}: must be > 0")
        if not self.known_to < 1.0:
            raise ConfigError(
                f"{join(path, 'stiffness_scatter')} = {self.stiffness_scatter:g} N/m: must be < "
                f"{self.stiffness / CERTAINTY:g} N/m, a third of the stiffness"
            )

    @property
    def known_to(self) -> float:
        return max(LEAST_KNOWN, CERTAINTY * self.stiffness_scatter / self.stiffness)


ITS_UNIT = "its unit"


@params
class Channel:
    """One channel of the port. Range, scale, resolution and noise are in ``unit``."""

    unit: str = text("unit of range, scale, resolution and noise", choices=tuple(SI))
    range: float = number("largest magnitude that the channel measures", ITS_UNIT, more_than=0.0)
    scale: float = number("value at which the port reports 1, e.g. mm per volt", ITS_UNIT, 1.0, more_than=0.0)
    sign: int = integer(
        "direction of the channel: 1, or -1 if it is opposite to the direction of the axis",
        "",
        1,
        at_least=-1,
        at_most=1,
    )
    resolution: float = number("quantisation step; 0: no quantisation", ITS_UNIT, 0.0, at_least=0.0)
    noise_rms: float = number("rms of the noise, for a simulator", ITS_UNIT, 0.0, at_least=0.0)
    sensor: str = text("maker, type and serial number of the device", "")
    calibrated: str = text("date of the calibration, e.g. 2026-03-02", "")
    certificate: str = text("number of the calibration certificate", "")
    accuracy: str = text("class and standard of the calibration, e.g. class 1, ISO 7500-1", "")
    expires: str = text("last day on which the calibration is valid, e.g. 2027-03-02", "")

    def validate(self, path: str) -> None:
        if not self.sign:
            raise ConfigError(f"{path}.sign = 0: must be 1 or -1")
        if self.resolution >= self.range:
            raise ConfigError(
                f"{path}.resolution = {self.resolution:g} {self.unit}: must be < range = "
                f"{self.range:g} {self.unit}"
            )
        for key, day in (("calibrated", self.calibrated), ("expires", self.expires)):
            try:
                date.fromisoformat(day or "2026-03-02")
            except ValueError:
                raise ConfigError(f"{path}.{key} = {show(day)}: must be a date such as 2026-03-02") from None

    @property
    def unit_si(self) -> float:
        return SI[self.unit][0]

    @property
    def range_si(self) -> float:
        return self.range * self.unit_si

    @property
    def step_si(self) -> float:
        return self.resolution * self.unit_si

    @property
    def gain(self) -> float:
        return self.sign * self.scale * self.unit_si


@params
class DisplacementChannel(Channel):
    """Displacement sensor or command of an axis, positive if the axis extends."""

    unit: str = text("unit of range, scale, resolution and noise", choices=tuple(LENGTHS))


@params
class ForceChannel(Channel):
    """Load cell of an axis, positive if the restoring force opposes a positive displacement."""

    unit: str = text("unit of range, scale, resolution and noise", choices=tuple(FORCES))


@params
class Similitude:
    """Ratios of quantities of the structure to the same quantities of a scaled specimen."""

    length: float = number(
        "displacement of the structure divided by displacement of the specimen", "", 1.0, more_than=0.0
    )
    force: float = number("force in the structure divided by force in the specimen", "", 1.0, more_than=0.0)
    time: float = number(
        "time of the structure divided by time of the specimen; must be 1", "", 1.0, more_than=0.0
    )

    def validate(self, path: str) -> None:
        if self.time != 1.0:
            raise ConfigError(
                f"{path}.time = {self.time:g}: must be 1. For a slower rig, use time_ratio of the scenario"
            )


@params
class SmallMove:
    """Bounds of the small move that checks the signs and scales of an axis."""

    displacement: float = number("largest displacement from the start, to one side", "m", more_than=0.0)
    velocity: float = number("largest velocity", "m/s", more_than=0.0)
    force: float = number(
        "largest permitted change in a force; a larger change aborts the move", "N", more_than=0.0
    )
    press: float | None = number(
        "small force that is applied and released if the controller of the rig closes a force loop",
        "N",
        None,
        more_than=0.0,
    )


@params
class Unloading:
    """Bounds of the motion with which the operator unloads the specimen."""

    travel: float = number("largest distance from the position at the start of unloading", "m", more_than=0.0)
    velocity: float = number("largest velocity", "m/s", more_than=0.0)
    tolerance: float = number(
        "fraction of the load cell's range that counts as zero force", "1", 0.01, at_least=1e-4, at_most=0.1
    )
    carries_gravity: bool = flag("the axis carries weight and is unloaded last", False)


@params
class OnRig:
    """Entries of a rig file for one axis, as stored in a scenario."""

    displacement: DisplacementChannel = section(DisplacementChannel, "measured displacement")
    force: ForceChannel = section(ForceChannel, "measured force")
    command: DisplacementChannel = section(DisplacementChannel, "command to the controller")
    force_command: ForceChannel | None = section(
        ForceChannel, "command in N to a controller that closes a force loop; default: none", None
    )
    valve: str = text("maker, type and serial number of the servovalve", "")
    similitude: Similitude = section(Similitude, "ratios of the structure to a scaled specimen")
    elastic_limit: float | None = number(
        "largest displacement from the zero of the test that leaves the specimen undamaged",
        "m",
        None,
        more_than=0.0,
    )
    stiffness: float | None = number(
        "tangent stiffness of the specimen at small displacement while the other axes are held",
        "N/m",
        None,
        more_than=0.0,
    )
    stiffness_known_to: float | None = number(
        "relative uncertainty of the stiffness; if it is at most 0.03, the stiffness verifies the scales of "
        "the sensors",
        "1",
        None,
        more_than=0.0,
        less_than=1.0,
    )
    corrections: Corrections | None = section(Corrections, "corrections of the load cell", None)
    feedback_filter: FeedbackFilter | None = section(
        FeedbackFilter, "low-pass filter of the corrected force; default: none", None
    )
    characterised: Characterised | None = section(
        Characterised, "results of cyclic tests, written by rths identify --for rig_file --out", None
    )
    slow_error: float | None = number(
        "largest magnitude of measured minus commanded displacement in slow motions (small move, motion to the "
        "start, resume, unloading); default: the larger of 1 mm and three times the error that the small "
        "move predicts",
        "m",
        None,
        more_than=0.0,
    )
    small_move: SmallMove | None = section(
        SmallMove, "bounds of the small move that checks signs and scales", None
    )
    unloading: Unloading | None = section(Unloading, "bounds of the motion to zero force", None)

    @property
    def expected(self) -> Expected | None:
        """Stiffness expected at small displacement, declared or from cyclic tests; None if neither exists."""
        measured, accuracy = self.characterised, self.stiffness_known_to
        if measured is not None and accuracy is None:
            basis = f"measured in cyclic tests on {measured.date} (accurate to {measured.known_to:.0%})"
            return Expected(measured.stiffness, measured.known_to, basis, False)
        if self.stiffness is None:
            return None
        basis = f"declared in the rig file (accurate to {accuracy or 0.0:.0%})"
        return Expected(self.stiffness, accuracy, basis, True)

    def check_corrections(self, auxiliary: Mapping[str, Channel], rate: float | None, path: str) -> None:
        """Raise ConfigError if a correction lacks its channel, or if the filter is invalid at ``rate`` (Hz)."""
        if self.corrections is not None:
            units = {name: SI[channel.unit][1] for name, channel in auxiliary.items()}
            self.corrections.check_channels(units, f"{path}.corrections")
        if self.feedback_filter is not None and rate is not None:
            self.feedback_filter.check_rate(rate, f"{path}.feedback_filter")


@params
class RigAxis(OnRig):
    name: str = text("name in the rig file")
    number: int = integer("index among the axes of the port", at_least=0)
    limits: Limits | None = section(
        Limits, "limits in the rig file, which the limits of the rig's receiver must not exceed", None
    )

    def check_limits(self, limits: Limits, path: str, where: str = "") -> None:
        """Raise ConfigError if ``limits`` exceed a channel's range, or a bound of the rig file exceeds ``limits``.

        Inconsistent stiffnesses also raise ConfigError. ``where`` is the key, below ``path``, of the bounds.
        """
        here, axis = join(path, where) if where else path, f"on axis {self.name} of the rig"
        self._check_stiffness(here)
        stroke, velocity = (limits.stroke, "limits.stroke"), (limits.velocity, "limits.velocity")
        channels: tuple[tuple[str, str, str, Channel | None], ...] = (
            ("stroke", "m", "displacement", self.displacement),
            ("stroke", "m", "command", self.command),
            ("force", "N", "force", self.force),
            ("force", "N", "force_command", self.force_command),
        )
        rows: list[tuple[str, str, str, float | None, float, str]] = [
            (path, f"limits.{key}", unit, getattr(limits, key), channel.range_si, f"the range of {name} {axis}")
            for key, unit, name, channel in channels
            if channel is not None
        ]
        rows.append((here, "elastic_limit", "m", self.elastic_limit, *stroke))
        rows.append((here, "slow_error", "m", self.slow_error, *stroke))
        if (small := self.small_move) is not None:
            if small.displacement < (least := STEPS * self.displacement.step_si):
                raise ConfigError(
                    f"{join(here, 'small_move')}.displacement = {small.displacement:g} m: must be >= {least:g} m, "
                    f"{STEPS} times the resolution of the displacement channel"
                )
            far = (self.elastic_limit, "elastic_limit") if self.elastic_limit else stroke
            rows += [
                (here, "small_move.displacement", "m", small.displacement, *far),
                (here, "small_move.velocity", "m/s", small.velocity, *velocity),
                (here, "small_move.force", "N", small.force, limits.force, "limits.force"),
                (here, "small_move.press", "N", small.press, small.force, "small_move.force"),
            ]
        if (unload := self.unloading) is not None:
            rows.append((here, "unloading.travel", "m", unload.travel, 2.0 * limits.stroke, "2 limits.stroke"))
            rows.append((here, "unloading.velocity", "m/s", unload.velocity, *velocity))
        for owner, key, unit, value, bound, meaning in rows:
            if value is not None and value > bound * _ROUNDING:
                raise ConfigError(f"{join(owner, key)} = {value:g} {unit}: must be <= {bound:g} {unit}, {meaning}")

    def _check_stiffness(self, path: str) -> None:
        measured, accuracy, stiffness = self.characterised, self.stiffness_known_to, self.stiffness
        if accuracy is not None and stiffness is None:
            raise ConfigError(f"{join(path, 'stiffness_known_to')}: has no effect without stiffness")
        if measured is None or stiffness is None or accuracy is None:
            return
        may = accuracy * stiffness + measured.known_to * measured.stiffness
        if abs(measured.stiffness - stiffness) > may:
            raise ConfigError(
                f"{join(path, 'characterised.stiffness')} = {measured.stiffness:g} N/m (accurate to "
                f"{measured.known_to:.1%}): must be within {may:.4g} N/m of stiffness = {stiffness:g} N/m "
                f"(accurate to {accuracy:.1%}). A scale is wrong, or another specimen is in the rig"
            )


class Gains(NamedTuple):
    """Signed factors that convert the port's numbers for one axis to SI units (m, or N for the force).

    ``newtons`` is the factor for commands in N. It equals ``command`` if the rig has no channel ``force_command``.
    """

    displacement: float
    force: float
    command: float
    newtons: float = 1.0


def gains_of(axis: OnRig | None) -> Gains:
    if axis is None:
        return Gains(1.0, 1.0, 1.0)
    newtons = axis.command if axis.force_command is None else axis.force_command
    return Gains(axis.displacement.gain, axis.force.gain, axis.command.gain, newtons.gain)


def limits_of_rig(axis: Any) -> Limits:
    limits: Limits = axis.limits
    return (axis.rig_axis.limits if axis.rig_axis is not None else None) or limits


_ROUNDING = 1.0 + 1e-9


class Calibration:
    """Converts samples between the test and a port, which lists the axes in the order of the rig.

    ``seats`` holds the port index of each axis of the test. ``home`` holds the test index of each axis of the
    port.
    """

    displacement: Array
    force: Array
    command: Array
    newtons: Array

    def __init__(self, axes: Mapping[str, Any], auxiliary: Sequence[Channel | None] = ()) -> None:
        """Build the conversion for ``axes``. ``auxiliary`` holds None for a channel that reports SI units."""
        rows = [axis.rig_axis for axis in axes.values()]
        self.home = sorted(range(len(rows)), key=lambda index: rows[index].number)
        self.seats = [self.home.index(index) for index in range(len(rows))]
        self.displacement, self.force, self.command, self.newtons = np.array([gains_of(row) for row in rows]).T
        self.channels = np.array([1.0 if channel is None else channel.gain for channel in auxiliary])
        ends = (
            [row.displacement.range_si for row in rows],
            [row.force.range_si for row in rows],
            [np.inf if channel is None else channel.range_si for channel in auxiliary],
        )
        self.ends = [np.array(values) / _ROUNDING for values in ends]
        """Ranges of displacement, force and auxiliary channels, in SI units, reduced by the rounding error."""

    def measured(self, measurement: Measurement, applied: Array | None = None) -> Measurement:
        """Convert a Measurement of the port to SI units and to the order of the test.

        FLAG_SATURATED is set if a channel reaches a limit of its range. ``applied`` ``(n_axes,)`` is the exact
        applied command, if known, in N for axes in force mode, otherwise in m.
        """
        seats, modes = self.seats, self.modes(measurement.control_mode)
        displacement = measurement.displacement[seats] * self.displacement
        force = measurement.force[seats] * self.force
        channels = measurement.auxiliary * self.channels if len(self.channels) else measurement.auxiliary
        flags = measurement.flags
        for values, end in zip((displacement, force, channels), self.ends, strict=True):
            if len(end) and (np.abs(values) >= end).any():
                flags |= FLAG_SATURATED
        command = measurement.command[seats] * self._gains(modes) if applied is None else applied
        return replace(
            measurement,
            displacement=displacement,
            force=force,
            command=command,
            auxiliary=channels,
            flags=flags,
            control_mode=modes,
        )

    def modes(self, modes: bytes) -> bytes:
        return _ordered(modes, self.seats)

    def sent(self, command: Command) -> Command:
        modes = command.control_mode
        target, sent = self.to_port(command.target, modes), self.to_port(command.command, modes)
        return replace(command, target=target, command=sent, control_mode=_ordered(modes, self.home))

    def to_port(self, command: Array, modes: bytes = b"") -> Array:
        """Convert commands ``(n_axes,)``, in N for axes in force mode and otherwise in m, to port numbers."""
        return np.asarray((command / self._gains(modes))[self.home])

    def _gains(self, modes: bytes) -> Array:
        if MODE_FORCE not in modes:
            return self.command
        return np.where(by_force(modes), self.newtons, self.command)

    def shown(self, true: Measurement) -> Measurement:
        """Return the Measurement that the port reports for a ``true`` Measurement; inverse of :meth:`measured`."""
        home, modes = self.home, true.control_mode
        return replace(
            true,
            displacement=(true.displacement / self.displacement)[home],
            force=(true.force / self.force)[home],
            command=(true.command / self._gains(modes))[home],
            auxiliary=true.auxiliary / self.channels if len(self.channels) else EMPTY,
            control_mode=_ordered(modes, home),
        )

    def driven(self, sent: Array, modes: bytes = b"") -> Array:
        """Convert port numbers to commands in N or m; inverse of :meth:`to_port`."""
        return np.asarray(sent[self.seats] * self._gains(modes))


def _ordered(modes: bytes, order: Sequence[int]) -> bytes:
    return bytes([modes[index] for index in order]) if modes else modes


def in_order_of_rig(axes: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sorted(axes.items(), key=lambda pair: pair[1].rig_axis.number if pair[1].rig_axis else 0))


def channels_of(names: Sequence[str], channels: Mapping[str, Channel]) -> tuple[Channel | None, ...]:
    """Return the entry in ``channels`` for each of a port's ``names``, or None for a name without an entry.

    A name can contain a unit, such as ``pressure [bar]``. Raises ConfigError if the port lacks a channel or uses a
    different unit.
    """
    pairs = [_split(name) for name in names]
    for name, channel in channels.items():
        units = [unit for pair_name, unit in pairs if pair_name == name]
        if not units:
            raise unknown(f"rig_file.auxiliary.{name}", "channel", name, [pair_name for pair_name, _ in pairs])
        if units[0] and units[0] not in (channel.unit, SI[channel.unit][1]):
            raise ConfigError(
                f"rig_file.auxiliary.{name}.unit = {show(channel.unit)}: must be {units[0]}, as in the port"
            )
    return tuple(channels.get(name) for name, _ in pairs)


def si_names(names: Sequence[str], channels: Sequence[Channel | None]) -> tuple[str, ...]:
    return tuple(
        name if channel is None else f"{_split(name)[0]} [{SI[channel.unit][1]}]"
        for name, channel in zip(names, channels, strict=True)
    )


def _split(name: str) -> tuple[str, str]:
    text = name.strip()
    noun, _, unit = text.partition("[") if text.endswith("]") else (text, "", "")
    return noun.strip(), unit[:-1]
