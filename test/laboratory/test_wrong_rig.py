# SPDX-License-Identifier: Apache-2.0
"""A simulated rig that is wrong as real ones are: each thing by its closed form, and all of them together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from bare_port import Bare
from doubts import doubts
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import mentions, naming
from scipy.integrate import trapezoid

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import (
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
from rths_nodes.laboratory.ports.simulator import Simulator
from rths_nodes.laboratory.ports.wrappers import NamedPort
from rths_nodes.loop.scenario import files
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
names = [f"{each['type']}{len(each) - 1}" for each in ACTUATORS]


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
    """One tick, with a command for each axis."""
    sample = port.wait_tick()
    port.write(Command(sample, np.array(position), np.array(position)))
    return port.read()


def hold(port: Simulator, *position: float, seconds: float = 1.0) -> Measurement:
    for _ in range(round(seconds / DT)):
        measured = move(port, *position)
    return measured


# -- sensors


@pytest.mark.parametrize("scale", [1.0, -1.0, 1.1])
def test_scale_and_offset_are_seen_in_the_measurement_and_not_in_the_truth(scale: float) -> None:
    sensors = {f"{channel}_scale": scale for channel in ("displacement", "force")}
    port = rig({"a": axis(sensors=sensors | {"displacement_offset": 2e-3, "force_offset": 500.0})})
    assert (port.read().displacement[0], port.read().force[0]) == (2e-3, 500.0)
    measured, true = move(port, 0.01), port.truth()
    assert (true.displacement[0], true.force[0]) == (0.01, 0.01 * STIFFNESS)
    assert measured.displacement[0] == pytest.approx(scale * 0.01 + 2e-3)
    assert measured.force[0] == pytest.approx(scale * 0.01 * STIFFNESS + 500.0)


def test_a_drift_goes_on_with_time_from_the_first_sample() -> None:
    port = rig({"a": axis(sensors={"displacement_drift": 1e-3, "force_drift": -20.0})})
    assert (port.read().displacement[0], port.read().force[0]) == (0.0, 0.0)
    measured = hold(port, 0.0, seconds=2.0)
    assert measured.displacement[0] == pytest.approx(2e-3)
    assert measured.force[0] == pytest.approx(-40.0)
    port.open()
    assert port.read().displacement[0] == 0.0


def test_a_dead_sensor_shows_its_number_without_noise_and_leaves_the_other_its_own() -> None:
    noise = {"displacement_noise_rms": 1e-5, "force_noise_rms": 10.0}
    alive, dead = rig({"a": axis(sensors=noise)}), rig({"a": axis(sensors=noise | {"force_dead": -3.0})})
    for command in (0.01, -0.02, 0.005):
        one, other = move(alive, command), move(dead, command)
        assert other.force[0] == -3.0
        assert other.displacement[0] == one.displacement[0] != command


def test_swapped_sensors_show_each_other() -> None:
    sensors = {"displacement_offset": 1e-3}
    axes = {"a": axis(sensors=sensors | {"cabled_to": "b"}), "b": axis(sensors={"cabled_to": "a"})}
    port = rig(axes)
    measured = move(port, 0.01, -0.03)
    assert measured.displacement.tolist() == [-0.03 + 1e-3, 0.01]
    assert measured.force.tolist() == [-0.03 * STIFFNESS, 0.01 * STIFFNESS]
    assert port.truth().displacement.tolist() == [0.01, -0.03]


def test_swapped_cables_of_the_commands_drive_each_other() -> None:
    port = rig({"a": axis(output={"cabled_to": "b"}), "b": axis(output={"cabled_to": "a", "offset": 1e-3})})
    move(port, 0.01, -0.03)
    assert port.truth().displacement.tolist() == [-0.03 + 1e-3, 0.01]
    assert port.active_command.tolist() == [0.01, -0.03]


def test_a_second_sensor_is_a_channel_with_errors_of_its_own() -> None:
    port = rig(
        {"a": axis(), "b": axis(sensors={"second": {"offset": 1e-3, "scale": 0.9}, "displacement_scale": 2.0})}
    )
    assert port.auxiliary_names == ("second_displacement_b [m]",)
    assert rig({"a": axis(sensors={"second": {"channel": "lvdt"}})}).auxiliary_names == ("lvdt [m]",)
    measured = move(port, 0.0, 0.01)
    assert measured.auxiliary.tolist() == pytest.approx([0.9 * 0.01 + 1e-3])
    assert port.truth().auxiliary.tolist() == [0.01]
    assert measured.displacement[1] == 0.02


# -- the way of the command


@pytest.mark.parametrize("actuator", ACTUATORS, ids=names)
def test_a_proportional_loop_rests_short_by_force_over_gain(actuator: dict[str, Any]) -> None:
    gain = 2e7
    port = rig({"a": axis(actuator=actuator, output={"static_stiffness": gain})})
    for command in (0.02, -0.01):
        measured = hold(port, command, seconds=1.5)
        assert command - measured.displacement[0] == pytest.approx(measured.force[0] / gain, rel=1e-6)
        assert measured.displacement[0] == pytest.approx(command / (1.0 + STIFFNESS / gain), rel=1e-6)


def test_scale_and_offset_of_the_command_move_the_actuator_and_not_the_active_command() -> None:
    port = rig({"a": axis(output={"scale": -1.05, "offset": 2e-3})})
    assert port.active_command[0] == pytest.approx(2e-3 / 1.05)
    assert port.truth().displacement[0] == 0.0
    measured = move(port, 0.01)
    assert measured.command[0] == port.active_command[0] == 0.01
    assert port.truth().displacement[0] == pytest.approx(-1.05 * 0.01 + 2e-3)


@pytest.mark.parametrize("actuator", ACTUATORS, ids=names)
def test_a_rig_may_stand_elsewhere_at_the_start(actuator: dict[str, Any]) -> None:
    """At rest, under the force that belongs to it; the first command that changes nothing moves nothing."""
    port = rig({"a": axis(actuator=actuator, output={"start": 0.02, "offset": -5e-3})}, transport_samples=2)
    first = port.read()
    assert (first.sample, first.command[0], port.active_command[0]) == (0, 0.02, 0.02)
    assert first.displacement[0] == pytest.approx(0.015, rel=1e-6)
    assert first.force[0] == pytest.approx(0.015 * STIFFNESS, rel=1e-6)
    later = hold(port, 0.02, seconds=0.5)
    assert later.displacement[0] == pytest.approx(first.displacement[0], rel=1e-6)


def test_a_test_whose_first_command_is_elsewhere_than_the_active_one_trips_at_once() -> None:
    run = hosts.run("chen_ricles_2010", ["axes.story_1.output.offset=0.005", "duration=0.1"])
    assert run.outcome == "tripped"
    assert run.reason.startswith("sample 1: axes.story_1.limits.velocity: command = 5.12 m/s")


# -- backlash


def wave(port: Simulator, amplitude: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Command (m), true displacement (m) and force (N) of the second cycle of a slow sine."""
    command = amplitude * np.sin(2.0 * np.pi * DT * np.arange(1, 2049))
    seen = [move(port, float(c)) for c in command]
    x, force = (np.array([getattr(each, name)[0] for each in seen]) for name in ("displacement", "force"))
    return command[1024:], x[1024:], force[1024:]


