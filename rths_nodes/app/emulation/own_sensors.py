# SPDX-License-Identifier: Apache-2.0
"""A data acquisition that is not there: it shows a watcher where an emulated rig is, by sensors of its own."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from contextlib import suppress

import numpy as np

from rths_nodes.app.emulation.emulator import Emulator
from rths_nodes.core.errors import ConfigError
from rths_nodes.laboratory.calibration import Channel
from rths_nodes.laboratory.ports.own_sensors import shown
from rths_nodes.loop.watch.section import WatchSection


class EmulatedSensors:
    """Shows what is true of the rig of ``emulator`` to the watcher at ``address``, from start to close.

    Resolution and noise are those of the channels of ``section``, whose axes are those of the rig. Raises
    ConfigError for an address that is not known.
    """

    def __init__(self, emulator: Emulator, section: WatchSection, address: str) -> None:
        axes = emulator.scenario.axes
        of = {axis.rig_axis.name: place for place, axis in enumerate(axes.values()) if axis.rig_axis is not None}
        self._emulator, self._section = emulator, section
        self._places = [of[name] for name in section.axes]
        self._noise = np.random.default_rng(emulator.scenario.seed)
        self._session = secrets.randbelow(2**32 - 1) + 1
        try:
            self._far = socket.gethostbyname(address), section.sensors.port
        except OSError as error:
            raise ConfigError(f"--sensors {address}: not known ({error.strerror})") from error
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, name="own sensors", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()

    def _show(self) -> None:
        """Show by the clock: what is due while the thread waits for its turn is left out, as if lost."""
        period, began, counter = 1.0 / self._section.sensors.rate, time.monotonic(), 0
        while not self._ended.wait(max(0.0, began + counter * period - time.monotonic())):
            counter = max(counter, int((time.monotonic() - began) / period))
            with suppress(OSError):  # as if it were lost on the way
                self._socket.sendto(shown(self._session, counter, self._rows()), self._far)
            counter += 1

    def _rows(self) -> list[tuple[float, float]]:
        true = self._emulator.true
        pairs = zip(self._section.axes.values(), self._places, strict=True)
        return [
            (
                self._value(axis.displacement, true.displacement[place]),
                self._value(axis.force, true.force[place]),
            )
            for axis, place in pairs
        ]

    def _value(self, channel: Channel, true: float) -> float:
        """Return the number of ``channel`` for what is ``true`` in SI."""
        value = true + channel.noise_rms * channel.unit_si * float(self._noise.standard_normal())
        if channel.step_si:
            value = round(value / channel.step_si) * channel.step_si
        return value / channel.gain
