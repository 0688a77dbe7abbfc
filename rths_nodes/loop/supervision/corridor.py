"""The corridor in which a test is expected to stay: predicted before it, watched during it, shown after it.

It is the envelope of many runs of the same test on plants that differ (``rths corridor``), of displacement, force
and absorbed energy of every axis, widened by a margin. It tells that something is not as it was thought to be,
long before a limit is reached: a bolt that slips, a specimen that degrades, a sensor that drifts.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array

Counts = np.ndarray[Any, np.dtype[np.int64]]

QUANTITIES = (("displacement", "m"), ("force", "N"), ("energy", "J"))
"""What has a band, with its unit; the energy is what the specimen of the axis has absorbed."""
OUTSIDE = "_outside_percent"
"""Behind the name of a quantity: the share of the samples outside its band."""


@dataclass(frozen=True, eq=False)
class Corridor:
    """Bands ``lower`` and ``upper`` ``(3, n, n_axes)`` in the order of ``QUANTITIES``, from sample 0; nan: none.

    ``nominal`` ``(3, n, n_axes)`` is the plant as the scenario has it; ``source`` are words about the prediction.
    """

    axes: tuple[str, ...]
    servo_rate: float
    source: str
    lower: Array
    upper: Array
    nominal: Array

    @property
    def samples(self) -> int:
        """The last sample that has a band."""
        return int(self.lower.shape[1]) - 1

    def save(self, path: Path) -> None:
        """Write it, compressed. Raises OSError."""
        told = json.dumps({"axes": self.axes, "servo_rate": self.servo_rate, "source": self.source})
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            np.savez_compressed(
                file, told=np.array(told), lower=self.lower, upper=self.upper, nominal=self.nominal
            )


def load(path: str, axes: tuple[str, ...], servo_rate: float, samples: int) -> Corridor:
    """The corridor in the file ``path``, for a test of so many ``samples``. Raises ConfigError where it is not."""
    try:
        with np.load(path, allow_pickle=False) as data:
            told = json.loads(str(data["told"]))
            bands = [np.asarray(data[name], dtype=np.float64) for name in ("lower", "upper", "nominal")]
        found = Corridor(tuple(told["axes"]), float(told["servo_rate"]), str(told["source"]), *bands)
        if any(band.shape != (len(QUANTITIES), found.samples + 1, len(found.axes)) for band in bands):
            raise ValueError("its bands are of different size")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path}: no corridor as rths corridor writes it ({error})") from None
    if found.axes != axes:
        raise ConfigError(f"{path}: is of the axes {', '.join(found.axes)}; the test has {', '.join(axes)}")
    if found.servo_rate != servo_rate:
        raise ConfigError(f"{path}: is for {found.servo_rate:g} Hz; the test runs at {servo_rate:g} Hz")
    if found.samples < samples:
        raise ConfigError(f"{path}: is of {found.samples} samples; the test has {samples}")
    return found


def quantities(displacement: Array, force: Array, energy: Array | None = None) -> tuple[Array, Array]:
    """``QUANTITIES`` ``(3, n - 1, n_axes)`` of samples 1, 2, ..., and the energy ``(n_axes,)`` at the last one.

    ``displacement`` and ``force`` are ``(n, n_axes)``, m and N; ``energy`` is that at sample 0, J. By trapezoids.
    """
    work = 0.5 * (force[1:] + force[:-1]) * np.diff(displacement, axis=0)
    absorbed = np.cumsum(work, axis=0) + (0.0 if energy is None else energy)
    last = absorbed[-1] if len(absorbed) else np.zeros(displacement.shape[1]) if energy is None else energy
    return np.stack((displacement[1:], force[1:], absorbed)), last


class CorridorWatch:
    """Follows a test sample by sample, in blocks, and tells when it leaves its corridor.

    ``left`` is the first sample at which a quantity had been outside for ``persistence`` samples, and words.
    """

    def __init__(self, corridor: Corridor, persistence: int) -> None:
        self._corridor, self._persistence = corridor, max(1, persistence)
        n_axes = len(corridor.axes)
        self.left: tuple[int, str] | None = None
        self._before: tuple[Array, Array] | None = None
        self._energy = np.zeros(n_axes)
        self._outside = np.zeros((len(QUANTITIES), n_axes))
        self._since = np.zeros((len(QUANTITIES), n_axes), dtype=np.int64)
        self._samples = 0

    def start(self, displacement: Array, force: Array) -> None:
        """Where the test begins, ``(n_axes,)`` m and N: nothing is absorbed yet. Else that is its first sample."""
        self._before = displacement.copy(), force.copy()
        self._energy = np.zeros_like(self._energy)

    def update(self, first: int, displacement: Array, force: Array) -> None:
        """Samples ``first``, ... of a block, each ``(n, n_axes)`` m and N."""
        before = (displacement[0], force[0]) if self._before is None else self._before
        path, pull = (np.vstack(pair) for pair in zip(before, (displacement, force), strict=True))
        values, self._energy = quantities(path, pull, self._energy)
        self._before = displacement[-1].copy(), force[-1].copy()
        end = first + len(displacement)
        lower, upper = self._corridor.lower[:, first:end], self._corridor.upper[:, first:end]
        outside = ~((values >= lower) & (values <= upper)) & ~np.isnan(lower)
        self._outside += outside.sum(axis=1)
        self._samples += len(displacement)
        # for each sample how many in a row are outside, up to it
        place = np.arange(1, len(displacement) + 1)[None, :, None]
        inside = np.maximum.accumulate(np.where(outside, 0, place), axis=1)
        row = place - inside + np.where(inside == 0, self._since[:, None, :], 0)
        self._since = row[:, -1]
        if self.left is None and (row >= self._persistence).any():
            self._leave(first, row, values)

    def _leave(self, first: int, row: Counts, values: Array) -> None:
        at = int(np.flatnonzero((row >= self._persistence).any(axis=(0, 2)))[0])
        quantity, axis = (int(number) for number in np.argwhere(row[:, at] >= self._persistence)[0])
        name, unit = QUANTITIES[quantity]
        low, high = (band[quantity, first + at, axis] for band in (self._corridor.lower, self._corridor.upper))
        self.left = (
            first + at,
            (
                f"axes.{self._corridor.axes[axis]}: {name} = {values[quantity, at, axis]:.6g} {unit}: was "
                f"predicted between {low:.6g} and {high:.6g} {unit}"
            ),
        )

    def metrics(self) -> dict[str, float]:
        """Share of the samples outside (%) by quantity, of the worst axis, and the sample at which it was left."""
        shares = 100.0 * self._outside.max(axis=1, initial=0.0) / max(1, self._samples)
        found = {name + OUTSIDE: float(share) for (name, _), share in zip(QUANTITIES, shares, strict=True)}
        return found | {"left_at_sample": math.nan if self.left is None else float(self.left[0])}


def corridor_notes(metrics: Mapping[str, Any], dt: float) -> list[str]:
    """What the user is told of a test, by its ``metrics``, that has left its corridor; ``dt`` is a sample, s."""
    told = metrics.get("corridor", {})
    left = told.get("left_at_sample", math.nan)
    if not math.isfinite(left):
        return []
    shares = ", ".join(f"{name} {told[name + OUTSIDE]:.3g} %" for name, _ in QUANTITIES)
    return [f"the test has left its corridor at {left * dt:.4g} s; samples outside: {shares}"]
