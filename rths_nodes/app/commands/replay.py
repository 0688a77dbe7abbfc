"""``rths replay``: publish a recording again."""

from __future__ import annotations

import argparse

from rths_nodes.app.commands import arguments, terminal
from rths_nodes.loop.interrupts import orderly_stop
from rths_nodes.loop.outcomes import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    arguments.add_recording(parser)
    parser.add_argument("--rate", type=float, default=1.0, help="speed; default: %(default)s")


def run(options: argparse.Namespace) -> int:
    """Publish the recording on its topics, with /clock."""
    from rths_nodes.recording import bag
    from rths_nodes.ros.hosting.replay import replay

    recording = bag.read(options.recording)
    terminal.tell(recording.notes)
    with orderly_stop() as interrupted:
        count = replay(
            {name: topic.type for name, topic in recording.topics.items()},
            {name: topic.qos for name, topic in recording.topics.items()},
            recording.messages(),
            rate=options.rate,
            interrupted=interrupted,
        )
    print(f"{count} messages published")
    return ExitCode.HELD if interrupted() else ExitCode.FINISHED
