# SPDX-License-Identifier: Apache-2.0
"""Tests of the executive over UDP: the bits, trips and reasons of the stages in Python."""

from __future__ import annotations

import math
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated_rig import emulated_rigs, udp
from messages import mentions, naming
from near_side import Rig

from rths_nodes.app import hosts
from rths_nodes.app.emulation import Emulator
from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.core.samples import FLAG_BRIDGED
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head
from rths_nodes.laboratory.receiver import ReceiverLimits
from rths_nodes.loop.executive import near, running
from rths_nodes.loop.executive.running import live_parts
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly

NAME = "chen_ricles_2010"
ENGINES = ("executive", "python")
MILD = ("bridge.max_bridge=1", "ground_motion.scale=0.05")
Different = Callable[..., list[str]]
NOISE = ("axes.story_1.sensors.displacement_noise_rms=1e-5", "axes.story_1.sensors.force_noise_rms=100")


@pytest.fixture
def emulated() -> Iterator[Callable[..., Emulator]]:
    """Starts an emulated rig in a thread, for one session."""
    with emulated_rigs() as start:
        yield start


def check_equal(executive: hosts.RunResult, stages: hosts.RunResult, different: Different) -> None:
    assert executive.engine == "executive"
    for name in ("outcome", "reason", "samples", "exit_code"):
        assert getattr(executive, name) == getattr(stages, name)
    assert different(executive.read(), stages.read()) == []
    assert str(executive.metrics) == str(stages.metrics)
    for name in ("missed", "bridged", "longest_gap_s"):
        assert executive.timing[name] == stages.timing[name]


FAULTS = ("lose@20:3", "mute@60:3", "duplicate@100:40", "reorder@150:10", "session@240:5")


@pytest.mark.parametrize(
    ("name", "sets", "transport", "misbehave", "reason"),
    [
        pytest.param(NAME, ["duration=0.5", *NOISE], 3, (), (), id="noise"),
        pytest.param(NAME, ["duration=0.4"], 0, FAULTS, (), id="faults"),
        pytest.param("two_actuator_coupler", ["duration=0.3"], 1, (), (), id="two axes"),
        pytest.param(NAME, ["duration=4", "axes.story_1.limits.force=213215"], 1, (), (), id="force"),
        pytest.param(NAME, ["duration=4", "axes.story_1.limits.velocity=0.26"], 1, (), (), id="velocity"),
        pytest.param(NAME, ["duration=1"], 1, ("hydraulics@100",), (), id="pressure"),
        pytest.param(NAME, ["duration=1"], 1, ("hydraulics@0",), ("sample 1", "off"), id="no pressure"),
        pytest.param(NAME, ["duration=1"], 1, ("interlock@100",), ("100", "udp", "interlock"), id="interlock"),
    ],
)
def test_lockstep_run_has_bits_of_the_stages(
    emulated: Any, different: Different, name: str, sets: list[str], transport: int, misbehave: Any, reason: Any
) -> None:
    results = []
    for engine in ENGINES:
        rig = emulated(name, [udp(1, transport), *sets], misbehave=misbehave)
        results.append(hosts.run(name, [udp(rig.address[1], transport), *sets], engine=engine))
    check_equal(*results, different)
    assert mentions(results[0].reason, *reason)


class LossyRig(Rig):
    """A rig in lockstep that sends state 0 (``first``) and one per command, except the ``lost`` ones."""

    def __init__(self, sets: list[str], lost: set[int], *first: float) -> None:
        scenario = files.load(NAME, [udp(1), *sets])
        (axis,) = scenario.limits.values()
        limits = ReceiverLimits(axis.stroke, axis.velocity, axis.deceleration, math.inf, axis.force, axis.stroke)
        super().__init__([limits], scenario.dt, 0, 0, datagrams.EMULATOR | datagrams.LOCKSTEP)
        self._lost, self._first = lost, first
        self.ended = threading.Thread(target=self._serve, daemon=True)
        self.ended.start()

    def _serve(self) -> None:
        self._answer()
        self._send(0)
        while (data := self.next())[6] == datagrams.COMMAND:
            sample = datagrams.head_of(data).counter
            if sample - 1 in self._lost and sample not in self._lost:
                continue  # already sent in place of the lost states
            while sample in self._lost:
                sample += 1
            self._send(sample)

    def _send(self, sample: int) -> None:
        head = Head(datagrams.STATE, 1, datagrams.head_of(self.heard[-1]).session, sample, state=datagrams.RUNNING)
        moved = 2e-3 * math.sin(0.03 * sample)
        values = moved, 1e7 * moved + 50.0 * math.cos(2.0 * sample), moved
        row = datagrams.STATE_ROW.pack(*(values if sample else self._first or values), 1, 0)
        self.socket.sendto(datagrams.packed(head, row), self.far)


def run_lossy(engine: str, lost: set[int], *first: float) -> hosts.RunResult:
    with closing(LossyRig(["duration=0.5"], lost, *first)) as rig:
        try:
            return hosts.run(NAME, [udp(rig.number, longest_wait=20.0), "duration=0.5"], engine=engine)
        finally:
            rig.ended.join(10.0)


