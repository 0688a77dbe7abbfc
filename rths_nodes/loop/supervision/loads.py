# SPDX-License-Identifier: Apache-2.0
"""Force axes ("loads") while Commands are missing, in a pause, and in a safe stop.

In bridges and pauses, loads hold their last command. When Commands return, loads approach them at the fraction
SHARE of their force rate limit, which does not trip the rig.

In a safe stop each load keeps its force until the other axes rest, and then holds its position. Holding the
position earlier would unload a specimen whose top still drifts. A load that caused the trip holds its position
immediately.

A force loop uses the target of the neighbouring axis. The command of that axis leads this target by the delay of
the actuator, and stops first. The target moves to the same end along a cubic that begins with its last velocity.
It takes longer than the command by twice the lead divided by this velocity, so that with a pure delay the velocity
decreases linearly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import INTERLOCK_OPEN, MODE_DISPLACEMENT, MODE_FORCE, Array, Command, Measurement
from rths_nodes.loop.supervision.bridges import BridgeParams, CommandBridge, Fading

SHARE = 0.99
"""Fraction of the force rate limit at which loads return to the Commands."""
LONGEST_LEAD_S = 0.1
"""Longest delay of an actuator, s."""


class LoadBridge:
    """Extends the ``bridge`` of the first ``n_moved`` axes to the loads after them.

    ``rates`` are the force rate limits of the loads, N/s.
    """

    def __init__(self, bridge: CommandBridge, n_moved: int, rates: list[float], dt: float) -> None:
        self._inner, self._n = bridge, n_moved
        self._steps = SHARE * dt * np.array(rates)
        self._catching_up = False
        self._sent, self._target, self._modes = np.zeros(len(rates)), np.zeros(len(rates)), b""

    def start(self, position: Array) -> None:
        self._inner.start(position[: self._n])
        self._sent = self._target = position[self._n :].copy()

    def received(self, command: Command) -> None:
        self._inner.received(_first(command, self._n))

    def command(self, sample: int) -> Command:
        self._catching_up = True
        return _whole(self._inner.command(sample), self._target, self._sent, self._modes)

    def rejoin(self, command: Command) -> Command:
        moved, n = self._inner.rejoin(_first(command, self._n)), self._n
        loads = command.command[n:].copy()
        if self._catching_up:
            loads = self._nearer(loads, command.control_mode)
        self._sent, self._target, self._modes = loads, command.target[n:].copy(), command.control_mode
        return _whole(moved, self._target, self._sent, self._modes)

    def _nearer(self, wanted: Array, modes: bytes) -> Array:
        n, before = self._n, self._modes
        both = [
            bool(modes and before) and modes[n + i] == before[n + i] == MODE_FORCE for i in range(len(self._steps))
        ]
        near = np.where(both, np.clip(wanted, self._sent - self._steps, self._sent + self._steps), wanted)
        self._catching_up = not np.array_equal(near, wanted)
        return near


class LoadStop:
    """Generates the commands of the loads in a safe stop. The loads are the ``axes`` after the first ``n_moved``.

    ``dt`` is in s. ``breach`` returns the reason to stop after a Measurement, given the sent targets and their
    modes.
    """

    def __init__(
        self, axes: Sequence[str], n_moved: int, dt: float, breach: Callable[[Measurement, Array, bytes], str]
    ) -> None:
        self._names, self._n = tuple(axes), n_moved
        self._longest, self._breach = LONGEST_LEAD_S / dt, breach
        self._kept: dict[int, float] = {}
        """Force (N) of each axis that keeps its force, by index."""
        self._held: dict[int, float] = {}
        """Held position (m) of each axis that no longer keeps its force, by index."""
        self._done = 0

    @property
    def at_rest(self) -> bool:
        return not self._kept

    def begin(self, before: Command | None, last: Command | None, goal: Array, samples: int, reason: str) -> None:
        """Begin after Commands ``before`` and ``last``. The other axes stop at ``goal`` (m) after ``samples``."""
        if last is None or not last.control_mode:
            return
        before, n = before or last, self._n
        self._kept = {
            index: float(last.command[index])
            for index in range(n, len(self._names))
            if last.control_mode[index] == MODE_FORCE and not _own(reason, self._names[index])
        }
        self._start, self._end = last.target[:n], goal[:n]
        self._step = last.target[:n] - before.target[:n]
        lead, speed = np.abs(last.command[:n] - last.target[:n]), np.abs(self._step)
        later = np.minimum(np.divide(lead, speed, out=np.zeros(n), where=speed > 0.0), self._longest)
        self._samples, self._done = samples + 2 * math.ceil(later.max()), 0

    def command(self, command: Command, measured: Measurement, shown: Measurement) -> Command:
        """Insert the loads into the ``command`` of the stop. ``measured`` is tared, ``shown`` is untared."""
        self._release(measured, shown)
        if not (self._kept or self._held):
            return command
        commands, targets = command.command.copy(), command.target.copy()
        modes = bytearray([MODE_DISPLACEMENT] * len(self._names))
        targets[: self._n] = self._target()
        for index, newtons in self._kept.items():
            commands[index] = targets[index] = newtons
            modes[index] = MODE_FORCE
        for index, position in self._held.items():
            commands[index] = targets[index] = position
        self._sent = targets, bytes(modes)
        mode = bytes(modes) if self._kept else b""
        return Command(command.sample, targets, commands, command.auxiliary, command.flags, mode)

    def _target(self) -> Array:
        self._done += 1
        s, m = min(self._done / self._samples, 1.0) if self._samples else 1.0, self._samples
        to_end = s * s * (3.0 - 2.0 * s)
        target: Array = self._start + m * s * (1.0 - s) ** 2 * self._step + to_end * (self._end - self._start)
        return target

    def _release(self, measured: Measurement, shown: Measurement) -> None:
        if not self._kept:
            return
        over = self._done >= self._samples or shown.interlock == INTERLOCK_OPEN
        reason = self._breach(shown, *self._sent) if self._done else ""
        for index in list(self._kept):
            mode = shown.control_mode[index] if shown.control_mode else 0
            if over or mode != MODE_FORCE or _own(reason, self._names[index]):
                position = float(measured.displacement[index])
                self._held[index] = position if math.isfinite(position) else 0.0
                del self._kept[index]


def _first(command: Command, n: int) -> Command:
    return replace(command, target=command.target[:n], command=command.command[:n], control_mode=b"")


def _whole(moved: Command, targets: Array, commands: Array, modes: bytes) -> Command:
    return replace(
        moved,
        target=np.concatenate((moved.target, targets)),
        command=np.concatenate((moved.command, commands)),
        control_mode=modes,
    )


def _own(reason: str, axis: str) -> bool:
    return reason.startswith((f"axes.{axis}.", f"axes.{axis}:"))


def fading_of(bridge: BridgeParams, limits: dict[str, Limits], dt: float) -> Fading:
    fastest = np.array([axis.velocity for axis in limits.values() if not axis.of_force])
    return Fading(bridge.rejoin_samples, dt, fastest)


def bridge_of(
    bridge: BridgeParams, limits: dict[str, Limits], dt: float, passive: Array
) -> CommandBridge | LoadBridge:
    """Return the bridge over late Commands, extended by the loads if there are any.

    ``passive`` are the auxiliary inputs.
    """
    rates = [limit.force_rate for limit in limits.values() if limit.force_rate is not None]
    n_moved = len(limits) - len(rates)
    of_moved = CommandBridge(fading_of(bridge, limits, dt), dt, np.zeros(n_moved), passive)
    return LoadBridge(of_moved, n_moved, rates, dt) if rates else of_moved
