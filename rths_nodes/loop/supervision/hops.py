# SPDX-License-Identifier: Apache-2.0
"""Hops: message delays of more than a sample, with several Commands in transit between computer and rig.

With hops of depth p, tick k waits for Command k - p and applies it. Message numbers and pairing do not change, and
the round trip takes p more samples. Hops are part of the transport delay: depth p and a delay of q samples after
the port are equivalent to a delay of q + p samples. All Commands in transit are dropped if the rig stops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import integer, params
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_SLOWED, Array, Command, Measurement

MOST_UNDER_WAY = 63
"""Largest transport delay (hops plus delay after the port), samples."""
NEARER, IN_A_ROW = 0.25, 32
"""Criterion for a driver that applies Commands immediately. ``IN_A_ROW``: number of consecutive samples in which
the applied command is close to the newest Command. ``NEARER``: largest deviation that counts as close, as a
fraction of the travel during the hops. The ratio of the standard deviations from newest and due Command must also
be at most ``NEARER``, to exclude a readback with an offset."""
LEAST_CHANGE = 1e-9
"""Smallest rms change of a readback that counts as a change, m."""


@params
class HopsParams:
    """Message delay between the rig and the computer that sends its Commands."""

    depth: int = integer(
        "round trip in samples, minus one: tick k applies Command k - depth. rths check prints the depth that a "
        "rig requires",
        default=0,
        at_least=0,
        at_most=MOST_UNDER_WAY,
    )

    def check(self, behind: int, force_axes: Sequence[str]) -> None:
        """Raise ConfigError if too many Commands are in transit, or if hops are combined with force axes.

        ``behind`` is the transport delay after the port, samples.
        """
        path = f"hops.depth = {self.depth}"
        if self.depth and self.depth + behind > MOST_UNDER_WAY:
            raise ConfigError(
                f"{path}: must be <= {max(MOST_UNDER_WAY - behind, 0)} with port.transport_samples = {behind}, "
                f"because at most {MOST_UNDER_WAY} samples may be in transit"
            )
        if self.depth and force_axes:
            raise ConfigError(f"{path}: must be 0 with force-controlled axes ({', '.join(force_axes)})")


class UnderWay:
    """Assigns Commands to rig ticks with hops of ``depth`` samples. The first ticks hold Command 0, ``start``."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._moved: deque[list[float]] = deque(maxlen=depth + 1)
        self.start: Command | None = None

    def at_its_tick(self, command: Command) -> Command:
        return replace(command, sample=command.sample + self.depth) if self.depth else command

    def compared(self, targets: list[float], moved: list[float], paused: bool) -> list[float]:
        """Return the targets ``(n_axes,)`` m for comparison with the measured displacements ``moved``.

        Targets are shifted by the motion during the hops, because a Command was computed for an earlier sample.
        During a pause, ``targets`` are returned unchanged, because the rig stage computes the Commands.
        """
        self._moved.append(moved)
        if paused:
            return targets
        then = self._moved[0]
        return [target + (now - before) for target, now, before in zip(targets, moved, then, strict=True)]


class TakenAtOnce:
    """Detects a driver that ignores hops of ``depth`` samples and applies each Command immediately.

    Call ``made`` with every Command, then ``reason`` with the Measurement of the same number.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._made: deque[tuple[int, list[float]]] = deque(maxlen=depth + 1)
        self._off: deque[tuple[Array, Array]] = deque(maxlen=IN_A_ROW)
        """Differences of the last samples: applied command minus newest Command, and minus due Command."""
        self._in_a_row: Array = np.zeros(1)
        """For each axis, number of consecutive samples whose applied command is close to the newest Command."""

    def start(self, measured: Measurement) -> None:
        """Store Measurement 0. Its command applies until Command 1 is due."""
        self._made.extend([(0, measured.command.tolist())] * (self._depth + 1))

    def made(self, command: Command) -> None:
        self._made.append((command.sample, command.command.tolist()))

    def reason(self, measured: Measurement) -> str:
        made, number = self._made, measured.sample
        if not made or made[-1][0] != number or measured.flags & (FLAG_BRIDGED | FLAG_SLOWED):
            return ""
        newest, due = (measured.command - np.array(command) for _, command in (made[-1], made[0]))
        self._off.append((newest, due))
        went = np.abs(newest - due)
        nearer = (np.abs(newest) <= NEARER * went) & (went > 0.0)
        self._in_a_row = np.where(nearer, self._in_a_row + 1.0, 0.0)
        if not (self._in_a_row >= IN_A_ROW).any():
            return ""
        off_newest, off_due = np.var(np.array(self._off), axis=0)
        explained = (off_newest <= NEARER**2 * off_due) & (off_due > LEAST_CHANGE**2)
        if not (explained & (self._in_a_row >= IN_A_ROW)).any():
            return ""
        return (
            f"hops.depth = {self._depth}: the actuator node applies Command {number} at tick {number}: must be "
            f"Command {number - self._depth}; it knows nothing of hops"
        )
