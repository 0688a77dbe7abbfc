# SPDX-License-Identifier: Apache-2.0
"""The port udp against an emulated rig, by real sockets: the same bits in lockstep, a safe end of every fault."""

from __future__ import annotations

import json
import os
import pickle
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.app.emulation.emulator import Emulator, Session
from rths_nodes.app.emulation.misbehaviour import parse
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import resource
from rths_nodes.core.samples import (
    FLAG_BRIDGED,
    FLAG_TRIPPED,
    HYDRAULICS_HIGH,
    HYDRAULICS_LOW,
    HYDRAULICS_OFF,
    MODE_DISPLACEMENT,
    Measurement,
)
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.receiver import build_number
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.recording.run import Collector

if not any(map(shutil.which, ("cc", "gcc", "clang"))):
    pytest.skip("no C compiler here", allow_module_level=True)

NAME = "chen_ricles_2010"
BRIEF = "duration=0.4"
NOISE = ("axes.story_1.sensors.displacement_noise_rms=1e-5", "axes.story_1.sensors.force_noise_rms=100")


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def adopted(listener: Any) -> Any:
    """The listener as another process gets it, with a duplicate of its socket."""
    return pickle.loads(ForkingPickler.dumps(listener))


def udp(port: int, transport: int = 0, **more: Any) -> str:
    """The override that puts the port udp into a scenario."""
    given = {"type": "udp", "emulator": "true", "port": port, "transport_samples": transport} | more
    return f"port={{{', '.join(f'{key}: {value}' for key, value in given.items())}}}"


class Far:
    """An emulated rig in a thread of its own, for one session."""

    def __init__(
        self, name: str, sets: Sequence[str], own_clock: bool, misbehave: Sequence[str], rig: str = ""
    ) -> None:
        self._emulator = Emulator(
            files.load(name, sets, rig=rig), None, own_clock, [parse(words) for words in misbehave]
        )
        self._ended = threading.Event()
        self._session: Session | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._session = self._emulator.serve(self._ended.is_set)

    def session(self) -> Session:
        """How it went, once it is over."""
        self._thread.join(20.0)
        assert self._session is not None
        return self._session

    def close(self) -> None:
        self._ended.set()
        self._thread.join(20.0)
        self._emulator.close()


@pytest.fixture
def rig() -> Iterator[Callable[..., tuple[Far, list[str]]]]:
    """Starts an emulated rig of a scenario; with the overrides for the test computer."""
    made: list[Far] = []

    def rig(
        name: str = NAME,
        sets: Sequence[str] = (BRIEF,),
        transport: int = 0,
        own_clock: bool = False,
        misbehave: Sequence[str] = (),
        **more: Any,
    ) -> tuple[Far, list[str]]:
        every = [udp(free_port(), transport, **more), *sets]
        made.append(Far(name, every, own_clock, misbehave))
        return made[-1], every

    yield rig
    for far in made:
        far.close()


HARD = (BRIEF, "seed=7", "axes.story_1.actuator.type=servo_hydraulic", *NOISE)
CASES = {
    "noisy": (NAME, HARD),
    "auxiliary": ("phillips_spencer_2012", ("duration=0.2", "compensator.feedback={}")),
    "two axes": ("two_actuator_coupler", ("duration=0.2",)),
    "wrong rig": (
        NAME,
        (
            *HARD,
            "axes.story_1.sensors.displacement_offset=1e-4",
            "axes.story_1.sensors.force_scale=0.9",
            "axes.story_1.output={static_stiffness: 1.0e9, lost_motion: 1.0e-5, start: 5.0e-5, offset: -5.0e-5}",
        ),
    ),
}


@pytest.mark.parametrize(
    ("case", "transport"),
    [
        ("noisy", 3),
        ("auxiliary", 0),
        ("two axes", 3),
        ("wrong rig", 1),
        *(pytest.param(*row, marks=pytest.mark.soak) for row in [("noisy", 0), ("auxiliary", 3), ("two axes", 0)]),
    ],
)
def test_in_lockstep_the_bits_are_those_of_the_simulator(
    rig: Any, different: Any, case: str, transport: int
) -> None:
    name, sets = CASES[case]
    far, changed = rig(name, sets, transport)
    found = hosts.run(name, changed)
    expected = hosts.run(name, [f"port={{type: simulator, transport_samples: {transport}}}", *sets])
    assert (found.outcome, found.reason) == (expected.outcome, expected.reason)
    a, b = found.read(), expected.read()
    unlike = [each for each in different(a, b) if not each.startswith("true_")]
    assert unlike == []
    session = far.session()
    assert session.in_order
    assert session.counts["bridged"] == session.counts["limited"] == 0


