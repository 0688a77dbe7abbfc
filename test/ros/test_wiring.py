# SPDX-License-Identifier: Apache-2.0
"""Tests of the endpoints of each node, from the table of topics."""

from __future__ import annotations

import pytest

from rths_nodes.ros import names
from rths_nodes.ros.names import NodeLocation, endpoints

AXES = ("story_1", "story_2")
PEERS = (*names.NODES, *map(names.axis_node, AXES))


def location(peer: str) -> NodeLocation:
    axis = names.axis_of(peer)
    return NodeLocation(names.role_of(peer), f"/lab/rths/{axis}" if axis else "/lab/rths")


def test_axis_node_is_below_its_rig() -> None:
    node = location("story_2/axis")
    assert (node.axis, node.rig, node.peer) == ("story_2", "/lab/rths", "story_2/axis")
    assert node.topic("trip") == "/lab/rths/trip"
    assert node.full_names(["actuator", "story_1/axis"]) == ("/lab/rths/actuator", "/lab/rths/story_1/axis")
    assert location("actuator").topic("trip") == "trip", "relative: it can be remapped"


def test_awaited_publishers_and_subscribers_correspond() -> None:
    """Otherwise one of the two would wait for ever."""
    publishers, subscribers = set(), set()
    for peer in PEERS:
        node = location(peer)
        me = node.full_names([peer])[0]
        for endpoint in endpoints(node, PEERS):
            topic = endpoint.name if endpoint.name.startswith("/") else f"{node.namespace}/{endpoint.name}"
            if endpoint.publishes:
                publishers.update((topic, me, partner) for partner in endpoint.partners)
            else:
                subscribers.update((topic, partner, me) for partner in endpoint.partners)
    assert publishers
    assert {pair for pair in publishers ^ subscribers if pair[1] != pair[2]} == set()


@pytest.mark.parametrize("peer", PEERS)
def test_keys_of_publishers_and_inboxes_are_unique(peer: str) -> None:
    for publishes in (True, False):
        keys = [end.key for end in endpoints(location(peer), PEERS) if end.publishes == publishes]
        assert len(keys) == len(set(keys))


def test_true_state_of_axis_is_not_awaited() -> None:
    """A real axis has none."""
    awaited = {end.key: end.awaited for end in endpoints(location("actuator"), PEERS) if not end.publishes}
    assert not awaited["story_1/true_state"]
    assert awaited["story_1/measurement"]


def test_clocks_are_compared_only_across_machines() -> None:
    def clock_partners(peer: str, here: tuple[str, ...]) -> dict[str, list[str]]:
        ends = endpoints(location(peer), PEERS, here=here)
        return {end.key: sorted(end.partners) for end in ends if end.key.startswith("clock_")}

    rig = ("actuator", "monitor", "recorder")
    model = tuple(peer for peer in PEERS if peer not in rig)
    for peer, here in (("actuator", ()), ("monitor", rig), ("integrator", ("actuator", *model))):
        assert clock_partners(peer, here) == {}
    for peer, here, partners in (("actuator", rig, model), ("integrator", model, ["actuator"])):
        asked = sorted(location("actuator").full_names(partners))
        assert clock_partners(peer, here) == {"clock_question": asked, "clock_answer": asked}
