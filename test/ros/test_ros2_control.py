# SPDX-License-Identifier: Apache-2.0
"""The port ros2_control against a stand-in in a process of its own, which keeps the published conventions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

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


class Axis:
    rig_axis = None


@pytest.fixture
def stand_in() -> Iterator[Callable[..., None]]:
    """Starts a stand-in with the arguments."""
    running: list[subprocess.Popen[str]] = []

    def start(*words: str, rate: float = RATE) -> None:
        given = ("--rate", f"{rate:g}", "--stiffness", f"{STIFFNESS:g}", *words)
        process = subprocess.Popen(
            [sys.executable, str(STAND_IN), *given], stdout=subprocess.PIPE, text=True, env=os.environ
        )
        running.append(process)
        assert process.stdout is not None
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
def port(make: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Builds the port of the axes ``bench``, or others, at 100 Hz."""
    made: list[Any] = []

    def port(axes: tuple[str, ...] = ("bench",), **data: Any) -> Any:
        given = {"stand_in": True, "silence": 3.0, "connect_within": 20.0} | data
        made.append(make("port", "ros2_control", {name: Axis() for name in axes}, 1.0 / RATE, 1, **given))
        return made[-1]

    yield port
    for each in made:
        each.close()


def no_pacer() -> int:
    return 0


def drive(port: Any, commands: np.ndarray) -> list[Measurement]:
    """Measurements 0 to n of ``commands`` ``(n, n_axes)``, each sent once the state before it is here."""
    port.open(no_pacer)
    port.begin()
    found = [port.read()]
    for number, command in enumerate(commands, 1):
        assert port.wait_tick() == number
        port.write(Command(number, command, command))
        found.append(port.read())
    return found


WAVE = 1e-3 * np.sin(0.2 * np.arange(40))[:, None]


def test_a_command_shows_one_sample_later_and_the_effort_is_the_force(stand_in: Any, port: Any) -> None:
    stand_in()
    rig = port()
    found = drive(rig, WAVE)
    assert not rig.interlock
    assert [measured.sample for measured in found] == list(range(41))
    displacement = np.array([measured.displacement for measured in found])
    force = np.array([measured.force for measured in found])
    np.testing.assert_allclose(force, STIFFNESS * displacement)
    # nobody on either side waits for the other: what is sure is that every command acts, in its order
    reached = [WAVE[:, 0].tolist().index(value) for value in displacement[:, 0].tolist()]
    assert reached == sorted(reached)
    assert len(reached) > 30
    np.testing.assert_array_equal([measured.command for measured in found][1:], WAVE)
    numbers = rig.numbers()
    assert numbers["transport_declared"] == 1
    assert 0.0 < numbers["answer_median_s"] < numbers["answer_largest_s"] < 1.0
    assert 0.0 < numbers["age_median_s"] < 1.0
    assert "transport_median" not in numbers


def test_joints_are_found_by_name_whatever_their_order(stand_in: Any, port: Any) -> None:
    stand_in("--joints", "north,south", "--reversed")
    rig = port(("south", "north"))
    found = drive(rig, np.hstack([WAVE, -2.0 * WAVE]))
    last = np.array([measured.displacement for measured in found])
    assert np.abs(last[:, 0]).max() > 0.9e-3
    np.testing.assert_array_equal(last[:, 1], -2.0 * last[:, 0])


def test_several_joint_states_make_a_sample(stand_in: Any, port: Any) -> None:
    stand_in(rate=4 * RATE)
    rig = port()
    began = time.monotonic()
    found = drive(rig, WAVE)
    assert [measured.sample for measured in found] == list(range(41))
    assert time.monotonic() - began > 40 / RATE


def test_a_counter_tells_how_many_samples_a_command_needs(stand_in: Any, port: Any) -> None:
    stand_in("--counter", "commands")
    rig = port(counter="commands", watchdog=1.0)
    drive(rig, WAVE)
    numbers = rig.numbers()
    assert 1 <= numbers["transport_median"] <= numbers["transport_largest"]
    assert rig.heartbeat == 40


