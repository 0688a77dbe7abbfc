# SPDX-License-Identifier: Apache-2.0
"""Warning before motion: a digital output of the rig (horn or lamp) is on for some seconds before each motion.

The seconds are counted in samples of the rig, which the drive holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import EMPTY
from rths_nodes.loop.pacing import Clock
from rths_nodes.loop.scenario.rig_file import WarningOutput
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.drive import RigDrive
from rths_nodes.procedure.machine import ActRefused, stopped_by_operator
from rths_nodes.procedure.motions import GuidedMotion, hold

LOOK_S = 0.01
"""Polling interval of a stop during the warning of a held rung, s."""


def warning_of(scenario: Scenario, port: Port) -> WarningOutput | None:
    """Return the warning output that the rig file names, or None. Raises ConfigError if ``port`` has no such
    output.
    """
    section = scenario.rig_file.warning if scenario.rig_file is not None else None
    if section is not None and not port.can_warn:
        raise ConfigError(
            f"rig: warning.output = {show(section.output)}: the port {type(scenario.port).type_name!r} "
            f"{f'at {port.address} ' if port.address else ''}has no warning output. Delete the key, or connect one"
        )
    return section


class MotionWarning:
    """Warning output of the rig of ``drive``, as declared in the rig file of ``scenario``.

    ``left`` is the time until the motion may begin, s. Raises ConfigError if the port has no warning output.
    """

    def __init__(self, drive: RigDrive, scenario: Scenario, clock: Clock) -> None:
        self._drive, self._scenario, self._clock = drive, scenario, clock
        self._section = warning_of(scenario, drive.port)
        self.left = 0.0
        self._on, self._start = False, EMPTY

    def check(self) -> None:
        """Raise ConfigError if the far end of the open port has no warning output."""
        warning_of(self._scenario, self._drive.port)

    @property
    def wired(self) -> bool:
        return self._section is not None

    @property
    def text(self) -> str:
        """Name of the output and whole seconds left; an empty string without a warning."""
        if self._section is None or not self.left:
            return ""
        return f"{self._section.output} is on: motion in {math.ceil(self.left)} s"

    def begin(self, act: str, stopped: Callable[[], str], held: bool = True) -> None:
        """Switch the output on before ``act``, and wait for its duration. The caller switches it :meth:`off`.

        If ``held``, the drive holds the rig; otherwise a rung holds it, and the clock counts. Raises ActRefused
        once ``stopped`` returns a reason, and if the rig can no longer be held.
        """
        assert self._section is not None  # callers check ``wired``
        if self._on:
            raise ActRefused(f"{act}: {self._section.output} is on, because another motion begins")
        self._on, self._start = True, self._drive.command
        self._drive.port.warn(True)
        try:
            reason = (self._hold if held else self._wait)(self._section.seconds, stopped)
            if why := stopped():
                reason = stopped_by_operator(why)
            if reason:
                raise ActRefused(f"{act}: nothing has moved: {reason}")
        except BaseException:
            self.off()
            raise
        finally:
            self.left = 0.0

    def off(self) -> None:
        """Switch the output off. May be called again."""
        if self._on:
            self._on = False
            self._drive.port.warn(False)

    def look(self) -> None:
        """Switch the output off once the command has changed. Call this with each Measurement."""
        if self._on and not np.array_equal(self._drive.command, self._start):
            self.off()

    def _hold(self, seconds: float, stopped: Callable[[], str]) -> str:
        drive, dt = self._drive, self._scenario.dt

        def shown(samples: int) -> None:
            self.left = samples * dt

        steps = hold(drive.command.copy(), math.ceil(seconds / dt), stopped, shown)
        return drive.drive(GuidedMotion(steps, drive.command)).reason

    def _wait(self, seconds: float, stopped: Callable[[], str]) -> str:
        end = self._clock.monotonic_ns() + round(1e9 * seconds)
        while not stopped() and (left := end - self._clock.monotonic_ns()) > 0:
            self.left = left * 1e-9
            self._clock.sleep(LOOK_S)
        return ""
