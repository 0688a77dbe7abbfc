# SPDX-License-Identifier: Apache-2.0
"""Options of a run, declared once for all interfaces.

:class:`RunOptions` defines the arguments of ``rths run``, the launch arguments, the ROS parameters of the nodes
and the keywords of ``rths_nodes.run``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import attrs

from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, show, unknown
from rths_nodes.core.parameters import Spec, declared, evolved, flag, number, params, text, texts
from rths_nodes.core.validation import from_data

EMBEDDED, COMPOSED, PROCESSES = HOSTS = ("embedded", "composed", "processes")

LOCKSTEP, REALTIME = PACES = ("lockstep", "realtime")

AUTO, STAGES, KERNELS, COMPILED = STUDY_ENGINES = ("auto", "python", "kernels", "compiled")
EXECUTIVE = "executive"
"""Engine that runs the loop over kernels in a native process. It is never chosen automatically."""
ENGINES = (*STUDY_ENGINES, EXECUTIVE)

OVER_KERNELS = KERNELS, COMPILED

ONE_NODE, NODE_PER_AXIS = ACTUATOR_NODES = ("one", "per_axis")

RELIABLE, BEST_EFFORT = RELIABILITIES = ("reliable", "best_effort")
"""Delivery of the loop's messages. Only ``reliable`` sends lost messages again."""

SOCKETS, TOPICS = TRANSPORTS = ("sockets", "topics")

OWN_RECORDER, ROSBAG2, NO_RECORDER = RECORDERS = ("own", "rosbag2", "none")

OBSERVERS = ("monitor", "recorder")
"""Nodes that subscribe to the loop's topics but send the loop no data."""

NAMESPACE = "rths"

COMMAND, LAUNCH, NODE, PYTHON = "command", "launch", "node", "python"

DEFAULTS: dict[str, dict[str, object]] = {
    LAUNCH: {"scenario": "chen_ricles_2010", "host": PROCESSES},
    NODE: {"host": PROCESSES},
}


def offered(*everywhere: str, **places: str) -> dict[str, str]:
    """Return the names of an option by interface: ``everywhere`` in all, ``places`` in individual interfaces.

    Other keys are ``metavar``, and ``roles``: nodes with this parameter (default: all), as one string.
    """
    return {interface: name for name in everywhere for interface in (COMMAND, LAUNCH, NODE, PYTHON)} | places


