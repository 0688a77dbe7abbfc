"""The part of a structure that stands in the laboratory, as one axis feels it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from rths_nodes.core.decay import Decay


class Specimen(Protocol):
    """Experimental substructure of one axis: a force and the rates of its inner states, in plain floats."""

    Params: ClassVar[type]
    initial_state: tuple[float, ...]
    decay: Decay
    """How fast the inner states forget, which divides a sample into increments; ``Decay()`` without states."""

    def __init__(self, params: Any) -> None: ...

    def force(self, state: Sequence[float], displacement: float, velocity: float) -> float: ...

    def rate(self, state: Sequence[float], displacement: float, velocity: float) -> tuple[float, ...]: ...
