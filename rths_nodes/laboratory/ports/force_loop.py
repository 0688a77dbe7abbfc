"""The force loops that we close: before them Commands in N, behind them a port that takes displacements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np

from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import MODE_FORCE, MODE_NOT_TOLD, Command, Measurement
from rths_nodes.laboratory.force_control import ForceLoops


class ForceLoopPort:
    """Everything is that of ``port``, but for the axes that ``loops`` control by force."""

    def __init__(self, port: Port, loops: ForceLoops) -> None:
        self._port, self._loops = port, loops
        self._force: list[float] = []
        self._command: Command | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def open(self, pacer: Callable[[], int] | None = None) -> None:
        """Connect to the rig, whose axes are all held."""
        self._port.open(pacer)
        active = self._port.active_command
        if active is not None:
            self._loops.start(active)

    def begin(self) -> None:
        """The test begins with all axes held."""
        self._command = None
        self._port.begin()

    @property
    def partial_stop(self) -> str:
        """Why a force loop has stopped itself, or which part of the rig has; empty while none has."""
        return self._loops.breach or self._port.partial_stop

    @property
    def control_mode(self) -> bytes:
        """MODE_..., a byte per axis: what is controlled by force here is told as that."""
        return self._told(self._port.control_mode)

    def write(self, command: Command) -> None:
        """Send the Command of the tick, in displacements."""
        self._command = command
        led = self._loops.led(command, self._force)
        target = command.target
        if command.control_mode:
            newtons = np.frombuffer(command.control_mode, np.uint8) == MODE_FORCE
            target = np.where(newtons, led, target)
        self._port.write(replace(command, target=target, command=led, control_mode=b""))

    def read(self) -> Measurement:
        """The Measurement of the tick: the applied command of an axis that is controlled by force is in N."""
        measured = self._port.read()
        self._force = measured.force.tolist()
        if self._command is None:  # Measurement 0: where the axes are held
            self._loops.start(measured.command)
        measured.control_mode = self._told(measured.control_mode)
        return self._in_newtons(measured)

    def truth(self) -> Measurement | None:
        """The true, noise-free state of the tick; None where it is not known."""
        true = self._port.truth()
        return None if true is None else self._in_newtons(true)

    def _told(self, modes: bytes) -> bytes:
        here, mine = self._loops.places, self._loops.modes
        modes = modes or bytes([MODE_NOT_TOLD]) * len(mine)
        return bytes([mine[index] if index in here else its for index, its in enumerate(modes)])

    def _in_newtons(self, measured: Measurement) -> Measurement:
        """What was applied, as it was commanded: where the mode was force it was N."""
        if self._command is not None and MODE_FORCE in self._loops.modes:
            newtons = np.frombuffer(self._loops.modes, np.uint8) == MODE_FORCE
            measured.command = np.where(newtons, self._command.command, measured.command)
        return measured


def force_controlled(port: Port, loops: ForceLoops) -> Port:
    """``port``, before which ``loops`` are closed; the port itself where there are none."""
    return cast(Port, ForceLoopPort(port, loops)) if loops else port
