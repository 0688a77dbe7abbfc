# SPDX-License-Identifier: Apache-2.0
"""Samples that the parts of the loop exchange, and their flags. All units are SI.

The arrays of a message are shared by all receivers and must not be written to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

ROUNDING = 1e-9
"""Tolerance (relative, or in samples) far above rounding errors and far below any intended difference."""


Array = NDArray[np.float64]
EMPTY: Array = np.zeros(0)

FLAG_BRIDGED = 1
FLAG_SLIPPED = 2
FLAG_SATURATED = 4
FLAG_TRIPPED = 8
FLAG_SOFT_START = 16
"""Prescribed motion before the test. Compensators may adapt during this motion. Indices exclude it."""
FLAG_RESTING = 32
"""The soft start fades out. Compensators do not adapt, because this motion is not informative."""
FLAG_SLOWED = 64
"""The rig returned from a pause more slowly than planned. The sample is invalid for a rate-dependent specimen."""
FLAG_AT_BOUND = 128
"""An adaptive parameter of the compensator is at a bound; only in a Command."""
FLAG_FROZEN = 256
"""The operator had frozen the updated model parameters (recordings of 0.9.0 only)."""

MODE_NOT_TOLD, MODE_DISPLACEMENT, MODE_FORCE, MODE_HELD = 0, 1, 2, 3
"""Control modes of an axis. In force mode commands are in N. Only a Measurement may have ``MODE_HELD``: the axis
rests at a displacement and accepts commands in N."""
HYDRAULICS_NOT_TOLD, HYDRAULICS_OFF, HYDRAULICS_LOW, HYDRAULICS_HIGH = 0, 1, 2, 3
INTERLOCK_NOT_TOLD, INTERLOCK_CLOSED, INTERLOCK_OPEN = 0, 1, 2
"""States of the interlock. If the interlock is open, the rig has stopped by itself."""

NO_ENERGIES: Array = np.full(4, np.nan)


def equal(one: Array, other: Array) -> bool:
    """Return whether two short arrays are equal. Ten times faster than ``np.array_equal``."""
    same: bool = one.tolist() == other.tolist()
    return same


class Recent:
    """Caches the last ``count`` results of a computation, with its input arrays as keys. Results are read-only."""

    def __init__(self, count: int) -> None:
        self._count, self._pairs = count, list[tuple[tuple[Array, ...], Array]]()

    def result(self, inputs: tuple[Array, ...], compute: Callable[[], Array]) -> Array:
        for earlier, result in self._pairs:
            if len(earlier) == len(inputs) and all(map(np.array_equal, earlier, inputs)):
                return result
        result = compute()
        result.flags.writeable = False
        self._pairs = [*self._pairs[1 - self._count :], (inputs, result)]
        return result


def by_force(modes: bytes) -> NDArray[np.bool_]:
    """Return, for each axis, whether its command is in N. ``modes`` has one control mode (a byte) per axis."""
    forced: NDArray[np.bool_] = np.frombuffer(modes, np.uint8) == MODE_FORCE
    return forced


@dataclass(slots=True, eq=False)
class Target:
    """Target i: motion at the end of integration step i and forces of step i-1, shapes ``(n_dof,)``.

    Displacement (m), velocity (m/s) and acceleration (m/s^2, predicted from extrapolated forces) are values at
    step i. ``exact_acceleration`` (m/s^2), ``external_force`` and ``restoring_force`` (N, numerical substructure)
    are values at step i-1. ``energies`` (J) are the model's input, kinetic, strain and damping energy at step i-1,
    or NaN if the Target has all degrees of freedom.
    """

    step: int
    displacement: Array
    velocity: Array
    acceleration: Array
    exact_acceleration: Array
    external_force: Array
    restoring_force: Array
    auxiliary: Array = field(default_factory=lambda: EMPTY)
    flags: int = 0
    energies: Array = field(default_factory=lambda: NO_ENERGIES)


@dataclass(slots=True, eq=False)
class Command:
    """Command k: target (after ramp and setup) and command (after compensation), ``(n_axes,)`` m.

    ``control_mode`` has one byte per axis, MODE_DISPLACEMENT or MODE_FORCE; if empty, all axes
    are in displacement mode. In force mode, target and command are in N.
    """

    sample: int
    target: Array
    command: Array
    auxiliary: Array = field(default_factory=lambda: EMPTY)
    flags: int = 0
    control_mode: bytes = b""


@dataclass(slots=True, eq=False)
class Measurement:
    """Measurement k: displacement (m), force (N) and the applied command (m or N) at sample k, ``(n_axes,)``.

    ``control_mode`` has one byte ``MODE_...`` per axis, and is empty if unknown.
    """

    sample: int
    displacement: Array
    force: Array
    command: Array
    auxiliary: Array = field(default_factory=lambda: EMPTY)
    flags: int = 0
    control_mode: bytes = b""
    hydraulics: int = HYDRAULICS_NOT_TOLD
    interlock: int = INTERLOCK_NOT_TOLD


@dataclass(slots=True, eq=False)
class Motion:
    """Displacement (m), velocity (m/s) and acceleration (m/s^2) at one sample.

    ``flagged`` is true if adaptation must pause: the motion or its measurement was bridged, or a soft start is
    fading out. ``preparing`` is true during a soft start. ``force`` ``(n_axes,)`` N was measured together with the
    displacement that a compensator receives with this motion.
    """

    displacement: Array
    velocity: Array
    acceleration: Array
    flagged: bool = False
    preparing: bool = False
    force: Array = field(default_factory=lambda: EMPTY)
