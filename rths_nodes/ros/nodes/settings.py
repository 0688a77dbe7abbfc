# SPDX-License-Identifier: Apache-2.0
"""ROS parameters of a node: options of the run, and sections of the scenario that the node owns.

Parameters can be set until the node is configured. Invalid initial values are refused at configuration, invalid
later values immediately. The scenario defines the defaults of the sections. Command line, parameter file and
launch override single values, which are checked like values of ``--set``. Matrices and lists of sections can be
set only in the scenario file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import attrs
from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.node import Node
from rclpy.parameter import Parameter

from rths_nodes.core import registry, yaml_text
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, join, unknown
from rths_nodes.core.parameters import Spec, declared, type_of
from rths_nodes.core.validation import checked_number, to_data, walk_declared
from rths_nodes.core.version import __version__
from rths_nodes.loop.options import EXECUTIVE, LOCKSTEP, SOCKETS, Option, check_clock
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.files import declaration, replace
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import LOCKSTEP_WINDOW
from rths_nodes.ros import names
from rths_nodes.ros.names import ACTUATOR, AXIS, COMPENSATOR, INTEGRATOR, MONITOR, RECORDER, NodeLocation
from rths_nodes.ros.transport import endpoints
from rths_nodes.ros.transport.rclpy_private import declared_parameters, parameter_overrides
from rths_nodes.ros.transport.topics import Load

RANGES: dict[str, tuple[str, Any, Any, float]] = {
    "number": ("floating_point_range", FloatingPointRange, float, math.inf),
    "integer": ("integer_range", IntegerRange, int, 2**63 - 1),
}
"""For each kind of value: field of the descriptor, message type, number type, substitute for a missing bound."""
FOREIGN = (endpoints.PREFIX, "use_sim_time", "start_type_description_service")


def initial_values(node: Node) -> Data:
    return {name: plain(parameter) for name, parameter in parameter_overrides(node).items()}


def plain(parameter: Parameter) -> Any:
    value = parameter.value
    return list(value) if hasattr(value, "tolist") else value


def reported_sections(status: Data) -> Data:
    with suppress(ConfigError):  # another node may use a different format
        data = yaml_text.parse(status["parameters"], status["node"])
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
    if spec.kind not in RANGES or (low is None and high is None):
        return {}
    field, kind, number, largest = RANGES[spec.kind]
    low, high = -largest if low is None else low, largest if high is None else high
    return {field: [kind(from_value=number(low), to_value=number(high))]}


def rows(
    scenario: Scenario, sections: Sequence[str]
) -> Iterator[tuple[str, object, str, Spec | None, Sequence[str]]]:
    """Yield name, value, description, declaration and choices of each parameter of ``sections``."""
    prefixes = tuple(f"{section}." for section in sections)
    for path, part, on_the_way in walk_declared(scenario):
        if not f"{path}.".startswith(prefixes):
            continue
        if type_of(part):
            family = on_the_way[-1].family
            choices = tuple(registry.names(family)) if family else ()
            yield join(path, "type"), type_of(part), "component", None, choices
        for key, spec in declared(type(part)).items():
            if spec.kind not in NO_PARAMETERS:
                yield join(path, key), to_data(getattr(part, key)), spec.doc, spec, spec.choices


NO_PARAMETERS = ("component", "components", "section", "sections", "matrix", "mapping")
"""Kinds of values that are not parameters themselves: their entries are, or ROS 2 has no type for them."""
PEERS = "peers"

OWNED = {
    INTEGRATOR: ("ground_motion", "structure", "integrator", "setup", "semi_active"),
    COMPENSATOR: ("ramp", "setup", "compensator"),
    ACTUATOR: ("axes", "rig", "port"),
    MONITOR: ("monitor",),
    RECORDER: ("recording",),
}
"""Sections of the scenario whose values are node parameters. An axis node has only its own part of ``axes``."""

READ = {
    COMPENSATOR: ("bridge",),
    ACTUATOR: ("bridge", "heartbeat"),
    AXIS: ("port",),
    MONITOR: ("structure",),  # the elastic energy of the structure scales the energy error
}
"""Sections that a node reads but does not own. All nodes must have the same values."""

TEST = "test"
"""Key in NodeStatus for values of the test that driver nodes need, because they have no scenario."""

_OF_SCENARIO = ("scenario", "case", "overrides", "rig")


_PEERS = Spec("texts", "nodes that take part in the test", names.NODES)


def _as_parameter(default: object) -> Any:
    if default is attrs.NOTHING:
        return ""
    return (list(default) or [""]) if isinstance(default, tuple) else default


class NodeSettings:
    """ROS parameters of ``node``, read-only while ``frozen()`` is true. ``built`` is a loaded scenario."""

    def __init__(
        self, node: Node, location: NodeLocation, frozen: Callable[[], bool], built: Scenario | None = None
    ) -> None:
        self._node, self.location, self._frozen, self._built = node, location, frozen, built
        self._options = names.options_of(location.role) | {PEERS: Option(PEERS, PEERS, _PEERS, _PEERS.default)}
        self._defaults = {name: _as_parameter(option.default) for name, option in self._options.items()}
        self._values = initial_values(node)
        self._declaring = False
        self._sections: list[str] = []
        self.lockstep, self.clocked = True, False
        """``lockstep`` is true if the node waits for other nodes. ``clocked`` is true if the test runs in real
        time. Both are true if the node follows the executive in real time."""
        self.scenario: Scenario
        self.hash = ""
        for name, option in self._options.items():
            value = self._values.get(name, self._defaults[name])
            declare(node, name, value, option.doc, choices=option.spec.choices)
        self._declare_sections()
        node.add_on_set_parameters_callback(self._check_set)
        node.add_post_set_parameters_callback(self._follow_set)

    def value(self, name: str) -> Any:
        return self._node.get_parameter(name).value

    def load_of_lines(self, size: int) -> Load | None:
        if self.value("transport") != SOCKETS:
            return None
        return Load(max(LOCKSTEP_WINDOW, round(self.scenario.servo_rate)), size, not self.lockstep)

    @property
    def publishes_clock(self) -> bool:
        return self.location.role == ACTUATOR and bool(self.value("clock"))

    @property
    def peers(self) -> tuple[str, ...]:
        return tuple(self.value(PEERS))

    @property
    def here(self) -> tuple[str, ...]:
        return tuple(filter(None, self.value("nodes")))

    @property
    def elsewhere(self) -> tuple[str, ...]:
        here = (*self.here, names.CONSOLE)
        return tuple(peer for peer in self.peers if self.here and peer not in here)

    @property
    def patience(self) -> float | None:
        """Timeout for an actuator node on another machine, s, or None if the actuator node is on this machine."""
        elsewhere = bool(self.here) and ACTUATOR not in self.here
        return float(self.value("peer_timeout")) if elsewhere else None

    @property
    def speaks_here(self) -> bool:
        """True if this node reports the outcome on a machine without the actuator node."""
        if not self.here or ACTUATOR in self.here:
            return False
        return self.location.peer == (MONITOR if MONITOR in self.here else self.here[0])

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(filter(None, map(names.axis_of, self.peers)))

    @property
    def faults(self) -> list[str]:
        return [text for text in self.value("faults") if text]

    @property
    def owned(self) -> tuple[str, ...]:
        if self.location.role == AXIS:
            return (f"axes.{self.location.axis}",)
        owned = OWNED[self.location.role]
        return tuple(name for name in owned if name != "axes") if self.axes else owned

    def facts(self) -> Data:
        both = (*self.owned, *READ.get(self.location.role, ()))
        sections = {name: to_data(declaration(self.scenario, name, name)[0]) for name in both}
        sections[TEST] = {"servo_rate": self.scenario.servo_rate, "samples": self.scenario.samples}
        if self.scenario.hops.depth:
            sections["hops"] = to_data(self.scenario.hops)
        return {
            "node": self.location.peer,
            "scenario_hash": self.hash,
            "parameters": yaml_text.dump(sections),
            "version": __version__,
        }

    def load(self) -> Scenario:
        self._check_options()
        self._check_names()
        endpoints.check_overrides(self._node, self.location, self._values)
        self.lockstep = self.value("pace") == LOCKSTEP
        self.clocked = not self.lockstep
        if self.publishes_clock:
            check_clock(self.value("pace"))
        self.scenario = self._loaded(self._values)
        self.lockstep |= self.scenario.engine == EXECUTIVE  # the program of the executive sets the pace
        self.hash = self.scenario.shared_hash(self.value("run_id"))
        if self.here:  # each machine has its own scenario file, and all files must agree
            self.hash = self._file.whole_hash(self.value("run_id"))
        return self.scenario

    def _check_options(self) -> None:
        for name, default in self._defaults.items():
            self._check_option(name, self._values.get(name, default))

    def _check_option(self, name: str, value: Any) -> None:
        kind, spec = type(self._defaults[name]), self._options[name].spec
        if type(value) is not kind:
            raise ConfigError(f"{name} = {value!r}: must be {kind.__name__}")
        if kind is float:
            checked_number(spec, value, name)
        if spec.choices and value not in spec.choices:
            raise ConfigError(f"{name} = {value!r}: must be one of {', '.join(spec.choices)}")
        for peer in value if name in (PEERS, "nodes") else ():
            if peer and peer not in names.PEERS and not names.axis_of(peer):
                raise ConfigError(f"{name}: unknown node {peer!r}; known: {', '.join(names.PEERS)}")
        role = self.location.role
        if name == PEERS and (role not in (AXIS, *value) or len(set(value)) < len(value)):
            raise ConfigError(f"{name} = {', '.join(value)}: must contain {role}, and each node only once")

    def _check_names(self) -> None:
        prefixes = tuple(f"{section}." for section in self.owned)
        for name in self._values:
            accepted = name.startswith(prefixes) or name in self._options or name.startswith(FOREIGN)
            if not accepted and not self._node.has_parameter(name):
                declared = [*(f"{prefix}.." for prefix in prefixes), *declared_parameters(self._node)]
                raise unknown(name, f"parameter of {self._node.get_name()}", name, declared)

    def _loaded(self, values: Data) -> Scenario:
        scenario, case, overrides, rig = (values.get(name, self._defaults[name]) for name in _OF_SCENARIO)
        if not scenario:
            raise ConfigError(f"scenario: missing. Set a path, or one of {', '.join(files.shipped())}")
        if self._built is not None and scenario == self._built.name:
            scenario = self._built
        self._file = files.load(scenario, [entry for entry in overrides if entry], case, rig)
        prefixes = tuple(f"{section}." for section in self.owned)
        owned = [(name.split("."), value) for name, value in values.items() if name.startswith(prefixes)]
        return replace(self._file, owned)

    def _check_set(self, changes: Sequence[Parameter]) -> SetParametersResult:
        mine = self._mine(changes)
        try:
            if mine and self._frozen():
                raise ConfigError(
                    f"{', '.join(mine)}: cannot change while the node is configured. Clean up the node first"
                )
            for name, value in mine.items():
                if name in self._options:
                    self._check_option(name, value)
            values = self._with(mine)
            if mine and values.get("scenario"):
                self._loaded(values)
        except ConfigError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _follow_set(self, changes: Sequence[Parameter]) -> None:
        if mine := self._mine(changes):
            self._values = self._with(mine)
            self._declare_sections()

    def _mine(self, changes: Sequence[Parameter]) -> Data:
        accepted = () if self._declaring else (*self._options, *self._sections)
        return {parameter.name: plain(parameter) for parameter in changes if parameter.name in accepted}

    def _with(self, changes: Mapping[str, object]) -> dict[str, object]:
        values = self._values
        if "scenario" in changes:
            values = initial_values(self._node) | {name: values[name] for name in values if name in self._options}
        return values | dict(changes)

    def _declare_sections(self) -> None:
        self._declaring = True
        for name in self._sections:
            self._node.undeclare_parameter(name)
        try:
            self._check_options()
            declared_rows = list(rows(self._loaded(self._values), self.owned))
        except Exception:  # the configuration raises and reports this error again
            declared_rows = []
        for row in declared_rows:
            declare(self._node, *row)
        self._sections = [name for name, *_ in declared_rows]
        self._declaring = False
