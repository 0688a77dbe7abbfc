"""Sections of a scenario as ROS parameters of the node that owns them.

The scenario gives the defaults; the usual ROS means (command line, parameter file, launch) override single
values, with the meaning and the strict checks of ``--set``. They are read-only: a test does not change under
way. Matrices and lists of sections stay in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import attrs
from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.node import Node

from rths_nodes.core.errors import ConfigError, join, unknown
from rths_nodes.core.parameters import Spec, spec_of
from rths_nodes.core.strict import as_data
from rths_nodes.core.yaml_text import parse
from rths_nodes.loop.scenario.overrides import replace
from rths_nodes.loop.scenario.schema import Scenario

_LARGEST = 1.7e308
_FOREIGN = ("qos_overrides.", "use_sim_time", "start_type_description_service")


def given(node: Node) -> dict[str, Any]:
    """The parameter overrides that the node was started with."""
    values = {name: parameter.value for name, parameter in node._parameter_overrides.items()}
    return {name: list(value) if hasattr(value, "tolist") else value for name, value in values.items()}


def told(status: Mapping[str, Any]) -> dict[str, Any]:
    """The sections that a node runs with, by name, as it has told in its NodeStatus."""
    with suppress(ConfigError):  # a foreign node may tell it in another form
        found = parse(status["parameters"], status["node"])
        if isinstance(found, dict):
            return found
    return {}


def declare(node: Node, name: str, value: Any, doc: str, spec: Spec | None = None) -> None:
    """Declare one read-only parameter with its meaning, unit and range, unless that has been done."""
    if node.has_parameter(name):
        return
    descriptor = ParameterDescriptor(description=doc, read_only=True, dynamic_typing=True)
    if spec is not None:
        descriptor.description = " ".join(filter(None, (doc, f"[{spec.unit}]" if spec.unit else "", spec.bound)))
        if value is not None:
            _set_range(descriptor, spec)
    node.declare_parameter(name, value, descriptor, ignore_override=True)


def _set_range(descriptor: ParameterDescriptor, spec: Spec) -> None:
    low = spec.at_least if spec.at_least is not None else spec.more_than
    high = spec.at_most if spec.at_most is not None else spec.less_than
    if low is None and high is None:
        return
    if spec.kind == "number":
        span = FloatingPointRange(
            from_value=-_LARGEST if low is None else float(low),
            to_value=_LARGEST if high is None else float(high),
        )
        descriptor.floating_point_range = [span]
    elif spec.kind == "integer":
        whole = IntegerRange(
            from_value=-(2**62) if low is None else int(low), to_value=2**62 if high is None else int(high)
        )
        descriptor.integer_range = [whole]


def effective(node: Node, scenario: Scenario, sections: tuple[str, ...]) -> Scenario:
    """The scenario with this node's overrides of its own ``sections``, all of them declared.

    Raises ConfigError for a wrong value and for a name that is no parameter of this node.
    """
    pairs = []
    for name, value in given(node).items():
        if any(name.startswith(f"{section}.") for section in sections):
            pairs.append((name.split("."), value))
        elif not node.has_parameter(name) and not name.startswith(_FOREIGN):
            known = [*(f"{section}..." for section in sections), *node._parameters]
            raise unknown(name, f"parameter of {node.get_name()}", name, known)
    built = replace(scenario, pairs)
    for name in sections:
        _declare_section(node, section(built, name), name)
    return built


def section(scenario: Scenario, path: str) -> Any:
    """What stands at the dotted ``path`` of a scenario: ``structure``, ``axes.story_1``."""
    place: Any = scenario
    for name in path.split("."):
        place = place[name] if isinstance(place, Mapping) else getattr(place, name)
    return place


def _declare_section(node: Node, built: Any, path: str) -> None:
    if built is None:
        return
    if isinstance(built, dict):
        for name, entry in built.items():
            _declare_section(node, entry, join(path, name))
        return
    if hasattr(type(built), "type_name"):
        declare(node, join(path, "type"), type(built).type_name, "component")
    for field in attrs.fields(type(built)):
        value, spec, name = getattr(built, field.name), spec_of(field), join(path, field.name)
        if spec.kind in ("component", "section", "sections"):
            _declare_section(node, value, name)
        elif spec.kind != "matrix":
            declare(node, name, as_data(value), spec.doc, spec)
