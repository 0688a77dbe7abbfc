# SPDX-License-Identifier: Apache-2.0
"""A watcher as a process: its sensors, what it hears, its pulse and its record."""

from __future__ import annotations

import json
import math
import socket
import struct
import threading
import time
import zlib
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming

from rths_nodes.app.commands import arguments
from rths_nodes.app.commands import watch as watch_command
from rths_nodes.app.commands.watch import Hearing, WatchLoop, WatchRecord
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.validation import from_data, to_data
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.watcher_sensors import OwnSensors, shown
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.watch.watcher import MAGIC, SIZE, VERSION, PulseListener, Pulses, Watch

RIG = files.load_rig("bench_watched")


def rig(**changes: Any) -> RigFile:
    """The shipped rig file, with other values in its section ``watch``."""
    data = to_data(RIG)
    for path, value in changes.items():
        *parents, key = path.split("__")
        section = data["watch"]
        for each in parents:
            section = section[each]
        section[key] = value
    return from_data(RigFile, data)


def told(state: State = State.RUNNING, axes: tuple[str, ...] = ("story_1",), rate: float = 1024.0) -> Any:
    return SimpleNamespace(state=int(state), reason="", axis_names=axes, auxiliary_names=(), servo_rate=rate)


def measured(sample: int, displacement: float = 0.0, **more: Any) -> Any:
    given = {"force": [0.0], "command": [displacement], "auxiliary": [], "control_mode": [1]} | more
    return SimpleNamespace(sample=sample, displacement=[displacement], **given)


# -- the rig file -----------------------------------------------------------------------------------------


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
        ({"axes__bench__limits__velocity_over": 1e-3}, ("velocity_over", "0.001 s", ">= 0.002 s")),
    ],
)
def test_numbers_that_cannot_be_are_refused(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        rig(**changes)


@pytest.mark.parametrize("key", ["tolerance", "limits", "rest"])
def test_what_is_judged_by_has_no_default(key: str) -> None:
    data = to_data(RIG)
    del data["watch"]["axes"]["bench"][key]
    with pytest.raises(ConfigError, match=rf"watch\.axes\.bench\.{key}"):
        from_data(RigFile, data)


def test_every_axis_of_the_rig_is_watched() -> None:
    data = to_data(RIG)
    data["watch"]["axes"]["other"] = data["watch"]["axes"]["bench"]
    with pytest.raises(ConfigError, match=naming("order", "bench")):
        from_data(RigFile, data)


def test_a_rig_without_a_watcher_is_refused() -> None:
    with pytest.raises(ConfigError, match="bench_udp: watch: missing"):
        watch_command.run(SimpleNamespace(rig="bench_udp"))  # type: ignore[arg-type]


# -- the pulse --------------------------------------------------------------------------------------------


def test_layout_of_the_pulse() -> None:
    pulses = Pulses(0.005)
    data = [pulses.next() for _ in range(3)]
    assert {len(each) for each in data} == {SIZE} == {20}
    magic, version, period, session, counter = struct.unpack("<IHHII", data[2][:16])
    assert (magic, version, period, counter) == (MAGIC, VERSION, 50, 3)
    assert magic.to_bytes(4, "little") == b"RTHW"
    assert session == struct.unpack_from("<I", data[0], 8)[0] != 0
    assert struct.unpack("<I", data[2][16:])[0] == zlib.crc32(data[2][:16])


def test_an_interlock_opens_for_good() -> None:
    pulses, listener = Pulses(0.005), PulseListener(0.02)
    assert not listener.closed(0.0)
    assert listener.receive(pulses.next(), 1.0)
    assert listener.closed(1.019)
    assert not listener.closed(1.021)
    assert not listener.receive(pulses.next(), 1.022)
    assert not listener.closed(1.022)


def test_an_interlock_takes_no_pulse_twice_or_of_another_session() -> None:
    pulses, listener = Pulses(0.005), PulseListener(0.02)
    first, second = pulses.next(), pulses.next()
    assert listener.receive(second, 1.0)
    assert not listener.receive(first, 1.001)
    assert not listener.receive(second, 1.002)
    assert not listener.receive(Pulses(0.005).next(), 1.003)
    assert not listener.receive(second[:-1] + b"\0", 1.004)
    assert not listener.closed(1.021)


# -- its sensors ------------------------------------------------------------------------------------------


def sensors_of(given: RigFile) -> tuple[OwnSensors, socket.socket, tuple[str, int]]:
    assert given.watch is not None
    channels = [(axis.displacement, axis.force) for axis in given.watch.axes.values()]
    sensors = OwnSensors("127.0.0.1", 0, channels)
    port = socket.socket(fileno=sensors.fileno())
    far = "127.0.0.1", port.getsockname()[1]
    port.detach()
    return sensors, socket.socket(socket.AF_INET, socket.SOCK_DGRAM), far


def test_own_sensors_in_si_of_one_session() -> None:
    sensors, out, far = sensors_of(RIG)
    good, other = shown(7, 1, [(0.5, -2.0)]), shown(8, 2, [(0.5, -2.0)])
    command = datagrams.packed(datagrams.Head(datagrams.COMMAND, 1, 7, 2), bytes(24))
    for data in (good, other, good[:-1] + b"\0", command, b"", shown(7, 3, [(0.5, 0.0)] * 2)):
        out.sendto(data, far)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forging:  # the session is right, the port is not
        forging.sendto(shown(7, 2, [(0.1, 1.0)]), far)
    time.sleep(0.05)
    assert list(sensors.received()) == [(1, (pytest.approx(0.03),), (pytest.approx(-1e6),))]
    assert dict(sensors.counts) == {"foreign": 2, "garbage": 4}
    sensors.close()
    out.close()


# -- what it hears ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (told(axes=("nobody",)), ("rig", "axes.nobody")),
        (told(axes=("story_1", "bench")), ("another", "rig")),
        (told(rate=1000.0), ("servo_rate", "1000 Hz")),
        (told(state=77), ("state", "77")),  # type: ignore[arg-type]
    ],
)
def test_a_test_of_another_rig_ends_it(state: Any, words: tuple[str, ...]) -> None:
    assert RIG.watch is not None
    watch = Watch(RIG.watch, 1024.0)
    Hearing(RIG, watch).state(state)
    assert mentions(watch.ended, *words)


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
def test_statements_that_make_no_sense_end_it(wrong: dict[str, Any]) -> None:
    assert RIG.watch is not None
    watch = Watch(RIG.watch, 1024.0)
    hearing = Hearing(RIG, watch)
    hearing.rig(0.0, measured(0, **wrong))
    assert not watch.ended  # nobody has said yet which test it is
    hearing.state(told())
    hearing.rig(0.0, measured(1))
    assert not watch.ended
    hearing.rig(0.005, measured(2, **wrong))
    assert watch.ended


