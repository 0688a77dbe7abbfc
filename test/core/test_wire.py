# SPDX-License-Identifier: Apache-2.0
"""The codec: to the bit and back, constant layouts, and nothing but ValueError for malformed bytes."""

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

from rths_nodes.core.data import flatten, unflatten
from rths_nodes.core.durations import SECOND
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import resource
from rths_nodes.core.samples import Command, Measurement, Target
from rths_nodes.core.wire import layout
from rths_nodes.core.wire.codec import Codec
from rths_nodes.core.wire.layout import ENCAPSULATION, RunMark, mark_of, number_of
from rths_nodes.core.wire.plain import decode, encode
from rths_nodes.recording.reading import Columns, layout_of

MESSAGES = sorted(path.stem for path in resource("msg").glob("*.msg"))
STAMP = 1_700_000_000_123_456_789
RUN = RunMark(mark_of("monday_1", "drawn"))
CODEC = Codec(n_dof=3, n_axes=2, n_state=4, n_auxiliary=1, run=RUN)

numbers = st.integers(0, 2**32 - 1)
stamps = st.integers(0, (2**32 - 1) * SECOND + SECOND - 1)


def array(length: int) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(np.float64, length, elements=st.floats(width=64))


def assert_same_bits(one: Any, other: Any) -> None:
    for name in one.__slots__:
        a, b = getattr(one, name), getattr(other, name)
        if isinstance(a, np.ndarray):
            assert a.tobytes() == b.tobytes(), name
            assert b.flags.aligned
            assert not b.flags.writeable, "several nodes may have it"
        else:
            assert a == b, name


# The messages of the loop


@given(step=numbers, flags=numbers, stamp=stamps, arrays=st.tuples(*[array(3)] * 6))
def test_a_target_comes_back_to_the_bit(step: int, flags: int, stamp: int, arrays: Any) -> None:
    sent = Target(step, *arrays, flags=flags)
    received, when = CODEC.unpack_target(CODEC.pack_target(sent, stamp))
    assert_same_bits(sent, received)
    assert when == stamp


@given(sample=numbers, flags=numbers, stamp=stamps, arrays=st.tuples(*[array(2)] * 2))
def test_a_command_comes_back_to_the_bit(sample: int, flags: int, stamp: int, arrays: Any) -> None:
    sent = Command(sample, *arrays, flags=flags)
    received, when = CODEC.unpack_command(CODEC.pack_command(sent, stamp))
    assert_same_bits(sent, received)
    assert when == stamp


@given(sample=numbers, flags=numbers, stamp=stamps, arrays=st.tuples(*[array(2)] * 3), auxiliary=array(1))
def test_a_measurement_comes_back_to_the_bit(
    sample: int, flags: int, stamp: int, arrays: Any, auxiliary: np.ndarray
) -> None:
    sent = Measurement(sample, *arrays, auxiliary, flags=flags)
    received, when = CODEC.unpack_measurement(CODEC.pack_measurement(sent, stamp))
    assert_same_bits(sent, received)
    assert when == stamp


def test_the_compensators_state_comes_back_to_the_bit() -> None:
    values = [0.1, -math.inf, 5e-324, 3.0]
    told = decode("CompensatorState", CODEC.pack_state(values, 7, 0, STAMP))
    assert (told["sample"], told["values"], told["stamp"]) == (7, values, STAMP)


def test_both_codecs_write_the_same_bytes() -> None:
    command = Command(7, np.array([0.1, 0.2]), np.array([0.3, -0.4]), flags=5)
    values = {"stamp": STAMP, "run": RUN.mark, "sample": 7, "flags": 5, "control_mode": [1, 1]}
    values |= {"target": [0.1, 0.2], "command": [0.3, -0.4]}
    assert CODEC.pack_command(command, STAMP) == encode("Command", values)


