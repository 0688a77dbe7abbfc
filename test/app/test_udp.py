# SPDX-License-Identifier: Apache-2.0
"""Port ``udp`` against an emulated rig over real sockets: equality in lockstep, refusals, and safe stops."""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_fixtures import RunCommand
from emulated_bench import free_port
from emulated_rig import EmulatedRig
from messages import mentions, naming
from programs import RTHS, begun, child_environment, completed, killed, settings

import rths_nodes
from rths_nodes.app import emulation, hosts
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
from rths_nodes.recording.run import Collector, Run

NAME = "chen_ricles_2010"
BRIEF = "duration=0.4"
NOISE = ("axes.story_1.sensors.displacement_noise_rms=1e-5", "axes.story_1.sensors.force_noise_rms=100")


def adopted(listener: Any) -> Any:
    """Return the listener as another process receives it, with a duplicate of its socket."""
    return pickle.loads(ForkingPickler.dumps(listener))


def port_override(**section: Any) -> str:
    return f"port={{{', '.join(f'{key}: {value}' for key, value in section.items())}}}"


def udp(port: int, transport: int = 0, **options: Any) -> str:
    section = {"type": "udp", "emulator": "true", "port": port, "transport_samples": transport}
    return port_override(**section | options)


def simulator(transport: int, **options: Any) -> str:
    return port_override(type="simulator", transport_samples=transport, **options)


