# SPDX-License-Identifier: Apache-2.0
"""Configuration of ros2 bag, diagnostic_aggregator, SROS 2 and RViz for a rig, and a URDF model of the rig.

The files are generated from the table of topics and the scenario, for one namespace and without rclpy.
``config/stack`` contains the files for the default namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from string import Template
from xml.etree import ElementTree

from rths_nodes.core.resources import resource
from rths_nodes.core.yaml_text import dump
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.ros import names

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
    """Return YAML text with the QoS of each topic, so that ``ros2 bag record`` keeps all messages, not 10."""
    rows = [*names.TOPICS.values(), *names.OPERATOR_TOPICS.values()]
    overrides = {_under(namespace, row.name): _listening(row, best_effort) for row in rows if row.publishers}
    overrides[names.DIAGNOSTICS.name] = _listening(names.DIAGNOSTICS, best_effort)
    return dump(overrides)


def _listening(row: names.Topic, best_effort: bool) -> dict[str, str]:
    return {
        "history": "keep_all",
        "reliability": "best_effort" if row.lossy(best_effort) else "reliable",
        "durability": "transient_local" if row.latched else "volatile",
    }


# -- diagnostic_aggregator --------------------------------------------------------------------------------


def diagnostics(namespace: str) -> str:
    """Return YAML text with the parameters of ``aggregator_node``, which groups loop, observers and axes."""
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

    A process with all nodes has the enclave ``/rths/test``. A separate integrator has ``/rths/integrator``.
    """
    rig = "/" + namespace.strip("/")
    profiles = {
        peer: _profile(rig, peer, axes) for peer in (*names.NODES, *map(names.axis_node, axes), names.CONSOLE)
    }
    node_profiles = {peer: [profile] for peer, profile in profiles.items() if peer != names.CONSOLE}
    topics = (*names.OPERATOR_TOPICS, names.DIAGNOSTICS.name, "/parameter_events")
    reply = [f"~/{name}" for name in names.OPERATOR_SERVICES]
    operator = _rules(rig, names.OPERATOR, topics, (names.TRIP, names.FORMER_TRIP, *ALWAYS), reply)
    stops = (*(f"{names.ACTUATOR}/{name}" for name in names.STOPS), f"{names.OPERATOR}/{names.PAGE_STOP}")
    page = _rules(rig, names.PAGE, ["/parameter_events"], (*LOOKED_AT, *ALWAYS), request=stops)
    all_profiles = {"test": list(profiles.values()), names.OPERATOR: [operator], names.PAGE: [page]}
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


GROUND = "ground"
THICK, WIDE, APART = 0.5, 6.0, 5.0
"""Height (``THICK``), width (``WIDE``) and vertical distance (``APART``) of slabs, as multiples of the stroke."""


def below(above: ElementTree.Element, tag: str, **attributes: str) -> ElementTree.Element:
    return ElementTree.SubElement(above, tag, attributes)


def xml_text(root: ElementTree.Element) -> str:
    ElementTree.indent(root, " ")
    return "<?xml version='1.0' encoding='UTF-8'?>\n" + ElementTree.tostring(root, encoding="unicode") + "\n"


def urdf(scenario: Scenario) -> str:
    """Return the URDF text of a model in which each axis is a slab on a prismatic joint along x."""
    robot = ElementTree.Element("robot", name=scenario.name)
    _slab(robot, GROUND, max(axis.limits.stroke for axis in scenario.axes.values()), "0.3 0.3 0.3 1")
    height = 0.0
    for name, axis in scenario.axes.items():
        limits = axis.limits
        height += APART * limits.stroke
        _slab(robot, f"{name}_slab", limits.stroke, "0.84 0.15 0.16 1")
        joint = below(robot, "joint", name=name, type="prismatic")
        below(joint, "parent", link=GROUND)
        below(joint, "child", link=f"{name}_slab")
        below(joint, "origin", xyz=f"0 0 {height:g}", rpy="0 0 0")
        below(joint, "axis", xyz="1 0 0")
        bounds = {"lower": -limits.stroke, "upper": limits.stroke}
        bounds |= {"effort": limits.force, "velocity": limits.velocity}
        below(joint, "limit", **{key: f"{value:g}" for key, value in bounds.items()})
    return xml_text(robot)


def _slab(robot: ElementTree.Element, name: str, stroke: float, color: str) -> None:
    visual = below(below(robot, "link", name=name), "visual")
    size = f"{WIDE * stroke:g} {WIDE * stroke:g} {THICK * stroke:g}"
    below(below(visual, "geometry"), "box", size=size)
    below(below(visual, "material", name=f"of_{name}"), "color", rgba=color)


def rviz(rig: str) -> str:
    """Return the text of an RViz configuration that shows the model of the rig in the namespace ``rig``."""
    template = resource("config", "templates", "layouts", "rig.rviz.tmpl").read_text(encoding="utf-8")
    return Template(template).substitute(prefix=rig.strip("/"), ground=GROUND)
