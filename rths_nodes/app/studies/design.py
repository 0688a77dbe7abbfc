# SPDX-License-Identifier: Apache-2.0
"""Design of a study (``doc/studies.md``): factors from a file, and the resulting runs.

The runs are all combinations of the levels, each with the same plants.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rths_nodes.analysis.study_table import is_number, shown
from rths_nodes.app.studies.ensembles import Plant, plants
from rths_nodes.app.studies.runs import known_indices, needs_response, shown_indices, to_json
from rths_nodes.core import registry
from rths_nodes.core.distributions import KINDS, distribution
from rths_nodes.core.errors import ConfigError, Problems, show, unknown, within
from rths_nodes.core.inputs import Named, named_files
from rths_nodes.core.parameters import flag, integer, mapping, params, text, texts
from rths_nodes.core.validation import from_data, walk
from rths_nodes.core.version import __version__
from rths_nodes.core.yaml_text import parse, source_of
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.files import declaration, pairs_of, replace, with_case
from rths_nodes.loop.scenario.schema import Scenario

MOST_RUNS = 100_000
LARGEST = float(np.finfo(float).max)
CASE = "case"
COLUMNS = ("run", "name", "outcome", "reason", "plant", "scenario")
"""Columns of the table, in addition to factors, drawn values and indices."""
LEVELS = ("list", "grid", "log_grid", "settings")


@params
class StudyFile:
    version: int = integer("version of this file format", at_least=1, at_most=1)
    name: str = text("name of the study")
    description: str = text("purpose of the study", "")
    scenario: str = text("name of a shipped scenario, or path of a YAML file, relative to the study file")
    case: str = text("case of the scenario", "")
    set: dict[str, object] = mapping("changes of the scenario in all runs, as section.key: value")
    factors: dict[str, object] = mapping(
        "varied keys, as section.key: {list: [...]} or with another kind of levels"
    )
    plants: int = integer("number of plants drawn for each combination of the factors", "", 0, at_least=0)
    nominal: bool = flag("true: run the scenario's own plant in addition to the drawn plants", False)
    seed: int = integer("seed of the drawn plants", "", 1, at_least=0)
    indices: tuple[str, ...] = texts("shown indices, named as in rths compare")

    def validate(self, path: str) -> None:
        if not self.name or os.sep in self.name or self.name.startswith("."):
            raise ConfigError(f"name = {show(self.name)}: must be a valid name of a folder")


@dataclass(frozen=True)
class Level:
    """Level of a factor: label and changes. ``case`` is empty unless the level is a case of the scenario."""

    label: float | str
    changes: tuple[tuple[str, object], ...] = ()
    case: str = ""


@dataclass(frozen=True)
class Row:
    """Run of a study, with the ``scenario`` as text.

    For an invalid scenario, ``reason`` is set and ``scenario`` is empty. ``key`` identifies scenario, contents of
    its files, version of this package, and the process if a component is not part of a package.
    """

    number: int
    name: str
    levels: Mapping[str, float | str]
    plant: Plant
    scenario: str
    reason: str
    key: str


class Design:
    """Checked study with its factors, plants and runs.

    ``scenario`` replaces the scenario that the study file names. A path in the study file is relative to
    ``folder``. Raises ConfigError with all problems of the study.
    """

    def __init__(self, study: StudyFile, folder: Path, scenario: Scenario | None = None) -> None:
        self.name, self.description = study.name, study.description
        beside = folder / os.path.expanduser(study.scenario)
        base = scenario or files.load(beside if beside.is_file() else study.scenario)
        self.base = replace(with_case(base, study.case) if study.case else base, pairs_of(study.set), "set")
        self.seed, problems = study.seed, Problems()
        self.factors: dict[str, tuple[Level, ...]] = {}
        scatter = dict(self.base.scatter) if study.plants else {}
        for name, data in study.factors.items():
            with problems.gathered():
                if isinstance(data, Mapping) and len(data) == 1 and next(iter(data)) in KINDS:
                    distribution(data, f"factors.{name}")
                    scatter[name] = data
                else:
                    self.factors[name] = _levels(name, data, self.base)
        problems.refuse()
        if both := scatter.keys() & self.factors.keys():
            raise ConfigError(f"factors: the scenario also scatters {', '.join(sorted(both))}. Set scatter: {{}}")
        if scatter and not study.plants:
            raise ConfigError(f"plants = 0: must be > 0 to draw {', '.join(scatter)}")
        self.base = replace(self.base, [(["scatter"], scatter)])
        self.plants = plants(self.base, study.plants, study.seed, study.nominal)
        self.count = len(self.plants) * math.prod(len(levels) for levels in self.factors.values())
        if self.count > MOST_RUNS:
            raise ConfigError(f"number of runs = {self.count}: must be <= {MOST_RUNS}")
        self.indices = study.indices or shown_indices(self.base)
        self._hash = cache(Named.hash)
        self._check()

    @property
    def drawn(self) -> tuple[str, ...]:
        return tuple(self.base.scatter)

    @property
    def titles(self) -> dict[str, str]:
        names = _short([*self.factors, *self.drawn])
        return {key: _titled(self.base, key, name.replace("_", " ")) for key, name in names.items()}

    @cached_property
    def rows(self) -> list[Row]:
        names = _short(list(self.factors))
        rows: list[Row] = []
        for chosen in itertools.product(*self.factors.values()):
            levels = dict(zip(self.factors, chosen, strict=True))
            labels = [f"{names[name]}={shown(level.label)}" for name, level in levels.items()]
            reason, scenario = "", self.base
            try:
                scenario = self._with(levels)
            except ConfigError as error:
                reason = "; ".join(error.problems)
            for plant in self.plants:
                name = labels + ([f"plant {plant.number}"] if len(self.plants) > 1 else [])
                rows.append(self._row(len(rows), ", ".join(name), levels, plant, scenario, reason))
        return rows

    def _row(
        self, number: int, label: str, levels: Mapping[str, Level], plant: Plant, scenario: Scenario, reason: str
    ) -> Row:
        name, resolved, contents = label or self.base.name, "", ""
        if not reason:
            try:
                data = plant.of(scenario).data() | {"cases": {}}
                resolved, contents = to_json(data), " ".join(map(self._hash, named_files(Scenario, data)))
            except ConfigError as error:
                reason = "; ".join(error.problems)
        session = registry.session_of(part for _, part in walk(scenario)) if registry.added() else ""
        response = "with response " if needs_response(self.indices) else ""  # other runs lack these indices
        parts = f"{__version__} {session}{response}{contents}{resolved or name}"
        key = hashlib.sha256(parts.encode()).hexdigest()[:20]
        labels = {factor: level.label for factor, level in levels.items()}
        return Row(number, name, labels, plant, resolved, reason, key)

    def _with(self, levels: Mapping[str, Level]) -> Scenario:
        scenario = self.base
        for level in levels.values():
            if level.case:
                scenario = with_case(scenario, level.case)
        changes = dict(change for level in levels.values() for change in level.changes)
        return replace(scenario, pairs_of(changes), "factors")

    def _check(self) -> None:
        """Check the names of the indices, and each level once, with all other factors at their first level."""
        first = {name: levels[0] for name, levels in self.factors.items()}
        known_names = set(known_indices(checked_loop(self._with(first)).assembly))
        problems = Problems()
        for name, levels in self.factors.items():
            for level in levels[1:]:
                with problems.gathered():
                    scenario = self._with(first | {name: level})
                    try:
                        known_names.update(known_indices(checked_loop(scenario).assembly))
                    except ConfigError:
                        continue
        problems += [
            f"factors.{name}: is the name of another column of the table; choose another name"
            for name in self.factors
            if name in COLUMNS or name in known_names
        ]
        problems.refuse()
        for index in self.indices:
            if index not in known_names:
                raise unknown("indices", "index", index, known_names)


def load(path: str | os.PathLike[str]) -> Design:
    data = parse(source_of(path, f"study {str(path)!r}"), str(path))
    with within(str(path)):
        return Design(from_data(StudyFile, data), Path(path).parent)


def _levels(name: str, data: object, base: Scenario) -> tuple[Level, ...]:
    path = f"factors.{name}"
    if not isinstance(data, Mapping) or len(data) != 1:
        kinds = ", ".join([*LEVELS, *KINDS])
        raise ConfigError(f"{path} = {show(data)}: must be {{kind: values}}, where kind is one of {kinds}")
    ((kind, entries),) = data.items()
    if kind not in LEVELS:
        raise unknown(path, "kind of levels", kind, [*LEVELS, *KINDS])
    where = f"{path}.{kind}"
    if kind == "settings":
        named = isinstance(entries, Mapping) and all(isinstance(level, Mapping) for level in entries.values())
        if not named or not entries:
            raise ConfigError(f"{where} = {show(entries)}: must be a mapping of names to {{section.key: value}}")
        return tuple(Level(str(label), tuple(changes.items())) for label, changes in entries.items())
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"{where} = {show(entries)}: must be a list with at least one entry")
    values: list[Any] = entries if kind == "list" else _grid(where, entries, kind == "log_grid")
    if name != CASE:
        return tuple(Level(_label(value), ((name, value),)) for value in values)
    for value in values:
        if not isinstance(value, str) or value not in base.cases:
            raise unknown(where, "case", value, base.cases)
    return tuple(Level(value, case=value) for value in values)


def _grid(where: str, bounds: list[Any], logarithmic: bool) -> list[float]:
    finite = len(bounds) == 3 and all(is_number(value) and abs(value) <= LARGEST for value in bounds)
    if not finite or bounds[2] != int(bounds[2]) or not 1 <= bounds[2] <= MOST_RUNS:
        raise ConfigError(f"{where} = {show(bounds)}: must be [first, last, number of values]")
    first, last, count = float(bounds[0]), float(bounds[1]), int(bounds[2])
    if logarithmic and not (first > 0.0 and last > 0.0):
        raise ConfigError(f"{where} = {show(bounds)}: the first and the last value must be > 0")
    spaced: list[float] = (np.geomspace if logarithmic else np.linspace)(first, last, count).tolist()
    return spaced


def _label(value: Any) -> float | str:
    if registry.is_component(value):
        return registry.name_of(value)
    return value if is_number(value) or isinstance(value, str) else json.dumps(value)


def _titled(base: Scenario, key: str, name: str) -> str:
    try:
        _, spec = declaration(base, key, key)
    except ConfigError:  # the factor is a name for settings, or a key that only such settings have
        return name
    if spec is None or not spec.unit:
        return name
    return f"{name.removesuffix(' per mm2')} ({spec.unit.replace('^2', '²')})"


def _short(names: list[str]) -> dict[str, str]:
    shortened = {}
    for name in names:
        parts, count = name.split("."), 1
        while any(other != name and other.split(".")[-count:] == parts[-count:] for other in names):
            count += 1
        shortened[name] = ".".join(parts[-count:])
    return shortened
