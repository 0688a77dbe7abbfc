# SPDX-License-Identifier: Apache-2.0
"""Tests of the simulator: ticks, transport delay, channels, and simulated faults of a rig."""

from __future__ import annotations

import math
import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import loop_parts
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import doubts, mentions, naming
from programs import completed
from scipy.integrate import trapezoid

import rths_nodes
import rths_nodes.app.hosts
from rths_nodes.app import hosts
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import (
    EMPTY,
    FLAG_SATURATED,
    FLAG_SLIPPED,
    HYDRAULICS_HIGH,
    HYDRAULICS_LOW,
    HYDRAULICS_NOT_TOLD,
    HYDRAULICS_OFF,
    INTERLOCK_CLOSED,
    INTERLOCK_OPEN,
    MODE_DISPLACEMENT,
    Command,
    Measurement,
)
from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.ports.simulator import SeparateAxes, Simulator
from rths_nodes.laboratory.ports.watchdog import Watchdog
from rths_nodes.laboratory.ports.wrappers import NamedPort
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Axis

DT = 1.0 / 1024.0
STIFFNESS = 1e6
SPRING = {"type": "kelvin_voigt", "stiffness": STIFFNESS, "damping": 0.0}
ACTUATORS = (
    {"type": "pure_delay"},
    {"type": "pure_delay", "delay": 0.01},
    {"type": "first_order", "alpha": 10.0},
    {"type": "second_order"},
    {"type": "amplitude_dependent"},
    {"type": "servo_hydraulic"},
)
every_actuator = pytest.mark.parametrize(
    "actuator", ACTUATORS, ids=[f"{data['type']}{len(data) - 1}" for data in ACTUATORS]
)


def axis(**data: Any) -> Axis:
    rig = {
        "actuator": {"type": "pure_delay"},
        "specimen": SPRING,
        "limits": {"stroke": 1.0, "velocity": 1.0, "force": 1e6},
    }
    return from_data(Axis, rig | data, "axes.a")


def rig(axes: dict[str, Axis] | None = None, **data: Any) -> Simulator:
    port = Simulator(from_data(Simulator.Params, data, "port"), axes or {"a": axis()}, DT, 1)
    port.open()
    return port


def move(port: Simulator, *position: float) -> Measurement:
    """Return the sample of one tick with a command for each axis."""
    sample = port.wait_tick()
    port.write(Command(sample, np.array(position), np.array(position)))
    return port.read()


def hold(port: Simulator, *position: float, seconds: float = 1.0) -> Measurement:
    for _ in range(round(seconds / DT)):
        measured = move(port, *position)
    return measured


# Ticks, transport and channels


def lagging(**data: Any) -> Axis:
    """An axis whose actuator follows a third of each step."""
    spring = {"type": "kelvin_voigt", "stiffness": 10.0, "damping": 0.0}
    return axis(actuator={"type": "first_order", "alpha": 3.0}, specimen=spring, **data)


def drive(port: Simulator, commands: np.ndarray) -> np.ndarray:
    """Measured displacement and force ``(n + 1, 2, n_axes)`` of samples 0 to n."""
    first = port.read()
    samples = [first, *(move(port, *[command] * len(first.displacement)) for command in commands)]
    return np.array([[sample.displacement, sample.force] for sample in samples])


SLOW = {"a": lagging()}
COMMANDS = np.sin(np.arange(40.0))


def test_samples_count_from_zero_and_have_applied_command() -> None:
    port = rig(SLOW)
    assert port.simulated
    first = port.read()
    assert (first.sample, first.displacement[0], first.force[0], first.command[0]) == (0, 0.0, 0.0, 0.0)
    measured = move(port, 0.3)
    assert (measured.sample, measured.command[0]) == (1, 0.3)
    assert (measured.displacement[0], measured.force[0]) == (pytest.approx(0.1), pytest.approx(1.0))


