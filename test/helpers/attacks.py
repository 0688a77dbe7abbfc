# SPDX-License-Identifier: Apache-2.0
"""Ways in which a test computer is frozen, lies, or is compromised, and in which a watcher itself goes wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from watched_world import SERVO_HZ, STIFFNESS, TOLD_HZ, Attack, Sample, Statement, World

from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.watch.watcher import MOVING

Said = Callable[[float, Statement, Statement, World], list[Statement]]
BOTH = (0, 1)
QUANTITIES = {"displacement": 1.0, "force": STIFFNESS, "command": 1.0}
"""Quantities of a statement, and what one metre is of each."""


def changed(
    said: Statement, quantity: str, axes: tuple[int, ...], how: Callable[[float, int], float]
) -> Statement:
    values = list(getattr(said, quantity))
    for axis in axes:
        values[axis] = how(values[axis], axis)
    return said._replace(**{quantity: tuple(values)})


def lie(how: Callable[[float, float, float], float], quantities: tuple[str, ...], axes: tuple[int, ...]) -> Said:
    """``how(value, unit, seconds since the attack began)`` makes what is said of what is true."""

    def said(t: float, true: Statement, before: Statement, world: World) -> list[Statement]:
        found = true
        for each in quantities:
            unit, since = QUANTITIES[each], t - world.begins
            found = changed(found, each, axes, lambda value, _, u=unit, s=since: how(value, u, s))
        return [found]

    return said


def frozen(quantities: tuple[str, ...], axes: tuple[int, ...] = BOTH) -> Said:
    def said(t: float, true: Statement, before: Statement, world: World) -> list[Statement]:
        found = true
        for each in quantities:
            found = changed(found, each, axes, lambda _, axis, q=each: getattr(before, q)[axis])
        return [found]

    return said


def old(seconds: float, counts_on: bool = True, over: float = 0.0) -> Said:
    """What was true before; a recording that is played again, ``over`` and over."""

    def said(t: float, true: Statement, before: Statement, world: World) -> list[Statement]:
        then = t - seconds - (((t - world.begins) % over) if over else 0.0)
        told = world.statement(then)
        return [told._replace(at=t, counter=true.counter if counts_on else told.counter)]

    return said


def swapped(quantities: tuple[str, ...]) -> Said:
    def said(t: float, true: Statement, before: Statement, world: World) -> list[Statement]:
        return [true._replace(**{each: getattr(true, each)[::-1] for each in quantities})]

    return said


def counter(of: Callable[[int, int, float], int]) -> Said:
    """``of(true, the last before, seconds)`` is the counter that is told."""

    def said(t: float, true: Statement, before: Statement, world: World) -> list[Statement]:
        return [true._replace(counter=of(true.counter, before.counter, t - world.begins))]

    return said


def silent(t: float, true: Statement, before: Statement, world: World) -> list[Statement]:
    return []


def repeated(t: float, true: Statement, before: Statement, world: World) -> list[Statement]:
    return [before._replace(at=t)]


def burst(seconds: float) -> Said:
    """Kept back for some time, then all at once."""
    kept: list[Statement] = []

    def said(t: float, true: Statement, before: Statement, world: World) -> list[Statement]:
        kept.append(true)
        if t - world.begins < seconds:
            return []
        found = [each._replace(at=t) for each in kept]
        kept.clear()
        return found

    return said


def seldom(every: int) -> Said:
    count = 0

    def said(t: float, true: Statement, before: Statement, world: World) -> list[Statement]:
        nonlocal count
        count += 1
        return [true] if count % every == 0 else []

    return said


def predicted(t: float, true: Statement, before: Statement, world: World) -> list[Statement]:
    """Go on along a line, as a model without a rig would."""
    one = world.planned(world.begins - 0.02)
    slope = (world.planned(world.begins) - one) / 0.02 * -1.0
    x = np.array(before.displacement) + slope * (t - world.begins)
    return [true._replace(displacement=tuple(x), force=tuple(STIFFNESS * x))]


def other_place(quantity: str) -> Said:
    """Another test: what it says belongs to a motion that is not this one."""

    def said(t: float, true: Statement, before: Statement, world: World) -> list[Statement]:
        x = 0.02 * math.sin(40.0 * (t - world.begins)) + 0.03
        return [changed(true, quantity, BOTH, lambda _, axis: x * QUANTITIES[quantity])]

    return said


def moves_away(speed: float) -> Callable[[float, World], np.ndarray]:
    """The rig leaves where it should be, in the direction of its motion."""
    return lambda t, world: world.planned(world.begins) + speed * (t - world.begins)


def runs_on(t: float, world: World) -> np.ndarray:
    """The rig goes on along its slope, as a receiver does that bridges for ever."""
    since, one = t - world.begins, world.planned(world.begins - 0.01)
    at = world.planned(world.begins - 1e-3)
    return at + (at - one) / 9e-3 * since


def brakes(t: float, world: World) -> np.ndarray:
    """The rig brakes within 80 ms, as a receiver does whose commands stay away."""
    since, one = min(t - world.begins, 0.08), world.planned(world.begins - 0.01)
    at = world.planned(world.begins - 1e-3)
    return at + (at - one) / 9e-3 * (since - since**2 / 0.16)


def told_true_of(moves: Callable[[float, World], np.ndarray]) -> Said:
    """All that is said of a wrong motion is true."""

    def said(t: float, true: Statement, before: Statement, world: World) -> list[Statement]:
        return [true._replace(command=tuple(moves(t, world)))]

    return said


def of_values() -> list[Attack]:
    found: list[Attack] = []
    everything = tuple(QUANTITIES)

    def add(name: str, said: Said) -> None:
        found.append(Attack(name, said))

    for axes, where in ((BOTH, "both"), ((0,), "north"), ((1,), "south")):
        add(f"frozen all, {where}", frozen(everything, axes))
        for each, unit in QUANTITIES.items():
            add(f"frozen {each}, {where}", frozen((each,), axes))
            for sign in (-1.0, 1.0):
                much = 0.03 * unit * sign
                add(f"offset {sign:+g} {each}, {where}", lie(lambda v, u, s, m=much: v + m, (each,), axes))
            add(f"nan {each}, {where}", lie(lambda v, u, s: math.inf, (each,), axes))
        for each in ("displacement", "force"):
            add(f"sign of {each}, {where}", lie(lambda v, u, s: -v, (each,), axes))
            add(f"half of {each}, {where}", lie(lambda v, u, s: 0.5 * v, (each,), axes))
            add(f"twice {each}, {where}", lie(lambda v, u, s: 2.0 * v, (each,), axes))
            add(f"zero {each}, {where}", lie(lambda v, u, s: 0.0, (each,), axes))
            add(f"drift of {each}, {where}", lie(lambda v, u, s: v + 0.05 * u * s, (each,), axes))
            add(f"fast drift of {each}, {where}", lie(lambda v, u, s: v - 0.5 * u * s, (each,), axes))
    for each in ("displacement", "force"):
        add(f"swapped {each}", swapped((each,)))
        add(f"clipped {each}", lie(lambda v, u, s: max(-0.004 * u, min(v, 0.004 * u)), (each,), BOTH))
        add(f"random {each}", lie(lambda v, u, s: 0.05 * u * math.cos(1e5 * s + 1e3 * v), (each,), BOTH))
        add(f"millimetres for metres, {each}", lie(lambda v, u, s: 1e3 * v, (each,), BOTH))
        add(f"{each} of another test", other_place(each))
    add("nan everywhere", lie(lambda v, u, s: math.nan, ("displacement", "force"), BOTH))
    add("swapped axes", swapped(everything))
    add("a model in place of the rig", predicted)
    for seconds in (0.1, 0.2, 0.5, 5.0):
        add(f"{seconds:g} s late, counted on", old(seconds))
        add(f"{seconds:g} s late, as it was", old(seconds, counts_on=False))
    add("one period again and again", old(0.1, over=0.4))
    return found


def of_time() -> list[Attack]:
    one = round(SERVO_HZ / TOLD_HZ)
    found = [
        Attack("silent", silent),
        Attack("the last statement again and again", repeated),
        Attack("counter stands still", counter(lambda true, last, s: last)),
        Attack("counter goes back by one", counter(lambda true, last, s: last - 1)),
        Attack("counter goes back", counter(lambda true, last, s: true - 1000)),
        Attack("counter begins anew", counter(lambda true, last, s: round(s * SERVO_HZ))),
        Attack("counter jumps", counter(lambda true, last, s: true + 1000)),
        Attack("counter jumps far", counter(lambda true, last, s: true + 2**31)),
        Attack("counter runs at ten times its rate", counter(lambda t, last, s: last + round(10 * s * SERVO_HZ))),
        Attack("counter goes by ones", counter(lambda true, last, s: last + 1 + round(100 * s))),
        Attack("counter falls down", counter(lambda true, last, s: last - round(s * SERVO_HZ) - one)),
        Attack("kept back for 0.2 s, then at once", burst(0.2)),
        Attack("kept back for 60 ms, then at once", burst(0.06)),
        Attack("one statement in ten", seldom(10)),
        Attack("one statement in twenty", seldom(20)),
    ]
    motions = {"runs on": runs_on, "brakes": brakes, "goes on with its test": None}
    found += [Attack(f"frozen, and the rig {what}", silent, moves=moves) for what, moves in motions.items()]
    return found


def of_states() -> list[Attack]:
    found: list[Attack] = []
    for state in State:
        if state not in MOVING:
            found.append(Attack(f"says {state.name} and moves", None, int(state)))
            found.append(Attack(f"says {state.name}, moves and is silent", silent, int(state)))
            found.append(
                Attack(f"says {state.name}, moves and freezes what it says", frozen(tuple(QUANTITIES)), state)
            )
    return [*found, Attack("says a state that is none", None, 99)]


def of_rigs() -> list[Attack]:
    """The rig does what it must not; what is said of it is true."""
    fast, slow = moves_away(3.0), moves_away(0.5)
    return [
        Attack("moves too fast, told", told_true_of(fast), moves=fast),
        Attack("moves too fast, not told", frozen(tuple(QUANTITIES)), moves=fast),
        Attack("leaves its motion, told as planned", _as_planned, moves=slow),
        Attack("at rest, moves fast", frozen(tuple(QUANTITIES)), moves=fast, at_rest=True),
        Attack("at rest, moves", frozen(tuple(QUANTITIES)), moves=moves_away(0.1), at_rest=True),
        Attack("at rest, moves and is silent", silent, moves=moves_away(0.1), at_rest=True),
        Attack("at rest, moves and is told", told_true_of(slow), moves=slow, at_rest=True),
    ]


def _as_planned(t: float, true: Statement, before: Statement, world: World) -> list[Statement]:
    x = world.planned(t - 0.01)
    return [true._replace(displacement=tuple(x), force=tuple(STIFFNESS * x))]


def of_watchers() -> list[Attack]:
    """The watcher itself, or its sensors, go wrong."""

    def stopped(t: float, true: Sample, shown: Sample) -> None:
        return None

    def nan(t: float, true: Sample, shown: Sample) -> Sample:
        return true._replace(force=(math.nan, true.force[1]))

    def at_end(t: float, true: Sample, shown: Sample) -> Sample:
        return true._replace(displacement=(0.1, true.displacement[1]))

    def same_counter(t: float, true: Sample, shown: Sample) -> Sample:
        return true._replace(counter=shown.counter)

    def stuck(t: float, true: Sample, shown: Sample) -> Sample:
        return true._replace(displacement=shown.displacement, force=shown.force)

    def backwards(t: float, true: Sample, shown: Sample) -> Sample:
        return true._replace(displacement=tuple(-x for x in true.displacement))

    own: dict[str, Any] = {
        "its own sensors are silent": stopped,
        "its own load cell is no number": nan,
        "its own sensor is at its end": at_end,
        "the counter of its own sensors stands still": same_counter,
        "its own sensors are stuck": stuck,
        "its own sensor counts backwards": backwards,
    }
    found = [Attack(name, own=how) for name, how in own.items()]
    return [*found, Attack("the watcher stands still", holds=0.03)]


ATTACKS = [*of_values(), *of_time(), *of_states(), *of_rigs(), *of_watchers()]
