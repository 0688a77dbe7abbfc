# SPDX-License-Identifier: Apache-2.0
"""``rths doctor``: what this machine grants to real time."""

from __future__ import annotations

import argparse

from rths_nodes.app.commands import arguments, terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=5.0, help="of a bare paced loop; default: %(default)g")
    parser.add_argument(
        "--rate", type=float, default=1024.0, metavar="HZ", help="of that loop; default: %(default)g"
    )
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Measure, and tell for which rates the machine is good."""
    from rths_nodes.app.doctor import floor, machine, timing_forecast

    timing_forecast.check(options.rate, options.seconds)
    facts = machine.facts(floor.PRIORITY)
    paced, lateness = floor.paced(options.rate, options.seconds)
    diagnosis = timing_forecast.diagnose(facts, paced, lateness, floor.try_ping_pong(), floor.python_step())
    if options.json:
        terminal.print_json(diagnosis.data())
    else:
        for line in timing_forecast.text(diagnosis).splitlines():
            terminal.say(line)
    return 0
