"""Motions and commands as lists of floats: a stage has few numbers, for which an array costs more than it saves.

What computes on floats itself (a ramp, setup or compensator made of kernels) is called with them as it is; what
computes on arrays, as most components of other packages do, gets arrays made of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rths_nodes.core.protocols import Compensator, Ramp, Setup
from rths_nodes.core.samples import Motion
from rths_nodes.loop.supervision.bridges import Rows


def rows_of(motion: Motion) -> Rows:
    """The numbers of ``motion``."""
    return motion.displacement.tolist(), motion.velocity.tolist(), motion.acceleration.tolist()


def motion_of(rows: Rows) -> Motion:
    """The motion with these numbers."""
    x, v, a = rows
    return Motion(np.array(x), np.array(v), np.array(a))


def ramped(ramp: Ramp) -> Callable[[int], Rows]:
    """The ``step`` of ``ramp`` on floats."""
    own: Callable[[int], Rows] | None = getattr(ramp, "rows", None)
    return own or (lambda substep: rows_of(ramp.step(substep)))


def predicted(ramp: Any) -> Callable[[int], Rows]:
    """The ``predict`` of a ramp that does, on floats."""
    return lambda substep: rows_of(ramp.predict(substep))


def moved(setup: Setup) -> Callable[[Rows], Rows]:
    """The ``axes`` of ``setup`` on floats."""
    own: Callable[[Rows], Rows] | None = getattr(setup, "moved", None)
    return own or (lambda rows: rows_of(setup.axes(motion_of(rows))))


def compensated(compensator: Compensator) -> Callable[..., list[float]]:
    """The ``step`` of ``compensator`` on floats: commands (m) from target, measurement, force and flags."""
    own: Callable[..., list[float]] | None = getattr(compensator, "commands", None)
    if own is not None:
        return own

    def commands(
        x: list[float],
        v: list[float],
        a: list[float],
        measured: list[float],
        force: list[float],
        rests: bool,
        preparing: bool,
    ) -> list[float]:
        target = Motion(np.array(x), np.array(v), np.array(a), rests, preparing, np.array(force))
        found: list[float] = compensator.step(target, np.array(measured)).tolist()
        return found

    return commands
