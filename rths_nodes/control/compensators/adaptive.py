"""The adaptive law of Chen & Ricles (2010) around any compensator with a delay, on either of two indicators.

The paper concludes that its law carries over from the inverse compensation to the linear-acceleration method and
to derivative feedforward, and from the tracking indicator TI to an energy indicator. One sample, with the pair of
target c and measured displacement m of the sample before (' is one sample earlier still, f the measured force):

    tracking   A  += (c + c')(m - m') / 2,   TA += (m + m')(c - c') / 2,   I = (A - TA) / 2       Eqs. (8), (9)
    energy     I  += (f + f') / 2 ((m - m') - (c - c'))                      Mosqueda et al. 2007, as in Fig. 11
    law        parameter = estimate + k_p I + k_i J,  then  J += dt I                        Eqs. (6), (7), (10)

The integral J lags by one sample, as z/(z-1) delayed in Eq. (10) does. A positive slope of either indicator means
that the actuator lags (OpenFresco has the opposite sign), and the parameter grows.

The gains are not scale free. k_p on TI must be rescaled with amplitude^-2 and frequency^-2, and with the servo
rate. On a specimen of stiffness k the energy indicator grows k times as fast as TI. It knows lag from lead only
through the elastic part of the force: behind a pure damper it is never negative, behind a mass it has the other
sign, and the law runs away.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rths_nodes.control.compensators.ahead import Ahead, lead_parameter
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.parameters import component, number, params, text
from rths_nodes.core.samples import Array, Motion

PER_MM2 = 1e6
"""1/mm^2 in 1/m^2."""

PAPER_GAIN_RATIO = 0.1
"""k_i / k_p in 1/s in all experiments of the paper."""

PAPER_GAIN_PER_MM2 = 0.4
"""k_p in 1/mm^2 of the paper's experiments."""


@params
class LawParams:
    """What every use of the law has in common: the options, all off by default, because that is what is published.

    - ``alpha_min``, ``alpha_max``: a gain several times the paper's runs away, and an alpha below 1 or far above
      the actuator's makes the command a differentiator of noise. While alpha is at a limit the integral rests.
    - ``alpha_rate``: a jump of alpha is a jump of the command, of size d_alpha times the target's increment.
    - ``quiet_velocity``: after the motion has died out TI freezes at what is left, and the integral of a
      constant grows for ever (wind-up). The integral rests while the target's velocity, as a peak that decays
      with ``quiet_time``, is below this.
    """

    alpha_min: float | None = number("lower limit of alpha; none if left out", "samples", None, at_least=1.0)
    alpha_max: float | None = number("upper limit of alpha; none if left out", "samples", None, at_least=1.0)
    alpha_rate: float | None = number(
        "limit of the rate of alpha; none if left out", "samples/s", None, more_than=0.0
    )
    quiet_velocity: float | None = number(
        "target velocity below which the integral rests; never if left out", "m/s", None, more_than=0.0
    )
    quiet_time: float = number("time in which a peak of the velocity is forgotten", "s", 1.0, more_than=0.0)
    lead: float = lead_parameter()

    def validate(self, path: str) -> None:
        """Refuses limits that leave no room."""
        low, high = self.alpha_min, self.alpha_max
        if low is not None and high is not None and low >= high:
            raise ConfigError(f"{path}.alpha_min = {low:g} samples: must be < alpha_max = {high:g} samples")

    def refuse_outside(self, alpha: float, place: str) -> None:
        """Raises ConfigError for an estimate beyond the limits."""
        if not (self.alpha_min or -math.inf) <= alpha <= (self.alpha_max or math.inf):
            raise ConfigError(f"{place} = {alpha:g} samples: must be within alpha_min and alpha_max")


@dataclass(frozen=True, slots=True)
class Gains:
    """The law in units of the parameter that it adapts: gains, limits, largest change in a sample."""

    k_p: float
    k_i: float
    low: float
    high: float
    largest_step: float
    quiet_step: float
    forgetting: float
    dt: float


class AdaptiveLaw:
    """Eqs. (6), (7), (10) of one axis: an indicator makes ``parameter`` out of its ``estimate``."""

    __slots__ = ("_gains", "_integral", "_peak", "estimate", "parameter")

    def __init__(self, estimate: float, gains: Gains) -> None:
        self._gains = gains
        self.estimate = self.parameter = estimate
        self._integral = self._peak = 0.0

    def adapt(self, indicator: float, moved: float) -> None:
        """One sample: the ``indicator`` up to the last one, and by how much the target ``moved`` (m) before it."""
        gains = self._gains
        wanted = self.estimate + (gains.k_p * indicator + gains.k_i * self._integral)
        limited = min(max(wanted, gains.low), gains.high)
        before = self.parameter
        self.parameter = min(max(limited, before - gains.largest_step), before + gains.largest_step)
        self._peak = max(abs(moved), self._peak * gains.forgetting)
        if limited == wanted and self._peak >= gains.quiet_step:
            self._integral += gains.dt * indicator


