"""Adaptive time series compensation, ATS (Chae, Kazemibidokhti & Ricles 2013).

The actuator's inverse, as a series of the target x and its derivatives, with coefficients found while it runs:

    u = a0 x + a1 x' + a2 x''
    (a0, a1, a2) = least squares of  u = a0 xm + a1 xm' + a2 xm''  over the last `window` seconds

from the commands u that were sent and the displacements xm that were measured. Both go through the same low-pass
filter, so that it cancels from the relation. A second-order actuator has (1, 2 zeta / w, 1 / w^2), a pure delay
about (1, delay, delay^2 / 2).

Three things differ from the print:

- The derivatives of the filtered xm are inner states of the filter, not differences of its output: exact for a
  measurement that runs straight from sample to sample, and without the noise of a difference.
- A motion of one frequency cannot tell a0 from a2 (x'' = -w^2 x), and the least squares become singular. Here they
  look for the smallest change of the coefficients, (S + r tr S I) delta = s: what the motion does not tell stays
  as it is. Where it does tell, the repeated solution ends at the least squares.
- The coefficients move to a new solution within `rate`, sample by sample, rather than in one step each.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rths_nodes.control.compensators.ahead import Ahead, lead_parameter
from rths_nodes.control.compensators.derivative_filter import DerivativeFilter
from rths_nodes.control.compensators.ramp_cautions import acceleration_cautions
from rths_nodes.core.checks import TestContext
from rths_nodes.core.control import Compensator
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.parameters import integer, number, params, vector
from rths_nodes.core.samples import Array, Motion

COEFFICIENTS = 3
"""a0, a1, a2."""

LEAST_ROWS = 2 * COEFFICIENTS
"""Rows in the window: as many as coefficients would fit noise exactly."""

LOWER_A0, UPPER_A0 = 0.7, 1.3
"""Limits of a0, the inverse of the actuator's amplitude at low frequency."""

UPPER_A1 = 2.5
"""Upper limit of a1 in delays."""

UPPER_A2 = 2.5
"""Upper limit of a2 in squares of the delay, which is (2 zeta)^-2 of a second-order actuator: zeta >= 0.32."""

TRAVEL_TIME = 2.0
"""Seconds in which a coefficient may go from one limit to the other."""

UNITS = "1 or s or s^2"


