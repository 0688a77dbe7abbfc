# SPDX-License-Identifier: Apache-2.0
"""Tests of the C side of the UDP port: same datagrams, samples and counts as the port in Python."""

from __future__ import annotations

import math
import random
import shutil
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import emulated_rig
import numpy as np
import pytest
from near_side import SOURCES, STRICT, NearPort, Rig
from sanitized import environment

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import (
    FLAG_BRIDGED,
    INTERLOCK_CLOSED,
    INTERLOCK_OPEN,
    MODE_DISPLACEMENT,
    MODE_FORCE,
    Command,
    Measurement,
)
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head
from rths_nodes.laboratory.ports.udp import UdpPort
from rths_nodes.laboratory.receiver import ReceiverLimits
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.executive import near
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.recording.run import Collector

NAME = "chen_ricles_2010"
SESSION = 4711
udp = partial(emulated_rig.udp, session=SESSION)
PORTS = (UdpPort, NearPort)
ROOT = Path(__file__).parents[2]


def port_of(kind: Any, name: str, sets: list[str]) -> Any:
    """Build the port of a scenario, in Python or in C."""
    scenario = files.load(name, sets)
    rig = None if scenario.rig is None else registry.build("rig", scenario.rig, scenario.dt, len(scenario.axes))
    return kind(scenario.port, scenario.axes, scenario.dt, 0, rig)


# Both ports with equal rigs


class Pair:
    """The ports in Python and in C, each connected to a rig that sends the same states."""

    def __init__(self, name: str = NAME, inputs: int = 0, channels: int = 0, **more: Any) -> None:
        counts = {"auxiliary_inputs": inputs, "auxiliary_names": channels}
        lists = {key: [f"x{i} [V]" for i in range(count)] for key, count in counts.items()}
        more = {"silence": 10.0, **lists, **more}
        scenario = files.load(name, [udp(1, **more)])
        limits = [
            ReceiverLimits(axis.stroke, axis.velocity, axis.deceleration, math.inf, axis.force, axis.stroke)
            for axis in scenario.limits.values()
        ]
        flags = datagrams.EMULATOR | datagrams.TRIGGER | datagrams.WARNING
        self.axes, self.inputs, self.channels = len(limits), inputs, channels
        self.rigs = [Rig(limits, scenario.dt, inputs, channels, flags) for _ in PORTS]
        self.ports = [
            port_of(kind, name, [udp(rig.number, **more)]) for kind, rig in zip(PORTS, self.rigs, strict=True)
        ]
        for port, rig in zip(self.ports, self.rigs, strict=True):
            rig.opened(port)

    def send(self, data: bytes, stranger: int | None = None) -> None:
        for rig in self.rigs:
            (rig.socket if stranger is None else rig.strangers[stranger]).sendto(data, rig.far)

    def ready(self) -> bool:
        ready, ready_in_c = (port.ready() for port in self.ports)
        assert ready == ready_in_c
        return ready

    def read(self) -> Measurement:
        """Return the measurement of both ports."""
        measured, measured_in_c = (port.read() for port in self.ports)
        assert bits(measured) == bits(measured_in_c)
        assert len({port.interlock.replace(port.address, "ADDRESS") for port in self.ports}) == 1
        return measured

    def write(self, command: Command, trigger: bool, warning: bool) -> None:
        for port in self.ports:
            port.wait_tick()
            port.trigger.set(trigger)
            port.warn(warning)
            port.write(command)

    def compare(self) -> None:
        """Compare the datagrams and the counts of both ports."""
        assert self.rigs[0].heard == self.rigs[1].heard
        assert self.ports[0].numbers() == self.ports[1].numbers()

    def close(self) -> None:
        for port, rig in zip(self.ports, self.rigs, strict=True):
            port.close()
            rig.close()