SHIPPED = sorted(path.stem for path in resource("config", "scenarios").glob("*.yaml"))


@pytest.mark.soak
@pytest.mark.parametrize("name", SHIPPED)
def test_no_shipped_scenario_is_limited_or_stopped_by_its_receiver(rig: Any, name: str) -> None:
    sets = () if name == "tall_frame" else ("duration=10",)
    far, changed = rig(name, sets, longest_wait=60)
    done = hosts.run(name, changed)
    assert done.outcome == "finished", done.reason
    session = far.session()
    assert session.in_order
    assert session.counts["limited"] == session.counts["bridged"] == 0


@pytest.mark.parametrize("port", ["udp", "simulator"])
def test_other_data_acquisition_sees_the_test_by_a_trigger(rig: Any, port: str) -> None:
    """High at all samples that a Command of the test drives, and low again in the safe stop."""
    limit = "axes.story_1.limits.levels={displacement: {minimum: -2e-4, maximum: 2e-4}}"
    sets = [BRIEF, limit]
    if port == "udp":
        _, sets = rig(sets=sets, transport=1, trigger="true")
    else:
        sets = [*sets, "port={type: simulator, transport_samples: 1, trigger: true}"]
    seen: list[tuple[int, bool, float]] = []

    class Heard(Collector):
        def measurement(self, measured: Measurement) -> None:
            super().measurement(measured)
            stopping = bool(measured.flags & FLAG_TRIPPED)
            seen.append((measured.sample, stopping, float(measured.auxiliary[-1])))

    loop = Loop(Assembly(files.load(NAME, sets)))
    assert loop.assembly.names.auxiliary == ("trigger [1]",)
    assert loop.run([Heard(loop.assembly.scenario, loop.assembly.names)]).state.name == "TRIPPED"
    broken = next(k for k, stopping, _ in seen if stopping)
    # a command acts a sample later: that of sample 1 at 2, the first one of the safe stop at broken + 2
    assert [high for _, _, high in seen] == [float(2 <= k < broken + 2) for k, _, _ in seen]


def test_volts_that_count_the_other_way_are_those_of_the_rig_file(tmp_path: Path) -> None:
    """The emulator has the same rig file, so its datagrams have volts; what comes out is the simulator's test."""
    port = free_port()
    sets = ["duration=0.6", f"port.port={port}"]
    far = Far(NAME, sets, False, (), "bench_udp")
    try:
        found = hosts.run(NAME, sets, rig="bench_udp", record=tmp_path / "run")
    finally:
        far.close()
    expected = hosts.run(NAME, ["duration=0.6", "port={type: simulator, transport_samples: 1}"], rig="bench_udp")
    assert (found.outcome, expected.outcome) == ("finished", "finished")
    a, b = found.read(), expected.read()
    np.testing.assert_allclose(a.displacement, b.displacement, atol=2e-5)  # a few steps of the converters
    assert np.abs(a.displacement).max() > 1e-3
    np.testing.assert_allclose(a.force, b.force, atol=2e-3 * np.abs(b.force).max())
    again = rths_nodes.read(tmp_path / "run").scenario.axes["story_1"].rig_axis
    assert again is not None
    assert (again.name, again.command.sign, again.displacement.certificate) == ("bench", -1, "D-2026-017")


def test_a_second_sensor_of_the_rig_file_is_there_on_simulator_and_emulator(tmp_path: Path) -> None:
    """Its channel exists, agrees with the first one, and stops the test where it does not."""
    bench, port = tmp_path / "bench.yaml", free_port()
    lines = files.locate("bench_udp", files.RIG).read_text()
    level = "{displacement_disagreement: {channel: lvdt, maximum: 5.0e-4}}"
    lines = lines.replace("deceleration: 20.0}", f"deceleration: 20.0, levels: {level}}}")
    lines = lines.replace("emulator: true,", "emulator: true, auxiliary_names: [lvdt],")
    channel = "{unit: mm, range: 275.0, scale: 27.5, sign: -1, resolution: 0.005, noise_rms: 0.001}"
    bench.write_text(f"{lines}auxiliary:\n  lvdt: {channel}\n")
    for off, outcome in (("1.0", "finished"), ("1.5", "tripped")):
        sets = ["duration=0.9", f"axes.story_1.sensors.second.scale={off}", f"port.port={port}"]
        far = Far(NAME, sets, False, (), str(bench))
        try:
            real = hosts.run(NAME, sets, rig=str(bench))
        finally:
            far.close()
        simulated = hosts.run(NAME, [*sets[:2], "port={type: simulator, transport_samples: 1}"], rig=str(bench))
        for done in (real, simulated):
            assert done.outcome == outcome, done.reason
            assert outcome == "finished" or "story_1.limits.levels.displacement_disagreement" in done.reason


