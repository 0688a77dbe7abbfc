# SPDX-License-Identifier: Apache-2.0
"""``rths estimate``: estimate a loading system or a specimen from a recording, or predict a changed test."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rths_nodes.analysis.identification.from_recording import usable
from rths_nodes.analysis.units import KN, MM, MS, PERCENT, plain, shown
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.studies.prediction import CHANGED, MEASURED, Prediction, predict, reproduced
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.mechanics.updating import KINDS, Open

if TYPE_CHECKING:
    from rths_nodes.analysis.identification.estimate import Estimate
    from rths_nodes.analysis.identification.updating import Followed
    from rths_nodes.recording.run import Run

ROWS = 8
COMPENSATORS, UPDATING, PREDICTION = "compensators", "updating", "prediction"
USES = {
    COMPENSATORS: ("axis", "begin", "end"),
    UPDATING: ("axis", "begin", "end", "initial", "figure", "model", "law", "parameter", "noise", "uncertainty"),
    PREDICTION: ("set", "figure"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_recording(parser)
    text = (
        "use of the result: settings of compensators, an updated copy of the specimen, or a prediction of the "
        f"test with other settings; default: {PREDICTION} with --set, otherwise {COMPENSATORS}"
    )
    arguments.add(parser, "--for", "", text, choices=tuple(USES), dest="purpose")
    text = (
        f"for {PREDICTION}: value to change in the scenario, e.g. compensator.type=none; default: recompute the "
        "recorded commands and compare them bit for bit"
    )
    arguments.add_several(parser, "--set", "SECTION.KEY=VALUE", text)
    text = f"parameters, force and innovation (for {UPDATING}), or the runs (for {PREDICTION})"
    arguments.add_figure(parser, text)
    group = parser.add_argument_group(f"for {COMPENSATORS} and {UPDATING}")
    arguments.add(group, "--axis", "NAME", "axis to evaluate; default: all axes")
    arguments.add(group, "--begin", "S", "start of the evaluated window, s", type=float)
    arguments.add(group, "--end", "S", "end of the evaluated window, s", type=float)
    arguments.add_renamed(parser, from_="--begin", to="--end")
    group = parser.add_argument_group(f"for {UPDATING}")
    arguments.add(group, "--model", "", "type of the specimen model", choices=list(KINDS))
    text = "ukf (unscented Kalman filter) or rls (recursive least squares); default: ukf"
    arguments.add(group, "--law", "", text, choices=("ukf", "rls"))
    text = (
        "parameter to update, optionally with bounds (otherwise half and twice the initial value); default: the "
        "parameters that describe the model"
    )
    arguments.add_several(group, "--parameter", "NAME[=LOW:HIGH]", text)
    text = (
        "initial value of a parameter (SI); default: the value in the scenario, if the specimen there has this "
        "model"
    )
    arguments.add_several(group, "--initial", "NAME=VALUE", text)
    text = "rms noise of the force, N; default: 2 %% of the force amplitude"
    arguments.add(group, "--noise", "N", text, type=float)
    text = "standard deviation of the initial values, as a fraction of the values; default: 0.3"
    arguments.add(group, "--uncertainty", "PART", text, type=float)
    arguments.add_engine(parser)
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    options.purpose = options.purpose or (PREDICTION if options.set else COMPENSATORS)
    arguments.check_purpose(options, USES)
    from rths_nodes.recording.reading import read_run

    if options.purpose == UPDATING and options.model is None:
        raise ConfigError(f"--model: missing; must be one of {', '.join(KINDS)}")
    figure = arguments.figure(options)
    recording = read_run(options.recording)
    terminal.tell(recording.notes)
    if options.purpose == PREDICTION:
        if not options.set:
            arguments.refuse_idle(options, ("figure",), "requires --set")
        return (_predicted if options.set else _reproduced)(options, recording, figure)
    return (_updating if options.purpose == UPDATING else _compensators)(options, recording, figure)


def _compensators(options: argparse.Namespace, recording: Run, _: Path | None) -> int:
    from rths_nodes.analysis.identification.estimate import estimate

    result = estimate(recording, options.axis, options.begin, options.end)
    data = {name: asdict(entry) for name, entry in result.items()}
    terminal.output(options.json, data, _print_estimates, result)
    return 0


def _print_estimates(results: Mapping[str, Estimate]) -> None:
    for name, result in results.items():
        _print_estimate(name, result)


def _print_estimate(name: str, result: Estimate) -> None:
    console = terminal.console()
    kind = f", a sine of {result.sine:.4g} Hz" if result.sine else ""
    lost = f", the longest part without gaps ({result.missing} samples are missing)" if result.missing else ""
    window = f"{result.start:.3f} to {result.end:.3f} s, {result.samples} samples{lost}{kind}"
    console.print(f"{name}: {window}", markup=False)
    grid = terminal.grid("", "target -> measured", "command -> measured")
    rows = [
        ("delay J1", "delay", MS, "ms"),
        ("delay FEI", "fei_delay", MS, "ms"),
        ("amplitude ratio FEI", "fei_amplitude", 1.0, ""),
        ("equivalent frequency", "fei_frequency", 1.0, "Hz"),
        ("delay of the sine", "sine_delay", MS, "ms"),
        ("amplitude ratio of the sine", "sine_amplitude", 1.0, ""),
    ]
    for title, key, factor, unit in rows[: None if result.sine else 4]:
        grid.add_row(
            title,
            *(shown(getattr(delays, key), factor, unit).strip() for delays in (result.tracking, result.loading)),
        )
    terminal.show(console, grid)
    for compensator, values in result.suggested.items():
        text = " ".join(f"compensator.{key}={_assigned(value)}" for key, value in values.items())
        console.print(f"suggested: compensator.type={compensator} {text}", markup=False, soft_wrap=True)
    for note in result.notes:
        console.print(f"note: {note}", markup=False)


def _assigned(value: object) -> str:
    return f"[{', '.join(f'{entry:.5g}' for entry in value)}]" if isinstance(value, list) else f"{value:.5g}"


def _updating(options: argparse.Namespace, recording: Run, figure: Path | None) -> int:
    from rths_nodes.analysis.identification import updating

    values, opened = dict(map(_value, options.initial)), list(map(_open, options.parameter))
    if options.axis is None and len(recording.axes) > 1:
        raise ConfigError(f"--axis: missing; must be one of {', '.join(recording.axes)}")
    axis = options.axis or recording.axes[0]
    result = updating.follow(
        recording,
        axis,
        updating.copy_for(recording, axis, options.model, values, opened),
        options.law or "ukf",
        options.noise,
        updating.UNCERTAINTY if options.uncertainty is None else options.uncertainty,
        options.begin,
        options.end,
    )
    terminal.output(options.json, _data(result), _print, result)
    if figure:
        from rths_nodes.analysis.figures.updating import draw

        arguments.save_figure(options, figure, draw, result, recording)
    return 0


def _value(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise ConfigError(f"--initial {text}: must be NAME=VALUE with a number") from None


def _open(text: str) -> Open:
    name, sign, range_ = text.partition("=")
    if not sign:
        return Open(name)
    low, colon, high = range_.partition(":")
    try:
        bounds = float(low), float(high)
    except ValueError:
        colon = ""
    if not colon or not -np.inf < bounds[0] < bounds[1] < np.inf:
        raise ConfigError(f"--parameter {text}: must be NAME=LOW:HIGH with LOW < HIGH")
    return Open(name, bounds)


def _remarks(result: Followed) -> list[str]:
    text = [f"samples: {', '.join(f'{count} {kind}' for kind, count in result.counts.items())}"]
    if (strange := result.unexplained).any():
        text.append(
            f"the model does not explain the measured force in {PERCENT * strange.mean():.0f} % of the samples, "
            f"first at {result.time[strange.argmax()]:.2f} s. The estimates are then meaningless, and copies keep "
            "their values"
        )
    if result.at_bound:
        text.append(f"parameters that reached a bound: {', '.join(result.at_bound)}")
    return text


def _print(result: Followed) -> None:
    from rths_nodes.mechanics.updating import IDENTIFIED

    console = terminal.console()
    console.print(
        f"{result.axis}: {result.model}, estimated with {result.law}, {result.time[0]:.2f} to "
        f"{result.time[-1]:.2f} s, {len(result.time)} samples, {KN * result.noise:.3g} kN rms noise",
        markup=False,
    )
    heads = (f"{name}\n{unit}".rstrip() for name, unit in zip(result.names, result.units, strict=True))
    grid = terminal.grid("time s", numbers=heads)
    for row in np.linspace(0, len(result.time) - 1, ROWS + 1).astype(int)[1:].tolist():
        cells = zip(result.estimate[row].tolist(), result.deviation[row].tolist(), strict=True)
        grid.add_row(f"{result.time[row]:.2f}", *(f"{mean:.4g} +- {wide:.2g}" for mean, wide in cells))
    terminal.show(console, grid)
    grid = terminal.grid("parameter", numbers=("initial", "estimate", "used by copies", "remaining uncertainty"))
    grid.add_column("identified")
    for column, name in enumerate(result.names):
        values = (
            history_row[column] for history_row in (result.initial, result.estimate[-1], result.released[-1])
        )
        left = f"{PERCENT * result.left[column]:.2g} %"
        identified = "yes" if result.identified[column] else "no"
        grid.add_row(name, *(f"{value:.4g}" for value in values), left, identified)
    terminal.show(console, grid)
    for text in _remarks(result):
        terminal.say(text)
    terminal.say(f"identified: at most {PERCENT * IDENTIFIED:.2g} % of the initial uncertainty remains")


def _data(result: Followed) -> dict[str, object]:
    names = result.names
    return {
        "axis": result.axis,
        "model": result.model,
        "law": result.law,
        "noise": result.noise,
        "uncertainty": result.uncertainty,
        "parameters": {
            name: {
                "unit": result.units[column],
                "initial": result.initial[column],
                "estimate": result.estimate[-1, column],
                "deviation": result.deviation[-1, column],
                "released": result.released[-1, column],
                "uncertainty_left": result.left[column],
                "identified": result.identified[column],
            }
            for column, name in enumerate(names)
        },
        "samples": result.counts,
        "unexplained": float(result.unexplained.mean()),
        "at_bound": list(result.at_bound),
        "time": result.time.tolist(),
        "estimates": {name: result.estimate[:, column].tolist() for column, name in enumerate(names)},
        "deviations": {name: result.deviation[:, column].tolist() for column, name in enumerate(names)},
    }


# Prediction of the test with other settings (app/studies/prediction.py)

_COLUMNS = (
    ("J1 (ms)", "delay_s", 1e3),
    ("J2 (%)", "error_norm_percent", 1.0),
    ("J3 (%)", "max_error_percent", 1.0),
    ("max (mm)", "max_error_m", MM),
)

UNUSABLE = "do not use this prediction"
"""Beginning of the output if the identified rig does not reproduce the recording."""


def _reproduced(options: argparse.Namespace, run: Run, _: Path | None) -> int:
    result = reproduced(run)
    equal = result.first_difference is None
    if options.json:
        terminal.print_json(vars(result) | {"equal": equal})
    elif equal:
        commands = f"{result.compared} recorded commands"
        if result.compared < result.samples:
            commands += f" before the first bridged or lost command (of {result.samples} commands)"
        print(f"{run.scenario.name}: the {commands} were reproduced bit for bit")
    else:
        print(
            f"{run.scenario.name}: the recomputed commands differ from sample {result.first_difference} on, "
            f"by up to {plain(result.largest, MM, 6)} mm"
        )
    return ExitCode.FINISHED if equal else ExitCode.TRIPPED


def _predicted(options: argparse.Namespace, run: Run, figure: Path | None) -> int:
    result = predict(run, options.set, options.engine)
    name = run.scenario.name
    data = _prediction_data(name, options.set, result)
    terminal.output(options.json, data, _print_prediction, name, options.set, result)
    if figure:
        from rths_nodes.analysis.figures.histories import compared

        arguments.save_figure(options, figure, compared, list(result.runs.items()))
    good = result.outcomes[CHANGED][0] == "finished" and not result.discrepancy
    return ExitCode.FINISHED if good else ExitCode.TRIPPED


def _prediction_data(name: str, changes: list[str], result: Prediction) -> dict[str, object]:
    return {
        "scenario": name,
        "set": changes,
        "discrepancy": result.discrepancy,
        "missing": int(result.runs[MEASURED].missing.sum()),
        "identified": {axis: vars(model) for axis, model in result.models.items()},
        "rows": [
            {"name": row, "outcome": outcome, "reason": reason, "axes": result.indices[row]}
            for row, (outcome, reason) in result.outcomes.items()
        ],
    }


def _print_prediction(name: str, changes: list[str], result: Prediction) -> None:
    console = terminal.console()
    if result.discrepancy:
        console.print(f"{UNUSABLE}: {result.discrepancy}", markup=False, soft_wrap=True)
    if lost := result.runs[MEASURED].incomplete:
        first = usable(result.runs[MEASURED])
        console.print(f"the rig was identified from the first {first} samples ({lost})", markup=False)
    for axis, model in result.models.items():
        console.print(
            f"{axis}: the identified rig explains {model.displacement_fit:.1f} % of the displacement (rms error "
            f"{plain(model.residual, MM)} mm) and {model.force_fit:.1f} % of the force "
            f"({model.specimen['stiffness']:.4g} N/m, {model.specimen['damping']:.4g} N s/m)",
            markup=False,
            soft_wrap=True,
        )
    console.print(f"{name}: indices of the measured displacement; changed: {' '.join(changes)}", markup=False)
    grid = terminal.grid("", "outcome", "axis", numbers=[title for title, _, _ in _COLUMNS])
    for row, (outcome, reason) in result.outcomes.items():
        axes = result.indices[row] or {"": {}}
        for number, (axis, values) in enumerate(axes.items()):
            cells = [plain(values.get(key), factor) for _, key, factor in _COLUMNS]
            ending = f"{outcome}: {reason}" if reason else outcome
            grid.add_row(*((row, ending) if number == 0 else ("", "")), axis, *cells)
    terminal.show(console, grid)
