# SPDX-License-Identifier: Apache-2.0
"""Integrators: solve the equation of motion of the numerical substructure, one step at a time."""

TABLE = {
    "cr": ".dynamics:ChenRicles",
    "kr_alpha": ".dynamics:KolayRicles",
    "central_difference": ".dynamics:CentralDifference",
    "explicit_newmark": ".dynamics:ExplicitNewmark",
    "newmark": ".implicit:Newmark",
    "hht_alpha": ".implicit:HilberHughesTaylor",
    "runge_kutta": ".state_space:RungeKutta",
    "exact": ".state_space:Exact",
    "prescribed": ".predefined:Prescribed",
    "predefined": ".predefined:Predefined",
    "remote": ".remote.integrator:Remote",
    "opensees": ".remote.opensees:OpenSees",
    "fmu": ".fmu:Fmu",
}
