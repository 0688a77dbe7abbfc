# SPDX-License-Identifier: Apache-2.0
"""The loop of a watcher: see, hear, judge, and only then pulse; whatever hangs in it ends the pulse."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol

from rths_nodes.app.watching.hearing import Hearing
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.watch.pulse import Pulses
from rths_nodes.loop.watch.watcher import Sample, Watch

TURNS = 2
"""Turns of the loop in the time between two pulses."""


class Sensors(Protocol):
    """Samples of the watcher's own sensors."""

    def fileno(self) -> int: ...

    def received(self) -> Iterable[tuple[int, tuple[float, ...], tuple[float, ...]]]: ...


class WatchLoop:
    """Watches the ``rig`` by ``sensors`` and what was ``heard``, and pulses as long as all agrees.

    ``tell`` gets an event, and words on it. Raises ConfigError for an address of the interlock that is not known.
    """

    def __init__(
        self,
        rig: RigFile,
        sensors: Sensors,
        heard: deque[tuple[float, str, Any]],
        tell: Callable[[str, str], None],
    ) -> None:
        assert rig.watch is not None
        assert rig.servo_rate is not None
        self.watch = Watch(rig.watch, rig.servo_rate)
        self._hearing = Hearing(rig, self.watch)
        self._sensors, self._heard, self._tell = sensors, heard, tell
        pulse = rig.watch.pulse
        self._period = pulse.period
        self.pulses = Pulses(pulse.period)
        try:
            self._far = socket.gethostbyname(pulse.address), pulse.port
        except OSError as error:
            raise ConfigError(f"watch.pulse.address = {pulse.address!r}: not known ({error.strerror})") from error
        self._out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._out.setblocking(False)
        self._due = 0.0

    def run(self, ended: Callable[[], bool]) -> str:
        """Watch until all does not agree any more, which is returned in words; empty where it was ``ended``."""
        try:
            while not ended():
                self._wait()
                self._see()
                self._hear()
                if reason := self.watch.judge(time.monotonic()):
                    return reason
                self._pulse()
        finally:
            self._out.close()
        return ""

    def _wait(self) -> None:
        select.select([self._sensors], [], [], self._period / TURNS)

    def _see(self) -> None:
        for counter, displacement, force in self._sensors.received():
            self.watch.sense(Sample(time.monotonic(), counter, displacement, force))

    def _hear(self) -> None:
        heard = self._heard
        while heard:
            at, topic, message = heard.popleft()
            if topic == "rig_state":
                self._hearing.rig(at, message)
            elif self._hearing.state(message):
                known = {int(each): each.name for each in State}
                self._tell("told", f"{known.get(message.state, message.state)}: {message.reason}".rstrip(": "))

    def _pulse(self) -> None:
        now = time.monotonic()
        if not self.watch.ready or now < self._due:
            return
        data = self.pulses.next()
        with suppress(OSError):  # as if it were lost on the way: the interlock opens where none comes
            self._out.sendto(data, self._far)
        self._due = max(self._due + self._period, now)
        if self.pulses.count == 1:
            self._tell("begins", "all agrees: the pulse begins")
