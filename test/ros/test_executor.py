# SPDX-License-Identifier: Apache-2.0
"""What is done in the slack of the loop: as much as fits, and no more than it takes to keep up."""

from __future__ import annotations

import time
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")


from rths_nodes.app import hosts
from rths_nodes.loop.options import run_options
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.hosting import descriptions as launching
from rths_nodes.ros.hosting.executor import (
    BEHIND_NS,
    OBSERVE_LIMIT,
    SERVE_EVERY_NS,
    LoopExecutor,
    ServiceDesk,
    SlackUser,
)

US = 1_000


HEAVY_EVERY = 32
PART = 45


class Observer:
    """A node that takes ``each`` us for a sample, ``heavy`` for some, and ``PART`` us for one of its ``parts``."""

    works = True

    def __init__(self, clock: Any, each: int, heavy: int = 0, parts: int = 0) -> None:
        self.clock, self.each, self.takes_if_heavy, self.waiting, self.worked = clock, each, heavy, 0, 0
        self.parts = parts

    @property
    def spares(self) -> bool:
        return self.parts > 0

    @property
    def heavy(self) -> bool:
        return self.takes_if_heavy > 0 and self.worked % HEAVY_EVERY == HEAVY_EVERY - 1

    def safely(self, action: Any, *arguments: Any) -> Any:
        return action(*arguments)

    def work(self, limit: int) -> bool:
        if self.parts and not self.waiting:
            self.parts -= 1
            self.clock.now += PART * US
            return True
        done = min(limit, self.waiting)
        self.waiting -= done
        self.clock.now += done * (self.takes_if_heavy if self.heavy else self.each) * US
        self.worked += done
        return bool(done)


class Tick:
    """A pacer whose next tick is ``slack`` us away."""

    def __init__(self, clock: Any, slack: int, rate: int = 4096) -> None:
        self._clock, self._due, self.period = clock, clock.now + slack * US, 1_000_000_000 // rate

    @property
    def slack(self) -> int:
        return int(self._due - self._clock.now)


