"""``rths recover``: complete the recording of a recorder that was killed."""

from __future__ import annotations

import argparse

from rths_nodes.app.commands import arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    arguments.add_recording(parser)


def run(options: argparse.Namespace) -> int:
    """Complete the recording, and tell what was found."""
    from rths_nodes.recording.bag import recover

    found = recover(options.recording)
    if found.was_complete:
        print(f"{options.recording}: is complete, nothing to recover ({found.messages} messages)")
    else:
        print(f"{options.recording}: recovered {found.messages} messages, {found.lost_bytes} bytes lost")
    return 0
