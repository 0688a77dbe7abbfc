# SPDX-License-Identifier: Apache-2.0
"""Launch actions that start the nodes of a test, end the test and report its result. Used in ``launch/``."""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import os
import shlex
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ament_index_python.resources import has_resource
from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity, actions
from launch.event_handlers import OnProcessExit
from launch.events import Shutdown, matches_action
from launch.events.process import ProcessExited, SignalProcess
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.utilities import make_namespace_absolute, prefix_namespace

from rths_nodes.core import yaml_text
from rths_nodes.core.addresses import LARGEST_PORT, check_port
from rths_nodes.core.data import unflatten
from rths_nodes.core.errors import ConfigError, quoted, unknown
from rths_nodes.loop import faults as faulty
from rths_nodes.loop import options as offered
from rths_nodes.loop import outcomes
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.outcomes import IN_ORDER, ExitCode, LastWords, of_nodes
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros import environment, names, stack_files
from rths_nodes.ros.hosting import node_processes
from rths_nodes.ros.transport import middleware

FLAG = ("true", "false")
RVIZ = ("robot_state_publisher", "rviz2")
MCAP = "rosbag2_storage_mcap"

OWN_ARGUMENTS: dict[str, tuple[str, str, Sequence[str]]] = {
    "log_level": (
        "info",
        "log level of the nodes; the levels of rcl and rmw do not change",
        ("debug", "info", "warn", "error", "fatal"),
    ),
    "use_sim_time": ("false", "ROS parameter of the nodes; does not affect the pace of a test", FLAG),
    "params_file": ("", "file whose ROS parameters override the other arguments", ()),
    "rviz": ("false", "start RViz and a robot_state_publisher, to show a model of the axes", FLAG),
    "page": ("false", "start rths page, which shows the running test in the browser", FLAG),
    "page_port": ("8085", "TCP port of the page; 0 selects a free port, and a port in use is refused", ()),
    "composed": ("false", "run all nodes in one process, in which they pass messages directly", FLAG),
}
PAGE = ("-m", "rths_nodes.app.cli", "page")
"""Python arguments that start the page as a program, because ``rths_nodes.ros`` must not import
``rths_nodes.app``."""


def declare(name: str, default: str, description: str, choices: Sequence[str]) -> actions.DeclareLaunchArgument:
    return actions.DeclareLaunchArgument(
        name, default_value=default, description=description, choices=list(choices) or None
    )


def _declared(option: offered.Option, default: str | None) -> actions.DeclareLaunchArgument:
    several, value = option.spec.kind == "texts", option.default
    description = f"{option.doc}; separate several values with spaces" if several else option.doc
    text = str(value).lower() if isinstance(value, bool) else "" if several else str(value)
    choices = FLAG if option.spec.kind == "flag" else () if several else option.spec.choices
    return declare(option.name, text if default is None else default, description, choices)


def description(
    make: Callable[[LaunchContext], list[LaunchDescriptionEntity]],
    *further: actions.DeclareLaunchArgument,
    composes: bool = False,
    **defaults: str,
) -> LaunchDescription:
    """Return a launch description with the arguments of a test and the entities from ``make(context)``.

    ``composes`` adds the arguments ``composed`` and ``separate``, and ``further`` adds others. ``defaults`` are
    default values by name. Invalid tests and unknown arguments are refused.
    """
    declared = [
        *(
            _declared(option, defaults.get(name))
            for name, option in offered.options(offered.LAUNCH).items()
            if composes or name != "separate"
        ),
        *(declare(name, *row) for name, row in OWN_ARGUMENTS.items() if composes or name != "composed"),
        *further,
    ]
    known_names = [argument.name for argument in declared]

    def function(context: LaunchContext) -> list[LaunchDescriptionEntity]:
        try:
            _check_command_line(context, known_names)
            return make(context)
        except ConfigError as error:
            raise refusal(f"rths: {error}") from None

    return LaunchDescription([*declared, actions.OpaqueFunction(function=function)])


