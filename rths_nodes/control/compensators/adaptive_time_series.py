# SPDX-License-Identifier: Apache-2.0
"""Adaptive time series compensation, ATS (Chae, Kazemibidokhti & Ricles 2013).

The inverse of the actuator is a series of the target x and its derivatives, with coefficients identified online:

    u = a0 x + a1 x' + a2 x''
    (a0, a1, a2) = least squares of  u = a0 xm + a1 xm' + a2 xm''  over the last `window` seconds

with the commands u and the measured displacements xm. Both pass the same low-pass filter, which does not affect
the relation. An actuator with the natural frequency w (rad/s) and the damping ratio zeta has the
coefficients (1, 2 zeta / w, 1 / w^2). A pure delay has approximately (1, delay, delay^2 / 2).

Three details differ from the publication:

- The derivatives of the filtered xm are inner states of the filter (``derivative_filter.py``).
- For a motion of one frequency, x'' is proportional to x, and the least-squares problem is singular in a0 and a2.
  The fit therefore penalises changes of the coefficients. Repeated fits converge to the least-squares solution if
  the motion determines the coefficients.
- The coefficients move to a new solution no faster than `rate`, not in one step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rths_nodes.control.compensators.derivative_filter import (
    KNOWN,
    Columns,
    DerivativeFilter,
    Five,
    Four,
    added,
    block_of,
    limited,
)
from rths_nodes.control.compensators.per_axis import PerAxis, acceleration_cautions, lead_parameter
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import TestContext, integer, number, params, vector
from rths_nodes.core.samples import Array

Three = tuple[float, float, float]
Sums = tuple[float, float, float, float, float, float, float, float, float]
"""Sums of the products xx, xy, xz, yy, yz, zz, xu, yu, zu over rows (x, y, z, u) of the fit."""
NONE = ((0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), 0)
COEFFICIENTS = 3
LEAST_ROWS = 2 * COEFFICIENTS
"""Smallest number of rows in the window. A fit to fewer rows follows noise."""
LOWER_A0, UPPER_A0 = 0.7, 1.3
"""Limits of a0, the reciprocal of the actuator's gain at low frequency."""
UPPER_A1 = 2.5
"""Upper limit of a1, relative to the delay."""
UPPER_A2 = 2.5
"""Upper limit of a2, relative to the squared delay; permits actuators with a damping ratio of at least 0.32."""
TRAVEL_TIME = 2.0
"""Time in which a coefficient can change from one limit to the other at the default ``rate``, s."""
UNITS = "1 or s or s^2"
NOTHING = (0.0, 0.0, 0.0, 0.0)


class Fit(NamedTuple):
    lower: Three
    upper: Three
    powers: Three
    """Powers 0, 1 and 2 of the filter's cut-off frequency (rad/s), by which the derivatives are divided."""
    shares: Three
    """Range of each coefficient times its element of ``powers``, so that all coefficients have equal weight; 0 for
    a constant coefficient."""
    ratio: float
    trigger: float


Counted = tuple[Sums, int]
"""Sums of the products of some rows, and the number of these rows whose displacement exceeds the trigger."""
Ring = tuple[Array, int, Counted, Counted, Counted, int]
"""Last rows ``(rows, 4)``; index of the oldest row; sums of all rows; sums of all rows after the oldest; sums and
number of the rows since the last complete window."""


def empty(rows: int) -> Ring:
    return np.zeros((rows, 4)), 0, NONE, NONE, NONE, 0


def raised(s: Counted, sign: int, trigger: float, x: float, y: float, z: float, u: float) -> Counted:
    """Return the sums ``s`` with the products of a row added (``sign`` = 1) or subtracted (``sign`` = -1)."""
    (xx, xy, xz, yy, yz, zz, xu, yu, zu), large = s
    p, q, r = sign * x, sign * y, sign * z
    sums = (
        xx + p * x,
        xy + p * y,
        xz + p * z,
        yy + q * y,
        yz + q * z,
        zz + r * z,
        xu + p * u,
        yu + q * u,
        zu + r * u,
    )
    return sums, large + sign if abs(x) > trigger else large


