# SPDX-License-Identifier: Apache-2.0
"""Rules about a rig: limits and levels of an axis and of the complete rig, channels, servo rate and port."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import date, timedelta

from rths_nodes.core import registry
from rths_nodes.core.errors import counted, show
from rths_nodes.core.limits import (
    ACTIONS,
    INDICATE,
    INTERLOCK,
    QUANTITIES,
    WHOLE,
    AxisQuantity,
    Level,
    WholeLevels,
    unit_of_level,
)
from rths_nodes.core.parameters import declared
from rths_nodes.core.protocols import drops_heartbeat
from rths_nodes.laboratory.calibration import Channel, gains_of
from rths_nodes.laboratory.force_control import by_controller
from rths_nodes.laboratory.sensors import Sensors
from rths_nodes.loop.scenario.judgement.rule import Found, Seen, caution, parameter, refused, rules
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.scenario.schema import Axis, Scenario
from rths_nodes.loop.supervision.monitor import INDICES

SLACK = 4.0
"""Largest usual ratio of velocity to sqrt(deceleration x stroke). An axis with a ratio of 2 can just stop within
the total stroke."""
SHARPEST = 100.0
"""Largest deceleration that is plausible for every rig at any velocity, m/s^2."""
HARDEST = 1e4
"""Deceleration that no actuator exceeds, m/s^2."""
NEAR = 0.98
"""Largest usual ratio of a limit to the range of its sensor."""
OVERSHOOT = 1.5
"""Largest usual ratio of measured to commanded velocity, including noise."""
SLIGHT = 0.01
"""Fraction of the velocity limit that every useful motion reaches."""
SIGMAS = 6.0
"""Bound on noise, in standard deviations. One sample in 500 million exceeds it."""
ERRORS = (("tracking_error", "stroke", "m", "displacement"), ("force_error", "force", "N", "force"))
"""Rows: limit of an error, limit that it must not exceed, unit of both, sensor of the second limit."""
WEAKER = "level_of_rig_is_weaker"


def _bounds(level: Level) -> Iterator[tuple[str, float]]:
    return ((key, value) for key in ("minimum", "maximum") if (value := getattr(level, key)) is not None)


@rules(
    velocity_beyond_stroke=caution(
        "`limits.velocity` should be at most 4 sqrt(`deceleration` x `stroke`)",
        "The stroke limit always acts before such a velocity limit",
    ),
    stop_of_no_actuator=refused(
        "`limits.deceleration` must be at most 10 000 m/s^2",
        "No actuator brakes this fast, so the distance reserved for braking is too short",
    ),
    stop_in_one_sample=caution(
        "`limits.deceleration` should be at most `velocity` x `servo_rate` or 100 m/s^2, whichever is larger",
        "No actuator can follow this change of velocity in a safe stop",
    ),
    tracking_error_beyond_stroke=refused(
        "`limits.tracking_error` must be at most `stroke`",
        "An axis with such an error does not follow its target",
    ),
    force_error_beyond_force=refused(
        "`limits.force_error` must be at most `force`", "A force with such an error is not controlled"
    ),
    limit_at_end_of_sensor=caution(
        "`limits.stroke` and `limits.force` should be at most 98 % of the `range` of their sensors",
        "A sensor cannot show values beyond its range, so the limit may never act",
    ),
)
def _axis(seen: Seen) -> Iterator[Found]:
    for path, axis in seen.axes:
        limits, rate = axis.limits, seen.scenario.servo_rate
        velocity, braking = limits.velocity, limits.deceleration
        most, way = SLACK * math.sqrt(braking * limits.stroke), 0.5 * velocity**2 / braking
        if velocity > most:
            text = f"the braking distance at {braking:g} m/s^2 is {way:.4g} m, but the stroke is +- "
            text += f"{limits.stroke:g} m; typical values are at most {most:.3g} m/s"
            yield Found("velocity_beyond_stroke", f"{path}.limits.velocity", f"{velocity:g} m/s", text)
        key_path, value = f"{path}.limits.deceleration", f"{braking:g} m/s^2"
        if braking > HARDEST:
            yield Found("stop_of_no_actuator", key_path, value, f"must be <= {HARDEST:g} m/s^2")
        elif braking > max(SHARPEST, velocity * rate):
            text = f"a motion at {velocity:g} m/s stops within one sample of {1e3 / rate:.3g} ms"
            yield Found("stop_in_one_sample", key_path, value, text)
        for key, limit, unit, channel in ERRORS:
            error, bound = getattr(limits, key), getattr(limits, limit)
            if error is not None and error > bound:
                text = f"must be <= {bound:g} {unit}, the value of limits.{limit}"
                yield Found(f"{key}_beyond_{limit}", f"{path}.limits.{key}", f"{error:g} {unit}", text)
            end = getattr(axis.sensors, f"{channel}_range")
            if end is not None and bound > NEAR * end:
                text = f"the range of the {channel} sensor ends at {end:g} {unit}; a usual limit is at most"
                text += f" {NEAR * end:.4g} {unit}"
                yield Found("limit_at_end_of_sensor", f"{path}.limits.{limit}", f"{bound:g} {unit}", text)


def _levels(seen: Seen) -> Iterator[tuple[str, Axis, str, Level]]:
    for path, axis in seen.axes:
        for name, level in (axis.limits.levels.in_effect() if axis.limits.levels else {}).items():
            yield f"{path}.limits.levels.{name}", axis, name, level


@rules(
    level_only_told=caution(
        "a level of force, displacement or tracking error should have an action",
        "This level has no effect except a report; use warn_minimum and warn_maximum for reports",
    ),
    level_acts_late=caution(
        "the travel in `persistence` samples at `limits.velocity` should be at most the total stroke",
        "The axis can exceed its stroke before the level acts",
    ),
    interlock_without_heartbeat=caution(
        "`action: interlock` should be used only if the port has a heartbeat",
        "Without a heartbeat, 'interlock' has the effect of 'stop'",
    ),
)
def _level(seen: Seen) -> Iterator[Found]:
    port = seen.scenario.port
    component = registry.class_of("port", port) if port.has_heartbeat is None else None
    for path, axis, name, level in _levels(seen):
        if QUANTITIES[name].limit and level.action == INDICATE and list(_bounds(level)):
            yield Found("level_only_told", f"{path}.action", "'indicate'", "the usual action is hold or stop")
        time = level.persistence / seen.scenario.servo_rate
        gone, stroke = time * axis.limits.velocity, 2.0 * axis.limits.stroke
        if level.persistence > 1 and gone > stroke:
            text = f"in this time, {time:.3g} s, the axis can move {gone:.3g} m; its total stroke is {stroke:g} m"
            yield Found("level_acts_late", f"{path}.persistence", f"{level.persistence} samples", text)
        if level.action == INTERLOCK and not (port.has_heartbeat or drops_heartbeat(component)):
            text = f"the port {type(port).type_name} has no heartbeat to drop"
            yield Found("interlock_without_heartbeat", f"{path}.action", "'interlock'", text)


@rules(
    level_broken_at_rest=refused(
        "a level of a rate, step or error must have `minimum` <= 0 and `maximum` >= 0",
        "The quantity is zero at rest, so the level would act without any motion",
    ),
    level_broken_without_load=caution(
        "a level of force or displacement should have `minimum` <= 0 and `maximum` >= 0",
        "The level acts at once if an untared sensor reads zero",
    ),
    level_within_noise=caution(
        "a level should exceed the noise (6 times its rms value) and the resolution of the quantity",
        "Noise alone triggers the level",
    ),
    piston_velocity_beside_limit=caution(
        "`levels.piston_velocity` should be between 1 % and 150 % of `limits.velocity`",
        "A lower level acts in every motion, and a higher level never acts",
    ),
    command_step_beyond_velocity=refused(
        "`levels.command_step` must be at most `limits.velocity` / `servo_rate`",
        "The velocity limit stops the test before a larger level acts",
    ),
    disagreement_beyond_sensor=refused(
        "a level of disagreement must be at most the `range` of the second sensor",
        "The second sensor cannot show larger values",
    ),
)
def _level_bound(seen: Seen) -> Iterator[Found]:
    rate, rig_file = seen.scenario.servo_rate, seen.scenario.rig_file
    channels = {} if rig_file is None else rig_file.auxiliary
    for path, axis, name, level in _levels(seen):
        quantity, limit = QUANTITIES[name], axis.limits.velocity
        noise, unit = _noise_of(axis.sensors, quantity, rate) if quantity.noise else 0.0, quantity.unit
        channel = parameter(level, "channel")
        end = channels[channel].range_si if channel in channels else math.inf
        for key, value in _bounds(level):
            key_path, shown, size = f"{path}.{key}", f"{value:g} {unit}", abs(value)
            if (value > 0.0) == (key == "minimum") and value:
                rule = "level_broken_without_load" if quantity.at_rest else "level_broken_at_rest"
                yield Found(rule, key_path, shown, f"must be {'<' if key == 'minimum' else '>'}= 0")
            if size < noise and value:
                text = f"noise and resolution alone reach {noise:.3g} {unit}"
                yield Found("level_within_noise", key_path, shown, text)
            if name == "piston_velocity" and not SLIGHT * limit <= size <= OVERSHOOT * limit:
                text = f"limits.velocity is {limit:g} m/s; the usual range is {SLIGHT * limit:g} to"
                text += f" {OVERSHOOT * limit:g} m/s"
                yield Found("piston_velocity_beside_limit", key_path, shown, text)
            if name == "command_step" and size > limit / rate:
                text = f"must be within +- {limit / rate:.4g} m"
                yield Found("command_step_beyond_velocity", key_path, shown, text)
            if size > end:
                text = f"must be within +- {end:g} {unit}, the range of {channel}"
                yield Found("disagreement_beyond_sensor", key_path, shown, text)


def _noise_of(sensors: Sensors, quantity: AxisQuantity, rate: float) -> float:
    rms: float = getattr(sensors, f"{quantity.noise}_noise_rms")
    step: float = getattr(sensors, f"{quantity.noise}_resolution")
    if quantity.unit.endswith("/s"):
        return max(SIGMAS * math.sqrt(2.0) * rms, step) * rate
    return max(SIGMAS * rms, step)


@rules(
    bridge_length_beyond_bridge=refused(
        "`levels.bridge_length.maximum` must be at most `bridge.max_bridge`",
        "The test trips before a larger level acts",
    ),
    share_of_all=refused("`levels.bridged_share.maximum` must be less than 1", "A share never exceeds 1"),
)
def _of_rig(seen: Seen) -> Iterator[Found]:
    scenario, names = seen.scenario, ("bridge_length", "bridged_share")
    length, share = (level and level.maximum for level in (parameter(scenario.levels, name) for name in names))
    most = scenario.bridge.longest(1.0 / scenario.servo_rate)
    if length is not None and length > most:
        text = f"must be <= {most} samples, because bridge.max_bridge = {scenario.bridge.max_bridge:g} s"
        yield Found("bridge_length_beyond_bridge", "levels.bridge_length.maximum", f"{length:g} samples", text)
    if share is not None and share >= 1.0:
        yield Found("share_of_all", "levels.bridged_share.maximum", f"{share:g}", "must be < 1")


@rules(
    error_not_bounded=refused(
        "`limits.tracking_error` must be set, or `limits.force_error` if the mode of the axis is force",
        "A real rig requires a limit for the difference between measurement and target",
        True,
    ),
    led_beyond_force_error=refused(
        "`force_control.largest_correction` x the stiffness of its law must be at most `limits.force_error`",
        "A drifting load cell could move the axis further",
        True,
    ),
    force_loop_not_commissioned=caution(
        "a trial should show that the controller can switch from its force loop to displacement control",
        "rths commission does not test force loops",
        True,
    ),
)
def _force_axis(seen: Seen) -> Iterator[Found]:
    head = seen.scenario.rig_file
    for path, axis in seen.axes:
        key, unit = ("force_error", "N") if axis.limits.of_force else ("tracking_error", "m")
        bound = getattr(axis.limits, key)
        if bound is None:
            name = path if axis.rig_axis is None else f"axes.{axis.rig_axis.name}"
            where = "" if head is None else f" of the rig file {head.name}"
            yield Found("error_not_bounded", f"{name}.limits.{key}{where}", "", f"missing [{unit}]")
        if axis.force_control is None:
            continue
        far, stiffness = axis.force_control.largest_correction, axis.force_control.law.stiffness
        if axis.limits.of_force and bound is not None and stiffness is not None and far * stiffness > bound:
            text = f"must be <= {bound / stiffness:g} m, because this correction changes the force by"
            text += f" {far * stiffness:g} N and limits.force_error = {bound:g} N"
            key_path = f"{path}.force_control.largest_correction"
            yield Found("led_beyond_force_error", key_path, f"{far:g} m", text)
        if by_controller(axis):
            text = "no test has shown that the rig holds this axis by itself if commands are missing or a limit "
            text += "is exceeded"
            key_path = f"{path}.force_control.closed_by"
            yield Found("force_loop_not_commissioned", key_path, "controller", text)


def _is_weaker(level: Level | None, rig: Level) -> bool:
    return (
        level is None
        or (rig.maximum is not None and (level.maximum is None or level.maximum > rig.maximum))
        or (rig.minimum is not None and (level.minimum is None or level.minimum < rig.minimum))
        or level.persistence > rig.persistence
        or ACTIONS.index(level.action) < ACTIONS.index(rig.action)
        or any(parameter(level, key) != parameter(rig, key) for key in ("channel", "of", "unit"))
    )


def _weaker(path: str, levels: Mapping[str, Level], of_rig: Mapping[str, Level]) -> Iterator[Found]:
    for name, rig in of_rig.items():
        level = levels.get(name)
        if rig.acts and _is_weaker(level, rig):
            text = f"must not be weaker than on its rig ({_shown(name, rig)})"
            now = f", but is {_shown(name, level)}" if level else ""
            yield Found(WEAKER, f"{path}.{name}", "" if level else "left out", text + now)


def _shown(name: str, level: Level) -> str:
    values = [f"{key} = {show(value, unit_of_level(name, level))}" for key, value in _bounds(level)]
    values += [f"persistence = {counted(level.persistence, 'sample')}", f"action = {level.action}"]
    values += [f"{key} = {value}" for key in ("channel", "of") if (value := parameter(level, key))]
    return ", ".join(values)


@rules(
    level_of_rig_is_weaker=refused(
        "`limits.levels` must contain every acting level of the rig file, without wider bounds or a "
        "longer `persistence`",
        "A test can only narrow the limits of its rig",
        True,
    ),
)
def _weaker_level(seen: Seen) -> Iterator[Found]:
    for path, axis, rig in seen.rig_axes:
        present = axis.limits.levels.in_effect() if axis.limits.levels else {}
        if rig.limits is not None and rig.limits.levels is not None:
            yield from _weaker(f"{path}.limits.levels", present, rig.limits.levels.in_effect())


def weaker_than_rig(
    scenario: Scenario, rig: RigFile | Scenario, levels: WholeLevels, energy: object
) -> Iterator[Found]:
    present, stated = (part.in_effect(False, scenario.servo_rate) for part in (scenario.levels, levels))
    yield from _weaker("levels", present, {name: stated[name] for name in WHOLE if name in stated})
    yield from _weaker("levels.expressions", present, levels.expressions)
    for name, quantity in levels.quantities.items():
        if scenario.levels.quantities.get(name) != quantity:
            yield Found(WEAKER, f"levels.quantities.{name}", "", "must equal the quantity of its rig")
    bounds: list[tuple[str, object, object, str]] = [("bridge", rig.bridge, scenario.bridge, "max_bridge")]
    keys = (*INDICES, "reference_energy", "smallest_amplitude", "stuck_displacement")  # larger values are weaker
    bounds += [("monitor", rig.monitor, scenario.monitor, key) for key in keys]
    for path, before, now, key in bounds:
        most, value = (None if part is None else getattr(part, key) for part in (before, now))
        if most is not None and (value is None or value > most):
            unit = declared(type(now))[key].unit
            shown = "left out" if value is None else show(value, unit)
            text = f"must be <= {show(most, unit)}, the value of its rig"
            yield Found(WEAKER, f"{path}.{key}", shown, text)
    divisor, of_rig = scenario.monitor.reference_energy, rig.monitor
    if of_rig is None or of_rig.energy_error_percent is None or of_rig.reference_energy is not None:
        return
    if divisor != energy:
        text = "must not be changed, because the rig limits energy_error_percent"
        yield Found(WEAKER, "monitor.reference_energy", show(divisor, "J"), text)


PAUSES = 10.0
"""Largest usual ratio of a timeout to the longest pause."""
STEPS = 2.0
"""Largest usual jump of the first command, divided by the travel per sample at the velocity limit."""

COVERED, NOISY = 1.0 / 3.0, 1.0 / 30.0
"""Ratios of rms noise to range: noise is doubtful above ``NOISY``, and refused at or above ``COVERED``."""
SMALLEST_SIGNAL, LARGEST_SIGNAL = 0.1, 2.0**24
"""Bounds of a channel's reading at full scale, in volts, milliamperes, or counts of up to 24 bits."""
THOUSAND = 1000.0
"""Factor between units that are easily confused, such as N and kN, or mm and m."""
BITS = range(15, 25)
"""Usual resolutions of converters, bits. A full scale of 2^bits / 1000 (e.g. 32.768) indicates a wrong unit."""
EXACT = 1e-3
OVERSIZED, LOST = 100.0, 500.0
"""Ratios of a sensor's range to the monitored limit: doubtful above ``OVERSIZED``, refused at ``LOST`` or more."""
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
    for path, _, rig_axis in seen.rig_axes:
        for noun in ("displacement", "force", "command"):
            yield f"{path}.rig_axis.{noun}", noun, getattr(rig_axis, noun)
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


