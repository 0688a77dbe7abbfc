# SPDX-License-Identifier: Apache-2.0
"""``rths tune``: optimise parameters of a scenario for the worst case of an ensemble of plants."""

from __future__ import annotations

from rths_nodes.analysis.units import plain
from rths_nodes.app import api
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.studies import tuning
from rths_nodes.app.studies.tuning import Tuned
from rths_nodes.loop.outcomes import ExitCode


def add_arguments(add: arguments.Arguments) -> None:
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


def run(options: arguments.Options) -> int:
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
