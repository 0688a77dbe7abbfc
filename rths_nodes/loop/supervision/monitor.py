"""The monitor: feeds the indices block by block and checks the limits on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import number, params, path, text
from rths_nodes.core.samples import FLAG_SOFT_START, Array, Command, Measurement, Target
from rths_nodes.loop.supervision.corridor import Corridor, CorridorWatch
from rths_nodes.loop.supervision.indices import BLOCK, EnergyMonitor, Tracking

INDICATE, TRIP = "indicate", "trip"


@params
class MonitorParams:
    """Limits on the indices of the whole rig; each is off when left out."""

    longest_delay: float = number(
        "largest delay, of either sign, that is searched for", "s", 0.1, more_than=0.0, at_most=1.0
    )
    energy_error_percent: float | None = number(
        "largest magnitude of the running energy monitor; not limited if left out", "%", None, more_than=0.0
    )
    reference_energy: float | None = number(
        "added to the input energy, which is near zero at first, by the running energy monitor; if left out, the "
        "strain energy of the structure at first yield",
        "J",
        None,
        at_least=0.0,
    )
    tracking_indicator_rate: float | None = number(
        "largest magnitude of the slope of the tracking indicator over a block; not limited if left out",
        "m^2/s",
        None,
        more_than=0.0,
    )
    tracking_indicator_rate_over_amplitude: float | None = number(
        "the same over the square of the largest target so far: for a sine of frequency f that is late by an "
        "angle phi it is pi f sin(phi); not limited if left out",
        "1/s",
        None,
        more_than=0.0,
    )
    smallest_amplitude: float | None = number(
        "where the largest target so far is smaller, this takes its place; needed for the limit above",
        "m",
        None,
        more_than=0.0,
    )
    corridor: str | None = path("file of rths corridor: the bands in which the test is expected to stay", None)
    corridor_action: str = text(
        "what is done when the test leaves the corridor", INDICATE, choices=(INDICATE, TRIP)
    )
    corridor_persistence: float = number(
        "how long a quantity must be outside before the test has left the corridor", "s", 0.05, at_least=0.0
    )

    def validate(self, path: str) -> None:
        """Refuses a limit over an amplitude that may be zero, and a trip by a corridor that is not there."""
        if self.tracking_indicator_rate_over_amplitude is not None and self.smallest_amplitude is None:
            raise ConfigError(
                f"{path}.smallest_amplitude: missing: tracking_indicator_rate_over_amplitude needs it, for the "
                "beginning of the test"
            )
        if self.corridor is None and self.corridor_action == TRIP:
            raise ConfigError(f"{path}.corridor_action = '{TRIP}': {path}.corridor must be given")


class Monitor:
    """All indices of a test, and the limits on them.

    It takes every Target, Command and Measurement in order of their numbers (Measurement 0 first), and gives the
    ``metrics`` at the end. ``names`` are those of the axes. ``breach`` is the first sample at which a limit was
    broken, and the reason. Samples of the soft start are followed but do not count: the indices are those of
    the test alone.
    """

    def __init__(
        self,
        params: MonitorParams,
        axes: Sequence[str],
        n_dof: int,
        dt: float,
        elastic_energy: float,
        energy_scale: Array | None = None,
        corridor: Corridor | None = None,
    ) -> None:
        """``energy_scale`` as of :class:`EnergyMonitor`."""
        self._p = params
        self.names = tuple(axes)
        self._dt = dt
        n_axes = len(self.names)
        self.longest = max(1, math.ceil(params.longest_delay / dt))
        self.tracking = Tracking(n_axes, self.longest)
        self.energy = EnergyMonitor(n_axes, elastic_energy, energy_scale)
        self.corridor: CorridorWatch | None = None
        if corridor is not None:
            self.corridor = CorridorWatch(corridor, math.ceil(params.corridor_persistence / dt))
        self.breach: tuple[int, str] | None = None
        self.sample = -1
        self._target, self._measured, self._force = (np.zeros((BLOCK, n_axes)) for _ in range(3))
        self._fill = 0
        self._row = 0
        self._preparing = False
        self._amplitude = np.full(n_axes, params.smallest_amplitude or 0.0)
        self._highest = np.full(n_dof, -math.inf)
        self._lowest = np.full(n_dof, math.inf)
        self._last: Array = np.zeros(n_dof)
        self._displacements: list[Array] = []
        """Of the Targets since the last block, ``(n_dof,)`` m."""

    @property
    def completes_block(self) -> bool:
        """True when the next sample completes a block: evaluating it takes much longer than storing a sample."""
        return self._fill == BLOCK - 1

    def target(self, target: Target) -> None:
        """The next Target."""
        self.energy.target(target)
        if target.flags & FLAG_SOFT_START:
            self._preparing |= target.step == 0  # Measurement 0 has no command with flags
            return
        self._displacements.append(target.displacement.copy())

    def step(self, command: Command | None, measured: Measurement) -> None:
        """Measurement k with Command k; without a command (sample 0, safe stop) the applied one is the target."""
        if command is not None:
            self._prepare(bool(command.flags & FLAG_SOFT_START))
        row = self._row = self._fill
        self._target[row] = measured.command if command is None else command.target
        self._measured[row] = measured.displacement
        self._force[row] = measured.force
        self.sample = measured.sample
        if self._preparing:
            return
        self._fill = row + 1
        if self._fill == BLOCK:
            self.work_off()

    def _prepare(self, preparing: bool) -> None:
        """Evaluate what was stored before a soft start; begin all indices anew where it ends."""
        if preparing == self._preparing:
            return
        if preparing:
            self.work_off()
        else:
            row = self._row
            self.tracking = Tracking(len(self.names), self.longest)
            self.tracking.indicator.start(self._target[row], self._measured[row])
            self.energy.start(self._target[row], self._measured[row], self._force[row])
            if self.corridor:
                self.corridor.start(self._measured[row], self._force[row])
        self._preparing = preparing

    def skip(self, sample: int) -> None:
        """A sample of the safe stop: it does not count in the indices of the test."""
        self.work_off()
        self.sample = sample

    def work_off(self) -> None:
        """Evaluate the stored samples, at the end of a block or of the test."""
        if self._displacements:
            moved, self._last = np.array(self._displacements), self._displacements[-1]
            self._displacements.clear()
            np.maximum(self._highest, moved.max(axis=0), out=self._highest)
            np.minimum(self._lowest, moved.min(axis=0), out=self._lowest)
        n = self._fill
        if not n:
            return
        self._fill = 0
        target, measured, force = self._target[:n], self._measured[:n], self._force[:n]
        before = self.tracking.indicator.value
        self.tracking.update(target, measured)
        energy = self.energy.update(target, measured, force)
        if self.corridor:
            self.corridor.update(self.sample - n + 1, measured, force)
        if self._p.smallest_amplitude is not None:
            np.maximum(self._amplitude, np.abs(target).max(axis=0), out=self._amplitude)
        if self.breach is None:
            self._check(self.sample - n + 1, before, energy)

    def _check(self, first: int, before: Array, energy: Array) -> None:
        limit = self._p.energy_error_percent
        if limit is not None:
            running = self.energy.running_percent(energy)
            over = np.flatnonzero(~(np.abs(running) <= limit) & ~np.isnan(running))
            if len(over):
                value = running[over[0]]
                self._breach(first + int(over[0]), "energy_error_percent", value, limit, "%")
        for name, unit, scale in (
            ("tracking_indicator_rate", "m^2/s", None),
            ("tracking_indicator_rate_over_amplitude", "1/s", self._amplitude),
        ):
            limit = getattr(self._p, name)
            if limit is None:
                continue
            rate = (self.tracking.indicator.value - before) / (len(energy) * self._dt)
            rate = rate if scale is None else rate / scale**2
            worst = int(np.argmax(np.abs(rate)))
            if not abs(rate[worst]) <= limit:
                self._breach(self.sample, name, float(rate[worst]), limit, unit)
        if not np.all(np.isfinite(self.tracking.indicator.value)):
            self._breach(self.sample, "tracking_indicator", math.nan, math.inf, "m^2")
        if self.breach is None and self._p.corridor_action == TRIP and self.corridor and self.corridor.left:
            sample, why = self.corridor.left
            self.breach = sample, f"monitor.corridor: {why}"

    def _breach(self, sample: int, name: str, value: float, limit: float, unit: str) -> None:
        if self.breach is None:
            self.breach = (sample, f"monitor.{name}: {value:.6g} {unit}: must be within +- {limit:g} {unit}")

    def status(self) -> dict[str, Any]:
        """Running indices, as in SyncStatus.msg."""
        last = self._row
        return {
            "sample": max(self.sample, 0),
            "control_error": (self._target[last] - self._measured[last]).tolist(),
            "max_control_error": self.tracking.error.maximum.tolist(),
            "tracking_indicator": self.tracking.indicator.value.tolist(),
            "energy_error_percent": self.energy.running_percent(self.energy.error),
        }

    def metrics(self) -> dict[str, Any]:
        """The indices by name, nested; nan where an index is not defined."""
        self.work_off()
        largest = int(np.argmax(np.maximum(np.abs(self._highest), np.abs(self._lowest))))
        told = {"corridor": self.corridor.metrics()} if self.corridor else {}
        return {
            **told,
            "axes": self.tracking.indices(self.names, self._dt),
            "hsem_percent": self.energy.percent,
            "max_displacement_m": float(self._highest[largest]),
            "min_displacement_m": float(self._lowest[largest]),
            "end_displacement_m": float(self._last[largest]),
        }
