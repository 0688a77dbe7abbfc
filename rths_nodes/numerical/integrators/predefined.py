# SPDX-License-Identifier: Apache-2.0
"""Tests without a structure: the targets are a given function of time, or a history from a file.

``rths iterate`` writes the file: it includes the structure's response to the force of the last run.
"""

from __future__ import annotations

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.checks import TestContext
from rths_nodes.core.declarations import OfParams
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.kernels import Kernel, no_state
from rths_nodes.core.parameters import component, params, path, type_of
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.mechanics import history
from rths_nodes.numerical.ground_motions.waves import Formula
from rths_nodes.numerical.integrators.dynamics import Moved, Played
from rths_nodes.numerical.vectors import Vector


def step_alike(
    nothing: Vector, s: tuple[()], measured: Vector, history: Array, index: int
) -> tuple[object, Moved]:
    """Advance in the ``history`` ``(steps + 1, 3)`` of x, v, a; the force has no influence."""
    before, now = history[index], history[index + 1]
    motion = float(now[0]) + nothing, float(now[1]) + nothing, float(now[2]) + nothing
    return s, (*motion, float(before[2]) + nothing, nothing)


class Prescribed(Played):
    """Every degree of freedom follows the same displacement history, with its exact derivatives."""

    @params
    class Params:
        displacement: OfParams = component("ground_motion", "displacement as a function of time, in m")

    def __init__(self, params: Params, structure: Structure | None, external_force: Array, dt: float) -> None:
        if structure is not None:
            raise ConfigError("structure: must be left out with the integrator 'prescribed'")
        motion = registry.build("ground_motion", params.displacement, 0)
        if not isinstance(motion, Formula):
            known = [
                name
                for name in registry.names("ground_motion")
                if issubclass(registry.load("ground_motion", name), Formula)
            ]
            raise ConfigError(
                f"integrator.displacement.type = {type_of(params.displacement)!r}: gives no velocity and "
                f"acceleration; known: {', '.join(known)}"
            )
        times: Array = dt * np.arange(len(external_force), dtype=np.float64)
        history = np.column_stack([motion.sample(times), *motion.derivatives(times)])
        self._play(self.kernel_of(params), history, external_force.shape[1])

    @classmethod
    def kernel_of(cls, params: object, structure: Structure | None = None) -> Kernel:
        return Kernel(lambda nothing: nothing, no_state, step_alike)


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
        loaded, n_dof = history.load(params.history), external_force.shape[1]
        path = f"integrator.history = {show(params.history)}"
        loaded.check_length(len(external_force), path)
        if len(loaded.axes) != n_dof:
            raise ConfigError(f"{path}: is of {len(loaded.axes)} axes; the test has {n_dof}")
        single = n_dof == 1
        rows: Array = np.ascontiguousarray(loaded.target[: len(external_force), :, 0] if single else loaded.target)
        kernel = Prescribed.kernel_of(params) if single else self.kernel_of(params)
        self._play(kernel, rows, n_dof)

    @classmethod
    def kernel_of(cls, params: object, structure: Structure | None = None) -> Kernel:
        return Kernel(lambda nothing: nothing, no_state, step)
