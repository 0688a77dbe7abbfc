# SPDX-License-Identifier: Apache-2.0
"""What the rows of limits and levels mean: against an account of doc/safety.md without them, on random samples."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from driven_kernels import EXTREMES, functions_of, same, wrong_in
from in_c import compiled

from rths_nodes.core.kernels import copied
from rths_nodes.core.limits import Level, Levels, Limits
from rths_nodes.core.samples import MODE_DISPLACEMENT, MODE_FORCE, MODE_HELD, MODE_NOT_TOLD, Command, Measurement
from rths_nodes.loop.compiled.running import in_arrays
from rths_nodes.loop.supervision import limits as limit_rows
from rths_nodes.loop.supervision.handover import Tares
from rths_nodes.loop.supervision.levels import LevelWatch
from rths_nodes.loop.supervision.limits import LimitCheck

BAD = (math.nan, math.inf, -math.inf)
FACTORS = (0.3, 0.9, 0.999, 1.001, 1.2, 4.0)
"""Of a bound: what is within it, and beyond it, far from rounding."""
CLOSE = 1e-9


class Rig:
    """Random limits of one to three axes that move and up to two loads, with zeros, groups and channels."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.n_moved = rng, int(rng.integers(1, 4))
        self.n = n = self.n_moved + int(rng.choice([0, 0, 1, 2]))
        self.dt = float(rng.choice([1 / 256, 1 / 1024, 1 / 4096]))
        self.names = [f"axis_{number}" for number in range(n)]
        self.limits = {}
        for number, name in enumerate(self.names):
            given = dict(
                zip(("stroke", "velocity", "force"), 10.0 ** rng.uniform((-2, -1, 3), (0, 0.5, 6)), strict=True)
            )
            given["deceleration"] = max(0.1, given["velocity"] / self.dt / 10.0 ** rng.uniform(0.0, 2.0))
            if number >= self.n_moved:
                given |= {"force_rate": 30.0 * given["force"], "force_error": 0.1 * given["force"]}
            elif rng.random() < 0.5:
                given["tracking_error"] = 0.1 * given["stroke"]
            self.limits[name] = Limits(**given)
        self.bounds = {
            key: np.array([getattr(lim, key) or math.inf for lim in self.limits.values()])
            for key in (
                "stroke",
                "velocity",
                "force",
                "deceleration",
                "tracking_error",
                "force_rate",
                "force_error",
            )
        }
        zero = self.bounds["stroke"] * rng.uniform(-0.2, 0.2, (2, n))
        reach = np.where(rng.random(n) < 0.5, 0.5 * self.bounds["stroke"], np.inf)
        self.tares = Tares(zero[0], 0.1 * self.bounds["force"] * rng.uniform(-1, 1, n), zero[1], reach)
        self.groups = tuple(rng.integers(0, 2, n).tolist()) if rng.random() < 0.6 else ()
        self.shown = bool(rng.random() < 0.3)
        channels = ("voltage [V]", "uncorrected_force_axis_0 [N]") if self.shown else ("voltage [V]",)
        self.check = LimitCheck(self.limits, self.dt, ("gain",), channels, self.tares, self.groups)

    def near(self, bound: float) -> float:
        """Within or beyond a bound, or no number."""
        if self.rng.random() < 0.1:
            return float(self.rng.choice(BAD))
        return float(bound * self.rng.choice(FACTORS) * self.rng.choice([-1.0, 1.0]))


def stops_within(rig: Rig, axes: list[int], place: np.ndarray, step: np.ndarray) -> list[bool | None]:
    """Whether ``axes``, which brake together from their ``step`` (m a sample), end within their strokes.

    The stop is driven sample by sample: each step is shorter than the last by as much, in as few samples as no
    axis brakes harder than declared. None where rounding decides.
    """
    change = rig.bounds["deceleration"][axes] * rig.dt**2
    needed = float(np.max(np.abs(step[axes]) / change))
    samples = math.ceil(needed)
    if abs(needed - round(needed)) < CLOSE * needed:
        return [None] * len(axes)
    found: list[bool | None] = []
    for axis in axes:
        path = place[axis] + np.cumsum(step[axis] * (1.0 - np.arange(1, samples + 1) / max(samples, 1)))
        over = np.abs(path).max(initial=abs(place[axis])) - rig.bounds["stroke"][axis]
        found.append(None if abs(over) < CLOSE * rig.bounds["stroke"][axis] else bool(over < 0.0))
    return found


