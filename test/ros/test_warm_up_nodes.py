# SPDX-License-Identifier: Apache-2.0
"""Warm-up of nodes: once before a step, unheard."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions

from rths_nodes.ros.hosting.executor import SlackBudget
from rths_nodes.ros.nodes.phase import NodeContext, PhaseMachine
from rths_nodes.ros.nodes.sequence import WarmUp
from rths_nodes.ros.transport.wiring import NodeLocation


@pytest.mark.parametrize("role", ["integrator", "compensator"])
def test_a_node_warms_up_once_before_a_step_and_tells_nobody(role: str, by_hand: Any) -> None:
    with by_hand.node(role, pace="realtime", overrides=["substeps=10"]) as node:
        sent = dict(node.topics.sent)
        due = []
        for node.measurements.expected in (0, 9, 10, 10, 11, 20):
            due.append(node.warm_up.due)
            if node.warm_up.due:
                node.warm_up()
        assert due == [False, False, True, False, False, True]
        assert (node.topics.sent, node.phase.note) == (sent, "")
        assert inspect.getclosurevars(node.warm_up.twin).nonlocals["stage"] is not node.stage


@pytest.mark.parametrize(("pace", "substeps"), [("lockstep", 10), ("realtime", 1)])
def test_where_nothing_is_gained_there_is_no_warm_up(pace: str, substeps: int, by_hand: Any) -> None:
    with by_hand.node("integrator", pace=pace, overrides=[f"substeps={substeps}"]) as node:
        node.measurements.expected = 10
        assert not node.warm_up.due


def test_a_component_that_cannot_be_warmed_up_is_not_asked_again() -> None:
    def fails(_: Any) -> None:
        raise ZeroDivisionError("by nothing")

    measurements, phase = SimpleNamespace(expected=10), PhaseMachine()
    topics: Any = SimpleNamespace(codec=None)
    context = NodeContext(NodeLocation("integrator", "/rths"), phase, topics, topics, topics)
    warm_up = WarmUp(context, measurements, fails, 10)  # type: ignore[arg-type]
    warm_up()
    assert not phase.gone
    assert mentions(phase.note, "integrator", "ZeroDivisionError")
    measurements.expected = 20
    assert not warm_up.due


class Watch:
    """A pacer whose slack is told."""

    slack = 100_000


def test_what_does_not_fit_in_before_the_tick_waits(still_clock: Any) -> None:
    budget: Any = SlackBudget(clock=still_clock)
    pacer = Watch()

    def work() -> bool:
        still_clock.now += 150_000
        return True

    assert budget.fits(pacer)
    assert budget.run(work)
    assert not budget.fits(pacer)
    assert not budget.run(lambda: False), "nothing was done: nothing is learnt"
    for _ in range(4):
        budget.decay()
    assert budget.fits(pacer)
