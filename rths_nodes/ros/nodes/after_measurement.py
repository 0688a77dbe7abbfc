# SPDX-License-Identifier: Apache-2.0
"""Messages of the actuator node after its Measurements: true states, time and state of the test."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rths_nodes.core.wire import ENCAPSULATION, stamp_of
from rths_nodes.loop.supervision.states import ENDED, State
from rths_nodes.ros.names import CLOCK
from rths_nodes.ros.nodes.observers import KEPT, RigContext
from rths_nodes.ros.nodes.phase import StateOfTest
from rths_nodes.ros.transport.topics import DeferredSends

PERIOD_S = 0.01
"""Period of ``/clock``, s of test time."""
LOGGED = (State.ARMED, State.RUNNING, *ENDED)
_TIME = struct.Struct("<iI")


class AfterMeasurement:
    """Publishes TestState and, while the loop does not wait, the messages that belong to each Measurement.

    TestState contains the ``constants`` of the test. True states are queued in ``deferred``. If ``gathered`` is
    true, axis nodes send the true states later. In lockstep, the time of every ``clock_every``-th sample is
    published on ``/clock``; 0 disables this.
    """

    def __init__(
        self,
        context: RigContext,
        deferred: DeferredSends,
        constants: Mapping[str, object],
        gathered: bool = False,
        clock_every: int = 0,
        log: Callable[[str], object] = str,
    ) -> None:
        self._rig, self._topics, self._phase = context.rig, context.topics, context.phase
        self._port: Any = context.rig.port
        self._deferred, self._constants = deferred, dict(constants)
        self._gathered, self._clock_every, self._log = gathered, clock_every, log
        self.announced: State | None = None
        self.due: tuple[int, int] | None = None
        self._of_ticks: deque[tuple[int, int, int]] = deque(maxlen=KEPT)

    def announce(self) -> None:
        machine, sample = self._rig.machine, self._rig.sample
        self.announced = machine.state
        self._phase.follow(StateOfTest(machine.state, sample, machine.reason))
        if machine.state in LOGGED:  # states during motion are not logged, because logging takes time
            self._log(f"{machine.state.name.lower()} at sample {max(sample, 0)}")
        state = {"state": int(machine.state), "sample": sample, "reason": machine.reason}
        self._topics.publish("test_state", self._constants | state)

    def announce_change(self) -> None:
        if self._rig.machine.state != self.announced:
            self.announce()

    def measured(self, sample: int, stamp: int) -> None:
        self.due = sample, stamp
        if self._gathered:
            self._of_ticks.append((self._rig.ticks, sample, stamp))

    def send(self) -> None:
        if self.due is None:
            return
        sample, stamp = self.due
        self.due = None
        if self._gathered:
            self.pass_on()
        else:  # the true state of a real rig is unknown
            self._deferred.put("true_state", self._topics.codec.pack_measurement, self._rig.truth, stamp)
        if self._clock_every and sample % self._clock_every == 0:
            self._topics.senders[CLOCK.name](ENCAPSULATION + _TIME.pack(*stamp_of(stamp)))
        if self._rig.machine.state != self.announced:
            self.announce()

    def pass_on(self) -> bool:
        if not self._gathered:
            return True
        pack = self._topics.codec.pack_measurement
        while (true_state := self._port.true_state()) is not None:
            true = true_state[0]
            if self._of_ticks and self._of_ticks[0][0] == true.sample:  # other ticks have no sample
                _, sample, stamp = self._of_ticks.popleft()
                self._deferred.put("true_state", pack, partial(replace, true, sample=sample), stamp)
        return bool(self._port.true_state_complete)