def _check_command_line(context: LaunchContext, known_names: Sequence[str]) -> None:
    """Raise ConfigError for unknown arguments if the launch file was started directly, not included."""
    path = Path(context.locals.current_launch_file_path)
    files = path, path.with_suffix(".xml")  # the XML wrapper itself declares no arguments
    named = any(
        Path(word).absolute() in files or (word in [file.name for file in files] and before in path.parts)
        for before, word in zip(sys.argv, sys.argv[1:], strict=False)
    )
    for word in context.argv if named else ():
        name, sign, _ = word.partition(":=")
        # launch itself handles launch-prefix
        if sign and name not in known_names and not name.startswith("launch-"):
            raise unknown(name, "argument", name, known_names)


SPEAKERS = (names.RIG, names.ACTUATOR, names.RECORDER, names.MONITOR)
"""Roles whose reports take precedence, in this order."""


def refusal(message: str, level: int = logging.ERROR) -> RuntimeError:
    """Return an exception that ends launch with code 1 and prints only ``message``, at ``level``."""

    def without_prefix(record: logging.LogRecord) -> bool:  # prefix "Caught exception in launch ..."
        if record.getMessage().endswith(f": {message}"):
            vars(record).update(levelno=level, levelname=logging.getLevelName(level), msg=message, args=())
        return True

    logging.getLogger("launch").addFilter(without_prefix)
    return RuntimeError(message)


