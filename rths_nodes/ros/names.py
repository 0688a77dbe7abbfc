# SPDX-License-Identifier: Apache-2.0
"""Table of all topics (name, type, QoS, publishers, subscribers), and endpoints of each node with their partners.

Nodes, recordings and documentation use this table. This module does not import rclpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rths_nodes.loop import options

INTEGRATOR, COMPENSATOR, ACTUATOR, MONITOR, RECORDER = NODES = (
    "integrator",
    "compensator",
    "actuator",
    "monitor",
    "recorder",
)
AXIS = "axis"
"""Name of every axis node. The namespace of an axis node ends with the name of its axis."""
CONSOLE = "console"
"""Node of ``rths run`` if other processes run the test. It receives the results and may request a trip."""
ROLES = (*NODES, AXIS)
OPERATOR = "operator"
"""Node that stops a procedure and publishes the procedure's state. No run has this node as a peer."""
OPERATOR_SERVICES = ("stop", "stop_by_page", "hold")
STOP, PAGE_STOP, HOLD = OPERATOR_SERVICES
STRANGER, PAGE = "anybody", "page"
"""Callers of the operator node's services: an unknown client, and the page."""
MOTION = "motion "
"""Prefix of the field ``run`` in curves that show a motion of a procedure."""
RIG = "rig"
"""Executable that runs several nodes of a test in one process."""
PEERS = (*NODES, CONSOLE)
LOOP = (INTEGRATOR, COMPENSATOR, ACTUATOR)
OBSERVERS = options.OBSERVERS
NAMESPACE = options.NAMESPACE

STOPS = ("stop", "trip")
"""Services of the actuator node that end a test in the state HELD or TRIPPED, respectively."""
FORMER_TRIP = "emergency_stop"
"""Former name (up to version 0.9.0) of the topic and service ``trip``. The next version does not accept it."""


@dataclass(frozen=True)
class Topic:
    """Row of the topic table. ``name`` is absolute, or relative to the namespace of the rig or axis."""

    name: str
    message: str
    publishers: tuple[str, ...]
    subscribers: tuple[str, ...]
    latched: bool = False
    depth: int = 10
    """Queue depth of publishers. Inboxes keep all messages."""
    stream: bool = False
    """True for messages of the loop. The parameter ``reliability`` makes them reliable or best effort."""
    handshake: bool = False
    """True for messages that nodes publish even before they know the run."""
    recorded: bool = True
    apart: bool = False
    """True for topics that are used only between nodes on different machines."""
    best_effort: bool = False
    section: str = ""
    """Section of a scenario that requires this topic, or empty if the topic is always required."""
    package: str = "rths_nodes"

    def wanted(self, scenario: object) -> bool:
        return not self.section or getattr(scenario, self.section) is not None

    @property
    def type(self) -> str:
        return f"{self.package}/msg/{self.message}"

    @property
    def for_onlookers(self) -> bool:
        return bool(self.publishers) and not self.subscribers

    def lossy(self, best_effort: bool) -> bool:
        return self.best_effort or (best_effort and self.stream)

    @property
    def kept(self) -> int:
        return 1 if self.latched else self.depth


def _stream(name: str, message: str, publisher: str, *subscribers: str) -> Topic:
    # with a queue depth of 1, an external recording lost 0.1-6 % of the messages
    return Topic(name, message, (publisher,), subscribers, depth=2000, stream=True)


STATES, TARGETS, COMMANDS = JOINTS = ("joint_states", "joint_targets", "joint_commands")
"""JointState topics with the measured, target and commanded states of the axes."""

TEST_STATE = "test_state"
TRIP = "trip"
_LED = (*LOOP[:2], MONITOR, RECORDER, AXIS)
"""Roles of the nodes that follow the test state of the actuator node."""

