# SPDX-License-Identifier: Apache-2.0
"""Shear frame in OpenSees, run as a program: ``python opensees_frame.py MODEL.json OUT.npy``.

MODEL has masses, materials (per story: arguments of uniaxialMaterial after the tag), damping (Rayleigh's a and b
with the initial stiffness), integrator (its arguments), algorithm, step, and ground acceleration. Optional weights
of the floors, with story_heights, load a column of bars that leans with the frame. OUT receives the displacements
of the floors relative to the ground ``(steps + 1, n)``, m.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import openseespy.opensees as ops

STIFF = 1e11
"""Axial stiffness of the leaning bars, N; high, so that they keep their length."""
BAR = 1000
"""Number of the lowest bar and of the node below it."""


def build(model: dict[str, Any]) -> None:
    """Create coincident nodes 0 to n with masses, connected by springs in one direction."""
    ops.wipe()
    ops.model("basic", "-ndm", 2, "-ndf", 2)
    ops.node(0, 0.0, 0.0)
    ops.fix(0, 1, 1)
    for node, mass in enumerate(model["masses"], start=1):
        ops.node(node, 0.0, 0.0)
        ops.fix(node, 0, 1)
        ops.mass(node, mass, 0.0)
    for story, (kind, *constants) in enumerate(model["materials"], start=1):
        ops.uniaxialMaterial(kind, story, *constants)
        ops.element("zeroLength", story, story - 1, story, "-mat", story, "-dir", 1, "-doRayleigh", 1)
    a, b = model["damping"]
    ops.rayleigh(a, 0.0, b, 0.0)
    if "weights" in model:
        lean(model["weights"], model["story_heights"])


def lean(weights: list[float], heights: list[float]) -> None:
    """Add a column of pinned bars that leans with the frame, and load it by the weights."""
    ops.uniaxialMaterial("Elastic", BAR, STIFF)
    ops.node(BAR, 0.0, 0.0)
    ops.fix(BAR, 1, 1)
    for floor, height in enumerate(np.cumsum(heights).tolist(), start=1):
        ops.node(BAR + floor, 0.0, height)
        ops.equalDOF(floor, BAR + floor, 1)
        ops.element("corotTruss", BAR + floor, BAR + floor - 1, BAR + floor, 1.0, BAR)
    ops.timeSeries("Constant", 1)
    ops.pattern("Plain", 1, 1)
    for floor, weight in enumerate(weights, start=1):
        ops.load(BAR + floor, 0.0, -weight)
    ops.integrator("LoadControl", 0.0)
    prepare("Static", "Newton")
    solve(1)
    ops.loadConst("-time", 0.0)
    ops.wipeAnalysis()


def prepare(kind: str, algorithm: str) -> None:
    """Set up an analysis, except for its integrator."""
    ops.constraints("Transformation")
    ops.numberer("Plain")
    ops.system("FullGeneral")
    ops.test("NormDispIncr", 1e-12, 50)
    ops.algorithm(algorithm)
    ops.analysis(kind)


def solve(steps: int, *dt: float) -> None:
    """Advance by ``steps``."""
    if ops.analyze(steps, *dt):
        raise SystemExit("OpenSees does not converge")


def main() -> None:
    model = json.loads(Path(sys.argv[1]).read_text())
    build(model)
    acceleration, floors = model["acceleration"], range(1, len(model["masses"]) + 1)
    ops.timeSeries("Path", 2, "-dt", model["step"], "-values", *acceleration)
    ops.pattern("UniformExcitation", 2, 1, "-accel", 2)
    ops.integrator(*model["integrator"])
    prepare("Transient", model["algorithm"])
    history = [[0.0 for _ in floors]]
    for _ in acceleration[1:]:
        solve(1, model["step"])
        history.append([ops.nodeDisp(node, 1) for node in floors])
    np.save(sys.argv[2], history)


if __name__ == "__main__":
    main()
