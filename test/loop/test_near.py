# SPDX-License-Identifier: Apache-2.0
"""The near side of the port udp in C: the same datagrams, samples and counts as the port in Python."""

from __future__ import annotations

import math
import random
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from near_side import SOURCES, STRICT, NearPort, Rig
from sanitized import environment

from rths_nodes.app.emulation.emulator import Emulator
from rths_nodes.app.emulation.misbehaviour import parse
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

if not any(map(shutil.which, ("cc", "gcc", "clang"))):
    pytest.skip("no C compiler here", allow_module_level=True)

NAME = "chen_ricles_2010"
SESSION = 4711
PORTS = (UdpPort, NearPort)
ROOT = Path(__file__).parents[2]


def udp(number: int, transport: int = 1, **more: Any) -> str:
    """The override that puts the port udp into a scenario."""
    given = {"type": "udp", "emulator": "true", "port": number, "transport_samples": transport, "session": SESSION}
    return f"port={{{', '.join(f'{key}: {value}' for key, value in (given | more).items())}}}"


def port_of(made: Any, name: str, sets: list[str]) -> Any:
    """The port of a scenario, of one of the two kinds."""
    scenario = files.load(name, sets)
    n_axes = len(scenario.axes)
    rig = None if scenario.rig is None else registry.build("rig", scenario.rig, scenario.dt, n_axes)
    return made(scenario.port, scenario.axes, scenario.dt, 0, rig)


# -- against one rig, by turns


class Pair:
    """The port in Python and the one in C, each at a rig that sends the same."""

    def __init__(self, name: str = NAME, inputs: int = 0, channels: int = 0, **more: Any) -> None:
        named = {"auxiliary_inputs": inputs, "auxiliary_names": channels}
        lists = {key: [f"x{i} [V]" for i in range(count)] for key, count in named.items()}
        more = {"silence": 10.0, **lists, **more}
        scenario = files.load(name, [udp(1, **more)])
        limits = [
            ReceiverLimits(each.stroke, each.velocity, each.deceleration, math.inf, each.force, each.stroke)
            for each in scenario.limits.values()
        ]
        flags = datagrams.EMULATOR | datagrams.TRIGGER | datagrams.WARNING
        self.axes, self.inputs, self.channels = len(limits), inputs, channels
        self.rigs = [Rig(limits, scenario.dt, inputs, channels, flags) for _ in PORTS]
        self.ports = [
            port_of(made, name, [udp(rig.number, **more)]) for made, rig in zip(PORTS, self.rigs, strict=True)
        ]
        for port, rig in zip(self.ports, self.rigs, strict=True):
            rig.opened(port)

    def send(self, data: bytes, stranger: int | None = None) -> None:
        for rig in self.rigs:
            (rig.socket if stranger is None else rig.strangers[stranger]).sendto(data, rig.far)

    def ready(self) -> bool:
        one, other = (port.ready() for port in self.ports)
        assert one == other
        return one

    def read(self) -> Measurement:
        """Return the measurement of both."""
        one, other = (port.read() for port in self.ports)
        assert bits(one) == bits(other)
        reasons = {port.interlock.replace(port.address, "there") for port in self.ports}
        assert len(reasons) == 1
        return one

    def write(self, command: Command, trigger: bool, warning: bool) -> None:
        for port in self.ports:
            port.wait_tick()
            port.trigger.set(trigger)
            port.warn(warning)
            port.write(command)

    def same(self) -> list[bytes]:
        """Compare the datagrams and the counts of both; return the datagrams."""
        one, other = (rig.heard for rig in self.rigs)
        assert one == other
        assert self.ports[0].numbers() == self.ports[1].numbers()
        return one

    def close(self) -> None:
        for port, rig in zip(self.ports, self.rigs, strict=True):
            port.close()
            rig.close()


def bits(measured: Measurement) -> tuple[object, ...]:
    """All numbers of a measurement, to the last bit."""
    arrays = measured.displacement, measured.force, measured.command, measured.auxiliary
    end = measured.flags, measured.control_mode, measured.hydraulics, measured.interlock
    numbers = (np.where(np.isnan(each), np.nan, each).tobytes() for each in arrays)
    return (measured.sample, *numbers, *end)


