# SPDX-License-Identifier: Apache-2.0
"""Tests of the ticks of a rig: their gate, which may trip or hold the rig, and their clock, which times them."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import each_mentions, mentions

from rths_nodes.core.samples import Command
from rths_nodes.loop.pacing import ANSWERED, Pacer
from rths_nodes.loop.supervision.heartbeat import HeartbeatParams
from rths_nodes.loop.supervision.hops import UnderWay
from rths_nodes.loop.supervision.states import LOCKSTEP_WINDOW
from rths_nodes.loop.timing import LateData
from rths_nodes.ros.nodes import course
from rths_nodes.ros.transport.service_thread import LoopCalls

SECOND, MS = 1_000_000_000, 1_000_000
DT = 0.01
PATIENCE = 5 * SECOND


# -- gate -------------------------------------------------------------------------------------------------


class Rig:
    """Stand-in for a rig that keeps the calls of the gate."""

    def __init__(self, depth: int = 0) -> None:
        self.sample = 0
        self.under_way, self.ahead = UnderWay(depth), 0
        self.under_way.start = Command(0, np.zeros(1), np.zeros(1))
        self.ended = self.stopping = self.stop_due = False
        self.pause = SimpleNamespace(coming=None, active=True, continues=False)
        self.trips: list[tuple[str, int]] = []
        self.holds: list[str] = []
        self.late: list[int] = []
        self.hold = self.holds.append
        self.late_command = lambda command: self.late.append(command.sample)

    @property
    def stop_request(self) -> tuple[str, int] | None:
        return self.trips[0] if self.trips else ("asked to", 0) if self.stop_due else None

    def trip(self, reason: str, sample: int = 0) -> None:
        self.trips.append((reason, sample))


class Bench:
    """Gate with its rig, and the topics of both, whose messages are in lists."""

    def __init__(self, clock: Any, realtime: bool, recorder_lost: str = "stop", depth: int = 0) -> None:
        self.clock, self.rig = clock, Rig(depth)
        self.commands: deque[int] = deque()
        self.messages: dict[str, list[dict[str, Any]]] = {"trip": [], "progress": []}
        self.looks = 0
        self.warnings: list[str] = []
        peers = ("monitor", "recorder")
        self.times = course.RigClock(DT, 5, Pacer(DT, 5, clock) if realtime else None, clock)
        context = course.RigContext(self.rig, self.times, self, self, self, clock)
        if realtime:
            heartbeat = HeartbeatParams(recorder_lost=recorder_lost)
            scenario: Any = SimpleNamespace(dt=DT, samples_per_step=0, heartbeat=heartbeat)
            scenario.bridge, scenario.hops = SimpleNamespace(max_bridge=0.0), SimpleNamespace(depth=0)
            self.observers = course.SignsOfLife(context, scenario, peers, self.warnings.append)
        else:
            self.observers = course.LockstepWindow(context, peers, PATIENCE)
        self.calls = LoopCalls()
        self.gate = course.TickGate(context, self.observers, self.calls, self.receive_stops, PATIENCE)
        if self.times.pacer:
            self.times.pacer.start()
        self.observers.begin(clock.now)
        self.times.measured(0)

    inboxes: ClassVar[dict[str, Any]] = {"command": SimpleNamespace(waited=lambda: 0)}
    codec = SimpleNamespace(unpack_command=lambda sample: (Command(sample, np.zeros(1), np.zeros(1)), 0))

    def receive(self, topic: str, unpack: Any) -> Any:
        assert topic == "command"
        return unpack(self.commands.popleft()) if self.commands else None

    def received(self, topic: str) -> list[dict[str, Any]]:
        messages, self.messages[topic] = self.messages[topic], []
        return messages

    def receive_stops(self) -> None:
        self.looks += 1

    def deliver(self, *samples: int) -> None:
        """Deliver Commands."""
        self.commands.extend(samples)
        self.gate.take_command()

    def handed_over(self) -> int:
        """Hand the Command over to the tick; return its sample."""
        command = self.gate.hand_over()
        assert command is not None
        return command.sample

    def trip(self, *messages: dict[str, Any]) -> None:
        self.messages["trip"] = list(messages)
        self.gate.receive_trips()

    def report_progress(self, **samples: int) -> None:
        self.messages["progress"] += [
            {"node": node, "sample": sample, "done": False} for node, sample in samples.items()
        ]


@pytest.fixture
def lockstep(still_clock: Any) -> Bench:
    return Bench(still_clock, realtime=False)


@pytest.fixture
def realtime(still_clock: Any) -> Bench:
    return Bench(still_clock, realtime=True)


def test_tick_runs_once_command_is_here(lockstep: Bench) -> None:
    assert not lockstep.gate.may_tick()
    lockstep.deliver(1)
    assert lockstep.gate.may_tick()
    assert (lockstep.handed_over(), lockstep.gate.command) == (1, None)


def test_past_command_is_late_and_future_command_trips(lockstep: Bench) -> None:
    lockstep.rig.sample = 4
    lockstep.deliver(3, 4, 5)
    assert lockstep.rig.late == [3, 4]
    assert lockstep.gate.command is not None
    lockstep.gate.hand_over()
    lockstep.deliver(7)
    assert lockstep.gate.command is None
    assert lockstep.rig.trips == [("received Command 7, expected Command 5", 0)]


def test_hops_keep_commands_until_their_tick(still_clock: Any) -> None:
    bench = Bench(still_clock, realtime=False, depth=2)
    taken = []
    for sample, commands in enumerate([(), (1, 2), (3,), (4, 5), (), ()]):
        bench.rig.sample = sample
        bench.deliver(*commands)
        assert bench.gate.may_tick()
        taken.append(bench.handed_over())
    assert taken == [-1, 0, 1, 2, 3, 4], "the first two ticks hold the rig at its position"
    assert (bench.rig.late, bench.rig.trips) == ([], [])
    bench.rig.sample = 7  # tick 7 ran without Command 5, which is late now; tick 8 takes Command 6
    bench.deliver(6)
    assert bench.rig.late == [5]
    assert bench.gate.hand_over() is not None
    bench.deliver(9)
    assert bench.rig.trips == [("received Command 9, expected Command 6 to 8", 0)]


def test_first_tick_waits_for_first_command_in_real_time(still_clock: Any) -> None:
    """Also if hops need none for it: nothing moves yet, and a slow first step would be late after the hops."""
    bench = Bench(still_clock, realtime=True, depth=2)
    bench.deliver()
    bench.clock.now += SECOND
    assert bench.gate.command is None
    assert not bench.gate.may_tick()
    bench.deliver(1)
    assert bench.gate.may_tick()
    assert bench.handed_over() == -1
    for sample, command in ((1, 0), (2, 1)):  # later ticks within the depth need no Command
        bench.rig.sample = sample
        bench.deliver()
        assert bench.handed_over() == command


def test_tick_does_not_wait_for_late_command_in_real_time(realtime: Bench) -> None:
    realtime.clock.now += SECOND
    assert not realtime.gate.may_tick(), "nothing moves yet, so the first Command has no deadline"
    realtime.rig.sample = 1
    realtime.times.measured(1)
    deadline = realtime.gate.deadline
    realtime.clock.now = deadline - 1
    assert not realtime.gate.may_tick()
    realtime.clock.now = deadline
    assert realtime.gate.may_tick()
    assert realtime.gate.command is None


def test_command_received_while_process_was_stopped_is_taken(realtime: Bench) -> None:
    realtime.rig.sample = 1
    realtime.clock.now += SECOND
    realtime.commands.append(2)
    assert realtime.gate.may_tick()
    assert realtime.gate.command is not None
    assert realtime.gate.deadline is None


def test_stopping_rig_needs_no_command(lockstep: Bench) -> None:
    lockstep.rig.stop_due = True
    assert lockstep.gate.may_tick()
    lockstep.rig.stop_due, lockstep.rig.stopping = False, True
    assert lockstep.gate.may_tick()


def test_missing_command_trips_after_timeout(lockstep: Bench) -> None:
    lockstep.clock.now += PATIENCE
    assert not lockstep.gate.may_tick()
    assert not lockstep.rig.trips
    lockstep.clock.now += SECOND
    assert not lockstep.gate.may_tick()
    assert lockstep.rig.trips == [("no Command 1 for 6 s", 0)]


def test_interrupt_holds_rig(lockstep: Bench) -> None:
    lockstep.gate.may_tick(interrupted=True)
    assert lockstep.rig.holds == ["interrupted"]


def test_stop_requests_are_received_periodically(lockstep: Bench) -> None:
    for _ in range(10):
        lockstep.gate.may_tick()
    assert lockstep.looks == 1
    lockstep.clock.now += course.LOOK_EVERY_NS
    lockstep.gate.may_tick()
    assert lockstep.looks == 2


def trip(source: str, sample: int, breach: int = 0) -> dict[str, Any]:
    """Return a Trip; ``breach`` is the sample of a breach, if any."""
    return {"source": source, "reason": "broken", "effective_sample": sample, "sample": breach}


def test_trip_in_lockstep_takes_effect_at_its_sample_within_window(lockstep: Bench) -> None:
    lockstep.trip(trip("monitor", 300))
    lockstep.trip(trip("monitor", 4_000_000_000))
    assert lockstep.rig.trips == [("monitor: broken", 300), ("monitor: broken", LOCKSTEP_WINDOW)]


def test_trip_in_real_time_takes_effect_at_once(realtime: Bench) -> None:
    realtime.trip(trip("monitor", 300))
    assert realtime.rig.trips == [("monitor: broken", 0)]


def test_only_monitor_or_breach_trips_after_end(lockstep: Bench) -> None:
    lockstep.rig.ended = True
    lockstep.trip(trip("recorder", 0), trip("monitor", 0), trip("compensator", 0, 700))
    assert [reason for reason, _ in lockstep.rig.trips] == ["monitor: broken", "broken"]


def test_rig_waits_for_slowest_observer_in_lockstep(lockstep: Bench) -> None:
    lockstep.rig.sample = LOCKSTEP_WINDOW - 2
    lockstep.deliver(LOCKSTEP_WINDOW - 1)
    assert lockstep.gate.may_tick()
    lockstep.rig.sample += 1
    lockstep.report_progress(monitor=500, somebody=500)
    assert not lockstep.gate.may_tick()
    lockstep.report_progress(recorder=0)
    assert lockstep.gate.may_tick()


def test_tripped_rig_does_not_wait_for_observers(lockstep: Bench) -> None:
    lockstep.rig.sample = 2 * LOCKSTEP_WINDOW
    lockstep.deliver(2 * LOCKSTEP_WINDOW + 1)
    assert not lockstep.gate.may_tick()
    lockstep.rig.trip("energy", 3 * LOCKSTEP_WINDOW)
    assert lockstep.gate.may_tick()


def test_observer_without_progress_trips_rig(lockstep: Bench) -> None:
    lockstep.rig.sample = LOCKSTEP_WINDOW
    lockstep.deliver(LOCKSTEP_WINDOW + 1)
    lockstep.report_progress(monitor=3)
    lockstep.clock.now += PATIENCE + 1
    assert not lockstep.gate.may_tick()
    ((reason, sample),) = lockstep.rig.trips
    assert sample == 0
    assert mentions(reason, "recorder", "5 s")


def pass_time(bench: Bench, seconds: float, *peers: str) -> None:
    """Advance the clock while ``peers`` send heartbeats."""
    for _ in range(round(100 * seconds)):
        bench.clock.now += SECOND // 100
        bench.report_progress(**dict.fromkeys(peers, bench.rig.sample))
        bench.gate.may_tick()


def test_silent_monitor_trips_rig_in_real_time(realtime: Bench) -> None:
    pass_time(realtime, 0.2, "recorder")
    assert not realtime.rig.trips
    pass_time(realtime, 0.02, "recorder")
    assert each_mentions([reason for reason, _ in realtime.rig.trips], ("heartbeat.monitor", "0.21 s", "<= 0.2 s"))


def test_silent_optional_observer_is_only_reported(still_clock: Any) -> None:
    bench = Bench(still_clock, realtime=True, recorder_lost="warn")
    pass_time(bench, 2.0, "monitor")
    assert not bench.rig.trips
    assert each_mentions(bench.warnings, ("heartbeat.recorder", "1.5 s", "<= 1.5 s"))


def test_monitor_that_sees_no_samples_trips_rig(realtime: Bench) -> None:
    for _ in range(21):
        realtime.clock.now += SECOND // 100
        realtime.rig.sample += 1
        realtime.report_progress(monitor=0, recorder=realtime.rig.sample)
        realtime.gate.may_tick()
    reason = "heartbeat.monitor: sends heartbeats, but has received no Measurement for 0.21 s: must be <= 0.2 s"
    assert [text for text, _ in realtime.rig.trips] == [reason]


# -- clock ------------------------------------------------------------------------------------------------


@pytest.fixture
def paced(still_clock: Any) -> course.RigClock:
    """A clock in real time whose schedule has started."""
    times = course.RigClock(DT, 5, Pacer(DT, 5, still_clock), still_clock)
    times.pacer.start()
    return times


def test_stamp_is_nominal_time_of_sample(still_clock: Any) -> None:
    times = course.RigClock(DT, 5, None, still_clock)
    times.start()
    started = still_clock.now
    still_clock.now += 7 * MS
    assert [times.measured(sample) - started for sample in (0, 1, 3)] == [0, 10 * MS, 30 * MS]


def test_slipped_schedule_moves_stamps(paced: course.RigClock, still_clock: Any) -> None:
    paced.start()
    started = still_clock.now
    still_clock.now += 35 * MS
    assert paced.pacer() == 2
    assert paced.measured(1) - started == 30 * MS


def test_deadline_counts_from_tick_or_late_measurement(paced: course.RigClock, still_clock: Any) -> None:
    paced.measured(0)
    assert paced.deadline == paced.pacer.due
    still_clock.now += 9 * MS
    paced.measured(0)
    assert paced.deadline == still_clock.now + round(ANSWERED * 10 * MS)


def test_lockstep_has_no_deadline(still_clock: Any) -> None:
    assert course.RigClock(DT, 5, None, still_clock).deadline is None


def test_delayed_command_is_timed_from_its_own_measurement(still_clock: Any) -> None:
    times = course.RigClock(DT, 5, None, still_clock)
    for sample in range(4):
        times.measured(sample)
        still_clock.now += 10 * MS
    times.answered(2, waited=5 * MS)
    assert times.durations()["loop"].seconds.tolist() == pytest.approx([0.025])


def test_loop_and_work_are_timed(still_clock: Any) -> None:
    times = course.RigClock(DT, 5, None, still_clock)
    times.start()
    times.begin()
    times.measured(0)
    for sample, duration in enumerate((2, 4), 1):
        still_clock.now += duration * MS
        assert times.waited == duration * MS
        times.answered(sample)
        times.tick()
        still_clock.now += MS
        times.measured(sample)
    times.end()
    durations = times.durations()
    assert sorted(durations) == ["loop", "work"]
    assert durations["loop"].seconds.tolist() == pytest.approx([0.002, 0.004])
    assert durations["work"].seconds.tolist() == pytest.approx([0.001, 0.001])
    summary = times.summary(LateData(3), late_commands=2)
    assert (summary["bridged"], summary["late_commands"], summary["missed"], summary["slipped"]) == (3, 2, 0, 0)
    assert (summary["running_s"], summary["loop"]["mean_s"]) == (pytest.approx(0.008), pytest.approx(0.003))


def test_work_in_real_time_excludes_wait_for_tick(paced: course.RigClock, still_clock: Any) -> None:
    paced.tick()
    still_clock.now += 10 * MS
    paced.pacer()
    still_clock.now += MS
    paced.measured(1)
    assert paced.durations()["work"].seconds.tolist() == pytest.approx([0.001])
    assert len(paced.durations()["lateness"]) == 1


def test_running_time_is_zero_before_begin(still_clock: Any) -> None:
    times = course.RigClock(DT, 5, None, still_clock)
    still_clock.now += MS
    times.end()
    assert times.summary(LateData(), 0)["running_s"] == 0.0
