# SPDX-License-Identifier: Apache-2.0
"""``rths import``: convert the record of a test made elsewhere into a recording."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from rths_nodes.app.commands import arguments
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.options import COMMAND, LOCKSTEP
from rths_nodes.loop.options import options as run_options
from rths_nodes.loop.outcomes import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="histories: .mat, HDF5, or text in columns (.csv, .txt, .dat, .tsv)")
    parser.add_argument("columns", help="YAML file that says which column is what, in which unit (doc/import.md)")
    parser.add_argument("--record", metavar="DIR", required=True, help="the recording, in a new directory")
    parser.add_argument("--scenario", help="of ours, of which it is a test: a file, or the name of a shipped one")
    for name in ("--rig", "--set", "--case"):
        arguments.add_option(parser, run_options(COMMAND)[name])


def run(options: argparse.Namespace) -> int:
    from rths_nodes.app.hosts import open_writer, recorded_topics
    from rths_nodes.loop.embedded import Outcome
    from rths_nodes.loop.provenance import hashes, information
    from rths_nodes.loop.stages.monitor import MonitorStage
    from rths_nodes.loop.supervision.states import State
    from rths_nodes.recording import bag, elsewhere
    from rths_nodes.recording.run import ELSEWHERE
    from rths_nodes.recording.sink import RecordingSink

    if not options.scenario and (options.rig or options.set or options.case):
        raise ConfigError("--rig, --set and --case: go with --scenario only")
    bag.check_free(Path(options.record))
    scenario = arguments.scenario(options) if options.scenario else None
    test = elsewhere.read(Path(options.file), Path(options.columns), scenario)
    own = test.scenario
    about = information(own, own.run_id(), ELSEWHERE, LOCKSTEP)
    about |= {"source": f"{Path(options.file).name}, sha256 {hashes([options.file])[options.file]}"}
    writer = open_writer(options.record, recorded_topics("rths", own), about)
    recording = RecordingSink(writer, own, test.names, "rths", about)
    monitor = MonitorStage(own, len(test.dof_names), math.nan)
    try:
        test.send(recording, monitor)
    except BaseException:
        recording.abandon("the import was broken off")
        raise
    samples = len(test.target) - 1
    recording.close(Outcome(State.FINISHED, "", samples, monitor.metrics(), {}, {}))
    axes = ", ".join(own.moved_axes)
    print(f"{options.record}: {axes}, {samples} samples at {own.servo_rate:g} Hz, {own.duration:g} s")
    return ExitCode.FINISHED
