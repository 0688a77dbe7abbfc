# SPDX-License-Identifier: Apache-2.0
"""When the next tick may run, and what trips or holds the rig while it is waited for."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import each_mentions, mentions

from rths_nodes.core.samples import Command
from rths_nodes.loop.pacing import Pacer
from rths_nodes.loop.supervision.heartbeat import Heartbeat, HeartbeatParams
from rths_nodes.loop.supervision.hops import UnderWay
from rths_nodes.loop.supervision.states import LOCKSTEP_WINDOW
from rths_nodes.ros.nodes.observers import LockstepWindow, RigClock, RigContext, SignsOfLife
from rths_nodes.ros.nodes.tick_gate import LOOK_EVERY_NS, TickGate
from rths_nodes.ros.transport.service_thread import LoopCalls

SECOND = 1_000_000_000
DT = 0.01
PATIENCE = 5 * SECOND


class Rig:
    """What the gate asks of a rig, and what it tells it."""

    def __init__(self, depth: int = 0) -> None:
        self.sample = 0
        self.under_way, self.ahead = UnderWay(depth), 0
        self.under_way.start = Command(0, np.zeros(1), np.zeros(1))
        self.ended = self.stopping = self.stop_due = False
        self.pause = SimpleNamespace(coming=None, active=True, continues=False)
        self.trips: list[tuple[str, int]] = []
        self.holds: list[str] = []
        self.late: list[int] = []

    @property
    def stop_request(self) -> tuple[str, int] | None:
        return self.trips[0] if self.trips else ("asked to", 0) if self.stop_due else None

    def trip(self, reason: str, sample: int = 0) -> None:
        self.trips.append((reason, sample))

    def hold(self, reason: str) -> None:
        self.holds.append(reason)

    def late_command(self, command: Command) -> None:
        self.late.append(command.sample)


class Bench:
    """A gate with its rig, and the topics of both: messages are put into lists."""

    def __init__(self, clock: Any, realtime: bool, optional: tuple[str, ...] = (), depth: int = 0) -> None:
        self.clock, self.rig = clock, Rig(depth)
        rig: Any = self.rig
        self.commands: deque[int] = deque()
        self.messages: dict[str, list[dict[str, Any]]] = {"trip": [], "progress": []}
        self.looks = 0
        topics: Any = self
        self.warnings: list[str] = []
        peers = ("monitor", "recorder")
        self.times = RigClock(DT, 5, Pacer(DT, 5, clock) if realtime else None, clock)
        context = RigContext(rig, self.times, topics, topics, topics, clock)
        self.observers: Any
        if realtime:
            heartbeat = Heartbeat(HeartbeatParams(), peers, DT)
            self.observers = SignsOfLife(context, heartbeat, DT, optional, self.warnings.append)
        else:
            self.observers = LockstepWindow(context, peers, PATIENCE)
        self.calls = LoopCalls()
        self.gate = TickGate(context, self.observers, self.calls, self.receive_stops, PATIENCE)
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
        heard, self.messages[topic] = self.messages[topic], []
        return heard

    def receive_stops(self) -> None:
        self.looks += 1

    def come(self, *samples: int) -> None:
        self.commands.extend(samples)
        self.gate.take_command()

    def seen(self, **samples: int) -> None:
        self.messages["progress"] += [
            {"node": node, "sample": sample, "done": False} for node, sample in samples.items()
        ]


@pytest.fixture
def lockstep(still_clock: Any) -> Bench:
    return Bench(still_clock, realtime=False)


@pytest.fixture
def realtime(still_clock: Any) -> Bench:
    return Bench(still_clock, realtime=True)


def test_a_tick_runs_once_its_command_is_here(lockstep: Bench) -> None:
    assert not lockstep.gate.may_tick()
    lockstep.come(1)
    assert lockstep.gate.may_tick()
    command = lockstep.gate.hand_over()
    assert command is not None
    assert (command.sample, lockstep.gate.command) == (1, None)


def test_a_command_of_a_past_tick_is_late_and_one_of_a_later_tick_trips(lockstep: Bench) -> None:
    lockstep.rig.sample = 4
    lockstep.come(3, 4, 5)
    assert lockstep.rig.late == [3, 4]
    assert lockstep.gate.command is not None
    lockstep.gate.hand_over()
    lockstep.come(7)
    assert lockstep.gate.command is None
    assert lockstep.rig.trips == [("received Command 7, expected Command 5", 0)]


def test_commands_that_hops_bring_before_their_tick_are_kept_until_then(still_clock: Any) -> None:
    bench = Bench(still_clock, realtime=False, depth=2)
    taken = []
    for sample, come in enumerate([(), (1, 2), (3,), (4, 5), (), ()]):
        bench.rig.sample = sample
        bench.come(*come)
        assert bench.gate.may_tick()
        command = bench.gate.hand_over()
        assert command is not None
        taken.append(command.sample)
    assert taken == [-1, 0, 1, 2, 3, 4], "the first two ticks hold the rig where it stands"
    assert (bench.rig.late, bench.rig.trips) == ([], [])
    bench.rig.sample = 7  # tick 7 went without Command 5: that is late now, and tick 8 takes number 6
    bench.come(6)
    assert bench.rig.late == [5]
    assert bench.gate.hand_over() is not None
    bench.come(9)
    assert bench.rig.trips == [("received Command 9, expected Command 6 to 8", 0)]


def test_in_real_time_the_first_tick_waits_for_the_first_command(still_clock: Any) -> None:
    """Also where hops need none for it: nothing moves yet, and what begins slowly would be late behind them."""
    bench = Bench(still_clock, realtime=True, depth=2)
    bench.come()
    bench.clock.now += SECOND
    assert bench.gate.command is None
    assert not bench.gate.may_tick()
    bench.come(1)
    assert bench.gate.may_tick()
    command = bench.gate.hand_over()
    assert command is not None
    assert command.sample == -1
    bench.rig.sample = 1
    bench.come()
    command = bench.gate.hand_over()
    assert command is not None, "from then on those that none is made for need none"
    assert command.sample == 0
    bench.rig.sample = 2
    bench.come()
    command = bench.gate.hand_over()
    assert command is not None
    assert command.sample == 1


def test_in_real_time_a_late_command_is_not_waited_for(realtime: Bench) -> None:
    realtime.clock.now += SECOND
    assert not realtime.gate.may_tick(), "nothing moves yet: the first Command may take its time"
    realtime.rig.sample = 1
    realtime.times.measured(1)
    deadline = realtime.gate.deadline
    assert deadline is not None
    realtime.clock.now = deadline - 1
    assert not realtime.gate.may_tick()
    realtime.clock.now = deadline
    assert realtime.gate.may_tick()
    assert realtime.gate.command is None


def test_a_command_that_came_while_the_process_did_not_run_is_taken(realtime: Bench) -> None:
    realtime.rig.sample = 1
    realtime.clock.now += SECOND
    realtime.commands.append(2)
    assert realtime.gate.may_tick()
    assert realtime.gate.command is not None
    assert realtime.gate.deadline is None


def test_a_rig_that_stops_needs_no_command(lockstep: Bench) -> None:
    lockstep.rig.stop_due = True
    assert lockstep.gate.may_tick()
    lockstep.rig.stop_due, lockstep.rig.stopping = False, True
    assert lockstep.gate.may_tick()


def test_without_a_command_the_rig_trips_in_the_end(lockstep: Bench) -> None:
    lockstep.clock.now += PATIENCE
    assert not lockstep.gate.may_tick()
    assert not lockstep.rig.trips
    lockstep.clock.now += SECOND
    assert not lockstep.gate.may_tick()
    assert lockstep.rig.trips == [("no Command 1 for 6 s", 0)]


def test_an_interrupt_holds_the_rig(lockstep: Bench) -> None:
    lockstep.gate.may_tick(interrupted=True)
    assert lockstep.rig.holds == ["interrupted"]


def test_requests_to_stop_are_looked_at_a_few_times_in_a_bridge(lockstep: Bench) -> None:
    for _ in range(10):
        lockstep.gate.may_tick()
    assert lockstep.looks == 1
    lockstep.clock.now += LOOK_EVERY_NS
    lockstep.gate.may_tick()
    assert lockstep.looks == 2


def tripped(source: str, sample: int, breach: int = 0) -> dict[str, Any]:
    """A Trip; one that tells of a ``breach`` has its sample."""
    return {"source": source, "reason": "broken", "effective_sample": sample, "sample": breach}


def test_in_lockstep_a_trip_takes_effect_at_its_sample_within_the_window(lockstep: Bench) -> None:
    lockstep.messages["trip"] = [tripped("monitor", 300)]
    lockstep.gate.receive_trips()
    lockstep.messages["trip"] = [tripped("monitor", 4_000_000_000)]
    lockstep.gate.receive_trips()
    assert lockstep.rig.trips == [("monitor: broken", 300), ("monitor: broken", LOCKSTEP_WINDOW)]


def test_in_real_time_a_trip_takes_effect_at_once(realtime: Bench) -> None:
    realtime.messages["trip"] = [tripped("monitor", 300)]
    realtime.gate.receive_trips()
    assert realtime.rig.trips == [("monitor: broken", 0)]


def test_after_the_end_only_the_monitor_and_a_breach_may_still_trip(lockstep: Bench) -> None:
    lockstep.rig.ended = True
    lockstep.messages["trip"] = [tripped("recorder", 0), tripped("monitor", 0), tripped("compensator", 0, 700)]
    lockstep.gate.receive_trips()
    assert [reason for reason, _ in lockstep.rig.trips] == ["monitor: broken", "broken"]


def test_in_lockstep_the_rig_waits_for_the_slowest_observer(lockstep: Bench) -> None:
    lockstep.rig.sample = LOCKSTEP_WINDOW - 2
    lockstep.come(LOCKSTEP_WINDOW - 1)
    assert lockstep.gate.may_tick()
    lockstep.rig.sample += 1
    lockstep.seen(monitor=500, somebody=500)
    assert not lockstep.gate.may_tick()
    lockstep.seen(recorder=0)
    assert lockstep.gate.may_tick()


def test_a_known_trip_bounds_the_run_without_the_observers(lockstep: Bench) -> None:
    lockstep.rig.sample = 2 * LOCKSTEP_WINDOW
    lockstep.come(2 * LOCKSTEP_WINDOW + 1)
    assert not lockstep.gate.may_tick()
    lockstep.rig.trip("energy", 3 * LOCKSTEP_WINDOW)
    assert lockstep.gate.may_tick()


def test_an_observer_that_makes_no_progress_trips_the_rig(lockstep: Bench) -> None:
    lockstep.rig.sample = LOCKSTEP_WINDOW
    lockstep.come(LOCKSTEP_WINDOW + 1)
    lockstep.seen(monitor=3)
    lockstep.clock.now += PATIENCE + 1
    assert not lockstep.gate.may_tick()
    ((words, sample),) = lockstep.rig.trips
    assert sample == 0
    assert mentions(words, "recorder", "5 s")


def pulses(bench: Bench, seconds: float, *peers: str) -> None:
    """Time goes by, and ``peers`` give signs of life."""
    for _ in range(round(100 * seconds)):
        bench.clock.now += SECOND // 100
        bench.seen(**dict.fromkeys(peers, bench.rig.sample))
        bench.gate.may_tick()


def test_in_real_time_a_silent_monitor_trips_the_rig(realtime: Bench) -> None:
    pulses(realtime, 0.2, "recorder")
    assert not realtime.rig.trips
    pulses(realtime, 0.02, "recorder")
    assert each_mentions([reason for reason, _ in realtime.rig.trips], ("heartbeat.monitor", "0.21 s", "<= 0.2 s"))


def test_an_optional_observer_is_only_warned_of(still_clock: Any) -> None:
    bench = Bench(still_clock, realtime=True, optional=("recorder",))
    pulses(bench, 2.0, "monitor")
    assert not bench.rig.trips
    assert each_mentions(bench.warnings, ("heartbeat.recorder", "1.5 s", "<= 1.5 s"))


def test_a_monitor_that_speaks_but_does_not_see_the_rig_trips_it(realtime: Bench) -> None:
    for _ in range(21):
        realtime.clock.now += SECOND // 100
        realtime.rig.sample += 1
        realtime.seen(monitor=0, recorder=realtime.rig.sample)
        realtime.gate.may_tick()
    words = "heartbeat.monitor: speaks, but does not see the rig for 0.21 s: must be <= 0.2 s"
    assert [reason for reason, _ in realtime.rig.trips] == [words]
