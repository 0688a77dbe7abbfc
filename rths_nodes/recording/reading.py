# SPDX-License-Identifier: Apache-2.0
"""Conversion of a recording to a Run, without ROS and without building the components of the test.

Message layouts follow from the message definitions in the recording.
"""

from __future__ import annotations

import math
import os
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core import registry
from rths_nodes.core.data import Data, unflatten
from rths_nodes.core.errors import ConfigError, counted, within
from rths_nodes.core.inputs import replace_files
from rths_nodes.core.parameters import declared, recorded
from rths_nodes.core.resources import PACKAGE
from rths_nodes.core.samples import Array
from rths_nodes.core.validation import from_data
from rths_nodes.core.wire import CODES, ENCAPSULATION, HEADER, TIME, TRAILING, decode, fields_of
from rths_nodes.core.yaml_text import parse
from rths_nodes.loop.scenario.rig_file import REMOVED
from rths_nodes.loop.scenario.schema import Axis, Scenario
from rths_nodes.loop.scenario.updating import TOPIC
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.timing import gathered
from rths_nodes.recording import bag
from rths_nodes.recording.run import ELSEWHERE, Run, assembled, widths

Columns = dict[str, NDArray[Any]]

_LENGTHS, _TRIED = 4, 8
"""Limits of the search for a layout: number of message lengths, and number of messages tried per length."""

BATCH = 4096
SPARSE, SILENT = 10, 100_000
"""A history has at most ``SPARSE`` rows per message, plus ``SILENT``. Messages with higher numbers are skipped."""


def read_run(path: str | os.PathLike[str]) -> Run:
    """Read the recording at ``path``, even if it is unfinished. ``notes`` of the Run report skipped messages.

    Raises ConfigError if the recording is unreadable or contains no test.
    """
    recording = bag.read(os.fspath(path))
    if "scenario" not in recording.information:
        raise ConfigError(f"{path}: {_why_no_test(recording)}")
    origin = Path(path).absolute()
    folders = [origin, *origin.parents[:2]]  # ``path`` can be the file or the folder of the recording
    scenario = recorded_scenario(recording.information["scenario"], f"{path}: scenario", folders)
    try:
        contents = _Contents(recording)
        rows = contents.rows(len(scenario.axes), bool(scenario.force_axes))
        if recording.information.get("outcome") == "finished" and not len(rows["measurement"]["flags"]):
            raise ValueError(
                "the test has finished, but the recording has no messages on .../measurement. Check whether this "
                "topic was remapped"
            )
        fields = contents.fields() | contents.updating(scenario.dt)
    except (ValueError, bag.RecordingError) as error:
        raise ConfigError(f"{path}: {error}") from error
    run = assembled(scenario, rows, information=dict(recording.information), **fields)
    steps = scenario.steps + 1 if run.outcome == "finished" else len(run.step_time)
    lost = (*contents.notes(steps), run.incomplete)
    run.notes = recording.notes + tuple(f"{path}: {note}" for note in lost if note)
    return run


def streams_of(path: str | os.PathLike[str], names: Sequence[str]) -> dict[str, Columns]:
    """Return the columns of the streams ``names``, by stream and field, sorted by message number.

    Raises ConfigError if a stream is damaged or incomplete, and RecordingError if an indexed file is damaged.
    """
    recording = bag.read(os.fspath(path))
    try:
        contents = _Contents(recording)
        streams = {name: contents.columns(name) for name in names}
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    for name, columns in streams.items():
        numbers = columns.get(STREAMS[name], np.zeros(0, np.uint32))
        order = np.argsort(numbers, kind="stable")
        first = 1 if name == "command" else 0
        if not np.array_equal(numbers[order], np.arange(first, first + len(numbers))):
            raise ConfigError(f"{path}: some of the {len(numbers)} messages of {name} are missing or repeated")
        streams[name] = {field: values[order] for field, values in columns.items()}
    return streams


def _why_no_test(recording: bag.Bag) -> str:
    if any(topic.of_test for topic in recording.topics.values()):
        return (
            f"the recording has messages of {PACKAGE}, but no metadata records (scenario, run id). "
            "`ros2 bag` writes none, and a converter may have dropped them: use the original recording, "
            "or convert it with its metadata"
        )
    return "is not a recording of a hybrid simulation (the file contains no scenario)"


