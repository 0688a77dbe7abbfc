# SPDX-License-Identifier: Apache-2.0
"""Tests of the receiver of the ros2_control example, without ROS: motion, sockets, units, settings.

``test/ros/test_rths_controller_manager.py`` runs the controller around it.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import pytest
from joint_bench import ACCELERATION, BRIDGED, DT, ERROR, FORCE, PERSISTENCE, STROKE, VELOCITY, Bench, library
from messages import each_mentions, mentions

from rths_nodes.laboratory.ports import datagrams


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The compiled receiver."""
    return library(tmp_path_factory.mktemp("rths_controller"))


@pytest.fixture
def benches(rig: Any) -> Iterator[Any]:
    """Builds benches on the compiled receiver."""
    with ExitStack() as stack:
        stack.callback(rig.rig_close)

        def bench(**settings: Any) -> Bench:
            result = Bench(rig, **settings)
            stack.enter_context(result.line)
            return result

        yield bench


def wait(bench: Bench, ticks: int) -> None:
    for _ in range(ticks):
        bench.tick()


def test_activated_joint_stays_until_first_command(benches: Any) -> None:
    bench = benches(axes=2)
    bench.session(0.0123, -0.2)
    wait(bench, 50)
    assert bench.history == [[0.0123, -0.2]] * 52
    assert mentions(bench.report(), "running", "reason")


def test_joint_beyond_stroke_is_not_activated(benches: Any) -> None:
    bench = benches()
    bench.open()
    assert mentions(bench.begin(0.3), "0.3 m", "0.25 m")
    assert mentions(bench.begin(math.nan), "position", "nan m")
    assert bench.begin(0.2) == ""


def test_commands_act_one_sample_later(benches: Any) -> None:
    bench = benches()
    bench.session(0.0)
    path = [0.03 * (1.0 - math.cos(2.0 * math.pi * 1.5 * k * DT)) for k in range(300)]
    for k in range(1, 300):
        bench.points(k, [path[k]], [(path[k] - path[k - 1]) / DT])
        bench.tick()
    # after the two ticks of the session: Command k is driven after state k and is measured in state k + 1
    assert [row[0] for row in bench.history[2:]] == path[1:]


def test_scale_and_sign_convert_joint_values(benches: Any) -> None:
    """Joint in mm against the direction of the axis, load cell in kN."""
    bench = benches(scale=1e-3, sign=-1, force_scale=1e3, force_sign=-1, stiffness=-7.6)
    bench.session(-5.0)
    bench.points(1, [5.1e-3], [0.1])
    bench.tick()
    assert bench.command[0] == pytest.approx(-5.1, rel=1e-12)
    state = bench.state()
    assert state.displacement == pytest.approx([5e-3], rel=1e-15)
    assert state.command == pytest.approx([5e-3], rel=1e-15)
    assert state.force == pytest.approx([7.6 * -5.0 * 1e3], rel=1e-15)
    bench.points(2, [5.2e-3], [0.1])
    bench.tick()
    assert bench.command[0] == pytest.approx(-5.2, rel=1e-12)


def test_lost_commands_stop_group_at_declared_acceleration(benches: Any) -> None:
    velocities = [0.2, -0.1]
    bench = benches(axes=2)
    bench.session(0.0, 0.0)
    bench.run(velocities, 200)
    lost = len(bench.history)
    wait(bench, 200)
    assert mentions(bench.report(), "stopped", "command")
    velocity = np.diff(np.array(bench.history)[lost:], axis=0) / DT
    assert velocity[BRIDGED - 3] == pytest.approx(velocities, rel=1e-6)  # bridged along the slope
    moving = velocity[np.abs(velocity[:, 0]) > 1e-9]
    np.testing.assert_allclose(moving[:, 1], -0.5 * moving[:, 0], rtol=1e-6)  # on a straight line
    assert (np.abs(np.diff(velocity, axis=0)) <= ACCELERATION * DT * (1 + 1e-6)).all()
    assert (velocity[-100:] == 0.0).all()
    head = bench.state_head()
    assert (head.state, head.reason) == (datagrams.STOPPED, 1)


