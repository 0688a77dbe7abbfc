# SPDX-License-Identifier: Apache-2.0
"""Tests of the executive: its native process gives the bits, trips and stops of the stages in Python."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming

from rths_nodes.app import hosts
from rths_nodes.core import samples
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.executive import running
from rths_nodes.loop.executive.running import live_parts
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.supervision.limits import LimitCheck
from rths_nodes.loop.supervision.safe_stop import braking_time
from rths_nodes.loop.supervision.states import State

SOURCE = running.SOURCE.read_text(encoding="utf-8")
SHORT = ["duration=2"]


Different = Callable[..., list[str]]


def results(name: str, *overrides: str, **options: Any) -> tuple[hosts.RunResult, hosts.RunResult]:
    """Return a run by the executive, and the same run by the stages in lockstep."""
    executive = hosts.run(name, overrides, engine="executive", **options)
    return executive, hosts.run(name, overrides, engine="python")


def live_loop(*overrides: str, paced: bool = False) -> running.ExecutiveLoop:
    return running.ExecutiveLoop(checked_loop(files.load("chen_ricles_2010", overrides)), paced)


def check_equal(executive: hosts.RunResult, stages: hosts.RunResult, different: Different) -> None:
    for name in ("outcome", "reason", "samples", "exit_code", "compensator"):
        assert getattr(executive, name) == getattr(stages, name)
    assert different(executive.read(), stages.read()) == []


MORE = ("phillips_spencer_2012", "marths_2023", "horiuchi_1996_frp_column", "three_independent_axes")


@pytest.mark.parametrize("name", ["chen_ricles_2010", *MORE])
def test_run_has_bits_of_the_stages(name: str, different: Different) -> None:
    executive, stages = results(name, *SHORT)
    assert executive.engine == "executive"
    check_equal(executive, stages, different)
    assert str(executive.metrics) == str(stages.metrics)


@pytest.mark.parametrize("limit", ["stroke=0.0089", "force=213215", "tracking_error=0.00073", "velocity=0.26"])
def test_limit_trips_at_sample_of_the_stages(limit: str, different: Different) -> None:
    executive, stages = results("chen_ricles_2010", "duration=4", f"axes.story_1.limits.{limit}")
    check_equal(executive, stages, different)
    assert executive.outcome == "tripped"
    assert limit.partition("=")[0] in executive.reason


@pytest.mark.nodes
def test_realtime_pace_changes_no_bits(different: Different) -> None:
    executive, stages = results("chen_ricles_2010", *SHORT, pace="realtime")
    assert different(executive.read(), stages.read(), may_slip=True) == []
    assert executive.timing["running_s"] > 0.999 * executive.samples * executive.scenario.dt  # ticks in whole ns
    assert executive.timing["lateness"]["median_s"] >= 0.0


@pytest.mark.parametrize("pace", ["lockstep", pytest.param("realtime", marks=pytest.mark.nodes)])
def test_operator_stop_respects_declared_deceleration(pace: str) -> None:
    assert mentions(stopped_after(300, "chen_ricles_2010", pace).reason, "interrupted")


def test_operator_stop_that_exceeds_a_limit_trips() -> None:
    """The program drives within 1.7 MN; only the rows of its stop are checked in Python, here against 1 N."""
    loop = live_loop("duration=20")
    tight = files.load("chen_ricles_2010", ["axes.story_1.limits.force=1"])
    with loop.started(()):
        loop._messages._check = LimitCheck(tight.limits, tight.dt)
        loop.begin()
        while not loop.over:
            loop.take()
            if loop._messages.sample > 2000:
                loop.hold()
        state, reason, _ = loop.ending()
    assert state is State.TRIPPED
    assert mentions(reason, f"sample {loop._control.stopped_at}", "axes.story_1.limits.force", "measured")


def test_hold_does_not_replace_a_pending_trip() -> None:
    loop = live_loop("duration=20")

    def request(sample: int) -> None:
        loop.trip("monitor", 20_000)
        loop.hold()

    outcome = loop.run(progress=request)
    assert (outcome.state, outcome.samples < 20_000) == (State.TRIPPED, True)
    assert outcome.reason.endswith(": monitor")


def test_earlier_trip_does_not_wait_for_a_later_one() -> None:
    loop = live_loop("duration=20")

    def trip(sample: int) -> None:
        loop.trip("monitor", 20_000)
        loop.trip("no Command")

    outcome = loop.run(progress=trip)
    assert outcome.state is State.TRIPPED
    assert outcome.samples < 20_000
    assert mentions(outcome.reason, "no Command")


def stopped_after(last: int, name: str, pace: str) -> hosts.RunResult:
    """Stop a test and check that it brakes once, within the declared deceleration, and ends at rest in time."""
    progress = [0]
    result = hosts.run(
        *(name, ["duration=20"]),
        **{"engine": "executive", "pace": pace, "progress": lambda sample, _: progress.append(sample)},
        interrupted=lambda: progress[-1] > last,
    )
    assert result.outcome == "held"
    run, scenario = result.read(), result.scenario
    braked = np.flatnonzero(run.flags & samples.FLAG_TRIPPED)
    assert len(braked) <= braking_time(scenario.limits.values()) * scenario.servo_rate + 2
    assert braked.tolist() == list(range(braked[0], len(run.time)))
    assert mentions(result.reason, f"sample {braked[0]}")
    steps = np.diff(run.command[max(braked[0] - 2, 0) :], axis=0)
    changes = np.abs(np.diff(steps, axis=0)).max(axis=0, initial=0.0) * scenario.servo_rate**2
    decelerations = np.array([limits.deceleration for limits in scenario.limits.values()])
    assert (changes <= decelerations * (1 + 1e-9)).all()
    return result


@pytest.mark.parametrize(
    ("name", "overrides", "parts"),
    [
        ("column_under_axial_load", [], ["port.type"]),
        ("learning_five_story", [], ["updating"]),
        ("chen_ricles_2010", ["bridge.when_late=pause"], ["bridge.when_late"]),
        ("chen_ricles_2010", ["bridge.overruns={in_a_row: 3, in_window: 20, window: 10.0}"], ["bridge.overruns"]),
        ("chen_ricles_2010", ["hops={depth: 2}"], ["hops.depth", "2"]),
    ],
)
def test_reason_names_unsupported_setting(name: str, overrides: list[str], parts: list[str]) -> None:
    reason = live_parts(checked_loop(files.load(name, overrides)).assembly)
    assert isinstance(reason, str)
    assert mentions(reason, *parts)


@pytest.mark.parametrize(
    ("overrides", "options", "parts"),
    [
        (["hops={depth: 2}"], {}, ["executive", "hops.depth", "2"]),
        (SHORT, {"host": "processes"}, ["engine", "executive", "processes"]),
        (SHORT, {"faults": ["delay@1:target,3"]}, ["engine", "executive", "faults"]),
    ],
)
def test_incompatible_options_are_refused(overrides: list[str], options: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        hosts.run("chen_ricles_2010", overrides, engine="executive", **options)


def test_refused_requests_are_reported() -> None:
    control = running.Control(no_lock=errno.ENOMEM, no_priority=errno.EPERM)
    notes = list(running.refusals(control))
    assert mentions(notes[0], os.strerror(errno.ENOMEM))
    assert mentions(notes[1], "SCHED_FIFO", os.strerror(errno.EPERM))
    assert list(running.refusals(running.Control())) == []


def test_missing_shared_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> int:
        raise OSError(errno.ENOSYS, "none here")

    monkeypatch.setattr(os, "memfd_create", refuse)
    with pytest.raises(ConfigError, match=naming("executive", "none here")):
        live_loop(*SHORT)


@pytest.mark.nodes
def test_full_ring_trips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "RING_S", 0.1)
    loop = live_loop("duration=20", paced=True)
    waited: list[int] = []

    def wait(sample: int) -> None:
        if not waited:
            waited.append(sample)
            time.sleep(0.9)  # longer than the ring, shorter than the timeout

    outcome = loop.run(progress=wait)
    assert outcome.state is State.TRIPPED
    assert mentions(outcome.reason, "ring")
    assert "lost_rows" not in outcome.timing


@pytest.mark.parametrize("paced", [False, pytest.param(True, marks=pytest.mark.nodes)])
@pytest.mark.parametrize("bounds", [(0.5, 60.0), (60.0, 0.5)], ids=["alone", "Ctrl-C"])
def test_frozen_program_ends_the_run(paced: bool, bounds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of a stop applies after Ctrl-C. A reader that pauses for longer than the bounds ends nothing."""
    for name, bound in zip(("FROZEN_S", "END_S"), bounds, strict=True):
        monkeypatch.setattr(running, name, bound)
    loop, samples = live_loop("duration=60", paced=paced), list[int]()

    def freeze(sample: int) -> None:
        samples.append(sample)
        if len(samples) == 3:
            time.sleep(0.0 if paced else 1.2)
        elif len(samples) == 6:
            os.kill(loop._process.pid, signal.SIGSTOP)

    outcome = loop.run(progress=freeze, interrupted=lambda: len(samples) >= 6 and bounds[0] > bounds[1])
    assert (outcome.state, outcome.failed, outcome.samples) == (State.TRIPPED, True, samples[-1])
    assert mentions(outcome.reason, f"sample {samples[-1]}", "suspended", "killed")
    assert re.search(r"no row for [0-2]\.\d s", outcome.reason)
    assert loop._process.returncode == -signal.SIGKILL


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("name", ["chen_ricles_2010", "phillips_spencer_2012", "three_independent_axes"])
def test_random_limits_and_stops(name: str, seed: int, different: Different) -> None:
    """One limit of one axis, at a random share of the peak in the test, and a stop at a random time."""
    chance = random.Random(f"{name} {seed}")
    free = hosts.run(name, ["duration=6"], engine="compiled").read()
    axis = chance.randrange(len(free.axes))
    peaks = {
        "stroke": np.abs(free.command[:, axis]).max(),
        "force": np.abs(free.force[:, axis]).max(),
        "tracking_error": np.abs(free.target - free.displacement)[:, axis].max(),
        "velocity": np.abs(np.diff(free.command[:, axis])).max() / free.scenario.dt,
    }
    limit, peak = chance.choice(sorted(peaks.items()))
    path = f"axes.{free.axes[axis]}.limits"  # an error is at most a stroke
    bounds = [f"{path}.tracking_error=null", f"{path}.{limit}={peak * chance.uniform(0.2, 0.95):.9g}"]
    executive, stages = results(name, "duration=6", *bounds)
    check_equal(executive, stages, different)
    stopped_after(chance.randrange(4000), name, "realtime")


