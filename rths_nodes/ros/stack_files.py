# SPDX-License-Identifier: Apache-2.0
"""Configuration files of other ROS 2 programs for a rig: ros2 bag, diagnostic_aggregator and SROS 2.

The files are generated from the table of topics, for one namespace and without rclpy. ``config/stack`` contains
the files for the default namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    speaks = [_under(rig, row.name) for row in (*names.published_by(role), names.DIAGNOSTICS)]
    subscriptions = [_under(rig, row.name) for row in names.subscribed_by(role)]
    subscriptions += names.ALSO_RECORDED if role == names.RECORDER else ()
    for below in [axis] if axis else axes if role == names.ACTUATOR else ():
        speaks += [f"{rig}/{below}/{row.name}" for row in names.published_by(role, names.AXIS_TOPICS)]
        subscriptions += [f"{rig}/{below}/{row.name}" for row in names.subscribed_by(role, names.AXIS_TOPICS)]
    if role == names.CONSOLE:
        return _rules(rig, role, {"publish": speaks[:-1], "subscribe": subscriptions})
    speaks += [
        "/rosout",
        "/parameter_events",
        "~/transition_event",
        *([names.CLOCK.name] if role == names.ACTUATOR else ()),
    ]
    subscriptions += [names.CLOCK.name, "/parameter_events"]
    stops = (*names.STOPS, names.FORMER_TRIP) if role == names.ACTUATOR else ()
    serves = [f"~/{name}" for name in (*PARAMETERS, TYPES, *LIFECYCLE, *stops)]
    ns = f"{rig}/{axis}" if axis else rig
    return _rules(ns, role, {"publish": speaks, "subscribe": subscriptions}, {"reply": serves})


def _operator(rig: str) -> ElementTree.Element:
    speaks = [*(_under(rig, name) for name in names.OPERATOR_TOPICS), names.DIAGNOSTICS.name, "/parameter_events"]
    subscriptions = [
        _under(rig, names.TRIP),
        _under(rig, names.FORMER_TRIP),
        names.CLOCK.name,
        "/parameter_events",
    ]
    services = {"reply": [f"~/{name}" for name in names.OPERATOR_SERVICES]}
    return _rules(rig, names.OPERATOR, {"publish": speaks, "subscribe": subscriptions}, services)


def _page(rig: str) -> ElementTree.Element:
    subscriptions = [_under(rig, name) for name in LOOKED_AT]
    asks = [
        *(f"{rig}/{names.ACTUATOR}/{name}" for name in names.STOPS),
        f"{rig}/{names.OPERATOR}/{names.PAGE_STOP}",
    ]
    topics = {
        "publish": ["/parameter_events"],
        "subscribe": [*subscriptions, names.CLOCK.name, "/parameter_events"],
    }
    return _rules(rig, names.PAGE, topics, {"request": asks})


def _rules(
    ns: str,
    node: str,
    topics: Mapping[str, Sequence[str]],
    services: Mapping[str, Sequence[str]] | None = None,
) -> ElementTree.Element:
    profile = ElementTree.Element("profile", ns=ns, node=node)
    for kind, allowed in (("topic", topics), ("service", services or {})):
        for doing, expressions in allowed.items():
            group = ElementTree.SubElement(profile, f"{kind}s", {doing: "ALLOW"})
            for expression in dict.fromkeys(expressions):
                named = ElementTree.SubElement(group, kind)
                named.text = expression
    return profile


def _under(rig: str, name: str) -> str:
    return name if name.startswith("/") else f"/{rig.strip('/')}/{name}"