def test_what_the_port_reads_of_the_rig_comes_back() -> None:
    rig = {"control_mode": b"\1\2", "hydraulics": 3, "interlock": 1}
    sent = Measurement(3, *np.ones((3, 2)), np.ones(1), **rig)
    received, _ = CODEC.unpack_measurement(CODEC.pack_measurement(sent, STAMP))
    assert_same_bits(sent, received)
    silent = CODEC.unpack_measurement(CODEC.pack_measurement(Measurement(3, *np.ones((3, 2)), np.ones(1)), STAMP))
    assert (silent[0].control_mode, silent[0].hydraulics, silent[0].interlock) == (b"", 0, 0), "not told"


def test_energies_of_a_model_that_does_not_travel_whole_come_back() -> None:
    sent = Target(3, *np.ones((6, 3)), energies=np.array([4.0, 3.0, 2.0, 1.0]))
    data = CODEC.pack_target(sent, STAMP)
    assert CODEC.unpack_target(data)[0].energies.tolist() == [4.0, 3.0, 2.0, 1.0]
    told = decode("Target", data)
    kinds = ("input", "kinetic", "strain", "damping")
    assert [told[f"{kind}_energy"] for kind in kinds] == [4.0, 3.0, 2.0, 1.0]
    untold = CODEC.unpack_target(CODEC.pack_target(Target(3, *np.ones((6, 3))), STAMP))[0]
    assert np.isnan(untold.energies).all()


@pytest.mark.parametrize("modes", [[0, 0], [1, 2], [2, 2], [1, 77]])
def test_a_command_in_newtons_or_without_a_unit_is_refused(modes: list[int]) -> None:
    """A rig with displacement axes only: 1e4 N must not be taken for 1e4 m."""
    values = {"run": RUN.mark, "sample": 1, "control_mode": modes}
    data = encode("Command", values | {"target": [1e4, 1e4], "command": [1e4, 1e4]})
    with pytest.raises(ValueError, match=naming("displacement", "axes")):
        CODEC.unpack_command(data)


# The run


def test_the_mark_of_a_run_has_the_same_length_whatever_it_is_called() -> None:
    names = ["", "a", "chen_ricles_2010_20260101_120000_4711", "ü" * 300]
    marks = {mark_of(name, salt) for name in names for salt in ("", "1", "2")}
    assert len(marks) == 12
    assert {len(mark) for mark in marks} == {23}
    assert mark_of("a", "1") == mark_of("a", "1")


@given(st.text(max_size=40), st.text(max_size=40), st.sampled_from(sorted(("Target", "Command", "Measurement"))))
def test_a_message_of_another_run_is_refused_by_its_bytes(one: str, other: str, message: str) -> None:
    mine, theirs = RunMark(mark_of(one, "1")), RunMark(mark_of(other, "2"))
    ours, foreign = (Codec(n_dof=3, n_axes=2, n_state=4, n_auxiliary=1, run=run) for run in (mine, theirs))
    sample = {"Target": Target(1, *np.ones((6, 3))), "Command": Command(1, *np.ones((2, 2)))}
    sample["Measurement"] = Measurement(1, *np.ones((3, 2)), np.ones(1))
    name = message.lower()
    data = getattr(foreign, f"pack_{name}")(sample[message], STAMP)
    assert theirs.has_sent(data)
    assert not mine.has_sent(data)
    with pytest.raises(ValueError, match=naming("belongs", "another run")):
        getattr(ours, f"unpack_{name}")(data)
    assert number_of(data) == 1
    mine.become(theirs.mark)
    assert getattr(ours, f"unpack_{name}")(data)[1] == STAMP, "once the run is known"


@pytest.mark.parametrize("message", MESSAGES)
def test_the_run_stands_at_the_same_place_of_every_message(message: str) -> None:
    assert RUN.has_sent(encode(message, {"run": RUN.mark}))
    assert not RUN.has_sent(encode(message, {"run": mark_of("another")}))
    assert not RUN.has_sent(encode(message, {}))
    assert not RUN.has_sent(b"")


@pytest.mark.parametrize("mark", ["map", "x" * 24, "ü" * 23, "\0" * 23])
def test_a_mark_that_no_run_can_have_is_refused(mark: str) -> None:
    with pytest.raises(ConfigError, match=naming("23", "ASCII")):
        RunMark().become(mark)


