# SPDX-License-Identifier: Apache-2.0
"""Descriptions of the nodes of a test, shared by the runner and the launch files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.loop.options import COMPOSED, NODE, ONE_NODE, ROSBAG2, RunOptions, checked_namespace
from rths_nodes.loop.options import options as offered_options
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.axis import check_layout
from rths_nodes.ros import names


@dataclass(frozen=True)
class NodeDescription:
    """Role, namespace and parameters of a node. ``role`` is also the name of the executable."""

    role: str
    parameters: Data
    namespace: str = names.NAMESPACE
    axis: str = ""
    """Axis of an axis node; also the last part of ``namespace``."""
    scenario: Scenario | None = None
    """Scenario from the runner; None if the parameters define it."""

    @property
    def peer(self) -> str:
        return names.axis_node(self.axis) if self.axis else self.role


def describe(
    options: RunOptions, axes: Sequence[str] = (), console: bool = False, scenario: Scenario | None = None
) -> list[NodeDescription]:
    """Return descriptions of the nodes of a rig; ``axes`` are the axes with their own nodes."""
    if scenario is not None:
        options = options.changed(scenario=scenario.name, rig="", case="", overrides=())
    roles = [role for role in names.NODES if role != names.RECORDER or options.recorded]
    peers = [*roles, *map(names.axis_node, axes), *([names.CONSOLE] if console else [])]
    namespace = checked_namespace(options.namespace)
    places = [(role, namespace, "") for role in roles]
    places += [(names.AXIS, f"{namespace}/{axis}", axis) for axis in axes]
    return [
        NodeDescription(role, _parameters(options, role, peers), where, axis, scenario)
        for role, where, axis in places
    ]


def on_this_machine(options: RunOptions, descriptions: Sequence[NodeDescription]) -> tuple[str, ...]:
    """Return the peers to start here. Raises ConfigError for an unknown node or a missing actuator node."""
    peers = tuple(description.peer for description in descriptions)
    recorders = () if names.RECORDER in peers or options.recorder != ROSBAG2 else (names.RECORDER,)
    for name in options.nodes:
        if name not in (*peers, *recorders):
            raise unknown("nodes", "node", name, (*peers, *recorders))
    here = tuple(peer for peer in peers if peer in options.nodes or not options.nodes)
    if options.host == COMPOSED and names.ACTUATOR not in here:
        raise ConfigError(
            f"composed = true: nodes = {' '.join(options.nodes)} must include the actuator node. Omit composed on "
            "a machine without the actuator node"
        )
    return here


def _parameters(options: RunOptions, role: str, peers: Sequence[str]) -> dict[str, object]:
    values = {
        name: getattr(options, option.field)
        for name, option in offered_options(NODE).items()
        if not option.roles or role in option.roles
    }
    # ROS cannot infer the type of an empty list
    lists = {name: list(value) or [""] for name, value in values.items() if isinstance(value, tuple)}
    return values | lists | {"peers": list(peers)}


def axes_with_nodes(scenario: Scenario, actuator_nodes: str) -> tuple[str, ...]:
    """Return the axes with their own nodes: all or none. Raises ConfigError if the axes must share a node."""
    if actuator_nodes == ONE_NODE:
        return ()
    check_layout(scenario)
    return tuple(scenario.axes)


def starting_words(missing: Mapping[str, str]) -> str:
    problems = (f"{node} ({problem})" if problem else node for node, problem in missing.items())
    return f"waits for {', '.join(problems)}" if missing else "starts"
