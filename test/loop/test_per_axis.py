# SPDX-License-Identifier: Apache-2.0
"""Tests of a rig with one node per axis: same bits as with a single node, safe stop of each axis."""

from __future__ import annotations

from dataclasses import replace

import attrs
import numpy as np
import pytest
from axis_wires import Wires, connected
from messages import mentions, naming

from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_TRIPPED, Command, Measurement
from rths_nodes.laboratory.ports.per_axis import PerAxisPort
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.rig import AxisStage, RigStage, check_layout
from rths_nodes.loop.supervision.states import State

SHORT = ("duration=0.2", "soft_start=null")


def loaded(*overrides):
    return files.load("three_independent_axes", [*SHORT, *overrides])


def gathered(rig):
    wires = Wires(rig)
    return RigStage(rig, PerAxisPort(tuple(rig.axes), rig.port.transport_samples, wires)), wires


def single_node(rig):
    return RigStage(rig, Assembly(rig).port)


def tick(stage, command, late=False):
    """Run both halves of a sample; poll the port in between."""
    stage.begin_tick(command, late)
    return completed(stage)


def completed(stage):
    while not stage.port.ready():
        pass
    return stage.complete()


def commands(samples, amplitude=5e-3, frequency=3.0, dt=1 / 1024):
    """Sines on all three axes."""
    for k in range(1, samples + 1):
        motion = amplitude * np.sin(2 * np.pi * frequency * k * dt * np.array([1.0, 1.3, 1.7]))
        yield Command(k, motion, motion)


def started(stage):
    """Connect and arm the rig; return Measurement 0."""
    stage.connect()
    stage.machine.to(State.ARMED)
    stage.begin()
    return completed(stage)


def run(stage, samples=150):
    """Return all Measurements until the rig rests, or of ``samples``."""
    measured = [started(stage)]
    for command in commands(samples):
        if stage.ended:
            break
        measured.append(tick(stage, None if stage.stopping or stage.stop_due else command))
    while stage.stopping and not stage.ended:
        measured.append(tick(stage, None))
    return measured


def true_states(stage):
    """Return all gathered true states."""
    states = []
    while (state := stage.port.true_state()) is not None:
        states.append(state)
    return states


def numbers(measurements):
    rows = [np.concatenate([m.displacement, m.force, m.command, [m.sample, m.flags]]) for m in measurements]
    return np.array(rows).tobytes()


NOISY = ("axes.story_1.sensors.force_noise_rms=50", "axes.story_3.sensors.displacement_resolution=1e-6")


@pytest.mark.parametrize("overrides", [(), NOISY, ("port.transport_samples=3",)], ids=["as_is", "noisy", "late"])
def test_gathered_rig_has_bits_of_single_node(overrides):
    rig = loaded(*overrides)
    stage, _ = gathered(rig)
    assert numbers(run(stage)) == numbers(run(single_node(rig)))


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("axes.story_2.limits.velocity=0.1", "axes.story_2.limits.velocity: command"),
        ("axes.story_2.limits.force=2000", "axes.story_2.limits.force: measured"),
        ("axes.story_3.limits.tracking_error=5e-4", "axes.story_3.limits.tracking_error: "),
        ("axes.story_1.sensors.displacement_range=1e-3", ""),
    ],
)
def test_breach_of_one_axis_stops_all_axes(override, reason):
    rig = loaded(override, "axes.story_1.limits.deceleration=0.5")
    stage, wires = gathered(rig)
    single = single_node(rig)
    assert numbers(run(stage)) == numbers(run(single))
    assert (stage.machine.state, stage.machine.reason) == (single.machine.state, single.machine.reason)
    assert reason in stage.machine.reason
    assert bool(reason) == (stage.machine.state == State.TRIPPED)
    if reason:
        assert all(axis.at_rest for axis in wires.stages.values())


