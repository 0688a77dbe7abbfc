# SPDX-License-Identifier: Apache-2.0
"""Model updating: fit copies of the specimen's model to the measured force of the specimen during the test.

A copy is a model of a restoring force. Its open parameters are estimated, relative to their initial values.

The parameters of the copies follow the filter's estimate no faster than ``rate``, so that no force jumps. The
copies begin to follow once the motion has determined every parameter. Earlier estimates can be wrong for large
motions, because a specimen unlike the model may change its stiffness with the amplitude. While the model does not
explain the specimen, the parameters return to the initial values. A sample with an impossible value changes no
parameter.

The innovation is the difference between measured and expected force, divided by its expected standard deviation.
Its mean square is 1 for a correct model (Kailath 1968, IEEE Transactions on Automatic Control 13(6), 646-655), and
is tested over time as in Bar-Shalom, Li, Kirubarajan: Estimation with Applications to Tracking and Navigation,
2001, section 5.4.

The unscented filter is a square-root filter with additive noise, for internal states and parameters together: R.
van der Merwe, E. A. Wan: The square-root unscented Kalman filter for state and parameter-estimation. Proc. ICASSP,
2001, Algorithm 3.1 with alpha = 1, kappa = 0, beta = 2.

Each step computes S by an orthogonal triangularisation, so that no
rounding makes a variance negative. The paper's downdate of the Cholesky factor fails if rounding makes the
covariance indefinite. This module uses the correction of the square-root cubature filter instead (I. Arasaratnam,
S. Haykin: Cubature Kalman filters. IEEE Transactions on Automatic Control 54(6), 2009, 1254-1269). With the
deviations X of states and parameters and Y of the force, for a measured force f with noise r (rms):

    K = X Y' / (Y Y' + r^2),  mean + K (f - expected),  S S' = (X - K Y) (X - K Y)' + r^2 K K'
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import NamedTuple, cast

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.arithmetic import finite
from rths_nodes.core.errors import ConfigError, join, unknown
from rths_nodes.core.parameters import AnyParams, declared
from rths_nodes.core.samples import (
    FLAG_BRIDGED,
    FLAG_FROZEN,
    FLAG_SATURATED,
    FLAG_SLIPPED,
    FLAG_SLOWED,
    FLAG_TRIPPED,
    Array,
)
from rths_nodes.core.validation import from_data

PERIOD = 0.01
"""Approximate interval between samples, s. Over shorter intervals, noise dominates displacement differences."""
UNUSABLE = FLAG_BRIDGED | FLAG_SATURATED | FLAG_SLIPPED | FLAG_SLOWED | FLAG_TRIPPED | FLAG_FROZEN
GATE = 5.0
"""Largest innovation at which a force is used. In the mean square, larger innovations count as ``GATE``."""
IDENTIFIED = 1.0 / 12.0
"""Fraction of the initial uncertainty at which a parameter counts as identified."""
DETERMINED = 0.5
"""Largest remaining fraction of every parameter's initial uncertainty at which the copies begin to follow."""
STILL, MOVED = 3.0, 20.0
"""A load cell counts as dead if the force stays within ``STILL`` times the noise while the expected force changes
by more than ``MOVED`` times the noise."""
UNEXPLAINED = 2.25
"""Mean square of the innovation above which the model does not explain the specimen: an rms of 1.5."""
WINDOW = 2.0
"""Time constant of the exponentially weighted mean square, s."""
DRIFT = 0.005
"""Random walk of a parameter in the unscented filter: rms change in one second, relative to its initial value."""
FORGETTING = 20.0
"""Forgetting time of recursive least squares, s."""
MEMORY_NOISE = 0.001
"""Rms error of the memory per step, relative to its size. Motion between samples is not exactly linear."""
MEMORY_AT_FIRST = 0.1
"""Standard deviation of the memory at the start, relative to its size."""
GAP = 0.1
"""Rms error of the memory for each lost sample, relative to its size."""

LEARNT, FLAGGED, NOT_FINITE, TOO_FAST, DEAD, SPIKE, STRANGE = range(7)
WORDS = {
    LEARNT: "learnt from",
    FLAGGED: "flagged",
    NOT_FINITE: "not finite",
    TOO_FAST: "faster than the axis can move",
    DEAD: "the force stays constant while the specimen moves",
    SPIKE: f"innovation beyond {GATE:g} standard deviations",
    STRANGE: "the model does not explain the force",
}

Point = list[float]


