# SPDX-License-Identifier: Apache-2.0
"""Ways in which a test computer freezes, lies or is compromised, and faults of the watcher and of its sensors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
from watched_world import SERVO_HZ, STATEMENT_HZ, STIFFNESS, Attack, Sample, Statement, World

from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.watch.watcher import MOVING

Sent = Callable[[float, Statement, Statement, World], list[Statement]]
"""Function of the time, the true statement, the last statement before the attack, and the world."""
BOTH = (0, 1)
UNITS = {"displacement": 1.0, "force": STIFFNESS, "command": 1.0}
"""Value of each quantity of a statement at one metre."""
ALL = tuple(UNITS)


def changed(
    statement: Statement, quantity: str, axes: tuple[int, ...], change: Callable[[float, int], float]
) -> Statement:
    values = list(getattr(statement, quantity))
    for axis in axes:
        values[axis] = change(values[axis], axis)
    return statement._replace(**{quantity: tuple(values)})


def lie(change: Callable[[float, float, float], float], quantity: str, axes: tuple[int, ...] = BOTH) -> Sent:
    """Replace a true value by ``change(value, unit, seconds since the attack began)``."""
    unit = UNITS[quantity]
    return lambda t, true, before, world: [
        changed(true, quantity, axes, lambda value, _: change(value, unit, t - world.begins))
    ]


def frozen(quantities: tuple[str, ...] = ALL, axes: tuple[int, ...] = BOTH) -> Sent:
    def sent(t: float, true: Statement, before: Statement, world: World) -> list[Statement]:
        for quantity in quantities:
            values = getattr(before, quantity)
            true = changed(true, quantity, axes, lambda _, axis, values=values: values[axis])
        return [true]

    return sent


def old(seconds: float, counts_on: bool = True, period: float = 0.0) -> Sent:
    """Statements of ``seconds`` ago; a recording of one ``period`` that is played again and again."""

    def sent(t: float, true: Statement, before: Statement, world: World) -> list[Statement]:
        statement = world.statement(t - seconds - (((t - world.begins) % period) if period else 0.0))
        return [statement._replace(at=t, counter=true.counter if counts_on else statement.counter)]

    return sent


def swapped(*quantities: str) -> Sent:
    return lambda t, true, before, world: [
        true._replace(**{quantity: getattr(true, quantity)[::-1] for quantity in quantities})
    ]


def counter(count: Callable[[int, int, float], int]) -> Sent:
    """Send the counter ``count(true, last before the attack, seconds)``."""
    return lambda t, true, before, world: [
        true._replace(counter=count(true.counter, before.counter, t - world.begins))
    ]


def silent(t: float, true: Statement, before: Statement, world: World) -> list[Statement]:
    return []


def repeated(t: float, true: Statement, before: Statement, world: World) -> list[Statement]:
    return [before._replace(at=t)]


def burst(seconds: float) -> Sent:
    """Keep statements back for ``seconds``, then send them all at once."""
    kept: list[Statement] = []

    def sent(t: float, true: Statement, before: Statement, world: World) -> list[Statement]:
        kept.append(true)
        if t - world.begins < seconds:
            return []
        statements = [statement._replace(at=t) for statement in kept]
        kept.clear()
        return statements

    return sent


def seldom(interval: int) -> Sent:
    numbers = itertools.count(1)
    return lambda t, true, before, world: [true] if next(numbers) % interval == 0 else []


def predicted(t: float, true: Statement, before: Statement, world: World) -> list[Statement]:
    """Continue along a line, as a model without a rig would."""
    earlier = world.planned(world.begins - 0.02)
    slope = (world.planned(world.begins) - earlier) / 0.02 * -1.0
    x = np.array(before.displacement) + slope * (t - world.begins)
    return [true._replace(displacement=tuple(x), force=tuple(STIFFNESS * x))]


def as_planned(t: float, true: Statement, before: Statement, world: World) -> list[Statement]:
    x = world.planned(t - 0.01)
    return [true._replace(displacement=tuple(x), force=tuple(STIFFNESS * x))]


def moves_away(speed: float) -> Callable[[float, World], np.ndarray]:
    """The rig leaves its planned position, in the direction of its motion."""
    return lambda t, world: world.planned(world.begins) + speed * (t - world.begins)


def runs_on(t: float, world: World) -> np.ndarray:
    """The rig continues along its slope, as with a receiver that bridges without end."""
    earlier, x = world.planned(world.begins - 0.01), world.planned(world.begins - 1e-3)
    return x + (x - earlier) / 9e-3 * (t - world.begins)


def brakes(t: float, world: World) -> np.ndarray:
    """The rig brakes within 80 ms, as with a receiver that gets no commands."""
    elapsed = min(t - world.begins, 0.08)
    earlier, x = world.planned(world.begins - 0.01), world.planned(world.begins - 1e-3)
    return x + (x - earlier) / 9e-3 * (elapsed - elapsed**2 / 0.16)


def commanded(motion: Callable[[float, World], np.ndarray]) -> Sent:
    """Report a wrong motion truly, as if it were commanded."""
    return lambda t, true, before, world: [true._replace(command=tuple(motion(t, world)))]


def of_values() -> list[Attack]:
    sent: dict[str, Sent] = {}
    for axes, where in ((BOTH, "both"), ((0,), "north"), ((1,), "south")):
        sent[f"frozen all, {where}"] = frozen(axes=axes)
        for name, unit in UNITS.items():
            sent[f"frozen {name}, {where}"] = frozen((name,), axes)
            for sign in (-1.0, 1.0):
                offset = 0.03 * unit * sign
                sent[f"offset {sign:+g} {name}, {where}"] = lie(lambda v, u, s, m=offset: v + m, name, axes)
            sent[f"nan {name}, {where}"] = lie(lambda v, u, s: math.inf, name, axes)
        for name in ("displacement", "force"):
            sent[f"sign of {name}, {where}"] = lie(lambda v, u, s: -v, name, axes)
            sent[f"half of {name}, {where}"] = lie(lambda v, u, s: 0.5 * v, name, axes)
            sent[f"twice {name}, {where}"] = lie(lambda v, u, s: 2.0 * v, name, axes)
            sent[f"zero {name}, {where}"] = lie(lambda v, u, s: 0.0, name, axes)
            sent[f"drift of {name}, {where}"] = lie(lambda v, u, s: v + 0.05 * u * s, name, axes)
            sent[f"fast drift of {name}, {where}"] = lie(lambda v, u, s: v - 0.5 * u * s, name, axes)
    for name in ("displacement", "force"):
        sent[f"swapped {name}"] = swapped(name)
        sent[f"clipped {name}"] = lie(lambda v, u, s: max(-0.004 * u, min(v, 0.004 * u)), name)
        sent[f"random {name}"] = lie(lambda v, u, s: 0.05 * u * math.cos(1e5 * s + 1e3 * v), name)
        sent[f"millimetres for metres, {name}"] = lie(lambda v, u, s: 1e3 * v, name)
        sent[f"{name} of another test"] = lie(lambda v, u, s: (0.02 * math.sin(40.0 * s) + 0.03) * u, name)
    sent["nan everywhere"] = lambda t, true, before, world: [
        true._replace(displacement=(math.nan, math.nan), force=(math.nan, math.nan))
    ]
    sent["swapped axes"] = swapped(*ALL)
    sent["a model in place of the rig"] = predicted
    for seconds in (0.1, 0.2, 0.5, 5.0):
        sent[f"{seconds:g} s late, counted on"] = old(seconds)
        sent[f"{seconds:g} s late, as it was"] = old(seconds, counts_on=False)
    sent["one period again and again"] = old(0.1, period=0.4)
    return [Attack(*item) for item in sent.items()]


def of_time() -> list[Attack]:
    ticks = round(SERVO_HZ / STATEMENT_HZ)
    sent: dict[str, Sent] = {
        "silent": silent,
        "the last statement again and again": repeated,
        "counter stands still": counter(lambda true, last, s: last),
        "counter goes back by one": counter(lambda true, last, s: last - 1),
        "counter goes back": counter(lambda true, last, s: true - 1000),
        "counter begins anew": counter(lambda true, last, s: round(s * SERVO_HZ)),
        "counter jumps": counter(lambda true, last, s: true + 1000),
        "counter jumps far": counter(lambda true, last, s: true + 2**31),
        "counter runs at ten times its rate": counter(lambda true, last, s: last + round(10 * s * SERVO_HZ)),
        "counter runs at twice its rate": counter(lambda true, last, s: last + round(2 * s * SERVO_HZ)),
        "counter goes by ones": counter(lambda true, last, s: last + 1 + round(100 * s)),
        "counter falls down": counter(lambda true, last, s: last - round(s * SERVO_HZ) - ticks),
        "kept back for 0.2 s, then at once": burst(0.2),
        "kept back for 60 ms, then at once": burst(0.06),
        "one statement in ten": seldom(10),
        "one statement in twenty": seldom(20),
    }
    motions = {"runs on": runs_on, "brakes": brakes, "goes on with its test": None}
    return [Attack(*item) for item in sent.items()] + [
        Attack(f"frozen, and the rig {name}", silent, moves=motion) for name, motion in motions.items()
    ]


def of_states() -> list[Attack]:
    attacks: list[Attack] = []
    for state in [state for state in State if state not in MOVING]:
        attacks += [
            Attack(f"says {state.name} and moves", None, int(state)),
            Attack(f"says {state.name}, moves and is silent", silent, int(state)),
            Attack(f"says {state.name}, moves and freezes what it says", frozen(), state),
        ]
    return [*attacks, Attack("says a state that is none", None, 99)]


def of_rigs() -> list[Attack]:
    """Forbidden motions of the rig."""
    fast, slow = moves_away(3.0), moves_away(0.5)
    return [
        Attack("moves too fast, told", commanded(fast), moves=fast),
        Attack("moves too fast, not told", frozen(), moves=fast),
        Attack("leaves its motion, told as planned", as_planned, moves=slow),
        Attack("at rest, moves fast", frozen(), moves=fast, at_rest=True),
        Attack("at rest, moves", frozen(), moves=moves_away(0.1), at_rest=True),
        Attack("at rest, moves and is silent", silent, moves=moves_away(0.1), at_rest=True),
        Attack("at rest, moves and is told", commanded(slow), moves=slow, at_rest=True),
    ]


def of_watchers() -> list[Attack]:
    """Faults of the watcher and of its own sensors, by the true sample and the first one after the fault began."""
    sensors: dict[str, Callable[[Sample, Sample], Sample | None]] = {
        "its own sensors are silent": lambda true, first: None,
        "its own load cell is no number": lambda true, first: true._replace(force=(math.nan, true.force[1])),
        "its own sensor is at its end": lambda true, first: true._replace(
            displacement=(0.1, true.displacement[1])
        ),
        "the counter of its own sensors stands still": lambda true, first: true._replace(counter=first.counter),
        "its own sensors are stuck": lambda true, first: true._replace(
            displacement=first.displacement, force=first.force
        ),
        "its own sensor counts backwards": lambda true, first: true._replace(
            displacement=tuple(-x for x in true.displacement)
        ),
    }
    attacks = [Attack(name, sensors=change) for name, change in sensors.items()]
    return [*attacks, Attack("the watcher stands still", holds=0.03)]


ATTACKS = [*of_values(), *of_time(), *of_states(), *of_rigs(), *of_watchers()]
