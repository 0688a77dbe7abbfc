# SPDX-License-Identifier: Apache-2.0
"""Commands that run many variants of a scenario.

``rths compare``: run variants of a scenario and print their indices in one table.

``rths study``: run the variants of a scenario that a study file defines.

``rths tune``: optimise parameters of a scenario for the worst case of an ensemble of plants.

``rths scoreboard``: compare all compensators, with the same cases, plants and noise.
"""

from __future__ import annotations

import math
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

from rths_nodes.analysis import overlay
from rths_nodes.analysis.published_indices import TRUE, legend
from rths_nodes.analysis.study_table import HIGH, StudyTable, index_unit
from rths_nodes.analysis.units import FORMATS, plain, span
from rths_nodes.app import api
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.studies import competition, engine, runs, study, tuning
from rths_nodes.app.studies.engine import Where
from rths_nodes.app.studies.runs import Findings, known_indices, needs_response
from rths_nodes.app.studies.scoreboard import Conditions, Scoreboard, drawings
from rths_nodes.app.studies.study import PAGE, Hooks
from rths_nodes.app.studies.tuning import Tuned
from rths_nodes.core.errors import ConfigError, unknown, within
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.options import AUTO
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.files import override, with_case
from rths_nodes.loop.scenario.schema import Scenario

if TYPE_CHECKING:
    from rths_nodes.analysis.figures.drawing import Drawing

FEW = 20_000

_BETWEEN = re.compile(r"[\s,]+(?=[A-Za-z_][\w.]*=)")


@dataclass(frozen=True)
class Variant:
    name: str
    scenario: Scenario
    changes: tuple[str, ...] = ()
    published: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Result(Findings):
    variant: Variant = field(kw_only=True)


def variants(
    scenario: Scenario, settings: Sequence[str] = (), cases: Sequence[str] = (), common: Iterable[str] = ()
) -> list[Variant]:
    """Return the checked variants of ``scenario``: one for each string in ``settings`` and name in ``cases``.

    A string contains assignments, separated by spaces or commas. Without strings or names, all cases are used.
    Raises ConfigError if a variant is invalid or no variant is defined.
    """
    names = list(cases) or ([] if settings else list(scenario.cases))
    if not names and not settings:
        raise ConfigError(f"{scenario.name}: the scenario has no cases to compare; give variants with --variant")
    shared = list(common)
    result: list[Variant] = []
    for name in names:
        changed = override(with_case(scenario, name), shared)
        case = scenario.cases[name]
        changes_of_case = tuple(f"{key}={value}" for key, value in case.set.items())
        result.append(Variant(name, changed, changes_of_case, case.published))
    changes = [_BETWEEN.split(text.strip()) if text.strip() else [] for text in settings]
    labels = [_label(assignments) for assignments in changes]
    for label, assignments in zip(labels, changes, strict=True):
        name = label if labels.count(label) == 1 else " ".join(assignments)
        result.append(Variant(name, override(scenario, [*shared, *assignments]), tuple(assignments)))
    for variant in result:
        with within(variant.name):
            indices = known_indices(checked_loop(variant.scenario).assembly)
        for name in variant.published:
            if name not in indices:
                raise unknown(f"cases.{variant.name}.published.{name}", "index", name, indices)
    return result


def _label(assignments: Sequence[str]) -> str:
    texts = [text.removeprefix("compensator.type=").removeprefix("compensator.") for text in assignments]
    return ", ".join(texts) or "as it is"


def compare(
    chosen: Sequence[Variant],
    where: Where | None = None,
    keep: bool = False,
    response: bool = False,
    progress: engine.Report | None = None,
) -> list[Result]:
    """Run all variants and return the results in the same order.

    ``keep`` stores the histories. ``response`` adds errors relative to the response of the whole structure.
    """
    scenarios = [variant.scenario for variant in chosen]
    report = engine.summed(progress) if progress else None
    results = dict(runs.all_of(scenarios, where or _where(chosen), keep, response, progress=report))
    return [Result(**vars(results[number]), variant=variant) for number, variant in enumerate(chosen)]


def _where(chosen: Sequence[Variant], by: str = AUTO) -> Where:
    few = sum(variant.scenario.samples for variant in chosen) < FEW
    return Where(min(len(chosen), 1 if few else engine.processors()), engine=by)