@rules(
    noise_covers_range=refused(
        "the `noise_rms` of a sensor must be less than a third of its `range`", "The noise hides the signal"
    ),
    noise_is_large=caution(
        "the `noise_rms` of a sensor should be at most a thirtieth of its `range`",
        "Check the unit of the noise, and whether the value is an rms value",
    ),
)
def _noise(seen: Seen) -> Iterator[Found]:
    for path, noise, end, unit in _noises(seen):
        shown = f"{noise:g} {unit}"
        if noise >= COVERED * end:
            text = f"must be < {COVERED * end:.4g} {unit}, a third of the range"
            yield Found("noise_covers_range", path, shown, text)
        elif noise > NOISY * end:
            text = f"the noise is {noise / end:.0%} of the range of {end:g} {unit}"
            yield Found("noise_is_large", path, shown, text)


def _of_other_unit(number: float) -> bool:
    counts = THOUSAND * number
    return number < SMALLEST_SIGNAL or any(abs(counts / 2.0**bits - 1.0) < EXACT for bits in BITS)


@rules(
    scale_of_another_unit=refused(
        "`range` / `scale` of a channel must be at least 0.1 and not a power of two divided by "
        "1000, unless `scale` is a power of ten",
        "The `scale` is in a unit 1000 times smaller than `unit`; convert `scale` to `unit`",
    ),
    signal_of_no_converter=caution(
        "`range` / `scale` of a channel should be between 0.1 and 2^24, unless `scale` is 1",
        "No converter has this full scale; check the units of scale and range",
    ),
)
def _scale(seen: Seen) -> Iterator[Found]:
    for path, _, channel in _channels(seen):
        number, unit = channel.range / channel.scale, channel.unit
        key_path, shown = f"{path}.scale", f"{channel.scale:g} {unit}"
        power_of_ten = abs(math.remainder(math.log10(channel.scale), 1.0)) < EXACT
        if not power_of_ten and _of_other_unit(number):
            text = f"must be {channel.scale / THOUSAND:g} {unit}, because no converter reaches the range of "
            text += f"{channel.range:g} {unit} at {number:.4g} (V, mA or counts)"
            yield Found("scale_of_another_unit", key_path, shown, text)
        elif channel.scale != 1.0 and not SMALLEST_SIGNAL <= number <= LARGEST_SIGNAL:
            text = f"the range of {channel.range:g} {unit} corresponds to {number:.3g} at the port (V, mA or "
            text += "counts)"
            yield Found("signal_of_no_converter", key_path, shown, text)


