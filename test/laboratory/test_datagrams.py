# SPDX-License-Identifier: Apache-2.0
"""Tests of the datagrams of the port ``udp``: equal layouts in Python, in C and in the documentation."""

from __future__ import annotations

import re
import statistics
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from messages import mentions

from rths_nodes.core.samples import MODE_DISPLACEMENT, MODE_FORCE, MODE_HELD, MODE_NOT_TOLD
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head, Unreadable
from rths_nodes.laboratory.ports.session import Link, agree

ROOT = Path(__file__).resolve().parents[2]
HEADER = (ROOT / "examples" / "udp_target" / "rths_target.h").read_text()
FULL = Head(18, 2, 0xDEADBEEF, 7, 6, 976562, 41, 3, 1, 4, 3, 2, 1)


def test_header_in_c_has_same_layout() -> None:
    definitions = re.findall(r"(?:#define )?\bRTHS_(\w+)(?: = | )(0x[0-9a-f]+|\d+)u?\b", HEADER)
    defined = {name: int(value, 0) for name, value in definitions}
    kinds = [kind for kind, _ in datagrams.LAYOUT.values()]
    offsets = {
        f"AT_{name.upper()}": struct.calcsize("<" + "".join(kinds[:index]))
        for index, name in enumerate(datagrams.LAYOUT)
    }
    assert offsets.items() <= defined.items()
    for name in ("HEAD", "COMMAND_ROW", "ANSWER_ROW", "ANSWER_END", "STATE_ROW", "CHECKSUM", "LOAD_ROW"):
        assert defined[name] == getattr(datagrams, name).size, name
    for name in (
        *("MAGIC", "VERSION", "OPEN", "BEGIN", "CLOSE", "ANSWER", "EMULATOR", "LOCKSTEP", "RAMP"),
        *("BRIDGED", "LIMITED", "SATURATED", "TRIGGER", "NEWTONS"),
        *("IDLE", "WAITING", "RUNNING", "BRAKING", "STOPPED"),
    ):
        assert defined[name] == getattr(datagrams, name), name
    modes = ("NOT_TOLD", "BY_DISPLACEMENT", "BY_FORCE", "HELD")
    assert [defined[name] for name in modes] == [MODE_NOT_TOLD, MODE_DISPLACEMENT, MODE_FORCE, MODE_HELD]
    assert defined["MAX_AXES"] == datagrams.LARGEST_AXES
    assert defined["MAX_AUXILIARY"] == datagrams.LARGEST_AUXILIARY
    assert defined["MAX_BYTES"] == datagrams.LARGEST
    assert defined["QUEUE"] // 2 - 1 == datagrams.LARGEST_QUEUE
    assert defined["FROZEN"] == max(datagrams.REASONS)


def test_documentation_has_same_rows() -> None:
    page = (ROOT / "doc" / "udp.md").read_text()
    rows = {line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("| ")}
    for name, row in (("command", datagrams.COMMAND_ROW), ("state", datagrams.STATE_ROW)):
        zeros = {"six": 6, "seven": 7}[re.findall(r"(\w+) zeros", rows[name])[0]]
        starts = [int(start) for start in re.findall(r"(?:\| |; )(\d+) ", rows[name])]
        assert starts[-1] + zeros == row.size
    first, end = rows["answer"].split("in their place")
    limits = re.findall(r"(\d+) [^;:|]*real, ", first)
    assert [int(start) for start in limits] == list(range(0, datagrams.ANSWER_ROW.size, 8))
    assert [int(start) for start in re.findall(r"(\d+) \w+, uint", end)] == [0, 4, 8, 12]
    loads = [int(start) for start in re.findall(r"(\d+) [^;:|]*real, ", rows["answer, after that"])]
    assert loads == list(range(0, datagrams.LOAD_ROW.size, 8))
    assert mentions(page, f"version {datagrams.VERSION} of the layout", "little-endian")


def test_largest_answer_fits_into_datagram() -> None:
    rows = datagrams.ANSWER_ROW.size + datagrams.LOAD_ROW.size
    largest = datagrams.HEAD.size + 8 * rows + datagrams.ANSWER_END.size
    assert largest + datagrams.CHECKSUM.size <= datagrams.LARGEST