def udp_socket() -> socket.socket:
    """Return a UDP socket that is bound to a free port."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.bind(("127.0.0.1", 0))
    return bound


@contextmanager
def in_thread(target: Callable[[threading.Event], object]) -> Iterator[None]:
    """Run ``target`` in a thread, with an event that is set at the end of the ``with`` block."""
    ended = threading.Event()
    thread = threading.Thread(target=target, args=[ended], daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(10.0)


def unequal(different: Any, a: Any, b: Any) -> list[str]:
    """Return the names of the histories that differ, without the true ones, which a rig does not report."""
    return [name for name in different(a, b) if not name.startswith("true_")]


@pytest.fixture
def rig() -> Iterator[Callable[..., tuple[EmulatedRig, list[str]]]]:
    """Starts an emulated rig of a scenario and returns it with the overrides of the test."""
    with ExitStack() as stack:

        def rig(
            name: str = NAME,
            sets: Sequence[str] = (BRIEF,),
            transport: int = 0,
            own_clock: bool = False,
            misbehave: Sequence[str] = (),
            **options: Any,
        ) -> tuple[EmulatedRig, list[str]]:
            overrides = [udp(free_port(), transport, **options), *sets]
            far = EmulatedRig(files.load(name, overrides), own_clock, misbehave)
            return stack.enter_context(far), overrides

        yield rig


HARD = (BRIEF, "seed=7", "axes.story_1.actuator.type=servo_hydraulic", *NOISE)
WRONG = (
    *("axes.story_1.sensors.displacement_offset=1e-4", "axes.story_1.sensors.force_scale=0.9"),
    "axes.story_1.output={static_stiffness: 1.0e9, lost_motion: 1.0e-5, start: 5.0e-5, offset: -5.0e-5}",
)
CASES = {
    "noisy": (NAME, HARD),
    "auxiliary": ("phillips_spencer_2012", ("duration=0.2", "compensator.feedback={}")),
    "two axes": ("two_actuator_coupler", ("duration=0.2",)),
    "wrong rig": (NAME, (*HARD, *WRONG)),
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
def test_lockstep_run_equals_the_simulator(rig: Any, different: Any, case: str, transport: int) -> None:
    name, sets = CASES[case]
    far, overrides = rig(name, sets, transport)
    result = hosts.run(name, overrides)
    expected = hosts.run(name, [simulator(transport), *sets])
    assert (result.outcome, result.reason) == (expected.outcome, expected.reason)
    assert unequal(different, result.read(), expected.read()) == []
    session = far.session()
    assert session.in_order
    assert session.counts["bridged"] == session.counts["limited"] == 0


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(path.stem for path in resource("config", "scenarios").glob("*.yaml")))
def test_receiver_neither_limits_nor_stops_shipped_scenarios(rig: Any, name: str) -> None:
    far, overrides = rig(name, () if name == "tall_frame" else ("duration=10",), longest_wait=60)
    result = hosts.run(name, overrides)
    assert result.outcome == "finished", result.reason
    session = far.session()
    assert session.in_order
    assert session.counts["limited"] == session.counts["bridged"] == 0


@pytest.mark.parametrize("port", ["udp", "simulator"])
def test_trigger_is_high_during_the_test(rig: Any, port: str) -> None:
    """At all samples that a Command of the test drives; it is low in the safe stop."""
    sets = [BRIEF, "axes.story_1.limits.levels={displacement: {minimum: -2e-4, maximum: 2e-4}}"]
    if port == "udp":
        _, sets = rig(sets=sets, transport=1, trigger="true")
    else:
        sets.append(simulator(1, trigger="true"))
    samples: list[tuple[int, bool, float]] = []

    class Triggers(Collector):
        def measurement(self, measured: Measurement) -> None:
            super().measurement(measured)
            stopping = bool(measured.flags & FLAG_TRIPPED)
            samples.append((measured.sample, stopping, float(measured.auxiliary[-1])))

    loop = Loop(Assembly(files.load(NAME, sets)))
    assert loop.assembly.names.auxiliary == ("trigger [1]",)
    assert loop.run([Triggers(loop.assembly.scenario, loop.assembly.names)]).state.name == "TRIPPED"
    tripped = next(k for k, stopping, _ in samples if stopping)
    # a command acts a sample later: the command of sample 1 at 2, the first of the safe stop at tripped + 2
    assert [high for _, _, high in samples] == [float(2 <= k < tripped + 2) for k, _, _ in samples]


def test_volts_of_a_rig_file_equal_the_simulator(tmp_path: Path) -> None:
    """The emulator has the same rig file, with a negative sign; its datagrams have volts."""
    sets = ["duration=0.6", f"port.port={free_port()}"]
    with EmulatedRig(files.load(NAME, sets, rig="bench_udp")):
        result = hosts.run(NAME, sets, rig="bench_udp", record=tmp_path / "run")
    expected = hosts.run(NAME, [sets[0], simulator(1)], rig="bench_udp")
    assert (result.outcome, expected.outcome) == ("finished", "finished")
    a, b = result.read(), expected.read()
    np.testing.assert_allclose(a.displacement, b.displacement, atol=2e-5)  # a few steps of the converters
    assert np.abs(a.displacement).max() > 1e-3
    np.testing.assert_allclose(a.force, b.force, atol=2e-3 * np.abs(b.force).max())
    axis = rths_nodes.read(tmp_path / "run").scenario.axes["story_1"].rig_axis
    assert (axis.name, axis.command.sign, axis.displacement.certificate) == ("bench", -1, "D-2026-017")


def test_second_sensor_stops_the_test_if_it_disagrees(tmp_path: Path) -> None:
    """On the emulator and on the simulator."""
    bench = tmp_path / "bench.yaml"
    lines = files.locate("bench_udp", files.RIG).read_text()
    level = "{displacement_disagreement: {channel: lvdt, maximum: 5.0e-4}}"
    lines = lines.replace("deceleration: 20.0}", f"deceleration: 20.0, levels: {level}}}")
    lines = lines.replace("emulator: true,", "emulator: true, auxiliary_names: [lvdt],")
    channel = "{unit: mm, range: 275.0, scale: 27.5, sign: -1, resolution: 0.005, noise_rms: 0.001}"
    bench.write_text(f"{lines}auxiliary:\n  lvdt: {channel}\n")
    for scale, outcome in (("1.0", "finished"), ("1.5", "tripped")):
        sets = ["duration=0.9", f"axes.story_1.sensors.second.scale={scale}"]
        port = f"port.port={free_port()}"
        with EmulatedRig(files.load(NAME, [*sets, port], rig=str(bench))):
            emulated = hosts.run(NAME, [*sets, port], rig=str(bench))
        simulated = hosts.run(NAME, [*sets, simulator(1)], rig=str(bench))
        for result in (emulated, simulated):
            assert result.outcome == outcome, result.reason
            assert outcome == "finished" or "story_1.limits.levels.displacement_disagreement" in result.reason


def test_interlock_level_stops_heartbeat_and_rig(rig: Any) -> None:
    """By the clock of the rig, which reports missing commands; the reason of the test is the level."""
    level = "axes.story_1.limits.levels={displacement: {minimum: -2e-4, maximum: 2e-4, action: interlock}}"
    far, overrides = rig(sets=["duration=4", level], transport=20, own_clock=True, silence=0.2)
    result = hosts.run(NAME, overrides, keep=False)
    assert result.outcome == "tripped"
    assert "axes.story_1.limits.levels.displacement: " in result.reason
    session = far.session()
    assert mentions(session.reason, "command", "came")
    assert not session.in_order


def test_network_faults_in_lockstep_change_no_bit(rig: Any, different: Any) -> None:
    faults = ["lose@20:3", "mute@60:3", "duplicate@100:40", "reorder@150:10", "garbage@200:20", "session@240:5"]
    far, overrides = rig(misbehave=faults)
    result, expected = hosts.run(NAME, overrides), hosts.run(NAME, [BRIEF])
    assert result.outcome == "finished", result.reason
    assert unequal(different, result.read(), expected.read()) == []
    counts, port = far.session().counts, result.timing["port"]
    assert counts["repeated"] >= 40
    assert counts["garbage"] == port["garbage"] > 0
    assert port["foreign"] > 0
    assert port["repeated"] > 0


@pytest.mark.parametrize(
    ("misbehave", "hydraulics", "reason"),
    [
        ("hydraulics@100:1", HYDRAULICS_LOW, ()),
        ("hydraulics@100", HYDRAULICS_OFF, ("sample 100", "rig", "hydraulics")),
        ("interlock@100", HYDRAULICS_HIGH, ("sample 100", "udp", "interlock")),
    ],
)
def test_switches_of_the_rig_are_read_back(
    rig: Any, misbehave: str, hydraulics: int, reason: tuple[str, ...]
) -> None:
    _, overrides = rig(misbehave=[misbehave])
    loop = Loop(Assembly(files.load(NAME, overrides)))
    outcome = loop.run()
    port = loop.rig.port
    assert port.hydraulics == hydraulics
    assert mentions(outcome.reason, *reason) if reason else not outcome.reason
    assert (port.control_mode, port.heartbeat) == (bytes([MODE_DISPLACEMENT]), loop.rig.ticks)
    assert port.active_command.shape == (1,)


@pytest.mark.nodes
@pytest.mark.parametrize("host", ["composed", pytest.param("processes", marks=pytest.mark.soak)])
def test_nodes_in_lockstep_equal_the_simulator(rig: Any, different: Any, host: str, tmp_path: Path) -> None:
    far, overrides = rig(sets=HARD, transport=2)
    result = hosts.run(NAME, overrides, host=host, record=tmp_path / "run", keep=False)
    assert result.exit_code == 0, result.reason
    expected = rths_nodes.run(NAME, ["port.transport_samples=2", *HARD])
    assert unequal(different, rths_nodes.read(tmp_path / "run"), expected) == []
    assert far.session().in_order


# Refusals before motion


@pytest.mark.parametrize(
    ("emulated", "here", "words"),
    [
        ((), ["servo_rate=512"], ("976562 ns", "1953125 ns")),
        ((), ["port.emulator=false"], ("port.emulator", "real")),
        ((), ["port.hold=ramp"], ("controller", "sample")),
        (("own_clock",), [], ("pace", "realtime")),
    ],
)
def test_incompatible_settings_are_refused(
    rig: Any, emulated: Sequence[str], here: Sequence[str], words: tuple[str, ...]
) -> None:
    _, overrides = rig(**dict.fromkeys(emulated, True))
    with pytest.raises(ConfigError, match=naming(*words)):
        rths_nodes.run(NAME, [*overrides, *here])


def test_rig_at_another_position_is_refused(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = emulation.Receiver
    monkeypatch.setattr(
        emulation, "Receiver", lambda *arguments: receiver(*arguments[:12], [0.005], *arguments[13:])
    )
    _, overrides = rig()
    with pytest.raises(ConfigError, match=naming("axes.story_1", "0.005 m")):
        rths_nodes.run(NAME, overrides)


def test_missing_rig_is_refused() -> None:
    port = free_port()
    with pytest.raises(ConfigError, match=naming("127.0.0.1", port, "0.2 s", "rths emulate")) as refused:
        rths_nodes.run(NAME, [udp(port, connect_within=0.2), BRIEF])
    assert not mentions(str(refused.value), "port.address"), "the address is not to blame"
    threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        rths_nodes.run(NAME, [udp(port, connect_within=60.0), BRIEF])


def test_second_session_at_the_rig_is_refused(rig: Any) -> None:
    first, second = (Assembly(files.load(NAME, overrides)).port for overrides in [rig()[1]] * 2)
    first.open()
    with pytest.raises(ConfigError, match=naming("refused", "session")):
        second.open()
    first.close()


def test_node_per_axis_is_refused() -> None:
    sets = ["duration=0.2", udp(free_port())]
    with pytest.raises(ConfigError, match=naming("port.type", "udp", "actuator_nodes")):
        hosts.run("three_independent_axes", sets, host="composed", actuator_nodes="per_axis")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([NAME], ("port.type", "simulator")),
        ([NAME, "--set", udp(25010), "--misbehave", "lose"], ("--misbehave", "lose", "KIND", "SAMPLE")),
        ([NAME, "--set", udp(25010), "--misbehave", "loose@1"], ("lose",)),
        ([NAME, "--set", udp(25010, address="192.0.2.1")], ("cannot listen here",)),
    ],
)
def test_emulate_refuses_invalid_options(refusal: RunCommand, words: list[str], parts: tuple[str, ...]) -> None:
    assert mentions(refusal("emulate", *words), *parts)


def test_emulate_refuses_a_port_in_use(refusal: RunCommand) -> None:
    with udp_socket() as taken:
        reason = refusal("emulate", NAME, "--set", udp(port := taken.getsockname()[1]))
    assert mentions(reason, f"port.port = {port}", "in use", "another number")


def test_too_many_channels_for_a_datagram_are_refused() -> None:
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
        ("deceleration=12", ("axes.story_1.limits.deceleration", "12 m/s^2", "10 m/s^2")),
    ],
)
def test_receiver_with_wider_limits_is_refused(rig: Any, here: str, words: tuple[str, ...]) -> None:
    far, overrides = rig()
    with pytest.raises(ConfigError, match=naming(*words, "127.0.0.1")):
        rths_nodes.run(NAME, [*overrides, f"axes.story_1.limits.{here}"])
    assert far.emulator._receiver.counter == 0


def test_receiver_with_wider_limits_in_volts_is_refused(tmp_path: Path) -> None:
    """A test may have narrower limits than its receiver."""
    wider, sets = tmp_path / "wider.yaml", ["duration=0.1", f"port.port={free_port()}"]
    text = resource("config", "rigs", "bench_udp.yaml").read_text()
    wider.write_text(text.replace("velocity: 1.2, force: 1.8e6", "velocity: 1.3, force: 1.9e6"))
    with EmulatedRig(files.load(NAME, sets, rig=str(wider))), pytest.raises(ConfigError) as refused:
        hosts.run(NAME, sets, rig="bench_udp")
    assert mentions(str(refused.value), "axes.story_1.limits.velocity", "1.2 m/s", "1.3 m/s")
    assert mentions(str(refused.value), "limits.force", "1.8e+06 N", "1.9e+06 N")
    sets = ["duration=0.1", f"port.port={free_port()}"]
    with EmulatedRig(files.load(NAME, sets, rig="bench_udp")):
        result = hosts.run(NAME, [*sets, "axes.story_1.limits.velocity=1.0"], rig="bench_udp")
    assert result.outcome == "finished"


def test_receiver_of_version_1_is_refused_by_version() -> None:
    """They answer with reason 5, in their own version; only "no answer" was reported."""
    with udp_socket() as receiver:

        def answer(_: threading.Event) -> None:
            data, sender = receiver.recvfrom(2000)
            head = datagrams.head_of(data)
            head.kind, head.heard, head.reason = datagrams.ANSWER, head.counter, 5
            body = datagrams.packed(head, bytes(16 * head.axes))[: -datagrams.CHECKSUM.size]
            body = body[:4] + b"\x01\x00" + body[6:]
            receiver.sendto(body + datagrams.CHECKSUM.pack(zlib.crc32(body)), sender)

        with in_thread(answer), pytest.raises(ConfigError, match=naming("version 1", "version 2")):
            rths_nodes.run(NAME, [udp(receiver.getsockname()[1]), BRIEF])


def test_port_reports_the_build_of_the_receiver(rig: Any) -> None:
    _, overrides = rig()
    port = Assembly(files.load(NAME, overrides)).port
    assert port.build == ""
    port.open()
    assert port.build == f"{build_number():016x}"
    port.close()


def run_attacked(overrides: Sequence[str], attack: Callable[..., object]) -> tuple[Any, Run]:
    """Run a test and, once its session is open, ``attack(ended, port of the test computer)`` in a thread."""
    loop = Loop(Assembly(files.load(NAME, overrides)))
    collector = Collector(loop.assembly.scenario, loop.assembly.names)
    port, opened = loop.rig.port, loop.rig.port.open
    with ExitStack() as stack:

        def open_and_attack(pacer: Any = None) -> None:
            opened(pacer)
            number = adopted(port.ear)._link.transport.socket.getsockname()[1]
            stack.enter_context(in_thread(lambda ended: attack(ended, number)))

        port.open = open_and_attack
        outcome = loop.run([collector])
    return outcome, collector.run()


def test_datagrams_of_strangers_move_nothing(rig: Any, different: Any) -> None:
    """A stranger sends openings, beginnings, ends and commands of two sessions, and receives no state."""
    far, overrides = rig(sets=(*HARD, "port.session=4711"), transport=1)
    received: list[int] = []

    def attack(ended: threading.Event, _: int) -> None:
        head = datagrams.Head(datagrams.OPEN, 1, 0, period=976562, transport=1)
        row = datagrams.command_rows([0.01], [0.4], np.zeros(0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.settimeout(0.0)
            while not ended.is_set():
                for head.session in (4711, 5):
                    for head.kind in (datagrams.OPEN, datagrams.BEGIN, datagrams.CLOSE):
                        stranger.sendto(datagrams.packed(head), far.emulator.address)
                    head.kind = datagrams.COMMAND
                    for head.counter in range(max(far.emulator._receiver.counter - 2, 0), 3):
                        stranger.sendto(datagrams.packed(head, row), far.emulator.address)
                with suppress(OSError):
                    while True:
                        received.append(datagrams.head_of(stranger.recv(2000)).kind)

    outcome, run = run_attacked(overrides, attack)
    assert outcome.reason == ""
    assert unequal(different, run, rths_nodes.run(NAME, [simulator(1), *HARD])) == []
    assert set(received) <= {datagrams.ANSWER}
    assert far.session().counts["foreign"] > 0


def test_forged_states_from_another_port_are_counted_and_not_used(rig: Any, different: Any) -> None:
    """A program on the rig's computer knows the session."""
    far, overrides = rig(sets=(*HARD, "port.session=4711"), transport=1)
    row, forged = datagrams.STATE_ROW.pack(0.01, 5e5, 0.01, 0, 0), []

    def attack(ended: threading.Event, port: int) -> None:
        head = datagrams.Head(datagrams.STATE, 1, 4711, period=976562, transport=1, state=datagrams.RUNNING)
        with udp_socket() as stranger:
            while not ended.is_set():
                now = far.emulator._receiver.counter
                for head.counter in range(now, now + 4):
                    stranger.sendto(datagrams.packed(head, row), ("127.0.0.1", port))
                    forged.append(head.counter)

    outcome, run = run_attacked(overrides, attack)
    assert outcome.reason == ""
    assert len(forged) > 100
    assert outcome.timing["port"]["foreign"] > 100
    assert unequal(different, run, rths_nodes.run(NAME, [simulator(1), *HARD])) == []


