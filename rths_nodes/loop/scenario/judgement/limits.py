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
    Disagreement,
    Level,
    WholeLevels,
    unit_of_level,
)
from rths_nodes.core.parameters import declared
from rths_nodes.laboratory.force_control import by_controller
from rths_nodes.laboratory.sensors import Sensors
from rths_nodes.loop.scenario.judgement.rule import CAUTION, REFUSED, Found, Seen, parameter, rule, rules_in
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.scenario.schema import Axis, Scenario

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
BOUNDS = ("energy_error_percent", "tracking_indicator_rate", "tracking_indicator_rate_over_amplitude")


def _levels(seen: Seen) -> Iterator[tuple[str, Axis, str, Level]]:
    for path, axis in seen.axes:
        for name, level in (axis.limits.levels.in_effect() if axis.limits.levels else {}).items():
            yield f"{path}.limits.levels.{name}", axis, name, level


def _bounds(level: Level) -> Iterator[tuple[str, float]]:
    return ((key, value) for key in ("minimum", "maximum") if (value := getattr(level, key)) is not None)


@rule(
    CAUTION,
    "`limits.velocity` should be at most 4 sqrt(`deceleration` x `stroke`)",
    "The limit of the stroke always acts first",
)
def velocity_beyond_stroke(seen: Seen) -> Iterator[Found]:
    for path, axis in seen.axes:
        limits = axis.limits
        most = SLACK * math.sqrt(limits.deceleration * limits.stroke)
        if limits.velocity > most:
            way = 0.5 * limits.velocity**2 / limits.deceleration
            yield Found(
                f"{path}.limits.velocity",
                f"{limits.velocity:g} m/s",
                f"the braking distance at {limits.deceleration:g} m/s^2 is {way:.4g} m, but the stroke is +- "
                f"{limits.stroke:g} m; a usual value is at most {most:.3g} m/s",
            )


@rule(
    REFUSED,
    "`limits.deceleration` must be at most 10 000 m/s^2",
    "No actuator brakes this fast, so that the distance reserved for braking is too short",
)
def stop_of_no_actuator(seen: Seen) -> Iterator[Found]:
    for path, axis in seen.axes:
        if axis.limits.deceleration > HARDEST:
            value = f"{axis.limits.deceleration:g} m/s^2"
            yield Found(f"{path}.limits.deceleration", value, f"must be <= {HARDEST:g} m/s^2")


@rule(
    CAUTION,
    "`limits.deceleration` should be at most `velocity` x `servo_rate` or 100 m/s^2, whichever is larger",
    "No actuator follows this change of velocity in a safe stop",
)
def stop_in_one_sample(seen: Seen) -> Iterator[Found]:
    for path, axis in seen.axes:
        limits, rate = axis.limits, seen.scenario.servo_rate
        if max(SHARPEST, limits.velocity * rate) < limits.deceleration <= HARDEST:
            yield Found(
                f"{path}.limits.deceleration",
                f"{limits.deceleration:g} m/s^2",
                f"a motion at {limits.velocity:g} m/s stops within one sample of {1e3 / rate:.3g} ms",
            )


def _errors(seen: Seen, key: str, limit: str, unit: str) -> Iterator[Found]:
    for path, axis in seen.axes:
        value, most = getattr(axis.limits, key), getattr(axis.limits, limit)
        if value is not None and value > most:
            text = f"must be <= {most:g} {unit}, the value of limits.{limit}"
            yield Found(f"{path}.limits.{key}", f"{value:g} {unit}", text)


@rule(
    REFUSED,
    "`limits.tracking_error` must be at most `stroke`",
    "An axis with such an error does not follow its target",
)
def tracking_error_beyond_stroke(seen: Seen) -> Iterator[Found]:
    return _errors(seen, "tracking_error", "stroke", "m")


@rule(
    REFUSED,
    "`limits.force_error` must be at most `force`",
    "A load with such an error is not controlled",
)
def force_error_beyond_force(seen: Seen) -> Iterator[Found]:
    return _errors(seen, "force_error", "force", "N")


