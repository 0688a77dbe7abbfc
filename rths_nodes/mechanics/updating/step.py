# SPDX-License-Identifier: Apache-2.0
"""Step of model updating: computes parameters of the copies from one sample of the specimen.

The parameters of the copies follow the filter's estimate no faster than ``rate``, so that no force jumps. The
copies begin to follow once the motion has determined every parameter. Earlier estimates can be wrong for large
motions, because a specimen of another class may change its stiffness with the amplitude. While the model does not
explain the specimen, the parameters return to the initial values. A sample with an impossible value changes no
parameter.

The innovation is the difference between measured and expected force, divided by its expected standard deviation.
Its mean square is 1 for a correct model (Kailath 1968, IEEE Transactions on Automatic Control 13(6), 646-655). It
is tested over time as in Bar-Shalom, Li, Kirubarajan: Estimation with Applications to Tracking and Navigation,
2001, section 5.4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from rths_nodes.core.arithmetic import finite
from rths_nodes.core.samples import (
    FLAG_BRIDGED,
    FLAG_FROZEN,
    FLAG_SATURATED,
    FLAG_SLIPPED,
    FLAG_SLOWED,
    FLAG_TRIPPED,
    Array,
)
from rths_nodes.mechanics.updating import unscented
from rths_nodes.mechanics.updating.copies import Copy
from rths_nodes.mechanics.updating.unscented import Answer, Belief, capped, corrected

PERIOD = 0.01
"""Approximate interval between samples, s. Over shorter intervals, noise dominates displacement differences."""
UNUSABLE = FLAG_BRIDGED | FLAG_SATURATED | FLAG_SLIPPED | FLAG_SLOWED | FLAG_TRIPPED | FLAG_FROZEN
GATE = 5.0
"""Largest innovation with which a force is used. In the mean square, a larger innovation counts as this value."""
IDENTIFIED = 1.0 / 12.0
"""Fraction of the initial uncertainty at which a parameter counts as identified."""
DETERMINED = 0.5
"""Largest remaining fraction of every parameter's initial uncertainty at which the copies begin to follow."""
STILL, MOVED = 3.0, 20.0
"""A load cell counts as dead if the force stays within STILL times the noise while the expected force moves by
MOVED times the noise."""
UNEXPLAINED = 2.25
"""Mean square of the innovation above which the model does not explain the specimen: an rms of 1.5."""
WINDOW = 2.0
"""Time constant of the exponentially weighted mean square, s."""
DRIFT = 0.005
"""Random walk of a parameter in the unscented filter: rms change in one second, relative to its initial value."""
FORGETTING = 20.0
"""Forgetting time of recursive least squares, s."""
MEMORY_NOISE = 0.001
"""Rms error of the memory per step, relative to its size, because moves between samples are assumed linear."""
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


class Settings(NamedTuple):
    """Settings of a step; ``prior`` ``(m,)`` is the relative uncertainty of the initial values."""

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
        """Return the state after a measured ``force`` and its ``expected`` value.

        The cell counts as dead if ``expected`` has changed by more than ``moved``, but ``force`` by at most
        ``band``.
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
    """Relative parameters ``(m,)`` of the copies."""
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
    """Result of a step; ``use`` is a key of ``WORDS``.

    ``expected`` is the expected force (N). ``spread`` (N) is the standard deviation of measured minus expected
    force.
    """

    use: int
    expected: float
    spread: float


class Estimator(Protocol):
    """Estimates parameters with constants and pure functions; only the :class:`Belief` changes."""

    def first(self) -> Belief: ...

    def predicted(self, belief: Belief, before: float, sample: Sample, lost: int) -> Belief:
        """Return the belief after the motion from ``before`` (m) to ``sample``; ``lost`` samples are between."""

    def answered(self, belief: Belief, sample: Sample) -> Answer:
        """Return the expected force at the motion of ``sample``."""


class Unscented:
    """Law ``ukf``: unscented filter for parameters and memory of any copy."""

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
        noise = self._noise
        if lost and self._copy.memory:
            noise = np.append(noise[:-1], min(1.0, GAP * lost))
        x = sample.displacement
        return capped(
            unscented.predicted(belief, lambda point: self._copy.moved(point, before, x), noise), self._most
        )

    def answered(self, belief: Belief, sample: Sample) -> Answer:
        x, v = sample.displacement, sample.velocity
        return unscented.answered(belief, lambda point: self._copy.force(point, x, v))


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
    usual = abs(innovation) <= GATE  # false for nan
    counted = innovation**2 if usual else GATE**2
    mean_square = s.mean_square + k.period / WINDOW * (counted - s.mean_square)
    s = s._replace(mean_square=mean_square)
    m, strange = len(copy.names), mean_square > UNEXPLAINED
    initial = np.ones(m)
    if not usual:
        return _nearer(k, s, initial if strange else s.released), Learning(SPIKE, answer.expected, spread)
    belief = _bounded(corrected(answer, belief.mean, force, k.noise), copy)
    parameters = belief.mean[:m]
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


def _bounded(belief: Belief, copy: Copy) -> Belief:
    n = len(copy.names)
    mean = np.append(np.clip(belief.mean[:n], copy.lower, copy.upper), belief.mean[n:])
    return Belief(mean, belief.root)


def forgotten(belief: Belief, period: float, forgetting: float) -> Belief:
    """Return the belief a ``period`` (s) later. Information of age ``forgetting`` (s) has the weight exp(-1)."""
    return Belief(belief.mean, belief.root * math.exp(0.5 * period / forgetting))


def linear_answer(belief: Belief, row: Array, rest: float) -> Answer:
    """Return the answer for a force that is ``row`` ``(n,)`` times the parameters, plus ``rest`` (N)."""
    return Answer(float(row @ belief.mean) + rest, belief.root, row @ belief.root)
