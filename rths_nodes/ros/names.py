# SPDX-License-Identifier: Apache-2.0
"""Every topic: name, type, QoS, who publishes and who listens. One table; the reasons are beside it.

Plain data: wiring, recordings and documentation are made from it without importing rclpy.
"""

from __future__ import annotations

from collections.abc import Mapping
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
"""One axis of a rig whose axes have a node each, in a namespace of its own below that of the rig."""
CONSOLE = "console"
"""The ear of `rths run` where nodes are in other processes: it only listens, and may ask for a trip."""
ROLES = (*NODES, AXIS)
OPERATOR = "operator"
"""Publishes the state of a procedure, and stops it. It is in no run, and no peer of the nodes of one."""
OPERATOR_SERVICES = ("stop", "stop_by_page", "hold")
STOP, PAGE_STOP, HOLD = OPERATOR_SERVICES
STRANGER, PAGE = "anybody", "page"
"""Names of the callers of these services, in the record."""
MOTION = "motion "
"""Beginning of the frame_id of curves that are of no run, but of a motion of the procedure."""
RIG = "rig"
"""The executable that has several nodes of a test in one process."""
PEERS = (*NODES, CONSOLE)
LOOP = (INTEGRATOR, COMPENSATOR, ACTUATOR)
OBSERVERS = options.OBSERVERS
NAMESPACE = options.NAMESPACE

STOPS = ("stop", "trip")
"""Services of the actuator node that end a test: held, or tripped."""
FORMER_TRIP = "emergency_stop"
"""Name of the topic and of the service ``trip`` up to 0.9.0: still received, and reported, in one more version."""


@dataclass(frozen=True)
class Topic:
    """One row. Names are relative: they live in the namespace of the rig."""

    name: str
    type: str
    publishers: tuple[str, ...]
    subscribers: tuple[str, ...]
    latched: bool = False
    depth: int = 10
    """Number of messages that a publisher keeps; inboxes keep all."""
    stream: bool = False
    """True for the messages of the loop: reliable or best effort by the parameter ``reliability``."""
    handshake: bool = False
    """True for what nodes say also before they know which run it is."""
    recorded: bool = True
    apart: bool = False
    """True for what only nodes on different machines say to each other."""
    best_effort: bool = False
    """True for what is published whether anybody gets it or not."""
    section: str = ""
    """Section of a scenario without which it is not there."""

    def wanted(self, scenario: object) -> bool:
        """Return whether a test of ``scenario`` has it."""
        return not self.section or getattr(scenario, self.section) is not None

    @property
    def message(self) -> str:
        """``Target`` of ``rths_nodes/msg/Target``."""
        return self.type.rpartition("/")[2]

    @property
    def for_onlookers(self) -> bool:
        """True where our nodes publish and none of them listens: its QoS is for whoever looks on to choose."""
        return bool(self.publishers) and not self.subscribers

    @property
    def kept(self) -> int:
        """Number of messages that a publisher of our nodes keeps: only the last counts of a latched one."""
        return 1 if self.latched else self.depth


def _own(message: str) -> str:
    return f"rths_nodes/msg/{message}"


def _stream(name: str, message: str, publisher: str, *subscribers: str) -> Topic:
    # what a publisher keeps decides whether an outside recording is complete: with 1 it lost 0.1-6 %
    return Topic(name, _own(message), (publisher,), subscribers, False, 2000, True)


def _early(name: str, message: str, publishers: tuple[str, ...], *subscribers: str) -> Topic:
    return Topic(name, _own(message), publishers, subscribers, latched=True, handshake=True)


def _clock(name: str, publishers: tuple[str, ...], subscribers: tuple[str, ...]) -> Topic:
    return Topic(name, _own("ClockProbe"), publishers, subscribers, recorded=False, apart=True)


STATES, TARGETS, COMMANDS = JOINTS = ("joint_states", "joint_targets", "joint_commands")
"""Topics of the axes as joints: what is measured, wanted and commanded."""


def _joints(name: str) -> Topic:
    return Topic(name, "sensor_msgs/msg/JointState", (MONITOR,), (), recorded=False)


TEST_STATE = "test_state"
"""The topic on which the actuator node says which run it is."""

TRIP = "trip"
"""The topic of trips: of the nodes of a test, and of everybody else (``TRIP_REQUESTS``)."""

