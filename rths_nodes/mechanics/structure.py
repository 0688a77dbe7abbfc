# SPDX-License-Identifier: Apache-2.0
"""A structure and its two substructures; degrees of freedom without mass; exact steps of linear systems.

With the index t for degrees of freedom with mass and o for those without mass, M a + C v + K x = p is

    M_tt a_t + C_tt v_t + C_to v_o + K_tt x_t + K_to x_o = p_t
               C_ot v_t + C_oo v_o + K_ot x_t + K_oo x_o = p_o

With damping C_oo the second line is of first order in x_o. Without damping, x_o follows x_t without delay and is
condensed statically. The same applies if C_oo = b K_oo and C_ot = b K_ot (Rayleigh), and no load acts on x_o.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.sparse import Matrix, is_definite, is_sparse, zero


def transition(system: Array, inputs: Array, dt: float) -> tuple[Array, Array, Array]:
    """Return Phi ``(n, n)``, Gamma_0 and Gamma_1 ``(n, m)`` of z_k = Phi z_{k-1} + Gamma_0 u_{k-1} + Gamma_1 u_k.

    These matrices solve z' = ``system`` z + ``inputs`` u exactly for u linear over the step ``dt`` (s), by one
    matrix exponential (Van Loan 1978). For a held input, add both Gammas. Raises ConfigError on overflow.
    """
    from scipy.linalg import expm  # the import takes a tenth of a second

    n, m = inputs.shape
    matrix = np.zeros((n + 2 * m, n + 2 * m))
    matrix[:n, :n], matrix[:n, n : n + m] = system * dt, inputs * dt
    matrix[n : n + m, n + m :] = np.eye(m)
    with np.errstate(all="ignore"):  # overflow is checked below
        rows = expm(matrix)[:n] if np.isfinite(matrix).all() else matrix[:n] * np.nan
    if not np.isfinite(rows).all():
        raise ConfigError(
            f"the dynamics of a linear system cannot be solved over a step of {dt:g} s, because values overflow"
        )
    held, sloped = rows[:, n : n + m], rows[:, n + m :]
    return rows[:, :n].copy(), held - sloped, sloped.copy()


def massless(mass: Matrix) -> NDArray[np.bool_]:
    """Return whether each row of ``mass`` is zero, ``(n,)``."""
    return np.asarray(abs(mass).sum(axis=1) == 0.0 if is_sparse(mass) else ~mass.any(axis=1))


def numbered(chosen: NDArray[np.bool_]) -> str:
    return ", ".join(str(index + 1) for index in np.flatnonzero(chosen))


class Followers(NamedTuple):
    """Matrices that give the motion of m massless, unloaded degrees of freedom from the motion of t others."""

    damped: bool
    velocity: Array
    """Matrix ``(m, t + n)`` that gives m velocities from t velocities and all n displacements, with damping."""
    static: Array
    """Matrix ``(m, t)`` that gives m displacements or rates from t displacements or rates, without damping."""


def followers(mass: Array, damping: Array, stiffness: Array) -> Followers:
    """Return the Followers of a structure. Raises ConfigError if their motion is undetermined."""
    o = massless(mass)
    t = ~o
    held, pulled = stiffness[np.ix_(o, o)], stiffness[np.ix_(o, t)]
    slow, dragged = damping[np.ix_(o, o)], damping[np.ix_(o, t)]
    if np.linalg.eigvalsh(held)[0] <= 0.0:
        raise ConfigError(
            f"structure: the stiffness of massless degrees of freedom ({numbered(o)}) must be positive definite"
        )
    static = np.asarray(-np.linalg.solve(held, pulled), float)
    if not (slow.any() or dragged.any()):
        return Followers(False, np.zeros((len(held), int(t.sum()) + len(mass))), static)
    if np.linalg.matrix_rank(slow) < len(slow):
        raise ConfigError(
            f"structure: only some of the degrees of freedom without mass ({numbered(o)}) have damping; either "
            "all or none of them must have damping"
        )
    flow = np.asarray(-np.linalg.solve(slow, np.hstack([dragged, stiffness[o]])), float)
    return Followers(True, flow, static)


def have_damping(mass: Matrix, damping: Matrix, stiffness: Matrix) -> bool:
    if not is_sparse(mass):
        return followers(mass, damping, stiffness).damped
    o = massless(mass)
    if not is_definite(stiffness[o][:, o]):
        raise ConfigError("structure: the stiffness of massless degrees of freedom must be positive definite")
    if zero(damping[o]):
        return False
    if not is_definite(damping[o][:, o]):
        raise ConfigError(
            "structure: only some of the degrees of freedom without mass have damping; either all or none of them "
            "must have damping"
        )
    return True


def first_order(mass: Array, damping: Array, stiffness: Array) -> tuple[Array, Array, Array]:
    """Return A, B and C of z' = A z + B p, x = C z, with loads p ``(n,)`` N on masses and displacements x (m).

    The states are displacements and velocities of masses, then displacements of damped degrees of freedom without
    mass. Raises ConfigError if :func:`followers` does.
    """
    o = massless(mass)
    n, t = len(mass), ~o
    m, k = int(o.sum()), int(t.sum())
    inverse = np.linalg.inv(mass[np.ix_(t, t)])
    force = np.zeros((k, n))
    force[:, t] = np.eye(k)
    nothing, one = np.zeros((k, k)), np.eye(k)
    if not m:
        system = np.block([[nothing, one], [-inverse @ stiffness, -inverse @ damping]])
        return system, np.vstack([nothing, inverse]), np.hstack([one, nothing])
    rule = followers(mass, damping, stiffness)
    kept = (2 * k + m) if rule.damped else 2 * k
    x, v = np.zeros((n, kept)), np.zeros((n, kept))
    x[t, :k], v[t, k : 2 * k] = one, one
    if rule.damped:
        x[o, 2 * k :] = np.eye(m)
        v[o] = rule.velocity @ np.vstack([v[t], x])
    else:
        x[o], v[o] = rule.static @ x[t], rule.static @ v[t]
    acceleration = -inverse @ (stiffness[t] @ x + damping[t] @ v)
    system = np.vstack([v[t], acceleration, v[o]] if rule.damped else [v[t], acceleration])
    inputs = np.zeros((kept, n))
    inputs[k : 2 * k] = inverse @ force
    return system, inputs, x


def combined_load(structure: Any) -> Array:
    """Return the load ``(n_dof,)`` N of both substructures for a ground acceleration of -1 m/s^2."""
    load: Array = (structure.mass + structure.experimental_mass) @ structure.influence
    return load


def combined(structure: Any) -> tuple[Array, Array, Array]:
    """Return mass (kg), damping (N s/m) and stiffness (N/m) of both substructures, ``(n_dof, n_dof)`` each."""
    return (
        structure.mass + structure.experimental_mass,
        structure.damping + structure.experimental_damping,
        structure.stiffness + structure.experimental_stiffness,
    )
