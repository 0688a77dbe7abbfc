# SPDX-License-Identifier: Apache-2.0
"""Tests of the watcher: rig file, pulse, sensors, received messages, record, and complete runs."""

from __future__ import annotations

import json
import math
import socket
import struct
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming

from rths_nodes.app.commands import arguments
from rths_nodes.app.commands import watch as watch_command
from rths_nodes.app.commands.watch import WatchLoop, watch_record
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data, to_data
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.session import MOST_AT_ONCE
from rths_nodes.laboratory.ports.watcher_sensors import OwnSensors, shown
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.watch import MAGIC, SIZE, VERSION, PulseListener, Sample, pulses

RIG = files.load_rig("bench_watched")


def changed_rig(**changes: Any) -> RigFile:
    """Return the shipped rig file with other values in its section ``watch``."""
    data = to_data(RIG)
    for path, value in changes.items():
        *parents, key = path.split("__")
        section = data["watch"]
        for parent in parents:
            section = section[parent]
        section[key] = value
    return from_data(RigFile, data)


def state_of(
    state: int = State.RUNNING,
    axes: tuple[str, ...] = ("story_1",),
    rate: float = 1024.0,
    auxiliary: tuple[str, ...] = (),
) -> Any:
    return SimpleNamespace(
        state=int(state), reason="", axis_names=axes, auxiliary_names=auxiliary, servo_rate=rate
    )


def measured(sample: int, **changes: Any) -> Any:
    fields = {"displacement": [0.0], "force": [0.0], "command": [0.0], "auxiliary": [], "control_mode": [1]}
    return SimpleNamespace(sample=sample, **fields | changes)


