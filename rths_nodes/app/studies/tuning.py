# SPDX-License-Identifier: Apache-2.0
"""Tuning of a scenario's parameters for the worst case of an ensemble (``doc/studies.md``).

The search uses differential evolution (R. Storn, K. Price, Journal of Global Optimization 11, 1997), then a local
method (J. Nelder, R. Mead, The Computer Journal 7, 1965). A single parameter is optimised by Brent's method.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rths_nodes.analysis.study_table import magnitude
from rths_nodes.app.studies import engine, runs
from rths_nodes.app.studies.engine import Lost, Progress, Tell
from rths_nodes.core.errors import ConfigError, show, unknown
from rths_nodes.core.parameters import declared, is_params
from rths_nodes.core.samples import Array
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.options import AUTO
from rths_nodes.loop.scenario.files import declaration, pairs_of, replace
from rths_nodes.loop.scenario.schema import Scenario

AROUND = 3.0
"""Default range of a parameter: from its value divided by this factor to its value times this factor."""
BY_ITSELF = ("lead",)
"""Parameters of a compensator that describe the rig and are not tuned by default."""
UNSTABLE, BROKEN = 1e9, 1e6
"""Objectives. ``UNSTABLE``: judged unstable. ``BROKEN``: undefined index; aborted runs get larger objectives."""
LEAST, EACH = 8, 5
"""Candidates per generation. ``LEAST``: minimum number. ``EACH``: number per parameter."""
SETTLED = 1e-3
"""Relative uncertainty of parameters and objective at which a search ends."""
NEAR = 0.1
"""Initial step of the local search, relative to a parameter's range."""
ROUNDED = 1e-4
"""Largest rounding error of a value, relative to its range and, on a logarithmic scale, also to the value."""


@dataclass(frozen=True)
class Parameter:
    """Parameter to tune: key, range and present value ``begin`` (None if not set).

    The search uses a logarithmic scale if ``logarithmic`` is true.
    """

    key: str
    low: float
    high: float
    begin: float | None
    logarithmic: bool = False
    integer: bool = False

    def value(self, share: float) -> float | int:
        """Return the rounded value at a fraction ``share`` of the range. The initial value is not rounded."""
        if not self.integer and math.isclose(share, self.share(), abs_tol=1e-12):
            return self.start
        exact, finest = float(self.low + share * (self.high - self.low)), ROUNDED * (self.high - self.low)
        if self.logarithmic:
            exact = float(self.low * (self.high / self.low) ** share)
            finest = min(finest, ROUNDED * exact)
        if self.integer:
            return round(exact)
        return self._within(round(exact, -math.floor(math.log10(finest))))

    @property
    def start(self) -> float:
        """Initial value: the value in the range nearest to the present value, or the middle of the range."""
        return 0.5 * (self.low + self.high) if self.begin is None else self._within(self.begin)

    def share(self) -> float:
        if self.logarithmic:
            return math.log(self.start / self.low) / math.log(self.high / self.low)
        return (self.start - self.low) / (self.high - self.low)

    def _within(self, value: float) -> float | int:
        return min(max(value, self.low), self.high)

    def at_end(self, value: float) -> bool:
        return min(value - self.low, self.high - value) <= SETTLED * (self.high - self.low)


@dataclass(frozen=True)
class Tuned:
    """Result of tuning: the best ``values`` by key.

    ``before`` and ``worst`` are the objectives in the worst case, before and after tuning. ``unjudged`` is the
    reason why stability was not judged, or empty.
    """

    values: Mapping[str, float | int]
    worst: float
    before: float
    evaluations: int
    unjudged: str = ""
    parameters: Sequence[Parameter] = ()
    runs: int = 1

    @property
    def usable(self) -> bool:
        return self.worst < BROKEN

    @property
    def improved(self) -> bool:
        return self.worst < (1.0 - SETTLED) * self.before

    @property
    def assignments(self) -> list[str]:
        return [f"{key}={value!r}" for key, value in self.values.items()]


def parameters(
    scenario: Scenario, stated: Sequence[str] | Mapping[str, tuple[float, float] | None]
) -> list[Parameter]:
    """Return the parameters to tune, by default all tunable numbers.

    ``stated`` is a dict of ranges by key, or a sequence of strings ``KEY[=LOW:HIGH]``.
    """
    ranges: Mapping[str, Sequence[str | float] | None] = dict.fromkeys(tunable(scenario))
    if isinstance(stated, Mapping):
        ranges = stated or ranges
    elif stated:
        texts = [text.partition("=") for text in stated]
        if twice := [key for key, count in Counter(key for key, *_ in texts).items() if count > 1]:
            raise ConfigError(f"parameters: {', '.join(twice)}: must be stated only once")
        return [_parameter(scenario, key, limits.split(":") if sign else None) for key, sign, limits in texts]
    if not ranges:
        kind = type(scenario.compensator).type_name
        raise ConfigError(f"compensator.type = {kind!r}: has no tunable numbers. Set parameters as KEY=LOW:HIGH")
    return [_parameter(scenario, key, limits) for key, limits in ranges.items()]


