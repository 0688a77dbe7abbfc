# SPDX-License-Identifier: Apache-2.0
"""Tests of bridges over late targets and commands: exact for the assumed motion, else without jumps, and short."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_parts import command, started
from messages import mentions, naming

from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core.control import rows_of
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import EMPTY, FLAG_BRIDGED, FLAG_TRIPPED, Command, Measurement, Target
from rths_nodes.core.validation import from_data
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import override
from rths_nodes.loop.stages.command import CommandStage
from rths_nodes.loop.stages.monitor import MonitorStage
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.bridges import (
    SHARE,
    BridgeCount,
    BridgeParams,
    CommandBridge,
    Fading,
    MotionBridge,
)
from rths_nodes.loop.supervision.limits import LimitCheck
from rths_nodes.loop.supervision.safe_stop import SafeStop, excess_travel
from rths_nodes.loop.supervision.states import State

DT = 1.0 / 1024.0
SINE = files.load("predefined_sine", ["duration=1", "compensator.type=none"])
SLOW = override(SINE, ["substeps=10", "ramp.type=hermite"])
LONGEST = 10  # samples in 10 ms at 1024 Hz


def target(step: int, *motion: float) -> Target:
    rows = [np.array([value]) for value in (motion or (0.0, 0.0, 0.0))]
    return Target(step, *rows, *(np.zeros(1) for _ in range(3)))


def measurement(sample: int, flags: int = 0) -> Measurement:
    return Measurement(sample, np.zeros(1), np.zeros(1), np.zeros(1), flags=flags)


def parabola(time: float) -> tuple[float, float, float]:
    """Displacement, velocity and acceleration under constant acceleration."""
    return 0.01 + 0.2 * time + 1.5 * time**2, 0.2 + 3.0 * time, 3.0


def wave(time: float) -> tuple[float, float, float]:
    """A motion of 3 Hz and 20 mm."""
    w = 2.0 * math.pi * 3.0
    return 0.02 * math.sin(w * time), 0.02 * w * math.cos(w * time), -0.02 * w**2 * math.sin(w * time)


# Fading


@pytest.mark.parametrize("difference", [(1e-4, 0.0, 0.0), (0.0, 0.05, 0.0), (0.0, 0.0, 2.0), (1e-4, -0.03, 2.0)])
def test_difference_fades_without_jump(difference: tuple[float, float, float]) -> None:
    """Velocity and acceleration are the derivatives of the displacement, which fades from all to nothing."""
    dt, samples = 1e-5, 1000
    fading = Fading(samples, dt, np.array([0.76]))
    fading.begin(np.array(difference)[:, None])
    left = []
    while fading.active:
        left.append(fading.step()[:, 0])
    x, v, a = np.array([*left, np.zeros(3)]).T
    assert len(left) == samples
    np.testing.assert_allclose([x[0], v[0], a[0]], difference, rtol=1e-12)
    np.testing.assert_allclose(np.gradient(x, dt)[1:-1], v[1:-1], atol=2e-3 * np.abs(v).max())
    np.testing.assert_allclose(np.gradient(v, dt)[1:-1], a[1:-1], atol=2e-3 * np.abs(a).max())


def test_fading_time_follows_velocity_limit() -> None:
    fading = Fading(10, DT, np.array([0.76, 0.1]))
    fading.begin(np.array([[1e-6, 5e-3], [0.0, 0.0], [0.0, 0.0]]))
    rows = []
    while fading.active:
        rows.append(fading.step())
    assert len(rows) == math.ceil(1.875 * 5e-3 / (SHARE * 0.1 * DT))
    assert np.abs(np.diff([row[0, 1] for row in rows])).max() <= SHARE * 0.1 * DT


def test_new_difference_is_added_to_remainder() -> None:
    """A zero difference changes nothing at that sample: the velocity continues, the rest starts to fade again."""
    alone, again = (Fading(10, DT, np.array([0.76])) for _ in range(2))
    for fading in (alone, again):
        fading.begin(np.array([[1e-4], [0.01], [0.0]]))
        for _ in range(5):
            fading.step()
    again.begin(np.zeros((3, 1)))
    np.testing.assert_allclose(again.step(), alone.step(), rtol=1e-12)
    for _ in range(4):
        alone.step()
    assert again.active
    assert not alone.active


# Late targets


def test_motion_bridge_is_exact_for_constant_acceleration() -> None:
    identity = SimpleNamespace(axes=lambda motion: motion)
    bridge = MotionBridge(identity, DT, 10, Fading(10, DT, np.array([0.76])))  # type: ignore[arg-type]
    bridge.follow(3, rows_of(target(3, *parabola(30 * DT))))
    for sample in range(31, 45):
        motion = [values[0] for values in bridge.motion(sample)]
        np.testing.assert_allclose(motion, parabola(sample * DT), rtol=1e-12)


def follow(stage: CommandStage, motion: Any, late: set[int], samples: int = 90) -> tuple[list[float], list[int]]:
    """Commands and flags for targets of ``motion`` that are late at the samples in ``late``."""
    steps, sent, flags = 0, [], []
    stage.target(target(0, *motion(0.0)))
    for sample in range(1, samples + 1):
        needed = -(-sample // stage.substeps)
        if sample not in late:
            while steps < needed:
                steps += 1
                stage.target(target(steps, *motion(steps * stage.substeps * DT)))
        assert stage.ready(sample) == (sample not in late)
        answer = (stage.next if stage.ready(sample) else stage.bridge)(measurement(sample - 1))
        assert answer is not None
        sent.append(answer.command[0])
        flags.append(answer.flags)
    return sent, flags


@pytest.mark.parametrize(
    "late", [{31}, set(range(31, 36)), set(range(31, 41)), set(range(38, 44)), {11, 21, 31, 41}]
)
def test_bridged_parabola_is_exact(late: set[int]) -> None:
    late = {sample for sample in late if sample % 10 != 0 or sample - 1 in late}
    late -= set(range(38, 41))  # the Target has been received
    sent, flags = follow(CommandStage(Assembly(SLOW)), parabola, late)
    np.testing.assert_allclose(sent, [parabola(k * DT)[0] for k in range(1, 91)], rtol=1e-9)
    assert {k + 1 for k, flag in enumerate(flags) if flag & FLAG_BRIDGED} == late


def test_predicted_share_needs_no_target() -> None:
    """A real-time host continues without it for six of ten samples, with the same Commands."""
    loaded = override(SLOW, ["ramp={type: predictor_corrector, predicted_share: 0.6}"])
    patient, hurried = (CommandStage(Assembly(loaded)) for _ in range(2))
    hurried.assume_realtime()
    for step in range(2):
        for stage in (patient, hurried):
            stage.target(target(step, *wave(10 * step * DT)))
    answers: list[list[Command | None]] = [[], []]
    for sample in range(40):
        step, substep = divmod(sample, 10)
        if substep == 0 and step:
            assert not patient.ready(sample + 1)
            patient.target(target(step + 1, *wave(10 * (step + 1) * DT)))
        if substep == 6 and step:
            assert not hurried.ready(sample + 1)
            hurried.target(target(step + 1, *wave(10 * (step + 1) * DT)))
        for commands, stage in zip(answers, (patient, hurried), strict=True):
            assert stage.ready(sample + 1)
            commands.append(stage.next(measurement(sample)))
    for expected, early in zip(*answers, strict=True):
        assert expected is not None
        assert early is not None
        assert (expected.command[0], expected.flags) == (early.command[0], early.flags) == (expected.target[0], 0)
    assert hurried.bridged == 0


@pytest.mark.parametrize("ramp", ["linear", "quadratic", "hermite", "predictor_corrector"])
@pytest.mark.parametrize("length", [1, 5, 10])
def test_late_target_causes_no_jump(ramp: str, length: int) -> None:
    """The velocity changes by about as much as by the ramp alone, and the motion returns to the targets."""
    loaded = override(SLOW, [f"ramp.type={ramp}"])
    plain, _ = follow(CommandStage(Assembly(loaded)), wave, set())
    bridged, _ = follow(CommandStage(Assembly(loaded)), wave, set(range(31, 31 + length)))
    ripple = np.abs(np.diff(plain, 2)).max()
    assert np.abs(np.diff(bridged, 2)).max() <= 1.5 * ripple
    np.testing.assert_array_equal(bridged[30 + length + 10 :], plain[30 + length + 10 :])
    assert 0.0 < np.abs(np.subtract(bridged, plain)).max() < 3e-4


def test_late_targets_are_processed_in_order() -> None:
    """After two simultaneous Targets the ramp has its history again."""
    loaded = override(SLOW, ["ramp.type=quadratic", "substeps=4"])
    plain, _ = follow(CommandStage(Assembly(loaded)), wave, set())
    bridged, flags = follow(CommandStage(Assembly(loaded)), wave, set(range(41, 49)))
    assert sum(flag & FLAG_BRIDGED for flag in flags) == 8
    np.testing.assert_array_equal(bridged[58:], plain[58:])


def test_command_stage_bridges_at_most_max_bridge() -> None:
    stage = CommandStage(Assembly(SINE))
    stage.target(target(0, *wave(0.0)))
    answers = [stage.bridge(measurement(sample)) for sample in range(LONGEST + 2)]
    assert all(answers[:LONGEST])
    assert answers[LONGEST:] == [None, None]
    assert stage.bridged == LONGEST


def test_no_bridge_after_trip_or_end() -> None:
    stage = CommandStage(Assembly(SINE))
    stage.target(target(0))
    assert stage.bridge(measurement(0, FLAG_TRIPPED)) is None
    assert stage.bridge(measurement(stage.samples)) is None
    assert stage.bridged == 0


def test_repeated_target_is_dropped() -> None:
    stage = CommandStage(Assembly(SINE))
    for step in (0, 1, 1, 0, 2):
        stage.target(target(step))
    assert stage.dropped == 2
    with pytest.raises(ValueError, match="received Target 4, expected Target 3"):
        stage.target(target(4))


@pytest.mark.parametrize("field", ["displacement", "velocity", "acceleration"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_non_finite_target_gives_non_finite_command(field: str, value: float) -> None:
    """Including fields that the ramp does not use."""
    stage = CommandStage(Assembly(override(SLOW, ["ramp.type=linear"])))
    stage.target(target(0))
    bad = target(1)
    setattr(bad, field, np.array([value]))
    stage.target(bad)
    answer = stage.next(measurement(0))
    assert answer is not None
    assert not np.isfinite(answer.target).any()


def test_compensator_state_is_constant_during_bridge() -> None:
    stage = CommandStage(Assembly(files.load("predefined_sine", ["duration=1"])))
    stage.target(target(0))
    stage.target(target(1))
    stage.next(measurement(0))
    before = list(stage.state())
    for sample in range(1, 8):
        answer = stage.bridge(Measurement(sample, np.array([0.1 * sample]), np.zeros(1), np.zeros(1)))
        assert answer is not None
        assert answer.flags & FLAG_BRIDGED
        assert list(stage.state()) == before


# Late commands


def rig_of(*overrides: str) -> RigStage:
    return started(override(SINE, overrides))


def drive(rig: RigStage, values: list[float], late: set[int], arrives: int = 0) -> list[float]:
    """Command k is ``values[k - 1]``; those in ``late`` are late by ``arrives`` samples, or lost if that is 0."""
    sent, waiting = [], dict[int, Command]()
    for sample, value in enumerate(values, 1):
        if sample in waiting:
            rig.late_command(waiting.pop(sample))
        if sample in late and arrives:
            waiting[sample + arrives] = command(sample, value)
        measured = rig.tick(None, late=True) if sample in late else rig.tick(command(sample, value))
        assert bool(measured.flags & FLAG_BRIDGED) == (sample in late)
        sent.append(measured.command[0])
    return sent


@pytest.mark.parametrize("arrives", [0, 1, 3])
def test_late_commands_continue_straight_line(arrives: int) -> None:
    values = [1e-4 * k for k in range(1, 41)]
    rig = rig_of()
    np.testing.assert_allclose(drive(rig, values, {9, 20, 21, 22}, arrives), values, rtol=1e-9)
    assert (rig.bridged, rig.late_commands) == (4, 4 if arrives else 0)


@pytest.mark.parametrize("arrives", [0, 1])
@pytest.mark.parametrize("length", [1, 5, 10])
def test_late_command_causes_no_jump(length: int, arrives: int) -> None:
    values = [wave(k * DT)[0] for k in range(1, 81)]
    rig = rig_of()
    sent = drive(rig, values, set(range(31, 31 + length)), arrives)
    np.testing.assert_array_equal(sent[30 + length + 10 :], values[30 + length + 10 :])
    # error of the straight line: a t^2 / 2 = 0.3 mm after 10 samples at 7 m/s^2
    assert np.abs(np.subtract(sent, values)).max() < 4e-4
    assert np.abs(np.diff(sent)).max() < 1.3 * np.abs(np.diff(values)).max()


def test_target_and_command_of_bridge_fade_alike() -> None:
    bridge = CommandBridge(Fading(10, DT, np.full(1, 0.8)), DT, np.zeros(1), EMPTY)
    ahead = [Command(k, np.array([value]), np.array([value + 1e-3])) for k, value in enumerate((0.0, 1e-4), 1)]
    for earlier in ahead:
        bridge.rejoin(earlier)
    assert bridge.command(3).target[0] == pytest.approx(2e-4)
    joined = bridge.rejoin(Command(4, np.zeros(1), np.full(1, 1e-3)))
    assert (joined.target[0], joined.command[0]) == (pytest.approx(3e-4), pytest.approx(1.3e-3))


def test_late_commands_improve_later_bridges() -> None:
    """Late commands that do arrive improve the later bridges of the same gap."""
    values = [wave(k * DT)[0] for k in range(1, 61)]
    errors = []
    for arrives in (0, 1):
        sent = drive(rig_of("bridge.rejoin_samples=1"), values, set(range(31, 37)), arrives)
        errors.append(np.abs(np.subtract(sent, values)).max())
    assert errors[1] < 0.5 * errors[0]


def test_late_command_is_never_sent() -> None:
    rig = rig_of()
    rig.tick(command(1, 1e-4))
    rig.tick(None, late=True)
    rig.late_command(command(2, 0.005))
    rig.late_command(command(1, 0.005))
    assert rig.late_commands == 2
    assert rig.tick(command(3, 3e-4)).command[0] < 0.0055


def test_bridge_towards_end_of_stroke_trips() -> None:
    rig = rig_of("axes.axis_1.limits.stroke=0.026", "axes.axis_1.limits.deceleration=10")
    for sample in range(1, 20):
        rig.tick(command(sample, 5e-4 * sample))
    last = []
    while not rig.ended:
        last.append(rig.tick(None, late=True).command[0])
    assert mentions(rig.machine.reason, "axes.axis_1.limits.stroke", "command", "0.0135 m", "0.512 m/s")
    assert max(last) <= 0.026
    assert np.abs(np.diff([0.009, 0.0095, *last], 2)).max() <= 10.0 * DT**2 * (1.0 + 1e-9), "10 m/s^2 at most"


@pytest.mark.parametrize("missing", ["Command", "Target"])
def test_bridge_longer_than_max_bridge_trips(missing: str) -> None:
    rig = rig_of()
    sample = 0
    while not rig.stopping:
        sample += 1
        rig.tick(None, late=True) if missing == "Command" else rig.tick(command(sample, 0.0, FLAG_BRIDGED))
    reason = f"sample {LONGEST + 1}: bridge.max_bridge: no {missing} for 10.7 ms: must be <= 10 ms"
    assert (rig.machine.reason, rig.bridged) == (reason, LONGEST)


def test_consecutive_bridges_are_counted_together() -> None:
    """A late Target after a late Command belongs to the same gap."""
    rig = rig_of()
    for sample in range(1, LONGEST + 2):
        rig.tick(None, late=True) if sample <= 5 else rig.tick(command(sample, 0.0, FLAG_BRIDGED))
    assert mentions(rig.machine.reason, "Command", "10.7 ms")


def test_missing_command_that_is_not_late_trips() -> None:
    rig = rig_of()
    rig.tick(None)
    assert mentions(rig.machine.reason, "sample 1", "command")


def test_bridge_at_start_stands_still() -> None:
    start = np.array([0.003])
    bridge = CommandBridge(Fading(10, DT, np.array([0.76])), DT, start, np.array([2.25]))
    bridged = bridge.command(1)
    assert (bridged.command[0], bridged.target[0], bridged.auxiliary[0]) == (0.003, 0.003, 2.25)


@pytest.mark.parametrize("parameter", [("max_bridge", -0.01), ("max_bridge", 1.1), ("rejoin_samples", 0)])
def test_bridge_parameters_have_bounds(parameter: tuple[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"bridge.{parameter[0]} = .*must be >= "):
        from_data(BridgeParams, dict([parameter]), "bridge")


def test_zero_max_bridge_trips_at_once() -> None:
    rig = rig_of("bridge.max_bridge=0")
    assert rig.tick(None, late=True).flags & FLAG_TRIPPED
    assert "must be <= 0 ms" in rig.machine.reason


@pytest.mark.parametrize("velocity", [0.05, 0.4, 0.76])
def test_excess_travel_covers_worst_case(velocity: float) -> None:
    """Full speed, the longest bridge, then the safe stop."""
    limits = from_data(Limits, {"stroke": 0.25, "velocity": velocity, "force": 1e6})
    dt = 1e-4
    stop, last = SafeStop({"a": limits}, dt), np.array([velocity * 0.010])
    stop.begin(last - velocity * dt, last)
    while not stop.at_rest:
        position = stop.step()[0]
    assert position <= excess_travel(limits, 0.010) <= position + velocity * dt


COUPLED = "110 mm", "10 ms", "1 m/s", "5 m/s^2"
CHECKS: dict[str, list[tuple[str, ...]]] = {
    "chen_ricles_2010": [
        ("axes.story_1", "command", "36.5 mm", "10 ms", "0.76 m/s", "10 m/s^2", "lag"),
        ("axes.story_1", "250 mm", "0.76 m/s", "28.9 mm", "221.1 mm"),
    ],
    # the receiver first uses up 16 transported samples: 11.9 mm at 0.76 m/s
    "chen_ricles_2010 --set port={type: udp, emulator: true, transport_samples: 16}": [
        ("48.4 mm",),
        ("10 ms", "15.6 ms", "0.76 m/s", "10 m/s^2"),
    ],
    # how far a pause goes depends on the other axes and on the compensator
    "chen_ricles_2010 --set bridge.when_late=pause": [("36.5 mm", "in a pause", "further", "within its stroke")],
    # 1 m/s takes 0.1 s at 10 m/s^2, and 0.2 s at 5 m/s^2
    "two_actuator_coupler --set axes.north.limits.deceleration=5": [
        ("axes.north", *COUPLED),
        ("axes.south", *COUPLED),
        ("north", "south", "0.2 s"),
    ],
}


@pytest.mark.parametrize("arguments", CHECKS, ids=["axis", "transport", "pause", "coupled axes"])
def test_check_prints_excess_travel(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *arguments.split(" ", 2)]) == 0
    output = capsys.readouterr().out
    for row in CHECKS[arguments]:
        assert mentions(output, *row)


# Non-finite, lost and late values


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_non_finite_auxiliary_values_are_refused(value: float) -> None:
    limits = {"a": from_data(Limits, {"stroke": 0.1, "velocity": 1.0, "force": 1e6})}
    check = LimitCheck(limits, DT, ["damper_voltage [V]"], ["damper_force [N]"])
    zero, bad = np.zeros(1), np.array([value])
    assert mentions(check.command(Command(1, zero, zero, bad), zero), "damper_voltage", "V", value, "finite")
    reason = check.measurement(Measurement(1, zero, zero, zero, bad), zero)
    assert mentions(reason, "damper_force", "N", value, "finite")
    assert check.command(Command(1, zero, zero, zero), zero) == ""


def test_monitor_continues_after_lost_command() -> None:
    stage = MonitorStage.of(Assembly(SINE))
    for step in range(40):
        stage.target(target(step))
    for sample in range(33):
        if sample not in (0, 20):
            stage.command(command(sample, 1e-3 * sample))
        x, flags = np.array([1e-3 * sample]), FLAG_BRIDGED if sample == 20 else 0
        stage.measurement(Measurement(sample, x, np.zeros(1), x, flags=flags))
        assert stage.sample == (19 if sample == 20 else sample)  # the command may still arrive
    assert stage.metrics()["axes"]["axis_1"]["max_error_m"] < 1e-15


@pytest.mark.parametrize("behind", [5, 400])
def test_breach_in_last_samples_is_reported(behind: int) -> None:
    """Detected within the last 512 samples: too late to stop, but it is reported."""
    loop = Loop(Assembly(files.load("chen_ricles_2010", ["duration=8", "monitor.energy_error_percent=2"])))
    assert loop.run().state is State.TRIPPED
    breach = loop.monitor.monitor.breach
    assert breach is not None
    short = Loop(Assembly(override(loop.scenario, [f"duration={(breach[0] + behind) / 1024}"])))
    outcome = short.run()
    assert short.monitor.monitor.breach == breach
    assert outcome.samples == short.scenario.samples < breach[0] + 512
    assert (outcome.state, outcome.reason) == (State.TRIPPED, f"sample {outcome.samples}: {breach[1]}")


def test_interrupt_after_end_has_no_effect() -> None:
    loop = Loop(Assembly(override(SINE, ["duration=0.1"])))
    assert loop.run(interrupted=lambda: loop.rig.sample == loop.scenario.samples).state is State.FINISHED


def test_bridge_count_reports_first_missing_message() -> None:
    count = BridgeCount(BridgeParams(max_bridge=2.0 * DT), DT)
    for missing in ("Target", "Command", "Target"):
        assert count.breach == ""
        count.follow(True, missing)
    assert mentions(count.breach, "bridge.max_bridge", "2.93 ms", "<= 1.95312 ms")
    count.follow(False)
    assert count.breach == ""


# Overruns: late periods allowed in a row and in a window, and the trip beyond

ALLOWED = {"in_a_row": 2, "in_window": 5, "window": 100 * DT}
NAME = "chen_ricles_2010"


def overruns(**changed: Any) -> BridgeCount:
    return BridgeCount(from_data(BridgeParams, {"overruns": ALLOWED | changed}), DT)


def first_breach(count: BridgeCount, late: dict[int, int], samples: int = 300) -> tuple[int, str]:
    """Return sample and reason of the first breach; ``late``: periods missed before a sample, or -1 if bridged."""
    for sample in range(1, samples):
        count.sampled(sample, abs(late.get(sample, 0)))
        if count.breach:
            return sample, count.breach
    return 0, ""


@pytest.mark.parametrize(
    ("late", "sample", "words"),
    [
        ({20: 2, 40: 2}, 0, ()),
        ({20: 3}, 20, ("bridge.overruns.in_a_row", "3", "<= 2")),
        ({20: -1, 21: -1, 22: -1}, 22, ("bridge.overruns.in_a_row", "3", "<= 2")),
        ({20: -1, 21: 2}, 21, ("bridge.overruns.in_a_row", "3", "<= 2")),
        ({20: 2, 22: 2, 24: 2}, 24, ("bridge.overruns.in_window", "6", "0.0976562 s", "<= 5")),
        ({20: 2, 22: 2, 120: 2}, 0, ()),  # the first one has left the window
        ({20: 2, 22: 2, 119: 2}, 119, ("bridge.overruns.in_window", "6", "0.0976562 s", "<= 5")),
    ],
)
def test_late_periods_count_in_a_row_and_in_window(late, sample, words):
    breach_sample, breach = first_breach(overruns(), late)
    assert breach_sample == sample
    assert mentions(breach, *words) if words else not breach


def test_late_periods_in_ignored_time_are_not_counted():
    late = {3: 500, 10: 500, 11: 1}
    assert first_breach(overruns(ignored=10 * DT), late) == (0, "")
    assert first_breach(overruns(ignored=9 * DT), late)[0] == 10


def test_reason_of_single_late_period():
    reason = "bridge.overruns.in_a_row: 1 period was late in a row: must be <= 0"
    assert first_breach(overruns(in_a_row=0, in_window=0), {7: 1}) == (7, reason)


@given(
    st.dictionaries(st.integers(1, 60), st.integers(-1, 3)),
    st.integers(0, 3),
    st.integers(0, 5),
    st.integers(1, 9),
)
def test_first_breach_equals_count_at_every_sample(late, in_a_row, more, window):
    in_window = in_a_row + more
    counted = [abs(late.get(sample, 0)) for sample in range(61)]

    def broken(sample: int) -> bool:
        row = next((back for back in range(sample + 1) if not counted[sample - back]), sample)
        return bool(counted[sample]) and (
            sum(counted[sample - row + 1 : sample + 1]) > in_a_row
            or sum(counted[max(sample - window + 1, 0) : sample + 1]) > in_window
        )

    expected = next((sample for sample in range(1, 61) if broken(sample)), 0)
    count = overruns(in_a_row=in_a_row, in_window=in_window, window=window * DT)
    assert first_breach(count, late, 61)[0] == expected


def test_late_commands_trip():
    allowed = ["bridge.overruns={in_a_row: 1, in_window: 3, window: 1.0}", "duration=2"]
    faults = ["late@0.1:command,0.05"]
    unlimited = hosts.run(NAME, allowed[1:], faults=faults)
    assert (unlimited.exit_code, unlimited.timing["bridged"]) == (4, pytest.approx(100, abs=50))
    done = hosts.run(NAME, allowed, faults=faults)
    assert done.exit_code == 3
    assert "bridge.overruns.in_" in done.reason
    assert hosts.run(NAME, allowed).exit_code == 0, "without faults"


def test_late_period_at_last_sample_trips():
    none = "bridge.overruns={in_a_row: 0, in_window: 0, window: 1.0}"
    scenario = files.load("predefined_sine", ["duration=0.1", "compensator.type=none", none])
    rig = started(scenario)
    for sample in range(1, scenario.samples):
        rig.tick(Command(sample, np.zeros(1), np.zeros(1)))
    rig.tick(None, late=True)
    rig.settle()
    assert rig.machine.state is State.TRIPPED
    assert mentions(rig.machine.reason, scenario.samples, "bridge.overruns.in_a_row")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            {"overruns": ALLOWED | {"in_a_row": 6}},
            ("bridge.overruns.in_a_row", "6", "<= bridge.overruns.in_window", "5"),
        ),
        ({"overruns": {"in_a_row": 1}}, ("bridge.overruns.in_window", "missing")),
        ({"overruns": ALLOWED, "when_late": "pause"}, ("bridge.overruns", "bridge.when_late", "pause")),
    ],
)
def test_invalid_overruns_are_refused(data, words):
    with pytest.raises(ConfigError, match=naming(*words)):
        from_data(BridgeParams, data, "bridge")


def test_unknown_key_is_refused_with_known_names(capsys):
    assert main(["check", NAME, "--set=bridge.overruns={in_row: 1, in_window: 3, window: 1.0}"]) == 2
    assert "in_a_row" in capsys.readouterr().err
