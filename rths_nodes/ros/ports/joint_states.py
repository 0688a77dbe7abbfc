# SPDX-License-Identifier: Apache-2.0
"""Samples of the axes from messages of a joint_state_broadcaster, and their numbers."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from rths_nodes.core.durations import SECOND, Durations
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array

if TYPE_CHECKING:
    from sensor_msgs.msg import JointState

TOLERANCE = 0.05
"""Relative deviation between the rates of joint states and servo samples."""
TIMED = 100_000
"""Samples whose times are stored."""
FOLLOWED = 16
"""Filter constant: expected stamps follow 1/FOLLOWED of each deviation."""


class Unfit(Exception):
    """A joint state without the required data, and the reason."""


@dataclass(frozen=True, eq=False)
class JointSample:
    """One joint state of all axes: ``stamp`` s, displacement and force ``(n_axes,)`` in units of the joints.

    ``echo`` is the number of the newest acting command; None without a counter. ``number`` counts samples.
    """

    stamp: float
    displacement: Array
    force: Array
    echo: int | None = None
    number: int = -1
    slipped: int = 0
    """Samples skipped before it: lost, or not used in time."""


class JointReader:
    """Reads the ``joints`` of the axes, and the ``counter``, from messages by name."""

    def __init__(self, joints: Sequence[str], counter: str = "") -> None:
        self._joints, self._counter = tuple(joints), counter
        self._names: list[str] = []
        self._places: list[int] = []

    def read(self, message: JointState) -> JointSample:
        """Return the sample of a sensor_msgs/JointState. Raises Unfit for a missing joint or value."""
        names = list(message.name)
        if names != self._names:
            self._find(names)
        position, effort = message.position, message.effort
        for noun, values in (("position", position), ("effort", effort)):
            if len(values) != len(names):
                raise Unfit(
                    f"{len(values)} values of {noun} for {len(names)} joints: has the hardware a state interface "
                    f"{noun!r}, and does the joint_state_broadcaster publish it?"
                )
        places = self._places[: len(self._joints)]
        displacement = np.array([position[index] for index in places])
        force = np.array([effort[index] for index in places])
        if not (math.isfinite(displacement.sum()) and math.isfinite(force.sum())):
            self._refuse_numbers(displacement, force)
        echo = position[self._places[-1]] if self._counter else 0.0
        if not math.isfinite(echo):
            raise Unfit(f"joint {self._counter!r} (port.counter): position = {echo:g}: must be the counter")
        stamp = message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec
        return JointSample(stamp, displacement, force, round(echo) if self._counter else None)

    def _find(self, names: list[str]) -> None:
        wanted = [*self._joints, *([self._counter] if self._counter else [])]
        if missing := [joint for joint in wanted if joint not in names]:
            raise Unfit(f"joint {', '.join(map(repr, missing))}: missing; there are: {', '.join(names) or 'none'}")
        if twice := [joint for joint in wanted if names.count(joint) > 1]:
            raise Unfit(f"joint {', '.join(map(repr, twice))}: is there more than once")
        self._names, self._places = names, [names.index(joint) for joint in wanted]

    def _refuse_numbers(self, displacement: Array, force: Array) -> None:
        for noun, values in (("position", displacement), ("effort", force)):
            for joint, value in zip(self._joints, values.tolist(), strict=True):
                if not math.isfinite(value):
                    raise Unfit(
                        f"joint {joint!r}: {noun} = {value:g}: a state interface without a value publishes nan"
                    )


def states_per_sample(stamps: Sequence[float], dt: float) -> int:
    """Return joint states per servo period ``dt`` (s), from ``stamps`` (s). Raises ConfigError if not whole."""
    interval = statistics.median([after - before for before, after in pairwise(stamps)])
    if interval <= 0.0:
        raise ConfigError("the stamps of the joint states stand still: they must be the times of the states")
    count = max(round(dt / interval), 1)
    if abs(count * interval / dt - 1.0) > TOLERANCE:
        raise ConfigError(
            f"joint states come at {1.0 / interval:.4g} Hz (update_rate of the controller manager): must be "
            f"servo_rate = {1.0 / dt:g} Hz, or a whole multiple of it"
        )
    return count


class SampleCount:
    """Numbers joint states, which carry no counter, by their stamps; the first is 0.

    ``period`` s between states, ``per_sample`` states per sample. Deviations of up to four tenths of a period are
    tolerated; drift of the clock is followed.
    """

    def __init__(self, period: float, per_sample: int) -> None:
        self._period, self._per_sample = period, per_sample
        self._last: int | None = None
        self._expected = 0.0
        """Expected stamp of the state ``_last``, s."""
        self.repeated = 0
        """States with a stamp that was received before."""

    def number(self, stamp: float) -> tuple[bool, int | None]:
        """Return whether the state is new, and its sample; None between two samples."""
        if self._last is None:
            self._last, self._expected = 0, stamp
            return True, 0
        ahead = round((stamp - self._expected) / self._period)
        if ahead < 1:
            self.repeated += 1
            return False, None
        self._last += ahead
        due = self._expected + ahead * self._period
        self._expected = due + (stamp - due) / FOLLOWED
        sample, rest = divmod(self._last, self._per_sample)
        return True, None if rest else sample


class SampleStream:
    """Joint states of a test as samples, of which only the newest is used.

    Answering old samples would cause a burst of commands, and the controller, which has no queue, would jump.
    Skipped samples are counted: the test slips by them. ``heard_at`` is the time of the last new state, ns;
    ``ages`` are the ages of samples on arrival.
    """

    def __init__(self, reader: JointReader, period: float, per_sample: int) -> None:
        self._reader = reader
        self._count = SampleCount(period, per_sample)
        self._newest: JointSample | None = None
        self._used = -1
        self.slipped = 0
        self.heard_at = time.monotonic_ns()
        self.ages = Durations(TIMED)

    @property
    def repeated(self) -> int:
        return self._count.repeated

    def take(self, messages: Sequence[object]) -> None:
        """Take in ``messages``. Raises Unfit."""
        for message in messages:
            sample = self._reader.read(message)
            new, number = self._count.number(sample.stamp)
            if new:
                self.heard_at = time.monotonic_ns()
            if number is not None:
                self.ages.add(time.time_ns() - round(sample.stamp * SECOND))
                self._newest = replace(sample, number=number)

    @property
    def waiting(self) -> bool:
        return self._newest is not None

    def use(self) -> JointSample | None:
        """Return the newest sample, or None if it was used already."""
        sample, self._newest = self._newest, None
        if sample is None:
            return None
        slipped, self._used = sample.number - self._used - 1, sample.number
        self.slipped += slipped
        return replace(sample, slipped=slipped)