def test_head_is_restored() -> None:
    assert datagrams.head_of(datagrams.packed(FULL, b"12345678")) == FULL


def test_state_is_restored() -> None:
    head = Head(datagrams.STATE, 2, 9, counter=4, auxiliary=1)
    rows = [(0.001, -5.0, 0.002, 1, 0), (-0.003, 7.0, 0.5, 2, 1)]
    body = b"".join(datagrams.STATE_ROW.pack(*row) for row in rows) + struct.pack("<d", 3.5)
    data = datagrams.packed(head, body)
    state = datagrams.state_of(data, datagrams.head_of(data))
    np.testing.assert_array_equal(state.displacement, [0.001, -0.003])
    np.testing.assert_array_equal(state.force, [-5.0, 7.0])
    np.testing.assert_array_equal(state.command, [0.002, 0.5])
    assert (state.modes, state.in_newtons, state.auxiliary.tolist()) == (bytes([1, 2]), bytes([0, 1]), [3.5])


def test_lost_state_between_units_has_later_command() -> None:
    """Metres and newtons cannot be interpolated."""

    def state(counter: int, command: float, newtons: int) -> datagrams.RigState:
        row = datagrams.STATE_ROW.pack(0.0, 0.0, command, 1 + newtons, newtons)
        data = datagrams.packed(Head(datagrams.STATE, 1, 9, counter=counter), row)
        return datagrams.state_of(data, datagrams.head_of(data))

    lost = datagrams.between(state(3, 1e-3, 0), state(5, 500e3, 1), 4)
    assert (lost.command.tolist(), lost.in_newtons) == ([500e3], b"\x01")
    assert datagrams.between(state(3, 1e-3, 0), state(5, 3e-3, 0), 4).command.tolist() == [2e-3]


def test_lost_state_keeps_pressure_and_interlock() -> None:
    """A change from unknown to low would count as a loss of pressure."""
    row = datagrams.STATE_ROW.pack(0.0, 0.0, 0.0, 1, 0)
    before, after = (
        datagrams.state_of(b"\0" * datagrams.HEAD.size + row + b"\0" * 4, head)
        for head in (Head(datagrams.STATE, 1, 9, counter, hydraulics=2, interlock=1) for counter in (3, 5))
    )
    lost = datagrams.between(before, after, 4).head
    assert (lost.counter, lost.hydraulics, lost.interlock, lost.state, lost.reason) == (4, 2, 1, 0, 0)


def test_each_session_counts_from_zero() -> None:
    transport: Any = SimpleNamespace(address="rig", open=lambda: None)
    link = Link(transport, "udp")
    for session in (1, 2):
        link.open(session)
        assert not any(link.counts.values())
        link.too_late(5)
        assert (link.counts["repeated"], link.counts["reordered"]) == (1, 0)
        link.lose(5)


def test_bit_errors_are_detected() -> None:
    data = datagrams.packed(FULL, bytes(16))
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Unreadable):
            datagrams.head_of(bytes(damaged))


@pytest.mark.parametrize("length", [0, 1, 31, 35, 769, 2000])
def test_wrong_length_is_refused(length: int) -> None:
    with pytest.raises(Unreadable):
        datagrams.head_of(bytes(length))


def test_rows_that_contradict_head_are_refused() -> None:
    data = datagrams.packed(Head(datagrams.STATE, 3, 9), bytes(32))
    with pytest.raises(Unreadable, match="3 axes"):
        datagrams.state_of(data, datagrams.head_of(data))
    with pytest.raises(Unreadable, match="3 axes"):
        datagrams.answer_of(data, datagrams.head_of(data))


def test_state_without_axes_is_refused() -> None:
    data = datagrams.packed(Head(datagrams.STATE, 0, 9))
    with pytest.raises(Unreadable, match="0 axes"):
        datagrams.state_of(data, datagrams.head_of(data))


def test_session_without_measured_round_trip_is_refused() -> None:
    """Only a session in lockstep has no round trip."""
    port: Any = SimpleNamespace(transport_samples=1, address="rig")
    answer: Any = None
    with pytest.raises(statistics.StatisticsError):
        agree(port, Head(0, 1, 0), answer, in_lockstep=False, delays=[])
