# SPDX-License-Identifier: Apache-2.0
"""The processes of the nodes: started together, watched, ended together; and what such a node owes its runner."""

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
from typing import IO

import yaml

from rths_nodes.core import yaml_text
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.last_words import LastWords, tell_launch
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.ros.hosting.descriptions import NodeDescription
from rths_nodes.ros.names import RECORDER

INDEXING_S = 600.0
"""Time that a recorder may take to index what it has written."""

LEAVING_S = 10.0
"""Time that the nodes may take to leave after the first of them."""

QUIET_S = 0.05
"""Before the endpoints of a node go, and before its participant does: a peer that is told so in the very moment in
which it acknowledges a message may hang (see ``exit_guard.py``)."""

LONGEST_WORDS = 4000
"""Bytes of what a node says in the end: a pipe takes them without waiting for a reader."""

LOOKS = 20
"""Looks of the runner, within ``HANGS_S``, whether a node stands still."""

HANGS_S = 20.0
"""A node whose main thread was not given the processor for so long hangs: a living one wakes up every 20 ms, or
computes, or waits for a disk, as a recorder that indexes."""

STOPPED_S = 2.0
"""After the test, a node that a signal has stopped, and nobody lets go on, is not waited for longer."""

PARENT = "RTHS_PARENT"
"""Environment variable with the process id of the runner: a node ends when its runner dies."""

TELLS = "RTHS_RUNNER_TELLS"
"""Environment variable that is set when the runner itself says why a test was tripped: the number of an open file,
into which the node writes why it ends. A node that was never configured has no topic to say it."""


def death(name: str, code: int) -> str:
    """Say by which signal, or with which exit ``code``, the node ``name`` died."""
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


def refused(error: ConfigError) -> int:
    """Tell why a process ends at once; its exit code."""
    if tell_launch(LastWords(ExitCode.REFUSED, str(error))):
        return ExitCode.FINISHED
    print(f"rths: {error}", file=sys.stderr)
    tell_runner(str(error))
    return ExitCode.REFUSED


