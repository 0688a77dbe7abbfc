# SPDX-License-Identifier: Apache-2.0
"""A port of another package, whose errors name the port, the place of its rig, and the attempted action."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from rths_nodes.core.declarations import OfPort
from rths_nodes.core.errors import ConfigError, PortError, raised_at
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import HYDRAULICS_NOT_TOLD, Array, Command

_MEMBERS = sorted(name for name in (*vars(Port), *Port.__annotations__) if not name.startswith("_"))


def _as_it_is(value: Any) -> Any:
    return value


def _tried(name: str, words: str, kind: Callable[[Any], Any] = _as_it_is) -> Any:
    """Return the method ``name`` of a port, which returns a ``kind``; ``words`` describe the attempt."""

    def method(self: NamedPort) -> Any:
        return kind(self._try(words, getattr(self._port, name)))

    return method


def _read_back(name: str, absent: Any, kind: Callable[[Any], Any] = _as_it_is) -> Any:
    return property(lambda self: kind(self._told(name, absent)))


def _perhaps(name: str, words: str) -> Any:
    """Return the method ``name`` of a port, or the default if it has none; ``words`` as in :func:`_tried`."""
    otherwise = getattr(OfPort, name)

    def method(self: NamedPort, *arguments: Any, **named: Any) -> Any:
        if not _has(self._port, name):
            return otherwise(self, *arguments, **named)
        return self._try(words, partial(getattr(self._port, name), *arguments, **named))

    return method


class NamedPort(Port):
    """A wrapper of ``port``, of the type ``name``, that turns its exceptions into errors with a description.

    A port that cannot be opened is refused with ConfigError, as nothing has moved; later it is a PortError.
    """

    def __init__(self, port: Any, name: str) -> None:
        """Raises ConfigError for an object that is not a complete port."""
        self.label = f"port.type = {name!r}"
        # of its class first: a property may access the rig, which is not connected yet
        missing = [name for name in _MEMBERS if not (hasattr(type(port), name) or hasattr(port, name))]
        if missing:
            raise ConfigError(f"{self.label}: {type(port).__name__} lacks {', '.join(missing)} of a port")
        self._port, self._name = port, name
        self._failed = False

    def open(self, pacer: Callable[[], int] | None = None) -> None:
        try:
            self._port.open(pacer)
        except Exception as error:
            with suppress(Exception):
                self._port.close()
            raise ConfigError(self._words("cannot connect", error)) from error

    begin = _tried("begin", "asking for Measurement 0")
    arm_watchdog = _tried("arm_watchdog", "arming the watchdog")
    disarm_watchdog = _tried("disarm_watchdog", "disarming the watchdog")
    wait_tick = _tried("wait_tick", "waiting for the tick", int)
    ready = _tried("ready", "asking whether the Measurement is there", bool)
    read = _tried("read", "reading the Measurement")
    truth = _tried("truth", "asking for the true state")
    safe = _tried("safe", "leaving the rig to its safe state")

    hydraulics = _read_back("hydraulics", HYDRAULICS_NOT_TOLD, int)
    control_mode = _read_back("control_mode", b"", bytes)
    heartbeat = _read_back("heartbeat", None)
    build = _read_back("build", "", str)
    stated = _read_back("stated", None)
    ear = _read_back("ear", None)

    external = _read_back("external", False)
    simulated = _read_back("simulated", False)
    transport_samples = _read_back("transport_samples", 0)
    auxiliary_names = _read_back("auxiliary_names", ())
    auxiliary_inputs = _read_back("auxiliary_inputs", ())

    follows_rig = _read_back("follows_rig", OfPort.follows_rig, bool)
    in_lockstep = _read_back("in_lockstep", OfPort.in_lockstep, bool)
    address = _read_back("address", OfPort.address, str)
    trigger = _read_back("trigger", OfPort.trigger)
    can_warn = _read_back("can_warn", OfPort.can_warn, bool)
    armed = _read_back("armed", OfPort.armed, bool)
    paced = _read_back("paced", OfPort.paced, bool)
    handover = _read_back("handover", OfPort.handover)
    failure = _read_back("failure", "", str)
    counter_at_start = _read_back("counter_at_start", None)

    drop_heartbeat = _perhaps("drop_heartbeat", "dropping the heartbeat")
    numbers = _perhaps("numbers", "asking what it has counted")
    accept_any_start = _perhaps("accept_any_start", "asking it to accept any start")
    warn = _perhaps("warn", "switching the warning output")
    set_interlock = _perhaps("set_interlock", "switching the interlock")
    set_hydraulics = _perhaps("set_hydraulics", "switching the pressure")

    @property
    def wait(self) -> Callable[[float], None] | None:  # type: ignore[override]
        """Wait for the rig; None for a port that cannot."""
        waits = self._told("wait", OfPort.wait)
        return None if waits is None else partial(self._try, "waiting for the rig", waits)

    @property
    def interlock(self) -> str:
        return str(self._try("asking for the interlock", getattr, self._port, "interlock"))

    @property
    def partial_stop(self) -> str:
        return str(self._try("asking for stopped parts", getattr, self._port, "partial_stop"))

    @property
    def active_command(self) -> Array | None:
        active = self._told("active_command", None)
        return None if active is None else np.array(active, float)

    def _told(self, name: str, absent: Any) -> Any:
        return self._try(f"reading {name}", getattr, self._port, name) if _has(self._port, name) else absent

    def write(self, command: Command) -> None:
        self._try(f"sending Command {command.sample}", self._port.write, command)

    def close(self) -> None:
        if self._failed:  # the cause is reported already; a broken port may not close in order
            with suppress(Exception):
                self._port.close()
        else:
            self._try("closing the connection", self._port.close)

    def _try(self, tried: str, action: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return action(*arguments)
        except Exception as error:
            self._failed = True
            raise PortError(self._words(tried, error)) from error

    def _words(self, tried: str, error: Exception) -> str:
        address = self._port.address if _has(self._port, "address") else OfPort.address
        where = f" at {address}" if address else ""
        reason = str(error)
        if isinstance(error, OSError):
            reason = error.strerror or reason
        elif not isinstance(error, ConfigError):
            where = raised_at(error, type(self._port).__module__)
            reason = f"{where}{type(error).__name__}: {error}"
        return f"port {self._name!r}{where}: {tried}: {reason or type(error).__name__}"


def _has(port: Any, name: str) -> bool:
    """Return whether a port has a member, without accessing the rig unless it looks members up itself."""
    declared = hasattr(type(port), name) or (hasattr(port, "__dict__") and name in vars(port))
    return declared or (hasattr(type(port), "__getattr__") and hasattr(port, name))
