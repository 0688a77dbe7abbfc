"""Prediction with an acceleration that goes on linearly (Horiuchi & Konno 2001).

    d^p = x + tau v + tau^2 a / 2 + tau^3 (a - a') / (6 h)

with the target's own displacement x, velocity v and acceleration a, and the acceleration a' at a time h before. In
print h is the integration step. At the servo rate that is no longer one sample: behind the quadratic ramp the
acceleration is constant within a step and jumps between steps, so that the difference over one sample is zero or a
spike, and only the one over a whole step is the third derivative. Hence `spacing`, in samples.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rths_nodes.control.compensators.ahead import Ahead, lead_parameter
from rths_nodes.control.compensators.ramp_cautions import acceleration_cautions, ramp_seen
from rths_nodes.core.checks import TestContext
from rths_nodes.core.frequency_response import Complex, Frequencies, taps
from rths_nodes.core.parameters import integer, number, params
from rths_nodes.core.samples import Array, Motion

LONGEST = 100_000
"""Samples: as many as an integration step may have."""


class LinearAcceleration:
    """Taylor series of the target to the third order, with the acceleration going on as before.

    ``delay`` (n_axes,) s may be changed between two steps, by an adaptive law.
    """

    @params
    class Params:
        delay: float = number(
            "delay to make up for, as identified: that of the transport included", "s", at_least=0.0
        )
        spacing: int = integer(
            "time over which the acceleration is differenced: substeps times time_ratio",
            "samples",
            1,
            at_least=1,
            at_most=LONGEST,
        )
        lead: float = lead_parameter()

        def spans(self) -> dict[str, float]:
            """Parameter -> seconds of history that it needs."""
            return {"delay": self.delay}

        def cautions(self, test: TestContext) -> list[str]:
            """Warnings about the ramp in front, and about a spacing that is not that of its steps."""
            step = test.samples_per_step
            if ramp_seen(test) == "quadratic" and self.spacing % step:
                return [
                    f"spacing = {self.spacing} samples: the acceleration of the quadratic ramp changes once in "
                    f"{step} samples; take that"
                ]
            return acceleration_cautions(test)

    state_names: tuple[str, ...] = ()
    state_units: Mapping[str, str] = {}

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        self._p = params
        self._dt = dt
        self._per_span = 1.0 / (6.0 * params.spacing * dt)
        self._history = np.zeros((params.spacing, n_axes))
        self.delay = np.zeros(n_axes)
        self._ahead = Ahead(params.lead, dt, n_axes)
        self.reset()

    def reset(self) -> None:
        """No acceleration known yet."""
        self.delay[:] = self._p.delay
        self._oldest = -1
        self._ahead.reset()

    def step(self, target: Motion, measured: Array) -> Array:
        target = self._ahead.of(target)
        a, delay = target.acceleration, self.delay
        if self._oldest < 0:
            # the acceleration a test starts with was there before: its jump from zero is no third derivative
            self._history[:] = a
            self._oldest = 0
        oldest = self._history[self._oldest]
        growth = delay * self._per_span * (a - oldest)
        oldest[:] = a
        self._oldest = (self._oldest + 1) % len(self._history)
        command: Array = target.displacement + delay * (target.velocity + delay * (0.5 * a + growth))
        return command

    def frequency_response(self, omega: Frequencies) -> Complex:
        """Command over target at ``omega`` (rad/s), for the delay of the parameters and exact derivatives."""
        delay, ahead = self._p.delay, 1j * omega * self._p.delay
        growth = delay * self._per_span * taps(omega, (1.0, -1.0), (0.0, self._p.spacing * self._dt))
        return np.asarray((1.0 + ahead + ahead**2 * (0.5 + growth)) * self._ahead.response(omega))

    def state(self) -> tuple[float, ...]:
        return ()
