# SPDX-License-Identifier: Apache-2.0
"""Sensors that do not follow in a run: a frozen displacement trips, a frozen force is reported.

A displacement has to change by a tenth of D, in any direction, while its target travels by D one way: a
compensator that leads too far moves an axis against its target. Over longer windows, in which neither that lead
nor a delay counts, it has to change in the direction of its target. A force is frozen if it changes by no more
than noise and resolution explain, while the measured displacement goes there and back far enough to change it ten
times more. D is derived from resolution, noise, lost motion and stroke.

In each LATE_S the command stays between its lowest l and its highest h. If l exceeds an earlier h by D, an
actuator with a delay below LATE_S has risen since; its sensor has to show STUCK of that, and likewise downwards.
Identical readings alone prove nothing. :class:`OneWay` follows one measurement so, also in guided motions.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario.axis import Axis
from rths_nodes.mechanics.small_specimen import SmallSpecimen

LATE_S = 0.1
"""Longest delay of an actuator, s, without transport and the delay from the small move."""
FINE_BLOCKS = 8
"""Number of blocks in that time in which guided motions are judged."""
STUCK = 0.1
"""Share of its travel below which a channel does not move with the rig."""
STEPS, LOUDEST = 20.0, 8.0
"""Travel D in steps of the resolution, and in multiples of the noise. A load cell that shows less is dead if more
than D / STUCK was expected."""
TWICE = 2.0
"""D in multiples of lost motion and static error."""
LEAST_TRAVEL = 5e-4
"""Smallest D, as a share of the stroke."""
BLOCKS, ROWS = 4, 8
"""Blocks in LATE_S, and samples of a block that are judged, if it has that many."""
FOLLOWS, WINDOWS = 0.25, 10
"""Least slope of a displacement over its target that leaves no doubt, and times LATE_S over which it is taken."""
COARSE, LATE_COARSE, EARLY_COARSE = 2, 4, 2
"""Blocks in one block of the watch for a wrong sign; number of those by which an axis may be late and early."""


def least_travel(
    steps: Sequence[float], noise: Sequence[float], lost_motion: float, stroke: float
) -> tuple[float, float]:
    """Return D (m), and the change of force (N) beyond noise, from resolution and noise rms of both sensors."""
    seen, felt = (max(STEPS * step, LOUDEST * rms) for step, rms in zip(steps, noise, strict=True))
    return max(seen, TWICE * lost_motion, LEAST_TRAVEL * stroke), felt


class Travel(NamedTuple):
    """Travel of a command one way, and the part that its sensor has shown."""

    gone: float
    shown: float


class OneWay:
    """Check that one measurement shows a travel ``way`` of its command; ``block``: samples of a block.

    STUCK of it, in the same direction; or, with ``least``, anything more than that in any direction.
    The measurement may be ``late`` or ``early`` by that number of blocks; it is judged ``early`` blocks later.
    """

    def __init__(
        self, way: float, block: int, least: float | None = None, late: int = FINE_BLOCKS, early: int = 0
    ) -> None:
        self._way, self._block, self._least = way, block, least
        self._lows, self._highs = deque[float](maxlen=late + early), deque[float](maxlen=late + early)
        self._shown: deque[float] = deque(maxlen=1 + early)
        self._marks: list[list[float]] = [[], []]
        """End of an earlier window upwards and downwards, with the sign of the direction.

        Its highest command, the reading then, and the lowest and highest reading since.
        """
        self._silent = [False, False]
        self._span = [0.0, 0.0]
        """Lowest and highest reading since the first of the travels that were not shown."""
        self._empty()

    def _empty(self) -> None:
        self._samples, self._sum, self._low, self._high = 0, 0.0, math.inf, -math.inf

    @property
    def settled(self) -> bool:
        """True once the delay of an earlier motion has passed."""
        return len(self._lows) == self._lows.maxlen

    @property
    def both_ways(self) -> bool:
        """True if no travel was shown upwards and downwards since a missing one."""
        return all(self._silent)

    @property
    def window(self) -> tuple[float, float]:
        return min(self._lows), max(self._highs)

    def stuck(self, command: float, measured: float) -> Travel | None:
        """Add a sample; return the travel that was not shown, if any."""
        self._samples += 1
        self._sum += measured
        self._low, self._high = min(self._low, command), max(self._high, command)
        if self._samples < self._block:
            return None
        low, high, shown = self._low, self._high, self._sum / self._samples
        self._empty()
        return self.block(low, high, shown)

    def block(self, low: float, high: float, shown: float) -> Travel | None:
        """Add a block: range ``low`` to ``high`` of its command, mean measurement ``shown``."""
        self._lows.append(low)
        self._highs.append(high)
        self._shown.append(shown)
        if not self.settled:
            return None
        (low, high), shown = self.window, self._shown[0]
        if any(self._silent):
            self._span = [min(self._span[0], shown), max(self._span[1], shown)]
            if self._least is not None and self._span[1] - self._span[0] > self._least:
                self._silent = [False, False]
        return self._along(0, low, high, shown) or self._along(1, -high, -low, -shown)

    def _along(self, way: int, low: float, high: float, shown: float) -> Travel | None:
        mark = self._marks[way]
        if not mark or high < mark[0]:
            self._marks[way] = [high, shown, shown, shown]
            return None
        mark[2:] = min(mark[2], shown), max(mark[3], shown)
        gone = low - mark[0]
        if gone < self._way or not gone:
            return None
        moved = shown - mark[1]
        self._marks[way] = [high, shown, shown, shown]
        if moved >= STUCK * gone if self._least is None else mark[3] - mark[2] > self._least:
            self._silent = [False, False]
            return None
        if not any(self._silent):
            sign = -1.0 if way else 1.0
            self._span = sorted([sign * mark[2], sign * mark[3]])
        self._silent[way] = True
        return Travel(gone, moved)


class _Axis:
    def __init__(self, name: str, axis: Axis, block: int, way: float | None, force: float | None) -> None:
        self.name = name
        sensors, rig = axis.sensors, axis.rig_axis
        steps = [sensors.displacement_resolution, sensors.force_resolution]
        if rig is not None:
            steps = [max(steps[0], rig.displacement.step_si), max(steps[1], rig.force.step_si)]
        noise = [sensors.displacement_noise_rms, sensors.force_noise_rms]
        if rig is not None:
            channels = rig.displacement, rig.force
            noise = [max(rms, one.noise_rms * one.unit_si) for rms, one in zip(noise, channels, strict=True)]
        derived, felt = least_travel(steps, noise, axis.output.lost_motion, axis.limits.stroke)
        self.way = way = derived if way is None else way
        self.moved = OneWay(way, block, STUCK * way, late=BLOCKS)
        self.along = OneWay(way, COARSE * block, late=LATE_COARSE, early=EARLY_COARSE)
        self._coarse: list[tuple[float, float, float]] = []
        self.stiffness = _stiffness(axis)
        expected = force if force is not None else max(self.stiffness * way, felt / STUCK)
        self.felt, self.travel = felt, expected / self.stiffness if self.stiffness > 0.0 else math.inf
        """Change of the force (N) that it has to show, and travel (m) in which it shows that."""
        self.pushed = OneWay(expected, block, felt, late=BLOCKS) if self.stiffness > 0.0 else None

    def stuck(self, target: list[float], moved: list[float]) -> str:
        low, high, shown = min(target), max(target), sum(moved) / len(moved)
        travel = self.moved.block(low, high, shown)
        self._coarse.append((low, high, shown))
        if len(self._coarse) == COARSE:
            lows, highs, means = zip(*self._coarse, strict=True)
            self._coarse.clear()
            travel = travel or self.along.block(min(lows), max(highs), sum(means) / COARSE)
        if travel is None:
            return ""
        return (
            f"axes.{self.name}: the displacement does not move with its target: it has changed by "
            f"{1e3 * travel.shown:.3f} mm where the target went {1e3 * travel.gone:.3f} mm one way: the actuator "
            "does not follow, or the displacement sensor is wrong"
        )

    def frozen(self, moved: list[float], force: list[float]) -> bool:
        if self.pushed is None:
            return False
        low, high, shown = self.stiffness * min(moved), self.stiffness * max(moved), sum(force) / len(force)
        travel = self.pushed.block(low, high, shown)
        return travel is not None and self.pushed.both_ways


class FrozenSensors:
    """Checks sensors of ``axes`` that follow displacements; force axes are excluded.

    ``breach`` is why the test must end, ``forces`` the sample of a report, by axis. ``way`` (m) and ``force`` (N)
    replace the derived travels.
    """

    def __init__(
        self, axes: Mapping[str, Axis], dt: float, transport: int, way: float | None, force: float | None
    ) -> None:
        size = max(1, round((LATE_S + transport * dt) / BLOCKS / dt))
        self.stride = max(1, size // ROWS)
        self._fewest = WINDOWS * BLOCKS * size
        self._row = 3 * len(axes)
        self._size = round(size / self.stride) * self._row
        self._axes = [_Axis(name, axis, size, way, force) for name, axis in axes.items()]
        self._values: list[float] = []
        """Targets (m), measured displacements (m) and forces (N), sample by sample."""
        self.breach = ""
        self.forces: dict[str, int] = {}

    def add(self, sample: int, target: list[float], moved: list[float], force: list[float]) -> None:
        values = self._values
        values += target
        values += moved
        values += force
        if len(values) == self._size:
            self._judge(sample)

    def _judge(self, sample: int) -> None:
        values, row, n = self._values, self._row, len(self._axes)
        for index, axis in enumerate(self._axes):
            moved = values[n + index :: row]
            self.breach = self.breach or axis.stuck(values[index::row], moved)
            if axis.name not in self.forces and axis.frozen(moved, values[2 * n + index :: row]):
                self.forces[axis.name] = sample
        values.clear()

    def in_doubt(self, target: Array, moved: Array, force: Array) -> bool:
        """Return whether the rules have to judge some samples ``(n, n_axes)`` m, N of a simulator in order.

        Its sensors do not freeze; one may have the wrong sign, an actuator be too slow, a specimen without force.
        """
        if len(target) < self._fewest:
            return False
        return any(map(self._doubtful, self._axes, target.T, moved.T, force.T))

    def _doubtful(self, axis: _Axis, target: Array, moved: Array, force: Array) -> bool:
        about = target - target.mean()
        if about @ moved < FOLLOWS * (about @ about) and np.ptp(target) >= axis.way:
            return True
        if not np.ptp(force) <= axis.felt:
            return False
        count = self._size // self._row
        judged = moved[:: self.stride]
        blocks = judged[: len(judged) // count * count].reshape(-1, count)
        gone = blocks.min(axis=1).max() - blocks.max(axis=1).min()  # noise alone does not travel
        return bool(gone >= axis.travel)

    def metrics(self) -> Data:
        rows = {name: {"reported_at_sample": float(sample)} for name, sample in self.forces.items()}
        return {"frozen_forces": rows} if rows else {}


def _stiffness(axis: Axis) -> float:
    """Stiffness (N/m) of a specimen at small motion; 0 if unknown: its force is not checked."""
    if axis.rig_axis is not None and axis.rig_axis.stiffness is not None:
        return axis.rig_axis.stiffness
    if axis.specimen is None:
        return 0.0
    try:
        slope = SmallSpecimen.of(registry.build("specimen", axis.specimen)).slope
    except (ConfigError, ValueError):  # e.g. friction at rest, or a specimen of another package
        return 0.0
    return slope if math.isfinite(slope) else 0.0


def frozen_words(axis: str, sample: int) -> str:
    return (
        f"axes.{axis}: the force does not move with the displacement, by sample {sample}: is the load cell dead?"
    )


def frozen_notes(metrics: Data) -> list[str]:
    rows = metrics.get("frozen_forces", {})
    return [frozen_words(axis, round(row["reported_at_sample"])) for axis, row in rows.items()]
