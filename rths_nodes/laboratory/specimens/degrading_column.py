# SPDX-License-Identifier: Apache-2.0
"""Column that permanently loses stiffness when bent beyond a level.

It models the column of fibre-reinforced plastic of Horiuchi et al. (1996), whose end flanges were damaged beyond
the design level. The paper gives no numbers; the defaults are chosen here.
"""

from __future__ import annotations

from operator import attrgetter

from rths_nodes.core.arithmetic import Numbers
from rths_nodes.core.decay import Decay
from rths_nodes.core.parameters import number, params
from rths_nodes.core.specimen import Specimen, SpecimenKernel

CATCH_UP = 0.01
"""Time constant with which the stored excursion follows the current excursion, s."""


def force(k: Numbers, s: tuple[float], x: float, v: float) -> float:
    """Force, N; the state is the largest excursion m (m), initially the level."""
    stiffness, level, after, damping = k
    # use the current excursion, so that the envelope is met for any step
    largest = abs(x) if abs(x) > s[0] else s[0]
    ratio = level / largest
    return stiffness * (ratio + after * (1.0 - ratio)) * x + damping * v


def rate(k: Numbers, s: tuple[float], x: float, v: float) -> tuple[float]:
    """Rate m'; the integral is accurate to a sixth of the last step before the excursion decreases."""
    excess = abs(x) - s[0]
    if excess < 0.0:
        return (0.0,)
    outward = abs(v) if x * v > 0.0 else 0.0
    return (outward + excess / CATCH_UP,)


class DegradingColumn(Specimen):
    """F = k_s(m) d + c v, where m is the largest past excursion. There is no permanent set, but each loop is
    softer.

    At first loading the force follows k d up to the level d_0, then k d_0 + r k (d - d_0). Below the largest
    excursion it follows the straight line to the origin. Both directions are alike.
    """

    @params
    class Params:
        stiffness: float = number("stiffness k of the sound column", "N/m", 1.0e6, more_than=0.0)
        damage_displacement: float = number("level d_0 at which damage begins", "m", 0.020, more_than=0.0)
        post_damage_ratio: float = number(
            "r: slope beyond the level over slope below", default=0.3, at_least=0.0, at_most=1.0
        )
        damping: float = number("damping c", "N s/m", 0.0, at_least=0.0)

        def decay(self) -> Decay:
            return Decay(at_rest=1.0 / CATCH_UP)

    KERNEL = SpecimenKernel(
        attrgetter("stiffness", "damage_displacement", "post_damage_ratio", "damping"),
        lambda k: (k[1],),
        force,
        rate,
    )
