# SPDX-License-Identifier: Apache-2.0
"""A rig whose axes have a node each: the gathered rig is the whole one, to the bit; an axis alone stops safely."""

from __future__ import annotations

from dataclasses import replace

import attrs
import numpy as np
import pytest
from axis_wires import Wires, connected
from messages import mentions, naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_TRIPPED, Command
from rths_nodes.laboratory.ports.per_axis import PerAxisPort
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.axis import AxisStage, check_layout
from rths_nodes.loop.stages.rig import RigStage
from rths_nodes.loop.supervision.states import State

SHORT = ("duration=0.2", "soft_start=null")


def loaded(*overrides):
    return files.load("three_independent_axes", [*SHORT, *overrides])


def gathered(rig):
    wires = Wires(rig)
    return RigStage(rig, PerAxisPort(tuple(rig.axes), rig.port.transport_samples, wires)), wires


def whole_rig(rig):
    return RigStage(rig, Assembly(rig).port)


def first(stage):
    """Measurement 0, once it is there."""
    stage.begin()
    return completed(stage)


def tick(stage, command, late=False):
    """Both halves of a sample, the port asked in between as often as it takes."""
    stage.begin_tick(command, late)
    return completed(stage)


def completed(stage):
    while not stage.port.ready():
        pass
    return stage.complete()


def commands(samples, amplitude=5e-3, frequency=3.0, dt=1 / 1024):
    """A sine on all three axes, with its phases."""
    for k in range(1, samples + 1):
        motion = amplitude * np.sin(2 * np.pi * frequency * k * dt * np.array([1.0, 1.3, 1.7]))
        yield Command(k, motion, motion)


def run(stage, samples=150, **options):
    """All Measurements until the rig rests, or ``samples`` are over."""
    stage.connect()
    stage.machine.to(State.ARMED)
    found = [first(stage)]
    for command in commands(samples, **options):
        if stage.ended:
            break
        found.append(tick(stage, None if stage.stopping or stage.stop_due else command))
    while stage.stopping and not stage.ended:
        found.append(tick(stage, None))
    return found


def numbers(measurements):
    rows = [np.concatenate([m.displacement, m.force, m.command, [m.sample, m.flags]]) for m in measurements]
    return np.array(rows).tobytes()


NOISY = ("axes.story_1.sensors.force_noise_rms=50", "axes.story_3.sensors.displacement_resolution=1e-6")


@pytest.mark.parametrize("overrides", [(), NOISY, ("port.transport_samples=3",)], ids=["as_is", "noisy", "late"])
def test_the_gathered_rig_is_the_whole_one_to_the_bit(overrides):
    rig = loaded(*overrides)
    stage, _ = gathered(rig)
    assert numbers(run(stage)) == numbers(run(whole_rig(rig)))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("axes.story_2.limits.velocity=0.1", "axes.story_2.limits.velocity: command"),
        ("axes.story_2.limits.force=2000", "axes.story_2.limits.force: measured"),
        ("axes.story_3.limits.tracking_error=5e-4", "axes.story_3.limits.tracking_error: "),
        ("axes.story_1.sensors.displacement_range=1e-3", ""),
    ],
)
def test_a_breach_of_one_axis_stops_all_of_them_as_with_one_node(override, words):
    rig = loaded(override, "axes.story_1.limits.deceleration=0.5")
    stage, wires = gathered(rig)
    whole = whole_rig(rig)
    assert numbers(run(stage)) == numbers(run(whole))
    assert (stage.machine.state, stage.machine.reason) == (whole.machine.state, whole.machine.reason)
    assert words in stage.machine.reason
    assert bool(words) == (stage.machine.state == State.TRIPPED)
    if words:
        assert all(axis.at_rest for axis in wires.stages.values())


@pytest.mark.parametrize("length", [1, 10, 11])
def test_late_commands_are_bridged_as_with_one_node(length):
    """The axes check their measurement against the bridged target, too; 10 samples are 10 ms."""
    found = []
    for stage in (gathered(loaded())[0], whole_rig(loaded())):
        stage.connect()
        stage.machine.to(State.ARMED)
        measured = [first(stage)]
        for command in commands(60):
            late = 40 <= command.sample < 40 + length
            measured.append(tick(stage, None if late or stage.stopping else command, late))
            if stage.ended:
                break
        found.append((numbers(measured), stage.machine.reason, stage.bridged))
    assert found[0] == found[1]
    assert found[0][2] == min(length, 10)
    assert mentions(found[0][1], "bridge.max_bridge", "10.7 ms") == (length > 10)


