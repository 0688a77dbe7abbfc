# SPDX-License-Identifier: Apache-2.0
"""A pause of the test: without a jump from the motion to rest and back, and never for long."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from messages import mentions, naming

from rths_nodes.core.control import Compensator
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_SLOWED, FLAG_TRIPPED, Command, Measurement, Motion, Target
from rths_nodes.core.validation import from_data
from rths_nodes.loop.faults import kinds
from rths_nodes.loop.faults.embedded import FaultyLoop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.overrides import override
from rths_nodes.loop.stages.command import CommandStage
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.bridges import BridgeParams
from rths_nodes.loop.supervision.pause import Pause
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


def command(sample: int, value: float, flags: int = 0) -> Command:
    return Command(sample, np.array([value]), np.array([value]), flags=flags)


def paused(path: Callable[[float], float], late: int = 0, at: int = 100) -> tuple[list[float], dict[int, float]]:
    """What is sent from ``at`` - 1 on; nothing follows for ``late`` ticks. And of that the samples by number."""
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
    for k in range(following + 1, following + 4):
        sent.append(path(k * DT))
    return sent, samples


def line(time: float) -> float:
    return 0.3 * time


def wave(time: float) -> float:
    """3 Hz and 20 mm: at most 0.38 m/s and 7.1 m/s^2."""
    return 0.02 * math.sin(2.0 * math.pi * 3.0 * time)


# the way down, and the way back


def test_it_slows_down_to_where_the_formula_says() -> None:
    """From 0.3 m/s with at most 10 m/s^2: in 45 ms, over half the way."""
    sent, _ = paused(line, late=400)
    ticks = math.ceil(1.5 * 0.3 / BRAKING / DT)
    slowing = np.diff(sent[1 : 3 + ticks]) / DT
    s = np.arange(ticks + 1) / ticks
    travel = line(100 * DT) + 0.3 * ticks * DT * (s - s**3 + 0.5 * s**4)
    np.testing.assert_allclose(sent[1 : 2 + ticks], travel, rtol=0.0, atol=1e-15)
    assert np.all(np.diff(slowing) <= 1e-12), "it only ever gets slower"
    rest = sent[1 + ticks : 402]
    np.testing.assert_allclose(rest, sent[1] + 0.5 * 0.3 * ticks * DT, atol=1e-15)


@pytest.mark.parametrize("late", [0, 1, 20, 300])
@pytest.mark.parametrize("speed", [0.001, 0.1, 0.7, -0.7])
def test_neither_way_is_faster_than_the_axis_may(speed: float, late: int) -> None:
    sent, _ = paused(lambda time: speed * time, late)
    velocity = np.diff(sent) / DT
    assert np.abs(velocity).max() <= abs(speed) * (1 + 1e-9) + 0.2
    # a polynomial at samples is at most as curved as the polynomial
    assert np.abs(np.diff(velocity) / DT).max() <= BRAKING * (1 + 1e-9)


def test_at_a_share_of_the_speed_the_command_leads_by_that_share() -> None:
    """As an inverse of a first-order lag asks for at any speed; it neither jumps nor bends more than it may."""
    speed, lag = 0.2, 0.03
    pause = Pause(PARAMS, LIMITS, DT)

    def ahead(k: int) -> Command:
        return Command(k, np.array([speed * k * DT]), np.array([speed * (k * DT + lag)]))

    given, sent = 6, [ahead(4), ahead(5)]
    pause.begin(*sent)
    while pause.active:
        if len(sent) > 250 and pause.coming is None:
            pause.supply(ahead(given))
        sent.append(pause.command(given))
        given += pause.sampled
    sent += [ahead(given), ahead(given + 1)]
    target, driven = (np.array([getattr(one, name)[0] for one in sent]) for name in ("target", "command"))
    middle = (target[2:] - target[:-2]) / (2.0 * DT)
    returning = np.flatnonzero(middle < -1e-9)
    lead = np.delete((driven - target)[1:-1], returning)
    np.testing.assert_allclose(lead, np.delete(lag * middle, returning), atol=2e-3 * lag * speed)
    assert np.abs(np.diff(driven, 2)).max() / DT**2 <= BRAKING * (1 + 1e-9)


@pytest.mark.parametrize("at", range(20, 360, 20))
def test_a_wave_is_joined_without_a_step(at: int) -> None:
    """Beside what the wave itself has, its growth on the way included, the pause adds its own acceleration."""
    sent, _ = paused(wave, 50, at)
    velocity = np.diff(sent) / DT
    acceleration = np.diff(velocity) / DT
    assert np.abs(velocity).max() < 0.45
    assert np.abs(acceleration).max() < BRAKING + 2.0 * 7.11


@pytest.mark.parametrize("at", [25, 100, 171])
def test_samples_on_the_way_back_are_at_their_commands(at: int) -> None:
    _, samples = paused(wave, 30, at)
    assert list(samples) == list(range(at + 1, at + 1 + len(samples))), "none is left out"
    for k, value in samples.items():
        half = 0.5 * abs(wave(k * DT) - wave((k - 1) * DT)) + 1e-5
        assert abs(value - wave(k * DT)) <= half
    assert samples[max(samples)] == pytest.approx(wave(max(samples) * DT), abs=1e-15)


def test_a_rig_at_rest_goes_on_at_once() -> None:
    sent, samples = paused(lambda time: 0.003, late=5)
    assert sent == [0.003] * len(sent)
    assert samples == {101: 0.003}


def test_a_pause_that_waits_too_long_says_so() -> None:
    pause = Pause(PARAMS, LIMITS, DT)
    pause.begin(command(1, 0.0), command(2, 0.0))
    for _ in range(512):
        assert not pause.breach
        pause.command(3)
    pause.command(3)
    assert mentions(pause.breach, "bridge.max_pause", "0.501 s", "<= 0.5 s")
    pause.supply(command(3, 0.0))
    assert not pause.breach


# in the stage of the rig


def rig_of(*overrides: str) -> RigStage:
    scenario = override(SINE, overrides)
    stage = RigStage(scenario, Assembly(scenario).port)
    stage.connect()
    stage.machine.to(State.ARMED)
    stage.first()
    return stage


class Driven:
    """A rig whose Command k has ``path(k DT)`` and comes ``lateness(k)`` ticks late."""

    def __init__(self, rig: RigStage, path: Callable[[float], float], lateness: Callable[[int], int]) -> None:
        self.rig = rig
        self.measured: list[Measurement] = []
        self.sent = [0.0, 0.0]
        waited = 0
        while not rig.ended:
            coming: Command | None = None
            following = rig.sample + 1
            if rig.pause.coming is None and not rig.stopping:
                if waited >= lateness(following):
                    coming = command(following, path(following * DT))
                waited += 1
            before = len(self.measured)
            self._keep(rig.tick(coming, late=coming is None))
            if len(self.measured) > before:
                waited = 0
            self.sent.append(float(rig._sent[0]))

    def _keep(self, measured: Measurement | None) -> None:
        if measured is not None:
            self.measured.append(measured)


def test_beyond_the_bridge_the_samples_stand_still() -> None:
    """A Command that is late by more than its bridge; those before it were bridged and are over."""
    rig = rig_of()
    for k in range(1, 41):
        rig.tick(command(k, wave(k * DT)))
    for _ in range(10):
        rig.tick(None, late=True)
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
    counts = rig.pause_counts
    assert (counts["pauses"], counts["slowed"]) == (1, slowed)
    assert counts["paused_s"] == pytest.approx((rig.ticks - rig.sample) * DT)
    assert rig.machine.state is State.RUNNING


def test_bridged_targets_count_with_bridged_commands() -> None:
    """What the compensator still bridges, when nothing more may be, pauses the rig as well."""
    rig = rig_of()
    for k in range(1, 5):
        rig.tick(command(k, wave(k * DT)))
    for k in range(5, 15):
        assert rig.tick(command(k, wave(k * DT), FLAG_BRIDGED)) is not None
    assert rig.tick(command(15, wave(15 * DT), FLAG_BRIDGED)) is None
    assert rig.pause.continues


@pytest.mark.parametrize("bridge", [0.0, 0.004])
@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_late_makes_no_jump(seed: int, bridge: float) -> None:
    random = np.random.default_rng(seed)
    late = np.where(random.random(2000) < 0.02, random.integers(0, 90, 2000), 0)
    rig = rig_of("duration=0.6", f"bridge.max_bridge={bridge}")
    driven = Driven(rig, wave, lambda k: int(late[k]))
    assert rig.machine.state is State.FINISHED, rig.machine.reason
    assert [measured.sample for measured in driven.measured] == list(range(1, rig.sample + 1))
    velocity = np.diff(driven.sent) / DT
    acceleration = np.diff(velocity[2:]) / DT
    assert np.abs(velocity).max() < 0.6
    # from where it is slow already a second pause begins on a chord of the motion
    assert np.abs(acceleration).max() < 2.0 * (BRAKING + 2.0 * 7.11)
    assert rig.ticks - rig.sample == pytest.approx(rig.pause_counts["paused_s"] / DT)
    flagged = sum(measured.flags & FLAG_SLOWED > 0 for measured in driven.measured)
    assert rig.slowed == flagged
    assert rig.bridged == sum(measured.flags & FLAG_BRIDGED > 0 for measured in driven.measured)
    assert (rig.bridged > 0) == (bridge > 0.0)
    if bridge:
        return  # what was bridged fades in samples that are not flagged
    true = [measured.command[0] for measured in driven.measured if not measured.flags]
    plain = [wave(measured.sample * DT) for measured in driven.measured if not measured.flags]
    np.testing.assert_array_equal(true, plain)


def test_beyond_the_longest_pause_it_trips_at_rest() -> None:
    rig = rig_of("bridge.max_pause=0.2")
    driven = Driven(rig, wave, lambda k: 10_000 if k > 60 else 0)
    words = "sample 71: bridge.max_pause: nothing to follow for 0.2 s: must be <= 0.2 s"
    assert (rig.machine.state, rig.machine.reason.replace("0.201", "0.2")) == (State.TRIPPED, words)
    assert len({round(value, 12) for value in driven.sent[-20:]}) == 1, "it had stood long before"
    assert driven.measured[-1].sample == 71
    assert driven.measured[-1].flags & FLAG_TRIPPED


@pytest.mark.parametrize("ask", ["trip", "hold"])
@pytest.mark.parametrize("ticks", [3, 200])
def test_a_stop_ends_a_pause(ask: str, ticks: int) -> None:
    rig = rig_of()
    for k in range(1, 41):
        rig.tick(command(k, wave(k * DT)))
    while not rig.pause.continues:
        rig.tick(None, late=True)
    for _ in range(ticks):
        rig.tick(None, late=True)
    getattr(rig, ask)("enough")
    last = rig._sent[0]
    while not rig.ended:
        measured = rig.tick(None)
        assert measured is not None
        assert abs(rig._sent[0] - last) < 0.4 * DT
        last = rig._sent[0]
    assert rig.machine.state is (State.TRIPPED if ask == "trip" else State.HELD)
    assert rig.machine.reason == "sample 51: enough"


def test_a_limit_that_is_broken_in_a_pause_trips() -> None:
    rig = rig_of("axes.axis_1.limits.stroke=0.0199", "bridge.max_bridge=0")
    Driven(rig, wave, lambda k: 100 if k == 70 else 0)
    assert rig.machine.state is State.TRIPPED
    assert "sample 70: axes.axis_1.limits.stroke: command" in rig.machine.reason


@pytest.mark.parametrize("wrong", [math.nan, 0.5])
def test_a_command_that_may_not_be_sent_trips_after_a_pause_as_well(wrong: float) -> None:
    rig = rig_of("bridge.max_bridge=0")
    driven = Driven(rig, lambda time: wrong if time > 69.5 * DT else wave(time), lambda k: 50 if k == 70 else 0)
    assert rig.machine.state is State.TRIPPED
    assert "axes.axis_1" in rig.machine.reason
    assert np.isfinite(driven.sent).all()
    assert np.abs(driven.sent).max() < 0.03, "m: not a bit on the way there"


# the compensator waits meanwhile


def test_slowed_samples_do_not_adapt() -> None:
    seen: list[bool] = []

    class Watching(Compensator):
        state_names = ()

        def step(self, motion: Motion, measured: np.ndarray) -> np.ndarray:
            seen.append(motion.flagged)
            return motion.displacement

        def state(self) -> tuple[float, ...]:
            return ()

        def reset(self) -> None:
            seen.clear()

    parts = Assembly(SINE)
    parts.compensator = Watching()
    stage = CommandStage(parts)
    stage.target(command_target(0))
    stage.target(command_target(1))
    zero = np.zeros(1)
    stage.next(Measurement(0, zero, zero, zero, flags=FLAG_SLOWED))
    assert seen == [True]


def command_target(step: int) -> Target:
    return Target(step, *(np.zeros(1) for _ in range(6)))


def test_late_targets_pause_the_test_and_it_finishes() -> None:
    """Targets 60 samples late, again and again, to an actuator that is 29 ms behind its command.

    A specimen without rates: its force is that of the plain test, and so are the Targets.
    """
    overrides = [
        "duration=1.5",
        "bridge={when_late: pause, max_bridge: 0}",
        "substeps=4",
        "ramp.type=quadratic",
        "compensator={type: inverse, alpha: 29}",
        "axes.story_1.specimen={type: kelvin_voigt, stiffness: 3.0e6, damping: 0.0}",
    ]
    loaded = files.load("chen_ricles_2010", overrides)
    plain, late = (Collector(loaded, Assembly(loaded).names) for _ in range(2))
    FaultyLoop(Assembly(loaded), []).run([plain])
    loop = FaultyLoop(Assembly(loaded), [kinds.parse("delay@0.4:target,60,1,40")])
    report = loop.run([late])
    assert report.state is State.FINISHED, report.reason
    assert report.timing["pauses"] >= 5
    assert report.timing["slowed"] == np.count_nonzero(late.run().flags & FLAG_SLOWED) > 10
    one, other = plain.run(), late.run()
    assert len(one.time) == len(other.time)
    peak = np.abs(one.target).max()
    assert np.abs(one.target - other.target).max() < 3e-3 * peak
    # what is left of the straight lines between the samples
    assert np.abs(other.target - other.displacement).max() < 0.04 * peak


def test_without_lateness_a_pause_that_may_be_changes_nothing() -> None:
    runs = []
    for which in ("trip", "pause"):
        loaded = files.load("chen_ricles_2010", ["duration=1", f"bridge.when_late={which}"])
        found = Collector(loaded, Assembly(loaded).names)
        FaultyLoop(Assembly(loaded), []).run([found])
        runs.append(found.run().arrays())
    for name, value in runs[0].items():
        np.testing.assert_array_equal(value, runs[1][name])


# what is refused


def test_a_pause_is_not_longer_than_the_port_waits() -> None:
    with pytest.raises(ConfigError, match=naming("bridge.max_pause", "6 s", "<= port.longest_wait", "5 s")):
        override(SINE, ["bridge.max_pause=6"])