@pytest.mark.parametrize(
    ("breach", "reason"),
    [
        ("force", ("force", "limit", "receiver")),
        ("error", ("command", "displacement", "limit", "receiver")),
        ("interlock", ("interlock", "rig")),
    ],
)
def test_breach_stops_all_axes_together(benches: Any, breach: str, reason: tuple[str, ...]) -> None:
    bench = benches(axes=2)
    bench.session(0.0, 0.0)
    bench.run([0.2, 0.1], 100)
    for _ in range(PERSISTENCE):
        if breach == "force":
            bench.force[1] = -1.01 * FORCE
        elif breach == "error":
            bench.position[0] -= 1.01 * ERROR
        else:
            bench.interlock = 2
        bench.tick()
    assert mentions(bench.report(), "braking", *reason)
    wait(bench, 60)
    assert mentions(bench.report(), "stopped", *reason)
    velocity = np.diff(np.array(bench.history)[-62:], axis=0) / DT
    moving = velocity[np.abs(velocity[:, 0]) > 1e-9]
    assert len(moving) == pytest.approx(0.2 / (ACCELERATION * DT), abs=PERSISTENCE + 2)
    np.testing.assert_allclose(moving[:, 1], 0.5 * moving[:, 0], rtol=1e-6)


def test_commands_beyond_limits_are_limited(benches: Any) -> None:
    bench = benches()
    bench.session(0.0)
    for k in range(1, 900):
        bench.points(k, [10.0 * k * DT], [10.0])
        bench.tick()
    history = np.array(bench.history)[:, 0]
    assert np.abs(history).max() <= STROKE
    assert np.abs(np.diff(history)).max() <= VELOCITY * DT * (1 + 2e-6)
    assert history[-1] == pytest.approx(STROKE, abs=1e-6)


def test_deactivation_during_session_is_reported(benches: Any) -> None:
    bench = benches()
    bench.session(0.0)
    bench.run([0.1], 20)
    bench.received()
    assert bench.library.rig_end() == 1
    head = bench.state_head()
    assert (head.state, head.reason, head.interlock) == (datagrams.BRAKING, 3, 2)


def test_session_needs_its_own_activation(benches: Any) -> None:
    bench = benches()
    bench.session(0.01)
    bench.send(bench.head(datagrams.CLOSE))
    bench.tick()
    bench.tick()
    assert mentions(bench.report(), "stopped", "session")
    assert bench.library.rig_end() == 0
    bench.received()
    bench.send(bench.head(datagrams.OPEN))
    bench.tick()
    assert 4 in {datagrams.head_of(data).reason for data in bench.received()}
    bench.send(bench.head(datagrams.OPEN))  # from before the activation
    assert bench.begin(0.01) == ""
    bench.tick()
    assert bench.received() == []
    bench.send(bench.head(datagrams.OPEN))
    bench.tick()
    assert bench.state_head().reason == 0


def test_tick_handles_at_most_16_datagrams(benches: Any) -> None:
    bench = benches()
    bench.session(0.0)
    bench.received()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for _ in range(40):
            bench.send(bench.head(datagrams.OPEN), line=stranger)
        stranger.setblocking(False)
        answers = []
        for _ in range(4):
            bench.tick()
            answers.append(0)
            with suppress(BlockingIOError):
                while True:
                    assert datagrams.head_of(stranger.recv(1024)).reason == 4
                    answers[-1] += 1
    assert answers == [16, 16, 8, 0]
    assert mentions(bench.report(), "running", "reason")


