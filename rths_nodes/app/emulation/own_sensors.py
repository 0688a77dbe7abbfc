# SPDX-License-Identifier: Apache-2.0
"""A data acquisition that is not there: it shows a watcher where an emulated rig is, by sensors of its own.

It is a process of its own, as it is a computer of its own in a laboratory: what keeps the emulator busy does not
silence it.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import socket
import time
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from rths_nodes.app.emulation.emulator import Emulator
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Measurement
from rths_nodes.laboratory.calibration import Channel
from rths_nodes.laboratory.ports.own_sensors import shown
from rths_nodes.loop.realtime import ABOVE, real_time
from rths_nodes.loop.watch.section import WatchSection


class EmulatedSensors:
    """Shows what is true of the rig of ``emulator`` to the watcher at ``address``, until it is closed.

    Resolution and noise are those of the channels of ``section``, whose axes are those of the rig. Raises
    ConfigError for an address that is not known.
    """

    def __init__(self, emulator: Emulator, section: WatchSection, address: str) -> None:
        axes = emulator.scenario.axes
        of = {axis.rig_axis.name: place for place, axis in enumerate(axes.values()) if axis.rig_axis is not None}
        self._places = [of[name] for name in section.axes]
        try:
            far = socket.gethostbyname(address), section.sensors.port
        except OSError as error:
            raise ConfigError(f"--sensors {address}: not known ({error.strerror})") from error
        context = multiprocessing.get_context("spawn")
        self._true = context.RawArray("d", 2 * len(self._places))
        given = (section, far, self._true, emulator.scenario.seed, os.getpid())
        self._process = context.Process(target=_show, args=given, daemon=True)
        emulator.shown_to = self._take
        self._take(emulator.true)
        self._process.start()

    def _take(self, true: Measurement) -> None:
        n = len(self._places)
        self._true[:n] = [true.displacement[place] for place in self._places]
        self._true[n:] = [true.force[place] for place in self._places]

    def close(self) -> None:
        self._process.terminate()
        self._process.join()


def _show(section: WatchSection, far: tuple[str, int], true: Sequence[float], seed: int, parent: int) -> None:
    """Show by the clock, as long as the ``parent`` lives: what was due while the process waited is left out."""
    session, noise = secrets.randbelow(2**32 - 1) + 1, np.random.default_rng(seed)
    period, began, counter = 1.0 / section.sensors.rate, time.monotonic(), 0
    channels = (
        [axis.displacement for axis in section.axes.values()],
        [axis.force for axis in section.axes.values()],
    )
    n = len(section.axes)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out,
        suppress(KeyboardInterrupt),
        real_time(True, ABOVE),
    ):
        while os.getppid() == parent:
            time.sleep(max(0.0, began + counter * period - time.monotonic()))
            counter = max(counter, int((time.monotonic() - began) / period))
            rows = [
                (_number(channels[0][axis], true[axis], noise), _number(channels[1][axis], true[n + axis], noise))
                for axis in range(n)
            ]
            with suppress(OSError):  # as if it were lost on the way
                out.sendto(shown(session, counter, rows), far)
            counter += 1


def _number(channel: Channel, true: float, noise: np.random.Generator) -> float:
    value = true + channel.noise_rms * channel.unit_si * float(noise.standard_normal())
    if channel.step_si:
        value = round(value / channel.step_si) * channel.step_si
    return value / channel.gain
