"""Rehearsals of nodes: once before a step, unheard."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from rths_nodes.ros.hosting import slack
from rths_nodes.ros.hosting.slack import SlackBudget


@pytest.mark.parametrize("role", ["integrator", "compensator"])
def test_a_node_rehearses_once_before_a_step_and_tells_nobody(role: str, by_hand: Any) -> None:
    with by_hand.node(role, pace="realtime", overrides=["substeps=10"]) as node:
        sent = dict(node.sent)
        due = []
        for node._expected in (0, 9, 10, 10, 11, 20):
            due.append(node.rehearsal_due)
            if node.rehearsal_due:
                node.rehearse()
        assert due == [False, False, True, False, False, True]
        assert (node.sent, node.note) == (sent, "")
        assert node._rehearsal.stage is not node.stage


@pytest.mark.parametrize(("pace", "substeps"), [("lockstep", 10), ("realtime", 1)])
def test_where_nothing_is_gained_there_is_no_rehearsal(pace: str, substeps: int, by_hand: Any) -> None:
    with by_hand.node("integrator", pace=pace, overrides=[f"substeps={substeps}"]) as node:
        node._expected = 10
        assert not node.rehearsal_due


def test_a_component_that_cannot_rehearse_is_not_asked_again(by_hand: Any) -> None:
    def fails(_: Any) -> None:
        raise ZeroDivisionError("by nothing")

    with by_hand.node("integrator", pace="realtime", overrides=["substeps=10"]) as node:
        node._rehearsal = fails
        node._expected = 10
        node.rehearse()
        assert not node.done
        assert node.note == "integrator: no rehearsals: ZeroDivisionError: by nothing"
        node._expected = 20
        assert not node.rehearsal_due


class Watch:
    """A pacer whose slack is told."""

    slack = 100_000


def test_what_does_not_fit_in_before_the_tick_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0, monotonic_ns=lambda: clock.now)
    monkeypatch.setattr(slack, "time", clock)
    fit, pacer = SlackBudget(), Watch()

    def work() -> bool:
        clock.now += 150_000
        return True

    assert fit.into(pacer)
    assert fit.timed(work)
    assert not fit.into(pacer)
    assert not fit.timed(lambda: False), "nothing was done: nothing is learnt"
    for _ in range(4):
        fit.forget()
    assert fit.into(pacer)
