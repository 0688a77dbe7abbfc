# SPDX-License-Identifier: Apache-2.0
"""Nodes of the numerical part: the integrator publishes Targets, and the compensator converts them to Commands.

The integrator receives the forces of the rig. The compensator receives Targets and Measurements, and bridges late
Targets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rths_nodes.core.data import flatten
from rths_nodes.core.durations import Durations
from rths_nodes.core.errors import ClientLeft, ConfigError
from rths_nodes.core.samples import FLAG_TRIPPED, Measurement, Target
from rths_nodes.loop.faults import STREAMS
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.updating import TOPIC
from rths_nodes.loop.stages.command import PATIENCE, command_warm_up
from rths_nodes.loop.stages.numerical import NumericalStage, step_warm_up
from rths_nodes.loop.timing import of_hop
from rths_nodes.ros.names import COMPENSATOR, INTEGRATOR
from rths_nodes.ros.nodes.base import RthsNode, warm_up_of
from rths_nodes.ros.nodes.monitor import DriverGuard

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
                    # the pause is counted from the Measurement, so that the next step begins on time
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


QUIET_NS = 3_000_000_000


class CompensatorNode(RthsNode):
    role = COMPENSATOR

    def build(self, assembly: Assembly) -> None:
        scenario = assembly.scenario
        self.stage = self._host.commands(assembly)
        self.outside.callback(self.stage.close)
        self.stage.open()
        if not self.settings.lockstep:
            self.stage.assume_realtime()
        self._guard = DriverGuard(assembly, self.phase, self.trip, self.clock)
        self._answered = -1
        self._waiting: deque[tuple[Measurement, int, int]] = deque()
        self._patience = round((PATIENCE + scenario.hops.depth) * scenario.dt * 1e9)
        self._period = round(scenario.dt * 1e9)
        self._quiet_from = self._came = 0
        self._looked = self._looks = 0
        self._hop = Durations(scenario.samples)
        self.clocks = {"work": self._hop}
        self.state_names = self.stage.state_names
        self.inner_numbers = self._inner_numbers
        self.warm_up = warm_up_of(self, command_warm_up, self.stage.compensator.external)

    def work(self, limit: int = 1_000_000) -> bool:
        began = self._now()
        self._looked, self._looks = self._looks, began
        # polling an empty inbox takes time
        busy = not self._waiting and self._take_measurement()
        while self._waiting and self._waiting[0][0].sample >= self.stage.ready_to and self._take_target():
            busy = True
        busy = busy or self._take_all()
        if self.measurements.broken:
            self._waiting.clear()
        while self._waiting:
            measured, stamp, _ = self._waiting[0]
            late = measured.sample >= self.stage.ready_to and self._lacks_target(measured)
            if late and (self._paused or not self._overdue()):
                break
            self._waiting.popleft()
            self._answer(measured, stamp, began, late and self._lacks_target(measured))
            busy = True
            began = self.answered_at = self._now()
        if busy:
            self._quiet_from = self._now()
        else:
            self._finish()
        return busy

    def _take_all(self) -> bool:
        """Empty the inboxes, because a remaining message would prevent the process from sleeping."""
        busy = False
        while self._take_measurement() or self._take_target():
            busy = True
        return busy

    def _take_measurement(self) -> bool:
        measurement = self.measurements.next()
        if measurement is None:
            return False
        if not self.settings.lockstep:
            self._came = self._now() - self.topics.inboxes["measurement"].waited()
        self._waiting.append((*measurement, self._came))
        return True

    def _take_target(self) -> bool:
        target = self.topics.receive("target", self.topics.codec.unpack_target)
        if target is None:
            return False
        try:
            self.stage.target(target[0])
        except ValueError as error:
            self.measurements.lose(str(error))
        return True

    def _lacks_target(self, measured: Measurement) -> bool:
        return measured.sample >= self.stage.ready_to and not measured.flags & FLAG_TRIPPED

    @property
    def _paused(self) -> bool:
        return self.stage.paused and not self._waiting[-1][0].flags & FLAG_TRIPPED

    @property
    def awaits_answer(self) -> bool:  # type: ignore[override]
        return bool(self._waiting)

    @property
    def awaited_streams(self) -> Sequence[str]:  # type: ignore[override]
        """Streams that wake the node. Measurements do not wake the node while a Target is missing."""
        if self._waiting or self._answered < 0 or self.stage.ready(self.measurements.expected + 1):
            return STREAMS
        late = not self.settings.lockstep and self._next_look_for_measurement() is None
        return STREAMS if late else ("target",)

    def _next_look_for_measurement(self) -> int | None:
        due = self._came + self._period + self._patience
        return due if due > self._now() else None

    @property
    def deadline(self) -> int | None:  # type: ignore[override]
        """Time at which the Target of the next Command is late, ns, or None if no Target can be late."""
        if self.settings.lockstep or self._answered < 0:
            return None
        if self._waiting:
            return None if self._paused else self._waiting[0][2] + self._patience
        return None if self.stage.ready(self.measurements.expected + 1) else self._next_look_for_measurement()

    def _overdue(self) -> bool:
        """Return True if a Target is late and was already late at the previous call of ``work``.

        Between these calls, an integrator that was suspended together with this process can run.
        """
        deadline = self.deadline
        if deadline is None or self._looked < deadline:
            return False
        self._take_all()  # the Target may have arrived while this process was suspended
        return True

    def _answer(self, measured: Measurement, stamp: int, began: int, late: bool) -> None:
        self.deferred.collect()
        self._answered = measured.sample
        if not self._guard.measurement(measured, self.measurements.handed_over):
            return
        command = self.stage.bridge(measured) if late else self.stage.next(measured)
        if command is not None and self._guard.command(command):
            data = self.topics.codec.pack_command(command, stamp + self._period)
            self._hop.add(self._now() - began)
            self.topics.senders["command"](data)
        if not measured.flags & FLAG_TRIPPED:
            self.deferred.put(
                "compensator_state",
                self.topics.codec.pack_state,
                self.stage.state,
                measured.sample,
                measured.flags,
                stamp,
            )

    def _finish(self) -> None:
        self._guard.judge()
        if self.phase.ended and not self.shutdown.reported:
            in_vain = bool(self._waiting) and self._now() - self._quiet_from > QUIET_NS
            if self.measurements.broken or self._answered >= self.phase.test.sample or in_vain:
                self.shutdown.report()
        self.shutdown.leave(self.handshake.receive_state)

    @property
    def last_sample(self) -> int:
        return self._answered

    def counters(self) -> dict[str, int]:
        return super().counters() | {"bridged": self.stage.bridged}

    def _inner_numbers(self) -> dict[str, float]:
        names = self.stage.state_names
        return {f"compensator.{name}": value for name, value in zip(names, self.stage.state(), strict=True)}

    def final_numbers(self) -> tuple[int, dict[str, float]]:
        return self._answered, self._inner_numbers() | flatten({"hops": {self.role: of_hop(self._hop)}}, "timing")
