# SPDX-License-Identifier: Apache-2.0
"""Rules about sensors, calibration, force corrections, specimen scales, and times of the port."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, timedelta

from rths_nodes.core.limits import Limits
from rths_nodes.laboratory.calibration import Channel, Similitude, gains_of
from rths_nodes.laboratory.corrections import Corrections
from rths_nodes.loop.scenario.judgement.rule import CAUTION, REFUSED, Found, Seen, parameter, rule, rules_in

PAUSES = 10.0
"""Largest usual ratio of a timeout to the longest pause."""
STEPS = 2.0
"""Largest usual jump of the first command, in samples of travel at the velocity limit."""

COVERED, NOISY = 1.0 / 3.0, 1.0 / 30.0
"""Ratios of rms noise to range: noise is refused from the first ratio on, and doubtful above the second."""
SMALLEST_SIGNAL, LARGEST_SIGNAL = 0.1, 2.0**24
"""Bounds of a port reading at the end of a channel's range: volts, milliamperes, or counts of up to 24 bits."""
THOUSAND = 1000.0
"""Factor between units that are easily confused, such as N and kN, or mm and m."""
BITS = range(15, 25)
"""Numbers of bits of converters. A full scale of 2^bits / 1000 (32.768, 65.536 ...) indicates a wrong unit."""
EXACT = 1e-3
OVERSIZED, LOST = 100.0, 500.0
"""Ratios of a sensor's range to the monitored limit: the range is doubtful above the first, and refused from the
second on."""
A_DAY, A_YEAR = timedelta(days=1), timedelta(days=366)
TEN_YEARS = 10 * A_YEAR
"""Longest usual time since the calibration of a sensor of a simulated or emulated rig."""
LARGE_FRICTION = 0.2
LARGEST_LENGTH = 200.0
"""Largest usual length scale of a specimen. The smallest usual scale is the inverse."""
OFF_FORCE = 100.0
"""Largest usual ratio of force scale to squared length scale. The smallest usual ratio is the inverse."""
HARDLY_KNOWN = 0.3
"""Relative uncertainty of a stiffness above which nearly every specimen passes the small move."""


def _channels(seen: Seen) -> Iterator[tuple[str, str, Channel]]:
    for path, axis in seen.axes:
        for noun in ("displacement", "force", "command") if axis.rig_axis is not None else ():
            yield f"{path}.rig_axis.{noun}", noun, getattr(axis.rig_axis, noun)
    if seen.scenario.rig_file is not None:
        for name, channel in seen.scenario.rig_file.auxiliary.items():
            yield f"rig_file.auxiliary.{name}", "auxiliary", channel


def _noises(seen: Seen) -> Iterator[tuple[str, float, float, str]]:
    for path, noun, channel in _channels(seen):
        if noun == "auxiliary":
            yield f"{path}.noise_rms", channel.noise_rms, channel.range, channel.unit
    for path, axis in seen.axes:
        for noun, unit in (("displacement", "m"), ("force", "N")):
            if (end := getattr(axis.sensors, f"{noun}_range")) is not None:
                yield f"{path}.sensors.{noun}_noise_rms", getattr(axis.sensors, f"{noun}_noise_rms"), end, unit


@rule(
    REFUSED, "the `noise_rms` of a sensor must be less than a third of its `range`", "The noise hides the signal"
)
def noise_covers_range(seen: Seen) -> Iterator[Found]:
    for path, noise, end, unit in _noises(seen):
        if noise >= COVERED * end:
            yield Found(path, f"{noise:g} {unit}", f"must be < {COVERED * end:.4g} {unit}, a third of the range")


@rule(
    CAUTION,
    "the `noise_rms` of a sensor should be at most a thirtieth of its `range`",
    "Check the unit of the noise, and whether the value is an rms value",
)
def noise_is_large(seen: Seen) -> Iterator[Found]:
    for path, noise, end, unit in _noises(seen):
        if NOISY * end < noise < COVERED * end:
            yield Found(
                path, f"{noise:g} {unit}", f"the noise is {noise / end:.0%} of the range of {end:g} {unit}"
            )


def _converts_units(scale: float) -> bool:
    exponent = math.log10(scale)
    return abs(exponent - round(exponent)) < EXACT


