# SPDX-License-Identifier: Apache-2.0
"""Compensators for a constant delay, or a delay adapted by the law of Chen & Ricles (2010).

``inverse``: inverse of a first-order actuator (Chen 2007; Chen & Ricles 2010, Eq. 5b).

``derivative_feedforward``: Taylor series that extrapolates the target by the delay (Mercan; Jung & Shing 2006).
For the delay tau, order 1 is the inverse of a first-order lag. Order 2 is the inverse of a second-order lag with
the natural frequency sqrt(2) / tau (rad/s) and the damping ratio 1 / sqrt(2).

``linear_acceleration``: prediction with a linearly extrapolated acceleration (Horiuchi & Konno 2001). The slope of
the acceleration is the difference quotient over a time h (in the paper, the integration step). On the
quadratic ramp the acceleration jumps only between steps, so the quotient over a whole step gives the third
derivative. The parameter `spacing` is h in samples.

``adaptive`` and ``adaptive_inverse`` adapt the delay of one of these compensators. Each sample uses the
target c, measured displacement m and measured force f of the last sample; c', m' and f' are one sample older:

    tracking   A  += (c + c')(m - m') / 2,   TA += (m + m')(c - c') / 2,   I = (A - TA) / 2       Eqs. (8), (9)
    energy     I  += (f + f') / 2 ((m - m') - (c - c'))                      Mosqueda et al. 2007, as in Fig. 11
    law        parameter = estimate + k_p I + k_i J,  then  J += dt I                        Eqs. (6), (7), (10)

The integral J of the indicator I lags by one sample. A positive slope of either indicator means that the actuator
lags (OpenFresco has the opposite sign); the parameter then increases.

For another test, scale the gain k_p on the tracking indicator in proportion to amplitude^-2, frequency^-2 and the
servo rate. With a specimen of stiffness k the energy indicator grows k times as fast as the tracking indicator.
Only the elastic part of the force distinguishes lag from lead. With a pure damper the energy indicator is never
negative. With a mass its sign is reversed, and the law diverges.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np

from rths_nodes.control.compensators.per_axis import PerAxis, acceleration_cautions, lead_parameter, ramp_seen
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies, taps
from rths_nodes.core.kernels import Function, Kernel, ToNumber, no_state
from rths_nodes.core.parameters import AnyParams, OfParams, TestContext, component, integer, number, params, text
from rths_nodes.core.samples import Array

LONGEST = 100_000
"""Largest spacing, in samples."""
PER_MM2 = 1e6
PAPER_GAIN_RATIO = 0.1
"""Ratio k_i / k_p in all experiments of Chen & Ricles (2010), 1/s."""
PAPER_GAIN_PER_MM2 = 0.4
INTEGRAL_GAIN = "integral gain on the tracking indicator; default: 0.1/s times k_p (Chen & Ricles 2010)"
Led = tuple[float, object]
"""Delay and other constants of a compensator."""
Ring = tuple[Array, int]
"""Ring buffer of the last accelerations (m/s^2), and the index of the oldest; -1 before the first sample."""


class Adaptable(NamedTuple):
    """A delay that a law can adapt, and the kernel that uses this delay."""

    name: str
    """Name of the adapted parameter: ``alpha`` (1 plus the delay in samples) or ``delay`` (s)."""
    constants: Function
    rest: Function
    led: ToNumber
    """Kernel function ``led(constants, state, delay, x, v, a) -> state, command``."""


class ConstantDelay(PerAxis):
    ADAPTABLE: ClassVar[Adaptable]

    @classmethod
    def own_kernel(cls, params: AnyParams) -> Kernel:
        name, constants, rest, led = cls.ADAPTABLE

        def step(
            k: Led, s: object, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
        ) -> tuple[object, float]:
            delay, constants_of_law = k
            return led(constants_of_law, s, delay, x, v, a)

        return Kernel(
            lambda params, dt: (float(getattr(params, name)), constants(params, dt)), lambda k: rest(k[1]), step
        )


def led(k: tuple[()], s: tuple[float], alpha: float, x: float, v: float, a: float) -> tuple[tuple[float], float]:
    (before,) = s
    return (x,), alpha * x - (alpha - 1.0) * before


class Inverse(ConstantDelay):
    """Inverse of a first-order actuator: command_k = alpha target_k - (alpha - 1) target_{k-1}."""

    ABOUT = "Inverse compensation of a constant delay (Chen 2007; Chen & Ricles 2010, Eq. 5b)."
    SOURCES = ("chen_2007", "chen_ricles_2010")

    @params
    class Params:
        alpha: float = number("delay constant alpha", "samples", 29.0, at_least=1.0)
        lead: float = lead_parameter()

    ADAPTABLE = Adaptable("alpha", lambda params, dt: (), lambda k: (0.0,), led)

    def frequency_response(self, omega: Frequencies) -> Complex:
        alpha = self._p.alpha
        return taps(omega, (alpha, 1.0 - alpha), (0.0, self._dt)) * self.lead_response(omega)


def taylor(k: tuple[bool], s: tuple[()], delay: float, x: float, v: float, a: float) -> tuple[tuple[()], float]:
    """Return the target, extrapolated by ``delay`` (s) with a Taylor series of order 1 or 2."""
    (second_order,) = k
    if second_order:
        return s, x + delay * (v + 0.5 * delay * a)
    return s, x + delay * v


class DerivativeFeedforward(ConstantDelay):
    """Adds delay times velocity to the target and, for order 2, half the squared delay times acceleration."""

    ABOUT = (
        "Derivative feedforward: Taylor series that extrapolates the target by the delay "
        "(Mercan; Jung & Shing 2006)."
    )
    SOURCES = ("jung_shing_2006", "mercan_2007")

    @params
    class Params:
        delay: float = number("delay to compensate, as identified, including the transport", "s", at_least=0.0)
        order: int = integer(
            "order of the highest derivative of the target in the law", default=1, at_least=1, at_most=2
        )
        lead: float = lead_parameter()

        def spans(self) -> dict[str, float]:
            return {"delay": self.delay}

        def cautions(self, test: TestContext) -> list[str]:
            return acceleration_cautions(test) if self.order > 1 else []

    ADAPTABLE = Adaptable("delay", lambda params, dt: (params.order > 1,), no_state, taylor)

    def frequency_response(self, omega: Frequencies) -> Complex:
        ahead = 1j * omega * self._p.delay
        transfer = 1.0 + ahead + (0.5 * ahead**2 if self._p.order > 1 else 0.0)
        return np.asarray(transfer * self.lead_response(omega))


def accelerated(k: tuple[float, int], s: Ring, delay: float, x: float, v: float, a: float) -> tuple[object, float]:
    """Return the command: a Taylor series whose third derivative is the slope of the acceleration."""
    per_span, spacing = k
    history, oldest = s
    if oldest < 0:
        # the acceleration does not jump at the start, so the third derivative is zero
        history[:] = a
        oldest = 0
    growth = delay * per_span * (a - float(history[oldest]))
    history[oldest] = a
    oldest += 1
    if oldest == spacing:
        oldest = 0
    return (history, oldest), x + delay * (v + delay * (0.5 * a + growth))


def spanned(params: LinearAcceleration.Params, dt: float) -> tuple[float, int]:
    """Return 1 / (6 h), in 1/s, and the span h of the difference quotient, in samples."""
    return 1.0 / (6.0 * params.spacing * dt), params.spacing


class LinearAcceleration(ConstantDelay):
    """Taylor series of the target up to the third order, with linearly extrapolated acceleration."""

    ABOUT = "Prediction with a linearly extrapolated acceleration (Horiuchi & Konno 2001)."
    SOURCES = ("horiuchi_konno_2001",)

    @params
    class Params:
        delay: float = number("delay to compensate, as identified, including the transport", "s", at_least=0.0)
        spacing: int = integer(
            "number of samples per integration step, which is substeps times time_ratio",
            "samples",
            1,
            at_least=1,
            at_most=LONGEST,
        )
        lead: float = lead_parameter()

        def spans(self) -> dict[str, float]:
            return {"delay": self.delay}

        def cautions(self, test: TestContext) -> list[str]:
            step = test.samples_per_step
            if ramp_seen(test) == "quadratic" and self.spacing % step:
                return [
                    f"spacing = {self.spacing} samples: the acceleration of the quadratic ramp changes once "
                    f"every {step} samples. Set spacing to a multiple of {step}"
                ]
            return acceleration_cautions(test)

    ADAPTABLE = Adaptable("delay", spanned, lambda k: (np.zeros(k[1]), -1), accelerated)

    def frequency_response(self, omega: Frequencies) -> Complex:
        delay, ahead = self._p.delay, 1j * omega * self._p.delay
        per_span = 1.0 / (6.0 * self._p.spacing * self._dt)
        growth = delay * per_span * taps(omega, (1.0, -1.0), (0.0, self._p.spacing * self._dt))
        return np.asarray((1.0 + ahead + ahead**2 * (0.5 + growth)) * self.lead_response(omega))


# Adaptive law


@params
class LawParams:
    """Options common to all uses of the law. The limits are off by default, as in the publication.

    - ``alpha_min``, ``alpha_max``: without limits, alpha diverges if k_p is several times the paper's gain. An
      alpha below 1 or far above the actuator's alpha amplifies noise. At a limit the integral is held.
    - ``alpha_rate``: limits jumps of the command, which are jumps of alpha times the target's increment.
    - ``quiet_velocity``: after the motion the indicator is constant, and its integral would wind up. The integral
      is held while the peak of the target's velocity, decaying with ``quiet_time``, is below this value.
    """

    alpha_min: float | None = number("lower limit of alpha; default: none", "samples", None, at_least=1.0)
    alpha_max: float | None = number("upper limit of alpha; default: none", "samples", None, at_least=1.0)
    alpha_rate: float | None = number(
        "largest rate of change of alpha; default: no limit", "samples/s", None, more_than=0.0
    )
    quiet_velocity: float | None = number(
        "target velocity below which the integral is held; default: the integral is never held",
        "m/s",
        None,
        more_than=0.0,
    )
    quiet_time: float = number("time constant with which a peak of the velocity decays", "s", 1.0, more_than=0.0)
    lead: float = lead_parameter()

    def validate(self, path: str) -> None:
        low, high = self.alpha_min, self.alpha_max
        if low is not None and high is not None and low >= high:
            raise ConfigError(f"{path}.alpha_min = {low:g} samples: must be < alpha_max = {high:g} samples")

    def refuse_outside(self, alpha: float, path: str) -> None:
        if not (self.alpha_min or -math.inf) <= alpha <= (self.alpha_max or math.inf):
            raise ConfigError(f"{path} = {alpha:g} samples: must be between alpha_min and alpha_max")


def in_si(k_p: float, k_i: float | None, unit: float) -> tuple[float, float]:
    return k_p * unit, (PAPER_GAIN_RATIO * k_p if k_i is None else k_i) * unit


class Constants(NamedTuple):
    """Constants of the law, in units of the adapted parameter."""

    estimate: float
    k_p: float
    k_i: float
    low: float
    high: float
    largest_step: float
    quiet_step: float
    forgetting: float
    dt: float
    by_energy: bool
    inner: object


State = tuple[float, float, float, float, float, float, float, float, float, float, object]
"""State of the adaptation, in this order:

- parameter, integral of the indicator, and peak of the target's increments, Eqs. (6), (7), (10);
- indicator, area and complement, Eqs. (8), (9);
- the last two targets, newest first;
- measured displacement and force; state of the adapted compensator."""


def adaptive(led: ToNumber) -> ToNumber:
    def step(
        k: Constants, s: State, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
    ) -> tuple[object, float]:
        """Adapt the parameter (Chen & Ricles 2010, Eqs. 6 to 10). Return the adapted compensator's command."""
        estimate, k_p, k_i, low, high, largest_step, quiet_step, forgetting, dt, by_energy, of_inner = k
        parameter, integral, peak, indicator, area, complement, c, c_before, m_before, f_before, inner = s
        if not rests:
            by_target, by_measured = c - c_before, m - m_before
            if by_energy:
                indicator += 0.5 * (f + f_before) * (by_measured - by_target)
            else:
                area += 0.5 * (c + c_before) * by_measured
                complement += 0.5 * (m + m_before) * by_target
                indicator = 0.5 * (area - complement)
            wanted = limited = estimate + (k_p * indicator + k_i * integral)
            if limited < low:
                limited = low
            if limited > high:
                limited = high
            least, most = parameter - largest_step, parameter + largest_step
            parameter = limited
            if parameter < least:
                parameter = least
            if parameter > most:
                parameter = most
            peak *= forgetting
            if abs(by_target) > peak:
                peak = abs(by_target)
            if limited == wanted and peak >= quiet_step:
                integral += dt * indicator
            f_before = f
        inner, command = led(of_inner, inner, parameter, x, v, a)
        return (parameter, integral, peak, indicator, area, complement, x, c, m, f_before, inner), command

    return step


