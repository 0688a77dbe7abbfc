# SPDX-License-Identifier: Apache-2.0
"""Tests of hops: a depth of p samples and a transport of q samples equal a transport of q + p samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from loop_parts import History, collected
from messages import mentions, naming

import rths_nodes
from rths_nodes.analysis.stability.judgement import judge
from rths_nodes.app.commands import check
from rths_nodes.app.commands.check import needed_depth, round_trips
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_TRIPPED, Command, Measurement
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.faults import FaultyLoop, parse
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.command import DueCommands
from rths_nodes.loop.supervision.bridges import Pause
from rths_nodes.loop.supervision.hops import TakenAtOnce, UnderWay
from rths_nodes.procedure.commissioning.stops import way_of
from rths_nodes.recording.run import Run

NAME, BRIEF = "chen_ricles_2010", ("duration=1.5",)
SOFT_START = "soft_start={amplitude: 0.001, rise_time: 0.1, duration: 0.4, fall_time: 0.1, rest_time: 0.1}"
TESTS = {
    "chen": (NAME, BRIEF),
    "noise": ("rths_benchmark_2020", ("duration=0.4", "ground_motion.record=elcentro_1940_ns")),
    "coupled": ("two_actuator_coupler", ("duration=0.5",)),
    "sine": ("predefined_sine", ("duration=0.6",)),
    "learning": (NAME, ("duration=0.6", SOFT_START)),
}


def run(name: str, overrides: Sequence[str], p: int, q: int, *faults: str) -> tuple[Run, Loop]:
    assembly = Assembly(files.load(name, [*overrides, f"hops.depth={p}", f"port.transport_samples={q}"]))
    loop = FaultyLoop(assembly, [parse(fault) for fault in faults]) if faults else Loop(assembly)
    return collected(loop)[1], loop


@pytest.mark.parametrize(("p", "q"), [(1, 0), (2, 1), (3, 0), (8, 0)])
@pytest.mark.parametrize("test", TESTS)
def test_hops_equal_transport_to_the_bit(test: str, p: int, q: int) -> None:
    (with_hops, loop), (reference, reference_loop) = run(*TESTS[test], p, q), run(*TESTS[test], 0, q + p)
    assert loop.rig.machine.reason == reference_loop.rig.machine.reason == ""
    motions = ("target", "command", "displacement", "force", "true_displacement", "dof_displacement")
    for quantity in (*motions, "compensator"):
        assert np.array_equal(getattr(with_hops, quantity), getattr(reference, quantity)), quantity
    assert with_hops.metrics == reference.metrics


def test_hops_add_to_transport_samples() -> None:
    with_hops, reference = (
        files.load(NAME, ["structure.restoring_force=null", f"hops.depth={p}", f"port.transport_samples={q}"])
        for p, q in ((8, 2), (0, 10))
    )
    assert with_hops.transport_samples == reference.transport_samples == 10
    assert with_hops.context() == reference.context()
    assert judge(with_hops).data() == judge(reference).data()
    constants = [Assembly(scenario).names.test_constants(scenario) for scenario in (with_hops, reference)]
    assert constants[0] == constants[1]
    assert with_hops.shared_hash() != reference.shared_hash(), "nodes must agree on the depth"


def test_compensator_leads_by_hops() -> None:
    x, rows = np.full(3, 0.001), []
    for p, q in ((3, 1), (0, 4)):
        scenario = files.load("phillips_spencer_2012", [f"hops.depth={p}", f"port.transport_samples={q}"])
        compensator = Assembly(scenario).compensator
        rows.append(compensator.commands(x, 10.0 * x, 100.0 * x, x, x, False, False))
    assert rows[0] == rows[1]


@pytest.mark.parametrize(("late", "bridged"), [(1, 0), (3, 0), (4, 40)])
def test_lateness_within_depth_is_not_bridged(late: int, bridged: int) -> None:
    undisturbed, _ = run(NAME, BRIEF, 3, 0)
    delayed, loop = run(NAME, BRIEF, 3, 0, f"delay@0.5:command,{late},40")
    assert np.array_equal(undisturbed.displacement, delayed.displacement) == (not bridged)
    assert loop.rig.machine.reason == "" if not bridged else loop.rig.bridged > 0


@pytest.mark.parametrize("depth", [1, 3, 8])
def test_pause_takes_commands_once_and_in_order(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands after the one that the pause holds stay queued until its sample has ended."""
    taken: list[tuple[int, bool]] = []
    supply = Pause.supply

    def watched(pause: Pause, command: Command, *rest: Any) -> None:
        taken.append((command.sample, pause.coming is not None))
        supply(pause, command, *rest)

    monkeypatch.setattr(Pause, "supply", watched)
    _, loop = run(NAME, [*BRIEF, "bridge.when_late=pause"], depth, 0, f"delay@0.5:command,{60 + depth},40")
    assert loop.rig.machine.reason == ""
    assert loop.rig.pause.count
    assert not [number for number, occupied in taken if occupied]
    numbers = [number for number, _ in taken]
    assert numbers == sorted(set(numbers))


