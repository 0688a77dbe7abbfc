"""Two specimens side by side on one axis, such as a story's columns and the damper between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rths_nodes.core import registry
from rths_nodes.core.checks import TestContext
from rths_nodes.core.decay import Decay, check_increments, decay_of, stated
from rths_nodes.core.parameters import component, params


class Parallel:
    """F = F_1 + F_2 at the same displacement. One of them may again be parallel."""

    @params
    class Params:
        first: Any = component("specimen", "one of the two")
        second: Any = component("specimen", "the other")

        def decay(self) -> Decay:
            """Of both together."""
            return stated(self.first).beside(stated(self.second))

        def fits(self, test: TestContext) -> None:
            """Refuses two whose inner states together need too many increments."""
            names = " and ".join(type(part).type_name for part in (self.first, self.second))
            check_increments(self.decay(), f"first and second ({names})", test)

    def __init__(self, params: Params) -> None:
        self._first, self._second = (registry.build("specimen", part) for part in (params.first, params.second))
        self._split = len(self._first.initial_state)
        self.initial_state: tuple[float, ...] = (*self._first.initial_state, *self._second.initial_state)
        self.decay: Decay = decay_of(self._first).beside(decay_of(self._second))
        self.mass: float = getattr(self._first, "mass", 0.0) + getattr(self._second, "mass", 0.0)
        self.felt: bool = getattr(self._first, "felt", True) or getattr(self._second, "felt", True)

    def force(self, state: Sequence[float], displacement: float, velocity: float) -> float:
        split = self._split
        first: float = self._first.force(state[:split], displacement, velocity)
        second: float = self._second.force(state[split:], displacement, velocity)
        return first + second

    def rate(self, state: Sequence[float], displacement: float, velocity: float) -> tuple[float, ...]:
        split = self._split
        first: tuple[float, ...] = self._first.rate(state[:split], displacement, velocity)
        second: tuple[float, ...] = self._second.rate(state[split:], displacement, velocity)
        return first + second
