# SPDX-License-Identifier: Apache-2.0
"""Rest, then another excitation: for tests that begin with e.g. the application of a load."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.checks import TestContext
from rths_nodes.core.declarations import OfParams
from rths_nodes.core.parameters import component, number, params
from rths_nodes.core.samples import Array
from rths_nodes.numerical.ground_motions.waves import Formula


class Delayed:
    """The values of ``motion``, ``delay`` s late; zero before."""

    @params
    class Params:
        proportional_to: ClassVar[str] = "scale"
        delay: float = number("time of rest before it", "s", more_than=0.0, at_most=3600.0)
        motion: OfParams = component("ground_motion", "what comes then")
        scale: float = number("factor on its values; -1 turns the motion round", default=1.0)

        def cautions(self, test: TestContext) -> list[str]:
            if self.delay < test.duration:
                return []
            return [f"delay = {self.delay:g} s: the test ends after {test.duration:g} s"]

    def __init__(self, params: Params, seed: int) -> None:
        self._delay, self._scale = params.delay, params.scale
        self._motion: Any = registry.build("ground_motion", params.motion, seed)
        if isinstance(self._motion, Formula):
            self.derivatives = self._derivatives

    def sample(self, times: Array) -> Array:
        late = np.asarray(times, dtype=float) - self._delay
        return np.where(late >= 0.0, self._scale * self._motion.sample(np.maximum(late, 0.0)), 0.0)

    def _derivatives(self, times: Array) -> tuple[Array, Array]:
        late = np.asarray(times, dtype=float) - self._delay
        first, second = self._motion.derivatives(np.maximum(late, 0.0))
        there = np.where(late >= 0.0, self._scale, 0.0)
        return there * first, there * second
