"""Feed-forward of compliance and coupling, and a PI controller for what is left.

    u_k = e(u^, F^ / K) + z_k + k_p (F_k - f_{k-1}) / K
    z_k = z_{k-1} + k_i dt (F_k - f_{k-1}) / K

F is the force that the axis shall have, f what its load cell shows, K the stiffness that the axis works against:
specimen and load frame in series. e(u, c) is the extension that shortens a column by c while its head has drifted
by u (``core/axial_load.py``); without a column it is c. u^ and F^ are the target of the displacement axis that
moves the head, and the force target, read ahead by the delay of the actuator along their last change: that is the
compensation of the delay, F^ / K that of the compliance. What neither of them knows is left to the integral.

Its gains are relative: with the K of the axis k_i is the rate, in 1/s, with which the error fades, and where K is
declared r times too small the loop is r times faster. The plant is K and a delay T, so that the loop is stable for
k_i T < pi / 2 and k_p = 0; a fifth of that leaves a margin for a specimen that is stiffer than it was declared.
"""

from __future__ import annotations

import math

from rths_nodes.core.axial_load import AxialLoad, ColumnGeometry, check_drift
from rths_nodes.core.checks import TestContext
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import integer, number, params, section

FAST = 0.3
"""k_i T beyond which it is told: a specimen five times as stiff would make the loop unstable."""


class FeedForwardPi:
    """Force controller of one axis, with ``dt`` (s); plain floats. Signs are those of an axis.

    :meth:`begin` takes over at a place without moving it, :meth:`step` goes on from there. ``correction`` (m) is
    what the integral has added since then.
    """

    @params
    class Params:
        """Parameters of a force controller."""

        stiffness: float = number(
            "stiffness that the axis works against: specimen and load frame in series", "N/m", more_than=0.0
        )
        integral_gain: float = number(
            "rate k_i with which what the feed-forward leaves fades", "1/s", 5.0, more_than=0.0, at_most=1e4
        )
        proportional_gain: float = number(
            "share k_p of an error that is answered at once; a load cell without noise bears more",
            "1",
            0.0,
            at_least=0.0,
            less_than=1.0,
        )
        lead: float = number(
            "delay of the actuator that the feed-forward makes up for", "s", 0.0, at_least=0.0, at_most=0.2
        )
        column: ColumnGeometry | None = section(
            ColumnGeometry, "column whose head a displacement axis moves; left out: no coupling", None
        )
        coupled_to: int = integer(
            "number of the displacement axis that moves the head of the column, from 1", "", 1, at_least=1
        )

        def fits(self, test: TestContext) -> None:
            """Raises ConfigError for a loop that cannot be stable, and for an axis that moves nothing."""
            delay = self.lead + test.transport + test.dt
            if self.integral_gain * delay >= 0.5 * math.pi:
                raise ConfigError(
                    f"integral_gain = {self.integral_gain:g} 1/s: must be < {0.5 * math.pi / delay:.3g} 1/s with "
                    f"{1e3 * delay:.3g} ms of lead, transport and sampling, or the force loop is unstable"
                )
            moved = len(test.axes) - len(test.force_axes)
            if self.column is not None:
                if self.coupled_to > moved:
                    raise ConfigError(
                        f"coupled_to = {self.coupled_to}: must be <= {moved}, the number of displacement axes"
                    )
                check_drift(self.column, test.strokes[self.coupled_to - 1], "column")

        def cautions(self, test: TestContext) -> list[str]:
            """Tells of a loop with a small margin."""
            delay = self.lead + test.transport + test.dt
            if self.integral_gain * delay <= FAST:
                return []
            return [
                f"integral_gain = {self.integral_gain:g} 1/s: with {1e3 * delay:.3g} ms of lead, transport and "
                f"sampling the force loop bears a specimen that is at most "
                f"{0.5 * math.pi / (self.integral_gain * delay):.2g} times as stiff as declared"
            ]

    def __init__(self, params: Params, dt: float) -> None:
        p = params
        self._compliance = 1.0 / p.stiffness
        self._integral, self._proportional = p.integral_gain * dt, p.proportional_gain
        self._ahead = p.lead / dt
        self._column = None if p.column is None else AxialLoad(p.column)
        self.coupled_to = None if p.column is None else p.coupled_to - 1
        self.reset()

    def reset(self) -> None:
        """Nothing is controlled, and nothing is known."""
        self._sum = self.correction = 0.0
        self._target = self._drift = 0.0

    def begin(self, place: float, target: float, drift: float, drift_before: float) -> None:
        """Take over an axis that is commanded to ``place`` (m), at the force ``target`` (N) of the same sample.

        ``drift`` and ``drift_before`` (m) are the targets of the axis that moves the head, now and a sample
        before.
        """
        self._target, self._drift, self.correction = target, drift_before, 0.0
        self._sum = place - self._fed_forward(target, drift)

    def step(self, target: float, measured: float, drift: float) -> float:
        """Displacement command (m) for the force ``target`` (N) of the coming sample, after ``measured`` (N)."""
        error = (target - measured) * self._compliance
        more = self._integral * error
        self.correction += more
        self._sum += more
        return self._fed_forward(target, drift) + self._sum + self._proportional * error

    def _fed_forward(self, target: float, drift: float) -> float:
        force = target + self._ahead * (target - self._target)
        moved = drift + self._ahead * (drift - self._drift)
        self._target, self._drift = target, drift
        shortening = force * self._compliance
        return shortening if self._column is None else self._column.extension(shortening, moved)
