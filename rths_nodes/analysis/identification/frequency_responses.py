# SPDX-License-Identifier: Apache-2.0
"""Identification of a rig with several axes by frequency responses (Phillips & Spencer 2012, section 3.1).

1. Each actuator is driven with band-limited noise. The estimator H1 gives the matrix of the responses.
2. The matrix is inverted at each frequency.
3. Each entry of the inverse is fitted with a polynomial in s (Eq. 2.8; ``mechanics/loading_model.py``).
4. The output-error method (:func:`identify`) refines the polynomials and identifies the delay.
5. The state-space model follows from the fit (``loading_model.state_space``).

The response relates sampled displacements to sampled commands and includes the hold of the commands. For periodic
noise see ``doc/identified_inverse.md``. In step 4, the response of the rig is

    G(s) = P(s)^-1 e^(-s D)

with the matrix P of the polynomials and the delay D of all commands. The search starts from the polynomials of
:func:`fit_of` with the best delay. A weighted least-squares fit to the measured responses gives all coefficients
and the delay, with their standard deviations. The weights are the inverse standard deviations of the noise
(L. Ljung, System Identification, 2nd ed. 1999, sections 7.4 and 10.2). Noise biases the inverse of a response, but
not the response itself. The degrees of the polynomials minimise the information criterion of Schwarz (1978) among
the stable models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex
from rths_nodes.core.samples import ROUNDING, Array
from rths_nodes.mechanics import loading_model
from rths_nodes.mechanics.loading_model import DERIVATIVES, inverse_response
from rths_nodes.mechanics.structure import transition

Orders = NDArray[np.intp]
"""Degree of each entry's polynomial; ``NONE`` for a zero entry."""
NONE = -1
HIGHEST = len(DERIVATIVES) - 1
EXACT = 1e-10
FEWEST = 4
"""Smallest number of averaged spectral lines. With a single line, the coherence would always be 1."""
WORST_CONDITION = 1e12
"""Condition number of the power matrix of the commands, above which axes count as not driven separately."""
ENDS, STILL = 10, 1e-3
"""A command begins and ends at rest if its first and last ``ENDS`` samples vary by at most ``STILL`` times its
range."""
NEIGHBOURS = 5
CERTAIN, UNCERTAIN = 0.01, 0.3
"""Relative noise of a response (standard deviation). Noise above ``CERTAIN`` lowers the weight of the response. A
response with noise above ``UNCERTAIN`` is omitted, because noise makes the inverse too small."""
Experiment = tuple[Array, Array]
"""Command and measured displacement, ``(samples, n_axes)`` m each, of a test with one driven axis."""
EntryFits = list[list[list[tuple[Array, float]]]]
"""Coefficients and weighted rms error by row, column and degree, beginning with ``NONE``."""
LATEST = 0.1
"""Longest delay that is searched for, s."""
ACCURATE, RELATIVE = 1e-4, 0.01
"""Assumed relative errors of the responses, in addition to noise. ``RELATIVE`` is used if no model explains the
responses with ``ACCURATE``."""
EXPLAINED = 2.0
"""Ratio of mean square residual to noise variance above which a model does not explain the responses."""
NORMAL_95 = 1.96
EQUAL = 0.7
"""Weighted rms residual below which models are equally good."""
PASSES = 2
"""Largest number of refinements of a model."""
FAST = 0.1
"""Initial lag of an additional pole, relative to the lag of the model."""


class FrequencyResponse(NamedTuple):
    """Response of a rig at ``frequency`` ``(f,)`` Hz."""

    frequency: Array
    response: Complex
    """Ratio of displacement to command, ``(f, n_axes, n_axes)``."""
    coherence: Array
    """Fraction of a displacement's power that depends linearly on the commands, ``(f, n_axes, experiments)``."""
    variance: Array = np.zeros(1)
    """Noise variance of the real and of the imaginary part of ``response``, broadcastable to its shape."""

    @property
    def s(self) -> Complex:
        return (2j * np.pi * self.frequency).astype(np.complex128)

    def inverse(self) -> Complex:
        """Return the ratio of command to displacement, ``(f, n_axes, n_axes)``."""
        return np.linalg.inv(self.response).astype(np.complex128)

    def without_delay(self, delay: float) -> FrequencyResponse:
        return self._replace(response=self.response * np.exp(self.s * delay)[:, None, None])


