# SPDX-License-Identifier: Apache-2.0
"""Recording of an embedded run, with the same messages and topics as a run with nodes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from rths_nodes.core.data import flatten
from rths_nodes.core.samples import Command, Measurement, Target
from rths_nodes.core.wire import RunMark, encode, mark_of
from rths_nodes.loop.embedded import Outcome
from rths_nodes.loop.scenario.assembly import Names
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.scenario.updating import TOPIC
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording.bag import MESSAGE_RECORD


class Appender(Protocol):
    def write(self, topic: str, data: bytes, stamp_ns: int) -> None: ...

    def close(self, information: Mapping[str, str]) -> None: ...


class Volume:
    def __init__(self) -> None:
        self.bytes = 0

    def write(self, topic: str, data: bytes, stamp_ns: int) -> None:
        self.bytes += MESSAGE_RECORD.size + len(data)

    def close(self, information: Mapping[str, str]) -> None: ...


class RecordingSink:
    """Writes the messages that nodes would publish, stamped in test time, as a sink of the embedded loop."""

    def __init__(
        self, writer: Appender, scenario: Scenario, names: Names, namespace: str, information: dict[str, str]
    ) -> None:
        self._writer, self._information = writer, information
        self._scenario = scenario
        self._constants = names.test_constants(scenario)
        self._run = RunMark(mark_of(information["run_id"]))
        self._codec = names.codec(scenario, self._run)
        self._topic = f"/{namespace}/"
        self._start = time.time_ns()
        self._sample = 0
        status = {
            "node": "compensator",
            "ready": True,
            "scenario_hash": information["scenario_hash"],
            "parameters": information["scenario"],
            "state_names": names.state,
            "version": information["version"],
        }
        self._publish("node_status", "NodeStatus", status)
        if names.updating:
            node_status = {"node": "integrator", "parameters": "", "state_names": names.updating}
            self._publish("node_status", "NodeStatus", status | node_status)
        self._publish_state(State.RUNNING, "")

    def _stamp(self, sample: int) -> int:
        return self._start + round(sample * self._scenario.dt * 1e9)

    def _write(self, name: str, data: bytes, stamp: int) -> None:
        self._writer.write(self._topic + name, data, stamp)

    def _publish(self, name: str, message: str, values: dict[str, object]) -> None:
        stamp = self._stamp(self._sample)
        self._write(name, encode(message, {"stamp": stamp, "run": self._run.mark} | values), stamp)

    def _publish_state(self, state: State, reason: str) -> None:
        values = {
            "state": int(state),
            "sample": self._sample,
            "reason": reason,
            "scenario_hash": self._information["scenario_hash"],
            "run_id": self._information["run_id"],
        }
        self._publish("test_state", "TestState", self._constants | values)

    def target(self, target: Target) -> None:
        stamp = self._stamp(target.step * self._scenario.samples_per_step)
        self._write("target", self._codec.pack_target(target, stamp), stamp)

    def command(self, command: Command) -> None:
        stamp = self._stamp(command.sample)
        self._write("command", self._codec.pack_command(command, stamp), stamp)

    def measurement(self, measured: Measurement) -> None:
        self._sample = measured.sample
        stamp = self._stamp(measured.sample)
        self._write("measurement", self._codec.pack_measurement(measured, stamp), stamp)

    def truth(self, true: Measurement) -> None:
        stamp = self._stamp(true.sample)
        self._write("true_state", self._codec.pack_measurement(true, stamp), stamp)

    def state(self, sample: int, values: Sequence[float]) -> None:
        stamp = self._stamp(sample)
        self._write("compensator_state", self._codec.pack_state(values, sample, 0, stamp), stamp)

    def updating(self, sample: int, values: Sequence[float]) -> None:
        stamp = self._stamp(sample)
        self._write(TOPIC, self._codec.pack_updating(values, sample, 0, stamp), stamp)

    def close(self, outcome: Outcome) -> None:
        self._publish_state(outcome.state, outcome.reason)
        for node, section, data in (
            ("monitor", "metrics", outcome.metrics),
            ("actuator", "timing", outcome.timing),
            ("compensator", "compensator", outcome.compensator),
            ("integrator", "integrator", outcome.integrator),
        ):
            numbers = flatten(data, section)
            if not numbers and node == "integrator":
                continue  # most integrators have no results of their own
            values = {
                "node": node,
                "sample": outcome.samples,
                "names": list(numbers),
                "values": list(numbers.values()),
            }
            self._publish("summary", "Summary", values)
        self._close(outcome.state.name.lower(), outcome.reason)

    def abandon(self, reason: str) -> None:
        self._close("failed", reason)

    def _close(self, outcome: str, reason: str) -> None:
        self._writer.close({"outcome": outcome, "reason": reason, "samples": str(self._sample + 1), "gaps": "0"})
