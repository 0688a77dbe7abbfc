"""One step of the classical Runge-Kutta method, for all that is integrated inside a sample.

Every stage has two inputs: displacement (m) and velocity (m/s) of a specimen, the command (m) of an actuator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rths_nodes.core import arithmetic

Rate = Callable[..., Any]
"""From constants, state and two inputs to the rates of the state."""


def advance_of(
    rate: Rate,
    along: Callable[..., Any] = arithmetic.along,
    along_mean: Callable[..., Any] = arithmetic.along_mean,
) -> Callable[..., Any]:
    """The step ``advance(k, s, h, start, start, middle, middle, end, end) -> s`` of a state with the ``rate``.

    ``h`` s; the inputs in pairs. ``along`` and ``along_mean`` move a state that is more than a tuple of floats.
    """

    def advance(k: Any, s: Any, h: float, x0: float, v0: float, x1: float, v1: float, x2: float, v2: float) -> Any:
        half = 0.5 * h
        a = rate(k, s, x0, v0)
        b = rate(k, along(s, half, a), x1, v1)
        c = rate(k, along(s, half, b), x1, v1)
        d = rate(k, along(s, h, c), x2, v2)
        return along_mean(s, h, a, b, c, d)

    return advance
