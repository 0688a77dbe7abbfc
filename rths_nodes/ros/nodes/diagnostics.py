# SPDX-License-Identifier: Apache-2.0
"""Diagnostics of each node on ``/diagnostics``, once a second."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from rths_nodes.core.durations import Durations
from rths_nodes.core.wire.layout import stamp_of
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros.nodes.context import NodeContext

PERIOD_NS = 1_000_000_000


class Diagnostics:
    """Message of a node, once a second.

    ``facts`` are constant, ``counters()`` counts faults, ``clocks`` are timed durations, ``last_sample()`` is the
    last sample handled, ``numbers()`` returns internal quantities.
    """

    def __init__(
        self,
        context: NodeContext,
        facts: Mapping[str, str],
        last_sample: Callable[[], int],
        counters: Callable[[], Mapping[str, int]],
        clocks: Mapping[str, Durations],
        numbers: Callable[[], Mapping[str, float]],
    ) -> None:
        place, topics = context.place, context.topics
        self._phase, self._clock, self._lines = context.phase, context.clock, topics.lines
        self._last_sample, self._counters, self._clocks = last_sample, counters, clocks
        self._numbers = numbers
        self._publish = topics.outlets["diagnostics"].publisher.publish
        self._due = 0
        self._counted = dict(counters())
        self._seen = dict.fromkeys(clocks, 0)
        self._name, self._hardware = place.full_names([place.peer])[0].lstrip("/"), place.rig.strip("/")
        self._values = {"role": place.role, **facts}

    def tell_if_due(self) -> bool:
        """Publish if a second has elapsed, and return whether it has; in the slack only."""
        now = self._clock.monotonic_ns()
        if now < self._due:
            return False
        self._due = now + PERIOD_NS
        self.tell()
        return True

    def tell(self) -> None:
        """Publish (about 80 us)."""
        phase = self._phase
        self._put("state", phase.test.state.name)
        self._put("sample", self._last_sample())
        self._put("inputs", self._lines.way)
        grown = self._count(self._counters())
        for name, value in self._numbers().items():
            self._put(name, f"{value:.6g}")
        for name, durations in self._clocks.items():
            self._time(name, durations)
        if phase.exit_code not in (ExitCode.FINISHED, ExitCode.HELD) or phase.test.state == State.TRIPPED:
            level, message = DiagnosticStatus.ERROR, phase.problem or phase.test.reason or "failed"
        elif grown:
            level, message = DiagnosticStatus.WARN, ", ".join(grown)
        else:
            level, message = DiagnosticStatus.OK, phase.test.state.name.lower()
        values = [KeyValue(key=key, value=value) for key, value in self._values.items()]
        told = DiagnosticArray()
        told.header.stamp.sec, told.header.stamp.nanosec = stamp_of(self._clock.time_ns())
        told.status = [
            DiagnosticStatus(
                level=level, message=message, name=self._name, hardware_id=self._hardware, values=values
            )
        ]
        self._publish(told)

    def _count(self, counters: Mapping[str, int]) -> list[str]:
        grown = [f"{n} {name}" for name, count in counters.items() if (n := count - self._counted[name]) > 0]
        for name, count in counters.items():
            self._counted[name] = count
            self._put(name, count)
        return grown

    def _time(self, name: str, durations: Durations) -> None:
        recent = 1e6 * durations.since(self._seen[name])
        self._seen[name] = len(durations)
        middle = len(recent) // 2  # the first call of numpy.median imports a module: 30 ms
        median, largest = (np.partition(recent, middle)[middle], recent.max()) if middle else (np.nan, np.nan)
        self._put(f"{name}_median_us", f"{median:.1f}")
        self._put(f"{name}_max_us", f"{largest:.1f}")

    def _put(self, name: str, value: object) -> None:
        self._values[name] = str(value)
