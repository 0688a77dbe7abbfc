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

ASK_AGAIN_NS = 200_000
"""How soon an integrator that is answered from outside is asked again whether it is ready."""


class IntegratorNode(RthsNode):
    """Hosts the numerical substructure."""

    role = INTEGRATOR
    sections = ("ground_motion", "structure", "integrator", "setup", "semi_active")

    stage: NumericalStage | None = None

    def build(self, assembly: Assembly) -> None:
        scenario = assembly.scenario
        self._close_stage()
        self.stage = NumericalStage.of(assembly)
        self.stage.open()
        self._expected = self._stamp = self._began = 0
        self._hop = Durations(scenario.steps)
        self._resting = round((self.stage.substeps - SOONER) * scenario.dt * 1e9)
        self._rests_until = 0
        if not self.stage.integrator.external:
            self.rehearse_with(StepWarmUp)

    def _close_stage(self) -> None:
        if self.stage is not None:
            self.stage.close()

    def _close_endpoints(self) -> None:
        super()._close_endpoints()
        self._close_stage()

    def destroy_node(self) -> None:
        """Also an integrator that is answered from outside is given back."""
        self._close_stage()
        super().destroy_node()

    def work(self, limit: int = 1_000_000) -> bool:
        busy, now = False, time.monotonic_ns()
        stage = self.stage
        assert stage is not None
        while limit > 0:
            if stage.pending and not self.ended:
                target = stage.answer()
                if target is None:
                    break
            else:
                found = self.next_measurement(self._expected)
                if found is None:
                    break
                measured, self._stamp = found
                self._began = now
                if self._expected == 0:
                    self._publish(stage.first(), self._stamp)
                self._expected += 1
                target = stage.next(measured)
            limit -= 1
            busy = True
            if target is not None:
                self._rests_until = time.monotonic_ns() + self._resting
                stamp = self._stamp + round(stage.substeps * self.scenario.dt * 1e9)
                self._publish(target, stamp, self._began)
            self._answered_at = now = time.monotonic_ns()
        if not busy:
            self._finish()
        return busy

    @property
    def rests(self) -> bool:
        """In real time the Measurements between two steps want no answer."""
        return not self._pending and self.deadline is not None

    @property
    def _pending(self) -> bool:
        return self.stage is not None and self.stage.pending

    @property
    def awaited_streams(self) -> Sequence[str]:
        """They are nothing to wake up for."""
        return () if self.rests else super().awaited_streams

    @property
    def deadline(self) -> int | None:
        """When a pending Target may be ready, or the Measurement that the next step needs come, ns.

        None when neither is due.
        """
        if self._pending:
            return time.monotonic_ns() + ASK_AGAIN_NS
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
