"""``rths list``: scenarios and components."""

from __future__ import annotations

import argparse

from rths_nodes.core import registry
from rths_nodes.loop.scenario import files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("family", nargs="?", choices=["scenario", *registry.FAMILIES], metavar="FAMILY")


def run(options: argparse.Namespace) -> int:
    """List the names of one family, or of all."""
    families = [options.family] if options.family else ["scenario", *registry.FAMILIES]
    for family in families:
        names = list(files.shipped()) if family == "scenario" else registry.names(family)
        if options.family:
            print(*names, sep="\n")
        else:
            print(f"{family}: {', '.join(names)}")
    return 0
