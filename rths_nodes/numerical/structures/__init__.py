# SPDX-License-Identifier: Apache-2.0
"""Numerical substructures: mass, damping, stiffness, influence vector and restoring force.

M a + C v + r(x) + r_e = -M 1 a_g (Chen & Ricles 2010, Eq. 1a), with x relative to the ground and the measured
force r_e. The part in the laboratory is subtracted from M, C and r, but not from the M of the load (Phillips &
Spencer 2012, Eq. 1.1).
"""

from __future__ import annotations

TABLE = {
    "sdof": ".shear_frame:Sdof",
    "shear_frame": ".shear_frame:ShearFrame",
    "matrices": ".matrices:Matrices",
}