def tunable(scenario: Scenario) -> list[str]:
    return list(_numbers(scenario.compensator, "compensator"))


def _numbers(built: object, path: str) -> Iterator[str]:
    for name, spec in declared(type(built)).items():
        value = getattr(built, name)
        if spec.kind == "number" and name not in BY_ITSELF and value is not None and value > 0.0:
            yield f"{path}.{name}"
        elif spec.kind == "component" and is_params(value):
            yield from _numbers(value, f"{path}.{name}")


def _parameter(scenario: Scenario, key: str, limits: Sequence[str | float] | None) -> Parameter:
    value, spec = declaration(scenario, key, f"parameters: {key}")
    if spec is None or spec.kind not in ("number", "integer"):
        raise ConfigError(f"parameters: {key} = {show(value)}: must be a number")
    if limits is not None:
        low, high = _range(key, limits)
    elif value is None or not value > 0.0:
        raise ConfigError(f"parameters: {key} = {show(value)}: has no default range. Use {key}=LOW:HIGH")
    else:
        low = max(bound for bound in (value / AROUND, spec.at_least, spec.more_than) if bound is not None)
        high = min(bound for bound in (value * AROUND, spec.at_most, spec.less_than) if bound is not None)
    return Parameter(key, low, high, value, low > 0.0 and high / low >= AROUND, spec.kind == "integer")


def _range(key: str, limits: Sequence[str | float]) -> tuple[float, float]:
    try:
        low, high = map(float, () if isinstance(limits, str) else limits)
    except (TypeError, ValueError, OverflowError):
        low = high = math.nan
    if not -math.inf < low < high < math.inf:
        raise ConfigError(f"parameters: {key} = {show(limits)}: must be KEY=LOW:HIGH with LOW < HIGH")
    return low, high


