# SPDX-License-Identifier: Apache-2.0
"""OpenSees model of a three-story frame: static loads, then ground motion.

    python frame.py                compute the complete frame
    python frame.py --rig          first story in the laboratory; first start `rths run frame.yaml`
    rths run frame_started.yaml    first story in the laboratory; the test starts this file

Units: m, N, kg, s.
"""

import argparse
import math

import numpy as np
import openseespy.opensees as ops

MASSES = (1000.0, 900.0, 800.0)
STORIES = (1.0e6, 9.0e5, 8.0e5)
GRAVITY_STEPS = 2
STEP = 0.01
DURATION = 3.0


def model(rig):
    """Build the frame, apply its static loads, and define the ground motion.

    ``rig()`` adds the story between nodes 0 and 1.
    """
    ops.wipe()
    ops.model("basic", "-ndm", 1, "-ndf", 1)
    ops.node(0, 0.0)
    ops.fix(0, 1)
    for floor, mass in enumerate(MASSES, start=1):
        ops.node(floor, 0.0)
        ops.mass(floor, mass)
    rig()
    for floor in (2, 3):
        spring(floor, STORIES[floor - 1])
    gravity()
    ground = [2.0 * math.sin(9.0 * STEP * i) for i in range(round(DURATION / STEP) + 2)]
    ops.timeSeries("Path", 2, "-dt", STEP, "-values", *ground)
    ops.pattern("UniformExcitation", 2, 1, "-accel", 2)


def spring(floor, stiffness):
    """Add a computed story below ``floor``."""
    ops.uniaxialMaterial("Elastic", floor, stiffness)
    ops.element("zeroLength", floor, floor - 1, floor, "-mat", floor, "-dir", 1)


def gravity():
    """Apply permanent loads, here horizontal ones that deform the first story."""
    ops.timeSeries("Linear", 1)
    ops.pattern("Plain", 1, 1)
    for floor in (1, 2, 3):
        ops.load(floor, 3000.0)
    ops.constraints("Plain")
    ops.numberer("Plain")
    ops.system("BandGeneral")
    ops.test("NormUnbalance", 1e-6, 10)
    ops.algorithm("Newton")
    ops.integrator("LoadControl", 1.0 / GRAVITY_STEPS)
    ops.analysis("Static")
    if ops.analyze(GRAVITY_STEPS):
        raise RuntimeError("the static analysis has failed")
    ops.loadConst("-time", 0.0)


def earthquake(steps, integrator, iterations):
    """Return the displacements of the floors, (steps, 3)."""
    ops.wipeAnalysis()
    ops.constraints("Plain")
    ops.numberer("RCM")
    ops.system("BandGeneral")
    if iterations:
        ops.test("FixedNumIter", iterations)
        ops.algorithm("Newton")
    else:
        ops.algorithm("Linear")
    ops.integrator(*integrator)
    ops.analysis("Transient")
    displacements = []
    for _ in range(steps):
        if ops.analyze(1, STEP):
            raise SystemExit("the dynamic analysis has failed")
        displacements.append([ops.nodeDisp(floor, 1) for floor in (1, 2, 3)])
    return np.array(displacements)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rig", action="store_true")
    parser.add_argument("--port", type=int, default=8090)
    parser.add_argument("--steps", type=int, default=round(DURATION / STEP))
    parser.add_argument("--integrator", nargs="+", default=["NewmarkExplicit", "0.5"])
    parser.add_argument("--iterations", type=int, default=0, help="number per step; 0: linear algorithm")
    parser.add_argument("--out", default="frame.npy")
    options = parser.parse_args()
    name, *numbers = options.integrator
    if options.rig:
        server = ["-server", options.port, "127.0.0.1"]
        model(lambda: ops.element("genericClient", 1, "-node", 1, "-dof", 1, *server, "-noRayleigh"))
    else:
        model(lambda: spring(1, STORIES[0]))
    displacements = earthquake(options.steps, [name, *map(float, numbers)], options.iterations)
    ops.wipe()  # disconnects the client
    np.save(options.out, displacements)
    print(f"largest displacement of the roof: {np.abs(displacements[:, 2]).max():.6f} m")


if __name__ == "__main__":
    main()
