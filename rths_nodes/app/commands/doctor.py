# SPDX-License-Identifier: Apache-2.0
"""``rths doctor``: real-time suitability of this computer."""

from __future__ import annotations

import argparse

from rths_nodes.app.commands import arguments, terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="duration of the measurement; default: %(default)g"
    )
    parser.add_argument(
        "--rate", type=float, default=1024.0, metavar="HZ", help="rate of the measured loop; default: %(default)g"
    )
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    from rths_nodes.app import doctor

    data, lines = doctor.diagnose(options.rate, options.seconds)
    if options.json:
        terminal.print_json(data)
    else:
        for line in "\n".join(lines).splitlines():
            terminal.say(line)
    return 0
