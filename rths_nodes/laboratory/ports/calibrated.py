"""The edge of a real rig: behind it the port's numbers, before it SI units in axis coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import Array, Command, Measurement
from rths_nodes.laboratory.calibration import Calibration, Channel, channels_of, si_names


class CalibratedPort:
    """Everything is that of ``port``, but for the numbers, which go through ``calibration``."""

    def __init__(self, port: Port, calibration: Calibration, auxiliary_names: tuple[str, ...]) -> None:
        self._port, self._calibration = port, calibration
        self.auxiliary_names = auxiliary_names
        self._sent: Command | None = None
        self._given: Command | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    @property
    def active_command(self) -> Array | None:
        """What the controllers drive to, ``(n_axes,)`` m; None where it cannot be read."""
        active = self._port.active_command
        return None if active is None else self._calibration.driven(active)

    @property
    def control_mode(self) -> bytes:
        """MODE_..., a byte per axis; empty where it is not told."""
        return self._calibration.modes(self._port.control_mode)

    def write(self, command: Command) -> None:
        """Send the Command of the tick."""
        self._given, self._sent = command, self._calibration.sent(command)
        self._port.write(self._sent)

    def read(self) -> Measurement:
        """The Measurement of the tick; a command that acted as it was sent is told as it was given."""
        told, given, sent = self._port.read(), self._given, self._sent
        exact = given is not None and sent is not None and np.array_equal(told.command, sent.command)
        return self._calibration.measured(told, given.command.copy() if given is not None and exact else None)

    def truth(self) -> Measurement | None:
        """The true, noise-free state of the tick; None where it is not known."""
        true = self._port.truth()
        return None if true is None else self._calibration.measured(true)


def calibrated(port: Port, axes: Mapping[str, Any], auxiliary: Mapping[str, Channel]) -> Port:
    """``port``, of which the ``rig_axis`` of ``axes`` and the ``auxiliary`` channels say what its numbers are.

    Raises ConfigError for a channel that the port has not.
    """
    channels = channels_of(port.auxiliary_names, auxiliary)
    calibration = Calibration.of(axes, channels)
    return cast(Port, CalibratedPort(port, calibration, si_names(port.auxiliary_names, channels)))
