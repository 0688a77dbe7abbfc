# SPDX-License-Identifier: Apache-2.0
"""Tests of the pause of a test: smooth slowing, smooth return, limited duration."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from loop_parts import collected, command, started
from messages import mentions, naming

from rths_nodes.core.control import Compensator
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_SLOWED, FLAG_TRIPPED, Command, Measurement, Motion, Target
from rths_nodes.core.validation import from_data
from rths_nodes.loop.faults import FaultyLoop, parse
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import override
from rths_nodes.loop.stages.command import CommandStage, DueCommands
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.bridges import BridgeParams, Pause
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording.run import Collector

DT = 1.0 / 1024.0
BRAKING = 10.0
LONGEST = 10
"""Samples in 10 ms at 1024 Hz."""

LIMITS = {"a": from_data(Limits, {"stroke": 0.1, "velocity": 0.76, "force": 1e6, "deceleration": BRAKING})}
PARAMS = from_data(BridgeParams, {"when_late": "pause", "max_pause": 0.5})
GENTLE = "axes.axis_1.limits.deceleration=10"
SINE = files.load("predefined_sine", ["duration=1", "compensator.type=none", "bridge.when_late=pause", GENTLE])


def paused(path: Callable[[float], float], late: int = 0, at: int = 100) -> tuple[list[float], dict[int, float]]:
    """Pause at sample ``at`` for ``late`` ticks; return the sent commands and the samples by number."""
    pause = Pause(PARAMS, LIMITS, DT)
    before, last = (command(k, path(k * DT)) for k in (at - 1, at))
    sent, samples = [before.command[0], last.command[0]], dict[int, float]()
    pause.begin(before, last)
    ticks = 0
    while pause.active:
        ticks += 1
        following = at + len(samples) + 1
        assert ticks <= late or not (pause.needs_command and pause.coming)
        if ticks > late and pause.coming is None:
            pause.supply(command(following, path(following * DT)))
        sent.append(pause.command(following).command[0])
        if pause.sampled:
            samples[following] = sent[-1]
    sent += [path(k * DT) for k in range(following + 1, following + 4)]
    return sent, samples


def line(time: float) -> float:
    return 0.3 * time


def wave(time: float) -> float:
    """Sine of 3 Hz and 20 mm: at most 0.38 m/s and 7.1 m/s^2."""
    return 0.02 * math.sin(2.0 * math.pi * 3.0 * time)


# Slowing and return


def test_slowing_motion_follows_formula() -> None:
    """A stop from 0.3 m/s at 10 m/s^2 takes 45 ms and half of the distance at full speed."""
    sent, _ = paused(line, late=400)
    ticks = math.ceil(1.5 * 0.3 / BRAKING / DT)
    slowing = np.diff(sent[1 : 3 + ticks]) / DT
    s = np.arange(ticks + 1) / ticks
    travel = line(100 * DT) + 0.3 * ticks * DT * (s - s**3 + 0.5 * s**4)
    np.testing.assert_allclose(sent[1 : 2 + ticks], travel, rtol=0.0, atol=1e-15)
    assert np.all(np.diff(slowing) <= 1e-12)
    rest = sent[1 + ticks : 402]
    np.testing.assert_allclose(rest, sent[1] + 0.5 * 0.3 * ticks * DT, atol=1e-15)


@pytest.mark.parametrize("late", [0, 1, 20, 300])
@pytest.mark.parametrize("speed", [0.001, 0.1, 0.7, -0.7])
def test_pause_and_return_keep_deceleration(speed: float, late: int) -> None:
    sent, _ = paused(lambda time: speed * time, late)
    velocity = np.diff(sent) / DT
    assert np.abs(velocity).max() <= abs(speed) * (1 + 1e-9) + 0.2
    # second differences of a polynomial are at most its second derivative
    assert np.abs(np.diff(velocity) / DT).max() <= BRAKING * (1 + 1e-9)


def test_lead_of_command_scales_with_speed() -> None:
    """The inverse of a first-order lag requires this; the acceleration stays within the limit."""
    speed, lag = 0.2, 0.03
    pause = Pause(PARAMS, LIMITS, DT)

    def ahead(k: int) -> Command:
        return Command(k, np.array([speed * k * DT]), np.array([speed * (k * DT + lag)]))

    following, sent = 6, [ahead(4), ahead(5)]
    pause.begin(*sent)
    while pause.active:
        if len(sent) > 250 and pause.coming is None:
            pause.supply(ahead(following))
        sent.append(pause.command(following))
        following += pause.sampled
    sent += [ahead(following), ahead(following + 1)]
    target, driven = (np.array([getattr(message, name)[0] for message in sent]) for name in ("target", "command"))
    middle = (target[2:] - target[:-2]) / (2.0 * DT)
    returning = np.flatnonzero(middle < -1e-9)
    lead = np.delete((driven - target)[1:-1], returning)
    np.testing.assert_allclose(lead, np.delete(lag * middle, returning), atol=2e-3 * lag * speed)
    assert np.abs(np.diff(driven, 2)).max() / DT**2 <= BRAKING * (1 + 1e-9)


@pytest.mark.parametrize("at", range(20, 360, 20))
def test_wave_is_joined_without_step(at: int) -> None:
    """The pause adds its own acceleration to the acceleration of the wave."""
    sent, _ = paused(wave, 50, at)
    velocity = np.diff(sent) / DT
    acceleration = np.diff(velocity) / DT
    assert np.abs(velocity).max() < 0.45
    assert np.abs(acceleration).max() < BRAKING + 2.0 * 7.11


@pytest.mark.parametrize("at", [25, 100, 171])
def test_samples_of_return_are_at_their_commands(at: int) -> None:
    _, samples = paused(wave, 30, at)
    assert list(samples) == list(range(at + 1, at + 1 + len(samples)))
    for k, value in samples.items():
        half = 0.5 * abs(wave(k * DT) - wave((k - 1) * DT)) + 1e-5
        assert abs(value - wave(k * DT)) <= half
    assert samples[max(samples)] == pytest.approx(wave(max(samples) * DT), abs=1e-15)


def test_rig_at_rest_continues_at_once() -> None:
    sent, samples = paused(lambda time: 0.003, late=5)
    assert sent == [0.003] * len(sent)
    assert samples == {101: 0.003}


def test_pause_beyond_max_pause_is_a_breach() -> None:
    pause = Pause(PARAMS, LIMITS, DT)
    pause.begin(command(1, 0.0), command(2, 0.0))
    for _ in range(512):
        assert not pause.breach
        pause.command(3)
    pause.command(3)
    assert mentions(pause.breach, "bridge.max_pause", "0.501 s", "<= 0.5 s")
    pause.supply(command(3, 0.0))
    assert not pause.breach


# Pause in the stage of the rig


def rig_of(*overrides: str) -> RigStage:
    return started(override(SINE, overrides))


def drive(
    rig: RigStage, path: Callable[[float], float], lateness: Callable[[int], int]
) -> tuple[list[Measurement], list[float]]:
    """Send Command k at ``path(k DT)``, ``lateness(k)`` ticks late; return measurements and sent commands."""
    measurements, sent, waited = [], [0.0, 0.0], 0
    while not rig.ended:
        coming, following = None, rig.sample + 1
        if rig.pause.coming is None and not rig.stopping:
            if waited >= lateness(following):
                coming = command(following, path(following * DT))
            waited += 1
        measured = rig.tick(coming, late=coming is None)
        if measured is not None:
            measurements.append(measured)
            waited = 0
        sent.append(float(rig._sent[0]))
    return measurements, sent


def pause_after(rig: RigStage, sample: int, ticks: int) -> None:
    """Send the Commands up to ``sample``, and none for some ticks."""
    for k in range(1, sample + 1):
        rig.tick(command(k, wave(k * DT)))
    for _ in range(ticks):
        rig.tick(None, late=True)


def test_sample_number_stops_during_pause() -> None:
    """One Command is later than the longest bridge."""
    rig = rig_of()
    pause_after(rig, 40, ticks=10)
    assert (rig.sample, rig.ticks, rig.bridged) == (50, 50, 10)
    for _ in range(30):
        assert rig.tick(None, late=True) is None
    assert (rig.sample, rig.ticks, rig.pause.continues, rig.pause.coming) == (50, 80, True, None)
    assert rig.tick(command(51, wave(51 * DT)), late=False) is None
    assert rig.pause.coming is not None
    flags = []
    for k in range(52, 200):
        while (measured := rig.tick(None if rig.pause.coming else command(k, wave(k * DT)), late=True)) is None:
            pass
        assert measured.sample == k - 1
        flags.append(measured.flags)
    slowed = flags.count(FLAG_SLOWED)
    assert slowed == rig.slowed > 5
    assert flags == [FLAG_SLOWED] * slowed + [0] * (len(flags) - slowed)
    counts = rig.counts
    assert (counts["pauses"], counts["slowed"]) == (1, slowed)
    assert counts["paused_s"] == pytest.approx((rig.ticks - rig.sample) * DT)
    assert rig.machine.state is State.RUNNING


def test_bridged_targets_and_commands_are_counted_together() -> None:
    """Bridges of the compensator beyond ``max_bridge`` pause the rig."""
    rig = rig_of()
    for k in range(1, 5):
        rig.tick(command(k, wave(k * DT)))
    for k in range(5, 15):
        assert rig.tick(command(k, wave(k * DT), FLAG_BRIDGED)) is not None
    assert rig.tick(command(15, wave(15 * DT), FLAG_BRIDGED)) is None
    assert rig.pause.continues


@pytest.mark.parametrize("bridge", [0.0, 0.004])
@pytest.mark.parametrize("seed", range(12))
def test_random_lateness_causes_no_jump(seed: int, bridge: float) -> None:
    random = np.random.default_rng(seed)
    late = np.where(random.random(2000) < 0.02, random.integers(0, 90, 2000), 0)
    rig = rig_of("duration=0.6", f"bridge.max_bridge={bridge}")
    measurements, sent = drive(rig, wave, lambda k: int(late[k]))
    assert rig.machine.state is State.FINISHED, rig.machine.reason
    assert [measured.sample for measured in measurements] == list(range(1, rig.sample + 1))
    velocity = np.diff(sent) / DT
    acceleration = np.diff(velocity[2:]) / DT
    assert np.abs(velocity).max() < 0.6
    # a second pause during slow motion begins on a chord of the motion
    assert np.abs(acceleration).max() < 2.0 * (BRAKING + 2.0 * 7.11)
    assert rig.ticks - rig.sample == pytest.approx(rig.counts["paused_s"] / DT)
    assert rig.slowed == sum(measured.flags & FLAG_SLOWED > 0 for measured in measurements)
    assert rig.bridged == sum(measured.flags & FLAG_BRIDGED > 0 for measured in measurements)
    assert (rig.bridged > 0) == (bridge > 0.0)
    if bridge:
        return  # bridges fade in samples without a flag
    unflagged = [measured for measured in measurements if not measured.flags]
    expected = [wave(measured.sample * DT) for measured in unflagged]
    np.testing.assert_array_equal([measured.command[0] for measured in unflagged], expected)


def test_start_after_long_bridge_is_brief() -> None:
    """The bridge is 7 mm off; its end must not be a motion of 7 mm within one sample."""
    rig = rig_of("duration=0.6", "bridge.max_bridge=0.05", "axes.axis_1.limits.velocity=0.8")
    _, sent = drive(rig, wave, lambda k: 10_000 if 100 <= rig.ticks < 170 else 0)
    assert rig.machine.state is State.FINISHED
    assert 0 < rig.slowed < 60
    assert np.abs(np.diff(sent)).max() < 0.8 * DT


def test_pause_beyond_max_pause_trips_at_rest() -> None:
    rig = rig_of("bridge.max_pause=0.2")
    measurements, sent = drive(rig, wave, lambda k: 10_000 if k > 60 else 0)
    reason = "sample 71: bridge.max_pause: nothing to follow for 0.2 s: must be <= 0.2 s"
    assert (rig.machine.state, rig.machine.reason.replace("0.201", "0.2")) == (State.TRIPPED, reason)
    assert len({round(value, 12) for value in sent[-20:]}) == 1, "at rest before the trip"
    assert measurements[-1].sample == 71
    assert measurements[-1].flags & FLAG_TRIPPED


@pytest.mark.parametrize("end", ["trip", "hold"])
@pytest.mark.parametrize("ticks", [3, 200])
def test_stop_ends_pause(end: str, ticks: int) -> None:
    rig = rig_of()
    for k in range(1, 41):
        rig.tick(command(k, wave(k * DT)))
    while not rig.pause.continues:
        rig.tick(None, late=True)
    for _ in range(ticks):
        rig.tick(None, late=True)
    getattr(rig, end)("enough")
    last = rig._sent[0]
    while not rig.ended:
        measured = rig.tick(None)
        assert measured is not None
        assert abs(rig._sent[0] - last) < 0.4 * DT
        last = rig._sent[0]
    assert rig.machine.state is (State.TRIPPED if end == "trip" else State.HELD)
    assert rig.machine.reason == "sample 51: enough"


def test_flag_of_rig_in_command_is_ignored_in_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Axes do not check Commands with FLAG_TRIPPED."""
    rig, flags = rig_of("bridge.max_bridge=0"), list[int]()
    pause_after(rig, 69, ticks=30)
    monkeypatch.setattr(rig.port, "write", lambda command: flags.append(command.flags))
    rig.tick(command(70, wave(70 * DT), FLAG_TRIPPED))
    while rig.pause.coming is not None:
        rig.tick(None, late=True)
    assert not [value for value in flags if value & FLAG_TRIPPED]