# The rig file


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"late": 0.02}, ("watch.late", "0.02 s", ">= 0.03 s")),
        ({"late": 0.05}, ("watch.late", "0.05 s")),
        ({"silence": 0.001}, ("watch.silence", "0.001 s", ">= 0.004 s")),
        ({"axes__bench__rest": 1e-6}, ("rest", "1e-06 m", "> 2e-05 m")),
        ({"axes__bench__limits__displacement": 0.2}, ("displacement", "0.2 m", ">= 0.25 m")),
        ({"axes__bench__limits__displacement": 0.4}, ("displacement", "0.4 m", "< 0.3 m")),
        ({"axes__bench__limits__force": 1e6}, ("force", "1e+06 N", ">= 1.8e+06 N")),
        ({"axes__bench__limits__velocity": 1.1}, ("velocity", "1.1 m/s", ">= 1.2 m/s")),
        ({"axes__bench__limits__persistence": 21}, ("persistence", "21 samples", "<= 20 samples", "500 Hz")),
        ({"axes__bench__limits__velocity_over": 1e-3}, ("velocity_over", "0.001 s", ">= 0.002 s")),
    ],
)
def test_inconsistent_numbers_are_refused(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        changed_rig(**changes)


@pytest.mark.parametrize("key", ["tolerance", "limits", "rest"])
def test_criteria_have_no_default(key: str) -> None:
    data = to_data(RIG)
    del data["watch"]["axes"]["bench"][key]
    with pytest.raises(ConfigError, match=rf"watch\.axes\.bench\.{key}"):
        from_data(RigFile, data)


def test_watched_axes_equal_the_axes_of_the_rig() -> None:
    data = to_data(RIG)
    data["watch"]["axes"]["other"] = data["watch"]["axes"]["bench"]
    with pytest.raises(ConfigError, match=naming("order", "bench")):
        from_data(RigFile, data)


def test_rig_without_watcher_is_refused() -> None:
    with pytest.raises(ConfigError, match="bench_udp: watch: missing"):
        watch_command.watch_command(SimpleNamespace(rig="bench_udp"))


def test_pulse_has_documented_layout() -> None:
    sent = pulses(0.005)
    data = [next(sent) for _ in range(3)]
    assert {*map(len, data)} == {SIZE} == {20}
    magic, version, period, session, counter = struct.unpack("<IHHII", data[2][:16])
    assert (magic, version, period, counter) == (MAGIC, VERSION, 50, 3)
    assert magic.to_bytes(4, "little") == b"RTHW"
    assert session == struct.unpack_from("<I", data[0], 8)[0] != 0
    assert struct.unpack("<I", data[2][16:])[0] == zlib.crc32(data[2][:16])


def test_interlock_stays_open_after_a_missing_pulse() -> None:
    sent, listener = pulses(0.005), PulseListener(0.02)
    assert not listener.closed(0.0)
    assert listener.receive(next(sent), 1.0)
    assert listener.closed(1.019)
    assert not listener.closed(1.021)
    assert not listener.receive(next(sent), 1.022)
    assert not listener.closed(1.022)


def test_interlock_refuses_repeated_and_foreign_pulses() -> None:
    sent, listener = pulses(0.005), PulseListener(0.02)
    first, second = next(sent), next(sent)
    assert listener.receive(second, 1.0)
    assert not listener.receive(first, 1.001)
    assert not listener.receive(second, 1.002)
    assert not listener.receive(next(pulses(0.005)), 1.003)
    assert not listener.receive(second[:-1] + b"\0", 1.004)
    assert not listener.closed(1.021)


# The sensors


def udp_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


@contextmanager
def sensors_of(rig: RigFile) -> Iterator[tuple[OwnSensors, tuple[str, int]]]:
    """Yield the sensors of a watcher and their UDP address."""
    with closing(
        OwnSensors("127.0.0.1", 0, [(axis.displacement, axis.force) for axis in rig.watch.axes.values()])
    ) as sensors:
        port = socket.socket(fileno=sensors.fileno())
        address = port.getsockname()
        port.detach()
        yield sensors, address


def test_sensors_accept_one_session_and_convert_to_si() -> None:
    valid, foreign = shown(7, 1, [(0.5, -2.0)]), shown(8, 2, [(0.5, -2.0)])
    command = datagrams.packed(datagrams.Head(datagrams.COMMAND, 1, 7, 2), bytes(24))
    with sensors_of(RIG) as (sensors, address), udp_socket() as sender, udp_socket() as other_port:
        for data in (valid, foreign, valid[:-1] + b"\0", command, b"", shown(7, 3, [(0.5, 0.0)] * 2)):
            sender.sendto(data, address)
        other_port.sendto(shown(7, 2, [(0.1, 1.0)]), address)
        time.sleep(0.05)
        assert list(sensors.received()) == [(1, (pytest.approx(0.03),), (pytest.approx(-1e6),))]
        assert dict(sensors.counts) == {"foreign": 2, "garbage": 4}


def test_flood_of_foreign_datagrams_does_not_hold_the_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    with sensors_of(RIG) as (sensors, _), udp_socket() as flooded:
        endless: Any = SimpleNamespace(recvfrom=lambda size: (b"", ("192.0.2.1", 1)), close=flooded.close)
        monkeypatch.setattr(sensors, "_socket", endless)
        assert list(sensors.received()) == []
        assert sensors.counts["foreign"] == MOST_AT_ONCE
        monkeypatch.undo()


# Received messages


@pytest.fixture
def loop() -> WatchLoop:
    """Loop without sensors that does not run."""
    return WatchLoop(RIG, None, deque(), lambda *_: None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (state_of(axes=("nobody",)), ("rig", "axes.nobody")),
        (state_of(axes=("story_1", "bench")), ("another", "rig")),
        (state_of(rate=1000.0), ("servo_rate", "1000 Hz")),
        (state_of(77), ("state", "77")),
    ],
)
def test_state_of_another_rig_ends_the_watch(loop: WatchLoop, state: Any, words: tuple[str, ...]) -> None:
    loop.take_state(state)
    assert mentions(loop.watch.ended, *words)


@pytest.mark.parametrize(
    "wrong",
    [
        {"force": [0.0, 0.0]},
        {"command": []},
        {"command": [float("nan")]},
        {"force": [float("inf")]},
        {"control_mode": [2], "command": [float("nan")]},  # the rig file has no force control
    ],
)
def test_invalid_measurements_end_the_watch(loop: WatchLoop, wrong: dict[str, Any]) -> None:
    loop.take_measured(0.0, measured(0, **wrong))
    assert not loop.watch.ended  # no test is under way
    loop.take_state(state_of())
    loop.take_measured(0.0, measured(1))
    assert not loop.watch.ended
    loop.take_measured(0.005, measured(2, **wrong))
    assert loop.watch.ended


