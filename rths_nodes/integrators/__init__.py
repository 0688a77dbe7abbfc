"""Integrators: solve the equation of motion of the numerical substructure, one step at a time."""

TABLE = {
    "cr": "rths_nodes.integrators.cr:ChenRicles",
    "kr_alpha": "rths_nodes.integrators.kr_alpha:KolayRicles",
    "central_difference": "rths_nodes.integrators.central_difference:CentralDifference",
    "explicit_newmark": "rths_nodes.integrators.explicit_newmark:ExplicitNewmark",
    "hht_alpha": "rths_nodes.integrators.hht_alpha:HilberHughesTaylor",
    "runge_kutta": "rths_nodes.integrators.runge_kutta:RungeKutta",
    "exact": "rths_nodes.integrators.exact:Exact",
    "prescribed": "rths_nodes.integrators.prescribed:Prescribed",
}