@rules(
    range_of_another_unit=refused(
        "the `range` of displacement and force must be less than 500 times the limit `stroke` or `force`",
        "The limit is smaller than the error of the sensor; check the units of range and limit",
        True,
    ),
    range_is_large=caution(
        "the `range` of displacement and force should be at most 100 times the limit `stroke` or `force`",
        "The sensor is too coarse for the limit",
    ),
)
def _range(seen: Seen) -> Iterator[Found]:
    for path, axis, rig_axis in seen.rig_axes:
        for noun, key, unit in (("displacement", "stroke", "m"), ("force", "force", "N")):
            channel, limit = getattr(rig_axis, noun), getattr(axis.limits, key)
            ratio, key_path = channel.range_si / limit, f"{path}.rig_axis.{noun}.range"
            text = f"the range is {channel.range_si:g} {unit}, {ratio:.3g} times limits.{key} = {limit:g} {unit}"
            for name, most in (("range_of_another_unit", ratio >= LOST), ("range_is_large", ratio > OVERSIZED)):
                if most:
                    yield Found(name, key_path, f"{channel.range:g} {channel.unit}", text)


@rules(
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
)
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


@rules(
    friction_beyond_force=refused(
        "`corrections.friction` must be less than `limits.force`",
        "The correction exceeds the largest permitted force",
    ),
    friction_is_large=caution(
        "`corrections.friction` should be at most 20 % of `limits.force`",
        "The correction is a large part of the measured force",
    ),
    fixture_beyond_force=caution(
        "`corrections.fixture_mass` x `limits.deceleration` should be less than `limits.force`",
        "In a safe stop, the inertial force of the fixture alone exceeds the force limit",
    ),
)
def _correction(seen: Seen) -> Iterator[Found]:
    for path, axis, rig_axis in seen.rig_axes:
        if rig_axis.corrections is None:
            continue
        force, braking, mass = axis.limits.force, axis.limits.deceleration, rig_axis.corrections.fixture_mass
        friction, key_path = rig_axis.corrections.friction, f"{path}.rig_axis.corrections"
        if friction is not None and friction > LARGE_FRICTION * force:
            rule = "friction_beyond_force" if friction >= force else "friction_is_large"
            yield Found(rule, f"{key_path}.friction", f"{friction:g} N", f"limits.force is {force:g} N")
        if mass is not None and mass * braking >= force:
            text = f"the inertial force at limits.deceleration = {braking:g} m/s^2 is {mass * braking:.4g} N, but "
            text += f"limits.force is {force:g} N"
            yield Found("fixture_beyond_force", f"{key_path}.fixture_mass", f"{mass:g} kg", text)


