# SPDX-License-Identifier: Apache-2.0
"""Tests of the watcher: attacks that must end the pulse, hours without a false end."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import numpy as np
import pytest
from messages import mentions

from rths_nodes.core.validation import from_data
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.watch import MOVING, Sample, Watch, WatchSection

# Rig of two axes in simulated time, a test that sends its state, and a watcher with its own sensors.
#
# Statements of the test pass a network with jitter and losses; the watcher's sensors have noise. From its
# beginning an attack changes the statements, the sensors or the motion of the rig.

SERVO_HZ, OWN_HZ, STATEMENT_HZ = 1000.0, 500.0, 200.0
LATE, DELAY, TURN = 0.03, 0.004, 0.0025
TOLERANCE = (2e-3, 8e3, 12e-3)
STIFFNESS, LAG = 2e6, 0.01
"""Stiffness of both specimens, N/m; lag of an axis, s."""


def axis_data() -> dict[str, Any]:
    return {
        "displacement": {"unit": "mm", "range": 100.0},
        "force": {"unit": "kN", "range": 300.0},
        "tolerance": dict(zip(("displacement", "force", "command"), TOLERANCE, strict=True)),
        "limits": {"displacement": 0.08, "velocity": 1.0, "velocity_over": 0.01, "force": 200e3, "persistence": 2},
        "rest": 1e-3,
    }


def section_data() -> dict[str, Any]:
    """Return a section ``watch`` as a rig file has it."""
    return {
        "sensors": {"address": "127.0.0.1", "port": 25020, "rate": OWN_HZ, "delay": DELAY},
        "pulse": {"address": "127.0.0.1", "port": 25030},
        "axes": {"north": axis_data(), "south": axis_data()},
        "late": LATE,
        "silence": 0.02,
    }


SECTION = from_data(WatchSection, section_data())


@dataclass
class Motion:
    """Positions ``(2,)`` (m) of the axes at a time (s): a slow motion, or sines below an envelope."""

    begin: float
    end: float
    start: np.ndarray
    amplitude: np.ndarray = field(default_factory=lambda: np.zeros(2))
    to: np.ndarray | None = None

    def at(self, t: float) -> np.ndarray:
        u = min(max((t - self.begin) / (self.end - self.begin), 0.0), 1.0)
        if self.to is not None:
            return self.start + (self.to - self.start) * 0.5 * (1.0 - math.cos(math.pi * u))
        s = t - self.begin if u < 1.0 else self.end - self.begin
        waves = np.array(
            [
                math.sin(2 * math.pi * 1.3 * s) + 0.5 * math.sin(2 * math.pi * 2.1 * s + 1.0),
                math.sin(2 * math.pi * 1.1 * s + 2.0) - 0.6 * math.sin(2 * math.pi * 1.9 * s),
            ]
        )
        return self.start + self.amplitude * math.sin(math.pi * u) ** 0.5 * waves


@dataclass
class Attack:
    """Changes during an attack.

    ``sent`` returns the statements that are sent, from the time, the true statement, the last one before the
    attack and the World. ``state`` is the reported state, ``moves`` the motion of the rig, ``sensors`` changes a
    sample of the watcher's sensors, ``holds`` is the time for which the watcher's loop hangs, s.
    """

    name: str
    sent: Callable[[float, Sample, Sample, World], list[Sample]] | None = None
    state: int | None = None
    moves: Callable[[float, World], np.ndarray] | None = None
    sensors: Callable[[Sample, Sample], Sample | None] | None = None
    holds: float = 0.0
    at_rest: bool = False


class World:
    """States and motions of one test, its statements, and the samples of the watcher."""

    def __init__(self, seed: int = 1, attack: Attack | None = None, begins: float = math.inf, loss: float = 0.02):
        self.noise, self.attack, self.begins, self.loss = np.random.default_rng(seed), attack, begins, loss
        self.motions: list[Motion] = []
        self.states: list[tuple[float, State]] = []
        self.stalls: list[tuple[float, float]] = []
        self.until = 0.0
        self.position = np.zeros(2)
        self.watch = Watch(SECTION, SERVO_HZ)
        self.visible_at = math.inf

    # -- plan -----------------------------------------------------------------------------------------

    def rest(self, state: State, seconds: float, silent: float = 0.0) -> None:
        """Add a rest in ``state``; the last ``silent`` seconds without statements."""
        self.states.append((self.until, state))
        self.until += seconds
        if silent:
            self.stalls.append((self.until - silent, self.until))

    def go(self, state: State, seconds: float, to: tuple[float, float]) -> None:
        """Add a slow motion to a position (m)."""
        self._move(state, Motion(self.until, self.until + seconds, self.position, to=np.array(to)))

    def shake(self, seconds: float, amplitude: tuple[float, float]) -> None:
        """Add the strong part of a test, which ends where it begins."""
        self._move(State.RUNNING, Motion(self.until, self.until + seconds, self.position, np.array(amplitude)))

    def _move(self, state: State, motion: Motion) -> None:
        self.states.append((self.until, state))
        self.motions.append(motion)
        self.until = motion.end
        self.position = motion.at(motion.end)

    def trip(self, state: State) -> None:
        """Brake the last motion within 80 ms and report it; the test ends there."""
        motion = self.motions[-1]
        cut = self.until - 0.4 * (motion.end - motion.begin)
        velocity = (motion.at(cut) - motion.at(cut - 1e-3)) / 1e-3
        self.motions[-1] = _Cut(motion, cut, velocity)
        self.position = self.motions[-1].at(cut + BRAKES_S)
        self.states += [(cut, State.STOPPING), (cut + BRAKES_S + 2 * LAG, state)]
        self.until = cut + BRAKES_S + 2 * LAG

    # -- truth and messages ---------------------------------------------------------------------------------

    def planned(self, t: float) -> np.ndarray:
        position = np.zeros(2)
        for motion in self.motions:
            if t >= motion.begin:
                position = motion.at(t)
        return position

    def true(self, t: float) -> np.ndarray:
        """True positions of the axes, m."""
        if self.attack is not None and self.attack.moves is not None and t >= self.begins:
            return self.attack.moves(t, self)
        return self.planned(t - LAG)

    def statement(self, t: float) -> Sample:
        """Statement of the test at ``t``, as measured."""
        x = self.true(t)
        noisy = x + self.noise.normal(0.0, 2e-5, 2)
        force = STIFFNESS * x + self.noise.normal(0.0, 50.0, 2)
        return Sample(t, round(t * SERVO_HZ), tuple(noisy), tuple(force), tuple(self.planned(t)))

    def events(self) -> Iterator[tuple[float, str, Any]]:
        """Yield all inputs of the watcher, in order."""
        queue: list[tuple[float, int, str, Any]] = []
        last = 0.0
        sensed, stated, states, number = 0.0, 0.0, iter([*self.states, (math.inf, State.IDLE)]), 0
        at, state = next(states)
        before: Sample | None = None
        shown: Sample | None = None
        draw = self.noise
        lied = self.attack is not None and self.attack.state is not None
        turn = TURN
        while turn < self.until:
            while sensed < turn:
                x = self.true(sensed)
                sample = Sample(
                    sensed + draw.uniform(5e-4, DELAY),
                    round(sensed * OWN_HZ),
                    tuple(x + draw.normal(0.0, 3e-5, 2)),
                    tuple(STIFFNESS * x + draw.normal(0.0, 80.0, 2)),
                )
                sensed += 1.0 / OWN_HZ
                if self.attack and self.attack.sensors and sensed >= self.begins:
                    shown = shown or sample
                    sample = self.attack.sensors(sample, shown)  # type: ignore[assignment]
                if sample is not None:
                    number += 1
                    heappush(queue, (sample.at, number, "sense", sample))
            while stated < turn:
                statements = [self.statement(stated)]
                if any(begin <= stated < end for begin, end in self.stalls):
                    statements = []
                elif stated < self.begins or self.attack is None or self.attack.sent is None:
                    before = statements[0]
                else:
                    statements = self.attack.sent(stated, statements[0], before or statements[0], self)
                for statement in statements:
                    if draw.uniform() >= self.loss:
                        number += 1
                        delay = 1e-3 + min(draw.exponential(2e-3), 0.012)
                        received = statement._replace(at=max(statement.at, stated) + delay)
                        received = received._replace(
                            at=max(received.at, last + 1e-6)
                        )  # the receiver drops overtaken statements
                        last = received.at
                        heappush(queue, (received.at, number, "receive", received))
                stated += (1.0 + draw.uniform(-0.2, 0.2)) / STATEMENT_HZ
            while at < turn:
                if not lied or at < self.begins:
                    heappush(queue, (at + draw.uniform(1e-3, 5e-3), number := number + 1, "state", int(state)))
                at, state = next(states)
            if lied and turn >= self.begins and self.attack is not None:
                lied = False
                at = math.inf
                heappush(queue, (turn, number := number + 1, "state", self.attack.state))
            while queue and queue[0][0] <= turn:
                when, _, kind, value = heappop(queue)
                yield when, kind, value
            if not (self.begins <= turn < self.begins + (self.attack.holds if self.attack else 0.0)):
                yield turn, "judge", None
            turn += TURN

    def run(self) -> float:
        """Return the time at which the pulse ended, s; inf if it did not end."""
        watch = self.watch
        for at, kind, value in self.events():
            if kind == "sense":
                watch.sense(value)
            elif kind == "state":
                watch.take_state(value)
            elif kind == "receive":
                if at >= self.begins and self.visible_at == math.inf and self.untrue(value):
                    self.visible_at = at
                watch.receive(value._replace(at=at))
            elif watch.judge(at):
                return at
        return math.inf

    def untrue(self, statement: Sample) -> bool:
        """True if a statement is off by more than tolerances and noise, whatever its true age is."""
        for age in np.arange(-DELAY, LATE + 1e-9, 1e-3):
            x = self.true(statement.at - age)
            off = [
                max(abs(np.subtract(statement.displacement, x))) - 1e-4 > TOLERANCE[0],
                max(abs(np.subtract(statement.force, STIFFNESS * x))) - 500.0 > TOLERANCE[1],
                max(abs(np.subtract(statement.command, x))) - 1e-4 > TOLERANCE[2],
            ]
            if not any(off):
                return False
        return True


BRAKES_S = 0.08


class _Cut(Motion):
    """Motion that brakes from ``cut`` on."""

    def __init__(self, motion: Motion, cut: float, velocity: np.ndarray) -> None:
        super().__init__(motion.begin, cut + BRAKES_S, motion.start)
        self._motion, self._cut, self._velocity = motion, cut, velocity

    def at(self, t: float) -> np.ndarray:
        if t <= self._cut:
            return self._motion.at(t)
        s = min(t - self._cut, BRAKES_S)
        return self._motion.at(self._cut) + self._velocity * (s - 0.5 * s * s / BRAKES_S)


def whole_test(world: World, draw: np.random.Generator) -> None:
    """Add a procedure of about 40 s: from the cold rig to its end, with a hold, a trip, or neither."""
    world.rest(State.IDLE, draw.uniform(0.5, 3.0), silent=0.5)
    world.rest(State.CONNECTED, draw.uniform(0.5, 2.0))
    world.rest(State.REFERENCED, draw.uniform(0.5, 1.0), silent=draw.uniform(0.0, 0.4))
    x, y = world.position
    world.go(State.CHECKING, 1.0, (x + 1.5e-3, y))
    world.go(State.CHECKING, 1.0, (x, y))
    world.go(State.CHECKING, 1.0, (x, y + 1.5e-3))
    world.rest(State.REFERENCED, 1.0)
    world.go(State.POSITIONING, draw.uniform(1.0, 3.0), (0.0, 0.0))
    world.rest(State.POSITIONED, draw.uniform(0.5, 3.0), silent=draw.uniform(0.0, 0.4))
    world.rest(State.ARMED, draw.uniform(0.2, 2.0))
    world.rest(State.RUNNING, 2.5, silent=draw.uniform(0.0, 0.5))  # the nodes of the run start
    size = draw.uniform(1e-3, 25e-3)
    world.shake(draw.uniform(8.0, 20.0), (size, 0.8 * size))
    end = draw.choice(["over", "hold", "trip"])
    if end == "over":
        world.rest(State.RUNNING, 1.0, silent=0.3)
        world.rest(State.HELD, 1.0)
    else:
        world.trip(State.HELD if end == "hold" else State.TRIPPED)
        world.rest(State.HELD, draw.uniform(0.5, 2.0))
        world.go(State.UNLOADING, 3.0, (0.0, 0.0))
        world.rest(State.HELD, 1.0)
    world.rest(State.FINISHED, 0.5)


Sent = Callable[[float, Sample, Sample, World], list[Sample]]
"""Function of the time, the true statement, the last statement before the attack, and the world."""
BOTH = (0, 1)
UNITS = {"displacement": 1.0, "force": STIFFNESS, "command": 1.0}
"""Value of each quantity of a statement at one metre."""
ALL = tuple(UNITS)


def changed(
    statement: Sample, quantity: str, axes: tuple[int, ...], change: Callable[[float, int], float]
) -> Sample:
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
    def sent(t: float, true: Sample, before: Sample, world: World) -> list[Sample]:
        for quantity in quantities:
            values = getattr(before, quantity)
            true = changed(true, quantity, axes, lambda _, axis, values=values: values[axis])
        return [true]

    return sent


def old(seconds: float, counts_on: bool = True, period: float = 0.0) -> Sent:
    """Statements of ``seconds`` ago; a recording of one ``period`` that is played again and again."""

    def sent(t: float, true: Sample, before: Sample, world: World) -> list[Sample]:
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


def silent(t: float, true: Sample, before: Sample, world: World) -> list[Sample]:
    return []


def repeated(t: float, true: Sample, before: Sample, world: World) -> list[Sample]:
    return [before._replace(at=t)]


def burst(seconds: float) -> Sent:
    """Keep statements back for ``seconds``, then send them all at once."""
    kept: list[Sample] = []

    def sent(t: float, true: Sample, before: Sample, world: World) -> list[Sample]:
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


def predicted(t: float, true: Sample, before: Sample, world: World) -> list[Sample]:
    """Continue along a line, as a model without a rig would."""
    earlier = world.planned(world.begins - 0.02)
    slope = (world.planned(world.begins) - earlier) / 0.02 * -1.0
    x = np.array(before.displacement) + slope * (t - world.begins)
    return [true._replace(displacement=tuple(x), force=tuple(STIFFNESS * x))]


def as_planned(t: float, true: Sample, before: Sample, world: World) -> list[Sample]:
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
        watch.receive(Sample(now, tick, (0.01 if tick == 250 else 0.0, 0.0), zeros, zeros))
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