@params
class RunOptions:
    """Options of a run. Raises ConfigError if a value or a combination is invalid."""

    scenario: str = text(
        "name of a shipped scenario (rths list scenario) or path of a YAML file", places=offered("scenario")
    )
    rig: str = text(
        "rig of the test: name of a shipped rig file (rths list rig_file) or path of a rig file; default: "
        "the rig of the scenario",
        "",
        places=offered("rig", command="--rig", metavar="RIG"),
    )
    case: str = text(
        "variant of the scenario (rths check SCENARIO lists them)",
        "",
        places=offered("case", command="--case", metavar="NAME"),
    )
    overrides: tuple[str, ...] = texts(
        "values to change in the scenario, as section.key=value",
        places=offered("overrides", command="--set", metavar="SECTION.KEY=VALUE"),
    )
    host: str = text(
        "host of the test. embedded: one process without ROS; composed: all nodes in one process; processes: "
        "each node in its own process",
        EMBEDDED,
        HOSTS,
        places=offered(command="--host", node="host", python="host", roles="recorder"),
    )
    engine: str = text(
        "engine that computes the test in the host embedded; all engines give the same bits. python: stage by "
        "stage; kernels: a loop over kernels, up to seven times as fast; compiled: this loop in C (requires a C "
        "compiler); executive: this loop in its own process, also in real time; auto: the engine of the "
        "scenario or the rig file, otherwise kernels if the scenario has this loop and the test is not "
        "recorded, otherwise python",
        AUTO,
        ENGINES,
        places=offered(command="--engine", python="engine"),
    )
    pace: str = text(
        "lockstep: as fast as the machine allows; realtime: in real time, by the clock",
        LOCKSTEP,
        PACES,
        places=offered("pace", command="--pace"),
    )
    actuator_nodes: str = text(
        "one: one actuator node for the rig; per_axis: an additional node for each axis, in its own namespace "
        "(not for a rig that couples its axes)",
        ONE_NODE,
        ACTUATOR_NODES,
        places=offered(command="--actuator-nodes", launch="actuator_nodes", python="actuator_nodes"),
    )
    separate: tuple[str, ...] = texts(
        "nodes that get their own process in the host composed",
        OBSERVERS,
        places=offered(command="--separate", launch="separate", python="separate"),
    )
    namespace: str = text(
        "namespace of the rig's nodes and topics; rigs on the same machine need different namespaces",
        NAMESPACE,
        places=offered(command="--namespace", launch="namespace", python="namespace", metavar="NAME"),
    )
    record: str = text(
        "directory of the recording; the directory must not exist",
        "",
        places=offered(
            command="--record", launch="directory", node="record", python="record", metavar="DIR", roles="recorder"
        ),
    )
    recorder: str = text(
        "own: recorder of rths_nodes, complete from the first sample; rosbag2: 'ros2 bag record -s mcap' on all "
        "topics of the rig (may miss the first samples, and rths report cannot read it); none: no recording",
        OWN_RECORDER,
        RECORDERS,
        places=offered(launch="record"),
    )
    record_topics: tuple[str, ...] = texts(
        "topics of other programs to record, once they have a publisher",
        places=offered(launch="record_topics", node="record_topics", roles="recorder"),
    )
    run_id: str = text(
        "identifier of the run, the same for all nodes; default: built from the name of the scenario and the time",
        "",
        places=offered(launch="run_id", node="run_id", python="run_id"),
    )
    nodes: tuple[str, ...] = texts(
        "nodes that this machine starts, if other machines start the remaining nodes; default: all",
        places=offered(launch="nodes", node="nodes"),
    )
    reliability: str = text(
        "reliability of Target, Command and Measurement, the same for all nodes; best_effort needs less time "
        "and does not repeat lost messages",
        RELIABLE,
        RELIABILITIES,
        places=offered(launch="reliability", node="reliability", python="reliability"),
    )
    transport: str = text(
        "transport of the loop's messages between processes of one machine. sockets: without the middleware; "
        "topics: through the middleware, for comparison and troubleshooting. Other programs always receive the "
        "messages on the topics",
        SOCKETS,
        TRANSPORTS,
        places=offered("transport", command="--transport"),
    )
    faults: tuple[str, ...] = texts(
        "deliberate faults, as KIND@TIME[:ARGUMENTS], e.g. delay@2:target,3; the same for all nodes",
        places=offered("faults", command="--fault", metavar="KIND@TIME[:ARGUMENTS]"),
    )
    autostart: bool = flag(
        "true: configure and activate the nodes at once; false: the nodes wait for 'ros2 lifecycle set ... "
        "configure' and 'activate'",
        True,
        places=offered(launch="autostart", node="autostart"),
    )
    clock: bool = flag(
        "in lockstep, publish the time of the test on /clock, for tools with use_sim_time",
        False,
        places=offered("clock", command="--clock", roles="actuator"),
    )
    peer_timeout: float = number(
        "time within which all nodes must be ready",
        "s",
        30.0,
        more_than=0.0,
        at_most=86_400.0,
        places=offered(launch="peer_timeout", node="peer_timeout", python="peer_timeout"),
    )

    def validate(self, path: str) -> None:
        checked_namespace(self.namespace)
        if self.clock:
            check_clock(self.pace)
        if self.host == EMBEDDED:
            if self.pace == REALTIME and self.engine != EXECUTIVE:
                raise ConfigError(
                    "pace = 'realtime': the host embedded has no clock. Use the host composed or processes, or "
                    "engine = executive"
                )
            for name in ("actuator_nodes", "reliability", "transport", "clock"):
                value = getattr(self, name)
                if value != declared(RunOptions)[name].default:
                    raise ConfigError(
                        f"{name} = {value!r}: the host embedded has no nodes. Use the host composed or processes"
                    )
        elif self.engine in OVER_KERNELS:
            raise ConfigError(f"engine = {self.engine!r}: requires host = embedded, not {self.host}")
        elif self.engine == EXECUTIVE and (self.host != COMPOSED or self.actuator_nodes != ONE_NODE):
            where = self.host if self.host != COMPOSED else f"actuator_nodes = {self.actuator_nodes}"
            raise ConfigError(f"engine = {self.engine!r}: requires host = embedded or composed, not {where}")
        if self.engine in (*OVER_KERNELS, EXECUTIVE) and self.faults:
            raise ConfigError(f"engine = {self.engine!r}: only the engine python can inject faults")
        if self.separate and self.host != COMPOSED:
            raise ConfigError(f"separate = {', '.join(self.separate)}: requires host = composed, not {self.host}")
        if self.nodes and not self.run_id:
            raise ConfigError(
                f"nodes = {' '.join(self.nodes)}: run_id is missing. Give every machine the same run_id, because "
                "the run_id identifies the test"
            )
        if "recorder" in self.separate and not self.recorded:
            raise ConfigError("separate = recorder: the test is not recorded, so it has no recorder")

    def changed(self, **fields: object) -> RunOptions:
        return evolved(self, **fields)

    @property
    def recorded(self) -> bool:
        return bool(self.record) and self.recorder == OWN_RECORDER

    def values(self, interface: str) -> Data:
        return {name: getattr(self, option.field) for name, option in options(interface).items()}


