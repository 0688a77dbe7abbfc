# SPDX-License-Identifier: Apache-2.0
"""``rths corridor``: predict the bands in which a test is expected to stay, from runs on plants that differ."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from rths_nodes.app.commands import arguments, terminal
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.supervision.corridor import QUANTITIES, Corridor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_scenario(parser)
    parser.add_argument("--out", metavar="FILE", required=True, help="file to write (.npz)")
    arguments.add_counts(parser, plants=(20, "plants drawn from the scenario's scatter, beside its own"))
    parser.add_argument("--seed", type=int, default=1, help="of the plants; default: %(default)s")
    parser.add_argument(
        "--margin",
        type=float,
        default=0.05,
        metavar="SHARE",
        help="of the range of each quantity, by which its band is wider on both sides; default: %(default)s",
    )
    arguments.add_where(parser)
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the test on every plant, and write the envelope; the exit code of a test that does not finish."""
    from rths_nodes.app.studies import corridor
    from rths_nodes.app.studies.identification import Stopped

    arguments.check_least(options, plants=1, seed=0, margin=0.0)
    scenario, out, where = arguments.scenario(options), Path(options.out), arguments.where(options)
    if out.suffix != ".npz":
        raise ConfigError(f"--out {out}: must end in .npz")
    terminal.check_writable(out)
    where = arguments.tell_engine(where, options.plants * scenario.samples, [scenario])
    try:
        with terminal.progress(scenario.name) as progress:
            found = corridor.predicted(
                scenario,
                options.plants,
                options.seed,
                options.margin,
                where,
                lambda shares: progress(sum(shares), len(shares)),
            )
    except Stopped as stop:
        print(stop)
        return stop.exit_code
    with terminal.writing(out, "" if options.json else "corridor"):
        found.save(out)
    if options.json:
        terminal.print_json({"scenario": scenario.name, "corridor": str(out), "widest": _widest(found)})
        return 0
    for axis, widths in _widest(found).items():
        words = ", ".join(f"{name} {widths[name]:.4g} {unit}" for name, unit in QUANTITIES)
        print(f"{axis}: widest {words}")
    print(f"use it: --set monitor.corridor={out}")
    return 0


def _widest(found: Corridor) -> dict[str, dict[str, float]]:
    widths = np.nanmax(found.upper - found.lower, axis=1)
    names = [name for name, _ in QUANTITIES]
    return {axis: dict(zip(names, widths[:, n].tolist(), strict=True)) for n, axis in enumerate(found.axes)}
