"""The protocol of force controllers."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol


class ForceController(Protocol):
    """Turns the force target of one axis into the displacement command of its actuator, in plain floats.

    It has no limits: who calls it judges what it gives, and holds the axis where that must not be sent.
    """

    Params: ClassVar[type]
    coupled_to: int | None
    """The displacement axis that moves what this axis loads, from 0; None for none."""
    correction: float
    """What feedback has added to the displacement command since ``begin``, m."""

    def __init__(self, params: Any, dt: float) -> None: ...

    def begin(self, place: float, target: float, drift: float, drift_before: float) -> None:
        """Take over where the axis is commanded to be (m), at ``target`` (N); drifts (m) of the coupled axis."""

    def step(self, target: float, measured: float, drift: float) -> float:
        """The command (m) of the coming sample for ``target`` (N), after ``measured`` (N) of the last one."""
        ...

    def reset(self) -> None: ...
