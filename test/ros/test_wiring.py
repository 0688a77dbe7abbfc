# SPDX-License-Identifier: Apache-2.0
"""The endpoints of every node, from the table of topics."""

from __future__ import annotations

import pytest

from rths_nodes.ros import names
from rths_nodes.ros.transport.wiring import Endpoint, NodeLocation, endpoints

AXES = ("story_1", "story_2")
PEERS = (*names.NODES, *map(names.axis_node, AXES))


def place(peer: str) -> NodeLocation:
    axis = names.axis_of(peer)
    return NodeLocation(names.role_of(peer), f"/lab/rths/{axis}" if axis else "/lab/rths")


def full_name(at: NodeLocation, each: Endpoint) -> str:
    return each.name if each.name.startswith("/") else f"{at.namespace}/{each.name}"


def test_an_axis_node_is_below_its_rig() -> None:
    at = place("story_2/axis")
    assert (at.axis, at.rig, at.peer, at.topic("trip")) == (
        "story_2",
        "/lab/rths",
        "story_2/axis",
        "/lab/rths/trip",
    )
    assert at.full_names(["actuator", "story_1/axis"]) == ("/lab/rths/actuator", "/lab/rths/story_1/axis")
    assert place("actuator").topic("trip") == "trip", "relative: it can be remapped"


def test_whoever_awaits_a_publisher_is_a_listener_that_it_awaits() -> None:
    """Else one of the two would wait for ever."""
    speaks, subscriptions = set(), set()
    for peer in PEERS:
        at = place(peer)
        me = at.full_names([peer])[0]
        for each in endpoints(at, PEERS):
            pairs = {
                (full_name(at, each), *((me, other) if each.publishes else (other, me))) for other in each.partners
            }
            (speaks if each.publishes else subscriptions).update(pairs)
    assert speaks
    assert {pair for pair in speaks ^ subscriptions if pair[1] != pair[2]} == set()


@pytest.mark.parametrize("peer", PEERS)
def test_keys_tell_publishers_and_inboxes_apart(peer: str) -> None:
    found = endpoints(place(peer), PEERS)
    for publishes in (True, False):
        keys = [each.key for each in found if each.publishes == publishes]
        assert len(keys) == len(set(keys))


def test_a_real_axis_has_no_true_state_to_be_waited_for() -> None:
    waited = {each.key: each.awaited for each in endpoints(place("actuator"), PEERS) if not each.publishes}
    assert not waited["story_1/true_state"]
    assert waited["story_1/measurement"]


def test_clocks_are_asked_across_machines_only() -> None:
    def of_clocks(peer: str, here: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        found = endpoints(place(peer), PEERS, here=here)
        return {each.key: each.partners for each in found if each.key.startswith("clock_")}

    rig = ("actuator", "monitor", "recorder")
    model = tuple(peer for peer in PEERS if peer not in rig)
    assert (
        of_clocks("actuator", ())
        == of_clocks("monitor", rig)
        == of_clocks("integrator", ("actuator", *model))
        == {}
    )
    asked = set(place("actuator").full_names(model))
    assert {key: set(partners) for key, partners in of_clocks("actuator", rig).items()} == {
        "clock_question": asked,
        "clock_answer": asked,
    }
    leader = place("actuator").full_names(["actuator"])
    assert of_clocks("integrator", model) == {"clock_question": leader, "clock_answer": leader}
