# SPDX-License-Identifier: Apache-2.0
"""Programs and nodes of this package, and modules outside of it, for tests."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rths_nodes.ros.names import RECORDER

RTHS = [sys.executable, "-m", "rths_nodes.app.cli"]


def child_environment(*folders: Path, **variables: str) -> dict[str, str]:
    """Return the variables of a child process that finds the modules of this one, those in ``folders`` first."""
    modules = os.pathsep.join(filter(None, [*map(str, folders), *sys.path]))
    return os.environ | {"PYTHONPATH": modules} | variables


def begun(command: Sequence[Any], **options: Any) -> subprocess.Popen[str]:
    """Start a program whose outputs are read as text; ``options`` are further arguments of Popen."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": child_environment()}
    return subprocess.Popen(command, **(pipes | options))


def completed(command: Sequence[Any], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with any exit code; ``options`` are further arguments of ``subprocess.run``."""
    outputs = {"capture_output": True, "text": True, "check": False, "env": child_environment()}
    return subprocess.run(command, **(outputs | options))


@contextmanager
def killed(program: subprocess.Popen[Any]) -> Iterator[subprocess.Popen[Any]]:
    """Kill a program at the end of the ``with`` block."""
    with program:
        try:
            yield program
        finally:
            program.kill()


def settings(*overrides: str) -> list[str]:
    """Return the options of a command that override a scenario."""
    return [part for override in overrides for part in ("--set", override)]


def write_metadata(site: Path, package: str, entry_points: str) -> None:
    """Write the metadata of an installed package below ``site``."""
    folder = site / f"{package}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text(entry_points, encoding="utf-8")


def start_node(
    role: str, folder: Path, *values: str, prefix: Sequence[str] = (), **options: Any
) -> subprocess.Popen[str]:
    """Start a node with parameter ``values``; the recorder writes below ``folder``.

    ``prefix`` is a command that starts another command on a machine, ``options`` are arguments of Popen.
    """
    values += (f"record:={folder / 'run'}",) if role == RECORDER else ()
    command = [*prefix, sys.executable, "-m", "rths_nodes.app.node", role, "--ros-args"]
    command += [part for value in values for part in ("-p", value)]
    environment = child_environment(ROS_AUTOMATIC_DISCOVERY_RANGE="SUBNET")
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, text=True, **options)


def wait_for_journal(
    journal: Path, program: subprocess.Popen[Any], wait: Callable[[], object] | None = None
) -> None:
    """Wait until the program has written 100 kB of a recording, or has ended."""
    while program.poll() is None and not (journal.exists() and journal.stat().st_size > 100_000):
        wait() if wait else time.sleep(0.02)


def module_of(path: Path, name: str = "") -> Any:
    """Load a module of a file that is in no package."""
    spec = importlib.util.spec_from_file_location(name or path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