def test_tick_allocates_no_memory(benches: Any, rig: Any) -> None:
    bench = benches(axes=3)
    before = rig.rig_memory()
    bench.session(0.0, 0.0, 0.0)
    begun = rig.rig_memory()
    assert begun > before
    bench.run([0.1, -0.1, 0.2], 100)
    wait(bench, 100)
    assert rig.rig_memory() == begun
    assert mentions(bench.report(), "stopped", "command")


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"limits": (0.0, 1.2, 20.0, math.inf, 1e6, 0.1)}, ("axes.a.limits.stroke", "0", "> 0", "<= 10 m")),
        ({"limits": (10.1, 1.2, 20.0, 1.0, 1e6, 0.1)}, ("axes.a.limits.stroke", "10.1", "10 m")),
        ({"limits": (0.2, 1.2, 1e-9, 1.0, 1e6, 0.1)}, ("a", "velocity", "acceleration")),
        ({"limits": (0.2, math.inf, 20.0, 1.0, 1e6, 0.1)}, ("axes.a.limits.velocity", "inf", "> 0", "<= 100 m/s")),
        (
            {"limits": (0.2, 1.2, -20.0, 1.0, 1e6, 0.1)},
            ("axes.a.limits.acceleration", "-20", "> 0", "<= 10000 m/s^2"),
        ),
        ({"limits": (0.2, 1.2, 20.0, 0.0, 1e6, 0.1)}, ("axes.a.limits.following", "0", "> 0 m/s^2")),
        ({"limits": (0.2, 1.2, 20.0, 1.0, math.nan, 0.1)}, ("axes.a.limits.force", "nan", "> 0 N")),
        ({"limits": (0.2, 1.2, 20.0, 1.0, 1e6, 0.0)}, ("axes.a.limits.error", "0", "> 0 m")),
        ({"groups": (256,)}, ("axes.a.group", "256", "0", "255")),
        ({"scale": 0.0}, ("axes.a.position.scale", "0", "> 0", "<= 1e+09 m", "interface")),
        ({"sign": 0}, ("axes.a.position.sign", "0", "1", "-1")),
        ({"force_scale": -1.0}, ("axes.a.force.scale", "-1", "> 0", "<= 1e+09 N", "interface")),
        ({"force_sign": 2}, ("axes.a.force.sign", "2", "1", "-1")),
        ({"address": "bench"}, ("address", "bench", "IPv4")),
        ({"port": 0}, ("port", "0", "1", "65535")),
        ({"bridged": -1}, ("bridged", "-1", "0", "999999")),
        ({"persistence": 0}, ("persistence", "0", "1", "1000000")),
        ({"watchdog": 10}, ("watchdog", "10", "1000000")),
        ({"watchdog": 20_000}, ("watchdog", "10 s")),
        ({"rate": 0.0}, ("update_rate", "0", "1", "1e5 Hz")),
        ({"axes": 0}, ("joints", "0", "names", "1", "8")),
        ({"axes": 9, "groups": (0,) * 9}, ("joints", "9", "names", "1", "8")),
        ({"axes": 2, "names": ("a", "a")}, ("joints", "unique")),
    ],
)
def test_invalid_setting_is_refused(benches: Any, settings: dict[str, Any], parts: tuple[str, ...]) -> None:
    bench = benches(**settings)
    assert each_mentions(bench.objections(), parts)
    assert mentions(bench.open(), *parts)


def test_all_invalid_settings_are_reported(benches: Any) -> None:
    bench = benches(axes=2, sign=3, port=70000, persistence=0)
    names = [line.split(" = ")[0] for line in bench.objections()]
    assert names == ["axes.a.position.sign", "axes.b.position.sign", "port", "persistence"]


def test_occupied_port_and_foreign_address_are_refused(benches: Any) -> None:
    bench = benches()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.bind(("127.0.0.1", bench.port))
        assert mentions(bench.open(), "port", "127.0.0.1", bench.port)
    reason = benches(address="192.0.2.1").open()
    assert "192.0.2.1" in reason
    assert mentions(reason, "requested", "address")


def test_reasons_equal_those_of_test_computer(rig: Any) -> None:
    for reason in (0, 1, 2, 3, 14, 15, 16):
        assert rig.rig_reason(reason).decode() == datagrams.REASONS[reason]