class LaunchedTest:
    """Creates the launch actions for the nodes of a test, with one run id, and monitors the nodes until they exit.

    Launch terminates all processes if one fails. Recorders such as rosbag2, which are not nodes of the test, are
    stopped after the last node. Raises ConfigError if the test cannot run as configured.
    """

    def __init__(self, context: LaunchContext, check_free: Callable[[Path], None]) -> None:
        self._configured = configured = context.launch_configurations
        host = offered.COMPOSED if configured.get("composed") == "true" else offered.PROCESSES
        options = {
            name: _value(option, configured[name])
            for name, option in offered.options(offered.LAUNCH).items()
            if name in configured
        }
        directory = options["directory"]
        # the default name of the directory is the run id, which is known only after the scenario is loaded
        chosen = offered.run_options(options | {"directory": directory or "runs"}, offered.LAUNCH, host=host)
        scenario = files.load(chosen.scenario, chosen.overrides, chosen.case, chosen.rig)
        self.run_id = chosen.run_id or scenario.run_id()
        self.directory = Path(directory or Path("runs", self.run_id)).absolute()
        self.options = chosen.changed(run_id=self.run_id, record=str(self.directory))
        _check(scenario, self.options, check_free if self._records else lambda _: None)
        self._further = {"use_sim_time": configured["use_sim_time"] == "true"}
        if configured["page"] == "true":
            _check_page_port(configured["page_port"])
            environment.check_page()
        missing = [name for name in RVIZ if not has_resource("packages", name)]
        if missing and configured["rviz"] == "true":
            debian = " ".join(f"ros-$ROS_DISTRO-{name.replace('_', '-')}" for name in missing)
            raise ConfigError(f"rviz = true: needs {', '.join(missing)}. Run sudo apt install {debian}")
        self._params_files = _params_files(configured["params_file"])
        self._scenario = scenario
        # Otherwise launch leaves orphans on SIGTERM. With a launch-prefix, launch is not the parent of a node.
        direct = not configured.get("launch-prefix")
        self._environment = {node_processes.PARENT: str(os.getpid())} if direct else {}
        recording = "" if self.options.recorder == "none" or not self._records else str(self.directory)
        shorter = recording and self.directory.is_relative_to(Path.cwd())
        self._recording = os.path.relpath(recording) if shorter else recording
        self._folder = tempfile.TemporaryDirectory(prefix="rths_")
        self._running: list[actions.ExecuteProcess] = []
        self._attached: list[actions.ExecuteProcess] = []
        self._peers: dict[actions.ExecuteProcess, str] = {}
        self._left: dict[str, LastWords] = {}
        self.namespace = make_namespace_absolute(
            prefix_namespace(configured.get("ros_namespace"), chosen.namespace)
        )
        self._log_level = f"{names.logger_of(self.namespace)}:={configured['log_level']}"
        self.axes = node_processes.axes_with_nodes(scenario, chosen.actuator_nodes)
        described = node_processes.describe(self.options, self.axes)
        self._descriptions = {description.peer: description for description in described}
        self._here = node_processes.on_this_machine(self.options, described)
        if self.options.nodes:
            middleware.check_reaches_others()

    @property
    def _records(self) -> bool:
        return not self.options.nodes or names.RECORDER in self.options.nodes

    def axis(self, name: str) -> Node:
        return self.node(names.axis_node(name))

    def node(self, peer: str) -> Node:
        described = self._descriptions[peer]
        return self._process(
            peer,
            executable=described.role,
            name=described.role,
            namespace="/".join(filter(None, (self.options.namespace, described.axis))),
            parameters=[_typed(described.parameters | self._further), *self._params_files],
        )

    def everything(self) -> list[actions.ExecuteProcess]:
        if self.options.host != offered.COMPOSED:
            return [*(self.node(peer) for peer in self._here), *self._foreign_recorders()]
        separate = [peer for peer in self._here if peer in self.options.separate]
        together = [peer for peer in self._here if peer not in separate]
        return [self.rig(together), *map(self.node, separate), *self._foreign_recorders()]

    def rig(self, peers: Sequence[str]) -> Node:
        described = [self._descriptions[peer] for peer in peers]
        common, *further = (description.parameters.items() for description in described)
        shared = {name: value for name, value in common if all((name, value) in other for other in further)}
        overrides = [
            part
            for description in described
            for name, value in description.parameters.items()
            if name not in shared
            for part in ("-p", f"{description.role}:{name}:={json.dumps(value, ensure_ascii=False)}")
        ]
        return self._process(
            names.RIG,
            executable=names.RIG,
            namespace=self.options.namespace,
            arguments=list(peers),
            parameters=[_typed(shared | self._further), *self._params_files],
            ros_arguments=overrides,
            patient=names.RECORDER in peers,
        )

    def recorders(self) -> list[actions.ExecuteProcess]:
        return [self.node(names.RECORDER)] if self.options.recorded else self._foreign_recorders()

    def together(self, processes: Sequence[actions.ExecuteProcess]) -> list[LaunchDescriptionEntity]:
        here = (names.RIG, *self._here)
        self._running = [process for process in processes if self._peers.get(process, names.RIG) in here]
        self._attached = self._views()
        recording = f"recording: {self._recording}" if self._recording else "no recording"
        return [
            actions.LogInfo(msg=f"rths: run {self.run_id}, {recording}"),
            actions.RegisterEventHandler(OnProcessExit(on_exit=self._on_exit)),
            *self._running,  # last, so that the last output of the processes is printed before the handler runs
            *self._attached,
        ]

    def _views(self) -> list[actions.ExecuteProcess]:
        views: list[actions.ExecuteProcess] = []
        if self._configured["page"] == "true":
            command = [sys.executable, *PAGE, "--namespace", self.namespace, "--parent", str(os.getpid())]
            command += ["--port", self._configured["page_port"]]
            views.append(actions.ExecuteProcess(cmd=command, name="page", output="both"))
        if self._configured["rviz"] == "true":
            view = self._keep("rig.rviz", stack_files.rviz(self.namespace))
            model = {
                "robot_description": ParameterValue(stack_files.urdf(self._scenario), value_type=str),
                "frame_prefix": f"{self.namespace.strip('/')}/",
            }
            publisher, viewer = RVIZ
            views += [
                Node(package=publisher, executable=publisher, namespace=self.namespace, parameters=[model]),
                Node(package=viewer, executable=viewer, namespace=self.namespace, arguments=["-d", str(view)]),
            ]
        return views

    def _process(
        self, peer: str, patient: bool = False, ros_arguments: Sequence[str] = (), **kwargs: object
    ) -> Node:
        patience = {"sigterm_timeout": str(node_processes.INDEXING_S)} if patient or peer == names.RECORDER else {}
        node = Node(
            package="rths_nodes",
            ros_arguments=["--log-level", self._log_level, *ros_arguments],
            additional_env=self._environment | {outcomes.REPORT_FILE: str(self._file(peer))},
            output="both",
            **patience,
            **kwargs,
        )
        self._peers[node] = peer
        return node

    def _foreign_recorders(self) -> list[actions.ExecuteProcess]:
        if self.options.recorder != offered.ROSBAG2 or not self._records:
            return []
        topics = [f"{self.namespace}/{name}" for name in names.TOPICS]
        topics += [*names.ALSO_RECORDED, *self.options.record_topics]
        qos = stack_files.rosbag2_qos(self.namespace, self.options.reliability == offered.BEST_EFFORT)
        qos_arguments = ["--qos-profile-overrides-path", str(self._keep("rosbag2_qos.yaml", qos))]
        command = ["ros2", "bag", "record", "-s", "mcap", "-o", str(self.directory)]
        command += [*qos_arguments, "--topics", *topics]
        return [actions.ExecuteProcess(cmd=command, name="rosbag2", output="both", sigterm_timeout="60")]

    def _keep(self, name: str, text: str) -> Path:
        path = Path(self._folder.name, name)
        path.write_text(text, encoding="utf-8")
        return path

    def _file(self, peer: str) -> Path:
        return Path(self._folder.name) / f"{peer.replace('/', '.')}.json"

    def _on_exit(self, event: ProcessExited, context: LaunchContext) -> list[LaunchDescriptionEntity]:
        if event.action not in self._running:
            return []
        self._running.remove(event.action)
        report = self._take(event)
        if not self._running:
            return self._conclude(context)
        if context.is_shutdown:
            return []
        if report.exit_code not in IN_ORDER:
            why = [actions.LogInfo(msg=f"rths: {report.problem}")] if report.problem else []
            return [
                *why,
                actions.EmitEvent(event=Shutdown(reason="the test cannot continue without this process")),
            ]
        if not any(process in self._peers for process in self._running):
            return [_interrupt(process) for process in self._running]
        return []

    def _take(self, event: ProcessExited) -> LastWords:
        peer = self._peers.get(event.action)
        name = peer or event.process_name.rpartition("-")[0]
        died = node_processes.death(name, event.returncode) if event.returncode else ""
        left = outcomes.read_report(self._file(peer)) if peer else None
        if died and left is None:
            with suppress(OSError):
                self._keep(outcomes.DIED, died)  # the recorder reads this file
        report = self._left[name] = left or LastWords(event.returncode, died)
        return report

    def _conclude(self, context: LaunchContext) -> list[LaunchDescriptionEntity]:
        code, message = self._result()
        late = [report.late for report in self._spoken if report.late][:1]
        lines = [actions.LogInfo(msg=f"rths: {line}") for line in (*self._indices(), *late)]
        if code == ExitCode.FINISHED:
            return [
                *lines,
                actions.LogInfo(msg=f"rths: {message}; {self._report(code)}"),
                *map(_interrupt, self._attached),
            ]
        for line in lines:
            line.execute(context)
        level = logging.WARNING if code == ExitCode.HELD else logging.ERROR  # the operator has stopped the test
        raise refusal(f"rths: {message} (exit code {code:d}); {self._report(code)}", level)

    def _result(self) -> tuple[ExitCode, str]:
        spoken = self._spoken
        tests = {report.test: report.ending for report in reversed(spoken) if report.test is not None}
        code = of_nodes([report.exit_code for report in self._left.values()], State.FINISHED)
        if code == ExitCode.FINISHED:
            first = next((report.test for report in spoken if report.test is not None), ExitCode.HELD)
            code = of_nodes([first], State.FINISHED)
        if code == ExitCode.FINISHED and ExitCode.NOT_VALID in tests:  # third-party nodes count no late samples
            code = ExitCode.NOT_VALID
        causes = (left.problem for left in self._left.values() if of_nodes([left.exit_code], State.IDLE) == code)
        why = next(filter(None, causes), "" if tests else "it did not begin")
        return code, tests.get(code) or ": ".join(filter(None, (code.ending, why)))

    @property
    def _spoken(self) -> list[LastWords]:
        return [self._left[name] for name in (*SPEAKERS, *self._left) if name in self._left]

    def _indices(self) -> list[str]:
        numbers = {name: value for report in self._left.values() for name, value in report.indices.items()}
        axes = unflatten(numbers, "metrics").get("axes", {})
        return [_line(axis, row) for axis, row in axes.items() if math.isfinite(row["max_error_percent"])]

    def _report(self, code: ExitCode) -> str:
        path = self._recording
        if not path or not Path(path).exists():
            return "no recording"
        readable = code != ExitCode.REFUSED and self.options.recorder == offered.OWN_RECORDER
        page = f"; rths report {quoted(path)} creates {path}.html" if readable else ""
        return f"recording: {path}{page}"