def test_rig_may_answer_from_another_port(rig: Any) -> None:
    """The peer is the port that answers, also in another process; the addressed port is not."""
    far, overrides = rig(sets=(BRIEF, "port.session=4711"), transport=1)
    with udp_socket() as listens, udp_socket() as sends:
        callers = [("", 0)]

        def relay(ended: threading.Event) -> None:
            while not ended.is_set():
                for line in select.select([listens, sends], [], [], 0.05)[0]:
                    data, sender = line.recvfrom(2000)
                    if line is listens:
                        callers[0] = sender
                        sends.sendto(data, far.emulator.address)
                    else:
                        sends.sendto(data, callers[0])

        with in_thread(relay):
            port: Any = Assembly(files.load(NAME, [*overrides, f"port.port={listens.getsockname()[1]}"])).port
            port.open()
            with closing(port):
                port.begin()
                listener = adopted(port.ear)
                transport = listener._link.transport
                assert (transport._far, transport._peer) == (listens.getsockname(), sends.getsockname())
                forged = datagrams.Head(datagrams.STATE, 1, 4711, 7)
                row = datagrams.STATE_ROW.pack(0.01, 5e5, 0.01, 0, 0)
                listens.sendto(datagrams.packed(forged, row), callers[0])
                assert [state.measured.sample for state in listener.states(5.0)] == [0]
                listener.close()


