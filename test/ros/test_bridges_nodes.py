# SPDX-License-Identifier: Apache-2.0
"""Nodes in real time go on over what comes late, as the embedded loop does; in lockstep they wait."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_SLIPPED, FLAG_TRIPPED, Command, Measurement, Target
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.faults import kinds
from rths_nodes.loop.options import HOSTS
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.nodes import actuator
from rths_nodes.ros.nodes.phase import Phase

NAME = "chen_ricles_2010"
SHORT = "duration=1.5"
PERIOD = round(1e9 / 1024)
LONGEST = 10
"""Samples in 10 ms at 1024 Hz."""


# One node, its inboxes and its clock by hand


class Compensator:
    """A compensator node, its Commands, and what it is given; one Target for each sample."""

    def __init__(self, node) -> None:
        self.node = node

    @property
    def commands(self) -> list[Command]:
        return [self.node.topics.codec.unpack_command(data)[0] for data in self.node.interposer.sent["command"]]

    def target(self, step: int) -> None:
        rows = (np.array([x]) for x in (1e-5 * step, 1e-5 * 1024, 0.0, 0.0, 0.0, 0.0))
        self.node.topics.inboxes["target"].put(self.node.topics.codec.pack_target(Target(step, *rows), 0))

    def measurement(self, sample: int, flags: int = 0) -> None:
        measured = Measurement(sample, *(np.zeros(1) for _ in range(3)), flags=flags)
        self.node.topics.inboxes["measurement"].put(self.node.topics.codec.pack_measurement(measured, 0))

    def work(self) -> list[tuple[int, int]]:
        """Numbers and flags of the Commands that it answers with now; what is late it says at the second look."""
        before = len(self.commands)
        while self.node.work() or self.node.work():
            pass
        return [(command.sample, command.flags) for command in self.commands[before:]]


@pytest.fixture
def compensator(by_hand, clock) -> Iterator[Compensator]:
    overrides = ["substeps=1", "compensator.type=none"]
    with by_hand.node("compensator", clock=clock, pace="realtime", overrides=overrides) as node:
        compensator = Compensator(node)
        for step in range(2):
            compensator.target(step)
        compensator.measurement(0)
        assert compensator.work() == [(1, 0)]
        yield compensator


def test_a_late_target_is_bridged_after_its_time_and_not_before(compensator, clock):
    compensator.measurement(1)
    assert compensator.work() == []
    due = compensator.node.deadline
    assert 0 < due - clock.now < PERIOD
    clock.now = due - 10_000
    assert compensator.work() == []
    clock.now = due
    assert compensator.work() == [(2, FLAG_BRIDGED)]
    np.testing.assert_allclose(compensator.commands[-1].target, 2e-5)  # it goes on as it went


def test_a_measurement_wakes_the_compensator_only_when_it_can_be_answered_or_is_late(compensator, clock):
    node, everything = compensator.node, kinds.STREAMS
    assert node.awaited_streams == ("target",)
    assert PERIOD < node.deadline - clock.now < 2 * PERIOD, "then Measurement 1 has waited for its Target"
    compensator.target(2)
    compensator.work()
    assert (node.awaited_streams, node.deadline) == (everything, None)
    compensator.measurement(1)
    assert compensator.work() == [(2, 0)]
    assert node.awaited_streams == ("target",)
    clock.now = node.deadline
    assert (node.awaited_streams, node.deadline) == (everything, None), "the schedule of the rig may have slipped"


def test_between_two_steps_the_integrator_does_not_wake_up(by_hand, clock):
    with by_hand.node("integrator", clock=clock, pace="realtime", overrides=["substeps=10"]) as node:
        assert (node.awaited_streams, node.deadline) == (kinds.STREAMS, None)
        measured = Measurement(0, *(np.zeros(1) for _ in range(3)))
        node.topics.inboxes["measurement"].put(node.topics.codec.pack_measurement(measured, 0))
        while node.work():
            pass
        assert node.awaited_streams == ()
        assert 8 * PERIOD < node.deadline - clock.now < 9 * PERIOD
        clock.now = node.deadline
        assert (node.awaited_streams, node.deadline) == (kinds.STREAMS, None)


def test_after_a_time_in_which_the_process_did_not_run_the_integrator_has_its_turn(compensator, clock):
    compensator.measurement(1)
    compensator.work()
    clock.now += 10 * PERIOD
    assert not compensator.node.work()
    compensator.target(2)
    assert compensator.work() == [(2, 0)]
    assert compensator.node.stage.bridged == 0


def test_the_motion_goes_on_from_a_target_that_comes_late(compensator, clock):
    compensator.measurement(1)
    compensator.work()
    clock.now += PERIOD
    assert compensator.work() == [(2, FLAG_BRIDGED)]
    compensator.target(2)
    compensator.target(3)
    compensator.measurement(2)
    assert compensator.work() == [(3, 0)]
    assert compensator.node.stage.bridged == 1


def test_a_target_that_is_here_is_taken_however_late_the_node_wakes(compensator, clock):
    compensator.measurement(1)
    compensator.work()
    clock.now += 100 * PERIOD
    compensator.target(2)
    assert compensator.work() == [(2, 0)]


def test_a_target_that_comes_while_the_clock_is_read_is_taken(compensator, clock):
    compensator.measurement(1)
    compensator.work()

    def late() -> None:
        compensator.target(2)
        clock.now += PERIOD

    clock.on_read = late
    assert compensator.work() == [(2, 0)]


def test_a_bridge_of_the_node_ends_where_the_rig_trips(compensator, clock):
    answers = []
    for sample in range(1, LONGEST + 3):
        compensator.measurement(sample)
        compensator.work()
        clock.now += PERIOD
        answers += compensator.work()
    assert answers == [(sample, FLAG_BRIDGED) for sample in range(2, LONGEST + 2)]


def test_the_start_is_waited_for(by_hand, clock):
    with by_hand.node("compensator", clock=clock, pace="realtime") as node:
        compensator = Compensator(node)
        compensator.measurement(0)
        compensator.work()
        clock.now += 1000 * PERIOD
        assert (compensator.work(), node.deadline) == ([], None)
        compensator.target(0)
        compensator.target(1)
        assert compensator.work() == [(1, 0)]


def test_in_lockstep_a_target_is_waited_for(by_hand, clock):
    with by_hand.node("compensator", clock=clock) as node:
        compensator = Compensator(node)
        compensator.target(0)
        compensator.target(1)
        for sample in range(11):
            compensator.measurement(sample)
        assert len(compensator.work()) == 10
        clock.now += 1000 * PERIOD
        assert (compensator.work(), node.deadline) == ([], None)


class Rig:
    """An actuator node, its Measurements, and the Commands that it is given; work as the executor asks for it."""

    def __init__(self, by_hand, node, clock) -> None:
        self.node, self.clock = node, clock
        node.phase.to(Phase.READY)
        node.work()
        assert node.rig.machine.state is State.ARMED
        node.work()
        assert node.running

    @property
    def measured(self) -> list[Measurement]:
        unpack = self.node.topics.codec.unpack_measurement
        return [unpack(data)[0] for data in self.node.interposer.sent["measurement"]]

    def command(self, sample: int, value: float = 0.0) -> None:
        command = Command(sample, np.array([value]), np.array([value]))
        self.node.topics.inboxes["command"].put(self.node.topics.codec.pack_command(command, 0))

    def turn(self) -> list[int]:
        """The flags of the samples that are driven now."""
        before = len(self.measured)
        self.node.work()
        if self.node.slack is not None:
            self.node.tick()
        return [measured.flags for measured in self.measured[before:]]


@pytest.fixture
def rig(by_hand, clock) -> Iterator[Rig]:
    with by_hand.node("actuator", clock=clock, pace="realtime", peers=["actuator"]) as node:
        rig = Rig(by_hand, node, clock)
        for sample in (1, 2, 3):
            rig.command(sample, 1e-5 * sample)
            assert rig.turn() == [0]
        yield rig


def test_a_late_command_is_bridged_at_its_tick(rig, clock):
    assert rig.turn() == []
    assert rig.node.deadline == rig.node.pacer.due
    clock.now = rig.node.deadline
    assert rig.turn() == [FLAG_BRIDGED]
    np.testing.assert_allclose(rig.measured[-1].command, 4e-5)
    rig.command(4, 4e-5)
    rig.command(5, 5e-5)
    assert rig.turn() == [0]
    np.testing.assert_allclose(rig.measured[-1].command, 5e-5)
    assert (rig.node.rig.bridged, rig.node.rig.late_commands, rig.node.pacer.missed) == (1, 1, 0)


def test_a_command_that_is_here_is_taken_however_late_the_rig_wakes(rig, clock):
    clock.now += 20 * PERIOD
    rig.command(4)
    assert rig.turn() == [FLAG_SLIPPED]
    assert rig.node.rig.bridged == 0


def test_after_a_late_measurement_the_loop_has_time_for_its_answer(rig, clock):
    """The schedule is late, not the Command."""
    rig.node.pacer.due -= PERIOD
    assert rig.turn() == []
    assert 0.5 * PERIOD < rig.node.deadline - clock.now < PERIOD


def test_without_commands_the_rig_trips_and_says_why(rig, clock):
    flags = []
    while not rig.node.rig.ended:
        clock.now = rig.node.deadline or clock.now
        flags += rig.turn()
    assert flags[: LONGEST + 1] == [FLAG_BRIDGED] * LONGEST + [FLAG_TRIPPED]
    assert rig.node.pacer.missed == 0
    assert mentions(rig.node.rig.machine.reason, "bridge.max_bridge", "Command", "10.7 ms", "<= 10 ms")
    while not rig.node.phase.gone:
        rig.node.work()
    assert (rig.node.phase.exit_code, rig.node.shutdown.summary["timing.bridged"]) == (3, LONGEST)


def test_the_first_command_is_waited_for(by_hand, clock):
    with by_hand.node("actuator", clock=clock, pace="realtime", peers=["actuator"]) as node:
        rig = Rig(by_hand, node, clock)
        clock.now += 100 * PERIOD
        assert (rig.turn(), node.deadline) == ([], None)
        rig.command(1)
        assert rig.turn() == [FLAG_SLIPPED]


def test_ticks_that_are_missed_trip_where_their_number_is_limited(by_hand, clock):
    allowed = ["bridge.overruns={in_a_row: 4, in_window: 9, window: 1.0}"]
    with by_hand.node("actuator", clock=clock, pace="realtime", peers=["actuator"], overrides=allowed) as node:
        rig, flags = Rig(by_hand, node, clock), []
        for sample, late in enumerate((0, 4, 0, 3, 0, 3, 0), start=1):
            rig.command(sample, 1e-5 * sample)
            clock.now = node.pacer.due + late * PERIOD if node.pacer.due else clock.now
            flags += rig.turn()
        assert flags == [0, FLAG_SLIPPED, 0, FLAG_SLIPPED, 0, FLAG_SLIPPED, FLAG_TRIPPED]
        words = "bridge.overruns.in_window: 10 periods were late in 1 s: must be <= 9"
        assert words in node.rig.machine.reason


# All nodes in one process, with faults on the wire: which sample is late does not depend on the machine


@pytest.mark.parametrize("stream", ["target", "command"])
def test_one_in_twenty_late_is_bridged_as_in_the_embedded_loop(stream, run_patiently, different):
    words = f"late@0.1:{stream},0.05"
    overrides = ["duration=3"] if stream == "target" else [SHORT]
    reference = hosts.run(NAME, overrides, faults=[words])
    plain = hosts.run(NAME, overrides)
    found = run_patiently(NAME, overrides, words)
    assert (found.result.outcome, found.result.exit_code) == ("finished", reference.exit_code), found.result.reason
    bridged = found.result.section("timing")["bridged"]
    assert bridged == reference.timing["bridged"] == np.count_nonzero(found.run.flags & FLAG_BRIDGED) > 5
    assert (found.missed, found.late) == (0, bridged if stream == "command" else 0)
    assert different(reference.read(), found.run, may_slip=True) == []
    errors = [r.metrics["axes"]["story_1"]["error_norm_percent"] for r in (reference, plain)]
    assert errors[0] == pytest.approx(errors[1], rel=0.06 if stream == "target" else 0.6)
    assert found.result.section("metrics")["axes"] == reference.metrics["axes"]


@pytest.mark.parametrize(("stream", "missing"), [("target", "Target"), ("command", "Command")])
def test_fifty_milliseconds_trip_and_the_reason_is_told(stream, missing, run_patiently):
    words = f"delay@0.5:{stream},52"
    reference = hosts.run(NAME, [SHORT], faults=[words])
    found = run_patiently(NAME, [SHORT], words)
    assert (found.result.outcome, found.result.exit_code) == ("tripped", 3)
    assert mentions(found.result.reason, "bridge.max_bridge", missing, "10.7 ms", "<= 10 ms")
    assert found.result.reason == reference.reason == found.run.information["reason"]
    assert found.result.section("timing")["bridged"] == reference.timing["bridged"] == LONGEST
    assert np.count_nonzero(found.run.flags & FLAG_BRIDGED) == LONGEST


def test_what_a_bridge_may_be_is_told_by_both_nodes(by_hand):
    for role in ("compensator", "actuator"):
        with by_hand.node(role) as node:
            assert "bridge:" in node.settings.facts()["parameters"]


# Found when the test is over


@pytest.fixture(scope="module")
def found_late() -> tuple[list[str], str]:
    """A test that ends 5 samples after a limit of the monitor was broken, and the words of it."""
    words = "monitor.energy_error_percent=2"
    loop = Loop(Assembly(files.load(NAME, ["duration=8", words])))
    assert loop.run().state is State.TRIPPED
    sample, reason = loop.monitor.monitor.breach or (0, "")
    return [f"duration={(sample + 5) / 1024}", words], reason


@pytest.mark.parametrize("host", HOSTS)
def test_a_breach_in_the_last_samples_ends_every_host_in_the_same_way(host, found_late, tmp_path):
    overrides, reason = found_late
    report = hosts.run(NAME, overrides, host=host, record=tmp_path / "run", keep=False)
    run = rths_nodes.read(tmp_path / "run")
    assert (report.outcome, report.exit_code) == ("tripped", 3)
    assert report.reason.startswith(f"sample {report.samples}: ")
    assert report.reason.endswith(reason)
    assert (run.outcome, run.information["reason"], run.information["gaps"]) == ("tripped", report.reason, "0")
    assert not (run.flags & FLAG_TRIPPED).any(), "too late to stop for"


def finished(by_hand, node):
    """The actuator node at the end of a test that went well, with a monitor that has not judged yet."""
    for state in (State.ARMED, State.RUNNING, State.FINISHED):
        node.rig.machine.to(state)
    by_hand.put(node, "progress", node="recorder", sample=5, done=True)


def test_the_last_words_wait_for_the_monitor(by_hand, clock):
    with by_hand.node("actuator", clock=clock) as node:
        finished(by_hand, node)
        node.work()
        assert not node.shutdown.reported
        by_hand.put(node, "trip", source="recorder", reason="it was shut down")  # after the end: changes nothing
        by_hand.put(node, "trip", source="monitor", reason="energy", effective_sample=2000)
        by_hand.put(node, "progress", node="monitor", sample=5, done=True)
        node.work()
        assert (node.phase.gone, node.shutdown.reported, node.phase.exit_code) == (True, True, 3)
        assert node.rig.machine.state is State.TRIPPED
        assert node.phase.problem == "sample 0: monitor: energy"


def test_a_monitor_that_is_gone_is_not_waited_for_long(by_hand, clock):
    with by_hand.node("actuator", clock=clock) as node:
        finished(by_hand, node)
        node.work()
        clock.now += actuator.JUDGED_NS
        node.work()
        assert (node.shutdown.reported, node.phase.exit_code, node.rig.machine.state) == (True, 0, State.FINISHED)
