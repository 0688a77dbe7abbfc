# SPDX-License-Identifier: Apache-2.0
"""Analysis that runs in the OpenSees process and drives the rig step by step.

``core/opensees_program.py`` runs this module without importing ``rths_nodes``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # this module runs without the package
    from rths_nodes.core.data import Data
    from rths_nodes.core.opensees_program import Model

RIG_ELEMENT = 2_000_000_000
"""Tag of the rig's element, larger than any tag of a model."""

SHORTEST_VECTOR = 256
"""Shortest message, in doubles."""

ASKS_FIRST = {"CentralDifference"}
"""Integrators that request the force at the beginning of a step and therefore need one more step."""


def work(ops: ModuleType, task: Data, model: Model) -> None:
    calls = []

    def rig() -> None:
        calls.append(True)
        for where in ("interface", "observed"):
            for node, number in task[where]:
                model.check_node(node, number, "rig()", where)
        check_free()
        ops.element("genericClient", RIG_ELEMENT, *client(task["wire"], task["port"]))

    def check_free() -> None:
        for node, number in task["interface"]:
            model.check_free(node, number)

    model.build("model(rig)", rig)
    if len(calls) != 1:
        name = Path(task["model"]).name
        raise SystemExit(f"model(rig) of {name} called rig() {len(calls)} times, but must call rig() once")
    try:
        check_free()  # the model may have fixed a node after the call of rig()
    except ValueError as error:
        raise SystemExit(str(error)) from error
    analyse(ops, task, model)


def client(interface: Sequence[Sequence[int]], port: int) -> list[object]:
    nodes = list(dict.fromkeys(node for node, _ in interface))
    numbers: list[object] = []
    for node in nodes:
        numbers += ["-dof", *(number for other, number in interface if other == node)]
    n = len(interface)
    size = max(SHORTEST_VECTOR, 3 * n + 2, n * n)
    return ["-node", *nodes, *numbers, "-server", port, "127.0.0.1", "-noRayleigh", "-dataSize", size]


def analyse(ops: ModuleType, task: Data, model: Model) -> None:
    commands = task["analysis"]
    ops.wipeAnalysis()
    for name in ("constraints", "numberer", "system", "test", "algorithm", "integrator"):
        if commands.get(name):
            model.command(name, commands[name])
    model.command("analysis", ["Transient"])
    more = commands["integrator"][0] in ASKS_FIRST
    for step in range(task["steps"] + more):
        if ops.analyze(1, task["step"]):
            raise SystemExit(f"the analysis has failed in step {step + 1} of {task['steps']}")
