# SPDX-License-Identifier: Apache-2.0
"""``rths estimate --for updating``: parameters that a copy of the specimen would learn from a recording.

The copy is in shadow: it does not affect the test.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np

from rths_nodes.analysis.units import KN, PERCENT
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.core.errors import ConfigError
from rths_nodes.mechanics.updating.copies import KINDS, Open

if TYPE_CHECKING:
    from rths_nodes.analysis.identification.updating import Followed

ROWS = 8
"""Number of printed times."""
OPTIONS = ("model", "law", "set", "parameter", "noise", "uncertainty", "figure")
"""Options of this purpose, by their names in Python."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("for updating")
    group.add_argument("--model", choices=list(KINDS), help="model that the copy is")
    group.add_argument("--law", choices=("ukf", "rls"), help="unscented filter or least squares; default: ukf")
    words = (
        "initial value of a parameter of the model (SI); may be repeated; by default as in the scenario that was "
        "recorded, where that has this model"
    )
    arguments.add_several(group, "--set", "NAME=VALUE", words)
    words = (
        "parameter that is updated, and its bounds, by default half and twice the initial value; may be repeated; "
        "by default those that the model is known by"
    )
    arguments.add_several(group, "--parameter", "NAME[=LOW:HIGH]", words)
    group.add_argument(
        "--noise", type=float, metavar="N", help="rms noise of the force, N; default: 2 %% of the large force"
    )
    group.add_argument(
        "--uncertainty",
        type=float,
        metavar="PART",
        help="standard deviation of the initial values, as part of these; default: 0.3",
    )
    group.add_argument("--figure", metavar="FILE", help="draw parameters, force, innovation (.png, .svg, .pdf)")


def refuse_idle(options: argparse.Namespace, purpose: str) -> None:
    """Raise ConfigError for options of this purpose used with another ``purpose``."""
    if idle := [f"--{name}" for name in OPTIONS if getattr(options, name) not in (None, [])]:
        raise ConfigError(f"{', '.join(idle)}: is for --for updating, not for {purpose}")


def run(options: argparse.Namespace) -> int:
    from rths_nodes.analysis.identification import updating
    from rths_nodes.recording.reading import read_run

    if options.model is None:
        raise ConfigError(f"--model: missing; one of {', '.join(KINDS)}")
    figure = terminal.figure_path(options.figure)
    given, opened = dict(map(_value, options.set)), list(map(_open, options.parameter))
    recording = read_run(options.recording)
    terminal.tell(recording.notes)
    if options.axis is None and len(recording.axes) > 1:
        raise ConfigError(f"--axis: which one is the specimen of? {', '.join(recording.axes)}")
    axis = options.axis or recording.axes[0]
    copy = updating.copy_for(recording, axis, options.model, given, opened)
    found = updating.follow(
        recording,
        axis,
        copy,
        options.law or "ukf",
        options.noise,
        updating.UNCERTAINTY if options.uncertainty is None else options.uncertainty,
        options.start,
        options.end,
    )
    if options.json:
        terminal.print_json(_data(found))
    else:
        _print(found)
    if figure:
        from rths_nodes.analysis.figures.style import save
        from rths_nodes.analysis.figures.updating import draw

        with terminal.writing(figure, "" if options.json else "figure"):
            save(figure, draw, found, recording.scenario.name)
    return 0


def _value(words: str) -> tuple[str, object]:
    """Parse ``stiffness=7e6``."""
    name, _, value = words.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise ConfigError(f"--set {words}: must be NAME=VALUE with a number") from None


def _open(words: str) -> Open:
    name, sign, range_ = words.partition("=")
    if not sign:
        return Open(name)
    low, colon, high = range_.partition(":")
    try:
        bounds = float(low), float(high)
    except ValueError:
        colon = ""
    if not colon or not -np.inf < bounds[0] < bounds[1] < np.inf:
        raise ConfigError(f"--parameter {words}: must be NAME=LOW:HIGH with LOW < HIGH")
    return Open(name, bounds)


def _told(found: Followed) -> list[str]:
    words = [f"samples: {', '.join(f'{count} {what}' for what, count in found.counts.items())}"]
    if (strange := found.unexplained).any():
        words.append(
            f"the model does not explain the specimen: first at {found.time[strange.argmax()]:.2f} s, in "
            f"{PERCENT * strange.mean():.0f} % of the samples; estimates mean nothing then, and copies keep what "
            "they have"
        )
    if found.at_bound:
        words.append(f"stood at a bound: {', '.join(found.at_bound)}")
    return words


def _print(found: Followed) -> None:
    from rths_nodes.mechanics.updating.step import IDENTIFIED

    console = terminal.console()
    console.print(
        f"{found.axis}: {found.model} by {found.law}, {found.time[0]:.2f} to {found.time[-1]:.2f} s, "
        f"{len(found.time)} samples, {KN * found.noise:.3g} kN rms of noise",
        markup=False,
    )
    heads = (f"{name}\n{unit}".rstrip() for name, unit in zip(found.names, found.units, strict=True))
    grid = terminal.grid("time s", numbers=heads)
    for row in np.linspace(0, len(found.time) - 1, ROWS + 1).astype(int)[1:].tolist():
        cells = zip(found.estimate[row].tolist(), found.deviation[row].tolist(), strict=True)
        grid.add_row(f"{found.time[row]:.2f}", *(f"{mean:.4g} +- {wide:.2g}" for mean, wide in cells))
    terminal.show(console, grid)
    grid = terminal.grid("parameter", numbers=("initial", "estimate", "copies would have", "uncertainty left"))
    grid.add_column("identified")
    for column, name in enumerate(found.names):
        values = (each[column] for each in (found.initial, found.estimate[-1], found.released[-1]))
        left = f"{PERCENT * found.left[column]:.2g} %"
        known = "yes" if found.identified[column] else "no"
        grid.add_row(name, *(f"{value:.4g}" for value in values), left, known)
    terminal.show(console, grid)
    for words in _told(found):
        terminal.say(words)
    terminal.say(f"identified: at most {PERCENT * IDENTIFIED:.2g} % of the first uncertainty are left")


def _data(found: Followed) -> dict[str, object]:
    names = found.names
    return {
        "axis": found.axis,
        "model": found.model,
        "law": found.law,
        "noise": found.noise,
        "uncertainty": found.uncertainty,
        "parameters": {
            name: {
                "unit": found.units[column],
                "initial": found.initial[column],
                "estimate": found.estimate[-1, column],
                "deviation": found.deviation[-1, column],
                "released": found.released[-1, column],
                "uncertainty_left": found.left[column],
                "identified": found.identified[column],
            }
            for column, name in enumerate(names)
        },
        "samples": found.counts,
        "unexplained": float(found.unexplained.mean()),
        "at_bound": list(found.at_bound),
        "time": found.time.tolist(),
        "estimates": {name: found.estimate[:, column].tolist() for column, name in enumerate(names)},
        "deviations": {name: found.deviation[:, column].tolist() for column, name in enumerate(names)},
    }
