# SPDX-License-Identifier: Apache-2.0
"""Rig of two axes in simulated time, a test that sends its state, and a watcher with its own sensors.

Statements of the test pass a network with jitter and losses; the watcher's sensors have noise. From its beginning
an attack changes the statements, the sensors or the motion of the rig.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import numpy as np

from rths_nodes.core.validation import from_data
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.watch.section import WatchSection
from rths_nodes.loop.watch.watcher import Sample, Statement, Watch

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
        "limits": {
            "displacement": 0.08,
            "velocity": 1.0,
            "velocity_over": 0.01,
            "force": 200e3,
            "persistence": 2,
        },
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
    sent: Callable[[float, Statement, Statement, World], list[Statement]] | None = None
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

    def statement(self, t: float) -> Statement:
        """Statement of the test at ``t``, as measured."""
        x = self.true(t)
        noisy = x + self.noise.normal(0.0, 2e-5, 2)
        force = STIFFNESS * x + self.noise.normal(0.0, 50.0, 2)
        return Statement(t, round(t * SERVO_HZ), tuple(noisy), tuple(force), tuple(self.planned(t)))

    def events(self) -> Iterator[tuple[float, str, Any]]:
        """Yield all inputs of the watcher, in order."""
        queue: list[tuple[float, int, str, Any]] = []
        last = 0.0
        sensed, stated, states, number = 0.0, 0.0, iter([*self.states, (math.inf, State.IDLE)]), 0
        at, state = next(states)
        before: Statement | None = None
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

    def untrue(self, statement: Statement) -> bool:
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