def test_pause_on_late_targets_with_hops_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("hops.depth", "> 0")):
        run(NAME, [*BRIEF, "bridge.when_late=pause"], 3, 0, "delay@0.5:target,60,40")


def test_reordered_commands_are_taken_in_order() -> None:
    rig: Any = SimpleNamespace(sample=5, under_way=UnderWay(3), pause=SimpleNamespace(coming=None))
    due = DueCommands(rig)
    assert due.number == 3
    for number in (4, 6, 5):
        assert due.arrived(Command(number, np.zeros(1), np.zeros(1))) is None
    taken = []
    for rig.sample in (6, 7, 8):
        command = due.kept()
        assert command is not None
        taken.append(command.sample)
    assert taken == [4, 5, 6]


def test_tracking_error_refers_to_delayed_target() -> None:
    """The target of the current motion is p samples old; the rig does not lag by the depth."""
    led = [*BRIEF, "compensator={type: inverse, alpha: 37.0}"]
    reference, _ = run(NAME, led, 8, 0)
    largest = float(np.abs(reference.target - reference.displacement).max())
    shifted = float(np.abs(reference.target[:-8] - reference.displacement[8:]).max())
    assert shifted > 1.3 * largest, "the other comparison would trip"
    within, loop = run(NAME, [*led, f"axes.story_1.limits.tracking_error={1.01 * largest}"], 8, 0)
    assert loop.rig.machine.reason == ""
    assert np.array_equal(within.displacement, reference.displacement)
    _, loop = run(NAME, [*led, f"axes.story_1.limits.tracking_error={0.99 * largest}"], 8, 0)
    assert "tracking_error" in loop.rig.machine.reason
    level = f"{{maximum: {1.01 * largest}, minimum: {-1.01 * largest}}}"
    _, loop = run(NAME, [*led, f"axes.story_1.limits.levels={{tracking_error: {level}}}"], 8, 0)
    assert loop.rig.machine.reason == ""


@pytest.mark.parametrize("depth", [0, 1, 8])
def test_queued_commands_are_dropped_on_stop(depth: int) -> None:
    """The rig brakes from the last applied command over the declared distance; queued commands are dropped."""
    quieter = "duration=4", "ground_motion.scale=0.3", f"compensator={{type: inverse, alpha: {29.0 + depth}}}"
    scenario = files.load(NAME, [*quieter, f"hops.depth={depth}"])
    loop, history, stop = Loop(Assembly(scenario)), History(), 2200
    loop.run([history], lambda sample: loop.rig.trip("requested") if sample == stop else None)
    flags = np.array([measured.flags for measured in history.measured])
    sent = np.array([measured.command.item() for measured in history.measured])
    made = {command.sample: command.command.item() for command in history.commands}
    first = int(np.argmax((flags & FLAG_TRIPPED) > 0))
    assert first == stop + 1
    assert sent[first - 1] == made[stop - depth]
    limits, dt = scenario.limits["story_1"], scenario.dt
    velocity = (sent[first - 1] - sent[first - 2]) / dt
    assert abs(velocity) > 0.05, "in motion when the stop is requested"
    travel = (sent[first:] - sent[first - 1]) * np.sign(velocity)
    assert np.all(np.diff(travel) >= 0.0)
    assert travel[-1] <= way_of(velocity, 0, limits.deceleration, dt) * 1.0001
    assert len(np.flatnonzero(np.diff(sent[first:]))) < 0.5 / dt