def why_not_sent(rig: Rig, c: Command, before: np.ndarray, modes_before: bytes, told: bytes) -> str | None:
    """Axis and limit that a Command breaks first, empty for none; None where rounding decides."""
    b, zero = rig.bounds, rig.tares.command
    place, step = c.command + zero, c.command - before
    for axis in range(rig.n_moved, rig.n):
        for what, value in (("target", c.target[axis]), ("command", c.command[axis])):
            if not math.isfinite(value):
                return f"{axis}: {what}"
        newtons = bool(c.control_mode) and c.control_mode[axis] == MODE_FORCE
        rate = step[axis] / rig.dt if newtons == (bool(modes_before) and modes_before[axis] == MODE_FORCE) else 0.0
        if newtons and not (told and told[axis] in (MODE_FORCE, MODE_HELD)):
            return f"{axis}: mode"
        if newtons and abs(c.command[axis] + rig.tares.force[axis]) > b["force"][axis]:
            return f"{axis}.force: command"
        if newtons and abs(rate) > b["force_rate"][axis]:
            return f"{axis}.force_rate: command"
        if not newtons and abs(place[axis]) > b["stroke"][axis]:
            return f"{axis}.stroke: command"
        if not newtons and abs(rate) > b["velocity"][axis]:
            return f"{axis}.velocity: command"
    for axis in range(rig.n_moved):
        if not math.isfinite(c.target[axis]):
            return f"{axis}: target"
        if not math.isfinite(c.command[axis]):
            return f"{axis}: command"
        if abs(place[axis]) > b["stroke"][axis]:
            return f"{axis}.stroke: command"
        if not abs(step[axis]) / rig.dt <= b["velocity"][axis]:
            return f"{axis}.velocity: command"
        (stops,) = stops_within(rig, [axis], place, step)
        if not stops:
            return None if stops is None else f"{axis}.stroke: command at"
    groups: dict[int, list[int]] = {}
    for axis, number in enumerate(rig.groups[: rig.n_moved]):
        groups.setdefault(number, []).append(axis)
    for axes in groups.values():
        for axis, stops in zip(axes, stops_within(rig, axes, place, step), strict=True):
            if not stops:
                return None if stops is None else f"{axis}.stroke: command at"
    return "" if np.isfinite(c.auxiliary).all() else "channel"


def why_not_on(rig: Rig, m: Measurement, target: np.ndarray, modes: bytes) -> str:
    """Axis and limit that a Measurement breaks first, empty for none."""
    b, force = rig.bounds, m.force.copy()
    if rig.shown:
        force[0] = m.auxiliary[1]
    moved = m.displacement - rig.tares.displacement
    for axis in [*range(rig.n_moved, rig.n), *range(rig.n_moved)]:
        if not abs(m.displacement[axis]) <= b["stroke"][axis]:
            return f"{axis}.stroke: measured"
        if not abs(force[axis]) <= b["force"][axis]:
            return f"{axis}.force: measured"
        if abs(moved[axis]) > rig.tares.reach[axis]:
            return f"{axis}.elastic_limit: measured"
        if axis < rig.n_moved and not abs(target[axis] - moved[axis]) <= b["tracking_error"][axis]:
            return f"{axis}.tracking_error: target - measured"
        error = target[axis] + rig.tares.force[axis] - force[axis]
        newtons = bool(modes) and modes[axis] == MODE_FORCE
        if axis >= rig.n_moved and newtons and not abs(error) <= b["force_error"][axis]:
            return f"{axis}.force_error: target - measured"
    return "" if np.isfinite(m.auxiliary).all() else "channel"