class AdaptiveTimeSeries(Compensator):
    """Inverse of second order whose coefficients follow from a moving window of commands and measurements."""

    @params
    class Params:
        delay: float = number(
            "delay to begin with, as identified: that of the transport included", "s", more_than=0.0
        )
        window: float = number(
            "time over which commands and measurements are fitted", "s", 1.0, more_than=0.0, at_most=60.0
        )
        decimation: int = integer(
            "every which sample is fitted, and a fit made", "samples", 16, at_least=1, at_most=1000
        )
        cutoff_frequency: float = number(
            "cut-off frequency of the low-pass filter on both signals", "Hz", 20.0, more_than=0.0
        )
        trigger_amplitude: float = number(
            "displacement that the window must hold for a fit; below, the coefficients rest",
            "m",
            1e-3,
            more_than=0.0,
        )
        regularization_ratio: float = number(
            "weight against changing what the motion does not tell, relative to what it tells",
            default=1e-3,
            at_least=1e-12,
            at_most=1.0,
        )
        initial: tuple[float, ...] | None = vector(
            "a0, a1, a2 to begin with; left out: 1, delay, delay^2/2", UNITS, None
        )
        lower: tuple[float, ...] | None = vector("lower limits of a0, a1, a2; left out: 0.7, 0, 0", UNITS, None)
        upper: tuple[float, ...] | None = vector(
            "upper limits of a0, a1, a2; left out: 1.3, 2.5 delay, 2.5 delay^2", UNITS, None
        )
        rate: tuple[float, ...] | None = vector(
            "largest change of a0, a1, a2 in a second; left out: from limit to limit in 2 s",
            "1/s or s/s or s^2/s",
            None,
            at_least=0.0,
        )
        lead: float = lead_parameter()

        def validate(self, path: str) -> None:
            """Refuses vectors that are not three, and a start outside the limits."""
            for name in ("initial", "lower", "upper", "rate"):
                given = getattr(self, name)
                if given is not None and len(given) != COEFFICIENTS:
                    raise ConfigError(f"{path}.{name}: {len(given)} numbers; must be {COEFFICIENTS}: a0, a1, a2")
            for index, (low, start, high) in enumerate(zip(*self.bounded(), strict=True)):
                if not low <= start <= high:
                    raise ConfigError(
                        f"{path}.initial[{index}] = {start:g}: must be within lower = {low:g} and upper = {high:g}"
                    )

        def bounded(self) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
            """Lower limits, start and upper limits of a0, a1, a2."""
            delay = self.delay
            return (
                self.lower or (LOWER_A0, 0.0, 0.0),
                self.initial or (1.0, delay, 0.5 * delay**2),
                self.upper or (UPPER_A0, UPPER_A1 * delay, UPPER_A2 * delay**2),
            )

        def spans(self) -> dict[str, float]:
            """Parameter -> seconds of history that it needs."""
            return {"window": self.window, "delay": self.delay}

        def cautions(self, test: TestContext) -> list[str]:
            """Warnings about the ramp in front."""
            return acceleration_cautions(test)

    state_units: Mapping[str, str] = {"a0": "1", "a1": "s", "a2": "s^2"}

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        self._p = params
        self._n_axes = n_axes
        self._filter = DerivativeFilter(params.cutoff_frequency, dt, 2 * n_axes)
        self._fit = WindowFit(params, self._filter.frequency, dt, n_axes)
        lower, initial, upper = (np.array(values)[:, None] for values in params.bounded())
        ends = zip(self.state_units, *(values[:, 0].tolist() for values in (lower, upper)), strict=True)
        self.state_limits: Mapping[str, tuple[float, float]] = {name: (low, high) for name, low, high in ends}
        rate = (upper - lower) / TRAVEL_TIME if params.rate is None else np.array(params.rate)[:, None]
        self._initial, self._step = initial, rate * dt
        self._settling = round(1.0 / (params.cutoff_frequency * dt))
        self._sent = np.zeros((2, n_axes))
        self._ahead = Ahead(params.lead, dt, n_axes)
        self._coefficients = np.zeros((COEFFICIENTS, n_axes))
        self.state_names = tuple(f"{name}[{axis}]" for axis in range(n_axes) for name in self.state_units)
        self.reset()

    def reset(self) -> None:
        """At rest at zero, with the coefficients of the parameters."""
        self._filter.reset()
        self._fit.reset()
        self._ahead.reset()
        self._coefficients[:] = self._initial
        self._sent[:] = 0.0
        self._sample = self._rest = 0

    def step(self, target: Motion, measured: Array) -> Array:
        self._watch(measured, target.flagged)
        a = self._coefficients
        if self._rest == 0:
            np.minimum(np.maximum(self._fit.wanted, a - self._step), a + self._step, out=a)
        target = self._ahead.of(target)
        command: Array = a[0] * target.displacement + a[1] * target.velocity + a[2] * target.acceleration
        self._sent[0] = command
        return command

    def _watch(self, measured: Array, flagged: bool) -> None:
        """Filter the last command with what was measured of it; at every ``decimation``-th sample, fit."""
        self._sent[1] = measured
        series = self._filter.step(self._sent.reshape(-1))
        # a bridged measurement leaves its trace in the filter for about a period of the cut-off
        self._rest = self._settling if flagged else max(0, self._rest - 1)
        self._sample = (self._sample + 1) % self._p.decimation
        if self._rest:
            return
        if self._sample == 0:
            self._fit.add(series[0, : self._n_axes], series[:COEFFICIENTS, self._n_axes :])
        # one axis after the other, so that no sample takes long
        for axis in range(self._sample, self._n_axes, self._p.decimation):
            self._fit.fit(axis)

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Command over target at ``omega`` (rad/s) with the first coefficients, and exact derivatives."""
        a0, a1, a2 = self._p.bounded()[1]
        s = 1j * omega
        return np.asarray((a0 + a1 * s + a2 * s**2) * self._ahead.response(omega))

    def state(self) -> list[float]:
        values: list[float] = self._coefficients.T.ravel().tolist()
        return values


class WindowFit:
    """Least squares of the commands by the measurements and their derivatives, over a moving window.

    ``wanted`` (3, n_axes) are the coefficients of the last fit, within their limits.
    """

    def __init__(self, params: AdaptiveTimeSeries.Params, frequency: float, dt: float, n_axes: int) -> None:
        rows = round(params.window / (params.decimation * dt))
        if rows < LEAST_ROWS:
            least = LEAST_ROWS * params.decimation * dt
            raise ConfigError(
                f"compensator.window = {params.window:g} s: must be >= {least:g} s, {LEAST_ROWS} rows of "
                f"{params.decimation} samples"
            )
        lower, self._initial, upper = params.bounded()
        # the filter gives derivatives over powers of its frequency; in shares of their ranges all coefficients
        # weigh the same, and one whose range is empty stays where it is
        powers = [frequency**index for index in range(COEFFICIENTS)]
        shares = [(high - low) * power for low, high, power in zip(lower, upper, powers, strict=True)]
        self._columns = list(zip(lower, upper, powers, shares, strict=True))
        self._shares = shares
        self._trigger, self._ratio = params.trigger_amplitude, params.regularization_ratio
        self._rows = np.zeros((n_axes, COEFFICIENTS + 1, rows))
        self.wanted = np.zeros((COEFFICIENTS, n_axes))

    def reset(self) -> None:
        """Nothing seen yet."""
        self._rows[:] = 0.0
        self._row = 0
        self.wanted[:] = np.array(self._initial)[:, None]

    def add(self, command: Array, measured: Array) -> None:
        """One row: the filtered command ``(n_axes,)``, the measurement and its derivatives ``(3, n_axes)``."""
        rows = self._rows
        rows[:, :COEFFICIENTS, self._row] = measured.T
        rows[:, COEFFICIENTS, self._row] = command
        self._row = (self._row + 1) % rows.shape[2]

    def fit(self, axis: int) -> None:
        """Fit one axis, if it has moved enough."""
        rows = self._rows[axis]
        if max(rows[0].max(), -rows[0].min()) <= self._trigger:
            return
        products = (rows @ rows.T).tolist()
        wanted = self.wanted[:, axis].tolist()
        change = self._change(products, [a * column[2] for a, column in zip(wanted, self._columns, strict=True)])
        for index, (low, high, power, share) in enumerate(self._columns):
            moved = wanted[index] + change[index] * share / power
            self.wanted[index, axis] = min(max(moved, low), high)

    def _change(self, products: list[list[float]], now: list[float]) -> tuple[float, float, float]:
        """Smallest change, in shares, that explains what the coefficients ``now`` miss."""
        x, y, z, u = products
        s, t, r = self._shares
        a, b, c = now
        xx, xy, xz, yy, yz, zz = s * s * x[0], s * t * x[1], s * r * x[2], t * t * y[1], t * r * y[2], r * r * z[2]
        weight = self._ratio * (xx + yy + zz) or 1.0
        missed = (
            s * (u[0] - x[0] * a - x[1] * b - x[2] * c),
            t * (u[1] - y[0] * a - y[1] * b - y[2] * c),
            r * (u[2] - z[0] * a - z[1] * b - z[2] * c),
        )
        return solved((xx + weight, xy, xz, yy + weight, yz, zz + weight), missed)


def solved(left: tuple[float, ...], right: tuple[float, ...]) -> tuple[float, float, float]:
    """Solution of three equations with a symmetric positive definite matrix, given by its upper triangle.

    Plain floats: a call of numpy.linalg.solve takes longer than a sample may.
    """
    xx, xy, xz, yy, yz, zz = left
    p, q, r = right
    f, g = xy / xx, xz / xx
    yy, yz, zz = yy - f * xy, yz - f * xz, zz - g * xz
    q, r = q - f * p, r - g * p
    h = yz / yy
    third = (r - h * q) / (zz - h * yz)
    second = (q - yz * third) / yy
    return (p - xy * second - xz * third) / xx, second, third