def _ranges(seen: Seen) -> Iterator[tuple[str, str, float, float, str]]:
    for path, axis in seen.axes:
        for key, channel, unit in (("stroke", "displacement", "m"), ("force", "force", "N")):
            end = getattr(axis.sensors, f"{channel}_range")
            if end is not None:
                yield f"{path}.limits.{key}", channel, getattr(axis.limits, key), end, unit


@rule(
    CAUTION,
    "`limits.stroke` and `limits.force` should be at most 98 % of the `range` of their sensors",
    "A saturated sensor shows no larger value, so that the limit may never act",
)
def limit_at_end_of_sensor(seen: Seen) -> Iterator[Found]:
    for path, channel, limit, end, unit in _ranges(seen):
        if limit > NEAR * end:
            yield Found(
                path,
                f"{limit:g} {unit}",
                f"the range of the {channel} sensor ends at {end:g} {unit}; a usual limit is at most "
                f"{NEAR * end:.4g} {unit}",
            )


def _broken(seen: Seen) -> Iterator[tuple[str, Found]]:
    for path, _, name, level in _levels(seen):
        for key, value in _bounds(level):
            if (value > 0.0) == (key == "minimum") and value:
                text = f"must be {'<' if key == 'minimum' else '>'}= 0"
                yield name, Found(f"{path}.{key}", f"{value:g} {QUANTITIES[name].unit}", text)


@rule(
    REFUSED,
    "a level of a rate, step or error must have `minimum` <= 0 and `maximum` >= 0",
    "The quantity is zero at rest, so that the level would act at rest",
)
def level_broken_at_rest(seen: Seen) -> Iterator[Found]:
    return (finding for name, finding in _broken(seen) if not QUANTITIES[name].at_rest)


@rule(
    CAUTION,
    "a level of force or displacement should have `minimum` <= 0 and `maximum` >= 0",
    "The level acts at once if an untared sensor reads zero",
)
def level_broken_without_load(seen: Seen) -> Iterator[Found]:
    return (finding for name, finding in _broken(seen) if QUANTITIES[name].at_rest)


@rule(
    CAUTION,
    "a level of force, displacement or tracking error should have an action",
    "The level only reports; use warn_minimum and warn_maximum for reports",
)
def level_only_told(seen: Seen) -> Iterator[Found]:
    for path, _, name, level in _levels(seen):
        if QUANTITIES[name].limit and level.action == INDICATE and list(_bounds(level)):
            yield Found(f"{path}.action", "'indicate'", "the usual action is hold or stop")


@rule(
    CAUTION,
    "the travel in `persistence` samples at `limits.velocity` should be at most the total stroke",
    "The axis can exceed its stroke before the level acts",
)
def level_acts_late(seen: Seen) -> Iterator[Found]:
    for path, axis, _, level in _levels(seen):
        time = level.persistence / seen.scenario.servo_rate
        gone, stroke = time * axis.limits.velocity, 2.0 * axis.limits.stroke
        if level.persistence > 1 and gone > stroke:
            yield Found(
                f"{path}.persistence",
                f"{level.persistence} samples",
                f"in this time, {time:.3g} s, the axis can move {gone:.3g} m, but its total stroke is {stroke:g} "
                "m",
            )


def _noise(axis: Axis, quantity: AxisQuantity, rate: float) -> float:
    sensors: Sensors = axis.sensors
    of_force = quantity.noise == "force"
    rms = sensors.force_noise_rms if of_force else sensors.displacement_noise_rms
    step = sensors.force_resolution if of_force else sensors.displacement_resolution
    if quantity.unit.endswith("/s"):
        return max(SIGMAS * math.sqrt(2.0) * rms, step) * rate
    return max(SIGMAS * rms, step)


