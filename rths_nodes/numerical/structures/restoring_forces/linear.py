# SPDX-License-Identifier: Apache-2.0
"""Linear elastic restoring force."""

from __future__ import annotations

from rths_nodes.core.kernels import Kernel, no_state
from rths_nodes.core.parameters import params
from rths_nodes.numerical.structures.laws import OfComponent, elastic_stiffness
from rths_nodes.numerical.vectors import Vector


def force(k: float, s: tuple[()], x: Vector) -> tuple[tuple[()], Vector]:
    """Linear restoring force: k x."""
    return s, k * x


class Linear(OfComponent):
    """Linear elastic restoring force k x of each degree of freedom."""

    @params
    class Params:
        stiffness: float | None = elastic_stiffness()

    NAME = "linear"
    yields = False
    KERNEL = Kernel(lambda p: float(p.stiffness), no_state, force)