def test_a_level_that_interlocks_drops_the_heartbeat_so_that_the_rig_stops_itself(rig: Any) -> None:
    """By the clock of the rig: no more commands come to it, and it says so; here the test trips with the level."""
    level = "axes.story_1.limits.levels={displacement: {minimum: -2e-4, maximum: 2e-4, action: interlock}}"
    far, changed = rig(sets=["duration=4", level], transport=20, own_clock=True, silence=0.2)
    found = hosts.run(NAME, changed, keep=False)
    assert found.outcome == "tripped"
    assert "axes.story_1.limits.levels.displacement: " in found.reason
    session = far.session()
    assert mentions(session.reason, "command", "came")
    assert not session.in_order


def test_in_lockstep_nothing_that_happens_on_the_way_changes_a_bit(rig: Any, different: Any) -> None:
    wrong = ["lose@20:3", "mute@60:3", "duplicate@100:40", "reorder@150:10", "garbage@200:20", "session@240:5"]
    far, changed = rig(misbehave=wrong)
    found, expected = hosts.run(NAME, changed), hosts.run(NAME, [BRIEF])
    assert found.outcome == "finished", found.reason
    unlike = [each for each in different(found.read(), expected.read()) if not each.startswith("true_")]
    assert unlike == []
    counts, told = far.session().counts, found.timing["port"]
    assert counts["repeated"] >= 40
    assert counts["garbage"] == told["garbage"] > 0
    assert told["foreign"] > 0
    assert told["repeated"] > 0


@pytest.mark.parametrize(
    ("misbehave", "told", "reason"),
    [
        ("hydraulics@100:1", HYDRAULICS_LOW, ()),
        ("hydraulics@100", HYDRAULICS_OFF, ("sample 100", "rig", "hydraulics")),
        ("interlock@100", HYDRAULICS_HIGH, ("sample 100", "udp", "interlock")),
    ],
)
def test_what_somebody_switches_at_the_rig_is_read_back(
    rig: Any, misbehave: str, told: int, reason: tuple[str, ...]
) -> None:
    _, changed = rig(misbehave=[misbehave])
    loop = Loop(Assembly(files.load(NAME, changed)))
    outcome = loop.run()
    port = loop.rig.port
    assert port.hydraulics == told
    assert mentions(outcome.reason, *reason) if reason else not outcome.reason
    assert port.control_mode == bytes([MODE_DISPLACEMENT])
    assert port.heartbeat == loop.rig.ticks
    assert port.active_command is not None
    assert port.active_command.shape == (1,)


@pytest.mark.nodes
@pytest.mark.parametrize("host", ["composed", pytest.param("processes", marks=pytest.mark.soak)])
def test_nodes_in_lockstep_have_the_same_bits(rig: Any, different: Any, host: str, tmp_path: Path) -> None:
    far, changed = rig(sets=HARD, transport=2)
    done = hosts.run(NAME, changed, host=host, record=tmp_path / "run", keep=False)
    assert done.exit_code == 0, done.reason
    expected = rths_nodes.run(NAME, ["port.transport_samples=2", *HARD])
    unlike = [each for each in different(rths_nodes.read(tmp_path / "run"), expected) if each[:5] != "true_"]
    assert unlike == []
    assert far.session().in_order


# What is refused before anything moves


