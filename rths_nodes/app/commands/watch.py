# SPDX-License-Identifier: Apache-2.0
"""``rths watch``: a watcher with its own sensors that pulses to an interlock while all agrees."""

from __future__ import annotations

import argparse
import os
from datetime import UTC, datetime
from pathlib import Path

from rths_nodes.app.commands import completion
from rths_nodes.core.errors import ConfigError
from rths_nodes.laboratory.ports.own_sensors import OwnSensors
from rths_nodes.loop.interrupts import orderly_stop
from rths_nodes.loop.options import NAMESPACE
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.realtime import ABOVE, real_time
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.titles import rig_kind
from rths_nodes.ros import environment

RECORDS = "runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    completion.offer(
        parser.add_argument("rig", help="rig file with a section watch, or the name of a shipped one"),
        completion.rigs,
    )
    parser.add_argument("--namespace", default=NAMESPACE, help="that of rths test --socket; default: %(default)s")
    parser.add_argument(
        "--record", metavar="FILE", help=f"JSON lines, appended to; default: {RECORDS}/watch_<date>.jsonl"
    )


def run(options: argparse.Namespace) -> int:
    """Watch until a disagreement (exit code 3), or Ctrl-C."""
    rig = files.load_rig(options.rig)
    if rig.watch is None:
        raise ConfigError(f"{options.rig}: watch: missing: what a watcher sees and expects has no defaults")
    environment.check()
    from rths_nodes.app.watching.loop import WatchLoop, WatchRecord
    from rths_nodes.ros.hosting.onlooker import WatchEar

    section = rig.watch
    path = Path(options.record or f"{RECORDS}/watch_{datetime.now(UTC):%Y%m%d_%H%M%S}.jsonl")
    record = WatchRecord(path, f"{rig.name} ({rig_kind(rig)})")
    channels = [(axis.displacement, axis.force) for axis in section.axes.values()]
    sensors = OwnSensors(section.sensors.address, section.sensors.port, channels)
    ear = WatchEar(options.namespace, f"watch_{os.getpid()}")
    try:
        loop = WatchLoop(rig, sensors, ear.heard, record.tell)
        where = f"{section.pulse.address}:{section.pulse.port}"
        waits = f"waits for its own sensors; pulses go to {where}, the record is {path}"
        record.tell("waits", waits, rig_kind=rig_kind(rig))
        with orderly_stop() as interrupted:
            ear.start()
            with real_time(True, ABOVE) as refused:
                for words in refused:
                    record.tell("note", words)
                reason = loop.run(interrupted)
        counts = {"pulses": loop.pulses.count, "tolerance_used": round(loop.watch.used, 3), **sensors.counts}
        words = f"THE PULSE HAS ENDED: {reason or 'at the wish of a person'}"
        record.tell("ended", words, **counts)
    finally:
        ear.close()
        sensors.close()
        record.close()
    return ExitCode.TRIPPED if reason else ExitCode.FINISHED
