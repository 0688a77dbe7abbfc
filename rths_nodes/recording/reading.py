"""A recording -> a Run, without ROS, and without the components that took part.

The layout of the messages comes from the definitions in the file, the names of degrees of freedom and of the
compensator's inner numbers from TestState and NodeStatus.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.flat_names import unflatten
from rths_nodes.core.samples import Array
from rths_nodes.core.wire.columns import Columns, columns
from rths_nodes.core.wire.plain import decode
from rths_nodes.loop.timing import gathered
from rths_nodes.recording import bag
from rths_nodes.recording.run import Run, assembled, widths
from rths_nodes.recording.scenario_text import recorded_scenario

BATCH = 4096
"""Messages of a stream that are unpacked together."""


def read_run(path: str | os.PathLike[str]) -> Run:
    """The Run of the recording at ``path``. Raises ConfigError when it is none of ours."""
    recording = bag.read(os.fspath(path))
    if "scenario" not in recording.information:
        raise ConfigError(f"{path}: not a recording of a hybrid simulation (there is no scenario in it)")
    scenario = recorded_scenario(recording.information["scenario"], f"{path}: scenario")
    contents = _Contents(recording)
    try:
        for topic, data, _ in recording.messages():
            contents.add(topic, data)
        rows, words = contents.rows(len(scenario.axes)), contents.words()
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    return assembled(scenario, rows, information=dict(recording.information), **words)


class _Contents:
    """What is taken out of the messages of a recording; topics go by the last part of their names."""

    def __init__(self, recording: bag.Bag) -> None:
        self._definitions = recording.definitions
        self._waiting: dict[str, list[bytes]] = {
            topic: [] for topic in recording.topics if _last(topic) in STREAMS
        }
        self._batches: dict[str, list[Columns]] = {name: [] for name in STREAMS}
        self._test: dict[str, Any] = {}
        self._state_names: tuple[str, ...] = ()
        self._numbers: dict[str, float] = {}

    def add(self, topic: str, data: bytes) -> None:
        """Take in a message. Raises ValueError where it is not what its definition says."""
        if (waiting := self._waiting.get(topic)) is not None:
            waiting.append(data)
            if len(waiting) == BATCH:
                self._unpack(topic)
            return
        match _last(topic):
            case "test_state":
                self._test = self._test or decode("TestState", data, self._definitions[topic])
            case "node_status":
                status = decode("NodeStatus", data, self._definitions[topic])
                if status["node"] == "compensator":
                    self._state_names = tuple(status["state_names"]) or self._state_names
            case "summary":
                summary = decode("Summary", data, self._definitions[topic])
                self._numbers.update(zip(summary["names"], summary["values"], strict=True))

    def _unpack(self, topic: str) -> None:
        waiting = self._waiting[topic]
        if waiting:
            try:
                self._batches[_last(topic)].append(columns(self._definitions[topic], waiting))
            except ValueError as error:
                raise ValueError(f"{topic}: {error}") from error
            waiting.clear()

    def rows(self, n_axes: int) -> dict[str, dict[str, Array]]:
        """The fields of each stream that a Run has, one row for each sample or step; nan where none came."""
        for topic in self._waiting:
            self._unpack(topic)
        samples, steps = self._count("measurement"), self._count("target")
        n_dof, n_state = self._length("target", "displacement"), self._length("compensator_state", "values")
        return {
            stream: {
                name: self._table(stream, name, (steps if stream == "target" else samples, width))
                for name, width in fields.items()
            }
            for stream, fields in widths(n_axes, n_dof, n_state).items()
        }

    def _count(self, stream: str) -> int:
        return 1 + max((int(batch[STREAMS[stream]].max()) for batch in self._batches[stream]), default=-1)

    def _length(self, stream: str, name: str) -> int:
        """Entries of the array ``name``; of the names where no message came."""
        known = self._test.get("degree_of_freedom_names", ()) if stream == "target" else self._state_names
        return next((batch[name].shape[1] for batch in self._batches[stream] if name in batch), len(known))

    def _table(self, stream: str, name: str, shape: tuple[int, int]) -> Array:
        table = np.full(shape, np.nan)
        for batch in self._batches[stream]:
            if name not in batch:
                continue
            numbers, values = batch[STREAMS[stream]], batch[name].reshape(len(batch[name]), -1)
            if values.shape[1] != shape[1]:
                raise ValueError(f"{stream}.{name}: {values.shape[1]} entries, expected {shape[1]}")
            inside = numbers < shape[0]
            table[numbers[inside]] = values[inside]
        return table

    def words(self) -> dict[str, Any]:
        """The fields of a Run that are no histories, but for the information."""
        dofs = tuple(self._test.get("degree_of_freedom_names", ()))
        return {
            "dof_names": _named(dofs, self._length("target", "displacement")),
            "compensator_names": _named(self._state_names, self._length("compensator_state", "values")),
            "metrics": unflatten(self._numbers, "metrics"),
            "timing": gathered(self._numbers),
        }


STREAMS = {
    "measurement": "sample",
    "true_state": "sample",
    "command": "sample",
    "compensator_state": "sample",
    "target": "step",
}
"""Topics of the histories, and the field that numbers their messages."""


def _last(topic: str) -> str:
    return topic.rpartition("/")[2]


def _named(names: tuple[str, ...], count: int) -> tuple[str, ...]:
    """``names``; numbers where they were not recorded."""
    return names if len(names) == count else tuple(str(number + 1) for number in range(count))
