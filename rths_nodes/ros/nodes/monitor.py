# SPDX-License-Identifier: Apache-2.0
"""Monitor node: checks limits, computes indices and requests trips.

``DriverGuard`` checks the axis limits, in case a third-party driver node does not check them.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence

from sensor_msgs.msg import JointState
from std_msgs.msg import Header

from rths_nodes.core.data import flatten
from rths_nodes.core.durations import SECOND
from rths_nodes.core.errors import counted
from rths_nodes.core.samples import FLAG_TRIPPED, INTERLOCK_OPEN, Array, Command, Measurement
from rths_nodes.core.wire import stamp_of
from rths_nodes.loop.indices.live_columns import curve_limits, curve_names, curve_units
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.pacing import SYSTEM_CLOCK, Clock
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.command import outgoing_of
from rths_nodes.loop.stages.frozen import frozen_words
from rths_nodes.loop.stages.monitor import MonitorStage
from rths_nodes.loop.supervision.hops import TakenAtOnce
from rths_nodes.loop.supervision.levels import LevelWatch
from rths_nodes.loop.supervision.states import LOCKSTEP_WINDOW, State
from rths_nodes.loop.timing import LateData
from rths_nodes.msg import Live, LiveCurves
from rths_nodes.ros.names import COMMANDS, MONITOR, STATES, TARGETS
from rths_nodes.ros.nodes.base import RthsNode
from rths_nodes.ros.nodes.participation import PhaseMachine, ProgressReports, StateOfTest

WENT_ON = "the actuator node continued after the Trip"
LATER_NS = 2 * SECOND
"""Additional time to wait for a driver's Measurement before the Trip, and again after the Trip, ns."""


def ended_early(test: StateOfTest, samples: int) -> str:
    if test.state is not State.FINISHED or test.sample == samples:
        return ""
    return f"the actuator node reported the test as finished at sample {test.sample} of {samples}"


