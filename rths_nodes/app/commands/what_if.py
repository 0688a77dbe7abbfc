# SPDX-License-Identifier: Apache-2.0
"""``rths estimate --for prediction``: predict a recorded test with other settings."""

from __future__ import annotations

import argparse
from pathlib import Path

from rths_nodes.analysis.identification.from_recording import usable
from rths_nodes.analysis.units import MM, plain
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.studies.prediction import CHANGED, MEASURED, Prediction, predict, reproduced
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.recording.run import Run

_COLUMNS = (
    ("J1 (ms)", "delay_s", 1e3),
    ("J2 (%)", "error_norm_percent", 1.0),
    ("J3 (%)", "max_error_percent", 1.0),
    ("max (mm)", "max_error_m", MM),
)

UNUSABLE = "do not use this prediction"
"""First words of the output if the identified rig does not reproduce the recording."""


def run(options: argparse.Namespace, recording: Run, figure: Path | None) -> int:
    """Recompute the recorded Commands, or predict the test. Return 3 for a difference or an unfinished test."""
    if options.set:
        return _predicted(options, recording, figure)
    if figure:
        raise ConfigError(f"--figure {figure}: requires --set")
    return _reproduced(options, recording)


def _reproduced(options: argparse.Namespace, run: Run) -> int:
    result = reproduced(run)
    equal = result.first_difference is None
    if options.json:
        terminal.print_json(vars(result) | {"equal": equal})
    elif equal:
        rest = (
            ""
            if result.compared == result.samples
            else f" of {result.samples}, up to the first bridged or lost command,"
        )
        print(f"{run.scenario.name}: the {result.compared} recorded commands{rest} were reproduced bit for bit")
    else:
        print(
            f"{run.scenario.name}: the recomputed commands differ from sample {result.first_difference} on, "
            f"by up to {plain(result.largest, MM, 6)} mm"
        )
    return ExitCode.FINISHED if equal else ExitCode.TRIPPED


def _predicted(options: argparse.Namespace, run: Run, figure: Path | None) -> int:
    result = predict(run, options.set, options.engine)
    if options.json:
        terminal.print_json(_data(run.scenario.name, options.set, result))
    else:
        _print(run.scenario.name, options.set, result)
    if figure:
        from rths_nodes.analysis.figures.compared import draw

        arguments.save_figure(options, figure, draw, list(result.runs.items()))
    good = result.outcomes[CHANGED][0] == "finished" and not result.discrepancy
    return ExitCode.FINISHED if good else ExitCode.TRIPPED


def _data(name: str, changes: list[str], result: Prediction) -> dict[str, object]:
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


def _print(name: str, changes: list[str], result: Prediction) -> None:
    console = terminal.console()
    if result.discrepancy:
        console.print(f"{UNUSABLE}: {result.discrepancy}", markup=False, soft_wrap=True)
    if lost := result.runs[MEASURED].incomplete:
        console.print(f"identified from the first {usable(result.runs[MEASURED])} samples: {lost}", markup=False)
    for axis, model in result.models.items():
        console.print(
            f"{axis}: identified: displacement {model.displacement_fit:.1f} % explained, rms error "
            f"{plain(model.residual, MM)} mm; force {model.force_fit:.1f} % explained by "
            f"{model.specimen['stiffness']:.4g} N/m and {model.specimen['damping']:.4g} N s/m",
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