def test_control_block_matches_program() -> None:
    fields = re.search(r"typedef struct \{([^}]*)\} control;", SOURCE)
    assert fields
    declared = re.findall(r"\b(\w+)(?=[,;])", re.sub(r"/\*.*?\*/", "", fields[1], flags=re.S))
    assert tuple(declared) == running.FIELDS
    assert ctypes.sizeof(running.Control) == 8 * len(declared)


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (("DRIVEN", "BROKEN", "BRAKED", "REFUSED", "LAST"), range(1, 6)),
        (("OPERATOR", "TRIP", "SILENT", "FULL", "PARENT"), range(1, 6)),
        (("READY", "ENDED"), (running.READY, running.ENDED)),
    ],
)
def test_constants_match_program(names: tuple[str, ...], numbers: Any) -> None:
    for name, number in zip(names, numbers, strict=True):
        assert re.search(rf"\b{name} = {number}\b", SOURCE)
    defined = {name: int(value) for name, value in re.findall(r"#define (\w+) (\d+)\b", SOURCE)}
    assert (defined["LAYOUT"], defined["HEAD"]) == (running.LAYOUT, running.HEAD)
    assert (defined["SLIPPED"], defined["TRIPPED"]) == (samples.FLAG_SLIPPED, samples.FLAG_TRIPPED)
    assert running.LAST == 5


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_program_compiles_without_warnings(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} here")
    strict = ["-std=c99", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    command = [compiler, *strict, "-c", str(running.SOURCE), "-o", str(tmp_path / "executive.o")]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""


def test_cppcheck_reports_nothing() -> None:
    if shutil.which("cppcheck") is None:
        pytest.skip("no cppcheck here")
    command = ["cppcheck", "--enable=warning,style,performance,portability", "--std=c99", "--inline-suppr", "-q"]
    done = subprocess.run([*command, str(running.SOURCE)], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_nothing_is_left_behind() -> None:
    before = sorted(os.listdir("/dev/shm")), len(os.listdir("/proc/self/fd"))
    assert live_loop("duration=0.5").run().state.name == "FINISHED"
    gc.collect()  # shared memory is released with its last view
    assert (sorted(os.listdir("/dev/shm")), len(os.listdir("/proc/self/fd"))) == before


def test_only_live_loops_contain_safe_stop() -> None:
    assembly = Assembly(files.load("chen_ricles_2010", SHORT))
    parts = live_parts(assembly)
    assert not isinstance(parts, str)
    assert "stop_command(stop" in parts.text
    assert "stop_command(stop" not in parts._replace(kind=parts.kind._replace(live=False)).text
