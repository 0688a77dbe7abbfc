# SPDX-License-Identifier: Apache-2.0
"""Tests of motions outside a test: bounded velocity and acceleration, exact goals, and their curves."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import MODE_DISPLACEMENT, MODE_FORCE, Array, Command, Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.loop.indices.live_columns import FIRST, HIGHEST, LAST, LOWEST, MOST, OF_AXIS, MotionCurves
from rths_nodes.loop.supervision.limits import LimitCheck
from rths_nodes.procedure.motions import GuidedMotion, QuasiStatic, accelerations, bounded_ramp

DT = 1.0 / 1024.0
AT_REST = Measurement(0, np.zeros(2), np.zeros(2), np.zeros(2))
GOAL = np.array([0.12, -0.04])
LIMITS = {
    name: from_data(Limits, {"stroke": 0.12, "velocity": 0.5, "force": 1e3, "deceleration": 5.0}) for name in "ab"
}


def commands(motion: GuidedMotion) -> np.ndarray:
    path = []
    while (command := motion.step(AT_REST, np.zeros(2))) is not None:
        path.append(command)
    return np.array(path)


@pytest.mark.parametrize("distance", [1e-6, 1e-3, 0.4])
def test_ramp_keeps_velocity_and_acceleration_of_every_axis(distance):
    start, goal = np.array([0.01, -0.02]), np.array([0.01 + distance, -0.02 - 0.3 * distance])
    velocity, acceleration = np.array([0.02, 0.005]), np.array([0.5, 0.1])
    path = np.vstack([start, start, list(bounded_ramp(start, goal, velocity, acceleration, DT)), goal])
    assert np.array_equal(path[-2], goal)
    assert (np.abs(np.diff(path, axis=0)) <= velocity * DT).all()
    assert (np.abs(np.diff(path, 2, axis=0)) <= 1.0001 * acceleration * DT**2 + 1e-16).all()


def test_axes_arrive_together_on_a_straight_line():
    goal = np.array([0.1, 0.02])
    path = np.array([*bounded_ramp(np.zeros(2), goal, np.array([0.05, 0.05]), np.array([1.0, 1.0]), DT)])
    assert path[:, 1] == pytest.approx(0.2 * path[:, 0], abs=1e-15)


def test_ramp_to_its_start_ends_at_once():
    assert list(bounded_ramp(np.ones(2), np.ones(2), np.ones(2), np.ones(2), DT)) == []


def test_invalid_goal_or_bound_is_refused():
    with pytest.raises(ConfigError, match=naming("must be finite")):
        next(bounded_ramp(np.zeros(1), np.array([np.nan]), np.ones(1), np.ones(1), DT))
    with pytest.raises(ConfigError, match=naming("velocity = [0.0]", "all", "must be > 0")):
        next(bounded_ramp(np.zeros(1), np.ones(1), np.zeros(1), np.ones(1), DT))


def test_ramp_to_end_of_stroke_is_within_limits():
    """At the highest velocity and acceleration of guided motions; a ramp beyond the stroke is refused."""
    check = LimitCheck(LIMITS, DT, groups=(0, 0))

    def refusals(factor: float) -> list[str]:
        path = list(bounded_ramp(np.zeros(2), factor * GOAL, np.full(2, 0.5), accelerations(LIMITS), DT))
        pairs = itertools.pairwise([np.zeros(2), *path])
        return [check.command(Command(1, command, command), before.tolist()) for before, command in pairs]

    assert not any(refusals(1.0))
    assert any(refusals(1.001))


@pytest.mark.parametrize("after", [3, 200, 700, 1000])
def test_stopped_ramp_brakes_on_its_line_before_its_goal(after):
    check = LimitCheck(LIMITS, DT, groups=(0, 0))
    scenario = SimpleNamespace(limits=LIMITS, dt=DT, port=SimpleNamespace(transport_samples=0))
    rig = QuasiStatic(scenario, np.zeros(2))
    ticks = iter(range(after + 1))
    steps = rig.ramp(GOAL, np.full(2, 0.5), lambda measured: "enough" if next(ticks) == after else "")
    before = np.zeros(2)
    for command in commands(GuidedMotion(lambda start: steps)):
        assert check.command(Command(1, command, command), before.tolist()) == ""
        assert command[1] == pytest.approx(-command[0] / 3.0, abs=1e-12)
        before = command
    assert 0.0 < before[0] < 0.12


def test_rig_has_reached_its_command_after_rung(walk):
    """Otherwise the next act would be refused because the actuators still move."""
    w = walk(
        "ground_motion={type: sine, amplitude: 0.5, frequency: 1.0}", "duration=1.4", "compensator.type=none"
    ).to_start()
    assert w.climb("g").outcome == "finished"
    assert abs(w.run.command[-1, 0] - w.run.command[-2, 0]) * w.scenario.servo_rate > 0.02
    drive = w.session.drive
    assert np.abs(drive.measured.displacement - drive.command).max() < 0.5e-3


def test_coarse_converter_accepts_motions(walk):
    w = walk(
        rig=("command: {unit: mm, range: 260.0}", "command: {unit: mm, range: 260.0, resolution: 0.127}")
    ).to_start()
    assert w.climb("g").outcome == "finished"
    assert w.session.unload().given_up == ""


RATE = 1000.0
PER_COLUMN = 10
MEASURED, FORCE, ERROR = (OF_AXIS.index(name) for name in ("measured", "force", "error"))


def measured(sample: int, moved: Array, mode: int = MODE_DISPLACEMENT) -> Measurement:
    return Measurement(sample, moved, 1e3 * moved, moved, np.zeros(0), 0, bytes([mode] * len(moved)))


def take(curves: MotionCurves) -> dict[int, Array]:
    """Return the new columns by motion."""
    columns = {}
    for number, per_column, first, values in curves.take():
        assert per_column == PER_COLUMN
        assert first % PER_COLUMN == 0
        columns[number] = values
    return columns


@pytest.mark.parametrize("interval", [7, 50, 1000])
def test_curves_contain_every_sample(interval):
    curves, takes = MotionCurves([False], RATE), []
    path = np.random.default_rng(interval).normal(size=(437, 1)).cumsum(axis=0)
    for sample, x in enumerate(path):
        curves.add(measured(1000 + sample, x), x + 0.5)
        if sample % interval == 0:
            takes.append(take(curves))
    takes += [take(curves), take(curves)]  # the second one closes the last motion
    assert {number for columns in takes for number in columns} == {1}
    columns = np.concatenate([columns[1] for columns in takes if columns])
    rows = [path[k : k + PER_COLUMN, 0] for k in range(0, len(path), PER_COLUMN)]
    np.testing.assert_allclose(columns[:, MEASURED, LOWEST], [row.min() for row in rows])
    np.testing.assert_allclose(columns[:, MEASURED, HIGHEST], [row.max() for row in rows])
    np.testing.assert_allclose(columns[:, MEASURED, FIRST], [row[0] for row in rows])
    np.testing.assert_allclose(columns[:, MEASURED, LAST], [row[-1] for row in rows])
    np.testing.assert_allclose(columns[:, FORCE], 1e3 * columns[:, MEASURED])
    np.testing.assert_allclose(columns[:, ERROR], 0.5, atol=1e-9)


def test_next_motion_has_next_number():
    curves = MotionCurves([False], RATE)
    for sample in (*range(25), *range(900, 915)):
        curves.add(measured(sample, np.array([float(sample)])), np.zeros(1))
    columns = take(curves)
    assert {number: len(values) for number, values in columns.items()} == {1: 3, 2: 1}
    assert columns[1][-1, MEASURED, LAST] == 24.0
    assert take(curves)[2][-1, MEASURED, LAST] == 914.0
    assert take(curves) == {}


def test_curves_without_reader_keep_only_last_motions():
    curves = MotionCurves([False], RATE)
    for motion in range(3 * MOST):
        for sample in range(3):
            curves.add(measured(1000 * motion + sample, np.zeros(1)), np.zeros(1))
    assert list(take(curves)) == list(range(2 * MOST + 1, 3 * MOST))  # the last one continues


def test_axis_in_other_control_mode_has_no_target():
    curves = MotionCurves([True], RATE)
    for sample in range(PER_COLUMN):
        curves.add(measured(sample, np.array([0.1])), np.array([0.1]))
    for sample in range(PER_COLUMN, 2 * PER_COLUMN):
        curves.add(measured(sample, np.array([0.1]), MODE_FORCE), np.array([90.0]))
    columns = take(curves)[1]
    assert np.isnan(columns[0, [0, ERROR]]).all()
    np.testing.assert_allclose(columns[1, 0], 90.0)
    np.testing.assert_allclose(columns[1, ERROR], -10.0)
