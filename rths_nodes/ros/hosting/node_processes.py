# SPDX-License-Identifier: Apache-2.0
"""Processes of the nodes: start, monitoring, end, and final reports to the runner."""

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
from rths_nodes.loop.outcomes import ExitCode, LastWords, report_to_launch
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.ros.hosting.descriptions import NodeDescription
from rths_nodes.ros.names import RECORDER, logger_of

INDEXING_S = 600.0
"""Timeout for a recorder to index its file, s."""

LEAVING_S = 10.0
"""Timeout for nodes other than the recorder to exit after a test, s."""

QUIET_S = 0.05
"""Pause before endpoints and participant are removed, s. Without the pause, a peer that is acknowledging a message
could hang (``exit_guard.py``)."""

LONGEST_REPORT = 4000
"""Largest final report, bytes. A pipe stores the report until the runner reads it."""

LOOKS = 20

HANGS_S = 20.0
"""Time without CPU after which a node is hung, s. A healthy node wakes every 20 ms, computes, or writes."""

STOPPED_S = 2.0
"""Longest wait after the test for a node that a signal has suspended, s."""

PARENT = "RTHS_PARENT"
"""Environment variable with the pid of the runner. A node exits when the runner exits."""

TELLS = "RTHS_RUNNER_TELLS"
"""Environment variable with a file descriptor, to which a node writes the reason for its end, because an
unconfigured node has no topics."""


def death(name: str, code: int) -> str:
    names = {number.value: number.name for number in signal.Signals}  # real-time signals have no names
    how = names.get(-code, f"signal {-code}") if code < 0 else f"exit code {code}"
    return f"the {name} node died ({how})"