def as_json(scenario: Scenario, results: Sequence[Result]) -> dict[str, object]:
    rows = [
        {
            "name": result.variant.name,
            "set": list(result.variant.changes),
            "outcome": result.outcome,
            "reason": result.reason,
            "values": result.values,
            "published": dict(result.variant.published),
            "axes": result.axes,
            "axes_measured": result.measured,
            "response_error_percent": result.response,
            "parameters": {
                quantity: {axis: {"lowest": low, "highest": high} for axis, (low, high) in rows.items()}
                for quantity, rows in result.parameters.items()
            },
            "wall_s": result.wall_s,
        }
        for result in results
    ]
    return {"scenario": scenario.name, "variants": rows}


_COMPARED = (("J1 (ms)", "J1"), ("J2 (%)", "J2"), ("J3 (%)", "J3"), ("max (mm)", "max_error_mm"))


def compare_arguments(add: arguments.Arguments) -> None:
    add("scenario", "name of a shipped scenario or path of a YAML file")
    add.several("--variant 'SECTION.KEY=VALUE ...'", "changes of one variant, separated by spaces or commas")
    text = "cases of the scenario; default: all cases, or none if there is a --variant"
    add.several("--cases NAME,...", text, type=arguments.names)
    add.several("--set SECTION.KEY=VALUE", "value to change in all variants")
    add.removed(with_="renamed; use --set")
    add.flags(response="also compute the entire structure in one piece, and print the errors of the response")
    add.figure("all variants in one figure")
    add.engine()
    add.json()


def compare_command(options: arguments.Options) -> int:
    figure = arguments.figure(options)
    loaded = files.load(options.scenario)
    cases = [name for names in options.cases for name in names]
    if options.cases and not cases:
        raise ConfigError("--cases: must name at least one case")
    chosen = variants(loaded, options.variant, cases, options.set)
    scenarios = [variant.scenario for variant in chosen]
    samples = sum(scenario.samples for scenario in scenarios)
    where = runs.decided(_where(chosen, options.engine), samples, scenarios, terminal.tell)
    expected = engine.expected_s(scenarios[0], samples, where.engine)
    if expected is not None:
        count = f"{len(chosen)} variants with {samples} samples in total, {where.processes} at a time"
        terminal.tell([f"{count}, take about {span(expected / where.processes)}"])
    with terminal.progress(loaded.name) as progress:
        response = options.response or needs_response(name for variant in chosen for name in variant.published)
        results = compare(chosen, where, figure is not None, response, progress)
    terminal.output(options.json, as_json(loaded, results), _print_comparison, loaded.name, results)
    if figure:
        from rths_nodes.analysis.figures.histories import compared

        histories = [(entry.variant.name, entry.run) for entry in results if entry.run is not None]
        arguments.save_figure(options, figure, compared, histories)
    return ExitCode.FINISHED if all(result.outcome == "finished" for result in results) else ExitCode.TRIPPED


def _print_comparison(name: str, results: Sequence[Result]) -> None:
    from rich.text import Text

    several = any(len(result.axes) > 1 for result in results)
    rows = [(result, axis, n == 0) for result in results for n, axis in enumerate(result.axes or [""])]
    keys = {key for row in rows for _, key in _COMPARED if _published(*row, key) is not None}
    beside = ["measured", "published"] if any(result.measured for result in results) else ["published"]
    kinds = "true and measured" if beside[1:] and keys else "true"
    terminal.say(f"{name}: {len(results)} variants, indices of the {kinds} displacement")
    numbers = [head for title, key in _COMPARED for head in (title, *(beside if key in keys else []))]
    heads = "variant", "outcome", *(["axis"] if several else [])
    lines = []
    for result, axis, first in rows:
        colour = "green" if result.outcome == "finished" else "red"
        head = (Text(result.variant.name), Text(result.outcome, colour)) if first else ("", "")
        cells = []
        for _, key in _COMPARED:
            index, factor = runs.AXIS_INDICES[key]
            cells.append(plain(result.axes.get(axis, {}).get(index), factor))
            if key in keys:
                if beside[1:]:
                    cells.append(plain((result.measured or result.axes).get(axis, {}).get(index), factor))
                printed = _published(result, axis, first, key)
                cells.append("-" if printed is None else f"{printed:g}")
        lines.append([*head, *([axis] if several else []), *cells, _ranges(result.parameters, axis)])
    terminal.table(lines, *heads, numbers=numbers, last=["parameters, smallest to largest"])
    if any(result.response for result in results):
        _print_response(results)
    axes = {f"_{axis}" for result in results for axis in result.axes}
    shown = {key + axis for _, key in _COMPARED for axis in ("", *axes)}
    shown |= {f"{kind}_{dof}" for result in results for kind in runs.RESPONSE for dof in result.response}
    for result in results:
        for key, printed in sorted(result.variant.published.items()):
            if key not in shown:
                value = result.values.get(key, math.nan)
                true = result.values.get(key + TRUE, value)
                further = f" (true displacement: {true:.4g})" if true != value else ""
                terminal.say(f"{result.variant.name}: {key} {value:.4g}{further}, published {printed:g}")
        if result.reason:
            terminal.say(f"{result.variant.name}: {result.outcome}: {result.reason}")