TOPICS: dict[str, Topic] = {
    topic.name: topic
    for topic in (
        _stream("target", "Target", INTEGRATOR, COMPENSATOR, MONITOR, RECORDER),
        _stream("command", "Command", COMPENSATOR, ACTUATOR, MONITOR, RECORDER),
        _stream("measurement", "Measurement", ACTUATOR, INTEGRATOR, COMPENSATOR, MONITOR, RECORDER),
        _stream("true_state", "Measurement", ACTUATOR, RECORDER),
        _stream("compensator_state", "CompensatorState", COMPENSATOR, RECORDER),
        replace(_stream("updating_state", "CompensatorState", INTEGRATOR, RECORDER), section="updating"),
        Topic("sync_status", "SyncStatus", (MONITOR,), (RECORDER, CONSOLE), depth=100),
        # Latched: a late subscriber still receives the state of the test.
        Topic(TEST_STATE, "TestState", (ACTUATOR,), (*_LED, CONSOLE), latched=True),
        Topic("node_status", "NodeStatus", ROLES, (ACTUATOR, RECORDER, CONSOLE), latched=True, handshake=True),
        Topic(TRIP, "Trip", (*_LED, CONSOLE), (ACTUATOR, RECORDER), latched=True, handshake=True),
        Topic(FORMER_TRIP, "Empty", (), (ACTUATOR,), recorded=False, package="std_msgs"),
        Topic("summary", "Summary", ROLES, (RECORDER, CONSOLE), latched=True),
        Topic("progress", "Progress", (MONITOR, RECORDER), (ACTUATOR, CONSOLE), recorded=False),
        # For measuring the clock offsets between machines, before and after a test.
        Topic("clock_question", "ClockProbe", (ACTUATOR,), _LED, recorded=False, apart=True),
        Topic("clock_answer", "ClockProbe", _LED, (ACTUATOR,), recorded=False, apart=True),
        # For plotting and robot tools, at the rate of sync_status: measured, target and commanded states.
        *(Topic(name, "JointState", (MONITOR,), (), recorded=False, package="sensor_msgs") for name in JOINTS),
        # For displays: curves in columns of 10 ms, and the names of the curves.
        Topic("live", "Live", (MONITOR,), (), depth=20, recorded=False, best_effort=True),
        Topic("live_curves", "LiveCurves", (MONITOR,), (), latched=True, recorded=False),
    )
}

TRIP_REQUESTS = tuple(
    Topic(TRIP, "Trip", (), (ACTUATOR,), latched=latched, recorded=False) for latched in (False, True)
)
"""Two subscriptions for trip requests from other programs. Only the volatile subscription matches volatile
publishers. Only the latched subscription receives earlier messages from latched publishers."""

DIAGNOSTICS = Topic("/diagnostics", "DiagnosticArray", ROLES, (), recorded=False, package="diagnostic_msgs")
"""Diagnostics, with the absolute name that ROS tools expect."""

CLOCK = Topic("/clock", "Clock", (ACTUATOR,), (), recorded=False, package="rosgraph_msgs")
"""Simulated time. Published only in lockstep, and only if requested."""

ALSO_RECORDED = (DIAGNOSTICS.name, "/rosout")

# Topics below the namespace of an axis that has its own node. They are not recorded, because the actuator node
# merges them into topics of the rig.
AXIS_TOPICS: dict[str, Topic] = {
    topic.name: replace(topic, recorded=False)
    for topic in (
        _stream("command", "Command", ACTUATOR, AXIS),
        _stream("measurement", "Measurement", AXIS, ACTUATOR),
        _stream("true_state", "Measurement", AXIS, ACTUATOR),
    )
}


OPERATOR_TOPICS: dict[str, Topic] = {
    topic.name: topic
    for topic in (
        Topic("procedure_state", "TestState", (OPERATOR,), (), latched=True, recorded=False),
        Topic("rig_state", "Measurement", (OPERATOR,), (), recorded=False),
        *(replace(TOPICS[name], publishers=(OPERATOR,)) for name in ("live", "live_curves")),
    )
}


def axis_node(axis: str) -> str:
    return f"{axis}/{AXIS}"