def without_oldest(k: Fit, s: Ring) -> Ring:
    """Return the ring with its oldest row removed from the sums."""
    rows, oldest, sums, _, fresh, filled = s
    x, y, z, u = float(rows[oldest, 0]), float(rows[oldest, 1]), float(rows[oldest, 2]), float(rows[oldest, 3])
    return rows, oldest, sums, raised(sums, -1, k[5], x, y, z, u), fresh, filled


def with_row(k: Fit, s: Ring, x: float, y: float, z: float, u: float) -> Ring:
    """Replace the oldest row with the new row (x, y, z, u), and update the sums."""
    rows, oldest, _, left, fresh, filled = s
    rows[oldest, 0] = x
    rows[oldest, 1] = y
    rows[oldest, 2] = z
    rows[oldest, 3] = u
    oldest += 1
    filled += 1
    if oldest == len(rows):
        oldest = 0
    sums, fresh = raised(left, 1, k[5], x, y, z, u), raised(fresh, 1, k[5], x, y, z, u)
    if filled == len(rows):
        sums, fresh, filled = fresh, NONE, 0
    return rows, oldest, sums, left, fresh, filled


def fitted(k: Fit, s: Ring, coefficients: Three) -> Three:
    """Return ``coefficients`` fitted within their limits, or unchanged if no displacement exceeds the trigger."""
    _, _, (sums, large), _, _, _ = s
    if large == 0:
        return coefficients
    lower, upper, powers, shares, ratio, _ = k
    x, y, z, yy, yz, zz, xu, yu, zu = sums
    (s0, s1, s2), (p0, p1, p2), (c0, c1, c2) = shares, powers, coefficients
    a, b, c = c0 * p0, c1 * p1, c2 * p2
    right = (
        s0 * (xu - x * a - y * b - z * c),
        s1 * (yu - y * a - yy * b - yz * c),
        s2 * (zu - z * a - yz * b - zz * c),
    )
    xx, xy, xz = s0 * s0 * x, s0 * s1 * y, s0 * s2 * z
    yy, yz, zz = s1 * s1 * yy, s1 * s2 * yz, s2 * s2 * zz
    weight = ratio * (xx + yy + zz)
    if weight == 0.0:
        weight = 1.0
    first, second, third = solved((xx + weight, xy, xz, yy + weight, yz, zz + weight), right)
    return (
        limited(c0 + first * s0 / p0, lower[0], upper[0]),
        limited(c1 + second * s1 / p1, lower[1], upper[1]),
        limited(c2 + third * s2 / p2, lower[2], upper[2]),
    )


def solved(left: tuple[float, ...], right: tuple[float, ...]) -> Three:
    """Solve three linear equations. ``left`` is the upper triangle of a symmetric positive definite matrix."""
    xx, xy, xz, yy, yz, zz = left
    p, q, r = right
    f, g = xy / xx, xz / xx
    yy, yz, zz = yy - f * xy, yz - f * xz, zz - g * xz
    q, r = q - f * p, r - g * p
    h = yz / yy
    third = (r - h * q) / (zz - h * yz)
    second = (q - yz * third) / yy
    return (p - xy * second - xz * third) / xx, second, third


class Constants(NamedTuple):
    inputs: Columns
    filter_rows: Columns
    last: int
    """Index of the last sample of a block."""
    settling: NDArray[np.int64]
    """Number of samples without fits after a bridged sample. It is an array ``(1,)`` so that it does not
    become a literal in the generated C code."""
    initial: Three
    rate: Three
    """Largest change of a coefficient per sample."""
    rows: int
    fit: Fit