@pytest.mark.parametrize(
    ("emulated", "here", "words"),
    [
        ((), ["servo_rate=512"], ("976562 ns", "1953125 ns")),
        ((), ["port.emulator=false"], ("port.emulator", "simulator")),
        ((), ["port.hold=ramp"], ("controller", "sample")),
        (("own_clock",), [], ("pace", "realtime")),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(
    rig: Any, emulated: Sequence[str], here: Sequence[str], words: tuple[str, ...]
) -> None:
    _, changed = rig(**dict.fromkeys(emulated, True))
    with pytest.raises(ConfigError) as refused:
        rths_nodes.run(NAME, [*changed, *here])
    assert mentions(str(refused.value), *words)


def test_a_rig_that_stands_elsewhere_is_refused(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = rths_nodes.app.emulation.emulator.Receiver

    def elsewhere(*given: Any) -> Any:
        return made(*given[:12], [0.005], *given[13:])

    monkeypatch.setattr("rths_nodes.app.emulation.emulator.Receiver", elsewhere)
    _, changed = rig()
    with pytest.raises(ConfigError, match=naming("axes.story_1", "0.005 m")):
        rths_nodes.run(NAME, changed)


def test_a_rig_that_is_not_there_is_refused() -> None:
    port = free_port()
    with pytest.raises(ConfigError, match=naming("127.0.0.1", port, "0.2 s")):
        rths_nodes.run(NAME, [udp(port, connect_within=0.2), BRIEF])


def test_a_second_test_needs_a_new_session_at_the_rig(rig: Any) -> None:
    far, changed = rig()
    session = far._emulator._receiver
    other = files.load(NAME, changed)
    from rths_nodes.loop.scenario.assembly import Assembly

    first, second = Assembly(other).port, Assembly(other).port
    first.open()
    with pytest.raises(ConfigError, match=naming("refused", "session")):
        second.open()
    first.close()
    assert session is not None


def test_a_node_for_each_axis_is_refused(rig: Any) -> None:
    sets = ["duration=0.2", udp(free_port())]
    with pytest.raises(ConfigError, match=naming("port.type", "udp", "actuator_nodes")):
        hosts.run("three_independent_axes", sets, host="composed", actuator_nodes="per_axis")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([NAME], ("port.type", "simulator")),
        ([NAME, "--set", udp(25010), "--misbehave", "lose"], ("--misbehave", "lose", "KIND", "SAMPLE")),
        ([NAME, "--set", udp(25010), "--misbehave", "loose@1"], ("lose",)),
        ([NAME, "--set", udp(25010, address="192.0.2.1")], ("cannot listen here",)),
    ],
)
def test_what_cannot_be_emulated_is_refused(capsys: Any, words: list[str], told: tuple[str, ...]) -> None:
    assert main(["emulate", *words]) == 2
    assert mentions(capsys.readouterr().err, *told)


def test_a_port_in_use_is_named_with_the_key_to_change(capsys: Any) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert main(["emulate", NAME, "--set", udp(port)]) == 2
    assert mentions(capsys.readouterr().err, f"port.port = {port}", "in use", "another number")


def test_more_channels_than_a_datagram_has_are_refused() -> None:
    nine = ", ".join(f"c{i}" for i in range(9))
    with pytest.raises(ConfigError, match=naming("port.auxiliary_names", "9", "<= 8")):
        rths_nodes.run(NAME, [udp(25010, auxiliary_names=f"[{nine}]"), BRIEF])


@pytest.mark.parametrize(
    ("here", "words"),
    [
        ("stroke=0.24", ("axes.story_1.limits.stroke", "0.24 m", "0.25 m")),
        ("velocity=0.7", ("axes.story_1.limits.velocity", "0.7 m/s", "0.76 m/s")),
        ("force=1.6e6", ("axes.story_1.limits.force", "1.6e+06 N", "1.7e+06 N")),
        ("deceleration=9", ("axes.story_1.limits.deceleration", "9 m/s^2", "10 m/s^2")),
        (
            "deceleration=12",
            ("axes.story_1.limits.deceleration", "12 m/s^2", "10 m/s^2"),
        ),
    ],
)
def test_a_receiver_with_wider_limits_is_refused(rig: Any, here: str, words: tuple[str, ...]) -> None:
    far, changed = rig()
    with pytest.raises(ConfigError, match=naming(*words, "127.0.0.1")):
        rths_nodes.run(NAME, [*changed, f"axes.story_1.limits.{here}"])
    assert far._emulator._receiver.counter == 0


def test_limits_in_volts_are_those_of_the_rig_file(tmp_path: Path) -> None:
    """A receiver with wider ones than it has is refused; a test may have narrower ones than its receiver."""
    there = tmp_path / "wider.yaml"
    words = resource("config", "rigs", "bench_udp.yaml").read_text()
    there.write_text(words.replace("velocity: 1.2, force: 1.8e6", "velocity: 1.3, force: 1.9e6"))
    for rig, refused in ((str(there), True), ("bench_udp", False)):
        sets = ["duration=0.1", f"port.port={free_port()}"]
        far = Far(NAME, sets, False, (), rig)
        try:
            if refused:
                with pytest.raises(ConfigError) as told:
                    hosts.run(NAME, sets, rig="bench_udp")
                assert mentions(str(told.value), "axes.story_1.limits.velocity", "1.2 m/s", "1.3 m/s")
                assert mentions(str(told.value), "limits.force", "1.8e+06 N", "1.9e+06 N")
            else:
                done = hosts.run(NAME, [*sets, "axes.story_1.limits.velocity=1.0"], rig="bench_udp")
                assert done.outcome == "finished"
        finally:
            far.close()


def test_a_receiver_of_version_1_is_refused_by_name() -> None:
    """It answers with reason 5, in its own version: before, nothing but 'no answer' was told."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        there.bind(("127.0.0.1", 0))
        port = int(there.getsockname()[1])

        def answer() -> None:
            data, sender = there.recvfrom(2000)
            head = datagrams.head_of(data)
            head.kind, head.heard, head.reason = datagrams.ANSWER, head.counter, 5
            body = datagrams.packed(head, bytes(16 * head.axes))[: -datagrams.CHECKSUM.size]
            body = body[:4] + b"\x01\x00" + body[6:]
            there.sendto(body + datagrams.CHECKSUM.pack(zlib.crc32(body)), sender)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(ConfigError, match=naming("version 1", "version 2")):
            rths_nodes.run(NAME, [udp(port), BRIEF])
        thread.join(5.0)


def test_the_port_tells_the_build_of_the_receiver(rig: Any) -> None:
    _, changed = rig()
    port = Assembly(files.load(NAME, changed)).port
    assert port.build == ""
    port.open()
    assert port.build == f"{build_number():016x}"
    port.close()


def test_a_stranger_gets_no_state_and_moves_nothing(rig: Any, different: Any) -> None:
    """With opens, begins, closes and commands of both sessions all the while, the bits are those without it."""
    far, changed = rig(sets=(*HARD, "port.session=4711"), transport=1)
    address, ended, came = far._emulator.address, threading.Event(), []

    def attack(stranger: socket.socket) -> None:
        stranger.settimeout(0.0)
        head = datagrams.Head(datagrams.OPEN, 1, 0, period=976562, transport=1)
        row = datagrams.command_rows([0.01], [0.4], np.zeros(0))
        while not ended.is_set():
            for head.session in (4711, 5):
                for head.kind in (datagrams.OPEN, datagrams.BEGIN, datagrams.CLOSE):
                    stranger.sendto(datagrams.packed(head), address)
                head.kind = datagrams.COMMAND
                for head.counter in range(max(far._emulator._receiver.counter - 2, 0), 3):
                    stranger.sendto(datagrams.packed(head, row), address)
            with suppress(OSError):
                while True:
                    came.append(datagrams.head_of(stranger.recv(2000)).kind)

    loop = Loop(Assembly(files.load(NAME, changed)))
    heard = Collector(loop.assembly.scenario, loop.assembly.names)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        thread = threading.Thread(target=attack, args=(stranger,), daemon=True)
        port, opened = loop.rig.port, loop.rig.port.open

        def then_attack(pacer: Any = None) -> None:
            opened(pacer)
            thread.start()

        port.open = then_attack  # the stranger comes when the session is ours
        try:
            outcome = loop.run([heard])
        finally:
            ended.set()
            thread.join(10.0)
    assert outcome.reason == ""
    expected = rths_nodes.run(NAME, ["port={type: simulator, transport_samples: 1}", *HARD])
    unlike = [each for each in different(heard.run(), expected) if not each.startswith("true_")]
    assert unlike == []
    assert set(came) <= {datagrams.ANSWER}
    assert far.session().counts["foreign"] > 0


def test_states_of_another_port_of_the_rigs_address_are_counted_and_not_used(rig: Any, different: Any) -> None:
    """A program on the rig's computer that knows the session sends forged states; no bit of the test changes."""
    far, changed = rig(sets=(*HARD, "port.session=4711"), transport=1)
    loop = Loop(Assembly(files.load(NAME, changed)))
    heard = Collector(loop.assembly.scenario, loop.assembly.names)
    ended, (row, forged) = threading.Event(), (datagrams.STATE_ROW.pack(0.01, 5e5, 0.01, 0, 0), [0])

    def forge(stranger: socket.socket, test_computer: tuple[str, int]) -> None:
        head = datagrams.Head(datagrams.STATE, 1, 4711, period=976562, transport=1, state=datagrams.RUNNING)
        while not ended.is_set():
            now = far._emulator._receiver.counter
            for head.counter in range(now, now + 4):
                stranger.sendto(datagrams.packed(head, row), test_computer)
                forged[0] += 1

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind(("127.0.0.1", 0))
        opened = loop.rig.port.open
        threads: list[threading.Thread] = []

        def then_forge(pacer: Any = None) -> None:
            opened(pacer)
            port = adopted(loop.rig.port.ear)._link.transport.socket.getsockname()[1]
            threads.append(threading.Thread(target=forge, args=(stranger, ("127.0.0.1", port)), daemon=True))
            threads[0].start()

        loop.rig.port.open = then_forge
        try:
            outcome = loop.run([heard])
        finally:
            ended.set()
            threads[0].join(10.0)
    assert outcome.reason == ""
    assert forged[0] > 100
    assert outcome.timing["port"]["foreign"] > 100
    expected = rths_nodes.run(NAME, ["port={type: simulator, transport_samples: 1}", *HARD])
    assert [each for each in different(heard.run(), expected) if not each.startswith("true_")] == []


def test_a_rig_may_answer_from_another_port_than_it_listens_on(rig: Any) -> None:
    """The peer is the port that answers, also for another process; the port that was addressed is none."""
    far, changed = rig(sets=(BRIEF, "port.session=4711"), transport=1)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listens,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sends,
    ):
        for line in (listens, sends):
            line.bind(("127.0.0.1", 0))
        ended, callers = threading.Event(), [("", 0)]

        def relay() -> None:
            while not ended.is_set():
                for line in select.select([listens, sends], [], [], 0.05)[0]:
                    data, sender = line.recvfrom(2000)
                    if line is listens:
                        callers[0] = sender
                        sends.sendto(data, far._emulator.address)
                    else:
                        sends.sendto(data, callers[0])

        thread = threading.Thread(target=relay, daemon=True)
        thread.start()
        port: Any = Assembly(files.load(NAME, [*changed, f"port.port={listens.getsockname()[1]}"])).port
        port.open()
        try:
            port.begin()
            listener = adopted(port.ear)
            transport = listener._link.transport
            assert (transport._far, transport._peer) == (listens.getsockname(), sends.getsockname())
            forged = datagrams.Head(datagrams.STATE, 1, 4711, 7)
            row = datagrams.STATE_ROW.pack(0.01, 5e5, 0.01, 0, 0)
            listens.sendto(datagrams.packed(forged, row), callers[0])
            states = listener.states(5.0)
            assert [each.measured.sample for each in states] == [0]
            listener.close()
        finally:
            port.close()
            ended.set()
            thread.join(5.0)


