# SPDX-License-Identifier: Apache-2.0
"""Topics ``live`` and ``live_curves``: curves of a test for onlookers, and their names."""

from __future__ import annotations

from array import array

from std_msgs.msg import Header

from rths_nodes.core.samples import Array
from rths_nodes.core.wire.layout import stamp_of
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.live import LiveColumns, curve_limits, curve_names, curve_units
from rths_nodes.msg import Live
from rths_nodes.msg import LiveCurves as CurvesMessage
from rths_nodes.ros.nodes.context import NodeContext

INTERVAL_NS = 100_000_000
"""Shortest period of messages; each wakes a processor per onlooker."""


class LiveCurves:
    """Publishes the ``columns`` of a test of ``scenario``, after their names."""

    def __init__(self, context: NodeContext, scenario: Scenario, columns: LiveColumns) -> None:
        self._topics, self._clock, self._columns = context.topics, context.clock, columns
        self._scenario, self._named, self._due = scenario, False, 0

    def tell_if_due(self) -> None:
        """Publish completed columns, at most ten times a second."""
        now = self._clock.monotonic_ns()
        if now >= self._due:
            self._due = now + INTERVAL_NS
            self.tell()

    def tell(self, rest: bool = False) -> None:
        """Publish completed columns, with ``rest`` all; first, once, their names (latched)."""
        if not self._named:
            self._named = True
            self._topics.outlets["live_curves"].publisher.publish(curves_of(self._scenario, self._header()))
        first, values = self._columns.take(rest)
        if len(values):
            told = message_of(self._header(), first, self._columns.samples_per_column, values)
            self._topics.outlets["live"].publisher.publish(told)

    def _header(self) -> Header:
        made = Header(frame_id=self._topics.run.frame_id)
        made.stamp.sec, made.stamp.nanosec = stamp_of(self._clock.time_ns())
        return made


def message_of(header: Header, first: int, per: int, values: Array) -> Live:
    """Message of ``values`` ``(columns, curves, 4)`` from the sample ``first`` on, ``per`` samples each."""
    told = Live(header=header, first=first, column=per)
    told.values = array("f", values.ravel())
    return told


def curves_of(scenario: Scenario, header: Header) -> CurvesMessage:
    """Return the message with names, units and limits of the curves."""
    told = CurvesMessage(header=header, servo_rate=scenario.servo_rate)
    axes = {name: axis.limits for name, axis in scenario.axes.items()}
    told.names = curve_names(list(axes))
    told.units = curve_units(axes)
    for curve, limit, bound in curve_limits(axes):
        told.limited.append(told.names.index(curve))
        told.limits = [*told.limits, limit]
        told.low.append(-bound)
        told.high.append(bound)
    return told