class State(NamedTuple):
    row: int
    """Index of the last sample in its block; -1 after the end of a block."""
    turn: int
    """Sample of the block at which this axis is fitted; differs between axes to spread the computing time."""
    rest: int
    """Number of samples until fits resume."""
    sent: float
    coefficients: Three
    wanted: Three
    command: Four
    measured: Four
    """``command`` and ``measured`` hold the contributions of past samples to the filtered signals at the end of
    the block."""
    of_command: Five
    of_measured: Five
    """``of_command`` and ``of_measured`` each hold a filtered signal and its last input at the end of a block."""
    window: Ring


def constants(params: AdaptiveTimeSeries.Params, dt: float) -> Constants:
    every = params.decimation
    low_pass = DerivativeFilter(params.cutoff_frequency, dt)
    inputs, filter_rows = block_of(low_pass.matrix(every))
    rows = round(params.window / (every * dt))
    if rows < LEAST_ROWS:
        least = LEAST_ROWS * every * dt
        raise ConfigError(
            f"compensator.window = {params.window:g} s: must be >= {least:g} s, the duration of {LEAST_ROWS} "
            f"rows (samples per row: {every})"
        )
    lower, initial, upper = map(three, params.bounded())
    ranges = [high - low for low, high in zip(lower, upper, strict=True)]
    powers = three([low_pass.frequency**index for index in range(COEFFICIENTS)])
    shares = three([span * power for span, power in zip(ranges, powers, strict=True)])
    rate = params.rate or [span / TRAVEL_TIME for span in ranges]
    return Constants(
        inputs=inputs,
        filter_rows=filter_rows,
        last=every - 1,
        settling=np.array([round(1.0 / (params.cutoff_frequency * dt))]),
        initial=initial,
        rate=three([span * dt for span in rate]),
        rows=rows,
        fit=Fit(lower, upper, powers, shares, params.regularization_ratio, params.trigger_amplitude),
    )


def three(values: Sequence[float]) -> Three:
    a, b, c = values
    return a, b, c


def rest(k: Constants) -> State:
    still = (0.0, *NOTHING)
    return State(-1, k.last, 0, 0.0, k.initial, k.initial, NOTHING, NOTHING, still, still, empty(k.rows))


def step(
    k: Constants, s: State, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
) -> tuple[tuple[object, ...], float]:
    """Return the command a0 x + a1 v + a2 a. The coefficients are fitted once per block."""
    inputs, filter_rows, last, settling, _, rate, _, fit = k
    row, turn, resting, sent, coefficients, wanted, command, seen, of_command, of_seen, window = s
    row += 1
    column = inputs[row]
    command, seen = added(command, column, sent), added(seen, column, m)
    # a bridged measurement disturbs the filter for about one period of the cut-off frequency
    resting = settling[0] if rests else max(0, resting - 1)
    if row < KNOWN or row == last:
        for index in range(row, KNOWN if row == last else row + 1):
            command = added(command, filter_rows[index], of_command[index])
            seen = added(seen, filter_rows[index], of_seen[index])
    if row == KNOWN or (row == last and last < KNOWN):
        window = without_oldest(fit, window)
    if row == last:
        if resting == 0:
            window = with_row(fit, window, seen[0], seen[1], seen[2], command[0])
        (p, q, r, t), (b, c, d, e) = command, seen
        of_command, of_seen = (p, q, r, t, sent), (b, c, d, e, m)
        command, seen = NOTHING, NOTHING
    if resting == 0:
        if row == turn:
            wanted = fitted(fit, window, wanted)
        coefficients = moved(coefficients, wanted, rate)
    if row == last:
        row = -1
    a0, a1, a2 = coefficients
    sent = a0 * x + a1 * v + a2 * a
    return (row, turn, resting, sent, coefficients, wanted, command, seen, of_command, of_seen, window), sent


def moved(coefficients: Three, wanted: Three, rate: Three) -> Three:
    """Return ``coefficients``, each moved towards its value in ``wanted`` by at most ``rate``."""
    a, b, c = coefficients
    d, e, f = wanted
    p, q, r = rate
    return limited(d, a - p, a + p), limited(e, b - q, b + q), limited(f, c - r, c + r)


def shown(k: Constants, s: State) -> Three:
    _, _, _, _, coefficients, _, _, _, _, _, _ = s
    return coefficients