class TrackingIndicator:
    """TI of one axis, m^2; Eqs. (8), (9). Sample by sample; ``monitors.py`` has the same over whole blocks."""

    __slots__ = ("_area", "_complement", "value")

    def __init__(self) -> None:
        self.value = self._area = self._complement = 0.0

    def add(self, c: float, c_before: float, m: float, m_before: float, force: float) -> None:
        """From target and measured displacement (m) one sample ago to those now."""
        self._area += 0.5 * (c + c_before) * (m - m_before)
        self._complement += 0.5 * (m + m_before) * (c - c_before)
        self.value = 0.5 * (self._area - self._complement)


class EnergyIndicator:
    """Work of the measured force on the tracking error of one axis, N m: integral f d(m) - integral f d(c)."""

    __slots__ = ("_force", "value")

    def __init__(self) -> None:
        self.value = self._force = 0.0

    def add(self, c: float, c_before: float, m: float, m_before: float, force: float) -> None:
        """From target and measured displacement (m) one sample ago to those now, with the force (N) now."""
        self.value += 0.5 * (force + self._force) * ((m - m_before) - (c - c_before))
        self._force = force


INDICATORS: dict[str, type[TrackingIndicator] | type[EnergyIndicator]] = {
    "tracking": TrackingIndicator,
    "energy": EnergyIndicator,
}

UNITS = {
    "alpha": "samples",
    "delta_alpha": "samples",
    "delay": "s",
    "delta_delay": "s",
    "tracking_indicator": "m^2",
    "energy_indicator": "N m",
}
"""Of the inner numbers that are recorded."""