class _Contents:
    """Histories, names and results from the messages of a recording. Raises ValueError for unreadable messages."""

    def __init__(self, recording: bag.Bag) -> None:
        self._definitions = recording.definitions
        self._waiting: dict[str, list[bytes]] = {
            topic: [] for topic, row in recording.topics.items() if row.of_test and _last(topic) in STREAMS
        }
        self._topics = recording.topics
        self._layouts: dict[str, StreamLayout] = {}
        self._batches: dict[str, list[Columns]] = {name: [] for name in STREAMS}
        self._dof_names: tuple[str, ...] = ()
        self._state_names: tuple[str, ...] = ()
        self._updating_names: tuple[str, ...] = ()
        self._numbers: dict[str, float] = {}
        self._run_ids: set[str] = set()
        self._damaged: Counter[str] = Counter()
        self._far: dict[str, tuple[int, int]] = {}
        for topic, data, _ in recording.messages():
            self._add(topic, data)
        for topic in self._waiting:
            self._unpack(topic)
        stated = recording.information.get("run_id")
        if stated and (foreign := self._run_ids - {stated}):
            raise ValueError(
                f"has messages of the run {', '.join(sorted(foreign))}, but the metadata of the run {stated}. Use "
                "the recordings from which this file was merged"
            )

    def _add(self, topic: str, data: bytes) -> None:
        if (waiting := self._waiting.get(topic)) is not None:
            waiting.append(data)
            if len(waiting) == BATCH:
                self._unpack(topic)
            return
        try:
            self._add_text_message(topic, data)
        except (ValueError, KeyError, TypeError):  # a field is missing or has the wrong type
            self._damaged[topic] += 1

    def _add_text_message(self, topic: str, data: bytes) -> None:
        if not self._topics[topic].of_test:
            return
        match _last(topic):
            case "test_state":
                state = decode("TestState", data, self._definitions[topic])
                self._dof_names = self._dof_names or tuple(state.get("degree_of_freedom_names", ()))
                if state["state"] != State.IDLE and state["run_id"]:  # idle: possibly refused in another run
                    self._run_ids.add(state["run_id"])
            case "node_status":
                status = decode("NodeStatus", data, self._definitions[topic])
                if status["node"] == "compensator":
                    self._state_names = tuple(status["state_names"]) or self._state_names
                if status["node"] == "integrator":
                    self._updating_names = tuple(status["state_names"]) or self._updating_names
            case "summary":
                summary = decode("Summary", data, self._definitions[topic])
                self._numbers.update(zip(summary["names"], summary["values"], strict=True))

    def _unpack(self, topic: str) -> None:
        waiting, number = self._waiting[topic], STREAMS[_last(topic)]
        if not waiting:
            return
        try:
            if topic not in self._layouts:
                self._layouts[topic] = layout_of(self._definitions[topic], waiting)
                if len({layout.texts.get("run", b"") for layout in self._layouts.values()}) > 1:
                    raise ValueError("the messages belong to a different run than the messages of other topics")
            batch = self._layouts[topic].columns(waiting)
            if number not in batch or batch[number].dtype.kind != "u":
                raise ValueError(f"the messages differ from their definition ({number} is missing)")
        except ValueError as error:
            raise ValueError(f"{topic}: {error}") from error
        self._damaged[topic] += len(waiting) - len(batch[number])
        if len(batch[number]):
            self._batches[_last(topic)].append(batch)
        waiting.clear()

    def columns(self, stream: str) -> Columns:
        batches = self._batches[stream]
        return {name: np.concatenate([batch[name] for batch in batches]) for name in (batches or [{}])[0]}

    def rows(self, n_axes: int, modes: bool) -> dict[str, dict[str, Array]]:
        counts = {stream: self._count(stream) for stream in STREAMS if stream != TOPIC}
        samples, steps = counts["measurement"], counts["target"]
        n_dof, n_state = self._length("target", "displacement"), self._length("compensator_state", "values")
        return {
            stream: {
                name: self._table(stream, name, (steps if stream == "target" else samples, width))
                for name, width in fields.items()
            }
            for stream, fields in widths(n_axes, n_dof, n_state, modes).items()
        }

    def _count(self, stream: str) -> int:
        batches = self._batches[stream]
        if not batches:
            return 0
        numbers = np.unique(np.concatenate([batch[STREAMS[stream]] for batch in batches])).astype(np.int64)
        within = np.flatnonzero(numbers < SPARSE * np.arange(1, len(numbers) + 1) + SILENT)
        count = int(numbers[within[-1]]) + 1 if len(within) else 0
        if beyond := int((numbers >= count).sum()):
            self._far[stream] = beyond, count - 1
        return count

    def notes(self, steps: int) -> list[str]:
        notes = [
            f"omitted {counted(count, 'damaged message')} of {topic}" for topic, count in (+self._damaged).items()
        ]
        for stream in ("target", "true_state", "compensator_state", TOPIC):  # the Run reports missing samples
            received = sum(len(batch[STREAMS[stream]]) for batch in self._batches[stream])
            least = steps if stream == "target" else 0
            if stream == "target" and self._batches["measurement"] and not received:
                notes.append("there are no messages of target, so the response of the structure is missing")
            elif received < (sent := max(least, self._numbers.get(f"sent.{stream}", 0.0))) < math.inf:
                notes.append(f"{sent - received:.0f} of {sent:.0f} messages of {stream} are missing")
        for stream, (count, last) in self._far.items():
            notes.append(
                f"omitted {counted(count, 'message')} of {stream} with a number far above {last}, the last "
                "valid number"
            )
        return notes

    def _length(self, stream: str, name: str) -> int:
        names = self._dof_names if stream == "target" else self._state_names
        return next((batch[name].shape[1] for batch in self._batches[stream] if name in batch), len(names))

    def _table(self, stream: str, name: str, shape: tuple[int, int]) -> Array:
        table = np.full(shape, np.nan)
        for batch in self._batches[stream]:
            if name not in batch:
                continue
            numbers, values = batch[STREAMS[stream]], batch[name].reshape(len(batch[name]), -1)
            if values.shape[1] != shape[1]:
                raise ValueError(f"{stream}.{name}: has {values.shape[1]} entries, expected {shape[1]}")
            inside = numbers < shape[0]
            table[numbers[inside]] = values[inside]
        return table

    def fields(self) -> Data:
        return {
            "dof_names": _named(self._dof_names, self._length("target", "displacement")),
            "compensator_names": _named(self._state_names, self._length("compensator_state", "values")),
            "metrics": self._metrics(),
            "timing": self._timing(),
            "integrator": unflatten(self._numbers, "integrator"),
        }

    def updating(self, dt: float) -> Data:
        columns = self.columns(TOPIC)
        if not columns:
            return {}
        samples, rows = np.unique(columns[STREAMS[TOPIC]].astype(np.int64), return_index=True)
        values = columns["values"].reshape(len(columns["values"]), -1)[rows]
        names = _named(self._updating_names, values.shape[1])
        return {"updating_names": names, "updating_time": samples * dt, "updating": values}

    def _metrics(self) -> dict[str, object]:
        metrics = unflatten(self._numbers, "metrics")
        axes = metrics.get("axes", {})
        if not (isinstance(axes, dict) and all(isinstance(row, dict) for row in axes.values())):
            self._damaged["metrics"] += 1
            return {}
        return metrics

    def _timing(self) -> dict[str, object]:
        try:
            return gathered(self._numbers)
        except (AttributeError, TypeError, KeyError):  # the names are damaged
            self._damaged["timing"] += 1
            return {}