class InverseFit(NamedTuple):
    coefficients: Array
    """Coefficients of displacement, velocity, acceleration and jerk, ``(4, n_axes, n_axes)``."""
    orders: Orders
    error: Array
    """Weighted rms error of the inverse, relative to the diagonal element of the row, ``(n_axes, n_axes)``. After
    :func:`identify`, the error of the response, relative to the diagonal element of the column."""

    def response(self, frequency: Array) -> Complex:
        """Return the ratio of displacement to command, ``(f, n_axes, n_axes)``, at ``frequency`` (Hz)."""
        return np.asarray(np.linalg.inv(inverse_response(self.coefficients, 2j * np.pi * frequency)))


def frequency_response(
    experiments: Sequence[Experiment], dt: float, resolution: float, band: tuple[float, float]
) -> FrequencyResponse:
    """Return the response in ``band`` (Hz), estimated by H1 from ``experiments`` with samples every ``dt`` (s).

    In each interval of ``resolution`` (Hz), a response linear in the frequency is fitted to all spectral lines
    (local polynomial method; Schoukens et al. 2006). If a command does not begin and end at rest, the spectra of
    transients are fitted, too. Raises ValueError if the shapes of histories differ, if the band has too few
    frequencies, or if the experiments do not drive every axis separately.
    """
    if not resolution > 0.0:
        raise ValueError(f"resolution = {resolution:g} Hz: must be > 0")
    count = int((band[1] - band[0]) / resolution * (1.0 + ROUNDING))
    edges = band[0] + resolution * np.arange(count + 1.0, dtype=np.float64)
    if len(edges) <= HIGHEST + 2:
        raise ValueError(
            f"band = {band[0]:g} to {band[1]:g} Hz: has {len(edges) - 1} frequencies; must have > {HIGHEST + 1}. "
            "Use a wider band or a finer resolution"
        )
    at_rest = all(_at_rest(command) for command, _ in experiments)
    transients = np.zeros((len(experiments), 0)) if at_rest else np.eye(len(experiments))
    spectra = [_spectra(*pair, dt, edges) for pair in zip(experiments, transients, strict=True)]
    uu, xu, total = (np.sum(parts, axis=0) for parts in list(zip(*spectra, strict=True))[:3])
    if not np.linalg.cond(uu).max() < WORST_CONDITION:
        raise ValueError("the experiments do not drive every axis separately in the whole band")
    n = xu.shape[1]
    both = np.linalg.solve(uu.transpose(0, 2, 1), xu.transpose(0, 2, 1)).transpose(0, 2, 1)
    response = both[:, :, :n]  # in the middle of the interval; the slopes are in the other columns
    rest = total.real - np.einsum("fij,fij->fi", both.conj(), xu).real
    freedom = sum(lines for *_, lines in spectra) - xu.shape[2] * len(xu)
    noise = 0.5 * rest.clip(0.0).sum(axis=0) / max(1, freedom)  # variance of the real and of the imaginary part
    variance = noise[:, None] * np.einsum("fjj->fj", np.linalg.inv(uu))[:, None, :n].real
    coherence = []
    for uu, xu, power, _ in spectra:
        crossed = np.einsum("fij,fij->fi", response.conj(), xu[:, :, :n]).real
        explained = np.einsum("fij,fjk,fik->fi", response, uu[:, :n, :n], response.conj()).real
        unexplained = (power - 2.0 * crossed + explained) / np.where(power > 0.0, power, np.inf)
        coherence.append(np.clip(1.0 - unexplained, 0.0, 1.0))
    return FrequencyResponse(edges[:-1] + 0.5 * resolution, response, np.stack(coherence, axis=2), variance)


