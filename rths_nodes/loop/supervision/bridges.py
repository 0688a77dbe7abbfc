# SPDX-License-Identifier: Apache-2.0
"""Late messages: bridges that continue the motion, pauses of the test, and return to the motion without a jump.

Holding the last value would stop the motion, and the compensator would respond with an abrupt command (Phillips &
Spencer 2012, case (d): floor accelerations wrong by 150 %). Therefore the motion continues:

    MotionBridge     late Target: second-order Taylor series of the last Target
    CommandBridge    late Command: straight line through the last two Commands

A message is valid only for its own sample. A late message is therefore not applied, but the line or the series
continues from its values. When the source of the motion changes, the difference between old and new motion fades
out in displacement, velocity and acceleration (:class:`Fading`).

In a :class:`Pause` the rig slows down to rest, waits for the late message, and rejoins the motion.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from rths_nodes.core.control import Rows, rows_of
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import Limits
from rths_nodes.core.parameters import integer, number, params, section, text
from rths_nodes.core.protocols import Setup
from rths_nodes.core.samples import (
    FLAG_BRIDGED,
    FLAG_SLOWED,
    FLAG_TRIPPED,
    ROUNDING,
    Array,
    Command,
    Motion,
    by_force,
)
from rths_nodes.loop.timing import LateData


@params
class OverrunParams:
    """Limits on late periods. The rig trips at the first late period that exceeds a limit."""

    in_a_row: int = integer("largest permitted number of consecutive late periods", at_least=0, at_most=1_000_000)
    in_window: int = integer(
        "largest permitted number of late periods in the window", at_least=0, at_most=1_000_000
    )
    window: float = number(
        "duration of the window, which ends with the current sample", "s", more_than=0.0, at_most=86_400.0
    )
    ignored: float = number(
        "time after the start of the test during which late periods are ignored", "s", 0.0, at_least=0.0
    )

    def validate(self, path: str) -> None:
        if self.in_a_row > self.in_window:
            raise ConfigError(f"{path}.in_a_row = {self.in_a_row}: must be <= {path}.in_window = {self.in_window}")


@params
class BridgeParams:
    """Parameters for bridging late messages in real time. In lockstep no message is late."""

    max_bridge: float = number(
        "longest time for which late messages are bridged", "s", 0.010, at_least=0.0, at_most=1.0
    )
    rejoin_samples: int = integer(
        "number of samples in which the difference between bridged and real motion fades out; a difference that "
        "would fade too fast takes more samples",
        default=10,
        at_least=1,
        at_most=1000,
    )

    when_late: str = text(
        "reaction if a message is late for longer than max_bridge: trip, or pause. In a pause the rig slows down "
        "to rest and waits for the message, so that the test no longer runs in real time",
        "trip",
        choices=("trip", "pause"),
    )
    max_pause: float = number(
        "longest time for which the rig waits in a pause before it trips", "s", 1.0, more_than=0.0, at_most=10.0
    )
    overruns: OverrunParams | None = section(
        OverrunParams,
        "limits on late periods in real time; without limits, late periods are only flagged and counted",
        None,
    )

    def validate(self, path: str) -> None:
        if self.pauses and self.overruns is not None:
            raise ConfigError(
                f"{path}.overruns: must be omitted if {path}.when_late = 'pause', because the rig then waits for "
                "late data"
            )

    @property
    def pauses(self) -> bool:
        return self.when_late == "pause"

    def longest(self, dt: float) -> int:
        """Return the longest bridge, in samples of ``dt`` s."""
        return math.floor(self.max_bridge / dt + ROUNDING)


SHARE = 0.25
"""Largest velocity of a fading difference, as a fraction of the velocity limit of the axis."""

LOAD_SHARE = 0.99
"""Force rate at which force axes return to the Commands, as a fraction of its limit. Below 1 to avoid a trip."""

STEEPEST = 1.875
"""Largest magnitude of the slope of 1 - 10 s^3 + 15 s^4 - 6 s^5 for 0 <= s <= 1."""


_POLYNOMIALS = np.zeros((3, 3, 6))
"""Coefficients by derivative (0, 1 or 2), polynomial, and power of s.