class Adaptive:
    """The adaptive law of Chen & Ricles (2010) around another compensator, whose own delay is the estimate."""

    @params
    class Params(LawParams):
        indicator: str = text("what tells a lag from a lead", "tracking", choices=tuple(INDICATORS))
        compensator: Any = component(
            "compensator",
            "whose alpha or delay is adapted: inverse, linear_acceleration, derivative_feedforward",
            {"type": "inverse"},
        )
        k_p_per_mm2: float | None = number(
            f"proportional gain on the tracking indicator; left out it is the paper's {PAPER_GAIN_PER_MM2}",
            "1/mm^2",
            None,
            at_least=0.0,
        )
        k_i_per_mm2_s: float | None = number(
            "integral gain on the tracking indicator; left out it is 0.1/s times k_p, as in the paper",
            "1/(mm^2 s)",
            None,
            at_least=0.0,
        )
        k_p_per_joule: float | None = number(
            "proportional gain on the energy indicator; start with k_p_per_mm2 * 1e6 / stiffness",
            "1/(N m)",
            None,
            at_least=0.0,
        )
        k_i_per_joule_s: float | None = number(
            "integral gain on the energy indicator; left out it is 0.1/s times k_p",
            "1/(N m s)",
            None,
            at_least=0.0,
        )

        def validate(self, path: str) -> None:
            """Refuses the gains of the other indicator, and the energy indicator without a gain."""
            LawParams.validate(self, path)
            if getattr(self.compensator, "lead", 0.0):
                raise ConfigError(
                    f"{path}.compensator.lead = {self.compensator.lead:g} s: must be left out; {path}.lead is "
                    "read "
                    "by the law as well"
                )
            mine, others = ("mm2", "joule") if self.indicator == "tracking" else ("joule", "mm2")
            for name in (f"k_p_per_{others}", f"k_i_per_{others}_s"):
                value = getattr(self, name)
                if value is not None:
                    raise ConfigError(
                        f"{path}.{name} = {value:g}: belongs to the other indicator; with "
                        f"{self.indicator} give k_p_per_{mine}"
                    )
            if self.indicator == "energy" and self.k_p_per_joule is None:
                raise ConfigError(f"{path}.k_p_per_joule: missing (gain on the energy indicator [1/(N m)])")

        def si_gains(self) -> tuple[float, float]:
            """k_p and k_i in samples per unit of the indicator (m^2, N m), k_i also per s."""
            if self.indicator == "energy":
                k_p, k_i, unit = self.k_p_per_joule or 0.0, self.k_i_per_joule_s, 1.0
            else:
                k_p = PAPER_GAIN_PER_MM2 if self.k_p_per_mm2 is None else self.k_p_per_mm2
                k_i, unit = self.k_i_per_mm2_s, PER_MM2
            return k_p * unit, (PAPER_GAIN_RATIO * k_p if k_i is None else k_i) * unit

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        self._inner = registry.build("compensator", params.compensator, dt, n_axes)
        self._indicator = INDICATORS[params.indicator]
        self._feels = params.indicator == "energy"
        name, sample, none = _adapted(self._inner, dt)
        self._parameter: Array = getattr(self._inner, name)
        self._gains = _gains(params, dt, sample, none)
        for value in self._parameter.tolist():
            params.refuse_outside(none + value / sample, "compensator.compensator: alpha")
        names = (name, f"delta_{name}", f"{params.indicator}_indicator")
        self.state_units: Mapping[str, str] = {name: UNITS[name] for name in names}
        self.state_limits: Mapping[str, tuple[float, float]] = {name: (self._gains.low, self._gains.high)}
        self.state_names = tuple(f"{name}[{axis}]" for axis in range(n_axes) for name in names)
        self._nothing = [0.0] * n_axes
        self._ahead = Ahead(params.lead, dt, n_axes)
        self.reset()

    def reset(self) -> None:
        """No motion yet, no adaptation yet."""
        self._inner.reset()
        self._ahead.reset()
        self._axes = [_Axis(self._indicator(), AdaptiveLaw(e, self._gains)) for e in self._parameter.tolist()]

    def step(self, target: Motion, measured: Array) -> Array:
        target = self._ahead.of(target)
        forces = target.force.tolist() if self._feels else self._nothing
        values = zip(self._axes, target.displacement.tolist(), measured.tolist(), forces, strict=True)
        for index, (axis, c, m, force) in enumerate(values):
            axis.follow(c, m, force, target.flagged)
            self._parameter[index] = axis.law.parameter
        command: Array = self._inner.step(target, measured)
        return command

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Command over target at ``omega`` (rad/s) with the estimate of the adapted parameter."""
        response: Complex = self._inner.frequency_response(omega)
        return response * self._ahead.response(omega)

    def state(self) -> list[float]:
        values: list[float] = []
        for axis in self._axes:
            law = axis.law
            values += (law.parameter, law.parameter - law.estimate, axis.indicator.value)
        return values


class _Axis:
    """One axis: its indicator, its law, and the last samples."""

    __slots__ = ("before", "indicator", "law", "measured", "target")

    def __init__(self, indicator: TrackingIndicator | EnergyIndicator, law: AdaptiveLaw) -> None:
        self.indicator = indicator
        self.law = law
        self.target = self.before = self.measured = 0.0

    def follow(self, c: float, m: float, force: float, resting: bool) -> None:
        """Adapt to the measurement ``m`` of the last sample, then remember the target ``c`` of this one."""
        if not resting:
            self.indicator.add(self.target, self.before, m, self.measured, force)
            self.law.adapt(self.indicator.value, self.target - self.before)
        self.measured = m
        self.before, self.target = self.target, c


def _adapted(inner: Any, dt: float) -> tuple[str, float, float]:
    """Name of what is adapted in a compensator, one sample in its unit, and the alpha of no delay at zero.

    alpha counts from the sample before, Eq. (3): a delay is alpha - 1 samples.
    """
    for name, sample, none in (("alpha", 1.0, 0.0), ("delay", dt, 1.0)):
        if hasattr(inner, name):
            return name, sample, none
    kind = getattr(type(inner).Params, "type_name", type(inner).__name__)
    raise ConfigError(
        f"compensator.compensator: {kind} has no alpha or delay to adapt; "
        "known: derivative_feedforward, inverse, linear_acceleration"
    )


def _gains(params: Adaptive.Params, dt: float, sample: float, none: float) -> Gains:
    k_p, k_i = params.si_gains()
    low = -math.inf if params.alpha_min is None else (params.alpha_min - none) * sample
    high = math.inf if params.alpha_max is None else (params.alpha_max - none) * sample
    return Gains(
        k_p=k_p * sample,
        k_i=k_i * sample,
        low=low,
        high=high,
        largest_step=math.inf if params.alpha_rate is None else params.alpha_rate * dt * sample,
        quiet_step=(params.quiet_velocity or 0.0) * dt,
        forgetting=math.exp(-dt / params.quiet_time),
        dt=dt,
    )