# By the clock of the rig


@contextmanager
def emulate(*words: str, sets: Sequence[str], inside: Sequence[str] = ()) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Start ``rths emulate`` and yield the process and its first report."""
    command = [*inside, *RTHS, "emulate", NAME, "--own-clock", "--json", *words, *settings(*sets)]
    with killed(begun(command, stderr=None)) as process:
        yield process, json.loads(process.stdout.readline())


def last_report(process: Any) -> dict[str, Any]:
    """Wait for the end of the emulator and return its report on the session."""
    report: dict[str, Any] = json.loads(process.stdout.readline())
    process.wait(10.0)
    return report


CALM = ("ground_motion.scale=0.005", "bridge.max_bridge=1", "heartbeat.monitor=5", "heartbeat.recorder=5")
"""For tests by the clock on a busy machine: the motion is so small that no bridge leaves the limits."""
SLOW = (*CALM, "servo_rate=256", "substeps=3", "duration=1")


def run_by_the_clock(
    folder: Path,
    *misbehave: str,
    host: str = "composed",
    sets: Sequence[str] = SLOW,
    transport: int = 3,
    **options: Any,
) -> tuple[Any, Any, dict[str, Any]]:
    """Return result and recording of a test against an emulator that misbehaves, and the emulator's report."""
    words = [word for fault in misbehave for word in ("--misbehave", fault)]
    overrides = [*sets, udp(free_port(), transport, **({"silence": 0.5} | options))]
    with emulate(*words, sets=overrides) as (process, _):
        result = hosts.run(NAME, overrides, host=host, pace="realtime", record=folder / "run", keep=False)
        report = {} if {"die@100", "freeze@100"} & set(misbehave) else last_report(process)
    return result, rths_nodes.read(folder / "run"), report