def _published(result: Result, axis: str, first: bool, key: str) -> float | None:
    published = result.variant.published
    return published.get(f"{key}_{axis}", published.get(key) if first else None)


def _print_response(results: Sequence[Result]) -> None:
    print("response: RMS error relative to the entire structure computed in one piece")
    numbers = ("displacement (%)", "published", "absolute acceleration (%)", "published")
    rows = []
    for result in results:
        for number, (dof, errors) in enumerate(result.response.items()):
            row = [result.variant.name if number == 0 else "", dof]
            for kind, key in runs.RESPONSE.items():
                printed = result.variant.published.get(f"{kind}_{dof}")
                row += plain(errors[key]), "-" if printed is None else f"{printed:g}"
            rows.append(row)
    terminal.table(rows, "variant", "degree of freedom", numbers=numbers)


def _ranges(parameters: Mapping[str, Mapping[str, tuple[float, float]]], axis: str) -> str:
    rows = []
    for quantity, row in parameters.items():
        low, high = (f"{value:.4g}" for value in row.get(axis, row.get("", (math.nan, math.nan))))
        rows.append(f"{quantity} {low}" + (f" to {high}" if high != low else ""))
    return "\n".join(rows)


VALUES = ("low", "median", "high", "worst")
"""Statistics that ``--json`` prints for each group; infinite values become null."""
SHOWN = 10


def study_arguments(add: arguments.Arguments) -> None:
    add("study", "path of the study file (YAML)")
    add("--out DIR", "folder of the results; default: runs/<name of the study>")
    add.figures("figures")
    add.where()
    add.json()


def study_command(options: arguments.Options) -> int:
    width = arguments.figures_width(options)
    plan = study.load(options.study)
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
    groups = [
        {
            "group": spreads[0].group,
            "runs": len(spreads[0].rows),
            "failed": spreads[0].failed,
            "indices": {
                index: {key: getattr(spread, key) for key in VALUES}
                for index, spread in zip(table.indices, spreads, strict=True)
            },
        }
        for spreads in zip(*map(table.spreads, table.indices), strict=True)
    ]
    return {
        "study": table.title,
        "scenario": table.scenario,
        "outcomes": table.outcomes(),
        "units": {index: index_unit(index) for index in table.indices},
        "groups": groups,
        "folder": str(folder),
    }


def _number(value: float) -> str:
    return "inf" if math.isinf(value) else plain(value)


def _summary(table: StudyTable) -> str:
    for index in table.indices:
        spreads = table.spreads(index)
        medians = sorted(spread.median for spread in spreads if not math.isnan(spread.median))
        if medians:
            median = " to ".join(_number(value) for value in dict.fromkeys((medians[0], medians[-1])))
            worst = _number(max(spread.worst for spread in spreads if not math.isnan(spread.median)))
            return f"; {table.title_of(index)}: median {median}, worst {worst}"
    return ""


def _print_study(table: StudyTable, folder: Path) -> None:
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in table.outcomes().items())
    terminal.say(f"{table.title}: {outcomes}{_summary(table)}")
    several = ["group"] if len(table.groups) > 1 else []
    heads = "finished", "median", "5 %", "95 %", "worst"
    rows: list[list[str]] = []
    names = table.columns["name"]
    for index in table.indices:
        title = table.title_of(index)
        for spread in table.spreads(index):
            numbers = spread.median, spread.low, spread.high, spread.worst
            worst = names[table.worst(index, 1, spread.group)[0]] if spread.worst >= 0.0 else "-"
            rows.append(
                [title, *([spread.group] if several else []), spread.finished, *map(_number, numbers), worst]
            )
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
        "positive numbers among the compensator's parameters"
    )
    add.several("--parameter KEY[=LOW:HIGH]", text)
    add("--index", "index to minimise", "J2")
    add.names("--cases NAME,...", "cases to evaluate, instead of the scenario itself")
    add("--plants N", "number of plants drawn from the scenario's scatter, in addition to the nominal plant", 0)
    add("--seed N", "seed of the plants and of the search", 1)
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
    rows = (
        (row.key, "-" if row.begin is None else f"{row.begin:.6g}", f"{tuned.values[row.key]:.6g}")
        for row in tuned.parameters
    )
    terminal.table(rows, "parameter", numbers=("before", "tuned"))
    if tuned.unjudged:
        terminal.say(f"note: stability was not assessed before the runs ({tuned.unjudged})")
    for parameter in tuned.parameters:
        if tuned.improved and parameter.at_end(tuned.values[parameter.key]):
            limits = f"{parameter.low:.6g} to {parameter.high:.6g}"
            terminal.say(f"note: {parameter.key} is at a limit of its range ({limits})")
    if tuned.improved:
        print(*(f"--set {assignment}" for assignment in tuned.assignments))


