# SPDX-License-Identifier: Apache-2.0
"""Endpoints of a node and their partners, derived from the table of topics without ROS."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rths_nodes.ros import names


@dataclass(frozen=True)
class NodeLocation:
    role: str
    namespace: str

    @property
    def axis(self) -> str:
        return self.namespace.rpartition("/")[2] if self.role == names.AXIS else ""

    @property
    def rig(self) -> str:
        return self.namespace.rpartition("/")[0] if self.role == names.AXIS else self.namespace.rstrip("/")

    @property
    def peer(self) -> str:
        return names.axis_node(self.axis) if self.role == names.AXIS else self.role

    def full_names(self, peers: Iterable[str]) -> tuple[str, ...]:
        return tuple(f"{self.rig}/{peer}" for peer in peers)

    def topic(self, name: str) -> str:
        return f"{self.rig}/{name}" if self.role == names.AXIS else name


@dataclass(frozen=True)
class Endpoint:
    """Publisher or subscription ``key`` on topic ``name``.

    The ``partners`` (full names) of an ``awaited`` endpoint must be discovered before a test.
    """

    key: str
    row: names.Topic
    name: str
    partners: tuple[str, ...]
    publishes: bool
    awaited: bool = True


def endpoints(
    location: NodeLocation,
    peers: Sequence[str],
    clock: bool = False,
    here: Sequence[str] = (),
    wanted: Callable[[names.Topic], bool] = lambda row: not row.section,
) -> list[Endpoint]:
    """Return the endpoints of the node at ``location`` in a test with ``peers``.

    With ``clock`` the node publishes the time. ``wanted(topic)`` selects the topics of a test. ``here`` lists the
    peers on this machine; empty if all peers are on this machine.
    """
    result = []
    for publishes, rows in (
        (True, names.published_by(location.role)),
        (False, names.subscribed_by(location.role)),
    ):
        for row in filter(wanted, rows):
            partners = names.partners(row, location.role, tuple(peers), publishes)
            if row.apart:  # only for nodes on other machines
                partners = tuple(peer for peer in partners if here and peer not in here)
            if partners or not row.apart:
                full = location.full_names(partners)
                result.append(Endpoint(row.name, row, location.topic(row.name), full, publishes))
    if location.role == names.AXIS:
        result += _below_an_axis(location, "", names.ACTUATOR)
    if location.role == names.ACTUATOR:
        for axis in filter(None, map(names.axis_of, peers)):
            result += _below_an_axis(location, f"{axis}/", names.axis_node(axis))
    if clock:
        result.append(Endpoint(names.CLOCK.name, names.CLOCK, names.CLOCK.name, (), True))
    return [*result, Endpoint("diagnostics", names.DIAGNOSTICS, names.DIAGNOSTICS.name, (), True)]


def _below_an_axis(location: NodeLocation, prefix: str, other: str) -> list[Endpoint]:
    partner, published = location.full_names([other]), names.published_by(location.role, names.AXIS_TOPICS)
    result = []
    for row in (*published, *names.subscribed_by(location.role, names.AXIS_TOPICS)):
        name, publishes = f"{prefix}{row.name}", row in published
        # a real axis has no true state
        awaited = publishes or location.role == names.AXIS or row.name != "true_state"
        result.append(Endpoint(name, row, name, partner, publishes, awaited))
    return result