class Sender:
    """States of a rig with random numbers, and what happens to them on the way, drawn by ``seed``."""

    def __init__(self, pair: Pair, seed: int, faults: float) -> None:
        self._pair, self._random, self._faults = pair, random.Random(seed), faults
        self.sample = 0
        self._held: list[bytes] = []

    def next(self) -> None:
        """Send the next state, or what is left of it."""
        draw, data = self._random, self.state(self.sample)
        if draw.random() >= self._faults:
            self._pair.send(data)
        else:
            self._spoil(draw.choice(WAYS), data)
        if self._held and draw.random() < 0.3:
            self._pair.send(self._held.pop(draw.randrange(len(self._held))))
        self.sample += 1

    def _spoil(self, way: str, data: bytes) -> None:
        pair, draw = self._pair, self._random
        if way == "held":
            self._held.append(data)
        elif way == "twice":
            pair.send(data)
            pair.send(data)
        elif way == "burst":
            for ahead in range(draw.randrange(2, 6)):
                pair.send(self.state(self.sample + ahead))
        elif way == "old":
            pair.send(self.state(max(0, self.sample - draw.randrange(1, 30))))
            pair.send(data)
        elif way != "lost":
            pair.send(self._forged(way, data), draw.randrange(2) if way.startswith("foreign") else None)
            if draw.random() < 0.7:
                pair.send(data)

    def _forged(self, way: str, data: bytes) -> bytes:
        draw, pair = self._random, self._pair
        if way in ("session", "foreign session"):
            return self.state(self.sample, session=SESSION + 1)
        if way == "foreign":
            return self.state(self.sample)
        if way == "foreign bytes":
            return draw.randbytes(draw.randrange(0, 900))
        if way == "bytes":
            return draw.randbytes(draw.choice((0, 1, 35, 36, 68, 768, 769, 1200, 2000)))
        if way == "bit":
            wrong = bytearray(data)
            wrong[draw.randrange(len(wrong))] ^= 1 << draw.randrange(8)
            return bytes(wrong)
        if way == "long":
            return sealed(data[:-4] + bytes(800))
        if way == "version":
            return sealed(data[:4] + b"\x03\x00" + data[6:-4])
        if way == "far":
            return self.state(self.sample + draw.choice((99_999, 100_000, 100_001, 2**31, 2**32 - 2000)))
        if way == "answer":
            return sealed(data[:6] + bytes([draw.choice((3, 17, 99))]) + data[7:-4])
        axes = draw.choice([each for each in (0, 1, 2, 3, 9) if each != pair.axes])
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


WAYS = (
    *("lost", "lost", "held", "twice", "burst", "old", "session", "foreign", "foreign session", "foreign bytes"),
    *("bytes", "bit", "version", "far", "answer", "axes", "long"),
)


def sealed(body: bytes) -> bytes:
    """The bytes with their checksum."""
    return body + datagrams.CHECKSUM.pack(zlib.crc32(body))


def command_of(pair: Pair, draw: random.Random, sample: int) -> Command:
    values = np.array([draw.uniform(-0.1, 0.1) for _ in range(pair.axes)])
    modes = bytes(draw.choice((MODE_DISPLACEMENT, MODE_DISPLACEMENT, MODE_FORCE)) for _ in range(pair.axes))
    inputs = np.array([draw.gauss(0.0, 1.0) for _ in range(pair.inputs)])
    return Command(sample, values, values, inputs, 0, modes if draw.random() < 0.2 else b"")


def compared(seed: int, samples: int, faults: float) -> Pair:
    """Run a session of random states, faults and commands through both ports, and compare all."""
    draw = random.Random(-seed)
    name = draw.choice((NAME, "two_actuator_coupler"))
    pair = Pair(name, draw.randrange(3), draw.randrange(3), trigger=draw.choice(("true", "false")))
    try:
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
        pair.same()
    finally:
        pair.close()
    return pair


