# SPDX-License-Identifier: Apache-2.0
"""Integrators: solve the equation of motion of the numerical substructure, one step at a time."""

TABLE = {
    "cr": ".cr:ChenRicles",
    "kr_alpha": ".kr_alpha:KolayRicles",
    "central_difference": ".central_difference:CentralDifference",
    "explicit_newmark": ".explicit_newmark:ExplicitNewmark",
    "newmark": ".newmark:Newmark",
    "hht_alpha": ".hht_alpha:HilberHughesTaylor",
    "runge_kutta": ".state_space:RungeKutta",
    "exact": ".state_space:Exact",
    "prescribed": ".predefined:Prescribed",
    "predefined": ".predefined:Predefined",
    "remote": ".remote.integrator:Remote",
    "opensees": ".remote.opensees:OpenSees",
    "fmu": ".fmu:Fmu",
}
