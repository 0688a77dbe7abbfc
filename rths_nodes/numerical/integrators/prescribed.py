# SPDX-License-Identifier: Apache-2.0
"""A test without a structure: the target follows a given function of time."""

from __future__ import annotations

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.declarations import OfParams
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Kernel, no_state
from rths_nodes.core.parameters import component, params, type_of
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.numerical.ground_motions.waves import Formula
from rths_nodes.numerical.integrators.dynamics import Moved, Played
from rths_nodes.numerical.vectors import Vector


def step(nothing: Vector, s: tuple[()], measured: Vector, history: Array, index: int) -> tuple[object, Moved]:
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
            histories = [
                name
                for name in registry.names("ground_motion")
                if issubclass(registry.load("ground_motion", name), Formula)
            ]
            raise ConfigError(
                f"integrator.displacement.type = {type_of(params.displacement)!r}: gives no velocity and "
                f"acceleration; known: {', '.join(histories)}"
            )
        times: Array = dt * np.arange(len(external_force), dtype=np.float64)
        history = np.column_stack([motion.sample(times), *motion.derivatives(times)])
        self._play(self.kernel_of(params), history, external_force.shape[1])

    @classmethod
    def kernel_of(cls, params: object, structure: Structure | None = None) -> Kernel:
        return Kernel(lambda nothing: nothing, no_state, step)
