# SPDX-License-Identifier: Apache-2.0
"""Tests of the port ros2_control against a stand-in process that follows the published conventions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from loop_parts import make
from messages import mentions, naming

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_SLIPPED, FLAG_TRIPPED, Command, Measurement
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.ros.ports import controller_link
from rths_nodes.ros.ports.controller_link import check_joint_types

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = ROOT / "examples" / "ros2_control" / "stand_in.py"
RATE = 100.0
STIFFNESS = 1e5
SLOW = ("servo_rate=100", "substeps=1", "time_ratio=10", "duration=0.5")
PATIENT = "silence: 3, connect_within: 20"


@pytest.fixture
def stand_in() -> Iterator[Callable[..., None]]:
    """Starts a stand-in with the given arguments."""
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str, rate: float = RATE) -> None:
        command = [sys.executable, str(STAND_IN), "--rate", f"{rate:g}", "--stiffness", f"{STIFFNESS:g}"]
        process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True, env=os.environ)
        running.append(process)
        assert process.stdout.readline() == "ready\n"

    yield start
    for process in running:
        process.send_signal(signal.SIGINT)
    for process in running:
        try:
            process.wait(10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture
def port() -> Iterator[Callable[..., Any]]:
    """Builds the port of the axes ``bench``, or others, at 100 Hz."""
    ports: list[Any] = []

    def port(names: tuple[str, ...] = ("bench",), **parameters: Any) -> Any:
        parameters = {"stand_in": True, "silence": 3.0, "connect_within": 20.0} | parameters
        axes = {name: SimpleNamespace(rig_axis=None) for name in names}
        ports.append(make("port", "ros2_control", axes, 1.0 / RATE, 1, **parameters))
        return ports[-1]

    yield port
    for opened in ports:
        opened.close()


def no_pacer() -> int:
    return 0


def exchange(port: Any, number: int, command: np.ndarray) -> Measurement:
    port.write(Command(number, command, command))
    return port.read()


def drive(port: Any, commands: np.ndarray) -> list[Measurement]:
    """Open the port and return Measurements 0 to n of ``commands`` ``(n, n_axes)``."""
    port.open(no_pacer)
    port.begin()
    measurements = [port.read()]
    for number, command in enumerate(commands, 1):
        assert port.wait_tick() == number
        measurements.append(exchange(port, number, command))
    return measurements


WAVE = 1e-3 * np.sin(0.2 * np.arange(40))[:, None]


def test_commands_act_in_order_and_effort_is_force(stand_in: Any, port: Any) -> None:
    stand_in()
    rig = port()
    measurements = drive(rig, WAVE)
    assert not rig.interlock
    assert [measured.sample for measured in measurements] == list(range(41))
    displacement = np.array([measured.displacement for measured in measurements])
    force = np.array([measured.force for measured in measurements])
    np.testing.assert_allclose(force, STIFFNESS * displacement)
    # neither side waits for the other: the only certain result is that every command acts, in order
    reached = [WAVE[:, 0].tolist().index(value) for value in displacement[:, 0].tolist()]
    assert reached == sorted(reached)
    assert len(reached) > 30
    np.testing.assert_array_equal([measured.command for measured in measurements][1:], WAVE)
    numbers = rig.numbers()
    assert numbers["transport_declared"] == 1
    assert 0.0 < numbers["answer_median_s"] < numbers["answer_largest_s"] < 1.0
    assert 0.0 < numbers["age_median_s"] < 1.0
    assert "transport_median" not in numbers


def test_joints_are_matched_by_name(stand_in: Any, port: Any) -> None:
    stand_in("--joints", "north,south", "--reversed")
    measurements = drive(port(("south", "north")), np.hstack([WAVE, -2.0 * WAVE]))
    displacement = np.array([measured.displacement for measured in measurements])
    assert np.abs(displacement[:, 0]).max() > 0.9e-3
    np.testing.assert_array_equal(displacement[:, 1], -2.0 * displacement[:, 0])


def test_faster_joint_states_keep_sample_rate(stand_in: Any, port: Any) -> None:
    stand_in(rate=4 * RATE)
    rig = port()
    began = time.monotonic()
    assert [measured.sample for measured in drive(rig, WAVE)] == list(range(41))
    assert time.monotonic() - began > 40 / RATE


def test_counter_measures_transport(stand_in: Any, port: Any) -> None:
    stand_in("--counter", "commands")
    rig = port(counter="commands", watchdog=1.0)
    drive(rig, WAVE)
    numbers = rig.numbers()
    assert 1 <= numbers["transport_median"] <= numbers["transport_largest"]
    assert rig.heartbeat == 40


@pytest.mark.parametrize("fault", ["deaf@0", "deaf@10"])
def test_stopped_counter_opens_interlock(fault: str, stand_in: Any, port: Any) -> None:
    stand_in("--counter", "commands", "--watchdog", "0.05", "--misbehave", fault)
    rig = port(counter="commands", watchdog=0.05)
    drive(rig, WAVE)
    assert mentions(rig.interlock, "(port.counter)", "hardware", "0.05 s")


@pytest.mark.parametrize(
    ("fault", "parts"),
    [
        ("nan@10", ("joint_states", "bench", "effort", "nan")),
        ("missing@10", ("joint_states", "bench", "missing", "unknown_joint", "unused_joint")),
        ("silent@10", ("port.silence", "joint_states", "0.5 s")),
    ],
)
def test_invalid_or_missing_states_open_interlock(
    stand_in: Any, port: Any, fault: str, parts: tuple[str, ...]
) -> None:
    stand_in("--misbehave", fault)
    rig = port(silence=0.5)
    measurements = drive(rig, WAVE)
    assert mentions(rig.interlock, "ros2_control", *parts)
    assert np.isnan(measurements[-1].displacement).all()
    assert measurements[-1].flags & FLAG_BRIDGED
    assert len(measurements) == 41


def test_lost_state_makes_test_slip(stand_in: Any, port: Any) -> None:
    stand_in("--misbehave", "lose@10:2")
    rig = port()
    measurements = drive(rig, WAVE)
    assert not rig.interlock
    assert [measured.sample for measured in measurements] == list(range(41))
    assert any(measured.flags & FLAG_SLIPPED for measured in measurements)
    assert rig.numbers()["slipped"] >= 2


def test_commands_are_never_sent_in_a_burst(stand_in: Any, port: Any) -> None:
    """After a pause of the test computer queued states are skipped, for each would be answered at once."""
    stand_in()
    rig = port()
    drive(rig, WAVE[:5])
    time.sleep(0.5)
    rig.wait_tick()
    measured = exchange(rig, 6, WAVE[4])
    assert (measured.sample, measured.flags) == (6, FLAG_SLIPPED)
    began = time.monotonic()
    for number in range(7, 17):
        rig.wait_tick()
        exchange(rig, number, WAVE[4])
    assert time.monotonic() - began > 5 / RATE


def test_first_command_must_equal_position_of_rig(stand_in: Any, port: Any) -> None:
    stand_in("--start", "0.003")
    rig = port()
    measurements = drive(rig, np.zeros((5, 1)))
    assert mentions(rig.interlock, "axes.bench", "0.003 m")
    assert measurements[0].command.tolist() == [0.003]
    assert {measured.displacement[0] for measured in measurements if not measured.flags} == {0.003}


def test_silence_before_the_first_sample_moves_nothing(
    stand_in: Any, port: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in("--start", "0.003")
    rig, sent = port(silence=0.05), list[list[float]]()
    rig.open(no_pacer)
    monkeypatch.setattr(controller_link.ControllerLink, "received", lambda _: [])
    monkeypatch.setattr(controller_link.ControllerLink, "send", lambda _, values: sent.append(values))
    rig.begin()
    first = rig.read()
    assert (first.sample, first.flags, first.command.tolist()) == (0, FLAG_BRIDGED, [0.003])
    for command in (0.003, 0.25):
        exchange(rig, rig.wait_tick(), np.array([command]))
    assert sent == []
    assert mentions(rig.interlock, "port.silence", "0.05 s")


@pytest.mark.parametrize(
    ("arguments", "parameters", "parts"),
    [
        ([], {"joints": ["other"]}, ("port.joints", "other", "forward_position_controller", "bench")),
        (["--interface", "velocity"], {}, ("interface_name", "velocity", "position")),
        (["--unmarked"], {}, ("port.stand_in", "forward_position_controller", "real", "no parameter")),
        ([], {"stand_in": False}, ("port.stand_in", "false", "forward_position_controller")),
        ([], {"controller": "other", "connect_within": 1.0}, ("subscription", "/other/commands")),
        ([], {"states": "/none", "connect_within": 2.0}, ("publisher", "joint")),
        (["--rate", "37"], {}, ("servo_rate", "100 Hz")),
    ],
)
def test_rig_that_differs_from_parameters_is_refused(
    stand_in: Any, port: Any, arguments: list[str], parameters: dict[str, Any], parts: tuple[str, ...]
) -> None:
    stand_in(*arguments)
    rig = port(**parameters)
    with pytest.raises(ConfigError, match=naming(*parts)):
        rig.open(no_pacer)


def test_broadcaster_may_leave_while_the_port_connects(stand_in: Any, port: Any, monkeypatch: Any) -> None:
    def leave(link: Any) -> None:
        link._publishers = lambda _: []

    stand_in()
    monkeypatch.setattr(controller_link.ControllerLink, "intruder", leave)
    with pytest.raises(ConfigError, match=naming("publisher", "joint")):
        port(connect_within=2.0).open(no_pacer)


def test_foreign_command_publisher_is_refused_and_detected(
    stand_in: Any, port: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the test after one complete discovery, as with a real controller; then by repeated checks."""
    from rclpy.node import Node
    from std_msgs.msg import Float64MultiArray

    from rths_nodes.ros.hosting.composed import ros_context

    monkeypatch.setitem(controller_link.LISTENED_S, True, controller_link.LISTENED_S[False])
    topic = "/forward_position_controller/commands"
    stand_in()
    rig = port()
    with ros_context() as context:
        node = Node("joystick", context=context)
        publisher = node.create_publisher(Float64MultiArray, topic, 1)
        with pytest.raises(ConfigError, match=naming("publishes", topic)):
            rig.open(no_pacer)
        node.destroy_publisher(publisher)
        drive(rig, WAVE[:10])
        assert not rig.interlock
        node.create_publisher(Float64MultiArray, topic, 1)
        end = time.monotonic() + 20.0
        while not rig.interlock and time.monotonic() < end:
            assert np.isfinite(exchange(rig, rig.wait_tick(), WAVE[9]).force).all()
        assert mentions(rig.interlock, "joystick", "publishes")
        node.destroy_node()


