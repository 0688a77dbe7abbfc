# SPDX-License-Identifier: Apache-2.0
"""Two specimens side by side on one axis, such as a story's columns and the damper between them."""

from __future__ import annotations

from collections.abc import Callable

from rths_nodes.core import registry
from rths_nodes.core.arithmetic import Numbers
from rths_nodes.core.checks import TestContext
from rths_nodes.core.decay import Decay, check_increments, decay_of, stated
from rths_nodes.core.declarations import OfParams
from rths_nodes.core.parameters import component, params, type_of
from rths_nodes.core.specimen import Specimen, SpecimenKernel


def side_by_side(
    first: SpecimenKernel, second: SpecimenKernel, split: int
) -> tuple[Callable[..., float], Callable[..., Numbers]]:
    """Return force and rate of two specimens, the first with ``split`` states; constants: of both."""
    (_, _, force_1, rate_1, _), (_, _, force_2, rate_2, _) = first, second

    def force(k: tuple[object, object], s: tuple[float, ...], x: float, v: float) -> float:
        one, other = k
        return force_1(one, s[:split], x, v) + force_2(other, s[split:], x, v)

    def rate(k: tuple[object, object], s: tuple[float, ...], x: float, v: float) -> tuple[float, ...]:
        one, other = k
        return rate_1(one, s[:split], x, v) + rate_2(other, s[split:], x, v)

    return force, rate


class Parallel(Specimen):
    """F = F_1 + F_2 at the same displacement. One of them may again be parallel."""

    @params
    class Params:
        first: OfParams = component("specimen", "one of the two")
        second: OfParams = component("specimen", "the other")

        def decay(self) -> Decay:
            return stated(self.first).beside(stated(self.second))

        def fits(self, test: TestContext) -> None:
            names = " and ".join(type_of(part) for part in (self.first, self.second))
            check_increments(self.decay(), f"first and second ({names})", test)

    def __init__(self, params: Params) -> None:
        first: Specimen = registry.build("specimen", params.first)
        second: Specimen = registry.build("specimen", params.second)
        (one, of_one), (other, of_other) = first.bound(), second.bound()
        states = (*first.initial_state, *second.initial_state)
        force, rate = side_by_side(one, other, len(first.initial_state))
        super().__init__(params, SpecimenKernel(lambda p: (of_one, of_other), lambda k: states, force, rate))
        self.decay = decay_of(first).beside(decay_of(second))
        self.mass = first.mass + second.mass
        self.felt = first.felt or second.felt
