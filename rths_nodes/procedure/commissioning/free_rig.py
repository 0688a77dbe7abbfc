# SPDX-License-Identifier: Apache-2.0
"""A rig without a specimen, driven command by command, and what its far end does with each.

The commands go to the port as they are: some are beyond a limit on purpose, to see whether the far end holds it.
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
"""Between two looks whether a Measurement is there, where the port cannot wait for it."""


class Refused(RuntimeError):
    """The rig is not free, or does what nobody asked for: the commissioning ends here."""


class TooEarly(RuntimeError):
    """The operator has acted before the axes moved: once more."""


@dataclass(frozen=True)
class Row:
    """A sample of the rig: what was sent and what is active, ``(n_axes,)`` m, and what was measured, m and N.

    ``stopped`` is why the rig does not follow, in words; empty while it does.
    """

    sample: int
    sent: Array
    active: Array
    displacement: Array
    force: Array
    stopped: str
    hydraulics: int


class FreeRig:
    """Drives the rig of ``scenario`` behind ``port``; :attr:`rows` are all samples since :meth:`open`.

    In real time where ``realtime``, else in lockstep. Raises Refused where a force changes by more than the small
    move of its axis may, since a specimen is mounted or something is in the way; and where the far end stops by
    itself, unless ``awaits_stop``.
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
        """Open the port; the rig is held. Raises ConfigError where it cannot be opened."""
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
        """Give the port back: the far end brakes what moves, and holds."""
        if self._open:
            self._open = False
            try:
                self.port.disarm_watchdog()
                self.port.safe()
            finally:
                self.port.close()

    def stated(self) -> FarEnd:
        """Return the limits that the far end states; where it states none, those that the rig file declares."""
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
        """Send ``command`` ``(n_axes,)`` m, or the last one again, and take what is measured then."""
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
        """Go to ``goal`` ``(n_axes,)`` m by a bounded ramp; true where ``ended`` has broken it off."""
        gentle = accelerations(self.scenario.limits)
        ramp = BoundedRamp(self.command, goal, velocity, gentle, self.scenario.dt)
        while (wanted := ramp.step(None)) is not None:  # type: ignore[arg-type]  # it looks at no measurement
            if ended(self.tick(wanted)):
                return True
        return False

    def hold(self, seconds: float) -> list[Row]:
        """Stand for ``seconds`` of the rig's clock; what was measured meanwhile."""
        return [self.tick() for _ in range(self.samples(seconds))]

    def warn(self) -> None:
        """Hold the rig with its warning output on, if its rig file has one; a motion follows."""
        if (section := warning_of(self.scenario, self.port)) is None:
            return
        self.port.warn(True)
        try:
            self.hold(section.seconds)
        finally:
            self.port.warn(False)

    def samples(self, seconds: float) -> int:
        """Samples in ``seconds``, at least 8."""
        return max(8, round(seconds / self.scenario.dt))


def to_and_fro(rig: FreeRig, seconds: float) -> Iterator[Row]:
    """All axes slowly by their small moves, for ``seconds`` of the rig's clock; gives every sample."""
    start, gentle = rig.command, accelerations(rig.scenario.limits)
    rig.awaits_stop = True
    end, out = len(rig.rows) + rig.samples(seconds), True
    while len(rig.rows) < end:
        goal = start + rig.way if out else start
        ramp = BoundedRamp(rig.command, goal, rig.velocity, gentle, rig.scenario.dt)
        while (wanted := ramp.step(None)) is not None:  # type: ignore[arg-type]  # it looks at no measurement
            yield rig.tick(wanted)
        out = not out