def test_a_message_has_the_same_size_whatever_is_in_it() -> None:
    sizes = {len(CODEC.pack_state(np.random.default_rng(k).normal(size=4).tolist(), k, k, k)) for k in range(9)}
    assert len(sizes) == 1


def test_too_many_axes_are_refused() -> None:
    with pytest.raises(ConfigError, match=naming("17", "16")):
        Codec(n_dof=1, n_axes=17, n_state=0)


# Malformed bytes


UNPACK = {
    "Target": CODEC.unpack_target,
    "Command": CODEC.unpack_command,
    "Measurement": CODEC.unpack_measurement,
}


def whole(message: str) -> bytes:
    fill = {"string": "text ü", "bool": True}
    values = {}
    for name, kind, is_array in layout.described(message):
        value: Any = fill.get(kind, 3)
        values[name] = [value] * 3 if is_array else value
    return encode(message, values | {"stamp": STAMP, "run": RUN.mark})


def reads(call: Any, *arguments: Any) -> bool:
    """True when the bytes can be read; anything but ValueError goes up."""
    try:
        call(*arguments)
    except ValueError:
        return False
    return True


@given(message=st.sampled_from(MESSAGES), data=st.binary(max_size=200))
def test_random_bytes_give_a_value_or_value_error(message: str, data: bytes) -> None:
    reads(decode, message, data)
    reads(decode, message, ENCAPSULATION + data)


@given(message=st.sampled_from(sorted(UNPACK)), data=st.binary(max_size=400))
def test_random_bytes_in_the_loop_give_a_value_or_value_error(message: str, data: bytes) -> None:
    reads(UNPACK[message], data)
    reads(UNPACK[message], ENCAPSULATION + data)


