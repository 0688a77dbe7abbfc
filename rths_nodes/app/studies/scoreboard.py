# SPDX-License-Identifier: Apache-2.0
"""Scoreboard: every compensator on the same cases, plants and noise, ranked (``doc/studies.md``).

Block B has the scenario's ``force_lead``, which compensates the delay of the measured forces. Block A has no
``force_lead``; compensators with the parameter ``lead`` get this time as ``lead``. A scenario without
``force_lead`` has a single block.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rths_nodes.analysis.study_table import HIGH, StudyTable, percentile
from rths_nodes.app.studies import engine, runs, tuning
from rths_nodes.app.studies.candidates import Candidate
from rths_nodes.app.studies.design import CASE, Design, StudyFile
from rths_nodes.app.studies.ensembles import plants
from rths_nodes.app.studies.results import Score
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, within
from rths_nodes.core.parameters import declared
from rths_nodes.core.samples import Array
from rths_nodes.core.validation import to_data
from rths_nodes.loop.scenario.files import Overrides, pairs_of, replace, with_case
from rths_nodes.loop.scenario.schema import Case, Scenario

LAW, SEED, RECORD = "law", "seed", "ground_motion.record"
TRAINING = 1_000_000
"""Difference between the seeds of training and of scoring, for plants and noise."""
WITHOUT, WITH = "A", "B"
PLANTS = 100
SCORED = ("cases", "noise_seeds", "plants", "seed", "indices", "records")
"""Conditions that determine the scores, and that an entry contains."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Conditions of a scoreboard. The fields are arguments of :func:`rths_nodes.scoreboard`."""

    laws: Sequence[object] = ()
    settings: str | os.PathLike[str] | Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    cases: Sequence[str] = ()
    plants: int | None = None
    noise_seeds: int = 3
    seed: int = 1
    records: Sequence[str] = ()
    indices: Sequence[str] = ()
    rank: str | None = None
    response: str | None = None
    tune: int = 0
    training: Overrides = ()
    training_plants: int = 2
    entry: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        least = {"noise_seeds": 1, "seed": 0, "tune": 0, "training_plants": 0, "plants": 0}
        for name, bound in least.items():
            value = vars(self)[name]
            if value is not None and value < bound:
                raise ConfigError(f"{name} = {value}: must be >= {bound}")
        if 0 < self.tune < tuning.LEAST:
            raise ConfigError(f"tune = {self.tune}: must be 0 or >= {tuning.LEAST}")

    def resolved(self, scenario: Scenario) -> Conditions:
        """Return these conditions with the defaults of ``scenario``. The first index determines the rank."""
        rank = self.rank or runs.ranking_index(scenario)
        indices = (rank, *(self.indices or runs.shown_indices(scenario)), self.response or rank)
        plants = (PLANTS if scenario.scatter else 0) if self.plants is None else self.plants
        names = tuple(self.cases or cases(scenario))
        return replace_fields(
            self,
            cases=names,
            plants=plants,
            records=tuple(self.records),
            indices=tuple(dict.fromkeys(indices)),
        )


def cases(scenario: Scenario) -> list[str]:
    return [
        name
        for name, case in scenario.cases.items()
        if not any(key.split(".")[0] == "compensator" for key in case.set)
    ]


def published(scenario: Scenario) -> dict[str, Case]:
    return {name: case for name, case in scenario.cases.items() if case.published}


def blocks(scenario: Scenario) -> dict[str, Data]:
    lead = scenario.force_lead
    return {WITHOUT: {}} if lead is None else {WITHOUT: {"force_lead": None}, WITH: {"force_lead": lead}}