STREAMS = {
    "measurement": "sample",
    "true_state": "sample",
    "command": "sample",
    "compensator_state": "sample",
    "target": "step",
    TOPIC: "sample",
}
"""Topics of the histories, each with the field that contains the message number."""


def _last(topic: str) -> str:
    return topic.rpartition("/")[2]


def _named(names: tuple[str, ...], count: int) -> tuple[str, ...]:
    return names if len(names) == count else tuple(str(number + 1) for number in range(count))


def recorded_scenario(text: str, origin: str, folders: Sequence[Path] = ()) -> Scenario:
    """Return the checked scenario of a recording.

    Copies of input files below ``folders`` replace the original files. Components and parameters that are not
    installed here are kept as recorded, but building them raises an error with the reason. Raises ConfigError,
    with ``origin`` at the beginning of the message, if the scenario is invalid.
    """
    data = parse(text, origin)
    if not isinstance(data, dict):
        raise ConfigError(f"{origin}: must be a non-empty mapping of sections")
    replace_files(Scenario, data, lambda named: named.beside(folders))
    if isinstance(head := data.get("rig_file"), Mapping):
        data = {**data, "rig_file": {key: entry for key, entry in head.items() if key not in REMOVED}}
    data = _kept(Scenario, data, "")
    if isinstance(data.get("axes"), Mapping):
        data["axes"] = {
            name: _kept(Axis, axis, f"axes.{name}.") if isinstance(axis, Mapping) else axis
            for name, axis in data["axes"].items()
        }
    with within(origin):
        return from_data(Scenario, data)


def _kept(cls: type, data: Mapping[str, object], path: str) -> Data:
    families = {name: spec.family for name, spec in declared(cls).items()}
    return {
        name: _component(families[name], entry, path + name)
        if families.get(name) and isinstance(entry, Mapping) and isinstance(entry.get("type"), str)
        else entry
        for name, entry in data.items()
    }