def bits(measured: Measurement) -> tuple[object, ...]:
    """All values of a measurement, as bytes."""
    arrays = measured.displacement, measured.force, measured.command, measured.auxiliary
    end = measured.flags, measured.control_mode, measured.hydraulics, measured.interlock
    numbers = (np.where(np.isnan(values), np.nan, values).tobytes() for values in arrays)
    return (measured.sample, *numbers, *end)


class Sender:
    """Sends states with random values; drops, delays, repeats or forges some of them."""

    def __init__(self, pair: Pair, seed: int, faults: float) -> None:
        self._pair, self._random, self._faults = pair, random.Random(seed), faults
        self.sample = 0
        self._held: list[bytes] = []

    def next(self) -> None:
        """Send the next state, perhaps with a fault."""
        draw, data = self._random, self.state(self.sample)
        if draw.random() >= self._faults:
            self._pair.send(data)
        else:
            self._send_faulty(draw.choice(FAULTS), data)
        if self._held and draw.random() < 0.3:
            self._pair.send(self._held.pop(draw.randrange(len(self._held))))
        self.sample += 1

    def _send_faulty(self, fault: str, data: bytes) -> None:
        pair, draw = self._pair, self._random
        if fault == "held":
            self._held.append(data)
        elif fault == "twice":
            pair.send(data)
            pair.send(data)
        elif fault == "burst":
            for ahead in range(draw.randrange(2, 6)):
                pair.send(self.state(self.sample + ahead))
        elif fault == "old":
            pair.send(self.state(max(0, self.sample - draw.randrange(1, 30))))
            pair.send(data)
        elif fault != "lost":
            pair.send(self._forged(fault, data), draw.randrange(2) if fault.startswith("foreign") else None)
            if draw.random() < 0.7:
                pair.send(data)

    def _forged(self, fault: str, data: bytes) -> bytes:
        draw, pair = self._random, self._pair
        if fault in ("session", "foreign session"):
            return self.state(self.sample, session=SESSION + 1)
        if fault == "foreign":
            return self.state(self.sample)
        if fault == "foreign bytes":
            return draw.randbytes(draw.randrange(0, 900))
        if fault == "bytes":
            return draw.randbytes(draw.choice((0, 1, 35, 36, 68, 768, 769, 1200, 2000)))
        if fault == "bit":
            flipped = bytearray(data)
            flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
            return bytes(flipped)
        if fault == "long":
            return sealed(data[:-4] + bytes(800))
        if fault == "version":
            return sealed(data[:4] + b"\x03\x00" + data[6:-4])
        if fault == "far":
            return self.state(self.sample + draw.choice((99_999, 100_000, 100_001, 2**31, 2**32 - 2000)))
        if fault == "answer":
            return sealed(data[:6] + bytes([draw.choice((3, 17, 99))]) + data[7:-4])
        axes = draw.choice([count for count in (0, 1, 2, 3, 9) if count != pair.axes])
        row = datagrams.STATE_ROW.pack(1.0, 2.0, 3.0, 1, 0)
        head = Head(datagrams.STATE, axes, SESSION, self.sample, auxiliary=draw.choice((pair.channels, 1)))
        return datagrams.packed(head, row * draw.choice((axes, 1)) + bytes(8 * pair.channels))

    def state(self, sample: int, session: int = SESSION) -> bytes:
        draw, pair = self._random, self._pair
        head = Head(datagrams.STATE, pair.axes, session, sample, max(0, sample - draw.choice((0, 0, 0, 1, 2))))
        head.auxiliary, head.hydraulics, head.interlock = pair.channels, draw.randrange(4), 1
        head.flags = draw.choice((0, 0, 0, datagrams.BRIDGED, datagrams.LIMITED, datagrams.SATURATED))
        head.flags |= draw.choice((0, datagrams.TRIGGER)) | draw.choice((0, datagrams.WARNING))
        head.state = datagrams.RUNNING
        rows = b""
        for _ in range(pair.axes):
            numbers = (draw.choice((draw.uniform(-1.0, 1.0), draw.gauss(0.0, 1e-3), 0.0)) for _ in range(3))
            rows += datagrams.STATE_ROW.pack(*numbers, draw.choice((0, 1, 1, 1, 2, 3)), draw.choice((0, 0, 0, 1)))
        channels = (draw.choice((draw.gauss(0.0, 1.0), math.nan)) for _ in range(pair.channels))
        return datagrams.packed(head, rows + struct.pack(f"<{pair.channels}d", *channels))