@pytest.mark.parametrize("samples", [1, 2, 7])
def test_commands_act_after_transport_samples(samples: int) -> None:
    immediate, late = drive(rig(SLOW), COMMANDS), drive(rig(SLOW, transport_samples=samples), COMMANDS)
    assert not late[: samples + 1].any()
    np.testing.assert_array_equal(late[samples:], immediate[:-samples])


def test_reopened_port_repeats_its_samples() -> None:
    port = rig({"a": lagging(sensors={"displacement_noise_rms": 1e-3})}, transport_samples=2)
    first = drive(port, COMMANDS)
    port.open()
    np.testing.assert_array_equal(drive(port, COMMANDS), first)


def test_truth_has_no_noise() -> None:
    noisy, clean = rig({"a": lagging(sensors={"force_noise_rms": 1.0})}), rig(SLOW)
    for port in (noisy, clean):
        move(port, 0.3)
    assert noisy.truth().force[0] == clean.read().force[0]
    assert noisy.read().force[0] != clean.read().force[0]


def test_noise_of_axis_is_independent_of_other_axes() -> None:
    noisy = lagging(sensors={"displacement_noise_rms": 1e-3, "force_noise_rms": 1.0})
    alone = drive(rig({"a": noisy}), COMMANDS)
    for axes in ({"a": noisy, "b": noisy}, {"c": lagging(), "b": noisy, "a": noisy}):
        index = list(axes).index("a")
        np.testing.assert_array_equal(drive(rig(axes), COMMANDS)[:, :, index], alone[:, :, 0])


def test_saturated_sensor_flags_samples() -> None:
    port = rig({"a": lagging(sensors={"displacement_range": 0.2})})
    assert [move(port, command).flags for command in (0.3, 2.0, -1.5)] == [0, FLAG_SATURATED, 0]


def test_missed_tick_flags_sample() -> None:
    port = rig(SLOW)
    port.open(iter([0, 2, 0]).__next__)
    assert [move(port, 0.0).flags for _ in range(3)] == [0, FLAG_SLIPPED, 0]
    assert port.sample == 3


@pytest.mark.parametrize("samples", [0, 3])
def test_trigger_acts_with_commands(samples: int) -> None:
    port = rig(SLOW, transport_samples=samples, trigger=True)
    assert port.auxiliary_names == ("trigger [1]",)
    channels = [port.read().auxiliary.tolist()]
    for k in range(1, 12):
        port.trigger.set(4 <= k < 8)
        channels.append(move(port, 0.0).auxiliary.tolist())
    assert channels == [[float(4 <= k - samples < 8)] for k in range(12)]


def test_port_without_trigger_has_no_trigger_channel() -> None:
    port = rig(SLOW)
    port.trigger.set(True)
    assert (port.auxiliary_names, move(port, 0.0).auxiliary.size) == ((), 0)


# Sensor faults


@pytest.mark.parametrize("scale", [1.0, -1.0, 1.1])
def test_sensor_scale_and_offset_change_measurement_only(scale: float) -> None:
    sensors = {f"{channel}_scale": scale for channel in ("displacement", "force")}
    port = rig({"a": axis(sensors=sensors | {"displacement_offset": 2e-3, "force_offset": 500.0})})
    assert (port.read().displacement[0], port.read().force[0]) == (2e-3, 500.0)
    measured, true = move(port, 0.01), port.truth()
    assert (true.displacement[0], true.force[0]) == (0.01, 0.01 * STIFFNESS)
    assert measured.displacement[0] == pytest.approx(scale * 0.01 + 2e-3)
    assert measured.force[0] == pytest.approx(scale * 0.01 * STIFFNESS + 500.0)


def test_sensor_drift_grows_from_first_sample() -> None:
    port = rig({"a": axis(sensors={"displacement_drift": 1e-3, "force_drift": -20.0})})
    assert (port.read().displacement[0], port.read().force[0]) == (0.0, 0.0)
    measured = hold(port, 0.0, seconds=2.0)
    assert (measured.displacement[0], measured.force[0]) == (pytest.approx(2e-3), pytest.approx(-40.0))
    port.open()
    assert port.read().displacement[0] == 0.0