def test_the_axes_hear_the_target_that_is_bridged():
    stage, wires = gathered(loaded())
    stage.connect()
    stage.machine.to(State.ARMED)
    first(stage)
    sent = []
    send = wires.send_command
    wires.send_command = lambda axis, command: (sent.append(command), send(axis, command))
    for k in (1, 2):
        tick(stage, Command(k, np.full(3, 1e-5 * k), np.full(3, 1e-5 * k)))
    tick(stage, None, late=True)
    np.testing.assert_allclose([command.target[0] for command in sent[-3:]], 3e-5)
    assert all(command.flags & FLAG_BRIDGED for command in sent[-3:])


def test_an_operators_hold_is_the_same_too():
    rig = loaded()
    stage, _ = gathered(rig)
    whole = whole_rig(rig)
    stage.trip("enough", 40)
    whole.trip("enough", 40)
    assert numbers(run(stage)) == numbers(run(whole))
    assert stage.machine.reason == whole.machine.reason == "sample 40: enough"


def test_the_true_state_is_gathered_too():
    rig = loaded(*NOISY)
    stage, _ = gathered(rig)
    run(stage, 20)
    whole = whole_rig(rig)
    whole.connect()
    whole.machine.to(State.ARMED)
    first(whole)
    expected = [whole.port.truth()]
    for command in commands(20):
        tick(whole, command)
        expected.append(whole.port.truth())
    found = []
    while (true := stage.port.true_state()) is not None:
        found.append(true[0])
        assert true[1] == true[0].sample
    assert numbers(found) == numbers(expected)
    assert stage.port.true_state_complete


def test_a_lost_axis_stops_the_others_and_has_no_measurement():
    stage, wires = gathered(loaded())
    wires.deaf["story_2"] = 30
    found = run(stage)
    assert stage.machine.state == State.TRIPPED
    assert stage.machine.reason == "sample 30: no Measurement 30 of story_2"
    assert found[29].flags == 0
    assert all(m.flags & FLAG_TRIPPED for m in found[30:])
    assert all(np.isnan([m.displacement[1], m.force[1]]).all() for m in found[30:])
    assert np.isfinite([m.displacement[[0, 2]] for m in found]).all()
    assert wires.stages["story_1"].at_rest
    assert wires.stages["story_3"].at_rest
    truths = []
    while (true := stage.port.true_state()) is not None:
        truths.append(true[0])
    assert len(truths) == len(found)


def test_who_asked_for_a_trip_knows_best_why_an_axis_is_lost():
    stage, wires = gathered(loaded())
    wires.deaf["story_2"] = 30
    wires.lost = lambda axes, sample: stage.trip("runner: the story_2/axis node died (SIGKILL)") or "silent"
    run(stage)
    assert mentions(stage.machine.reason, "sample 30", "runner", "story_2/axis", "SIGKILL")


def test_the_port_does_not_wait_for_a_measurement_that_is_missing():
    stage, wires = gathered(loaded())
    stage.connect()
    stage.machine.to(State.ARMED)
    first(stage)
    answer = wires.measurement_of
    wires.measurement_of = lambda axis: None if axis == "story_2" else answer(axis)
    wires.lost = lambda axes, sample: "" if axes == ["story_2"] else "others are missing"
    stage.begin_tick(next(commands(1)))
    assert [stage.port.ready() for _ in range(3)] == [False] * 3
    assert stage.sample == 0
    wires.measurement_of = answer
    assert stage.port.ready()
    measured = stage.complete()
    assert (measured.sample, stage.sample, measured.flags) == (1, 1, 0)
    assert np.isfinite(measured.displacement).all()


def test_an_axis_that_stops_by_itself_stops_the_others():
    stage, wires = gathered(loaded())
    stage.connect()
    stage.machine.to(State.ARMED)
    first(stage)
    for command in commands(150):
        if stage.ended:
            break
        if command.sample == 50:
            wires.stages["story_3"].stop("by hand")
        measured = tick(stage, None if stage.stopping else command)
        assert np.isfinite(measured.displacement).all()
    assert stage.machine.state == State.TRIPPED
    assert mentions(stage.machine.reason, "sample 50", "axes.story_3")


