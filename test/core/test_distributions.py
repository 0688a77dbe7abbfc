# SPDX-License-Identifier: Apache-2.0
"""Tests of distributions: moments, bounds, refusals, and repeatable draws."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.core.distributions import KINDS, distribution
from rths_nodes.core.errors import ConfigError

DRAWS = 20_000


def drawn(data: Any, nominal: Any = None) -> np.ndarray:
    generator, parameter = np.random.default_rng(3), distribution(data, "x")
    return np.array([parameter.draw(generator, nominal) for _ in range(DRAWS)])


@pytest.mark.parametrize(
    ("data", "mean", "deviation"),
    [
        ({"normal": [10.0, 2.0]}, 10.0, 2.0),
        ({"truncated_normal": [10.0, 2.0, -90.0, 110.0]}, 10.0, 2.0),
        ({"uniform": [2.0, 8.0]}, 5.0, 6.0 / math.sqrt(12.0)),
        ({"lognormal": [3.0, 0.4]}, 3.0 * math.exp(0.08), 3.0 * math.exp(0.08) * math.sqrt(math.exp(0.16) - 1.0)),
        ({"integers": [1, 6]}, 3.5, math.sqrt(35.0 / 12.0)),
        ({"choice": [1.0, 3.0]}, 2.0, 1.0),
    ],
)
def test_distribution_has_its_mean_and_deviation(data: Any, mean: float, deviation: float) -> None:
    """Bound on the mean: five standard errors."""
    values = drawn(data)
    assert values.mean() == pytest.approx(mean, abs=5.0 * deviation / math.sqrt(DRAWS))
    assert values.std() == pytest.approx(deviation, rel=0.05)


def test_truncated_normal_has_bounds_and_mean() -> None:
    """Half a normal distribution has the mean sqrt(2/pi) sigma."""
    values = drawn({"truncated_normal": [3.3, 1.3, 3.3, 100.0]})
    assert values.min() >= 3.3
    assert values.mean() - 3.3 == pytest.approx(1.3 * math.sqrt(2.0 / math.pi), rel=0.03)


def test_log_uniform_has_its_geometric_mean_as_median() -> None:
    values = drawn({"log_uniform": [1e-6, 1e-2]})
    assert (values.min() >= 1e-6, values.max() <= 1e-2) == (True, True)
    assert np.median(values) == pytest.approx(1e-4, rel=0.1)


def test_relative_distribution_scales_each_number() -> None:
    values = drawn({"relative_normal": 0.05}, [[2.0, 0.0], [-4.0, 8.0]])
    assert values.shape == (DRAWS, 2, 2)
    assert (values[:, 0, 1] == 0.0).all()
    shares = np.stack((values[:, 0, 0] / 2.0, values[:, 1, 0] / -4.0, values[:, 1, 1] / 8.0))
    assert shares.std(axis=1) == pytest.approx(0.05, rel=0.05)
    assert abs(np.corrcoef(shares) - np.eye(3)).max() < 0.05
    draw = distribution({"relative_uniform": 0.1}, "x").draw(np.random.default_rng(1), 7.0)
    assert draw == pytest.approx(7.0, rel=0.1)


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (3.0, ("x", "3", "normal")),
        ({"normal": [1.0, 2.0], "uniform": [1.0, 2.0]}, ("one distribution",)),
        ({"norml": [1.0, 2.0]}, ("x", "unknown", "norml", "normal")),
        ({"normal": [1.0]}, ("x.normal", "1.0")),
        ({"normal": [1.0, -2.0]}, ("deviation", "> 0")),
        ({"normal": [1.0, True]}, ("must be [mean",)),
        ({"normal": [1.0, math.inf]}, ("must be [mean",)),
        ({"normal": [10**400, 1.0]}, ("must be [mean", "with magnitudes <= ")),
        ({"uniform": [-1e308, 1e308]}, ("must be [lower",)),
        ({"uniform": [2.0, 1.0]}, ("lower", "< the")),
        ({"log_uniform": [0.0, 1.0]}, ("limits", "> 0")),
        ({"integers": [1.5, 3]}, ("whole", "numbers")),
        ({"lognormal": [0.0, 0.1]}, ("median", "> 0")),
        ({"truncated_normal": [0.0, 1.0, 20.0, 21.0]}, ("almost none", "distribution")),
        ({"choice": []}, ("list", "values")),
        ({"choice": "abc"}, ("list", "values")),
        ({"relative_normal": 2.0}, ("> 0", "< 1")),
        ({"like": 3.0}, ("x.like", "3", "scattered")),
        ({"like": ["a.b", "c"]}, ("only", "key")),
    ],
)
def test_invalid_distribution_is_refused(data: Any, parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        distribution(data, "x")


@pytest.mark.parametrize("nominal", ["text", True, None, [1.0, "a"]])
def test_relative_distribution_refuses_nominal_without_numbers(nominal: Any) -> None:
    with pytest.raises(ConfigError, match=naming("relative_normal", "numbers")):
        distribution({"relative_normal": 0.1}, "x").draw(np.random.default_rng(1), nominal)


@pytest.mark.parametrize("data", [{"integers": [0, 1e30]}, {"lognormal": [1.0, 1e4]}, {"like": ["a", 1e6]}])
def test_values_that_are_too_large_are_refused(data: Any) -> None:
    drawn = distribution(data, "x")
    with pytest.raises(ConfigError, match=naming(next(iter(data)), "too large")):
        [
            drawn.following(1.0, 3.0, 1.0) if drawn.leader else drawn.draw(np.random.default_rng(n))
            for n in range(9)
        ]


def test_all_kinds_are_tested() -> None:
    source = Path(__file__).read_text()
    assert all(f'"{name}"' in source for name in KINDS)