# By the clock of the rig


@contextmanager
def process(*words: str, sets: Sequence[str], inside: Sequence[str] = ()) -> Iterator[tuple[Any, dict[str, Any]]]:
    """``rths emulate`` in a process of its own; with what it says first."""
    command = [*inside, sys.executable, "-m", "rths_nodes.app.cli", "emulate", NAME, "--json", *words]
    for each in sets:
        command += ["--set", each]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
        try:
            assert running.stdout is not None
            yield running, json.loads(running.stdout.readline())
        finally:
            running.kill()


def told_at_the_end(running: Any) -> dict[str, Any]:
    """What the emulator says of its session."""
    told: dict[str, Any] = json.loads(running.stdout.readline())
    running.wait(10.0)
    return told


CALM = ("ground_motion.scale=0.005", "bridge.max_bridge=1", "heartbeat.monitor=5", "heartbeat.recorder=5")
"""For tests by the clock on a machine that is busy: so small a motion stays within the limits wherever it goes."""
SLOW = (*CALM, "servo_rate=256", "substeps=3", "duration=1")


def by_the_clock(
    folder: Path,
    *misbehave: str,
    host: str = "composed",
    sets: Sequence[str] = SLOW,
    transport: int = 3,
    **more: Any,
) -> tuple[Any, Any, dict[str, Any]]:
    """A test in real time against an emulator that misbehaves: what it came to, its recording, the words there."""
    words = [part for each in misbehave for part in ("--misbehave", each)]
    every = [*sets, udp(free_port(), transport, **({"silence": 0.5} | more))]
    with process("--own-clock", *words, sets=every) as (running, _):
        done = hosts.run(NAME, every, host=host, pace="realtime", record=folder / "run", keep=False)
        told = {} if {"die@100", "freeze@100"} & set(misbehave) else told_at_the_end(running)
    return done, rths_nodes.read(folder / "run"), told


