# SPDX-License-Identifier: Apache-2.0
"""``rths scoreboard``: every compensator on the same cases, plants and noise."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rths_nodes.analysis.units import plain
from rths_nodes.app.commands import arguments, completion, terminal
from rths_nodes.app.studies.engine import Where
from rths_nodes.core import registry, yaml_text
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.text_files import write_columns
from rths_nodes.core.validation import to_data
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario

if TYPE_CHECKING:
    from rths_nodes.analysis.report.scoreboard import Scoreboard
    from rths_nodes.app.studies.candidates import Candidate, Identified
    from rths_nodes.app.studies.scoreboard import Scored
    from rths_nodes.app.studies.tuning import Tuned

BENCHMARK = "rths_benchmark_2020"
PLANTS = 100
"""Default number of scored plants in addition to the nominal one."""
PAGE, SCORES, SETTINGS, TEXT = "scoreboard.html", "scoreboard.csv", "settings.yaml", "scoreboard.md"
FAMILY = "compensator"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    scenario = parser.add_argument(
        "benchmark",
        nargs="?",
        default=BENCHMARK,
        help="name of a shipped scenario or path of a YAML file; default: %(default)s",
    )
    completion.offer(scenario, completion.scenarios)
    description = "change a value of the scenario for all compensators; may be repeated"
    arguments.add_several(parser, "--set", "SECTION.KEY=VALUE", description)
    cases = parser.add_argument(
        "--cases", default="", metavar="NAME,...", help="cases that count; by default all that name no compensator"
    )
    completion.offer(cases, completion.cases)
    _add_laws(parser)
    _add_scoring(parser)
    parser.add_argument("--out", metavar="DIR", help="folder of the results; default: runs/<scenario>_scoreboard")
    parser.add_argument(
        "--entry",
        metavar="FILE",
        help="also write the result as an entry, which another group can run again: scenario, settings, "
        "seeds, scores, code, with a digest",
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--verify", metavar="ENTRY", help="run an entry again, and compare; exit code 3 where it is another"
    )
    parser.add_argument(
        "--run-programs",
        action="store_true",
        help="with --verify: programs of the entry, as FMUs, run here with all your rights",
    )
    group.add_argument(
        "--merge", nargs="+", metavar="ENTRY", help="one table of several entries, without running anything"
    )
    arguments.add_where(parser)
    arguments.add_json(parser)


def _add_laws(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--laws",
        default="",
        metavar="NAME,...",
        help="compensators; by default all registered ones and all of --settings",
    )
    settings = parser.add_argument(
        "--settings",
        metavar="FILE",
        help="settings by compensator: the name of shipped ones, those of the benchmark have its name, or a YAML "
        "file, as this command writes it; what they leave out is identified",
    )
    completion.offer(settings, completion.settings)
    arguments.add_counts(parser, tune=(0, "candidates with which each is tuned before"))
    description = "change a value for tuning only, e.g. duration=10; may be repeated"
    arguments.add_several(parser, "--training", "SECTION.KEY=VALUE", description)


def _add_scoring(parser: argparse.ArgumentParser) -> None:
    arguments.add_counts(
        parser,
        training_plants=(2, "plants for tuning in addition to the nominal one; none without scatter"),
        noise_seeds=(3, "seeds of the noise that each is scored with"),
        seed=(1, "seed of the plants that are scored"),
    )
    description = (
        f"plants scored in addition to the nominal one; default: {PLANTS} where the scenario has scatter, else 0"
    )
    parser.add_argument("--plants", type=int, metavar="N", help=description)
    parser.add_argument(
        "--records",
        default="",
        metavar="NAME,...",
        help="published records of the ground, each of which is scored; by default that of the scenario",
    )
    parser.add_argument(
        "--indices",
        default="",
        metavar="NAME,...",
        help="indices that are shown; default: those of the benchmark, or J1,J2,J3,max_error_mm",
    )
    parser.add_argument(
        "--rank",
        metavar="INDEX",
        help="index by which they rank and are tuned; default: the tracking error on the true displacement",
    )
    parser.add_argument(
        "--response", metavar="INDEX", help="index of the response in the figure against the rank's"
    )


def run(options: argparse.Namespace) -> int:
    """Identify, tune if requested, run all, and print one table; return 0 even if one is unstable."""
    from rths_nodes.analysis.report import scoreboard as page
    from rths_nodes.app.studies import candidates, entries, runs, scoreboard, study

    if options.merge:
        return _merged([Path(path) for path in options.merge])
    where = arguments.where(options)
    if options.verify:
        return _verified(Path(options.verify), where, options.run_programs)
    _check(options)
    loaded = files.load(options.benchmark, options.set)
    options.rank = options.rank or runs.ranking_index(loaded)
    folder = Path(options.out or Path(terminal.RUNS) / f"{loaded.name}_scoreboard")
    terminal.check_makable(folder / SCORES)
    stored_settings = files.load_settings(options.settings) if options.settings else {}
    scored = _scored(options, loaded)
    # refused before any motion; inner numbers are known to their compensator only
    candidate = candidates.Candidate(type(loaded.compensator).type_name, to_data(loaded.compensator))
    indices = tuple(index for index in scored.indices if not index.endswith(runs.RANGE))
    scoreboard.design(loaded, [candidate], replace(scored, indices=indices))
    names = _names(options.laws) or [*registry.names(FAMILY), *stored_settings]
    for name in names:
        if name not in stored_settings:
            registry.load(FAMILY, name, "--laws")
    folder.mkdir(parents=True, exist_ok=True)
    identified = candidates.identify(loaded, folder, terminal.progress)
    chosen = candidates.chosen(loaded, identified, names, stored_settings)
    searches: dict[str, Tuned] = {}
    if options.tune:
        chosen, searches = _tuned(options, loaded, chosen, where)
    design_of_laws = scoreboard.design(loaded, chosen, scored)
    # files that cannot be included are refused before any run
    entry = entries.begun(loaded, scored, chosen, folder) if options.entry else None
    where = arguments.tell_engine(
        where, design_of_laws.count * loaded.samples, [loaded, *study.of_each_kind(design_of_laws.rows)]
    )
    table = scoreboard.run(design_of_laws, folder, where, terminal.progress)
    axes = options.rank, options.response or options.rank
    scores = scoreboard.scores(table, chosen, options.rank)
    board = page.Scoreboard(table, scores, scoreboard.published(loaded), axes, loaded.indices)
    settings = {law.name: _beside(folder, law.settings) for law in chosen if not law.reason}
    _write(board, folder, settings, searches, _facts(options, table.scenario, identified))
    if entry is not None:
        with terminal.writing(Path(options.entry)):
            entries.write(entries.written(entry, scores), Path(options.entry))
    if options.json:
        terminal.print_json(_data(loaded.name, board, identified))
    else:
        _print(board, identified, folder)
    return ExitCode.FINISHED


def _scored(options: argparse.Namespace, loaded: Scenario) -> Scored:
    from rths_nodes.app.studies import runs, scoreboard

    if options.plants is None:
        options.plants = PLANTS if loaded.scatter else 0
    shown = _names(options.indices) or runs.shown_indices(loaded)
    return scoreboard.Scored(
        tuple(_names(options.cases) or scoreboard.cases(loaded)),
        options.noise_seeds,
        options.plants,
        options.seed,
        tuple(dict.fromkeys([options.rank, *shown, options.response or options.rank])),
        tuple(_names(options.records)),
    )


def _verified(path: Path, where: Where, run_programs: bool) -> int:
    from rths_nodes.app.studies import entries

    content = entries.read(path)
    if not run_programs and (programs := entries.programs(content)):
        raise ConfigError(
            f"{path}: has programs, which would run here with all your rights ({'; '.join(programs)}); where you "
            "trust those who wrote it: --run-programs"
        )
    with tempfile.TemporaryDirectory(prefix="rths_entry_") as folder:
        verdicts, differs = entries.verify(content, Path(folder), where, terminal.progress)
    for difference in differs:
        print(f"code: {difference}")
    wrong = [verdict for verdict in verdicts if verdict.problems]
    for verdict in verdicts:
        print(f"{verdict.law} {verdict.block}: {'; '.join(verdict.problems) or 'as told'}")
    print(f"{path}: {f'{len(wrong)} of {len(verdicts)} rows are not as told' if wrong else 'verified'}")
    return ExitCode.TRIPPED if wrong else ExitCode.FINISHED


def _merged(paths: Sequence[Path]) -> int:
    from rths_nodes.app.studies import entries

    rows, indices = entries.merged({path.stem: entries.read(path) for path in paths})
    grid = terminal.grid("entry", "compensator", "block", numbers=indices, last=["outcome"])
    for name, score in rows:
        grid.add_row(
            name, score.law, score.block, *(plain(score.high.get(index)) for index in indices), score.outcome()
        )
    terminal.show(terminal.console(), grid)
    return ExitCode.FINISHED


def _check(options: argparse.Namespace) -> None:
    from rths_nodes.app.studies import tuning

    arguments.check_least(options, training_plants=0, noise_seeds=1, seed=0, tune=0)
    if options.plants is not None:
        arguments.check_least(options, plants=0)
    if 0 < options.tune < tuning.LEAST:
        raise ConfigError(f"--tune = {options.tune}: must be 0 or >= {tuning.LEAST}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _tuned(
    options: argparse.Namespace, loaded: Scenario, chosen: list[Candidate], where: Where
) -> tuple[list[Candidate], dict[str, Tuned]]:
    from rths_nodes.app.studies import remaining, scoreboard

    pairs = []
    for assignment in options.training:
        key, sign, value = assignment.partition("=")
        if not sign:
            raise ConfigError(f"--training {assignment}: must be section.key=value")
        pairs.append((key.strip().split("."), yaml_text.parse(value, f"--training {key}")))
    with terminal.progress("tuning") as progress:
        order = [law.name for law in chosen if not law.reason]
        tell = remaining.weighed(progress, [(name,) for name in order])

        def told(name: str, done: float, of: float) -> None:
            position = order.index(name)
            tell([1.0] * position + [min(1.0, done / of)] + [0.0] * (len(order) - position - 1))

        count = options.training_plants if loaded.scatter else 0
        return scoreboard.tuned(loaded, chosen, options.rank, options.tune, count, where, pairs, told)


def _facts(options: argparse.Namespace, scenario: str, identified: Identified) -> dict[str, str]:
    begin = f"{options.settings}, else as identified" if options.settings else "as identified"
    return {
        "Scenario": scenario,
        "Plants": f"nominal and {options.plants} of seed {options.seed}" if options.plants else "nominal",
        **({"Records": options.records} if options.records else {}),
        "Noise": f"{options.noise_seeds} seeds",
        "Settings": f"{begin}, then {options.tune} candidates each" if options.tune else begin,
        "Identified delay": f"{1e3 * identified.delay:.4g} ms at {1e3 * identified.rms:.3g} mm rms",
    }


def _write(
    board: Scoreboard,
    folder: Path,
    settings: Mapping[str, object],
    searches: Mapping[str, Tuned],
    facts: Mapping[str, str],
) -> None:
    from rths_nodes.analysis.report import scoreboard as page
    from rths_nodes.app.studies import study

    with terminal.writing(folder):
        study.write(board.table, folder)
        write_columns(board.columns(), folder / SCORES)
        (folder / SETTINGS).write_text(yaml_text.dump(settings), encoding="utf-8")
        (folder / TEXT).write_text(page.markdown(board, facts), encoding="utf-8")
        texts = {name: yaml_text.dump(values) + _search(searches.get(name)) for name, values in settings.items()}
        page.write(folder / PAGE, board, texts, facts)


def _beside(folder: Path, settings: Mapping[str, object]) -> dict[str, object]:
    own = f"{folder.absolute()}{os.sep}"
    return {key: value.removeprefix(own) if isinstance(value, str) else value for key, value in settings.items()}


def _search(tuned: Tuned | None) -> str:
    if tuned is None:
        return ""
    return (
        f"# worst in training: {tuned.before:.4g} before, {tuned.worst:.4g} after {tuned.evaluations} candidates\n"
    )


def _data(name: str, board: Scoreboard, identified: Identified) -> dict[str, object]:
    return {
        "benchmark": name,
        "identified": {"delay_s": identified.delay, "rms_m": identified.rms, "notes": list(identified.notes)},
        "scores": [dict(vars(score)) for score in board.scores],
        "published": [dict(vars(row)) for row in board.published],
    }


def _print(board: Scoreboard, identified: Identified, folder: Path) -> None:
    from rich.text import Text

    from rths_nodes.analysis.published_indices import legend
    from rths_nodes.analysis.study_table import HIGH

    console, table = terminal.console(), board.table
    terminal.tell(identified.notes)
    rows = [row for row in board.rows if row[-1] != "published"]
    usable = sum(row[-1] == "stable" for row in rows)
    _, law, _, values, *_ = rows[0]
    first = f"best {law}, {board.headings[0]} {plain(values.get(table.indices[0]))}"
    console.print(
        f"{table.scenario}: {first}; {usable} of {len(rows)} stable; {len(table)} runs, each index at {HIGH:g} %",
        markup=False,
    )
    several = len({score.block for score in board.scores if score.runs}) > 1
    grid = terminal.grid(
        "place", "compensator", *(["block"] if several else []), numbers=board.headings, last=["outcome"]
    )
    colours = {"stable": "green", "published": "dim"}
    for rank, law, block, values, remark, kind in board.rows:
        cells = [plain(values.get(index)) for index in table.indices]
        name = Text(law, "dim" if kind == "published" else "")
        grid.add_row(rank, name, *([block] if several else []), *cells, Text(remark, colours.get(kind, "red")))
    terminal.show(console, grid)
    if about := legend(board.which, table.indices):
        console.print(about, markup=False)
    console.print(f"page: {folder / PAGE}", markup=False, soft_wrap=True)
