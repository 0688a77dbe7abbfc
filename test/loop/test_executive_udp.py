# SPDX-License-Identifier: Apache-2.0
"""The executive with a rig by udp: the bits, trips and reasons of the stages in Python."""

from __future__ import annotations

import math
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions
from near_side import Rig

from rths_nodes.app import hosts
from rths_nodes.app.emulation.emulator import Emulator, Session
from rths_nodes.app.emulation.misbehaviour import parse
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_BRIDGED
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head
from rths_nodes.laboratory.receiver import ReceiverLimits
from rths_nodes.loop.executive import near, running
from rths_nodes.loop.executive.parts import live_parts
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly

if not any(map(shutil.which, ("cc", "gcc", "clang"))):
    pytest.skip("no C compiler here", allow_module_level=True)

NAME = "chen_ricles_2010"
ENGINES = ("executive", "python")
COUNTED = "missed", "bridged", "longest_gap_s"
NOISE = ("axes.story_1.sensors.displacement_noise_rms=1e-5", "axes.story_1.sensors.force_noise_rms=100")


def udp(number: int, transport: int = 1, **more: Any) -> str:
    """The override that puts the port udp into a scenario."""
    given = {"type": "udp", "emulator": "true", "port": number, "transport_samples": transport} | more
    return f"port={{{', '.join(f'{key}: {value}' for key, value in given.items())}}}"


@pytest.fixture
def emulated() -> Iterator[Callable[..., Emulator]]:
    """Starts an emulated rig in a thread, for one session."""
    made: list[tuple[Emulator, threading.Event, threading.Thread]] = []

    def start(name: str, sets: list[str], own_clock: bool = False, misbehave: tuple[str, ...] = ()) -> Emulator:
        emulator = Emulator(files.load(name, sets), 0, own_clock, [parse(words) for words in misbehave])
        ended = threading.Event()
        thread = threading.Thread(target=emulator.serve, args=(ended.is_set,), daemon=True)
        thread.start()
        made.append((emulator, ended, thread))
        return emulator

    yield start
    for emulator, ended, thread in made:
        ended.set()
        thread.join(20.0)
        emulator.close()


def alike(one: hosts.RunResult, other: hosts.RunResult) -> None:
    """Outcome, indices and each bit of the histories are the same."""
    assert (one.outcome, one.reason, one.samples) == (other.outcome, other.reason, other.samples)
    a, b = one.read().arrays(), other.read().arrays()
    assert a.keys() == b.keys()
    unlike = [name for name in b if a[name].shape != b[name].shape or not np.array_equal(a[name], b[name], True)]
    assert unlike == []
    assert str(one.metrics) == str(other.metrics)
    assert one.exit_code == other.exit_code
    assert [one.timing[name] for name in COUNTED] == [other.timing[name] for name in COUNTED]


@pytest.mark.parametrize(
    ("name", "sets", "transport", "misbehave"),
    [
        (NAME, ["duration=0.5", *NOISE], 3, ()),
        (
            NAME,
            ["duration=0.4"],
            0,
            ("lose@20:3", "mute@60:3", "duplicate@100:40", "reorder@150:10", "session@240:5"),
        ),
        ("two_actuator_coupler", ["duration=0.3"], 1, ()),
        (NAME, ["duration=4", "axes.story_1.limits.force=213215"], 1, ()),
        (NAME, ["duration=4", "axes.story_1.limits.velocity=0.26"], 1, ()),
        (NAME, ["duration=1"], 1, ("hydraulics@100",)),
    ],
    ids=["noise", "faults", "two axes", "force", "velocity", "pressure"],
)
def test_a_test_in_lockstep_has_the_bits_of_the_stages(
    emulated: Any, name: str, sets: list[str], transport: int, misbehave: tuple[str, ...]
) -> None:
    found = []
    for engine in ENGINES:
        far = emulated(name, [udp(1, transport), *sets], misbehave=misbehave)
        found.append(hosts.run(name, [udp(far.address[1], transport), *sets], engine=engine))
    alike(*found)
    assert found[0].engine == "executive"


def test_an_open_interlock_ends_the_test_with_its_reason(emulated: Any) -> None:
    found = []
    for engine in ENGINES:
        far = emulated(NAME, [udp(1), "duration=1"], misbehave=("interlock@100",))
        found.append(hosts.run(NAME, [udp(far.address[1]), "duration=1"], engine=engine))
    alike(*found)
    assert mentions(found[0].reason, "sample 100", "udp", "interlock")


class Script(Rig):
    """A rig in lockstep that sends a state for each command, but none of the ``lost`` ones."""

    def __init__(self, sets: list[str], lost: set[int]) -> None:
        scenario = files.load(NAME, [udp(1), *sets])
        (axis,) = scenario.limits.values()
        limits = ReceiverLimits(axis.stroke, axis.velocity, axis.deceleration, math.inf, axis.force, axis.stroke)
        super().__init__([limits], scenario.dt, 0, 0, datagrams.EMULATOR | datagrams.LOCKSTEP)
        self._lost = lost
        self.ended = threading.Thread(target=self._serve, daemon=True)
        self.ended.start()

    def _serve(self) -> None:
        self._answer()
        self._send(0)
        while (data := self.next())[6] == datagrams.COMMAND:
            sample = datagrams.head_of(data).counter
            if sample - 1 in self._lost and sample not in self._lost:
                continue  # it was sent in place of the lost ones
            while sample in self._lost:
                sample += 1
            self._send(sample)

    def _send(self, sample: int) -> None:
        session = datagrams.head_of(self.heard[-1]).session
        head = Head(datagrams.STATE, 1, session, sample, state=datagrams.RUNNING)
        moved = 2e-3 * math.sin(0.03 * sample)
        row = datagrams.STATE_ROW.pack(moved, 1e7 * moved + 50.0 * math.cos(2.0 * sample), moved, 1, 0)
        self.socket.sendto(datagrams.packed(head, row), self.far)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 61))])
