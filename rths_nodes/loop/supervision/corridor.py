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
from pathlib import Path

import numpy as np

from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.core.text_files import LARGEST, read_arrays, read_bytes
from rths_nodes.loop.supervision.limits import NONE, acting

QUANTITIES = (("displacement", "m"), ("force", "N"), ("energy", "J"))
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
        self._before: tuple[Sequence[float], Sequence[float]] | None = None
        self.left: tuple[int, str] | None = None
        self._reset()

    def _reset(self) -> None:
        self.energies, size = [0.0] * len(self._corridor.axes), self._bands.shape[2]
        self._in_a_row, self._last, self._outside = [0] * size, [NONE - 1] * size, [0] * size

    def start(self, displacement: Sequence[float], force: Sequence[float]) -> None:
        """Set position (m) and force (N) at the start, ``(n_axes,)``. The default is the first sample."""
        self._before = displacement, force
        self._reset()

    def step(self, sample: int, displacement: Sequence[float], force: Sequence[float]) -> None:
        """Advance by a sample with displacement (m) and force (N), ``(n_axes,)``."""
        before = self._before or (displacement, force)
        steps = zip(self.energies, displacement, force, *before, strict=True)
        self.energies = [energy + 0.5 * (f + f0) * (x - x0) for energy, x, f, x0, f0 in steps]
        self._before, self._samples = (displacement, force), self._samples + 1
        values, (lower, upper) = (*displacement, *force, *self.energies), self._bands[sample].tolist()
        bands = enumerate(zip(lower, upper, strict=True))
        # NaN means that there is no band
        rows = tuple((i, low, high, self._persistence) for i, (low, high) in bands if low == low)
        index = acting((rows, self._in_a_row, self._last), values, sample)
        self._outside = [count + (then == sample) for count, then in zip(self._outside, self._last, strict=True)]
        if self.left is None and index >= 0:
            number, axis = divmod(index, len(self.energies))
            path, (name, unit), value = f"axes.{self._corridor.axes[axis]}", QUANTITIES[number], values[index]
            band = f"between {lower[index]:.6g} and {upper[index]:.6g} {unit}"
            self.left = sample, f"{path}: {name} = {value:.6g} {unit}, but was predicted {band}"

    def metrics(self) -> dict[str, float]:
        """Return the percentages of samples outside for the worst axes, and the sample of ``left`` or NaN."""
        most = np.max(np.reshape(self._outside, (len(QUANTITIES), -1)), axis=1, initial=0).tolist()
        counts, n = zip(QUANTITIES, most, strict=True), max(1, self._samples)
        metrics = {name + OUTSIDE: 100.0 * count / n for (name, _), count in counts}
        return metrics | {"left_at_sample": math.nan if self.left is None else float(self.left[0])}


def corridor_notes(metrics: Data, dt: float) -> list[str]:
    numbers = metrics.get("corridor", {})
    left = numbers.get("left_at_sample", math.nan)
    if not math.isfinite(left):
        return []
    shares = ", ".join(f"{name} {numbers[name + OUTSIDE]:.3g} %" for name, _ in QUANTITIES)
    return [f"the test has left its corridor at {left * dt:.4g} s. Samples outside: {shares}"]