def test_a_counter_that_stands_still_opens_the_interlock(stand_in: Any, port: Any) -> None:
    stand_in("--counter", "commands", "--watchdog", "0.05", "--misbehave", "deaf@10")
    rig = port(counter="commands", watchdog=0.05)
    drive(rig, WAVE)
    assert "(port.counter)" in rig.interlock
    assert mentions(rig.interlock, "hardware", "0.05 s")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("nan@10", ("joint_states", "bench", "effort", "nan")),
        ("missing@10", ("joint_states", "bench", "missing", "somebody_else", "elsewhere")),
        ("silent@10", ("port.silence", "joint_states", "0.5 s")),
    ],
)
def test_states_that_fail_open_the_interlock(
    stand_in: Any, port: Any, words: str, reason: tuple[str, ...]
) -> None:
    stand_in("--misbehave", words)
    rig = port(silence=0.5)
    found = drive(rig, WAVE)
    assert mentions(rig.interlock, "ros2_control", *reason)
    assert np.isnan(found[-1].displacement).all()
    assert found[-1].flags & FLAG_BRIDGED
    assert len(found) == 41


def test_a_state_that_is_lost_makes_the_test_slip(stand_in: Any, port: Any) -> None:
    stand_in("--misbehave", "lose@10:2")
    rig = port()
    found = drive(rig, WAVE)
    assert not rig.interlock
    assert [measured.sample for measured in found] == list(range(41))
    assert any(measured.flags & FLAG_SLIPPED for measured in found)
    assert rig.numbers()["slipped"] >= 2


def test_commands_never_come_in_a_burst(stand_in: Any, port: Any) -> None:
    """After a rest of the test computer the states that wait are passed over: each would be answered at once."""
    stand_in()
    rig = port()
    drive(rig, WAVE[:5])
    time.sleep(0.5)
    rig.wait_tick()
    rig.write(Command(6, WAVE[4], WAVE[4]))
    measured = rig.read()
    assert (measured.sample, measured.flags) == (6, FLAG_SLIPPED)
    began = time.monotonic()
    for number in range(7, 17):
        rig.wait_tick()
        rig.write(Command(number, WAVE[4], WAVE[4]))
        rig.read()
    assert time.monotonic() - began > 5 / RATE


def test_the_first_command_is_not_sent_where_the_rig_does_not_stand(stand_in: Any, port: Any) -> None:
    stand_in("--start", "0.003")
    rig = port()
    found = drive(rig, np.zeros((5, 1)))
    assert mentions(rig.interlock, "axes.bench", "0.003 m")
    assert found[0].command.tolist() == [0.003]
    assert {each.displacement[0] for each in found if not each.flags} == {0.003}