FAULTS = (
    *("lost", "lost", "held", "twice", "burst", "old", "session", "foreign", "foreign session", "foreign bytes"),
    *("bytes", "bit", "version", "far", "answer", "axes", "long"),
)


def sealed(body: bytes) -> bytes:
    """Append the checksum."""
    return body + datagrams.CHECKSUM.pack(zlib.crc32(body))


def command_of(pair: Pair, draw: random.Random, sample: int) -> Command:
    values = np.array([draw.uniform(-0.1, 0.1) for _ in range(pair.axes)])
    modes = bytes(draw.choice((MODE_DISPLACEMENT, MODE_DISPLACEMENT, MODE_FORCE)) for _ in range(pair.axes))
    inputs = np.array([draw.gauss(0.0, 1.0) for _ in range(pair.inputs)])
    return Command(sample, values, values, inputs, 0, modes if draw.random() < 0.2 else b"")


def compared(seed: int, samples: int, faults: float) -> Pair:
    """Run a session of random states, faults and commands through both ports and compare the results."""
    draw = random.Random(-seed)
    name = draw.choice((NAME, "two_actuator_coupler"))
    with closing(Pair(name, draw.randrange(3), draw.randrange(3), trigger=draw.choice(("true", "false")))) as pair:
        sender = Sender(pair, seed, faults)
        for sample in range(samples):
            for _ in range(50):
                if pair.ready():
                    break
                sender.next()
            assert pair.read().sample == sample
            pair.write(command_of(pair, draw, sample + 1), draw.random() < 0.5, draw.random() < 0.2)
            assert pair.rigs[0].next() == pair.rigs[1].next()
        for port in pair.ports:
            port.close()
        for rig in pair.rigs:
            rig.next()  # close
        pair.compare()
    return pair


def test_datagrams_and_samples_without_faults() -> None:
    pair = compared(0, 100, 0.0)
    kinds = [data[6] for data in pair.rigs[1].heard]
    opens, commands = [datagrams.OPEN] * 65, [datagrams.COMMAND] * 100
    assert kinds == [*opens, datagrams.BEGIN, *commands, datagrams.CLOSE]
    assert pair.ports[1].numbers()["lost"] == 0


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 301))])
def test_faulty_datagrams_give_same_counts_and_samples(seed: int) -> None:
    counts = compared(seed, 300, 0.3).ports[1].numbers()
    for kind in ("lost", "repeated", "reordered", "foreign", "garbage") if seed == 1 else ("lost",):
        assert counts[kind] > 0, kind


def read_and_wait(port: UdpPort) -> None:
    port.read()
    port.wait_tick()


def test_late_states_after_long_gap() -> None:
    """2000 lost states are more than the port remembers."""
    with closing(Pair()) as pair:
        sender = Sender(pair, 1, 0.0)
        for _ in range(100):
            sender.next()
        sender.sample = 2100
        for _ in range(2100):
            while not pair.ready():
                sender.next()
            for port in pair.ports:
                read_and_wait(port)
        for late in (110, 1500, 2098, 1500):  # forgotten, remembered, remembered, repeated
            pair.send(sender.state(late))
        sender.next()
        assert pair.ready()
        pair.compare()
        counts = pair.ports[1].numbers()
        assert (counts["lost"], counts["reordered"], counts["repeated"]) == (2000 - 2, 2, 2)


