# SPDX-License-Identifier: Apache-2.0
"""Rules about the limits and levels of an axis and of the complete rig."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from rths_nodes.core import registry
from rths_nodes.core.declarations import drops_heartbeat
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
from rths_nodes.laboratory.force_control import by_controller
from rths_nodes.laboratory.sensors import Sensors
from rths_nodes.loop.scenario.judgement.rule import Found, Seen, caution, parameter, refused, rules
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.scenario.schema import Axis, Scenario
from rths_nodes.loop.supervision.monitor import INDICES

SLACK = 4.0
"""Largest usual ratio of velocity to sqrt(deceleration x stroke). With a ratio of 2 an axis can just stop within
the total stroke."""
SHARPEST = 100.0
"""Deceleration that is plausible for every rig, whatever its velocity, m/s^2."""
HARDEST = 1e4
"""Deceleration that no actuator exceeds, about a thousand times gravity, m/s^2."""
NEAR = 0.98
"""Largest usual ratio of a limit to the range of its sensor."""
OVERSHOOT = 1.5
"""Largest usual ratio of measured to commanded velocity, including noise."""
SLIGHT = 0.01
"""Fraction of the velocity limit that any useful motion reaches."""
SIGMAS = 6.0
"""Number of standard deviations of the noise that one sample in 500 million exceeds."""
ERRORS = (("tracking_error", "stroke", "m", "displacement"), ("force_error", "force", "N", "force"))
"""Error, the limit that bounds it, unit, and the sensor of the limit."""
WEAKER = "level_of_rig_is_weaker"


def _bounds(level: Level) -> Iterator[tuple[str, float]]:
    return ((key, value) for key in ("minimum", "maximum") if (value := getattr(level, key)) is not None)


def _axis(seen: Seen) -> Iterator[Found]:
    for path, axis in seen.axes:
        limits, rate = axis.limits, seen.scenario.servo_rate
        velocity, braking = limits.velocity, limits.deceleration
        most, way = SLACK * math.sqrt(braking * limits.stroke), 0.5 * velocity**2 / braking
        if velocity > most:
            text = f"the braking distance at {braking:g} m/s^2 is {way:.4g} m, but the stroke is +- "
            text += f"{limits.stroke:g} m; a usual value is at most {most:.3g} m/s"
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
            text = (
                "no test has shown that the rig holds this axis by itself if commands are missing or a limit is "
            )
            key_path = f"{path}.force_control.closed_by"
            yield Found("force_loop_not_commissioned", key_path, "controller", text + "exceeded")


def _levels(seen: Seen) -> Iterator[tuple[str, Axis, str, Level]]:
    for path, axis in seen.axes:
        for name, level in (axis.limits.levels.in_effect() if axis.limits.levels else {}).items():
            yield f"{path}.limits.levels.{name}", axis, name, level


def _level(seen: Seen) -> Iterator[Found]:
    port = seen.scenario.port
    component = registry.class_of("port", port) if port.has_heartbeat is None else None
    for path, axis, name, level in _levels(seen):
        if QUANTITIES[name].limit and level.action == INDICATE and list(_bounds(level)):
            yield Found("level_only_told", f"{path}.action", "'indicate'", "the usual action is hold or stop")
        time = level.persistence / seen.scenario.servo_rate
        gone, stroke = time * axis.limits.velocity, 2.0 * axis.limits.stroke
        if level.persistence > 1 and gone > stroke:
            text = (
                f"in this time, {time:.3g} s, the axis can move {gone:.3g} m, but its total stroke is {stroke:g} m"
            )
            yield Found("level_acts_late", f"{path}.persistence", f"{level.persistence} samples", text)
        if level.action == INTERLOCK and not (port.has_heartbeat or drops_heartbeat(component)):
            text = f"the port {type(port).type_name} has no heartbeat to drop"
            yield Found("interlock_without_heartbeat", f"{path}.action", "'interlock'", text)


def _level_bound(seen: Seen) -> Iterator[Found]:
    rate, rig_file = seen.scenario.servo_rate, seen.scenario.rig_file
    channels = {} if rig_file is None else rig_file.auxiliary
    for path, axis, name, level in _levels(seen):
        quantity, limit = QUANTITIES[name], axis.limits.velocity
        noise, unit = _noise(axis, quantity, rate) if quantity.noise else 0.0, quantity.unit
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


def _noise(axis: Axis, quantity: AxisQuantity, rate: float) -> float:
    sensors: Sensors = axis.sensors
    of_force = quantity.noise == "force"
    rms = sensors.force_noise_rms if of_force else sensors.displacement_noise_rms
    step = sensors.force_resolution if of_force else sensors.displacement_resolution
    if quantity.unit.endswith("/s"):
        return max(SIGMAS * math.sqrt(2.0) * rms, step) * rate
    return max(SIGMAS * rms, step)


def _of_rig(seen: Seen) -> Iterator[Found]:
    scenario, names = seen.scenario, ("bridge_length", "bridged_share")
    length, share = (level and level.maximum for level in (parameter(scenario.levels, name) for name in names))
    most = scenario.bridge.longest(1.0 / scenario.servo_rate)
    if length is not None and length > most:
        text = f"must be <= {most} samples, because bridge.max_bridge = {scenario.bridge.max_bridge:g} s"
        yield Found("bridge_length_beyond_bridge", "levels.bridge_length.maximum", f"{length:g} samples", text)
    if share is not None and share >= 1.0:
        yield Found("share_of_all", "levels.bridged_share.maximum", f"{share:g}", "must be < 1")


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
            text = f"must not be weaker than in the rig file ({_shown(name, rig)})"
            now = f", but is {_shown(name, level)}" if level else ""
            yield Found(WEAKER, f"{path}.{name}", "" if level else "left out", text + now)


def _shown(name: str, level: Level) -> str:
    values = [f"{key} = {show(value, unit_of_level(name, level))}" for key, value in _bounds(level)]
    values += [f"persistence = {counted(level.persistence, 'sample')}", f"action = {level.action}"]
    values += [f"{key} = {value}" for key in ("channel", "of") if (value := parameter(level, key))]
    return ", ".join(values)


def _weaker_level(seen: Seen) -> Iterator[Found]:
    for path, axis in seen.axes:
        rig = None if axis.rig_axis is None else axis.rig_axis.limits
        present = axis.limits.levels.in_effect() if axis.limits.levels else {}
        if rig is not None and rig.levels is not None:
            yield from _weaker(f"{path}.limits.levels", present, rig.levels.in_effect())


def weaker_than_rig(scenario: Scenario, rig: RigFile, levels: WholeLevels | None) -> Iterator[Found]:
    if levels is not None:
        present = scenario.levels.in_effect(False, scenario.servo_rate)
        yield from _weaker("levels", present, {name: level for name in WHOLE if (level := getattr(levels, name))})
        yield from _weaker("levels.expressions", present, levels.expressions)
        for name, quantity in levels.quantities.items():
            if scenario.levels.quantities.get(name) != quantity:
                yield Found(WEAKER, f"levels.quantities.{name}", "", "must be as in the rig file")
    bounds: list[tuple[str, object, object, str]] = [("bridge", rig.bridge, scenario.bridge, "max_bridge")]
    bounds += [("monitor", rig.monitor, scenario.monitor, key) for key in INDICES]
    for path, stated, now, key in bounds:
        most, value = (None if part is None else getattr(part, key) for part in (stated, now))
        if most is not None and (value is None or value > most):
            unit = declared(type(now))[key].unit
            shown = "left out" if value is None else show(value, unit)
            yield Found(
                WEAKER, f"{path}.{key}", shown, f"must be <= {show(most, unit)}, the value of the rig file"
            )


LIMITS = (
    *rules(
        _axis,
        velocity_beyond_stroke=caution(
            "`limits.velocity` should be at most 4 sqrt(`deceleration` x `stroke`)",
            "The limit of the stroke always acts first",
        ),
        stop_of_no_actuator=refused(
            "`limits.deceleration` must be at most 10 000 m/s^2",
            "No actuator brakes this fast, so that the distance reserved for braking is too short",
        ),
        stop_in_one_sample=caution(
            "`limits.deceleration` should be at most `velocity` x `servo_rate` or 100 m/s^2, whichever is larger",
            "No actuator follows this change of velocity in a safe stop",
        ),
        tracking_error_beyond_stroke=refused(
            "`limits.tracking_error` must be at most `stroke`",
            "An axis with such an error does not follow its target",
        ),
        force_error_beyond_force=refused(
            "`limits.force_error` must be at most `force`", "A load with such an error is not controlled"
        ),
        limit_at_end_of_sensor=caution(
            "`limits.stroke` and `limits.force` should be at most 98 % of the `range` of their sensors",
            "A saturated sensor shows no larger value, so that the limit may never act",
        ),
    ),
    *rules(
        _level,
        level_only_told=caution(
            "a level of force, displacement or tracking error should have an action",
            "The level only reports; use warn_minimum and warn_maximum for reports",
        ),
        level_acts_late=caution(
            "the travel in `persistence` samples at `limits.velocity` should be at most the total stroke",
            "The axis can exceed its stroke before the level acts",
        ),
        interlock_without_heartbeat=caution(
            "`action: interlock` should be used only if the port has a heartbeat",
            "Without a heartbeat, 'interlock' has the effect of 'stop'",
        ),
    ),
    *rules(
        _level_bound,
        level_broken_at_rest=refused(
            "a level of a rate, step or error must have `minimum` <= 0 and `maximum` >= 0",
            "The quantity is zero at rest, so that the level would act at rest",
        ),
        level_broken_without_load=caution(
            "a level of force or displacement should have `minimum` <= 0 and `maximum` >= 0",
            "The level acts at once if an untared sensor reads zero",
        ),
        level_within_noise=caution(
            "a level should exceed the noise (6 times its rms value) and the resolution of the quantity",
            "The level acts on noise",
        ),
        piston_velocity_beside_limit=caution(
            "`levels.piston_velocity` should be between 1 % and 150 % of `limits.velocity`",
            "A lower level acts in every motion, and a higher level never acts",
        ),
        command_step_beyond_velocity=refused(
            "`levels.command_step` must be at most `limits.velocity` / `servo_rate`",
            "The limit of the velocity stops the test before a larger level acts",
        ),
        disagreement_beyond_sensor=refused(
            "a level of disagreement must be at most the `range` of the second sensor",
            "The second sensor cannot show larger values",
        ),
    ),
    *rules(
        _of_rig,
        bridge_length_beyond_bridge=refused(
            "`levels.bridge_length.maximum` must be at most `bridge.max_bridge`",
            "The test trips before a larger level acts",
        ),
        share_of_all=refused("`levels.bridged_share.maximum` must be less than 1", "A share never exceeds 1"),
    ),
    *rules(
        _force_axis,
        error_not_bounded=refused(
            "`limits.tracking_error` must be set, or `limits.force_error` if the mode of the axis is force",
            "A real rig needs a limit for the difference between measurement and target",
            True,
        ),
        led_beyond_force_error=refused(
            "`force_control.largest_correction` x the stiffness of its law must be at most `limits.force_error`",
            "A drifting load cell could move the axis further",
            True,
        ),
        force_loop_not_commissioned=caution(
            "a test should show that the controller can switch from its force loop to displacement",
            "The command rths commission does not test force loops",
            True,
        ),
    ),
    *rules(
        _weaker_level,
        level_of_rig_is_weaker=refused(
            "`limits.levels` must contain every acting level of the rig file, with bounds at most as wide "
            "and `persistence` at most as long",
            "A test can only narrow the limits of its rig",
            True,
        ),
    ),
)
