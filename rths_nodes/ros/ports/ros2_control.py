# SPDX-License-Identifier: Apache-2.0
"""Rig driven by ros2_control: commands to a forward_command_controller, states of a joint_state_broadcaster.

The rig generates the ticks. Each joint state, or every n-th joint state, is a sample. Its stamp determines the
number of the sample. A command takes effect with the next update of the controller manager. The controller neither
counts nor bridges commands and keeps the last command forever. Therefore only slow time is allowed, unless the
hardware has a watchdog and a counter of commands. Conventions and limits: doc/ros2_control.md.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rths_nodes.core.durations import SECOND, Durations, median_count
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import TestContext, flag, integer, number, params, text, texts
from rths_nodes.core.protocols import OfPort, Readback, Rig
from rths_nodes.core.samples import EMPTY, FLAG_BRIDGED, FLAG_SLIPPED, Array, Command, Measurement
from rths_nodes.laboratory.ports.common import longest_wait_parameter
from rths_nodes.ros import environment

if TYPE_CHECKING:
    from sensor_msgs.msg import JointState


TOLERANCE = 0.01
"""Allowed relative difference between the rate of joint states and a multiple of the servo rate."""
TIMED = 100_000
FOLLOWED = 16
"""Filter constant: the expected stamp changes by 1/FOLLOWED of each deviation."""


class Unfit(Exception):
    """Error for a joint state that lacks required data."""


@dataclass(frozen=True, eq=False)
class JointSample:
    """Joint state of all axes. ``number`` is its sample number.

    ``stamp`` is in s. Displacement and force ``(n_axes,)`` are in the units of the joints. ``echo`` is the number
    of the newest command received by the hardware, or None without a counter.
    """

    stamp: float
    displacement: Array
    force: Array
    echo: int | None = None
    number: int = -1
    slipped: int = 0
    """Number of lost or unused samples directly before this sample."""


@lru_cache(maxsize=8)  # all messages of a broadcaster have the same names
def _indices(names: tuple[str, ...], wanted: tuple[str, ...]) -> Mapping[str, int]:
    indices = {name: index for index, name in enumerate(names)}
    if missing := [joint for joint in wanted if joint not in indices]:
        raise Unfit(f"joint {', '.join(map(repr, missing))}: missing; known: {', '.join(names) or 'none'}")
    if twice := [joint for joint in wanted if names.count(joint) > 1]:
        raise Unfit(f"joint {', '.join(map(repr, twice))}: occurs more than once")
    return indices


def joint_sample(joints: Sequence[str], counter: str, message: JointState) -> JointSample:
    """Return the sample of a sensor_msgs/JointState. Raises Unfit for a missing joint or value.

    The joint ``counter``, if not empty, reports the number of a command as its position.
    """
    names = tuple(message.name)
    indices = _indices(names, (*joints, counter) if counter else tuple(joints))

    def values(noun: str) -> Array:
        column: Sequence[float] = getattr(message, noun)
        if len(column) != len(names):
            raise Unfit(
                f"{len(column)} values of {noun} for {len(names)} joints: the hardware needs a state "
                f"interface {noun!r} for each joint, and the joint_state_broadcaster must publish it"
            )
        chosen = [column[indices[joint]] for joint in joints]
        for joint, value in zip(joints, chosen, strict=True):
            if not math.isfinite(value):
                raise Unfit(
                    f"joint {joint!r}: {noun} = {value:g}: must be finite (a state interface without a value "
                    "publishes nan)"
                )
        return np.array(chosen)

    displacement, force = values("position"), values("effort")
    echo = message.position[indices[counter]] if counter else 0.0
    if not math.isfinite(echo):
        raise Unfit(f"joint {counter!r} (port.counter): position = {echo:g}: must be finite")
    stamp = message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec
    return JointSample(stamp, displacement, force, round(echo) if counter else None)


def states_per_sample(stamps: Sequence[float], dt: float) -> int:
    """Return the number of ``stamps`` (s) per period ``dt`` (s). Raises ConfigError if it is not an integer."""
    interval = statistics.median([after - before for before, after in pairwise(stamps)])
    if interval <= 0.0:
        raise ConfigError("the stamps of the joint states do not increase, but must be the times of the states")
    count = max(round(dt / interval), 1)
    rates = np.linspace(0.9, 1.1, 801) * count / dt
    if rates[0] <= 1.0 / interval <= rates[-1]:  # the stamps have the same phase at their rate, despite jitter
        phases = np.exp(2j * np.pi * np.outer(rates, np.array(stamps) - stamps[0]))
        interval = 1.0 / float(rates[np.argmax(np.abs(phases.sum(axis=1)))])
    if abs(count * interval / dt - 1.0) > TOLERANCE:
        raise ConfigError(
            f"joint states arrive at {1.0 / interval:.4g} Hz (update_rate of the controller manager), but "
            f"must arrive at servo_rate = {1.0 / dt:g} Hz or an integer multiple of servo_rate"
        )
    return count


class SampleStream:
    """Converts joint states of a test to samples with ``read``. Only the newest sample is used.

    Answering old samples too would send commands in a burst. The rig would jump, as the controller has no queue.
    Stamps determine the sample numbers, which begin at 0. A sample has ``per_sample`` states, ``period`` s apart.
    Deviations of up to 0.4 periods and clock drift are tolerated. ``slipped`` counts lost or unused samples.
    ``heard_at`` is the arrival time of the last new state, ns. ``ages`` holds the age of each sample on arrival.
    """

    def __init__(self, read: Callable[[JointState], JointSample], period: float, per_sample: int) -> None:
        self._read, self._period, self._per_sample = read, period, per_sample
        self._last: int | None = None
        self._expected = 0.0
        self._newest: JointSample | None = None
        self._used = -1
        self.slipped = self.repeated = 0
        self.heard_at = time.monotonic_ns()
        self.ages = Durations(TIMED)

    def number(self, stamp: float) -> tuple[bool, int | None]:
        """Return whether the state is new, and the number of its sample (None for a state between samples)."""
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

    def take(self, messages: Sequence[JointState]) -> None:
        for message in messages:
            sample = self._read(message)
            new, number = self.number(sample.stamp)
            if new:
                self.heard_at = time.monotonic_ns()
            if number is not None:
                self.ages.add(time.time_ns() - round(sample.stamp * SECOND))
                self._newest = replace(sample, number=number)

    @property
    def waiting(self) -> bool:
        return self._newest is not None

    def use(self) -> JointSample | None:
        sample, self._newest = self._newest, None
        if sample is None:
            return None
        slipped, self._used = sample.number - self._used - 1, sample.number
        self.slipped += slipped
        return replace(sample, slipped=slipped)


PROBES, PROBING_S = 128, 3.0
"""Limits for measuring the rate of joint states. ``PROBES``: number of states. ``PROBING_S``: time, s."""
LOOK_S, LOOK_EVERY_S = 0.01, 0.1
"""``LOOK_S``: timeout for a joint state, s. ``LOOK_EVERY_S``: period of the search for other publishers, s."""


class Ros2ControlPort(OfPort, Readback):
    """Port of a rig driven by ros2_control."""

    @params
    class Params:
        one_node: ClassVar[bool] = True
        controller: str = text(
            "name of the forward_command_controller, with its namespace if any; commands are sent to "
            "/CONTROLLER/commands",
            "forward_position_controller",
        )
        states: str = text("topic of the joint_state_broadcaster", "/joint_states")
        joints: tuple[str, ...] = texts(
            "joint of each axis, in the order of the axes of the rig; default: the names of the axes"
        )
        joint_type: str = text(
            "type of all joints. Prismatic joints use m and N. Revolute joints use rad and N m; the scales of a "
            "rig file convert these to m and N",
            "prismatic",
            ("prismatic", "revolute"),
        )
        stand_in: bool = flag(
            "true if the controller moves no hardware; the parameter rths_stand_in of the controller must then be "
            "true",
            False,
        )
        transport_samples: int = integer(
            "number of samples after which a joint state shows the effect of a command; 1 if the command arrives "
            "before the next update of the controller manager",
            "",
            1,
            at_least=1,
            at_most=100,
        )
        counter: str = text(
            "joint that counts commands. Its position command is the number of the command; its position state is "
            "the number of the newest command that the hardware has received. An empty string means no counter",
            "",
        )
        watchdog: float | None = number(
            "time without a new number on the counter after which the hardware decelerates and holds by itself; "
            "default: no watchdog, so that the hardware keeps the last command forever",
            "s",
            None,
            more_than=0.0,
            at_most=1.0,
        )
        start_tolerance: float = number(
            "largest distance of the first command from the position of the joint",
            "m",
            1e-4,
            more_than=0.0,
            at_most=0.1,
        )
        silence: float = number(
            "time without a new joint state after which the interlock opens",
            "s",
            0.2,
            at_least=0.005,
            at_most=10.0,
        )
        connect_within: float = number("timeout for connecting to the controllers", "s", 5.0, more_than=0.0)
        longest_wait: float = longest_wait_parameter()

        def validate(self, path: str) -> None:
            if bool(self.counter) != (self.watchdog is not None):
                present, other = ("counter", "watchdog") if self.counter else ("watchdog", "counter")
                raise ConfigError(
                    f"{path}.{present}: also needs {other}, because the hardware watchdog checks the counter"
                )
            for joint in (every := [*self.joints, *([self.counter] if self.counter else [])]):
                if every.count(joint) > 1:
                    raise ConfigError(
                        f"{path}.joints: {joint!r} occurs more than once, but all joints must differ"
                    )

        def fits(self, test: TestContext) -> None:
            if self.watchdog is None and test.samples_per_step <= test.substeps:
                raise ConfigError(
                    "watchdog: must be set with time_ratio = 1, because the controller keeps the last command "
                    "forever if this computer stops. Use slow time (time_ratio > 1), or a hardware watchdog with "
                    "a counter"
                )
            if self.joints and len(self.joints) != len(test.axes):
                raise ConfigError(f"joints: has length {len(self.joints)}, but must have length {len(test.axes)}")
            if self.silence < 3.0 * test.dt:
                raise ConfigError(f"silence = {self.silence:g} s: must be >= {3.0 * test.dt:g} s (3 samples)")

        @property
        def has_heartbeat(self) -> bool:
            return self.watchdog is not None

        def cautions(self, test: TestContext) -> list[str]:
            if self.watchdog is not None:
                return []
            return [
                "the controller has no watchdog. If this computer stops, the rig stops abruptly at its last "
                "command and is held there"
            ]

    external = True
    follows_rig = True
    partial_stop = ""
    auxiliary_names: tuple[str, ...] = ()
    auxiliary_inputs: tuple[str, ...] = ()

    def __init__(
        self, params: Params, axes: Mapping[str, Any], dt: float, seed: int, rig: Rig | None = None
    ) -> None:
        if rig is not None:
            raise ConfigError("port.type = 'ros2_control': has no simulated rig. Omit the section rig")
        self._params, self._dt = params, dt
        rows = {name: axis.rig_axis for name, axis in axes.items()}
        self._axes = tuple(axes)
        self._joints = params.joints or tuple(row.name if row else name for name, row in rows.items())
        gains = [(row.displacement.gain, row.command.gain) if row else (1.0, 1.0) for row in rows.values()]
        self._to_command = np.array([shown / driven for shown, driven in gains])
        self._command_gain = np.array([driven for _, driven in gains])
        self.simulated = params.stand_in
        self.label = "port.type = 'ros2_control', port.stand_in = false"
        self.transport_samples = params.transport_samples
        self._controller = "/" + params.controller.strip("/")
        self.address = self._controller
        self._link: Any = None
        self._forget()

    def _forget(self) -> None:
        self.sample, self.interlock = 0, ""
        self._found = False
        self._stream: SampleStream | None = None
        self._state: JointSample | None = None
        self._position = np.full(len(self._axes), np.nan)
        """Last measured displacement, in the units of the joints. ``open`` sets the first value."""
        self._seen = False
        self._command: Array | None = None
        self._needed: Counter[int] = Counter()
        self._answers = Durations(TIMED)
        self._dropped = self._refused = False
        self._sent = 0
        self._taken_at = self._looked_at = time.monotonic_ns()

    def open(self, pacer: Callable[[], int] | None = None) -> None:
        """Find and check controller and broadcaster without sending a command.

        Raises ConfigError if a check fails, or if ``pacer`` is None.
        """
        if pacer is None:
            raise ConfigError(
                "port 'ros2_control': needs ROS 2 and real time, because the controller manager has its own "
                "clock. Use the composed or processes host with pace realtime, not the embedded host"
            )
        self._pacer = pacer
        self._forget()
        params = self._params
        environment.check()
        try:
            from rths_nodes.ros.ports.controller_link import ControllerLink
        except ImportError as error:
            raise ConfigError(f"port 'ros2_control': ROS 2 is missing or incomplete ({error})") from error
        counter = (params.counter,) if params.counter else ()
        self._read = partial(joint_sample, self._joints, params.counter)
        try:
            self._link = ControllerLink(params, self._controller, (*self._joints, *counter))
            self._period, self._per_sample = self._rate()
        except ConfigError as error:
            self.close()
            raise error.within(f"port 'ros2_control' at {self.address}") from None
        except BaseException:
            self.close()
            raise

    def _rate(self) -> tuple[float, int]:
        samples: list[JointSample] = []
        end = time.monotonic() + PROBING_S
        while len(samples) < PROBES and (time.monotonic() < end or len(samples) < 3):
            if time.monotonic() > end + self._params.connect_within:
                raise ConfigError(
                    f"{self._params.states}: received {len(samples)} joint states, but needs at least three"
                )
            self._link.wait(LOOK_S)
            for message in self._link.received():
                try:
                    samples.append(self._read(message))
                except Unfit as unfit:
                    raise ConfigError(f"{self._params.states}: {unfit}") from unfit
        count = states_per_sample([sample.stamp for sample in samples], self._dt)
        self._position = samples[-1].displacement
        return self._dt / count, count

    def begin(self) -> None:
        if intruder := self._link.intruder():
            raise ConfigError(f"port 'ros2_control' at {self.address}: {intruder}")
        self._link.received()
        self.sample, self._found, self._seen = 0, False, False
        self._stream = SampleStream(self._read, self._period, self._per_sample)
        self._taken_at = time.monotonic_ns()

    def arm_watchdog(self) -> None:
        """Do nothing, because the first counter value arms a watchdog in the hardware."""

    def disarm_watchdog(self) -> None:
        """Do nothing. The counter stops when the test ends, and a watchdog then holds the rig."""

    def wait_tick(self) -> int:
        """Return the number of the next tick without waiting. The tick begins when a new joint state arrives."""
        self.sample += 1
        self._found = False
        return self.sample

    def write(self, command: Command) -> None:
        """Send the Command, or open the interlock if the first Command is too far from the position of the rig.

        If the interlock is open for another reason, Commands of the safe stop are still sent. No Command is sent
        if no joint state arrived before the first Command.
        """
        values = command.command.copy()
        if self._command is None:
            self._check_first(values)
        if self._refused or self._dropped:
            return
        self._link.send([*values.tolist(), *([float(command.sample)] if self._params.counter else [])])
        self._sent, self._command = command.sample, values
        self._answers.add(time.monotonic_ns() - self._taken_at)

    def _check_first(self, values: Array) -> None:
        if not self._seen:  # the interlock is open: no joint state since begin()
            self._refused = True
            return
        step = np.abs((values - self._position * self._to_command) * self._command_gain)
        for axis, distance in zip(self._axes, step.tolist(), strict=True):
            if not distance <= self._params.start_tolerance:
                self._refused = True
                self._stop(
                    f"axes.{axis}: the first command is {distance:.3g} m from the position of the joint, but must "
                    f"be <= {self._params.start_tolerance:g} m (port.start_tolerance). No command is sent"
                )

    def drop_heartbeat(self) -> None:
        """Stop sending commands if the hardware has a watchdog. The watchdog then stops the rig."""
        self._dropped = self._params.watchdog is not None

    @property
    def heartbeat(self) -> int | None:
        return self._sent if self._params.counter else None

    def ready(self) -> bool:
        """Return True if an unused joint state has arrived.

        If the interlock is open, also return True after one sample period, so that the safe stop can continue.
        """
        if self._found:
            return True
        assert self._stream is not None
        try:
            self._stream.take(self._link.received())
        except Unfit as unfit:
            self._stop(f"{self._params.states}: {unfit}")
        now, state = time.monotonic_ns(), self._stream.use()
        if state is None and not self.interlock:
            if now - self._stream.heard_at > self._params.silence * SECOND:
                silence = f"{self._params.silence:g} s"
                self._stop(f"port.silence: no new joint state on {self._params.states} for {silence}")
            return False
        if state is None and now - self._taken_at < self._dt * SECOND:
            return False
        self._state, self._found, self._taken_at = state, True, now
        if state is not None:
            self._position, self._seen = state.displacement, True
            self._judge_echo(state)
        self._pacer()
        if now - self._looked_at > LOOK_EVERY_S * SECOND:
            self._looked_at = now
            if intruder := self._link.intruder():
                self._stop(intruder)
        return True

    def _judge_echo(self, state: JointSample) -> None:
        if state.echo is None or self._params.watchdog is None:
            return
        received = state.echo if 0 < state.echo <= self.sample else 0  # other numbers are not from this test
        needed = max(self.sample - received, 1)
        if received:
            self._needed[needed] += 1
        if (needed - self.transport_samples) * self._dt > self._params.watchdog:
            self._stop(
                f"joint {self._params.counter!r} (port.counter): the position is still {state.echo} at sample "
                f"{self.sample}, so the watchdog of the hardware ({self._params.watchdog:g} s) has stopped the rig"
            )

    def _stop(self, reason: str) -> None:
        self.interlock = self.interlock or f"port 'ros2_control': {reason}"

    def wait(self, seconds: float) -> None:
        if not (self._found or (self._stream is not None and self._stream.waiting)):
            self._link.wait(seconds)

    def read(self) -> Measurement:
        while not self.ready():
            self.wait(LOOK_S)
        state, k = self._state, self.sample
        applied = self._position * self._to_command if self._command is None else self._command
        if state is None:
            unknown = np.full(len(self._axes), np.nan)
            return Measurement(k, unknown, unknown, applied, EMPTY, FLAG_BRIDGED)
        flags = FLAG_SLIPPED if state.slipped else 0
        return Measurement(k, state.displacement, state.force, applied, EMPTY, flags)

    def truth(self) -> None:
        """Return None, because the true state of a rig is unknown."""

    def numbers(self) -> dict[str, float]:
        """Return the transport delay (samples), counts of lost and repeated states, and answer times and ages (s).

        ``transport_median`` and ``transport_largest`` need a counter. Ages of states on arrival depend on the
        clocks of both machines.
        """
        counts: dict[str, float] = {"transport_declared": self.transport_samples}
        if self._stream is None:
            return counts
        counts |= {"slipped": self._stream.slipped, "repeated": self._stream.repeated}
        if self._needed:
            counts["transport_median"] = median_count(self._needed)
            counts["transport_largest"] = max(self._needed)
        for name, times in (("answer", self._answers), ("age", self._stream.ages)):
            if len(times):
                counts[f"{name}_median_s"] = float(np.median(times.seconds))
                counts[f"{name}_largest_s"] = float(times.seconds.max())
        return counts

    def safe(self) -> None:
        """Do nothing, because the controller holds its last command."""

    def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()