def axis_of(peer: str) -> str:
    axis, _, role = peer.partition("/")
    return axis if role == AXIS else ""


def renamed(kind: str) -> str:
    """Return a warning for clients that use the former name of the topic or service ``trip``."""
    return f"the {kind} {FORMER_TRIP} is now called {TRIP}; the next version does not accept the old name"


def logger_of(namespace: str) -> str:
    return namespace.strip("/").replace("/", ".")


def role_of(peer: str) -> str:
    return peer.rpartition("/")[2]


def options_of(role: str) -> dict[str, options.Option]:
    offered = options.options(options.NODE)
    return {name: option for name, option in offered.items() if not option.roles or role in option.roles}


def published_by(node: str, table: Mapping[str, Topic] = TOPICS) -> list[Topic]:
    return [topic for topic in table.values() if node in topic.publishers]


def subscribed_by(node: str, table: Mapping[str, Topic] = TOPICS) -> list[Topic]:
    return [topic for topic in table.values() if node in topic.subscribers]


@dataclass(frozen=True)
class NodeLocation:
    role: str
    namespace: str

    @property
    def axis(self) -> str:
        return self.namespace.rpartition("/")[2] if self.role == AXIS else ""

    @property
    def rig(self) -> str:
        return self.namespace.rpartition("/")[0] if self.role == AXIS else self.namespace.rstrip("/")

    @property
    def peer(self) -> str:
        return axis_node(self.axis) if self.role == AXIS else self.role

    def full_names(self, peers: Iterable[str]) -> tuple[str, ...]:
        return tuple(f"{self.rig}/{peer}" for peer in peers)

    def topic(self, name: str) -> str:
        return f"{self.rig}/{name}" if self.role == AXIS else name


@dataclass(frozen=True)
class Endpoint:
    """Publisher or subscription. If ``awaited`` is true, the test waits for its ``partners`` (full names)."""

    key: str
    row: Topic
    name: str
    partners: tuple[str, ...]
    publishes: bool
    awaited: bool = True


def endpoints(
    location: NodeLocation,
    peers: Sequence[str],
    clock: bool = False,
    here: Sequence[str] = (),
    wanted: Callable[[Topic], bool] = lambda row: not row.section,
) -> list[Endpoint]:
    """Return the endpoints of a node. ``here`` lists the ``peers`` on this machine; empty means all."""
    role, result = location.role, []
    for publishes, rows in ((True, published_by(role)), (False, subscribed_by(role))):
        for row in filter(wanted, rows):
            roles = row.subscribers if publishes else row.publishers
            partners = [peer for peer in peers if role_of(peer) in roles]
            if publishes:
                partners = [peer for peer in partners if role_of(peer) != role]
            if row.apart:  # only for nodes on other machines
                partners = [peer for peer in partners if here and peer not in here]
            if partners or not row.apart:
                full = location.full_names(partners)
                result.append(Endpoint(row.name, row, location.topic(row.name), full, publishes))
    if role == AXIS:
        result += _below_an_axis(location, "", ACTUATOR)
    if role == ACTUATOR:
        for axis in filter(None, map(axis_of, peers)):
            result += _below_an_axis(location, f"{axis}/", axis_node(axis))
    if clock:
        result.append(Endpoint(CLOCK.name, CLOCK, CLOCK.name, (), True))
    return [*result, Endpoint("diagnostics", DIAGNOSTICS, DIAGNOSTICS.name, (), True)]


def _below_an_axis(location: NodeLocation, prefix: str, other: str) -> list[Endpoint]:
    partner, published = location.full_names([other]), published_by(location.role, AXIS_TOPICS)
    result = []
    for row in (*published, *subscribed_by(location.role, AXIS_TOPICS)):
        name, publishes = f"{prefix}{row.name}", row in published
        # a real axis has no true state
        awaited = publishes or location.role == AXIS or row.name != "true_state"
        result.append(Endpoint(name, row, name, partner, publishes, awaited))
    return result