def key_of(reason: str) -> str:
    """Axis and limit in the words."""
    if "no control mode for commands in N" in reason:
        return f"{reason[10]}: mode"
    if not reason.startswith("axes."):
        return "channel" if reason else ""
    found = re.match(r"axes\.axis_(\d)(?:\.\w+)?(?:\.(\w+))?: ([^=]*) = .*?( at|$)", reason)
    assert found is not None, reason
    axis, limit, what, way = found.groups()
    return f"{axis}{'.' + limit if limit else ''}: {what}{way if ' m at ' in reason else ''}"


def modes_of(rig: Rig, choices: tuple[int, ...]) -> bytes:
    """Of all axes, of which the last ones are loads; sometimes they are not told."""
    loads = rig.rng.choice(choices, rig.n - rig.n_moved).tolist()
    return bytes([MODE_DISPLACEMENT] * rig.n_moved + loads) if loads and rig.rng.random() < 0.9 else b""


def sent(rig: Rig, modes: bytes) -> tuple[Command, np.ndarray]:
    """A Command, mostly within the limits, and what was sent before it."""
    rng, b, n = rig.rng, rig.bounds, rig.n
    place = b["stroke"] * (1.0 - 10.0 ** rng.uniform(-5, 0, n)) * rng.choice([-1.0, 1.0], n)
    stoppable = np.sqrt(2.0 * b["deceleration"] * (b["stroke"] - np.abs(place)))
    largest = rig.dt * np.minimum(b["velocity"], stoppable)
    step = largest * rng.choice([-1.0, 1.0], n) * rng.choice([0.1, 0.5, 0.9, 0.99, 1.01], n)
    now = place - rig.tares.command
    for axis in range(rig.n_moved, n):
        if modes and modes[axis] == MODE_FORCE:
            now[axis], step[axis] = 0.5 * b["force"][axis], 0.5 * b["force_rate"][axis] * rig.dt
    before, target, auxiliary = now - step, now.copy(), np.zeros(1)
    for _ in range(int(rng.choice([0, 0, 0, 1, 2]))):
        axis, what = int(rng.integers(n)), int(rng.integers(4))
        newtons = bool(modes) and modes[axis] == MODE_FORCE
        if what == 0:
            target[axis] = rng.choice(BAD)
        elif what == 1:
            now[axis] = rig.near(b["force" if newtons else "stroke"][axis])
            now[axis] -= (rig.tares.force if newtons else rig.tares.command)[axis]
        elif what == 2 and math.isfinite(now[axis]):
            jump = rig.near(rig.dt * b["force_rate" if newtons else "velocity"][axis])
            before[axis] = now[axis] - (jump if math.isfinite(jump) else 0.0)
        else:
            auxiliary[0] = rng.choice(BAD)
    return Command(1, target, now, auxiliary, control_mode=modes), before


def shown(rig: Rig, modes: bytes) -> tuple[Measurement, np.ndarray]:
    """A Measurement, mostly within the limits, and its targets."""
    rng, b, n = rig.rng, rig.bounds, rig.n
    x, force = b["stroke"] * rng.uniform(-0.2, 0.2, n), b["force"] * rng.uniform(-0.9, 0.9, n)
    target, channels = x - rig.tares.displacement, [0.0, 0.0][: 1 + rig.shown]
    newtons = np.array([bool(modes) and mode == MODE_FORCE for mode in modes or bytes(n)])
    target[newtons] = (force - rig.tares.force)[newtons]
    for _ in range(int(rng.choice([0, 0, 1, 2]))):
        axis, what = int(rng.integers(n)), int(rng.integers(5))
        error = b["tracking_error" if axis < rig.n_moved else "force_error"][axis]
        if what == 0:
            x[axis] = rig.near(b["stroke"][axis])
        elif what == 1:
            force[axis] = rig.near(b["force"][axis])
        elif what == 2 and rig.tares.reach[axis] < math.inf:
            x[axis] = rig.tares.displacement[axis] + rig.near(rig.tares.reach[axis])
        elif what == 3 and error < math.inf:
            target[axis] += rig.near(error)
        elif what == 4:
            channels[-1] = rig.near(b["force"][0])
    return Measurement(
        1,
        x,
        force,
        target,
        np.array(channels),
        control_mode=modes_of(rig, (MODE_NOT_TOLD, *6 * [MODE_FORCE], *6 * [MODE_HELD])),
    ), target


