"""Arguments that several sub-commands have."""

from __future__ import annotations

import argparse

from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """The scenario, what is changed in it, and which case of it."""
    parser.add_argument("scenario", help="name of a shipped scenario (rths list scenario) or path of a YAML file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="change a value; may be repeated",
    )
    parser.add_argument("--case", metavar="NAME", help="a variant that the scenario names (rths check SCENARIO)")


def scenario(options: argparse.Namespace) -> Scenario:
    """The scenario of the command line: the case first, then what ``--set`` changes. Raises ConfigError."""
    return files.load(options.scenario, options.set, options.case or "")


def add_recording(parser: argparse.ArgumentParser) -> None:
    """The folder of a recording."""
    parser.add_argument("recording")


def add_reference(parser: argparse.ArgumentParser) -> None:
    """Whether the structure is computed in one piece for a report, too."""
    words = "in the report, also the response of the whole structure computed in one piece (takes its time)"
    parser.add_argument("--reference", action="store_true", help=words)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Whether other programs read what is printed."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
