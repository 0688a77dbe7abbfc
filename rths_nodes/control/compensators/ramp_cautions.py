"""What a compensator that uses the target's acceleration wants of the ramp in front of it."""

from __future__ import annotations

from typing import Any


def ramp_seen(params: Any, scenario: Any) -> str:
    """Type of the ramp whose motion the compensator with ``params`` gets; empty behind another compensator."""
    front = scenario.compensator
    while front is not None and front is not params:
        front = getattr(front, "first", None) or getattr(front, "compensator", None)
    return "" if front is None else type(scenario.ramp).type_name


def acceleration_cautions(params: Any, scenario: Any) -> list[str]:
    """A warning where the ramp is straight: its acceleration is zero, the integrator's is not handed on."""
    if ramp_seen(params, scenario) != "linear":
        return []
    return ["the linear ramp has no acceleration, which is used here; take a curved one (ramp.type = quadratic)"]