def test_a_lost_state_is_bridged_and_the_compensator_rests(seed: int) -> None:
    draw = random.Random(seed)
    found, lost = [], [50, 90, 91, 300] if seed == 0 else sorted(draw.sample(range(1, 500), draw.randrange(1, 60)))
    for engine in ENGINES:
        rig = Script(["duration=0.5"], {*lost})
        try:
            found.append(hosts.run(NAME, [udp(rig.number, longest_wait=20.0), "duration=0.5"], engine=engine))
            rig.ended.join(10.0)
        finally:
            rig.close()
    alike(*found)
    bridged = np.flatnonzero(found[0].read().flags & FLAG_BRIDGED)
    assert bridged.tolist() == lost


@pytest.mark.parametrize("here", [["servo_rate=512"], ["port.hold=ramp"], ["axes.story_1.limits.force=1e3"]])
def test_a_rig_that_does_not_fit_is_refused_with_the_same_message(emulated: Any, here: list[str]) -> None:
    refusals = []
    for engine in ENGINES:
        far = emulated(NAME, [udp(1)])
        with pytest.raises(ConfigError) as refused:
            hosts.run(NAME, [udp(far.address[1]), *here], engine=engine)
        refusals.append(str(refused.value).replace(str(far.address[1]), "PORT"))
    assert refusals[0] == refusals[1]


@pytest.mark.parametrize(
    ("name", "sets", "words"),
    [
        (NAME, ["port.emulator=false"], ["port.emulator", "real"]),
        (NAME, ["port.trigger=true"], ["port.trigger"]),
        ("phillips_spencer_2012", [], ["auxiliary"]),
    ],
)
def test_what_it_cannot_run_by_udp_is_named(name: str, sets: list[str], words: list[str]) -> None:
    reason = live_parts(Assembly(files.load(name, [udp(1), *sets])))
    assert isinstance(reason, str)
    assert mentions(reason, *words)


@pytest.mark.nodes
def test_by_the_clock_of_the_rig_the_test_finishes(emulated: Any) -> None:
    sets = ["duration=1", "bridge.max_bridge=1", "ground_motion.scale=0.05"]
    far = emulated(NAME, [udp(1, 20, silence=1.0), *sets], True)
    done = hosts.run(NAME, [udp(far.address[1], 20, silence=1.0), *sets], engine="executive", pace="realtime")
    assert (done.outcome, done.reason) == ("finished", "")
    assert done.timing["port"]["transport_declared"] == 20
    assert done.samples == done.scenario.samples


@pytest.mark.nodes
def test_a_rig_that_falls_silent_ends_the_test(emulated: Any) -> None:
    sets = ["duration=20", "bridge.max_bridge=1", "ground_motion.scale=0.05"]
    far = emulated(NAME, [udp(1, 20, silence=0.5), *sets], True, ("freeze@300",))
    done = hosts.run(NAME, [udp(far.address[1], 20, silence=0.5), *sets], engine="executive", pace="realtime")
    assert done.outcome == "tripped"
    assert mentions(done.reason, "port.silence", "0.5 s")


@pytest.mark.nodes
def test_the_rig_is_closed_in_order_if_python_is_killed() -> None:
    sets = ["duration=60", "bridge.max_bridge=1", "ground_motion.scale=0.05", "servo_rate=256"]
    emulator = Emulator(files.load(NAME, [udp(1, 20, silence=2.0), *sets]), 0, True)
    sessions: list[Session | None] = []
    ended, moved = threading.Event(), threading.Event()
    emulator.shown_to = lambda true: moved.set() if true.sample > 100 else None
    thread = threading.Thread(target=lambda: sessions.append(emulator.serve(ended.is_set)), daemon=True)
    thread.start()
    words = [word for each in (udp(emulator.address[1], 20, silence=2.0), *sets) for word in ("--set", each)]
    command = [
        sys.executable,
        "-m",
        "rths_nodes.app.cli",
        "run",
        NAME,
        "--engine",
        "executive",
        "--pace",
        "realtime",
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([*command, *words], env=environment, stdout=subprocess.DEVNULL) as program:
        try:
            assert moved.wait(60.0)
        finally:
            program.kill()
    thread.join(20.0)
    ended.set()
    thread.join(20.0)
    emulator.close()
    (session,) = sessions
    assert session is not None
    assert session.in_order, session.reason
    assert session.samples > 100


def test_the_joined_program_has_no_finding(tmp_path: Path) -> None:
    source = tmp_path / "joined.c"
    source.write_text(f"#define _GNU_SOURCE\n{near.text()}{running.SOURCE.read_text(encoding='utf-8')}")
    strict = [
        "-std=c99",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Werror",
        "-c",
        str(source),
        "-o",
        "/dev/null",
    ]
    checks = [[compiler, *strict] for compiler in ("gcc", "clang")]
    checks.append(["cppcheck", "--enable=warning,performance,portability", "--std=c99", "-q", str(source)])
    for command in checks:
        if shutil.which(command[0]):
            assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""