def test_states_beyond_buffer_are_lost() -> None:
    buffered = 256
    with closing(Pair()) as pair:
        port, rig, sender = pair.ports[1], pair.rigs[1], Sender(pair, 1, 0.0)
        for sample in range(buffered + 3):
            if sample < 4:
                for ahead in range(100 * sample, 100 * (sample + 1)):
                    rig.socket.sendto(sender.state(ahead), rig.far)
            elif not port.ready():
                rig.socket.sendto(sender.state(sample + 1), rig.far)
            read_and_wait(port)
        assert port.numbers()["lost"] > 0
        assert port.sample == buffered + 3


@pytest.mark.parametrize(
    "change", [{"interlock": INTERLOCK_OPEN}, {"state": 3, "reason": 14}, {"state": 4, "reason": 77}]
)
def test_reason_of_stopped_rig(change: dict[str, int]) -> None:
    with closing(Pair()) as pair:
        row = datagrams.STATE_ROW.pack(1e-3, 5.0, 1e-3, 1, 0)
        for sample in range(3):
            head = Head(datagrams.STATE, pair.axes, SESSION, sample, state=datagrams.RUNNING)
            for name, value in change.items() if sample == 2 else ():
                setattr(head, name, value)
            pair.send(datagrams.packed(head, row))
            assert pair.ready()
            pair.read()
            assert bool(pair.ports[1].interlock) == (sample == 2)
            pair.write(Command(sample + 1, np.zeros(1), np.zeros(1)), False, False)