class Search:
    """Searches for values of ``chosen`` that minimise ``index`` in the worst of ``scenarios``.

    Raises ConfigError if the index is unknown or a range is invalid.
    """

    def __init__(
        self, scenarios: Sequence[Scenario], chosen: Sequence[Parameter], index: str, where: engine.Where
    ) -> None:
        self._scenarios, self._chosen, self._index, self._where = scenarios, chosen, index, where
        indices = runs.known_indices(checked_loop(scenarios[0]).assembly)
        if index not in indices:
            raise unknown("index", "index", index, indices)
        for share in (0.0, 1.0):  # if both limits are valid, all values between them are valid
            replace(scenarios[0], pairs_of({parameter.key: parameter.value(share) for parameter in chosen}))
        self.evaluations, self._engine = 0, AUTO
        self.unjudged = ""
        self._decided = np.zeros(len(scenarios))
        """Number of fully evaluated candidates for which each scenario was the worst."""
        self._best: tuple[float, Array] = math.inf, np.zeros(0)
        self._told: Callable[[float], None] = lambda done: None

    def tune(self, budget: int, seed: int, progress: Callable[[float, float], None] | None = None) -> Tuned:
        """Return the best of at most ``budget`` (>= ``LEAST``) candidates. Start near the present settings."""
        from scipy.stats import qmc

        samples = sum(scenario.samples for scenario in self._scenarios)
        self._engine = self._where.engine_of(self._scenarios[0], budget * samples)
        if progress:
            self._told = lambda done: progress(done, budget)
        n = len(self._chosen)
        size = max(LEAST, min(EACH * n, budget // 2))
        first = qmc.LatinHypercube(n, seed=seed).random(size)
        first[0] = [parameter.share() for parameter in self._chosen]
        self._best = math.inf, first[0]
        before = self._along(first, budget) if n == 1 else self._evolve(first, budget, seed)
        worst, shares = self._best
        if any(row.start != row.begin for row in self._chosen):  # no candidate has the present settings
            self._best = math.inf, first[0]
            before = float(self.worst_cases(np.full((1, n), math.nan))[0])
            self.evaluations -= 1
        values, runs_of_one = self._values(shares), len(self._scenarios)
        return Tuned(values, worst, before, self.evaluations, self.unjudged, self._chosen, runs_of_one)

    def _along(self, first: Array, budget: int) -> float:
        from scipy.optimize import minimize_scalar

        values = self._first(first)
        if steps := budget - len(first):
            tried = np.sort([0.0, *first[:, 0], 1.0])
            best = self._best[1][0]
            between = tried[tried < best].max(initial=0.0), tried[tried > best].min(initial=1.0)
            minimize_scalar(
                lambda share: self.worst_cases(np.array([[share]]))[0],
                bounds=between,
                method="bounded",
                options={"maxiter": steps, "xatol": SETTLED},
            )
        return float(values[0])

    def _evolve(self, first: Array, budget: int, seed: int) -> float:
        from scipy.optimize import differential_evolution

        size, n = first.shape
        before: list[float] = []

        def worst(shares: Array) -> Array:
            if before:
                return self.worst_cases(shares.T)
            values = self._first(shares.T)
            before.append(float(values[0]))
            return values

        generations = max(0, budget // (2 * size) - 1)
        options = {"vectorized": True, "updating": "deferred", "polish": False, "tol": SETTLED, "seed": seed}
        differential_evolution(worst, [(0.0, 1.0)] * n, init=first, maxiter=generations, **options)
        self._polish(budget - self.evaluations)
        return before[0]

    def _polish(self, budget: int) -> None:
        """Search around the best candidate by a method that tolerates jumps of the objective."""
        from scipy.optimize import minimize

        value, best = self._best
        if not (budget and math.isfinite(value)):
            return
        evaluated = {tuple(self._values(best).values()): value}

        def worst(shares: Array) -> float:
            if (key := tuple(self._values(shares).values())) not in evaluated:
                evaluated[key] = self.worst_cases(shares[None, :])[0]
            return evaluated[key]

        beside = best + np.diag(np.where(best > 0.5, -NEAR, NEAR))
        options = {
            "initial_simplex": np.vstack([best, beside]),
            "maxfev": budget + 1,  # the first evaluation returns the known value of the best candidate
            "xatol": SETTLED,
            "fatol": SETTLED * value,
            "adaptive": True,
        }
        minimize(worst, best, method="Nelder-Mead", bounds=[(0.0, 1.0)] * len(best), options=options)

    def _first(self, shares: Array) -> Array:
        return np.concatenate([self.worst_cases(shares[:1]), self.worst_cases(shares[1:])])

    def worst_cases(self, shares: Array) -> Array:
        """Return the objective in the worst case, ``(n,)``, for each row of ``shares`` ``(n, parameters)``.

        Evaluation of a candidate stops once it is worse than the best candidate.
        """
        candidates = [self._values(row) for row in shares]
        worst = np.full((len(candidates), len(self._scenarios)), -np.inf)
        hardest, *rest = order = np.argsort(-self._decided, kind="stable").tolist()

        def text(number: int, position: int) -> str:
            return runs.to_json(replace(self._scenarios[position], pairs_of(candidates[number])).data())

        def run(pairs: Sequence[tuple[int, int]], report: Progress | None = None) -> None:
            jobs = [(text(*pair), self._index, self._engine) for pair in pairs]
            for job, outcome in engine.as_completed(ran, enumerate(jobs), len(jobs), self._where, report):
                worst[pairs[job]] = BROKEN if isinstance(outcome, Lost) else outcome

        def is_unstable(number: int) -> bool:
            jobs = enumerate([([text(number, position) for position in order],)])
            ((_, outcome),) = engine.as_completed(judged, jobs, 1, self._where)
            growing, unjudged = (None, "") if isinstance(outcome, Lost) else outcome
            self.unjudged = self.unjudged or unjudged
            if growing is not None:
                worst[number, order[growing]] = UNSTABLE
            return growing is not None

        begun = self.evaluations
        run([(number, hardest) for number in range(len(candidates))], lambda done: self._told(begun + sum(done)))
        while (value := worst[number := int(np.argmin(worst.max(axis=1)))].max()) <= self._best[0]:
            if np.isinf(worst[number]).any():
                run([(number, position) for position in rest])
            elif value >= BROKEN or not is_unstable(number):
                self._best = float(value), shares[number].copy()
                break
        np.add.at(self._decided, worst[np.isfinite(worst).all(axis=1)].argmax(axis=1), 1.0)
        self.evaluations += len(candidates)
        largest: Array = worst.max(axis=1)
        return largest

    def _values(self, shares: Array) -> dict[str, float | int]:
        """Return the parameter values by key at ``shares``; empty (present settings) if a share is NaN."""
        return (
            {}
            if np.isnan(shares).any()
            else {row.key: row.value(share) for row, share in zip(self._chosen, shares, strict=True)}
        )


def ran(text: str, index: str, preferred: str, tell: Tell) -> float:
    """Run a scenario and return the magnitude of ``index``. The earlier a run aborts, the larger its result."""
    scenario = runs.from_json(text, "candidate")
    findings = runs.Findings(**runs.run_safely(scenario, runs.needs_response([index]), preferred, tell))
    if findings.outcome != "finished":
        return BROKEN * (2.0 - findings.samples / scenario.samples)
    value = magnitude(index, findings.values.get(index, math.nan))
    return value if math.isfinite(value) else BROKEN


def judged(texts: Sequence[str], tell: Tell) -> tuple[int | None, str]:
    """Return the number of the first unstable scenario, or None, and the first reason for an unjudged one."""
    from rths_nodes.analysis.stability.judgement import is_stable
    from rths_nodes.analysis.stability.loops import Impulses

    impulses: dict[str, Impulses] = {}
    unjudged = ""
    for number, text in enumerate(texts):
        try:
            if not is_stable(runs.from_json(text, "candidate"), impulses):
                return number, unjudged
        except ConfigError as error:
            unjudged = unjudged or error.problems[0]
        tell((number + 1) / len(texts))
    return None, unjudged
