# SPDX-License-Identifier: Apache-2.0
"""The ROS parameters of a node: options of the run, and the sections of the scenario that the node owns.

They are declared when the node is made and can be set until it is configured. A wrong value that a node is started
with is refused when it is configured, with its reason; one that is set later, at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import attrs
from rcl_interfaces.msg import SetParametersResult
from rclpy.node import Node
from rclpy.parameter import Parameter

from rths_nodes.core import yaml_text
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.validation import to_data
from rths_nodes.core.version import __version__
from rths_nodes.loop.options import BEST_EFFORT, LOCKSTEP, NODE, SOCKETS, check_clock, options
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import LOCKSTEP_WINDOW
from rths_nodes.ros import names
from rths_nodes.ros.names import ACTUATOR, AXIS, COMPENSATOR, INTEGRATOR, MONITOR, RECORDER
from rths_nodes.ros.nodes import parameters
from rths_nodes.ros.transport import qos_overrides
from rths_nodes.ros.transport.node_lines import Load
from rths_nodes.ros.transport.wiring import Place

PEERS = "peers"

OWNED = {
    INTEGRATOR: ("ground_motion", "structure", "integrator", "setup", "semi_active"),
    COMPENSATOR: ("ramp", "setup", "compensator"),
    ACTUATOR: ("axes", "rig", "port"),
    MONITOR: ("monitor",),
    RECORDER: ("recording",),
}
"""Sections of the scenario that a node has as parameters. With a node per axis each has its own of ``axes``."""

READ = {
    COMPENSATOR: ("bridge",),
    ACTUATOR: ("bridge", "heartbeat"),
    AXIS: ("port",),
    MONITOR: ("structure",),  # its elastic energy is the scale of the energy error
}
"""Sections of another node that the stage needs, too: they must be the same there."""

TEST = "test"
"""Key of what NodeStatus says of the whole test, beside the sections: for a driver node, which has no scenario."""

_OF_SCENARIO = ("scenario", "case", "overrides", "rig")


@dataclass(frozen=True)
class Setting:
    """An option of the run as a parameter of a node."""

    default: Any
    doc: str
    choices: tuple[str, ...] = ()


def settings_of(role: str) -> dict[str, Setting]:
    """The options of the run that a node has as parameters, by name."""
    found = {
        name: Setting(_as_parameter(option.default), option.doc, option.spec.choices)
        for name, option in options(NODE).items()
        if not option.roles or role in option.roles
    }
    return found | {PEERS: Setting(list(names.NODES), "the nodes that take part")}


def _as_parameter(default: object) -> object:
    """Convert a value to the form of ROS: an empty list would have no type."""
    if default is attrs.NOTHING:
        return ""
    return (list(default) or [""]) if isinstance(default, tuple) else default


class NodeSettings:
    """The parameters of ``node``, which is at ``place``; they cannot be set any more once it is ``frozen()``.

    A scenario that has been ``built`` counts as long as the parameter ``scenario`` names it.
    """

    def __init__(
        self, node: Node, place: Place, frozen: Callable[[], bool], built: Scenario | None = None
    ) -> None:
        self._node, self.place, self._frozen, self._built = node, place, frozen, built
        self._options = settings_of(place.role)
        self._given = parameters.given(node)
        """By name, what the node was started with and what was set since."""
        self._declaring = False
        self._sections: list[str] = []
        """The parameters that are declared for sections of the scenario."""
        self.lockstep = True
        """True when the pace is lockstep; known once the node is configured, as are scenario and hash."""
        self.scenario: Scenario
        self.hash = ""
        """Hash of what all nodes must agree on."""
        for name, setting in self._options.items():
            parameters.declare(node, name, self._given.get(name, setting.default), setting.doc)
        self._declare_sections()
        node.add_on_set_parameters_callback(self._check_set)
        node.add_post_set_parameters_callback(self._follow_set)

    # -- values -------------------------------------------------------------------------------------------

    def value(self, name: str) -> Any:
        return self._node.get_parameter(name).value

    def load_of_lines(self, size: int) -> Load | None:
        """Return the load of lines whose messages have ``size`` bytes at most; None where there shall be none."""
        if self.value("transport") != SOCKETS:
            return None
        return Load(max(LOCKSTEP_WINDOW, round(self.scenario.servo_rate)), size, not self.lockstep)

    @property
    def best_effort(self) -> bool:
        """True when a lost message of the loop is not sent again."""
        return bool(self.value("reliability") == BEST_EFFORT)

    @property
    def autostart(self) -> bool:
        """True unless somebody else walks the node through its lifecycle."""
        return bool(self.value("autostart"))

    @property
    def tells_clock(self) -> bool:
        """True when the node publishes the time of the test on /clock."""
        return self.place.role == ACTUATOR and bool(self.value("clock"))

    @property
    def peers(self) -> tuple[str, ...]:
        return tuple(self.value(PEERS))

    @property
    def here(self) -> tuple[str, ...]:
        """The nodes of this machine, where others have the rest of the test; empty where it has all of them."""
        return tuple(filter(None, self.value("nodes")))

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """The nodes that other machines have."""
        here = (*self.here, names.CONSOLE)
        return tuple(peer for peer in self.peers if self.here and peer not in here)

    @property
    def patience(self) -> float | None:
        """Time to wait for the actuator node on another machine, s; None where it is on this one."""
        elsewhere = bool(self.here) and ACTUATOR not in self.here
        return float(self.value("peer_timeout")) if elsewhere else None

    @property
    def speaks_here(self) -> bool:
        """True for the node that says for this machine how the test ended: the actuator node is on another."""
        return bool(self.here) and ACTUATOR not in self.here and self.here[0] == self.place.peer

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(filter(None, map(names.axis_of, self.peers)))

    @property
    def faults(self) -> list[str]:
        return [words for words in self.value("faults") if words]

    @property
    def owned(self) -> tuple[str, ...]:
        """Sections of the scenario that are parameters of this node, dotted where they are parts."""
        if self.place.role == AXIS:
            return (f"axes.{self.place.axis}",)
        owned = OWNED[self.place.role]
        return tuple(name for name in owned if name != "axes") if self.axes else owned

    def facts(self) -> Data:
        """Fields of NodeStatus: scenario sections that this node uses, how long the test is, and the hash."""
        both = (*self.owned, *READ.get(self.place.role, ()))
        sections = {name: to_data(parameters.section(self.scenario, name)) for name in both}
        sections[TEST] = {"servo_rate": self.scenario.servo_rate, "samples": self.scenario.samples}
        if self.scenario.hops.depth:
            sections["hops"] = to_data(self.scenario.hops)
        return {
            "node": self.place.peer,
            "scenario_hash": self.hash,
            "parameters": yaml_text.dump(sections),
            "version": __version__,
        }

    # -- configuration ------------------------------------------------------------------------------------

    def load(self) -> Scenario:
        """The scenario of the parameters. Raises ConfigError for a wrong value, and for an unknown name."""
        self._check_options()
        self._check_names()
        qos_overrides.check(self._node, self.place, self._given)
        self.lockstep = self.value("pace") == LOCKSTEP
        if self.tells_clock:
            check_clock(self.value("pace"))
        self.scenario = self._loaded(self._given)
        self.hash = self.scenario.shared_hash(self.value("run_id"))
        if self.here:  # each machine has a file of its own: all of it must be the same
            self.hash = self._file.whole_hash(self.value("run_id"))
        return self.scenario

    def _check_options(self) -> None:
        for name, setting in self._options.items():
            self._check_option(name, self._given.get(name, setting.default))

    def _check_option(self, name: str, value: Any) -> None:
        setting = self._options[name]
        if type(value) is not type(setting.default):
            raise ConfigError(f"{name} = {value!r}: must be {type(setting.default).__name__}")
        if setting.choices and value not in setting.choices:
            raise ConfigError(f"{name} = {value!r}: must be one of {', '.join(setting.choices)}")
        for peer in value if name in (PEERS, "nodes") else ():
            if peer and peer not in names.PEERS and not names.axis_of(peer):
                raise ConfigError(f"{name}: unknown node {peer!r}; known: {', '.join(names.PEERS)}")

    def _check_names(self) -> None:
        prefixes = tuple(f"{section}." for section in self.owned)
        for name in self._given:
            known = name.startswith(prefixes) or name in self._options or name.startswith(parameters.FOREIGN)
            if not known and not self._node.has_parameter(name):
                declared = [*(f"{prefix}.." for prefix in prefixes), *self._node._parameters]
                raise unknown(name, f"parameter of {self._node.get_name()}", name, declared)

    def _loaded(self, given: Data) -> Scenario:
        scenario, case, overrides, rig = (given.get(name, self._options[name].default) for name in _OF_SCENARIO)
        if not scenario:
            raise ConfigError(f"scenario: missing; known: {', '.join(files.shipped())}, or a path")
        if self._built is not None and scenario == self._built.name:
            scenario = self._built
        self._file = loaded = files.load(scenario, [entry for entry in overrides if entry], case, rig)
        return parameters.effective(loaded, given, self.owned)

    # -- parameters that are set --------------------------------------------------------------------------

    def _check_set(self, changes: Sequence[Parameter]) -> SetParametersResult:
        mine = {each.name: parameters.plain(each) for each in changes if self._owns(each.name)}
        if self._declaring or not mine:
            return SetParametersResult(successful=True)
        if self._frozen():
            return _refused(f"{', '.join(mine)}: the node is configured; clean it up to change its parameters")
        try:
            for name, value in mine.items():
                if name in self._options:
                    self._check_option(name, value)
            given = self._with(mine)
            if given.get("scenario"):
                self._loaded(given)
        except ConfigError as error:
            return _refused(str(error))
        return SetParametersResult(successful=True)

    def _follow_set(self, changes: Sequence[Parameter]) -> None:
        mine = {each.name: parameters.plain(each) for each in changes if self._owns(each.name)}
        if not self._declaring and mine:
            self._given = self._with(mine)
            self._declare_sections()

    def _owns(self, name: str) -> bool:
        return name in self._options or name in self._sections

    def _with(self, changes: Mapping[str, object]) -> dict[str, object]:
        """Return the values with ``changes``; those of sections belong to the scenario they were set for."""
        given = self._given
        if "scenario" in changes:
            given = parameters.given(self._node) | {name: given[name] for name in given if name in self._options}
        return given | dict(changes)

    def _declare_sections(self) -> None:
        self._declaring = True
        for name in self._sections:
            self._node.undeclare_parameter(name)
        try:
            self._check_options()
            rows = parameters.rows(self._loaded(self._given), self.owned)
        except Exception:  # it comes again when the node is configured, and is told then
            rows = []
        for row in rows:
            parameters.declare(self._node, row.name, row.value, row.doc, row.spec)
        self._sections = [row.name for row in rows]
        self._declaring = False


def _refused(reason: str) -> SetParametersResult:
    return SetParametersResult(successful=False, reason=reason)
