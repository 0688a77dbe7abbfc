# SPDX-License-Identifier: Apache-2.0
"""Competition of compensators: identification, settings, tuning, all runs, and the scoreboard with its files.

A scoreboard entry contains results that another research group can repeat (``doc/studies.md``). The digest
(SHA-256) shows that an entry is unchanged. Only a repetition shows that the numbers are correct. Rounding depends
on processor and LAPACK, so numbers are compared within ``TOLERANCE``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace as replace_fields
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version as version_of
from pathlib import Path

from rths_nodes.analysis.index_definitions import RANGE, definitions
from rths_nodes.analysis.published_indices import legend
from rths_nodes.analysis.study_table import HIGH
from rths_nodes.analysis.units import grouped, rounded
from rths_nodes.app.studies import engine, scoreboard, study
from rths_nodes.app.studies.scoreboard import SCORED, Candidate, Conditions, Score, Scoreboard, columns, drawings
from rths_nodes.app.studies.study import Hooks
from rths_nodes.app.studies.tuning import Tuned
from rths_nodes.core import registry, yaml_text
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.inputs import Named, make_absolute, named_files, replace_files
from rths_nodes.core.resources import PACKAGE
from rths_nodes.core.text_files import read_bytes, reason, write, write_columns
from rths_nodes.core.validation import to_data
from rths_nodes.core.version import __version__
from rths_nodes.loop.provenance import Code
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.files import replace
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
    # check the conditions before any motion, but range indices later: only a compensator knows its states
    nominal = Candidate(type(scenario.compensator).type_name, to_data(scenario.compensator))
    indices = tuple(index for index in conditions.indices if not index.endswith(RANGE))
    scoreboard.design(scenario, [nominal], replace_fields(conditions, indices=indices))
    names = names or [*registry.names(FAMILY), *stored]
    for name in names:
        if name not in stored:
            registry.load(FAMILY, name, "laws")
    folder.mkdir(parents=True, exist_ok=True)
    identified = scoreboard.identify(scenario, folder, hooks.shown)
    laws = scoreboard.chosen(scenario, identified, names, stored)
    searches: dict[str, Tuned] = {}
    if conditions.tune:
        laws, searches = scoreboard.tuned(scenario, laws, conditions, where, hooks.shown)
    design = scoreboard.design(scenario, laws, conditions)
    # before any run, refuse files that cannot be included
    entry = begun_entry(scenario, conditions, laws, folder) if conditions.entry else None
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
        write_entry(_with_scores(entry, board.scores), Path(conditions.entry))
    return board


def _facts(conditions: Conditions, scenario: str, identified: scoreboard.Identified) -> dict[str, str]:
    source = conditions.settings if isinstance(conditions.settings, (str, os.PathLike)) else "a mapping"
    settings = f"settings from {source}, otherwise as identified" if conditions.settings else "as identified"
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
    write(folder / SETTINGS, yaml_text.dump(board.settings).encode())
    write(folder / TEXT, markdown(board).encode())
    texts = {name: yaml_text.dump(values) for name, values in board.settings.items()}
    for name, tuned in searches.items():
        texts[name] += (
            f"# worst case in training: {tuned.before:.4g} before tuning, {tuned.worst:.4g} after "
            f"{tuned.evaluations} candidates\n"
        )
    write_board(board, texts, folder / PAGE)


def write_board(board: Scoreboard, settings: Mapping[str, str], path: Path) -> None:
    from rths_nodes.analysis.figures.drawing import on_page
    from rths_nodes.analysis.report.document import template, write_page

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


# Entries

VERSION, FIRST = 2, 1
"""``VERSION``: version of new entries. ``FIRST``: version whose statistics exclude failed runs; its rows with
failures are not compared."""
TOLERANCE = 1e-6
LARGEST_FILE = 1 << 24
BASE64 = "base64"
COMPUTES = ("numpy", "scipy")
"""Packages whose versions affect the numbers, in addition to this package and Python."""
PARTS = ("version", "made", "code", "scenario", "scored", "laws", "files", "scores", "digest")
KEYS, VALUES = ("law", "block", "runs", "failures"), ("median", "high", "worst")
"""Fields of a Score in an entry: ``KEYS`` with a single value, ``VALUES`` with a number for each index."""


def begun_entry(
    scenario: Scenario, conditions: Conditions, laws: Sequence[Candidate], folder: Path
) -> dict[str, object]:
    """Return the entry without scores. ``folder`` contains the files that the settings name.

    Raises ConfigError if a file cannot be included.
    """
    law_settings = {law.name: deepcopy(dict(law.settings)) for law in laws if not law.reason}
    carried: Data = {}
    for name, settings in law_settings.items():
        replace_files(_params_of(settings), settings, partial(_carry, carried, name, folder))
    data = scenario.data()
    replace_files(Scenario, data, partial(_carry, carried, "scenario", folder))
    return {
        "version": VERSION,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "code": _code(scenario, [law.settings for law in laws if not law.reason]),
        "scenario": yaml_text.dump(data),
        "scored": {
            name: list(value) if isinstance(value := vars(conditions)[name], tuple) else value for name in SCORED
        },
        "laws": law_settings,
        "files": carried,
    }


def _with_scores(content: Mapping[str, object], scores: Sequence[Score]) -> dict[str, object]:
    entry = dict(content) | {
        "scores": [
            {key: getattr(score, key) for key in KEYS} | {key: dict(getattr(score, key)) for key in VALUES}
            for score in scores
            if score.runs
        ]
    }
    return entry | {"digest": digest(entry)}


def _params_of(settings: Data) -> type:
    params: type = registry.load(FAMILY, settings["type"]).Params
    return params


def _carry(carried: Data, law: str, folder: Path, named: Named) -> str:
    file = Path(named.absolute(folder))
    try:
        content = read_bytes(file, LARGEST_FILE)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{law}.{named.place} = {file}: cannot be included ({reason(error)})") from None
    text: object
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = {BASE64: base64.b64encode(content).decode()}
    name = f"{law}_{file.name}"
    while carried.setdefault(name, text) != text:  # another file has this name
        name = f"{law}_{name}"
    return name


def _put(carried: Data, folder: Path) -> None:
    for name, content in carried.items():
        if Path(name).name != name or name == "..":
            raise ConfigError(f"files.{name}: must be a file name without a folder")
        try:
            data = (
                content.encode() if isinstance(content, str) else base64.b64decode(content[BASE64], validate=True)
            )
        except (TypeError, KeyError, binascii.Error):
            raise ConfigError(f"files.{name}: must be text, or base64 text under the key {BASE64}") from None
        (folder / name).write_bytes(data)


def programs(content: Data) -> list[str]:
    """Return ``key = path`` for each file that a verification runs. Raises ConfigError if the entry is invalid."""
    scenario = yaml_text.parse(content["scenario"], "scenario of the entry")
    files = [(f"scenario.{named.place}", named) for named in named_files(Scenario, scenario)]
    for law, settings in content["laws"].items():
        files += [(f"{law}.{named.place}", named) for named in named_files(_params_of(settings), dict(settings))]
    return [f"{path} = {named.path}" for path, named in files if named.runs]


def _code(scenario: Scenario, laws: Iterable[Mapping[str, object]]) -> dict[str, str]:
    names: dict[str, str] = {}
    for settings in laws:
        names |= Code.of(replace(scenario, [(["compensator"], dict(settings))])).names
    code = {"files": names.pop(f"{PACKAGE}, files"), "python": platform.python_version()}
    return names | code | {name: version_of(name) for name in COMPUTES}


def digest(content: Mapping[str, object]) -> str:
    body = {name: value for name, value in content.items() if name != "digest"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def read_entry(path: Path) -> Data:
    content = yaml_text.parse(yaml_text.source_of(path, str(path)), str(path))
    if not isinstance(content, dict) or set(content) != set(PARTS) or content["version"] not in (FIRST, VERSION):
        raise ConfigError(f"{path}: is not a scoreboard entry (version {FIRST} or {VERSION})")
    if content["digest"] != digest(content):
        raise ConfigError(f"{path}: the digest does not match, so the entry was altered after it was written")
    return content


def write_entry(content: Data, path: Path) -> None:
    write(path, yaml_text.dump(dict(content)).encode())


def verify(
    content: Data, folder: Path, where: engine.Where, hooks: Hooks
) -> tuple[dict[str, list[str]], list[str]]:
    """Repeat the runs of the entry ``content``, with ``folder`` for its files.

    Return the problems of each row, keyed by compensator and block, and the code versions that differ.
    Raises ConfigError if the entry cannot be repeated.
    """
    _put(content["files"], folder)
    scenario = files.from_text(content["scenario"], "scenario of the entry", folder)
    laws = [Candidate(name, settings) for name, settings in deepcopy(dict(content["laws"])).items()]
    for law in laws:
        make_absolute(_params_of(law.settings), law.settings, folder)
    conditions = Conditions(**content["scored"])
    table = study.complete(scoreboard.design(scenario, laws, conditions), folder, where, hooks)
    scores = scoreboard.scores(table, laws, conditions.indices[0])
    rows = {(score.law, score.block): score for score in scores}
    problems = {
        f"{row['law']} {row['block']}": _problems(row, rows.get((row["law"], row["block"])), content["version"])
        for row in content["scores"]
    }
    here = _code(scenario, [law.settings for law in laws])
    differs = [
        f"{name}: {stated} in the entry, {here.get(name, 'none')} in this repetition"
        for name, stated in content["code"].items()
        if here.get(name) != stated
    ]
    return problems, differs


def _problems(stated: Data, score: Score | None, version: int) -> list[str]:
    if score is None:
        return ["the compensator was not run, because the entry lacks its settings"]
    problems = [
        f"{name}: the entry states {stated[name]}, but the repetition gives {getattr(score, name)}"
        for name in ("runs", "failures")
        if stated[name] != getattr(score, name)
    ]
    for kind in () if version == FIRST and stated["failures"] else VALUES:
        for index, value in stated[kind].items():
            result = getattr(score, kind).get(index, math.nan)
            both_missing = math.isnan(value) and math.isnan(result)
            if not (both_missing or math.isclose(value, result, rel_tol=TOLERANCE)):
                problems.append(
                    f"{kind} of {index}: the entry states {value:.6g}, but the repetition gives {result:.6g}"
                )
    return problems


def merged(contents: Mapping[str, Data]) -> tuple[list[tuple[str, Score]], tuple[str, ...]]:
    """Return each row with the name of its entry, best row first, and the names of the indices.

    Rows are sorted by fraction of failed runs, then by the first index. Raises ConfigError if the conditions of
    the entries differ.
    """
    (first_name, first), *further = contents.items()
    for name, content in further:
        for part in ("scenario", "scored"):
            if content[part] != first[part]:
                raise ConfigError(f"{name}: {part}: must be the same as in {first_name} to be in one table")
    indices = tuple(first["scored"]["indices"])
    rows = [
        (name, Score(**{key: row[key] for key in (*KEYS, *VALUES)}, what=""))
        for name, content in contents.items()
        for row in content["scores"]
    ]
    rows.sort(key=lambda row: (row[1].unstable, row[1].high.get(indices[0], math.inf)))
    return rows, indices