@given(message=st.sampled_from(MESSAGES), place=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_a_changed_byte_gives_a_value_or_value_error(message: str, place: int, byte: int) -> None:
    data = bytearray(whole(message))
    data[place % len(data)] = byte
    reads(decode, message, bytes(data))


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_that_was_cut_short_is_refused(message: str) -> None:
    data = whole(message)
    assert reads(decode, message, data)
    assert not any(reads(decode, message, data[:length]) for length in range(len(data)))


@pytest.mark.parametrize("message", MESSAGES)
def test_another_byte_order_is_refused(message: str) -> None:
    with pytest.raises(ValueError, match=naming(message, "message")):
        decode(message, b"\0\0\0\0" + whole(message)[4:])


def test_another_number_of_axes_is_refused() -> None:
    other = Codec(n_dof=3, n_axes=1, n_state=4, run=RUN)
    data = other.pack_command(Command(1, np.zeros(1), np.zeros(1)), STAMP)
    with pytest.raises(ValueError, match="Command"):
        CODEC.unpack_command(data)


def test_other_lengths_of_the_same_size_are_refused() -> None:
    data = bytearray(CODEC.pack_command(Command(1, np.zeros(2), np.zeros(2)), STAMP))
    place = data.index(b"\2\0\0\0", 48)  # the number of control modes
    data[place] = 1
    with pytest.raises(ValueError, match=naming("array", "lengths")):
        CODEC.unpack_command(bytes(data))


# Any message


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
def test_every_message_comes_back(message: str, data: st.DataObject) -> None:
    sent = {
        name: data.draw(st.lists(values_of(kind), max_size=5) if is_array else values_of(kind))
        for name, kind, is_array in layout.described(message)
        if kind != layout.HEADER
    } | {"stamp": data.draw(stamps), "frame_id": data.draw(values_of("string"))}
    assert decode(message, encode(message, sent)) == sent


def test_fields_that_are_left_out_are_zero_or_empty() -> None:
    received = decode("TestState", encode("TestState", {}))
    assert (received["state"], received["reason"], received["axis_names"]) == (0, "", [])


# Numbers by name


def test_numbers_by_name_come_back() -> None:
    data = {"axes": {"a": {"x": 0.1, "edges": [1.0, 2.0, 3.0]}}, "hsem_percent": -4.0}
    flat = flatten(data, "metrics")
    assert flat["metrics.axes.a.edges.2"] == 3.0
    assert unflatten(flat | {"timing.x": 1.0, "metrics": 5.0}, "metrics") == data


def test_lists_of_more_than_ten_numbers_keep_their_order() -> None:
    data = {"counts": [float(n) for n in range(25)]}
    assert unflatten(flatten(data, "timing"), "timing") == data


# Many messages at once


def measurements(count: int, n_axes: int = 2) -> list[bytes]:
    random = np.random.default_rng(3)
    codec = Codec(n_dof=3, n_axes=n_axes, n_state=4, n_auxiliary=1, run=RUN)
    rows = [Measurement(k, *random.normal(size=(3, n_axes)), random.normal(size=1), flags=k) for k in range(count)]
    return [codec.pack_measurement(row, STAMP + k) for k, row in enumerate(rows)]


def columns(text: str, messages: list[bytes]) -> Columns:
    return layout_of(text, messages).columns(messages)


def test_columns_are_what_the_codec_unpacks_one_by_one() -> None:
    messages = measurements(20)
    messages[3] += b"\0" * 4  # the middleware may append some
    found = columns(layout.definition("Measurement"), messages)
    for k, data in enumerate(messages):
        one, stamp = CODEC.unpack_measurement(data)
        assert (found["sample"][k], found["flags"][k]) == (one.sample, one.flags)
        assert int(found["sec"][k]) * SECOND + int(found["nanosec"][k]) == stamp
        for name in ("displacement", "force", "command", "auxiliary"):
            assert found[name][k].tobytes() == getattr(one, name).tobytes(), name


def test_an_empty_array_is_no_column() -> None:
    data = Codec(n_dof=3, n_axes=1, n_state=0).pack_state((), 7, 0, STAMP)
    found = columns(layout.definition("CompensatorState"), [data, data])
    assert found["sample"].tolist() == [7, 7]
    assert "values" not in found


def test_columns_of_a_recording_of_version_1_are_read() -> None:
    """They have a bare stamp in place of the header."""
    text = "builtin_interfaces/Time stamp\nuint32 sample\nfloat64[<=16] force\n"
    data = ENCAPSULATION + struct.pack("<IIIId", 3, 7, 5, 1, 2.5)
    found = columns(text, [data, data])
    assert {name: values.tolist() for name, values in found.items()} == {
        "sec": [3, 3],
        "nanosec": [7, 7],
        "sample": [5, 5],
        "force": [[2.5], [2.5]],
    }
    assert decode("Old", data, text) == {"stamp": 3 * SECOND + 7, "sample": 5, "force": [2.5]}


def test_only_the_own_part_of_a_definition_counts() -> None:
    text = f"uint32 sample\n{layout.SEPARATOR}\nMSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
    found = columns(text, [ENCAPSULATION + (5).to_bytes(4, "little")])
    assert {name: values.tolist() for name, values in found.items()} == {"sample": [5]}


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
@pytest.mark.parametrize("place", [0, 1, 3])
def test_columns_leave_out_messages_of_another_layout(damaged: Callable[[bytes], bytes], place: int) -> None:
    rows = measurements(3)
    found = columns(layout.definition("Measurement"), [*rows[:place], damaged(rows[0]), *rows[place:]])
    assert found["sample"].tolist() == [0, 1, 2]
    assert found["force"].shape == (3, 2)


def test_columns_need_a_layout_that_most_messages_have() -> None:
    two, three = measurements(2), measurements(2, n_axes=3)
    with pytest.raises(ValueError, match=naming("messages", "layouts")):
        columns(layout.definition("Measurement"), two + three)


def test_columns_are_of_numbers() -> None:
    with pytest.raises(ValueError, match=naming("messages", "definition")):
        columns(layout.definition("Summary"), [encode("Summary", {"names": ["sent.target"], "values": [3.0]})])
