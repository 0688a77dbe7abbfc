# SPDX-License-Identifier: Apache-2.0
"""A specimen with play in its joint, as the pins of a clevis have: at a reversal the force pauses.

    F = f(x - b/2, x')   for x >  b/2, and not below zero
    F = f(x + b/2, x')   for x < -b/2, and not above zero
    F = 0                between: the actuator crosses the gap b, the specimen has sprung back

The joint conserves energy. The lost motion of a drive, in which an actuator lags its command, is
``output.lost_motion``.
"""

from __future__ import annotations

from collections.abc import Callable

from rths_nodes.core import registry
from rths_nodes.core.declarations import OfParams
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import no_state
from rths_nodes.core.parameters import component, number, params, type_of
from rths_nodes.core.specimen import Specimen, SpecimenKernel, no_rates


def behind_gap(held: Callable[..., float]) -> Callable[..., float]:
    """Return the force with the joint of a specimen of force ``held``; constants: b / 2 (m), the specimen's."""

    def force(k: tuple[float, object], s: tuple[()], x: float, v: float) -> float:
        half, own = k
        if x > half:
            pushed = held(own, s, x - half, v)
            return 0.0 if pushed < 0.0 else pushed
        if x < -half:
            pulled = held(own, s, x + half, v)
            return 0.0 if pulled > 0.0 else pulled
        return 0.0 * x  # nan stays nan

    return force


class WithBacklash(Specimen):
    """Another specimen with play in its joint; it begins in the middle of the gap."""

    @params
    class Params:
        width: float = number("width b of the gap, from one side to the other", "m", more_than=0.0, at_most=1.0)
        specimen: OfParams = component("specimen", "what is behind the joint", {"type": "kelvin_voigt"})

    def __init__(self, params: Params) -> None:
        """Raises ConfigError for a specimen that does not return to zero at once in the gap."""
        held: Specimen = registry.build("specimen", params.specimen)
        kind = type_of(params.specimen)
        if held.mass:
            raise ConfigError(
                f"specimen with_backlash: specimen.type = {kind!r}: must have no mass, which would move by itself "
                "in the gap; put with_mass around with_backlash, for a mass on the side of the actuator"
            )
        if held.initial_state:
            raise ConfigError(
                f"specimen with_backlash: specimen.type = {kind!r}: must have no inner states: it would not "
                "spring back to zero in the gap; take kelvin_voigt, or output.lost_motion of the axis"
            )
        kernel, own = held.bound()
        behind = behind_gap(kernel.force)
        super().__init__(params, SpecimenKernel(lambda p: (0.5 * p.width, own), no_state, behind, no_rates))
        self.felt = held.felt