@rules(
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
)
def _rig_axis(seen: Seen) -> Iterator[Found]:
    for path, _, rig_axis in seen.rig_axes:
        length, force = rig_axis.similitude.length, rig_axis.similitude.force
        low, high = length**2 / OFF_FORCE, length**2 * OFF_FORCE
        if not 1.0 / LARGEST_LENGTH <= length <= LARGEST_LENGTH:
            text = f"the usual range is 1/{LARGEST_LENGTH:g} to {LARGEST_LENGTH:g}"
            yield Found("scale_of_length", f"{path}.rig_axis.similitude.length", f"{length:g}", text)
        if not low <= force <= high:
            text = f"the usual range is {low:g} to {high:g}"
            yield Found("scale_of_force", f"{path}.rig_axis.similitude.force", f"{force:g}", text)
        accuracy, key_path = rig_axis.stiffness_known_to, f"{path}.rig_axis.stiffness_known_to"
        if accuracy is not None and accuracy > HARDLY_KNOWN:
            text = f"typical values are at most {HARDLY_KNOWN:g}"
            yield Found("stiffness_hardly_known", key_path, f"{accuracy:g}", text)


@rules(
    no_servo_rate=caution(
        "`servo_rate` of the rig file should be set",
        "If it is missing, a scenario with a wrong rate is not refused",
        True,
    ),
    rate_of_another_rig=refused(
        "`servo_rate` must be the `servo_rate` of the rig file",
        "With another rate, the rig would move at a wrong velocity",
        True,
    ),
)
def _rate(seen: Seen) -> Iterator[Found]:
    head, rate = seen.scenario.rig_file, seen.scenario.servo_rate
    if head is not None and head.servo_rate is None:
        yield Found("no_servo_rate", f"servo_rate of the rig file {head.name}", "", "missing [Hz]")
    elif head is not None and head.servo_rate != rate:
        text = f"must be {head.servo_rate:g} Hz, the rate of the controller of the rig {head.name}"
        yield Found("rate_of_another_rig", "servo_rate", f"{rate:g} Hz", text)