@pytest.mark.parametrize(
    ("started", "declared", "words"),
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
def test_another_rig_than_declared_is_refused(
    stand_in: Any, port: Any, started: list[str], declared: dict[str, Any], words: tuple[str, ...]
) -> None:
    stand_in(*started)
    rig = port(**declared)
    with pytest.raises(ConfigError, match=naming(*words)):
        rig.open(no_pacer)
    rig.close()


def test_somebody_else_who_sends_commands_is_refused_and_found(
    stand_in: Any, port: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the test once all have been found, as with a real controller; afterwards by looks."""
    from rclpy.node import Node
    from std_msgs.msg import Float64MultiArray

    from rths_nodes.ros.hosting.composed import ros_context

    monkeypatch.setitem(controller_link.LISTENED_S, True, controller_link.LISTENED_S[False])
    stand_in()
    rig = port()
    with ros_context() as context:
        other = Node("joystick", context=context)
        publisher = other.create_publisher(Float64MultiArray, "/forward_position_controller/commands", 1)
        with pytest.raises(ConfigError, match=naming("publishes", "/forward_position_controller/commands")):
            rig.open(no_pacer)
        other.destroy_publisher(publisher)
        drive(rig, WAVE[:10])
        assert not rig.interlock
        other.create_publisher(Float64MultiArray, "/forward_position_controller/commands", 1)
        end = time.monotonic() + 20.0
        while not rig.interlock and time.monotonic() < end:
            number = rig.wait_tick()
            rig.write(Command(number, WAVE[9], WAVE[9]))
            assert np.isfinite(rig.read().force).all()
        assert mentions(rig.interlock, "joystick", "publishes")
        other.destroy_node()


def test_a_robot_description_tells_what_joints_are() -> None:
    words = '<robot><joint name="bench" type="revolute"/><joint name="x" type="fixed"/></robot>'
    check_joint_types(words, ("bench",), "revolute")
    check_joint_types(words, ("other",), "prismatic")
    check_joint_types("no XML", ("bench",), "prismatic")
    with pytest.raises(ConfigError, match=naming("joint_type", "prismatic", "bench", "N m")):
        check_joint_types(words, ("bench",), "prismatic")


# -- scenarios --------------------------------------------------------------------------------------------


def slow(port: str, *more: str) -> list[str]:
    return [f"port={{type: ros2_control, stand_in: true, {PATIENT}, joints: [bench]{port}}}", *SLOW, *more]


def test_a_test_in_slow_time_runs_on_the_stand_in(stand_in: Any, patience: list[str]) -> None:
    stand_in()
    done = hosts.run("chen_ricles_2010", slow("", *patience), host="composed", pace="realtime")
    assert (done.outcome, done.reason) == ("finished", "")
    assert done.timing["port"]["transport_declared"] == 1


def test_a_test_whose_states_fail_ends_in_a_safe_stop(stand_in: Any, patience: list[str], tmp_path: Path) -> None:
    stand_in("--misbehave", "nan@30")
    done = hosts.run(
        "chen_ricles_2010", slow("", *patience), host="composed", pace="realtime", record=tmp_path / "run"
    )
    assert done.outcome == "tripped"
    assert "joint 'bench': effort = nan" in done.reason
    run = done.read()
    assert run.flags[-1] & FLAG_TRIPPED
    assert abs(np.diff(run.command[:, 0])).max() <= run.scenario.limits["story_1"].velocity / RATE


def test_real_time_without_a_watchdog_and_a_counter_is_refused() -> None:
    sets = slow("", "time_ratio=1")
    with pytest.raises(ConfigError, match=naming("port.watchdog", "time_ratio", "1")):
        Assembly(files.load("chen_ricles_2010", sets)).port  # noqa: B018
    watched = slow(", counter: number, watchdog: 0.1", "time_ratio=1")
    assert Assembly(files.load("chen_ricles_2010", watched)).port.simulated
    for given, lacks in (("counter: number", "watchdog"), ("watchdog: 0.1", "counter")):
        with pytest.raises(ConfigError, match=f"needs {lacks}"):
            files.load("chen_ricles_2010", slow(f", {given}"))


def test_the_embedded_host_refuses_it() -> None:
    with pytest.raises(ConfigError, match=naming("host", "embedded")):
        hosts.run("chen_ricles_2010", slow(""))


def test_a_real_rig_waits_for_an_operator() -> None:
    with pytest.raises(ConfigError, match=naming("port.stand_in", "simulator")):
        hosts.run("chen_ricles_2010", slow("", "port.stand_in=false"), host="composed", pace="realtime")


def test_a_rig_file_scales_and_turns_the_numbers_of_the_joints(stand_in: Any) -> None:
    stand_in()
    sets = (*SLOW, "port.silence=3", "port.connect_within=20")
    rig = files.load("chen_ricles_2010", sets, rig="bench_ros2_control")
    port = Assembly(rig).port
    try:
        found = drive(port, 1e-4 * np.ones((40, 1)))
        assert found[-1].displacement[0] == pytest.approx(1e-4)
        assert found[-1].force[0] == pytest.approx(1e-4 * STIFFNESS)
    finally:
        port.close()
