# SPDX-License-Identifier: Apache-2.0
"""Model updating in the loop: what the specimen shows, sample by sample, to the step of its copy.

A pair of displacement and force is of one moment: the delay of the load cell that the scenario declares is taken
off, and the displacement goes through the filter that the rig has for the force. The velocity is the central
difference, so that a pair is learnt from one period after it was measured.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

import numpy as np

from rths_nodes.core.data import Data
from rths_nodes.core.protocols import Integrator
from rths_nodes.core.samples import Array, Measurement
from rths_nodes.laboratory.corrections import low_pass
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.scenario.updating import USED, Copies
from rths_nodes.mechanics.updating.step import (
    DEAD,
    FLAGGED,
    LAWS,
    NOT_FINITE,
    SPIKE,
    STRANGE,
    TOO_FAST,
    UNEXPLAINED,
    UNUSABLE,
    Sample,
    State,
    at_rest,
    step,
)

COUNTED = {
    FLAGGED: "flagged",
    NOT_FINITE: "not_finite",
    TOO_FAST: "too_fast",
    DEAD: "dead",
    SPIKE: "spikes",
    STRANGE: "unexplained",
}
"""Names of the counts of samples that moved no copy."""


class Pair(NamedTuple):
    """Displacement (m) and force (N) of one moment."""

    displacement: float
    force: float
    flagged: bool


class Learning:
    """The copy of the specimen that learns; :meth:`add` takes every Measurement, :meth:`learn` does the work."""

    def __init__(self, scenario: Scenario) -> None:
        """Raises ConfigError for what cannot be updated."""
        copies = Copies(scenario)
        self.copy, self._settings = copies.learns, copies.settings
        self.every, self._axis = copies.every, copies.axis
        axis = scenario.axes[copies.section.axis]
        self._estimator = LAWS[copies.section.law](self.copy, self._settings)
        self._filter = low_pass(axis, scenario.dt)
        self._begun = False
        self._held = axis.sensors.force_delay + 1
        self._line: deque[tuple[float, bool]] = deque(maxlen=self._held)
        """Displacements, as far back as the force is late."""
        self._pairs: deque[Pair] = deque(maxlen=3)
        self._due: tuple[int, Sample] | None = None
        self._state: State | None = None
        self._followers = copies.followers() if copies.section.mode == USED else {}
        self._followed: Array | None = None
        self._counts = dict.fromkeys(COUNTED, 0)
        self._learnt = self._strange_from = self._left_from = 0
        self._at_bound = [False for _ in self.copy.names]

    @classmethod
    def of(cls, scenario: Scenario) -> Learning | None:
        return None if scenario.updating is None else cls(scenario)

    def follow(self, integrator: Integrator) -> None:
        """Let the copies of an integrator have what has been released since; in shadow they have nothing of it."""
        if self._state is None or self._state.released is self._followed:
            return
        self._followed = self._state.released
        shares = self._followed.tolist()
        for name, copy in self._followers.items():
            integrator.renew(name, copy.change(shares))

    def add(self, measured: Measurement) -> None:
        """Take in a sample. Every ``every``-th makes a pair, and the one before it ready to be learnt from."""
        x, bad = float(measured.displacement[self._axis]), measured.flags & UNUSABLE != 0
        if self._filter is not None:
            if not math.isfinite(x):  # it would stay in the filter
                x, bad = (self._line[-1][0] if self._line else 0.0), True
            else:
                if not self._begun:
                    self._filter.start(x)
                    self._begun = True
                x = self._filter.step(x)
        self._line.append((x, bad))
        if measured.sample % self.every or len(self._line) < self._held:
            return
        earlier, flagged = self._line[0]
        pairs = self._pairs
        pairs.append(Pair(earlier, float(measured.force[self._axis]), bad or flagged))
        if len(pairs) > 1:
            middle = pairs[-2]
            velocity = (pairs[-1].displacement - pairs[0].displacement) / (
                (len(pairs) - 1) * self._settings.period
            )
            self._due = measured.sample, Sample(middle.displacement, velocity, middle.force, middle.flagged)

    def learn(self) -> tuple[int, list[float]] | None:
        """Learn from the pair that is ready; the number of the sample that made it so, and the values behind it.

        None where there is none, or it has been learnt from.
        """
        if self._due is None:
            return None
        (number, sample), self._due = self._due, None
        if self._state is None:
            begin = sample.displacement if math.isfinite(sample.displacement) else 0.0
            self._state = at_rest(self._estimator, self.copy, begin)
        self._state, told = step(self._estimator, self.copy, self._settings, self._state, sample)
        self._count(number, told.what)
        state, m, scale = self._state, len(self.copy.names), self.copy.initial
        own = np.stack((state.belief.mean[:m], state.belief.deviation[:m], state.released)) * scale
        return number, [*own.ravel().tolist(), told.expected, told.spread, state.mean_square, float(told.what)]

    def _count(self, number: int, what: int) -> None:
        assert self._state is not None
        if what in self._counts:
            self._counts[what] += 1
        else:
            self._learnt += 1
        if not self._strange_from and self._state.mean_square > UNEXPLAINED:
            self._strange_from = number
        if not self._left_from and self._state.left:
            self._left_from = number
        for place, (low, share, high) in enumerate(
            zip(self.copy.lower, self._state.belief.mean, self.copy.upper, strict=False)
        ):
            self._at_bound[place] |= not low < share < high

    def numbers(self) -> Data:
        """Return what there is to tell at the end of the test, nested by name."""
        found: Data = {"learnt": self._learnt, "first_unexplained_sample": self._strange_from}
        if self._left_from:
            found["left_prior_sample"] = self._left_from
        found |= {COUNTED[what]: count for what, count in self._counts.items() if count}
        if self._state is not None:
            scale, state = self.copy.initial, self._state
            for place, name in enumerate(self.copy.names):
                found[name] = {
                    "initial": float(scale[place]),
                    "estimate": float(scale[place] * state.belief.mean[place]),
                    "deviation": float(scale[place] * state.belief.deviation[place]),
                    "released": float(scale[place] * state.released[place]),
                    "left": float(state.belief.deviation[place] / self._settings.prior[place]),
                    "at_bound": float(self._at_bound[place]),
                }
        return {"updating": found}
