# SPDX-License-Identifier: Apache-2.0
"""Tests of limits, the safe stop, stop groups and the states of a test."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import mentions

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import Array, Command, Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.core.wire import constants
from rths_nodes.loop.scenario import files
from rths_nodes.loop.supervision.handover import Tares
from rths_nodes.loop.supervision.limits import LimitCheck
from rths_nodes.loop.supervision.safe_stop import SafeStop
from rths_nodes.loop.supervision.states import ENDED, State, TestMachine

DT = 1.0 / 1024.0
LIMITS = {"stroke": 0.25, "velocity": 0.76, "force": 1.7e6}


def limits(**data: float) -> dict[str, Limits]:
    return {"a": from_data(Limits, LIMITS | data), "b": from_data(Limits, LIMITS)}


def command(a: float, b: float = 0.0) -> Command:
    return Command(1, np.zeros(2), np.array([a, b]))


def measurement(displacement: float = 0.0, force: float = 0.0) -> Measurement:
    return Measurement(1, np.array([displacement, 0.0]), np.array([force, 0.0]), np.zeros(2))


# Limits


@pytest.mark.parametrize("value", [0.0, 0.25, -0.25])
def test_command_up_to_stroke_is_valid(value: float) -> None:
    assert LimitCheck(limits(), DT).command(command(value), np.array([value, 0.0])) == ""


@pytest.mark.parametrize(
    ("value", "previous", "reason"),
    [
        (0.2501, 0.25, ("axes.a.limits.stroke", "command", "0.2501 m", "0.25 m")),
        (-0.3, -0.25, ("axes.a.limits.stroke", "command", "-0.3 m", "0.25 m")),
        (0.001, 0.0, ("axes.a.limits.velocity", "command", "1.024 m/s", "0.76 m/s")),
        (-0.001, 0.0, ("axes.a.limits.velocity", "command", "-1.024 m/s", "0.76 m/s")),
        (math.nan, 0.0, ("axes.a", "command", "nan", "finite")),
        (math.inf, 0.0, ("axes.a", "command", "inf", "finite")),
    ],
)
def test_command_beyond_limit_is_reported(value: float, previous: float, reason: tuple[str, ...]) -> None:
    assert mentions(LimitCheck(limits(), DT).command(command(value), np.array([previous, 0.0])), *reason)


def test_nan_target_is_reported() -> None:
    with_nan = Command(1, np.array([0.0, math.nan]), np.zeros(2))  # the compensated command may be finite
    reason = LimitCheck(limits(), DT).command(with_nan, np.zeros(2))
    assert mentions(reason, "axes.b", "target", "nan", "finite")


def test_every_axis_is_checked() -> None:
    reason = LimitCheck(limits(), DT).command(command(0.0, 0.3), np.array([0.0, 0.3]))
    assert reason.startswith("axes.b.limits.stroke")


@pytest.mark.parametrize(
    ("displacement", "force", "target", "reason"),
    [
        (0.26, 0.0, 0.26, ("axes.a.limits.stroke", "measured", "0.26 m", "0.25 m")),
        (0.0, -1.8e6, 0.0, ("axes.a.limits.force", "measured", "-1.8e+06 N", "1.7e+06 N")),
        (0.1, 0.0, 0.12, ("axes.a.limits.tracking_error", "0.02 m", "0.01 m")),
        (math.nan, 0.0, 0.0, ("axes.a.limits.stroke", "measured", "nan m", "0.25 m")),
        (0.0, math.nan, 0.0, ("axes.a.limits.force", "measured", "nan N", "1.7e+06 N")),
        (0.0, math.inf, 0.0, ("axes.a.limits.force", "measured", "inf N", "1.7e+06 N")),
    ],
)
def test_measurement_beyond_limit_is_reported(
    displacement: float, force: float, target: float, reason: tuple[str, ...]
) -> None:
    check = LimitCheck(limits(tracking_error=0.01), DT)
    assert mentions(check.measurement(measurement(displacement, force), np.array([target, 0.0])), *reason)


def test_tracking_error_is_unlimited_by_default() -> None:
    assert LimitCheck(limits(), DT).measurement(measurement(), np.array([99.0, 0.0])) == ""


@pytest.mark.parametrize("name", ["stroke", "velocity", "force"])
def test_limit_cannot_be_disabled(name: str) -> None:
    with pytest.raises(ConfigError, match=f"limits.{name} = 1e\\+12 .*: must be > 0 and <= "):
        from_data(Limits, LIMITS | {name: 1e12}, "limits")


# Safe stop


def stop(position: float, velocity: float, **data: float) -> np.ndarray:
    """Return the positions of the first axis from the last command until rest."""
    safe, last = SafeStop(limits(**data), DT), np.array([position, 0.0])
    safe.begin(last - DT * np.array([velocity, 0.0]), last)
    path = [position]
    while not safe.at_rest:
        path.append(safe.step()[0])
    return np.array(path)


def test_stopping_distance_follows_deceleration() -> None:
    path = stop(0.0, 0.5, deceleration=10.0)
    assert len(path) - 1 == math.ceil(0.5 / 10.0 / DT)
    assert path[-1] == pytest.approx(0.5**2 / (2.0 * 10.0), rel=0.03)


@given(position=st.floats(-0.25, 0.25), velocity=st.floats(-0.76, 0.76), deceleration=st.floats(0.5, 100.0))
def test_stop_stays_within_stroke_and_ends_at_rest(position: float, velocity: float, deceleration: float) -> None:
    """The initial state is arbitrary, as after a foreign driver."""
    path = stop(position, velocity, deceleration=deceleration)
    assert np.abs(path).max() <= 0.25
    assert len(path) - 1 <= abs(velocity) / deceleration / DT + 2
    speed = np.diff(path)
    change = np.abs(np.diff(np.concatenate(([velocity * DT], speed)), append=0.0))
    check = LimitCheck(limits(deceleration=deceleration), DT)
    if not check.command(command(position), [position - velocity * DT, 0.0]):
        assert np.all(change <= deceleration * DT**2 + 1e-12)
    else:  # even deceleration, as high as necessary
        assert np.ptp(change[:-1]) <= 1e-12


def test_axis_near_end_of_stroke_stops_before_it() -> None:
    assert stop(0.2499, 0.76, deceleration=0.1).tolist() == [0.2499, 0.2499]
    assert 0.25 - 0.76 * DT <= stop(0.24, 0.76, deceleration=0.1)[-1] <= 0.25


def test_axis_beyond_stroke_does_not_move_further_or_jump() -> None:
    assert stop(0.26, 0.5).tolist() == [0.26, 0.26]
    assert np.all(np.diff(stop(0.26, -0.5)) <= 0.0)


def test_stop_after_jump_keeps_velocity_limit() -> None:
    assert np.abs(np.diff(stop(0.0, 50.0, deceleration=10.0))).max() <= 0.76 * DT


def test_stop_from_rest_holds_position() -> None:
    safe, last = SafeStop(limits(), DT), np.array([0.1, -0.1])
    safe.begin(last, last)
    assert safe.at_rest
    assert safe.step().tolist() == [0.1, -0.1]


def test_each_axis_stops_with_its_deceleration() -> None:
    safe = SafeStop(limits(deceleration=1.0), DT)
    safe.begin(np.full(2, -0.1 * DT), np.zeros(2))
    for _ in range(11):
        path = safe.step()
    assert path[0] > path[1] > 0.0
    assert not safe.at_rest


@pytest.mark.parametrize(
    ("name", "overrides", "groups"),
    [
        ("chen_ricles_2010", (), (0,)),
        ("two_actuator_coupler", (), (0, 0)),
        ("two_actuator_coupler", ("setup={type: identity}",), (0, 1)),
        ("two_actuator_coupler", ("setup={type: matrix, matrix: [[1, -2], [1, 2]]}",), (0, 0)),
        ("two_actuator_coupler", ("setup={type: matrix, matrix: [[1, 0], [0, 2]]}",), (0, 1)),
        ("three_independent_axes", (), (0, 1, 2)),
        ("three_independent_axes", ("setup.coupled=true",), (0, 0, 0)),
        ("marths_2023", (), (0, 0)),
        ("column_under_axial_load", (), (0, 0)),
    ],
)
def test_axes_of_specimen_stop_together(name: str, overrides: tuple[str, ...], groups: tuple[int, ...]) -> None:
    assert files.load(name, overrides).stop_groups == groups


def test_load_stops_with_axis_that_inclines_it() -> None:
    setup = files.load("column_under_axial_load").setup
    assert setup.stop_groups(1, 2) == (0, 0)
    assert setup.stop_groups(3, 4) == (0, 1, 2, 0)


# States


def running() -> TestMachine:
    machine = TestMachine()
    for state in (State.CONNECTED, State.REFERENCED, State.POSITIONED, State.ARMED, State.RUNNING):
        machine.to(state)
    return machine


def test_states_of_finished_test() -> None:
    machine = running()
    machine.to(State.FINISHED)
    assert machine.state in ENDED


def test_reason_is_kept_until_end() -> None:
    machine = running()
    machine.to(State.STOPPING, "force")
    machine.to(State.TRIPPED)
    assert (machine.state, machine.reason) == (State.TRIPPED, "force")


@pytest.mark.parametrize("state", [State.RUNNING, State.ARMED, State.FINISHED, State.TRIPPED])
def test_invalid_transition_is_refused(state: State) -> None:
    with pytest.raises(RuntimeError, match=f"IDLE -> {state.name}"):
        TestMachine().to(state)


def test_states_equal_constants_of_message() -> None:
    assert {state.name: int(state) for state in State} == constants("TestState")


# Braking distance in the limits: a stop never exceeds the declared deceleration


def limits_of(*rows: tuple[float, float, float]) -> dict[str, Limits]:
    """Axes with the given strokes (m), velocities (m/s) and decelerations (m/s^2)."""
    keys = ("stroke", "velocity", "deceleration")
    return {
        f"axis_{number}": from_data(Limits, {"force": 1e3, **dict(zip(keys, row, strict=True))})
        for number, row in enumerate(rows)
    }


def path(stop: SafeStop, before: Array, last: Array) -> Array:
    """Return the commands from ``before`` until rest, and two at rest."""
    stop.begin(before, last)
    rows = [before, last]
    while not stop.at_rest:
        rows.append(stop.step())
    return np.array([*rows, stop.step(), stop.step()])


def check_stops(count: int, seed: int) -> int:
    """Check stops from random states; return the number of states within the limits."""
    rng, passed = np.random.default_rng(seed), 0
    for _ in range(count):
        n, dt = int(rng.integers(1, 4)), float(rng.choice([1 / 256, 1 / 1024, 1 / 4096]))
        drawn = []
        for _ in range(n):  # up to 300 samples to rest from the velocity limit
            velocity = 10.0 ** rng.uniform(-2, 1)
            deceleration = max(0.1, velocity / (dt * 10.0 ** rng.uniform(0.0, 2.5)))
            drawn.append((10.0 ** rng.uniform(-3, 0), velocity, deceleration))
        declared = limits_of(*drawn)
        groups = tuple(rng.integers(0, 2, n).tolist()) if rng.random() < 0.7 else ()
        stroke, fastest, deceleration = np.array(drawn).T
        zero = stroke * rng.uniform(-0.3, 0.3, n) * (rng.random() < 0.5)
        tares = Tares(np.zeros(n), np.zeros(n), zero, np.full(n, np.inf))
        room = stroke * (1.0 - 10.0 ** rng.uniform(-6, 0, n))  # often close to the end of the stroke
        last = room * rng.choice([-1.0, 1.0], n)
        largest = np.minimum(fastest, np.sqrt(2.0 * deceleration * (stroke - np.abs(last))))
        before = last - dt * largest * rng.choice([-1.0, 1.0], n) * rng.uniform(0.3, 1.05, n)
        last, before = last - zero, before - zero
        if LimitCheck(declared, dt, tares=tares, groups=groups).command(Command(1, last, last), before.tolist()):
            continue
        passed += 1
        sent = path(SafeStop(declared, dt, tares, groups), before, last)
        assert np.all(np.abs(sent[1:] + zero) <= stroke * (1.0 + 1e-15))
        change = np.abs(np.diff(sent, 2, axis=0)).max(axis=0)
        assert np.all(change <= deceleration * dt**2 * (1.0 + 1e-6) + 1e-15), (drawn, groups, before, last)
    return passed


def test_stops_respect_declared_deceleration() -> None:
    assert check_stops(2_500, seed=1) > 750


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_100_000_stops_respect_declared_deceleration() -> None:
    assert check_stops(100_000, seed=2) > 30_000


def test_command_keeps_braking_distance_to_end_of_stroke() -> None:
    """0.12 m, 0.5 m/s, 5 m/s^2: the braking distance from 0.49 m/s is 24 mm."""
    dt = 1.0 / 1024.0
    check = LimitCheck(limits_of((0.12, 0.5, 5.0)), dt)

    def reason(displacement: float, velocity: float) -> str:
        command = np.array([displacement])
        return check.command(Command(1, command, command), [displacement - velocity * dt])

    assert reason(0.12 - 0.0241, 0.49) == ""
    values = "0.0963 m", "0.49 m/s", "0.02393 m", "0.0237 m", "0.12 m"
    assert mentions(reason(0.12 - 0.0237, 0.49), "axes.axis_0.limits.stroke", "command", *values)
    assert reason(-0.119, -0.49) != ""
    assert reason(0.119, -0.49) == "", "away from the end"
    assert reason(0.12, 0.0) == ""
    assert reason(0.12, 5.0 * dt) == "", "stops within one sample"
    assert reason(0.12, 5.1 * dt) != ""


def test_grouped_axes_stop_on_line_over_longer_distance() -> None:
    """0.30 and 0.10 m/s at 10 m/s^2: axes that stop independently leave the line by 1 mm."""
    dt, declared = 1.0 / 1024.0, limits_of((0.25, 0.76, 10.0), (0.25, 0.76, 10.0))
    velocity, start = np.array([0.30, 0.10]), np.array([0.03, 0.01])

    def off_the_line(groups: tuple[int, ...]) -> float:
        sent = path(SafeStop(declared, dt, groups=groups), start - velocity * dt, start)
        return float(np.abs(sent[:, 0] - 3.0 * sent[:, 1]).max() / np.sqrt(10.0))

    braking_distance = 0.30**2 / 20.0
    assert off_the_line(()) > 0.9e-3
    assert off_the_line((0, 0)) <= 0.01 * braking_distance

    coupled, single = (LimitCheck(declared, dt, groups=groups) for groups in ((0, 0), ()))
    last = np.array([0.03, 0.249])  # axis 1 needs 0.5 mm alone, 1.5 mm over the common time
    command, before = Command(1, last, last), (last - velocity * dt).tolist()
    assert single.command(command, before) == ""
    assert "axes.axis_1.limits.stroke" in coupled.command(command, before)


def test_grouped_axes_stop_on_line_without_room() -> None:
    dt, declared = 1.0 / 1024.0, limits_of((0.25, 0.76, 10.0), (0.25, 0.76, 10.0))
    last, velocity = np.array([0.03, 0.249]), np.array([0.6, 0.2])
    sent = path(SafeStop(declared, dt, groups=(0, 0)), last - velocity * dt, last)
    moved = sent[1:] - last
    assert np.abs(moved[:, 0] - 3.0 * moved[:, 1]).max() < 1e-12
    assert sent.max() <= 0.25
