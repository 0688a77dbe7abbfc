# SPDX-License-Identifier: Apache-2.0
"""Hops longer than a sample: a depth p beside q samples of transport is a transport of q + p samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming

import rths_nodes
from rths_nodes.analysis.stability.judgement import judge
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_TRIPPED, Command, Measurement
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.faults.embedded import FaultyLoop
from rths_nodes.loop.faults.kinds import parse
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.command import DueCommands
from rths_nodes.loop.supervision.hops import TakenAtOnce, UnderWay
from rths_nodes.loop.supervision.pause import Pause
from rths_nodes.procedure.commissioning.stops import way_of
from rths_nodes.recording.run import Collector, Run

CHEN = ("chen_ricles_2010", ("duration=1.5",))
TESTS = {
    "chen": CHEN,
    "noise": ("rths_benchmark_2020", ("duration=0.4", "ground_motion.record=elcentro_1940_ns")),
    "coupled": ("two_actuator_coupler", ("duration=0.5",)),
    "sine": ("predefined_sine", ("duration=0.6",)),
    "learning": (
        "chen_ricles_2010",
        (
            "duration=0.6",
            "soft_start={amplitude: 0.001, rise_time: 0.1, duration: 0.4, fall_time: 0.1, rest_time: 0.1}",
        ),
    ),
}

STOP = 2200


def run(name: str, overrides: Sequence[str], p: int, q: int, *faults: str) -> tuple[Run, Loop]:
    scenario = files.load(name, [*overrides, f"hops.depth={p}", f"port.transport_samples={q}"])
    assembly = Assembly(scenario)
    loop = FaultyLoop(assembly, [parse(words) for words in faults]) if faults else Loop(assembly)
    collector = Collector(scenario, assembly.names)
    outcome = loop.run([collector])
    return collector.run(metrics=outcome.metrics), loop


@pytest.mark.parametrize(("p", "q"), [(1, 0), (2, 1), (3, 0), (8, 0)])
@pytest.mark.parametrize("test", TESTS)
def test_samples_in_hops_are_samples_of_transport_to_the_bit(test: str, p: int, q: int) -> None:
    name, overrides = TESTS[test]
    (with_hops, loop), (reference, other) = run(name, overrides, p, q), run(name, overrides, 0, q + p)
    assert loop.rig.machine.reason == other.rig.machine.reason == ""
    for quantity in (
        "target",
        "command",
        "displacement",
        "force",
        "true_displacement",
        "dof_displacement",
        "compensator",
    ):
        assert np.array_equal(getattr(with_hops, quantity), getattr(reference, quantity)), quantity
    assert with_hops.metrics == reference.metrics


def test_what_knows_of_transport_knows_of_hops() -> None:
    with_hops, reference = (
        files.load(*CHEN[:1], ["structure.restoring_force=null", f"hops.depth={p}", f"port.transport_samples={q}"])
        for p, q in ((8, 2), (0, 10))
    )
    assert with_hops.transport_samples == reference.transport_samples == 10
    assert with_hops.context() == reference.context()
    assert judge(with_hops).data() == judge(reference).data()
    names = [Assembly(each).names.test_constants(each) for each in (with_hops, reference)]
    assert names[0] == names[1]
    assert with_hops.shared_hash() != reference.shared_hash(), "nodes must agree on the depth"


def test_a_model_that_leaves_transport_out_leads_by_hops_too() -> None:
    found = [
        Assembly(
            files.load("phillips_spencer_2012", [f"hops.depth={p}", f"port.transport_samples={q}"])
        ).compensator
        for p, q in ((3, 1), (0, 4))
    ]
    x = np.full(3, 0.001)
    rows = [each.commands(x, 10.0 * x, 100.0 * x, x, x, False, False) for each in found]
    assert rows[0] == rows[1]


@pytest.mark.parametrize(("late", "bridged"), [(1, 0), (3, 0), (4, 40)])
def test_a_command_that_is_late_by_no_more_than_the_depth_is_in_time(late: int, bridged: int) -> None:
    undisturbed, _ = run(*CHEN, 3, 0)
    found, loop = run(*CHEN, 3, 0, f"delay@0.5:command,{late},40")
    same = np.array_equal(undisturbed.displacement, found.displacement)
    assert same == (not bridged)
    assert loop.rig.machine.reason == "" if not bridged else loop.rig.bridged > 0


@pytest.mark.parametrize("depth", [1, 3, 8])
def test_a_pause_takes_each_command_once_and_in_order(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is under way behind the Command that a pause has stays there until the sample of that is over."""
    taken: list[tuple[int, bool]] = []
    supply = Pause.supply

    def watched(pause: Pause, command: Command) -> None:
        taken.append((command.sample, pause.coming is not None))
        supply(pause, command)

    monkeypatch.setattr(Pause, "supply", watched)
    _, loop = run(CHEN[0], [*CHEN[1], "bridge.when_late=pause"], depth, 0, f"delay@0.5:command,{60 + depth},40")
    assert loop.rig.machine.reason == ""
    assert loop.rig.pause.count, "it paused"
    assert not [number for number, had_one in taken if had_one]
    numbers = [number for number, _ in taken]
    assert numbers == sorted(set(numbers))


