# SPDX-License-Identifier: Apache-2.0
"""Monitor: updates the indices sample by sample, and checks their limits and the corridor of the test."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import declared, number, params, path, text
from rths_nodes.core.samples import Array
from rths_nodes.core.text_files import LARGEST, read_arrays, read_bytes, replaced
from rths_nodes.loop.indices.energy_monitor import EnergyMonitor
from rths_nodes.loop.indices.tracking import Tracking
from rths_nodes.loop.supervision.limits import NONE, acting, table, within

INDICATE, TRIP = "indicate", "trip"
ROUNDED = 0.999
"""Fraction of a bound below which a sum is within the bound, whatever the rounding errors of its summation."""
INDICES = ("energy_error_percent", "tracking_indicator_rate", "tracking_indicator_rate_over_amplitude")
"""Parameters that limit an index."""
OF_CORRIDOR = ("corridor_action", "corridor_persistence")
"""Parameters that a rig file with a corridor always overrides."""
SPAN = 32
"""Number of samples over which the slope of the tracking indicator is computed (31 ms at 1024 Hz)."""


@params
class MonitorParams:
    """Limits on the indices of the test. An omitted limit is not checked."""

    longest_delay: float = number(
        "largest delay, positive or negative, that the search considers", "s", 0.1, more_than=0.0, at_most=1.0
    )
    energy_error_percent: float | None = number(
        "largest permitted magnitude of the running energy monitor; default: no limit", "%", None, more_than=0.0
    )
    reference_energy: float | None = number(
        "energy added to the input energy, which is near zero at first, in the denominator of the running energy "
        "monitor; default: the strain energy of the structure at first yield",
        "J",
        None,
        at_least=0.0,
    )
    tracking_indicator_rate: float | None = number(
        "largest permitted magnitude of the slope of the tracking indicator over 32 samples; default: no limit",
        "m^2/s",
        None,
        more_than=0.0,
    )
    tracking_indicator_rate_over_amplitude: float | None = number(
        "largest permitted magnitude of the slope of the tracking indicator, divided by the square of the largest "
        "target so far; default: no limit. A sine of frequency f with the lag phi has the ratio pi f sin(phi)",
        "1/s",
        None,
        more_than=0.0,
    )
    smallest_amplitude: float | None = number(
        "lower bound of the largest target in tracking_indicator_rate_over_amplitude; required by that limit",
        "m",
        None,
        more_than=0.0,
    )
    corridor: str | None = path(
        "file from rths corridor, with the bands in which the test is expected to stay", None
    )
    corridor_action: str = text("reaction when the test leaves the corridor", INDICATE, choices=(INDICATE, TRIP))
    corridor_persistence: float = number(
        "time outside its band after which a quantity has left the corridor", "s", 0.05, at_least=0.0
    )

    stuck_displacement: float | None = number(
        "travel of a target in one direction of which the displacement sensor must show a tenth; otherwise the "
        "test trips. Default: computed from resolution, noise, lost motion and stroke",
        "m",
        None,
        more_than=0.0,
        at_most=100.0,
    )
    stuck_force: float | None = number(
        "change of force, expected from displacement and stiffness, after which a load cell is reported if it "
        "shows no change in either direction. Default: computed from resolution, noise and stiffness",
        "N",
        None,
        more_than=0.0,
        at_most=1e9,
    )

    def validate(self, path: str) -> None:
        if self.tracking_indicator_rate_over_amplitude is not None and self.smallest_amplitude is None:
            raise ConfigError(
                f"{path}.smallest_amplitude: missing; tracking_indicator_rate_over_amplitude requires it while "
                "targets are small"
            )
        if self.corridor is None and self.corridor_action == TRIP:
            raise ConfigError(f"{path}.corridor_action = '{TRIP}': requires {path}.corridor")


class Monitor:
    """Computes all indices of a test and checks their limits.

    The monitor receives every Target, and every sample in order. ``breach`` is None, or the first sample at which
    a limit was exceeded, with the reason. The indices begin after the soft start.
    """

    def __init__(
        self,
        params: MonitorParams,
        axes: Sequence[str],
        n_dof: int,
        dt: float,
        reference_energy: float,
        energy_scale: Array | None = None,
        corridor: Corridor | None = None,
        spread: bool = False,
    ) -> None:
        self.names, self._dt, n_axes = tuple(axes), dt, len(axes)
        self.longest = max(1, math.ceil(params.longest_delay / dt))
        self.energy = EnergyMonitor(n_dof, reference_energy)
        self._corridor_trips = params.corridor_action == TRIP
        self.corridor: CorridorWatch | None = None
        if corridor is not None:
            self.corridor = CorridorWatch(corridor, math.ceil(params.corridor_persistence / dt))
        self.breach: tuple[int, str] | None = None
        bounds = [(name, getattr(params, name), declared(MonitorParams)[name].unit) for name in INDICES]
        rows = enumerate([*bounds, ("tracking_indicator", math.inf, "m^2")])
        self._rows = {i: within(f"monitor.{name}", i, *most) for i, (name, *most) in rows if most[0] is not None}
        self._limits, self._percent = table(self._rows.values()), params.energy_error_percent
        self._steep, self._smallest = bool(self._rows.keys() & {1, 2}), params.smallest_amplitude
        self._indicators = deque([[0.0] * n_axes], maxlen=SPAN)
        self.in_order = corridor is not None or self._steep
        """True if the samples must be checked one by one, in order."""
        self._within = math.inf if self._percent is None else ROUNDED * self._percent * reference_energy / 100.0
        """Energy error (J) up to which its limit is met for every input energy."""
        if self.in_order:
            self._within = -1.0  # every energy error exceeds this, so every sample is checked
        calls = self._within, self._judge, self._take_targets
        self.tracking = Tracking(n_axes, self.longest, energy_scale, spread, *calls)
        self.step = self.tracking.step
        """Process a sample. The arguments are its number and, by axis, target (m), measured displacement (m) and
        measured force (N)."""

    @property
    def sample(self) -> int:
        return self.tracking.sample

    def prepare(self, sample: int, target: list[float], measured: list[float], force: list[float]) -> None:
        """Process a sample of the soft start, and reset all indices."""
        self.tracking.start(target, measured, force)
        self.skip(sample)
        if self.corridor:
            self.corridor.start(measured, force)

    def skip(self, sample: int) -> None:
        """Process a sample of the safe stop, which does not change the indices."""
        self.tracking.sample = sample

    def _take_targets(self) -> None:
        self.energy.take(self.sample)

    def _judge(self, measured: list[float], force: list[float], total: float) -> None:
        corridor = self.corridor
        if corridor is not None:
            corridor.step(self.sample, measured, force)
        if self.breach is not None:
            return
        values, tracking = [0.0, 0.0, 0.0, total - total], self.tracking
        if self._percent is not None:
            self.energy.take(tracking.sample)
            error, scale = tracking.energy_error, self.energy.scale
            values[0] = 100.0 * error / scale if scale else 0.0 * error
        if self._steep:
            values[1:3] = self._steepest()
        if (index := acting(self._limits, values, 0)) >= 0:
            self.breach = self.sample, self._rows[index].words(values[index])
        elif corridor is not None and corridor.left and self._corridor_trips:
            sample, why = corridor.left
            self.breach = sample, f"monitor.corridor: {why}"

    def _steepest(self) -> tuple[float, float]:
        """Return the steepest slope of a tracking indicator (m^2/s), and the steepest relative slope (1/s).

        A relative slope is divided by the square of the largest target. Slopes have a sign, but are compared by
        magnitude. Both results are 0 during the first SPAN samples.
        """
        tracking, last, smallest = self.tracking, self._indicators, self._smallest
        before, complete = last[0], len(last) == SPAN
        last.append(tracking.indicator)
        if not complete:
            return 0.0, 0.0
        steep = [(now - then) / (SPAN * self._dt) for now, then in zip(last[-1], before, strict=True)]
        if smallest is None:
            return max(steep, key=_size), 0.0
        sizes = [reach if reach > smallest else smallest for reach in tracking.reach]
        relative = [x / (size * size) if size else 0.0 for x, size in zip(steep, sizes, strict=True)]
        return max(steep, key=_size), max(relative, key=_size)

    def doubtful(self, errors: Array) -> NDArray[np.intp]:
        """Return the positions of energy errors ``(n,)`` J that can exceed the limit for some input energy."""
        return np.flatnonzero(~(np.abs(errors) <= self._within))

    def breaks(self, errors: Array, values: Array) -> bool:
        """Return whether the running energy monitor exceeds its limit at any of n samples.

        ``errors`` and the input energies ``values`` are ``(n,)`` J. Other limits must be checked sample by sample
        (``in_order``).
        """
        if self._percent is None:
            return False
        percents = self.energy.running_percents(errors, values)
        undefined = np.isnan(percents) & np.isfinite(errors) & np.isfinite(values)  # the denominator is zero
        return not bool((undefined | (np.abs(percents) <= self._percent)).all())

    @property
    def waits(self) -> bool:
        return any(delay.waits for delay in self.tracking.delays)

    def work(self) -> None:
        for delay in self.tracking.delays:
            if delay.waits:
                delay.work()
                return

    def status(self) -> Data:
        """Return the current indices, with the names of SyncStatus.msg."""
        self._take_targets()
        tracking = self.tracking
        return {
            "sample": max(self.sample, 0),
            "control_error": tracking.control_error,
            "max_control_error": tracking.maximum,
            "tracking_indicator": tracking.indicator,
            "energy_error_percent": self.energy.running_percent(tracking.energy_error),
        }

    def metrics(self) -> Data:
        """Return the indices as nested dictionaries. An undefined index is NaN."""
        self._take_targets()
        energy = self.energy.now
        largest = int(np.argmax(np.maximum(np.abs(energy.highest), np.abs(energy.lowest))))
        corridor = {"corridor": self.corridor.metrics()} if self.corridor else {}
        return {
            **corridor,
            "axes": self.tracking.indices(self.names, self._dt),
            "hsem_percent": self.energy.percent(self.tracking.energy_error),
            "max_displacement_m": energy.highest[largest],
            "min_displacement_m": energy.lowest[largest],
            "end_displacement_m": energy.before[largest],
        }


def _size(value: float) -> float:
    return math.inf if math.isnan(value) else abs(value)


QUANTITIES = (("displacement", "m"), ("force", "N"), ("energy", "J"))
OUTSIDE = "_outside_percent"


@dataclass(frozen=True, eq=False)
class Corridor:
    """Predicted bands in which a test should stay: envelope of many runs with different plants, plus a margin.

    A test that leaves a band reveals, for example, a slipping bolt or a drifting sensor before it exceeds a limit.
    The bands of QUANTITIES are ``lower`` to ``upper`` ``(3, n, n_axes)``, from sample 0. NaN means no band.
    ``nominal`` ``(3, n, n_axes)`` is the response of the nominal plant. ``source`` describes the prediction.
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
        with replaced(path) as beside, beside.open("wb") as file:
            np.savez_compressed(
                file, told=np.array(header), lower=self.lower, upper=self.upper, nominal=self.nominal
            )


