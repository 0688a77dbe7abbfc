# SPDX-License-Identifier: Apache-2.0
"""Hops longer than a sample: Commands under way between the computer and the rig.

With a depth p, tick k waits for Command k - p, and applies it there: Commands, Targets and Measurements keep their
numbers and their pairing, and what the way there and back takes has p samples more. It is one more part of the
transport, as that behind the port is: a rig with p and q samples moves as one with 0 and q + p. A stop of the rig
drops all that is under way.
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
"""Samples of transport, in hops and behind the port: so many Commands the rig has in mind."""
NEARER, IN_A_ROW = 0.25, 32
"""A Command was taken at once where what was applied is off by so much of the way that it went in the hops, at
most, in so many samples; and so do the changes of it, which a readback with an offset does not."""
LEAST_CHANGE = 1e-9
"""Changes of a readback below this tell nothing, m."""


@params
class HopsParams:
    """Hops between the rig and what computes its Commands."""

    depth: int = integer(
        "samples by which the way there and back is longer than one: tick k takes Command k - depth, and what is "
        "under way acts later by as much; rths check says which one a rig needs",
        default=0,
        at_least=0,
        at_most=MOST_UNDER_WAY,
    )


def check_hops(depth: int, behind: int, force_axes: Sequence[str]) -> None:
    """Refuses (ConfigError) more under way than the rig has in mind, and what was not tried with hops.

    ``behind``: samples of transport behind the port.
    """
    if depth and depth + behind > MOST_UNDER_WAY:
        raise ConfigError(
            f"hops.depth = {depth}: with port.transport_samples = {behind} it must be <= "
            f"{max(MOST_UNDER_WAY - behind, 0)}: {MOST_UNDER_WAY} samples may be under way"
        )
    if depth and force_axes:
        raise ConfigError(f"hops.depth = {depth}: must be 0 where force controls axes: {', '.join(force_axes)}")


class UnderWay:
    """Numbers of ticks and of their Commands, at a rig whose hops have a ``depth``.

    ``start`` is Command 0, what the rig stands at: the first ``depth`` ticks, which none has reached, hold it.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._moved: deque[list[float]] = deque(maxlen=depth + 1)
        self.start: Command | None = None

    def at_its_tick(self, command: Command) -> Command:
        """Return a ``command`` with the number of the tick that takes it."""
        return replace(command, sample=command.sample + self.depth) if self.depth else command

    def compared(self, targets: list[float], moved: list[float], paused: bool) -> list[float]:
        """Return the targets, ``(n_axes,)`` m, that the measured displacements ``moved`` are to be compared with.

        Those of a Command that was under way are of its own sample, and so is the error. A pause makes its
        Commands at the rig.
        """
        if not self.depth:
            return targets
        self._moved.append(moved)
        if paused:
            return targets
        then = self._moved[0]
        return [target + (now - before) for target, now, before in zip(targets, moved, then, strict=True)]


class TakenAtOnce:
    """Looks whether a driver takes each Command as it comes: it knows nothing of hops with a ``depth``.

    It would lead the rig by ``depth`` samples. Call ``made`` with every Command, and ``reason`` with the
    Measurement behind it.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._made: deque[tuple[int, list[float]]] = deque(maxlen=depth + 1)
        self._off: deque[tuple[Array, Array]] = deque(maxlen=IN_A_ROW)
        """What was applied less the newest Command, and less the one that is due, of the last samples."""
        self._in_a_row: Array = np.zeros(0)
        """Samples in a row that were nearer to the newest Command, by axis."""

    def start(self, measured: Measurement) -> None:
        """Measurement 0: what is applied until Command 1 is due."""
        self._made.extend([(0, measured.command.tolist())] * (self._depth + 1))

    def made(self, command: Command) -> None:
        """A Command that is published."""
        self._made.append((command.sample, command.command.tolist()))

    def reason(self, measured: Measurement) -> str:
        """Return why the driver must not go on, in words; empty where nothing speaks against it."""
        made, number = self._made, measured.sample
        if not made or made[-1][0] != number or measured.flags & (FLAG_BRIDGED | FLAG_SLOWED):
            return ""
        newest, due = (measured.command - np.array(command) for _, command in (made[-1], made[0]))
        self._off.append((newest, due))
        went = np.abs(newest - due)
        nearer = (np.abs(newest) <= NEARER * went) & (went > 0.0)
        self._in_a_row = np.where(nearer, (self._in_a_row if len(self._in_a_row) else 0.0) + 1.0, 0.0)
        if self._in_a_row.max(initial=0.0) < IN_A_ROW or not self._changes():
            return ""
        return (
            f"hops.depth = {self._depth}: the actuator node applies Command {number} at tick {number}: must be "
            f"Command {number - self._depth}; it knows nothing of hops"
        )

    def _changes(self) -> bool:
        """True where on such an axis the newest Command explains how what was applied changes, the due one not."""
        newest, due = (np.var([each[which] for each in self._off], axis=0) for which in (0, 1))
        explained = (newest <= NEARER**2 * due) & (due > LEAST_CHANGE**2)
        return bool((explained & (self._in_a_row >= IN_A_ROW)).any())