def test_limits_apply_to_state_0(different: Different) -> None:
    results = [run_lossy(engine, set(), 1.0, 0.0, 0.0) for engine in ENGINES]
    check_equal(*results, different)
    assert mentions(results[0].reason, "sample 1", "axes.story_1.limits.stroke", "measured = 1 m")
    assert not results[0].read().command.any()
    for engine in ENGINES:  # a safe stop from NaN would go to the end of the stroke
        with pytest.raises(PortError, match=naming("Measurement 0", "command", "nan")):
            run_lossy(engine, set(), 0.0, 0.0, math.nan)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 61))])
def test_lost_state_is_bridged_and_compensator_rests(seed: int, different: Different) -> None:
    draw = random.Random(seed)
    lost = (
        [50, 90, 91, *range(300, 330, 2)]
        if seed == 0
        else sorted(draw.sample(range(1, 500), draw.randrange(1, 60)))
    )
    results = [run_lossy(engine, {*lost}) for engine in ENGINES]
    check_equal(*results, different)
    assert np.flatnonzero(results[0].read().flags & FLAG_BRIDGED).tolist() == lost


def test_lost_states_beyond_longest_bridge_trip(different: Different) -> None:
    """The receiver brakes then, and would rejoin the commands at its velocity limit."""
    results = [run_lossy(engine, {*range(100, 130)}) for engine in ENGINES]
    check_equal(*results, different)
    assert mentions(results[0].reason, "sample 110", "bridge.max_bridge", "rig", "10.7 ms")


@pytest.mark.parametrize("change", ["servo_rate=512", "port.hold=ramp", "axes.story_1.limits.force=1e3"])
def test_incompatible_rig_is_refused_with_same_message(emulated: Any, change: str) -> None:
    refusals = []
    for engine in ENGINES:
        rig = emulated(NAME, [udp(1)])
        with pytest.raises(ConfigError) as refused:
            hosts.run(NAME, [udp(rig.address[1]), change], engine=engine)
        refusals.append(str(refused.value).replace(str(rig.address[1]), "PORT"))
    assert refusals[0] == refusals[1]


@pytest.mark.parametrize(
    ("name", "sets", "parts"),
    [
        (NAME, ["port.emulator=false"], ["port.emulator", "real"]),
        (NAME, ["port.trigger=true"], ["port.trigger"]),
        ("phillips_spencer_2012", [], ["auxiliary"]),
    ],
)
def test_reason_names_unsupported_udp_setting(name: str, sets: list[str], parts: list[str]) -> None:
    reason = live_parts(Assembly(files.load(name, [udp(1), *sets])))
    assert isinstance(reason, str)
    assert mentions(reason, *parts)


def run_by_clock_of_rig(emulated: Any, duration: int, silence: float, *misbehave: str) -> hosts.RunResult:
    sets = [f"duration={duration}", *MILD]
    rig = emulated(NAME, [udp(1, 20, silence=silence), *sets], True, misbehave)
    sets.append(udp(rig.address[1], 20, silence=silence))
    return hosts.run(NAME, sets, engine="executive", pace="realtime")


@pytest.mark.nodes
def test_run_by_clock_of_rig_finishes(emulated: Any) -> None:
    result = run_by_clock_of_rig(emulated, 1, 1.0)
    assert (result.outcome, result.reason, result.samples) == ("finished", "", result.scenario.samples)
    assert result.timing["port"]["transport_declared"] == 20


@pytest.mark.nodes
def test_silent_rig_trips(emulated: Any) -> None:
    result = run_by_clock_of_rig(emulated, 20, 0.5, "freeze@300")
    assert result.outcome == "tripped"
    assert mentions(result.reason, "port.silence", "0.5 s")


@pytest.mark.nodes
def test_session_is_closed_in_order_if_python_is_killed() -> None:
    sets = ["duration=60", *MILD, "servo_rate=256"]
    emulator = Emulator(files.load(NAME, [udp(1, 20, silence=2.0), *sets]), 0, True)
    sessions: list[Any] = []
    ended, moved = threading.Event(), threading.Event()
    emulator.shown_to = lambda true: moved.set() if true.sample > 100 else None
    thread = threading.Thread(target=lambda: sessions.append(emulator.serve(ended.is_set)), daemon=True)
    thread.start()
    command = [sys.executable, "-m", "rths_nodes.app.cli", "run", NAME, "--engine", "executive"]
    command += ["--pace=realtime", *(f"--set={row}" for row in (udp(emulator.address[1], 20, silence=2.0), *sets))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as program:
        try:
            assert moved.wait(60.0)
        finally:
            program.kill()
    thread.join(20.0)
    ended.set()
    thread.join(20.0)
    emulator.close()
    (session,) = sessions
    assert (session.in_order, session.samples > 100) == (True, True), session.reason


def test_joined_program_compiles_without_warnings(tmp_path: Path) -> None:
    source = tmp_path / "joined.c"
    source.write_text(f"#define _GNU_SOURCE\n{near.text()}{running.SOURCE.read_text(encoding='utf-8')}")
    strict = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-c", str(source)]
    checks = [[compiler, *strict, "-o", "/dev/null"] for compiler in ("gcc", "clang")]
    checks.append(["cppcheck", "--enable=warning,performance,portability", "--std=c99", "-q", str(source)])
    for command in checks:
        if shutil.which(command[0]):
            assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""
