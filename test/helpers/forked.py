# SPDX-License-Identifier: Apache-2.0
"""Programs of this package, forked from a process that has already loaded it.

A test of five nodes starts Python six times, and half of its computing time is the loading of the same modules.
After ``install``, ``subprocess.Popen`` requests each ``python -m rths_nodes...`` from a server, a fork of which
becomes that program, with its own arguments, variables, folder, streams and session. Its starter sees an ordinary
process with signals and an exit code. Python itself starts all other programs, and those that a fork cannot be. A
forked program uses the server in its turn.

The parent of a forked program is the server, which therefore terminates a node when its runner has ended.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, NoReturn

SERVER = "RTHS_FORKS"
"""Environment variable with the path of the server's socket."""
PARENT = "RTHS_PARENT"
PROGRAMS = ("rths_nodes.app.cli", "rths_nodes.app.node")
LOADED = (
    "rths_nodes.ros.hosting.composed",
    "rths_nodes.app.hosts",
    "rths_nodes.analysis.report.document",
    "rths_nodes.app.page.server",
    "scipy.signal",
    "rosidl_generator_py",
    "service_msgs.msg",
    "type_description_interfaces.msg",
    *(
        f"{package}.{package}_s__rosidl_typesupport_c"
        for package in ("rths_nodes", "std_msgs", "builtin_interfaces", "rcl_interfaces", "lifecycle_msgs")
    ),
)
"""Modules that programs import late, in addition to commands and components."""
OURS = ("PYTHONPATH", "PYTHONPYCACHEPREFIX")
"""Variables of Python that a fork can still apply, or that do not affect the loaded modules."""
LONGEST = 1 << 20
CLONE_NEWNET = 0x40000000


def _python(environment: dict[str, str]) -> dict[str, str]:
    """Variables that Python reads only at its start."""
    fixed = ("PYTHON", "LD_", "OPENBLAS", "OMP_")
    return {name: value for name, value in environment.items() if name.startswith(fixed) and name not in OURS}


# -- starting a program -----------------------------------------------------------------------------------------