class Kind(NamedTuple):
    """Model for copies: family, parameters estimated by default, and function that returns the memory's size.

    A model without a memory is linear in its parameters.
    """

    family: str
    parameters: tuple[str, ...]
    memory: Callable[[AnyParams], float] | None


KINDS = {
    "bouc_wen": Kind("restoring_force", ("stiffness", "yield_displacement", "post_yield_ratio"), lambda p: 1.0),
    "bilinear": Kind(
        "restoring_force",
        ("stiffness", "yield_force", "post_yield_ratio"),
        lambda p: (1.0 - p.post_yield_ratio) * p.yield_force,
    ),
    "kelvin_voigt": Kind("specimen", ("stiffness", "damping"), None),
}


class Open(NamedTuple):
    """Parameter to estimate. ``bounds`` are in SI units, by default half and twice the initial value."""

    name: str
    bounds: tuple[float, float] | None = None


class Copy:
    """A model with ``values`` (SI), whose parameters ``names`` are estimated between ``lower`` and ``upper``.

    A *point* is a list: these parameters divided by their ``initial`` values, then the memory divided by its size,
    if the model has a memory.
    """

    def __init__(
        self, model: str, values: Mapping[str, object], opened: Sequence[Open] = (), path: str = "model"
    ) -> None:
        if model not in KINDS:
            raise unknown("", "model", model, KINDS)
        kind = KINDS[model]
        self._path = path
        cls = registry.load(kind.family, model)
        built = from_data(cls.Params, dict(values), path)
        self.model, self.kernel = model, cls.KERNEL
        self.values = {name: getattr(built, name) for name in declared(cls.Params)}
        if missing := [name for name, value in self.values.items() if value is None]:
            raise ConfigError(f"{path}.{missing[0]}: missing, but required by {model}")
        opened = opened or [Open(name) for name in kind.parameters]
        self.names = tuple(parameter.name for parameter in opened)
        self._check_names()
        units = [declared(cls.Params)[name].unit for name in self.names]
        self.units = tuple("" if unit == "1" else unit for unit in units)
        self.initial = np.array([self.values[name] for name in self.names])
        bounds = np.array([_bounds(parameter, self.values[parameter.name], path) for parameter in opened])
        self.lower, self.upper = (np.asarray(column) for column in (bounds / self.initial[:, None]).T)
        for corner in itertools.product(*bounds.tolist()):  # parameters must be valid at all bounds
            from_data(cls.Params, self.values | dict(zip(self.names, corner, strict=True)), path)
        self.memory = kind.memory(built) if kind.memory else 0.0
        """Size of the memory; 0 if the model has no memory."""
        self._limits = list(
            zip(self.names, self.initial.tolist(), self.lower.tolist(), self.upper.tolist(), strict=True)
        )

    def _check_names(self) -> None:
        for name in self.names:
            if name not in self.values:
                raise unknown(self._path, "parameter", name, self.values)
            if not isinstance(self.values[name], float) or not self.values[name] > 0.0:
                value = self.values[name]
                path = join(self._path, name)
                raise ConfigError(f"{path} = {value}: must be > 0, because updates are relative to this value")
        if len(set(self.names)) < len(self.names):
            raise ConfigError(
                f"{self._path}: each parameter must be listed once, but the list is {', '.join(self.names)}"
            )

    @property
    def linear(self) -> bool:
        return not self.memory and set(self.names) <= set(KINDS[self.model].parameters)

    def parameters(self, point: Point) -> AnyParams:
        parameters = dict(self.values)
        for (name, initial, lower, upper), share in zip(self._limits, point, strict=False):
            parameters[name] = initial * min(max(share, lower), upper)
        return SimpleNamespace(**parameters)

    def moved(self, point: Point, before: float, x: float) -> Point:
        """Return ``point`` with its memory after the move from displacement ``before`` to ``x`` (m)."""
        if not self.memory:
            return point
        constants = self.kernel.constants(self.parameters(point))
        (_, memory), _ = self.kernel.step(constants, (before, self.memory * point[-1]), x)
        return [*point[:-1], memory / self.memory]

    def force(self, point: Point, x: float, v: float) -> float:
        constants = self.kernel.constants(self.parameters(point))
        if not self.memory:
            return float(self.kernel.force(constants, (), x, v))
        return float(self.kernel.step(constants, (x, self.memory * point[-1]), x)[1])

    def row(self, x: float, v: float) -> tuple[Array, float]:
        """Return the forces (N) ``(m,)`` of estimated parameters at initial values, and the remaining force."""
        rest = dict.fromkeys(self.names, 0.0)
        forces = []
        for name in (None, *self.names):
            values = self.values | rest | ({name: self.values[name]} if name else {})
            forces.append(float(self.kernel.force(self.kernel.constants(SimpleNamespace(**values)), (), x, v)))
        return np.array(forces[1:]) - forces[0], forces[0]


