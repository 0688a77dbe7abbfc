"""Setups: degrees of freedom of the numerical substructure <-> actuator axes, by virtual work."""

TABLE = {
    "identity": "rths_nodes.setups.identity:Identity",
    "matrix": "rths_nodes.setups.matrix:Matrix",
    "rigid_coupler": "rths_nodes.setups.rigid_coupler:RigidCoupler",
}
