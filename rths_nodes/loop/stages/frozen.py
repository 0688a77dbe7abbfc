# SPDX-License-Identifier: Apache-2.0
"""Detection of frozen sensors. A frozen displacement trips the test, and a frozen force is reported.

While its target travels by D in one direction, a displacement must change by a tenth of D. The change may have
either sign, because a compensator with too much lead moves an axis against its target. Over longer windows neither
this lead nor a delay matters, and the displacement must change in the direction of its target. A force is frozen
if its change is within noise and resolution, although the displacement has travelled in both directions. Each
travel must suffice to change the force by ten times as much.

In each window of LATE_S the command has a minimum l and a maximum h. If l exceeds an earlier h by D, the
displacement of an actuator with a delay below LATE_S must have risen since. The sensor must show the fraction
STUCK of this rise. Falls are checked in the same way (:class:`OneWay`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario.schema import Axis
from rths_nodes.mechanics.small_specimen import SmallSpecimen

LATE_S = 0.1
"""Longest delay of an actuator in addition to the transport delay, s."""
FINE_BLOCKS = 8
"""Number of blocks in LATE_S for motions of a procedure."""
STUCK = 0.1
"""Smallest fraction of the expected change that a sensor must show."""
STEPS, LOUDEST = 20.0, 8.0
"""Smallest visible change: the larger of ``STEPS`` times the resolution and ``LOUDEST`` times the rms noise."""
TWICE = 2.0
"""Smallest D, in multiples of the lost motion."""
LEAST_TRAVEL = 5e-4
"""Smallest D, as a fraction of the stroke."""
BLOCKS, ROWS = 4, 8
"""``BLOCKS``: number of blocks in LATE_S. ``ROWS``: smallest number of samples that are checked in a block, unless
the block has fewer. At most 2 ``ROWS`` are checked."""
FOLLOWS, WINDOWS = 0.25, 10
"""``FOLLOWS``: slope of displacement versus target below which a sensor is doubtful. ``WINDOWS``: shortest window
for this slope, in multiples of LATE_S."""
COARSE, LATE_COARSE, EARLY_COARSE = 2, 4, 2
"""Coarse blocks, for the check of signs. ``COARSE``: number of blocks in a coarse block. ``LATE_COARSE``,
``EARLY_COARSE``: number of coarse blocks by which an axis may be late or early."""


def least_travel(
    steps: Sequence[float], noise: Sequence[float], lost_motion: float, stroke: float
) -> tuple[float, float]:
    """Return the travel D (m) that reveals a frozen sensor, and the smallest visible change of force (N).

    ``steps`` contains the resolutions, and ``noise`` the rms noise, of displacement (m) and force (N).
    """
    seen, felt = (max(STEPS * step, LOUDEST * rms) for step, rms in zip(steps, noise, strict=True))
    return max(seen, TWICE * lost_motion, LEAST_TRAVEL * stroke), felt


Travel = tuple[float, float]
"""Travel of a command in one direction, and the resulting change of the measurement."""


class OneWay:
    """Checks that a measurement shows each travel of its command by at least ``way`` in one direction.

    The measurement must change by the fraction STUCK of the travel, in the same direction. If ``least`` is set, it
    must instead change by more than ``least``, in any direction. Samples are averaged in blocks of ``block``
    samples. The change may occur up to ``late`` blocks after the travel, or ``early`` blocks before it.
    """

    def __init__(
        self, way: float, block: int, least: float | None = None, late: int = FINE_BLOCKS, early: int = 0
    ) -> None:
        self._way, self._block, self._least = way, block, least
        self._lows, self._highs = deque[float](maxlen=late + early), deque[float](maxlen=late + early)
        self._shown: deque[float] = deque(maxlen=1 + early)
        self._marks: list[list[float]] = [[], []]
        """Two marks: for upward travel, and for downward travel with opposite signs of all values.

        A mark holds the highest command of an earlier window, the reading at the end of this window, and the
        lowest and highest reading since then."""
        self._silent = [False, False]
        self._span = [0.0, 0.0]
        self._empty()

    def _empty(self) -> None:
        self._samples, self._sum, self._low, self._high = 0, 0.0, math.inf, -math.inf

    @property
    def settled(self) -> bool:
        """True once the longest possible delay of an earlier motion has passed."""
        return len(self._lows) == self._lows.maxlen

    @property
    def both_ways(self) -> bool:
        """True if the sensor has missed an upward and a downward travel since it last showed a travel."""
        return all(self._silent)

    @property
    def window(self) -> tuple[float, float]:
        return min(self._lows), max(self._highs)

    def stuck(self, command: float, measured: float) -> Travel | None:
        """Add a sample. Return a travel that the sensor does not show, with its measured change, or None."""
        self._samples += 1
        self._sum += measured
        self._low, self._high = min(self._low, command), max(self._high, command)
        if self._samples < self._block:
            return None
        low, high, shown = self._low, self._high, self._sum / self._samples
        self._empty()
        return self.block(low, high, shown)

    def block(self, low: float, high: float, shown: float) -> Travel | None:
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
        return gone, moved


class _Axis:
    def __init__(self, name: str, axis: Axis, block: int, way: float | None, force: float | None) -> None:
        self.name = name
        sensors, rig = axis.sensors, axis.rig_axis
        steps = [sensors.displacement_resolution, sensors.force_resolution]
        noise = [sensors.displacement_noise_rms, sensors.force_noise_rms]
        if rig is not None:
            channels = rig.displacement, rig.force
            steps = [max(step, one.step_si) for step, one in zip(steps, channels, strict=True)]
            noise = [max(rms, one.noise_rms * one.unit_si) for rms, one in zip(noise, channels, strict=True)]
        derived, felt = least_travel(steps, noise, axis.output.lost_motion, axis.limits.stroke)
        self.way = way = derived if way is None else way
        self.moved = OneWay(way, block, STUCK * way, late=BLOCKS)
        self.along = OneWay(way, COARSE * block, late=LATE_COARSE, early=EARLY_COARSE)
        self._coarse: list[tuple[float, float, float]] = []
        self.stiffness = _stiffness(axis)
        expected = force if force is not None else max(self.stiffness * way, felt / STUCK)
        self.felt, self.travel = felt, expected / self.stiffness if self.stiffness > 0.0 else math.inf
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
        gone, change = travel
        return (
            f"axes.{self.name}: the displacement has changed by {1e3 * change:.3f} mm while its target has "
            f"moved by {1e3 * gone:.3f} mm in one direction. The actuator does not "
            "follow, or the displacement sensor is wrong"
        )

    def frozen(self, moved: list[float], force: list[float]) -> bool:
        if self.pushed is None:
            return False
        low, high, shown = self.stiffness * min(moved), self.stiffness * max(moved), sum(force) / len(force)
        travel = self.pushed.block(low, high, shown)
        return travel is not None and self.pushed.both_ways


class FrozenSensors:
    """Checks the sensors of ``axes``, which must not contain force axes.

    ``breach`` is the reason why the test must end, or empty. ``forces`` maps each axis with a frozen force to the
    sample at which it was reported. ``way`` (m) and ``force`` (N) replace the travel D and the expected change of
    force, unless they are None.
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
        """Return whether samples ``(n, n_axes)`` of a simulator, in m and N, must be checked one by one.

        Sensors of a simulator do not freeze, but can have the wrong sign. Actuators can be too slow, and specimens
        can be without force.
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
        gone = blocks.min(axis=1).max() - blocks.max(axis=1).min()  # travel without noise
        return bool(gone >= axis.travel)

    def metrics(self) -> Data:
        rows = {name: {"reported_at_sample": float(sample)} for name, sample in self.forces.items()}
        return {"frozen_forces": rows} if rows else {}


def _stiffness(axis: Axis) -> float:
    if axis.rig_axis is not None and axis.rig_axis.stiffness is not None:
        return axis.rig_axis.stiffness
    if axis.specimen is None:
        return 0.0
    try:
        slope = SmallSpecimen.of(registry.build("specimen", axis.specimen)).slope
    except (ConfigError, ValueError):  # e.g. static friction, or a specimen from another package
        return 0.0
    return slope if math.isfinite(slope) else 0.0


def frozen_words(axis: str, sample: int) -> str:
    return (
        f"axes.{axis}: up to sample {sample} the force has not changed with the displacement. Check the load cell"
    )


def frozen_notes(metrics: Data) -> list[str]:
    rows = metrics.get("frozen_forces", {})
    return [frozen_words(axis, round(row["reported_at_sample"])) for axis, row in rows.items()]