def _text(value: float) -> str:
    if value >= tuning.UNSTABLE:
        return "judged unstable"
    if value == tuning.BROKEN:
        return "undefined"
    return "not finished" if value > tuning.BROKEN else plain(value)


BENCHMARK = "rths_benchmark_2020"
PLANTS = 100
OF_RUNS = (
    *("set", "cases", "laws", "settings", "training", "plants", "records", "indices", "rank", "response"),
    *("out", "entry", "figures", "format", "width", "json"),
)
OF_PLACE = ("jobs", "scheduler", "run_programs")
DEFAULTS = {"benchmark": BENCHMARK, "tune": 0, "training_plants": 2, "noise_seeds": 3, "seed": 1}


def scoreboard_arguments(add: arguments.Arguments) -> None:
    add("benchmark", "name of a shipped scenario or path of a YAML file", DEFAULTS["benchmark"], nargs="?")
    add.several("--set SECTION.KEY=VALUE", "value to change in the scenario, for all compensators")
    text = "cases to run; default: all cases that set no compensator"
    add.names("--cases NAME,...", text)
    text = "compensators to compare; default: all registered compensators, and all compensators in --settings"
    add.names("--laws NAME,...", text)
    text = (
        "settings by compensator: name of a shipped file (e.g. of the benchmark) or path of a YAML file, as "
        "written by this command; other settings are computed by identification"
    )
    add("--settings FILE", text, "")
    add("--tune N", "number of candidates for tuning each compensator before scoring", DEFAULTS["tune"])
    add.several("--training SECTION.KEY=VALUE", "value to change for tuning only, e.g. duration=10")
    text = "number of plants for tuning, in addition to the nominal plant (ignored without scatter)"
    add("--training-plants N", text, DEFAULTS["training_plants"])
    add("--noise-seeds N", "number of noise seeds for scoring", DEFAULTS["noise_seeds"])
    add("--seed N", "seed of the plants for scoring", DEFAULTS["seed"])
    text = f"number of plants for scoring beyond the nominal plant; default: {PLANTS} with scatter, otherwise 0"
    add("--plants N", text, type=int)
    text = "published ground motions to use for scoring; default: the ground motion of the scenario"
    add.names("--records NAME,...", text)
    text = "indices in the tables; default: the indices of the benchmark, or J1,J2,J3,max_error_mm"
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
    if options.merge:
        text = "has no effect, because --merge runs nothing"
        arguments.refuse_idle(options, (*OF_RUNS, *OF_PLACE), text, DEFAULTS | {"engine": AUTO})
        return _merged([Path(path) for path in options.merge])
    where = arguments.where(options)
    if options.verify:
        text = "has no effect with --verify; the entry contains all conditions"
        arguments.refuse_idle(options, OF_RUNS, text, DEFAULTS)
        return _verified(Path(options.verify), where, options.run_programs)
    arguments.refuse_idle(options, ("run_programs",), "requires --verify")
    if not options.tune:
        arguments.refuse_idle(options, ("training", "training_plants"), "requires --tune", {"training_plants": 2})
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

    content = competition.read_entry(path)
    if not run_programs and (programs := competition.programs(content)):
        raise ConfigError(
            f"{path}: contains programs that would run with all your permissions ({'; '.join(programs)}). If "
            "you trust the authors, give --run-programs"
        )
    with tempfile.TemporaryDirectory(prefix="rths_entry_") as folder:
        rows, differs = competition.verify(content, Path(folder), where, Hooks(terminal.progress, terminal.tell))
    for difference in differs:
        print(f"code: {difference}")
    for row, problems in rows.items():
        print(f"{row}: {'; '.join(problems) or 'as stated'}")
    wrong = sum(map(bool, rows.values()))
    print(f"{path}: {f'{wrong} of {len(rows)} rows differ' if wrong else 'verified'}")
    return ExitCode.TRIPPED if wrong else ExitCode.FINISHED


def _merged(paths: Sequence[Path]) -> int:

    names = overlay.names([path.resolve().with_suffix("").parts for path in paths])
    rows, indices = competition.merged(dict(zip(names, map(competition.read_entry, paths), strict=True)))
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
