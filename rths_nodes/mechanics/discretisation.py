# SPDX-License-Identifier: Apache-2.0
"""Linear systems in discrete time: exact steps under straight inputs (first-order hold)."""

from __future__ import annotations

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array


def transition(system: Array, inputs: Array, dt: float) -> tuple[Array, Array, Array]:
    """Return Phi ``(n, n)``, Gamma_0 and Gamma_1 ``(n, m)`` of z_k = Phi z_{k-1} + Gamma_0 u_{k-1} + Gamma_1 u_k.

    z' = ``system`` z + ``inputs`` u, u straight over the step ``dt`` (s); a held input has the sum of both Gammas.
    One matrix exponential of the system with the inputs and their slopes as further states (Van Loan 1978). Raises
    ConfigError on overflow.
    """
    from scipy.linalg import expm  # takes a tenth of a second to import

    n, m = inputs.shape
    whole = np.zeros((n + 2 * m, n + 2 * m))
    whole[:n, :n], whole[:n, n : n + m] = system * dt, inputs * dt
    whole[n : n + m, n + m :] = np.eye(m)
    with np.errstate(all="ignore"):  # checked below
        rows = expm(whole)[:n] if np.isfinite(whole).all() else whole[:n] * np.nan
    if not np.isfinite(rows).all():
        raise ConfigError(f"a linear system: its dynamics cannot be solved over a step of {dt:g} s")
    held, sloped = rows[:, n : n + m], rows[:, n + m :]
    return rows[:, :n].copy(), held - sloped, sloped.copy()
