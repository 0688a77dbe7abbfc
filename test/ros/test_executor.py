# SPDX-License-Identifier: Apache-2.0
"""Use of the slack of the loop by observers and requests: as much as fits, and enough to keep up."""

from __future__ import annotations

import time
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.hosting.executor import (
    BEHIND_NS,
    OBSERVE_LIMIT,
    SERVE_EVERY_NS,
    LoopExecutor,
    ServiceDesk,
    slack_user,
)

US = 1_000
HEAVY_EVERY = 32
PART = 45


class Observer:
    """A node that needs ``light`` or ``heavy`` us per sample, and ``PART`` us for each of its ``parts``."""

    works = True

    def __init__(self, clock: Any, light: int, heavy: int = 0, parts: int = 0) -> None:
        self.clock, self.light, self.heavy_us, self.waiting, self.worked = clock, light, heavy, 0, 0
        self.parts = parts

    @property
    def spares(self) -> bool:
        return self.parts > 0

    @property
    def heavy(self) -> bool:
        return self.heavy_us > 0 and self.worked % HEAVY_EVERY == HEAVY_EVERY - 1

    def safely(self, action: Any, *arguments: Any) -> Any:
        return action(*arguments)

    def work(self, limit: int) -> bool:
        if self.parts and not self.waiting:
            self.parts -= 1
            self.clock.now += PART * US
            return True
        done = min(limit, self.waiting)
        self.waiting -= done
        self.clock.now += done * (self.heavy_us if self.heavy else self.light) * US
        self.worked += done
        return bool(done)


class Tick:
    """A pacer whose next tick is ``slack`` us away."""

    def __init__(self, clock: Any, slack: int, rate: int = 4096) -> None:
        self._clock, self._due, self.period = clock, clock.now + slack * US, 1_000_000_000 // rate

    @property
    def slack(self) -> int:
        return int(self._due - self._clock.now)