@rules(
    bridge_beyond_silence=caution(
        "`bridge.max_bridge` should be at most the `silence` of the port",
        "With a longer bridge, the rig counts as lost before bridging ends",
    ),
    silence_is_long=caution(
        "the `silence` of the port should be less than `longest_wait`, and less than 10 times `bridge.max_pause`",
        "With a longer time, Commands are still sent to a rig that has failed",
    ),
    wait_is_long=caution(
        "the `longest_wait` of the port should be at most 10 times `bridge.max_pause`",
        "With a longer time, the rig waits too long for a test computer that has failed",
    ),
    start_is_a_jump=caution(
        "the `start_tolerance` of the port should be at most the travel of two samples at `limits.velocity`",
        "The first command may be this far from the actuator's position",
    ),
)
def _times(seen: Seen) -> Iterator[Found]:
    port, bridge, rate = seen.scenario.port, seen.scenario.bridge, seen.scenario.servo_rate
    silence, wait, most = parameter(port, "silence"), parameter(port, "longest_wait"), PAUSES * bridge.max_pause
    if silence is not None and bridge.max_bridge > silence:
        text = f"port.silence is {silence:g} s"
        yield Found("bridge_beyond_silence", "bridge.max_bridge", f"{bridge.max_bridge:g} s", text)
    if silence is not None and wait is not None and silence >= min(wait, most):
        text = (
            f"this time is {silence * rate:.4g} servo periods; typical values are less than {min(wait, most):g} s"
        )
        yield Found("silence_is_long", "port.silence", f"{silence:g} s", text)
    if wait is not None and wait > most:
        text = f"typical values are at most {most:g} s, {PAUSES:g} times bridge.max_pause"
        yield Found("wait_is_long", "port.longest_wait", f"{wait:g} s", text)
    tolerance = parameter(port, "start_tolerance")
    for path, axis in seen.axes if tolerance is not None else ():
        jump, most = tolerance * abs(gains_of(axis.rig_axis).command), STEPS * axis.limits.velocity / rate
        if jump > most:
            text = f"this is a jump of {1e3 * jump:.3g} mm, but in {STEPS:g} samples at limits.velocity the axis "
            text += f"moves {1e3 * most:.3g} mm"
            yield Found("start_is_a_jump", f"port.start_tolerance for {path}", f"{tolerance:g}", text)