def test_the_first_limit_that_is_broken_is_the_one_that_is_told() -> None:
    rng, found, close = np.random.default_rng(5), Counter[str](), 0
    with np.errstate(invalid="ignore"):
        for _ in range(50):
            rig, before, told = Rig(rng), b"", b""
            for _ in range(250):
                modes = modes_of(rig, (MODE_DISPLACEMENT, MODE_FORCE, MODE_FORCE))
                measured, target = shown(rig, modes)
                key = key_of(rig.check.measurement(measured, target, modes))
                assert key == why_not_on(rig, measured, target, modes)
                found[re.sub(r"^\d", "", key)] += 1
                told = measured.control_mode
                command, last = sent(rig, modes)
                expected = why_not_sent(rig, command, last, before, told)
                key = key_of(rig.check.command(command, last.tolist(), before))
                close += expected is None
                assert expected in (None, key)
                found[re.sub(r"^\d", "", key)] += 1
                before = modes
    assert close < 300
    assert len(found) == 15
    assert min(found.values()) > 50, found


def series(rng: np.random.Generator, count: int) -> list[tuple[Command, Measurement]]:
    """Samples of two axes, in which now and then something is no number."""
    rows = np.cumsum(rng.standard_normal((count, 5, 2)), axis=0)
    rows[rng.random(rows.shape) < 0.01] = np.nan
    return [
        (Command(k, target, command), Measurement(k, x, force, applied))
        for k, (target, command, x, force, applied) in enumerate(rows)
    ]


def histories(samples: list[tuple[Command, Measurement]], axis: int, dt: float) -> dict[str, np.ndarray]:
    """Each quantity over the whole test."""
    target, command = (np.array([getattr(c, name)[axis] for c, _ in samples]) for name in ("target", "command"))
    x, force = (np.array([getattr(m, name)[axis] for _, m in samples]) for name in ("displacement", "force"))

    def change(of: np.ndarray) -> np.ndarray:
        return np.diff(of, prepend=of[0])

    return {
        "displacement": x,
        "force": force,
        "force_rate": change(force) * (1.0 / dt),
        "command_step": change(command),
        "piston_velocity": change(x) * (1.0 / dt),
        "command_error": command - target,
        "tracking_error": target - x,
    }