def test_without_faults_datagrams_and_samples_are_those_of_the_port_in_python() -> None:
    pair = compared(0, 100, 0.0)
    kinds = [data[6] for data in pair.rigs[1].heard]
    opens = kinds.count(datagrams.OPEN)
    assert opens == 65
    rest = [datagrams.BEGIN, *[datagrams.COMMAND] * 100, datagrams.CLOSE]
    assert kinds == [*[datagrams.OPEN] * opens, *rest]
    assert pair.ports[1].numbers()["lost"] == 0


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 301))])
def test_lost_doubled_and_forged_datagrams_have_the_same_counts_and_samples(seed: int) -> None:
    counts = compared(seed, 300, 0.3).ports[1].numbers()
    for kind in ("lost", "repeated", "reordered", "foreign", "garbage") if seed == 1 else ("lost",):
        assert counts[kind] > 0, kind


def passed(port: UdpPort) -> None:
    port.read()
    port.wait_tick()


def test_late_states_of_a_long_gap_are_counted_alike() -> None:
    """2000 lost states are more than are remembered."""
    pair = Pair()
    try:
        sender = Sender(pair, 1, 0.0)
        for _ in range(100):
            sender.next()
        sender.sample = 2100
        for _ in range(2100):
            while not pair.ready():
                sender.next()
            for port in pair.ports:
                passed(port)
        for late in (110, 1500, 2098, 1500):  # forgotten, remembered, remembered, a repetition
            pair.send(sender.state(late))
        sender.next()
        assert pair.ready()
        pair.same()
        counts = pair.ports[1].numbers()
        assert (counts["lost"], counts["reordered"], counts["repeated"]) == (2000 - 2, 2, 2)
    finally:
        pair.close()


def test_states_beyond_the_room_for_them_are_lost() -> None:
    pair, room = Pair(), 256
    try:
        port, rig, sender = pair.ports[1], pair.rigs[1], Sender(pair, 1, 0.0)
        for sample in range(room + 3):
            if sample < 4:
                for ahead in range(100 * sample, 100 * (sample + 1)):
                    rig.socket.sendto(sender.state(ahead), rig.far)
            elif not port.ready():
                rig.socket.sendto(sender.state(sample + 1), rig.far)
            passed(port)
        assert port.numbers()["lost"] > 0
        assert port.sample == room + 3
    finally:
        pair.close()


@pytest.mark.parametrize(
    "change", [{"interlock": INTERLOCK_OPEN}, {"state": 3, "reason": 14}, {"state": 4, "reason": 77}]
)
def test_a_rig_that_stops_has_the_same_reason(change: dict[str, int]) -> None:
    pair = Pair()
    try:
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
    finally:
        pair.close()