@rule(
    CAUTION,
    "a level should exceed the noise (6 times its rms value) and the resolution of the quantity",
    "The level acts on noise",
)
def level_within_noise(seen: Seen) -> Iterator[Found]:
    for path, axis, name, level in _levels(seen):
        quantity = QUANTITIES[name]
        noise, unit = _noise(axis, quantity, seen.scenario.servo_rate), quantity.unit
        for key, value in _bounds(level) if quantity.noise else ():
            if abs(value) < noise and value:
                yield Found(
                    f"{path}.{key}", f"{value:g} {unit}", f"noise and resolution alone reach {noise:.3g} {unit}"
                )


@rule(
    CAUTION,
    "`levels.piston_velocity` should be between 1 % and 150 % of `limits.velocity`",
    "A lower level acts in every motion, and a higher level never acts",
)
def piston_velocity_beside_limit(seen: Seen) -> Iterator[Found]:
    for path, axis, name, level in _levels(seen):
        limit = axis.limits.velocity
        for key, value in _bounds(level):
            if name == "piston_velocity" and not SLIGHT * limit <= abs(value) <= OVERSHOOT * limit:
                yield Found(
                    f"{path}.{key}",
                    f"{value:g} m/s",
                    f"limits.velocity is {limit:g} m/s; the usual range is {SLIGHT * limit:g} to "
                    f"{OVERSHOOT * limit:g} m/s",
                )


@rule(
    REFUSED,
    "`levels.command_step` must be at most `limits.velocity` / `servo_rate`",
    "The limit of the velocity stops the test before a larger level acts",
)
def command_step_beyond_velocity(seen: Seen) -> Iterator[Found]:
    for path, axis, name, level in _levels(seen):
        most = axis.limits.velocity / seen.scenario.servo_rate
        for key, value in _bounds(level):
            if name == "command_step" and abs(value) > most:
                yield Found(f"{path}.{key}", f"{value:g} m", f"must be within +- {most:.4g} m")


@rule(
    REFUSED,
    "`levels.bridge_length.maximum` must be at most `bridge.max_bridge`",
    "The test trips before a larger level acts",
)
def bridge_length_beyond_bridge(seen: Seen) -> Iterator[Found]:
    scenario = seen.scenario
    level, most = parameter(scenario.levels, "bridge_length"), scenario.bridge.longest(1.0 / scenario.servo_rate)
    if level is not None and level.maximum is not None and level.maximum > most:
        text = f"must be <= {most} samples, because bridge.max_bridge = {scenario.bridge.max_bridge:g} s"
        yield Found("levels.bridge_length.maximum", f"{level.maximum:g} samples", text)


@rule(REFUSED, "`levels.bridged_share.maximum` must be less than 1", "A share never exceeds 1")
def share_of_all(seen: Seen) -> Iterator[Found]:
    level = parameter(seen.scenario.levels, "bridged_share")
    if level is not None and level.maximum is not None and level.maximum >= 1.0:
        yield Found("levels.bridged_share.maximum", f"{level.maximum:g}", "must be < 1")


@rule(
    REFUSED,
    "a level of disagreement must be at most the `range` of the second sensor",
    "The second sensor cannot show larger values",
)
def disagreement_beyond_sensor(seen: Seen) -> Iterator[Found]:
    accuracy = seen.scenario.rig_file.auxiliary if seen.scenario.rig_file is not None else {}
    for path, _, name, level in _levels(seen):
        if not isinstance(level, Disagreement) or level.channel not in accuracy:
            continue
        end, unit = accuracy[level.channel].range_si, QUANTITIES[name].unit
        for key, value in _bounds(level):
            if abs(value) > end:
                text = f"must be within +- {end:g} {unit}, the range of {level.channel}"
                yield Found(f"{path}.{key}", f"{value:g} {unit}", text)