def _of_other_unit(number: float) -> bool:
    counts = THOUSAND * number
    return number < SMALLEST_SIGNAL or any(abs(counts / 2.0**bits - 1.0) < EXACT for bits in BITS)


@rule(
    REFUSED,
    "`range` / `scale` of a channel must be at least 0.1 and not a power of two divided by 1000, unless `scale` "
    "is a power of ten",
    "The `scale` is in a unit 1000 times smaller than `unit`; convert `scale` to `unit`",
)
def scale_of_another_unit(seen: Seen) -> Iterator[Found]:
    for path, _, channel in _channels(seen):
        number = channel.range / channel.scale
        if not _converts_units(channel.scale) and _of_other_unit(number):
            yield Found(
                f"{path}.scale",
                f"{channel.scale:g} {channel.unit}",
                f"must be {channel.scale / THOUSAND:g} {channel.unit}, because no converter reaches the range of "
                f"{channel.range:g} {channel.unit} at {number:.4g} (V, mA or counts)",
            )


def _oversize(seen: Seen) -> Iterator[tuple[float, Found]]:
    for path, axis in seen.axes:
        if axis.rig_axis is None:
            continue
        for noun, key, limit, unit in (
            ("displacement", "stroke", axis.limits.stroke, "m"),
            ("force", "force", axis.limits.force, "N"),
        ):
            channel = getattr(axis.rig_axis, noun)
            ratio = channel.range_si / limit
            text = f"the range is {channel.range_si:g} {unit}, {ratio:.3g} times limits.{key} = {limit:g} {unit}"
            yield ratio, Found(f"{path}.rig_axis.{noun}.range", f"{channel.range:g} {channel.unit}", text)


@rule(
    REFUSED,
    "the `range` of displacement and force must be less than 500 times the limit `stroke` or `force`",
    "The limit is within the error of the sensor; check the units of range and limit",
    real=True,
)
def range_of_another_unit(seen: Seen) -> Iterator[Found]:
    return (finding for ratio, finding in _oversize(seen) if ratio >= LOST)


@rule(
    CAUTION,
    "the `range` of displacement and force should be at most 100 times the limit `stroke` or `force`",
    "The sensor hardly resolves the limit",
)
def range_is_large(seen: Seen) -> Iterator[Found]:
    return (finding for ratio, finding in _oversize(seen) if ratio > OVERSIZED)


@rule(
    CAUTION,
    "`range` / `scale` of a channel should be between 0.1 and 2^24, unless `scale` is 1",
    "No converter has this full scale; check the units of scale and range",
)
def signal_of_no_converter(seen: Seen) -> Iterator[Found]:
    for path, _, channel in _channels(seen):
        number = channel.range / channel.scale
        if not _converts_units(channel.scale) and _of_other_unit(number):
            continue  # another rule refuses the scale
        if channel.scale != 1.0 and not SMALLEST_SIGNAL <= number <= LARGEST_SIGNAL:
            yield Found(
                f"{path}.scale",
                f"{channel.scale:g} {channel.unit}",
                f"the range of {channel.range:g} {channel.unit} corresponds to {number:.3g} at the port (V, mA "
                "or counts)",
            )


def _dated(seen: Seen) -> Iterator[tuple[str, date, str]]:
    for path, _, channel in _channels(seen):
        if channel.calibrated:
            yield f"{path}.calibrated", date.fromisoformat(channel.calibrated), channel.calibrated


@rule(CAUTION, "`calibrated` should not be later than today", "The date or the clock of this computer is wrong")
def calibrated_in_future(seen: Seen) -> Iterator[Found]:
    for path, day, shown in _dated(seen):
        if day > seen.today + A_DAY:
            yield Found(path, shown, f"today is {seen.today}")


@rule(
    CAUTION,
    "`calibrated` should be at most one year ago, or ten years ago for a simulated or emulated rig",
    "Sensors are usually calibrated once a year",
)
def calibrated_long_ago(seen: Seen) -> Iterator[Found]:
    longest = TEN_YEARS if seen.simulated else A_YEAR
    for path, day, shown in _dated(seen):
        if seen.today - day > longest:
            yield Found(path, shown, f"this date is {(seen.today - day).days / 365.25:.3g} years ago")


