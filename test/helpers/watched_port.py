# SPDX-License-Identifier: Apache-2.0
"""A port that checks all commands, and at which faults occur at chosen ticks."""

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
"""Phases of a tick in which an event may occur."""
SENSORS = {
    "frozen": ("displacement", "frozen", 0.0),
    "flickers": ("displacement", "flickers", 0.0),
    "flipped": ("displacement", "flipped", 0.0),
    "drifts": ("displacement", "drifts", 5e-3),
    "force_frozen": ("force", "frozen", 0.0),
    "force_flipped": ("force", "flipped", 0.0),
    "force_drifts": ("force", "drifts", 2e5),
}
"""Faults of sensors: channel, kind, and rate of the drift in m/s or N/s."""


class WatchedPort:
    """``port`` with faulty sensors; every command is checked in the ``state`` of its tick.

    The command may change in the ``moving`` states, at most by ``step`` ``(n_axes,)`` (m) per tick and up to
    ``stroke`` (m). ``violations`` lists those of the sent and of the active command. ``watch`` checks the motions.
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
        """True if the rig does not follow: then the command goes to its position, in any state."""
        self._was_lost = False
        self._last: dict[str, list[float]] = {}
        self._by_force = [False] * len(step)
        self.violations: list[str] = []
        self.ticks = 0
        self.pending: list[tuple[int, str, Callable[[], object]]] = []
        """Pending events: tick, phase and action."""
        self.each_tick: Callable[[], object] = lambda: None
        self.shift, self.force_shift = 0.0, 0.0
        """Errors of the sensors, m and N."""
        self.silent = self.failing = False
        """The displacement is NaN; the connection to the rig has failed."""
        self.wrong: set[tuple[int, str]] = set()
        """Axis and channel of the faulty sensors."""
        self.missed: Array = np.zeros(len(step))
        """Difference of reading and command in the last tick, m."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def after(self, ticks: int, phase: str, action: Callable[[], object]) -> None:
        """Call ``action`` in the ``phase`` of a tick, ``ticks`` from now."""
        self.pending.append((self.ticks + ticks, phase, action))

    def _due(self, phase: str) -> None:
        if not self.pending:
            return
        due = [event for event in self.pending if event[0] <= self.ticks and event[1] == phase]
        self.pending = [event for event in self.pending if event not in due]
        for _, _, action in due:
            action()

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

    def sensor(self, fault: str) -> None:
        """Begin a ``fault`` (SENSORS) of the sensor of an axis that the tick selects."""
        channel, kind, rate = SENSORS[fault]
        axis = self.ticks % len(self._step)
        set_sensor(self._simulator(), axis, channel, kind, rate)
        self.wrong.add((axis, channel))

    def repaired(self) -> None:
        """End all faults of sensors."""
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
        # a force loop moves its axis while the others rest, too
        moved = [not (new or old) for new, old in zip(by_force, self._by_force, strict=True)]
        self._judge("sent", now, moved)
        self._by_force = by_force
        self.watch.state, self.watch.lost = self._state().name, lost
        self.watch.sent(command.command, modes, f"tick {self.ticks}, {self._state().name}")
        self._port.write(command)
        if lost or self._was_lost:  # on its return the active command is the last sent one
            self._last["active"] = self._port.active_command.tolist()
        self._was_lost = lost
        self._judge("active", self._port.active_command.tolist(), moved)
        self.ticks += 1

    def _judge(self, name: str, now: list[float], moved: list[bool]) -> None:
        last, self._last[name] = self._last[name], now
        if now == last:  # checked when it was sent
            return
        state = self._state()
        steps = [(new - old) * moves for new, old, moves in zip(now, last, moved, strict=True)]
        within = (abs(at) <= most or not moves for at, most, moves in zip(now, self._stroke, moved, strict=True))
        violation = ""
        if not (all(map(isfinite, now)) and all(within)):
            violation = "beyond the stroke"
        elif state not in self._moving and any(steps) and not self.lost():
            violation = "moves in a state without motion"
        elif any(abs(step) > most * (1.0 + ROUNDING) for step, most in zip(steps, self._step, strict=True)):
            violation = f"a step beyond the velocity limit, {self._step} m"
        if violation:
            self.violations.append(f"tick {self.ticks}, {state.name}: {name} {now} after {last} m: {violation}")

    def read(self) -> Measurement:
        measured = self._port.read()
        self._due("read")
        shown = measured.displacement + self.shift
        if self.silent:
            shown = np.full_like(shown, np.nan)
        reading = measured
        if self.silent or self.shift or self.force_shift:
            reading = replace(measured, displacement=shown, force=measured.force + self.force_shift)
        if "sent" in self._last:
            self.missed = shown - self._last["sent"]
            true, tick = self._port.truth(), f"tick {self.ticks}, {self._state().name}"
            assert true is not None
            self.watch.state = self._state().name
            self.watch.measured(shown, true.displacement, true.force, tick)
        return reading