@pytest.mark.parametrize("length", [1, 10, 11])
def test_late_commands_are_bridged_as_by_single_node(length):
    """The axes check their measurements against the bridged target; 10 samples are 10 ms."""
    results = []
    for stage in (gathered(loaded())[0], single_node(loaded())):
        measured = [started(stage)]
        for command in commands(60):
            late = 40 <= command.sample < 40 + length
            measured.append(tick(stage, None if late or stage.stopping else command, late))
            if stage.ended:
                break
        results.append((numbers(measured), stage.machine.reason, stage.bridged))
    assert results[0] == results[1]
    assert results[0][2] == min(length, 10)
    assert mentions(results[0][1], "bridge.max_bridge", "10.7 ms") == (length > 10)


def test_axes_receive_bridged_target():
    stage, wires = gathered(loaded())
    started(stage)
    sent = []
    send = wires.send_command
    wires.send_command = lambda axis, command: (sent.append(command), send(axis, command))
    for k in (1, 2):
        tick(stage, Command(k, np.full(3, 1e-5 * k), np.full(3, 1e-5 * k)))
    tick(stage, None, late=True)
    np.testing.assert_allclose([command.target[0] for command in sent[-3:]], 3e-5)
    assert all(command.flags & FLAG_BRIDGED for command in sent[-3:])


def test_trip_at_sample_equals_single_node():
    rig = loaded()
    stages = gathered(rig)[0], single_node(rig)
    for stage in stages:
        stage.trip("enough", 40)
    assert numbers(run(stages[0])) == numbers(run(stages[1]))
    assert stages[0].machine.reason == stages[1].machine.reason == "sample 40: enough"


def test_true_state_is_gathered():
    rig = loaded(*NOISY)
    stage, _ = gathered(rig)
    run(stage, 20)
    single = single_node(rig)
    started(single)
    expected = [single.port.truth()]
    for command in commands(20):
        tick(single, command)
        expected.append(single.port.truth())
    states = true_states(stage)
    assert all(sample == state.sample for state, sample in states)
    assert numbers([state for state, _ in states]) == numbers(expected)
    assert stage.port.true_state_complete


def test_lost_axis_stops_others_and_has_no_measurement():
    stage, wires = gathered(loaded())
    wires.deaf["story_2"] = 30
    measured = run(stage)
    assert stage.machine.state == State.TRIPPED
    assert stage.machine.reason == "sample 30: no Measurement 30 of story_2"
    assert measured[29].flags == 0
    assert all(m.flags & FLAG_TRIPPED for m in measured[30:])
    assert all(np.isnan([m.displacement[1], m.force[1]]).all() for m in measured[30:])
    assert np.isfinite([m.displacement[[0, 2]] for m in measured]).all()
    assert wires.stages["story_1"].at_rest
    assert wires.stages["story_3"].at_rest
    assert len(true_states(stage)) == len(measured)


def test_reason_of_requested_trip_is_kept_for_lost_axis():
    stage, wires = gathered(loaded())
    wires.deaf["story_2"] = 30
    wires.lost = lambda axes, sample: stage.trip("runner: the story_2/axis node died (SIGKILL)") or "silent"
    run(stage)
    assert mentions(stage.machine.reason, "sample 30", "runner", "story_2/axis", "SIGKILL")


def test_port_is_not_ready_until_measurement_arrives():
    stage, wires = gathered(loaded())
    started(stage)
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


def test_axis_that_stops_by_itself_stops_others():
    stage, wires = gathered(loaded())
    started(stage)
    for command in commands(150):
        if stage.ended:
            break
        if command.sample == 50:
            wires.stages["story_3"].stop("by hand")
        measured = tick(stage, None if stage.stopping else command)
        assert np.isfinite(measured.displacement).all()
    assert stage.machine.state == State.TRIPPED
    assert mentions(stage.machine.reason, "sample 50", "axes.story_3")


def test_axis_with_missing_measurement_is_lost():
    stage, wires = gathered(loaded())
    answer = wires.measurement_of

    def without_sample_30(axis):
        measured = answer(axis)
        return replace(measured, sample=31) if measured.sample == 30 and axis == "story_2" else measured

    wires.measurement_of = without_sample_30
    measured = run(stage)
    assert stage.machine.state == State.TRIPPED
    assert stage.machine.reason == "sample 30: axes.story_2: received Measurement 31, expected Measurement 30"
    assert np.isnan(measured[30].displacement[1])
    assert all(axis.at_rest for axis in wires.stages.values())
    assert len({axis.sample for axis in wires.stages.values()}) == 1


