# SPDX-License-Identifier: Apache-2.0
"""OpenSees model of a steel column with fibre sections under a vertical load: the specimen of a rehearsal.

    python column.py               push the column to both sides, without a rig
    rths run rehearsal.yaml        move it by simulated actuators; the test starts this file

Units: m, N, kg, s.
"""

import openseespy.opensees as ops

HEIGHT = 3.0
WEIGHT = 400.0e3
"""Vertical load on the top, N."""
MODULUS, YIELD_STRESS, HARDENING = 200.0e9, 235.0e6, 0.02
DEPTH, WIDTH, FLANGE, WEB = 0.37, 0.37, 0.026, 0.016
GRAVITY_STEPS = 4


def specimen(hold):
    """Build the column on a fixed base, and apply its load. ``hold()`` lets the rig hold the top."""
    ops.wipe()
    ops.model("basic", "-ndm", 2, "-ndf", 3)
    ops.node(0, 0.0, 0.0)
    ops.node(1, 0.0, HEIGHT)
    ops.fix(0, 1, 1, 1)
    ops.uniaxialMaterial("Steel01", 1, YIELD_STRESS, MODULUS, HARDENING)
    ops.section("Fiber", 1)
    inside = 0.5 * DEPTH - FLANGE
    for low, high, half, count in (
        (-0.5 * DEPTH, -inside, 0.5 * WIDTH, 4),
        (-inside, inside, 0.5 * WEB, 8),
        (inside, 0.5 * DEPTH, 0.5 * WIDTH, 4),
    ):
        ops.patch("rect", 1, count, 1, low, -half, high, half)
    ops.beamIntegration("Lobatto", 1, 1, 5)
    ops.geomTransf("PDelta", 1)
    ops.element("forceBeamColumn", 1, 0, 1, 1, 1)
    hold()
    gravity()


def gravity():
    """Apply the vertical load."""
    ops.timeSeries("Linear", 1)
    ops.pattern("Plain", 1, 1)
    ops.load(1, 0.0, -WEIGHT, 0.0)
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


def main():
    specimen(lambda: None)
    ops.timeSeries("Linear", 2)
    ops.pattern("Plain", 2, 2)
    ops.load(1, 1.0, 0.0, 0.0)
    ops.test("NormDispIncr", 1e-8, 50)
    for peak in (0.001, 0.05, -0.05):
        while abs(step := peak - ops.nodeDisp(1, 1)) > 1e-9:
            step = max(-0.001, min(0.001, step))
            ops.integrator("DisplacementControl", 1, 1, step)
            if ops.analyze(1):
                raise SystemExit("the analysis has failed")
        force = ops.getTime()
        print(f"at {1e3 * peak:g} mm: {1e-3 * force:.1f} kN, {1e-6 * force / peak:.3f} MN/m")


if __name__ == "__main__":
    main()
