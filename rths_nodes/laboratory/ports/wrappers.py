# SPDX-License-Identifier: Apache-2.0
"""Wrappers of a rig's port, which label errors, delegate, convert units, correct forces and close force loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rths_nodes.core.errors import FOREIGN, ConfigError, PortError, raised_at
from rths_nodes.core.kernels import ToNumber
from rths_nodes.core.protocols import OfPort, Port, Readback
from rths_nodes.core.samples import (
    MODE_FORCE,
    MODE_NOT_TOLD,
    Array,
    Command,
    Measurement,
    by_force,
    equal,
)
from rths_nodes.laboratory.calibration import Calibration, Channel, channels_of, si_names
from rths_nodes.laboratory.corrections import UNCORRECTED, filtering, friction_of, low_pass, unfiltered
from rths_nodes.laboratory.force_control import ForceLoops

_MEMBERS = sorted(name for name in (*vars(Port), *Port.__annotations__) if not name.startswith("_"))


PURPOSES = {
    "begin": "requesting Measurement 0",
    "arm_watchdog": "arming the watchdog",
    "disarm_watchdog": "disarming the watchdog",
    "wait_tick": "waiting for the tick",
    "ready": "checking for the Measurement",
    "read": "reading the Measurement",
    "truth": "reading the true state",
    "safe": "putting the rig into its safe state",
    "drop_heartbeat": "dropping the heartbeat",
    "numbers": "reading its counts",
    "accept_any_start": "accepting any start",
    "warn": "switching the warning output",
    "set_interlock": "switching the interlock",
    "set_hydraulics": "switching the pressure",
}


class _HandedOn:
    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, port: Any, owner: type) -> Any:
        return self if port is None else getattr(port._port, self._name)


class _Tried(_HandedOn):
    def __set_name__(self, owner: type, name: str) -> None:
        super().__set_name__(owner, name)
        default = vars(OfPort).get(name, vars(Readback).get(name))
        self._default: Any = default.fget(None) if isinstance(default, property) and default.fget else default
        self._kind: Any = {"wait_tick": int, "ready": bool}.get(name, type(self._default))

    def __get__(self, port: object, owner: type) -> Any:
        if not isinstance(port, NamedPort):
            return self
        if self._name not in PURPOSES:
            return self._converted(port._reading(self._name, self._default))
        if self._default is not None and not _has(port._port, self._name):
            return partial(self._default, port)
        method, purpose = getattr(port._port, self._name), PURPOSES[self._name]
        return lambda *arguments, **named: self._converted(
            port._try(purpose, partial(method, *arguments, **named))
        )

    def _converted(self, value: Any) -> Any:
        return self._kind(value) if self._kind in (bool, int, str, bytes) else value


def _handed_on(count: int, kind: type[_HandedOn] = _HandedOn) -> Any:
    return (kind() for _ in range(count))


class NamedPort(Port):
    """Wraps a ``port`` of type ``name``, and converts its exceptions to errors that name the failed operation.

    Raises ConfigError, before any motion, if the port is incomplete or cannot be opened. Later errors are
    PortError.
    """

    def __init__(self, port: Any, name: str) -> None:
        self.label = f"port.type = {name!r}"
        # check the class first: a property may access the rig, which is not connected yet
        missing = [name for name in _MEMBERS if not (hasattr(type(port), name) or hasattr(port, name))]
        if missing:
            raise ConfigError(
                f"{self.label}: {type(port).__name__} is not a complete port; it lacks {', '.join(missing)}"
            )
        self._port, self._name = port, name
        self._failed = False

    def open(self, pacer: Callable[[], int] | None = None) -> None:
        try:
            self._port.open(pacer)
        except FOREIGN as error:
            with suppress(*FOREIGN):
                self._port.close()
            raise ConfigError(self._message("cannot connect", error)) from error

    begin, arm_watchdog, disarm_watchdog, wait_tick, ready, read, truth, safe = _handed_on(8, _Tried)
    hydraulics, control_mode, heartbeat, build, stated, ear = _handed_on(6, _Tried)
    external, simulated, transport_samples, auxiliary_names, auxiliary_inputs = _handed_on(5, _Tried)
    follows_rig, in_lockstep, address, trigger, can_warn, armed, paced = _handed_on(7, _Tried)
    handover, failure, counter_at_start, drop_heartbeat, numbers, accept_any_start = _handed_on(6, _Tried)
    warn, set_interlock, set_hydraulics = _handed_on(3, _Tried)

    @property
    def wait(self) -> Callable[[float], None] | None:  # type: ignore[override]
        waits = self._reading("wait", OfPort.wait)
        return None if waits is None else partial(self._try, "waiting for the rig", waits)

    @property
    def interlock(self) -> str:
        return str(self._try("reading the interlock", getattr, self._port, "interlock"))

    @property
    def partial_stop(self) -> str:
        return str(self._try("reading stopped parts", getattr, self._port, "partial_stop"))

    @property
    def active_command(self) -> Array | None:
        active = self._reading("active_command", None)
        return None if active is None else np.array(active, float)

    def _reading(self, name: str, absent: Any) -> Any:
        return self._try(f"reading {name}", getattr, self._port, name) if _has(self._port, name) else absent

    def write(self, command: Command) -> None:
        self._try(f"sending Command {command.sample}", self._port.write, command)

    def close(self) -> None:
        if self._failed:  # the cause is already reported, and a failed port may not close
            with suppress(*FOREIGN):
                self._port.close()
        else:
            self._try("closing the connection", self._port.close)

    def _try(self, tried: str, action: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return action(*arguments)
        except FOREIGN as error:
            self._failed = True
            raise PortError(self._message(tried, error)) from error

    def _message(self, tried: str, error: BaseException) -> str:
        address = self._port.address if _has(self._port, "address") else OfPort.address
        where = f" at {address}" if address else ""
        reason = str(error)
        if isinstance(error, OSError):
            reason = error.strerror or reason
        elif not isinstance(error, ConfigError):
            where = raised_at(error, type(self._port).__module__)
            reason = f"{where}{type(error).__name__}: {error}"
        return f"port {self._name!r}{where}: {tried}: {reason or type(error).__name__}"


def _has(port: object, name: str) -> bool:
    # ``hasattr`` on the port itself may access the rig
    declared = hasattr(type(port), name) or (hasattr(port, "__dict__") and name in vars(port))
    return declared or (hasattr(type(port), "__getattr__") and hasattr(port, name))


class PortBefore(Port):
    """Delegates to ``port`` every declared member that a subclass does not override."""

    external, simulated, transport_samples, auxiliary_names, auxiliary_inputs = _handed_on(5)
    open, begin, arm_watchdog, disarm_watchdog, interlock, partial_stop, wait_tick, write = _handed_on(8)
    ready, read, truth, safe, close = _handed_on(5)
    active_command, hydraulics, control_mode, heartbeat, build, stated, ear = _handed_on(7)
    follows_rig, in_lockstep, wait, address, label, trigger, can_warn, armed, paced = _handed_on(9)
    handover, failure, counter_at_start, drop_heartbeat, numbers, accept_any_start = _handed_on(6)
    warn, set_interlock, set_hydraulics = _handed_on(3)

    def __init__(self, port: Port) -> None:
        self._port = port


class CalibratedPort(PortBefore):
    """Converts between the numbers of a rig's port and SI units. ``auxiliary`` maps names to channels."""

    def __init__(self, port: Port, axes: Mapping[str, object], auxiliary: Mapping[str, Channel]) -> None:
        super().__init__(port)
        channels = channels_of(port.auxiliary_names, auxiliary)
        self._calibration = Calibration(axes, channels)
        self.auxiliary_names = si_names(port.auxiliary_names, channels)
        self._sent: Command | None = None
        self._converted: Command | None = None

    @property
    def active_command(self) -> Array | None:
        active = self._port.active_command
        return None if active is None else self._calibration.driven(active)

    @property
    def control_mode(self) -> bytes:
        return self._calibration.modes(self._port.control_mode)

    def write(self, command: Command) -> None:
        self._converted, self._sent = command, self._calibration.sent(command)
        self._port.write(self._sent)

    def read(self) -> Measurement:
        """Return the Measurement of the tick in SI units.

        The reported command has no rounding error if the port has applied the command unchanged.
        """
        measurement, converted, sent = self._port.read(), self._converted, self._sent
        exact = converted is not None and sent is not None and equal(measurement.command, sent.command)
        return self._calibration.measured(
            measurement, converted.command.copy() if converted is not None and exact else None
        )

    def truth(self) -> Measurement | None:
        true = self._port.truth()
        return None if true is None else self._calibration.measured(true)