def observe(
    clock: Any,
    each: int,
    slack: int,
    ticks: int,
    rate: int = 4096,
    step: int = 0,
    heavy: int = 0,
    parts: int = 0,
) -> tuple[list[int], list[int]]:
    """How long the observer works before each tick, us, and how many samples wait for it then.

    Every ``step`` ticks the slack is kept for the rehearsal of a step.
    """
    observer: Any = Observer(clock, each, heavy, parts)
    user = SlackUser(observer, clock)
    taken, waiting = [], []
    for tick in range(ticks):
        observer.waiting += 1
        began = clock.now
        user.use_slack(Tick(clock, slack, rate), not step or tick % step > 0)  # type: ignore[arg-type]
        taken.append((clock.now - began) // US)
        waiting.append(observer.waiting)
    return taken, waiting


def test_an_observer_that_fits_in_works_at_once(still_clock: Any) -> None:
    taken, waiting = observe(still_clock, each=20, slack=50, ticks=100)
    assert (set(taken), set(waiting)) == ({20}, {0})


def test_an_observer_that_does_not_fit_in_keeps_up_without_a_burst(still_clock: Any) -> None:
    taken, waiting = observe(still_clock, each=100, slack=50, ticks=1000)
    assert max(taken[1:]) <= 200, "more would make ticks late for nothing"
    assert max(waiting) <= OBSERVE_LIMIT


def test_before_a_step_an_observer_leaves_the_slack_to_the_rehearsal(still_clock: Any) -> None:
    taken, waiting = observe(still_clock, each=20, slack=50, ticks=100, step=10)
    assert set(taken[::10]) == {0}
    assert set(waiting[::10]) == {1}
    assert set(waiting[1::10]) == {0}
    for step in (1, 2):
        taken, waiting = observe(still_clock, each=40, slack=50, ticks=1000, step=step)
        assert max(waiting) <= OBSERVE_LIMIT, "however short the steps are"


def test_a_heavy_sample_waits_for_a_slack_that_it_has_for_itself(still_clock: Any) -> None:
    taken, waiting = observe(still_clock, each=20, slack=50, ticks=1000, step=10, heavy=45)
    met = next(tick for tick, took in enumerate(taken) if took >= 45)
    assert max(taken[met + 1 :]) == 45, "20 and 45 would make a tick late"
    assert max(waiting) <= 4


def test_what_no_sample_waits_for_is_done_in_what_is_left_of_a_period(still_clock: Any) -> None:
    """The first one tells how long they take; then each waits until there is room for it."""
    taken, waiting = observe(still_clock, each=20, slack=70, ticks=1000, parts=12)
    assert set(waiting) == {0}, "no sample waits for them"
    assert sum(taken) == 1000 * 20 + 12 * PART, "all of them are done"
    assert sum(took > 70 for took in taken) <= 1, "they are told apart from samples"


@pytest.mark.parametrize("rate", [25, 64, 256])
def test_an_observer_of_a_slow_loop_is_not_behind_for_long(rate: int, still_clock: Any) -> None:
    """The rig would take it for lost."""
    _, waiting = observe(still_clock, each=100, slack=50, ticks=1000, rate=rate)
    assert max(waiting) / rate <= max(BEHIND_NS * 1e-9, 1 / rate) + 1 / rate


def looked_at() -> Any:
    """A node, and how often its handshake was looked at."""
    node = SimpleNamespace(phase=SimpleNamespace(gone=False), looks=0)
    node.look = lambda: setattr(node, "looks", node.looks + 1)
    node.safely = lambda action, *words: action(*words)
    return node


def asked(desk: ServiceDesk, count: int) -> list[int]:
    """Requests that change a node wait for the loop: numbers of those that are carried out."""
    done: list[int] = []
    for number in range(count):
        desk.calls.waiting.append((partial(done.append, number), Future()))
    return done


def test_a_round_looks_at_each_handshake_and_carries_out_one_request() -> None:
    node = looked_at()
    desk = ServiceDesk([node])
    done = asked(desk, 3)
    assert not desk.look(), "no round has begun"
    for rounds in (1, 2):
        desk.open()
        assert [desk.look(), desk.look(), desk.look()] == [True, True, False]
        assert (node.looks, done) == (rounds, [0, 1][:rounds])


def test_a_round_under_way_goes_on() -> None:
    desk = ServiceDesk([looked_at(), looked_at()])
    desk.open()
    assert desk.look()
    desk.open()
    assert [desk.look(), desk.look()] == [True, False]


def test_where_no_slack_is_left_the_whole_round_comes_late_but_comes(still_clock: Any) -> None:
    node, called = looked_at(), []
    desk = ServiceDesk([node], lambda: called.append(still_clock.now), still_clock)
    done = asked(desk, 2)
    began = still_clock.now
    for _ in range(2200):  # 0.54 s
        still_clock.now += 244 * US
        desk.serve(Tick(still_clock, 20))  # type: ignore[arg-type]
    assert (node.looks, done) == (1, [0]), "in half a second"
    assert len(called) == (still_clock.now - began) // SERVE_EVERY_NS + 1, "requests to stop are always heard"


def test_where_there_is_no_tick_a_whole_round_is_served_at_once(still_clock: Any) -> None:
    node, called = looked_at(), []
    desk = ServiceDesk([node], lambda: called.append(still_clock.now), still_clock)
    done = asked(desk, 2)
    desk.serve()
    assert (node.looks, done) == (2, [0]), "once for itself: a handshake is not to wait for the next round"
    desk.serve()
    assert (node.looks, len(called), done) == (3, 1, [0])


def test_a_node_that_rests_does_not_keep_the_loop_waiting(patience: list[str]) -> None:
    chosen = {"overrides": ["duration=1", *patience], "host": "composed", "pace": "realtime"}
    descriptions = launching.describe(run_options({"scenario": "chen_ricles_2010"} | chosen))
    answered: list[bool] = []
    with composed.ros_context() as context:
        nodes: dict[str, Any] = {}
        for each in descriptions:
            if each.role != "recorder":
                nodes[each.role] = composed.make_node(each.role, hosts.open_writer, context, each.parameters)
        integrator, rig = nodes["integrator"], nodes["actuator"]
        work = integrator.work

        def watched(limit: int = 1) -> bool:
            if integrator.rests:
                late = rig.deadline is not None and rig.deadline <= time.monotonic_ns()
                answered.append(late or not rig.awaits_answer)
            return bool(work(limit))

        integrator.work = watched
        for node in nodes.values():
            node.start()
        LoopExecutor(list(nodes.values()), context).run()
        assert rig.rig.machine.state is State.FINISHED, rig.rig.machine.reason
        for node in nodes.values():
            node.destroy_node()
    assert answered
    assert all(answered), "it takes the Measurements between two steps when the Command is there"
