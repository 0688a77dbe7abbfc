"""The recorder node: writes every message of the rig, as it came, into a recording."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

import rths_nodes
from rths_nodes import wire
from rths_nodes.params import ConfigError
from rths_nodes.ros import names
from rths_nodes.ros.names import RECORDER
from rths_nodes.ros.shell import Shell
from rths_nodes.safety import State
from rths_nodes.scenario import Scenario, dump

PROGRESS_SAMPLES = 64
LAST_WORDS_NS = 2_000_000_000
"""How long the recorder waits, after the test, for the summaries of the others."""

_HEAD = struct.Struct("<4x3I")


class Writer(Protocol):
    """What the recorder needs of a recording."""

    def write(self, topic: str, data: bytes, stamp_ns: int) -> None: ...

    def flush_if_due(self) -> None: ...

    def flush(self) -> None: ...

    def close(self, information: dict[str, str]) -> None: ...


OpenWriter = Callable[[str, list[tuple[str, names.Topic]], dict[str, str]], Writer]
"""Directory, full names with their rows, information -> a recording. Raises ConfigError."""


class RecorderNode(Shell):
    """Hosts a recording; the writer is handed in, because ``ros/`` knows no file formats."""

    role = RECORDER
    sections = ("recording",)
    closed = False

    def __init__(self, open_writer: OpenWriter, *args: Any, **kwargs: Any) -> None:
        self._open_writer = open_writer
        super().__init__(*args, **kwargs)

    def own_parameters(self) -> dict[str, tuple[Any, str]]:
        return {
            "record": ("", "directory of the recording; it must not exist"),
            "host": ("processes", "host of this run, for the record"),
        }

    def build(self, scenario: Scenario) -> None:
        if not self.value("record"):
            raise ConfigError("record: missing; the directory of the recording")
        rows = [topic for topic in names.heard_by(self.role) if topic.recorded]
        self._full = {topic.name: self.resolve_topic_name(topic.name) for topic in rows}
        self.information = {
            "scenario": dump(scenario.data()),
            "scenario_hash": self.hash,
            "run_id": self.value("run_id"),
            "host": self.value("host"),
            "pace": self.value("pace"),
            "version": rths_nodes.__version__,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        topics = [(self._full[topic.name], topic) for topic in rows]
        self.writer = self._open_writer(self.value("record"), topics, self.information)
        self._streams = [topic.name for topic in rows if topic.stream]
        self._rare = [topic.name for topic in rows if not topic.stream]
        self._next = {name: 1 if name == "command" else 0 for name in self._streams}
        self.gaps = 0
        self._told = 0
        self._heard_from: set[str] = set()
        self._ended_at = 0
        self.closed = False

    def look(self) -> None:
        """The rare topics are recorded when they are looked at."""
        before = self._next_look
        super().look()
        if self._next_look != before:
            self._record_rare()

    def heard(self, topic: str) -> list[dict[str, Any]]:
        """As in the shell, and recorded."""
        found = []
        while (data := self.inboxes[topic].take()) is not None:
            try:
                values = wire.decode(names.TOPICS[topic].message, data)
            except ValueError:
                self.malformed += 1
                continue
            self.writer.write(self._full[topic], data, values["stamp"])
            found.append(values)
        return found

    def _record_rare(self) -> None:
        for topic in self._rare:
            if topic != "test_state":
                for values in self.heard(topic):
                    if topic == "summary":
                        self._heard_from.add(values["node"])

    def work(self, limit: int = 1_000_000) -> bool:
        if self.closed:
            self.done = True
            return False
        busy = False
        for name in self._streams:
            busy |= self._drain(name, limit)
        self.writer.flush_if_due()
        sample = self._next["measurement"] - 1
        if sample - self._told >= PROGRESS_SAMPLES:
            self._told = sample
            self.tell("progress", {"node": self.role, "sample": sample})
        if not busy:
            self._finish(sample)
        return busy

    def _drain(self, name: str, limit: int) -> bool:
        take, write, full = self.inboxes[name].take, self.writer.write, self._full[name]
        expected, start = self._next[name], limit
        while limit > 0 and (data := take()) is not None:
            if len(data) < _HEAD.size:
                self.malformed += 1
                continue
            sec, nanosec, number = _HEAD.unpack_from(data)
            write(full, data, sec * 1_000_000_000 + nanosec)
            if number != expected:
                self.gaps += 1
            expected = number + 1
            limit -= 1
        self._next[name] = expected
        return limit < start

    def _finish(self, sample: int) -> None:
        if not (self.ended or self.interrupted):
            return
        self._record_rare()
        self._ended_at = self._ended_at or time.monotonic_ns()
        speakers = set(names.TOPICS["summary"].publishers) & set(self.peers)
        # a test that was stopped before it began has no samples and no summaries
        began = self.ended and (self.test["sample"] or sample >= 0)
        heard = sample >= self.test.get("sample", 0) and self._heard_from >= speakers
        complete = self.ended and (heard or not began)
        late = time.monotonic_ns() - self._ended_at > LAST_WORDS_NS
        gone = self.hurried or (self.interrupted and (self.patience_over or self.abandoned))
        if not (complete or late or gone):
            return
        self._record_rare()
        self.writer.flush()
        self.tell("progress", {"node": self.role, "sample": max(sample, 0), "done": True})
        self.done = True

    def close(self) -> None:
        """Close the recording; after the last word, because indexing takes its time."""
        if self.closed or not hasattr(self, "writer"):
            return
        self.closed = True
        state = State(self.test["state"]).name.lower() if self.ended else "failed"
        self.writer.close(
            {
                "outcome": state,
                "reason": self.test.get("reason", "") or self.problem,
                "samples": str(self._next["measurement"]),
                "gaps": str(self.gaps),
            }
        )
