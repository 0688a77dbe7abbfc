"""The integrator node: forces of the rig in, Targets out."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rths_nodes.core.durations import Durations
from rths_nodes.core.flat_names import flatten
from rths_nodes.core.samples import Target
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.numerical import NumericalStage
from rths_nodes.loop.warm_up import StepWarmUp
from rths_nodes.ros.names import INTEGRATOR
from rths_nodes.ros.nodes.base import RthsNode

SOONER = 1.5
"""In real time: so many samples before its next step the node listens again."""


class IntegratorNode(RthsNode):
    """Hosts the numerical substructure."""

    role = INTEGRATOR
    sections = ("ground_motion", "structure", "integrator", "setup", "semi_active")

    def build(self, assembly: Assembly) -> None:
        scenario = assembly.scenario
        self.stage = NumericalStage.of(assembly)
        self._expected = 0
        self._hop = Durations(scenario.steps)
        self._resting = round((self.stage.substeps - SOONER) * scenario.dt * 1e9)
        self._rests_until = 0
        self.rehearse_with(StepWarmUp)

    def work(self, limit: int = 1_000_000) -> bool:
        busy, began = False, time.monotonic_ns()
        while limit > 0 and (found := self.next_measurement(self._expected)) is not None:
            measured, stamp = found
            if self._expected == 0:
                self._publish(self.stage.first(), stamp)
            self._expected += 1
            limit -= 1
            busy = True
            target = self.stage.next(measured)
            if target is not None:
                self._rests_until = time.monotonic_ns() + self._resting
                self._publish(target, stamp + round(self.stage.substeps * self.scenario.dt * 1e9), began)
            self._answered_at = began = time.monotonic_ns()
        if not busy:
            self._finish()
        return busy

    @property
    def rests(self) -> bool:
        """In real time the Measurements between two steps want no answer."""
        return self.deadline is not None

    @property
    def awaited_streams(self) -> Sequence[str]:
        """They are nothing to wake up for."""
        return () if self.rests else super().awaited_streams

    @property
    def deadline(self) -> int | None:
        """When the Measurement that the next step needs may soon come, ns; None when that is over."""
        if self.lockstep or self._rests_until <= time.monotonic_ns():
            return None
        return self._rests_until

    def _publish(self, target: Target, stamp: int, began: int | None = None) -> None:
        data = self.codec.pack_target(target, stamp)
        if began is not None:
            self._hop.add(time.monotonic_ns() - began)
        self.send("target", data)

    def _finish(self) -> None:
        if self.ended and not self.spoken and (self.out_of_step or self._expected > self.test["sample"]):
            self.last_words()
        self.leave()

    @property
    def last_sample(self) -> int:
        return self._expected - 1

    def clocks(self) -> dict[str, Durations]:
        return {"work": self._hop}

    def final_numbers(self) -> tuple[int, dict[str, float]]:
        return self._expected - 1, flatten(self.hop_of(self._hop), "timing")
