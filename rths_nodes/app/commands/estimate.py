# SPDX-License-Identifier: Apache-2.0
"""``rths estimate``: delay and amplitude of a loading system, or specimen parameters, from a recording."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from rths_nodes.analysis.units import MS, shown
from rths_nodes.app.commands import arguments, estimate_updating, terminal

if TYPE_CHECKING:
    from rths_nodes.analysis.identification.estimate import Estimate

COMPENSATORS, UPDATING = "compensators", "updating"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_recording(parser)
    parser.add_argument("--axis", metavar="NAME", help="of one axis; by default of all")
    parser.add_argument("--from", type=float, dest="start", metavar="S", help="leave out what was before, s")
    parser.add_argument("--to", type=float, dest="end", metavar="S", help="leave out what comes after, s")
    parser.add_argument(
        "--for",
        choices=(COMPENSATORS, UPDATING),
        default=COMPENSATORS,
        dest="purpose",
        help="what will use it: compensators, for which the loading system is estimated, or a copy of the "
        "specimen that is updated; default: %(default)s",
    )
    estimate_updating.add_arguments(parser)
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    if options.purpose == UPDATING:
        return estimate_updating.run(options)
    estimate_updating.refuse_idle(options, COMPENSATORS)
    from rths_nodes.analysis.identification.estimate import estimate
    from rths_nodes.recording.reading import read_run

    recording = read_run(options.recording)
    terminal.tell(recording.notes)
    found = estimate(recording, options.axis, options.start, options.end)
    if options.json:
        terminal.print_json({name: asdict(entry) for name, entry in found.items()})
    else:
        for name, entry in found.items():
            _print_estimate(name, entry)
    return 0


def _print_estimate(name: str, found: Estimate) -> None:
    console = terminal.console()
    kind = f", a sine of {found.sine:.4g} Hz" if found.sine else ""
    console.print(f"{name}: {found.start:.3f} to {found.end:.3f} s, {found.samples} samples{kind}", markup=False)
    grid = terminal.grid("", "target -> measured", "command -> measured")
    rows = [
        ("delay J1", "delay", MS, "ms"),
        ("delay FEI", "fei_delay", MS, "ms"),
        ("amplitude ratio FEI", "fei_amplitude", 1.0, ""),
        ("equivalent frequency", "fei_frequency", 1.0, "Hz"),
        ("delay of the sine", "sine_delay", MS, "ms"),
        ("amplitude ratio of the sine", "sine_amplitude", 1.0, ""),
    ]
    for title, key, factor, unit in rows[: None if found.sine else 4]:
        grid.add_row(
            title,
            *(shown(getattr(each, key), factor, unit).strip() for each in (found.tracking, found.loading)),
        )
    terminal.show(console, grid)
    for compensator, values in found.suggested.items():
        words = " ".join(f"compensator.{key}={_assigned(value)}" for key, value in values.items())
        console.print(f"suggested: compensator.type={compensator} {words}", markup=False, soft_wrap=True)
    for note in found.notes:
        console.print(f"note: {note}", markup=False)


def _assigned(value: object) -> str:
    return f"[{', '.join(f'{entry:.5g}' for entry in value)}]" if isinstance(value, list) else f"{value:.5g}"