@dataclass(frozen=True)
class Option:
    field: str
    name: str
    spec: Spec
    default: Any
    """Default value; ``attrs.NOTHING`` for a required option."""

    @property
    def required(self) -> bool:
        return self.default is attrs.NOTHING

    @property
    def metavar(self) -> str:
        return self.spec.places.get("metavar", "")

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(self.spec.places.get("roles", "").split())

    @property
    def doc(self) -> str:
        return f"{self.spec.doc}, {self.spec.unit}" if self.spec.unit else self.spec.doc


def options(interface: str) -> dict[str, Option]:
    defaults, result = DEFAULTS.get(interface, {}), {}
    for field, spec in declared(RunOptions).items():
        if name := spec.places.get(interface):
            result[name] = Option(field, name, spec, defaults.get(field, spec.default))
    return result


def run_options(values: Mapping[str, object], interface: str = PYTHON, **fixed: object) -> RunOptions:
    """Return RunOptions from ``values``, whose keys are option names of ``interface``. None selects the default.

    ``fixed`` holds fields for which the interface has no option. Paths are converted to strings. Raises
    ConfigError if a name or a value is invalid.
    """
    known_options, data = options(interface), DEFAULTS.get(interface, {}) | fixed
    for name, value in values.items():
        if name not in known_options:
            raise unknown(name, "option", name, known_options)
        if value is not None:
            data[known_options[name].field] = os.fspath(value) if isinstance(value, os.PathLike) else value
    return from_data(RunOptions, data)


def check_clock(pace: str) -> None:
    if pace != LOCKSTEP:
        raise ConfigError(
            f"clock = true: requires pace = {LOCKSTEP}, because time stamps are from the system clock with pace = "
            f"{pace!r}"
        )


_NAMESPACE = re.compile(r"/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*/?", re.ASCII)
_LONGEST_NAMESPACE = 100
"""Largest length of a namespace, in characters. Names that the middleware derives from it are limited to 255."""


def checked_namespace(name: str) -> str:
    if not _NAMESPACE.fullmatch(name) or "__" in name:
        raise ConfigError(
            f"namespace = {show(name)}: must be ASCII letters, digits and single _, and must not begin with a "
            "digit. Separate parts by /"
        )
    if len(name) > _LONGEST_NAMESPACE:
        raise ConfigError(
            f"namespace = {show(name)}: has {len(name)} characters, but must have <= {_LONGEST_NAMESPACE}"
        )
    return name.strip("/")
