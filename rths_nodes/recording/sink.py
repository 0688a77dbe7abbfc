# SPDX-License-Identifier: Apache-2.0
"""Recording of an embedded run, with the same messages and topics as a run with nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rths_nodes.core.data import flatten
from rths_nodes.core.samples import Command, Measurement, Target
from rths_nodes.core.wire import RunMark, encode, mark_of
from rths_nodes.loop.embedded import Outcome
from rths_nodes.loop.scenario.assembly import Names
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.scenario.updating import TOPIC
from rths_nodes.loop.supervision.states import State


class RecordingSink:
    """Sink of the embedded loop that writes the messages that nodes would publish, stamped in test time.

    ``write`` and ``finish`` are the methods ``write`` and ``close`` of a ``Writer`` (``recording/bag.py``). If
    another engine repeats the test, the caller must update ``engine`` and ``library`` in ``information``.
    """

    def __init__(
        self,
        write: Callable[[str, bytes, int], None],
        finish: Callable[[dict[str, str]], None],
        scenario: Scenario,
        names: Names,
        namespace: str,
        information: dict[str, str],
    ) -> None:
        self._write_message, self._finish, self._information = write, finish, information
        self._computed_by = [name for name in ("engine", "library") if name in information]
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

    def _write(self, name: str, sample: int, pack: Callable[..., bytes], *values: object) -> None:
        """Write the message ``pack(*values, stamp)``, where ``stamp`` (ns) is the time of ``sample``."""
        stamp = self._start + round(sample * self._scenario.dt * 1e9)
        self._write_message(self._topic + name, pack(*values, stamp), stamp)

    def _publish(self, name: str, message: str, values: dict[str, object]) -> None:
        def pack(stamp: int) -> bytes:
            return encode(message, {"stamp": stamp, "run": self._run.mark} | values)

        self._write(name, self._sample, pack)

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
        sample = target.step * self._scenario.samples_per_step
        self._write("target", sample, self._codec.pack_target, target)

    def command(self, command: Command) -> None:
        self._write("command", command.sample, self._codec.pack_command, command)

    def measurement(self, measured: Measurement) -> None:
        self._sample = measured.sample
        self._write("measurement", measured.sample, self._codec.pack_measurement, measured)

    def truth(self, true: Measurement) -> None:
        self._write("true_state", true.sample, self._codec.pack_measurement, true)

    def state(self, sample: int, values: Sequence[float]) -> None:
        self._write("compensator_state", sample, self._codec.pack_state, values, sample, 0)

    def updating(self, sample: int, values: Sequence[float]) -> None:
        self._write(TOPIC, sample, self._codec.pack_updating, values, sample, 0)

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
        ending = {"outcome": outcome, "reason": reason, "samples": str(self._sample + 1), "gaps": "0"}
        self._finish(ending | {name: self._information.get(name, "") for name in self._computed_by})
