# SPDX-License-Identifier: Apache-2.0
"""``rths study``: run the variants of a scenario that a study file defines."""

from __future__ import annotations

import math
import sys
from pathlib import Path

from rths_nodes.analysis.study_table import StudyTable, index_unit
from rths_nodes.analysis.units import FORMATS, plain
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.studies import study
from rths_nodes.app.studies.study import PAGE
from rths_nodes.loop.outcomes import ExitCode

VALUES = ("low", "median", "high", "worst")
"""Statistics that ``--json`` prints for each group; infinite values are printed as null."""
SHOWN = 10


def add_arguments(add: arguments.Arguments) -> None:
    add("study", "path of the study file (YAML)")
    add("--out DIR", "folder of the results; default: runs/<name of the study>")
    add.figures("figures")
    add.where()
    add.json()


def run(options: arguments.Options) -> int:
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
        from rths_nodes.analysis.figures import drawing, studies

        with terminal.writing(folder):
            drawn = drawing.for_print(studies.drawings(table), width)
            drawing.write_figures(drawn, folder / "figures", options.format or FORMATS[0])
    terminal.output(options.json, _data(table, folder), _print, table, folder)
    return ExitCode.FINISHED if table.finished.all() else ExitCode.TRIPPED


def _data(table: StudyTable, folder: Path) -> dict[str, object]:
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


def _summary(table: StudyTable) -> str:
    for index in table.indices:
        spreads = table.spreads(index)
        medians = sorted(spread.median for spread in spreads if not math.isnan(spread.median))
        if medians:
            median = " to ".join(plain(value) for value in dict.fromkeys((medians[0], medians[-1])))
            worst = plain(max(spread.worst for spread in spreads))
            return f"; {table.title_of(index)}: median {median}, worst {worst}"
    return ""


def _print(table: StudyTable, folder: Path) -> None:
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
            values = ("inf" if math.isinf(value) else plain(value) for value in numbers)
            worst = names[table.worst(index, 1, spread.group)[0]] if spread.worst >= 0.0 else "-"
            rows.append([title, *([spread.group] if several else []), spread.finished, *values, worst])
            title = ""
    terminal.table(rows, "index", *several, numbers=heads, last=["worst run"])
    runs = zip(names, table.columns["outcome"], table.columns["reason"], strict=True)
    unfinished = [": ".join(run) for run in runs if run[1] != "finished"]
    for text in unfinished[:SHOWN]:
        terminal.say(text)
    if further := unfinished[SHOWN:]:
        terminal.say(f"the table lists {len(further)} further unfinished runs")
    print(f"page: {folder / PAGE}")
