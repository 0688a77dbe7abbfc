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
"""QoS reliability of the loop's messages. Only ``reliable`` repeats lost messages."""

SOCKETS, TOPICS = TRANSPORTS = ("sockets", "topics")

OWN_RECORDER, ROSBAG2, NO_RECORDER = RECORDERS = ("own", "rosbag2", "none")

OBSERVERS = ("monitor", "recorder")
"""Nodes that subscribe to the loop's topics but do not send data to the loop."""

NAMESPACE = "rths"

COMMAND, LAUNCH, NODE, PYTHON = "command", "launch", "node", "python"

DEFAULTS: dict[str, dict[str, object]] = {
    LAUNCH: {"scenario": "chen_ricles_2010", "host": PROCESSES},
    NODE: {"host": PROCESSES},
}


def offered(*everywhere: str, **places: str) -> dict[str, str]:
    """Return the names of an option by interface. Names in ``places`` replace the common name ``everywhere``.

    ``places`` can also contain ``metavar``, and ``roles``: the nodes with this parameter, in one string.
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
        "engine that computes the test if the host is embedded; results are bit-identical. python: stage by "
        "stage; kernels: a loop over kernels, up to seven times as fast; compiled: the loop over kernels in C "
        "(requires a C compiler); executive: the loop over kernels in its own process, also in real time; auto: "
        "the engine of scenario or rig file, otherwise kernels if the scenario supports them and the test is not "
        "recorded, otherwise python",
        AUTO,
        ENGINES,
        places=offered(command="--engine", python="engine"),
    )
    pace: str = text(
        "lockstep: as fast as the machine allows; realtime: at the servo rate, in real time",
        LOCKSTEP,
        PACES,
        places=offered("pace", command="--pace"),
    )
    actuator_nodes: str = text(
        "one: one actuator node for the rig; per_axis: an additional node for each axis, in its own namespace "
        "(not possible if the rig couples its axes)",
        ONE_NODE,
        ACTUATOR_NODES,
        places=offered(command="--actuator-nodes", launch="actuator_nodes", python="actuator_nodes"),
    )
    separate: tuple[str, ...] = texts(
        "nodes that run in their own process if the host is composed",
        OBSERVERS,
        places=offered(command="--separate", launch="separate", python="separate"),
    )
    namespace: str = text(
        "namespace of the rig's nodes and topics; rigs on the same machine need different namespaces",
        NAMESPACE,
        places=offered(command="--namespace", launch="namespace", python="namespace", metavar="NAME"),
    )
    record: str = text(
        "directory of the recording, which is created and must not exist",
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
        "topics of other programs to record; recording begins when a topic has a publisher",
        places=offered(launch="record_topics", node="record_topics", roles="recorder"),
    )
    run_id: str = text(
        "identifier of the run, the same for all nodes; default: built from the name of the scenario and the time",
        "",
        places=offered(launch="run_id", node="run_id", python="run_id"),
    )
    nodes: tuple[str, ...] = texts(
        "nodes to start on this machine, if other machines start the remaining nodes; default: all",
        places=offered(launch="nodes", node="nodes"),
    )
    reliability: str = text(
        "QoS reliability of Target, Command and Measurement, the same for all nodes; best_effort is faster but "
        "does not repeat lost messages",
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
        "faults to inject, as KIND@TIME[:ARGUMENTS], e.g. delay@2:target,3; the same for all nodes",
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
                    "pace = 'realtime': host = embedded has no clock. Use host = composed or processes, or "
                    "engine = executive"
                )
            for name in ("actuator_nodes", "reliability", "transport", "clock"):
                value = getattr(self, name)
                if value != declared(RunOptions)[name].default:
                    raise ConfigError(
                        f"{name} = {value!r}: host = embedded has no nodes. Use host = composed or processes"
                    )
        elif self.engine in OVER_KERNELS:
            raise ConfigError(f"engine = {self.engine!r}: requires host = embedded, not {self.host}")
        elif self.engine == EXECUTIVE and (self.host != COMPOSED or self.actuator_nodes != ONE_NODE):
            where = self.host if self.host != COMPOSED else f"actuator_nodes = {self.actuator_nodes}"
            raise ConfigError(f"engine = {self.engine!r}: requires host = embedded or composed, not {where}")
        if self.engine in (*OVER_KERNELS, EXECUTIVE) and self.faults:
            raise ConfigError(f"engine = {self.engine!r}: cannot inject faults. Use engine = python")
        if self.separate and self.host != COMPOSED:
            raise ConfigError(f"separate = {', '.join(self.separate)}: requires host = composed, not {self.host}")
        if self.nodes and not self.run_id:
            raise ConfigError(
                f"nodes = {' '.join(self.nodes)}: run_id is missing. Give every machine the same run_id, because "
                "the run_id identifies the test"
            )
        if "recorder" in self.separate and not self.recorded:
            raise ConfigError("separate = recorder: the test has no recorder, because it is not recorded")

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
            f"clock = true: requires pace = {LOCKSTEP}, because pace = {pace!r} uses time stamps of the system "
            "clock"
        )


_NAMESPACE = re.compile(r"/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*/?", re.ASCII)
_LONGEST_NAMESPACE = 100
"""Largest length of a namespace, in characters. The middleware limits names derived from it to 255 characters."""


def checked_namespace(name: str) -> str:
    if not _NAMESPACE.fullmatch(name) or "__" in name:
        raise ConfigError(
            f"namespace = {show(name)}: must consist of ASCII letters, digits and single _, and must not begin "
            "with a digit. Separate parts by /"
        )
    if len(name) > _LONGEST_NAMESPACE:
        raise ConfigError(
            f"namespace = {show(name)}: is {len(name)} characters long, but must be <= {_LONGEST_NAMESPACE}"
        )
    return name.strip("/")
