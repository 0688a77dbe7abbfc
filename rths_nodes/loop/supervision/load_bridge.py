"""Bridges over late Commands of a rig with axes that are controlled by force: these hold their last command.

A load is not going anywhere: its slope is not continued. Where Commands come again it catches up at its force rate
limit at most, by a share that the limits do not trip at.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rths_nodes.core.samples import MODE_FORCE, Array, Command
from rths_nodes.loop.supervision.bridges import CommandBridge

SHARE = 0.99
"""Of the force rate limit."""


class LoadBridge:
    """A ``bridge`` for the first ``n_moved`` axes, behind which stand loads with ``rates`` (N/s) as limits."""

    def __init__(self, bridge: CommandBridge, n_moved: int, rates: list[float], dt: float) -> None:
        self._inner, self._n = bridge, n_moved
        self._steps = SHARE * dt * np.array(rates)
        self._catching_up = False
        self._sent, self._target, self._modes = np.zeros(len(rates)), np.zeros(len(rates)), b""

    def start(self, position: Array) -> None:
        """The axes stand at ``position`` ``(n_axes,)`` m when the test begins, all of them held."""
        self._inner.start(position[: self._n])
        self._sent = self._target = position[self._n :].copy()

    def heard(self, command: Command) -> None:
        """A Command, in time or late; one that is older than the newest tells nothing."""
        self._inner.heard(self._first(command))

    def command(self, sample: int) -> Command:
        """The straight line of the others at ``sample``, and the loads as they were sent last."""
        self._catching_up = True
        return self._whole(self._inner.command(sample))

    def rejoin(self, command: Command) -> Command:
        """A Command in time, without a jump from what was bridged before. :meth:`heard` comes first."""
        moved, n = self._inner.rejoin(self._first(command)), self._n
        loads = command.command[n:].copy()
        if self._catching_up:
            loads = self._nearer(loads, command.control_mode)
        self._sent, self._target, self._modes = loads, command.target[n:].copy(), command.control_mode
        return self._whole(moved)

    def _nearer(self, wanted: Array, modes: bytes) -> Array:
        """From what was sent last towards the ``wanted`` loads; where the mode changes they are what they are."""
        n, before = self._n, self._modes
        both = [
            bool(modes and before) and modes[n + i] == before[n + i] == MODE_FORCE for i in range(len(self._steps))
        ]
        near = np.where(both, np.clip(wanted, self._sent - self._steps, self._sent + self._steps), wanted)
        self._catching_up = not np.array_equal(near, wanted)
        return near

    def _first(self, command: Command) -> Command:
        n = self._n
        return replace(command, target=command.target[:n], command=command.command[:n], control_mode=b"")

    def _whole(self, moved: Command) -> Command:
        return replace(
            moved,
            target=np.concatenate((moved.target, self._target)),
            command=np.concatenate((moved.command, self._sent)),
            control_mode=self._modes,
        )