def test_lost_motion_loses_its_width_at_each_reversal() -> None:
    """The hysteresis of play: lines of slope 1, b apart, flat for b behind each corner; of area 2 b (C - b/2)."""
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


@pytest.mark.parametrize("actuator", ACTUATORS, ids=names)
def test_lost_motion_goes_with_every_actuator(actuator: dict[str, Any]) -> None:
    port = rig({"a": axis(actuator=actuator, output={"lost_motion": 2e-3})})
    for command, there in ((0.01, 0.009), (0.0095, 0.009), (0.002, 0.003), (0.0038, 0.003), (0.005, 0.004)):
        assert hold(port, command, seconds=0.8).displacement[0] == pytest.approx(there, rel=1e-6)


@pytest.mark.parametrize("actuator", [*ACTUATORS, {"type": "servo_hydraulic_linear"}], ids=[*names, "linear"])
def test_a_joint_with_play_has_no_force_in_its_gap_with_every_actuator(actuator: dict[str, Any]) -> None:
    width = 2e-3
    joint: dict[str, Any] = {"type": "with_backlash", "width": width, "specimen": SPRING}
    if actuator["type"] == "servo_hydraulic_linear":  # which moves a mass; it stands on its side of the joint
        spring = {"type": "kelvin_voigt", "stiffness": STIFFNESS, "damping": 2e4}
        joint = {"type": "with_mass", "mass": 29.0, "specimen": joint | {"specimen": spring}}
        port = rig({"a": axis(actuator=actuator, specimen=joint)})
        for command in (0.01, -0.01):  # at rest: no inertia
            measured = hold(port, command, seconds=2.0)
            assert measured.force[0] == pytest.approx(
                STIFFNESS * (measured.displacement[0] - math.copysign(0.5 * width, command)), rel=1e-3
            )
        return
    _, x, force = wave(rig({"a": axis(actuator=actuator, specimen=joint)}), 0.01)
    expected = STIFFNESS * (x - np.clip(x, -0.5 * width, 0.5 * width))
    np.testing.assert_allclose(force, expected, atol=1e-6 * STIFFNESS * width)
    assert np.ptp(x[force == 0.0]) == pytest.approx(width, rel=0.1)
    assert force.max() > 0.0 > force.min()


