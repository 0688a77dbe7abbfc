# SPDX-License-Identifier: Apache-2.0
"""Setups: degrees of freedom of the numerical substructure <-> actuator axes, by virtual work."""

TABLE = {
    "identity": ".identity:Identity",
    "matrix": ".matrix:Matrix",
    "rigid_coupler": ".rigid_coupler:RigidCoupler",
    "upright_load": ".upright_load:UprightLoad",
}