def at_a_terminal() -> None:
    """Lead a session at the terminal of the input, with Ctrl-C enabled: a ``preexec_fn`` for forked programs."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """subprocess.Popen that forks the programs of this package."""

    _end: socket.socket | None = None

    def _execute_child(self, *arguments: Any) -> None:
        command, executable, before, _, kept, folder, environment, _, _, shell = arguments[:10]
        gid, gids, uid, umask, session, group = arguments[17:23]
        variables = dict(os.environ if environment is None else environment)
        network, command = _network_of(command)
        terminal = before is at_a_terminal
        special = executable or shell or umask != -1 or group != -1 or {gid, gids, uid} != {None}
        special = special or (before and not terminal) or _python(variables) != _python(dict(os.environ))
        if special or not _is_program(command):
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        task = {
            "words": [str(word) for word in command[2:]],
            "folder": os.path.abspath(folder or os.getcwd()),
            "environment": variables,
            "session": session,
            "terminal": terminal,
            "starter": os.getpid(),
            "network": network,
            "numbers": [0, 1, 2, *kept],
        }
        self._request(task, arguments[10:16])

    def _request(self, task: dict[str, Any], streams: Sequence[int]) -> None:
        """Request the program; ``streams`` are both ends of input, output and errors, -1 for none."""
        handed = [end if end != -1 else number for number, end in enumerate((streams[0], streams[3], streams[5]))]
        self._end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._end.connect(os.environ[SERVER])
        self._end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST)
        socket.send_fds(self._end, [json.dumps(task).encode()], [*handed, *task["numbers"][3:]])
        (self.pid,) = struct.unpack("i", self._end.recv(4))
        self._child_created = True
        self._close_pipe_fds(*streams)  # type: ignore[attr-defined]

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._end is None:
            return super()._try_wait(flags)  # type: ignore[misc,no-any-return]
        if flags & os.WNOHANG and not select.select([self._end], [], [], 0)[0]:
            return 0, 0
        data = self._end.recv(4)
        self._end.close()
        (status,) = (
            struct.unpack("i", data) if data else (signal.SIGKILL,)
        )  # the server has ended, and its programs with it
        return self.pid, status

    def _internal_poll(self, _deadstate: Any = None, **arguments: Any) -> Any:
        if self._end is None:
            return super()._internal_poll(_deadstate, **arguments)  # type: ignore[misc]
        if self.returncode is None:
            with suppress(OSError, ValueError):  # closed: an exception of a timeout interrupted the wait
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)
        return self.returncode


def _network_of(command: Any) -> tuple[str, Any]:
    """Return the network namespace of a command, and the command within it."""
    if isinstance(command, (list, tuple)) and list(command[:3]) == ["ip", "netns", "exec"]:
        return f"/run/netns/{command[3]}", command[4:]
    return f"/proc/{os.getpid()}/ns/net", command


def _is_program(command: Any) -> bool:
    return (
        isinstance(command, (list, tuple))
        and list(command[:2]) == [sys.executable, "-m"]
        and command[2] in PROGRAMS
    )


def install(replace: Callable[[object, str, object], None]) -> None:
    """Fork programs of this package from now on; ``replace`` has the signature of setattr."""
    replace(subprocess, "Popen", Popen)


def uninstall(replace: Callable[[object, str, object], None]) -> None:
    """Undo :func:`install`."""
    replace(subprocess, "Popen", Popen.__base__)


# -- the server --------------------------------------------------------------------------------------------------


def started() -> tuple[subprocess.Popen[bytes], str]:
    """Start the server; return its process and the path of its socket, which exists."""
    path = str(Path(tempfile.mkdtemp(prefix="rths_forks_"), "socket"))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    server = subprocess.Popen([sys.executable, __file__, path], env=environment, stdout=subprocess.PIPE)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    _folders.append(Path(path).parent)
    return server, path


def left_in(domain: int) -> list[str]:
    """Running forked programs in a ROS ``domain``, for which /proc shows the variables of the server."""
    return [f"process {pid}: forked" for pid, program in _alive() if program["domain"] == str(domain)]


def nodes_of(runner: int) -> Iterator[tuple[int, list[str]]]:
    """Process id and arguments of each running program, forked or not, that ends with the process ``runner``."""
    mine = f"{PARENT}={runner}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            if mine in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name), (entry / "cmdline").read_text().split("\0")
    for pid, program in _alive():
        if program["parent"] == str(runner):
            yield pid, program["words"]


def _alive() -> Iterator[tuple[int, dict[str, Any]]]:
    for file in [file for folder in _folders for file in folder.glob("[0-9]*")]:
        with suppress(FileNotFoundError):  # it has just ended
            yield int(file.name), json.loads(file.read_text(encoding="utf-8"))


_folders: list[Path] = []
"""Folders of the servers of this process; each has one file per running program."""


def _load() -> None:
    """Import the modules of the programs; none may start a thread or read the variables of a test."""
    from rths_nodes.app import commands
    from rths_nodes.core import registry
    from rths_nodes.core.errors import ConfigError
    from rths_nodes.laboratory import receiver

    named = [f"{commands.__name__}.{module_info.name}" for module_info in iter_modules(commands.__path__)]
    components = [reference for family in registry.FAMILIES for reference in registry.built_in(family).values()]
    for module in (*LOADED, *named, *(reference.partition(":")[0] for reference in components)):
        with suppress(ImportError):
            import_module(module)
    with suppress(ConfigError):  # no compiler here
        receiver.library()
    gc.collect()
    gc.freeze()


def serve(path: str) -> NoReturn:
    """Fork programs until the starter of this process has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _load()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(path)
    listening.listen(64)
    wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    parent, under_way = os.getppid(), {}
    print("ready", flush=True)
    while os.getppid() == parent:
        ends = {end.fileno(): pid for pid, end in under_way.items() if end is not None}
        ready, _, _ = select.select([listening, wake, *ends], [], [], 0.5)
        if wake in ready:
            os.read(wake, 4096)
        for number in ready:
            if number in ends:  # the starter has ended, or has closed its socket
                _orphaned(under_way, ends[number])
        if listening in ready:
            end = listening.accept()[0]
            under_way[_answer(end, path)] = end
        _reap(under_way, path)
    os._exit(0)