@rule(
    CAUTION,
    "`expires` of a channel should not be earlier than today",
    "The certificate of the channel is no longer valid",
)
def calibration_expired(seen: Seen) -> Iterator[Found]:
    for path, _, channel in _channels(seen):
        if channel.expires and date.fromisoformat(channel.expires) < seen.today:
            yield Found(f"{path}.expires", channel.expires, f"today is {seen.today}")


@rule(
    CAUTION,
    "`calibrated` of displacement and force should be set",
    "The scale and the sign of this sensor are not certified",
    real=True,
)
def never_calibrated(seen: Seen) -> Iterator[Found]:
    for path, noun, channel in _channels(seen):
        if noun in ("displacement", "force") and not channel.calibrated:
            yield Found(f"{path}.calibrated", "''", "missing date")


def _corrections(seen: Seen) -> Iterator[tuple[str, Corrections, Limits]]:
    for path, axis in seen.axes:
        if axis.rig_axis is not None and axis.rig_axis.corrections is not None:
            yield f"{path}.rig_axis.corrections", axis.rig_axis.corrections, axis.limits


def _friction(seen: Seen) -> Iterator[tuple[Found, float]]:
    for path, corrections, limits in _corrections(seen):
        if corrections.friction is not None:
            text = f"limits.force is {limits.force:g} N"
            yield (
                Found(f"{path}.friction", f"{corrections.friction:g} N", text),
                corrections.friction / limits.force,
            )


@rule(
    REFUSED,
    "`corrections.friction` must be less than `limits.force`",
    "The correction exceeds the largest force that may be measured",
)
def friction_beyond_force(seen: Seen) -> Iterator[Found]:
    return (finding for finding, share in _friction(seen) if share >= 1.0)


@rule(
    CAUTION,
    "`corrections.friction` should be at most 20 % of `limits.force`",
    "The correction is a large part of the measured force",
)
def friction_is_large(seen: Seen) -> Iterator[Found]:
    return (finding for finding, share in _friction(seen) if LARGE_FRICTION < share < 1.0)


@rule(
    CAUTION,
    "`corrections.fixture_mass` x `limits.deceleration` should be less than `limits.force`",
    "In a safe stop the inertia of the fixture alone exceeds the force limit",
)
def fixture_beyond_force(seen: Seen) -> Iterator[Found]:
    for path, corrections, limits in _corrections(seen):
        inertia = (corrections.fixture_mass or 0.0) * limits.deceleration
        if inertia >= limits.force:
            yield Found(
                f"{path}.fixture_mass",
                f"{corrections.fixture_mass:g} kg",
                f"the inertia at limits.deceleration = {limits.deceleration:g} m/s^2 is {inertia:.4g} N, but "
                f"limits.force is {limits.force:g} N",
            )


def _similitudes(seen: Seen) -> Iterator[tuple[str, Similitude]]:
    for path, axis in seen.axes:
        if axis.rig_axis is not None:
            yield f"{path}.rig_axis.similitude", axis.rig_axis.similitude


@rule(CAUTION, "`similitude.length` should be between 1/200 and 200", "Specimens of this scale are unusual")
def scale_of_length(seen: Seen) -> Iterator[Found]:
    for path, scale in _similitudes(seen):
        if not 1.0 / LARGEST_LENGTH <= scale.length <= LARGEST_LENGTH:
            yield Found(
                f"{path}.length",
                f"{scale.length:g}",
                f"the usual range is 1/{LARGEST_LENGTH:g} to {LARGEST_LENGTH:g}",
            )


@rule(
    CAUTION,
    "`similitude.force` should be between 1/100 and 100 times `length`^2",
    "With the same material, forces scale with the square of the length",
)
def scale_of_force(seen: Seen) -> Iterator[Found]:
    for path, scale in _similitudes(seen):
        square = scale.length**2
        if not square / OFF_FORCE <= scale.force <= square * OFF_FORCE:
            yield Found(
                f"{path}.force",
                f"{scale.force:g}",
                f"the usual range is {square / OFF_FORCE:g} to {square * OFF_FORCE:g}",
            )