def assert_complete(run: Any, result: Any, without_answer: int = 0) -> None:
    """Assert that no sample is missing, except the last ones ``without_answer`` of the rig."""
    assert len(run.time) == result.samples + 1
    assert run.missing.sum() == run.missing[len(run.time) - without_answer :].sum() <= without_answer
    assert len(run.notes) == bool(run.incomplete)
    assert result.messages["complete"]


@pytest.mark.nodes
@pytest.mark.soak
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_realtime_run_finishes(tmp_path: Path, host: str) -> None:
    result, run, report = run_by_the_clock(tmp_path, host=host)
    assert (result.outcome, report["in_order"]) == ("finished", True), result.reason
    assert_complete(run, result)
    assert result.timing["port"]["transport_declared"] == 3
    assert result.timing["port"]["transport_median"] <= 3


@pytest.mark.nodes
def test_network_faults_are_bridged_and_flagged(tmp_path: Path) -> None:
    faults = ("lose@40:2", "mute@80:2", "duplicate@100:20", "reorder@130:4", "garbage@140:5", "session@170:1")
    result, run, report = run_by_the_clock(tmp_path, *faults)
    assert result.outcome == "finished", result.reason
    assert_complete(run, result)
    counts, port = report["counts"], result.timing["port"]
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
        ("lose@100:30", ("bridge.max_bridge", "rig")),
        pytest.param("mute@100:400", ("port.silence", "rig"), marks=pytest.mark.soak),
        pytest.param("session@100:400", ("port.silence", "rig"), marks=pytest.mark.soak),
    ],
)
def test_longer_faults_end_in_a_safe_stop(tmp_path: Path, misbehave: str, words: tuple[str, ...]) -> None:
    sets = [*SLOW, "bridge.max_bridge=0.05", "duration=3"]
    result, run, _ = run_by_the_clock(tmp_path, misbehave, sets=sets, silence=0.2)
    assert result.outcome == "tripped"
    assert mentions(result.reason, *words)
    assert_complete(run, result, without_answer=2)
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
def test_killed_test_computer_leaves_the_rig_at_rest_in_stated_time(tmp_path: Path) -> None:
    sets = [*SLOW, "duration=20", "bridge.max_bridge=0.05", udp(free_port(), 8, silence=0.3)]
    with emulate(sets=sets) as (process, first_report):
        died = subprocess.run([sys.executable, "-c", DIES, NAME, *sets], env=child_environment(), check=False)
        assert died.returncode == -signal.SIGKILL
        report = last_report(process)
    assert (report["in_order"], report["reason"]) == (False, datagrams.REASONS[1])
    assert process.returncode == 3
    # the count includes the samples at rest, until the watchdog ends the session
    assert report["counts"]["bridged"] >= round(0.3 * 256)
    assert first_report["rest_s"] < 0.3