UNITS = {
    "alpha": "samples",
    "delta_alpha": "samples",
    "delay": "s",
    "delta_delay": "s",
    "tracking_indicator": "m^2",
    "energy_indicator": "N m",
}


def shown(k: Constants, s: State) -> tuple[float, float, float]:
    """Return the adapted parameter, its change from the initial estimate, and the indicator."""
    estimate, _, _, _, _, _, _, _, _, _, _ = k
    parameter, _, _, indicator, _, _, _, _, _, _, _ = s
    return parameter, parameter - estimate, indicator


class Adaptive(PerAxis):
    """Adapts the alpha or delay of another compensator by the law of Chen & Ricles (2010).

    The value in that compensator's parameters is the initial estimate.
    """

    SOURCES = ("chen_ricles_2010",)

    @params
    class Params(LawParams):
        indicator: str = text("indicator that detects a lag or a lead", "tracking", choices=("tracking", "energy"))
        compensator: OfParams = component(
            "compensator",
            "compensator whose alpha or delay is adapted: inverse, linear_acceleration or derivative_feedforward",
            {"type": "inverse"},
        )
        k_p_per_mm2: float | None = number(
            f"gain k_p on the tracking indicator; default: {PAPER_GAIN_PER_MM2} (Chen & Ricles 2010)",
            "1/mm^2",
            None,
            at_least=0.0,
        )
        k_i_per_mm2_s: float | None = number(INTEGRAL_GAIN, "1/(mm^2 s)", None, at_least=0.0)
        k_p_per_joule: float | None = number(
            "gain k_p on the energy indicator; recommended first value: k_p_per_mm2 * 1e6 / stiffness",
            "1/(N m)",
            None,
            at_least=0.0,
        )
        k_i_per_joule_s: float | None = number(
            "gain k_i on the energy indicator; default: 0.1/s times k_p", "1/(N m s)", None, at_least=0.0
        )

        def validate(self, path: str) -> None:
            LawParams.validate(self, path)
            mine, unused = ("joule", "mm2") if self.by_energy else ("mm2", "joule")
            for name in (f"k_p_per_{unused}", f"k_i_per_{unused}_s"):
                value = getattr(self, name)
                if value is not None:
                    raise ConfigError(
                        f"{path}.{name} = {value:g}: belongs to the other indicator. With indicator = "
                        f"{self.indicator!r}, set k_p_per_{mine} instead"
                    )
            if self.by_energy and self.k_p_per_joule is None:
                raise ConfigError(f"{path}.k_p_per_joule: missing (gain on the energy indicator [1/(N m)])")

        @property
        def by_energy(self) -> bool:
            return self.indicator == "energy"

        def si_gains(self) -> tuple[float, float]:
            """Return k_p in samples/m^2 (energy indicator: samples/(N m)), and k_i in the same unit per second."""
            if self.by_energy:
                return in_si(self.k_p_per_joule or 0.0, self.k_i_per_joule_s, 1.0)
            k_p = PAPER_GAIN_PER_MM2 if self.k_p_per_mm2 is None else self.k_p_per_mm2
            return in_si(k_p, self.k_i_per_mm2_s, PER_MM2)

    SHOWN = staticmethod(shown)

    def __init__(self, params: AnyParams, dt: float, n_axes: int) -> None:
        cls, inner_params = self.adapted(params)
        self._inner = cls(inner_params, dt, n_axes)
        name, law = cls.ADAPTABLE.name, self.own_kernel(params).constants(params, dt)
        sample, none = _units(name, dt)
        params.refuse_outside(none + law.estimate / sample, "compensator.compensator: alpha")
        indicator = "energy_indicator" if params.by_energy else "tracking_indicator"
        names = (name, f"delta_{name}", indicator)
        self.state_units = {parameter: UNITS[parameter] for parameter in names}
        self.state_limits = {name: (law.low, law.high)}
        super().__init__(params, dt, n_axes)

    @classmethod
    def adapted(cls, params: AnyParams) -> tuple[type[ConstantDelay], object]:
        """Return class and parameters of the adapted compensator.

        Raises ConfigError if that compensator has no adaptable delay or has a ``lead``.
        """
        inner = registry.class_of("compensator", params.compensator)
        if not issubclass(inner, ConstantDelay):
            raise ConfigError(
                f"compensator.compensator: {type(params.compensator).type_name} has no alpha or delay to adapt. "
                "Use derivative_feedforward, inverse or linear_acceleration"
            )
        if params.compensator.lead:
            raise ConfigError(
                f"compensator.compensator.lead = {params.compensator.lead:g} s: must be left out, because "
                "compensator.lead applies to the adapted compensator as well"
            )
        return inner, params.compensator

    @classmethod
    def own_kernel(cls, params: AnyParams) -> Kernel:
        inner, inner_params = cls.adapted(params)
        adaptable = inner.ADAPTABLE
        return Kernel(
            lambda of_law, dt: constants_of(of_law, adaptable, inner_params, dt),
            lambda k: (k.estimate, *(0.0,) * 9, adaptable.rest(k.inner)),
            adaptive(adaptable.led),
        )

    def frequency_response(self, omega: Frequencies) -> Complex:
        inner: Complex = self._inner.frequency_response(omega)  # type: ignore[attr-defined]
        return inner * self.lead_response(omega)


