"""Scenario -> plain descriptions of nodes -> processes, here, or launch actions, in ``launch/``.

The wiring is data: which nodes, under which namespace, with which parameters. Launch files and our own runner
start the same list, so it is tested without launch.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import yaml

from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.options import NODE, ONE_NODE, RunOptions, checked_namespace
from rths_nodes.loop.options import options as offered_options
from rths_nodes.loop.scenario.axis_layout import check_layout
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.ros import names
from rths_nodes.ros.names import RECORDER

INDEXING_S = 600.0
"""How long a recorder may take to index what it has written."""

LEAVING_S = 10.0
"""How long the nodes may take to leave after the first of them."""

QUIET_S = 0.05
"""Before the endpoints of a node go, and before its participant does: a peer that is told so in the very moment in
which it acknowledges a message may hang (see ``exit_guard.py``)."""

LONGEST_WORDS = 4000
"""Bytes of what a node says in the end: a pipe takes them without waiting for a reader."""

PARENT = "RTHS_PARENT"
"""Environment variable with the process id of the runner: a node ends when its runner dies."""

TELLS = "RTHS_RUNNER_TELLS"
"""Environment variable that is set when the runner itself says why a test was tripped: the number of an open file,
into which the node writes why it ends. A node that was never configured has no topic to say it."""


@dataclass(frozen=True)
class NodeDescription:
    """One node process: executable of the package, namespace, parameters."""

    role: str
    parameters: dict[str, Any]
    namespace: str = names.NAMESPACE
    remappings: tuple[tuple[str, str], ...] = ()

    axis: str = ""
    """The axis of an axis node, which lives in a namespace of that name."""

    @property
    def executable(self) -> str:
        """Name under ``lib/rths_nodes``, for `ros2 run` and launch."""
        return self.role

    @property
    def peer(self) -> str:
        """What the others call it."""
        return names.axis_node(self.axis) if self.axis else self.role


def describe(options: RunOptions, axes: Sequence[str] = (), console: bool = False) -> list[NodeDescription]:
    """The nodes of a rig; without a recording there is no recorder.

    ``axes`` have a node each, all of them or none (:func:`axes_with_nodes`). With ``console`` the test does not
    begin before the runner's console listens.
    """
    roles = [role for role in names.NODES if role != RECORDER or options.recorded]
    peers = [*roles, *map(names.axis_node, axes), *([names.CONSOLE] if console else [])]
    namespace = checked_namespace(options.namespace)
    of_rig = [NodeDescription(role, _parameters(options, role, peers), namespace) for role in roles]
    of_axes = [
        NodeDescription(names.AXIS, _parameters(options, names.AXIS, peers), f"{namespace}/{axis}", axis=axis)
        for axis in axes
    ]
    return of_rig + of_axes


def _parameters(options: RunOptions, role: str, peers: Sequence[str]) -> dict[str, Any]:
    """The ROS parameters of a node: those options that it has, and its ``peers``."""
    values = {
        name: getattr(options, option.field)
        for name, option in offered_options(NODE).items()
        if not option.roles or role in option.roles
    }
    # ROS cannot tell the type of an empty list
    lists = {name: list(value) or [""] for name, value in values.items() if isinstance(value, tuple)}
    return values | lists | {"peers": list(peers)}


def axes_with_nodes(scenario: Scenario, actuator_nodes: str) -> tuple[str, ...]:
    """The axes that have a node of their own: all or none. Raises ConfigError for a rig that cannot have them."""
    if actuator_nodes == ONE_NODE:
        return ()
    check_layout(scenario)
    return tuple(scenario.axes)


def death(name: str, code: int) -> str:
    """How a node ended, in words."""
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"the {name} node died ({how})"


def die_with_parent() -> None:
    """In a node started by our runner: be told to stop when the runner dies, however it dies."""
    parent = os.environ.get(PARENT)
    if not parent:
        return
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGTERM)
    if os.getppid() != int(parent):
        sys.exit(1)


def tell_runner(words: str) -> None:
    """In a node that our runner has started: say why it ends."""
    if number := os.environ.get(TELLS):
        with suppress(OSError, ValueError):  # the runner may have gone
            os.write(int(number), words.encode()[:LONGEST_WORDS])


@dataclass
class Process:
    """A node process under way."""

    role: str
    """Its name among the peers."""
    popen: subprocess.Popen[bytes]
    told: IO[bytes]
    """What it says in the end."""
    sent: set[int] = field(default_factory=set)
    """The signals that it was sent."""

    @property
    def death(self) -> str:
        """Why it ended, in its own words, or how."""
        if self.hung:
            return f"the {self.role} node did not end by itself"
        return self.words or death(self.role, self.popen.returncode)

    @cached_property
    def words(self) -> str:
        """What it has said in the end; empty: nothing."""
        return (self.told.read(LONGEST_WORDS) or b"").decode(errors="replace")

    @property
    def ended_by_us(self) -> bool:
        """True when it ended by a signal of ours, in the middle of what it did."""
        return -self.popen.returncode in self.sent

    @property
    def hung(self) -> bool:
        """True when it had to be killed."""
        return self.ended_by_us and signal.SIGKILL in self.sent


def _started(peer: str, command: Sequence[str], environment: Mapping[str, str]) -> Process:
    read, write = os.pipe()
    os.set_blocking(read, False)  # a child of the node may hold the other end open
    try:
        # A session of their own: Ctrl-C reaches the runner, which stops the test in order.
        popen = subprocess.Popen(
            command,
            env={**environment, TELLS: str(write)},
            pass_fds=(write,),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
        )
    finally:
        os.close(write)
    return Process(peer, popen, open(read, "rb", buffering=0))


@dataclass
class Processes:
    """The processes of a test: started together, ended together."""

    descriptions: Sequence[NodeDescription]
    running: list[Process] = field(default_factory=list)
    _folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Processes:
        """Start them. Raises ConfigError where there is no room for that."""
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="rths_")
            self._start()
        except OSError as error:
            self.__exit__()
            where = f"{error.filename}: " if error.filename else ""
            raise ConfigError(f"{where}the nodes cannot be started ({error.strerror or error})") from error
        return self

    def _start(self) -> None:
        environment = os.environ | {PARENT: str(os.getpid())}
        root = str(Path(__file__).resolve().parents[3])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
        for description in self.descriptions:
            command = [
                sys.executable,
                "-m",
                "rths_nodes.app.node",
                description.role,
                *self._arguments(description),
            ]
            self.running.append(_started(description.peer, command, environment))

    def _arguments(self, description: NodeDescription) -> list[str]:
        assert self._folder is not None
        file = Path(self._folder.name) / f"{description.peer.replace('/', '_')}.yaml"
        file.write_text(yaml.safe_dump({"/**": {"ros__parameters": description.parameters}}))
        remappings = [part for old, new in description.remappings for part in ("-r", f"{old}:={new}")]
        return [
            "--ros-args",
            "--params-file",
            str(file),
            "-r",
            f"__ns:=/{description.namespace}",
            *remappings,
        ]

    def __exit__(self, *_: object) -> None:
        self.kill()
        for process in self.running:
            process.popen.wait()
            process.told.close()
        if self._folder is not None:
            self._folder.cleanup()

    def kill(self, but: Sequence[str] = ()) -> list[Process]:
        """End those that still run, but for some; which they were."""
        killed = [process for process in self.alive() if process.role not in but]
        for process in killed:
            process.sent.add(signal.SIGKILL)
            process.popen.kill()
        return killed

    def alive(self) -> list[Process]:
        """Those that still run."""
        return [process for process in self.running if process.popen.poll() is None]

    def dead(self) -> list[Process]:
        """Those that ended with an error."""
        return [process for process in self.running if process.popen.poll() not in (None, 0)]

    def send(self, number: signal.Signals, *roles: str) -> None:
        """A signal to the nodes ``roles``, or to all."""
        for process in self.alive():
            if not roles or process.role in roles:
                process.sent.add(number)
                process.popen.send_signal(number)

    def wait(self, seconds: float, but: Sequence[str] = (), idle: Callable[[], None] | None = None) -> bool:
        """Wait for all but some to end; False when the time was over first."""
        end = time.monotonic() + seconds
        while any(process.role not in but for process in self.alive()):
            if time.monotonic() > end:
                return False
            idle() if idle else time.sleep(0.005)
        return True

    def see_out(self, idle: Callable[[], None]) -> list[str]:
        """Until all have left, the recorder once it has written all; what had to be killed, in words."""
        if not self.wait(LEAVING_S, (RECORDER,), idle):
            self.kill((RECORDER,))
        if not self.wait(INDEXING_S, idle=idle):
            self.kill()
            self.wait(LEAVING_S)
        hung = [process for process in self.running if process.hung]
        recovery = ["rths recover may help"] if RECORDER in (process.role for process in hung) else []
        return [process.death for process in hung] + recovery

    def counted(self, reported: Container[str]) -> list[Process]:
        """Those whose exit code says something about the test; ``reported`` are those that have told a Summary.

        One that hung although it had said all does not count: the middleware may do so while its peers leave. A
        recorder that hangs leaves no recording.
        """
        said = [each for each in self.running if each.role in reported and each.role != RECORDER]
        return [each for each in self.running if not (each.ended_by_us and each in said)]