TOPICS: dict[str, Topic] = {
    topic.name: topic
    for topic in (
        _stream("target", "Target", INTEGRATOR, COMPENSATOR, MONITOR, RECORDER),
        _stream("command", "Command", COMPENSATOR, ACTUATOR, MONITOR, RECORDER),
        _stream("measurement", "Measurement", ACTUATOR, INTEGRATOR, COMPENSATOR, MONITOR, RECORDER),
        _stream("true_state", "Measurement", ACTUATOR, RECORDER),
        _stream("compensator_state", "CompensatorState", COMPENSATOR, RECORDER),
        replace(_stream("updating_state", "CompensatorState", INTEGRATOR, RECORDER), section="updating"),
        Topic("sync_status", _own("SyncStatus"), (MONITOR,), (RECORDER, CONSOLE), depth=100),
        # Latched: who comes late still learns where the test stands.
        Topic(TEST_STATE, _own("TestState"), (ACTUATOR,), (*LOOP[:2], MONITOR, RECORDER, CONSOLE, AXIS), True),
        _early("node_status", "NodeStatus", ROLES, ACTUATOR, RECORDER, CONSOLE),
        _early(TRIP, "Trip", (*LOOP[:2], MONITOR, RECORDER, CONSOLE, AXIS), ACTUATOR, RECORDER),
        Topic(FORMER_TRIP, "std_msgs/msg/Empty", (), (ACTUATOR,), recorded=False),
        Topic("summary", _own("Summary"), ROLES, (RECORDER, CONSOLE), True),
        Topic("progress", _own("Progress"), (MONITOR, RECORDER), (ACTUATOR, CONSOLE), recorded=False),
        # How far the clocks of machines differ, before and after a test.
        _clock("clock_question", (ACTUATOR,), (*LOOP[:2], MONITOR, RECORDER, AXIS)),
        _clock("clock_answer", (*LOOP[:2], MONITOR, RECORDER, AXIS), (ACTUATOR,)),
        # For tools that draw, and robots, at the rate of sync_status: measured, wanted, commanded.
        *map(_joints, JOINTS),
        # For who looks on: curves in columns of 10 ms, and what they are called.
        Topic("live", _own("Live"), (MONITOR,), (), depth=20, recorded=False, best_effort=True),
        Topic("live_curves", _own("LiveCurves"), (MONITOR,), (), latched=True, recorded=False),
    )
}

TRIP_REQUESTS = tuple(
    Topic(TRIP, _own("Trip"), (), (ACTUATOR,), latched=latched, recorded=False) for latched in (False, True)
)
"""The topic of trips as other programs publish on it.

Only a volatile subscription receives a volatile publisher. Only a latched one receives what a latched publisher
has sent before both knew each other.
"""

DIAGNOSTICS = Topic("/diagnostics", "diagnostic_msgs/msg/DiagnosticArray", ROLES, (), recorded=False)
"""The one absolute name: where ROS tools look for it, whatever the namespace of the rig."""

CLOCK = Topic("/clock", "rosgraph_msgs/msg/Clock", (ACTUATOR,), (), recorded=False)
"""Where ROS tools look for the time of a simulation; only in lockstep, and when it is asked for."""

# Below the namespace of an axis that has a node of its own: what that node and the actuator node say to each
# other. Not recorded: the actuator node gathers them into the topics of the rig, which are.
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
        Topic("procedure_state", _own("TestState"), (OPERATOR,), (), True, recorded=False),
        Topic("rig_state", _own("Measurement"), (OPERATOR,), (), recorded=False),
        *(replace(TOPICS[name], publishers=(OPERATOR,)) for name in ("live", "live_curves")),
    )
}
"""Topics of a procedure, beside those of its runs: outside of runs the rig reports here."""


def axis_node(axis: str) -> str:
    """The peer that is the node of ``axis``: its name below the namespace of the rig."""
    return f"{axis}/{AXIS}"


def axis_of(peer: str) -> str:
    """The inverse of :func:`axis_node`; empty for another peer."""
    axis, _, role = peer.partition("/")
    return axis if role == AXIS else ""


def role_of(peer: str) -> str:
    return peer.rpartition("/")[2]


def published_by(node: str, table: Mapping[str, Topic] = TOPICS) -> list[Topic]:
    return [topic for topic in table.values() if node in topic.publishers]


def heard_by(node: str, table: Mapping[str, Topic] = TOPICS) -> list[Topic]:
    return [topic for topic in table.values() if node in topic.subscribers]


def partners(topic: Topic, node: str, nodes: tuple[str, ...], publishing: bool) -> tuple[str, ...]:
    """Whose endpoints a node of the role ``node`` must find on ``topic`` when ``nodes`` take part."""
    others = topic.subscribers if publishing else topic.publishers
    return tuple(peer for peer in nodes if role_of(peer) in others and (role_of(peer) != node or not publishing))
