"""Bridges and pauses of a rig with axes that are controlled by force: these hold their last command.

A load is not going anywhere: its slope is not continued. Where Commands come again it catches up at its force rate
limit at most, by a share that the limits do not trip at.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import MODE_FORCE, Array, Command
from rths_nodes.loop.supervision.bridges import BridgeParams, CommandBridge
from rths_nodes.loop.supervision.pause import Pause

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
        self._inner.heard(_first(command, self._n))

    def command(self, sample: int) -> Command:
        """The straight line of the others at ``sample``, and the loads as they were sent last."""
        self._catching_up = True
        return _whole(self._inner.command(sample), self._target, self._sent, self._modes)

    def rejoin(self, command: Command) -> Command:
        """A Command in time, without a jump from what was bridged before. :meth:`heard` comes first."""
        moved, n = self._inner.rejoin(_first(command, self._n)), self._n
        loads = command.command[n:].copy()
        if self._catching_up:
            loads = self._nearer(loads, command.control_mode)
        self._sent, self._target, self._modes = loads, command.target[n:].copy(), command.control_mode
        return _whole(moved, self._target, self._sent, self._modes)

    def _nearer(self, wanted: Array, modes: bytes) -> Array:
        """From what was sent last towards the ``wanted`` loads; where the mode changes they are what they are."""
        n, before = self._n, self._modes
        both = [
            bool(modes and before) and modes[n + i] == before[n + i] == MODE_FORCE for i in range(len(self._steps))
        ]
        near = np.where(both, np.clip(wanted, self._sent - self._steps, self._sent + self._steps), wanted)
        self._catching_up = not np.array_equal(near, wanted)
        return near


class LoadPause(Pause):
    """A pause of the first axes, while those that are controlled by force hold what the last sample gave them."""

    def __init__(self, params: BridgeParams, limits: dict[str, Limits], dt: float) -> None:
        super().__init__(params, {name: each for name, each in limits.items() if not each.of_force}, dt)
        self._n = sum(not each.of_force for each in limits.values())
        self._load = self._coming = Command(0, np.zeros(len(limits)), np.zeros(len(limits)))

    def begin(self, before: Command, last: Command) -> None:
        if not self.active:
            self._load = last
        super().begin(_first(before, self._n), _first(last, self._n))

    @property
    def sent(self) -> tuple[list[float], bytes]:
        load = self._load
        return [*self.known.command.tolist(), *load.command[self._n :].tolist()], load.control_mode

    def supply(self, command: Command) -> None:
        self._coming = command
        super().supply(_first(command, self._n))

    def command(self, sample: int) -> Command:
        moved, n = super().command(sample), self._n
        if self.sampled:
            self._load = self._coming
        load = self._load
        return _whole(moved, load.target[n:], load.command[n:], load.control_mode)


def _first(command: Command, n: int) -> Command:
    """Of ``command`` the first ``n`` axes, which follow displacements."""
    return replace(command, target=command.target[:n], command=command.command[:n], control_mode=b"")


def _whole(moved: Command, targets: Array, commands: Array, modes: bytes) -> Command:
    return replace(
        moved,
        target=np.concatenate((moved.target, targets)),
        command=np.concatenate((moved.command, commands)),
        control_mode=modes,
    )
