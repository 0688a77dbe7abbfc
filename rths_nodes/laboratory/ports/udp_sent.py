# SPDX-License-Identifier: Apache-2.0
"""Commands as they go into datagrams, and what of them a state of the rig shows: metres and newtons.

All in the numbers of the port. A command counts in N where, and only where, the state beside it tells that force
controls the axis: while a controller changes its mode it is told as the place of the axis, or as the force there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rths_nodes.core.samples import MODE_DISPLACEMENT, MODE_FORCE, Array, Command, by_force
from rths_nodes.laboratory.calibration import Gains
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import RigState


class SentCommands:
    """The last Command, of axes with ``gains``; it acts after ``transport`` samples of ``dt`` s."""

    def __init__(self, gains: Sequence[Gains], dt: float, transport: int) -> None:
        self._transport = transport
        self._dt, self._by_displacement = dt, bytes([MODE_DISPLACEMENT]) * len(gains)
        self._places = np.array([each.displacement / each.command for each in gains])
        self._forces = np.array([each.force / each.newtons for each in gains])
        self.start([0.0] * len(gains))

    def start(self, active: list[float]) -> None:
        self.command, self._modes = np.array(active), self._by_displacement

    def rows(self, command: Command) -> bytes:
        """The rows of its datagram; the slope of an axis that changes its mode is none."""
        before, sent = self.command.tolist(), command.command.tolist()
        modes = bytes(command.control_mode) or self._by_displacement
        slope = [(now - then) / self._dt for now, then in zip(sent, before, strict=True)]
        if modes != self._modes:
            same = (by_force(modes) == by_force(self._modes)).tolist()
            slope = [each if stays else 0.0 for each, stays in zip(slope, same, strict=True)]
        self.command, self._modes = command.command.copy(), modes
        return datagrams.command_rows(sent, slope, command.auxiliary, modes)

    @property
    def unheard(self) -> Array:
        """The last Command where no state tells its mode: nan of an axis that was commanded in N."""
        return np.where(by_force(self._modes), np.nan, self.command) if MODE_FORCE in self._modes else self.command

    def applied(self, state: RigState) -> Array:
        """The last Command, or what the receiver has made of it by itself, in the unit that ``state`` tells."""
        head = state.head
        changed = head.flags & (datagrams.BRIDGED | datagrams.LIMITED) or head.state >= datagrams.BRAKING
        if not self._transport or changed:
            return self.shown(state)
        if MODE_FORCE not in self._modes and MODE_FORCE not in state.modes:
            return self.command
        return np.where(by_force(self._modes) == by_force(state.modes), self.command, self.shown(state))

    def shown(self, state: RigState) -> Array:
        """The active command of a ``state``, in the unit of the mode that it tells."""
        newtons, forced = np.array([each > 0 for each in state.in_newtons]), by_force(state.modes)
        if not (newtons.any() or forced.any()):
            return state.command
        there = np.where(forced, state.force * self._forces, state.displacement * self._places)
        return np.where(newtons == forced, state.command, there)

    def places(self, state: RigState) -> Array:
        """The commands of a ``state`` in m; of an axis that force controls, where it is."""
        newtons = np.array([each > 0 for each in state.in_newtons])
        return np.where(newtons, state.displacement * self._places, state.command)