def _line(axis: str, row: Mapping[str, float]) -> str:
    delay = f", delay {1e3 * row['delay_s']:.4g} ms" if math.isfinite(row["delay_s"]) else ""
    return (
        f"{axis}: max error {1e3 * row['max_error_m']:.4g} mm ({row['max_error_percent']:.4g} % of max target), "
        f"error norm {row['error_norm_percent']:.4g} %{delay}"
    )


def _interrupt(process: actions.ExecuteProcess) -> actions.EmitEvent:
    return actions.EmitEvent(
        event=SignalProcess(signal_number=signal.SIGINT, process_matcher=matches_action(process))
    )


def _check(scenario: Scenario, options: offered.RunOptions, check_free: Callable[[Path], None]) -> None:
    checked_loop(scenario)
    faults = [faulty.parse(text) for text in options.faults]
    faulty.check(faults, scenario, options.host, options.pace, options.recorded)
    if options.recorder == offered.ROSBAG2:
        check_rosbag2(Path(options.record))
    elif options.recorder == offered.OWN_RECORDER:
        check_free(Path(options.record))


def _value(option: offered.Option, text: str) -> Any:
    if option.spec.kind == "flag":
        return text == "true"
    if option.spec.kind == "number":
        return yaml_text.parse(text, option.name)
    if option.spec.kind != "texts":
        return text
    try:
        return shlex.split(text)
    except ValueError as error:  # a quote is missing
        raise ConfigError(f"{option.name} = {text!r}: {error}") from None