def test_flag_of_rig_in_late_command_is_not_bridged(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, flags = rig_of(), list[int]()
    rig.tick(None, late=True)
    rig.late_command(command(1, 0.0, FLAG_TRIPPED))
    monkeypatch.setattr(rig.port, "write", lambda command: flags.append(command.flags))
    rig.tick(None, late=True)
    assert flags == [FLAG_BRIDGED]


def test_command_after_awaited_command_is_kept() -> None:
    """A later Command must not replace the Command that the pause already has."""
    rig = rig_of("bridge.max_bridge=0")
    due = DueCommands(rig)
    pause_after(rig, 69, ticks=30)
    rig.tick(due.arrived(command(70, wave(70 * DT))))
    assert due.arrived(command(71, wave(71 * DT))) is None
    assert due.kept() is None
    while rig.pause.coming is not None:
        rig.tick(None, late=True)
    assert due.kept().sample == rig.sample + 1 == 71


def test_limit_broken_in_pause_trips() -> None:
    rig = rig_of("axes.axis_1.limits.stroke=0.0199", "bridge.max_bridge=0")
    drive(rig, wave, lambda k: 100 if k == 70 else 0)
    assert rig.machine.state is State.TRIPPED
    assert "sample 70: axes.axis_1.limits.stroke: command" in rig.machine.reason


@pytest.mark.parametrize("invalid", [math.nan, 0.5])
def test_invalid_command_after_pause_trips(invalid: float) -> None:
    rig = rig_of("bridge.max_bridge=0")
    _, sent = drive(rig, lambda time: invalid if time > 69.5 * DT else wave(time), lambda k: 50 if k == 70 else 0)
    assert rig.machine.state is State.TRIPPED
    assert "axes.axis_1" in rig.machine.reason
    assert np.isfinite(sent).all()
    assert np.abs(sent).max() < 0.03


# Pause and compensator


def test_compensator_does_not_adapt_to_slowed_samples() -> None:
    flagged: list[bool] = []

    class Watching(Compensator):
        state_names = ()

        def step(self, motion: Motion, measured: np.ndarray) -> np.ndarray:
            flagged.append(motion.flagged)
            return motion.displacement

        def state(self) -> tuple[float, ...]:
            return ()

        def reset(self) -> None:
            flagged.clear()

    parts = Assembly(SINE)
    parts.compensator = Watching()
    stage = CommandStage(parts)
    for step in (0, 1):
        stage.target(Target(step, *np.zeros((6, 1))))
    zero = np.zeros(1)
    stage.next(Measurement(0, zero, zero, zero, flags=FLAG_SLOWED))
    assert flagged == [True]


def test_run_with_late_targets_pauses_and_finishes() -> None:
    """Repeated delays of 60 samples, for an actuator with a lag of 29 ms.

    The specimen does not depend on the rate, so force and Targets equal those without faults.
    """
    overrides = ["duration=1.5", "bridge={when_late: pause, max_bridge: 0}", "substeps=4", "ramp.type=quadratic"]
    overrides += ["compensator={type: inverse, alpha: 29}"]
    overrides += ["axes.story_1.specimen={type: kelvin_voigt, stiffness: 3.0e6, damping: 0.0}"]
    loaded = files.load("chen_ricles_2010", overrides)
    plain, late = (Collector(loaded, Assembly(loaded).names) for _ in range(2))
    FaultyLoop(Assembly(loaded), []).run([plain])
    report = FaultyLoop(Assembly(loaded), [parse("delay@0.4:target,60,1,40")]).run([late])
    assert report.state is State.FINISHED, report.reason
    assert report.timing["pauses"] >= 5
    assert report.timing["slowed"] == np.count_nonzero(late.run().flags & FLAG_SLOWED) > 10
    expected, run = plain.run(), late.run()
    assert len(run.time) == len(expected.time)
    peak = np.abs(expected.target).max()
    assert np.abs(run.target - expected.target).max() < 3e-3 * peak
    # the rest is due to straight lines between the samples
    assert np.abs(run.target - run.displacement).max() < 0.04 * peak


def test_pause_option_changes_nothing_without_lateness() -> None:
    runs = []
    for reaction in ("trip", "pause"):
        loaded = files.load("chen_ricles_2010", ["duration=1", f"bridge.when_late={reaction}"])
        runs.append(collected(FaultyLoop(Assembly(loaded), []))[1].arrays())
    for name, value in runs[0].items():
        np.testing.assert_array_equal(value, runs[1][name])


def test_max_pause_beyond_longest_wait_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("bridge.max_pause", "6 s", "<= port.longest_wait", "5 s")):
        override(SINE, ["bridge.max_pause=6"])
