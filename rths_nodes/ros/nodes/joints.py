# SPDX-License-Identifier: Apache-2.0
"""The axes of a rig as joints, for tools of robots and for those that draw curves by name.

``joint_states`` has what is measured, ``joint_targets`` and ``joint_commands`` what is wanted and commanded. The
position of a joint is a displacement (m), its effort a force (N); target and command of an axis that is controlled
by force are efforts. A velocity (m/s) is the change since the message before, over the time between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from sensor_msgs.msg import JointState

from rths_nodes.core.wire.layout import stamp_of
from rths_nodes.ros.names import COMMANDS, STATES, TARGETS

RATE = 20.0
"""Messages per second of test."""
Values = Sequence[float]


class Joints:
    """Publishes the three topics by ``publish(topic, message)``, in the ``frame`` of a rig.

    ``axes`` says of each by its name whether it is controlled by force; samples are ``dt`` (s) apart.
    """

    def __init__(
        self, axes: Mapping[str, bool], dt: float, frame: str, publish: Callable[[str, JointState], None]
    ) -> None:
        self._names, self._loaded, self._dt, self._frame = list(axes), list(axes.values()), dt, frame
        self._publish = publish
        self._before: tuple[int, dict[str, Values]] | None = None

    def tell(
        self, sample: int, stamp: int, target: Values, command: Values, measured: Values, force: Values
    ) -> None:
        """Publish a sample, of the time ``stamp`` (ns); m and N by axis."""
        positions = {STATES: measured, TARGETS: self._moved(target), COMMANDS: self._moved(command)}
        efforts = {STATES: force, TARGETS: self._pushed(target), COMMANDS: self._pushed(command)}
        earlier, before = self._before or (sample, positions)
        time = (sample - earlier) * self._dt
        self._before = sample, positions
        for topic, position in positions.items():
            message = JointState(name=self._names, position=list(position), effort=list(efforts[topic]))
            pairs = zip(position, before[topic], strict=True)
            message.velocity = [(now - then) / time if time > 0.0 else 0.0 for now, then in pairs]
            message.header.frame_id = self._frame
            message.header.stamp.sec, message.header.stamp.nanosec = stamp_of(stamp)
            self._publish(topic, message)

    def _moved(self, values: Values) -> Values:
        return [math.nan if loaded else each for each, loaded in zip(values, self._loaded, strict=True)]

    def _pushed(self, values: Values) -> Values:
        if not any(self._loaded):
            return []
        return [each if loaded else math.nan for each, loaded in zip(values, self._loaded, strict=True)]
