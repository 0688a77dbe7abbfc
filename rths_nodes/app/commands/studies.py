# SPDX-License-Identifier: Apache-2.0
"""Commands that run many variants of a scenario.

``rths study``: run the variants of a scenario that a study file defines.

``rths tune``: optimise parameters of a scenario for the worst case of an ensemble of plants.

``rths scoreboard``: compare all compensators, with the same cases, plants and noise.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from rths_nodes.analysis import overlay
from rths_nodes.analysis.paper import FORMATS
from rths_nodes.analysis.published_indices import legend
from rths_nodes.analysis.study_table import HIGH, StudyTable, index_unit
from rths_nodes.analysis.units import plain
from rths_nodes.app import api
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.studies import design, study, tuning
from rths_nodes.app.studies.engine import Where
from rths_nodes.app.studies.results import Scoreboard, drawings
from rths_nodes.app.studies.study import PAGE, Hooks
from rths_nodes.app.studies.tuning import Tuned
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.options import AUTO
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario import files

if TYPE_CHECKING:
    from rths_nodes.analysis.figures.drawing import Drawing

VALUES = ("low", "median", "high", "worst")
"""Statistics that ``--json`` prints for each group; infinite values are printed as null."""
SHOWN = 10
BENCHMARK = "rths_benchmark_2020"
PLANTS = 100
OF_RUNS = (
    *("set", "cases", "laws", "settings", "training", "plants", "records", "indices", "rank", "response"),
    *("out", "entry", "figures", "format", "width", "json"),
)
OF_PLACE = ("jobs", "scheduler", "run_programs")
DEFAULTS = {"benchmark": BENCHMARK, "tune": 0, "training_plants": 2, "noise_seeds": 3, "seed": 1}


def study_arguments(add: arguments.Arguments) -> None:
    add("study", "path of the study file (YAML)")
    add("--out DIR", "folder of the results; default: runs/<name of the study>")
    add.figures("figures")
    add.where()
    add.json()


def study_command(options: arguments.Options) -> int:
    width = arguments.figures_width(options)
    plan = design.load(options.study)
    folder = Path(options.out or Path(terminal.RUNS) / plan.name)
    terminal.check_makable(folder / study.CSV)
    terminal.tell(filter(None, [study.parquet_missing()]))

    def begun(left: int) -> None:
        if not options.json:
            print(f"{plan.name}: {plan.count} runs, {plan.count - left} of them done; {folder}", flush=True)

    hooks = study.Hooks(terminal.progress, terminal.tell, begun)
    try:
        with terminal.writing(folder):
            where = arguments.where(options)
            table = study.complete(plan, folder, where, hooks)
            study.write_all(table, folder)
    except BaseException as error:
        for note in error.__notes__ if hasattr(error, "__notes__") else ():
            print(f"rths: {note}; repeat the command to continue", file=sys.stderr)
        raise
    if options.figures:
        from rths_nodes.analysis.figures.studies import drawings as of_table

        _write_figures(options, of_table(table), width, folder)
    terminal.output(options.json, _study_data(table, folder), _print_study, table, folder)
    return ExitCode.FINISHED if table.finished.all() else ExitCode.TRIPPED


def _write_figures(options: arguments.Options, drawn: Iterable[Drawing], width: float, folder: Path) -> None:
    from rths_nodes.analysis.figures.drawing import for_print, write_figures

    with terminal.writing(folder):
        write_figures(for_print(drawn, width), folder / "figures", options.format or FORMATS[0])


def _study_data(table: StudyTable, folder: Path) -> dict[str, object]:
    cells = table.cells()
    spreads = {index: table.spreads(index, cells) for index in table.indices}
    groups = [
        {
            "group": cell.group,
            "runs": len(cell.rows),
            "failed": int(table.failed[cell.rows].sum()),
            "indices": {
                index: {key: getattr(row[number], key) for key in VALUES} for index, row in spreads.items()
            },
        }
        for number, cell in enumerate(cells)
    ]
    return {
        "study": table.title,
        "scenario": table.scenario,
        "outcomes": table.outcomes(),
        "units": {index: index_unit(index) for index in table.indices},
        "groups": groups,
        "folder": str(folder),
    }


def _summary(table: StudyTable) -> str:
    for index in table.indices:
        spreads = table.spreads(index, table.cells())
        medians = sorted(spread.median for spread in spreads if not math.isnan(spread.median))
        if medians:
            median = " to ".join(plain(value) for value in dict.fromkeys((medians[0], medians[-1])))
            worst = plain(max(spread.worst for spread in spreads))
            return f"; {table.title_of(index)}: median {median}, worst {worst}"
    return ""


def _print_study(table: StudyTable, folder: Path) -> None:
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in table.outcomes().items())
    terminal.say(f"{table.title}: {outcomes}{_summary(table)}")
    several = ["group"] if len(table.groups) > 1 else []
    heads = "finished", "median", "5 %", "95 %", "worst"
    rows: list[list[str]] = []
    names, cells = table.columns["name"], table.cells()
    for index in table.indices:
        title = table.title_of(index)
        for cell, spread in zip(cells, table.spreads(index, cells), strict=True):
            numbers = spread.median, spread.low, spread.high, spread.worst
            values = ("inf" if math.isinf(value) else plain(value) for value in numbers)
            worst = names[table.worst(index, 1, cell.group)[0]] if spread.worst >= 0.0 else "-"
            rows.append([title, *([cell.group] if several else []), spread.finished, *values, worst])
            title = ""
    terminal.table(rows, "index", *several, numbers=heads, last=["worst run"])
    runs = zip(names, table.columns["outcome"], table.columns["reason"], strict=True)
    unfinished = [": ".join(run) for run in runs if run[1] != "finished"]
    for text in unfinished[:SHOWN]:
        terminal.say(text)
    if further := unfinished[SHOWN:]:
        terminal.say(f"the table lists {len(further)} further unfinished runs")
    print(f"page: {folder / PAGE}")


def tune_arguments(add: arguments.Arguments) -> None:
    add.scenario()
    text = (
        "parameter to tune, optionally with a range (otherwise one third to three times its value); default: the "
        "positive numbers of the compensator"
    )
    add.several("--parameter KEY[=LOW:HIGH]", text)
    add("--index", "index to minimise", "J2")
    add.names("--cases NAME,...", "cases to evaluate, instead of the scenario itself")
    add("--plants N", "number of plants drawn from the scenario's scatter, in addition to the nominal plant", 0)
    add("--seed N", "seed of plants and search", 1)
    add("--evaluations N", "number of candidates", 60)
    add.where()
    add.json()


def tune_command(options: arguments.Options) -> int:
    arguments.check_least(options, plants=0, seed=0, evaluations=tuning.LEAST)
    loaded = arguments.scenario(options)
    tuned = api.tune(
        loaded,
        parameters=options.parameter,
        index=options.index,
        cases=options.cases,
        plants=options.plants,
        seed=options.seed,
        evaluations=options.evaluations,
        jobs=options.jobs,
        scheduler=options.scheduler,
        engine=options.engine,
        progress=terminal.progress,
        say=terminal.tell,
    )
    data = _tuned_data(loaded.name, options.index, tuned)
    terminal.output(options.json, data, _print_tuned, loaded.name, options.index, tuned)
    return ExitCode.FINISHED if tuned.usable else ExitCode.TRIPPED


def _tuned_data(name: str, index: str, tuned: Tuned) -> dict[str, object]:
    return {
        "scenario": name,
        "index": index,
        "runs_of_a_candidate": tuned.runs,
        "evaluations": tuned.evaluations,
        "before": tuned.before,
        "worst": tuned.worst,
        "usable": tuned.usable,
        "improved": tuned.improved,
        "set": tuned.assignments,
        "stability_not_judged": tuned.unjudged,
    }


def _print_tuned(name: str, index: str, tuned: Tuned) -> None:
    worst = f"of {tuned.runs} runs" if tuned.runs > 1 else "of the run"
    change = f"{_text(tuned.before)} before and {_text(tuned.worst)} after {tuned.evaluations} candidates"
    if not tuned.improved:
        change = f"{_text(tuned.before)}, no improvement found with {tuned.evaluations} candidates"
    terminal.say(f"{name}: worst {index} {worst}: {change}")
    rows = ((row.key, f"{row.begin:.6g}", f"{tuned.values[row.key]:.6g}") for row in tuned.parameters)
    terminal.table(rows, "parameter", numbers=("before", "tuned"))
    if tuned.unjudged:
        terminal.say(f"note: stability was not judged before the runs ({tuned.unjudged})")
    for parameter in tuned.parameters:
        if tuned.improved and parameter.at_end(tuned.values[parameter.key]):
            limits = f"{parameter.low:.6g} to {parameter.high:.6g}"
            terminal.say(f"note: {parameter.key} is at the end of its range, {limits}")
    if tuned.improved:
        print(*(f"--set {assignment}" for assignment in tuned.assignments))


def _text(value: float) -> str:
    if value >= tuning.UNSTABLE:
        return "judged unstable"
    return "not finished" if value >= tuning.BROKEN else plain(value)


def scoreboard_arguments(add: arguments.Arguments) -> None:
    add("benchmark", "name of a shipped scenario or path of a YAML file", DEFAULTS["benchmark"], nargs="?")
    add.several("--set SECTION.KEY=VALUE", "value to change in the scenario, for all compensators")
    text = "cases to run; default: all cases that set no compensator"
    add.names("--cases NAME,...", text)
    text = "compensators to compare; default: all registered compensators, and all compensators in --settings"
    add.names("--laws NAME,...", text)
    text = (
        "settings by compensator: name of a shipped file (e.g. of the benchmark) or path of a YAML file, as "
        "written by this command; missing settings are identified"
    )
    add("--settings FILE", text, "")
    add("--tune N", "number of candidates for tuning each compensator before scoring", DEFAULTS["tune"])
    add.several("--training SECTION.KEY=VALUE", "value to change for tuning only, e.g. duration=10")
    text = "number of plants for tuning, in addition to the nominal plant (ignored without scatter)"
    add("--training-plants N", text, DEFAULTS["training_plants"])
    add("--noise-seeds N", "number of noise seeds for scoring", DEFAULTS["noise_seeds"])
    add("--seed N", "seed of the scored plants", DEFAULTS["seed"])
    text = f"number of scored plants in addition to the nominal plant; default: {PLANTS} with scatter, otherwise 0"
    add("--plants N", text, type=int)
    text = "published ground motions to use for scoring; default: the ground motion of the scenario"
    add.names("--records NAME,...", text)
    text = "indices to show; default: the indices of the benchmark, or J1,J2,J3,max_error_mm"
    add.names("--indices NAME,...", text)
    add("--rank INDEX", "index for ranking and tuning; default: the tracking error of the true displacement")
    add("--response INDEX", "index of the response, to be plotted against the ranking index")
    add("--out DIR", "folder of the results; default: runs/<scenario>_scoreboard")
    text = "also write an entry that others can verify: scenario, settings, seeds, scores, code, digest"
    add("--entry FILE", text)
    group = add.exclusive()
    group("--verify ENTRY", "run an entry again and compare the scores; the exit code is 3 if scores differ")
    add.flags(run_programs="with --verify: run the programs in the entry, such as FMUs, with all your permissions")
    group("--merge ENTRY", "print one table of several entries, without running them", nargs="+")
    add.figures("figures")
    add.where()
    add.json()


def scoreboard_command(options: arguments.Options) -> int:
    from rths_nodes.app.studies import competition
    from rths_nodes.app.studies.scoreboard import Conditions

    if options.merge:
        text = "has no effect, because --merge runs nothing"
        arguments.refuse_idle(options, (*OF_RUNS, *OF_PLACE), text, DEFAULTS | {"engine": AUTO})
        return _merged([Path(path) for path in options.merge])
    where = arguments.where(options)
    if options.verify:
        text = "has no effect with --verify; the entry has all conditions"
        arguments.refuse_idle(options, OF_RUNS, text, DEFAULTS)
        return _verified(Path(options.verify), where, options.run_programs)
    arguments.refuse_idle(options, ("run_programs",), "requires --verify")
    width = arguments.figures_width(options)
    conditions = Conditions(**{field.name: vars(options)[field.name] for field in fields(Conditions)})
    loaded = files.load(options.benchmark, options.set)
    folder = Path(options.out or Path(terminal.RUNS) / f"{loaded.name}_scoreboard")
    terminal.check_makable(folder / competition.SCORES)
    if options.entry:
        terminal.check_writable(Path(options.entry))
    with terminal.writing(folder):
        hooks = Hooks(terminal.progress, terminal.tell)
        board = competition.compete(loaded, conditions, folder, where, hooks)
    if options.figures:
        _write_figures(options, drawings(board), width, folder)
    terminal.output(options.json, _scores_data(loaded.name, board), _print_scores, board, folder)
    return ExitCode.FINISHED


def _verified(path: Path, where: Where, run_programs: bool) -> int:
    from rths_nodes.app.studies import entries

    content = entries.read(path)
    if not run_programs and (programs := entries.programs(content)):
        raise ConfigError(
            f"{path}: contains programs that would run with all your permissions ({'; '.join(programs)}). If "
            "you trust the authors, give --run-programs"
        )
    with tempfile.TemporaryDirectory(prefix="rths_entry_") as folder:
        rows, differs = entries.verify(content, Path(folder), where, Hooks(terminal.progress, terminal.tell))
    for difference in differs:
        print(f"code: {difference}")
    for row, problems in rows.items():
        print(f"{row}: {'; '.join(problems) or 'as stated'}")
    wrong = sum(map(bool, rows.values()))
    print(f"{path}: {f'{wrong} of {len(rows)} rows differ' if wrong else 'verified'}")
    return ExitCode.TRIPPED if wrong else ExitCode.FINISHED


def _merged(paths: Sequence[Path]) -> int:
    from rths_nodes.app.studies import entries

    names = overlay.names([path.resolve().with_suffix("").parts for path in paths])
    rows, indices = entries.merged(dict(zip(names, map(entries.read, paths), strict=True)))
    cells = (
        [name, score.law, score.block, *(plain(score.high.get(index)) for index in indices), score.outcome()]
        for name, score in rows
    )
    terminal.table(cells, "entry", "compensator", "block", numbers=indices, last=["outcome"])
    return ExitCode.FINISHED


def _scores_data(name: str, board: Scoreboard) -> dict[str, object]:
    identified = board.identified
    return {
        "benchmark": name,
        "identified": {"delay_s": identified.delay, "rms_m": identified.rms, "notes": list(identified.notes)},
        "scores": [dict(vars(score)) for score in board.scores],
        "published": [
            {"case": name, "note": case.note, "values": dict(case.published)}
            for name, case in board.published.items()
        ],
    }


def _print_scores(board: Scoreboard, folder: Path) -> None:
    from rich.text import Text

    from rths_nodes.app.studies import competition

    table, scores = board.table, board.scores
    terminal.tell(board.identified.notes)
    usable = sum(score.kind == "stable" for score in scores)
    first = f"best {scores[0].law}, {board.headings[0]} {plain(scores[0].high.get(table.indices[0]))}"
    quantiles = f"{HIGH:g} % quantiles of {len(table)} runs"
    terminal.say(f"{table.scenario}: {first}; {usable} of {len(scores)} stable; {quantiles}")
    several = len({score.block for score in scores if score.runs}) > 1
    heads = "place", "compensator", *(["block"] if several else [])
    rows: list[list[str | Text]] = []
    colours = {"stable": "green", "published": "dim"}
    for rank, law, block, values, remark, kind in board.rows:
        cells = [plain(values.get(index)) for index in table.indices]
        name = Text(law, "dim" if kind == "published" else "")
        rows.append([rank, name, *([block] if several else []), *cells, Text(remark, colours.get(kind, "red"))])
    terminal.table(rows, *heads, numbers=board.headings, last=["outcome"])
    if about := legend(board.which, table.indices):
        terminal.say(about)
    print(f"page: {folder / competition.PAGE}")
