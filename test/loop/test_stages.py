# SPDX-License-Identifier: Apache-2.0
"""Tests of the stages of the loop: numerical substructure, commands, rig, monitor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from loop_parts import started
from messages import mentions, naming

from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.core.samples import (
    FLAG_BRIDGED,
    FLAG_TRIPPED,
    INTERLOCK_NOT_TOLD,
    INTERLOCK_OPEN,
    Command,
    Measurement,
    Target,
)
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import override
from rths_nodes.loop.stages.command import CommandStage
from rths_nodes.loop.stages.monitor import MonitorStage
from rths_nodes.loop.stages.numerical import NumericalStage
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.states import State, StopRequest

PAPER = files.load("chen_ricles_2010", ["duration=1"])
SINE = files.load("predefined_sine", ["duration=1", "axes.axis_1.limits.deceleration=10"])


def measurement(sample: int, displacement: float = 0.0, force: float = 0.0, flags: int = 0) -> Measurement:
    return Measurement(sample, np.array([displacement]), np.array([force]), np.zeros(1), flags=flags)


def target(step: int) -> Target:
    return Target(step, *(np.zeros(1) for _ in range(6)))


def command(sample: int, value: float = 0.0, goal: float = 0.0) -> Command:
    return Command(sample, np.array([goal]), np.array([value]))


# Numerical substructure and commands


def test_target_is_returned_for_last_measurement_of_step() -> None:
    stage = NumericalStage(Assembly(PAPER))
    assert stage.first().step == 0
    assert stage.next(measurement(0)).step == 1
    assert all(stage.next(measurement(sample)) is None for sample in range(1, 10))
    assert stage.next(measurement(10, flags=FLAG_TRIPPED)) is None
    assert stage.next(measurement(10)).step == 2


def test_last_target_is_that_of_last_step() -> None:
    stage = NumericalStage(Assembly(PAPER))
    answers = [stage.next(measurement(10 * step)) for step in range(PAPER.steps + 1)]
    assert [answer.step for answer in answers[:-1] if answer] == list(range(1, PAPER.steps + 1))
    assert answers[-1] is None


def test_measured_force_reduces_displacement() -> None:
    free, held = NumericalStage(Assembly(PAPER)), NumericalStage(Assembly(PAPER))
    for step in range(3):
        a, b = free.next(measurement(10 * step)), held.next(measurement(10 * step, force=1e5))
    assert b.displacement[0] < a.displacement[0]


def test_commands_require_target_of_their_step_and_no_trip() -> None:
    stage = CommandStage(Assembly(PAPER))
    stage.target(target(0))
    assert stage.ready(0)
    assert not stage.ready(1)
    stage.target(target(1))
    assert (stage.ready(10), stage.ready(11)) == (True, False)
    assert stage.next(measurement(0, flags=FLAG_TRIPPED)) is None
    assert stage.next(measurement(0)).sample == 1


def test_compensator_does_not_adapt_to_bridged_samples() -> None:
    """Flagged samples of any value leave the parameter unchanged."""
    stage = CommandStage(Assembly(SINE))
    steps = NumericalStage(Assembly(SINE))
    stage.target(steps.first())
    for sample in range(20):
        stage.target(steps.next(measurement(sample)))
        stage.next(measurement(sample, displacement=0.3 * sample, flags=FLAG_BRIDGED))
    assert dict(zip(stage.state_names, stage.state(), strict=True))["axes.axis_1.alpha"] == 15.0


# Rig


@pytest.fixture
def rig() -> RigStage:
    """Rig with a stroke of 0.25 m and a velocity limit of 10 m/s."""
    return started(SINE)


def until_rest(rig: RigStage) -> list[Measurement]:
    measured = []
    while not rig.ended:
        measured.append(rig.tick(None))
    return measured


def test_command_is_applied_and_measured(rig: RigStage) -> None:
    measured = rig.tick(command(1, 0.00145))
    assert (measured.sample, measured.command[0], measured.flags) == (1, 0.00145, 0)
    assert measured.displacement[0] == pytest.approx(0.00005)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (math.nan, ("sample 1", "axes.axis_1", "command", "nan", "finite")),
        (0.3, ("sample 1", "axes.axis_1.limits.stroke", "command", "0.3 m")),
        (0.02, ("sample 1", "axes.axis_1.limits.velocity", "command", "20.48 m/s")),
    ],
)
def test_invalid_command_is_not_sent(rig: RigStage, value: float, reason: tuple[str, ...]) -> None:
    measured = rig.tick(command(1, value))
    assert measured.command[0] == 0.0
    assert measured.flags & FLAG_TRIPPED
    assert rig.machine.state is State.TRIPPED  # at rest, without a stop
    assert mentions(rig.machine.reason, *reason)


@pytest.mark.parametrize("sample", [0, 1])
@pytest.mark.parametrize(
    ("displacement", "force", "reason"),
    [
        (math.nan, 0.0, "axes.axis_1.limits.stroke: measured = nan m"),
        (0.26, 0.0, "axes.axis_1.limits.stroke: measured = 0.26 m"),
        (0.0, math.nan, "axes.axis_1.limits.force: measured = nan N"),
        (0.0, -2e6, "axes.axis_1.limits.force: measured = -2e+06 N"),
    ],
)
def test_invalid_measurement_trips(
    rig: RigStage, sample: int, displacement: float, force: float, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rig.port, "read", lambda: measurement(sample, displacement, force))
    if sample == 0:
        rig.complete()
        monkeypatch.undo()
    measured = rig.tick(command(1, 0.001))
    assert measured.flags & FLAG_TRIPPED
    assert measured.command[0] == 0.0
    assert rig.machine.reason.startswith(f"sample 1: {reason}")


@pytest.mark.parametrize("lost", ["", "no state"])
def test_first_measurement_needs_commands_at_which_the_rig_is_held(
    rig: RigStage, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A safe stop from NaN would go to the end of the stroke."""
    unknown = Measurement(0, np.zeros(1), np.zeros(1), np.full(1, math.nan))
    monkeypatch.setattr(rig.port, "read", lambda: unknown)
    monkeypatch.setattr(rig.port, "interlock", lost)
    with pytest.raises(PortError, match=lost or naming("Measurement 0", "command", "nan")):
        rig.complete()


