# SPDX-License-Identifier: Apache-2.0
"""A test without a structure: the targets are a history computed before it, sample by sample.

``rths iterate`` writes it: it includes the structure's response to the force of the last run.
"""

from __future__ import annotations

import numpy as np

from rths_nodes.core.checks import TestContext
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.kernels import Kernel, no_state
from rths_nodes.core.parameters import params, path
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.mechanics import history
from rths_nodes.numerical.integrators import prescribed
from rths_nodes.numerical.integrators.dynamics import Moved, Played
from rths_nodes.numerical.vectors import Vector


def step(nothing: Vector, s: tuple[()], measured: Vector, history: Array, index: int) -> tuple[object, Moved]:
    """Advance in the ``history`` ``(steps + 1, 3, n)`` of x, v, a; the force has no influence."""
    before, now = history[index], history[index + 1]
    return s, (now[0] + nothing, now[1] + nothing, now[2] + nothing, before[2] + nothing, nothing + 0.0)


class Predefined(Played):
    """Each axis follows its own history of displacement, velocity and acceleration from a file."""

    @params
    class Params:
        history: str = path("file of a run's history (.npz), as rths iterate writes it")

        def fits(self, test: TestContext) -> None:
            if test.samples_per_step != 1:
                raise ConfigError(
                    f"history: has every sample; substeps and time_ratio must be 1, not {test.samples_per_step}"
                )
            history.load(self.history).check(test.axes, test.servo_rate, f"history = {show(self.history)}")

    def __init__(self, params: Params, structure: Structure | None, external_force: Array, dt: float) -> None:
        if structure is not None:
            raise ConfigError("structure: must be left out with the integrator 'predefined'")
        found, n_dof = history.load(params.history), external_force.shape[1]
        place = f"integrator.history = {show(params.history)}"
        found.check_length(len(external_force), place)
        if len(found.axes) != n_dof:
            raise ConfigError(f"{place}: is of {len(found.axes)} axes; the test has {n_dof}")
        single = n_dof == 1
        rows: Array = np.ascontiguousarray(found.target[: len(external_force), :, 0] if single else found.target)
        kernel = prescribed.Prescribed.kernel_of(params) if single else self.kernel_of(params)
        self._play(kernel, rows, n_dof)

    @classmethod
    def kernel_of(cls, params: object, structure: Structure | None = None) -> Kernel:
        return Kernel(lambda nothing: nothing, no_state, step)
