# SPDX-License-Identifier: Apache-2.0
"""Rules about sensors, calibration, force corrections, specimen scales, and times of the port."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date, timedelta

from rths_nodes.laboratory.calibration import Channel, gains_of
from rths_nodes.loop.scenario.judgement.rule import Found, Seen, caution, parameter, refused, rules

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


def _noise(seen: Seen) -> Iterator[Found]:
    for path, noise, end, unit in _noises(seen):
        shown = f"{noise:g} {unit}"
        if noise >= COVERED * end:
            text = f"must be < {COVERED * end:.4g} {unit}, a third of the range"
            yield Found("noise_covers_range", path, shown, text)
        elif noise > NOISY * end:
            text = f"the noise is {noise / end:.0%} of the range of {end:g} {unit}"
            yield Found("noise_is_large", path, shown, text)


def _converts_units(scale: float) -> bool:
    exponent = math.log10(scale)
    return abs(exponent - round(exponent)) < EXACT


def _of_other_unit(number: float) -> bool:
    counts = THOUSAND * number
    return number < SMALLEST_SIGNAL or any(abs(counts / 2.0**bits - 1.0) < EXACT for bits in BITS)


def _scale(seen: Seen) -> Iterator[Found]:
    for path, _, channel in _channels(seen):
        number, unit = channel.range / channel.scale, channel.unit
        key_path, shown = f"{path}.scale", f"{channel.scale:g} {unit}"
        if not _converts_units(channel.scale) and _of_other_unit(number):
            text = f"must be {channel.scale / THOUSAND:g} {unit}, because no converter reaches the range of "
            text += f"{channel.range:g} {unit} at {number:.4g} (V, mA or counts)"
            yield Found("scale_of_another_unit", key_path, shown, text)
        elif channel.scale != 1.0 and not SMALLEST_SIGNAL <= number <= LARGEST_SIGNAL:
            text = (
                f"the range of {channel.range:g} {unit} corresponds to {number:.3g} at the port (V, mA or counts)"
            )
            yield Found("signal_of_no_converter", key_path, shown, text)


def _range(seen: Seen) -> Iterator[Found]:
    for path, axis in seen.axes:
        for noun, key, unit in (("displacement", "stroke", "m"), ("force", "force", "N")):
            if axis.rig_axis is None:
                continue
            channel, limit = getattr(axis.rig_axis, noun), getattr(axis.limits, key)
            ratio, key_path = channel.range_si / limit, f"{path}.rig_axis.{noun}.range"
            text = f"the range is {channel.range_si:g} {unit}, {ratio:.3g} times limits.{key} = {limit:g} {unit}"
            for name, most in (("range_of_another_unit", ratio >= LOST), ("range_is_large", ratio > OVERSIZED)):
                if most:
                    yield Found(name, key_path, f"{channel.range:g} {channel.unit}", text)


def _calibration(seen: Seen) -> Iterator[Found]:
    longest, today = TEN_YEARS if seen.simulated else A_YEAR, seen.today
    for path, noun, channel in _channels(seen):
        key_path, shown = f"{path}.calibrated", channel.calibrated
        day = date.fromisoformat(shown) if shown else today
        if day > today + A_DAY:
            yield Found("calibrated_in_future", key_path, shown, f"today is {today}")
        if today - day > longest:
            text = f"this date is {(today - day).days / 365.25:.3g} years ago"
            yield Found("calibrated_long_ago", key_path, shown, text)
        if not shown and noun in ("displacement", "force"):
            yield Found("never_calibrated", key_path, "''", "missing date")
        if channel.expires and date.fromisoformat(channel.expires) < today:
            yield Found("calibration_expired", f"{path}.expires", channel.expires, f"today is {today}")


def _correction(seen: Seen) -> Iterator[Found]:
    for path, axis in seen.axes:
        if axis.rig_axis is None or axis.rig_axis.corrections is None:
            continue
        force, braking, mass = axis.limits.force, axis.limits.deceleration, axis.rig_axis.corrections.fixture_mass
        friction, key_path = axis.rig_axis.corrections.friction, f"{path}.rig_axis.corrections"
        if friction is not None and friction > LARGE_FRICTION * force:
            rule = "friction_beyond_force" if friction >= force else "friction_is_large"
            yield Found(rule, f"{key_path}.friction", f"{friction:g} N", f"limits.force is {force:g} N")
        if mass is not None and mass * braking >= force:
            text = f"the inertia at limits.deceleration = {braking:g} m/s^2 is {mass * braking:.4g} N, but "
            text += f"limits.force is {force:g} N"
            yield Found("fixture_beyond_force", f"{key_path}.fixture_mass", f"{mass:g} kg", text)


def _rig_axis(seen: Seen) -> Iterator[Found]:
    for path, axis in seen.axes:
        if axis.rig_axis is None:
            continue
        length, force = axis.rig_axis.similitude.length, axis.rig_axis.similitude.force
        low, high = length**2 / OFF_FORCE, length**2 * OFF_FORCE
        if not 1.0 / LARGEST_LENGTH <= length <= LARGEST_LENGTH:
            text = f"the usual range is 1/{LARGEST_LENGTH:g} to {LARGEST_LENGTH:g}"
            yield Found("scale_of_length", f"{path}.rig_axis.similitude.length", f"{length:g}", text)
        if not low <= force <= high:
            text = f"the usual range is {low:g} to {high:g}"
            yield Found("scale_of_force", f"{path}.rig_axis.similitude.force", f"{force:g}", text)
        accuracy, key_path = axis.rig_axis.stiffness_known_to, f"{path}.rig_axis.stiffness_known_to"
        if accuracy is not None and accuracy > HARDLY_KNOWN:
            text = f"a usual value is at most {HARDLY_KNOWN:g}"
            yield Found("stiffness_hardly_known", key_path, f"{accuracy:g}", text)


def _rate(seen: Seen) -> Iterator[Found]:
    head, rate = seen.scenario.rig_file, seen.scenario.servo_rate
    if head is not None and head.servo_rate is None:
        yield Found("no_servo_rate", f"servo_rate of the rig file {head.name}", "", "missing [Hz]")
    elif head is not None and head.servo_rate != rate:
        text = f"must be {head.servo_rate:g} Hz, the rate of the controller of the rig {head.name}"
        yield Found("rate_of_another_rig", "servo_rate", f"{rate:g} Hz", text)


def _times(seen: Seen) -> Iterator[Found]:
    port, bridge, rate = seen.scenario.port, seen.scenario.bridge, seen.scenario.servo_rate
    silence, wait, most = parameter(port, "silence"), parameter(port, "longest_wait"), PAUSES * bridge.max_pause
    if silence is not None and bridge.max_bridge > silence:
        text = f"port.silence is {silence:g} s"
        yield Found("bridge_beyond_silence", "bridge.max_bridge", f"{bridge.max_bridge:g} s", text)
    if silence is not None and wait is not None and silence >= min(wait, most):
        text = f"this time is {silence * rate:.4g} servo periods; a usual value is less than {min(wait, most):g} s"
        yield Found("silence_is_long", "port.silence", f"{silence:g} s", text)
    if wait is not None and wait > most:
        text = f"a usual value is at most {most:g} s, {PAUSES:g} times bridge.max_pause"
        yield Found("wait_is_long", "port.longest_wait", f"{wait:g} s", text)
    tolerance = parameter(port, "start_tolerance")
    for path, axis in seen.axes if tolerance is not None else ():
        jump, most = tolerance * abs(gains_of(axis.rig_axis).command), STEPS * axis.limits.velocity / rate
        if jump > most:
            text = f"this is a jump of {1e3 * jump:.3g} mm, but in {STEPS:g} samples at limits.velocity the axis "
            text += f"moves {1e3 * most:.3g} mm"
            yield Found("start_is_a_jump", f"port.start_tolerance for {path}", f"{tolerance:g}", text)


CHANNELS = (
    *rules(
        _noise,
        noise_covers_range=refused(
            "the `noise_rms` of a sensor must be less than a third of its `range`", "The noise hides the signal"
        ),
        noise_is_large=caution(
            "the `noise_rms` of a sensor should be at most a thirtieth of its `range`",
            "Check the unit of the noise, and whether the value is an rms value",
        ),
    ),
    *rules(
        _scale,
        scale_of_another_unit=refused(
            "`range` / `scale` of a channel must be at least 0.1 and not a power of two divided by "
            "1000, unless `scale` is a power of ten",
            "The `scale` is in a unit 1000 times smaller than `unit`; convert `scale` to `unit`",
        ),
        signal_of_no_converter=caution(
            "`range` / `scale` of a channel should be between 0.1 and 2^24, unless `scale` is 1",
            "No converter has this full scale; check the units of scale and range",
        ),
    ),
    *rules(
        _range,
        range_of_another_unit=refused(
            "the `range` of displacement and force must be less than 500 times the limit `stroke` or `force`",
            "The limit is within the error of the sensor; check the units of range and limit",
            True,
        ),
        range_is_large=caution(
            "the `range` of displacement and force should be at most 100 times the limit `stroke` or `force`",
            "The sensor hardly resolves the limit",
        ),
    ),
    *rules(
        _calibration,
        calibrated_in_future=caution(
            "`calibrated` should not be later than today", "The date or the clock of this computer is wrong"
        ),
        calibrated_long_ago=caution(
            "`calibrated` should be at most one year ago, or ten years ago for a simulated or emulated rig",
            "Sensors are usually calibrated once a year",
        ),
        calibration_expired=caution(
            "`expires` of a channel should not be earlier than today",
            "The certificate of the channel is no longer valid",
        ),
        never_calibrated=caution(
            "`calibrated` of displacement and force should be set",
            "The scale and the sign of this sensor are not certified",
            True,
        ),
    ),
    *rules(
        _correction,
        friction_beyond_force=refused(
            "`corrections.friction` must be less than `limits.force`",
            "The correction exceeds the largest force that may be measured",
        ),
        friction_is_large=caution(
            "`corrections.friction` should be at most 20 % of `limits.force`",
            "The correction is a large part of the measured force",
        ),
        fixture_beyond_force=caution(
            "`corrections.fixture_mass` x `limits.deceleration` should be less than `limits.force`",
            "In a safe stop the inertia of the fixture alone exceeds the force limit",
        ),
    ),
    *rules(
        _rig_axis,
        scale_of_length=caution(
            "`similitude.length` should be between 1/200 and 200", "Specimens of this scale are unusual"
        ),
        scale_of_force=caution(
            "`similitude.force` should be between 1/100 and 100 times `length`^2",
            "With the same material, forces scale with the square of the length",
        ),
        stiffness_hardly_known=caution(
            "`stiffness_known_to` should be at most 0.3",
            "The small move then accepts nearly every specimen and nearly every scale of a sensor",
        ),
    ),
    *rules(
        _rate,
        no_servo_rate=caution(
            "`servo_rate` of the rig file should be set",
            "Without this rate, a scenario with a wrong rate is not refused",
            True,
        ),
        rate_of_another_rig=refused(
            "`servo_rate` must be the `servo_rate` of the rig file",
            "The rig would move at another velocity than commanded",
            True,
        ),
    ),
    *rules(
        _times,
        bridge_beyond_silence=caution(
            "`bridge.max_bridge` should be at most the `silence` of the port",
            "The rig counts as dead before the bridge has ended",
        ),
        silence_is_long=caution(
            "the `silence` of the port should be less than `longest_wait`, and less than 10 times "
            "`bridge.max_pause`",
            "Commands are sent to a dead rig for longer than a rig waits for commands",
        ),
        wait_is_long=caution(
            "the `longest_wait` of the port should be at most 10 times `bridge.max_pause`",
            "The rig waits too long for a test computer that has failed",
        ),
        start_is_a_jump=caution(
            "the `start_tolerance` of the port should be at most the travel of two samples at `limits.velocity`",
            "The first command may be this far from the actuator's position",
        ),
    ),
)
