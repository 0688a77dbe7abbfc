# SPDX-License-Identifier: Apache-2.0
"""Sections of a scenario as ROS parameters of the node that owns them.

The scenario defines the defaults. Command line, parameter file and launch override single values, which are
checked like values of ``--set``. Matrices and lists of sections can be set only in the scenario file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.node import Node
from rclpy.parameter import Parameter

from rths_nodes.core import registry
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, join
from rths_nodes.core.parameters import Spec, declared, type_of
from rths_nodes.core.validation import to_data
from rths_nodes.core.yaml_text import parse
from rths_nodes.loop.scenario.overrides import replace
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.ros.transport import qos_overrides
from rths_nodes.ros.transport.rclpy_private import parameter_overrides

UNBOUNDED = 2**63 - 1
"""Replacement for a missing bound of an integer range. Floating-point ranges use infinity."""
FOREIGN = (qos_overrides.PREFIX, "use_sim_time", "start_type_description_service")


def initial_values(node: Node) -> Data:
    return {name: plain(parameter) for name, parameter in parameter_overrides(node).items()}


def plain(parameter: Parameter) -> Any:
    value = parameter.value
    return list(value) if hasattr(value, "tolist") else value


def reported_sections(status: Data) -> Data:
    with suppress(ConfigError):  # another node may use a different form
        data = parse(status["parameters"], status["node"])
        if isinstance(data, dict):
            return data
    return {}


def declare(
    node: Node, name: str, value: object, doc: str, spec: Spec | None = None, choices: Sequence[str] = ()
) -> None:
    ranges = {}
    if spec is not None:
        doc = " ".join(filter(None, (doc, f"[{spec.unit}]" if spec.unit else "", spec.bound)))
        ranges = {} if value is None else _ranges(spec)
    constraints = f"one of {', '.join(choices)}" if choices else ""
    descriptor = ParameterDescriptor(
        description=doc, additional_constraints=constraints, dynamic_typing=True, **ranges
    )
    node.declare_parameter(name, value, descriptor, ignore_override=True)


def _ranges(spec: Spec) -> dict[str, object]:
    low = spec.at_least if spec.at_least is not None else spec.more_than
    high = spec.at_most if spec.at_most is not None else spec.less_than
    if low is None and high is None:
        return {}
    if spec.kind == "number":
        span = FloatingPointRange(
            from_value=-math.inf if low is None else float(low),
            to_value=math.inf if high is None else float(high),
        )
        return {"floating_point_range": [span]}
    if spec.kind == "integer":
        integers = IntegerRange(
            from_value=-UNBOUNDED if low is None else int(low), to_value=UNBOUNDED if high is None else int(high)
        )
        return {"integer_range": [integers]}
    return {}


def effective(scenario: Scenario, values: Mapping[str, object], sections: Sequence[str]) -> Scenario:
    prefixes = tuple(f"{section}." for section in sections)
    return replace(
        scenario, [(name.split("."), value) for name, value in values.items() if name.startswith(prefixes)]
    )


def section(scenario: Scenario, path: str) -> Any:
    part: object = scenario
    for name in path.split("."):
        part = part.get(name) if isinstance(part, Mapping) else getattr(part, name)
    return part


class Row(NamedTuple):
    name: str
    value: object
    doc: str
    spec: Spec | None = None
    choices: tuple[str, ...] = ()


def rows(scenario: Scenario, sections: Sequence[str]) -> list[Row]:
    families = {name: spec.family for name, spec in declared(type(scenario)).items()}
    return [row for path in sections for row in _rows(section(scenario, path), path, families.get(path, ""))]


def _rows(built: Any, path: str, family: str = "") -> Iterator[Row]:
    if built is None:
        return
    if isinstance(built, dict):
        for name, entry in built.items():
            yield from _rows(entry, join(path, name), family)
        return
    if type_of(built):
        choices = tuple(registry.names(family)) if family else ()
        yield Row(join(path, "type"), type(built).type_name, "component", choices=choices)
    for key, spec in declared(type(built)).items():
        value, name = getattr(built, key), join(path, key)
        if spec.kind in ("component", "components", "section", "sections"):
            yield from _rows(value, name, spec.family)
        elif spec.kind not in ("matrix", "mapping"):  # ROS 2 has no parameters of these types
            yield Row(name, to_data(value), spec.doc, spec, spec.choices)