def test_joint_types_are_read_from_robot_description() -> None:
    robot = '<robot><joint name="bench" type="revolute"/><joint name="x" type="fixed"/></robot>'
    check_joint_types(robot, ("bench",), "revolute")
    check_joint_types(robot, ("other",), "prismatic")
    check_joint_types("no XML", ("bench",), "prismatic")
    with pytest.raises(ConfigError, match=naming("joint_type", "prismatic", "bench", "N m")):
        check_joint_types(robot, ("bench",), "prismatic")


# -- scenarios --------------------------------------------------------------------------------------------

NAME = "chen_ricles_2010"


def slow(port: str, *overrides: str) -> list[str]:
    """Return overrides for a test in slow time on the stand-in; ``port`` has further parameters of the port."""
    return [f"port={{type: ros2_control, stand_in: true, {PATIENT}, joints: [bench]{port}}}", *SLOW, *overrides]


def test_slow_test_finishes_on_stand_in(stand_in: Any, patience: list[str]) -> None:
    stand_in()
    result = hosts.run(NAME, slow("", *patience), host="composed", pace="realtime")
    assert (result.outcome, result.reason) == ("finished", "")
    assert result.timing["port"]["transport_declared"] == 1


def test_invalid_state_ends_in_safe_stop(stand_in: Any, patience: list[str], tmp_path: Path) -> None:
    stand_in("--misbehave", "nan@30")
    result = hosts.run(NAME, slow("", *patience), host="composed", pace="realtime", record=tmp_path / "run")
    assert result.outcome == "tripped"
    assert "joint 'bench': effort = nan" in result.reason
    run = result.read()
    assert run.flags[-1] & FLAG_TRIPPED
    assert abs(np.diff(run.command[:, 0])).max() <= run.scenario.limits["story_1"].velocity / RATE


