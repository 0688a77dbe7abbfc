"""``rths report``: a recording as a page to look at."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rths_nodes.app.commands import arguments, terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    arguments.add_recording(parser)
    parser.add_argument("--out", metavar="FILE", help="default: <recording>.html in the current directory")
    arguments.add_reference(parser)


def run(options: argparse.Namespace) -> int:
    """Make the report of a recording."""
    from rths_nodes.recording.reading import read_run

    out = Path(options.out or f"{Path(options.recording).resolve().name}.html")
    terminal.check_writable(out)
    found = read_run(options.recording)
    terminal.tell(found.notes)
    with terminal.writing(out):
        write(found, out, options.reference)
    print(out)
    return 0


def write(run: Any, path: Path, reference: bool) -> None:
    """The report of a run; the libraries that draw it are loaded only now."""
    from rths_nodes.analysis.report.document import write_report

    write_report(run, path, reference)