@pytest.mark.parametrize("seed", range(30))
def test_a_level_acts_where_it_has_lasted_and_tells_how_far_it_went(seed: int) -> None:
    """The same from whole histories: runs of samples beyond the bounds, counted from their ends."""
    rng, dt = np.random.default_rng(seed), 1e-3
    given: list[dict[str, Level]] = [{}, {}]
    samples = series(rng, 400)
    values = [histories(samples, axis, dt) for axis in (0, 1)]
    for axis, quantity in ((i, q) for i in (0, 1) for q in values[i] if rng.random() < 0.5):
        low, warn_low, warn_high, high = np.nanquantile(values[axis][quantity], [0.02, 0.1, 0.9, 0.98]).tolist()
        bounds: dict[str, Any] = {"minimum": low, "warn_minimum": warn_low} if rng.random() < 0.7 else {}
        bounds |= {"maximum": high, "warn_maximum": warn_high} if rng.random() < 0.7 or not bounds else {}
        action = str(rng.choice(["indicate", "hold", "stop", "interlock"]))
        given[axis][quantity] = Level(**bounds, persistence=int(rng.integers(1, 6)), action=action)
    limits = {
        name: Limits(stroke=1.0, velocity=1.0, force=1.0, levels=Levels(**levels))
        for name, levels in zip("ab", given, strict=True)
    }
    watch = LevelWatch.of(limits, dt)
    assert watch is not None
    acted = [watch.judge(command, measured) for command, measured in samples]
    expected: dict[int, tuple[str, str]] = {}
    numbers: dict[str, Any] = {}
    for name, levels, of in zip("ab", given, values, strict=True):
        for quantity, level in levels.items():
            value = of[quantity]
            low, high = (-math.inf if level.minimum is None else level.minimum), level.maximum or math.inf
            within = (value >= low) & (value <= high)
            last = np.maximum.accumulate(np.where(within, np.arange(len(value)), -1))
            due = np.flatnonzero(np.arange(len(value)) - last >= level.persistence)
            for k in due.tolist() if level.action != "indicate" else ():
                expected.setdefault(k, (f"axes.{name}.limits.levels.{quantity}: {value[k]:.6g} ", level.action))
            warn_low = low if level.warn_minimum is None else level.warn_minimum
            told = np.flatnonzero(~((value >= warn_low) & (value <= (level.warn_maximum or high))))
            row = {"lowest": np.nanmin(value), "highest": np.nanmax(value), "samples": len(told)}
            numbers.setdefault(name, {})[quantity] = row | ({"first": told[0]} if len(told) else {})
    assert watch.numbers() == numbers
    assert len(watch.told) == sum(row["samples"] > 0 for rows in numbers.values() for row in rows.values())
    assert {k for k, breach in enumerate(acted) if breach} == set(expected)
    for k, (words, action) in expected.items():
        breach = acted[k]
        assert breach is not None
        assert (breach.action, breach.reason[: len(words)]) == (action, words)


# Kernels

KERNELS = (
    limit_rows.acting,
    limit_rows.broken_alone,
    limit_rows.broken_together,
    limit_rows.of_load_commands,
    limit_rows.of_errors,
)


def inputs(rng: np.random.Generator, extreme: bool) -> dict[Any, tuple[Any, ...]]:
    """Arguments of each kernel for three axes, in types that are compiled, too."""

    def some(*shape: int) -> Any:
        drawn = rng.standard_normal(shape)
        if extreme:
            drawn[rng.random(shape) < 0.2] = rng.choice(EXTREMES)
        return drawn

    moves = tuple((i, float(z), 2.0, 1.0, 0.5) for i, z in enumerate(0.1 * rng.standard_normal(3)))
    rows = tuple((i, -1.0, 1.0, int(p)) for i, p in enumerate(rng.integers(1, 3, 6)))
    modes = bytes(rng.integers(0, 4, 3).tolist())
    return {
        limit_rows.acting: ((rows, np.zeros(6, int), np.full(6, -2)), some(6), 0),
        limit_rows.broken_alone: (moves, some(3), some(3), 0.3 * some(3)),
        limit_rows.broken_together: ((moves[:2],), some(3), 0.3 * some(3)),
        limit_rows.of_load_commands: (
            tuple((i, 0.1, 0.2, 1e-3) for i in range(3)),
            *(some(3), some(3), some(3), (modes, b"", modes)),
        ),
        limit_rows.of_errors: (((0.1, 0.2, False), (0.0, 1.0, True)), some(3), some(3), some(3), modes),
    }


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda each: each.__name__)
def test_limits_are_kernels(kernel: Any) -> None:
    """The same bits compiled, on numbers and on what is none; nothing barred stands in them."""
    assert {
        name.__qualname__: wrong_in(name) for name in functions_of(kernel, {}).values() if wrong_in(name)
    } == {}
    rng = np.random.default_rng(1)
    first = in_arrays(inputs(rng, extreme=False)[kernel])
    quick = compiled(kernel, first, [False] * len(first))
    with np.errstate(all="ignore"):
        for number in range(500):
            given = inputs(rng, extreme=number % 2 == 0)[kernel]
            plain, again = copied(given), in_arrays(copied(given))
            assert same(kernel(*plain), quick(*again)), given
            assert repr(plain) == repr(again)