def test_an_axis_of_which_a_measurement_is_missing_is_lost():
    stage, wires = gathered(loaded())
    answer = wires.measurement_of

    def one_missing(axis):
        measured = answer(axis)
        later = measured.sample == 30 and axis == "story_2"
        return replace(measured, sample=31) if later else measured

    wires.measurement_of = one_missing
    found = run(stage)
    assert stage.machine.state == State.TRIPPED
    assert stage.machine.reason == "sample 30: axes.story_2: received Measurement 31, expected Measurement 30"
    assert np.isnan(found[30].displacement[1])
    assert all(axis.at_rest for axis in wires.stages.values()), "all of them are led to rest"
    assert len({axis.sample for axis in wires.stages.values()}) == 1


def test_what_comes_twice_counts_once():
    rig = loaded()
    stage, wires = gathered(rig)
    send, answer, last = wires.send_command, wires.measurement_of, {}

    def twice(axis):
        if axis in last:
            return last.pop(axis)
        measured = last[axis] = answer(axis)
        return measured

    def send_twice(axis, command):
        send(axis, command)
        assert wires.stages[axis].follow(command) is None
        wires.true[axis].append(wires.true[axis][-1])

    wires.send_command, wires.measurement_of, wires.lost = send_twice, twice, lambda axes, sample: ""
    found = run(stage)
    assert numbers(found) == numbers(run(whole_rig(rig)))
    for expected in found:
        true, _ = stage.port.true_state()
        assert true.sample == expected.sample


def follow(stage, position, flags=0):
    return stage.follow(Command(stage.sample + 1, np.array([position]), np.array([position]), flags=flags))


def test_command_0_moves_nothing():
    stage = connected(loaded(), "story_2")
    first = stage.follow(Command(0, np.array([0.01]), np.array([0.01])))
    assert (first.sample, first.command.tolist()) == (0, [0.0])


def test_an_axis_of_which_a_command_is_missing_stops_by_itself():
    stage = connected(loaded(), "story_2")
    for k in range(5):
        follow(stage, 1e-4 * k)
    measured = stage.follow(Command(6, np.array([6e-4]), np.array([6e-4])))
    assert stage.out_of_sequence
    assert stage.trip == "received Command 6, expected Command 5"
    assert (measured.sample, measured.flags) == (5, FLAG_TRIPPED)
    while not stage.at_rest:
        assert stage.stop_alone().command[0] >= 4e-4


def test_an_axis_alone_brakes_at_its_deceleration_and_holds():
    stage = connected(loaded("axes.story_2.limits.deceleration=2.0"), "story_2")
    step = 0.5e-3  # of the command, per sample: 0.512 m/s
    follow(stage, 0.0)
    for k in range(1, 11):
        follow(stage, k * step)
    assert not stage.at_rest
    stage.stop("nobody leads")
    sent = [10 * step]
    while not stage.at_rest:
        measured = stage.stop_alone()
        assert measured.flags & FLAG_TRIPPED
        sent.append(measured.command[0])
    v, dt = step * 1024, 1 / 1024
    assert sent[-1] - sent[0] == pytest.approx(v**2 / (2 * 2.0) - v * dt / 2, rel=5e-3)  # of bounded deceleration
    assert np.abs(np.diff(sent, 2) * 1024**2).max() <= 2.0 * (1 + 1e-9)
    assert follow(stage, 0.0).command[0] == sent[-1], "it follows no Command any more"


def test_a_wrong_command_does_not_reach_the_axis():
    stage = connected(loaded(), "story_2")
    follow(stage, 0.0)
    measured = follow(stage, 0.2)
    assert "axes.story_2.limits.stroke: command = 0.2 m" in stage.trip
    assert (measured.command[0], measured.flags) == (0.0, FLAG_TRIPPED)


def test_the_safe_stop_of_the_rig_is_not_ended_by_a_limit_of_one_axis():
    stage = connected(loaded("axes.story_2.limits.tracking_error=1e-6"), "story_2")
    follow(stage, 0.0)
    assert follow(stage, 0.5e-3, FLAG_TRIPPED).flags == 0
    assert stage.trip == ""


def test_a_rig_that_couples_its_axes_has_one_node():
    with pytest.raises(ConfigError, match=naming("rig", "axes")):
        check_layout(files.load("phillips_spencer_2012"))


def test_an_axis_needs_a_name_that_a_namespace_may_have():
    rig = loaded()
    named = attrs.evolve(rig, axes={"2nd": rig.axes["story_1"]})
    with pytest.raises(ConfigError, match=naming("axes.2nd", "ASCII")):
        check_layout(named)
    with pytest.raises(ConfigError, match=naming("story_1")):
        AxisStage(rig, "story1")