def _component(family: str, data: Mapping[str, Any], path: str) -> object:
    values = {key: entry for key, entry in data.items() if key != "type"}
    kind = data["type"]
    try:
        return from_data(registry.load(family, kind, f"{path}.type").Params, values, path)
    except ConfigError as error:
        reason = "; ".join(error.problems)
        if kind == ELSEWHERE:
            reason = "the recording was imported without a scenario; repeat rths import with --scenario"
        elif kind not in registry.names(family):
            reason = f"the {family.replace('_', ' ')} {kind!r} is not installed here"
        return recorded(family, kind, values, reason)


class StreamLayout:
    """Unpacks messages whose layout follows from the definition ``text`` and the array lengths in ``message``.

    All messages of a stream must have equal strings, which ``texts`` contains. Raises ValueError if the message
    contradicts the definition, or if a field is not a header, a time, a string, a number or an array of numbers.
    """

    def __init__(self, text: str, message: bytes) -> None:
        self._fields: list[tuple[str, str, int]] = [("encapsulation", "V4", 0)]
        self._size = len(ENCAPSULATION)
        self._counts: dict[str, int] = {}
        self.texts: dict[str, bytes] = {}
        try:
            for name, kind, is_array in fields_of(text):
                if kind in (HEADER, TIME):
                    self._add("sec", "uint32")
                    self._add("nanosec", "uint32")
                    if kind == HEADER:
                        self._add_text("frame_id", message)
                elif kind == "string" and not is_array:
                    self._add_text(name, message)
                elif is_array:
                    if count := self._count(f"{name}.length", message):
                        self._add(name, kind, count)
                else:
                    self._add(name, kind)
            names, formats, offsets = (list(column) for column in zip(*self._fields, strict=True))
            layout = {"names": names, "formats": formats, "offsets": offsets, "itemsize": self._size}
            self._dtype: np.dtype[np.void] = np.dtype(layout)  # type: ignore[call-overload]
        except (struct.error, KeyError, ValueError) as error:
            raise ValueError(f"the messages differ from their definition ({error})") from error
        self._names = [name for name in names[1:] if name not in self._counts and name not in self.texts]
        if not self._fits(message):
            raise ValueError(f"the length of a message differs from {self._size} bytes")

    def _add(self, name: str, kind: str, count: int | None = None) -> None:
        code, size = CODES[kind]
        self._size += -(self._size - len(ENCAPSULATION)) % size
        self._fields.append((name, f"<{code}" if count is None else f"({count},)<{code}", self._size))
        self._size += size * (1 if count is None else count)

    def _add_text(self, name: str, message: bytes) -> None:
        if count := self._count(f"{name}.length", message):
            self._fields.append((name, f"V{count}", self._size))
            self.texts[name] = message[self._size : self._size + count]
            self._size += count

    def _count(self, length: str, message: bytes) -> int:
        self._add(length, "uint32")
        (count,) = struct.unpack_from("<I", message, self._size - 4)
        if self._size + count > len(message):
            raise ValueError(f"{length} = {count}: exceeds the length of the message")
        self._counts[length] = count
        return int(count)

    def _fits(self, message: bytes) -> bool:
        return self._size <= len(message) <= self._size + TRAILING

    def columns(self, messages: Sequence[bytes]) -> Columns:
        """Return the fields of ``messages`` by name: scalars ``(n,)``, non-empty arrays ``(n, length)``.

        Messages with a different layout are skipped.
        """
        fitting = [message[: self._size] for message in messages if self._fits(message)]
        rows = np.frombuffer(b"".join(fitting), self._dtype)
        good = rows["encapsulation"] == np.void(ENCAPSULATION)
        for length, count in self._counts.items():
            good &= rows[length] == count
        for name, value in self.texts.items():
            good &= rows[name] == np.void(value)
        rows = rows if good.all() else rows[good]
        return {name: np.ascontiguousarray(rows[name]) for name in self._names}


def layout_of(text: str, messages: Sequence[bytes]) -> StreamLayout:
    """Return the layout of the majority of ``messages``. Raises ValueError if no layout has a majority."""
    problem = ValueError("the messages have too many different layouts, or belong to several runs")
    for length, _ in Counter(map(len, messages)).most_common(_LENGTHS):
        for message in [message for message in messages if len(message) == length][:_TRIED]:
            try:
                layout = StreamLayout(text, message)
            except ValueError as error:
                problem = error
                continue
            if 2 * len(next(iter(layout.columns(messages).values()))) > len(messages):
                return layout
    raise problem
