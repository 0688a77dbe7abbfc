# SPDX-License-Identifier: Apache-2.0
"""A structure and its two substructures; degrees of freedom without mass; exact steps of linear systems.

With t for degrees of freedom with mass and o for others, M a + C v + K x = p is

    M_tt a_t + C_tt v_t + C_to v_o + K_tt x_t + K_to x_o = p_t
               C_ot v_t + C_oo v_o + K_ot x_t + K_oo x_o = p_o

With damping C_oo the second line is of first order in x_o. Without any, x_o follows at once, and is condensed
statically; also if C_oo = b K_oo and C_ot = b K_ot with one b, as by Rayleigh, and no load acts on x_o.
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

    z' = ``system`` z + ``inputs`` u, u straight over the step ``dt`` (s); a held input has the sum of both Gammas.
    By one matrix exponential (Van Loan 1978). Raises ConfigError on overflow.
    """
    from scipy.linalg import expm  # takes a tenth of a second to import

    n, m = inputs.shape
    matrix = np.zeros((n + 2 * m, n + 2 * m))
    matrix[:n, :n], matrix[:n, n : n + m] = system * dt, inputs * dt
    matrix[n : n + m, n + m :] = np.eye(m)
    with np.errstate(all="ignore"):  # checked below
        rows = expm(matrix)[:n] if np.isfinite(matrix).all() else matrix[:n] * np.nan
    if not np.isfinite(rows).all():
        raise ConfigError(f"a linear system: its dynamics cannot be solved over a step of {dt:g} s")
    held, sloped = rows[:, n : n + m], rows[:, n + m :]
    return rows[:, :n].copy(), held - sloped, sloped.copy()


def massless(mass: Matrix) -> NDArray[np.bool_]:
    """Return whether each degree of freedom has no mass, ``(n,)``: rows of zeros in ``mass`` ``(n, n)``."""
    return np.asarray(abs(mass).sum(axis=1) == 0.0 if is_sparse(mass) else ~mass.any(axis=1))


def numbered(chosen: NDArray[np.bool_]) -> str:
    return ", ".join(str(index + 1) for index in np.flatnonzero(chosen))


class Followers(NamedTuple):
    """Matrices by which degrees of freedom without mass follow the others while unloaded."""

    damped: bool
    velocity: Array
    """v_o = ``velocity`` (v_t, x), ``(m, t + n)``, with damping."""
    static: Array
    """x_o = ``static`` x_t, ``(m, t)``, without damping, and its rates likewise."""


def followers(mass: Array, damping: Array, stiffness: Array) -> Followers:
    """Return the matrices for a structure. Raises ConfigError if impossible."""
    o = massless(mass)
    t = ~o
    held, pulled = stiffness[np.ix_(o, o)], stiffness[np.ix_(o, t)]
    slow, dragged = damping[np.ix_(o, o)], damping[np.ix_(o, t)]
    if np.linalg.eigvalsh(held)[0] <= 0.0:
        raise ConfigError(f"structure: nothing holds its degrees of freedom without mass, {numbered(o)}")
    static = np.asarray(-np.linalg.solve(held, pulled), float)
    if not (slow.any() or dragged.any()):
        return Followers(False, np.zeros((len(held), int(t.sum()) + len(mass))), static)
    if np.linalg.matrix_rank(slow) < len(slow):
        raise ConfigError(
            f"structure: of its degrees of freedom without mass, {numbered(o)}, some have damping and some have "
            "none: must be all or none"
        )
    flow = np.asarray(-np.linalg.solve(slow, np.hstack([dragged, stiffness[o]])), float)
    return Followers(True, flow, static)


def have_damping(mass: Matrix, damping: Matrix, stiffness: Matrix) -> bool:
    if not is_sparse(mass):
        return followers(mass, damping, stiffness).damped
    o = massless(mass)
    if not is_definite(stiffness[o][:, o]):
        raise ConfigError("structure: nothing holds some of its degrees of freedom without mass")
    if zero(damping[o]):
        return False
    if not is_definite(damping[o][:, o]):
        raise ConfigError(
            "structure: of its degrees of freedom without mass some have damping and some have none: must be all "
            "or none"
        )
    return True


class FirstOrder(NamedTuple):
    """Structure as a system of first order: z' = A z + B p, x = C z, p ``(n,)`` N, x ``(n,)`` m."""

    system: Array
    inputs: Array
    displacement: Array


def first_order(mass: Array, damping: Array, stiffness: Array) -> FirstOrder:
    """Return the system of M a + C v + K x = p, p on masses; z = (x_t, v_t), damped x_o. Raises ConfigError."""
    o = massless(mass)
    n, t = len(mass), ~o
    m, k = int(o.sum()), int(t.sum())
    inverse = np.linalg.inv(mass[np.ix_(t, t)])
    force = np.zeros((k, n))
    force[:, t] = np.eye(k)
    nothing, one = np.zeros((k, k)), np.eye(k)
    if not m:
        system = np.block([[nothing, one], [-inverse @ stiffness, -inverse @ damping]])
        return FirstOrder(system, np.vstack([nothing, inverse]), np.hstack([one, nothing]))
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
    return FirstOrder(system, inputs, x)


def combined_load(structure: Any) -> Array:
    """Return the load (N) of both substructures per reversed ground acceleration (m/s^2): ``(n_dof,)``."""
    load: Array = (structure.mass + structure.experimental_mass) @ structure.influence
    return load


def combined(structure: Any) -> tuple[Array, Array, Array]:
    """Return mass (kg), damping (N s/m) and stiffness (N/m) of both substructures, ``(n_dof, n_dof)`` each."""
    return (
        structure.mass + structure.experimental_mass,
        structure.damping + structure.experimental_damping,
        structure.stiffness + structure.experimental_stiffness,
    )
