# SPDX-License-Identifier: Apache-2.0
"""Integrator node: receives forces of the rig and publishes Targets."""

from __future__ import annotations

from collections.abc import Sequence

from rths_nodes.core.data import flatten
from rths_nodes.core.durations import Durations
from rths_nodes.core.errors import ClientLeft, ConfigError
from rths_nodes.core.samples import Target
from rths_nodes.loop.faults.kinds import STREAMS
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.updating import TOPIC
from rths_nodes.loop.stages.numerical import NumericalStage
from rths_nodes.loop.timing import of_hop
from rths_nodes.loop.warm_up import step_warm_up
from rths_nodes.ros.names import INTEGRATOR
from rths_nodes.ros.nodes.base import RthsNode, warm_up_of

SOONER = 1.5
"""Number of samples before the next integration step at which the node resumes polling in real time."""


ASK_AGAIN_NS = 200_000
"""Polling period of an external integrator, ns."""


class IntegratorNode(RthsNode):
    role = INTEGRATOR

    stage: NumericalStage | None = None

    def build(self, assembly: Assembly) -> None:
        scenario = assembly.scenario
        self.stage = self._host.numerical(assembly)
        self.outside.callback(self.stage.close)
        self.stage.open()
        self._stamp = self._began = 0
        self._hop = Durations(scenario.steps)
        self.clocks = {"work": self._hop}
        self.state_names = assembly.names.updating
        if (learning := self.stage.learning) is not None:
            self.inner_numbers = lambda: flatten(learning.numbers()["updating"], "updating")
        self._resting = round((self.stage.substeps - SOONER) * scenario.dt * 1e9)
        self._rests_until = 0
        self.warm_up = warm_up_of(self, step_warm_up, self.stage.external)

    def missing(self) -> str:
        assert self.stage is not None
        try:
            return self.stage.missing()
        except ConfigError as error:
            self.refuse(str(error))
            return str(error)

    def work(self, limit: int = 1_000_000) -> bool:
        now, following = self._now, self.measurements.next
        busy, began = False, now()
        stage = self.stage
        assert stage is not None
        try:
            while limit > 0:
                if stage.pending and not self.phase.ended:
                    target = stage.answer()
                    if target is None:
                        break
                else:
                    next_target = following()
                    if next_target is None:
                        break
                    measured, self._stamp = next_target
                    self._began = began
                    if measured.sample == 0:
                        self._publish(stage.first(), self._stamp)
                    target = stage.next(measured)
                limit -= 1
                busy = True
                if target is not None:
                    # the rest is measured from the Measurement, so that the next step begins in time
                    self._rests_until = self._began + self._resting
                    stamp = self._stamp + round(stage.substeps * self.scenario.dt * 1e9)
                    self._publish(target, stamp, self._began)
                if stage.learning is not None and (learnt := stage.learning.learn()) is not None:
                    sample, values = learnt
                    self.topics.senders[TOPIC](self.topics.codec.pack_updating(values, sample, 0, self._stamp))
                self.answered_at = began = now()
        except ClientLeft as left:
            self.measurements.lose(str(left))
            return True
        if not busy:
            self._finish()
        return busy

    @property
    def rests(self) -> bool:  # type: ignore[override]
        return not (self.settings.lockstep or self._pending) and self._rests_until > self._now()

    @property
    def _pending(self) -> bool:
        return self.stage is not None and self.stage.pending

    @property
    def awaited_streams(self) -> Sequence[str]:  # type: ignore[override]
        return () if self.rests else STREAMS

    @property
    def deadline(self) -> int | None:  # type: ignore[override]
        if self._pending:
            return self._now() + ASK_AGAIN_NS
        return self._rests_until if self.rests else None

    def _publish(self, target: Target, stamp: int, began: int | None = None) -> None:
        data = self.topics.codec.pack_target(target, stamp)
        if began is not None:
            self._hop.add(self._now() - began)
        self.topics.senders["target"](data)

    def _finish(self) -> None:
        ended = self.phase.ended and (self.measurements.broken or self.last_sample >= self.phase.test.sample)
        if ended and not self.shutdown.reported:
            self.shutdown.report()
        self.shutdown.leave(self.handshake.receive_state)

    @property
    def last_sample(self) -> int:
        return self.measurements.expected - 1

    def final_numbers(self) -> tuple[int, dict[str, float]]:
        numbers = flatten(self.stage.numbers(), "integrator") if self.stage is not None else {}
        return self.last_sample, numbers | flatten({"hops": {self.role: of_hop(self._hop)}}, "timing")