def whole(run: Any, done: Any, without_answer: int = 0) -> None:
    """No sample is missing in the recording, except the last ones, ``without_answer`` of the rig."""
    assert len(run.time) == done.samples + 1
    assert run.missing.sum() == run.missing[len(run.time) - without_answer :].sum() <= without_answer
    assert len(run.notes) == bool(run.incomplete)
    assert done.messages["complete"]


@pytest.mark.nodes
@pytest.mark.soak
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_by_the_clock_of_the_rig_the_test_finishes(tmp_path: Path, host: str) -> None:
    done, run, told = by_the_clock(tmp_path, host=host)
    assert (done.outcome, told["in_order"]) == ("finished", True), done.reason
    whole(run, done)
    assert done.timing["port"]["transport_declared"] == 3
    assert done.timing["port"]["transport_median"] <= 3


@pytest.mark.nodes
def test_what_is_lost_repeated_reordered_or_foreign_is_bridged_and_flagged(tmp_path: Path) -> None:
    wrong = ("lose@40:2", "mute@80:2", "duplicate@100:20", "reorder@130:4", "garbage@140:5", "session@170:1")
    done, run, told = by_the_clock(tmp_path, *wrong)
    assert done.outcome == "finished", done.reason
    whole(run, done)
    counts, port = told["counts"], done.timing["port"]
    assert counts["bridged"] >= 2
    assert port["lost"] + port["reordered"] >= 3
    assert port["foreign"] == 1
    assert counts["garbage"] >= 5
    assert (run.flags[[80, 81, 170]] & FLAG_BRIDGED).all()
    assert np.isfinite(run.displacement).all()