@dataclass
class Process:
    """A node process under way."""

    role: str
    """Its name among the peers."""
    popen: subprocess.Popen[bytes]
    told: IO[bytes]
    """Stream of its last words."""
    sent: set[int] = field(default_factory=set)
    """The signals that it was sent."""
    silent: bool = False
    """True once it was killed because it stood still."""
    _stopped_at: float = 0.0
    """When it was seen stopped by a signal, s; 0 while it goes on."""
    _turns: tuple[list[str], float] = field(default_factory=lambda: ([], 0.0))
    """Processor time and number of turns that its main thread has had; when these last changed, s."""
    _next_look: float = 0.0

    @property
    def death(self) -> str:
        """Why it ended, in its own words, or how."""
        if self.hung:
            why = "hangs: nothing moves in it" if self.silent else "did not end by itself"
            return f"the {self.role} node {why}"
        return self.words or death(self.role, self.popen.returncode)

    @cached_property
    def words(self) -> str:
        """Last words of the process; empty when it has said nothing."""
        return (self.told.read(LONGEST_WORDS) or b"").decode(errors="replace")

    @property
    def ended_by_us(self) -> bool:
        """True when it ended by a signal of ours, in the middle of what it did."""
        return -self.popen.returncode in self.sent

    @property
    def hung(self) -> bool:
        """True when it had to be killed."""
        return self.ended_by_us and signal.SIGKILL in self.sent

    @property
    def broken_off(self) -> bool:
        """True when it has ended in the middle of what it did: by a signal, or without a word."""
        code = self.popen.returncode
        return code < 0 or (code == ExitCode.FAILED and not self.words)

    def check_alive(self) -> None:
        """Kill it where it hangs: stopped from outside, or for ever waiting for a lock of the middleware."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + HANGS_S / LOOKS
        with suppress(OSError):  # it has just ended
            state, turns = self._main_thread()
            before, since = self._turns
            if turns != before or state == "D":  # the disk is slow
                self._turns = turns, now
            elif now - since > HANGS_S:
                self._give_up()

    def check_going(self) -> None:
        """Kill it where a signal has stopped it, and nobody has let it go on for ``STOPPED_S``."""
        now = time.monotonic()
        with suppress(OSError):  # it has just ended
            stopped = self._main_thread()[0] == "T"
            self._stopped_at = (self._stopped_at or now) if stopped else 0.0
            if stopped and now - self._stopped_at > STOPPED_S:
                self._give_up()

    def _main_thread(self) -> tuple[str, list[str]]:
        thread = Path(f"/proc/{self.popen.pid}/task/{self.popen.pid}")
        state, *numbers = (thread / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        switches = (thread / "status").read_text(encoding="utf-8").partition("\nvoluntary_ctxt_switches")[2]
        return state, [*numbers[10:12], switches]  # time in user and in kernel mode

    def _give_up(self) -> None:
        self.silent = True
        self.kill()

    def kill(self) -> None:
        self.sent.add(signal.SIGKILL)
        self.popen.kill()


def _written(scenario: Scenario, folder: Path) -> Path:
    """The file of a ``scenario`` as it is run, in ``folder``: one for all nodes, of which some read it already."""
    file = folder / f"{scenario.name}.yaml"
    if not file.exists():
        folder.mkdir(exist_ok=True)
        file.write_text(yaml_text.dump(scenario.data()), encoding="utf-8")
    return file


def _started(peer: str, command: Sequence[str], environment: Mapping[str, str]) -> Process:
    read, write = os.pipe()
    os.set_blocking(read, False)  # a child of the node may hold the other end open
    try:
        popen = _popen(command, environment, write)
    finally:
        os.close(write)
    return Process(peer, popen, open(read, "rb", buffering=0))


def _popen(command: Sequence[str], environment: Mapping[str, str], told: int) -> subprocess.Popen[bytes]:
    # A session of their own: Ctrl-C reaches the runner, which stops the test in order.
    return subprocess.Popen(
        command,
        env={**environment, TELLS: str(told)},
        pass_fds=(told,),
        start_new_session=True,
        stdin=subprocess.DEVNULL,
    )


@dataclass
class Processes:
    """The processes of a test: started together, ended together."""

    descriptions: Sequence[NodeDescription]
    running: list[Process] = field(default_factory=list)
    _folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Processes:
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
            words = ["-m", "rths_nodes.app.node", description.role, *self._arguments(description)]
            command = [sys.executable, *words]
            self.running.append(_started(description.peer, command, environment))

    def _arguments(self, description: NodeDescription) -> list[str]:
        assert self._folder is not None
        folder, parameters = Path(self._folder.name), description.parameters
        if description.scenario is not None:
            parameters = parameters | {"scenario": str(_written(description.scenario, folder / "scenario"))}
        file = folder / f"{description.peer.replace('/', '_')}.yaml"
        file.write_text(yaml.safe_dump({"/**": {"ros__parameters": parameters}}), encoding="utf-8")
        return ["--ros-args", "--params-file", str(file), "-r", f"__ns:=/{description.namespace}"]

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
            process.kill()
        return killed

    def alive(self) -> list[Process]:
        return [process for process in self.running if process.popen.poll() is None]

    def dead(self) -> list[Process]:
        return [process for process in self.running if process.popen.poll() not in (None, 0)]

    def send(self, number: signal.Signals, *roles: str) -> None:
        """A signal to the nodes ``roles``, or to all."""
        for process in self.alive():
            if not roles or process.role in roles:
                process.sent.add(number)
                process.popen.send_signal(number)

    def wait(self, seconds: float, but: Sequence[str] = (), idle: Callable[[], None] | None = None) -> bool:
        """Wait for all but some to end; False when the time was over first. One that stands still is killed."""
        end = time.monotonic() + seconds
        while any(process.role not in but for process in self.alive()):
            if time.monotonic() > end:
                return False
            for process in self.alive():
                process.check_going()
                process.check_alive()
            idle() if idle else time.sleep(0.005)
        return True

    def see_out(self, idle: Callable[[], None]) -> list[str]:
        """Until all have left, the recorder once it has written all.

        What had to be killed, in words, and how to complete what a recorder has left.
        """
        if not self.wait(LEAVING_S, (RECORDER,), idle):
            self.kill((RECORDER,))
        if not self.wait(INDEXING_S, idle=idle):
            self.kill()
            self.wait(LEAVING_S)
        return [process.death for process in self.running if process.hung] + self._recovery()

    def _recovery(self) -> list[str]:
        broken_off = [process.role for process in self.running if process.broken_off]
        recorders = [each for each in self.descriptions if each.role == RECORDER and each.peer in broken_off]
        places = [each.parameters["record"] for each in recorders]
        return [f"rths recover {place} completes the recording" for place in places if Path(place).exists()]

    def why(self, ended: Process) -> str:
        """Why a process ended; where it has only heard of a refusal, in the words of the node that has refused."""
        alike = (each for each in self.running if each.popen.returncode == ended.popen.returncode)
        return (ended if ended.words else next((each for each in alike if each.words), ended)).death

    def counted(self, reported: Container[str]) -> list[Process]:
        """Return the processes whose exit code tells of the test; ``reported`` are those that have told a Summary.

        One that hung although it had said all does not count: the middleware may do so while its peers leave. A
        recorder that hangs leaves no recording.
        """
        said = [each for each in self.running if each.role in reported and each.role != RECORDER]
        return [each for each in self.running if not (each.ended_by_us and each in said)]