@rule(
    CAUTION,
    "`action: interlock` should be used only if the port has a heartbeat",
    "Without a heartbeat, 'interlock' has the effect of 'stop'",
)
def interlock_without_heartbeat(seen: Seen) -> Iterator[Found]:
    port = seen.scenario.port
    component = registry.class_of("port", port) if port.has_heartbeat is None else None
    if port.has_heartbeat or drops_heartbeat(component):
        return
    for path, _, _, level in _levels(seen):
        if level.action == INTERLOCK:
            yield Found(
                f"{path}.action", "'interlock'", f"the port {type(port).type_name} has no heartbeat to drop"
            )


@rule(
    REFUSED,
    "`limits.tracking_error` must be set, or `limits.force_error` if the mode of the axis is force",
    "A real rig needs a limit for the difference between measurement and target",
    real=True,
)
def error_not_bounded(seen: Seen) -> Iterator[Found]:
    head = seen.scenario.rig_file
    for name, axis in seen.scenario.axes.items():
        key, unit = ("force_error", "N") if axis.limits.of_force else ("tracking_error", "m")
        if getattr(axis.limits, key) is None:
            component = name if axis.rig_axis is None else axis.rig_axis.name
            where = "" if head is None else f" of the rig file {head.name}"
            yield Found(f"axes.{component}.limits.{key}{where}", "", f"missing [{unit}]")


@rule(
    REFUSED,
    "`force_control.largest_correction` x the stiffness of its law must be at most `limits.force_error`",
    "A drifting load cell could move the axis further",
    real=True,
)
def led_beyond_force_error(seen: Seen) -> Iterator[Found]:
    for path, axis in seen.axes:
        if axis.force_control is None or not axis.limits.of_force or axis.limits.force_error is None:
            continue
        far, bound = axis.force_control.largest_correction, axis.limits.force_error
        stiffness = axis.force_control.law.stiffness
        if stiffness is not None and far * stiffness > bound:
            yield Found(
                f"{path}.force_control.largest_correction",
                f"{far:g} m",
                f"must be <= {bound / stiffness:g} m, because this correction changes the force by "
                f"{far * stiffness:g} N and limits.force_error = {bound:g} N",
            )


@rule(
    CAUTION,
    "a test should show that the controller can switch from its force loop to displacement",
    "The command rths commission does not test force loops",
    real=True,
)
def force_loop_not_commissioned(seen: Seen) -> Iterator[Found]:
    for path, axis in seen.axes:
        if by_controller(axis):
            yield Found(
                f"{path}.force_control.closed_by",
                "controller",
                "no test has shown that the rig holds this axis by itself if commands are missing or a limit is "
                "exceeded",
            )


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
            yield Found(f"{path}.{name}", "" if level else "left out", text + now)


def _shown(name: str, level: Level) -> str:
    values = [f"{key} = {show(value, unit_of_level(name, level))}" for key, value in _bounds(level)]
    values += [f"persistence = {counted(level.persistence, 'sample')}", f"action = {level.action}"]
    values += [f"{key} = {value}" for key in ("channel", "of") if (value := parameter(level, key))]
    return ", ".join(values)


@rule(
    REFUSED,
    "`limits.levels` must contain every acting level of the rig file, with bounds at most as wide and "
    "`persistence` at most as long",
    "A test can only narrow the limits of its rig",
    real=True,
)
def level_of_rig_is_weaker(seen: Seen) -> Iterator[Found]:
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
                yield Found(f"levels.quantities.{name}", "", "must be as in the rig file")
    bounds: list[tuple[str, object, object, str]] = [("bridge", rig.bridge, scenario.bridge, "max_bridge")]
    bounds += [("monitor", rig.monitor, scenario.monitor, key) for key in BOUNDS]
    for path, stated, now, key in bounds:
        most, value = (None if part is None else getattr(part, key) for part in (stated, now))
        if most is not None and (value is None or value > most):
            unit = declared(type(now))[key].unit
            shown = "left out" if value is None else show(value, unit)
            yield Found(f"{path}.{key}", shown, f"must be <= {show(most, unit)}, the value of the rig file")


LIMITS = rules_in(globals())