def test_repeated_messages_count_once():
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
    measured = run(stage)
    assert numbers(measured) == numbers(run(single_node(rig)))
    states = (stage.port.true_state()[0] for _ in measured)
    assert [state.sample for state in states] == [m.sample for m in measured]


def follow(stage, position, flags=0):
    return stage.follow(Command(stage.sample + 1, np.array([position]), np.array([position]), flags=flags))


def test_command_0_does_not_move_axis():
    measured = connected(loaded(), "story_2").follow(Command(0, np.array([0.01]), np.array([0.01])))
    assert (measured.sample, measured.command.tolist()) == (0, [0.0])


def test_axis_without_finite_command_does_not_begin(monkeypatch):
    stage = connected(loaded(), "story_2")
    monkeypatch.setattr(stage.port, "read", lambda: Measurement(0, *np.full((3, 1), np.nan)))
    with pytest.raises(PortError, match=naming("Measurement 0", "command", "nan")):
        follow(stage, 0.0)
    assert stage.sample < 0, "Command 1 is out of sequence"


def test_axis_stops_after_missing_command():
    stage = connected(loaded(), "story_2")
    for k in range(5):
        follow(stage, 1e-4 * k)
    measured = stage.follow(Command(6, np.array([6e-4]), np.array([6e-4])))
    assert stage.out_of_sequence
    assert stage.trip == "received Command 6, expected Command 5"
    assert (measured.sample, measured.flags) == (5, FLAG_TRIPPED)
    while not stage.at_rest:
        assert stage.stop_alone().command[0] >= 4e-4


def test_single_axis_brakes_at_its_deceleration_and_holds():
    stage = connected(loaded("axes.story_2.limits.deceleration=2.0"), "story_2")
    step = 0.5e-3  # of the command, per sample: 0.512 m/s
    follow(stage, 0.0)
    for k in range(1, 11):
        follow(stage, k * step)
    assert not stage.at_rest
    stage.stop("no commands")
    sent = [10 * step]
    while not stage.at_rest:
        measured = stage.stop_alone()
        assert measured.flags & FLAG_TRIPPED
        sent.append(measured.command[0])
    v, dt = step * 1024, 1 / 1024
    assert sent[-1] - sent[0] == pytest.approx(v**2 / (2 * 2.0) - v * dt / 2, rel=5e-3)
    assert np.abs(np.diff(sent, 2) * 1024**2).max() <= 2.0 * (1 + 1e-9)
    assert follow(stage, 0.0).command[0] == sent[-1]  # no Command is applied after the stop


def test_invalid_command_is_not_applied():
    stage = connected(loaded(), "story_2")
    follow(stage, 0.0)
    measured = follow(stage, 0.2)
    assert "axes.story_2.limits.stroke: command = 0.2 m" in stage.trip
    assert (measured.command[0], measured.flags) == (0.0, FLAG_TRIPPED)


def test_limit_of_one_axis_does_not_end_safe_stop():
    stage = connected(loaded("axes.story_2.limits.tracking_error=1e-6"), "story_2")
    follow(stage, 0.0)
    assert follow(stage, 0.5e-3, FLAG_TRIPPED).flags == 0
    assert stage.trip == ""


def test_coupled_rig_requires_single_node():
    with pytest.raises(ConfigError, match=naming("rig", "axes")):
        check_layout(files.load("phillips_spencer_2012"))


def test_axis_name_must_be_valid_namespace():
    rig = loaded()
    with pytest.raises(ConfigError, match=naming("axes.2nd", "ASCII")):
        check_layout(attrs.evolve(rig, axes={"2nd": rig.axes["story_1"]}))
    with pytest.raises(ConfigError, match=naming("story_1")):
        AxisStage(rig, "story1")
