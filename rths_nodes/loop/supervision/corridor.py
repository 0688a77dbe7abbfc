# SPDX-License-Identifier: Apache-2.0
"""Corridor in which a test should stay: predicted before the test, checked during the test, shown after the test.

The corridor is the envelope of many runs on different plants (``rths corridor``), widened by a margin. It bounds
displacement, force and absorbed energy of every axis. Long before a limit is exceeded, the corridor shows a
slipping bolt, a degrading specimen or a drifting sensor.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.core.text_files import LARGEST, read_arrays, read_bytes
from rths_nodes.loop.supervision.limits import Row, acting, table

QUANTITIES = (("displacement", "m"), ("force", "N"), ("energy", "J"))
LEFT = ": {0} = {{0:.6g}} {1}, but was predicted between {{2:.6g}} and {{1:.6g}} {1}"
OUTSIDE = "_outside_percent"


@dataclass(frozen=True, eq=False)
class Corridor:
    """Holds bands ``lower`` to ``upper`` ``(3, n, n_axes)`` of QUANTITIES, from sample 0. NaN means no band.

    ``nominal`` ``(3, n, n_axes)`` is the response of the scenario's own plant. ``source`` describes the
    prediction.
    """

    axes: tuple[str, ...]
    servo_rate: float
    source: str
    lower: Array
    upper: Array
    nominal: Array

    @property
    def samples(self) -> int:
        return int(self.lower.shape[1]) - 1

    def save(self, path: Path) -> None:
        """Write the corridor to a compressed file. Raises OSError if writing fails."""
        header = json.dumps({"axes": self.axes, "servo_rate": self.servo_rate, "source": self.source})
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            np.savez_compressed(
                file, told=np.array(header), lower=self.lower, upper=self.upper, nominal=self.nominal
            )


def load(path: str, axes: tuple[str, ...], servo_rate: float, samples: int) -> Corridor:
    try:
        data = read_arrays(read_bytes(path, LARGEST), LARGEST)
        header = json.loads(str(data["told"]))
        bands = [np.asarray(data[name], dtype=np.float64) for name in ("lower", "upper", "nominal")]
        corridor = Corridor(tuple(header["axes"]), float(header["servo_rate"]), str(header["source"]), *bands)
        if any(band.shape != (len(QUANTITIES), corridor.samples + 1, len(corridor.axes)) for band in bands):
            raise ValueError("the bands have different sizes")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: is not a corridor file of rths corridor ({error})") from None
    if corridor.axes != axes:
        raise ConfigError(f"{path}: has the axes {', '.join(corridor.axes)}, but the test has {', '.join(axes)}")
    if corridor.servo_rate != servo_rate:
        raise ConfigError(f"{path}: is for {corridor.servo_rate:g} Hz, but the test runs at {servo_rate:g} Hz")
    if corridor.samples < samples:
        raise ConfigError(f"{path}: has {corridor.samples} samples, but the test has {samples}")
    return corridor


def quantities(displacement: Array, force: Array) -> Array:
    """Return ``QUANTITIES`` ``(3, n - 1, n_axes)`` at samples 1, 2, ..., n - 1. The energy is 0 at sample 0.

    ``displacement`` (m) and ``force`` (N) are ``(n, n_axes)``. Energies are summed as in
    :meth:`CorridorWatch.step`.
    """
    work = 0.5 * (force[1:] + force[:-1]) * np.diff(displacement, axis=0)
    return np.stack((displacement[1:], force[1:], np.add.accumulate(work, axis=0) + 0.0))


class CorridorWatch:
    """Follows a test sample by sample, and detects when the test leaves its corridor.

    Each quantity of an axis is a limit row with bounds that change with the sample. ``left`` contains the first
    sample at which a quantity had been outside its band for ``persistence`` samples, and a text, or is None.
    ``energies`` are the absorbed energies, J.
    """

    def __init__(self, corridor: Corridor, persistence: int) -> None:
        self._corridor, self._persistence, self._samples = corridor, max(1, persistence), 0
        bands = np.stack((corridor.lower, corridor.upper)).transpose(2, 0, 1, 3)  # (n, 2, 3, n_axes)
        self._bands = np.ascontiguousarray(bands).reshape(corridor.samples + 1, 2, -1)
        pairs = product(QUANTITIES, corridor.axes)
        self._rows = [
            Row(f"axes.{axis}", index, 0.0, 0.0, text=LEFT.format(*pair))
            for index, (pair, axis) in enumerate(pairs)
        ]
        self._before: tuple[Sequence[float], Sequence[float]] | None = None
        self.left: tuple[int, str] | None = None
        self._reset()

    def _reset(self) -> None:
        self.energies = [0.0] * len(self._corridor.axes)
        _, *self._counts = table(self._rows)
        self._outside = [0] * len(self._rows)

    def start(self, displacement: Sequence[float], force: Sequence[float]) -> None:
        """Set position (m) and force (N) at the start, ``(n_axes,)``. The default is the first sample."""
        self._before = displacement, force
        self._reset()

    def step(self, sample: int, displacement: Sequence[float], force: Sequence[float]) -> None:
        """Advance by a sample with displacement (m) and force (N), ``(n_axes,)``.

        The absorbed energy increases by the mean of the last two forces times the change of displacement.
        """
        before = self._before or (displacement, force)
        rows = zip(self.energies, displacement, force, *before, strict=True)
        self.energies = [energy + 0.5 * (f + f0) * (x - x0) for energy, x, f, x0, f0 in rows]
        self._before, self._samples = (displacement, force), self._samples + 1
        values, bands = (*displacement, *force, *self.energies), zip(*self._bands[sample].tolist(), strict=True)
        # NaN means that there is no band
        bounds = {i: (i, low, high, self._persistence) for i, (low, high) in enumerate(bands) if low == low}
        in_a_row, last = self._counts
        index = acting((tuple(bounds.values()), in_a_row, last), values, sample)
        self._outside = [count + (then == sample) for count, then in zip(self._outside, last, strict=True)]
        if self.left is None and index >= 0:
            _, low, high, _ = bounds[index]
            self.left = sample, self._rows[index]._replace(low=low, high=high).words(values[index])

    def metrics(self) -> dict[str, float]:
        """Return, by quantity, the percentage of samples outside the band for the worst axis.

        Also return the sample of ``left``, or NaN.
        """
        samples, n, metrics = max(1, self._samples), len(self._corridor.axes), {}
        for number, (name, _) in enumerate(QUANTITIES):
            outside = self._outside[number * n : (number + 1) * n]
            metrics[name + OUTSIDE] = 100.0 * max(outside, default=0) / samples
        return metrics | {"left_at_sample": math.nan if self.left is None else float(self.left[0])}


def corridor_notes(metrics: Data, dt: float) -> list[str]:
    numbers = metrics.get("corridor", {})
    left = numbers.get("left_at_sample", math.nan)
    if not math.isfinite(left):
        return []
    shares = ", ".join(f"{name} {numbers[name + OUTSIDE]:.3g} %" for name, _ in QUANTITIES)
    return [f"the test has left its corridor at {left * dt:.4g} s. Samples outside: {shares}"]
