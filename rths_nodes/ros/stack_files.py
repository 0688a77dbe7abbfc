# SPDX-License-Identifier: Apache-2.0
"""Configuration files of other ROS 2 programs for a rig: ros2 bag, diagnostic_aggregator and SROS 2.

The files are generated from the table of topics, for one namespace and without rclpy. ``config/stack`` contains
the files for the default namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from xml.etree import ElementTree

from rths_nodes.core.yaml_text import dump
from rths_nodes.ros import names
from rths_nodes.ros.names import Topic

SILENCE_S = 5.0
"""Timeout for the diagnostics of a node, s. A node publishes once per second if there is slack."""
POLICY_VERSION = "0.2.0"
PARAMETERS = (
    *("describe_parameters", "get_parameter_types", "get_parameters", "list_parameters"),
    *("set_parameters", "set_parameters_atomically"),
)
TYPES = "get_type_description"
LIFECYCLE = (
    *("change_state", "get_available_states", "get_available_transitions", "get_state", "get_transition_graph"),
)
ALWAYS = (names.CLOCK.name, "/parameter_events")
"""Subscriptions of every node."""
LOOKED_AT = (
    *("live", "live_curves", "procedure_state", "rig_state"),
    *(names.DIAGNOSTICS.name, names.TEST_STATE, "node_status", "sync_status", "trip"),
)


def of_rig(namespace: str, axes: Sequence[str] = ()) -> dict[str, str]:
    return {
        "rosbag2_qos.yaml": rosbag2_qos(namespace),
        "diagnostics.yaml": diagnostics(namespace),
        "sros2_policy.xml": sros2_policy(namespace, axes),
    }


# -- ros2 bag record --qos-profile-overrides-path ---------------------------------------------------------


def rosbag2_qos(namespace: str, best_effort: bool = False) -> str:
    """Return YAML text with the QoS of each topic for ``ros2 bag record``.

    The history is KEEP_ALL instead of the default KEEP_LAST with depth 10.
    """
    rows = [*names.TOPICS.values(), *names.OPERATOR_TOPICS.values()]
    overrides = {_under(namespace, row.name): _listening(row, best_effort) for row in rows if row.publishers}
    overrides[names.DIAGNOSTICS.name] = _listening(names.DIAGNOSTICS, best_effort)
    return dump(overrides)


def _listening(row: Topic, best_effort: bool) -> dict[str, str]:
    return {
        "history": "keep_all",
        "reliability": "best_effort" if row.lossy(best_effort) else "reliable",
        "durability": "transient_local" if row.latched else "volatile",
    }


# -- diagnostic_aggregator --------------------------------------------------------------------------------


def diagnostics(namespace: str) -> str:
    """Return YAML text with the parameters of ``aggregator_node``, for a tree of loop, observers and axes."""
    rig = namespace.strip("/")
    branches: dict[str, object] = {
        "loop": _branch("Loop", rig, names.LOOP),
        "observers": _branch("Observers", rig, names.OBSERVERS),
        "axes": _analyzer("Axes", rig) | {"regex": [f"{rig}/.+/{names.AXIS}"]},
    }
    return dump({"/**": {"ros__parameters": {"path": rig, "pub_rate": 1.0} | branches}})


def _analyzer(path: str, rig: str) -> dict[str, object]:
    kind = "diagnostic_aggregator/GenericAnalyzer"
    return {"type": kind, "path": path, "timeout": SILENCE_S, "remove_prefix": [rig]}


def _branch(path: str, rig: str, nodes: Iterable[str]) -> dict[str, object]:
    paths = [f"{rig}/{node}" for node in nodes]
    return _analyzer(path, rig) | {"startswith": paths, "expected": [*paths]}  # ROS does not support YAML aliases


# -- SROS 2 -----------------------------------------------------------------------------------------------


def sros2_policy(namespace: str, axes: Sequence[str] = ()) -> str:
    """Return the SROS 2 policy (XML text) for the rig in ``namespace``, with nodes of the given ``axes``.

    The enclaves ``/rths/integrator`` etc. are for processes with one node. The enclave ``/rths/test`` is for a
    process with all nodes.
    """
    rig = "/" + namespace.strip("/")
    profiles = {
        peer: _profile(rig, peer, axes) for peer in (*names.NODES, *map(names.axis_node, axes), names.CONSOLE)
    }
    node_profiles = {peer: [profile] for peer, profile in profiles.items() if peer != names.CONSOLE}
    all_profiles = {"test": list(profiles.values()), names.OPERATOR: [_operator(rig)], names.PAGE: [_page(rig)]}
    policy = ElementTree.Element("policy", version=POLICY_VERSION)
    enclaves = ElementTree.SubElement(policy, "enclaves")
    for name, members in (node_profiles | all_profiles).items():
        enclave = ElementTree.SubElement(enclaves, "enclave", path=f"{rig}/{name}")
        ElementTree.SubElement(enclave, "profiles").extend(deepcopy(members))  # each copy is indented separately
    ElementTree.indent(policy, "  ")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(policy, encoding="unicode")}\n'


def _profile(rig: str, peer: str, axes: Sequence[str]) -> ElementTree.Element:
    role, axis = names.role_of(peer), names.axis_of(peer)
    publish = [row.name for row in names.published_by(role)]
    subscribe = [row.name for row in names.subscribed_by(role)]
    if role == names.CONSOLE:
        return _rules(rig, role, publish, subscribe)
    publish.append(names.DIAGNOSTICS.name)
    subscribe += names.ALSO_RECORDED if role == names.RECORDER else ()
    for below in [axis] if axis else axes if role == names.ACTUATOR else ():
        publish += [f"{below}/{row.name}" for row in names.published_by(role, names.AXIS_TOPICS)]
        subscribe += [f"{below}/{row.name}" for row in names.subscribed_by(role, names.AXIS_TOPICS)]
    publish += ["/rosout", "/parameter_events", "~/transition_event"]
    services = [*PARAMETERS, TYPES, *LIFECYCLE]
    if role == names.ACTUATOR:
        publish.append(names.CLOCK.name)
        services += [*names.STOPS, names.FORMER_TRIP]
    reply = [f"~/{name}" for name in services]
    return _rules(rig, role, publish, [*subscribe, *ALWAYS], reply, axis=axis)


def _operator(rig: str) -> ElementTree.Element:
    publish = (*names.OPERATOR_TOPICS, names.DIAGNOSTICS.name, "/parameter_events")
    reply = [f"~/{name}" for name in names.OPERATOR_SERVICES]
    return _rules(rig, names.OPERATOR, publish, (names.TRIP, names.FORMER_TRIP, *ALWAYS), reply)


def _page(rig: str) -> ElementTree.Element:
    stops = (*(f"{names.ACTUATOR}/{name}" for name in names.STOPS), f"{names.OPERATOR}/{names.PAGE_STOP}")
    return _rules(rig, names.PAGE, ["/parameter_events"], (*LOOKED_AT, *ALWAYS), request=stops)


def _rules(
    rig: str,
    node: str,
    publish: Sequence[str],
    subscribe: Sequence[str],
    reply: Sequence[str] = (),
    request: Sequence[str] = (),
    axis: str = "",
) -> ElementTree.Element:
    profile = ElementTree.Element("profile", ns=f"{rig}/{axis}" if axis else rig, node=node)
    topics = ("topic", "publish", publish), ("topic", "subscribe", subscribe)
    for kind, doing, allowed in (*topics, ("service", "reply", reply), ("service", "request", request)):
        if allowed:
            group = ElementTree.SubElement(profile, f"{kind}s", {doing: "ALLOW"})
            for name in dict.fromkeys(_under(rig, name) for name in allowed):
                entry = ElementTree.SubElement(group, kind)
                entry.text = name
    return profile


def _under(rig: str, name: str) -> str:
    return name if name.startswith(("/", "~")) else f"/{rig.strip('/')}/{name}"
