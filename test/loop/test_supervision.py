# SPDX-License-Identifier: Apache-2.0
"""Limits, the safe stop and the diagram of the states of a test."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import mentions

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import Command, Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.core.wire.layout import constants
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
def test_a_command_up_to_the_stroke_may_be_sent(value: float) -> None:
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
def test_a_command_that_must_not_be_sent(value: float, previous: float, reason: tuple[str, ...]) -> None:
    assert mentions(LimitCheck(limits(), DT).command(command(value), np.array([previous, 0.0])), *reason)


def test_a_target_that_is_not_a_number_is_named_as_the_reason() -> None:
    lost = Command(1, np.array([0.0, math.nan]), np.zeros(2))  # whatever a compensator makes of it
    reason = LimitCheck(limits(), DT).command(lost, np.zeros(2))
    assert mentions(reason, "axes.b", "target", "nan", "finite")


def test_every_axis_is_checked() -> None:
    assert (
        LimitCheck(limits(), DT)
        .command(command(0.0, 0.3), np.array([0.0, 0.3]))
        .startswith("axes.b.limits.stroke")
    )


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
def test_a_measurement_that_ends_the_test(
    displacement: float, force: float, target: float, reason: tuple[str, ...]
) -> None:
    check = LimitCheck(limits(tracking_error=0.01), DT)
    assert mentions(check.measurement(measurement(displacement, force), np.array([target, 0.0])), *reason)


def test_the_tracking_error_is_not_limited_if_left_out() -> None:
    assert LimitCheck(limits(), DT).measurement(measurement(), np.array([99.0, 0.0])) == ""


@pytest.mark.parametrize("name", ["stroke", "velocity", "force"])
def test_a_limit_cannot_be_switched_off(name: str) -> None:
    with pytest.raises(ConfigError, match=f"limits.{name} = 1e\\+12 .*: must be > 0 and <= "):
        from_data(Limits, LIMITS | {name: 1e12}, "limits")


# Safe stop


def stop(position: float, velocity: float, **data: float) -> np.ndarray:
    """Positions of the first axis from the last command until rest."""
    safe, last = SafeStop(limits(**data), DT), np.array([position, 0.0])
    safe.begin(last - DT * np.array([velocity, 0.0]), last)
    path = [position]
    while not safe.at_rest:
        path.append(safe.step()[0])
    return np.array(path)


def test_the_stop_is_that_of_its_deceleration() -> None:
    path = stop(0.0, 0.5, deceleration=10.0)
    assert len(path) - 1 == math.ceil(0.5 / 10.0 / DT)
    assert path[-1] == pytest.approx(0.5**2 / (2.0 * 10.0), rel=0.03)


@given(
    position=st.floats(-0.25, 0.25),
    velocity=st.floats(-0.76, 0.76),
    deceleration=st.floats(0.5, 100.0),
)
def test_the_stop_never_leaves_the_stroke_and_ends_at_rest(
    position: float, velocity: float, deceleration: float
) -> None:
    """From any state, as a foreign driver may leave one."""
    path = stop(position, velocity, deceleration=deceleration)
    assert np.abs(path).max() <= 0.25
    assert len(path) - 1 <= abs(velocity) / deceleration / DT + 2
    speed = np.diff(path)
    change = np.abs(np.diff(np.concatenate(([velocity * DT], speed)), append=0.0))
    passed = LimitCheck(limits(deceleration=deceleration), DT).command(
        command(position), [position - velocity * DT, 0.0]
    )
    if not passed:
        assert np.all(change <= deceleration * DT**2 + 1e-12)
    else:  # evenly, as hard as it must
        assert np.ptp(change[:-1]) <= 1e-12


def test_an_axis_without_room_to_brake_stops_in_front_of_the_end_of_its_stroke() -> None:
    path = stop(0.2499, 0.76, deceleration=0.1)
    assert path.tolist() == [0.2499, 0.2499]
    path = stop(0.24, 0.76, deceleration=0.1)
    assert 0.25 - 0.76 * DT <= path[-1] <= 0.25


def test_an_axis_beyond_its_stroke_goes_no_further_and_does_not_jump() -> None:
    assert stop(0.26, 0.5).tolist() == [0.26, 0.26]
    assert np.all(np.diff(stop(0.26, -0.5)) <= 0.0)


def test_a_stop_from_a_jump_is_not_faster_than_the_limit() -> None:
    path = stop(0.0, 50.0, deceleration=10.0)
    assert np.abs(np.diff(path)).max() <= 0.76 * DT


def test_from_rest_it_holds() -> None:
    safe, last = SafeStop(limits(), DT), np.array([0.1, -0.1])
    safe.begin(last, last)
    assert safe.at_rest
    assert safe.step().tolist() == [0.1, -0.1]


def test_axes_stop_each_with_its_own_deceleration() -> None:
    safe = SafeStop(limits(deceleration=1.0), DT)
    safe.begin(np.full(2, -0.1 * DT), np.zeros(2))
    for _ in range(11):
        path = safe.step()
    assert path[0] > path[1] > 0.0
    assert not safe.at_rest


# States


def test_the_way_of_a_test_that_finishes() -> None:
    machine = TestMachine()
    for state in (State.CONNECTED, State.REFERENCED, State.POSITIONED, State.ARMED, State.RUNNING, State.FINISHED):
        machine.to(state)
    assert machine.state in ENDED


def test_a_reason_stays_until_the_end() -> None:
    machine = TestMachine()
    for state in (State.CONNECTED, State.REFERENCED, State.POSITIONED, State.ARMED, State.RUNNING):
        machine.to(state)
    machine.to(State.STOPPING, "force")
    machine.to(State.TRIPPED)
    assert (machine.state, machine.reason) == (State.TRIPPED, "force")


@pytest.mark.parametrize("state", [State.RUNNING, State.ARMED, State.FINISHED, State.TRIPPED])
def test_a_transition_that_is_not_in_the_diagram_is_refused(state: State) -> None:
    with pytest.raises(RuntimeError, match=f"IDLE -> {state.name}"):
        TestMachine().to(state)


def test_the_states_are_those_of_the_message() -> None:
    assert {state.name: int(state) for state in State} == constants("TestState")