def _check_page_port(text: str) -> None:
    """Raise ConfigError before the test begins if the page cannot be served on port ``text``."""
    if not text.isdecimal():
        raise ConfigError(f"page_port = {text!r}: must be a whole number from 0 to {LARGEST_PORT}")
    check_port(int(text), "page_port")
    try:
        socket.create_server(("127.0.0.1", int(text))).close()
    except OSError as error:
        why = f"page_port = {text}: the page cannot be served on this port ({error.strerror})"
        raise ConfigError(f"{why}. Choose another port, or 0 for any free port") from None


def check_rosbag2(directory: Path) -> None:
    missing = [] if importlib.util.find_spec("ros2bag") else ["ros2bag"]
    missing += [] if has_resource("packages", MCAP) else [MCAP]
    if missing:
        raise ConfigError(
            f"record = rosbag2: needs {', '.join(missing)}. Install these packages, or use record:=own"
        )
    if directory.exists():
        raise ConfigError(f"directory = {directory}: already exists, but rosbag2 needs a new directory")


def _typed(parameters: Mapping[str, object]) -> dict[str, ParameterValue]:
    """Return ``parameters`` with explicit types, because launch would parse a string such as 7e3 as a number."""
    types: dict[str, object] = {
        name: list[type(value[0])] if isinstance(value, list) else type(value)  # type: ignore[misc]
        for name, value in parameters.items()
    }
    return {name: ParameterValue(value, value_type=types[name]) for name, value in parameters.items()}


def _params_files(path: str) -> list[str]:
    if not path:
        return []
    data = yaml_text.parse(yaml_text.source_of(path, f"params_file = {path!r}"), path)
    sections = data.values() if isinstance(data, Mapping) else ()
    if not sections or not all(isinstance(section, Mapping) for section in sections):
        raise ConfigError(f"params_file = {path!r}: must map node names to ros__parameters")
    return [str(Path(path).absolute())]
