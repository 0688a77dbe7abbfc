# SPDX-License-Identifier: Apache-2.0
"""Overrides of a scenario: those of ``--set``, and its named cases."""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rths_nodes.core import inputs
from rths_nodes.core.errors import ConfigError, Problems, show, unknown
from rths_nodes.core.validation import from_data
from rths_nodes.core.yaml_text import parse
from rths_nodes.loop.scenario.schema import Case, Scenario


def override(scenario: Scenario, overrides: Iterable[str]) -> Scenario:
    """The scenario with ``section.key=value`` applied; order matters only for a key given twice.

    ``section.type=X`` to another type replaces the section by the defaults of X. ``ground_motion.file=PATH``
    drops the record and what belonged to it, and resets the scale to 1. Files are relative to the working folder.
    Raises ConfigError.
    """
    pairs, problems = [], Problems()
    for assignment in overrides:
        with problems.gathered():
            pairs.append(_split(assignment))
    problems.refuse()
    return replace(scenario, pairs)


def replace(scenario: Scenario, pairs: Sequence[tuple[list[str], Any]]) -> Scenario:
    """As :func:`override`, from keys and values: ``(["structure", "mass"], 5e5)``."""
    return from_data(Scenario, _changed(scenario, pairs, Path())) if pairs else scenario


def _changed(scenario: Scenario, pairs: Iterable[tuple[list[str], Any]], folder: Path) -> dict[str, Any]:
    """The data with the ``pairs`` applied, whose files are relative to ``folder``."""
    data, problems = scenario.data(), Problems()
    for keys, value in sorted(pairs, key=_precedence):
        with problems.gathered():
            _apply(data, keys, value)
    problems.refuse()
    inputs.make_absolute(Scenario, data, folder)
    return data


def with_case(scenario: Scenario, name: str) -> Scenario:
    """The variant ``name``, itself without cases. Raises ConfigError that lists the known names."""
    if name not in scenario.cases:
        raise unknown("case", "case", name, scenario.cases)
    pairs = _pairs(scenario.cases[name].set)
    changes: list[tuple[list[str], Any]] = [(["cases"], {}), (["name"], f"{scenario.name}.{name}")]
    try:
        return replace(scenario, pairs + changes)
    except ConfigError as error:
        raise error.within(f"cases.{name}") from None


def with_absolute_cases(scenario: Scenario, folder: Path) -> Scenario:
    """The same, with the files that its cases name relative to ``folder`` made absolute."""
    sets = {name: _absolute(scenario, case, folder) for name, case in scenario.cases.items()}
    if all(case.set == sets[name] for name, case in scenario.cases.items()):
        return scenario
    data = scenario.data()
    for name, changes in sets.items():
        data["cases"][name]["set"] = changes
    return from_data(Scenario, data)


def _absolute(scenario: Scenario, case: Case, folder: Path) -> dict[str, Any]:
    if not any(isinstance(value, (str, Mapping)) for value in case.set.values()):
        return case.set
    try:
        data = _changed(scenario, copy.deepcopy(_pairs(case.set)), folder)
        return {key: functools.reduce(operator.getitem, key.split("."), data) for key in case.set}
    except (ConfigError, KeyError):  # is refused, with its place, when the case is asked for
        return case.set


def _pairs(changes: Mapping[str, Any]) -> list[tuple[list[str], Any]]:
    return [(key.split("."), value) for key, value in changes.items()]


FILE = ["ground_motion", "file"]


def _precedence(pair: tuple[list[str], Any]) -> tuple[int, int]:
    """Types come first, outer sections before inner ones; then the file; then what fills them in."""
    keys, _ = pair
    if keys[-1] == "type":
        return 0, len(keys)
    return (1, 0) if keys == FILE else (2, 0)


def _split(assignment: str) -> tuple[list[str], Any]:
    key, sign, value = assignment.partition("=")
    keys = key.strip().split(".")
    if not sign or not all(keys):
        raise ConfigError(f"--set {assignment}: must be section.key=value")
    return keys, value if keys == FILE else parse(value, f"--set {key.strip()}")


def _apply(data: dict[str, Any], keys: list[str], value: Any) -> None:
    place: Any = data
    for depth, key in enumerate(keys[:-1]):
        path = ".".join(keys[: depth + 1])
        if key not in place and "type" in place:
            place[key] = {}  # emptied by a new type; whether that type knows it is checked when it is built
        if key not in place:
            raise unknown(path, "section", key, place)
        if place[key] is None:
            place[key] = {}
        place = place[key]
        if not isinstance(place, dict):
            raise ConfigError(f"{path} = {show(place)}: is a value, not a section; cannot set {'.'.join(keys)}")
    last = keys[-1]
    if last == "type":
        if place.get("type") != value:
            place.clear()
        place["type"] = value
    elif keys == FILE:
        place.clear()
        place |= {"type": "record", "file": value}
    else:
        place[last] = value
