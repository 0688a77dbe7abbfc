# SPDX-License-Identifier: Apache-2.0
"""Bridging of late messages by nodes in real time, as in the embedded loop; in lockstep nodes wait."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.core.samples import (
    FLAG_BRIDGED,
    FLAG_SLIPPED,
    FLAG_SLOWED,
    FLAG_TRIPPED,
    Command,
    Measurement,
    Target,
)
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.faults import STREAMS
from rths_nodes.loop.options import HOSTS
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.nodes import course
from rths_nodes.ros.nodes.participation import Phase

NAME = "chen_ricles_2010"
SHORT = "duration=1.5"
PERIOD = round(1e9 / 1024)
LONGEST = 10
"""Samples in 10 ms at 1024 Hz."""


def sent(node, topic: str) -> list:
    unpack = getattr(node.topics.codec, f"unpack_{topic}")
    return [unpack(data)[0] for data in node.interposer.sent[topic]]


def measurement(sample: int, flags: int = 0) -> Measurement:
    return Measurement(sample, *(np.zeros(1) for _ in range(3)), flags=flags)


# Compensator and integrator


class Compensator:
    """A compensator node that receives one Target per sample from the test."""

    def __init__(self, by_hand, node) -> None:
        self.node, self._by_hand = node, by_hand

    def target(self, *steps: int) -> None:
        for step in steps:
            rows = (np.array([x]) for x in (1e-5 * step, 1e-5 * 1024, 0.0, 0.0, 0.0, 0.0))
            self._by_hand.put_sample(self.node, "target", Target(step, *rows))

    def measurement(self, sample: int, flags: int = 0) -> None:
        self._by_hand.put_sample(self.node, "measurement", measurement(sample, flags))

    def work(self) -> list[tuple[int, int]]:
        """Return numbers and flags of the new Commands. The node detects a late Target at its second poll."""
        before = len(sent(self.node, "command"))
        while self.node.work() or self.node.work():
            pass
        return [(command.sample, command.flags) for command in sent(self.node, "command")[before:]]


@pytest.fixture
def compensator(by_hand, clock) -> Iterator[Compensator]:
    overrides = ["substeps=1", "compensator.type=none"]
    with by_hand.node("compensator", clock=clock, pace="realtime", overrides=overrides) as node:
        compensator = Compensator(by_hand, node)
        compensator.target(0, 1)
        compensator.measurement(0)
        assert compensator.work() == [(1, 0)]
        yield compensator


def test_late_target_is_bridged_at_its_deadline(compensator, clock):
    compensator.measurement(1)
    assert compensator.work() == []
    deadline = compensator.node.deadline
    assert 0 < deadline - clock.now < PERIOD
    clock.now = deadline - 10_000
    assert compensator.work() == []
    clock.now = deadline
    assert compensator.work() == [(2, FLAG_BRIDGED)]
    np.testing.assert_allclose(sent(compensator.node, "command")[-1].target, 2e-5)  # at constant velocity


def test_measurement_wakes_compensator_only_with_target_or_when_late(compensator, clock):
    node = compensator.node
    assert node.awaited_streams == ("target",)
    assert PERIOD < node.deadline - clock.now < 2 * PERIOD, "then Measurement 1 has waited for its Target"
    compensator.target(2)
    compensator.work()
    assert (node.awaited_streams, node.deadline) == (STREAMS, None)
    compensator.measurement(1)
    assert compensator.work() == [(2, 0)]
    assert node.awaited_streams == ("target",)
    clock.now = node.deadline
    assert (node.awaited_streams, node.deadline) == (STREAMS, None), "the rig may have slipped"


def test_integrator_sleeps_between_steps(by_hand, clock):
    with by_hand.node("integrator", clock=clock, pace="realtime", overrides=["substeps=10"]) as node:
        assert (node.awaited_streams, node.deadline) == (STREAMS, None)
        by_hand.put_sample(node, "measurement", measurement(0))
        by_hand.work(node)
        assert node.awaited_streams == ()
        assert 8 * PERIOD < node.deadline - clock.now < 9 * PERIOD
        clock.now = node.deadline
        assert (node.awaited_streams, node.deadline) == (STREAMS, None)


def test_target_after_suspended_process_is_not_late(compensator, clock):
    compensator.measurement(1)
    compensator.work()
    clock.now += 10 * PERIOD
    assert not compensator.node.work()
    compensator.target(2)
    assert compensator.work() == [(2, 0)]
    assert compensator.node.stage.bridged == 0


def test_motion_continues_from_late_target(compensator, clock):
    compensator.measurement(1)
    compensator.work()
    clock.now += PERIOD
    assert compensator.work() == [(2, FLAG_BRIDGED)]
    compensator.target(2, 3)
    compensator.measurement(2)
    assert compensator.work() == [(3, 0)]
    assert compensator.node.stage.bridged == 1


def test_pending_target_is_used_however_late_the_node_wakes(compensator, clock):
    compensator.measurement(1)
    compensator.work()
    clock.now += 100 * PERIOD
    compensator.target(2)
    assert compensator.work() == [(2, 0)]


def test_target_received_while_clock_is_read_is_used(compensator, clock):
    compensator.measurement(1)
    compensator.work()

    def receive_late() -> None:
        compensator.target(2)
        clock.now += PERIOD

    clock.on_read = receive_late
    assert compensator.work() == [(2, 0)]


def test_compensator_bridges_at_most_max_bridge(compensator, clock):
    answers = []
    for sample in range(1, LONGEST + 3):
        compensator.measurement(sample)
        compensator.work()
        clock.now += PERIOD
        answers += compensator.work()
    assert answers == [(sample, FLAG_BRIDGED) for sample in range(2, LONGEST + 2)]


def test_compensator_waits_for_first_target(by_hand, clock):
    with by_hand.node("compensator", clock=clock, pace="realtime") as node:
        compensator = Compensator(by_hand, node)
        compensator.measurement(0)
        compensator.work()
        clock.now += 1000 * PERIOD
        assert (compensator.work(), node.deadline) == ([], None)
        compensator.target(0, 1)
        assert compensator.work() == [(1, 0)]


def test_compensator_waits_for_targets_in_lockstep(by_hand, clock):
    with by_hand.node("compensator", clock=clock) as node:
        compensator = Compensator(by_hand, node)
        compensator.target(0, 1)
        for sample in range(11):
            compensator.measurement(sample)
        assert len(compensator.work()) == 10
        clock.now += 1000 * PERIOD
        assert (compensator.work(), node.deadline) == ([], None)


# Actuator


class Rig:
    """An actuator node that receives Commands from the test and works as the executor lets it."""

    def __init__(self, by_hand, node) -> None:
        self.node, self._by_hand = node, by_hand
        node.phase.to(Phase.READY)
        node.work()
        assert node.rig.machine.state is State.ARMED
        node.work()
        assert node.running

    def command(self, sample: int, value: float = 0.0) -> None:
        self._by_hand.put_sample(self.node, "command", Command(sample, np.array([value]), np.array([value])))

    def turn(self) -> list[int]:
        """Return the flags of the new samples."""
        before = len(sent(self.node, "measurement"))
        self.node.work()
        if self.node.slack is not None:
            self.node.tick()
        return [measured.flags for measured in sent(self.node, "measurement")[before:]]


@pytest.fixture
def rig(by_hand, clock) -> Iterator[Rig]:
    with by_hand.node("actuator", clock=clock, pace="realtime", peers=["actuator"]) as node:
        rig = Rig(by_hand, node)
        for sample in (1, 2, 3):
            rig.command(sample, 1e-5 * sample)
            assert rig.turn() == [0]
        yield rig


def test_late_command_is_bridged_at_its_tick(rig, clock):
    assert rig.turn() == []
    assert rig.node.deadline == rig.node.pacer.due
    clock.now = rig.node.deadline
    assert rig.turn() == [FLAG_BRIDGED]
    np.testing.assert_allclose(sent(rig.node, "measurement")[-1].command, 4e-5)
    rig.command(4, 4e-5)
    rig.command(5, 5e-5)
    assert rig.turn() == [0]
    np.testing.assert_allclose(sent(rig.node, "measurement")[-1].command, 5e-5)
    assert (rig.node.rig.bridged, rig.node.rig.late_commands, rig.node.pacer.missed) == (1, 1, 0)


def test_pending_command_is_used_however_late_the_rig_wakes(rig, clock):
    clock.now += 20 * PERIOD
    rig.command(4)
    assert rig.turn() == [FLAG_SLIPPED]
    assert rig.node.rig.bridged == 0


def test_late_measurement_delays_the_deadline_of_its_command(rig, clock):
    rig.node.pacer.due -= PERIOD
    assert rig.turn() == []
    assert 0.5 * PERIOD < rig.node.deadline - clock.now < PERIOD


def test_rig_trips_after_max_bridge_without_commands(rig, clock):
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


def test_rig_waits_for_first_command(by_hand, clock):
    with by_hand.node("actuator", clock=clock, pace="realtime", peers=["actuator"]) as node:
        rig = Rig(by_hand, node)
        clock.now += 100 * PERIOD
        assert (rig.turn(), node.deadline) == ([], None)
        rig.command(1)
        assert rig.turn() == [FLAG_SLIPPED]


def test_too_many_missed_ticks_trip(by_hand, clock):
    overrides = ["bridge.overruns={in_a_row: 4, in_window: 9, window: 1.0}"]
    with by_hand.node("actuator", clock=clock, pace="realtime", peers=["actuator"], overrides=overrides) as node:
        rig, flags = Rig(by_hand, node), []
        for sample, late in enumerate((0, 4, 0, 3, 0, 3, 0), start=1):
            rig.command(sample, 1e-5 * sample)
            clock.now = node.pacer.due + late * PERIOD if node.pacer.due else clock.now
            flags += rig.turn()
        assert flags == [0, FLAG_SLIPPED, 0, FLAG_SLIPPED, 0, FLAG_SLIPPED, FLAG_TRIPPED]
        reason = "bridge.overruns.in_window: 10 periods were late in 1 s: must be <= 9"
        assert reason in node.rig.machine.reason


# All nodes in one process; faults decide which samples are late


@pytest.mark.parametrize("stream", ["target", "command"])
def test_one_late_sample_in_twenty_is_bridged_as_embedded(stream, run_patiently, different):
    fault = f"late@0.1:{stream},0.05"
    overrides = ["duration=3"] if stream == "target" else [SHORT]
    reference = hosts.run(NAME, overrides, faults=[fault])
    plain = hosts.run(NAME, overrides)
    test = run_patiently(NAME, overrides, fault)
    assert (test.result.outcome, test.result.exit_code) == ("finished", reference.exit_code), test.result.reason
    bridged = test.result.section("timing")["bridged"]
    assert bridged == reference.timing["bridged"] == np.count_nonzero(test.run.flags & FLAG_BRIDGED) > 5
    assert (test.missed, test.late) == (0, bridged if stream == "command" else 0)
    assert different(reference.read(), test.run, may_slip=True) == []
    errors = [r.metrics["axes"]["story_1"]["error_norm_percent"] for r in (reference, plain)]
    assert errors[0] == pytest.approx(errors[1], rel=0.06 if stream == "target" else 0.6)
    assert test.result.section("metrics")["axes"] == reference.metrics["axes"]


@pytest.mark.parametrize(("stream", "missing"), [("target", "Target"), ("command", "Command")])
def test_delay_beyond_max_bridge_trips_as_embedded(stream, missing, run_patiently):
    fault = f"delay@0.5:{stream},52"
    reference = hosts.run(NAME, [SHORT], faults=[fault])
    test = run_patiently(NAME, [SHORT], fault)
    assert (test.result.outcome, test.result.exit_code) == ("tripped", 3)
    assert mentions(test.result.reason, "bridge.max_bridge", missing, "10.7 ms", "<= 10 ms")
    assert test.result.reason == reference.reason == test.run.information["reason"]
    assert test.result.section("timing")["bridged"] == reference.timing["bridged"] == LONGEST
    assert np.count_nonzero(test.run.flags & FLAG_BRIDGED) == LONGEST


@pytest.mark.parametrize("role", ["compensator", "actuator"])
def test_node_reports_parameters_of_bridge(role, by_hand):
    with by_hand.node(role) as node:
        assert "bridge:" in node.settings.facts()["parameters"]


# Breaches that are detected after the last sample


@pytest.fixture(scope="module")
def late_breach() -> tuple[list[str], str]:
    """Overrides of a test that ends 5 samples after a breach of a limit of the monitor, and the reason."""
    limit = "monitor.energy_error_percent=2"
    loop = Loop(Assembly(files.load(NAME, ["duration=8", limit])))
    assert loop.run().state is State.TRIPPED
    sample, reason = loop.monitor.monitor.breach or (0, "")
    return [f"duration={(sample + 5) / 1024}", limit], reason


@pytest.mark.parametrize("host", HOSTS)
def test_breach_in_last_samples_trips_every_host(host, late_breach, tmp_path):
    overrides, reason = late_breach
    report = hosts.run(NAME, overrides, host=host, record=tmp_path / "run", keep=False)
    run = rths_nodes.read(tmp_path / "run")
    assert (report.outcome, report.exit_code) == ("tripped", 3)
    assert report.reason.startswith(f"sample {report.samples}: ")
    assert report.reason.endswith(reason)
    assert (run.outcome, run.information["reason"], run.information["gaps"]) == ("tripped", report.reason, "0")
    assert not (run.flags & FLAG_TRIPPED).any(), "too late for a safe stop"


@pytest.fixture
def finished(by_hand, clock):
    """An actuator node after a finished test; its monitor has not judged the test yet."""
    with by_hand.node("actuator", clock=clock) as node:
        for state in (State.ARMED, State.RUNNING, State.FINISHED):
            node.rig.machine.to(state)
        by_hand.put(node, "progress", node="recorder", sample=5, done=True)
        node.work()
        yield node


def test_summary_waits_for_the_monitor(finished, by_hand):
    assert not finished.shutdown.reported
    by_hand.put(finished, "trip", source="recorder", reason="it was shut down")  # ignored after the end
    by_hand.put(finished, "trip", source="monitor", reason="energy", effective_sample=2000)
    by_hand.put(finished, "progress", node="monitor", sample=5, done=True)
    finished.work()
    assert (finished.phase.gone, finished.shutdown.reported, finished.phase.exit_code) == (True, True, 3)
    assert finished.rig.machine.state is State.TRIPPED
    assert finished.phase.problem == "sample 0: monitor: energy"


def test_silent_monitor_is_given_up_after_timeout(finished, clock):
    clock.now += course.JUDGED_NS
    finished.work()
    ending = finished.shutdown.reported, finished.phase.exit_code, finished.rig.machine.state
    assert ending == (True, 0, State.FINISHED)


# Nodes in a pause: the compensator waits for its Target, the rig ticks without samples

PAUSES = ["substeps=1", "compensator.type=none", "bridge.when_late=pause"]


@pytest.fixture
def exhausted(by_hand, clock) -> Iterator[Compensator]:
    """A compensator that has bridged as many samples as it may."""
    with by_hand.node("compensator", clock=clock, pace="realtime", overrides=PAUSES) as node:
        compensator = Compensator(by_hand, node)
        compensator.target(0, 1)
        for sample in range(LONGEST + 1):
            compensator.measurement(sample)
            compensator.work()
            clock.now = node.deadline or clock.now
            compensator.work()
        assert node.stage.bridged == LONGEST
        yield compensator


def test_compensator_waits_for_target_without_timeout(exhausted, clock):
    exhausted.measurement(LONGEST + 1)
    for _ in range(100):
        clock.now += PERIOD
        assert exhausted.work() == []
    assert exhausted.node.deadline is None, "only messages wake it up"
    exhausted.target(*range(2, LONGEST + 3))
    assert exhausted.work() == [(LONGEST + 2, 0)]
    exhausted.measurement(LONGEST + 2, FLAG_SLOWED)
    exhausted.target(LONGEST + 3)
    assert exhausted.work() == [(LONGEST + 3, 0)]


def test_compensator_stops_waiting_when_rig_has_tripped(exhausted, clock):
    exhausted.measurement(LONGEST + 1)
    assert exhausted.work() == []
    exhausted.measurement(LONGEST + 2, FLAG_TRIPPED)
    clock.now += PERIOD
    assert exhausted.work() == []
    assert exhausted.node.last_sample == LONGEST + 2


def test_rig_ticks_without_samples(by_hand, clock):
    options = {"clock": clock, "pace": "realtime", "peers": ["actuator"], "overrides": PAUSES}
    with by_hand.node("actuator", **options) as node:
        rig = Rig(by_hand, node)

        def turn() -> list[Measurement]:
            before = len(sent(node, "measurement"))
            if node.slack is not None:
                clock.now = max(clock.now, node.pacer.due)
            rig.turn()
            return sent(node, "measurement")[before:]

        for sample in range(1, 5):
            rig.command(sample, 1e-5 * sample)
            turn()
        assert node.rig.sample == 4
        for _ in range(LONGEST):
            clock.now = node.deadline
            assert [measured.flags for measured in turn()] == [FLAG_BRIDGED]
        last = node.rig.sample
        clock.now = node.deadline
        for _ in range(50):
            assert turn() == [], "a tick without a sample"
        assert (node.rig.sample, node.rig.ticks) == (last, last + 50)
        measurements: list[Measurement] = []
        for sample in range(last + 1, last + 40):
            rig.command(sample, 1e-5 * sample)
            while node.rig.sample < sample:
                measurements += turn()
        assert [measured.sample for measured in measurements] == list(range(last + 1, last + 40))
        assert (measurements[0].flags, measurements[-1].flags) == (FLAG_SLOWED, 0)
        assert node.counters()["slowed"] == sum(measured.flags == FLAG_SLOWED for measured in measurements)
        assert node.pacer.missed == 0


def test_slow_step_does_not_delay_next_step(by_hand, clock):
    """The integrator rests from the Measurement it has answered, not from its answer."""
    with by_hand.node("integrator", clock=clock, pace="realtime", overrides=["substeps=20"]) as node:
        step = node.stage.next

        def slow(measured: Measurement) -> Target | None:
            clock.now += 15 * PERIOD
            return step(measured)

        node.stage.next = slow
        began = clock.now
        by_hand.put_sample(node, "measurement", measurement(0))
        node.work()
        assert len(node.interposer.sent["target"]) == 2
        assert node.rests
        assert node.deadline - began == pytest.approx(18.5 * PERIOD, abs=20_000)
