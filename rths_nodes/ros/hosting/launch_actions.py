"""Descriptions of nodes -> launch actions: what the files in ``launch/`` share.

Nothing of the wiring stands here; that is ``launching.describe``.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ament_index_python.resources import has_resource
from launch.actions import (
    DeclareLaunchArgument,
    EmitEvent,
    ExecuteProcess,
    LogInfo,
    OpaqueFunction,
    RegisterEventHandler,
)
from launch.event_handlers import OnProcessExit
from launch.events import matches_action
from launch.events.process import SignalProcess
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.utilities import make_namespace_absolute, prefix_namespace

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.faults import kinds as faulty
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.axis_layout import ACTUATOR_NODES
from rths_nodes.ros import names
from rths_nodes.ros.hosting import descriptions
from rths_nodes.ros.names import RECORDER
from rths_nodes.ros.nodes.base import PACES, RELIABILITIES

FLAG = ("true", "false")
TRIPPED = 3
"""Exit code of a node whose test was tripped."""

ARGUMENTS: dict[str, tuple[str, str, Sequence[str]]] = {
    "scenario": ("chen_ricles_2010", "name of a shipped scenario (rths list scenario) or path of a YAML file", ()),
    "case": ("", "a variant that the scenario names (rths check SCENARIO lists them)", ()),
    "overrides": (
        "",
        "values to change, as --set of rths run, separated by spaces: 'compensator.alpha_es=20 duration=10'",
        (),
    ),
    "pace": ("lockstep", "as fast as the machine allows, or by the clock", PACES),
    "actuator_nodes": (
        "one",
        "one actuator node for the whole rig, or one more for each axis, in a namespace of its own (not for a rig "
        "that couples its axes)",
        ACTUATOR_NODES,
    ),
    "record": (
        "own",
        "own: our recorder, complete from the first sample; rosbag2: 'ros2 bag record -s mcap' on all topics of "
        "the rig, which may miss the first samples; none: no recording",
        ("own", "rosbag2", "none"),
    ),
    "directory": ("", "of the recording; it must not exist. Empty: runs/<run id>", ()),
    "run_id": ("", "tells this run from others; the same for all nodes. Empty: made of scenario and time", ()),
    "namespace": (names.NAMESPACE, "of the rig's nodes and topics", ()),
    "reliability": (
        RELIABILITIES[0],
        "of Target, Command and Measurement; best_effort is cheaper, and what is lost stays lost",
        RELIABILITIES,
    ),
    "autostart": ("true", "false: the nodes wait for 'ros2 lifecycle set ... configure' and 'activate'", FLAG),
    "faults": ("", "put in on purpose, as --fault of rths run, separated by spaces: 'drop@2:command'", ()),
    "log_level": ("info", "of the nodes", ("debug", "info", "warn", "error", "fatal")),
    "use_sim_time": ("false", "handed to the nodes; the pace of a test does not depend on it", FLAG),
}
"""Default, meaning and choices of the launch arguments, by name."""


def declare(name: str, default: str, description: str, choices: Sequence[str]) -> DeclareLaunchArgument:
    """One launch argument."""
    return DeclareLaunchArgument(
        name, default_value=default, description=description, choices=list(choices) or None
    )


def arguments(**defaults: str) -> list[DeclareLaunchArgument]:
    """All launch arguments of a test; ``defaults`` take the place of the usual ones."""
    return [
        declare(name, defaults.get(name, default), description, choices)
        for name, (default, description, choices) in ARGUMENTS.items()
    ]


def when_known(make: Callable[[Any], list[Any]]) -> OpaqueFunction:
    """The actions that ``make(context)`` gives, once the launch arguments are known.

    What must not run is refused here, before any node starts: launch prints one message and ends with code 1.
    """

    def function(context: Any) -> list[Any]:
        try:
            return make(context)
        except ConfigError as error:
            raise RuntimeError(f"rths: {error}") from None

    return OpaqueFunction(function=function)


class LaunchedTest:
    """One test: its nodes as launch actions, all with the same run id.

    ``check_free`` refuses a directory in which a recording cannot be made. Raises ConfigError.
    """

    def __init__(self, context: Any, check_free: Callable[[Path], None]) -> None:
        chosen = {name: context.launch_configurations[name] for name in ARGUMENTS}
        overrides = split(chosen["overrides"])
        scenario = files.load(chosen["scenario"], overrides, chosen["case"])
        Loop(Assembly(scenario))  # builds every component
        faults = split(chosen["faults"])
        parsed, recorded = [faulty.parse(words) for words in faults], chosen["record"] == "own"
        faulty.check(parsed, scenario, "processes", chosen["pace"], recorded)
        self.run_id = chosen["run_id"] or scenario.run_id()
        self.directory = Path(chosen["directory"] or Path("runs", self.run_id)).absolute()
        self._record, self._log_level = chosen["record"], chosen["log_level"]
        if self._record == "rosbag2":
            check_rosbag2(self.directory)
        elif self._record == "own":
            check_free(self.directory)
        self._common = {name: chosen[name] == "true" for name in ("autostart", "use_sim_time")}
        # Launch itself leaves orphans on SIGTERM. Under a launch-prefix the parent of a node is another process.
        direct = not context.launch_configurations.get("launch-prefix")
        parent = {descriptions.PARENT: str(os.getpid())} if direct else {}
        self._environment = parent
        self._namespace = chosen["namespace"]
        self.namespace = make_namespace_absolute(
            prefix_namespace(context.launch_configurations.get("ros_namespace"), self._namespace)
        )
        self.axes = descriptions.axes_with_nodes(scenario, chosen["actuator_nodes"])
        """The axes that have a node of their own."""
        self._peers: dict[Any, str] = {}
        self._descriptions = {
            description.peer: description
            for description in descriptions.describe(
                scenario=chosen["scenario"],
                case=chosen["case"],
                overrides=overrides,
                pace=chosen["pace"],
                run_id=self.run_id,
                record=str(self.directory) if self._record == "own" else "",
                namespace=self._namespace.strip("/"),
                reliability=chosen["reliability"],
                axes=self.axes,
                faults=faults,
            )
        }

    def axis(self, name: str) -> Node:
        """The node of the axis ``name``, in its namespace."""
        return self.node(names.axis_node(name))

    def node(self, peer: str) -> Node:
        """The node that the others call ``peer``: its role, for the node of an axis ``<axis>/axis``."""
        description = self._descriptions[peer]
        role = description.role
        parameters = description.parameters | self._common
        # A type for each: launch would read text like 7e3 as a number otherwise.
        typed = {name: ParameterValue(value, value_type=_type(value)) for name, value in parameters.items()}
        patience = {"sigterm_timeout": str(descriptions.INDEXING_S)} if role == RECORDER else {}
        node = Node(
            package="rths_nodes",
            executable=description.executable,
            name=role,
            namespace="/".join(filter(None, (self._namespace, description.axis))),
            parameters=[typed],
            remappings=list(description.remappings),
            ros_arguments=["--log-level", self._log_level],
            additional_env=self._environment,
            output="both",
            **patience,
        )
        self._peers[node] = peer
        return node

    def recorders(self) -> list[ExecuteProcess]:
        """What records: our recorder, a rosbag2 process, or nothing."""
        if self._record == "own":
            return [self.node(RECORDER)]
        if self._record == "none":
            return []
        topics = [f"{self.namespace}/{name}" for name in names.TOPICS]
        command = ["ros2", "bag", "record", "-s", "mcap", "-o", str(self.directory), "--topics", *topics]
        return [ExecuteProcess(cmd=command, name="rosbag2", output="both", sigterm_timeout="60")]

    def together(self, processes: Sequence[ExecuteProcess]) -> list[Any]:
        """The actions that run ``processes`` as one test.

        A node that ends with an error ends all of them, and launch with code 1. One that is done does not, nor
        one that ends with a trip: the others then leave in order. A foreign recorder is told to stop when the
        last node has ended.
        """
        running = list(processes)
        trips: list[str] = []

        def on_exit(event: Any, context: Any) -> list[Any]:
            if event.action not in running:
                return []
            running.remove(event.action)
            if context.is_shutdown:
                return []
            name = self._peers.get(event.action, event.process_name.rpartition("-")[0])
            reason = descriptions.death(name, event.returncode)
            if event.returncode == TRIPPED:
                trips.append(reason)
            elif event.returncode != 0:
                # Shuts down with a reason and a non-zero exit code; the event Shutdown would end with 0.
                raise RuntimeError(f"rths: {reason}")
            if not running and trips:
                raise RuntimeError(f"rths: {trips[0]}: the test was tripped")
            if not any(isinstance(process, Node) for process in running):
                return [_interrupt(process) for process in running]
            return []

        words = f"recording: {self.directory}" if self._record != "none" else "no recording"
        return [
            LogInfo(msg=f"rths: run {self.run_id}, {words}"),
            RegisterEventHandler(OnProcessExit(on_exit=on_exit)),
            *processes,  # after the handler: theirs, which print their last words, come first then
        ]


def split(overrides: str) -> list[str]:
    """``a.b=1 c.d='two words'`` -> its assignments. Raises ConfigError."""
    try:
        return shlex.split(overrides)
    except ValueError as error:
        raise ConfigError(f"overrides = {overrides!r}: {error}") from None


def check_rosbag2(directory: Path) -> None:
    """Refuse, with ConfigError, to record by rosbag2 where it is missing or would refuse the directory."""
    missing = [
        package
        for package, found in (
            ("ros2bag", importlib.util.find_spec("ros2bag") is not None),
            ("rosbag2_storage_mcap", has_resource("packages", "rosbag2_storage_mcap")),
        )
        if not found
    ]
    if missing:
        raise ConfigError(f"record = rosbag2: not installed: {', '.join(missing)}; record:=own needs neither")
    if directory.exists():
        raise ConfigError(f"directory = {directory}: exists; rosbag2 wants to make it")


def _type(value: Any) -> Any:
    return list[type(value[0])] if isinstance(value, list) else type(value)  # type: ignore[misc]


def _interrupt(process: ExecuteProcess) -> EmitEvent:
    return EmitEvent(event=SignalProcess(signal_number=signal.SIGINT, process_matcher=matches_action(process)))