def _units(name: str, dt: float) -> tuple[float, float]:
    """Return p and q of the conversion parameter = p (alpha - q), for the sample time ``dt`` (s)."""
    return (1.0, 0.0) if name == "alpha" else (dt, 1.0)


def constants_of(params: AnyParams, adaptable: Adaptable, inner: object, dt: float) -> Constants:
    name, of_inner, _, _ = adaptable
    sample, none = _units(name, dt)
    k_p, k_i = params.si_gains()
    low = -math.inf if params.alpha_min is None else (params.alpha_min - none) * sample
    high = math.inf if params.alpha_max is None else (params.alpha_max - none) * sample
    return Constants(
        estimate=float(getattr(inner, name)),
        k_p=k_p * sample,
        k_i=k_i * sample,
        low=low,
        high=high,
        largest_step=math.inf if params.alpha_rate is None else params.alpha_rate * dt * sample,
        quiet_step=(params.quiet_velocity or 0.0) * dt,
        forgetting=math.exp(-dt / params.quiet_time),
        dt=dt,
        by_energy=params.by_energy,
        inner=of_inner(inner, dt),
    )


class AdaptiveInverse(Adaptive):
    """Inverse compensation with an alpha adapted by the law of Chen & Ricles (2010)."""

    @params
    class Params(LawParams):
        alpha_es: float = number("estimated delay constant alpha", "samples", 29.0, at_least=1.0)
        k_p_per_mm2: float = number(
            "proportional gain on the tracking indicator", "1/mm^2", PAPER_GAIN_PER_MM2, at_least=0.0
        )
        k_i_per_mm2_s: float | None = number(INTEGRAL_GAIN, "1/(mm^2 s)", None, at_least=0.0)

        def validate(self, path: str) -> None:
            LawParams.validate(self, path)
            self.refuse_outside(self.alpha_es, f"{path}.alpha_es")

        by_energy: ClassVar[bool] = False

        def si_gains(self) -> tuple[float, float]:
            return in_si(self.k_p_per_mm2, self.k_i_per_mm2_s, PER_MM2)

    @classmethod
    def adapted(cls, params: AnyParams) -> tuple[type[ConstantDelay], object]:
        return Inverse, Inverse.Params(alpha=params.alpha_es)
