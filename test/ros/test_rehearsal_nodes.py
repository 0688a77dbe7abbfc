"""Rehearsals of nodes: once before a step, unheard."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")


@pytest.mark.parametrize("role", ["integrator", "compensator"])
def test_a_node_rehearses_once_before_a_step_and_tells_nobody(role: str, by_hand: Any) -> None:
    with by_hand.node(role, pace="realtime", overrides=["substeps=10"]) as node:
        sent = dict(node.sent)
        assert not node.rehearse(), "nothing has begun"
        node._expected = 9
        assert not node.rehearse()
        node._expected = 10
        assert node.rehearse()
        assert not node.rehearse()
        assert node.sent == sent
        assert node._rehearsal.stage is not node.stage


@pytest.mark.parametrize(("pace", "substeps"), [("lockstep", 10), ("realtime", 1)])
def test_where_nothing_is_gained_there_is_no_rehearsal(pace: str, substeps: int, by_hand: Any) -> None:
    with by_hand.node("integrator", pace=pace, overrides=[f"substeps={substeps}"]) as node:
        node._expected = 10
        assert not node.rehearse()
