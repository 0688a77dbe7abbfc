# SPDX-License-Identifier: Apache-2.0
"""Process with an OpenSees model as the specimen of a rig. The model follows the actuators.

``core/opensees_program.py`` runs this file without importing the package. Driven degrees of freedom are
fixed in the model; before each step their displacement, velocity and acceleration are set. Only the constraint
handler Plain preserves these values. Only a transient integrator that begins a step with new element forces, such
as Newmark, uses them in the same step.
"""

from __future__ import annotations

import math
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the process runs this file without the package
    from rths_nodes.core.data import Data
    from rths_nodes.core.opensees_program import Model

SMALL = 1e-6
"""Displacement (m or rad) with which the initial stiffness is computed."""

SLOW = 1e9
"""Duration of a step in which inertia and damping forces are negligible, s."""

LEAST_TAG = 2_000_000_000
"""Smallest tag of an added node. The actual tag also exceeds all node tags of the model."""


def work(ops: ModuleType, task: Data, model: Model) -> None:
    """Send the initial stiffness of a first model, then use a second model as the specimen until the test ends."""
    first = Specimen(ops, task, model)
    stiffness = first.stiffness()
    second = Specimen(ops, task, model)
    n = len(task["interface"])
    with socket.socket(fileno=task["channel"]) as channel:
        channel.sendall(struct.pack(f"<{n * n + n}d", *stiffness, *second.rest))
        while request := channel.recv(24 * n, socket.MSG_WAITALL):
            numbers = struct.unpack(f"<{3 * n}d", request)
            forces = second.follow((numbers[:n], numbers[n : 2 * n], numbers[2 * n :]))
            channel.sendall(struct.pack(f"<{n}d", *forces))


class Specimen:
    """User's model, which moves with the actuators. ``rest`` holds the forces (N) at zero displacement."""

    def __init__(self, ops: ModuleType, task: Data, model: Model) -> None:
        self._ops, self._interface, self._dt = ops, task["interface"], task["step"]
        self._steps = 0
        calls = []

        def hold() -> None:
            calls.append(True)
            for node, number in self._interface:
                self._hold(model, node, number)

        ops.wipe()
        model.build("specimen(hold)", hold)
        name = Path(task["model"]).name
        if len(calls) != 1:
            raise SystemExit(
                f"specimen(hold) of {name} has called hold() {len(calls)} times; must call it exactly once"
            )
        if ops.getPatterns() and not task["gravity"]:
            raise SystemExit("rig.gravity must be true, because the model has loads")
        if task["gravity"] and not ops.getPatterns():
            raise SystemExit("rig.gravity must be false, because the model has no loads")
        self._prepare(task["analysis"], model)
        ops.reactions()
        self.rest = [0.0] * len(self._interface)
        self.rest = self._forces()

    def _hold(self, model: Model, node: int, number: int) -> None:
        ops = self._ops
        model.check_node(node, number, "hold()", "interface")
        model.check_free(node, number)
        size = len(ops.nodeDisp(node))
        if node in ops.getConstrainedNodes() or node in ops.getRetainedNodes():
            raise ValueError(
                f"node {node}: degree of freedom {number} is tied to another node, but the rig can move only "
                "free nodes"
            )
        ops.fix(node, *(int(index == number) for index in range(1, size + 1)))

    def _prepare(self, commands: Data, model: Model) -> None:
        ops, nodes = self._ops, self._ops.getNodeTags()
        held = ({*ops.getFixedDOFs(node), *ops.getConstrainedDOFs(node)} for node in nodes)
        if not any(len(ops.nodeDisp(node)) > len(fixed) for node, fixed in zip(nodes, held, strict=True)):
            # add a free node, because OpenSees exits if there is no equation to solve
            tag = max(LEAST_TAG, *nodes) + 1
            ops.node(tag, *ops.nodeCoord(self._interface[0][0]))
            ops.mass(tag, *([1.0] * len(ops.nodeDisp(tag))))
        ops.wipeAnalysis()
        ops.loadConst("-time", 0.0)
        ops.constraints("Plain")
        for name in ("numberer", "system", "test", "algorithm", "integrator"):
            model.command(name, commands[name])
        model.command("analysis", ["Transient"])

    def stiffness(self) -> list[float]:
        """Return the stiffness matrix (N/m) by columns; column j has the forces per displacement of axis j alone.

        The call moves the model.
        """
        columns = []
        n = len(self._interface)
        for axis in range(n):
            moved = [SMALL * (index == axis) for index in range(n)]
            forces = self._go(SLOW, (moved, [0.0] * n, [0.0] * n), "while computing the initial stiffness")
            columns += [force / SMALL for force in forces]
        return columns

    def follow(self, motion: Sequence[Sequence[float]]) -> list[float]:
        """Advance by one step and return the forces (N) relative to the forces at rest.

        ``motion`` holds displacements, velocities and accelerations.
        """
        self._steps += 1
        return self._go(self._dt, motion, f"in step {self._steps}")

    def _go(self, dt: float, motion: Sequence[Sequence[float]], when: str) -> list[float]:
        ops = self._ops
        for (node, number), x, v, a in zip(self._interface, *motion, strict=True):
            ops.setNodeDisp(node, number, x)
            ops.setNodeVel(node, number, v)
            ops.setNodeAccel(node, number, a)
        failed = ops.analyze(1, dt)
        ops.reactions("-dynamic")
        forces = self._forces()
        if failed or not all(map(math.isfinite, forces)):
            raise SystemExit(f"the analysis has failed {when}, at {', '.join(f'{x:g}' for x in motion[0])} m")
        return forces

    def _forces(self) -> list[float]:
        reactions = (self._ops.nodeReaction(node, number) for node, number in self._interface)
        return [force - rest for force, rest in zip(reactions, self.rest, strict=True)]
