"""Adaptive inverse compensation (Chen & Ricles 2010, Eqs. 6-10; 2009).

One sample, literally as published: with the pair (d^c, d^m) of the sample before,

    A  += (c + c')(m - m') / 2,   TA += (m + m')(c - c') / 2,   TI = (A - TA) / 2      Eqs. (8), (9)
    d_alpha = k_p TI + k_i I,  then  I += dt TI                                        Eqs. (7), (10)
    d^p = alpha c - (alpha - 1) c',  alpha = alpha_es + d_alpha                        Eqs. (5b), (6)

where ' is one sample earlier: the integral lags by one sample, as z/(z-1) delayed in Eq. (10) does. Positive
slope of TI: the actuator lags (OpenFresco has the opposite sign).

The gains are not scale free: k_p must be rescaled with amplitude^-2 and frequency^-2, and with the servo rate.
"""

from __future__ import annotations

import math

import numpy as np

from rths_nodes.components import Array, Motion
from rths_nodes.params import ConfigError, number, params

PER_MM2 = 1e6
"""1/mm^2 in 1/m^2."""

PAPER_GAIN_RATIO = 0.1
"""k_i / k_p in 1/s in all experiments of the paper."""


class AdaptiveInverse:
    """Inverse compensation whose delay constant follows the tracking indicator, per axis.

    The options, all off by default, because the default is the published law:

    - ``alpha_min``, ``alpha_max``: a gain several times the paper's runs away, and an alpha below 1 or far above
      the actuator's makes the command a differentiator of noise. While alpha is at a limit the integral rests.
    - ``alpha_rate``: a jump of alpha is a jump of the command, of size d_alpha times the target's increment.
    - ``quiet_velocity``: after the motion has died out TI freezes at what is left, and the integral of a
      constant grows for ever (wind-up). The integral rests while the target's velocity, as a peak that decays
      with ``quiet_time``, is below this.
    """

    @params
    class Params:
        alpha_es: float = number("estimated delay constant", "samples", 29.0, at_least=1.0)
        k_p_per_mm2: float = number("proportional gain on TI", "1/mm^2", 0.4, at_least=0.0)
        k_i_per_mm2_s: float | None = number(
            "integral gain on TI; left out it is 0.1/s times k_p, as in the paper",
            "1/(mm^2 s)",
            None,
            at_least=0.0,
        )
        alpha_min: float | None = number("lower limit of alpha; none if left out", "samples", None, at_least=1.0)
        alpha_max: float | None = number("upper limit of alpha; none if left out", "samples", None, at_least=1.0)
        alpha_rate: float | None = number(
            "limit of the rate of alpha; none if left out", "samples/s", None, more_than=0.0
        )
        quiet_velocity: float | None = number(
            "target velocity below which the integral rests; never if left out", "m/s", None, more_than=0.0
        )
        quiet_time: float = number("time in which a peak of the velocity is forgotten", "s", 1.0, more_than=0.0)

        def validate(self, path: str) -> None:
            low, high = self.alpha_min or 1.0, self.alpha_max or math.inf
            if self.alpha_min is not None and self.alpha_max is not None and low >= high:
                raise ConfigError(f"{path}.alpha_min = {low:g} samples: must be < alpha_max = {high:g} samples")
            if (self.alpha_min is not None and self.alpha_es < low) or self.alpha_es > high:
                raise ConfigError(
                    f"{path}.alpha_es = {self.alpha_es:g} samples: must be within alpha_min and alpha_max"
                )

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        self._p = params
        self._dt = dt
        self._k_p = params.k_p_per_mm2 * PER_MM2
        k_i = params.k_i_per_mm2_s
        self._k_i = (PAPER_GAIN_RATIO * params.k_p_per_mm2 if k_i is None else k_i) * PER_MM2
        self._low = params.alpha_min if params.alpha_min is not None else -math.inf
        self._high = params.alpha_max if params.alpha_max is not None else math.inf
        self._rate = params.alpha_rate * dt if params.alpha_rate is not None else math.inf
        self._quiet_step = (params.quiet_velocity or 0.0) * dt
        self._forget = math.exp(-dt / params.quiet_time)
        self._n_axes = n_axes
        self._command = np.zeros(n_axes)
        self.state_names = tuple(
            f"{name}[{axis}]" for axis in range(n_axes) for name in ("alpha", "delta_alpha", "tracking_indicator")
        )
        self.reset()

    def reset(self) -> None:
        """No motion yet, no adaptation yet."""
        self._laws = [_Law(self._p.alpha_es) for _ in range(self._n_axes)]

    def step(self, target: Motion, measured: Array) -> Array:
        command, frozen = self._command, target.flagged
        values = zip(self._laws, target.displacement.tolist(), measured.tolist(), strict=True)
        for axis, (law, c, m) in enumerate(values):
            self._adapt(law, m, frozen)
            command[axis] = law.alpha * c - (law.alpha - 1.0) * law.target
            law.before, law.target = law.target, c
        return command

    def _adapt(self, law: _Law, m: float, frozen: bool) -> None:
        c, c_before = law.target, law.before
        moved, law.measured = law.measured, m
        if frozen:
            return
        law.area += 0.5 * (c + c_before) * (m - moved)
        law.complement += 0.5 * (m + moved) * (c - c_before)
        law.indicator = 0.5 * (law.area - law.complement)
        wanted = self._p.alpha_es + (self._k_p * law.indicator + self._k_i * law.integral)
        limited = min(max(wanted, self._low), self._high)
        law.alpha = min(max(limited, law.alpha - self._rate), law.alpha + self._rate)
        law.peak = max(abs(c - c_before), law.peak * self._forget)
        if limited == wanted and law.peak >= self._quiet_step:
            law.integral += self._dt * law.indicator

    def state(self) -> list[float]:
        values: list[float] = []
        for law in self._laws:
            values += (law.alpha, law.alpha - self._p.alpha_es, law.indicator)
        return values


class _Law:
    """What one axis remembers."""

    __slots__ = (
        "alpha",
        "area",
        "before",
        "complement",
        "indicator",
        "integral",
        "measured",
        "peak",
        "target",
    )

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha
        self.area = self.complement = self.indicator = self.integral = 0.0
        self.target = self.before = self.measured = self.peak = 0.0