def _spectra(
    experiment: Experiment, transients: Array, dt: float, edges: Array
) -> tuple[Complex, Complex, Array, float]:
    """Return S_uu ``(f, m, m)``, S_xu ``(f, n, m)``, S_xx ``(f, n)`` and the number of spectral lines.

    The spectra are sums over the lines between successive ``edges`` (Hz), with inputs u and displacements x. The
    first inputs are the ``n`` commands and the ``transients`` (1 for this experiment, 0 for the others). If all
    commands begin and end at rest, there are no transients. The other inputs are the first inputs multiplied
    by the position of the line between the edges, from -1 to 1.
    """
    command, displacement = experiment
    if command.shape != displacement.shape or command.ndim != 2:
        raise ValueError(
            f"command, displacement: shapes {command.shape} and {displacement.shape} must be equal "
            "and (samples, n_axes)"
        )
    duration = len(command) * dt
    starts = np.ceil(edges * duration * (1.0 - ROUNDING)).astype(int)
    if starts[0] < 1 or np.diff(starts).min() < FEWEST or starts[-1] > len(command) // 2:
        raise ValueError(
            f"duration = {duration:g} s: too short for {edges[0]:g} to {edges[-1]:g} Hz with a resolution of "
            f"{edges[1] - edges[0]:g} Hz"
        )
    lines = np.arange(starts[0], starts[-1])
    u, x = np.fft.rfft(command, axis=0)[lines], np.fft.rfft(displacement, axis=0)[lines]
    u = np.hstack([u, np.abs(u).mean() * np.tile(transients, (len(lines), 1))])
    middle = np.repeat(edges[:-1] + edges[1:], np.diff(starts))
    distance = (2.0 * lines / duration - middle) / (edges[1] - edges[0])
    inputs = np.hstack([u, distance[:, None] * u]).conj()
    products = (inputs.conj()[:, :, None] * inputs[:, None], x[:, :, None] * inputs[:, None], np.abs(x) ** 2)
    uu, xu, power = (np.add.reduceat(product, starts[:-1] - starts[0], axis=0) for product in products)
    return uu, xu, power, float(len(lines))


def _at_rest(command: Array) -> bool:
    ends = np.vstack((command[:ENDS], command[-ENDS:]))
    return bool((np.ptp(ends, axis=0) <= STILL * np.ptp(command, axis=0).max()).all())


def entry_fits(measured: FrequencyResponse) -> EntryFits:
    from scipy.signal import medfilt  # the import takes 0.1 s

    inverse, s = measured.inverse(), measured.s
    size = np.abs(np.einsum("fii->fi", inverse))
    noise = size * np.sqrt(np.einsum("fii->fi", np.broadcast_to(measured.variance, inverse.shape)))
    noise = medfilt(noise, (NEIGHBOURS, 1))  # a single estimate of the noise may be large by chance
    usable = noise <= np.maximum(UNCERTAIN, np.sort(noise, axis=0)[HIGHEST + 1])
    weights = usable / (size * np.hypot(1.0, noise / CERTAIN))
    return [
        [[_fit_entry(s, entry, weight, degree) for degree in range(NONE, HIGHEST + 1)] for entry in row]
        for row, weight in zip(inverse.transpose(1, 2, 0), weights.T, strict=True)
    ]


def fit_of(fits: EntryFits, count: int, orders: Orders | None = None, highest: int = HIGHEST) -> InverseFit:
    """Return the inverse model, with one polynomial of ``fits`` for each entry (step 3 of the module).

    By default the degree of each entry, up to ``highest``, minimises the criterion of Schwarz (1978) for ``count``
    values. An entry without coupling is zero. Errors are relative to the diagonal element of the row.
    """
    n = len(fits)
    coefficients, error, chosen = np.zeros((HIGHEST + 1, n, n)), np.zeros((n, n)), np.full((n, n), NONE)
    for i, row in enumerate(fits):
        for j, entry in enumerate(row):
            criterion = [information(size, number, count) for number, (_, size) in enumerate(entry)]
            least = 0 if i == j else NONE  # an axis responds to its own command
            best = int(np.argmin(criterion[least - NONE : highest - NONE + 1])) + least
            chosen[i, j] = best if orders is None else orders[i, j]
            coefficients[:, i, j], error[i, j] = entry[chosen[i, j] - NONE]
    return InverseFit(coefficients, chosen, error)


