# SPDX-License-Identifier: Apache-2.0
"""Node of one axis: receives Commands and publishes Measurements.

The namespace of the node ends with the axis (``rths/story_1``). The node answers each Command of the actuator
node. If no Commands arrive, the node stops its axis.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_TRIPPED, Measurement
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.pacing import Pacer
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.axis import AxisStage
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.names import AXIS
from rths_nodes.ros.nodes.base import RthsNode
from rths_nodes.ros.nodes.phase import Phase

ALONE_NS = 200_000_000
"""Time that an interrupted or deactivated axis waits for the next Command before the axis stops by itself, ns."""

LATER_NS = 1_000_000_000
"""Additional time to wait for a Command in real time, ns, because the actuator node must stop all axes first."""


class AxisNode(RthsNode):
    role = AXIS
    stops_rig = True
    stage: Any = None

    def build(self, assembly: Assembly) -> None:
        scenario = assembly.scenario
        axis = self.location.axis
        if axis not in scenario.axes:
            axes = ", ".join(scenario.axes)
            raise ConfigError(f"namespace = {self.location.namespace}: must end with the name of an axis ({axes})")
        self.stage = AxisStage(scenario, axis, self.interposer.port)
        self.stage.connect()
        self._pacer = None if self.settings.lockstep else Pacer(scenario.dt, 0, self.clock)
        self._patience = round(scenario.port.longest_wait * 1e9) + LATER_NS
        self._last_command = 0
        self._stops_alone = False
        self._trip_sent = False

    def work(self, limit: int = 1_000_000) -> bool:
        busy = False
        while limit > 0 and not self._stops_alone:
            command = self.topics.receive("command", self.topics.codec.unpack_command)
            if command is None:
                break
            self._last_command = self.answered_at = self._now()
            measured = self.stage.follow(command[0])
            if measured is not None:
                self._answer(measured, command[1])
            limit -= 1
            busy = True
        if not busy:
            busy = self._stop_alone() if self._led_no_more() else False
        if not busy:
            self._finish()
        return busy

    def _answer(self, measured: Measurement, stamp: int) -> None:
        if self.stage.trip and not self._trip_sent:  # the Measurement does not contain the reason
            self._trip_sent = True
            self.go_safe(self.stage.trip)
        self._stamp = stamp
        self.topics.senders["measurement"](self.topics.codec.pack_measurement(measured, stamp))
        if (true := self.stage.port.truth()) is not None:
            self.deferred.put("true_state", self.topics.codec.pack_measurement, lambda: true, stamp)
        if measured.flags & FLAG_TRIPPED or measured.sample >= self.scenario.samples:
            self.deferred.send()

    def _led_no_more(self) -> bool:
        if self._stops_alone or self.stage is None or self.stage.sample < 0:
            return self._stops_alone and not self.stage.at_rest
        if self.stage.at_rest:
            return False
        reason = self._why_alone(self._now() - self._last_command)
        if not reason:
            return False
        self._stops_alone = True
        self.stage.stop(reason)
        self.phase.blame(ExitCode.TRIPPED, f"sample {self.stage.sample}: {reason}")
        self.trip(reason)
        if self._pacer:
            self._pacer.start()
        return not self.stage.at_rest

    def _why_alone(self, waited: int) -> str:
        number = self.stage.sample + 1
        if self.stage.out_of_sequence:
            return str(self.stage.trip)
        if self.phase.ended:
            return "" if self.phase.test.state == State.FINISHED else "the test ended while this axis was moving"
        if self.shutdown.leader_lost:
            return f"no Command {number}, because the actuator node has left"
        if self.shutdown.interrupted and waited > ALONE_NS:
            return f"no Command {number} for {waited * 1e-9:.2g} s after an interrupt"
        if not self.phase.active and waited > ALONE_NS:
            return f"no Command {number} for {waited * 1e-9:.2g} s after deactivation"
        if self._pacer and waited > self._patience:
            return f"no Command {number} for {waited * 1e-9:.2g} s"
        return ""

    def _stop_alone(self) -> bool:
        if self._pacer:
            self._pacer()
        self._answer(self.stage.stop_alone(), self._stamp + round(self.scenario.dt * 1e9))
        return True

    @property
    def under_way(self) -> bool:
        return super().under_way or (self.stage is not None and not self.phase.ended and not self.stage.at_rest)

    @property
    def participates(self) -> bool:
        return self.phase.active or (
            self.stage is not None and self.stage.sample >= 0 and not self.shutdown.reported
        )

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        if self.under_way:
            self.stop(f"the {self.identity} node was deactivated")
        return super().on_deactivate(state)

    def stop(self, reason: str) -> None:
        if self.stage is not None:
            self._trip_sent = True
            self.stage.stop(reason)
        super().go_safe(reason)

    def go_safe(self, reason: str) -> None:
        if self.stage is not None:
            with suppress(Exception):  # the connection to the axis may have failed
                self.stage.port.safe()
        super().go_safe(reason)

    def _finish(self) -> None:
        phase, shutdown = self.phase, self.shutdown
        if self._stops_alone and self.stage.at_rest and not phase.ended:
            if not shutdown.reported:
                shutdown.report()
            if shutdown.interrupted or shutdown.leader_lost:
                phase.to(Phase.GONE)
        if phase.ended and not shutdown.reported and self.stage.sample >= phase.test.sample:
            shutdown.report()
        shutdown.leave(self.handshake.receive_state)

    @property
    def last_sample(self) -> int:
        return int(self.stage.sample)

    def final_numbers(self) -> tuple[int, dict[str, float]]:
        return self.stage.sample, {}