def load_corridor(path: str, axes: tuple[str, ...], servo_rate: float, samples: int) -> Corridor:
    try:
        data = read_arrays(read_bytes(path, LARGEST), LARGEST)
        header = json.loads(str(data["told"]))
        bands = [np.asarray(data[name], dtype=np.float64) for name in ("lower", "upper", "nominal")]
        corridor = Corridor(tuple(header["axes"]), float(header["servo_rate"]), str(header["source"]), *bands)
        if any(band.shape != (len(QUANTITIES), corridor.samples + 1, len(corridor.axes)) for band in bands):
            raise ValueError("the bands have wrong sizes")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: is not a file from rths corridor ({error})") from None
    if corridor.axes != axes:
        raise ConfigError(f"{path}: has the axes {', '.join(corridor.axes)}, but the test has {', '.join(axes)}")
    if corridor.servo_rate != servo_rate:
        raise ConfigError(f"{path}: is for {corridor.servo_rate:g} Hz, but the test runs at {servo_rate:g} Hz")
    if corridor.samples < samples:
        raise ConfigError(f"{path}: has {corridor.samples} samples, but the test has {samples}")
    return corridor


def corridor_quantities(displacement: Array, force: Array) -> Array:
    """Return ``QUANTITIES`` ``(3, n - 1, n_axes)`` at samples 1, 2, ..., n - 1. The energy is 0 at sample 0.

    ``displacement`` (m) and ``force`` (N) are ``(n, n_axes)``. Energies are summed as in
    :meth:`CorridorWatch.step`.
    """
    work = 0.5 * (force[1:] + force[:-1]) * np.diff(displacement, axis=0)
    return np.stack((displacement[1:], force[1:], np.add.accumulate(work, axis=0) + 0.0))


class CorridorWatch:
    """Follows a test sample by sample, and detects when the test leaves its corridor.

    Each quantity of an axis is a limit row whose bounds change with the sample. ``left`` is None until a quantity
    has been outside its band for ``persistence`` samples. It then contains the sample and a text. ``energies`` are
    the energies absorbed by each axis, J.
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
        """Set the initial displacements (m) and forces (N), ``(n_axes,)``. Default: values of the first sample."""
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
        # where a bound is NaN, the quantity has no band
        rows = tuple((i, low, high, self._persistence) for i, (low, high) in bands if low == low)
        index = acting((rows, self._in_a_row, self._last), values, sample)
        self._outside = [count + (then == sample) for count, then in zip(self._outside, self._last, strict=True)]
        if self.left is None and index >= 0:
            number, axis = divmod(index, len(self.energies))
            path, (name, unit), value = f"axes.{self._corridor.axes[axis]}", QUANTITIES[number], values[index]
            band = f"between {lower[index]:.6g} and {upper[index]:.6g} {unit}"
            self.left = sample, f"{path}: {name} = {value:.6g} {unit}, but was predicted {band}"

    def metrics(self) -> dict[str, float]:
        """Return the percentage of samples outside each band, for the worst axis, and the sample of ``left``."""
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
