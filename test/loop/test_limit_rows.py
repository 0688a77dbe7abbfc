# SPDX-License-Identifier: Apache-2.0
"""Tests of limits and levels against an independent implementation of doc/safety.md, on random samples."""

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
from rths_nodes.core.limits import ACTIONS, Level, Levels, Limits
from rths_nodes.core.samples import MODE_DISPLACEMENT, MODE_FORCE, MODE_HELD, MODE_NOT_TOLD, Command, Measurement
from rths_nodes.loop.compiled.running import in_arrays
from rths_nodes.loop.supervision import limits as limit_rows
from rths_nodes.loop.supervision.handover import Tares
from rths_nodes.loop.supervision.levels import LevelWatch
from rths_nodes.loop.supervision.limits import LimitCheck

BAD = (math.nan, math.inf, -math.inf)
FACTORS = (0.3, 0.9, 0.999, 1.001, 1.2, 4.0)
"""Factors of a bound: within and beyond it, far from rounding."""
CLOSE = 1e-9


class Rig:
    """Random limits of one to three axes and up to two loads, with tares, stop groups and channels."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.n_moved = rng, int(rng.integers(1, 4))
        self.n = n = self.n_moved + int(rng.choice([0, 0, 1, 2]))
        self.dt = float(rng.choice([1 / 256, 1 / 1024, 1 / 4096]))
        self.names = [f"axis_{number}" for number in range(n)]
        self.limits = {}
        for number, name in enumerate(self.names):
            stroke, velocity, force = (10.0 ** rng.uniform((-2, -1, 3), (0, 0.5, 6))).tolist()
            data = {"deceleration": max(0.1, velocity / self.dt / 10.0 ** rng.uniform(0.0, 2.0))}
            if number >= self.n_moved:
                data |= {"force_rate": 30.0 * force, "force_error": 0.1 * force}
            elif rng.random() < 0.5:
                data["tracking_error"] = 0.1 * stroke
            self.limits[name] = Limits(stroke=stroke, velocity=velocity, force=force, **data)
        keys = ["stroke", "velocity", "force", "deceleration", "tracking_error", "force_rate", "force_error"]
        self.bounds = {
            key: np.array([getattr(lim, key) or math.inf for lim in self.limits.values()]) for key in keys
        }
        zero = self.bounds["stroke"] * rng.uniform(-0.2, 0.2, (2, n))
        reach = np.where(rng.random(n) < 0.5, 0.5 * self.bounds["stroke"], np.inf)
        self.tares = Tares(zero[0], 0.1 * self.bounds["force"] * rng.uniform(-1, 1, n), zero[1], reach)
        self.groups = tuple(rng.integers(0, 2, n).tolist()) if rng.random() < 0.6 else ()
        self.shown = bool(rng.random() < 0.3)
        channels = ("voltage [V]", "uncorrected_force_axis_0 [N]") if self.shown else ("voltage [V]",)
        self.check = LimitCheck(self.limits, self.dt, ("gain",), channels, self.tares, self.groups)

    def near(self, bound: float) -> float:
        """Return a value within or beyond a bound, or no finite number."""
        if self.rng.random() < 0.1:
            return float(self.rng.choice(BAD))
        return float(bound * self.rng.choice(FACTORS) * self.rng.choice([-1.0, 1.0]))


def stops_within(rig: Rig, axes: list[int], start: np.ndarray, step: np.ndarray) -> list[bool | None]:
    """Return True for each of ``axes`` that stops within its stroke; None if rounding decides.

    The axes brake together from their ``step`` (m per sample), sample by sample: the steps decrease evenly, in the
    smallest number of samples in which no axis exceeds its deceleration.
    """
    change = rig.bounds["deceleration"][axes] * rig.dt**2
    needed = float(np.max(np.abs(step[axes]) / change))
    samples = math.ceil(needed)
    if abs(needed - round(needed)) < CLOSE * needed:
        return [None] * len(axes)
    results: list[bool | None] = []
    for axis in axes:
        path = start[axis] + np.cumsum(step[axis] * (1.0 - np.arange(1, samples + 1) / max(samples, 1)))
        over = np.abs(path).max(initial=abs(start[axis])) - rig.bounds["stroke"][axis]
        results.append(None if abs(over) < CLOSE * rig.bounds["stroke"][axis] else bool(over < 0.0))
    return results


def command_breach(rig: Rig, c: Command, before: np.ndarray, modes_before: bytes, measured: bytes) -> str | None:
    """Return axis and limit that a Command breaks first, empty for none; None if rounding decides."""
    b, zero = rig.bounds, rig.tares.command
    position, step = c.command + zero, c.command - before
    for axis in range(rig.n_moved, rig.n):
        for what, value in (("target", c.target[axis]), ("command", c.command[axis])):
            if not math.isfinite(value):
                return f"{axis}: {what}"
        newtons = bool(c.control_mode) and c.control_mode[axis] == MODE_FORCE
        rate = step[axis] / rig.dt if newtons == (bool(modes_before) and modes_before[axis] == MODE_FORCE) else 0.0
        if newtons and not (measured and measured[axis] in (MODE_FORCE, MODE_HELD)):
            return f"{axis}: mode"
        if newtons and abs(c.command[axis] + rig.tares.force[axis]) > b["force"][axis]:
            return f"{axis}.force: command"
        if newtons and abs(rate) > b["force_rate"][axis]:
            return f"{axis}.force_rate: command"
        if not newtons and abs(position[axis]) > b["stroke"][axis]:
            return f"{axis}.stroke: command"
        if not newtons and abs(rate) > b["velocity"][axis]:
            return f"{axis}.velocity: command"
    for axis in range(rig.n_moved):
        if not math.isfinite(c.target[axis]):
            return f"{axis}: target"
        if not math.isfinite(c.command[axis]):
            return f"{axis}: command"
        if abs(position[axis]) > b["stroke"][axis]:
            return f"{axis}.stroke: command"
        if not abs(step[axis]) / rig.dt <= b["velocity"][axis]:
            return f"{axis}.velocity: command"
        (stops,) = stops_within(rig, [axis], position, step)
        if not stops:
            return None if stops is None else f"{axis}.stroke: command at"
    groups: dict[int, list[int]] = {}
    for axis, number in enumerate(rig.groups[: rig.n_moved]):
        groups.setdefault(number, []).append(axis)
    for axes in groups.values():
        for axis, stops in zip(axes, stops_within(rig, axes, position, step), strict=True):
            if not stops:
                return None if stops is None else f"{axis}.stroke: command at"
    return "" if np.isfinite(c.auxiliary).all() else "channel"


def measurement_breach(rig: Rig, m: Measurement, target: np.ndarray, modes: bytes) -> str:
    """Return axis and limit that a Measurement breaks first, empty for none."""
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
    """Axis and limit of a reason."""
    if "no control mode for commands in N" in reason:
        return f"{reason[10]}: mode"
    if not reason.startswith("axes."):
        return "channel" if reason else ""
    match = re.match(r"axes\.axis_(\d)(?:\.\w+)?(?:\.(\w+))?: ([^=]*) = .*?( at|$)", reason)
    assert match is not None, reason
    axis, limit, quantity, at = match.groups()
    return f"{axis}{'.' + limit if limit else ''}: {quantity}{at if ' m at ' in reason else ''}"


def modes_of(rig: Rig, choices: tuple[int, ...]) -> bytes:
    """Modes of all axes, the loads last; sometimes empty."""
    loads = rig.rng.choice(choices, rig.n - rig.n_moved).tolist()
    return bytes([MODE_DISPLACEMENT] * rig.n_moved + loads) if loads and rig.rng.random() < 0.9 else b""


def drawn_command(rig: Rig, modes: bytes) -> tuple[Command, np.ndarray]:
    """Draw a Command, mostly within the limits, and the command before it."""
    rng, b, n = rig.rng, rig.bounds, rig.n
    position = b["stroke"] * (1.0 - 10.0 ** rng.uniform(-5, 0, n)) * rng.choice([-1.0, 1.0], n)
    stoppable = np.sqrt(2.0 * b["deceleration"] * (b["stroke"] - np.abs(position)))
    largest = rig.dt * np.minimum(b["velocity"], stoppable)
    step = largest * rng.choice([-1.0, 1.0], n) * rng.choice([0.1, 0.5, 0.9, 0.99, 1.01], n)
    now = position - rig.tares.command
    for axis in range(rig.n_moved, n):
        if modes and modes[axis] == MODE_FORCE:
            now[axis], step[axis] = 0.5 * b["force"][axis], 0.5 * b["force_rate"][axis] * rig.dt
    before, target, auxiliary = now - step, now.copy(), np.zeros(1)
    for _ in range(int(rng.choice([0, 0, 0, 1, 2]))):
        axis, change = int(rng.integers(n)), int(rng.integers(4))
        newtons = bool(modes) and modes[axis] == MODE_FORCE
        if change == 0:
            target[axis] = rng.choice(BAD)
        elif change == 1:
            now[axis] = rig.near(b["force" if newtons else "stroke"][axis])
            now[axis] -= (rig.tares.force if newtons else rig.tares.command)[axis]
        elif change == 2 and math.isfinite(now[axis]):
            jump = rig.near(rig.dt * b["force_rate" if newtons else "velocity"][axis])
            before[axis] = now[axis] - (jump if math.isfinite(jump) else 0.0)
        else:
            auxiliary[0] = rng.choice(BAD)
    return Command(1, target, now, auxiliary, control_mode=modes), before


def drawn_measurement(rig: Rig, modes: bytes) -> tuple[Measurement, np.ndarray]:
    """Draw a Measurement, mostly within the limits, and its targets."""
    rng, b, n = rig.rng, rig.bounds, rig.n
    x, force = b["stroke"] * rng.uniform(-0.2, 0.2, n), b["force"] * rng.uniform(-0.9, 0.9, n)
    target, channels = x - rig.tares.displacement, [0.0, 0.0][: 1 + rig.shown]
    newtons = np.array([bool(modes) and mode == MODE_FORCE for mode in modes or bytes(n)])
    target[newtons] = (force - rig.tares.force)[newtons]
    for _ in range(int(rng.choice([0, 0, 1, 2]))):
        axis, change = int(rng.integers(n)), int(rng.integers(5))
        error = b["tracking_error" if axis < rig.n_moved else "force_error"][axis]
        if change == 0:
            x[axis] = rig.near(b["stroke"][axis])
        elif change == 1:
            force[axis] = rig.near(b["force"][axis])
        elif change == 2 and rig.tares.reach[axis] < math.inf:
            x[axis] = rig.tares.displacement[axis] + rig.near(rig.tares.reach[axis])
        elif change == 3 and error < math.inf:
            target[axis] += rig.near(error)
        elif change == 4:
            channels[-1] = rig.near(b["force"][0])
    mode = modes_of(rig, (MODE_NOT_TOLD, *6 * [MODE_FORCE], *6 * [MODE_HELD]))
    return Measurement(1, x, force, target, np.array(channels), control_mode=mode), target


def test_first_broken_limit_is_reported() -> None:
    rng, counts, close = np.random.default_rng(5), Counter[str](), 0
    with np.errstate(invalid="ignore"):
        for _ in range(50):
            rig, before = Rig(rng), b""
            for _ in range(250):
                modes = modes_of(rig, (MODE_DISPLACEMENT, MODE_FORCE, MODE_FORCE))
                measured, target = drawn_measurement(rig, modes)
                key = key_of(rig.check.measurement(measured, target, modes))
                assert key == measurement_breach(rig, measured, target, modes)
                counts[re.sub(r"^\d", "", key)] += 1
                command, last = drawn_command(rig, modes)
                expected = command_breach(rig, command, last, before, measured.control_mode)
                key = key_of(rig.check.command(command, last.tolist(), before))
                close += expected is None
                assert expected in (None, key)
                counts[re.sub(r"^\d", "", key)] += 1
                before = modes
    assert close < 300
    assert len(counts) == 15
    assert min(counts.values()) > 50, counts


def series(rng: np.random.Generator, count: int) -> list[tuple[Command, Measurement]]:
    """Samples of two axes, with a few NaN values."""
    rows = np.cumsum(rng.standard_normal((count, 5, 2)), axis=0)
    rows[rng.random(rows.shape) < 0.01] = np.nan
    return [
        (Command(k, target, command), Measurement(k, x, force, applied))
        for k, (target, command, x, force, applied) in enumerate(rows)
    ]


def histories(samples: list[tuple[Command, Measurement]], axis: int, dt: float) -> dict[str, np.ndarray]:
    """History of each quantity."""
    target, command = (np.array([getattr(c, name)[axis] for c, _ in samples]) for name in ("target", "command"))
    x, force = (np.array([getattr(m, name)[axis] for _, m in samples]) for name in ("displacement", "force"))

    def change(history: np.ndarray) -> np.ndarray:
        return np.diff(history, prepend=history[0])

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
def test_levels_equal_evaluation_of_whole_histories(seed: int) -> None:
    """Samples since the last one within the bounds are counted on whole histories."""
    rng, dt = np.random.default_rng(seed), 1e-3
    levels: list[dict[str, Level]] = [{}, {}]
    samples = series(rng, 400)
    values = [histories(samples, axis, dt) for axis in (0, 1)]
    for axis, quantity in ((i, q) for i in (0, 1) for q in values[i] if rng.random() < 0.5):
        low, warn_low, warn_high, high = np.nanquantile(values[axis][quantity], [0.02, 0.1, 0.9, 0.98]).tolist()
        bounds: dict[str, Any] = {"minimum": low, "warn_minimum": warn_low} if rng.random() < 0.7 else {}
        bounds |= {"maximum": high, "warn_maximum": warn_high} if rng.random() < 0.7 or not bounds else {}
        action = str(rng.choice(["indicate", "hold", "stop", "interlock"]))
        levels[axis][quantity] = Level(**bounds, persistence=int(rng.integers(1, 6)), action=action)
    limits = {
        name: Limits(stroke=1.0, velocity=1.0, force=1.0, levels=Levels(**of_axis))
        for name, of_axis in zip("ab", levels, strict=True)
    }
    watch = LevelWatch(limits, dt)
    breaches = [watch.judge(command, measured) for command, measured in samples]
    expected: dict[int, tuple[str, str]] = {}
    numbers: dict[str, Any] = {}
    for name, of_axis, axis_histories in zip("ab", levels, values, strict=True):
        for quantity, level in of_axis.items():
            value = axis_histories[quantity]
            low, high = (-math.inf if level.minimum is None else level.minimum), level.maximum or math.inf
            within = (value >= low) & (value <= high)
            last = np.maximum.accumulate(np.where(within, np.arange(len(value)), -1))
            due = np.flatnonzero(np.arange(len(value)) - last >= level.persistence)
            for k in due.tolist() if level.action != "indicate" else ():
                if k not in expected or ACTIONS.index(level.action) > ACTIONS.index(expected[k][1]):
                    expected[k] = f"axes.{name}.limits.levels.{quantity}: {value[k]:.6g} ", level.action
            warn_low = low if level.warn_minimum is None else level.warn_minimum
            warned = np.flatnonzero(~((value >= warn_low) & (value <= (level.warn_maximum or high))))
            row = {"lowest": np.nanmin(value), "highest": np.nanmax(value), "samples": len(warned)}
            numbers.setdefault(name, {})[quantity] = row | ({"first": warned[0]} if len(warned) else {})
    assert watch.numbers() == numbers
    assert len(watch.told) == sum(row["samples"] > 0 for rows in numbers.values() for row in rows.values())
    assert {k for k, (breach, _) in enumerate(breaches) if breach} == set(expected)
    for k, (reason, action) in expected.items():
        assert (breaches[k][1], breaches[k][0][: len(reason)]) == (action, reason)


KERNELS = (limit_rows.acting, limit_rows.broken_alone, limit_rows.broken_together, limit_rows.of_errors)


def inputs(rng: np.random.Generator, extreme: bool) -> dict[Any, tuple[Any, ...]]:
    """Arguments of each kernel for three axes, in types that can be compiled."""

    def draw(*shape: int) -> Any:
        values = rng.standard_normal(shape)
        if extreme:
            values[rng.random(shape) < 0.2] = rng.choice(EXTREMES)
        return values

    moves = tuple((i, float(z), 2.0, 1.0, 0.5) for i, z in enumerate(0.1 * rng.standard_normal(3)))
    rows = tuple((i, -1.0, 1.0, int(p)) for i, p in enumerate(rng.integers(1, 3, 6)))
    modes = bytes(rng.integers(0, 4, 3).tolist())
    return {
        limit_rows.acting: ((rows, np.zeros(6, int), np.full(6, -2)), draw(6), 0),
        limit_rows.broken_alone: (moves, draw(3), draw(3), 0.3 * draw(3)),
        limit_rows.broken_together: ((moves[:2],), draw(3), 0.3 * draw(3)),
        limit_rows.of_errors: (((0.1, 0.2, False), (0.0, 1.0, True)), draw(3), draw(3), draw(3), modes),
    }


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_limit_kernels_give_same_bits_in_c(kernel: Any) -> None:
    """Finite and extreme numbers; the kernels contain no construct that is barred."""
    assert [wrong for function in functions_of(kernel, {}).values() for wrong in wrong_in(function)] == []
    rng = np.random.default_rng(1)
    first = in_arrays(inputs(rng, extreme=False)[kernel])
    quick = compiled(kernel, first, [False] * len(first))
    with np.errstate(all="ignore"):
        for number in range(500):
            arguments = inputs(rng, extreme=number % 2 == 0)[kernel]
            plain, arrays = copied(arguments), in_arrays(copied(arguments))
            assert same(kernel(*plain), quick(*arrays)), arguments
            assert repr(plain) == repr(arrays)
