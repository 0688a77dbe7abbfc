# SPDX-License-Identifier: Apache-2.0
"""Specimens built from other specimens: two in parallel on one axis, one with a mass, one with play in its joint.

A mass adds the force m a to the force of another specimen, such as a frame whose beam moves with the actuator
(Silva et al. 2020). The acceleration a is the change of velocity per sample if the actuator imposes the
displacement.

With the play b in a joint, such as the pin of a clevis, the force f of another specimen becomes

    F = f(x - b/2, x')   for x >  b/2, and not below zero
    F = f(x + b/2, x')   for x < -b/2, and not above zero
    F = 0                in between, while the actuator crosses the gap after a reversal
"""

from __future__ import annotations

from collections.abc import Callable

from rths_nodes.core import registry
from rths_nodes.core.arithmetic import Numbers
from rths_nodes.core.decay import Decay, check_increments, decay_of, stated
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import no_state
from rths_nodes.core.parameters import OfParams, TestContext, component, number, params, type_of
from rths_nodes.core.simulators import Specimen, SpecimenKernel, no_rates


def side_by_side(
    first: SpecimenKernel, second: SpecimenKernel, split: int
) -> tuple[Callable[..., float], Callable[..., Numbers]]:
    (_, _, force_1, rate_1, _), (_, _, force_2, rate_2, _) = first, second

    def force(k: tuple[object, object], s: tuple[float, ...], x: float, v: float) -> float:
        one, other = k
        return force_1(one, s[:split], x, v) + force_2(other, s[split:], x, v)

    def rate(k: tuple[object, object], s: tuple[float, ...], x: float, v: float) -> tuple[float, ...]:
        one, other = k
        return rate_1(one, s[:split], x, v) + rate_2(other, s[split:], x, v)

    return force, rate


class Parallel(Specimen):
    """Two specimens that share a displacement, and whose forces add. Either may itself be a parallel specimen."""

    @params
    class Params:
        first: OfParams = component("specimen", "first specimen")
        second: OfParams = component("specimen", "second specimen")

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


class WithMass(Specimen):
    """A specimen with an added mass that moves with the actuator."""

    @params
    class Params:
        mass: float = number("mass that moves with the actuator", "kg", more_than=0.0)
        specimen: OfParams = component(
            "specimen", "specimen to which the mass is attached", {"type": "kelvin_voigt"}
        )

        def decay(self) -> Decay:
            return stated(self.specimen)

    def __init__(self, params: Params) -> None:
        held: Specimen = registry.build("specimen", params.specimen)
        kernel, constants = held.bound()
        super().__init__(params, kernel._replace(constants=lambda p: constants))
        self.mass = params.mass + held.mass
        self.linear, self.felt, self.decay = held.linear, held.felt, decay_of(held)


def behind_gap(held: Callable[..., float]) -> Callable[..., float]:
    def force(k: tuple[float, object], s: tuple[()], x: float, v: float) -> float:
        """Return the specimen's force, N; 0 within the gap, or if force and ``x`` would have opposite signs."""
        half, constants = k
        if x > half:
            pushed = held(constants, s, x - half, v)
            return 0.0 if pushed < 0.0 else pushed
        if x < -half:
            pulled = held(constants, s, x + half, v)
            return 0.0 if pulled > 0.0 else pulled
        return 0.0 * x  # NaN if x is NaN

    return force


class WithBacklash(Specimen):
    """A specimen with play in its joint. The test starts in the middle of the gap."""

    @params
    class Params:
        width: float = number("total width b of the gap", "m", more_than=0.0, at_most=1.0)
        specimen: OfParams = component("specimen", "specimen that the joint connects", {"type": "kelvin_voigt"})

    def __init__(self, params: Params) -> None:
        held: Specimen = registry.build("specimen", params.specimen)
        kind = type_of(params.specimen)
        if held.mass:
            raise ConfigError(
                f"specimen with_backlash: specimen.type = {kind!r}: must have no mass, because the mass would "
                "move by itself in the gap. For a mass on the actuator's side, put with_mass around "
                "with_backlash"
            )
        if held.initial_state:
            raise ConfigError(
                f"specimen with_backlash: specimen.type = {kind!r}: must have no inner states, because the "
                "specimen would not return to zero in the gap. Use kelvin_voigt, or output.lost_motion of the "
                "axis"
            )
        kernel, constants = held.bound()
        force = behind_gap(kernel.force)
        super().__init__(params, SpecimenKernel(lambda p: (0.5 * p.width, constants), no_state, force, no_rates))
        self.felt = held.felt