@pytest.fixture
def observe(still_clock: Any) -> Any:
    """Returns the working time of an observer before each tick, us, and the number of samples that wait then.

    Every ``step`` ticks the slack is reserved for the rehearsal of a step.
    """

    def observe(
        light: int, slack: int = 50, ticks: int = 1000, rate: int = 4096, step: int = 0, **observer: int
    ) -> tuple[list[int], list[int]]:
        node: Any = Observer(still_clock, light, **observer)
        use_slack = slack_user(node, still_clock)
        times, waiting = [], []
        for tick in range(ticks):
            node.waiting += 1
            began = still_clock.now
            use_slack(Tick(still_clock, slack, rate), not step or tick % step > 0)  # type: ignore[arg-type]
            times.append((still_clock.now - began) // US)
            waiting.append(node.waiting)
        return times, waiting

    return observe


def test_observer_that_fits_works_immediately(observe: Any) -> None:
    times, waiting = observe(20, ticks=100)
    assert (set(times), set(waiting)) == ({20}, {0})


def test_observer_that_does_not_fit_keeps_up_without_bursts(observe: Any) -> None:
    times, waiting = observe(100)
    assert max(times[1:]) <= 200, "more would make ticks late unnecessarily"
    assert max(waiting) <= OBSERVE_LIMIT


def test_observer_leaves_slack_before_a_step_to_the_rehearsal(observe: Any) -> None:
    times, waiting = observe(20, ticks=100, step=10)
    assert set(times[::10]) == {0}
    assert set(waiting[::10]) == {1}
    assert set(waiting[1::10]) == {0}
    for step in (1, 2):
        _, waiting = observe(40, step=step)
        assert max(waiting) <= OBSERVE_LIMIT, "short steps"


def test_heavy_sample_waits_for_a_slack_of_its_own(observe: Any) -> None:
    times, waiting = observe(20, step=10, heavy=45)
    first = next(tick for tick, duration in enumerate(times) if duration >= 45)
    assert max(times[first + 1 :]) == 45, "20 and 45 would make a tick late"
    assert max(waiting) <= 4


def test_parts_without_samples_use_the_remaining_slack(observe: Any) -> None:
    """The first part shows the duration; each of the others waits until it fits."""
    times, waiting = observe(20, slack=70, parts=12)
    assert set(waiting) == {0}, "samples wait for parts"
    assert sum(times) == 1000 * 20 + 12 * PART, "a part is missing"
    assert sum(duration > 70 for duration in times) <= 1, "parts and samples are not distinguished"


@pytest.mark.parametrize("rate", [25, 64, 256])
def test_observer_of_a_slow_loop_is_not_behind_for_long(rate: int, observe: Any) -> None:
    """The rig would consider it lost."""
    _, waiting = observe(100, rate=rate)
    assert max(waiting) / rate <= max(BEHIND_NS * 1e-9, 1 / rate) + 1 / rate


def polled_node() -> Any:
    """A node that counts the polls of its handshake."""
    node = SimpleNamespace(phase=SimpleNamespace(gone=False), looks=0)
    node.look = lambda: setattr(node, "looks", node.looks + 1)
    node.safely = lambda action, *arguments: action(*arguments)
    return node


def request(desk: ServiceDesk, count: int) -> list[int]:
    """Queue requests that change a node; return the list of the executed requests, which the desk extends."""
    executed: list[int] = []
    for number in range(count):
        desk.calls.waiting.append((partial(executed.append, number), Future()))
    return executed


def test_round_polls_each_handshake_and_executes_one_request() -> None:
    node = polled_node()
    desk = ServiceDesk([node])
    executed = request(desk, 3)
    assert not desk.look(), "no round has begun"
    for rounds in (1, 2):
        desk.open()
        assert [desk.look(), desk.look(), desk.look()] == [True, True, False]
        assert (node.looks, executed) == (rounds, [0, 1][:rounds])


def test_round_in_progress_continues() -> None:
    desk = ServiceDesk([polled_node(), polled_node()])
    desk.open()
    assert desk.look()
    desk.open()
    assert [desk.look(), desk.look()] == [True, False]


def test_round_without_slack_is_delayed_but_served(still_clock: Any) -> None:
    node, calls = polled_node(), []
    desk = ServiceDesk([node], lambda: calls.append(still_clock.now), still_clock)
    executed = request(desk, 2)
    began = still_clock.now
    for _ in range(2200):  # 0.54 s
        still_clock.now += 244 * US
        desk.serve(Tick(still_clock, 20))  # type: ignore[arg-type]
    assert (node.looks, executed) == (1, [0]), "in half a second"
    assert len(calls) == (still_clock.now - began) // SERVE_EVERY_NS + 1, "requests to stop are not delayed"


def test_round_without_tick_is_served_at_once(still_clock: Any) -> None:
    node, calls = polled_node(), []
    desk = ServiceDesk([node], lambda: calls.append(still_clock.now), still_clock)
    executed = request(desk, 2)
    desk.serve()
    assert (node.looks, executed) == (2, [0]), "a handshake must not wait for the next round"
    desk.serve()
    assert (node.looks, len(calls), executed) == (3, 1, [0])


def test_resting_node_does_not_delay_the_loop(patience: list[str], composed_nodes: Any) -> None:
    options = {"scenario": "chen_ricles_2010", "overrides": ["duration=1", *patience]}
    answered: list[bool] = []
    with composed_nodes(options | {"host": "composed", "pace": "realtime"}) as (nodes, context):
        integrator, rig = nodes["integrator"], nodes["actuator"]
        work = integrator.work

        def watched(limit: int = 1) -> bool:
            if integrator.rests:
                late = rig.deadline is not None and rig.deadline <= time.monotonic_ns()
                answered.append(late or not rig.awaits_answer)
            return bool(work(limit))

        integrator.work = watched
        LoopExecutor(list(nodes.values()), context).run()
        assert rig.rig.machine.state is State.FINISHED, rig.rig.machine.reason
    assert answered
    assert all(answered), "the Measurements between two steps must wait until the Command is there"
