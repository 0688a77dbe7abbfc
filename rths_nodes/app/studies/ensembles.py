# SPDX-License-Identifier: Apache-2.0
"""Ensembles of plants: overrides drawn from a scenario's ``scatter`` by number and seed."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rths_nodes.core.data import Data
from rths_nodes.core.distributions import Distribution, distribution
from rths_nodes.core.errors import ConfigError, Problems, show, unknown, within
from rths_nodes.loop.scenario.files import pairs_of, replace
from rths_nodes.loop.scenario.schema import Scenario

NOMINAL = 0


@dataclass(frozen=True)
class Plant:
    number: int
    seed: int
    values: Data

    def of(self, scenario: Scenario) -> Scenario:
        """Return ``scenario`` with the values of this plant, without scatter.

        If the plant is drawn, the scenario's name contains its number. Raises ConfigError if drawn values are
        invalid.
        """
        pairs: list[tuple[list[str], object]] = pairs_of(self.values)
        pairs.append((["scatter"], {}))
        if self.number != NOMINAL:
            drawn = {"plant": self.number, "seed": self.seed, "values": dict(self.values)}
            pairs += [(["name"], f"{scenario.name}.plant_{self.number}"), (["recording", "drawn"], drawn)]
        with within(f"plant {self.number} of seed {self.seed}"):
            return replace(scenario, pairs)


def plant(scenario: Scenario, number: int, seed: int) -> Plant:
    """Return plant ``number``, drawn with ``seed`` from the scenario's scatter.

    Raises ConfigError if the scatter is invalid.
    """
    return _drawn(scenario, [number], seed)[0]


def plants(scenario: Scenario, count: int, seed: int, nominal: bool = False) -> list[Plant]:
    """Return plants 1 to ``count`` of ``seed``. With ``nominal``, the nominal plant comes first.

    Raises ConfigError if the scenario has no scatter.
    """
    if count and not scenario.scatter:
        raise ConfigError(f"{scenario.name}: has no scatter from which to draw {count} plants")
    return _drawn(scenario, range(0 if nominal or not count else 1, count + 1), seed)


def _drawn(scenario: Scenario, numbers: Sequence[int], seed: int) -> list[Plant]:
    if not any(numbers):
        return [Plant(NOMINAL, seed, {})]
    scatter = {key: distribution(text, f"scatter: {key}") for key, text in scenario.scatter.items()}
    # draw leaders before the keys that follow them
    ordered = dict(sorted(scatter.items(), key=lambda item: bool(item[1].leader)))
    data = scenario.data()
    return [Plant(n, seed, _values(data, ordered, n, seed) if n != NOMINAL else {}) for n in numbers]


def _values(data: Data, scatter: Mapping[str, Distribution], number: int, seed: int) -> dict[str, object]:
    problems = Problems()
    values: dict[str, object] = {}
    for key, distribution_of_key in scatter.items():
        with problems.gathered():
            nominal = _at(data, key)
            # one random stream per key, so that a further key does not change other values
            generator = np.random.default_rng([seed, number, zlib.crc32(key.encode())])
            with within(f"scatter: {key}"):
                if not (leader := distribution_of_key.leader):
                    values[key] = distribution_of_key.draw(generator, nominal)
                elif leader in values:
                    values[key] = distribution_of_key.following(nominal, values[leader], _at(data, leader))
    problems.refuse()
    return values


def _at(data: object, key: str) -> object:
    branch = data
    for name in key.split("."):
        if not isinstance(branch, Mapping):
            raise ConfigError(f"scatter: {key}: {show(branch)} has no {name}")
        if name not in branch:
            raise unknown(f"scatter: {key}", "key", name, branch)
        branch = branch[name]
    return branch