@rule(
    CAUTION,
    "`stiffness_known_to` should be at most 0.3",
    "The small move then accepts nearly every specimen and nearly every scale of a sensor",
)
def stiffness_hardly_known(seen: Seen) -> Iterator[Found]:
    for path, axis in seen.axes:
        accuracy = None if axis.rig_axis is None else axis.rig_axis.stiffness_known_to
        if accuracy is not None and accuracy > HARDLY_KNOWN:
            yield Found(
                f"{path}.rig_axis.stiffness_known_to",
                f"{accuracy:g}",
                f"a usual value is at most {HARDLY_KNOWN:g}",
            )


@rule(
    CAUTION,
    "`servo_rate` of the rig file should be set",
    "Without this rate, a scenario with a wrong rate is not refused",
    real=True,
)
def no_servo_rate(seen: Seen) -> Iterator[Found]:
    head = seen.scenario.rig_file
    if head is not None and head.servo_rate is None:
        yield Found(f"servo_rate of the rig file {head.name}", "", "missing [Hz]")


@rule(
    REFUSED,
    "`servo_rate` must be the `servo_rate` of the rig file",
    "The rig would move at another velocity than commanded",
    real=True,
)
def rate_of_another_rig(seen: Seen) -> Iterator[Found]:
    head, rate = seen.scenario.rig_file, seen.scenario.servo_rate
    if head is not None and head.servo_rate not in (None, rate):
        text = f"must be {head.servo_rate:g} Hz, the rate of the controller of the rig {head.name}"
        yield Found("servo_rate", f"{rate:g} Hz", text)


@rule(
    CAUTION,
    "`bridge.max_bridge` should be at most the `silence` of the port",
    "The rig counts as dead before the bridge has ended",
)
def bridge_beyond_silence(seen: Seen) -> Iterator[Found]:
    silence, longest = parameter(seen.scenario.port, "silence"), seen.scenario.bridge.max_bridge
    if silence is not None and longest > silence:
        yield Found("bridge.max_bridge", f"{longest:g} s", f"port.silence is {silence:g} s")


@rule(
    CAUTION,
    "the `silence` of the port should be less than `longest_wait`, and less than 10 times `bridge.max_pause`",
    "Commands are sent to a dead rig for longer than a rig waits for commands",
)
def silence_is_long(seen: Seen) -> Iterator[Found]:
    silence, wait = parameter(seen.scenario.port, "silence"), parameter(seen.scenario.port, "longest_wait")
    if silence is None or wait is None:
        return
    most = min(wait, PAUSES * seen.scenario.bridge.max_pause)
    if silence >= most:
        text = (
            f"this time is {silence * seen.scenario.servo_rate:.4g} servo periods; a usual value is less than "
            f"{most:g} s"
        )
        yield Found("port.silence", f"{silence:g} s", text)


@rule(
    CAUTION,
    "the `longest_wait` of the port should be at most 10 times `bridge.max_pause`",
    "The rig waits too long for a test computer that has failed",
)
def wait_is_long(seen: Seen) -> Iterator[Found]:
    wait, pause = parameter(seen.scenario.port, "longest_wait"), seen.scenario.bridge.max_pause
    if wait is not None and wait > PAUSES * pause:
        text = f"a usual value is at most {PAUSES * pause:g} s, {PAUSES:g} times bridge.max_pause"
        yield Found("port.longest_wait", f"{wait:g} s", text)


@rule(
    CAUTION,
    "the `start_tolerance` of the port should be at most the travel of two samples at `limits.velocity`",
    "The first command may be this far from the actuator's position",
)
def start_is_a_jump(seen: Seen) -> Iterator[Found]:
    tolerance = parameter(seen.scenario.port, "start_tolerance")
    for path, axis in seen.axes if tolerance is not None else ():
        jump = tolerance * abs(gains_of(axis.rig_axis).command)
        most = STEPS * axis.limits.velocity / seen.scenario.servo_rate
        if jump > most:
            yield Found(
                f"port.start_tolerance for {path}",
                f"{tolerance:g}",
                f"this is a jump of {1e3 * jump:.3g} mm, but in {STEPS:g} samples at limits.velocity the axis "
                f"moves {1e3 * most:.3g} mm",
            )


CHANNELS = rules_in(globals())