class Follower:
    """Changes parameters of a ``model`` in the numerical structure, relative to initial ``values`` (SI)."""

    def __init__(self, model: str, values: Mapping[str, object], names: Sequence[str]) -> None:
        kind = KINDS[model]
        self._kernel, self._size = registry.load(kind.family, model).KERNEL, kind.memory
        self._values, self._names = dict(values), names
        self._now = SimpleNamespace(**self._values)

    def change(self, shares: Point) -> Callable[[object, object], tuple[object, object]]:
        """Set the parameters to their initial values times ``shares``.

        Return a function that converts the constants and the memory. It multiplies the memory by the ratio of the
        new to the old size, e.g. the force of a yielding spring by the ratio of the spring's yield forces.
        """
        before, after = self._now, SimpleNamespace(**self._values)
        for name, share in zip(self._names, shares, strict=True):
            setattr(after, name, share * getattr(after, name))
        self._now, constants = after, self._kernel.constants(after)
        factor = self._size(after) / self._size(before) if self._size else 1.0

        def changed(_: object, memory: object) -> tuple[object, object]:
            x, inner = cast(tuple[float, float], memory)
            return constants, (x, factor * inner)

        return changed


def _bounds(opened: Open, value: float, path: str) -> tuple[float, float]:
    low, high = opened.bounds or (0.5 * value, 2.0 * value)
    if not 0.0 < low <= value <= high:
        raise ConfigError(
            f"{path}.{opened.name}: the bounds {low:g} to {high:g} must be > 0 and enclose the value {value:g}"
        )
    return low, high


class Belief(NamedTuple):
    """Gaussian belief: ``mean`` ``(n,)`` and the lower triangular ``root`` ``(n, n)`` of the covariance."""

    mean: Array
    root: Array

    @property
    def deviation(self) -> Array:
        return np.asarray(np.sqrt(np.square(self.root).sum(axis=1)))


class Answer(NamedTuple):
    """Expected force (N) of a belief, with weighted deviations at c points.

    ``numbers`` ``(n, c)`` are the deviations of states and parameters. ``forces`` ``(c,)`` are the deviations of
    the force.
    """

    expected: float
    numbers: Array
    forces: Array

    def spread(self, noise: float) -> float:
        """Return the standard deviation (N) of measured minus expected force, for the rms ``noise`` (N)."""
        return math.sqrt(float(self.forces @ self.forces) + noise**2)


def triangular(columns: Array) -> Array:
    """Return the lower triangular S ``(n, n)`` with S S' = X X', for X = ``columns`` ``(n, c >= n)``."""
    return np.asarray(np.linalg.qr(columns.T, mode="r")).T


def corrected(answer: Answer, mean: Array, measured: float, noise: float) -> Belief:
    """Return the belief after a ``measured`` force with rms ``noise`` > 0 (N). ``answer`` belongs to ``mean``."""
    gain = answer.numbers @ answer.forces / answer.spread(noise) ** 2
    left = answer.numbers - np.outer(gain, answer.forces)
    return Belief(mean + gain * (measured - answer.expected), triangular(np.column_stack((left, noise * gain))))


def capped(belief: Belief, most: Array) -> Belief:
    """Return ``belief`` with standard deviations limited to ``most`` ``(n,)``, the initial uncertainty."""
    factor = np.minimum(1.0, most / np.maximum(belief.deviation, 1e-300))
    return Belief(belief.mean, belief.root * factor[:, None])


CENTRE = 2.0
"""Weight of the central point in covariances (beta for a Gaussian distribution); its weight in means is 0."""


def points(belief: Belief) -> Array:
    """Return the sigma points ``(n, 2 n + 1)`` of ``belief``, with the mean as the first point."""
    mean = belief.mean[:, None]
    reach = math.sqrt(len(belief.mean)) * belief.root
    return np.hstack((mean, mean + reach, mean - reach))


def predicted(belief: Belief, moved: Callable[[Point], Point], noise: Array) -> Belief:
    """Return the belief mapped by ``moved``, with added noise of standard deviations ``noise`` ``(n,)``."""
    at = np.array([moved(point) for point in points(belief).T.tolist()]).T
    mean = at[:, 1:].mean(axis=1)
    return Belief(mean, triangular(np.hstack((_weighted(at - mean[:, None]), np.diag(noise)))))