@pytest.mark.parametrize("drops", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_reason_of_silent_rig(drops: bool) -> None:
    with closing(Pair(silence=1.0)) as pair:
        Sender(pair, 1, 0.0).next()
        assert pair.ready()
        pair.read()
        for port in pair.ports:
            if drops:
                port.drop_heartbeat()
        pair.write(Command(1, np.full(1, 1e-3), np.full(1, 1e-3)), False, False)
        end = time.monotonic() + 10.0
        while not all(port.ready() for port in pair.ports) and time.monotonic() < end:
            time.sleep(0.01)
        measured = pair.read()
        assert (measured.command[0], measured.flags) == (1e-3, FLAG_BRIDGED)
        assert math.isnan(measured.force[0])
        assert pair.ports[1].interlock.startswith("port.silence")
        for port, rig in zip(pair.ports, pair.rigs, strict=True):
            port.close()
            rig.socket.setblocking(False)
            with suppress(BlockingIOError):
                while rig.next()[6] != datagrams.CLOSE:
                    pass
            assert (rig.heard[-1][6] != datagrams.CLOSE) == drops  # without commands the rig stops by itself


# Ports with the emulator


@pytest.fixture
def emulated() -> Iterator[Any]:
    """Start an emulated rig in a thread, for consecutive sessions."""
    with emulated_rig.emulated_rigs(math.inf) as start:
        yield start


MISBEHAVIOUR = ("lose@20:3", "mute@60:3", "duplicate@100:40", "reorder@150:10", "session@240:5")
NOISE = ("axes.story_1.sensors.displacement_noise_rms=1e-5", "axes.story_1.sensors.force_noise_rms=100")


@pytest.mark.parametrize(
    ("name", "sets", "transport", "misbehave"),
    [
        (NAME, ["duration=0.4", "axes.story_1.actuator.type=servo_hydraulic", *NOISE], 3, ()),
        (NAME, ["duration=0.4"], 0, MISBEHAVIOUR),
        ("phillips_spencer_2012", ["duration=0.2", "compensator.feedback={}"], 0, ()),
        ("two_actuator_coupler", ["duration=0.2"], 1, ()),
    ],
)
def test_lockstep_run_has_bits_of_python_port(
    emulated: Any, different: Any, name: str, sets: list[str], transport: int, misbehave: tuple[str, ...]
) -> None:
    runs = []
    for kind in PORTS:
        rig = emulated(name, [udp(1, transport), *sets], misbehave=misbehave)
        overrides = [udp(rig.address[1], transport), *sets]
        loop = Loop(Assembly(files.load(name, overrides), port_of(kind, name, overrides)))
        collector = Collector(loop.scenario, loop.assembly.names)
        outcome = loop.run([collector])
        assert (outcome.state.name, outcome.reason) == ("FINISHED", "")
        loop.rig.close()
        runs.append(collector.run())
    assert different(*runs) == []


def refusal(kind: Any, *sets: str) -> str:
    with closing(port_of(kind, NAME, list(sets))) as port, pytest.raises(ConfigError) as refused:
        port.open()
    return str(refused.value)


@pytest.mark.parametrize(
    ("here", "own_clock"),
    [
        (["servo_rate=512"], False),
        (["port.emulator=false"], False),
        (["port.hold=ramp"], False),
        ([], True),
        (["port.trigger=true"], False),
        (["axes.story_1.limits.force=1e3"], False),
        (["port.auxiliary_names=['a [V]']"], False),
    ],
)
def test_incompatible_settings_are_refused_with_same_message(
    emulated: Any, here: list[str], own_clock: bool
) -> None:
    refusals = set()
    for kind in PORTS:
        number = emulated(NAME, [udp(1)], own_clock).address[1]
        refusals.add(refusal(kind, udp(number), *here).replace(str(number), "NUMBER"))
    assert len(refusals) == 1


def test_missing_answer_is_refused_with_same_message() -> None:
    for address in ("127.0.0.1", "192.0.2.1"):
        assert len({refusal(kind, udp(1, address=address, connect_within=0.1)) for kind in PORTS}) == 1
    with pytest.raises(KeyboardInterrupt, match="requested"):
        near.agree(port := port_of(NearPort, NAME, [udp(1)]), port._params, near.INTERRUPTED, port.report)


def test_used_local_port_is_refused_with_same_message() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as used:
        used.bind(("", 0))
        assert len({refusal(kind, udp(1, local_port=used.getsockname()[1])) for kind in PORTS}) == 1


def test_address_without_ipv4_is_refused() -> None:
    message = refusal(NearPort, udp(1, address="'::1'"))
    assert "'::1'" in message
    assert "IPv4" in message


@pytest.mark.nodes
def test_exchange_by_rig_clock(emulated: Any) -> None:
    """A slow motion of 200 samples at 1024 Hz."""
    sets = ["bridge.max_bridge=0.2"]
    rig = emulated(NAME, [udp(1, 20, silence=1.0), *sets], True)
    port = port_of(NearPort, NAME, [udp(rig.address[1], 20, silence=1.0), *sets])
    with closing(port):
        port.open(lambda: 0)
        port.begin()
        for sample in range(200):
            measured = port.read()
            assert (measured.sample, measured.interlock, port.interlock) == (sample, INTERLOCK_CLOSED, "")
            assert abs(measured.displacement[0]) < 1e-3
            following = port.wait_tick()
            port.write(Command(following, *np.full((2, 1), 1e-6 * following)))
        assert port.numbers()["transport_declared"] == 20
        assert port.report.heartbeat == 200


# C code


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_compilers_report_no_warnings(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} here")
    source = tmp_path / "near.c"
    source.write_text(f"#define _GNU_SOURCE\n{near.text()}")
    for paths in (SOURCES, (str(source),)):
        command = [compiler, "-std=c99", "-fsyntax-only", "-Wdouble-promotion", *STRICT, *paths]
        subprocess.run(command, check=True)


def test_cppcheck_finds_nothing() -> None:
    if shutil.which("cppcheck") is None:
        pytest.skip("no cppcheck here")
    options = ["--std=c99", "--enable=warning,style,performance,portability", "--suppress=missingIncludeSystem"]
    done = subprocess.run(["cppcheck", *options, "-q", *SOURCES], capture_output=True, text=True, check=True)
    assert done.stderr == ""


@pytest.mark.timeout(600)
def test_sanitizers_find_nothing_in_near_side(tmp_path: Path) -> None:
    selected = "without_faults or counts_and_samples[1] or late_states or beyond_buffer or silent"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-k", selected, __file__]
    done = subprocess.run(
        command, env=environment(tmp_path), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "5 passed" in done.stdout
