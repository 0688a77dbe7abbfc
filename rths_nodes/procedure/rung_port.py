# SPDX-License-Identifier: Apache-2.0
"""The port of a procedure as a run of a rung sees it: at sample 0 when it begins, and given back at its end.

``open`` and ``close`` are the procedure's business: the rig is held before the run asks for Measurement 0, and
again after its last sample. Measurements are untared, for the limits to judge; the ``handover`` says where the
test counts from. Two rungs differ in what they show the test:

    (c)  commands are computed and not sent: a simulator answers the test, the rig is held and goes on ticking
    (d)  the rig moves; the force is computed by models of the specimens from the measured displacement
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rths_nodes.core.errors import PortError
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import Array, Command, Measurement, by_force, equal
from rths_nodes.laboratory.ports.before import PortBefore
from rths_nodes.loop.supervision.handover import Handover, Tares
from rths_nodes.loop.supervision.safe_stop import held_places
from rths_nodes.procedure.drive import RigDrive

Forces = Callable[[list[float], list[float]], list[float]]
"""Forces of all axes (N) at displacements now, and in the sample before (m); at first both are the same."""


class RungPort(PortBefore):
    """The port of ``drive``, armed, for one run that counts from ``tares``.

    ``given_back`` is true once the run is over.
    """

    armed = True

    def __init__(self, drive: RigDrive, tares: Tares) -> None:
        self.handover = Handover(tares, self._presented, lost=lambda: drive.loss.reason)
        self.paced = drive.realtime
        """True where ticks come by the clock, or from the rig."""
        super().__init__(drive.port)
        self._drive = drive
        self._pacer: Callable[[], int] | None = None
        self._begun = self.given_back = False
        self._ticked = False
        self._turn = threading.Lock()
        self._true: Measurement | None = None
        self._opened = self._lost = ""
        self.begins: Callable[[], None] = lambda: None
        """Called when the run begins to drive the rig."""

    @property
    def counter_at_start(self) -> int | None:
        return self._zero if self._begun else None

    # -- what is the procedure's business -----------------------------------------------------------------

    def open(self, pacer: Callable[[], int] | None = None) -> None:
        self._pacer = pacer

    def arm_watchdog(self) -> None:
        """The procedure has done so."""

    def disarm_watchdog(self) -> None:
        self.release()

    def safe(self) -> None:
        """The rig is braked and held, by the procedure."""
        self.release()

    def close(self) -> None:
        self.release()

    def release(self) -> None:
        """Give the port back to the procedure; may be called again, from any thread."""
        with self._turn:
            if self.given_back or not self._begun:
                self.given_back = True
                return
            self._true = self.truth()
            self.given_back = True
            places = held_places((self._before.copy(), self._last.copy()), self._modes, 0, self._measured)
            self._drive.take_back(*places, self._measured)

    @property
    def interlock(self) -> str:
        """Why the rig does not follow, or has not followed once: such a run is over."""
        self._opened = self._opened or str(self._port.interlock)
        return self._opened

    # -- the run ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """From now on the run drives the rig; Measurement 0 is the last one of the procedure."""
        if self.given_back:
            raise PortError("the port of a rung serves one run, which is over")
        drive = self._drive
        drive.lend()
        self.begins()
        self._begun = True
        drive.pace = self._pacer
        self._measured = drive.measured
        self._zero = drive.measured.sample
        self._before = self._last = self._tared = drive.command
        self._modes = b"", b""

    def _mine(self) -> None:
        if self.given_back:
            raise PortError("the procedure has taken the rig back")

    def wait_tick(self) -> int:
        self._mine()
        return self._port.wait_tick() - self._zero

    def write(self, command: Command) -> None:
        self._mine()
        tares, zero = self.handover.tares, self.handover.tares.command
        if (waiting := self._waiting()) is not None:
            self._send(replace(command, control_mode=b""), waiting, waiting)
            self._tared = waiting - zero
            return
        if command.control_mode:
            zero = np.where(by_force(command.control_mode), tares.force, zero)
        self._send(command, command.target + zero, command.command + zero)
        self._tared = command.command.copy()

    def _waiting(self) -> Array | None:
        """Return the command for a rig that does not follow, or once did not; None for one that always did."""
        drive = self._drive
        if not (self._lost or drive.loss.reason):
            return None
        if not self._lost and self._modes[1]:  # axes that were led by force are held where they stand
            _, self._last = held_places((self._before, self._last), self._modes, 0, self._measured)
        self._lost = self._lost or drive.loss.reason
        waiting = drive.loss.next(self._last, self._measured, drive.shift)
        return self._last if waiting is None else waiting

    def _send(self, command: Command, target: Array, untared: Array) -> None:
        sent = replace(command, sample=command.sample + self._zero, target=target, command=untared)
        self._port.write(sent)
        self._ticked = True
        self._before, self._last = self._last, untared
        self._modes = self._modes[1], sent.control_mode

    def ready(self) -> bool:
        return not self._ticked or self._port.ready()

    def read(self) -> Measurement:
        """Untared, as the sensors show it."""
        if self._ticked:
            self._mine()
            self._measured = self._port.read()
            self._drive.hear(self._measured, self._last)
        return replace(self._measured, sample=self._measured.sample - self._zero)

    def _presented(self, shown: Measurement) -> Measurement:
        """``shown``, which is untared, as the test counts."""
        tares = self.handover.tares
        exact = self._ticked and equal(shown.command, self._last)
        return replace(
            shown,
            displacement=shown.displacement - tares.displacement,
            force=shown.force - tares.force,
            command=self._tared.copy() if exact else shown.command - tares.command,
        )

    def truth(self) -> Measurement | None:
        if self.given_back:
            return self._true
        true = self._port.truth()
        if true is None:
            return None
        tares = self.handover.tares
        return replace(
            true,
            displacement=true.displacement - tares.displacement,
            force=true.force - tares.force,
            command=true.command - tares.command,
        )


class ComputedForcePort(RungPort):
    """Rung (d): models of the specimens give the ``forces`` of the axes, from what is measured of the rig."""

    def __init__(self, drive: RigDrive, tares: Tares, forces: Forces) -> None:
        super().__init__(drive, tares)
        self._forces = forces
        self._moved: list[float] | None = None

    def _presented(self, shown: Measurement) -> Measurement:
        tared = super()._presented(shown)
        now = tared.displacement.tolist()
        before = self._moved or now
        self._moved = now
        return replace(tared, force=np.array(self._forces(now, before)))

    def truth(self) -> None:
        """Not known: the specimen is none of the rig's."""


