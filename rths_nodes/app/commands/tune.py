# SPDX-License-Identifier: Apache-2.0
"""``rths tune``: optimise parameters of a scenario for the worst case of an ensemble of plants."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rths_nodes.analysis.units import plain
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.loop.outcomes import ExitCode

if TYPE_CHECKING:
    from rths_nodes.app.studies.tuning import Tuned


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_scenario(parser)
    text = (
        "parameter to tune, optionally with a range (otherwise one third to three times its value); default: the "
        "positive numbers of the compensator"
    )
    arguments.add_several(parser, "--parameter", "KEY[=LOW:HIGH]", text)
    arguments.add(parser, "--index", "", "index to minimise", "J2")
    text = "cases to evaluate, instead of the scenario itself"
    arguments.add(parser, "--cases", "NAME,...", text, "", type=arguments.names)
    text = "number of plants drawn from the scenario's scatter, in addition to the nominal plant"
    arguments.add(parser, "--plants", "N", text, 0)
    arguments.add(parser, "--seed", "N", "seed of plants and search", 1)
    arguments.add(parser, "--evaluations", "N", "number of candidates", 60)
    arguments.add_where(parser)
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    from rths_nodes.app import api
    from rths_nodes.app.studies import tuning

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
    data = _data(loaded.name, options.index, tuned)
    terminal.output(options.json, data, _print, loaded.name, options.index, tuned)
    return ExitCode.FINISHED if tuned.usable else ExitCode.TRIPPED


def _data(name: str, index: str, tuned: Tuned) -> dict[str, object]:
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


def _print(name: str, index: str, tuned: Tuned) -> None:
    console = terminal.console()
    worst = f"of {tuned.runs} runs" if tuned.runs > 1 else "of the run"
    change = f"{_text(tuned.before)} before and {_text(tuned.worst)} after {tuned.evaluations} candidates"
    if not tuned.improved:
        change = f"{_text(tuned.before)}, no improvement found with {tuned.evaluations} candidates"
    console.print(f"{name}: worst {index} {worst}: {change}", markup=False)
    grid = terminal.grid("parameter", numbers=("before", "tuned"))
    for entry in tuned.parameters:
        grid.add_row(entry.key, f"{entry.begin:.6g}", f"{tuned.values[entry.key]:.6g}")
    terminal.show(console, grid)
    if tuned.unjudged:
        console.print(f"note: stability was not judged before the runs ({tuned.unjudged})", markup=False)
    for parameter in tuned.parameters:
        if tuned.improved and parameter.at_end(tuned.values[parameter.key]):
            limits = f"{parameter.low:.6g} to {parameter.high:.6g}"
            console.print(f"note: {parameter.key} is at the end of its range, {limits}", markup=False)
    if tuned.improved:
        line = " ".join(f"--set {assignment}" for assignment in tuned.assignments)
        console.print(line, markup=False, soft_wrap=True)


def _text(value: float) -> str:
    from rths_nodes.app.studies import tuning

    if value >= tuning.UNSTABLE:
        return "judged unstable"
    return "not finished" if value >= tuning.BROKEN else plain(value)