def _fit_entry(s: Complex, entry: Complex, weight: Array, degree: int) -> tuple[Array, float]:
    coefficients = np.zeros(HIGHEST + 1)
    scale = float(np.abs(s).max())
    terms = (s[:, None] / scale) ** np.arange(degree + 1) * weight[:, None]
    if degree >= 0:
        rows, aim = (np.concatenate([part.real, part.imag]) for part in (terms, entry * weight))
        solution = np.linalg.lstsq(rows, aim, rcond=None)[0]
        coefficients[: degree + 1] = solution / scale ** np.arange(degree + 1)
    rest = entry * weight - s[:, None] ** np.arange(HIGHEST + 1) @ coefficients * weight
    return coefficients, float(np.sqrt(np.mean(np.abs(rest) ** 2)))


def information(error: float, coefficients: int, count: int) -> float:
    """Return the criterion of Schwarz (1978) for a fit of ``count`` values. The smallest value is best."""
    return float(2.0 * count * np.log(max(error, EXACT)) + coefficients * np.log(count))


class Identified(NamedTuple):
    """Identified model of a rig. ``deviation`` holds the standard deviations of the coefficients."""

    fit: InverseFit
    delay: float
    delay_range: tuple[float, float]
    """95 % interval of the delay, s."""
    explained: bool
    """True if the model explains the responses within noise. Otherwise the delay may include other dynamics."""
    deviation: Array
    measured: FrequencyResponse
    """The measured response, without the effects of hold, sampling and delay."""


def identify(
    sampled: FrequencyResponse,
    dt: float,
    ramp: bool,
    orders: Orders | None = None,
    delay: float | None = None,
) -> Identified:
    """Return the model of a rig, identified from its response ``sampled`` with the period ``dt`` (s).

    Commands are held over the preceding sample, or linear between samples if ``ramp`` is true. By default
    ``orders`` and ``delay`` (s) are identified. Raises ConfigError if no model is stable.
    """
    delays = np.arange(0.0, LATEST * (1.0 + ROUNDING), dt) if delay is None else np.array([delay])
    first = _continuous(sampled, dt, ramp, None)
    fits = [entry_fits(first.without_delay(float(late))) for late in delays]

    def settled(relative: float, start: InverseFit, late: float) -> _Candidate:
        candidate = _refined(first, relative, start, late, delay is not None)
        for _ in range(PASSES):
            model = candidate[0]
            if not _stable(model.fit):
                break
            measured = _continuous(sampled, dt, ramp, model)
            candidate = _refined(measured, relative, model.fit, model.delay, delay is not None)
        return candidate

    for relative in (ACCURATE, RELATIVE):
        models: list[_Candidate] = []
        lower = None
        for highest in range(HIGHEST + 1) if orders is None else (HIGHEST,):
            starts = [_best_start(fits, delays, 2 * len(sampled.frequency), orders, highest)]
            if lower is not None:
                starts.append(_raised(lower, highest))
            candidates = [settled(relative, *start) for start in starts]
            models += [model for model in candidates if _stable(model[0].fit)]
            lower = min(candidates, key=lambda model: model[1])[0]
        if any(model.explained for model, _, _ in models):
            break
    if not models:
        raise ConfigError(
            "no stable model explains the responses. Set the orders of the model, or use a narrower band or "
            "stronger noise"
        )
    values = 2 * sampled.response.size
    best, *_ = min(models, key=lambda one: information(max(one[1], EQUAL), one[2], values))
    return best._replace(explained=relative == ACCURATE)


