# SPDX-License-Identifier: Apache-2.0
"""Extrapolation of the target by the time ``lead``, a parameter of compensators.

    d(t + L) = x + L v + L^2/2 a + L^3/6 j,   its derivatives likewise,   j = (a_k - a_{k-1}) / dt

with displacement x, velocity v and acceleration a of the target. The series is exact for a cubic motion. The lead
L compensates delays after the measurement of the displacement, for example a late force signal. No transport delay
is added to L.
"""

from __future__ import annotations

import numpy as np

from rths_nodes.core.arithmetic import NAN
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.kernels import Kernel, ToNumber
from rths_nodes.core.parameters import Field, TestContext, number

LONGEST = 0.1
"""Longest lead, s, for which the Taylor series is valid in motions of a few Hz."""
Constants = tuple[float, float, object]
State = tuple[float, object]


def lead_parameter() -> Field:
    return number(
        "time by which the target and its derivatives are read ahead; no transport is added to this time",
        "s",
        0.0,
        at_least=0.0,
        at_most=LONGEST,
    )


def ahead(step: ToNumber) -> ToNumber:
    """Return ``step`` for a target extrapolated by the lead; its state begins with the last acceleration."""

    def led(
        k: Constants, s: State, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
    ) -> tuple[object, float]:
        """Inner step with the target extrapolated by the lead."""
        lead, dt, constants = k
        before, inner = s
        inner, command = step(constants, inner, *read_ahead(lead, dt, before, x, v, a), m, f, rests, preparing)
        return (a, inner), command

    return led


def read_ahead(lead: float, dt: float, before: float, x: float, v: float, a: float) -> tuple[float, float, float]:
    """Return x, v, a of the target after ``lead`` (s); ``before`` is the acceleration ``dt`` (s) earlier."""
    jerk = (a - before) / dt
    if before != before:  # NaN at the first sample: the acceleration at the start is not a jump from zero
        jerk = 0.0
    half = 0.5 * lead
    return x + lead * (v + half * (a + lead / 3.0 * jerk)), v + lead * (a + half * jerk), a + lead * jerk


def with_lead(kernel: Kernel, lead: float) -> Kernel:
    """Return ``kernel`` with the target extrapolated by ``lead`` (s); unchanged if ``lead`` is 0."""
    if not lead:
        return kernel
    constants, rest, step = kernel
    return Kernel(lambda params, dt: (lead, dt, constants(params, dt)), lambda k: (NAN, rest(k[2])), ahead(step))


def response(lead: float, omega: Frequencies) -> Complex:
    """Return the frequency response ``(n,)`` of the ``lead`` (s) at ``omega`` (rad/s) for exact derivatives."""
    s = 1j * np.asarray(omega) * lead
    return np.asarray(1.0 + s * (1.0 + 0.5 * s * (1.0 + s / 3.0)), complex)


def ramp_seen(test: TestContext) -> str:
    return "" if test.behind else test.ramp


def acceleration_cautions(test: TestContext) -> list[str]:
    if ramp_seen(test) != "linear":
        return []
    return ["this compensator uses the acceleration, which is zero on the linear ramp. Set ramp.type = quadratic"]