def test_the_force_of_the_load_cell_is_compared_not_the_corrected_one() -> None:
    assert RIG.watch is not None
    watch = Watch(RIG.watch, 1024.0)
    hearing, heard = Hearing(RIG, watch), []
    watch.receive = heard.append  # type: ignore[method-assign]
    state = told()
    state.auxiliary_names = ("oil [Pa]", "uncorrected_force_story_1 [N]")
    hearing.state(state)
    hearing.rig(0.0, measured(1, auxiliary=[5.0, 123.0]))
    assert [each.force for each in heard] == [(123.0,)]


# -- the loop ---------------------------------------------------------------------------------------------


def test_the_pulse_goes_on_and_ends_with_its_sensors(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as interlock:
        interlock.bind(("127.0.0.1", 0))
        interlock.settimeout(10.0)
        given = rig(pulse__port=interlock.getsockname()[1])
        sensors, out, far = sensors_of(given)
        record = WatchRecord(tmp_path / "sub" / "watch.jsonl", "bench")
        heard: deque[Any] = deque()
        loop = WatchLoop(given, sensors, heard, record.tell)
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.append(loop.run(lambda: False)), daemon=True)
        listener, got = PulseListener(10.0), 0
        thread.start()
        counter, end = 0, time.monotonic() + 20.0
        heard.append((time.monotonic(), "procedure_state", told(State.IDLE)))
        while got < 20 and thread.is_alive() and time.monotonic() < end:
            counter += 1
            out.sendto(shown(7, counter, [(0.0, 0.0)]), far)
            time.sleep(0.002)
            interlock.setblocking(False)
            try:
                got += listener.receive(interlock.recv(64), time.monotonic())
            except BlockingIOError:
                continue
        if got >= 20:  # else this machine has kept the loop, or its sensors, too long, which ends it, too
            counter += 1
            out.sendto(shown(7, counter, [(1.0, 0.0)]), far)  # it moves by 60 mm, and nobody says so
        thread.join(10.0)
        record.tell("ended", found[0])
        record.close()
        out.close()
        sensors.close()
    rows = [json.loads(line) for line in (tmp_path / "sub" / "watch.jsonl").read_text().splitlines()]
    assert rows[-1]["event"] == "ended"
    words = rows[-1]["words"]
    assert mentions(words, "IDLE", "bench") or "silent" in words or "suspended" in words


def test_a_record_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=naming("cannot be written")):
        WatchRecord(tmp_path / "file" / "watch.jsonl", "bench")


# -- a whole test -----------------------------------------------------------------------------------------


def test_a_watched_test_goes_by_the_clock() -> None:
    scenario = files.load("chen_ricles_2010", [], rig="bench_watched")
    assert arguments.in_realtime(scenario, None, watched=True)
    assert not arguments.in_realtime(scenario, None)
    with pytest.raises(ConfigError, match=naming("--pace", "watcher")):
        arguments.in_realtime(scenario, "lockstep", watched=True)


BUSY = ("silent", "suspended", "lagged")
"""What a watcher says, and must say, of a machine that keeps one of its processes for longer than it may."""


@pytest.mark.nodes
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_whole_test_in_processes_ends_no_pulse(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulated rig with sensors beside it, a watcher, and a test from connect to finish.

    Any end but one by a busy machine is false at once; where each try ends so, nothing can be said here.
    """
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    import watch

    for number in range(6):
        found = watch.run("none", 7000 + number, np.random.default_rng(number), 20.0)
        assert found is not None
        if not math.isnan(found.lasted):
            assert 0.0 < found.lasted < watch.STATED_S, "s: longest time between two pulses"
            return
        assert any(words in found.words for words in BUSY), found.words
    pytest.skip("this machine is too busy to keep a test and its watcher in time")
