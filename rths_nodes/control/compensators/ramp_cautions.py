"""What a compensator that uses the target's acceleration wants of the ramp in front of it."""

from __future__ import annotations

from rths_nodes.core.checks import TestContext


def ramp_seen(test: TestContext) -> str:
    """Type of the ramp whose motion the compensator gets; empty behind another compensator."""
    return "" if test.behind else test.ramp


def acceleration_cautions(test: TestContext) -> list[str]:
    """A warning where the ramp is straight: its acceleration is zero, the integrator's is not handed on."""
    if ramp_seen(test) != "linear":
        return []
    return ["the linear ramp has no acceleration, which is used here; take a curved one (ramp.type = quadratic)"]
