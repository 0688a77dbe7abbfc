"""The process of an OpenSees model: ``python model_process.py TASK``, with the task as JSON.

It builds the model, which puts the element genericClient where the part under test belongs, and analyses its
steps. It imports nothing of the package. What is wrong it says in one line; the exit code is 1 then.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RIG_ELEMENT = 2_000_000_000
"""Tag of the element that is the rig, beyond those of a model."""

SHORTEST_VECTOR = 256
"""Doubles of a message, unless the element has so many degrees of freedom that it needs more."""

ASKS_FIRST = {"CentralDifference"}
"""Integrators that ask for the force at the beginning of a step: they need one step more."""


def main(task: Mapping[str, Any]) -> None:
    """Build and analyse. Raises SystemExit with words for what the user can mend."""
    end_with(task["parent"])
    try:
        import openseespy.opensees as ops
    except ImportError as error:
        raise SystemExit(
            f"OpenSees cannot be imported ({error}): pip install 'rths_nodes[opensees]', and of the system "
            "libblas3 liblapack3 libgfortran5 libgomp1"
        ) from error
    path, calls = Path(task["model"]), []

    def rig() -> None:
        calls.append(True)
        ops.element("genericClient", RIG_ELEMENT, *client(task["interface"], task["port"]))

    build(path, rig)
    if len(calls) != 1:
        raise SystemExit(f"model(rig) of {path.name} has called rig() {len(calls)} times: must be once")
    analyse(ops, task)
    ops.wipe()


def end_with(parent: int) -> None:
    """Let the system end this process with its parent: OpenSees, which waits for an answer, heeds nothing else."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(1)


def client(interface: Sequence[Sequence[int]], port: int) -> list[Any]:
    """The words of the element, without its name and tag."""
    nodes = list(dict.fromkeys(node for node, _ in interface))
    numbers: list[Any] = []
    for node in nodes:
        numbers += ["-dof", *(number for other, number in interface if other == node)]
    n = len(interface)
    size = max(SHORTEST_VECTOR, 3 * n + 2, n * n)
    return ["-node", *nodes, *numbers, "-server", port, "127.0.0.1", "-noRayleigh", "-dataSize", size]


def build(path: Path, rig: Any) -> None:
    """Run ``model(rig)`` of the file."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path.name}: must be a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        model = getattr(module, "model", None)
        if not callable(model):
            raise SystemExit(f"{path.name} has no function model(rig)")
        model(rig)
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = frames[-1].lineno if frames else getattr(error, "lineno", None)
        place = f"line {line}: " if line else ""
        raise SystemExit(f"{place}{type(error).__name__}: {error}") from error


def analyse(ops: Any, task: Mapping[str, Any]) -> None:
    """All steps of the dynamic analysis."""
    commands = task["analysis"]
    ops.wipeAnalysis()
    for name in ("constraints", "numberer", "system", "test", "algorithm", "integrator"):
        if commands[name]:
            getattr(ops, name)(*words(commands[name]))
    ops.analysis("Transient")
    more = commands["integrator"].split()[0] in ASKS_FIRST
    for step in range(task["steps"] + more):
        if ops.analyze(1, task["step"]):
            raise SystemExit(f"the analysis has failed in step {step + 1} of {task['steps']}")


def words(line: str) -> list[Any]:
    """``NewmarkExplicit 0.5`` as OpenSees takes it: numbers are numbers."""
    return [number(word) for word in line.split()]


def number(word: str) -> Any:
    """An integer, a float, or the word itself."""
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
