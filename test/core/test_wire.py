# SPDX-License-Identifier: Apache-2.0
"""Tests of the codec: exact round trips, constant layouts, ValueError for malformed bytes."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from messages import naming

from rths_nodes.core import wire
from rths_nodes.core.data import flatten, unflatten
from rths_nodes.core.durations import SECOND
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import resource
from rths_nodes.core.samples import Command, Measurement, Target
from rths_nodes.core.wire import ENCAPSULATION, Codec, RunMark, decode, encode, mark_of, number_of
from rths_nodes.recording.reading import Columns, layout_of

MESSAGES = sorted(path.stem for path in resource("msg").glob("*.msg"))
STAMP = 1_700_000_000_123_456_789
RUN = RunMark(mark_of("monday_1", "drawn"))
CODEC = Codec(n_dof=3, n_axes=2, n_state=4, n_auxiliary=1, run=RUN)

numbers = st.integers(0, 2**32 - 1)
stamps = st.integers(0, (2**32 - 1) * SECOND + SECOND - 1)


def array(length: int) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(np.float64, length, elements=st.floats(width=64))


def assert_same_bits(sent: Any, received: Any) -> None:
    for name in sent.__slots__:
        expected, value = getattr(sent, name), getattr(received, name)
        if isinstance(expected, np.ndarray):
            assert expected.tobytes() == value.tobytes(), name
            assert value.flags.aligned
            assert not value.flags.writeable, "several nodes may share it"
        else:
            assert expected == value, name


@given(number=numbers, flags=numbers, stamp=stamps, data=st.data())
@pytest.mark.parametrize(
    ("message", "lengths"), [(Target, [3] * 6), (Command, [2] * 2), (Measurement, [2, 2, 2, 1])]
)
def test_message_of_loop_is_restored_exactly(
    message: type, lengths: list[int], number: int, flags: int, stamp: int, data: st.DataObject
) -> None:
    sent = message(number, *(data.draw(array(length)) for length in lengths), flags=flags)
    name = message.__name__.lower()
    received, received_stamp = getattr(CODEC, f"unpack_{name}")(getattr(CODEC, f"pack_{name}")(sent, stamp))
    assert_same_bits(sent, received)
    assert received_stamp == stamp


def test_compensator_state_is_restored_exactly() -> None:
    values = [0.1, -math.inf, 5e-324, 3.0]
    state = decode("CompensatorState", CODEC.pack_state(values, 7, 0, STAMP))
    assert (state["sample"], state["values"], state["stamp"]) == (7, values, STAMP)


def test_both_encoders_write_the_same_bytes() -> None:
    command = Command(7, np.array([0.1, 0.2]), np.array([0.3, -0.4]), flags=5)
    values = {"stamp": STAMP, "run": RUN.mark, "sample": 7, "flags": 5, "control_mode": [1, 1]}
    values |= {"target": [0.1, 0.2], "command": [0.3, -0.4]}
    assert CODEC.pack_command(command, STAMP) == encode("Command", values)


def test_rig_status_is_restored() -> None:
    rig = {"control_mode": b"\1\2", "hydraulics": 3, "interlock": 1}
    sent = Measurement(3, *np.ones((3, 2)), np.ones(1), **rig)
    received, _ = CODEC.unpack_measurement(CODEC.pack_measurement(sent, STAMP))
    assert_same_bits(sent, received)
    without = Measurement(3, *np.ones((3, 2)), np.ones(1))
    received, _ = CODEC.unpack_measurement(CODEC.pack_measurement(without, STAMP))
    assert (received.control_mode, received.hydraulics, received.interlock) == (b"", 0, 0)


def test_energies_are_restored() -> None:
    data = CODEC.pack_target(Target(3, *np.ones((6, 3)), energies=np.array([4.0, 3.0, 2.0, 1.0])), STAMP)
    assert CODEC.unpack_target(data)[0].energies.tolist() == [4.0, 3.0, 2.0, 1.0]
    target = decode("Target", data)
    kinds = ("input", "kinetic", "strain", "damping")
    assert [target[f"{kind}_energy"] for kind in kinds] == [4.0, 3.0, 2.0, 1.0]
    without = CODEC.unpack_target(CODEC.pack_target(Target(3, *np.ones((6, 3))), STAMP))[0]
    assert np.isnan(without.energies).all()


@pytest.mark.parametrize("modes", [[0, 0], [1, 2], [2, 2], [1, 77]])
def test_command_in_other_unit_than_metres_is_refused(modes: list[int]) -> None:
    """The axes follow displacements: 1e4 N must not become 1e4 m."""
    values = {"run": RUN.mark, "sample": 1, "control_mode": modes}
    data = encode("Command", values | {"target": [1e4, 1e4], "command": [1e4, 1e4]})
    with pytest.raises(ValueError, match=naming("displacement", "axes")):
        CODEC.unpack_command(data)


def test_run_mark_has_constant_length() -> None:
    names = ["", "a", "chen_ricles_2010_20260101_120000_4711", "ü" * 300]
    marks = {mark_of(name, salt) for name in names for salt in ("", "1", "2")}
    assert len(marks) == 12
    assert {len(mark) for mark in marks} == {23}
    assert mark_of("a", "1") == mark_of("a", "1")


@given(st.text(max_size=40), st.text(max_size=40), st.sampled_from(["command", "measurement", "target"]))
def test_message_of_another_run_is_refused(local_name: str, foreign_name: str, message: str) -> None:
    local, foreign = RunMark(mark_of(local_name, "1")), RunMark(mark_of(foreign_name, "2"))
    receiver, sender = (Codec(n_dof=3, n_axes=2, n_state=4, n_auxiliary=1, run=run) for run in (local, foreign))
    sample = {"target": Target(1, *np.ones((6, 3))), "command": Command(1, *np.ones((2, 2)))}
    sample["measurement"] = Measurement(1, *np.ones((3, 2)), np.ones(1))
    data = getattr(sender, f"pack_{message}")(sample[message], STAMP)
    unpack = getattr(receiver, f"unpack_{message}")
    assert foreign.has_sent(data)
    assert not local.has_sent(data)
    with pytest.raises(ValueError, match=naming("belongs", "another run")):
        unpack(data)
    assert number_of(data) == 1
    local.become(foreign.mark)
    assert unpack(data)[1] == STAMP


@pytest.mark.parametrize("message", MESSAGES)
def test_run_mark_has_same_offset_in_all_messages(message: str) -> None:
    assert RUN.has_sent(encode(message, {"run": RUN.mark}))
    assert not RUN.has_sent(encode(message, {"run": mark_of("another")}))
    assert not RUN.has_sent(encode(message, {}))
    assert not RUN.has_sent(b"")


@pytest.mark.parametrize("mark", ["map", "x" * 24, "ü" * 23, "\0" * 23])
def test_invalid_run_mark_is_refused(mark: str) -> None:
    with pytest.raises(ConfigError, match=naming("23", "ASCII")):
        RunMark().become(mark)


def test_message_size_does_not_depend_on_values() -> None:
    sizes = {len(CODEC.pack_state(np.random.default_rng(k).normal(size=4).tolist(), k, k, k)) for k in range(9)}
    assert len(sizes) == 1


def test_too_many_axes_are_refused() -> None:
    with pytest.raises(ConfigError, match=naming("17", "16")):
        Codec(n_dof=1, n_axes=17, n_state=0)


UNPACK = (CODEC.unpack_command, CODEC.unpack_measurement, CODEC.unpack_target)


def encoded(message: str) -> bytes:
    """Return a message of a type, with a value in every field."""
    fill = {"string": "text ü", "bool": True}
    values = {}
    for name, kind, is_array in wire.fields_of(wire.definition(message)):
        value: Any = fill.get(kind, 3)
        values[name] = [value] * 3 if is_array else value
    return encode(message, values | {"stamp": STAMP, "run": RUN.mark})


def reads(call: Any, *arguments: Any) -> bool:
    """Return False for a ValueError; other exceptions propagate."""
    try:
        call(*arguments)
    except ValueError:
        return False
    return True


@given(message=st.sampled_from(MESSAGES), data=st.binary(max_size=200))
def test_random_bytes_give_value_or_value_error(message: str, data: bytes) -> None:
    reads(decode, message, data)
    reads(decode, message, ENCAPSULATION + data)


@given(unpack=st.sampled_from(UNPACK), data=st.binary(max_size=400))
def test_random_bytes_in_loop_give_value_or_value_error(unpack: Any, data: bytes) -> None:
    reads(unpack, data)
    reads(unpack, ENCAPSULATION + data)


@given(message=st.sampled_from(MESSAGES), index=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_changed_byte_gives_value_or_value_error(message: str, index: int, byte: int) -> None:
    data = bytearray(encoded(message))
    data[index % len(data)] = byte
    reads(decode, message, bytes(data))


@pytest.mark.parametrize("message", MESSAGES)
def test_truncated_message_is_refused(message: str) -> None:
    data = encoded(message)
    assert reads(decode, message, data)
    assert not any(reads(decode, message, data[:length]) for length in range(len(data)))


@pytest.mark.parametrize("message", MESSAGES)
def test_other_byte_order_is_refused(message: str) -> None:
    with pytest.raises(ValueError, match=naming(message, "message")):
        decode(message, b"\0\0\0\0" + encoded(message)[4:])


def test_other_number_of_axes_is_refused() -> None:
    other = Codec(n_dof=3, n_axes=1, n_state=4, run=RUN)
    data = other.pack_command(Command(1, np.zeros(1), np.zeros(1)), STAMP)
    with pytest.raises(ValueError, match="Command"):
        CODEC.unpack_command(data)


def test_other_array_lengths_of_equal_size_are_refused() -> None:
    data = bytearray(CODEC.pack_command(Command(1, np.zeros(2), np.zeros(2)), STAMP))
    data[data.index(b"\2\0\0\0", 48)] = 1  # number of control modes
    with pytest.raises(ValueError, match=naming("array", "lengths")):
        CODEC.unpack_command(bytes(data))


def values_of(kind: str) -> st.SearchStrategy[Any]:
    return {
        "bool": st.booleans(),
        "uint8": st.integers(0, 255),
        "uint32": numbers,
        "float32": st.floats(allow_nan=False, width=32),
        "float64": st.floats(allow_nan=False),
        "string": st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    }[kind]


@given(st.data())
@pytest.mark.parametrize("message", MESSAGES)
def test_message_of_any_type_is_restored(message: str, data: st.DataObject) -> None:
    sent = {
        name: data.draw(st.lists(values_of(kind), max_size=5) if is_array else values_of(kind))
        for name, kind, is_array in wire.fields_of(wire.definition(message))
        if kind != wire.HEADER
    } | {"stamp": data.draw(stamps), "frame_id": data.draw(values_of("string"))}
    assert decode(message, encode(message, sent)) == sent


def test_omitted_fields_are_zero_or_empty() -> None:
    received = decode("TestState", encode("TestState", {}))
    assert (received["state"], received["reason"], received["axis_names"]) == (0, "", [])


def test_nested_numbers_are_restored() -> None:
    data = {"axes": {"a": {"x": 0.1, "edges": [1.0, 2.0, 3.0]}}, "hsem_percent": -4.0}
    flat = flatten(data, "metrics")
    assert flat["metrics.axes.a.edges.2"] == 3.0
    assert unflatten(flat | {"timing.x": 1.0, "metrics": 5.0}, "metrics") == data


def test_long_lists_keep_their_order() -> None:
    data = {"counts": [float(n) for n in range(25)]}
    assert unflatten(flatten(data, "timing"), "timing") == data


def measurements(count: int, n_axes: int = 2) -> list[bytes]:
    random = np.random.default_rng(3)
    codec = Codec(n_dof=3, n_axes=n_axes, n_state=4, n_auxiliary=1, run=RUN)
    rows = [Measurement(k, *random.normal(size=(3, n_axes)), random.normal(size=1), flags=k) for k in range(count)]
    return [codec.pack_measurement(row, STAMP + k) for k, row in enumerate(rows)]


def columns(text: str, messages: list[bytes]) -> Columns:
    return layout_of(text, messages).columns(messages)


def test_columns_equal_unpacked_messages() -> None:
    messages = measurements(20)
    messages[3] += b"\0" * 4  # the middleware may append padding
    table = columns(wire.definition("Measurement"), messages)
    for k, data in enumerate(messages):
        measurement, stamp = CODEC.unpack_measurement(data)
        assert (table["sample"][k], table["flags"][k]) == (measurement.sample, measurement.flags)
        assert int(table["sec"][k]) * SECOND + int(table["nanosec"][k]) == stamp
        for name in ("displacement", "force", "command", "auxiliary"):
            assert table[name][k].tobytes() == getattr(measurement, name).tobytes(), name


def test_empty_array_gives_no_column() -> None:
    data = Codec(n_dof=3, n_axes=1, n_state=0).pack_state((), 7, 0, STAMP)
    table = columns(wire.definition("CompensatorState"), [data, data])
    assert table["sample"].tolist() == [7, 7]
    assert "values" not in table


def test_columns_of_version_1_are_read() -> None:
    """Version 1 has a bare stamp in place of the header."""
    text = "builtin_interfaces/Time stamp\nuint32 sample\nfloat64[<=16] force\n"
    data = ENCAPSULATION + struct.pack("<IIIId", 3, 7, 5, 1, 2.5)
    table = columns(text, [data, data])
    expected = {"sec": [3, 3], "nanosec": [7, 7], "sample": [5, 5], "force": [[2.5], [2.5]]}
    assert {name: values.tolist() for name, values in table.items()} == expected
    assert decode("Old", data, text) == {"stamp": 3 * SECOND + 7, "sample": 5, "force": [2.5]}


def test_included_definitions_are_ignored() -> None:
    text = f"uint32 sample\n{wire.SEPARATOR}\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
    table = columns(text, [ENCAPSULATION + (5).to_bytes(4, "little")])
    assert {name: values.tolist() for name, values in table.items()} == {"sample": [5]}


@pytest.mark.parametrize(
    "damaged",
    [
        lambda row: row[:-1],
        lambda row: row + b"\0" * 16,
        lambda row: b"\0\0\0\0" + row[4:],
        lambda row: row[:12] + b"\2" + row[13:],
        lambda row: row[:30],
        lambda row: b"",
    ],
)
@pytest.mark.parametrize("index", [0, 1, 3])
def test_columns_skip_messages_of_another_layout(damaged: Callable[[bytes], bytes], index: int) -> None:
    rows = measurements(3)
    table = columns(wire.definition("Measurement"), [*rows[:index], damaged(rows[0]), *rows[index:]])
    assert table["sample"].tolist() == [0, 1, 2]
    assert table["force"].shape == (3, 2)


def test_columns_need_a_majority_layout() -> None:
    two, three = measurements(2), measurements(2, n_axes=3)
    with pytest.raises(ValueError, match=naming("messages", "layouts")):
        columns(wire.definition("Measurement"), two + three)


def test_columns_refuse_text() -> None:
    with pytest.raises(ValueError, match=naming("messages", "definition")):
        columns(wire.definition("Summary"), [encode("Summary", {"names": ["sent.target"], "values": [3.0]})])
