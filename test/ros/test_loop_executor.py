"""What is done in the slack of the loop: as much as fits, and no more than it takes to keep up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from rths_nodes.ros import loop_executor, serving
from rths_nodes.ros.endpoints import ByHand
from rths_nodes.ros.loop_executor import OBSERVE_LIMIT, SlackUser

US = 1_000


class Observer:
    """A node that takes ``each`` us for a sample."""

    works = True

    def __init__(self, clock: Any, each: int) -> None:
        self.clock, self.each, self.waiting = clock, each, 0

    def safely(self, action: Any, *arguments: Any) -> Any:
        return action(*arguments)

    def work(self, limit: int) -> bool:
        done = min(limit, self.waiting)
        self.waiting -= done
        self.clock.now += done * self.each * US
        return bool(done)


class Tick:
    """A pacer whose next tick is ``slack`` us away."""

    def __init__(self, clock: Any, slack: int) -> None:
        self._clock, self._due = clock, clock.now + slack * US

    @property
    def slack(self) -> int:
        return int(self._due - self._clock.now)


def observe(monkeypatch: pytest.MonkeyPatch, each: int, slack: int, ticks: int) -> tuple[list[int], list[int]]:
    """How long the observer works before each tick, us, and how many samples wait for it then."""
    clock = SimpleNamespace(now=0, monotonic_ns=lambda: clock.now)
    monkeypatch.setattr(loop_executor, "time", clock)
    observer = Observer(clock, each)
    user = SlackUser(observer)  # type: ignore[arg-type]
    taken, waiting = [], []
    for _ in range(ticks):
        observer.waiting += 1
        began = clock.now
        user.use_slack(Tick(clock, slack))  # type: ignore[arg-type]
        taken.append((clock.now - began) // US)
        waiting.append(observer.waiting)
    return taken, waiting


def test_an_observer_that_fits_in_works_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, waiting = observe(monkeypatch, each=20, slack=50, ticks=100)
    assert (set(taken), set(waiting)) == ({20}, {0})


def test_an_observer_that_does_not_fit_in_keeps_up_without_a_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, waiting = observe(monkeypatch, each=100, slack=50, ticks=1000)
    assert max(taken[1:]) <= 200, "more would make ticks late for nothing"
    assert max(waiting) <= OBSERVE_LIMIT


def asked(*, by_hand: bool = False) -> Any:
    """A service with one request."""
    answers: list[Any] = []
    requests = [("request", "header")]
    return SimpleNamespace(
        callback_group=ByHand() if by_hand else None,
        srv_type=SimpleNamespace(Request=None, Response=lambda: "response"),
        handle=SimpleNamespace(service_take_request=lambda _: requests.pop() if requests else (None, None)),
        callback=lambda request, response: (request, response),
        send_response=lambda *answer: answers.append(answer),
        answers=answers,
    )


def test_services_are_answered_one_look_at_a_time() -> None:
    services = [asked(), asked(by_hand=True), asked()]
    looks: list[int] = []
    node: Any = SimpleNamespace(
        done=False, services=services, look=lambda: looks.append(1), safely=lambda action, *words: action(*words)
    )
    desk = serving.ServiceDesk([node])
    assert not desk.look(), "no round has begun"
    for _ in range(2):
        desk.open()
        count = 0
        while desk.look():
            count += 1
        assert count == 3  # the handshake and two services
    answer = (("request", "response"), "header")
    assert [service.answers for service in services] == [[answer], [], [answer]]
    assert len(looks) == 2


def test_a_round_under_way_goes_on() -> None:
    node: Any = SimpleNamespace(done=True, services=[], look=None, safely=None)
    desk = serving.ServiceDesk([node, node])
    desk.open()
    assert desk.look()
    desk.open()
    assert [desk.look(), desk.look()] == [True, False]
