# SPDX-License-Identifier: Apache-2.0
"""A port that keeps watch over what is sent through it, and at which something goes wrong at a chosen tick."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np
from faulty_sensors import set_sensor
from motion_watch import MotionWatch

from rths_nodes.core.errors import PortError
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import MODE_FORCE, Array, Command, Measurement
from rths_nodes.laboratory.ports.wrappers import PortBefore
from rths_nodes.loop.supervision.states import State

ROUNDING = 1e-9
PHASES = ("wait_tick", "write", "read")
"""Where in a tick something happens."""
SENSORS = {
    "frozen": ("displacement", "frozen", 0.0),
    "flickers": ("displacement", "flickers", 0.0),
    "flipped": ("displacement", "flipped", 0.0),
    "drifts": ("displacement", "drifts", 5e-3),
    "force_frozen": ("force", "frozen", 0.0),
    "force_flipped": ("force", "flipped", 0.0),
    "force_drifts": ("force", "drifts", 2e5),
}
"""What becomes of a sensor: channel, how, and the rate of its drift in m/s or N/s."""


class WatchedPort:
    """``port`` with its sensors laid open; every command is judged in the ``state`` of its tick.

    ``moving`` are the states in which it may change, ``step`` ``(n_axes,)`` m by how much in a tick, ``stroke`` m
    how far it may go. ``violations`` says in words what was wrong: of the command that was sent, and of the one
    that acts. ``watch`` judges the motions.
    """

    def __init__(
        self,
        port: Port,
        state: Callable[[], State],
        moving: frozenset[State],
        step: Array,
        stroke: Array,
        watch: MotionWatch,
    ) -> None:
        self._port, self._state, self._moving = port, state, moving
        self._step, self._stroke = step.tolist(), stroke.tolist()
        self.watch = watch
        self.lost: Callable[[], bool] = lambda: False
        """Whether the rig does not follow: then the command goes to where it stands, in any state."""
        self._was_lost = False
        self._last: dict[str, list[float]] = {}
        self._by_force = [False] * len(step)
        self.violations: list[str] = []
        self.ticks = 0
        self.pending: list[tuple[int, str, Callable[[], object]]] = []
        """What happens: at which tick from now on, in which phase of it, and what."""
        self.each_tick: Callable[[], object] = lambda: None
        self.shift, self.force_shift = 0.0, 0.0
        """By what the sensors are off, m and N."""
        self.silent = self.failing = False
        """The displacement is no number, the way to the rig has failed."""
        self.wrong: set[tuple[int, str]] = set()
        """Axis and channel of the sensors that are wrong."""
        self.missed: Array = np.zeros(len(step))
        """By what the rig missed its command in the last tick, m."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def after(self, ticks: int, phase: str, happens: Callable[[], object]) -> None:
        """``happens`` in that ``phase`` of a tick, so many from now."""
        self.pending.append((self.ticks + ticks, phase, happens))

    def _due(self, phase: str) -> None:
        if not self.pending:
            return
        due = [each for each in self.pending if each[0] <= self.ticks and each[1] == phase]
        self.pending = [each for each in self.pending if each not in due]
        for _, _, happens in due:
            happens()

    def wait_tick(self) -> int:
        self.each_tick()
        self._due("wait_tick")
        if self.failing:
            raise PortError("rig: the cable is cut")
        return self._port.wait_tick()

    def _simulator(self) -> Any:
        rig: Any = self._port
        while isinstance(rig, PortBefore):
            rig = rig._port
        return rig

    def sensor(self, what: str) -> None:
        """A sensor goes wrong (SENSORS), of the axis whose turn it is."""
        channel, how, rate = SENSORS[what]
        axis = self.ticks % len(self._step)
        set_sensor(self._simulator(), axis, channel, how, rate)
        self.wrong.add((axis, channel))

    def repaired(self) -> None:
        """All sensors are right again."""
        for axis, channel in self.wrong:
            set_sensor(self._simulator(), axis, channel, "right")
        self.wrong.clear()
        self.silent, self.shift, self.force_shift = False, 0.0, 0.0

    def write(self, command: Command) -> None:
        self._due("write")
        if not self._last:
            self._last = dict.fromkeys(("sent", "active"), self._port.active_command.tolist())
        modes = command.control_mode
        by_force = [bool(modes) and modes[axis] == MODE_FORCE for axis in range(len(self._step))]
        now, lost = command.command.tolist(), self.lost()
        # a force loop leads its axis while the rest stands, too
        moved = [not (new or old) for new, old in zip(by_force, self._by_force, strict=True)]
        self._judge("sent", now, moved)
        self._by_force = by_force
        self.watch.state, self.watch.lost = self._state().name, lost
        self.watch.sent(command.command, modes, f"tick {self.ticks}, {self._state().name}")
        self._port.write(command)
        if lost or self._was_lost:  # on its return it has what was sent last
            self._last["active"] = self._port.active_command.tolist()
        self._was_lost = lost
        self._judge("active", self._port.active_command.tolist(), moved)
        self.ticks += 1

    def _judge(self, what: str, now: list[float], moved: list[bool]) -> None:
        last, self._last[what] = self._last[what], now
        if now == last:  # judged when it came
            return
        state = self._state()
        steps = [(new - old) * moves for new, old, moves in zip(now, last, moved, strict=True)]
        within = (abs(at) <= most or not moves for at, most, moves in zip(now, self._stroke, moved, strict=True))
        wrong = ""
        if not (all(map(isfinite, now)) and all(within)):
            wrong = "beyond the stroke"
        elif state not in self._moving and any(steps) and not self.lost():
            wrong = "moves in a state that is none of motion"
        elif any(abs(step) > most * (1.0 + ROUNDING) for step, most in zip(steps, self._step, strict=True)):
            wrong = f"a step beyond the velocity limit, {self._step} m"
        if wrong:
            self.violations.append(f"tick {self.ticks}, {state.name}: {what} {now} after {last} m: {wrong}")

    def read(self) -> Measurement:
        measured = self._port.read()
        self._due("read")
        shown = measured.displacement + self.shift
        if self.silent:
            shown = np.full_like(shown, np.nan)
        shown_as = measured
        if self.silent or self.shift or self.force_shift:
            shown_as = replace(measured, displacement=shown, force=measured.force + self.force_shift)
        if "sent" in self._last:
            self.missed = shown - self._last["sent"]
            true, told = self._port.truth(), f"tick {self.ticks}, {self._state().name}"
            assert true is not None
            self.watch.state = self._state().name
            self.watch.measured(shown, true.displacement, true.force, told)
        return shown_as
