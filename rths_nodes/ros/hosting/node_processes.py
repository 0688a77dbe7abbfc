# SPDX-License-Identifier: Apache-2.0
"""Descriptions of the nodes of a test, for the launch files and the runner, and the processes of the runner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO

import yaml

from rths_nodes.core import yaml_text
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, quoted, unknown
from rths_nodes.loop.interrupts import TELLS
from rths_nodes.loop.options import COMPOSED, ONE_NODE, ROSBAG2, RunOptions, checked_namespace
from rths_nodes.loop.outcomes import ExitCode, LastWords, report_to_launch
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.rig import check_layout
from rths_nodes.ros import names


@dataclass(frozen=True)
class NodeDescription(names.NodeLocation):
    """Role, namespace and parameters of a node. ``role`` is also the name of the executable."""

    parameters: Data
    scenario: Scenario | None = None
    """Scenario from the runner, or None if the parameters define the scenario."""


def describe(
    options: RunOptions, axes: Sequence[str] = (), console: bool = False, scenario: Scenario | None = None
) -> list[NodeDescription]:
    """Return the descriptions of the nodes of a rig. ``axes`` are the axes that have their own nodes."""
    if scenario is not None:
        options = options.changed(scenario=scenario.name, rig="", case="", overrides=())
    roles = [role for role in names.NODES if role != names.RECORDER or options.recorded]
    peers = [*roles, *map(names.axis_node, axes), *([names.CONSOLE] if console else [])]
    namespace = checked_namespace(options.namespace)
    places = [(role, namespace) for role in roles] + [(names.AXIS, f"{namespace}/{axis}") for axis in axes]
    return [NodeDescription(role, where, _parameters(options, role, peers), scenario) for role, where in places]


def on_this_machine(options: RunOptions, descriptions: Sequence[NodeDescription]) -> tuple[str, ...]:
    """Return the peers on this machine. Raises ConfigError for an unknown node or a missing actuator node."""
    peers = tuple(description.peer for description in descriptions)
    recorders = () if names.RECORDER in peers or options.recorder != ROSBAG2 else (names.RECORDER,)
    for name in options.nodes:
        if name not in (*peers, *recorders):
            raise unknown("nodes", "node", name, (*peers, *recorders))
    here = tuple(peer for peer in peers if peer in options.nodes or not options.nodes)
    if options.host == COMPOSED and names.ACTUATOR not in here:
        raise ConfigError(
            f"composed = true: nodes = {' '.join(options.nodes)} must include the actuator node. Omit composed on "
            "a machine without the actuator node"
        )
    return here


def _parameters(options: RunOptions, role: str, peers: Sequence[str]) -> dict[str, object]:
    values = {name: getattr(options, option.field) for name, option in names.options_of(role).items()}
    # ROS cannot infer the type of an empty list
    lists = {name: list(value) or [""] for name, value in values.items() if isinstance(value, tuple)}
    return values | lists | {"peers": list(peers)}


def axes_with_nodes(scenario: Scenario, actuator_nodes: str) -> tuple[str, ...]:
    """Return the axes with their own nodes (all or none). Raises ConfigError if the axes must share a node."""
    if actuator_nodes == ONE_NODE:
        return ()
    check_layout(scenario)
    return tuple(scenario.axes)


def starting_words(missing: Mapping[str, str]) -> str:
    problems = (f"{node} ({problem})" if problem else node for node, problem in missing.items())
    return f"waits for {', '.join(problems)}" if missing else "starts"


INDEXING_S = 600.0
"""Timeout for a recorder to index its file, s."""
LEAVING_S = 10.0
"""Timeout for nodes other than the recorder to exit after a test, s."""
QUIET_S = 0.05
"""Pause before endpoints and participant are removed, s. A peer that is acknowledging a message could otherwise
hang (``exit_guard.py``)."""
LONGEST_REPORT = 4000
"""Maximum length of a final report, bytes."""
LOOK_S = 0.05
HANGS_S = 20.0
"""Time without CPU after which a node counts as hung, s. A healthy node wakes every 20 ms, computes, or writes."""
STOPPED_S = 2.0
"""Longest wait after the test for a node that a signal has suspended, s."""
PARENT = "RTHS_PARENT"
"""Environment variable with the pid of the runner or of launch. A node exits when this process exits."""


def death(name: str, code: int) -> str:
    known_signals = {number.value: number.name for number in signal.Signals}  # real-time signals have no names
    how = known_signals.get(-code, f"signal {-code}") if code < 0 else f"exit code {code}"
    return f"the {name} node died ({how})"


def report_to_runner(message: str) -> None:
    if number := os.environ.get(TELLS):
        with suppress(OSError, ValueError):  # the runner may have exited
            os.write(int(number), message.encode()[:LONGEST_REPORT])


def refused(error: ConfigError) -> int:
    if report_to_launch(LastWords(ExitCode.REFUSED, str(error))):
        return ExitCode.FINISHED
    print(f"rths: {error}", file=sys.stderr)
    report_to_runner(str(error))
    return ExitCode.REFUSED


@dataclass
class Process:
    role: str
    popen: subprocess.Popen[bytes]
    file: IO[bytes]
    """File in memory, to which the process writes its report."""
    sent: set[int] = field(default_factory=set)
    silent: bool = False
    _turns: Sequence[str] = ()
    """CPU times and context switches of the main thread."""
    _ran_at: float = 0.0
    """Time of the last change of ``_turns``, s."""
    _next_look: float = 0.0

    @property
    def death(self) -> str:
        if self.hung:
            why = "hangs: its main thread does not run" if self.silent else "did not exit by itself"
            return f"the {self.role} node {why}"
        return self.report or death(self.role, self.popen.returncode)

    @cached_property
    def report(self) -> str:
        return os.pread(self.file.fileno(), LONGEST_REPORT, 0).decode(errors="replace")

    @property
    def ended_by_us(self) -> bool:
        return -self.popen.returncode in self.sent

    @property
    def hung(self) -> bool:
        return self.ended_by_us and signal.SIGKILL in self.sent

    @property
    def broken_off(self) -> bool:
        code = self.popen.returncode
        return code < 0 or (code == ExitCode.FAILED and not self.report)

    @property
    def handles_signals(self) -> bool:
        """True once the process handles SIGTERM. While Python starts, a signal would end it without a report."""
        with suppress(OSError):
            caught = Path(f"/proc/{self.popen.pid}/status").read_text(encoding="utf-8").partition("SigCgt:")[2]
            return bool(int(caught.split()[0], 16) & 1 << signal.SIGTERM - 1)
        return False

    def check(self, ended: bool = False) -> None:
        """Kill the process if its main thread hangs. After the test (``ended``), also kill a suspended process."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_S
        with suppress(OSError):
            state, turns = self._main_thread()
            turns.append(str(ended and state == "T"))  # STOPPED_S begins when the suspension is detected
            if turns != self._turns or state == "D":  # D: the process waits for a disk
                self._turns, self._ran_at = turns, now
            elif now - self._ran_at > (STOPPED_S if ended and state == "T" else HANGS_S):
                self.silent = True
                self.kill()

    def _main_thread(self) -> tuple[str, list[str]]:
        thread = Path(f"/proc/{self.popen.pid}/task/{self.popen.pid}")
        state, *numbers = (thread / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        switches = (thread / "status").read_text(encoding="utf-8").partition("\nvoluntary_ctxt_switches")[2]
        return state, [*numbers[10:12], switches]  # time in user mode and in kernel mode

    def kill(self) -> None:
        self.sent.add(signal.SIGKILL)
        self.popen.kill()


def _started(peer: str, command: Sequence[str], environment: Mapping[str, str]) -> Process:
    file = open(os.memfd_create("report"), "r+b", buffering=0)  # noqa: SIM115
    try:
        popen = subprocess.Popen(
            command,
            env={**environment, TELLS: str(file.fileno())},
            pass_fds=(file.fileno(),),
            start_new_session=True,  # the runner handles Ctrl-C
            stdin=subprocess.DEVNULL,
        )
    except OSError:
        file.close()
        raise
    return Process(peer, popen, file)


@dataclass
class Processes:
    descriptions: Sequence[NodeDescription]
    running: list[Process] = field(default_factory=list)
    _folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Processes:
        environment = os.environ | {PARENT: str(os.getpid())}
        root = str(Path(__file__).resolve().parents[3])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="rths_")
            for description in self.descriptions:
                arguments = ["-m", "rths_nodes.app.node", description.role, *self._arguments(description)]
                self.running.append(_started(description.peer, [sys.executable, *arguments], environment))
        except OSError as error:
            self.__exit__()
            where = f"{error.filename}: " if error.filename else ""
            raise ConfigError(f"{where}cannot start the nodes ({error.strerror or error})") from error
        return self

    def _arguments(self, description: NodeDescription) -> list[str]:
        assert self._folder is not None
        folder, parameters = Path(self._folder.name), description.parameters
        if description.scenario is not None:
            scenario = folder / "scenario" / f"{description.scenario.name}.yaml"
            if not scenario.exists():
                scenario.parent.mkdir()
                scenario.write_text(yaml_text.dump(description.scenario.data()), encoding="utf-8")
            parameters = parameters | {"scenario": str(scenario)}
        file = folder / f"{description.peer.replace('/', '_')}.yaml"
        file.write_text(yaml.safe_dump({"/**": {"ros__parameters": parameters}}), encoding="utf-8")
        level = f"{names.logger_of(description.namespace)}:=warn"  # the runner reports progress
        where = f"__ns:=/{description.namespace}"
        return ["--ros-args", "--params-file", str(file), "-r", where, "--log-level", level]

    def __exit__(self, *_: object) -> None:
        self.kill()
        for process in self.running:
            process.popen.wait()
            process.file.close()
        if self._folder is not None:
            self._folder.cleanup()

    def kill(self, *but: str) -> None:
        for process in self.alive():
            if process.role not in but:
                process.kill()

    def alive(self) -> list[Process]:
        return [process for process in self.running if process.popen.poll() is None]

    def dead(self) -> list[Process]:
        return [process for process in self.running if process.popen.poll() not in (None, 0)]

    def send(self, number: signal.Signals, *roles: str) -> None:
        for process in self.alive():
            if not roles or process.role in roles:
                process.sent.add(number)
                process.popen.send_signal(number)

    def wait(self, seconds: float, but: Sequence[str] = (), idle: Callable[[], None] | None = None) -> bool:
        end = time.monotonic() + seconds
        while any(process.role not in but for process in self.alive()):
            if time.monotonic() > end:
                return False
            for process in self.alive():
                process.check(ended=True)
            idle() if idle else time.sleep(0.005)
        return True

    def see_out(self, idle: Callable[[], None]) -> list[str]:
        if not self.wait(LEAVING_S, (names.RECORDER,), idle):
            self.kill(names.RECORDER)
        if not self.wait(INDEXING_S, idle=idle):
            self.kill()
            self.wait(LEAVING_S)
        notes = [process.death for process in self.running if process.hung]
        broken_off = any(process.broken_off for process in self.running if process.role == names.RECORDER)
        recorders = [description for description in self.descriptions if description.role == names.RECORDER]
        paths = [description.parameters["record"] for description in recorders if broken_off]
        notes += [f"rths recover {quoted(path)} completes the recording" for path in paths if Path(path).exists()]
        return notes

    def why(self, ended: Process) -> str:
        """Return the reason for the exit of ``ended``, reported by ``ended`` or by a process that caused the exit.

        A node that leaves because the actuator node refuses the test exits with REFUSED and has no report. The
        actuator node exits last, possibly with another code.
        """
        code = ended.popen.returncode
        causes = [ended, *(one for one in self.running if code in (ExitCode.REFUSED, one.popen.returncode))]
        return next((process for process in causes if process.report), ended).death

    def counted(self, reported: Iterable[str]) -> list[Process]:
        """Return the processes whose exit codes count. Omit ``reported`` nodes that the runner ended."""
        complete = {*reported} - {names.RECORDER}  # a terminated recorder leaves an incomplete recording
        return [process for process in self.running if not (process.ended_by_us and process.role in complete)]