def in_block(scenario: Scenario, law: Candidate, block: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of ``law`` in a block, as changes of the scenario. The total lead is always the same."""
    settings = dict(law.settings)
    built = replace(scenario, [(["compensator"], settings)]).compensator
    if "lead" in declared(type(built)) and block:
        settings["lead"] = to_data(scenario)["force_lead"] if block["force_lead"] is None else 0.0
    return {"compensator": settings} | dict(block)


def tuned(
    scenario: Scenario,
    chosen: Sequence[Candidate],
    index: str,
    budget: int,
    count: int,
    where: engine.Where,
    training: Sequence[tuple[list[str], object]] = (),
    report: Callable[[str, float, float], None] | None = None,
) -> tuple[list[Candidate], dict[str, tuning.Tuned]]:
    """Return each law with the best of ``budget`` settings, and the results of the searches.

    Training uses the nominal plant and ``count`` other plants, the first block and all cases, with separate seeds.
    A law without a tunable number or without stable settings is unchanged. Raises ConfigError, before any run, if
    a setting is invalid.
    """
    base = replace(scenario, [(["seed"], scenario.seed + TRAINING), *training])
    bases = [with_case(base, name) for name in cases(scenario)] or [base]
    drawn = plants(base, count, TRAINING + scenario.seed, nominal=True)
    first = next(iter(blocks(scenario).values()))
    searches = {}
    for law in chosen:
        if law.reason:
            continue
        changes = [([key], value) for key, value in in_block(base, law, first).items()]
        with within(f"training: {law.name}"):
            scenarios = [replace(plant.of(case), changes) for case in bases for plant in drawn]
            if tuning.tunable(scenarios[0]):
                parameters = tuning.parameters(scenarios[0], [])
                searches[law.name] = tuning.Search(scenarios, parameters, index, where)
    assignments, laws = {}, []
    for law in chosen:
        if search := searches.get(law.name):
            result = search.tune(budget, scenario.seed, partial(report, law.name) if report else None)
            assignments[law.name] = result
            law = _with(scenario, law, result.values) if result.usable else law
        laws.append(law)
    return laws, assignments


def _with(scenario: Scenario, law: Candidate, values: Mapping[str, object]) -> Candidate:
    best = replace(scenario, pairs_of({"compensator": dict(law.settings)} | dict(values)))
    return Candidate(law.name, to_data(best.compensator))


def design(scenario: Scenario, chosen: Sequence[Candidate], conditions: Conditions) -> Design:
    """Return the study of all laws that can take part.

    Raises ConfigError if no law can take part, or if a name is unknown.
    """
    able = [law for law in chosen if not law.reason]
    if not able:
        raise ConfigError(*(f"{law.name}: {law.reason}" for law in chosen))
    both = blocks(scenario)
    levels = {
        f"{law.name} {name}" if len(both) > 1 else law.name: in_block(scenario, law, block)
        for law in able
        for name, block in both.items()
    }
    factors: dict[str, object] = {LAW: {"settings": levels}}
    if conditions.cases:
        factors[CASE] = {"list": list(conditions.cases)}
    if conditions.records:
        factors[RECORD] = {"list": list(conditions.records)}
    factors[SEED] = {"list": [scenario.seed + number for number in range(conditions.noise_seeds)]}
    file = StudyFile(
        version=1,
        name=f"{scenario.name}_scoreboard",
        description=f"every compensator in {scenario.name}",
        scenario=scenario.name,
        factors=factors,
        plants=conditions.plants or 0,
        nominal=True,
        seed=conditions.seed,
        indices=tuple(conditions.indices),
    )
    return Design(file, Path(), scenario)


def scores(table: StudyTable, chosen: Sequence[Candidate], index: str) -> list[Score]:
    """Return the rows of the scoreboard, best first.

    Rows are sorted by fraction of failed runs, then by the high percentile of ``index``. Rows with equal fractions
    tie if their ranges over the noise seeds overlap.
    """
    labels = np.array(table.columns[LAW])
    sizes = {name: table.magnitudes(name) for name in table.indices}
    rows = [
        _score(table, str(label), np.flatnonzero(labels == label), sizes, index) for label in dict.fromkeys(labels)
    ]
    rows.sort(key=lambda row: (row[0].unstable, np.nan_to_num(row[0].high[index], nan=np.inf)))
    places: list[int] = []
    for number, (score, least, _) in enumerate(rows):
        leader, _, largest = rows[places[-1] if places else 0]
        equal = number > 0 and score.unstable == leader.unstable and least <= largest
        places.append(places[-1] if equal else number)
    ranked = [
        replace_fields(score, place=f"{rank + 1}{'=' if places.count(rank) > 1 else ''}")
        for (score, *_), rank in zip(rows, places, strict=True)
    ]
    return [*ranked, *(Score(law.name, "", 0, 0, law.reason, {}, {}, {}) for law in chosen if law.reason)]


def _score(
    table: StudyTable, label: str, rows: NDArray[np.intp], sizes: Mapping[str, Array], index: str
) -> tuple[Score, float, float]:
    """Return the score of ``rows``, and the smallest and largest high percentile of ``index`` over the seeds.

    Both percentiles are NaN for a single seed or failed runs.
    """
    law, _, block = label.partition(" ")
    size = {name: values[rows] for name, values in sizes.items()}
    median, high, worst = (
        {name: percentile(values, percent) for name, values in size.items()} for percent in (50.0, HIGH, 100.0)
    )
    failed = rows[~table.finished[rows]]
    reasons = Counter(f"{table.columns['outcome'][row]}: {table.columns['reason'][row]}" for row in failed)
    commonest = reasons.most_common(1)[0][0] if reasons else ""
    score = Score(law, block or WITHOUT, len(rows), len(failed), commonest, median, high, worst)
    seeds = np.array(table.columns[SEED])[rows] if SEED in table.columns else np.zeros(len(rows))
    highs = [percentile(size[index][seeds == seed], HIGH) for seed in np.unique(seeds)]
    if len(highs) == 1 or not np.isfinite(highs).all():
        return score, math.nan, math.nan
    return score, min(highs), max(highs)
