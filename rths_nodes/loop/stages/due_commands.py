# SPDX-License-Identifier: Apache-2.0
"""Commands received by the rig, matched to ticks."""

from __future__ import annotations

from bisect import insort
from dataclasses import replace
from operator import attrgetter

from rths_nodes.core.samples import Command
from rths_nodes.loop.stages.rig import RigStage


class DueCommands:
    """Sorts received Commands of a ``rig``; hops deliver them before their tick."""

    def __init__(self, rig: RigStage) -> None:
        self._rig, self._depth = rig, rig.under_way.depth
        self._kept: list[Command] = []

    @property
    def number(self) -> int:
        """Number of the next tick's Command; up to 0 none is made."""
        return self._rig.sample + 1 + (self._rig.pause.coming is not None) - self._depth

    @property
    def keeps(self) -> bool:
        return bool(self._kept)

    def kept(self) -> Command | None:
        """Return the Command of the next tick if it was received earlier, or is none.

        A pause takes no other Command until its sample has ended.
        """
        if not self._depth or self._rig.pause.coming is not None:
            return None
        number, kept = self.number, self._kept
        if number <= 0:
            assert self._rig.under_way.start is not None  # Measurement 0 exists
            return replace(self._rig.under_way.start, sample=number)
        while kept and kept[0].sample <= number:
            command = kept.pop(0)
            if command.sample == number:
                return command
            self._rig.late_command(command)
        return None

    def heard(self, command: Command) -> Command | None:
        """Return ``command`` if for the next tick; a past one is late, an impossible one trips the rig."""
        waits = self._rig.pause.coming is not None
        early = command.sample + self._depth - self._rig.sample - 1 - waits
        if early == 0 and not (self._depth and waits):
            return command
        if early < 0:
            self._rig.late_command(command)
        elif early <= self._depth:
            self._keep(command)
        else:
            number = self.number
            expected = f"{number} to {number + self._depth}" if self._depth else f"{number}"
            self._rig.trip(f"Command {command.sample} came where {expected} was expected")
        return None

    def of(self, command: Command | None) -> Command | None:
        """Return the Command of the next tick, given the newest ``command``, without lateness."""
        if not self._depth:
            return command
        if command is not None:
            self._keep(command)
        return self.kept()

    def _keep(self, command: Command) -> None:
        """Store a ``command`` in order: hops may reorder."""
        insort(self._kept, command, key=attrgetter("sample"))
