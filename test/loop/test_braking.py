# SPDX-License-Identifier: Apache-2.0
"""The braking way is part of the limit: no stop from within the limits is above the declared deceleration."""

from __future__ import annotations

import numpy as np
import pytest
from messages import mentions

from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import Array, Command
from rths_nodes.core.validation import from_data
from rths_nodes.loop.supervision.handover import Tares
from rths_nodes.loop.supervision.limits import LimitCheck
from rths_nodes.loop.supervision.safe_stop import SafeStop


def limits(*rows: tuple[float, float, float]) -> dict[str, Limits]:
    """Axes with these strokes (m), velocities (m/s) and decelerations (m/s^2)."""
    keys = ("stroke", "velocity", "deceleration")
    return {
        f"axis_{number}": from_data(Limits, {"force": 1e3, **dict(zip(keys, row, strict=True))})
        for number, row in enumerate(rows)
    }


def path(stop: SafeStop, before: Array, last: Array) -> Array:
    """What is sent from ``before`` on until rest, and twice at rest."""
    stop.begin(before, last)
    rows = [before, last]
    while not stop.at_rest:
        rows.append(stop.step())
    return np.array([*rows, stop.step(), stop.step()])


def check_stops(count: int, seed: int) -> int:
    """Stops from random states; how many of these had passed the limits."""
    rng, passed = np.random.default_rng(seed), 0
    for _ in range(count):
        n, dt = int(rng.integers(1, 4)), float(rng.choice([1 / 256, 1 / 1024, 1 / 4096]))
        drawn = []
        for _ in range(n):  # up to 300 samples to rest from the velocity limit
            velocity = 10.0 ** rng.uniform(-2, 1)
            deceleration = max(0.1, velocity / (dt * 10.0 ** rng.uniform(0.0, 2.5)))
            drawn.append((10.0 ** rng.uniform(-3, 0), velocity, deceleration))
        declared = limits(*drawn)
        groups = tuple(rng.integers(0, 2, n).tolist()) if rng.random() < 0.7 else ()
        stroke, fastest, deceleration = np.array(drawn).T
        zero = stroke * rng.uniform(-0.3, 0.3, n) * (rng.random() < 0.5)
        tares = Tares(np.zeros(n), np.zeros(n), zero, np.full(n, np.inf))
        room = stroke * (1.0 - 10.0 ** rng.uniform(-6, 0, n))  # often close to an end
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


def test_no_stop_is_above_the_declared_deceleration() -> None:
    assert check_stops(2_500, seed=1) > 750


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_none_of_a_hundred_thousand_stops_is_above_the_declared_deceleration() -> None:
    assert check_stops(100_000, seed=2) > 30_000


def test_a_command_leaves_its_braking_way_to_the_end_of_the_stroke() -> None:
    """0.12 m, 0.5 m/s, 5 m/s^2: 24 mm are needed for 0.49 m/s."""
    dt = 1.0 / 1024.0
    check = LimitCheck(limits((0.12, 0.5, 5.0)), dt)

    def reason(place: float, velocity: float) -> str:
        now = np.array([place])
        return check.command(Command(1, now, now), [place - velocity * dt])

    assert reason(0.12 - 0.0241, 0.49) == ""
    assert mentions(
        reason(0.12 - 0.0237, 0.49),
        "axes.axis_0.limits.stroke",
        "command",
        "0.0963 m",
        "0.49 m/s",
        "0.02393 m",
        "0.0237 m",
        "0.12 m",
    )
    assert reason(-0.119, -0.49) != ""
    assert reason(0.119, -0.49) == "", "away from the end"
    assert reason(0.12, 0.0) == ""
    assert reason(0.12, 5.0 * dt) == "", "it stops within one sample"
    assert reason(0.12, 5.1 * dt) != ""


def test_axes_of_one_group_stay_on_their_line_and_need_the_longer_way() -> None:
    """0.30 and 0.10 m/s at 10 m/s^2: each by itself leaves the line by 1 mm."""
    dt, declared = 1.0 / 1024.0, limits((0.25, 0.76, 10.0), (0.25, 0.76, 10.0))
    velocity, start = np.array([0.30, 0.10]), np.array([0.03, 0.01])

    def off_the_line(groups: tuple[int, ...]) -> float:
        sent = path(SafeStop(declared, dt, groups=groups), start - velocity * dt, start)
        return float(np.abs(sent[:, 0] - 3.0 * sent[:, 1]).max() / np.sqrt(10.0))

    way = 0.30**2 / 20.0
    assert off_the_line(()) > 0.9e-3
    assert off_the_line((0, 0)) <= 0.01 * way

    coupled, single = (LimitCheck(declared, dt, groups=groups) for groups in ((0, 0), ()))
    last = np.array([0.03, 0.249])  # 0.5 mm are its own way, 1.5 mm that of the common time
    ask = Command(1, last, last)
    assert single.command(ask, (last - velocity * dt).tolist()) == ""
    assert "axes.axis_1.limits.stroke" in coupled.command(ask, (last - velocity * dt).tolist())


def test_a_group_whose_one_axis_has_no_way_left_stops_on_its_line_all_the_same() -> None:
    dt, declared = 1.0 / 1024.0, limits((0.25, 0.76, 10.0), (0.25, 0.76, 10.0))
    last, velocity = np.array([0.03, 0.249]), np.array([0.6, 0.2])
    sent = path(SafeStop(declared, dt, groups=(0, 0)), last - velocity * dt, last)
    moved = sent[1:] - last
    assert np.abs(moved[:, 0] - 3.0 * moved[:, 1]).max() < 1e-12
    assert sent.max() <= 0.25