def test_tracking_error_trips() -> None:
    rig = started(override(SINE, ["axes.axis_1.limits.tracking_error=0.01"]))
    assert not rig.tick(command(1, 0.0, goal=0.0099)).flags
    assert rig.tick(command(2, 0.0, goal=0.0101)).flags & FLAG_TRIPPED
    assert mentions(rig.machine.reason, "sample 2", "axes.axis_1.limits.tracking_error", "0.0101 m")


def test_missing_command_stops_rig(rig: RigStage) -> None:
    rig.tick(command(1, 0.001))
    measured = [rig.tick(None), *until_rest(rig)]
    assert mentions(rig.machine.reason, "command", "came")
    assert all(m.flags & FLAG_TRIPPED for m in measured)


def test_trip_in_motion_stops_with_bounded_deceleration(rig: RigStage) -> None:
    for sample in range(1, 101):
        rig.tick(command(sample, 0.0005 * sample))
    rig.trip("button pressed")
    measured = [rig.tick(command(101, 0.0505)), *until_rest(rig)]
    assert rig.machine.state is State.TRIPPED
    assert mentions(rig.machine.reason, "pressed", "button")
    positions = np.array([0.0495, 0.05, *(m.command[0] for m in measured)])
    assert np.abs(np.diff(positions, 2)).max() <= 10.0 * SINE.dt**2 * (1.0 + 1e-9)
    assert positions[-1] == pytest.approx(0.05 + (0.0005 / SINE.dt) ** 2 / (2.0 * 10.0), rel=0.02)


def test_hold_stops_rig(rig: RigStage) -> None:
    for sample in range(1, 11):
        rig.tick(command(sample, 0.0005 * sample))
    rig.hold("interrupted")
    until_rest(rig)
    assert (rig.machine.state, rig.machine.reason) == (State.HELD, "sample 11: interrupted")


def test_first_reason_is_kept(rig: RigStage) -> None:
    rig.trip("first")
    rig.trip("second")
    rig.hold("third")
    rig.tick(command(1))
    assert (rig.machine.state, rig.machine.reason) == (State.TRIPPED, "sample 1: first")


@pytest.mark.parametrize(("request_now", "reason"), [("hold", "later"), ("trip", "now")])
def test_pending_trip_does_not_delay_stop(rig: RigStage, request_now: str, reason: str) -> None:
    rig.trip("later", 500)
    getattr(rig, request_now)("now")
    assert rig.tick(command(1)).flags == FLAG_TRIPPED
    assert (rig.machine.state, rig.machine.reason) == (State.TRIPPED, f"sample 1: {reason}")