class CorrectedPort(PortBefore):
    """Corrects the measured forces of ``axes`` (``corrections.py``). ``dt`` is the period, s.

    ``names`` are the names of the added channels. If ``simulated``, forces are filtered but not corrected. Raises
    ConfigError if the port lacks a required acceleration channel.
    """

    def __init__(self, port: Port, axes: Mapping[str, Any], dt: float, simulated: bool) -> None:
        super().__init__(port)
        self._dt = dt
        self._rows: dict[int, tuple[ToNumber, object, int]] = {}
        """Kernel step, constants and acceleration channel (-1: none), by axis index."""
        self._at_rest: dict[int, object] = {}
        for index, (name, axis) in enumerate(axes.items()):
            rig = axis.rig_axis
            if rig.corrections is None and rig.feedback_filter is None:
                continue
            masses, channel = (0.0, 0.0, 0.0), -1
            if rig.corrections is not None and not simulated:
                path = f"axes.{name}.rig_axis.corrections"
                masses, channel = friction_of(rig.corrections, port.auxiliary_names, path)
            self._rows[index], self._at_rest[index] = (unfiltered, masses, channel), ()
            if (filtered := low_pass(axis, dt)) is not None:
                step, constants = filtering(filtered.kernel, filtered.settled), (masses, filtered.constants)
                self._rows[index] = step, constants, channel
                self._at_rest[index] = False, filtered.settled(filtered.constants, 0.0)
        self.names = tuple(f"{UNCORRECTED}{list(axes)[index]} [N]" for index in self._rows)
        self.auxiliary_names = (*port.auxiliary_names, *self.names)
        self._reset()

    def _reset(self) -> None:
        self._before: Measurement | None = None
        self._states = dict(self._at_rest)

    def open(self, pacer: Callable[[], int] | None = None) -> None:
        self._reset()
        self._port.open(pacer)

    def read(self) -> Measurement:
        return self.corrected(self._port.read())

    def corrected(self, shown: Measurement) -> Measurement:
        """Return ``shown`` with specimen forces instead of load-cell forces, which become added channels."""
        before = self._before or shown
        self._before = shown
        passed = self._dt * max(1, shown.sample - before.sample)
        force, channels = shown.force.tolist(), shown.auxiliary.tolist()
        velocity = ((shown.displacement - before.displacement) / passed).tolist()
        for index, (step, constants, channel) in self._rows.items():
            acceleration = channels[channel] if channel >= 0 else 0.0
            inputs = force[index], velocity[index], acceleration
            self._states[index], force[index] = step(constants, self._states[index], *inputs)
        return replace(self._with_channels(shown), force=np.array(force))

    def truth(self) -> Measurement | None:
        true = self._port.truth()
        return None if true is None else self._with_channels(true)

    def _with_channels(self, shown: Measurement) -> Measurement:
        return replace(shown, auxiliary=np.append(shown.auxiliary, shown.force[list(self._rows)]))


class ForceLoopPort(PortBefore):
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
        return self._modes(self._port.control_mode)

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
        if self._command is None:  # Measurement 0 reports the positions at which the axes are held
            self._loops.start(measured.command)
        measured.control_mode = self._modes(measured.control_mode)
        return self._with_forces(measured)

    def truth(self) -> Measurement | None:
        true = self._port.truth()
        return None if true is None else self._with_forces(true)

    def _modes(self, modes: bytes) -> bytes:
        here, mine = self._loops.places, self._loops.modes
        modes = modes or bytes([MODE_NOT_TOLD]) * len(mine)
        return bytes([mine[index] if index in here else its for index, its in enumerate(modes)])

    def _with_forces(self, measured: Measurement) -> Measurement:
        if self._command is not None and MODE_FORCE in self._loops.modes:
            forced = by_force(self._loops.modes)
            measured.command = np.where(forced, self._command.command, measured.command)
        return measured
