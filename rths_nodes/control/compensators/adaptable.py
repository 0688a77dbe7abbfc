# SPDX-License-Identifier: Apache-2.0
"""Compensators of a constant delay, which the compensator `adaptive` can adapt.

``inverse``: inverse of a first-order actuator (Chen 2007; Chen & Ricles 2010, Eq. 5b).

``derivative_feedforward``: Taylor series that extrapolates the target by the delay (Mercan; Jung & Shing 2006).
For the delay tau, order 1 is the inverse of a first-order lag. Order 2 is the inverse of a second-order lag with
the natural frequency sqrt(2) / tau (rad/s) and the damping ratio 1 / sqrt(2).

``linear_acceleration``: prediction with a linearly extrapolated acceleration (Horiuchi & Konno 2001). The slope of
the acceleration is its difference quotient over a time h, which is the integration step in the paper. On the
quadratic ramp the acceleration jumps only between steps, so the quotient over a whole step gives the third
derivative. The parameter `spacing` is h in samples.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from rths_nodes.control.compensators.per_axis import (
    PerAxis,
    acceleration_cautions,
    lead_parameter,
    ramp_seen,
    response,
)
from rths_nodes.core.checks import TestContext
from rths_nodes.core.declarations import AnyParams
from rths_nodes.core.frequency_response import Complex, Frequencies, taps
from rths_nodes.core.kernels import Function, Kernel, ToNumber, no_state
from rths_nodes.core.parameters import integer, number, params
from rths_nodes.core.samples import Array

LONGEST = 100_000
Led = tuple[float, object]


Ring = tuple[Array, int]
"""Ring buffer of the last accelerations (m/s^2), and the index of the oldest; -1 before the first sample."""


class Adaptable(NamedTuple):
    """A delay that a law can adapt, and the kernel that uses this delay."""

    name: str
    """``alpha`` (samples, counted from the previous sample) or ``delay`` (s); also the name of the parameter."""
    constants: Function
    rest: Function
    led: ToNumber
    """``led(constants, state, delay, x, v, a) -> state, command``."""


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
        return taps(omega, (alpha, 1.0 - alpha), (0.0, self._dt)) * response(self._p.lead, omega)


def taylor(k: tuple[bool], s: tuple[()], delay: float, x: float, v: float, a: float) -> tuple[tuple[()], float]:
    """Command for the ``delay``, by a Taylor series of order 1 or 2."""
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
        return np.asarray(transfer * response(self._p.lead, omega))


def accelerated(k: tuple[float, int], s: Ring, delay: float, x: float, v: float, a: float) -> tuple[object, float]:
    """Command for the ``delay``, by a Taylor series whose third derivative is the slope of the acceleration."""
    per_span, spacing = k
    history, oldest = s
    if oldest < 0:
        # the acceleration at the start is not a jump from zero: the third derivative is zero
        history[:] = a
        oldest = 0
    growth = delay * per_span * (a - float(history[oldest]))
    history[oldest] = a
    oldest += 1
    if oldest == spacing:
        oldest = 0
    return (history, oldest), x + delay * (v + delay * (0.5 * a + growth))


def spanned(params: LinearAcceleration.Params, dt: float) -> tuple[float, int]:
    """Return 1 / (6 h) in 1/s and the number of samples in h, the span of the difference quotient."""
    return 1.0 / (6.0 * params.spacing * dt), params.spacing


class LinearAcceleration(ConstantDelay):
    """Taylor series of the target to the third order, with linearly extrapolated acceleration."""

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
        return np.asarray((1.0 + ahead + ahead**2 * (0.5 + growth)) * response(self._p.lead, omega))