class DriverGuard:
    """Checks Commands to a driver of the rig and Measurements from the driver. The first breach causes a trip.

    ``trip`` receives the reason, the sample, and the first tick without a Command (0: the pending tick).
    ``tripped`` contains the sample and the reason, and is empty before a trip. The test ends as tripped if a
    driver ignores a Trip. A test that ends before the last sample has failed.
    """

    def __init__(
        self,
        assembly: Assembly,
        phase: PhaseMachine,
        trip: Callable[[str, int, int], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        scenario = assembly.scenario
        self.tripped = ""
        self._samples, self._depth = scenario.samples, scenario.hops.depth
        self._check = outgoing_of(assembly)
        self._levels = LevelWatch(scenario.limits, scenario.dt, assembly.names.auxiliary) or None
        self._at_once = TakenAtOnce(self._depth) if self._depth else None
        self._command: Command | None = None
        self._phase, self._trip, self._now = phase, trip, clock.monotonic_ns
        self._patience = round(2 * scenario.port.longest_wait * SECOND) + LATER_NS
        self._sample = -1
        self._received_at = 0

    def measurement(self, measured: Measurement, judged: bool = False) -> bool:
        """Return True if the rig may continue after ``measured``. Measurements of a safe stop are not checked.

        ``judged`` is true if the actuator node of this package has checked ``measured``.
        """
        self._received_at, self._sample = self._now(), measured.sample
        if measured.sample == 0:
            self._check.start(measured)
            if self._at_once is not None:
                self._at_once.start(measured)
        if judged or self.tripped or measured.flags & FLAG_TRIPPED:
            return not self.tripped
        reason = self._check.measurement(measured, measured.displacement)
        if self._levels is not None:
            level, _ = self._levels.judge(self._command, measured)
            reason = reason or level
        if self._at_once is not None and (problem := self._at_once.reason(measured)):
            return self._passes(reason or problem, measured.sample, 0)  # trip now: the driver waits for a Command
        if measured.interlock == INTERLOCK_OPEN:
            reason = reason or "the interlock of the rig is open"
        return self._passes(reason, measured.sample, measured.sample + 1)

    def command(self, command: Command) -> bool:
        """Return True if ``command`` may be published, and False after a breach."""
        self._command = command
        if self._at_once is not None:
            self._at_once.made(command)
        if self.tripped:
            return False
        reason = self._check.refusal(command)
        return not reason or self._passes(reason, command.sample, command.sample)

    def overdue(self) -> bool:
        """Trip if the driver has sent nothing for too long. Return True if the driver also ignores the Trip."""
        if not self._received_at or self._phase.test.state not in (State.RUNNING, State.STOPPING):
            return False
        waited = self._now() - self._received_at
        if waited < self._patience:
            return False
        self._passes(f"no Measurement {self._sample + 1} for {waited / SECOND:.3g} s", self._sample, 0)
        return waited > self._patience + LATER_NS

    def judge(self) -> None:
        if self.tripped and self._phase.test.state is State.FINISHED:
            self._phase.blame(self._phase.exit_code or ExitCode.TRIPPED, f"{self.tripped}; {WENT_ON}")
        elif early := ended_early(self._phase.test, self._samples):
            self._phase.blame(ExitCode.FAILED, early)

    def _passes(self, reason: str, sample: int, command: int) -> bool:
        if reason and not self.tripped:
            self.tripped = f"sample {sample}: {reason}"
            self._trip(reason, sample, command + self._depth if command and self._depth else 0)
        return not reason


INTERVAL_NS = 100_000_000
"""Shortest interval between messages with curves, ns. Each message wakes one processor per subscriber."""
QUIET_NS = 1_500_000_000
"""Waiting time for missing messages after the test, ns. The actuator node waits longer for the monitor."""
UNHEARD_NS = 2_000_000_000
"""Time after an interrupt until the monitor trips a running test, ns. A driver may have missed the interrupt."""
RATE = 20.0
"""Number of status messages per second of test time."""
Values = Sequence[float]


def message_of(header: Header, run: str, first: int, per: int, values: Array) -> Live:
    """Return ``values`` (columns, curves, 4) as a message: ``per`` samples per column, from sample ``first``."""
    message = Live(header=header, run=run, first=first, column=per)
    message.values = array("f", values.ravel())
    return message


def curves_of(scenario: Scenario, header: Header, run: str) -> LiveCurves:
    message = LiveCurves(header=header, run=run, servo_rate=scenario.servo_rate)
    axes = {name: axis.limits for name, axis in scenario.axes.items()}
    message.names = curve_names(list(axes))
    message.units = curve_units(axes)
    for curve, limit, bound in curve_limits(axes):
        message.limited.append(message.names.index(curve))
        message.limits = [*message.limits, limit]
        message.low.append(-bound)
        message.high.append(bound)
    return message


def joint_publisher(
    axes: Mapping[str, bool], dt: float, frame: str, publish: Callable[[str, JointState], None]
) -> Callable[[int, int, Values, Values, Values, Values], None]:
    """Return a function that publishes the axes as joints, through ``publish(topic, message)``.

    The function takes sample, stamp (ns), targets, commands, measured displacements and forces. ``axes`` maps each
    axis to True for force control: targets and commands of this axis are efforts (N). All other positions are
    displacements (m). Velocities (m/s) follow from successive positions. ``dt`` is the servo period, s.
    """
    loaded = list(axes.values())
    last: tuple[int, dict[str, Values]] | None = None

    def split(values: Values) -> tuple[Values, Values]:
        if not any(loaded):
            return values, []
        loads = [value if of_force else math.nan for value, of_force in zip(values, loaded, strict=True)]
        moves = [math.nan if of_force else value for value, of_force in zip(values, loaded, strict=True)]
        return moves, loads

    def publish_joints(
        sample: int, stamp: int, target: Values, command: Values, measured: Values, force: Values
    ) -> None:
        nonlocal last
        states = {STATES: (measured, force), TARGETS: split(target), COMMANDS: split(command)}
        positions = {topic: position for topic, (position, _) in states.items()}
        earlier, before = last or (sample, positions)
        time = (sample - earlier) * dt
        last = sample, positions
        for topic, (position, effort) in states.items():
            message = JointState(name=list(axes), position=list(position), effort=list(effort))
            pairs = zip(position, before[topic], strict=True)
            message.velocity = [(now - then) / time if time > 0.0 else 0.0 for now, then in pairs]
            message.header.frame_id = frame
            message.header.stamp.sec, message.header.stamp.nanosec = stamp_of(stamp)
            publish(topic, message)

    return publish_joints


class MonitorNode(RthsNode):
    role = MONITOR

    def build(self, assembly: Assembly) -> None:
        scenario = assembly.scenario
        self.stage = MonitorStage.of(assembly, spread=not self.settings.lockstep, live=True)
        self._guard = DriverGuard(assembly, self.phase, self.trip, self.clock)
        self._status_of = -1
        self._tripped = self._warned = self._stopped = False
        self._frozen: set[str] = set()
        self._status_every = max(1, round(scenario.servo_rate / RATE))
        self._quiet_from = 0
        self._progress = ProgressReports(self.shared, not self.settings.clocked, scenario.heartbeat.period)
        self._curves_named, self._curves_due = False, 0
        loaded = {name: axis.limits.of_force for name, axis in scenario.axes.items()}
        self._publish_joints = joint_publisher(loaded, scenario.dt, self.location.rig.strip("/"), self._publish)
        self._stamped = 0, 0

    def work(self, limit: int = 1_000_000) -> bool:
        busy = False
        while limit > 0 and (measurement := self.measurements.next()) is not None:
            measured, stamp = measurement
            self.stage.measurement(measured)
            self._guard.measurement(measured, self.measurements.handed_over)
            self._stamped = measured.sample, stamp
            limit -= 1
            busy = True
        receive, codec = self.topics.receive, self.topics.codec
        while (target := receive("target", codec.unpack_target)) is not None:
            self.stage.target(target[0])
        while (command := receive("command", codec.unpack_command)) is not None:
            self.stage.command(command[0])
        self.stage.work()
        breach = self.stage.monitor.breach
        if breach is not None and not self._tripped:
            self._tripped = True
            self.trip(breach[1], breach[0], breach[0] + LOCKSTEP_WINDOW)
        self._stop_if_interrupted()
        self._warn_outside()
        self._publish_status()
        last = self.stage.sample
        self._progress.publish_if_due(last if breach is None else min(last, breach[0] - 1))
        if busy:
            self._quiet_from = self._now()
        elif self.spares:
            self.stage.monitor.work()
            return True
        else:
            self._finish()
        return busy

    @property
    def heavy(self) -> bool:  # type: ignore[override]
        return self.measurements.expected % self._status_every == 0

    @property
    def spares(self) -> bool:  # type: ignore[override]
        return self.stage.monitor.waits

    def _stop_if_interrupted(self) -> None:
        running = self.phase.test.state is State.RUNNING
        if running and not self._stopped and self.shutdown.interrupted_for > UNHEARD_NS:
            self._stopped = True
            self.trip("the actuator node continues the test after an interrupt")

    def _warn_outside(self) -> None:
        for axis, at in self.stage.sensors.forces.items():
            if axis not in self._frozen:
                self._frozen.add(axis)
                self.phase.remark(warning := frozen_words(axis, at))
                self.get_logger().warning(warning)
        corridor = self.stage.monitor.corridor
        if corridor is None or corridor.left is None or self._warned:
            return
        self._warned = True
        sample, position = corridor.left
        self.get_logger().warning(f"the test has left its corridor at sample {sample}: {position}")

    def _publish_status(self) -> None:
        sample = self.stage.sample
        if sample // self._status_every != self._status_of // self._status_every:
            self._status_of = sample
            self.topics.publish("sync_status", self.stage.monitor.status())
            assert self.stage.live is not None
            last, stamp = self._stamped
            before = round((last - sample) * self.scenario.dt * SECOND)
            self._publish_joints(sample, stamp - before, *self.stage.live.newest()[:4])
            if self._now() >= self._curves_due:
                self._publish_curves()

    def _publish(self, topic: str, message: object) -> None:
        self.topics.outlets[topic].publisher.publish(message)

    def _publish_curves(self, rest: bool = False) -> None:
        self._curves_due = self._now() + INTERVAL_NS
        columns, run = self.stage.live, self.topics.run.mark
        assert columns is not None
        header = Header()
        header.stamp.sec, header.stamp.nanosec = stamp_of(self.clock.time_ns())
        if not self._curves_named:
            self._curves_named = True
            self._publish("live_curves", curves_of(self.scenario, header, run))
        first, values = columns.take(rest)
        if len(values):
            self._publish("live", message_of(header, run, first, columns.samples_per_column, values))

    def _finish(self) -> None:
        self._guard.judge()
        if not self.phase.ended:
            self._quiet_from = self._now()
            if self._guard.overdue():  # no other node would end the test
                self.shutdown.report()
                self.phase.end(ExitCode.FAILED, self._guard.tripped)
                return
        elif not self.shutdown.summary and (not self._unseen or self._now() - self._quiet_from > QUIET_NS):
            self._publish_curves(rest=True)
            self.shutdown.report()
            self._progress.publish(self.stage.sample, done=True)
        self.shutdown.leave(self.handshake.receive_state)

    @property
    def _unseen(self) -> int:
        return max(0, self.phase.test.sample - max(self.stage.sample, 0))

    @property
    def last_sample(self) -> int:
        return self.stage.sample

    @property
    def late(self) -> LateData:  # type: ignore[override]
        return self.stage.late

    def final_numbers(self) -> tuple[int, dict[str, float]]:
        numbers = flatten(self.stage.metrics(), "metrics")
        if self.phase.ended and self._unseen:
            numbers["unseen.samples"] = self._unseen
        self.phase.remark(unjudged_samples(numbers))
        return self.stage.sample, numbers


def unjudged_samples(numbers: Mapping[str, float]) -> str:
    count = numbers.get("unseen.samples", 0.0)
    last = counted(count, "sample")
    return f"the indices exclude the last {last}, which the monitor has not received" if count else ""