@pytest.mark.nodes
@pytest.mark.soak
def test_lockstep_nodes_refuse_a_rig_with_its_own_clock(rig: Any) -> None:
    _, overrides = rig(transport=4, own_clock=True)
    with pytest.raises(ConfigError, match=naming("pace", "realtime")):
        hosts.run(NAME, overrides, host="composed")


@pytest.mark.nodes
@pytest.mark.soak
def test_transport_longer_than_declared_is_refused() -> None:
    sets = [*SLOW, udp(free_port(), 1)]
    reason = r"port\.transport_samples = 1: must be >= \d+, because the round trip to the rig .* takes \d+ samples"
    with (
        emulate(sets=sets) as (_, report),
        delaying_relay(int(report["port"]), delay=3.0 / 256.0) as port,
        pytest.raises(ConfigError, match=reason),
    ):
        hosts.run(NAME, [*sets, f"port.port={port}"], host="composed", pace="realtime", keep=False)


@contextmanager
def delaying_relay(far: int, delay: float) -> Iterator[int]:
    """Yield a UDP port from which datagrams reach the port ``far`` after ``delay`` s; answers are not delayed."""
    callers = [("127.0.0.1", 9)]
    with udp_socket() as near:
        near.settimeout(0.05)

        def relay(ended: threading.Event) -> None:
            while not ended.is_set():
                with suppress(TimeoutError):
                    data, sender = near.recvfrom(2000)
                    if sender[1] == far:
                        near.sendto(data, callers[0])
                    else:
                        callers[0] = sender
                        time.sleep(delay)
                        near.sendto(data, ("127.0.0.1", far))

        with in_thread(relay):
            yield int(near.getsockname()[1])


def ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True, capture_output=True)


@contextmanager
def cabled() -> Iterator[tuple[list[str], list[str]]]:
    """Two network namespaces with a cable between 10.78.0.1 and 10.78.0.2, as commands that enter them."""
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
        here, there = (["ip", "netns", "exec", name] for name in names)
        yield here, there
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def realtime_run(inside: list[str], sets: list[str], recording: Path, *words: str) -> list[str]:
    command = [*inside, *RTHS, "run", NAME, "--pace", "realtime", "--record", str(recording)]
    return [*command, *words, *settings(*sets)]


@pytest.mark.nodes
@pytest.mark.timeout(120)
@pytest.mark.parametrize("host", ["composed", pytest.param("processes", marks=pytest.mark.soak)])
def test_cut_cable_ends_the_run_with_one_reason(tmp_path: Path, host: str) -> None:
    sets = [*SLOW, "duration=60", udp(25011, 4, silence=0.5, address="10.78.0.2")]
    with cabled() as (here, there), emulate(sets=sets, inside=there):
        running = begun(realtime_run(here, sets, tmp_path / "run", "--host", host), stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 60.0
        while running.poll() is None and time.monotonic() < deadline:
            if sum(file.stat().st_size for file in (tmp_path / "run").glob("*.mcap")) > 2**16:
                break
            time.sleep(0.05)
        ip(f"-n {here[-1]} link set cable down")
        shown, _ = running.communicate(timeout=60.0)
    assert running.returncode == ExitCode.TRIPPED, shown
    assert "Traceback" not in shown
    reasons = [line for line in shown.splitlines() if line.startswith("reason:")]
    assert len(reasons) == 1
    assert mentions(reasons[0], "port.silence", "10.78.0.2:25011", "0.5 s")


@pytest.mark.nodes
@pytest.mark.soak
def test_run_over_a_network_with_delay_loss_and_reordering(tmp_path: Path) -> None:
    with cabled() as (here, there):
        netem = "tc qdisc add dev cable root netem delay 2ms 1ms loss 0.5% reorder 5%"
        shaped = subprocess.run([*there, *netem.split()], capture_output=True, check=False)
        sets = [*SLOW, udp(25010, 4, silence=0.5, address="10.78.0.2")]
        with emulate(sets=sets, inside=there) as (process, _):
            command = realtime_run(here, sets, tmp_path / "run", "--host", "composed", "--json")
            done = completed(command)
            report = last_report(process)
        assert done.returncode in (0, 4), done.stdout + done.stderr
        assert report["in_order"]
        assert len(rths_nodes.read(tmp_path / "run").time) == json.loads(done.stdout)["samples"] + 1
        if shaped.returncode:
            pytest.skip("the kernel has no netem: tried without delay, loss and reordering")


# Addresses of a rig: names with two addresses, answers from another address, and unreachable addresses

SHORT = "duration=0.2"


def port_at(address: str, number: int) -> str:
    return udp(number, address=address, connect_within=2.0)


@pytest.fixture
def port() -> Iterator[int]:
    """Port of an emulated rig that listens on all addresses."""
    port = free_port()
    with EmulatedRig(files.load(NAME, [port_at("0.0.0.0", port), SHORT])):
        yield port


def reason_of_refusal(address: str, port: int) -> str:
    with pytest.raises(ConfigError) as refused:
        hosts.run(NAME, [port_at(address, port), SHORT])
    return str(refused.value)


def test_name_with_ipv6_and_ipv4_address_reaches_the_rig(port: int, tmp_path: Path) -> None:
    """The receivers listen on IPv4; the file of hosts has ::1 first."""
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not mount a file (unshare -Urm)")
    (tmp_path / "hosts").write_text("::1 rig localhost\n127.0.0.1 rig localhost\n")
    program = f'mount --bind {tmp_path}/hosts /etc/hosts && exec "$@"'
    run = [*RTHS, "run", NAME, "--no-record", "--set", SHORT, "--set", port_at("localhost", port)]
    done = completed(["unshare", "-Urm", "sh", "-c", program, "sh", *run], cwd=tmp_path, timeout=60.0)
    assert done.returncode == 0, done.stderr


def test_answer_from_another_address_is_reported(port: int) -> None:
    assert mentions(reason_of_refusal("127.0.0.2", port), f"127.0.0.2:{port}", "127.0.0.1", "port.address")


def test_unreachable_address_is_reported_with_reason() -> None:
    """A broadcast address, for which the socket has no permission."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender, pytest.raises(PermissionError):
        sender.sendto(b"", ("127.255.255.255", 9))
    assert mentions(reason_of_refusal("127.255.255.255", free_port()), "127.255.255.255", "Permission denied")
