"""A port of another package, whose errors say which port it is, where its rig is, and what was tried."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.core.protocols import Port
from rths_nodes.core.readback import FarEnd, Readback
from rths_nodes.core.samples import HYDRAULICS_NOT_TOLD, Array, Command, Measurement

_MEMBERS = sorted(name for name in (*vars(Port), *Port.__annotations__) if not name.startswith("_"))


class NamedPort(Readback):
    """Everything is that of ``port``, of the type ``name``; whatever it raises becomes an error with words.

    A port that cannot be opened is refused with ConfigError, for nothing has moved; later it is a PortError.
    """

    external: bool
    simulated: bool
    transport_samples: int
    auxiliary_names: tuple[str, ...]
    auxiliary_inputs: tuple[str, ...]

    def __init__(self, port: Any, name: str) -> None:
        """Raises ConfigError for an object that is not a whole port."""
        self.label = f"port.type = {name!r}"
        # of its class first: a property may ask the rig, to which nobody is connected yet
        missing = [name for name in _MEMBERS if not (hasattr(type(port), name) or hasattr(port, name))]
        if missing:
            raise ConfigError(f"{self.label}: {type(port).__name__} lacks {', '.join(missing)} of a port")
        self._port, self._name = port, name
        self._failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def open(self, pacer: Callable[[], int] | None = None) -> None:
        try:
            self._port.open(pacer)
        except Exception as error:
            with suppress(Exception):
                self._port.close()
            raise ConfigError(self._words("cannot connect", error)) from error

    def begin(self) -> None:
        self._try("asking for Measurement 0", self._port.begin)

    def arm_watchdog(self) -> None:
        self._try("arming the watchdog", self._port.arm_watchdog)

    def disarm_watchdog(self) -> None:
        self._try("disarming the watchdog", self._port.disarm_watchdog)

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

    @property
    def hydraulics(self) -> int:
        return int(self._told("hydraulics", HYDRAULICS_NOT_TOLD))

    @property
    def control_mode(self) -> bytes:
        return bytes(self._told("control_mode", b""))

    @property
    def heartbeat(self) -> int | None:
        beat: int | None = self._told("heartbeat", None)
        return beat

    @property
    def build(self) -> str:
        return str(self._told("build", ""))

    @property
    def stated(self) -> FarEnd | None:
        far: FarEnd | None = self._told("stated", None)
        return far

    @property
    def ear(self) -> Any:
        return self._told("ear", None)

    def _told(self, name: str, absent: Any) -> Any:
        """What the port reads back of its rig, or what stands for that where it cannot."""
        return self._try(f"reading {name}", getattr, self._port, name) if _has(self._port, name) else absent

    def wait_tick(self) -> int:
        return int(self._try("waiting for the tick", self._port.wait_tick))

    def write(self, command: Command) -> None:
        self._try(f"sending Command {command.sample}", self._port.write, command)

    def ready(self) -> bool:
        return bool(self._try("asking whether the Measurement is there", self._port.ready))

    def read(self) -> Measurement:
        measured: Measurement = self._try("reading the Measurement", self._port.read)
        return measured

    def truth(self) -> Measurement | None:
        true: Measurement | None = self._try("asking for the true state", self._port.truth)
        return true

    def safe(self) -> None:
        self._try("leaving the rig to its safe state", self._port.safe)

    def close(self) -> None:
        if self._failed:  # it has told why; what is broken may not close in order
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
        address = self._port.address if _has(self._port, "address") else ""
        where = f" at {address}" if address else ""
        reason = str(error)
        if isinstance(error, OSError):
            reason = error.strerror or reason
        elif not isinstance(error, ConfigError):
            reason = f"{type(error).__name__}: {error}"
        return f"port {self._name!r}{where}: {tried}: {reason or type(error).__name__}"


def _has(port: Any, name: str) -> bool:
    """Whether a port has it, without asking the rig."""
    return hasattr(type(port), name) or name in getattr(port, "__dict__", ())