@pytest.mark.nodes
@pytest.mark.parametrize(
    ("misbehave", "words"),
    [
        ("die@100", ("port.silence", "127.0.0.1")),
        pytest.param("freeze@100", ("port.silence", "rig"), marks=pytest.mark.soak),
        pytest.param("interlock@100", ("udp", "interlock"), marks=pytest.mark.soak),
        pytest.param(
            "lose@100:400",
            ("udp", "receiver"),
            marks=pytest.mark.soak,
        ),
        pytest.param("mute@100:400", ("port.silence", "rig"), marks=pytest.mark.soak),
        pytest.param("session@100:400", ("port.silence", "rig"), marks=pytest.mark.soak),
    ],
)
def test_what_cannot_be_bridged_ends_in_a_safe_stop_with_the_reason(
    tmp_path: Path, misbehave: str, words: tuple[str, ...]
) -> None:
    sets = [*SLOW, "bridge.max_bridge=0.05"]
    done, run, _ = by_the_clock(tmp_path, misbehave, sets=[*sets, "duration=3"], silence=0.2)
    assert done.outcome == "tripped"
    assert mentions(done.reason, *words)
    whole(run, done, without_answer=2)
    assert run.flags[-1] & FLAG_TRIPPED


DIES = """
import os, signal, sys
import rths_nodes

def progress(sample, _):
    if sample > 100:
        os.kill(os.getpid(), signal.SIGKILL)

rths_nodes.run(sys.argv[1], sys.argv[2:], progress=progress)
"""


@pytest.mark.nodes
def test_a_dead_test_computer_leaves_the_rig_at_rest_within_the_stated_time(tmp_path: Path) -> None:
    sets = [*SLOW, "duration=20", "bridge.max_bridge=0.05", udp(free_port(), 8, silence=0.3)]
    with process("--own-clock", sets=sets) as (running, first):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        died = subprocess.run([sys.executable, "-c", DIES, NAME, *sets], env=environment, check=False)
        assert died.returncode == -signal.SIGKILL
        told = told_at_the_end(running)
    assert (told["in_order"], told["reason"]) == (False, datagrams.REASONS[1])
    assert running.returncode == 3
    # bridged counts samples until the watchdog ends the session: it stood long before
    assert told["counts"]["bridged"] >= round(0.3 * 256)
    assert first["rest_s"] < 0.3


@pytest.mark.nodes
@pytest.mark.soak
def test_nodes_in_lockstep_refuse_a_rig_with_a_clock_of_its_own(rig: Any) -> None:
    _, changed = rig(transport=4, own_clock=True)
    with pytest.raises(ConfigError, match=naming("pace", "realtime")):
        hosts.run(NAME, changed, host="composed")


@pytest.mark.nodes
@pytest.mark.soak
def test_a_transport_that_is_longer_than_declared_is_refused() -> None:
    slow = [*SLOW, udp(free_port(), 1)]
    words = r"port\.transport_samples = 1: must be >= \d+, because the round trip to the rig .* takes \d+ samples"
    with process("--own-clock", sets=slow) as (_, said), relay(int(said["port"]), delay=3.0 / 256.0) as near:
        far = [*slow, f"port.port={near}"]
        with pytest.raises(ConfigError, match=words):
            hosts.run(NAME, far, host="composed", pace="realtime", keep=False)