class UnsentPort(RungPort):
    """Rung (c): ``answers`` is a simulator that the run drives; the rig gets what it holds, and is watched."""

    def __init__(self, drive: RigDrive, tares: Tares, answers: Port) -> None:
        none = Tares.none(len(tares.command))
        super().__init__(drive, replace(none, command=tares.command))
        self._answers = answers
        self._found = ""

    def begin(self) -> None:
        """From now on the run drives its simulator, and the rig goes on ticking."""
        super().begin()
        self._answers.open(None)
        self._answers.begin()

    def write(self, command: Command) -> None:
        """The simulator gets the Command of the tick, the rig what it held before."""
        self._mine()
        waiting = self._waiting()
        held = self._drive.command if waiting is None else waiting
        self._send(replace(command, control_mode=b""), held, held)
        self._answers.wait_tick()
        self._answers.write(command)

    def read(self) -> Measurement:
        """Return the simulator's Measurement with the rig's state, and the rig's channels if the names differ."""
        real = super().read()
        if self._ticked:
            reason, breach = self._drive.judgement(self._drive.command)
            self._found = self._found or reason or (breach.reason if breach is not None else "")
        found = self._answers.read()
        same = self._answers.auxiliary_names == self._port.auxiliary_names
        return replace(
            found,
            auxiliary=found.auxiliary if same else real.auxiliary,
            flags=found.flags | real.flags,
            control_mode=real.control_mode,
            hydraulics=real.hydraulics,
            interlock=real.interlock,
        )

    def _presented(self, shown: Measurement) -> Measurement:
        return shown

    @property
    def interlock(self) -> str:
        """Why the rig, which is only held, would not follow."""
        return super().interlock or self._found

    def truth(self) -> Measurement | None:
        return self._answers.truth()