def die_with_parent() -> None:
    parent = os.environ.get(PARENT)
    if not parent:
        return
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGTERM)
    if os.getppid() != int(parent):
        sys.exit(1)


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
    pipe: IO[bytes]
    sent: set[int] = field(default_factory=set)
    silent: bool = False
    _stopped_at: float = 0.0
    _turns: tuple[list[str], float] = field(default_factory=lambda: ([], 0.0))
    """CPU times and context switches of the main thread, and time of their last change, s."""
    _next_look: float = 0.0

    @property
    def death(self) -> str:
        if self.hung:
            why = "hangs: its main thread does not run" if self.silent else "did not exit by itself"
            return f"the {self.role} node {why}"
        return self.report or death(self.role, self.popen.returncode)

    @cached_property
    def report(self) -> str:
        return (self.pipe.read(LONGEST_REPORT) or b"").decode(errors="replace")

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

    def check_alive(self) -> None:
        """Kill the process if its main thread has not run for ``HANGS_S``, unless the thread waits for a disk."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + HANGS_S / LOOKS
        with suppress(OSError):
            state, turns = self._main_thread()
            before, since = self._turns
            if turns != before or state == "D":  # D: the process waits for a disk
                self._turns = turns, now
            elif now - since > HANGS_S:
                self._give_up()

    def check_going(self) -> None:
        now = time.monotonic()
        with suppress(OSError):
            stopped = self._main_thread()[0] == "T"
            self._stopped_at = (self._stopped_at or now) if stopped else 0.0
            if stopped and now - self._stopped_at > STOPPED_S:
                self._give_up()

    def _main_thread(self) -> tuple[str, list[str]]:
        thread = Path(f"/proc/{self.popen.pid}/task/{self.popen.pid}")
        state, *numbers = (thread / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        switches = (thread / "status").read_text(encoding="utf-8").partition("\nvoluntary_ctxt_switches")[2]
        return state, [*numbers[10:12], switches]  # time in user mode and in kernel mode

    def _give_up(self) -> None:
        self.silent = True
        self.kill()

    def kill(self) -> None:
        self.sent.add(signal.SIGKILL)
        self.popen.kill()


def _written(scenario: Scenario, folder: Path) -> Path:
    file = folder / f"{scenario.name}.yaml"
    if not file.exists():
        folder.mkdir(exist_ok=True)
        file.write_text(yaml_text.dump(scenario.data()), encoding="utf-8")
    return file


def _started(peer: str, command: Sequence[str], environment: Mapping[str, str]) -> Process:
    read, write = os.pipe()
    os.set_blocking(read, False)  # a child of the node may keep the other end open
    pipe = open(read, "rb", buffering=0)  # noqa: SIM115
    try:
        popen = subprocess.Popen(
            command,
            env={**environment, TELLS: str(write)},
            pass_fds=(write,),
            start_new_session=True,  # the runner handles Ctrl-C
            stdin=subprocess.DEVNULL,
        )
    except OSError:
        pipe.close()
        raise
    finally:
        os.close(write)
    return Process(peer, popen, pipe)


@dataclass
class Processes:
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
            raise ConfigError(f"{where}cannot start the nodes ({error.strerror or error})") from error
        return self

    def _start(self) -> None:
        environment = os.environ | {PARENT: str(os.getpid())}
        root = str(Path(__file__).resolve().parents[3])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
        for description in self.descriptions:
            arguments = ["-m", "rths_nodes.app.node", description.role, *self._arguments(description)]
            command = [sys.executable, *arguments]
            self.running.append(_started(description.peer, command, environment))

    def _arguments(self, description: NodeDescription) -> list[str]:
        assert self._folder is not None
        folder, parameters = Path(self._folder.name), description.parameters
        if description.scenario is not None:
            parameters = parameters | {"scenario": str(_written(description.scenario, folder / "scenario"))}
        file = folder / f"{description.peer.replace('/', '_')}.yaml"
        file.write_text(yaml.safe_dump({"/**": {"ros__parameters": parameters}}), encoding="utf-8")
        level = f"{logger_of(description.namespace)}:=warn"  # the runner reports progress
        where = f"__ns:=/{description.namespace}"
        return ["--ros-args", "--params-file", str(file), "-r", where, "--log-level", level]

    def __exit__(self, *_: object) -> None:
        self.kill()
        for process in self.running:
            process.popen.wait()
            process.pipe.close()
        if self._folder is not None:
            self._folder.cleanup()

    def kill(self, but: Sequence[str] = ()) -> list[Process]:
        killed = [process for process in self.alive() if process.role not in but]
        for process in killed:
            process.kill()
        return killed

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
                process.check_going()
                process.check_alive()
            idle() if idle else time.sleep(0.005)
        return True

    def see_out(self, idle: Callable[[], None]) -> list[str]:
        if not self.wait(LEAVING_S, (RECORDER,), idle):
            self.kill((RECORDER,))
        if not self.wait(INDEXING_S, idle=idle):
            self.kill()
            self.wait(LEAVING_S)
        return [process.death for process in self.running if process.hung] + self._recovery()

    def _recovery(self) -> list[str]:
        broken_off = [process.role for process in self.running if process.broken_off]
        recorders = [
            description
            for description in self.descriptions
            if description.role == RECORDER and description.peer in broken_off
        ]
        places = [description.parameters["record"] for description in recorders]
        return [f"rths recover {path} completes the recording" for path in places if Path(path).exists()]

    def why(self, ended: Process) -> str:
        """Return the reason for the end of ``ended``; without a report, the report of a process that caused it.

        A node that leaves because the actuator node refuses the test exits with REFUSED and has no report. The
        actuator node's code may be another one, and it exits last.
        """
        code = ended.popen.returncode
        causes = [ended, *(one for one in self.running if code in (ExitCode.REFUSED, one.popen.returncode))]
        return next((process for process in causes if process.report), ended).death

    def counted(self, reported: Container[str]) -> list[Process]:
        """Return the processes whose exit codes decide the outcome; ``reported`` are the roles with a Summary.

        A process that the runner has ended after its Summary is excluded. A recorder is included even then,
        because its recording is incomplete.
        """
        reporting = [process for process in self.running if process.role in reported and process.role != RECORDER]
        return [process for process in self.running if not (process.ended_by_us and process in reporting)]
