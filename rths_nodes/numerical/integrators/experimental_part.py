# SPDX-License-Identifier: Apache-2.0
"""Declared specimen of an integrator, and checks that integration with this specimen is stable."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.parameters import number, params
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.sparse import Matrix, is_definite, is_sparse

GROWTH = 1e-6
"""Largest accepted growth factor per step, minus 1. Rounding lets an undamped mode grow."""

HALVINGS = 40

CLOSE = 1e-7
"""Relative tolerance of a computed stability limit, which is printed with six digits."""

UNDER_TEST = "stability limit with the part under test"


@params
class Equivalent:
    """Stiffness and damping under test, for structures with one degree of freedom."""

    equivalent_stiffness: float = number(
        "stiffness k_eq under test, for one degree of freedom; 0: the experimental stiffness of the structure",
        "N/m",
        0.0,
        at_least=0.0,
    )
    equivalent_damping: float = number(
        "damping c_eq under test, for one degree of freedom; 0: the experimental damping of the structure",
        "N s/m",
        0.0,
        at_least=0.0,
    )


def damping_and_stiffness(params: Equivalent, structure: Structure) -> tuple[Array, Array]:
    """Return damping (N s/m) and stiffness (N/m) under test, ``(n_dof, n_dof)``.

    Raises ConfigError if ``params`` sets a value and the structure has several degrees of freedom.
    """
    n_dof = len(structure.influence)
    matrices = []
    for name, unit, modelled in (
        ("equivalent_damping", "N s/m", structure.experimental_damping),
        ("equivalent_stiffness", "N/m", structure.experimental_stiffness),
    ):
        value = getattr(params, name)
        if value and n_dof > 1:
            raise ConfigError(
                f"integrator.{name} = {show(value, unit)}: requires one degree of freedom, but the structure has "
                f"{n_dof}; use the experimental_... keys of the structure instead"
            )
        matrices.append(np.array([[value]]) if value else modelled)
    return matrices[0], matrices[1]


def refuse_beyond_central_limit(name: str, params: Equivalent, structure: Structure, dt: float) -> None:
    """Raise ConfigError if ``dt`` is not below the stability limit.

    For a spring under test the limit is 2/omega_max, with the largest circular frequency omega_max. Forces of
    dashpots C_e under test are late by half a step, and forces of masses M_e by one step. Then 4 (M - M_e) - 2 dt
    C_e - dt^2 K must be positive definite, with the numerical mass M and the whole stiffness K.
    """
    damping, stiffness = damping_and_stiffness(params, structure)
    mass = structure.mass - structure.experimental_mass
    if is_sparse(mass):
        _refuse_indefinite(name, mass, damping, structure.stiffness + stiffness, dt)
        return
    if np.linalg.eigvalsh(mass)[0] <= 0.0:
        raise ConfigError(
            f"integrator {name}: the mass under test must be less than the mass of the numerical substructure, "
            "because the measured inertia force is late by a step"
        )
    inverse = np.linalg.inv(mass)
    nothing, identity = np.zeros_like(mass), np.eye(len(mass))
    quarter = 0.25 * inverse @ (structure.stiffness + stiffness)
    rates = np.linalg.eigvals(np.block([[nothing, identity], [quarter, 0.5 * inverse @ damping]]))
    highest = float(np.max(rates.real))
    if highest > 0.0 and dt * highest >= 1.0:
        late = damping.any() or structure.experimental_mass.any()
        bound = UNDER_TEST if late else "stability limit 2/omega_max"
        raise _too_long(name, dt, 1.0 / highest, bound)


def _refuse_indefinite(name: str, mass: Matrix, damping: Matrix, stiffness: Matrix, dt: float) -> None:
    def stable(step: float) -> bool:
        return is_definite(4.0 * mass - 2.0 * step * damping - step**2 * stiffness)

    if stable(dt):
        return
    limit = _longest(stable, dt)
    if not stable(limit):
        raise ConfigError(
            f"integrator {name}: every degree of freedom must have more mass in the numerical substructure than "
            "under test"
        )
    raise _too_long(name, dt, limit, UNDER_TEST)


def refuse_growth(name: str, growth: Callable[[float], float], dt: float) -> None:
    """Raise ConfigError, with a stable step, if the spectral radius ``growth(dt)`` exceeds 1."""

    def stable(step: float) -> bool:
        return growth(step) <= 1.0 + GROWTH

    if not stable(dt):
        raise _too_long(name, dt, _longest(stable, dt), UNDER_TEST)


def _longest(stable: Callable[[float], bool], dt: float) -> float:
    good, bad = 0.5 * dt, dt
    for _ in range(HALVINGS):
        if stable(good):
            break
        good, bad = 0.5 * good, good
    else:
        return good
    while bad - good > CLOSE * good:
        middle = 0.5 * (good + bad)
        good, bad = (middle, bad) if stable(middle) else (good, middle)
    return good


def _too_long(name: str, dt: float, limit: float, bound: str) -> ConfigError:
    return ConfigError(
        f"integrator {name}: the step substeps / servo_rate = {dt:g} s must be < {limit:g} s ({bound})"
    )