def _continuous(sampled: FrequencyResponse, dt: float, ramp: bool, model: Identified | None) -> FrequencyResponse:
    """Return the response without the effect of hold and sampling, which ``model`` predicts.

    Without a model, only the spectrum of the hold is removed. A held command acts half a sample early, because it
    is held over the preceding sample.
    """
    s, n = sampled.s, sampled.response.shape[1]
    flat = np.sinc(sampled.frequency * dt)
    hold = (flat * (flat if ramp else np.exp(0.5 * s * dt)))[:, None, None]
    factor = np.asarray(np.eye(n) / hold, np.complex128)
    if model is not None and loading_model.degrees(model.fit.coefficients).min() > 0:
        system, inputs, outputs = loading_model.state_space(model.fit.coefficients)
        phi, start, end = transition(system, inputs, dt)
        late = np.exp(-s * dt)[:, None, None]
        driven = late * start + end if ramp else start + end
        held = outputs @ np.linalg.solve(np.eye(len(phi)) - late * phi, driven + 0.0j * late)
        factor = np.linalg.solve(held, model.fit.response(sampled.frequency)).astype(np.complex128)
    variance = sampled.variance / np.abs(hold) ** 2
    return sampled._replace(response=sampled.response @ factor, variance=variance)


_Candidate = tuple[Identified, float, int]


def _stable(fit: InverseFit) -> bool:
    try:
        loading_model.check(fit.coefficients, "")
    except ConfigError:
        return False
    return True


def _best_start(
    fits: Sequence[EntryFits], delays: Array, count: int, orders: Orders | None, highest: int
) -> tuple[InverseFit, float]:
    starts = [fit_of(entry, count, orders, highest) for entry in fits]
    criteria = []
    for fit in starts:
        rows = zip(fit.error.ravel().tolist(), (fit.orders - NONE).ravel().tolist(), strict=True)
        criteria.append(float(sum(information(error, number, count) for error, number in rows)))
    best = int(np.argmin(criteria))
    return starts[best], float(delays[best])


def _raised(lower: Identified, highest: int) -> tuple[InverseFit, float]:
    """Return fit and delay (s) of ``lower`` with an additional fast pole. Its lag is subtracted from the delay."""
    fit = lower.fit
    lag = FAST * abs(float(np.trace(fit.coefficients[1]) / np.trace(fit.coefficients[0])))
    coefficients = fit.coefficients.copy()
    coefficients[1:] += lag * fit.coefficients[:-1]
    orders = np.where(fit.orders > NONE, np.minimum(fit.orders + 1, highest), NONE)
    return InverseFit(coefficients, orders, fit.error), max(0.0, lower.delay - lag)


def _refined(
    measured: FrequencyResponse, relative: float, start: InverseFit, delay: float, fixed: bool
) -> _Candidate:
    from scipy.optimize import least_squares

    driven = np.einsum("fii->fi", measured.response)[:, None, :]
    weight = 1.0 / np.sqrt(measured.variance + (relative * np.abs(driven)) ** 2)
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
            return np.full(measured.response.shape, 1.0 / EXACT, np.complex128)
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
    bounds[0][-1] = min(0.0, begin[-1]) - EXACT
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
    # the inverse variance is proportional to the power of the commands
    share = 1.0 / np.broadcast_to(np.maximum(measured.variance, EXACT**2), off.shape)
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
    return np.asarray(np.sqrt(((rows / np.maximum(sizes, EXACT * sizes[0])[:, None]) ** 2).sum(axis=0)))


class Fit(NamedTuple):
    """Inverse model, fitted to spectral lines.

    ``coefficients`` of displacement, velocity, acceleration and jerk are ``(4, n_axes, n_axes)``, zero above the
    fitted order. ``deviation`` holds their standard deviations.
    """

    coefficients: Array
    deviation: Array
    error: Array
    """Rms of inverse times response minus the identity matrix, by row, ``(n_axes,)``."""