def test_targets_that_a_pause_waits_for_need_nodes() -> None:
    with pytest.raises(ConfigError, match=naming("hops.depth", "> 0")):
        run(CHEN[0], [*CHEN[1], "bridge.when_late=pause"], 3, 0, "delay@0.5:target,60,40")


def test_a_command_that_overtakes_another_on_its_way_does_not_hold_it_up() -> None:
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


def test_the_tracking_error_is_that_of_the_sample_of_the_command() -> None:
    """The target that drives the rig now is p samples old: the rig is where it was to be, not behind."""
    led = [*CHEN[1], "compensator={type: inverse, alpha: 37.0}"]
    found, _ = run(*CHEN[:1], led, 8, 0)
    largest = float(np.abs(found.target - found.displacement).max())
    apart = float(np.abs(found.target[:-8] - found.displacement[8:]).max())
    assert apart > 1.3 * largest, "the other comparison would trip"
    within, loop = run(*CHEN[:1], [*led, f"axes.story_1.limits.tracking_error={1.01 * largest}"], 8, 0)
    assert loop.rig.machine.reason == ""
    assert np.array_equal(within.displacement, found.displacement)
    _, loop = run(*CHEN[:1], [*led, f"axes.story_1.limits.tracking_error={0.99 * largest}"], 8, 0)
    assert "tracking_error" in loop.rig.machine.reason
    level = (
        f"axes.story_1.limits.levels={{tracking_error: {{maximum: {1.01 * largest}, minimum: {-1.01 * largest}}}}}"
    )
    _, loop = run(*CHEN[:1], [*led, level], 8, 0)
    assert loop.rig.machine.reason == ""


class Stops:
    """A listener that asks the rig to trip at a sample, and keeps what it was sent."""

    def __init__(self, loop: Loop, sample: int) -> None:
        self._loop, self._sample = loop, sample
        self.sent: list[tuple[int, float]] = []
        self.made: dict[int, float] = {}

    def measurement(self, measured: Measurement) -> None:
        self.sent.append((measured.flags, measured.command.item()))
        if measured.sample == self._sample:
            self._loop.rig.trip("somebody asks")

    def command(self, command: Command) -> None:
        self.made[command.sample] = command.command.item()

    def target(self, target: object) -> None: ...

    def truth(self, true: Measurement) -> None: ...

    def state(self, sample: int, values: Sequence[float]) -> None: ...


