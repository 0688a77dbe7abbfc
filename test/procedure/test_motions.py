# SPDX-License-Identifier: Apache-2.0
"""Motions beside a test: within the velocity and the acceleration of every axis, and to the place."""

from __future__ import annotations

import numpy as np
import pytest
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import Command, Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.loop.supervision.limits import LimitCheck
from rths_nodes.procedure.motions import BoundedRamp, GuidedMotion, QuasiStatic, accelerations

DT = 1.0 / 1024.0
AT_REST = Measurement(0, np.zeros(2), np.zeros(2), np.zeros(2))


def commands(motion: GuidedMotion | BoundedRamp) -> np.ndarray:
    found = []
    while (command := motion.step(AT_REST)) is not None:
        found.append(command)
    return np.array(found)


@pytest.mark.parametrize("far", [1e-6, 1e-3, 0.4])
def test_a_ramp_keeps_the_velocity_and_the_acceleration_of_every_axis(far):
    start, goal = np.array([0.01, -0.02]), np.array([0.01 + far, -0.02 - 0.3 * far])
    velocity, acceleration = np.array([0.02, 0.005]), np.array([0.5, 0.1])
    path = np.vstack([start, start, commands(BoundedRamp(start, goal, velocity, acceleration, DT)), goal])
    assert np.array_equal(path[-2], goal)
    assert (np.abs(np.diff(path, axis=0)) <= velocity * DT).all()
    assert (np.abs(np.diff(path, 2, axis=0)) <= 1.0001 * acceleration * DT**2 + 1e-16).all()


def test_all_axes_arrive_at_the_same_time_on_a_straight_line():
    goal = np.array([0.1, 0.02])
    path = commands(BoundedRamp(np.zeros(2), goal, np.array([0.05, 0.05]), np.array([1.0, 1.0]), DT))
    assert path[:, 1] == pytest.approx(0.2 * path[:, 0], abs=1e-15)


def test_a_ramp_that_goes_nowhere_is_over_at_once():
    assert BoundedRamp(np.ones(2), np.ones(2), np.ones(2), np.ones(2), DT).step(AT_REST) is None


def test_what_is_no_place_or_no_bound_is_refused():
    with pytest.raises(ConfigError, match=naming("must be finite")):
        BoundedRamp(np.zeros(1), np.array([np.nan]), np.ones(1), np.ones(1), DT)
    with pytest.raises(ConfigError, match=naming("velocity = [0.0]", "all", "must be > 0")):
        BoundedRamp(np.zeros(1), np.ones(1), np.zeros(1), np.ones(1), DT)


def limited(stroke: float) -> dict[str, Limits]:
    keys = {"stroke": stroke, "velocity": 0.5, "force": 1e3, "deceleration": 5.0}
    return {name: from_data(Limits, keys) for name in ("a", "b")}


def test_a_ramp_to_the_end_of_the_stroke_is_within_the_limits_on_its_whole_way():
    """With the most that a guided motion may have; and one to beyond the stroke is not."""
    limits, goal = limited(0.12), np.array([0.12, -0.04])
    check = LimitCheck(limits, DT, groups=(0, 0))

    def refusals(far: float) -> list[str]:
        path = commands(BoundedRamp(np.zeros(2), far * goal, np.full(2, 0.5), accelerations(limits), DT))
        before = np.vstack([np.zeros(2), path[:-1]])
        return [check.command(Command(1, now, now), last.tolist()) for now, last in zip(path, before, strict=True)]

    assert not any(refusals(1.0))
    assert any(refusals(1.001))


@pytest.mark.parametrize("after", [3, 200, 700, 1000])
def test_a_ramp_that_is_ended_brakes_on_its_line_and_in_front_of_its_goal(after):
    limits, goal = limited(0.12), np.array([0.12, -0.04])
    check = LimitCheck(limits, DT, groups=(0, 0))
    rig = QuasiStatic(np.zeros(2), DT, 0, accelerations(limits), (np.zeros(2), np.zeros(2)))
    seen = iter(range(after + 1))
    steps = rig.ramp(goal, np.full(2, 0.5), lambda measured: "enough" if next(seen) == after else "")
    before = np.zeros(2)
    for now in commands(GuidedMotion(steps, np.zeros(2))):
        assert check.command(Command(1, now, now), before.tolist()) == ""
        assert now[1] == pytest.approx(-now[0] / 3.0, abs=1e-12)
        before = now
    assert 0.0 < before[0] < 0.12


def test_behind_a_test_that_ends_under_way_the_rig_has_caught_up(walk):
    """So that the next act is not refused because the actuators are still on their way."""
    far = "ground_motion={type: sine, amplitude: 0.5, frequency: 1.0}"
    w = walk(far, "duration=1.4", "compensator.type=none")
    w.to_start()
    assert w.climb("g").outcome == "finished"
    assert abs(w.run.command[-1, 0] - w.run.command[-2, 0]) * w.scenario.servo_rate > 0.02
    drive = w.session.drive
    assert np.abs(drive.measured.displacement - drive.command).max() < 0.5e-3


def test_a_coarse_converter_takes_what_was_sent(walk):
    w = walk(rig=("command: {unit: mm, range: 260.0}", "command: {unit: mm, range: 260.0, resolution: 0.127}"))
    w.to_start()
    assert w.climb("g").outcome == "finished"
    assert w.session.unload().given_up == ""
