# SPDX-License-Identifier: Apache-2.0
"""Wrappers of the port to a rig: a delegating base, SI units, forces of the specimens, force loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import MODE_FORCE, MODE_NOT_TOLD, Array, Command, Measurement, by_force, equal
from rths_nodes.laboratory.calibration import Calibration, Channel, channels_of, si_names
from rths_nodes.laboratory.corrections import ForceCorrections
from rths_nodes.laboratory.force_control import ForceLoops


class _HandedOn:
    """A member of the wrapped port; one set on the object itself has precedence."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, port: Any, owner: type) -> object:
        return self if port is None else getattr(port._port, self._name)


def _handed_on() -> Any:
    return _HandedOn()


class PortBefore(Port):
    """A wrapper that delegates every listed member to ``port``, unless overridden (``core/declarations.py``)."""

    external = _handed_on()
    simulated = _handed_on()
    transport_samples = _handed_on()
    auxiliary_names = _handed_on()
    auxiliary_inputs = _handed_on()

    open = _handed_on()
    begin = _handed_on()
    arm_watchdog = _handed_on()
    disarm_watchdog = _handed_on()
    interlock = _handed_on()
    partial_stop = _handed_on()
    wait_tick = _handed_on()
    write = _handed_on()
    ready = _handed_on()
    read = _handed_on()
    truth = _handed_on()
    safe = _handed_on()
    close = _handed_on()

    active_command = _handed_on()
    hydraulics = _handed_on()
    control_mode = _handed_on()
    heartbeat = _handed_on()
    build = _handed_on()
    stated = _handed_on()
    ear = _handed_on()

    follows_rig = _handed_on()
    in_lockstep = _handed_on()
    wait = _handed_on()
    address = _handed_on()
    label = _handed_on()
    trigger = _handed_on()
    can_warn = _handed_on()
    armed = _handed_on()
    paced = _handed_on()
    handover = _handed_on()
    failure = _handed_on()
    counter_at_start = _handed_on()
    drop_heartbeat = _handed_on()
    numbers = _handed_on()
    accept_any_start = _handed_on()
    warn = _handed_on()
    set_interlock = _handed_on()
    set_hydraulics = _handed_on()

    def __init__(self, port: Port) -> None:
        self._port = port


class _Renumbered(PortBefore):
    """A wrapper that converts the numbers of Measurements."""

    def truth(self) -> Measurement | None:
        true = self._port.truth()
        return None if true is None else self._true(true)

    def _true(self, true: Measurement) -> Measurement:
        raise NotImplementedError


class CalibratedPort(_Renumbered):
    """A wrapper that converts all numbers by ``calibration``."""

    def __init__(self, port: Port, calibration: Calibration, auxiliary_names: tuple[str, ...]) -> None:
        super().__init__(port)
        self._calibration = calibration
        self.auxiliary_names = auxiliary_names
        self._sent: Command | None = None
        self._given: Command | None = None

    @property
    def active_command(self) -> Array | None:
        active = self._port.active_command
        return None if active is None else self._calibration.driven(active)

    @property
    def control_mode(self) -> bytes:
        return self._calibration.modes(self._port.control_mode)

    def write(self, command: Command) -> None:
        self._given, self._sent = command, self._calibration.sent(command)
        self._port.write(self._sent)

    def read(self) -> Measurement:
        """Return the Measurement of the tick; a command applied unchanged is reported as given."""
        told, given, sent = self._port.read(), self._given, self._sent
        exact = given is not None and sent is not None and equal(told.command, sent.command)
        return self._calibration.measured(told, given.command.copy() if given is not None and exact else None)

    def _true(self, true: Measurement) -> Measurement:
        return self._calibration.measured(true)


def calibrated(port: Port, axes: Mapping[str, object], auxiliary: Mapping[str, Channel]) -> Port:
    """Return ``port`` calibrated for ``axes`` and ``auxiliary``. Raises ConfigError for a missing channel."""
    channels = channels_of(port.auxiliary_names, auxiliary)
    calibration = Calibration.of(axes, channels)
    return CalibratedPort(port, calibration, si_names(port.auxiliary_names, channels))


class CorrectedPort(_Renumbered):
    """A wrapper that converts the forces by ``corrections``."""

    def __init__(self, port: Port, corrections: ForceCorrections) -> None:
        super().__init__(port)
        self._corrections = corrections
        self.auxiliary_names = (*port.auxiliary_names, *corrections.names)

    def open(self, pacer: Callable[[], int] | None = None) -> None:
        self._corrections.reset()
        self._port.open(pacer)

    def read(self) -> Measurement:
        return self._corrections.corrected(self._port.read())

    def _true(self, true: Measurement) -> Measurement:
        return self._corrections.beside(true)


def force_corrected(port: Port, axes: Mapping[str, object], dt: float, simulated: bool) -> Port:
    """Return ``port`` with forces corrected by the ``rig_axis`` of ``axes``; itself without corrections."""
    found = ForceCorrections(axes, port.auxiliary_names, dt, simulated)
    return CorrectedPort(port, found) if found else port


class ForceLoopPort(_Renumbered):
    """A wrapper that closes ``loops`` of force-controlled axes."""

    def __init__(self, port: Port, loops: ForceLoops) -> None:
        super().__init__(port)
        self._loops = loops
        self._force: list[float] = []
        self._command: Command | None = None

    def open(self, pacer: Callable[[], int] | None = None) -> None:
        self._port.open(pacer)
        active = self._port.active_command
        if active is not None:
            self._loops.start(active)

    def begin(self) -> None:
        self._command = None
        self._port.begin()

    @property
    def partial_stop(self) -> str:
        return self._loops.breach or self._port.partial_stop

    @property
    def control_mode(self) -> bytes:
        return self._told(self._port.control_mode)

    def write(self, command: Command) -> None:
        self._command = command
        led = self._loops.led(command, self._force)
        target = command.target
        if command.control_mode:
            target = np.where(by_force(command.control_mode), led, target)
        self._port.write(replace(command, target=target, command=led, control_mode=b""))

    def read(self) -> Measurement:
        """Return the Measurement of the tick, with applied commands in N for force-controlled axes."""
        measured = self._port.read()
        self._force = measured.force.tolist()
        if self._command is None:  # Measurement 0: where the axes are held
            self._loops.start(measured.command)
        measured.control_mode = self._told(measured.control_mode)
        return self._true(measured)

    def _told(self, modes: bytes) -> bytes:
        here, mine = self._loops.places, self._loops.modes
        modes = modes or bytes([MODE_NOT_TOLD]) * len(mine)
        return bytes([mine[index] if index in here else its for index, its in enumerate(modes)])

    def _true(self, measured: Measurement) -> Measurement:
        """Return the state with applied commands in N for force-controlled axes."""
        if self._command is not None and MODE_FORCE in self._loops.modes:
            forced = by_force(self._loops.modes)
            measured.command = np.where(forced, self._command.command, measured.command)
        return measured


def force_controlled(port: Port, loops: ForceLoops) -> Port:
    return ForceLoopPort(port, loops) if loops else port