def test_rig_of_separate_axes_has_velocity_of_its_actuator() -> None:
    scenario = files.load("chen_ricles_2010", [])
    rig, (axis,) = SeparateAxes(scenario.axes, scenario.dt), scenario.axes.values()
    actuator = registry.build("actuator", axis.actuator, scenario.dt, registry.build("specimen", axis.specimen))
    for command in (1e-3, 2e-3):
        rig.step(np.array([command]), EMPTY)
        actuator.step(command)
        assert rig.velocity.tolist() == [actuator.velocity] != [0.0]


def test_dead_sensor_leaves_other_sensor_unchanged() -> None:
    noise = {"displacement_noise_rms": 1e-5, "force_noise_rms": 10.0}
    alive, dead = rig({"a": axis(sensors=noise)}), rig({"a": axis(sensors=noise | {"force_dead": -3.0})})
    for command in (0.01, -0.02, 0.005):
        expected, measured = move(alive, command), move(dead, command)
        assert measured.force[0] == -3.0
        assert measured.displacement[0] == expected.displacement[0] != command


def test_swapped_sensors_exchange_readings() -> None:
    sensors = {"displacement_offset": 1e-3}
    axes = {"a": axis(sensors=sensors | {"cabled_to": "b"}), "b": axis(sensors={"cabled_to": "a"})}
    port = rig(axes)
    measured = move(port, 0.01, -0.03)
    assert measured.displacement.tolist() == [-0.03 + 1e-3, 0.01]
    assert measured.force.tolist() == [-0.03 * STIFFNESS, 0.01 * STIFFNESS]
    assert port.truth().displacement.tolist() == [0.01, -0.03]


def test_swapped_outputs_exchange_commands() -> None:
    port = rig({"a": axis(output={"cabled_to": "b"}), "b": axis(output={"cabled_to": "a", "offset": 1e-3})})
    move(port, 0.01, -0.03)
    assert port.truth().displacement.tolist() == [-0.03 + 1e-3, 0.01]
    assert port.active_command.tolist() == [0.01, -0.03]


def test_second_sensor_is_channel_with_own_errors() -> None:
    port = rig(
        {"a": axis(), "b": axis(sensors={"second": {"offset": 1e-3, "scale": 0.9}, "displacement_scale": 2.0})}
    )
    assert port.auxiliary_names == ("second_displacement_b [m]",)
    assert rig({"a": axis(sensors={"second": {"channel": "lvdt"}})}).auxiliary_names == ("lvdt [m]",)
    measured = move(port, 0.0, 0.01)
    assert measured.auxiliary.tolist() == pytest.approx([0.9 * 0.01 + 1e-3])
    assert port.truth().auxiliary.tolist() == [0.01]
    assert measured.displacement[1] == 0.02


# Faults of the output


@every_actuator
def test_proportional_loop_has_steady_error_of_force_over_gain(actuator: dict[str, Any]) -> None:
    gain = 2e7
    port = rig({"a": axis(actuator=actuator, output={"static_stiffness": gain})})
    for command in (0.02, -0.01):
        measured = hold(port, command, seconds=1.5)
        assert command - measured.displacement[0] == pytest.approx(measured.force[0] / gain, rel=1e-6)
        assert measured.displacement[0] == pytest.approx(command / (1.0 + STIFFNESS / gain), rel=1e-6)


def test_output_scale_and_offset_preserve_active_command() -> None:
    port = rig({"a": axis(output={"scale": -1.05, "offset": 2e-3})})
    assert port.active_command[0] == pytest.approx(2e-3 / 1.05)
    assert port.truth().displacement[0] == 0.0
    measured = move(port, 0.01)
    assert measured.command[0] == port.active_command[0] == 0.01
    assert port.truth().displacement[0] == pytest.approx(-1.05 * 0.01 + 2e-3)