def answered(belief: Belief, force: Callable[[Point], float]) -> Answer:
    at = points(belief)
    forces = np.array([force(point) for point in at.T.tolist()])
    expected = float(forces[1:].mean())
    return Answer(expected, _weighted(at - belief.mean[:, None]), _weighted(forces - expected))


def _weighted(deviations: Array) -> Array:
    weighted = deviations / math.sqrt(deviations.shape[-1] - 1)
    weighted[..., 0] = math.sqrt(CENTRE) * deviations[..., 0]
    return weighted


class Settings(NamedTuple):
    """Settings of an estimation step; ``prior`` ``(m,)`` is the relative uncertainty of the initial values."""

    period: float
    """Interval between two samples, s."""
    noise: float
    """Rms noise of the measured force, N."""
    prior: Array
    fastest: float
    """Velocity limit of the axis, m/s."""
    rate: float = 0.05
    """Largest change of a parameter per second, relative to the initial value."""
    leaves: float = math.inf
    """Number of prior standard deviations beyond which an estimate has left its prior."""
    freezes: bool = False
    """True if copies freeze once an estimate has left its prior."""


class Sample(NamedTuple):
    """Displacement (m), velocity (m/s) and force (N) of one instant, and whether the sample is flagged."""

    displacement: float
    velocity: float
    force: float
    flagged: bool = False


class Still(NamedTuple):
    """State of a check for a load cell whose force stays constant.

    ``shown`` (N) is the constant measured force. ``since`` (N) is the expected force when the measured force
    became constant, or infinite once the load cell counts as dead.
    """

    shown: float
    since: float

    def behind(self, force: float, expected: float, band: float, moved: float) -> Still:
        """Return the state after a measured ``force`` (N) and its ``expected`` value (N).

        The load cell counts as dead if ``expected`` has changed by more than ``moved`` (N), but ``force`` by at
        most ``band`` (N).
        """
        if not abs(force - self.shown) <= band:
            return Still(force, expected)
        return Still(self.shown, math.inf) if abs(expected - self.since) > moved else self

    @property
    def dead(self) -> bool:
        return self.since == math.inf


class State(NamedTuple):
    belief: Belief
    released: Array
    """Parameters of the copies, relative to their initial values, ``(m,)``."""
    mean_square: float
    displacement: float
    """Displacement of the last usable sample, m."""
    lost: int
    """Number of samples since the last usable sample."""
    stuck: Still
    """State of the check for a load cell that repeats exactly the same value."""
    noisy: Still
    """State of the check for a load cell that stays within its noise."""
    left: bool = False


class Learning(NamedTuple):
    """Result of an estimation step. ``use``, a key of ``WORDS``, states how the sample was used.

    ``expected`` is the expected force (N). ``spread`` (N) is the standard deviation of measured minus expected
    force.
    """

    use: int
    expected: float
    spread: float


class Unscented:
    """Law ``ukf``: unscented filter for parameters and memory of any copy.

    A law holds constants and pure functions. Only the :class:`Belief` changes.
    """

    def __init__(self, copy: Copy, settings: Settings) -> None:
        self._copy = copy
        memory = [1.0] if copy.memory else []
        self._most = np.append(settings.prior, memory)
        walk = np.full(len(copy.names), DRIFT * math.sqrt(settings.period))
        self._noise = np.append(walk, [MEMORY_NOISE for _ in memory])

    def first(self) -> Belief:
        n = len(self._copy.names)
        mean = np.append(np.ones(n), np.zeros(len(self._most) - n))
        return Belief(mean, np.diag(np.append(self._most[:n], MEMORY_AT_FIRST * self._most[n:])))

    def predicted(self, belief: Belief, before: float, sample: Sample, lost: int) -> Belief:
        """Return the belief after a motion from ``before`` (m) to ``sample`` across ``lost`` missing samples."""
        noise = self._noise
        if lost and self._copy.memory:
            noise = np.append(noise[:-1], min(1.0, GAP * lost))
        x = sample.displacement
        return capped(predicted(belief, lambda point: self._copy.moved(point, before, x), noise), self._most)

    def answered(self, belief: Belief, sample: Sample) -> Answer:
        x, v = sample.displacement, sample.velocity
        return answered(belief, lambda point: self._copy.force(point, x, v))


