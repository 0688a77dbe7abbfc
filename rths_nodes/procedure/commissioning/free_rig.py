# SPDX-License-Identifier: Apache-2.0
"""A rig without a specimen, driven command by command.

Commands are not checked: some are beyond a limit on purpose, to test the limits of the far end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from rths_nodes.core.errors import PortError
from rths_nodes.core.protocols import Port
from rths_nodes.core.readback import FarEnd, why_opened
from rths_nodes.core.samples import Array, Command, Measurement
from rths_nodes.loop.pacing import Pacer, pacer_of
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.motions import BoundedRamp, accelerations
from rths_nodes.procedure.warning import warning_of

LOOK_S = 0.001
"""Polling interval for a Measurement, if the port cannot wait, s."""


class Refused(RuntimeError):
    """The rig is not free, or moves on its own: the commissioning ends."""


class TooEarly(RuntimeError):
    """The operator acted before the axes moved: try again."""


@dataclass(frozen=True)
class Row:
    """A sample of the rig: commands sent and active, displacement (m), force (N); ``stopped``: why, or empty."""

    sample: int
    sent: Array
    active: Array
    displacement: Array
    force: Array
    stopped: str
    hydraulics: int


class FreeRig:
    """Drives the rig of ``scenario`` behind ``port``; :attr:`rows` are all samples since :meth:`open`.

    In real time with ``realtime``, else in lockstep. Raises Refused if a force changes by more than a small move
    may cause (a specimen or an obstacle), and if the far end stops by itself, unless ``awaits_stop``.
    """

    awaits_stop = False

    def __init__(self, port: Port, scenario: Scenario, realtime: bool) -> None:
        self.port, self.scenario, self.realtime = port, scenario, realtime
        self.names = tuple(scenario.axes)
        small = [axis.rig_axis.small_move for axis in scenario.axes.values()]  # type: ignore[union-attr]
        self.way = np.array([each.displacement for each in small])  # type: ignore[union-attr]
        self.velocity = np.array([each.velocity for each in small])  # type: ignore[union-attr]
        self._force = np.array([each.force for each in small])  # type: ignore[union-attr]
        self.rows: list[Row] = []
        self._passive = np.zeros(len(port.auxiliary_inputs))
        self._open = False

    def open(self) -> None:
        """Open the port and hold the rig. Raises ConfigError."""
        port, follows = self.port, self.port.follows_rig
        port.accept_any_start()
        pace: Pacer | None = None
        if self.realtime:
            pace = pacer_of(self.scenario.dt, 1, self.scenario.port.transport_samples if follows else None)
        port.open(pace)
        self._open = True
        port.begin()
        first = self._awaited()
        self.rows = []
        active = port.active_command
        self.command = first.displacement.copy() if active is None else np.array(active, float)
        self._free = first.force
        if pace is not None:
            port.arm_watchdog()
            pace.start()
        self._keep(first)

    def close(self) -> None:
        """Give the port back: the far end brakes and holds."""
        if self._open:
            self._open = False
            try:
                self.port.disarm_watchdog()
                self.port.safe()
            finally:
                self.port.close()

    def stated(self) -> FarEnd:
        """Return the limits stated by the far end, else those declared in the rig file."""
        limits, told = self.scenario.limits.values(), self.port.stated
        if told is not None:
            return told
        bridged = max(1, self.scenario.bridge.longest(self.scenario.dt))
        names = ("stroke", "velocity", "deceleration", "force")
        columns = [np.array([getattr(each, name) for each in limits]) for name in names]
        stroke, velocity, deceleration, force = columns
        error = np.full(len(self.names), np.inf)
        return FarEnd(stroke, velocity, deceleration, force, error, bridged, bridged)

    def tick(self, command: Array | None = None) -> Row:
        """Send ``command`` ``(n_axes,)`` m, by default the last one, and return the sample."""
        wanted = self.command if command is None else command
        sample = self.port.wait_tick()
        self.port.write(Command(sample, wanted, wanted, self._passive))
        self.command = np.array(wanted, float)
        measured = self._awaited()
        return self._keep(measured)

    def _awaited(self) -> Measurement:
        wait = self.port.wait
        while not self.port.ready():
            if wait is not None:
                wait(LOOK_S)
        measured = self.port.read()
        if np.isnan(measured.displacement).all():
            raise PortError(self.port.interlock or "the port measures nothing any more")
        return measured

    def _keep(self, measured: Measurement) -> Row:
        port, active = self.port, self.port.active_command
        row = Row(
            measured.sample,
            self.command,
            measured.command.copy() if active is None else np.array(active),
            measured.displacement,
            measured.force,
            why_opened(port, measured),
            port.hydraulics,
        )
        self.rows.append(row)
        if row.stopped and not self.awaits_stop:
            raise Refused(f"the rig has stopped by itself: {row.stopped}")
        changed = np.abs(row.force - self._free)
        if (changed > self._force).any():
            axis = int(np.argmax(changed / self._force))
            raise Refused(
                f"axes.{self.names[axis]}: the force has changed by {changed[axis] * 1e-3:.3g} kN, and may by "
                f"{self._force[axis] * 1e-3:.3g} kN (small_move.force): a specimen is mounted, or something is in "
                "the way"
            )
        return row

    def ramp(self, goal: Array, velocity: Array, ended: Callable[[Row], bool] = lambda row: False) -> bool:
        """Move to ``goal`` ``(n_axes,)`` m by a bounded ramp; return whether ``ended`` aborted it."""
        gentle = accelerations(self.scenario.limits)
        ramp = BoundedRamp(self.command, goal, velocity, gentle, self.scenario.dt)
        while (wanted := ramp.step(None)) is not None:  # type: ignore[arg-type]  # it looks at no measurement
            if ended(self.tick(wanted)):
                return True
        return False

    def hold(self, seconds: float) -> list[Row]:
        """Hold for ``seconds`` of the rig's clock; return the samples."""
        return [self.tick() for _ in range(self.samples(seconds))]

    def warn(self) -> None:
        """Hold the rig with its warning output on, if its rig file has one, before a motion."""
        if (section := warning_of(self.scenario, self.port)) is None:
            return
        self.port.warn(True)
        try:
            self.hold(section.seconds)
        finally:
            self.port.warn(False)

    def samples(self, seconds: float) -> int:
        return max(8, round(seconds / self.scenario.dt))


def to_and_fro(rig: FreeRig, seconds: float) -> Iterator[Row]:
    """Move all axes slowly by their small moves, for ``seconds`` of the rig's clock; yield every sample."""
    start, gentle = rig.command, accelerations(rig.scenario.limits)
    rig.awaits_stop = True
    end, out = len(rig.rows) + rig.samples(seconds), True
    while len(rig.rows) < end:
        goal = start + rig.way if out else start
        ramp = BoundedRamp(rig.command, goal, rig.velocity, gentle, rig.scenario.dt)
        while (wanted := ramp.step(None)) is not None:  # type: ignore[arg-type]  # it looks at no measurement
            yield rig.tick(wanted)
        out = not out