@contextmanager
def relay(far: int, delay: float) -> Iterator[int]:
    """A UDP port from which every datagram takes ``delay`` s longer to the port ``far``, and none back."""
    import time

    near = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    near.bind(("127.0.0.1", 0))
    near.settimeout(0.05)
    ended, asker = threading.Event(), [("127.0.0.1", 9)]

    def run() -> None:
        while not ended.is_set():
            try:
                data, sender = near.recvfrom(2000)
            except TimeoutError:
                continue
            if sender[1] == far:
                near.sendto(data, asker[0])
            else:
                asker[0] = sender
                time.sleep(delay)
                near.sendto(data, ("127.0.0.1", far))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield int(near.getsockname()[1])
    finally:
        ended.set()
        thread.join()
        near.close()


def ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True, capture_output=True)


@contextmanager
def cabled() -> Iterator[tuple[str, str]]:
    """Two network namespaces with a cable between 10.78.0.1 and 10.78.0.2; skips where there are none."""
    names = [f"rths_udp_{os.getpid()}_{end}" for end in "ab"]
    try:
        try:
            for name in names:
                ip(f"netns add {name}")
            ip(f"-n {names[0]} link add cable type veth peer name cable netns {names[1]}")
            for number, name in enumerate(names, 1):
                for words in ("addr add 10.78.0.{}/24 dev cable", "link set cable up", "link set lo up"):
                    ip(f"-n {name} {words.format(number)}")
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces here: {error}")
        yield names[0], names[1]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def run_inside(namespace: str, sets: list[str], recording: Path, *more: str) -> list[str]:
    """Words of a run in real time in the ``namespace``."""
    command = ["ip", "netns", "exec", namespace, sys.executable, "-m", "rths_nodes.app.cli", "run", NAME]
    command += ["--pace", "realtime", "--record", str(recording), *more]
    return command + [word for each in sets for word in ("--set", each)]


@pytest.mark.nodes
@pytest.mark.timeout(120)
@pytest.mark.parametrize("host", ["composed", pytest.param("processes", marks=pytest.mark.soak)])
def test_a_cable_that_is_cut_ends_the_run_with_its_reason(tmp_path: Path, host: str) -> None:
    with cabled() as (here, there):
        sets = [
            *CALM,
            "servo_rate=256",
            "substeps=3",
            "duration=60",
            udp(25011, 4, silence=0.5, address="10.78.0.2"),
        ]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with process("--own-clock", sets=sets, inside=["ip", "netns", "exec", there]):
            command = run_inside(here, sets, tmp_path / "run", "--host", host)
            running = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
            )
            deadline = time.monotonic() + 60.0
            while running.poll() is None and time.monotonic() < deadline:
                if sum(file.stat().st_size for file in (tmp_path / "run").glob("*.mcap")) > 2**16:
                    break
                time.sleep(0.05)
            ip(f"-n {here} link set cable down")
            shown, _ = running.communicate(timeout=60.0)
    assert running.returncode == ExitCode.TRIPPED, shown
    assert "Traceback" not in shown
    reasons = [line for line in shown.splitlines() if line.startswith("reason:")]
    assert len(reasons) == 1
    assert mentions(reasons[0], "port.silence", "10.78.0.2:25011", "0.5 s")


@pytest.mark.nodes
@pytest.mark.soak
def test_across_network_namespaces_with_delay_loss_and_reordering(tmp_path: Path) -> None:
    with cabled() as (here, there):
        shaped = subprocess.run(
            [*("ip", "netns", "exec", there, "tc", "qdisc", "add", "dev", "cable", "root", "netem"),
             *["delay", "2ms", "1ms", "loss", "0.5%", "reorder", "5%"]],
            capture_output=True,
            check=False,
        )  # fmt: skip
        sets = [*SLOW, udp(25010, 4, silence=0.5, address="10.78.0.2")]
        with process("--own-clock", sets=sets, inside=["ip", "netns", "exec", there]) as (running, _):
            command = run_inside(here, sets, tmp_path / "run", "--host", "composed", "--json")
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
            told = told_at_the_end(running)
        assert done.returncode in (0, 4), done.stdout + done.stderr
        assert told["in_order"]
        result = json.loads(done.stdout)
        assert len(rths_nodes.read(tmp_path / "run").time) == result["samples"] + 1
        if shaped.returncode:
            pytest.skip("the kernel has no netem: tried without delay, loss and reordering")
