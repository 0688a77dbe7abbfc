"""Integrators: solve the equation of motion of the numerical substructure, one step at a time."""

TABLE = {
    "cr": "rths_nodes.integrators.cr:ChenRicles",
    "central_difference": "rths_nodes.integrators.central_difference:CentralDifference",
    "prescribed": "rths_nodes.integrators.prescribed:Prescribed",
}