def test_uncorrected_force_is_compared(loop: WatchLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[Sample] = []
    monkeypatch.setattr(loop.watch, "receive", received.append)
    loop.take_state(state_of(auxiliary=("oil [Pa]", "uncorrected_force_story_1 [N]")))
    loop.take_measured(0.0, measured(1, auxiliary=[5.0, 123.0]))
    assert [statement.force for statement in received] == [(123.0,)]


# The loop


def test_pulses_continue_until_sensors_disagree(tmp_path: Path) -> None:
    record = watch_record(tmp_path / "sub" / "watch.jsonl", "bench")
    with record as tell, udp_socket() as interlock, udp_socket() as out, ThreadPoolExecutor(1) as pool:
        interlock.bind(("127.0.0.1", 0))
        interlock.setblocking(False)
        rig = changed_rig(pulse__port=interlock.getsockname()[1])
        with sensors_of(rig) as (sensors, address):
            messages: deque[Any] = deque()
            listener, valid, counter, deadline = PulseListener(10.0), 0, 0, time.monotonic() + 20.0
            loop = WatchLoop(rig, sensors, messages, tell)
            reason = pool.submit(loop.run, lambda: time.monotonic() > deadline + 10.0)
            while valid < 20 and not reason.done() and time.monotonic() < deadline:
                counter += 1
                out.sendto(shown(7, counter, [(0.0, 0.0)]), address)
                time.sleep(0.002)
                with suppress(BlockingIOError):
                    valid += listener.receive(interlock.recv(64), time.monotonic())
                messages.extend([(time.monotonic(), "procedure_state", state_of(State.IDLE))] * (valid == 10))
            if valid >= 20:  # else the loop or its sensors were delayed by a busy machine, which ends it as well
                out.sendto(shown(7, counter + 1, [(1.0, 0.0)]), address)  # moves by 60 mm without a command
            tell("ended", reason.result(10.0))
    rows = [json.loads(line) for line in (tmp_path / "sub" / "watch.jsonl").read_text().splitlines()]
    event, text = (rows[-1][key] for key in ("event", "words"))
    assert (event, "no test" in rows[0]["words"] or valid < 20) == ("ended", True)
    assert mentions(text, "IDLE", "bench") or "silent" in text or "suspended" in text


def test_blocked_terminal_does_not_delay_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr("builtins.print", lambda *_, **__: released.wait(20.0))
    end = time.monotonic() + 10.0
    with watch_record(tmp_path / "watch.jsonl", "bench") as tell:  # ends even if the terminal still blocks
        tell("begins", "the pulse begins")
        tell("ended", "the reason")
        while (text := (tmp_path / "watch.jsonl").read_text()).count("\n") < 2 and time.monotonic() < end:
            time.sleep(0.01)
    assert not released.is_set()
    released.set()
    assert [json.loads(row)["words"] for row in text.splitlines()] == ["the pulse begins", "the reason"]


def test_unwritable_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ConfigError, match=naming("cannot be written")),
        watch_record(tmp_path / "file" / "watch.jsonl", "bench"),
    ):
        pass
    with watch_record(Path("/dev/full"), "bench") as tell:
        tell("ended", "a full disk does not change the exit code")


def test_watched_test_requires_realtime_pace() -> None:
    scenario = files.load("chen_ricles_2010", [], rig="bench_watched")
    assert arguments.in_realtime(scenario, None, watched=True)
    assert not arguments.in_realtime(scenario, None)
    with pytest.raises(ConfigError, match=naming("--pace", "watcher")):
        arguments.in_realtime(scenario, "lockstep", watched=True)


BUSY = ("silent", "suspended", "lagged")
"""Reasons of a watcher on a machine that delays one of its processes for too long."""


@pytest.mark.nodes
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_pulses_continue_through_a_complete_test(load_benchmark: Callable[[str], Any]) -> None:
    """An emulated rig with further sensors, a watcher, and a test from connect to finish.

    A try may end early only because the machine is busy; the test is skipped if every try does.
    """
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    watch = load_benchmark("watch")
    for number in range(6):
        result = watch.run("none", 7000 + number, np.random.default_rng(number), 20.0)
        if not math.isnan(result.lasted):
            assert 0.0 < result.lasted < watch.STATED_S, "longest time between two pulses, s"
            return
        assert any(reason in result.reason for reason in BUSY), result.reason
    pytest.skip("this machine is too busy to keep a test and its watcher in time")
