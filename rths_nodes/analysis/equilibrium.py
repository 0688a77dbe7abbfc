# SPDX-License-Identifier: Apache-2.0
"""Equilibrium residual of M a + C v + r + r_e = F with the recorded numbers of a test.

An integrator that satisfies the equation with the measured force at every step leaves rounding. A larger residual
is the error of one that satisfies it elsewhere (an average over the step), or of forces read ahead
(``force_lead``) or changed in transit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rths_nodes.analysis.energy import experimental_force
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array


@dataclass(frozen=True, eq=False)
class Residual:
    """``force (m, n_dof)`` N at steps ``time (m,)`` s; ``scale`` N is the largest force of the equation."""

    time: Array
    force: Array
    scale: float


def residual(of: Evaluation) -> Residual:
    """Return the residual of a test. Raises ConfigError if the recording lacks a term of the equation."""
    run, structure, ratio = of.run, of.assembly.structure, of.scenario.time_ratio
    if structure is None:
        raise ConfigError("structure: missing; prescribed displacements have no equation of motion")
    if not of.assembly.observation.whole:
        raise ConfigError("interface: the model does not travel whole: its inertia and damping are not recorded")
    tested = experimental_force(of)
    m = min(len(tested), len(run.exact_acceleration), len(run.external_force))
    inertia = ratio**2 * run.exact_acceleration[:m] @ structure.mass.T
    damping = ratio * run.dof_velocity[:m] @ structure.damping.T
    found = inertia + damping + run.restoring_force[:m] + tested[:m] - run.external_force[:m]
    # a soft start prescribes the motion: there is no equilibrium before the test
    found, time = found[of.first_step :], run.step_time[:m][of.first_step :]
    terms = (inertia, damping, run.restoring_force[:m], tested[:m], run.external_force[:m])
    if any(len(term) and not np.isfinite(term).any() for term in terms):
        raise ConfigError("equation of motion: not all of its terms were recorded")
    scale = max((float(np.nanmax(np.abs(term))) for term in terms if term.size), default=0.0)
    return Residual(time, found, scale)
