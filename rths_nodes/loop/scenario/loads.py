# SPDX-License-Identifier: Apache-2.0
"""Force target of an axis during the test: a value or a table, after a period at constant position.

tau is the time since the change of mode, and F_0 is the force measured at this change:

    value    F_0 + (value - F_0) s(tau / ramp_time),     s(x) = x^3 (10 - 15 x + 6 x^2), 1 from x = 1 on
    table    linear between its rows; first row from tau = 0 on, last row to the end

A vertical load V requires the axial force V / cos b of an actuator inclined by b (``mechanics/axial_load.py``).
The rate of both targets is limited to ``SHARE`` of the force rate limit, also between F_0 and the first row of a
table.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import Limits
from rths_nodes.core.parameters import evolved, flag, matrix, number, params

SHARE = 0.9
"""Largest rate of a target, as a fraction of the force rate limit."""

STEEPEST = 1.875
"""Largest slope of s(x)."""


@params
class Load:
    """Force target of an axis, with the sign of the measured forces of this axis."""

    value: float | None = number(
        "target force, in the scale of the structure; must be left out if table is set",
        "N",
        None,
        at_least=-1e9,
        at_most=1e9,
    )
    ramp_time: float | None = number(
        "time in which the force rises to value", "s", None, more_than=0.0, at_most=3600.0
    )
    table: tuple[tuple[float, ...], ...] | None = matrix(
        "rows of two numbers: time since the change of mode (s), and force (N); a CSV file has columns in the "
        "same order",
        "s, N",
        None,
    )
    held_for: float = number(
        "time at the start of the test during which the axis holds its position, before force control begins",
        "s",
        0.0,
        at_least=0.0,
        at_most=3600.0,
    )
    held_from: float | None = number(
        "time since the start of the test after which the axis holds its position again; default: never",
        "s",
        None,
        more_than=0.0,
        at_most=86_400.0,
    )

    vertical: bool = flag(
        "true: value and table are the vertical component of the force of an inclined actuator. The axial force "
        "is then this component divided by the cosine of the inclination, computed from column and coupled_to "
        "of the law. false: value and table are the axial force",
        False,
    )

    def over(self, scale: float) -> Load:
        if scale == 1.0:
            return self
        value = None if self.value is None else self.value / scale
        table = None if self.table is None else tuple((time, force / scale) for time, force in self.table)
        return evolved(self, value=value, table=table)

    def validate(self, path: str) -> None:
        if (self.value is None) == (self.table is None):
            raise ConfigError(f"{path}: must have either value and ramp_time, or table")
        if (self.value is None) != (self.ramp_time is None):
            raise ConfigError(f"{path}.ramp_time: must be set if value is set, and left out if table is set")
        if self.table is not None:
            if len(self.table[0]) != 2:
                raise ConfigError(
                    f"{path}.table: the rows have {len(self.table[0])} numbers, but must have 2 (time and force)"
                )
            times = [row[0] for row in self.table]
            if times[0] < 0.0 or any(b <= a for a, b in pairwise(times)):
                raise ConfigError(f"{path}.table: the times must be >= 0 s and must increase from row to row")
        if self.held_from is not None and self.held_from <= self.held_for:
            raise ConfigError(f"{path}.held_from = {self.held_from:g} s: must be > held_for = {self.held_for:g} s")

    @property
    def largest(self) -> float:
        values = [self.value] if self.value is not None else [row[1] for row in self.table or ()]
        return max(values, key=abs)

    @property
    def rise(self) -> float:
        """Time from the change of mode until the target has its final value, s."""
        return float(self.table[-1][0] if self.table else self.ramp_time or 0.0)

    def check(self, limits: Limits, path: str) -> None:
        largest = abs(self.largest)
        if largest >= limits.force:
            raise ConfigError(
                f"{path}: the force reaches {largest:g} N, but must be < limits.force = {limits.force:g} N"
            )
        rate = SHARE * (limits.force_rate or 0.0)
        if self.value is not None and self.ramp_time is not None:
            fastest = STEEPEST * abs(self.value) / self.ramp_time
            if fastest > rate:
                shortest = STEEPEST * abs(self.value) / rate
                raise ConfigError(
                    f"{path}.ramp_time = {self.ramp_time:g} s: must be >= {shortest:.4g} s, because "
                    f"limits.force_rate = {limits.force_rate:g} N/s"
                )
        for (t0, f0), (t1, f1) in pairwise(self.table or ()):
            if abs(f1 - f0) > rate * (t1 - t0):
                raise ConfigError(
                    f"{path}.table: the rate from {f0:g} N at {t0:g} s to {f1:g} N at {t1:g} s is "
                    f"{abs(f1 - f0) / (t1 - t0):g} N/s, but must be <= {rate:g} N/s, {SHARE:g} of "
                    "limits.force_rate"
                )


class LoadHistory:
    """Computes the force target of one axis sample by sample, in plain floats.

    ``force_rate`` (N/s) is the limit of the axis, and ``dt`` (s) the sample period.
    """

    def __init__(self, params: Load, force_rate: float, dt: float) -> None:
        self._p, self._step = params, SHARE * force_rate * dt
        self._times = [row[0] for row in params.table or ()]
        self._values = [row[1] for row in params.table or ()]
        self.begin(0.0)

    def begin(self, force: float) -> None:
        self._first = self.target = force

    def step(self, after: float) -> float:
        """Return the target (N) ``after`` seconds after the change of mode. Call once per sample, in order."""
        away = self._wanted(after) - self.target
        self.target += max(-self._step, min(self._step, away))
        return self.target

    def _wanted(self, after: float) -> float:
        p = self._p
        if p.value is not None and p.ramp_time is not None:
            x = min(after / p.ramp_time, 1.0)
            share = x * x * x * (10.0 - 15.0 * x + 6.0 * x * x)
            return self._first + share * (p.value - self._first)
        index = bisect_right(self._times, after)
        if index == 0 or index == len(self._times):
            return self._values[max(index - 1, 0)]
        t0, t1 = self._times[index - 1 : index + 1]
        f0, f1 = self._values[index - 1 : index + 1]
        return f0 + (f1 - f0) * (after - t0) / (t1 - t0)
