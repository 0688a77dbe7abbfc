# SPDX-License-Identifier: Apache-2.0
"""Competition of compensators: identification, settings, tuning, all runs, and the scoreboard with its files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from pathlib import Path

from rths_nodes.analysis.index_definitions import RANGE
from rths_nodes.analysis.report import studies as page
from rths_nodes.app.studies import candidates, engine, entries, remaining, runs, scoreboard, study, tuning
from rths_nodes.app.studies.candidates import Candidate, Identified
from rths_nodes.app.studies.study import Hooks
from rths_nodes.app.studies.tuning import Tuned
from rths_nodes.core import registry, yaml_text
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.text_files import write_columns
from rths_nodes.core.validation import to_data
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.overrides import Overrides, pairs_in
from rths_nodes.loop.scenario.schema import Scenario

FAMILY = "compensator"
PLANTS = 100
PAGE, SCORES, SETTINGS, TEXT = "scoreboard.html", "scoreboard.csv", "settings.yaml", "scoreboard.md"


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Conditions of a competition. The fields are arguments of :func:`rths_nodes.scoreboard`."""

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


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome(page.Scoreboard):
    """Scoreboard with the identification of the rig, and with settings and searches by law."""

    identified: Identified
    settings: Mapping[str, Mapping[str, object]]
    searches: Mapping[str, Tuned]
    facts: Mapping[str, str]


def compete(
    scenario: Scenario, conditions: Conditions, folder: Path, where: engine.Where, hooks: Hooks
) -> Outcome:
    """Identify the rig, tune if requested, execute all runs, and write a scoreboard to ``folder``.

    Raises ConfigError if a condition is invalid (usually before any run), and OSError if a file cannot be written.
    """
    rank = conditions.rank or runs.ranking_index(scenario)
    names = [registry.named(FAMILY, law, "laws") for law in conditions.laws]
    stored = files.settings_of(conditions.settings)
    scored = _scored(conditions, scenario, rank)
    # refuse before any motion; ranges are checked later, because only a compensator knows its states
    nominal = Candidate(type(scenario.compensator).type_name, to_data(scenario.compensator))
    indices = tuple(index for index in scored.indices if not index.endswith(RANGE))
    scoreboard.design(scenario, [nominal], replace_fields(scored, indices=indices))
    names = names or [*registry.names(FAMILY), *stored]
    for name in names:
        if name not in stored:
            registry.load(FAMILY, name, "laws")
    folder.mkdir(parents=True, exist_ok=True)
    identified = candidates.identify(scenario, folder, hooks.shown)
    chosen = candidates.chosen(scenario, identified, names, stored)
    searches: dict[str, Tuned] = {}
    if conditions.tune:
        chosen, searches = _tuned(conditions, scenario, chosen, rank, where, hooks)
    design = scoreboard.design(scenario, chosen, scored)
    # before any run, refuse files that cannot be included
    entry = entries.begun(scenario, scored, chosen, folder) if conditions.entry else None
    table = study.complete(design, folder, where, hooks)
    scores = scoreboard.scores(table, chosen, rank)
    board = Outcome(
        table=table,
        scores=scores,
        published=scoreboard.published(scenario),
        axes=(rank, conditions.response or rank),
        which=scenario.indices,
        identified=identified,
        settings={law.name: _relative(folder, law.settings) for law in chosen if not law.reason},
        searches=searches,
        facts=_facts(conditions, scored, table.scenario, identified),
    )
    _write(board, folder)
    if entry is not None and conditions.entry:
        entries.write(entries.written(entry, scores), Path(conditions.entry))
    return board


def _scored(conditions: Conditions, scenario: Scenario, rank: str) -> scoreboard.Scored:
    plants = conditions.plants
    if plants is None:
        plants = PLANTS if scenario.scatter else 0
    shown = conditions.indices or runs.shown_indices(scenario)
    return scoreboard.Scored(
        tuple(conditions.cases or scoreboard.cases(scenario)),
        conditions.noise_seeds,
        plants,
        conditions.seed,
        tuple(dict.fromkeys([rank, *shown, conditions.response or rank])),
        tuple(conditions.records),
    )


def _tuned(
    conditions: Conditions,
    scenario: Scenario,
    chosen: list[Candidate],
    rank: str,
    where: engine.Where,
    hooks: Hooks,
) -> tuple[list[Candidate], dict[str, Tuned]]:
    pairs = pairs_in(conditions.training, "training")
    with hooks.shown("tuning") as progress:
        order = [law.name for law in chosen if not law.reason]
        tell = remaining.weighed(progress, [(name,) for name in order])

        def report(name: str, done: float, total: float) -> None:
            position = order.index(name)
            tell([1.0] * position + [min(1.0, done / total)] + [0.0] * (len(order) - position - 1))

        count = conditions.training_plants if scenario.scatter else 0
        return scoreboard.tuned(scenario, chosen, rank, conditions.tune, count, where, pairs, report)


def _facts(
    conditions: Conditions, scored: scoreboard.Scored, scenario: str, identified: Identified
) -> dict[str, str]:
    source = conditions.settings if isinstance(conditions.settings, (str, os.PathLike)) else "a mapping"
    begin = f"settings from {source}, all others as identified" if conditions.settings else "as identified"
    return {
        "Scenario": scenario,
        "Plants": f"nominal plant and {scored.plants} drawn with seed {scored.seed}"
        if scored.plants
        else "nominal plant",
        **({"Records": ", ".join(scored.records)} if scored.records else {}),
        "Noise": f"{scored.noise_seeds} seeds",
        "Settings": f"{begin}, then tuned with {conditions.tune} candidates per compensator"
        if conditions.tune
        else begin,
        "Identified delay": f"{1e3 * identified.delay:.4g} ms at {1e3 * identified.rms:.3g} mm rms",
    }


def _write(board: Outcome, folder: Path) -> None:
    study.write(board.table, folder)
    write_columns(board.columns(), folder / SCORES)
    (folder / SETTINGS).write_text(yaml_text.dump(board.settings), encoding="utf-8")
    (folder / TEXT).write_text(page.markdown(board, board.facts), encoding="utf-8")
    texts = {
        name: yaml_text.dump(values) + _search(board.searches.get(name)) for name, values in board.settings.items()
    }
    page.write(folder / PAGE, board, texts, board.facts)


def _relative(folder: Path, settings: Mapping[str, object]) -> dict[str, object]:
    prefix = f"{folder.absolute()}{os.sep}"
    return {
        key: value.removeprefix(prefix) if isinstance(value, str) else value for key, value in settings.items()
    }


def _search(tuned: Tuned | None) -> str:
    if tuned is None:
        return ""
    return (
        f"# worst case in training: {tuned.before:.4g} before tuning, {tuned.worst:.4g} after "
        f"{tuned.evaluations} candidates\n"
    )
