# SPDX-License-Identifier: Apache-2.0
"""Polynomial extrapolation (Horiuchi et al. 1996, Eqs. 3-4 and Table 1; Wang et al., TADC, Eq. 2).

The command extrapolates the polynomial of order n through the present and n earlier targets by the delay:

    d^p_k = sum_i a_i d^c_{k - i s},   i = 0..n,   eta = delay / (s dt)
    a_i = prod_{j != i} (eta + j) / (j - i)                                 Lagrange, at +eta from 0, -1, .., -n

with the command d^p, the target d^c and the spacing s in samples. Table 1 lists the weights a_i for eta = 1. If
eta = 1 and the specimen provides the whole stiffness, the remaining phase error acts as negative damping at high
frequencies: above pi / (3 delay) rad/s for n = 2, above pi / (2 delay) rad/s for n = 3. The structure must damp
these frequencies.
"""

from __future__ import annotations

import numpy as np

from rths_nodes.control.compensators.per_axis import PerAxis, lead_parameter
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies, taps
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import integer, number, params
from rths_nodes.core.samples import Array

MAX_ORDER = 4
LONGEST = 100_000
"""Longest delay or spacing, in samples. Larger values indicate a wrong unit."""
ROUNDING = 0.5
"""Number of samples by which the delay may exceed the history, because the default spacing is rounded."""
Constants = tuple[tuple[float, ...], int]
"""Weights of the targets, newest first, and spacing of the targets in samples."""
State = tuple[Array, int]
"""Ring buffer of past targets (m), and the index of the newest target."""


def weights(order: int, eta: float) -> Array:
    """Return the weights ``(order + 1,)``, newest first, that extrapolate by ``eta`` = delay / (spacing dt).

    Raises ValueError for an order outside 0 to 4.
    >>> weights(3, 1.0).tolist()
    [4.0, -6.0, 4.0, -1.0]
    """
    if not 0 <= order <= MAX_ORDER:
        raise ValueError(f"order = {order}: must be 0 to {MAX_ORDER}")
    weights = np.empty(order + 1)
    for node in range(order + 1):
        above, below = 1.0, 1.0
        for other in range(order + 1):
            if other != node:
                above *= eta + other
                below *= other - node
        weights[node] = above / below
    return weights


def constants(params: Polynomial.Params, dt: float) -> Constants:
    samples = params.delay / dt
    if samples > LONGEST:
        raise ConfigError(f"compensator.delay = {params.delay:g} s: must be <= {LONGEST * dt:g} s")
    spacing = max(1, round(samples)) if params.spacing is None else params.spacing
    history = params.order * spacing
    if params.order and samples > history + ROUNDING:
        raise ConfigError(
            f"compensator.delay = {params.delay:g} s: must be <= {history * dt:g} s, the length of the history "
            f"that a polynomial of order {params.order} uses at a spacing of {spacing} samples"
        )
    return tuple(weights(params.order, samples / spacing).tolist()), spacing


def rest(k: Constants) -> State:
    weights, spacing = k
    return np.zeros((len(weights) - 1) * spacing + 1), 0


def step(
    k: Constants, s: State, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
) -> tuple[State, float]:
    """Return the extrapolated target, a weighted sum of the present and earlier targets."""
    weights, spacing = k
    history, now = s
    now += 1
    if now == len(history):
        now = 0
    history[now] = x
    at, command = now, 0.0
    for weight in weights:
        command += weight * float(history[at])
        at -= spacing
        if at < 0:
            at += len(history)
    return (history, now), command


class Polynomial(PerAxis):
    """Polynomial extrapolation of the target by a constant delay (Horiuchi et al. 1996)."""

    SOURCES = ("horiuchi_1996",)

    @params
    class Params:
        delay: float = number("delay to compensate, as identified, including the transport", "s", at_least=0.0)
        order: int = integer(
            "degree of the polynomial; with 0 the command is the target", default=3, at_least=0, at_most=MAX_ORDER
        )
        spacing: int | None = integer(
            "spacing of the points of the polynomial; default: the delay, rounded to whole samples",
            "samples",
            None,
            at_least=1,
            at_most=LONGEST,
        )
        lead: float = lead_parameter()

        def spans(self) -> dict[str, float]:
            return {"delay": self.delay * (max(1, self.order) if self.spacing is None else 1)}

    KERNEL = Kernel(constants, rest, step)

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Return command / target at ``omega`` (rad/s): Horiuchi et al., Eq. (6), without the actuator's delay."""
        weights, spacing = constants(self._p, self._dt)
        ages = spacing * self._dt * np.arange(len(weights))
        return taps(omega, weights, ages) * self.lead_response(omega)