@pytest.mark.parametrize(
    ("held", "words"),
    [({"type": "with_mass", "mass": 1.0}, ("mass",)), ({"type": "maxwell_damper"}, ("inner", "states"))],
)
def test_a_joint_with_play_refuses_what_would_not_spring_back(
    held: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        rig({"a": axis(specimen={"type": "with_backlash", "width": 1e-3, "specimen": held})})


# -- pressure and interlock


def test_without_pressure_nothing_follows_and_with_low_pressure_slowly() -> None:
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


def test_pressure_and_interlock_may_fail_under_way_and_come_back() -> None:
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
    assert (port.interlock, hold(port, 0.03).displacement[0], port.read().interlock) == (
        "",
        0.03,
        INTERLOCK_CLOSED,
    )


@pytest.mark.parametrize(
    ("override", "fault", "reason"),
    [
        ("port.hydraulics=off", "", ("sample 1", "hydraulics")),
        ("port.interlock=open", "", ("sample 1", "interlock")),
        (
            "port.hydraulics=high",
            "hydraulics@0.1:off",
            ("sample 103", "hydraulics"),
        ),
        ("seed=1", "interlock@0.1", ("sample 103", "interlock")),
    ],
)
def test_a_test_without_pressure_or_interlock_trips(override: str, fault: str, reason: tuple[str, ...]) -> None:
    run = hosts.run("chen_ricles_2010", [override, "duration=0.3"], faults=[fault] if fault else [])
    assert run.outcome == "tripped"
    assert mentions(run.reason, *reason)


def test_the_heartbeat_goes_on_with_commands_only() -> None:
    port = rig()
    assert port.heartbeat == 0
    port.wait_tick()
    assert port.heartbeat == 0
    port.write(Command(1, np.zeros(1), np.zeros(1)))
    assert port.heartbeat == 1
    assert port.control_mode == bytes([MODE_DISPLACEMENT])


# -- a wrong sign in the loop


@pytest.mark.parametrize("wrong", ["output.scale", "sensors.force_scale", "sensors.displacement_scale"])
def test_a_wrong_sign_makes_the_loop_unstable_and_trips(wrong: str) -> None:
    """A dashpot whose force, or whose motion, has the wrong sign drives the frame in place of damping it."""
    run = hosts.run("chen_ricles_2010", [f"axes.story_1.{wrong}=-1", "duration=5"])
    assert run.outcome == "tripped"
    assert "axes.story_1" in run.reason


# -- what is refused


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"output": {"scale": 0.0}}, ("axes.a.output.scale", "0")),
        ({"sensors": {"force_scale": 0}}, ("axes.a.sensors.force_scale", "0")),
        ({"sensors": {"second": {"scale": 0}}}, ("axes.a.sensors.second.scale", "0")),
        ({"output": {"static_stiffness": 0.0}}, ("axes.a.output.static_stiffness", "0 N/m", "> 0")),
        ({"output": {"start": 200.0}}, ("axes.a.output.start", "200 m", ">= -100", "<= 100")),
        ({"specimen": {"type": "with_backlash", "width": 0}}, ("axes.a.specimen.width", "0 m", "> 0")),
    ],
)
def test_what_no_rig_can_be_is_refused(data: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refused:
        axis(**data)
    assert mentions(str(refused.value), *words)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("axes.north.output.cabled_to=axis_9", ("axes.north.output.cabled_to", "axis_9", "unknown")),
        ("axes.north.sensors.cabled_to=2", ("axes.north.sensors.cabled_to",)),
        (
            "axes.north.output.cabled_to=south",
            ("axes.north.output.cabled_to", "south", "axes.south"),
        ),
        ("port.hydraulics=on", ("port.hydraulics", "unknown", "on", "high", "low", "off")),
        ("port.interlock=1", ("port.interlock",)),
    ],
)
def test_a_cable_to_nowhere_and_an_unknown_pressure_are_refused(override: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refused:
        hosts.run("two_actuator_coupler", [override, "duration=0.1"])
    assert mentions(str(refused.value), *words)


def test_what_is_wrong_on_purpose_is_told() -> None:
    words = ["axes.story_1.sensors.force_scale=-1", "axes.story_1.output={start: 0.0, lost_motion: 1.0e-4}"]
    told = doubts(files.load("chen_ricles_2010", words))
    assert mentions(told, "axes.story_1.sensors", "force_scale")
    assert mentions(told, "axes.story_1.output", "lost_motion")
    assert not any("on purpose" in words for words in doubts(files.load("chen_ricles_2010")))


def test_nobody_switches_to_an_unknown_pressure() -> None:
    with pytest.raises(ConfigError, match=naming("hydraulics", "unknown", "pressure", "on", "high", "low", "off")):
        rig().set_hydraulics("on")


# -- what a port of another package may leave out


class Telling(Bare):
    hydraulics = HYDRAULICS_LOW
    build = "3f"

    @property
    def active_command(self) -> list[float]:
        return [0.5]

    @property
    def heartbeat(self) -> int:
        raise OSError("the line is dead")


def test_a_port_may_leave_out_what_it_cannot_read_back() -> None:
    bare, telling = NamedPort(Bare(), "bare"), NamedPort(Telling(), "telling")
    assert (bare.active_command, bare.heartbeat) == (None, None)
    assert (bare.hydraulics, bare.control_mode, bare.build) == (HYDRAULICS_NOT_TOLD, b"", "")
    assert telling.active_command is not None
    assert (telling.active_command.tolist(), telling.hydraulics) == ([0.5], HYDRAULICS_LOW)
    assert telling.build == "3f"
    with pytest.raises(Exception, match=naming("telling", "heartbeat")):
        _ = telling.heartbeat


# -- everything together

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
def test_any_wrong_rig_gives_numbers_and_the_same_ones_again(
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
        name: axis(actuator=actuator, specimen=specimen, sensors=mine, output=output | cable)
        for name, mine, output, cable in zip("ab", sensors, outputs, cables, strict=True)
    }
    found = rig(axes, **port)

    def driven() -> np.ndarray:
        rows = []
        for k in range(64):
            for at, what in switches:
                if at == k and what in ("open", "closed"):
                    found.set_interlock(what == "closed")
                elif at == k:
                    found.set_hydraulics(what)
            command = 0.01 * math.sin(0.1 * k)
            measured, true = move(found, command, -command), found.truth()
            assert found.heartbeat == k + 1
            arrays = (measured.displacement, measured.force, measured.command, measured.auxiliary, true.force)
            rows.append(np.concatenate([*arrays, [measured.hydraulics, measured.interlock, measured.flags]]))
        return np.array(rows)

    first = driven()
    assert np.isfinite(first).all()
    found.open()
    np.testing.assert_array_equal(driven(), first)
