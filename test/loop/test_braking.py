# SPDX-License-Identifier: Apache-2.0
"""Tests of the braking distance in the limits: a stop never exceeds the declared deceleration."""

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
        declared = limits(*drawn)
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
    check = LimitCheck(limits((0.12, 0.5, 5.0)), dt)

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
    dt, declared = 1.0 / 1024.0, limits((0.25, 0.76, 10.0), (0.25, 0.76, 10.0))
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
    dt, declared = 1.0 / 1024.0, limits((0.25, 0.76, 10.0), (0.25, 0.76, 10.0))
    last, velocity = np.array([0.03, 0.249]), np.array([0.6, 0.2])
    sent = path(SafeStop(declared, dt, groups=(0, 0)), last - velocity * dt, last)
    moved = sent[1:] - last
    assert np.abs(moved[:, 0] - 3.0 * moved[:, 1]).max() < 1e-12
    assert sent.max() <= 0.25
