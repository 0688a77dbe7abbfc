# SPDX-License-Identifier: Apache-2.0
"""``rths what-if``: repeat a recorded test with another compensator, integrator or ramp."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rths_nodes.analysis.units import MM, plain
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.loop.outcomes import ExitCode

if TYPE_CHECKING:
    from rths_nodes.app.studies.what_if import Prediction
    from rths_nodes.recording.run import Run

_COLUMNS = (
    ("J1 (ms)", "delay_s", 1e3),
    ("J2 (%)", "error_norm_percent", 1.0),
    ("J3 (%)", "max_error_percent", 1.0),
    ("max (mm)", "max_error_m", MM),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_recording(parser)
    words = (
        "what is changed, e.g. compensator.type=none; may be repeated; without it the recorded commands are "
        "computed again and compared to the bit"
    )
    arguments.add_several(parser, "--set", "SECTION.KEY=VALUE", words)
    parser.add_argument(
        "--figure",
        metavar="FILE",
        help="draw the recording and the predictions into one figure (.png, .svg, .pdf)",
    )
    arguments.add_engine(parser)
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Compare the recorded commands, or predict; return 3 for a difference or an unfinished test."""
    from rths_nodes.recording.reading import read_run

    figure = terminal.figure_path(options.figure if options.set else None)
    found = read_run(options.recording)
    terminal.tell(found.notes)
    return _predicted(options, found, figure) if options.set else _reproduced(options, found)


def _reproduced(options: argparse.Namespace, found: Run) -> int:
    from rths_nodes.app.studies.what_if import reproduced

    result = reproduced(found)
    equal = result.first_difference is None
    if options.json:
        terminal.print_json(vars(result) | {"equal": equal})
    elif equal:
        rest = (
            ""
            if result.compared == result.samples
            else f" of {result.samples}, up to the first bridged or lost one"
        )
        print(f"{found.scenario.name}: the {result.compared} recorded commands{rest} come out again, to the bit")
    else:
        print(
            f"{found.scenario.name}: the recorded commands differ from sample {result.first_difference} on, "
            f"by up to {plain(result.largest, MM, 6)} mm"
        )
    return ExitCode.FINISHED if equal else ExitCode.TRIPPED


def _predicted(options: argparse.Namespace, found: Run, figure: Path | None) -> int:
    from rths_nodes.app.studies import what_if

    result = what_if.predict(found, options.set, options.engine)
    if options.json:
        terminal.print_json(_data(found.scenario.name, options.set, result))
    else:
        _print(found.scenario.name, options.set, result)
    if figure:
        from rths_nodes.analysis.figures import compared

        with terminal.writing(figure, "" if options.json else "figure"):
            compared.write(list(result.runs.items()), figure)
    outcome = result.outcomes[what_if.CHANGED][0]
    return ExitCode.FINISHED if outcome == "finished" else ExitCode.TRIPPED


def _data(name: str, changes: list[str], result: Prediction) -> dict[str, object]:
    return {
        "scenario": name,
        "set": changes,
        "identified": {axis: vars(model) for axis, model in result.models.items()},
        "rows": [
            {"name": row, "outcome": outcome, "reason": reason, "axes": result.indices[row]}
            for row, (outcome, reason) in result.outcomes.items()
        ],
    }


def _print(name: str, changes: list[str], result: Prediction) -> None:
    console = terminal.console()
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
            words = f"{outcome}: {reason}" if reason else outcome
            grid.add_row(*((row, words) if number == 0 else ("", "")), axis, *cells)
    terminal.show(console, grid)
