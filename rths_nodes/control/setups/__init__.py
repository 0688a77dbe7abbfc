# SPDX-License-Identifier: Apache-2.0
"""Setups: convert between degrees of freedom of the numerical substructure and actuator axes (virtual work)."""

TABLE = {
    "identity": ".identity:Identity",
    "matrix": ".matrix:Matrix",
    "rigid_coupler": ".rigid_coupler:RigidCoupler",
    "upright_load": ".upright_load:UprightLoad",
}