class AdaptiveTimeSeries(PerAxis):
    """Second-order inverse with coefficients fitted to a moving window of commands and measurements."""

    SOURCES = ("chae_2013",)

    @params
    class Params:
        delay: float = number(
            "initial value of the delay, as identified, including the transport", "s", more_than=0.0
        )
        window: float = number(
            "length of the window of commands and measurements to which the coefficients are fitted",
            "s",
            1.0,
            more_than=0.0,
            at_most=60.0,
        )
        decimation: int = integer(
            "number of samples per row of the fit; the coefficients are fitted once per row",
            "samples",
            16,
            at_least=1,
            at_most=1000,
        )
        cutoff_frequency: float = number(
            "cut-off frequency of the low-pass filter for commands and measurements", "Hz", 20.0, more_than=0.0
        )
        trigger_amplitude: float = number(
            "displacement that at least one row of the window must exceed; otherwise the coefficients are held",
            "m",
            1e-3,
            more_than=0.0,
        )
        regularization_ratio: float = number(
            "penalty on changes of the coefficients, relative to the trace of the least-squares matrix",
            default=1e-3,
            at_least=1e-12,
            at_most=1.0,
        )
        initial: tuple[float, ...] | None = vector("initial a0, a1, a2; default: 1, delay, delay^2/2", UNITS, None)
        lower: tuple[float, ...] | None = vector("lower limits of a0, a1, a2; default: 0.7, 0, 0", UNITS, None)
        upper: tuple[float, ...] | None = vector(
            "upper limits of a0, a1, a2; default: 1.3, 2.5 delay, 2.5 delay^2", UNITS, None
        )
        rate: tuple[float, ...] | None = vector(
            "largest change of a0, a1, a2 per second; default: from one limit to the other in 2 s",
            "1/s or s/s or s^2/s",
            None,
            at_least=0.0,
        )
        lead: float = lead_parameter()

        def validate(self, path: str) -> None:
            for name in ("initial", "lower", "upper", "rate"):
                bounds = getattr(self, name)
                if bounds is not None and len(bounds) != COEFFICIENTS:
                    raise ConfigError(
                        f"{path}.{name}: must have {COEFFICIENTS} numbers (a0, a1, a2), but has {len(bounds)}"
                    )
            for index, (low, start, high) in enumerate(zip(*self.bounded(), strict=True)):
                if not low <= start <= high:
                    raise ConfigError(
                        f"{path}.initial[{index}] = {start:g}: must be between lower = {low:g} and upper = "
                        f"{high:g}"
                    )

        def bounded(self) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
            delay = self.delay
            return (
                self.lower or (LOWER_A0, 0.0, 0.0),
                self.initial or (1.0, delay, 0.5 * delay**2),
                self.upper or (UPPER_A0, UPPER_A1 * delay, UPPER_A2 * delay**2),
            )

        def spans(self) -> dict[str, float]:
            return {"window": self.window, "delay": self.delay}

        def cautions(self, test: TestContext) -> list[str]:
            return acceleration_cautions(test)

    KERNEL = Kernel(constants, rest, step)
    SHOWN = staticmethod(shown)
    state_units: Mapping[str, str] = {"a0": "1", "a1": "s", "a2": "s^2"}

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        lower, _, upper = params.bounded()
        self.state_limits = dict(zip(self.state_units, zip(lower, upper, strict=True), strict=True))
        super().__init__(params, dt, n_axes)

    def reset(self) -> None:
        super().reset()
        for axis, state in enumerate(self.states):
            turned = (state[1] if self._leads else state)._replace(turn=(axis - 1) % self._p.decimation)
            self.states[axis] = (state[0], turned) if self._leads else turned

    def frequency_response(self, omega: Frequencies) -> Complex:
        a0, a1, a2 = self._p.bounded()[1]
        s = 1j * omega
        return np.asarray((a0 + a1 * s + a2 * s**2) * self.lead_response(omega))
