# SPDX-License-Identifier: Apache-2.0
"""``rths estimate``: estimate a loading system or a specimen from a recording, or predict a changed test."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from rths_nodes.analysis.identification import from_recording
from rths_nodes.analysis.identification.from_recording import Estimate, Followed, estimate, usable
from rths_nodes.analysis.units import KN, MM, MS, PERCENT, plain, shown
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.studies.prediction import CHANGED, MEASURED, Prediction, predict, reproduced
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.mechanics.updating import IDENTIFIED, KINDS, Open
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.run import Run

ROWS = 8
COMPENSATORS, UPDATING, PREDICTION = "compensators", "updating", "prediction"
USES = {
    COMPENSATORS: ("axis", "begin", "end"),
    UPDATING: ("axis", "begin", "end", "initial", "figure", "model", "law", "parameter", "noise", "uncertainty"),
    PREDICTION: ("set", "figure"),
}


def estimate_arguments(add: arguments.Arguments) -> None:
    add.recording()
    text = (
        "use of the result: settings of compensators, an updated copy of the specimen, or a prediction of the "
        f"test with other settings; default: {PREDICTION} with --set, otherwise {COMPENSATORS}"
    )
    add("--for", text, choices=tuple(USES), dest="purpose")
    text = (
        f"for {PREDICTION}: value to change in the scenario, e.g. compensator.type=none; default: recompute the "
        "recorded commands and compare them bit for bit"
    )
    add.several("--set SECTION.KEY=VALUE", text)
    add.figure(f"parameters, force and innovation (for {UPDATING}), or the runs (for {PREDICTION})")
    group = add.group(f"for {COMPENSATORS} and {UPDATING}")
    group("--axis NAME", "axis to evaluate; default: all axes")
    group("--begin S", "start of the evaluated window, s", type=float)
    group("--end S", "end of the evaluated window, s", type=float)
    add.removed(from_="renamed; use --begin", to="renamed; use --end")
    group = add.group(f"for {UPDATING}")
    group("--model", "type of the specimen model", choices=list(KINDS))
    text = "ukf (unscented Kalman filter) or rls (recursive least squares); default: ukf"
    group("--law", text, choices=("ukf", "rls"))
    text = (
        "parameter to update, optionally with bounds (otherwise half and twice the initial value); default: the "
        "parameters that describe the model"
    )
    group.several("--parameter NAME[=LOW:HIGH]", text)
    text = (
        "initial value of a parameter (SI); default: the value in the scenario, if the specimen there has this "
        "model"
    )
    group.several("--initial NAME=VALUE", text)
    group("--noise N", "rms noise of the force, N; default: 2 %% of the force amplitude", type=float)
    text = "standard deviation of the initial values, as a fraction of the values; default: 0.3"
    group("--uncertainty PART", text, type=float)
    add.engine()
    add.json()


def estimate_command(options: arguments.Options) -> int:
    options.purpose = options.purpose or (PREDICTION if options.set else COMPENSATORS)
    arguments.check_purpose(options, USES)

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


def _compensators(options: arguments.Options, recording: Run, _: Path | None) -> int:
    result = estimate(recording, options.axis, options.begin, options.end)
    data = {name: asdict(entry) for name, entry in result.items()}
    if options.json:
        terminal.print_json(data)
        return 0
    for name, entry in result.items():
        _print_estimate(name, entry)
    return 0


def _print_estimate(name: str, result: Estimate) -> None:
    kind = f", a sine of {result.sine:.4g} Hz" if result.sine else ""
    lost = f", the longest part without gaps ({result.missing} samples are missing)" if result.missing else ""
    window = f"{result.start:.3f} to {result.end:.3f} s, {result.samples} samples{lost}{kind}"
    terminal.say(f"{name}: {window}")
    quantities = [
        ("delay J1", "delay", MS, "ms"),
        ("delay FEI", "fei_delay", MS, "ms"),
        ("amplitude ratio FEI", "fei_amplitude", 1.0, ""),
        ("equivalent frequency", "fei_frequency", 1.0, "Hz"),
        ("delay of the sine", "sine_delay", MS, "ms"),
        ("amplitude ratio of the sine", "sine_amplitude", 1.0, ""),
    ]
    both = result.tracking, result.loading
    rows = (
        [title, *(shown(getattr(delays, key), factor, unit).strip() for delays in both)]
        for title, key, factor, unit in quantities[: None if result.sine else 4]
    )
    terminal.table(rows, "", "target -> measured", "command -> measured")
    for compensator, values in result.suggested.items():
        text = " ".join(f"compensator.{key}={_assigned(value)}" for key, value in values.items())
        print(f"suggested: compensator.type={compensator} {text}")
    for note in result.notes:
        terminal.say(f"note: {note}")


def _assigned(value: object) -> str:
    return f"[{', '.join(f'{entry:.5g}' for entry in value)}]" if isinstance(value, list) else f"{value:.5g}"


def _updating(options: arguments.Options, recording: Run, figure: Path | None) -> int:
    values, opened = dict(map(_value, options.initial)), list(map(_open, options.parameter))
    if options.axis is None and len(recording.axes) > 1:
        raise ConfigError(f"--axis: missing; must be one of {', '.join(recording.axes)}")
    axis = options.axis or recording.axes[0]
    result = from_recording.follow(
        recording,
        axis,
        from_recording.copy_for(recording, axis, options.model, values, opened),
        options.law or "ukf",
        options.noise,
        from_recording.UNCERTAINTY if options.uncertainty is None else options.uncertainty,
        options.begin,
        options.end,
    )
    terminal.output(options.json, _data(result), _print, result)
    if figure:
        from rths_nodes.analysis.figures.histories import copies_in_shadow

        arguments.save_figure(options, figure, copies_in_shadow, result, recording)
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
            f"first at {result.time[strange.argmax()]:.2f} s. The estimates at these samples are meaningless, "
            "and copies of the specimen keep their parameters"
        )
    if result.at_bound:
        text.append(f"parameters that reached a bound: {', '.join(result.at_bound)}")
    return text


def _print(result: Followed) -> None:
    terminal.say(
        f"{result.axis}: {result.copy.model}, estimated with {result.law}, {result.time[0]:.2f} to "
        f"{result.time[-1]:.2f} s, {len(result.time)} samples, {KN * result.noise:.3g} kN rms noise"
    )
    heads = (f"{name}\n{unit}".rstrip() for name, unit in zip(result.copy.names, result.copy.units, strict=True))
    times = []
    for row in np.linspace(0, len(result.time) - 1, ROWS + 1).astype(int)[1:].tolist():
        cells = zip(result.estimate[row].tolist(), result.deviation[row].tolist(), strict=True)
        times.append([f"{result.time[row]:.2f}", *(f"{mean:.4g} +- {wide:.2g}" for mean, wide in cells)])
    terminal.table(times, "time s", numbers=heads)
    parameters = []
    for column, name in enumerate(result.copy.names):
        values = (row[column] for row in (result.copy.initial, result.estimate[-1], result.released[-1]))
        left = f"{PERCENT * result.left[column]:.2g} %"
        identified = "yes" if result.identified[column] else "no"
        parameters.append([name, *(f"{value:.4g}" for value in values), left, identified])
    numbers = ("initial", "estimate", "used by copies", "remaining uncertainty")
    terminal.table(parameters, "parameter", numbers=numbers, last=["identified"])
    for text in _remarks(result):
        terminal.say(text)
    terminal.say(f"identified: at most {PERCENT * IDENTIFIED:.2g} % of the initial uncertainty remains")


def _data(result: Followed) -> dict[str, object]:
    copy, names = result.copy, result.copy.names
    return {
        "axis": result.axis,
        "model": copy.model,
        "law": result.law,
        "noise": result.noise,
        "uncertainty": result.uncertainty,
        "parameters": {
            name: {
                "unit": copy.units[column],
                "initial": copy.initial[column],
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


def _reproduced(options: arguments.Options, run: Run, _: Path | None) -> int:
    compared, first, largest = reproduced(run)
    equal, samples = first is None, run.scenario.samples
    if options.json:
        numbers = {"compared": compared, "samples": samples, "first_difference": first, "largest": largest}
        terminal.print_json(numbers | {"equal": equal})
    elif equal:
        commands = f"{compared} recorded commands"
        if compared < samples:
            commands += f" before the first bridged or lost command (of {samples} commands)"
        print(f"{run.scenario.name}: the {commands} were reproduced bit for bit")
    else:
        print(
            f"{run.scenario.name}: the recomputed commands differ from sample {first} on, by up to "
            f"{plain(largest, MM, 6)} mm"
        )
    return ExitCode.FINISHED if equal else ExitCode.TRIPPED


def _predicted(options: arguments.Options, run: Run, figure: Path | None) -> int:
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
    if result.discrepancy:
        terminal.say(f"{UNUSABLE}: {result.discrepancy}")
    if lost := result.runs[MEASURED].incomplete:
        first = usable(result.runs[MEASURED])
        terminal.say(f"the rig was identified from the first {first} samples ({lost})")
    for axis, model in result.models.items():
        terminal.say(
            f"{axis}: the identified rig explains {model.displacement_fit:.1f} % of the displacement (rms error "
            f"{plain(model.residual, MM)} mm) and {model.force_fit:.1f} % of the force "
            f"({model.specimen['stiffness']:.4g} N/m, {model.specimen['damping']:.4g} N s/m)"
        )
    terminal.say(f"{name}: indices of the measured displacement; changed: {' '.join(changes)}")
    rows = []
    for row, (outcome, reason) in result.outcomes.items():
        axes = result.indices[row] or {"": {}}
        for number, (axis, values) in enumerate(axes.items()):
            cells = [plain(values.get(key), factor) for _, key, factor in _COLUMNS]
            ending = f"{outcome}: {reason}" if reason else outcome
            rows.append([*((row, ending) if number == 0 else ("", "")), axis, *cells])
    terminal.table(rows, "", "outcome", "axis", numbers=[title for title, _, _ in _COLUMNS])
