"""The monitor node: watches everything, computes the indices, asks for a trip."""

from __future__ import annotations

import time

from sensor_msgs.msg import JointState

from rths_nodes.core.flat_names import flatten
from rths_nodes.core.samples import Measurement
from rths_nodes.core.wire.layout import stamp_of
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.monitor import MonitorStage
from rths_nodes.loop.supervision.states import LOCKSTEP_WINDOW
from rths_nodes.ros.names import MONITOR
from rths_nodes.ros.nodes.base import RthsNode
from rths_nodes.ros.nodes.findings import unseen

STATUS_RATE = 20.0
"""SyncStatus and joint_states per second of test."""

QUIET_NS = 1_500_000_000
"""How long the monitor waits, after the test, for what is missing; the actuator waits for its judgement a little
longer."""


class MonitorNode(RthsNode):
    """Hosts the monitor."""

    role = MONITOR
    sections = ("monitor",)
    reads = ("structure",)  # its elastic energy is the scale of the energy error

    def build(self, assembly: Assembly) -> None:
        scenario = assembly.scenario
        self.stage = MonitorStage.of(assembly)
        self._expected = 0
        self._status_of = -1
        self._tripped = False
        self._status_every = max(1, round(scenario.servo_rate / STATUS_RATE))
        self._quiet_from = 0

    def work(self, limit: int = 1_000_000) -> bool:
        busy = False
        while limit > 0 and (found := self.next_measurement(self._expected)) is not None:
            measured, stamp = found
            self._expected += 1
            self.stage.measurement(measured)
            if measured.sample % self._status_every == 0:
                self._tell_joints(measured, stamp)
            limit -= 1
            busy = True
        while (target := self.receive("target", self.codec.unpack_target)) is not None:
            self.stage.target(target[0])
        while (command := self.receive("command", self.codec.unpack_command)) is not None:
            self.stage.command(command[0])
        self.stage.work()
        self._trip()
        self._tell_status()
        self.beat(self._allowed())
        if busy:
            self._quiet_from = time.monotonic_ns()
        else:
            self._finish()
        return busy

    @property
    def heavy(self) -> bool:
        return self._expected % self._status_every == 0 or self.stage.monitor.completes_block

    def _trip(self) -> None:
        breach = self.stage.monitor.breach
        if breach is None or self._tripped:
            return
        self._tripped = True
        sample, reason = breach
        effective = sample + LOCKSTEP_WINDOW if self.lockstep else 0
        self.tell("trip", {"sample": sample, "effective_sample": effective, "source": self.role, "reason": reason})

    def _tell_status(self) -> None:
        sample = self.stage.sample
        if sample // self._status_every != self._status_of // self._status_every:
            self._status_of = sample
            self.tell("sync_status", self.stage.monitor.status())

    def _allowed(self) -> int:
        """How far the monitor has come; beyond a breach, the rig would run past where the trip takes effect."""
        breach = self.stage.monitor.breach
        return self.stage.sample if breach is None else min(self.stage.sample, breach[0] - 1)

    def _tell_joints(self, measured: Measurement, stamp: int) -> None:
        message = JointState()
        message.header.stamp.sec, message.header.stamp.nanosec = stamp_of(stamp)
        message.name = list(self.scenario.axes)
        message.position = measured.displacement.tolist()
        message.effort = measured.force.tolist()
        self.outlets["joint_states"].publisher.publish(message)

    def _finish(self) -> None:
        if not self.ended:
            self._quiet_from = time.monotonic_ns()
        elif not self.summary and (not self._unseen or time.monotonic_ns() - self._quiet_from > QUIET_NS):
            self.last_words()
            self._trip()  # the last words work off the last samples, in which a limit may be broken, too
            self.tell("progress", {"node": self.role, "sample": max(self.stage.sample, 0), "done": True})
        self.leave()

    def last_words(self) -> None:
        super().last_words()
        self.note = unseen(self.summary)

    @property
    def _unseen(self) -> int:
        """How many samples of the test, which has ended, are missing here; of one that never began none are."""
        return max(0, int(self.test["sample"]) - max(self.stage.sample, 0))

    @property
    def last_sample(self) -> int:
        return self.stage.sample

    def final_numbers(self) -> tuple[int, dict[str, float]]:
        numbers = flatten(self.stage.metrics(), "metrics")
        if self.ended and self._unseen:
            numbers["unseen.samples"] = self._unseen
        return self.stage.sample, numbers
