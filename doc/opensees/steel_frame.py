# SPDX-License-Identifier: Apache-2.0
"""OpenSees model of a yielding four-story steel frame with fibre sections and a damper, under El Centro.

    python steel_frame.py            compute the complete frame
    rths run steel_frame.yaml        damper in the laboratory; the test starts this file

Units: m, N, kg, s.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import openseespy.opensees as ops

RECORD = Path(__file__).parents[2] / "config" / "ground_motions" / "benchmark_el_centro_1940.txt"
SCALE = 1.5
STORIES, HEIGHT, BAY = 4, 3.5, 6.0
MASS = 20.0e3
"""Mass of a node. Vertical and rotational inertia are 1e-3 of it, because explicit integrators divide by them."""
MODULUS, YIELD_STRESS, HARDENING = 200.0e9, 345.0e6, 0.01
COLUMN = (0.37, 0.37, 0.026, 0.016)
BEAM = (0.61, 0.23, 0.0173, 0.0112)
"""Depth, width, thickness of flange and web, m."""
DAMPER = 4.0e5
"""Damping coefficient, N s/m."""
DAMPING_RATIO = 0.02
GRAVITY_STEPS = 10


def node(floor, side):
    """Return the tag of the node at a floor (0: ground) and a side (1, 2)."""
    return 10 * floor + side


ROOF = node(STORIES, 1)


def model(rig):
    """Build the frame, apply gravity, and define the ground motion. ``rig()`` adds the damper of node 11."""
    ops.wipe()
    ops.model("basic", "-ndm", 2, "-ndf", 3)
    for floor in range(STORIES + 1):
        for side in (1, 2):
            ops.node(node(floor, side), (side - 1) * BAY, floor * HEIGHT)
            if floor:
                ops.mass(node(floor, side), MASS, 1e-3 * MASS, 1e-3 * MASS)
            else:
                ops.fix(node(floor, side), 1, 1, 1)
    members()
    rig()
    gravity()
    first, _, third = (math.sqrt(value) for value in ops.eigen(3))
    factor = 2.0 * DAMPING_RATIO / (first + third)
    ops.rayleigh(factor * first * third, 0.0, factor, 0.0)
    times, ground = np.loadtxt(RECORD, unpack=True)
    ops.timeSeries("Path", 2, "-dt", times[1].item(), "-values", *ground.tolist(), "-factor", SCALE)
    ops.pattern("UniformExcitation", 2, 1, "-accel", 2)


def members():
    """Add columns and beams with distributed plasticity."""
    ops.uniaxialMaterial("Steel01", 1, YIELD_STRESS, MODULUS, HARDENING)
    for tag, shape in ((1, COLUMN), (2, BEAM)):
        section(tag, *shape)
        ops.beamIntegration("Lobatto", tag, tag, 5)
    ops.geomTransf("PDelta", 1)
    ops.geomTransf("Linear", 2)
    for floor in range(1, STORIES + 1):
        for side in (1, 2):
            ops.element("forceBeamColumn", 10 * floor + side, node(floor - 1, side), node(floor, side), 1, 1)
        ops.element("forceBeamColumn", 10 * floor + 3, node(floor, 1), node(floor, 2), 2, 2)


def section(tag, depth, width, flange, web):
    """Define an I-section of fibres."""
    ops.section("Fiber", tag)
    inside = 0.5 * depth - flange
    for low, high, half, count in (
        (-0.5 * depth, -inside, 0.5 * width, 4),
        (-inside, inside, 0.5 * web, 8),
        (inside, 0.5 * depth, 0.5 * width, 4),
    ):
        ops.patch("rect", 1, count, 1, low, -half, high, half)


def gravity():
    """Apply the weight of the floors."""
    ops.timeSeries("Linear", 1)
    ops.pattern("Plain", 1, 1)
    for floor in range(1, STORIES + 1):
        for side in (1, 2):
            ops.load(node(floor, side), 0.0, -9.81 * MASS, 0.0)
    ops.constraints("Plain")
    ops.numberer("RCM")
    ops.system("BandGeneral")
    ops.test("NormUnbalance", 1e-3, 20)
    ops.algorithm("Newton")
    ops.integrator("LoadControl", 1.0 / GRAVITY_STEPS)
    ops.analysis("Static")
    if ops.analyze(GRAVITY_STEPS):
        raise RuntimeError("the static analysis has failed")
    ops.loadConst("-time", 0.0)


def damper():
    """Add a computed damper."""
    ops.node(100, 0.0, HEIGHT)
    ops.fix(100, 1, 1, 1)
    ops.uniaxialMaterial("Viscous", 2, DAMPER, 1.0)
    ops.element("zeroLength", 1, 100, node(1, 1), "-mat", 2, "-dir", 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--step", type=float, default=0.005)
    parser.add_argument("--duration", type=float, default=20.0)
    parser.add_argument("--out", default="steel_frame.npy")
    options = parser.parse_args()
    model(damper)
    ops.wipeAnalysis()
    ops.constraints("Plain")
    ops.numberer("RCM")
    ops.system("BandGeneral")
    ops.algorithm("Linear")
    ops.integrator("AlphaOS", 0.9)
    ops.analysis("Transient")
    displacements = []
    for _ in range(round(options.duration / options.step)):
        if ops.analyze(1, options.step):
            raise SystemExit("the dynamic analysis has failed")
        displacements.append([ops.nodeDisp(node(floor, 1), 1) for floor in range(1, STORIES + 1)])
    np.save(options.out, displacements)
    print(f"largest displacement of the roof: {np.abs(displacements)[:, -1].max():.4f} m")


if __name__ == "__main__":
    main()