def lines(
    experiments: Sequence[Experiment], dt: float, period: float, band: tuple[float, float]
) -> tuple[Array, Complex]:
    """Return the multiples of 1 / ``period`` in ``band``, ``(f,)`` Hz, and the rig's response at these multiples.

    The response is the ratio of displacement to command, ``(f, n_axes, n_axes)``, without the first period. Raises
    ValueError for a period that is not a whole number of samples, fewer than two periods, a band without
    multiples, or axes not driven separately.
    """
    samples = round(period / dt)
    if abs(samples * dt - period) > ROUNDING * period:
        raise ValueError(f"period = {period:g} s: must be a whole number of samples")
    first = max(1, math.ceil(band[0] * period * (1.0 - ROUNDING)))
    last = math.floor(band[1] * period * (1.0 + ROUNDING))
    if last < first:
        raise ValueError(f"band {band[0]:.4g} to {band[1]:.4g} Hz: must contain a multiple of {1.0 / period:g} Hz")
    spectra = [_line_spectra(experiment, samples, slice(first, last + 1)) for experiment in experiments]
    command, measured = (np.stack(part, axis=-1) for part in zip(*spectra, strict=True))
    if not np.linalg.cond(command).max() < 1.0 / ROUNDING:
        raise ValueError("the experiments do not drive every axis separately")
    # measured = G command, one column per test
    response = np.linalg.solve(command.transpose(0, 2, 1), measured.transpose(0, 2, 1)).transpose(0, 2, 1)
    return np.arange(first, last + 1) / period, response


def _line_spectra(experiment: Experiment, samples: int, kept: slice) -> tuple[Complex, Complex]:
    command, _ = experiment
    periods = len(command) // samples
    if periods < 2:
        raise ValueError(f"{len(command)} samples: must cover at least two periods of {samples} samples")
    change = command[samples:] - command[:-samples]
    if np.mean(change**2) > 0.5 * np.mean(command**2):  # the rise and fall of the noise cause smaller changes
        raise ValueError(f"the command must repeat every {samples} samples, as periodic noise does")
    settled = (history[samples : periods * samples].reshape(periods - 1, samples, -1) for history in experiment)
    u, x = (np.fft.rfft(history.mean(axis=0), axis=0)[kept] for history in settled)
    return u, x


def fit(frequency: Array, response: Complex, order: int = HIGHEST) -> Fit:
    """Fit coefficients up to ``order`` to :func:`lines` by least squares. Raises ValueError for too few lines."""
    (count, n, _), used = response.shape, order + 1
    if count <= used * n:
        raise ValueError(f"{count} spectral lines: more than {used * n} are required")
    s = 2j * np.pi * frequency
    scale = float(np.abs(s).max())
    powers = (s / scale)[:, None] ** np.arange(used)
    # row r: sum over i, c of C_i[r, c] s^i G[c, :] is the r-th row of the identity
    terms = np.einsum("fi,fcd->fdic", powers, response).reshape(count * n, used * n)
    left = np.vstack([terms.real, terms.imag])
    aim = np.tile(np.eye(n, dtype=complex), (count, 1))  # row (f, d), column r; d is a column of G
    right = np.vstack([aim.real, aim.imag])
    solution, _, _, _ = np.linalg.lstsq(left, right, rcond=None)
    rest = right - left @ solution
    freedom = 2 * count * n - used * n
    variance = np.square(rest).sum(axis=0) / freedom
    spread = np.sqrt(np.outer(np.diag(np.linalg.inv(left.T @ left)), variance))
    units = scale ** np.arange(used)[:, None, None]

    def matrices(columns: Array) -> Array:
        coefficients = np.zeros((HIGHEST + 1, n, n))
        coefficients[:used] = columns.reshape(used, n, n).transpose(0, 2, 1) / units
        return coefficients

    return Fit(matrices(solution), matrices(spread), np.sqrt(np.square(rest).sum(axis=0) / count))
