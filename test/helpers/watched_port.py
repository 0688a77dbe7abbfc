"""A port that keeps watch over what is sent through it, and at which something goes wrong at a chosen tick."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from rths_nodes.core.errors import PortError
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import Array, Command, Measurement
from rths_nodes.loop.supervision.states import State

ROUNDING = 1e-9
PHASES = ("wait_tick", "write", "read")
"""Where in a tick something happens."""


class WatchedPort:
    """``port`` with the sensors of its one axis laid open; every command is judged in the ``state`` of its tick.

    ``moving`` are the states in which it may change, ``step`` m by how much in a tick, ``stroke`` m how far it may
    go. ``violations`` says in words what was wrong: of the command that was sent, and of the one that acts.
    """

    def __init__(
        self, port: Port, state: Callable[[], State], moving: frozenset[State], step: float, stroke: float
    ) -> None:
        self._port, self._state, self._moving = port, state, moving
        self._step, self._stroke = step, stroke
        self.lost: Callable[[], bool] = lambda: False
        """Whether the rig does not follow: then the command goes to where it stands, in any state."""
        self._was_lost = False
        self._last: dict[str, Array] = {}
        self.violations: list[str] = []
        self.ticks = 0
        self.pending: list[tuple[int, str, Callable[[], object]]] = []
        """What happens: at which tick from now on, in which phase of it, and what."""
        self.each_tick: Callable[[], object] = lambda: None
        self.shift, self.force_shift = 0.0, 0.0
        """By what the sensors are off, m and N."""
        self.dead = self.silent = self.failing = False
        """The displacement does not change any more, is no number, the way to the rig has failed."""
        self._frozen: Array | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def after(self, ticks: int, phase: str, happens: Callable[[], object]) -> None:
        """``happens`` in that ``phase`` of a tick, so many from now."""
        self.pending.append((self.ticks + ticks, phase, happens))

    def _due(self, phase: str) -> None:
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

    def write(self, command: Command) -> None:
        self._due("write")
        self._last.setdefault("sent", self._port.active_command)
        self._last.setdefault("active", self._port.active_command)
        self._judge("sent", np.array(command.command))
        self._port.write(command)
        lost = self.lost()
        if lost or self._was_lost:  # on its return it has what was sent last
            self._last["active"] = self._port.active_command
        self._was_lost = lost
        self._judge("active", self._port.active_command)
        self.ticks += 1

    def _judge(self, what: str, now: Array) -> None:
        last, state = self._last[what], self._state()
        told = f"tick {self.ticks}, {state.name}: {what} {now.tolist()} after {last.tolist()} m"
        if not (np.isfinite(now).all() and (np.abs(now) <= self._stroke).all()):
            self.violations.append(f"{told}: beyond the stroke")
        elif state not in self._moving and not self.lost() and not np.array_equal(now, last):
            self.violations.append(f"{told}: moves in a state that is none of motion")
        elif (np.abs(now - last) > self._step * (1.0 + ROUNDING)).any():
            self.violations.append(f"{told}: a step beyond the velocity limit, {self._step:g} m")
        self._last[what] = now.copy()

    def read(self) -> Measurement:
        measured = self._port.read()
        shown = measured.displacement + self.shift
        if not self.dead:
            self._frozen = None
        elif self._frozen is None:
            self._frozen = shown.copy()
        if self._frozen is not None:
            shown = self._frozen.copy()
        if self.silent:
            shown = np.full_like(shown, np.nan)
        self._due("read")
        return replace(measured, displacement=shown, force=measured.force + self.force_shift)