@every_actuator
def test_rig_starts_at_rest_at_given_position(actuator: dict[str, Any]) -> None:
    """The specimen is loaded at the start; a first command equal to the position causes no motion."""
    port = rig({"a": axis(actuator=actuator, output={"start": 0.02, "offset": -5e-3})}, transport_samples=2)
    first = port.read()
    assert (first.sample, first.command[0], port.active_command[0]) == (0, 0.02, 0.02)
    assert first.displacement[0] == pytest.approx(0.015, rel=1e-6)
    assert first.force[0] == pytest.approx(0.015 * STIFFNESS, rel=1e-6)
    later = hold(port, 0.02, seconds=0.5)
    assert later.displacement[0] == pytest.approx(first.displacement[0], rel=1e-6)


def test_jump_to_first_command_trips() -> None:
    run = hosts.run("chen_ricles_2010", ["axes.story_1.output.offset=0.005", "duration=0.1"])
    assert run.outcome == "tripped"
    assert run.reason.startswith("sample 1: axes.story_1.limits.velocity: command = 5.12 m/s")


# Backlash


def wave(port: Simulator, amplitude: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Command (m), true displacement (m) and force (N) of the second cycle of a slow sine."""
    command = amplitude * np.sin(2.0 * np.pi * DT * np.arange(1, 2049))
    samples = [move(port, float(c)) for c in command]
    x = np.array([sample.displacement[0] for sample in samples])
    force = np.array([sample.force[0] for sample in samples])
    return command[1024:], x[1024:], force[1024:]


def test_lost_motion_loses_its_width_at_reversal() -> None:
    """Hysteresis: lines of slope 1 at distance b, flat for b after each reversal; area 2 b (C - b/2)."""
    width, amplitude = 2e-3, 0.01
    command, x, force = wave(rig({"a": axis(output={"lost_motion": width})}), amplitude)
    assert x.max() == pytest.approx(amplitude - 0.5 * width)
    assert x.min() == pytest.approx(-amplitude + 0.5 * width)
    falling = slice(256, 768)  # from the crest to the trough
    expected = np.minimum(amplitude - 0.5 * width, command[falling] + 0.5 * width)
    np.testing.assert_allclose(x[falling], expected, atol=1e-6)
    area = abs(trapezoid(x, command) + 0.5 * (x[0] + x[-1]) * (command[0] - command[-1]))
    assert area == pytest.approx(2.0 * width * (amplitude - 0.5 * width), rel=1e-3)
    np.testing.assert_allclose(force, STIFFNESS * x)


@every_actuator
def test_lost_motion_applies_to_all_actuators(actuator: dict[str, Any]) -> None:
    port = rig({"a": axis(actuator=actuator, output={"lost_motion": 2e-3})})
    for command, position in ((0.01, 0.009), (0.0095, 0.009), (0.002, 0.003), (0.0038, 0.003), (0.005, 0.004)):
        assert hold(port, command, seconds=0.8).displacement[0] == pytest.approx(position, rel=1e-6)


def test_backlash_separates_mass_at_rest_from_spring() -> None:
    """The linear servo-hydraulic actuator moves a mass, on its side of the joint."""
    width = 2e-3
    spring = {"type": "kelvin_voigt", "stiffness": STIFFNESS, "damping": 2e4}
    joint = {"type": "with_backlash", "width": width, "specimen": spring}
    specimen = {"type": "with_mass", "mass": 29.0, "specimen": joint}
    port = rig({"a": axis(actuator={"type": "servo_hydraulic_linear"}, specimen=specimen)})
    for command in (0.01, -0.01):
        measured = hold(port, command, seconds=2.0)
        extension = measured.displacement[0] - math.copysign(0.5 * width, command)
        assert measured.force[0] == pytest.approx(STIFFNESS * extension, rel=1e-3)


@every_actuator
def test_backlash_has_no_force_in_gap(actuator: dict[str, Any]) -> None:
    width = 2e-3
    joint = {"type": "with_backlash", "width": width, "specimen": SPRING}
    _, x, force = wave(rig({"a": axis(actuator=actuator, specimen=joint)}), 0.01)
    expected = STIFFNESS * (x - np.clip(x, -0.5 * width, 0.5 * width))
    np.testing.assert_allclose(force, expected, atol=1e-6 * STIFFNESS * width)
    assert np.ptp(x[force == 0.0]) == pytest.approx(width, rel=0.1)
    assert force.max() > 0.0 > force.min()


@pytest.mark.parametrize(
    ("held", "parts"),
    [({"type": "with_mass", "mass": 1.0}, ("mass",)), ({"type": "maxwell_damper"}, ("inner", "states"))],
)
def test_backlash_refuses_specimen_with_mass_or_states(held: dict[str, Any], parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        rig({"a": axis(specimen={"type": "with_backlash", "width": 1e-3, "specimen": held})})


# Pressure and interlock


def test_hydraulic_pressure_limits_velocity() -> None:
    port = rig(hydraulics="off", low_velocity=0.02)
    measured = hold(port, 0.01)
    assert (measured.hydraulics, measured.displacement[0], measured.command[0]) == (HYDRAULICS_OFF, 0.0, 0.01)
    port.set_hydraulics("low")
    measured = hold(port, 0.01, seconds=0.25)
    assert (measured.hydraulics, port.hydraulics) == (HYDRAULICS_LOW, HYDRAULICS_LOW)
    assert measured.displacement[0] == pytest.approx(0.02 * 0.25)
    assert hold(port, 0.01, seconds=0.5).displacement[0] == 0.01
    port.set_hydraulics("high")
    measured = move(port, 0.3)
    assert (measured.hydraulics, measured.displacement[0]) == (HYDRAULICS_HIGH, 0.3)


def test_pressure_and_interlock_fail_and_recover() -> None:
    port = rig(transport_samples=1)
    hold(port, 0.01)
    assert (port.read().hydraulics, port.read().interlock) == (HYDRAULICS_NOT_TOLD, 0)
    port.set_hydraulics("off")
    assert hold(port, 0.02).displacement[0] == 0.01
    port.set_hydraulics("high")
    assert hold(port, 0.02).displacement[0] == 0.02
    port.set_interlock(closed=False)
    measured = hold(port, 0.03)
    assert (measured.interlock, measured.displacement[0]) == (INTERLOCK_OPEN, 0.02)
    assert measured.command[0] == port.active_command[0] == 0.02
    assert mentions(port.interlock, "rig", "interlock")
    port.set_interlock(closed=True)
    assert port.interlock == ""
    assert hold(port, 0.03).displacement[0] == 0.03
    assert port.read().interlock == INTERLOCK_CLOSED


@pytest.mark.parametrize(
    ("override", "fault", "reason"),
    [
        ("port.hydraulics=off", "", ("sample 1", "hydraulics")),
        ("port.interlock=open", "", ("sample 1", "interlock")),
        ("port.hydraulics=high", "hydraulics@0.1:off", ("sample 103", "hydraulics")),
        ("seed=1", "interlock@0.1", ("sample 103", "interlock")),
    ],
)
def test_lost_pressure_or_open_interlock_trips(override: str, fault: str, reason: tuple[str, ...]) -> None:
    run = hosts.run("chen_ricles_2010", [override, "duration=0.3"], faults=[fault] if fault else [])
    assert run.outcome == "tripped"
    assert mentions(run.reason, *reason)


def test_heartbeat_counts_commands() -> None:
    port = rig()
    assert port.heartbeat == 0
    port.wait_tick()
    assert port.heartbeat == 0
    port.write(Command(1, np.zeros(1), np.zeros(1)))
    assert (port.heartbeat, port.control_mode) == (1, bytes([MODE_DISPLACEMENT]))


@pytest.mark.parametrize("factor", ["output.scale", "sensors.force_scale", "sensors.displacement_scale"])
def test_wrong_sign_trips(factor: str) -> None:
    """A dashpot with a wrong sign of force or motion drives the frame instead of damping it."""
    run = hosts.run("chen_ricles_2010", [f"axes.story_1.{factor}=-1", "duration=5"])
    assert run.outcome == "tripped"
    assert "axes.story_1" in run.reason


# Refusals


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        ({"output": {"scale": 0.0}}, ("axes.a.output.scale", "0")),
        ({"sensors": {"force_scale": 0}}, ("axes.a.sensors.force_scale", "0")),
        ({"sensors": {"second": {"scale": 0}}}, ("axes.a.sensors.second.scale", "0")),
        ({"output": {"static_stiffness": 0.0}}, ("axes.a.output.static_stiffness", "0 N/m", "> 0")),
        ({"output": {"start": 200.0}}, ("axes.a.output.start", "200 m", ">= -100", "<= 100")),
        ({"specimen": {"type": "with_backlash", "width": 0}}, ("axes.a.specimen.width", "0 m", "> 0")),
    ],
)
def test_invalid_rig_is_refused(data: dict[str, Any], parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        axis(**data)


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("axes.north.output.cabled_to=axis_9", ("axes.north.output.cabled_to", "axis_9", "unknown")),
        ("axes.north.sensors.cabled_to=2", ("axes.north.sensors.cabled_to",)),
        ("axes.north.output.cabled_to=south", ("axes.north.output.cabled_to", "south", "axes.south")),
        ("port.hydraulics=on", ("port.hydraulics", "unknown", "on", "high", "low", "off")),
        ("port.interlock=1", ("port.interlock",)),
    ],
)
def test_invalid_cable_or_pressure_is_refused(override: str, parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        hosts.run("two_actuator_coupler", [override, "duration=0.1"])


def test_intended_errors_are_reported() -> None:
    faults = ["axes.story_1.sensors.force_scale=-1", "axes.story_1.output={start: 0.0, lost_motion: 1.0e-4}"]
    warnings = doubts(files.load("chen_ricles_2010", faults))
    assert mentions(warnings, "axes.story_1.sensors", "force_scale")
    assert mentions(warnings, "axes.story_1.output", "lost_motion")
    assert not any("on purpose" in warning for warning in doubts(files.load("chen_ricles_2010")))


def test_switch_to_unknown_pressure_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("hydraulics", "unknown", "pressure", "on", "high", "low", "off")):
        rig().set_hydraulics("on")


class PortWithStatus(loop_parts.Bare):
    hydraulics = HYDRAULICS_LOW
    build = "3f"

    @property
    def active_command(self) -> list[float]:
        return [0.5]

    @property
    def heartbeat(self) -> int:
        raise OSError("the line is dead")


def test_port_may_omit_status_readings() -> None:
    bare, full = NamedPort(loop_parts.Bare(), "bare"), NamedPort(PortWithStatus(), "full")
    assert (bare.active_command, bare.heartbeat) == (None, None)
    assert (bare.hydraulics, bare.control_mode, bare.build) == (HYDRAULICS_NOT_TOLD, b"", "")
    assert full.active_command is not None
    assert (full.active_command.tolist(), full.hydraulics) == ([0.5], HYDRAULICS_LOW)
    assert full.build == "3f"
    with pytest.raises(Exception, match=naming("full", "heartbeat")):
        _ = full.heartbeat


# All faults together

SMALL = st.sampled_from([0.0, 1e-6, -1e-4, 5e-3, -5e-3])
SCALE = st.sampled_from([1.0, -1.0, 0.9, 1.1, -1.1])
SENSORS = st.fixed_dictionaries(
    {},
    optional={
        "displacement_offset": SMALL,
        "force_offset": st.sampled_from([1e4, -300.0]),
        "displacement_scale": SCALE,
        "force_scale": SCALE,
        "displacement_drift": SMALL,
        "force_drift": st.sampled_from([100.0, -3.0]),
        "displacement_dead": SMALL,
        "force_dead": st.just(0.0),
        "cabled_to": st.sampled_from(["a", "b"]),
        "second": st.fixed_dictionaries({"noise_rms": st.just(1e-6), "offset": SMALL, "scale": SCALE}),
        "force_delay": st.integers(0, 5),
        "displacement_resolution": st.just(1e-5),
    },
)
OUTPUT = st.fixed_dictionaries(
    {},
    optional={
        "offset": SMALL,
        "scale": SCALE,
        "static_stiffness": st.sampled_from([2.0 * STIFFNESS, 2e7, 1e9]),
        "start": SMALL,
        "lost_motion": st.sampled_from([0.0, 1e-4, 5e-3]),
        "resolution": st.just(1e-5),
    },
)
SWITCH = st.tuples(st.integers(1, 60), st.sampled_from(["off", "low", "high", "open", "closed"]))


@settings(max_examples=25, deadline=None)
@given(
    sensors=st.tuples(SENSORS, SENSORS),
    outputs=st.tuples(OUTPUT, OUTPUT),
    swapped=st.booleans(),
    actuator=st.sampled_from(ACTUATORS),
    width=st.sampled_from([0.0, 1e-4, 2e-3]),
    port=st.fixed_dictionaries(
        {"transport_samples": st.integers(0, 3)},
        optional={
            "hydraulics": st.sampled_from(["off", "low", "high"]),
            "interlock": st.sampled_from(["closed", "open"]),
        },
    ),
    switches=st.lists(SWITCH, max_size=5),
)
def test_faulty_rig_gives_finite_repeatable_samples(
    sensors: tuple[dict[str, Any], ...],
    outputs: tuple[dict[str, Any], ...],
    swapped: bool,
    actuator: dict[str, Any],
    width: float,
    port: dict[str, Any],
    switches: list[tuple[int, str]],
) -> None:
    specimen = {"type": "with_backlash", "width": width, "specimen": SPRING} if width else SPRING
    cables = [{"cabled_to": "b"}, {"cabled_to": "a"}] if swapped else [{}, {}]
    axes = {
        name: axis(actuator=actuator, specimen=specimen, sensors=readings, output=output | cable)
        for name, readings, output, cable in zip("ab", sensors, outputs, cables, strict=True)
    }
    simulator = rig(axes, **port)

    def driven() -> np.ndarray:
        rows = []
        for k in range(64):
            for sample, state in switches:
                if sample == k and state in ("open", "closed"):
                    simulator.set_interlock(state == "closed")
                elif sample == k:
                    simulator.set_hydraulics(state)
            command = 0.01 * math.sin(0.1 * k)
            measured, true = move(simulator, command, -command), simulator.truth()
            assert simulator.heartbeat == k + 1
            arrays = (measured.displacement, measured.force, measured.command, measured.auxiliary, true.force)
            rows.append(np.concatenate([*arrays, [measured.hydraulics, measured.interlock, measured.flags]]))
        return np.array(rows)

    first = driven()
    assert np.isfinite(first).all()
    simulator.open()
    np.testing.assert_array_equal(driven(), first)


# Watchdog of a simulated port: a late, frozen or dead node loses the rig

LIMIT = 0.05


def wait_for(poll: Callable[[], str]) -> str:
    """Poll until there is a reason, or for 20 s."""
    end = time.monotonic() + 20.0
    while not (reason := poll()) and time.monotonic() < end:
        time.sleep(2.0 * LIMIT)
    return reason


@pytest.mark.parametrize("beats", [0, 1])
def test_watchdog_acts_only_between_first_beat_and_end(beats: int, capfd: pytest.CaptureFixture[str]) -> None:
    watchdog = Watchdog(LIMIT)
    time.sleep(3.0 * LIMIT)
    assert all(watchdog.beat() == "" for _ in range(beats))
    watchdog.end()
    assert watchdog._process.returncode == 0
    assert capfd.readouterr().err == ""


def test_late_beat_loses_rig_permanently(capfd: pytest.CaptureFixture[str]) -> None:
    watchdog = Watchdog(LIMIT)
    watchdog.beat()
    reason = wait_for(watchdog.beat)
    assert mentions(reason, "port.watchdog", "port", "0.05 s")
    assert watchdog.beat() == reason
    watchdog.end()
    assert mentions(capfd.readouterr().err, "watchdog", "50 ms")


def test_watchdog_acts_if_nobody_reads_its_report() -> None:
    out, full = os.pipe()
    os.set_blocking(full, False)
    while select.select([], [full], [], 0.0)[1]:
        os.write(full, bytes(4096))
    os.set_blocking(full, True)
    stderr = os.dup(2)
    os.dup2(full, 2)
    try:
        watchdog = Watchdog(LIMIT)
    finally:
        os.dup2(stderr, 2)
    watchdog.beat()
    try:
        assert wait_for(watchdog.beat)
    finally:
        os.read(out, 8192)  # so that the watchdog can also end if it waits
        watchdog.end()
        for end in (out, full, stderr):
            os.close(end)


def test_dead_node_is_detected_immediately() -> None:
    code = """
import os, signal, time
from rths_nodes.laboratory.ports.watchdog import Watchdog
watchdog = Watchdog(10.0)
watchdog.beat()
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    # the watchdog inherits the pipe: the call returns when it has ended
    run = completed([sys.executable, "-c", code], timeout=9.0, env=environment)
    assert mentions(run.stderr, "watchdog", "node")


def test_late_port_holds_position_and_reports_reason() -> None:
    port = Assembly(files.load("chen_ricles_2010", [f"port.watchdog={LIMIT}"])).port
    port.arm_watchdog()
    port.wait_tick()
    port.write(loop_parts.command(1, 1e-4))
    assert port.interlock == ""
    time.sleep(10.0 * LIMIT)

    def tick() -> str:
        port.wait_tick()
        port.write(loop_parts.command(port.sample, 5e-4))
        return str(port.interlock)

    assert "port.watchdog" in wait_for(tick)
    held = port.read().command.copy()
    tick()
    assert np.array_equal(port.read().command, held)
    port.close()


@pytest.mark.nodes(ros=True)
def test_frozen_actuator_node_trips(tmp_path: Path, patience: list[str]) -> None:
    report = rths_nodes.app.hosts.run(
        "chen_ricles_2010",
        ["port.watchdog=0.05", "duration=1.5", *patience],
        host="processes",
        pace="realtime",
        record=tmp_path / "run",
        keep=False,
        faults=["freeze@0.5:actuator,0.3"],
    )
    assert (report.outcome, report.exit_code) == ("tripped", 3)
    assert mentions(report.reason, "port.watchdog", "port", "0.05 s")
    run = rths_nodes.read(tmp_path / "run")
    assert len(run.time) < 550, "continued after the freeze"


def test_watchdog_is_off_by_default() -> None:
    port = Assembly(files.load("chen_ricles_2010")).port
    port.arm_watchdog()
    port.write(loop_parts.command(1, 1e-4))
    assert (port.interlock, port._watchdog) == ("", None)


def test_watchdog_does_not_act_in_lockstep() -> None:
    report = rths_nodes.run("chen_ricles_2010", ["port.watchdog=0.05", "duration=1"])
    assert report.outcome == "finished"


def test_watchdog_shorter_than_two_commands_is_refused() -> None:
    loaded = files.load("chen_ricles_2010", ["port.watchdog=0.05", "servo_rate=10", "substeps=1"])
    with pytest.raises(ConfigError, match=naming("port.watchdog", "0.05 s", ">= 0.2 s")):
        _ = Assembly(loaded).port