At s = 0, derivative i of polynomial i is 1 and its other two derivatives are 0. At s = 1, all derivatives are 0.
"""
_POLYNOMIALS[0] = (
    (1.0, 0.0, 0.0, -10.0, 15.0, -6.0),
    (0.0, 1.0, 0.0, -6.0, 8.0, -3.0),
    (0.0, 0.0, 0.5, -1.5, 1.5, -0.5),
)
for _order in (1, 2):
    _POLYNOMIALS[_order, :, :5] = _POLYNOMIALS[_order - 1, :, 1:] * np.arange(1, 6)
_POWERS = np.arange(6)


class Fading:
    """Difference between two motions, which fades out along a polynomial of degree 5.

    ``active`` is true until the difference is zero. The difference fades in ``samples`` samples of ``dt`` s, or
    more slowly if its velocity would otherwise exceed SHARE of the velocity limits ``fastest`` ``(n,)`` m/s.
    """

    def __init__(self, samples: int, dt: float, fastest: Array) -> None:
        self._samples, self._dt = samples, dt
        self._fastest = SHARE / STEEPEST * fastest * dt
        self._difference = np.zeros((3, len(fastest)))
        self._index = self._length = 0
        self.active = False

    def begin(self, difference: Array) -> None:
        """Fade ``difference`` and the remainder of an earlier difference from the next sample on.

        ``difference`` is the old minus the new motion, ``(3, ..., n)`` in m, m/s and m/s^2.
        """
        self._difference = difference + self._left() if self.active else difference
        largest = float((np.abs(self._difference[0]) / self._fastest).max())
        # with NaN the length has no effect, because the limits trip the rig
        self._length = max(self._samples, math.ceil(largest)) if math.isfinite(largest) else self._samples
        self._index = 0
        self.active = self._length > 0

    def step(self) -> Array:
        """Return the remaining difference at the current sample, and advance to the next sample."""
        left = self._left()
        self._index += 1
        self.active = self._index < self._length
        return left

    def _left(self) -> Array:
        weights = _POLYNOMIALS @ (self._index / self._length) ** _POWERS
        scale = (self._length * self._dt) ** _POWERS[:3]
        left: Array = (weights * scale / scale[:, None]) @ self._difference.reshape(3, -1)
        return left.reshape(self._difference.shape)


class MotionBridge:
    """Computes the motion of the axes ``(n_axes,)`` while a Target is late.

    Call ``follow`` with every Target when it is used. Call ``motion`` for each sample with a late Target. While
    ``apart`` is true, also call ``motion`` for all other samples, with the ``real`` motion.
    """

    def __init__(self, setup: Setup, dt: float, substeps: int, fading: Fading) -> None:
        self._setup, self._dt, self._substeps, self._fading = setup, dt, substeps, fading
        self._last: tuple[int, Rows] = (0, ([], [], []))
        self._driving: tuple[int, Rows] | None = None
        self.apart = False

    def follow(self, step: int, rows: Rows) -> bool:
        """Store the motion of the newest Target, number ``step``. Return False if a value is not finite."""
        self._last = (step * self._substeps, rows)
        total = sum(map(sum, rows))  # not finite if any value is not finite
        return total - total == 0.0

    def motion(self, sample: int, real: Rows | None = None) -> Rows:
        """Return the motion of the last Target, or the ``real`` motion, plus the remaining difference."""
        source = self._last if real is None else None
        rows = np.array(real) if source is None else self._series(source, sample)
        if self._driving is not None and self._driving is not source:
            self._fading.begin(self._series(self._driving, sample) - rows)
        self._driving = source
        x, v, a = (rows + self._fading.step() if self._fading.active else rows).tolist()
        self.apart = source is not None or self._fading.active
        return x, v, a

    def _series(self, last: tuple[int, Rows], sample: int) -> Array:
        start, rows = last
        x, v, a = np.array(rows)
        t = (sample - start) * self._dt
        return np.array(rows_of(self._setup.axes(Motion(x + t * v + 0.5 * t * t * a, v + t * a, a))))


class CommandBridge:
    """Computes substitutes for late Commands. Target and command of each axis continue along straight lines.

    ``position`` ``(n_axes,)`` m and ``auxiliary`` inputs are the values at sample 0. ``rates`` (N/s) are the force
    rate limits of the force axes, which are last. Force axes hold their last command, then approach the Commands.
    """

    def __init__(
        self, fading: Fading, dt: float, position: Array, auxiliary: Array, rates: Sequence[float] = ()
    ) -> None:
        self._fading, self._dt, self._auxiliary = fading, dt, auxiliary
        self._n_moved = len(position) - len(rates)
        self._steps = [LOAD_SHARE * dt * rate for rate in rates]
        self._catching_up = False
        self._driving: tuple[Command, Command] | None = None
        self.start(position)

    def start(self, position: Array) -> None:
        self._newest = self._before = self._sent = Command(0, position, position, self._auxiliary)

    def received(self, command: Command) -> None:
        """Store a late Command, unless it is older than the newest stored Command."""
        if command.sample > self._newest.sample:
            self._before, self._newest = self._newest, command

    def command(self, sample: int) -> Command:
        commands = self._newest, self._before
        if self._driving is not None and self._driving[0] is not commands[0]:
            self._begin(self._driving, sample)
        self._driving, self._catching_up = commands, bool(self._steps)
        (rows, _), newest, sent, n = _line(commands, sample), self._newest, self._sent, self._n_moved
        rows[:, n:] = sent.target[n:], sent.command[n:]
        # remove the flag of a stop from a late Command, because with this flag axes ignore breaches
        flags = newest.flags & ~FLAG_TRIPPED | FLAG_BRIDGED
        command = Command(sample, rows[0], rows[1], newest.auxiliary.copy(), flags, sent.control_mode)
        return self._faded(command) if self._fading.active else command

    def rejoin(self, command: Command) -> Command:
        if command.sample > self._newest.sample:  # as in received(), which would be a slow call per sample
            self._before, self._newest = self._newest, command
        if self._driving is not None:
            self._begin(self._driving, command.sample)
            self._driving = None
        if self._catching_up:
            command = self._nearer(command)
        self._sent = command
        return self._faded(command) if self._fading.active else command

    def _nearer(self, command: Command) -> Command:
        n, now, before = self._n_moved, command.control_mode[self._n_moved :], self._sent.control_mode
        wanted, sent = command.command[n:], self._sent.command[n:]
        both = by_force(now) & by_force(before[n:]) if now and before else False
        near = np.where(both, np.clip(wanted, np.subtract(sent, self._steps), np.add(sent, self._steps)), wanted)
        self._catching_up = not np.array_equal(near, wanted)
        return replace(command, command=np.concatenate((command.command[:n], near)))

    def _faded(self, command: Command) -> Command:
        """Add the remaining differences to command and target; a pause needs both, because it scales the lead."""
        rows = np.array((command.target, command.command))
        rows[:, : self._n_moved] += self._fading.step()[0]
        return replace(command, target=rows[0], command=rows[1])

    def _begin(self, driving: tuple[Command, Command], sample: int) -> None:
        apart, steps = np.subtract(_line(driving, sample), _line((self._newest, self._before), sample))
        self._fading.begin(np.array((apart, steps / self._dt, np.zeros_like(apart)))[..., : self._n_moved])


def _line(commands: tuple[Command, Command], sample: int) -> tuple[Array, Array]:
    """Return target and command ``(2, n_axes)`` on the line through two Commands, and the steps per sample."""
    newest, before = commands
    rows = np.array((newest.target, newest.command))
    steps = (rows - (before.target, before.command)) / max(newest.sample - before.sample, 1)
    return rows + (sample - newest.sample) * steps, steps


def fading_of(bridge: BridgeParams, limits: dict[str, Limits], dt: float) -> Fading:
    fastest = np.array([axis.velocity for axis in limits.values() if not axis.of_force])
    return Fading(bridge.rejoin_samples, dt, fastest)


AT_RIG = "complete exchange with the rig"


def reason_of(missing: str, late: float, bound: float) -> str:
    """Return the reason to stop after a gap of ``late`` s. ``missing`` is the message, and ``bound`` the limit."""
    return f"bridge.max_bridge: no {missing} for {1e3 * late:.3g} ms: must be <= {1e3 * bound:g} ms"


class BridgeCount:
    """Counts consecutive bridged samples (``in_a_row``), and late periods. A sample takes ``dt`` s.

    A period is late if its tick was missed, or if it was bridged because a Target or Command was late. Ticks that
    a rig generates are never missed. No period is late in lockstep. A breach of ``overruns`` is permanent.
    """

    def __init__(self, params: BridgeParams, dt: float) -> None:
        self._max_bridge, self._longest, self._dt = params.max_bridge, params.longest(dt), dt
        self.overruns = most = params.overruns
        spans = (0.0, 0.0) if most is None else (most.ignored, most.window)
        self._ignored, self._window = (int(duration / dt + ROUNDING) for duration in spans)
        self.in_a_row = self.far = 0
        self._missing = self._overrun = ""
        self._new = self._missed = self._gap = self._longest_gap = self._row = self._in_window = 0
        self._late: deque[tuple[int, int]] = deque()
        """Samples in the window with late periods, each with the number of its late periods."""
        self.watches = self.overruns is not None
        """True if :meth:`sampled` must also be called for samples without a bridge."""

    def follow(self, bridged: bool, missing: str = "") -> None:
        self._missing = self._missing if self.in_a_row else missing
        self.in_a_row = self.in_a_row + 1 if bridged else 0

    def tick(self, pacer: Callable[[], int]) -> int:
        """Call ``pacer``. Count the periods missed before this tick, and return their number."""
        if slipped := pacer():
            self._new += slipped
            self.watches = True
        return slipped

    def measured(self, bridged: bool) -> str:
        """Count consecutive samples bridged by the port. Return the reason to stop, or an empty string."""
        self.far = self.far + 1 if bridged else 0
        return self._too_long(AT_RIG, self.far)

    def _too_long(self, missing: str, samples: int) -> str:
        return reason_of(missing, samples * self._dt, self._max_bridge) if samples > self._longest else ""

    def late(self, bridged: int) -> LateData:
        return LateData(bridged, self._missed, self._longest_gap * self._dt, self._max_bridge)

    def sampled(self, sample: int, bridged: bool) -> None:
        late = self._new + bridged
        self._missed += self._new
        self._new, self._gap = 0, self._gap + late if late else 0
        self._longest_gap = max(self._longest_gap, self._gap)
        self.watches = self.overruns is not None or self._gap > 0
        if (most := self.overruns) is None:
            return
        while self._late and self._late[0][0] <= sample - self._window:
            self._in_window -= self._late.popleft()[1]
        if not late or sample <= self._ignored:
            self._row = 0
            return
        self._row += late
        self._in_window += late
        self._late.append((sample, late))
        for name, count, where, bound in (
            ("in_a_row", self._row, "in a row", most.in_a_row),
            ("in_window", self._in_window, f"in {most.window:g} s", most.in_window),
        ):
            if count > bound:
                periods = "period was" if count == 1 else "periods were"
                self._overrun = f"bridge.overruns.{name}: {count} {periods} late {where}: must be <= {bound}"
                return

    @property
    def exhausted(self) -> bool:
        return self.in_a_row >= self._longest

    @property
    def breach(self) -> str:
        """Reason to stop if the bridge is too long or too many periods were late, otherwise an empty string."""
        return self._too_long(self._missing, self.in_a_row) or self._overrun


SHARPEST = 1.5
"""Largest slope of 3 s^2 - 2 s^3 for 0 <= s <= 1."""

BENT = 6.0
"""Largest curvature of 3 s^2 - 2 s^3 for 0 <= s <= 1."""

MOST_CURVED = 10.0 / math.sqrt(3.0)
"""Largest curvature of 1 - 10 s^3 + 15 s^4 - 6 s^5 for 0 <= s <= 1."""


class Pause:
    """Drives the rig while a Command is missing, from :meth:`begin` until ``active`` is false.

    Ticks continue during a pause; samples do not. A pause has these phases, with s from 0 to 1 in each phase:

    - slow down: the speed, relative to the test, falls as 1 - 3 s^2 + 2 s^3
    - wait at rest
    - return: the distance to the target of the last sample falls as 1 - 10 s^3 + 15 s^4 - 6 s^5
    - start: the speed rises as 3 s^2 - 2 s^3; targets are interpolated linearly between samples

    The lead (command minus target) compensates the actuator's lag at full speed, and is multiplied by the relative
    speed. Displacement and velocity never jump, and phases add no acceleration at their ends. Phases are long
    enough to keep the acceleration within the deceleration limit of each axis, apart from a difference that still
    fades (:class:`Fading`). During the start, samples are measured within half a sample of their targets. This is
    correct for a rate-independent specimen.

    ``allowed`` is false if the rig must trip instead. ``coming`` is the Command of the next sample, or None.
    ``sampled`` is true if the last tick was a sample. ``known`` is the Command of the last sample, and ``count``
    the number of pauses. The rig stays at rest while ``held`` (by an operator) is true. Rows ``(2, n_moved)`` are
    target and lead (m) of the displacement axes. Force axes keep the loads of the last sample.
    """

    known: Command

    def __init__(self, params: BridgeParams, limits: dict[str, Limits], dt: float) -> None:
        self.allowed = params.pauses
        self._dt, self._longest = dt, params.max_pause
        moved = [axis for axis in limits.values() if not axis.of_force]
        self._n_moved = len(moved)
        self._braking = np.array([axis.deceleration for axis in moved]) * dt**2
        self._fastest = np.array([axis.velocity for axis in moved]) * dt
        self.active = self.sampled = self.held = False
        self.count = 0
        self.coming: Command | None = None

    def begin(self, before: Command, last: Command) -> None:
        """Begin a pause without the next Command. ``before`` and ``last`` are the last two sent Commands.

        If a pause begins in the start phase of a pause, the rig returns to the last sample of this phase.
        """
        if not self.active:
            self.known, self.coming = last, None
        self.active = True
        self._starts = self._rests = False
        self._waited = 0
        self._motion = self._phases(self._rows(before), self._rows(last))
        self.count += 1

    @property
    def rests(self) -> bool:
        return self.active and self.held and self._rests

    @property
    def can_be_held(self) -> bool:
        """True outside pauses and in their start phase; false while the rig slows down, rests or returns."""
        return not self.active or self._starts

    def supply(self, command: Command, apart: Array | float = 0.0) -> None:
        """Receive the next Command. ``apart`` (m) is the part of its target that still fades out."""
        self.coming, self._apart, self._waited = command, apart, 0

    @property
    def needs_command(self) -> bool:
        return self._starts and self.coming is None and self._ahead(self._tick + 1) > self._samples

    @property
    def continues(self) -> bool:
        return self.active and not self.needs_command

    @property
    def breach(self) -> str:
        waited = self._waited * self._dt
        if self.coming is not None or waited <= self._longest:
            return ""
        return f"bridge.max_pause: nothing to follow for {waited:.3g} s: must be <= {self._longest:g} s"

    def command(self, sample: int) -> Command:
        self.sampled = False
        if self.coming is None and not self.held:
            self._waited += 1
        target, lead = next(self._motion)
        command = self.known if self.coming is None else self.coming
        if self.sampled:
            self._passed = self.known
            self.known, self.coming = command, None
        load, n = self.known, self._n_moved
        targets = np.concatenate((target, load.target[n:]))
        commands = np.concatenate((target + lead, load.command[n:]))
        return Command(
            sample, targets, commands, command.auxiliary, command.flags | FLAG_SLOWED, load.control_mode
        )

    def _phases(self, before: Array, last: Array) -> Iterator[Array]:
        """Yield the rows of each tick. ``before`` and ``last`` are the rows of the last two sent Commands."""
        change = last - before
        ticks = math.ceil(self._needed(last[1], change))
        for tick in range(1, ticks + 1):
            yield _travelled(last, change, tick / ticks, ticks)
        last, self._rests = _travelled(last, change, 1.0, ticks), True
        while self.coming is None or self.held:
            yield last
        away, self._rests = last[0] - self._rows(self.known)[0], False
        far = np.abs(away)
        quick, gentle = STEEPEST * far / self._fastest, np.sqrt(MOST_CURVED * far / self._braking)
        ticks = math.ceil(np.maximum(quick, gentle).max())
        for tick in range(1, ticks + 1):
            s, self._rests = tick / ticks, tick == ticks
            left = 1.0 - 10.0 * s**3 + 15.0 * s**4 - 6.0 * s**5
            yield np.array((self._rows(self.known)[0] + left * away, last[1]))
        while self.held:
            yield np.array((self._rows(self.known)[0], last[1]))  # type: ignore[unreachable]  # set during a yield
        assert self.coming is not None
        coming = self._rows(self.coming)
        # an even number, so that the phase ends with a sample
        self._ticks = 2 * math.ceil(0.5 * self._needed(coming[1] + self._apart, coming - self._rows(self.known)))
        self._tick = self._samples = 0
        self._starts, self._rests = True, False
        while self.active:
            self._tick += 1
            ahead, behind = self._ahead(self._tick), self._samples
            if ahead <= behind or self.coming is None:  # interpolate before the last sample
                behind, one, other = behind - 1, self._rows(self._passed), self._rows(self.known)
            else:
                one, other = self._rows(self.known), self._rows(self.coming)
                self.sampled = ahead >= behind + 0.5
                self._samples += self.sampled
            self.active = self._tick < self._ticks
            rows: Array = one + (ahead - behind) * (other - one)
            if self.active:
                rows[1] *= _rate(self._tick / self._ticks)
            yield rows

    def _ahead(self, tick: int) -> float:
        if tick >= self._ticks:
            return max(0.5 * self._ticks, 1.0)
        s = tick / self._ticks
        return self._ticks * (s**3 - 0.5 * s**4)

    def _needed(self, lead: Array, change: Array) -> float:
        """Return the number of ticks M in which the motion slows down to rest or starts from rest.

        ``lead`` l is the command minus the target. ``change`` contains the changes of target v and lead w per
        sample. M is the smallest number that satisfies two conditions. (SHARPEST v + BENT w) / M + BENT l / M^2
        must not exceed the deceleration limit. The velocity of the lead must not exceed SHARE of its limit.
        """
        steady = SHARPEST * np.abs(change[0]) + BENT * np.abs(change[1])
        gentle = (steady + np.sqrt(steady**2 + 4.0 * BENT * np.abs(lead) * self._braking)) / (2.0 * self._braking)
        quick = SHARPEST * np.abs(lead) / (SHARE * self._fastest)
        needed = float(np.maximum(gentle, quick).max())
        # with NaN the number has no effect, because the limits trip the rig
        return needed if math.isfinite(needed) else 0.0

    def _rows(self, command: Command) -> Array:
        target = command.target[: self._n_moved]
        return np.array((target, command.command[: self._n_moved] - target))


def _travelled(last: Array, change: Array, s: float, ticks: int) -> Array:
    rows: Array = last + ticks * (s - s**3 + 0.5 * s**4) * change
    rows[1] *= 1.0 - _rate(s)
    return rows


def _rate(s: float) -> float:
    return s * s * (3.0 - 2.0 * s)
