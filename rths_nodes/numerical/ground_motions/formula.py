"""Ground motions that have derivatives."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from rths_nodes.core.samples import Array


@runtime_checkable
class Formula(Protocol):
    """A ground motion with exact derivatives: it can be a prescribed displacement (m), too.

    Of that the derivatives are velocity (m/s) and acceleration (m/s^2).
    """

    def sample(self, times: Array) -> Array:
        """Values at ``times`` (s), ``(n,)``."""
        ...

    def derivatives(self, times: Array) -> tuple[Array, Array]:
        """First and second derivative of the values at ``times`` (s), ``(n,)`` each."""
        ...
