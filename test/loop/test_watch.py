# SPDX-License-Identifier: Apache-2.0
"""Tests of the watcher: attacks that must end the pulse, hours without a false end."""

from __future__ import annotations

import math

import numpy as np
import pytest
from messages import mentions
from watched_world import ATTACKS, OWN_HZ, SECTION, SERVO_HZ, Attack, World, section_data, whole_test

from rths_nodes.core.validation import from_data
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.watch.section import WatchSection
from rths_nodes.loop.watch.watcher import Sample, Statement, Watch

ENDS_S = 0.05
"""Longest time from a wrong message or motion to the end of the pulse, s."""
STEP_S = 1e-3


def shaken(seed: int, attack: Attack | None = None, begins: float = math.inf) -> World:
    world = World(seed, attack, begins)
    world.rest(State.POSITIONED, 0.4)
    world.rest(State.ARMED, 0.2)
    world.shake(3.0, (0.02, 0.018))
    world.rest(State.RUNNING, 0.3)
    world.rest(State.HELD, 1.0)
    return world


def fast_moments(count: int) -> list[float]:
    """Draw times from the fastest 10 % at which both axes move, far from their initial positions."""
    world = shaken(0)
    times = np.arange(1.0, 3.2, STEP_S)
    positions = np.array([world.planned(t) for t in times])
    speeds = np.abs(np.gradient(positions, STEP_S, axis=0)).min(axis=1)
    away = np.abs(positions).min(axis=1) > 5e-3
    fast = times[(speeds >= np.quantile(speeds, 0.9)) & away]
    return np.random.default_rng(3).choice(fast, count, replace=False).tolist()


MOMENTS = fast_moments(6)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
@pytest.mark.parametrize(
    "moment", [*MOMENTS[:1], *(pytest.param(moment, marks=pytest.mark.soak) for moment in MOMENTS[1:])]
)
def test_pulse_ends_in_50_ms(attack: Attack, moment: float) -> None:
    begins = 4.3 if attack.at_rest else moment
    world = shaken(round(1e3 * moment), attack, begins)
    ended = world.run()
    assert world.watch.ended
    visible = begins
    if attack.sent is not None and ended > begins + ENDS_S:
        visible = world.visible_at  # the messages were true within the tolerances before
    assert begins <= ended <= visible + ENDS_S, (attack.name, world.watch.ended, 1e3 * (ended - begins))


@pytest.mark.parametrize("every", [1, 2, 3])
def test_lost_samples_do_not_lift_a_limit(every: int) -> None:
    """No limit with a persistence above 1 acted if every second sample of the watcher was lost."""
    watch = Watch(SECTION, SERVO_HZ)
    for number in range(3):
        assert not watch.ended
        watch.sense(Sample(number * every / OWN_HZ, number * every, (0.0, 0.081 if number else 0.0), (0.0, 0.0)))
    assert mentions(watch.ended, "south", "displacement", "0.08")


@pytest.mark.parametrize(
    ("factor", "begins", "valid"),
    [(0.5, 0.0, False), (0.95, 0.0, True), (1.0, 0.3, True), (1.05, 0.0, True), (2.0, 0.0, False)],
)
def test_sensors_at_another_rate_end_the_watch(factor: float, begins: float, valid: bool) -> None:
    """Twice the declared rate halved every velocity, and thus lifted the limit. Earlier samples arrive at once."""
    watch, zeros = Watch(SECTION, SERVO_HZ), (0.0, 0.0)
    for number in range(round(2.5 * factor * OWN_HZ)):
        watch.sense(Sample(max(begins, number / (factor * OWN_HZ)), number, zeros, zeros))
    assert not watch.ended if valid else mentions(watch.ended, f"{factor * OWN_HZ:.0f}", f"{OWN_HZ:g}")


def test_sensors_may_be_silent_for_longer_than_late() -> None:
    """The watch ended without naming a cause."""
    section = from_data(WatchSection, section_data() | {"told": 1000.0, "late": 0.006, "silence": 0.04})
    watch, zeros = Watch(section, SERVO_HZ), (0.0, 0.0)
    watch.take_state(int(State.CONNECTED))
    for tick in range(300):
        now = tick / SERVO_HZ
        if tick % 2 == 0 and not 100 <= tick < 136:
            watch.sense(Sample(now, tick // 2, zeros, zeros))
        watch.receive(Statement(now, tick, (0.01 if tick == 250 else 0.0, 0.0), zeros, zeros))
        assert not watch.judge(now) or tick > 250
    assert mentions(watch.ended, "north", "displacement", "0.01")


def test_at_least_100_attacks() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 100


@pytest.mark.parametrize("seed", [0, 1])
def test_no_false_end(seed: int) -> None:
    no_false_end(seed, 40.0)


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", range(100, 120))
def test_no_false_end_in_10_hours(seed: int) -> None:
    """Ten hours in total, in 20 seeds."""
    no_false_end(seed, 1800.0)


def no_false_end(seed: int, seconds: float) -> None:
    draw = np.random.default_rng(seed)
    passed = 0.0
    while passed < seconds:
        world = World(int(draw.integers(2**31)), loss=float(draw.choice([0.0, 0.02])))
        whole_test(world, draw)
        assert world.run() == math.inf, world.watch.ended
        assert world.watch.ready
        passed += world.until