def test_real_time_needs_watchdog_and_counter() -> None:
    with pytest.raises(ConfigError, match=naming("port.watchdog", "time_ratio", "1")):
        Assembly(files.load(NAME, slow("", "time_ratio=1"))).port  # noqa: B018
    assert Assembly(files.load(NAME, slow(", counter: number, watchdog: 0.1", "time_ratio=1"))).port.simulated
    for parameter, missing in (("counter: number", "watchdog"), ("watchdog: 0.1", "counter")):
        with pytest.raises(ConfigError, match=f"needs {missing}"):
            files.load(NAME, slow(f", {parameter}"))


def test_embedded_host_refuses_port() -> None:
    with pytest.raises(ConfigError, match=naming("host", "embedded")):
        hosts.run(NAME, slow(""))


def test_real_rig_needs_operator() -> None:
    with pytest.raises(ConfigError, match=naming("port.stand_in", "real")):
        hosts.run(NAME, slow("", "port.stand_in=false"), host="composed", pace="realtime")


def test_rig_file_scales_and_inverts_joint_values(stand_in: Any) -> None:
    stand_in()
    sets = (*SLOW, "port.silence=3", "port.connect_within=20")
    port = Assembly(files.load(NAME, sets, rig="bench_ros2_control")).port
    try:
        last = drive(port, 1e-4 * np.ones((40, 1)))[-1]
        assert last.displacement[0] == pytest.approx(1e-4)
        assert last.force[0] == pytest.approx(1e-4 * STIFFNESS)
    finally:
        port.close()
