# SPDX-License-Identifier: Apache-2.0
"""``rths recover``: complete an interrupted recording, or the record of a whole test."""

from __future__ import annotations

import argparse

from rths_nodes.app.commands import arguments, terminal
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.outcomes import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_recording(parser, "folder of a recording, or of a test: runs/<test id>")
    words = (
        "make the whole recording in this directory, and leave the other as it is: for a full or read-only disk"
    )
    parser.add_argument("--out", metavar="DIR", help=words)


def run(options: argparse.Namespace) -> int:
    """Complete the recording and report it; return FAILED if the complete part is not a test."""
    from rths_nodes.recording import procedure

    if procedure.exists(options.recording):
        return _of_test(options)
    from rths_nodes.recording.bag import recover
    from rths_nodes.recording.reading import read_run

    found = recover(options.recording, options.out)
    if found.was_complete:
        print(f"{options.recording}: is complete, nothing to recover ({found.messages} messages)")
    else:
        where = f" in {options.out}" if options.out else ""
        print(f"{options.recording}: recovered {found.messages} messages{where}, {found.lost_bytes} bytes lost")
    terminal.tell(f"{options.recording}: {words}" for words in found.notes)
    try:
        terminal.tell(read_run(found.path).notes)
    except ConfigError as error:
        terminal.tell(f"cannot be read as a test: {problem}" for problem in error.problems)
        return ExitCode.FAILED
    return ExitCode.FINISHED


def _of_test(options: argparse.Namespace) -> int:
    from rths_nodes.app.procedure.recovery import recover

    if options.out:
        raise ConfigError("--out: is for a recording; the record of a test is completed where it is")
    told = recover(options.recording)
    for words in told or ["the record is complete, nothing to recover"]:
        print(f"{options.recording}: {words}")
    return ExitCode.FINISHED