def _orphaned(under_way: dict[int, socket.socket | None], pid: int) -> None:
    end = under_way[pid]
    assert end is not None
    end.close()
    under_way[pid] = None
    if pid in _nodes:
        os.kill(pid, signal.SIGTERM)


_nodes: set[int] = set()
"""Processes that end with their runner."""


def _reap(under_way: dict[int, socket.socket | None], path: str) -> None:
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            _nodes.discard(pid)
            Path(path).with_name(str(pid)).unlink(missing_ok=True)
            end = under_way.pop(pid, None)
            if end is not None:
                with suppress(OSError):
                    end.send(struct.pack("i", status))
                end.close()


def _answer(end: socket.socket, path: str) -> int:
    text, numbers, _, _ = socket.recv_fds(end, LONGEST, 32)
    task = json.loads(text)
    pid = os.fork()
    if pid == 0:
        _become(task, numbers)
    for number in numbers:
        os.close(number)
    if _ends_with_parent(task):
        _nodes.add(pid)
    variables, socket_path = task["environment"], Path(path)
    information = {
        "domain": variables.get("ROS_DOMAIN_ID"),
        "parent": variables.get(PARENT),
        "words": task["words"],
    }
    new = socket_path.with_name(f"new_{pid}")
    new.write_text(json.dumps(information), encoding="utf-8")
    new.rename(socket_path.with_name(str(pid)))
    end.send(struct.pack("i", pid))
    return pid


def _ends_with_parent(task: dict[str, Any]) -> bool:
    """True if the program is a node of its starter, or its page."""
    starter = str(task["starter"])
    return task["environment"].get(PARENT) == starter or ["--parent", starter] == task["words"][-2:]


def _become(task: dict[str, Any], numbers: list[int]) -> NoReturn:
    """Become the program of a ``task``, with the open files ``numbers``."""
    code: Any = 1
    try:
        signal.set_wakeup_fd(-1)
        _enter(task["network"])
        _hand_over(numbers, task["numbers"])
        if task["terminal"]:
            at_a_terminal()
        for number in (signal.SIGINT, signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        if task["session"]:
            os.setsid()
        environment, arguments = task["environment"], task["words"]
        if _ends_with_parent(task):
            environment[PARENT] = str(os.getppid())
            arguments = [str(os.getppid()) if word == str(task["starter"]) else word for word in arguments]
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(task["folder"])
        folders = environment.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:] = list(dict.fromkeys([task["folder"], *filter(None, folders), *sys.path[1:]]))
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            stream = open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
            if number == 2:
                stream.reconfigure(errors="backslashreplace", line_buffering=True)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
        install(setattr)
        sys.argv = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
        code = code if isinstance(code, int) else 0 if code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        _end(code)


def _enter(network: str) -> None:
    """Enter another network namespace; the server stays in its own."""
    with open(network) as there, open("/proc/self/ns/net") as here:
        if os.fstat(there.fileno()).st_ino == os.fstat(here.fileno()).st_ino:
            return
        if ctypes.CDLL(None, use_errno=True).setns(there.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {network}")


def _end(code: int) -> NoReturn:
    import atexit
    import threading

    with suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
    for last in (atexit._run_exitfuncs, lambda: sys.stdout.flush(), lambda: sys.stderr.flush()):
        with suppress(BaseException):
            last()
    os._exit(code)


def _hand_over(numbers: list[int], wanted: list[int]) -> None:
    """Move the open files ``numbers`` to the numbers ``wanted``, and close all others."""
    free = max(*wanted, *numbers) + 1
    above = [os.dup2(number, free + index, inheritable=False) for index, number in enumerate(numbers)]
    kept = sorted(wanted)
    for number, index in zip(wanted, above, strict=True):
        os.dup2(index, number, inheritable=True)
    for low, high in zip(kept, [*kept[1:], 4096], strict=True):
        os.closerange(low + 1, high)


if __name__ == "__main__":
    sys.path[:] = [place for place in sys.path if place != str(Path(__file__).parent)]
    serve(sys.argv[1])
