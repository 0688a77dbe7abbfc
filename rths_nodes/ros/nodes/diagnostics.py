"""What every node tells on ``/diagnostics`` once a second: how it is, and the numbers of the last second."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from rths_nodes.core.durations import Durations
from rths_nodes.core.wire.layout import stamp_of
from rths_nodes.loop.supervision.states import State

PERIOD_NS = 1_000_000_000


class Diagnostics:
    """The message of ``node``: made once, as far as possible, and filled again for every second.

    ``facts`` do not change, ``counters`` count what should not happen, ``clocks`` are what the node times.
    """

    def __init__(self, node: Any, publisher: Any, hardware: str, facts: Mapping[str, str]) -> None:
        self._node, self._publisher = node, publisher
        self._due = 0
        self._counted: dict[str, int] = dict(node.counters())
        self._seen = dict.fromkeys(node.clocks(), 0)
        self._values = {name: KeyValue(key=name, value=value) for name, value in facts.items()}
        timed = [f"{name}_{which}_us" for name in self._seen for which in ("median", "max")]
        for name in ("state", "sample", *self._counted, *timed):
            self._values[name] = KeyValue(key=name)
        self._status = DiagnosticStatus(
            name=node.get_fully_qualified_name().lstrip("/"),
            hardware_id=hardware,
            values=list(self._values.values()),
        )
        self._message = DiagnosticArray(status=[self._status])

    def tell_if_due(self) -> bool:
        """Publish when a second is over; whether it was."""
        now = time.monotonic_ns()
        if now < self._due:
            return False
        self._due = now + PERIOD_NS
        self.tell()
        return True

    def tell(self) -> None:
        """Publish (about 50 us)."""
        node, status = self._node, self._status
        self._put("state", node.state_of_test.name)
        self._put("sample", node.last_sample)
        grown = self._count(node.counters())
        for name, durations in node.clocks().items():
            self._time(name, durations)
        if node.exit_code or node.state_of_test == State.TRIPPED:
            status.level, status.message = DiagnosticStatus.ERROR, node.problem or node.reason or "failed"
        elif grown:
            status.level, status.message = DiagnosticStatus.WARN, ", ".join(grown)
        else:
            status.level, status.message = DiagnosticStatus.OK, node.state_of_test.name.lower()
        stamp = self._message.header.stamp
        stamp.sec, stamp.nanosec = stamp_of(time.time_ns())
        self._publisher.publish(self._message)

    def _count(self, counters: Mapping[str, int]) -> list[str]:
        """What has grown since the last message, in words."""
        grown = [f"{n} {name}" for name, count in counters.items() if (n := count - self._counted[name]) > 0]
        for name, count in counters.items():
            self._counted[name] = count
            self._put(name, count)
        return grown

    def _time(self, name: str, durations: Durations) -> None:
        recent = 1e6 * durations.since(self._seen[name])
        self._seen[name] = len(durations)
        middle = len(recent) // 2  # numpy's median imports a part of numpy when it is first called: 30 ms
        median, largest = (np.partition(recent, middle)[middle], recent.max()) if middle else (np.nan, np.nan)
        self._put(f"{name}_median_us", f"{median:.1f}")
        self._put(f"{name}_max_us", f"{largest:.1f}")

    def _put(self, name: str, value: Any) -> None:
        self._values[name].value = str(value)