@pytest.mark.parametrize("depth", [0, 1, 8])
def test_nothing_that_is_under_way_is_applied_after_a_stop(depth: int) -> None:
    """The rig brakes from what it was sent last: the way that it declares, and none of what was on its way."""
    quieter = "duration=4", "ground_motion.scale=0.3", f"compensator={{type: inverse, alpha: {29.0 + depth}}}"
    scenario = files.load(*CHEN[:1], [*quieter, f"hops.depth={depth}"])
    loop = Loop(Assembly(scenario))
    watch = Stops(loop, STOP)
    loop.run([watch])
    flags, sent = np.array([flag for flag, _ in watch.sent]), np.array([value for _, value in watch.sent])
    first = int(np.argmax((flags & FLAG_TRIPPED) > 0))
    assert first == STOP + 1
    assert sent[first - 1] == watch.made[STOP - depth]
    limits, dt = scenario.limits["story_1"], scenario.dt
    velocity = (sent[first - 1] - sent[first - 2]) / dt
    assert abs(velocity) > 0.05, "it moves when it is asked to stop"
    gone = (sent[first:] - sent[first - 1]) * np.sign(velocity)
    assert np.all(np.diff(gone) >= 0.0)
    assert gone[-1] <= way_of(velocity, 0, limits.deceleration, dt) * 1.0001
    assert len(np.flatnonzero(np.diff(sent[first:]))) < 0.5 / dt


def test_more_than_the_rig_has_in_mind_is_refused() -> None:
    assert files.load(*CHEN[:1], ["hops.depth=60", "port.transport_samples=3"]).transport_samples == 63
    with pytest.raises(ConfigError, match=naming("hops.depth", "60", "port.transport_samples", "4", "<= 59")):
        files.load(*CHEN[:1], ["hops.depth=60", "port.transport_samples=4"])
    with pytest.raises(ConfigError, match=naming("hops.depth", "1", "0", "load")):
        files.load("column_under_axial_load", ["hops.depth=1"])


def test_the_recording_tells_the_depth(tmp_path: Path) -> None:
    rths_nodes.run(*CHEN[:1], ["duration=0.3", "hops.depth=2"], record=str(tmp_path / "test"))
    assert rths_nodes.read(str(tmp_path / "test")).scenario.hops.depth == 2


def test_a_readback_with_an_offset_is_not_that_of_such_a_driver() -> None:
    """At a steady velocity it may show, sample for sample, the Command that was made last."""
    depth, step = 3, 1e-5
    watch, off = TakenAtOnce(depth), depth * step
    watch.start(Measurement(0, np.zeros(1), np.zeros(1), np.array([off])))
    for k in range(1, 200):
        watch.made(Command(k, np.array([k * step]), np.array([k * step])))
        applied = np.array([max(k - depth, 0) * step + off])
        assert watch.reason(Measurement(k, applied, np.zeros(1), applied)) == ""


@pytest.mark.parametrize(("taken_after", "tripped"), [(0, True), (3, False), (4, False)])
def test_a_driver_that_takes_commands_as_they_come_is_found(taken_after: int, tripped: bool) -> None:
    """It knows nothing of hops, and would lead the rig by their depth; noise of the readback is no reason."""
    watch, rng, made = TakenAtOnce(3), np.random.default_rng(5), [0.01]
    watch.start(Measurement(0, np.array([0.01]), np.zeros(1), np.array([0.01])))
    reasons = []
    for k in range(1, 400):
        made.append(0.01 + 0.02 * np.sin(0.02 * k) * min(k / 100.0, 1.0))
        watch.made(Command(k, np.array([made[k]]), np.array([made[k]])))
        applied = np.array([made[max(k - taken_after, 0)] + 1e-5 * rng.standard_normal()])
        reasons.append(watch.reason(Measurement(k, applied, np.zeros(1), applied)))
    found = [(k, reason) for k, reason in enumerate(reasons, 1) if reason]
    assert bool(found) == tripped
    if tripped:
        k, reason = found[0]
        assert k < 100
        assert mentions(reason, "hops.depth", "3", k, f"tick {k}")
