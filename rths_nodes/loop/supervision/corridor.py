# SPDX-License-Identifier: Apache-2.0
"""Corridor in which a test is expected to stay: predicted before it, checked during it, shown after it.

It is the envelope of many runs on different plants (``rths corridor``), of displacement, force and absorbed energy
of every axis, widened by a margin. It shows unexpected behaviour long before a limit is reached: a bolt that
slips, a specimen that degrades, a sensor that drifts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.core.text_files import LARGEST, read_arrays, read_bytes

QUANTITIES = (("displacement", "m"), ("force", "N"), ("energy", "J"))
"""Quantities with a band, and their units; energy absorbed by the axis' specimen."""
NONE = len(QUANTITIES)
"""No quantity."""
OUTSIDE = "_outside_percent"
"""Suffix of a quantity: share of samples outside its band."""


@dataclass(frozen=True, eq=False)
class Corridor:
    """Bands ``lower`` and ``upper`` ``(3, n, n_axes)`` in the order of ``QUANTITIES``, from sample 0; nan: none.

    ``nominal`` ``(3, n, n_axes)`` is the scenario's own plant; ``source`` describes the prediction.
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
        """Write it, compressed. Raises OSError."""
        told = json.dumps({"axes": self.axes, "servo_rate": self.servo_rate, "source": self.source})
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            np.savez_compressed(
                file, told=np.array(told), lower=self.lower, upper=self.upper, nominal=self.nominal
            )


def load(path: str, axes: tuple[str, ...], servo_rate: float, samples: int) -> Corridor:
    """Load a corridor for a test of ``samples``. Raises ConfigError."""
    try:
        data = read_arrays(read_bytes(path, LARGEST), LARGEST)
        told = json.loads(str(data["told"]))
        bands = [np.asarray(data[name], dtype=np.float64) for name in ("lower", "upper", "nominal")]
        found = Corridor(tuple(told["axes"]), float(told["servo_rate"]), str(told["source"]), *bands)
        if any(band.shape != (len(QUANTITIES), found.samples + 1, len(found.axes)) for band in bands):
            raise ValueError("its bands are of different size")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: no corridor as rths corridor writes it ({error})") from None
    if found.axes != axes:
        raise ConfigError(f"{path}: is of the axes {', '.join(found.axes)}; the test has {', '.join(axes)}")
    if found.servo_rate != servo_rate:
        raise ConfigError(f"{path}: is for {found.servo_rate:g} Hz; the test runs at {servo_rate:g} Hz")
    if found.samples < samples:
        raise ConfigError(f"{path}: is of {found.samples} samples; the test has {samples}")
    return found


def quantities(displacement: Array, force: Array) -> Array:
    """Return ``QUANTITIES`` ``(3, n - 1, n_axes)`` of samples 1, 2, ...; nothing is absorbed at sample 0.

    ``displacement`` and ``force`` are ``(n, n_axes)``, m and N. By trapezoids, as :func:`step`.
    """
    work = 0.5 * (force[1:] + force[:-1]) * np.diff(displacement, axis=0)
    return np.stack((displacement[1:], force[1:], np.add.accumulate(work, axis=0) + 0.0))


class Constants(NamedTuple):
    """``persistence``: consecutive samples outside of a band after which the axis has left its corridor."""

    persistence: int


class State(NamedTuple):
    """Previous displacement (m) and force (N), absorbed energy (J); samples outside: in a row, and in all."""

    displacement: float
    force: float
    energy: float
    displacement_row: int
    force_row: int
    energy_row: int
    displacement_count: int
    force_count: int
    energy_count: int


def rest(displacement: float, force: float) -> State:
    """State before the first sample, at the start of the test (m, N)."""
    return State(displacement, force, 0.0, 0, 0, 0, 0, 0, 0)


def outside(value: float, lower: float, upper: float) -> bool:
    """Return whether ``value`` is outside its band; a nan band is none."""
    return lower == lower and not lower <= value <= upper


def step(
    constants: Constants, state: State, displacement: float, force: float, bands: Sequence[float]
) -> tuple[State, tuple[float, int]]:
    """Advance by a sample; return state, absorbed energy (J) and left quantity: 0, 1, 2; 3 for none.

    The energy gains (f + f') / 2 (x - x'), with displacement x (m) and force f (N); the dash is the sample before.

    ``bands``: lower and upper one of displacement (m), force (N) and energy (J).
    """
    (persistence,) = constants
    x, f, energy, x_row, f_row, e_row, x_count, f_count, e_count = state
    energy += 0.5 * (force + f) * (displacement - x)
    if outside(displacement, bands[0], bands[1]):
        x_row, x_count = x_row + 1, x_count + 1
    else:
        x_row = 0
    if outside(force, bands[2], bands[3]):
        f_row, f_count = f_row + 1, f_count + 1
    else:
        f_row = 0
    if outside(energy, bands[4], bands[5]):
        e_row, e_count = e_row + 1, e_count + 1
    else:
        e_row = 0
    left = 0 if x_row >= persistence else 1 if f_row >= persistence else 2 if e_row >= persistence else 3
    now = (displacement, force, energy, x_row, f_row, e_row, x_count, f_count, e_count)
    return now, (energy, left)  # type: ignore[return-value]


class CorridorWatch:
    """Follows a test sample by sample, and detects when it leaves its corridor.

    ``left``: first sample at which a quantity had been outside for ``persistence`` samples, and a text.
    """

    def __init__(self, of: Corridor, persistence: int) -> None:
        self._corridor, self._constants = of, Constants(max(1, persistence))
        bands = np.stack((of.lower, of.upper), axis=-1)  # (3, n, n_axes, 2)
        self._bands = np.ascontiguousarray(bands.transpose(1, 2, 0, 3)).reshape(of.samples + 1, len(of.axes), -1)
        self._states: list[State] = []
        self.left: tuple[int, str] | None = None
        self._samples = 0

    def start(self, displacement: Sequence[float], force: Sequence[float]) -> None:
        """Set the start of the test, ``(n_axes,)`` m and N; by default the first sample."""
        self._states = [rest(*each) for each in zip(displacement, force, strict=True)]

    def step(self, sample: int, displacement: Sequence[float], force: Sequence[float]) -> None:
        """Advance by a sample, each ``(n_axes,)`` m and N."""
        if not self._states:
            self.start(displacement, force)
        states, constants, bands = self._states, self._constants, self._bands[sample].tolist()
        worst = (NONE, 0, 0.0)
        for axis in range(len(states)):
            x, f = displacement[axis], force[axis]
            states[axis], (energy, left) = step(constants, states[axis], x, f, bands[axis])
            if left < worst[0]:
                worst = left, axis, (x, f, energy)[left]
        self._samples += 1
        if worst[0] < NONE and self.left is None:
            self.left = sample, self._words(*worst, *bands[worst[1]][2 * worst[0] : 2 * worst[0] + 2])

    def _words(self, quantity: int, axis: int, value: float, low: float, high: float) -> str:
        name, unit = QUANTITIES[quantity]
        return (
            f"axes.{self._corridor.axes[axis]}: {name} = {value:.6g} {unit}: was predicted between {low:.6g} and "
            f"{high:.6g} {unit}"
        )

    def metrics(self) -> dict[str, float]:
        """Return the share of samples outside (%) by quantity, of the worst axis, and the sample of leaving."""
        samples, found = max(1, self._samples), {}
        for number, (name, _) in enumerate(QUANTITIES):
            counts = [state[number - NONE] for state in self._states]
            found[name + OUTSIDE] = 100.0 * max(counts, default=0) / samples
        return found | {"left_at_sample": math.nan if self.left is None else float(self.left[0])}


def corridor_notes(metrics: Data, dt: float) -> list[str]:
    """Return a note if the test with these ``metrics`` has left its corridor; ``dt`` is a sample, s."""
    told = metrics.get("corridor", {})
    left = told.get("left_at_sample", math.nan)
    if not math.isfinite(left):
        return []
    shares = ", ".join(f"{name} {told[name + OUTSIDE]:.3g} %" for name, _ in QUANTITIES)
    return [f"the test has left its corridor at {left * dt:.4g} s; samples outside: {shares}"]
