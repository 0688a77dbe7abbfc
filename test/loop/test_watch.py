# SPDX-License-Identifier: Apache-2.0
"""The verdict of a watcher: ways to lie to it, hours without a false word, and what it can see."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
from attacks import ATTACKS
from watched_world import Attack, World, whole_test

from rths_nodes.loop.supervision.states import State

ENDS_S = 0.05
"""The pulse ends this long after what is said, or done, is wrong."""
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
    """Moments among the fastest tenth at which both axes move, and are far from where they started."""
    world = shaken(0)
    times = np.arange(1.0, 3.2, STEP_S)
    places = np.array([world.planned(t) for t in times])
    speeds = np.abs(np.gradient(places, STEP_S, axis=0)).min(axis=1)
    away = np.abs(places).min(axis=1) > 5e-3
    fast = times[(speeds >= np.quantile(speeds, 0.9)) & away]
    return [float(each) for each in np.random.default_rng(3).choice(fast, count, replace=False)]


MOMENTS = fast_moments(6)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
@pytest.mark.parametrize(
    "moment",
    [*MOMENTS[:1], *(pytest.param(each, marks=pytest.mark.soak) for each in MOMENTS[1:])],
)
def test_pulse_ends_in_50_ms(attack: Attack, moment: float) -> None:
    begins = 4.3 if attack.at_rest else moment
    world = shaken(round(1e3 * moment), attack, begins)
    ended = world.run()
    assert world.watch.ended
    from_ = begins
    if attack.said is not None and ended > begins + ENDS_S:
        from_ = world.visible_at  # until then it was true, within the tolerances
    assert begins <= ended <= from_ + ENDS_S, (attack.name, world.watch.ended, 1e3 * (ended - begins))


def test_there_are_a_hundred_ways() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 100


@pytest.mark.parametrize("seed", [0, 1])
def test_no_false_end(seed: int) -> None:
    no_false_end(seed, 40.0)


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", range(100, 120))
def test_no_false_end_in_10_hours(seed: int) -> None:
    """Ten hours in all, of 20 seeds."""
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
