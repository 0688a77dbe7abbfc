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
    """Make the report of a recording, or of the last rung of a test that moved."""
    from rths_nodes.recording import procedure
    from rths_nodes.recording.reading import read_run

    given = Path(options.recording)
    out = Path(options.out or f"{given.resolve().name}.html")
    terminal.check_writable(out)
    path = procedure.last_moving(given) if procedure.exists(given) else given
    found = read_run(path)
    terminal.tell(found.notes)
    with terminal.writing(out):
        write(found, out, options.reference, procedure.of_recording(path))
    print(out)
    return 0


def write(run: Any, path: Path, reference: bool, test: tuple[Any, str] | None = None) -> None:
    """The report of a run; the libraries that draw it are loaded only now.

    ``test``: record of the procedure that it was a part of, and the folder of its recording there.
    """
    from rths_nodes.analysis.report.document import OfProcedure, write_report

    write_report(run, path, reference, None if test is None else OfProcedure(*test))