class LeastSquares:
    """Law ``rls``: recursive least squares with forgetting, for a copy that is linear in its parameters.

    Square-root form of L. Ljung: System Identification, 2nd ed. 1999, section 11.2.
    """

    def __init__(self, copy: Copy, settings: Settings) -> None:
        self._copy, self._most, self._period = copy, settings.prior, settings.period

    def first(self) -> Belief:
        return Belief(np.ones(len(self._most)), np.diag(self._most))

    def predicted(self, belief: Belief, before: float, sample: Sample, lost: int) -> Belief:
        return capped(forgotten(belief, (1 + lost) * self._period, FORGETTING), self._most)

    def answered(self, belief: Belief, sample: Sample) -> Answer:
        return linear_answer(belief, *self._copy.row(sample.displacement, sample.velocity))


Estimator = Unscented | LeastSquares
LAWS: dict[str, Callable[[Copy, Settings], Estimator]] = {"ukf": Unscented, "rls": LeastSquares}


def at_rest(estimator: Estimator, copy: Copy, displacement: float) -> State:
    none = Still(math.nan, 0.0)
    return State(estimator.first(), np.ones(len(copy.names)), 1.0, displacement, 0, none, none)


def step(estimator: Estimator, copy: Copy, k: Settings, s: State, sample: Sample) -> tuple[State, Learning]:
    force = sample.force
    refused = _refused(k, s, sample)
    if refused != LEARNT:
        return s._replace(lost=s.lost + 1), Learning(refused, math.nan, math.nan)
    belief = estimator.predicted(s.belief, s.displacement, sample, s.lost)
    s = s._replace(belief=belief, displacement=sample.displacement, lost=0)
    answer = estimator.answered(belief, sample)
    spread = answer.spread(k.noise)
    if not finite(force):
        return s, Learning(NOT_FINITE, answer.expected, spread)
    stuck = s.stuck.behind(force, answer.expected, 0.0, k.noise)
    noisy = s.noisy.behind(force, answer.expected, STILL * k.noise, MOVED * k.noise)
    s = s._replace(stuck=stuck, noisy=noisy)
    if stuck.dead or noisy.dead:
        return s, Learning(DEAD, answer.expected, spread)
    innovation = (force - answer.expected) / spread
    usual = abs(innovation) <= GATE  # false for NaN
    counted = innovation**2 if usual else GATE**2
    mean_square = s.mean_square + k.period / WINDOW * (counted - s.mean_square)
    s = s._replace(mean_square=mean_square)
    m, strange = len(copy.names), mean_square > UNEXPLAINED
    initial = np.ones(m)
    if not usual:
        return _nearer(k, s, initial if strange else s.released), Learning(SPIKE, answer.expected, spread)
    belief = corrected(answer, belief.mean, force, k.noise)
    parameters = np.clip(belief.mean[:m], copy.lower, copy.upper)
    belief = belief._replace(mean=np.append(parameters, belief.mean[m:]))
    left = s.left or bool((np.abs(parameters - 1.0) > k.leaves * k.prior).any())
    s = s._replace(belief=belief, left=left)
    if strange:
        return _nearer(k, s, initial), Learning(STRANGE, answer.expected, spread)
    determined = (belief.deviation[:m] <= DETERMINED * k.prior).all()
    return _nearer(k, s, parameters if determined else s.released), Learning(LEARNT, answer.expected, spread)


def _nearer(k: Settings, s: State, goal: Array) -> State:
    if s.left and k.freezes:
        return s
    most = k.rate * k.period
    move = np.clip(goal - s.released, -most, most)
    return s._replace(released=s.released + move) if move.any() else s


def _refused(k: Settings, s: State, sample: Sample) -> int:
    if sample.flagged:
        return FLAGGED
    if not (finite(sample.displacement) and finite(sample.velocity)):
        return NOT_FINITE
    reach = k.fastest * k.period * (1 + s.lost)
    if abs(sample.displacement - s.displacement) > reach or abs(sample.velocity) > k.fastest:
        return TOO_FAST
    return LEARNT


def forgotten(belief: Belief, period: float, forgetting: float) -> Belief:
    """Return the belief after ``period`` (s). Information of age ``forgetting`` (s) has the weight exp(-1)."""
    return Belief(belief.mean, belief.root * math.exp(0.5 * period / forgetting))


def linear_answer(belief: Belief, row: Array, rest: float) -> Answer:
    """Return the :class:`Answer` for a force of ``row`` ``(n,)`` times the parameters plus ``rest`` (N)."""
    return Answer(float(row @ belief.mean) + rest, belief.root, row @ belief.root)
