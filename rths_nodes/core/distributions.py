# SPDX-License-Identifier: Apache-2.0
"""Probability distributions of parameters: syntax, checks and random values.

A distribution is a mapping from its kind to its numbers, e.g. ``{normal: [9.9976e4, 3.3e3]}``. A *relative*
distribution multiplies the nominal value. Each number of a list or a matrix gets its own factor. A value with
``{like: KEY}`` is multiplied by the factor of that key, raised to a power (default 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rths_nodes.core.errors import ConfigError, Problems, show, unknown
from rths_nodes.core.validation import LARGEST

LEAST_SHARE = 1e-9
CHOICE, LIKE = "choice", "like"
"""Kinds whose parameters are not numbers: ``CHOICE`` takes values, ``LIKE`` a key and a power (default 1)."""


@dataclass(frozen=True)
class Distribution:
    kind: str
    numbers: tuple[Any, ...]

    def draw(self, generator: np.random.Generator, nominal: object = None) -> Any:
        """Return a random value. A relative distribution multiplies ``nominal``: a number, list or matrix.

        Raises ConfigError if a relative distribution cannot multiply ``nominal``.
        """
        kind = KINDS[self.kind]
        if kind.relative:
            return self._multiplied(nominal, lambda: kind.draw(generator, *self.numbers))
        try:
            return kind.draw(generator, *self.numbers)
        except (OverflowError, ValueError):
            raise ConfigError(f"{self.kind}: {show(list(self.numbers))} gives values that are too large") from None

    @property
    def leader(self) -> str:
        """Key whose factor this distribution uses, or an empty string."""
        return str(self.numbers[0]) if self.kind == LIKE else ""

    @property
    def refers_to_nominal(self) -> bool:
        """True if a drawn value is the nominal value times a factor."""
        return KINDS[self.kind].relative or self.kind == LIKE

    def following(self, nominal: object, drawn: Any, standing: Any) -> Any:
        """Return ``nominal`` times a power of ``drawn / standing``.

        ``drawn`` and ``standing`` are the drawn and the nominal value of the leader. Raises ConfigError unless
        both are numbers of the same sign, and ``nominal`` is a number, list or matrix.
        """
        power = self.numbers[1]
        if not (_is_number(drawn) and _is_number(standing) and standing and drawn / standing > 0.0):
            raise ConfigError(
                f"{self.kind}: {self.leader} must be a number and keep its sign, but {show(standing)} became "
                f"{show(drawn)}"
            )
        try:
            factor = (drawn / standing) ** power
        except OverflowError:
            raise ConfigError(f"{self.kind}: the power {power:g} gives values that are too large") from None
        return self._multiplied(nominal, lambda: factor)

    def _multiplied(self, nominal: object, factor: Callable[[], float]) -> object:
        if isinstance(nominal, (list, tuple)):
            return [self._multiplied(entry, factor) for entry in nominal]
        if isinstance(nominal, bool) or not isinstance(nominal, (int, float)):
            raise ConfigError(
                f"{self.kind}: the distribution multiplies numbers and cannot multiply {show(nominal)}"
            )
        return nominal * factor()


@dataclass(frozen=True)
class Kind:
    """Kind of distribution. ``numbers`` names its parameters. ``draw(generator, *parameters)`` draws a value.

    ``refusal(*parameters)`` returns the reason why the parameters are invalid, or an empty string.
    """

    numbers: tuple[str, ...]
    draw: Callable[..., Any]
    refusal: Callable[..., str] = lambda *_: ""
    relative: bool = False


def _truncated(generator: np.random.Generator, mean: float, deviation: float, low: float, high: float) -> float:
    from scipy.special import ndtr, ndtri  # imported late, because the import takes 0.2 s

    # each draw consumes exactly one random number, even if the limits are narrow
    below, above = (ndtr((limit - mean) / deviation) for limit in (low, high))
    return min(max(mean + deviation * float(ndtri(generator.uniform(below, above))), low), high)


def _truncated_refusal(mean: float, deviation: float, low: float, high: float) -> str:
    if refusal := _positive(mean, deviation) or _ascending(low, high):
        return refusal
    from scipy.special import ndtr

    share = ndtr((high - mean) / deviation) - ndtr((low - mean) / deviation)
    return "" if share > LEAST_SHARE else "almost none of the distribution lies between its limits. Widen them"


def _positive(_: float, deviation: float) -> str:
    return "" if deviation > 0.0 else "the standard deviation must be > 0"


def _ascending(low: float, high: float) -> str:
    return "" if low < high else "the lower limit must be < the upper limit"


def _share(share: float) -> str:
    return "" if 0.0 < share < 1.0 else "the number must be > 0 and < 1"


KINDS: dict[str, Kind] = {
    "normal": Kind(("mean", "standard deviation"), lambda g, *n: float(g.normal(*n)), _positive),
    "truncated_normal": Kind(
        ("mean", "standard deviation", "lower limit", "upper limit"), _truncated, _truncated_refusal
    ),
    "lognormal": Kind(
        ("median", "standard deviation of the logarithm"),
        lambda g, median, deviation: median * math.exp(g.normal(0.0, deviation)),
        lambda median, deviation: (
            _positive(median, deviation) or ("" if median > 0.0 else "the median must be > 0")
        ),
    ),
    "uniform": Kind(("lower limit", "upper limit"), lambda g, *n: float(g.uniform(*n)), _ascending),
    "log_uniform": Kind(
        ("lower limit", "upper limit"),
        lambda g, low, high: math.exp(g.uniform(math.log(low), math.log(high))),
        lambda low, high: _ascending(low, high) or ("" if low > 0.0 else "the limits must be > 0"),
    ),
    "integers": Kind(
        ("smallest", "largest"),
        lambda g, low, high: int(g.integers(int(low), int(high) + 1)),
        lambda *ends: (
            _ascending(*ends)
            or ("" if all(end == int(end) for end in ends) else "both limits must be whole numbers")
        ),
    ),
    CHOICE: Kind(("values",), lambda g, *values: values[int(g.integers(len(values)))]),
    "relative_normal": Kind(
        ("relative standard deviation",),
        lambda g, share: 1.0 + float(g.normal(0.0, share)),
        _share,
        relative=True,
    ),
    "relative_uniform": Kind(
        ("largest relative deviation",),
        lambda g, share: 1.0 + float(g.uniform(-share, share)),
        _share,
        relative=True,
    ),
    LIKE: Kind(("another scattered key", "power"), lambda *_: math.nan),
}


def distribution(data: object, path: str) -> Distribution:
    """Build a distribution from ``{kind: numbers}``. If invalid, raise ConfigError with ``path`` and a remedy."""
    if not isinstance(data, Mapping) or len(data) != 1:
        kinds = "; ".join(f"{name}: {_listed(kind)}" for name, kind in KINDS.items())
        raise ConfigError(f"{path} = {show(data)}: must be one distribution, {{kind: numbers}}; kinds: {kinds}")
    ((name, values),) = data.items()
    if name not in KINDS:
        raise unknown(path, "distribution", name, KINDS)
    kind, numbers = KINDS[name], tuple(values) if isinstance(values, (list, tuple)) else (values,)
    where = f"{path}.{name} = {show(values)}"
    if name == CHOICE:
        if not isinstance(values, Sequence) or isinstance(values, str) or not numbers:
            raise ConfigError(f"{where}: must be a list of values")
        return Distribution(name, numbers)
    if name == LIKE:
        leader, *power = numbers if numbers else (None,)
        if not (isinstance(leader, str) and len(power) <= 1 and all(map(_is_number, power))):
            raise ConfigError(f"{where}: must be {_listed(kind)}, or only the key")
        return Distribution(name, (leader, *(power or [1.0])))
    if len(numbers) != len(kind.numbers) or not all(map(_is_number, numbers)):
        raise ConfigError(f"{where}: must be {_listed(kind)}, with magnitudes <= {LARGEST:g}")
    if refusal := kind.refusal(*numbers):
        raise ConfigError(f"{where}: {refusal}. The numbers are {_listed(kind)}")
    return Distribution(name, tuple(map(float, numbers)))


def check_scatter(scatter: Mapping[str, object], path: str) -> None:
    problems, scatters = Problems(), {}
    for key, data in scatter.items():
        with problems.gathered():
            scatters[key] = distribution(data, f"{path}: {key}")
    drawn = [key for key, drawn_scatter in scatters.items() if not drawn_scatter.leader]
    for key, drawn_scatter in scatters.items():
        with problems.gathered():
            if drawn_scatter.leader and drawn_scatter.leader not in drawn:
                raise unknown(f"{path}: {key}.like", "scattered key", drawn_scatter.leader, drawn)
    problems.refuse()


def _is_number(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float)) and abs(value) <= LARGEST


def _listed(kind: Kind) -> str:
    listed = ", ".join(kind.numbers)
    return f"[{listed}]" if len(kind.numbers) > 1 else listed