@pytest.mark.parametrize("before_measurement", [False, True])
def test_hold_does_not_change_end_of_trip(
    rig: RigStage, before_measurement: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sample in range(1, 11):
        rig.tick(command(sample, 0.0005 * sample))
    with monkeypatch.context() as patch:
        patch.setattr(rig.port, "read", lambda: measurement(11, 0.26))
        rig.begin_tick(command(11, 0.0055))
        if before_measurement:
            rig.hold("interrupted")
        rig.complete()
    assert rig.machine.state is State.STOPPING
    rig.hold("interrupted")
    until_rest(rig)
    assert rig.machine.state is State.TRIPPED
    assert "limits.stroke" in rig.machine.reason


def test_trip_waits_for_its_sample(rig: RigStage) -> None:
    rig.trip("later", 5)
    assert [rig.tick(command(sample)).flags for sample in range(1, 5)] == [0, 0, 0, 0]
    assert rig.stop_due
    assert rig.tick(command(5)).flags == FLAG_TRIPPED


def test_safe_stop_is_written_as_tripped_command(rig: RigStage, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Command] = []
    monkeypatch.setattr(rig.port, "write", written.append)
    rig.tick(Command(1, np.array([0.001]), np.array([0.002]), flags=FLAG_TRIPPED | FLAG_BRIDGED))
    rig.trip("enough")
    rig.tick(None)
    driven, stopping = written
    assert (driven.target[0], driven.command[0], driven.flags) == (0.001, 0.002, FLAG_BRIDGED)
    assert stopping.target.tolist() == stopping.command.tolist()
    assert (stopping.sample, stopping.flags) == (2, FLAG_TRIPPED)


@pytest.mark.parametrize(
    ("interlock", "partial_stop", "reason"),
    [
        ("taken", "stopped", "taken"),
        ("", "stopped", "limits.stroke: measured = 0.26 m"),
        ("", "", "limits.stroke: measured = 0.26 m"),
    ],
)
def test_interlock_precedes_limit_and_partial_stop(
    rig: RigStage, interlock: str, partial_stop: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rig.port, "read", lambda: measurement(1, 0.26))
    monkeypatch.setattr(rig.port, "interlock", interlock)
    monkeypatch.setattr(rig.port, "partial_stop", partial_stop)
    measured = rig.tick(command(1))
    assert reason in rig.machine.reason
    assert measured.interlock == (INTERLOCK_OPEN if interlock else INTERLOCK_NOT_TOLD)


def test_partial_stop_trips(rig: RigStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.port, "partial_stop", "axes.a: its node has stopped it")
    rig.tick(command(1))
    assert mentions(rig.machine.reason, "sample 1", "axes.a")


def test_real_rig_is_not_armed_without_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = RigStage(SINE, Assembly(SINE).port)
    monkeypatch.setattr(rig.port, "simulated", False)
    with pytest.raises(ConfigError, match=naming("operator", "arm")):
        rig.connect()


class Script:
    """Sink that stores the messages of the loop."""

    def __init__(self) -> None:
        self.sent: dict[str, list[Any]] = {"target": [], "command": [], "measurement": []}

    def target(self, target: Target) -> None:
        self.sent["target"].append(target)

    def command(self, command: Command) -> None:
        self.sent["command"].append(Command(command.sample, command.target.copy(), command.command.copy()))

    def measurement(self, measured: Measurement) -> None:
        self.sent["measurement"].append(measured)

    def truth(self, true: Measurement) -> None: ...

    def state(self, sample: int, values: Any) -> None: ...


@pytest.mark.parametrize("overrides", [[], ["axes.story_1.limits.force=2e4"]], ids=["finished", "tripped"])
def test_monitor_pairs_messages_by_number(overrides: list[str]) -> None:
    """Messages of one kind in order, the kinds interleaved at random: same indices to the bit."""
    loop, script = Loop(Assembly(override(PAPER, overrides))), Script()
    outcome = loop.run([script])
    for seed in range(5):
        stage = MonitorStage.of(Assembly(loop.scenario))
        waiting = {kind: list(reversed(sent)) for kind, sent in script.sent.items()}
        rng = np.random.default_rng(seed)
        while any(waiting.values()):
            kind = rng.choice([kind for kind, sent in waiting.items() if sent])
            for _ in range(rng.integers(1, 40)):
                if waiting[kind]:
                    getattr(stage, kind)(waiting[kind].pop())
            stage.work()
        assert stage.sample == outcome.samples
        assert stage.metrics() == outcome.metrics


@pytest.mark.parametrize(("request_late", "state"), [("hold", State.FINISHED), ("trip", State.TRIPPED)])
def test_only_trip_changes_outcome_of_finished_test(request_late: str, state: State) -> None:
    stage = RigStage(SINE, Assembly(SINE).port)
    stage.machine.state = State.FINISHED
    stage.stop_request = StopRequest("late", end=State.HELD) if request_late == "hold" else StopRequest("late")
    stage.settle()
    assert stage.machine.state is state
