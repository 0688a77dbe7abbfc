"""The node of one axis, for a rig whose axes have a node each: a Command in, a Measurement out.

It lives in the namespace of its axis, below that of the rig (``rths/story_1``), and answers every Command of the
actuator node there, which leads all axes and owns the state of the test. When nobody leads it, it stops by itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_TRIPPED, Measurement
from rths_nodes.core.wire.codec import Codec
from rths_nodes.loop.pacing import Pacer
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.axis import AxisStage
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros import names
from rths_nodes.ros.names import AXIS, AXIS_TOPICS
from rths_nodes.ros.nodes.base import RthsNode

ALONE_NS = 200_000_000
"""An interrupted axis waits this long for the next Command: the actuator node would lead it to rest."""

LATER_NS = 1_000_000_000
"""In real time an axis waits so much longer for a Command than the actuator node, which shall stop all of them."""


class AxisNode(RthsNode):
    """Hosts one axis of the rig."""

    role = AXIS
    reads = ("port",)
    stage: Any = None  # until the node is configured

    @property
    def rig_namespace(self) -> str:
        """The namespace of the rig: that of this node without the axis."""
        return self.get_namespace().rpartition("/")[0]

    @property
    def axis(self) -> str:
        """The axis of this node: the last part of its namespace."""
        return self.get_namespace().rpartition("/")[2]

    @property
    def identity(self) -> str:
        return names.axis_node(self.axis)

    @property
    def sections(self) -> tuple[str, ...]:  # type: ignore[override]
        return (f"axes.{self.axis}",)

    def rig_topic(self, name: str) -> str:
        return f"{self.rig_namespace}/{name}"

    def _check_scenario(self, loaded: Scenario) -> None:
        if self.axis not in loaded.axes:
            known = ", ".join(loaded.axes)
            raise ConfigError(f"namespace = {self.get_namespace()}: must end with the name of an axis: {known}")

    def build(self, assembly: Assembly) -> None:
        scenario = assembly.scenario
        self.stage = AxisStage.of(scenario, self.axis)
        self.stage.connect()
        self._pacer = None if self.lockstep else Pacer(scenario.dt, 0)
        self._patience = round(scenario.port.longest_wait * 1e9) + LATER_NS
        self._last_command = 0
        self._coasting = False
        self._trip_told = False

    def _make_codec(self) -> None:
        self.codec = Codec(0, 1, 0)

    def _open_endpoints(self) -> None:
        super()._open_endpoints()
        for topic in names.published_by(self.role, AXIS_TOPICS):
            self._publish_on(topic.name, topic, topic.name, self.full_names([names.ACTUATOR]))
        for topic in names.heard_by(self.role, AXIS_TOPICS):
            self._listen_to(topic.name, topic, topic.name, self.full_names([names.ACTUATOR]))

    def work(self, limit: int = 1_000_000) -> bool:
        busy = False
        while limit > 0 and not self._coasting:
            found = self.receive("command", self.codec.unpack_command)
            if found is None:
                break
            self._last_command = self._answered_at = time.monotonic_ns()
            measured = self.stage.follow(found[0])
            if measured is not None:
                self._answer(measured, found[1])
            limit -= 1
            busy = True
        if not busy:
            busy = self._coast() if self._led_no_more() else False
        if not busy:
            self._finish()
        return busy

    def _answer(self, measured: Measurement, stamp: int) -> None:
        if self.stage.trip and not self._trip_told:  # before the Measurement, which tells only that it has tripped
            self._trip_told = True
            self.go_safe(self.stage.trip)
        self._stamp = stamp
        self.send("measurement", self.codec.pack_measurement(measured, stamp))
        true = self.stage.port.truth()
        self.publish_for_record("true_state", self.codec.pack_measurement, lambda: (true, stamp))
        if measured.flags & FLAG_TRIPPED or measured.sample == self.scenario.samples:
            self.publish_burst()

    # -- alone --------------------------------------------------------------------------------------------

    def _led_no_more(self) -> bool:
        """True when the axis has to come to rest by itself, and is not there yet."""
        if self._coasting or self.stage is None or self.stage.sample < 0:
            return self._coasting and not self.stage.at_rest
        if self.stage.at_rest:
            return False
        reason = self._why_alone(time.monotonic_ns() - self._last_command)
        if not reason:
            return False
        self._coasting = True
        self.stage.stop(reason)
        self.problem, self.exit_code = f"sample {self.stage.sample}: {reason}", 3
        self.tell("trip", {"source": self.identity, "reason": reason})
        if self._pacer:
            self._pacer.start()
        return not self.stage.at_rest

    def _why_alone(self, waited: int) -> str:
        number = self.stage.sample + 1
        if self.stage.out_of_sequence:
            return str(self.stage.trip)
        if self.ended:
            return "" if self.test["state"] == State.FINISHED else "the test has ended while this axis moved"
        if self.left_alone:
            return f"no Command {number}, and the actuator node has left"
        if self.interrupted and waited > ALONE_NS:
            return f"interrupted, and no Command {number} for {waited * 1e-9:.2g} s"
        if not self.active and waited > ALONE_NS:
            return f"deactivated, and no Command {number} for {waited * 1e-9:.2g} s"
        if self._pacer and waited > self._patience:
            return f"no Command {number} for {waited * 1e-9:.2g} s"
        return ""

    def _coast(self) -> bool:
        """One sample of the own safe stop; nobody has asked for its Measurement, it is told all the same."""
        if self._pacer:
            self._pacer()
        self._answer(self.stage.stop_alone(), self._stamp + round(self.scenario.dt * 1e9))
        return True

    @property
    def under_way(self) -> bool:
        return super().under_way or (self.stage is not None and not self.ended and not self.stage.at_rest)

    @property
    def participates(self) -> bool:
        """A deactivated axis still brings its actuator to rest, and says so."""
        return self.active or (self.stage is not None and self.stage.sample >= 0 and not self.spoken)

    def on_deactivate(self, state: Any) -> Any:
        """The axis stops, and with it the rig."""
        if self.under_way:
            self.stop(f"the {self.identity} node was deactivated")
        return super().on_deactivate(state)

    def stop(self, reason: str) -> None:
        """At once; the actuator node hears of it, and stops the others."""
        if self.stage is not None:
            self._trip_told = True
            self.stage.stop(reason)
        super().go_safe(reason)

    def go_safe(self, reason: str) -> None:
        """The axis itself: no topic is needed."""
        if self.stage is not None:
            self.stage.port.safe()
        super().go_safe(reason)

    # -- after the test -----------------------------------------------------------------------------------

    def _finish(self) -> None:
        if self._coasting and self.stage.at_rest and not self.ended:
            if not self.spoken:
                self.last_words()
            self.done = self.interrupted or self.left_alone
        if self.ended and not self.spoken and self.stage.sample >= self.test["sample"]:
            self.last_words()
        self.leave()

    @property
    def last_sample(self) -> int:
        return int(self.stage.sample)

    def final_numbers(self) -> tuple[int, dict[str, float]]:
        return self.stage.sample, {}

    def _stream_counts(self) -> dict[str, int]:
        """By their names below the rig: the streams of the rig are the actuator node's."""
        return {f"{self.axis}/{name}": count for name, count in super()._stream_counts().items()}

    def state_names(self) -> Sequence[str]:
        return ()
