# SPDX-License-Identifier: Apache-2.0
"""Identification of a rig's inverse model and delay by the output-error method.

    G(s) = P(s)^-1 e^(-s D)

is the response of the rig. P is the matrix of polynomials of ``frequency_responses.fit_of``, and D is the
delay of all commands. The search starts from the polynomials of ``fit_of`` at their best delay. A weighted
least-squares fit to the measured responses gives all coefficients and the delay, with their standard deviations.
The weights are the inverse standard deviations of the noise (L. Ljung, System Identification, 2nd ed. 1999,
sections 7.4 and 10.2). Noise biases the inverse of a response, but not the response.

The degrees of the polynomials minimise the information criterion of Schwarz (1978) among the stable models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from rths_nodes.analysis.identification import frequency_responses
from rths_nodes.analysis.identification.frequency_responses import HIGHEST, NONE, FrequencyResponse, InverseFit
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex
from rths_nodes.core.samples import ROUNDING, Array
from rths_nodes.mechanics.models import inverse
from rths_nodes.mechanics.structure import transition

LATEST = 0.1
"""Longest delay in the search, s."""
ACCURATE, RELATIVE = 1e-4, 0.01
"""Assumed relative errors of the responses, in addition to noise. ``RELATIVE`` is used if no model explains the
responses with ``ACCURATE``."""
EXPLAINED = 2.0
"""Ratio of mean square residual to noise variance above which a model does not explain the responses."""
NORMAL_95 = 1.96
EQUAL = 0.7
"""Weighted rms residual below which models are equally good."""
PASSES = 2
"""Largest number of refinements of a model by its own prediction of the motion between samples."""
FAST = 0.1
"""Initial lag of an additional pole, relative to the lag of the model."""


class Identified(NamedTuple):
    """Identified model of a rig. ``deviation`` holds the standard deviations of the coefficients."""

    fit: InverseFit
    delay: float
    delay_range: tuple[float, float]
    """95 % interval of the delay, s."""
    explained: bool
    """True if the model explains the responses within noise; otherwise the delay includes other dynamics."""
    deviation: Array
    measured: FrequencyResponse
    """The measured response, without the effects of hold, sampling and delay."""


def identify(
    sampled: FrequencyResponse,
    dt: float,
    ramp: bool,
    orders: frequency_responses.Orders | None = None,
    delay: float | None = None,
) -> Identified:
    """Return the model of a rig from its response, ``sampled`` every ``dt`` (s).

    Commands are held over the preceding sample, or linear between samples if ``ramp`` is true. By default
    ``orders`` and ``delay`` (s) are identified. Raises ConfigError if no model is stable.
    """
    delays = np.arange(0.0, LATEST * (1.0 + ROUNDING), dt) if delay is None else np.array([delay])
    continuous = partial(_continuous, sampled, dt, ramp)
    first = continuous(None)
    fits = [frequency_responses.entry_fits(first.without_delay(float(late))) for late in delays]
    count = 2 * len(sampled.frequency)
    for relative in (ACCURATE, RELATIVE):
        settle = partial(_settled, continuous, first, relative, delay is not None)
        models = [model for model in _candidates(settle, orders, delays, fits, count) if _stable(model[0].fit)]
        if any(model.explained for model, _, _ in models):
            break
    if not models:
        raise ConfigError(
            "no stable model explains the responses. Set the orders of the model, or use a narrower band or "
            "stronger noise"
        )
    values = 2 * sampled.response.size
    best, *_ = min(models, key=lambda one: frequency_responses.information(max(one[1], EQUAL), one[2], values))
    return best._replace(explained=relative == ACCURATE)


def _continuous(sampled: FrequencyResponse, dt: float, ramp: bool, model: Identified | None) -> FrequencyResponse:
    """Return the response without the effect of hold and sampling, as predicted by ``model``.

    Without a model, only the spectrum of the hold is removed. A held command acts half a sample early, because it
    is held over the preceding sample.
    """
    s, n = sampled.s, sampled.response.shape[1]
    flat = np.sinc(sampled.frequency * dt)
    hold = (flat * (flat if ramp else np.exp(0.5 * s * dt)))[:, None, None]
    factor = np.asarray(np.eye(n) / hold, np.complex128)
    if model is not None and inverse.degrees(model.fit.coefficients).min() > 0:
        system, inputs, outputs = inverse.state_space(model.fit.coefficients)
        phi, start, end = transition(system, inputs, dt)
        late = np.exp(-s * dt)[:, None, None]
        driven = late * start + end if ramp else start + end
        held = outputs @ np.linalg.solve(np.eye(len(phi)) - late * phi, driven + 0.0j * late)
        factor = np.linalg.solve(held, model.fit.response(sampled.frequency)).astype(np.complex128)
    variance = sampled.variance / np.abs(hold) ** 2
    return sampled._replace(response=sampled.response @ factor, variance=variance)


_Candidate = tuple[Identified, float, int]


def _weight(measured: FrequencyResponse, relative: float) -> Array:
    driven = np.abs(np.einsum("fii->fi", measured.response))[:, None, :]
    return np.asarray(1.0 / np.sqrt(measured.variance + (relative * driven) ** 2))


def _stable(fit: InverseFit) -> bool:
    try:
        inverse.check(fit.coefficients, "")
    except ConfigError:
        return False
    return True


def _candidates(
    settle: Callable[..., _Candidate],
    orders: frequency_responses.Orders | None,
    delays: Array,
    fits: Sequence[frequency_responses.EntryFits],
    count: int,
) -> Iterator[_Candidate]:
    lower = None
    for highest in range(HIGHEST + 1) if orders is None else (HIGHEST,):
        starts = [frequency_responses.fit_of(entry, count, orders, highest) for entry in fits]
        best = int(np.argmin([_information(fit, count) for fit in starts]))
        begins = [(starts[best], float(delays[best]))]
        if lower is not None:
            begins.append(_raised(lower, highest))
        models = [settle(*begin) for begin in begins]
        yield from models
        lower = min(models, key=lambda model: model[1])[0]


def _settled(
    continuous: Callable[[Identified | None], FrequencyResponse],
    first: FrequencyResponse,
    relative: float,
    fixed: bool,
    start: InverseFit,
    delay: float,
) -> _Candidate:
    """Return the model, refined by its own prediction; ``first`` is the response before any prediction."""
    candidate = _refined(first, _weight(first, relative), start, delay, fixed)
    for _ in range(PASSES):
        model = candidate[0]
        if not _stable(model.fit):
            break
        measured = continuous(model)
        candidate = _refined(measured, _weight(measured, relative), model.fit, model.delay, fixed)
    return candidate


def _information(fit: InverseFit, count: int) -> float:
    rows = zip(fit.error.ravel().tolist(), (fit.orders - NONE).ravel().tolist(), strict=True)
    return float(sum(frequency_responses.information(error, number, count) for error, number in rows))


def _raised(lower: Identified, highest: int) -> tuple[InverseFit, float]:
    """Return ``lower`` with an additional fast pole, whose lag is subtracted from the delay."""
    fit = lower.fit
    lag = FAST * abs(float(np.trace(fit.coefficients[1]) / np.trace(fit.coefficients[0])))
    coefficients = fit.coefficients.copy()
    coefficients[1:] += lag * fit.coefficients[:-1]
    orders = np.where(fit.orders > NONE, np.minimum(fit.orders + 1, highest), NONE)
    return InverseFit(coefficients, orders, fit.error), max(0.0, lower.delay - lag)


def _refined(
    measured: FrequencyResponse, weight: Array, start: InverseFit, delay: float, fixed: bool
) -> _Candidate:
    from scipy.optimize import least_squares

    s = measured.s
    scale = float(np.abs(s).max())
    powers = (s / scale)[:, None] ** np.arange(HIGHEST + 1)
    used = np.arange(HIGHEST + 1)[:, None, None] <= start.orders
    power, row, column = np.nonzero(used)
    units = scale ** np.arange(HIGHEST + 1)[:, None, None]
    turned = -s[:, None, None] / scale

    def model(parameters: Array) -> Complex:
        coefficients = np.zeros(used.shape)
        coefficients[used] = parameters[:-1]
        try:
            response = np.linalg.inv(np.tensordot(powers, coefficients, 1))
        except np.linalg.LinAlgError:  # the step of the search is too long
            return np.full(measured.response.shape, 1.0 / frequency_responses.EXACT, np.complex128)
        return np.asarray(response * np.exp(turned * parameters[-1]))

    def errors(parameters: Array) -> Array:
        return _real((model(parameters) - measured.response) * weight)

    def slopes(parameters: Array) -> Array:
        response = model(parameters)
        undelayed = response * np.exp(-turned * parameters[-1])
        by = -powers[:, power, None, None] * np.einsum("fip,fpj->fpij", response[:, :, row], undelayed[:, column])
        late = (0.0 if fixed else turned) * response
        return np.stack([_real(slope * weight) for slope in (*by.swapaxes(0, 1), late)], axis=-1)

    begin = np.append((start.coefficients * units)[used], delay * scale)
    bounds = np.full(len(begin), -np.inf), np.full(len(begin), np.inf)
    bounds[0][-1] = min(0.0, begin[-1]) - frequency_responses.EXACT
    result = least_squares(errors, begin, slopes, bounds, x_scale="jac")
    coefficients = np.zeros(used.shape)
    coefficients[used] = result.x[:-1]
    free = len(begin) - fixed
    residual = float(np.sqrt(2.0 * result.cost / len(result.fun)))
    freedom = len(result.fun) - free
    spread = _deviations(result.jac[:, :free]) * max(1.0, residual * np.sqrt(len(result.fun) / freedom))
    deviation = np.zeros(used.shape)
    deviation[used] = spread[: len(begin) - 1]
    late = delay if fixed else float(result.x[-1] / scale)
    wide = 0.0 if fixed else NORMAL_95 * float(spread[-1] / scale)
    off = model(result.x) - measured.response
    driven = np.einsum("fii->fi", measured.response)[:, None, :]
    # proportional to the power of the commands
    share = 1.0 / np.broadcast_to(np.maximum(measured.variance, frequency_responses.EXACT**2), off.shape)
    error = np.sqrt((share * np.abs(off) ** 2).sum(axis=0) / (share * np.abs(driven) ** 2).sum(axis=0))
    fit = InverseFit(coefficients / units, start.orders, error)
    interval = (max(0.0, late - wide), min(late + wide, max(late, LATEST)))
    explained = residual**2 <= EXPLAINED
    identified = Identified(fit, late, interval, explained, deviation / units, measured.without_delay(late))
    return identified, residual, free


def _real(values: Complex) -> Array:
    return np.concatenate([values.real.ravel(), values.imag.ravel()])


def _deviations(slopes: Array) -> Array:
    _, sizes, rows = np.linalg.svd(slopes, full_matrices=False)
    return np.asarray(
        np.sqrt(((rows / np.maximum(sizes, frequency_responses.EXACT * sizes[0])[:, None]) ** 2).sum(axis=0))
    )
