# SPDX-License-Identifier: Apache-2.0
"""``rths test-node``: replay a recording to one node and compare its messages with the recording, bit for bit."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rths_nodes.app import hosts
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import (
    FLAG_BRIDGED,
    FLAG_FROZEN,
    FLAG_SLOWED,
    FLAG_TRIPPED,
    Measurement,
    Target,
)
from rths_nodes.loop.interrupts import orderly_stop
from rths_nodes.loop.options import COMPOSED, NAMESPACE, STAGES
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.recorded import RecordedPort
from rths_nodes.recording.reading import Columns, read_run, streams_of

T = TypeVar("T", Measurement, Target)

COMPENSATOR, INTEGRATOR = "compensator", "integrator"
STREAMS = {COMPENSATOR: "command", INTEGRATOR: "target"}
NUMBERS = {"command": "sample", "target": "step"}
UNREPEATABLE = FLAG_BRIDGED | FLAG_SLOWED | FLAG_FROZEN
"""Flags of samples that depend on timing or on the operator."""
UNCOMPARED = ("run", "sec", "nanosec", "encapsulation")
"""Message fields that differ between two runs of the same test."""


def test_node_arguments(add: arguments.Arguments) -> None:
    add("node NODE", f"node to test: one of {', '.join(STREAMS)}", choices=STREAMS)
    add.recording()
    add("--record DIR", "folder for the recording of this run; default: the recording is deleted")
    add("--namespace NAME", "namespace of the node", NAMESPACE)
    add.json()


def test_node_command(options: arguments.Options) -> int:
    stream = STREAMS[options.node]
    recorded = streams_of(options.recording, ("measurement", "target", "command"))
    if missing := [name for name, columns in recorded.items() if not columns]:
        raise ConfigError(f"{options.recording}: has no messages of {', '.join(missing)}")
    scenario = read_run(options.recording).scenario
    samples = _usable(recorded["measurement"])
    measurements = _built(Measurement, recorded["measurement"], samples)
    targets = _built(Target, recorded["target"], len(recorded["target"]["step"]))
    port = RecordedPort(Assembly(scenario).port, measurements, () if options.node == INTEGRATOR else targets)
    ends_early = samples <= scenario.samples
    with tempfile.TemporaryDirectory(prefix="rths_") as folder, orderly_stop() as interrupted:
        directory = Path(options.record or folder) / ("" if options.record else "run")

        def stopped() -> bool:
            return interrupted() or (ends_early and port.exhausted)

        result = hosts.run(
            scenario,
            host=COMPOSED,
            engine=STAGES,
            record=directory,
            namespace=options.namespace,
            port=port,
            interrupted=stopped,
        )
        published = streams_of(directory, (stream,))[stream]
    first = 1 if stream == "command" else 0
    count = (samples - 1) // scenario.samples_per_step + 1 if stream == "target" else samples - first
    report = compared(recorded[stream], published, count, NUMBERS[stream])
    report |= {"node": options.node, "outcome": result.outcome, "reason": result.reason}
    terminal.output(options.json, report, _print, report, stream)
    return ExitCode.FINISHED if report["equal"] == report["compared"] == count else ExitCode.TRIPPED


def _usable(measured: Columns) -> int:
    flags = measured["flags"]
    tripped = np.flatnonzero(flags & FLAG_TRIPPED)
    samples = int(tripped[0]) if len(tripped) else len(flags)
    if unrepeatable := int(np.count_nonzero(flags[:samples] & UNREPEATABLE)):
        raise ConfigError(
            f"{unrepeatable} of {samples} samples are bridged, slowed or frozen. Their Commands depend on timing; "
            "use a recording without such samples"
        )
    if samples < 2:
        raise ConfigError(f"{samples} samples before the safe stop: must be >= 2")
    return samples


def _built(cls: type[T], columns: Columns, count: int) -> list[T]:
    kinds = {field.name: field.type for field in fields(cls)}
    rows: dict[str, Any] = {
        name: _rows(values, str(kinds[name])) for name, values in columns.items() if name in kinds
    }
    return [cls(**{name: values[row] for name, values in rows.items()}) for row in range(count)]


def _rows(values: NDArray[np.generic], kind: str) -> Sequence[object]:
    if kind == "Array":
        return list(values.astype(float))
    return [row.tobytes() for row in values] if kind == "bytes" else values.tolist()


def compared(recorded: Columns, published: Columns, count: int, number: str) -> Data:
    compared = min(count, len(published.get(number, ())), len(recorded[number]))
    names = [name for name in recorded if name not in UNCOMPARED and name in published]
    unequal = {name: _unequal(recorded[name][:compared], published[name][:compared]) for name in names}
    bad = np.logical_or.reduce([*unequal.values(), np.zeros(compared, bool)])
    report: Data = {"messages": count, "compared": compared, "equal": int(np.count_nonzero(~bad))}
    if bad.any():
        row = int(np.argmax(bad))
        name = next(name for name in names if unequal[name][row])
        report["first_difference"] = {
            number: int(recorded[number][row]),
            "field": name,
            "recorded": recorded[name][row].tolist(),
            "published": published[name][row].tolist(),
        }
    return report


def _unequal(one: NDArray[np.generic], other: NDArray[np.generic]) -> NDArray[np.bool_]:
    if one.shape != other.shape or one.dtype != other.dtype:
        return np.ones(len(one), bool)
    rows = one.reshape(len(one), -1), other.reshape(len(other), -1)
    return np.array([first.tobytes() != second.tobytes() for first, second in zip(*rows, strict=True)], bool)


def _print(report: Data, stream: str) -> None:
    counts = f"{report['equal']} of {report['messages']} messages of {stream}"
    terminal.say(f"{report['node']}: {counts} are equal to the recording, bit for bit")
    if difference := report.get("first_difference"):
        number = NUMBERS[stream]
        terminal.say(
            f"  first difference: {difference['field']} of {number} {difference[number]} was recorded as "
            f"{difference['recorded']}, but published as {difference['published']}"
        )
    if report["compared"] < report["messages"]:
        ending = f"{report['outcome']}{': ' if report['reason'] else ''}{report['reason']}"
        terminal.say(f"  only {report['compared']} messages were published ({ending})")