def test_unsupported_depth_is_refused() -> None:
    assert files.load(NAME, ["hops.depth=60", "port.transport_samples=3"]).transport_samples == 63
    with pytest.raises(ConfigError, match=naming("hops.depth", "60", "port.transport_samples", "4", "<= 59")):
        files.load(NAME, ["hops.depth=60", "port.transport_samples=4"])
    with pytest.raises(ConfigError, match=naming("hops.depth", "1", "0", "load")):
        files.load("column_under_axial_load", ["hops.depth=1"])


def test_recording_stores_depth(tmp_path: Path) -> None:
    rths_nodes.run(NAME, ["duration=0.3", "hops.depth=2"], record=tmp_path / "test")
    assert rths_nodes.read(tmp_path / "test").scenario.hops.depth == 2


def test_readback_with_offset_is_accepted() -> None:
    """At constant velocity its offset may equal the motion over the depth."""
    depth, step = 3, 1e-5
    watch, offset = TakenAtOnce(depth), depth * step
    watch.start(Measurement(0, np.zeros(1), np.zeros(1), np.array([offset])))
    for k in range(1, 200):
        watch.made(Command(k, np.array([k * step]), np.array([k * step])))
        applied = np.array([max(k - depth, 0) * step + offset])
        assert watch.reason(Measurement(k, applied, np.zeros(1), applied)) == ""


@pytest.mark.parametrize(("taken_after", "tripped"), [(0, True), (3, False), (4, False)])
def test_driver_without_hops_is_detected(taken_after: int, tripped: bool) -> None:
    """Such a driver would lead the rig by the depth; noise of the readback is no reason."""
    watch, rng, made = TakenAtOnce(3), np.random.default_rng(5), [0.01]
    watch.start(Measurement(0, np.array([0.01]), np.zeros(1), np.array([0.01])))
    reasons = []
    for k in range(1, 400):
        made.append(0.01 + 0.02 * np.sin(0.02 * k) * min(k / 100.0, 1.0))
        watch.made(Command(k, np.array([made[k]]), np.array([made[k]])))
        applied = np.array([made[max(k - taken_after, 0)] + 1e-5 * rng.standard_normal()])
        reasons.append(watch.reason(Measurement(k, applied, np.zeros(1), applied)))
    trips = [(k, reason) for k, reason in enumerate(reasons, 1) if reason]
    assert bool(trips) == tripped
    if tripped:
        k, reason = trips[0]
        assert k < 100
        assert mentions(reason, "hops.depth", "3", k, f"tick {k}")


# Depth of hops from the round trips of a recording


@pytest.mark.parametrize(
    ("p999", "depth"), [(0.2e-3, 0), (0.8e-3, 0), (0.81e-3, 1), (1.8e-3, 1), (11.2e-3, 11), (11.9e-3, 12)]
)
def test_needed_depth_covers_round_trip(p999: float, depth: int) -> None:
    assert needed_depth(p999, 1e-3) == depth


def recorded(pace: str, samples: int) -> Any:
    timing = {"loop": {"p999_s": 0.011, "max_s": 0.02}}
    return SimpleNamespace(information={"pace": pace}, time=np.zeros(samples), timing=timing)


def test_round_trips_need_long_real_time_test() -> None:
    assert round_trips(recorded("realtime", 1000)) == (0.011, 0.02)
    with pytest.raises(ConfigError, match=naming("pace", "lockstep")):
        round_trips(recorded("lockstep", 1000))
    with pytest.raises(ConfigError, match=naming("999", ">= 1000")):
        round_trips(recorded("realtime", 999))


def test_impossible_depth_is_reported() -> None:
    """For excessive round trips the other lines are still reported."""
    scenario = files.load("chen_ricles_2010", ["duration=0.2"])
    lines = list(check._hops(scenario, (1.0, 2.0), partial(check._rehearsed, scenario)))
    assert "This requires hops.depth = 1024; the scenario has 0" in lines[0]
    assert mentions(lines[1], "hops.depth", "0", "norm")
    assert mentions(lines[2], "hops.depth", "1024", ">= 0", "<= 63")