@pytest.mark.parametrize("drops", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_silent_rig_has_the_same_reason(drops: bool) -> None:
    pair = Pair(silence=1.0)
    try:
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
            assert (rig.heard[-1][6] != datagrams.CLOSE) == drops  # without commands the rig stops itself
    finally:
        pair.close()


# -- against the emulator


@pytest.fixture
def emulated() -> Iterator[Any]:
    """Starts an emulated rig in a thread, for one session after the other; the overrides that reach it."""
    made: list[tuple[Emulator, threading.Event, threading.Thread]] = []

    def start(name: str, sets: list[str], own_clock: bool = False, misbehave: tuple[str, ...] = ()) -> Emulator:
        emulator = Emulator(files.load(name, sets), 0, own_clock, [parse(words) for words in misbehave])
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                emulator.serve(ended.is_set)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        made.append((emulator, ended, thread))
        return emulator

    yield start
    for emulator, ended, thread in made:
        ended.set()
        thread.join(20.0)
        emulator.close()


NOISE = ("axes.story_1.sensors.displacement_noise_rms=1e-5", "axes.story_1.sensors.force_noise_rms=100")


@pytest.mark.parametrize(
    ("name", "sets", "transport", "misbehave"),
    [
        (NAME, ["duration=0.4", "axes.story_1.actuator.type=servo_hydraulic", *NOISE], 3, ()),
        (
            NAME,
            ["duration=0.4"],
            0,
            ("lose@20:3", "mute@60:3", "duplicate@100:40", "reorder@150:10", "session@240:5"),
        ),
        ("phillips_spencer_2012", ["duration=0.2", "compensator.feedback={}"], 0, ()),
        ("two_actuator_coupler", ["duration=0.2"], 1, ()),
    ],
)
def test_a_test_in_lockstep_has_the_bits_of_the_port_in_python(
    emulated: Any, different: Any, name: str, sets: list[str], transport: int, misbehave: tuple[str, ...]
) -> None:
    runs = []
    for made in PORTS:
        far = emulated(name, [udp(1, transport), *sets], misbehave=misbehave)
        changed = [udp(far.address[1], transport), *sets]
        loop = Loop(Assembly(files.load(name, changed), port_of(made, name, changed)))
        collector = Collector(loop.scenario, loop.assembly.names)
        outcome = loop.run([collector])
        assert (outcome.state.name, outcome.reason) == ("FINISHED", "")
        loop.rig.close()
        runs.append(collector.run())
    assert different(*runs) == []


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
def test_what_does_not_fit_is_refused_with_the_same_message(
    emulated: Any, here: list[str], own_clock: bool
) -> None:
    refusals = []
    for made in PORTS:
        far = emulated(NAME, [udp(1)], own_clock)
        port = port_of(made, NAME, [udp(far.address[1]), *here])
        with closing(port), pytest.raises(ConfigError) as refused:
            port.open()
        refusals.append(str(refused.value).replace(port.address, "there"))
    assert refusals[0] == refusals[1]


def test_a_rig_that_does_not_answer_is_refused_with_the_same_message() -> None:
    for address in ("127.0.0.1", "192.0.2.1"):
        refusals = []
        for made in PORTS:
            port = port_of(made, NAME, [udp(1, address=address, connect_within=0.1)])
            with closing(port), pytest.raises(ConfigError) as refused:
                port.open()
            refusals.append(str(refused.value))
        assert refusals[0] == refusals[1]


def test_a_used_local_port_is_refused_with_the_same_message() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as used:
        used.bind(("", 0))
        refusals = []
        for made in PORTS:
            port = port_of(made, NAME, [udp(1, local_port=used.getsockname()[1])])
            with closing(port), pytest.raises(ConfigError) as refused:
                port.open()
            refusals.append(str(refused.value))
    assert refusals[0] == refusals[1]


def test_an_address_without_ipv4_is_refused() -> None:
    port = port_of(NearPort, NAME, [udp(1, address="'::1'")])
    with closing(port), pytest.raises(ConfigError) as refused:
        port.open()
    assert "'::1'" in str(refused.value)
    assert "IPv4" in str(refused.value)


@pytest.mark.nodes
def test_by_the_clock_of_the_rig_states_are_taken_and_commands_act(emulated: Any) -> None:
    """An end that holds still for 200 samples at 1024 Hz."""
    sets = ["bridge.max_bridge=0.2"]
    far = emulated(NAME, [udp(1, 20, silence=1.0), *sets], True)
    port = port_of(NearPort, NAME, [udp(far.address[1], 20, silence=1.0), *sets])
    with closing(port):
        port.open(lambda: 0)
        port.begin()
        for sample in range(200):
            measured = port.read()
            assert (measured.sample, measured.interlock, port.interlock) == (sample, INTERLOCK_CLOSED, "")
            assert abs(measured.displacement[0]) < 1e-3
            at = port.wait_tick()
            port.write(Command(at, np.full(1, 1e-6 * at), np.full(1, 1e-6 * at)))
        numbers = port.numbers()
        assert numbers["transport_declared"] == 20
        assert port.report.heartbeat == 200


# -- the C code


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_no_compiler_has_a_warning_for_the_files_or_their_text(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} here")
    source = tmp_path / "near.c"
    source.write_text(f"#define _GNU_SOURCE\n{near.text()}")
    for words in (SOURCES, (str(source),)):
        command = [compiler, "-std=c99", "-fsyntax-only", "-Wdouble-promotion", *STRICT, *words]
        subprocess.run(command, check=True)


def test_cppcheck_finds_nothing() -> None:
    if shutil.which("cppcheck") is None:
        pytest.skip("no cppcheck here")
    words = ["--std=c99", "--enable=warning,style,performance,portability", "--suppress=missingIncludeSystem"]
    done = subprocess.run(["cppcheck", *words, "-q", *SOURCES], capture_output=True, text=True, check=True)
    assert done.stderr == ""


@pytest.mark.timeout(600)
def test_the_sanitizers_find_nothing(tmp_path: Path) -> None:
    words = "without_faults or counts_and_samples[1] or late_states or room or silent"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-k", words, __file__]
    done = subprocess.run(
        command, env=environment(tmp_path), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "5 passed" in done.stdout
