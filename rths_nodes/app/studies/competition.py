# SPDX-License-Identifier: Apache-2.0
"""Competition of compensators: identification, settings, tuning, all runs, and the scoreboard with its files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace as replace_fields
from datetime import UTC, datetime
from pathlib import Path

from rths_nodes.analysis.figures.drawing import on_page
from rths_nodes.analysis.index_definitions import RANGE, definitions
from rths_nodes.analysis.published_indices import legend
from rths_nodes.analysis.report.document import template, write_page
from rths_nodes.analysis.study_table import HIGH
from rths_nodes.analysis.units import grouped, rounded
from rths_nodes.app.studies import candidates, engine, entries, scoreboard, study
from rths_nodes.app.studies.candidates import Candidate
from rths_nodes.app.studies.results import Score, Scoreboard, columns, drawings
from rths_nodes.app.studies.scoreboard import Conditions
from rths_nodes.app.studies.study import Hooks
from rths_nodes.app.studies.tuning import Tuned
from rths_nodes.core import registry, yaml_text
from rths_nodes.core.data import Data
from rths_nodes.core.text_files import write_columns
from rths_nodes.core.validation import to_data
from rths_nodes.core.version import __version__
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.files import pairs_in
from rths_nodes.loop.scenario.schema import Scenario

FAMILY = "compensator"
PAGE, SCORES, SETTINGS, TEXT = "scoreboard.html", "scoreboard.csv", "settings.yaml", "scoreboard.md"


def compete(
    scenario: Scenario, chosen_conditions: Conditions, folder: Path, where: engine.Where, hooks: Hooks
) -> Scoreboard:
    """Identify the rig, tune if requested, execute all runs, and write a scoreboard to ``folder``.

    Raises ConfigError if a condition is invalid (usually before any run), and OSError if a file cannot be written.
    """
    conditions = chosen_conditions.resolved(scenario)
    names = [registry.named(FAMILY, law, "laws") for law in conditions.laws]
    stored = files.settings_of(conditions.settings)
    # refuse before any motion; ranges are checked later, because only a compensator knows its states
    nominal = Candidate(type(scenario.compensator).type_name, to_data(scenario.compensator))
    indices = tuple(index for index in conditions.indices if not index.endswith(RANGE))
    scoreboard.design(scenario, [nominal], replace_fields(conditions, indices=indices))
    names = names or [*registry.names(FAMILY), *stored]
    for name in names:
        if name not in stored:
            registry.load(FAMILY, name, "laws")
    folder.mkdir(parents=True, exist_ok=True)
    identified = candidates.identify(scenario, folder, hooks.shown)
    laws = candidates.chosen(scenario, identified, names, stored)
    searches: dict[str, Tuned] = {}
    if conditions.tune:
        laws, searches = _tuned(conditions, scenario, laws, where, hooks)
    design = scoreboard.design(scenario, laws, conditions)
    # before any run, refuse files that cannot be included
    entry = entries.begun(scenario, conditions, laws, folder) if conditions.entry else None
    table = study.complete(design, folder, where, hooks)
    rank, response = conditions.indices[0], conditions.response or conditions.indices[0]
    board = Scoreboard(
        table,
        scoreboard.scores(table, laws, rank),
        scoreboard.published(scenario),
        (rank, response),
        scenario.indices,
        identified,
        {law.name: _relative(folder, law.settings) for law in laws if not law.reason},
        _facts(conditions, table.scenario, identified),
    )
    _write(board, folder, searches)
    if entry is not None and conditions.entry:
        entries.write(entries.written(entry, board.scores), Path(conditions.entry))
    return board


def _tuned(
    conditions: Conditions, scenario: Scenario, laws: list[Candidate], where: engine.Where, hooks: Hooks
) -> tuple[list[Candidate], dict[str, Tuned]]:
    pairs = pairs_in(conditions.training, "training")
    with hooks.shown("tuning") as progress:
        order = [law.name for law in laws if not law.reason]

        def report(name: str, done: float, total: float) -> None:
            progress(order.index(name) + min(1.0, done / total), len(order))

        count = conditions.training_plants if scenario.scatter else 0
        budget, index = conditions.tune, conditions.indices[0]
        return scoreboard.tuned(scenario, laws, index, budget, count, where, pairs, report)


def _facts(conditions: Conditions, scenario: str, identified: candidates.Identified) -> dict[str, str]:
    source = conditions.settings if isinstance(conditions.settings, (str, os.PathLike)) else "a mapping"
    settings = f"settings from {source}, all others as identified" if conditions.settings else "as identified"
    if conditions.tune:
        settings += f", then tuned with {conditions.tune} candidates per compensator"
    drawn_plants = f" and {conditions.plants} drawn with seed {conditions.seed}" if conditions.plants else ""
    return {
        "Scenario": scenario,
        "Plants": f"nominal plant{drawn_plants}",
        **({"Records": ", ".join(conditions.records)} if conditions.records else {}),
        "Noise": f"{conditions.noise_seeds} seeds",
        "Settings": settings,
        "Identified delay": f"{1e3 * identified.delay:.4g} ms at {1e3 * identified.rms:.3g} mm rms",
    }


def _relative(folder: Path, settings: Mapping[str, object]) -> dict[str, object]:
    prefix = f"{folder.absolute()}{os.sep}"
    return {
        key: value.removeprefix(prefix) if isinstance(value, str) else value for key, value in settings.items()
    }


def _write(board: Scoreboard, folder: Path, searches: Mapping[str, Tuned]) -> None:
    study.write(board.table, folder)
    write_columns(columns(board), folder / SCORES)
    (folder / SETTINGS).write_text(yaml_text.dump(board.settings), encoding="utf-8")
    (folder / TEXT).write_text(markdown(board), encoding="utf-8")
    texts = {name: yaml_text.dump(values) for name, values in board.settings.items()}
    for name, tuned in searches.items():
        texts[name] += (
            f"# worst case in training: {tuned.before:.4g} before tuning, {tuned.worst:.4g} after "
            f"{tuned.evaluations} candidates\n"
        )
    write_board(board, texts, folder / PAGE)


def write_board(board: Scoreboard, settings: Mapping[str, str], path: Path) -> None:
    """Write the page with ``settings`` (YAML) by compensator."""
    table, scores, cases = board.table, board.scores, board.published.items()
    titles = dict(zip(table.indices, board.headings, strict=True))
    of_cases = {index: title for index, title in titles.items() if any(index in row.published for _, row in cases)}
    contents: Data = {
        "title": table.title,
        "description": table.description,
        "badge": f"{sum(1 for score in scores if score.runs)} rows, {grouped(len(table))} runs",
        "facts": {
            **board.facts,
            "rths_nodes": __version__,
            "Written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        },
        "indices": board.headings,
        "definitions": [(titles[name], *row) for name, *row in definitions(table.indices)],
        "blocks": len({score.block for score in scores if score.runs}) > 1,
        "scores": [(score, [_cell(score, index) for index in titles]) for score in scores],
        "high": f"{HIGH:g}",
        "published": [
            (name, row.note, [rounded(row.published.get(index)) for index in of_cases]) for name, row in cases
        ],
        "published_indices": [*of_cases.values()],
        "figures": on_page(drawings(board)),
        "settings": settings,
    }
    write_page(path, template("scoreboard.html.j2").render(contents))


def _cell(score: Score, index: str) -> tuple[str, str]:
    median, high = rounded(score.median.get(index)), rounded(score.high.get(index))
    return high, "" if median == high else median


def markdown(board: Scoreboard) -> str:
    table = board.table
    header = [f"rths_nodes {__version__}", f"{datetime.now(UTC):%Y-%m-%d}", f"{len(table)} runs"]
    header += [f"{name.lower()}: {value}" for name, value in board.facts.items() if name != "Scenario"]
    cells = [
        [rank, name, block, *(rounded(values.get(index)) for index in table.indices), outcome]
        for rank, name, block, values, outcome, _ in board.rows
    ]
    lines = [
        f"Scoreboard of `{table.scenario}`. {HIGH:g} % of the runs do not exceed the value of an index "
        f"({'; '.join(header)}):",
        "",
        f"| place | compensator | block | {' | '.join(board.headings)} | outcome |",
        f"|---|---|---|{'---|' * len(table.indices)}---|",
        *(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in cells),
        "",
    ]
    about = legend(board.which, table.indices)
    return "\n".join([*lines, f"{about}.", ""] if about else lines)
