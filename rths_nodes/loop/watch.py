# SPDX-License-Identifier: Apache-2.0
"""Watcher on another computer: section ``watch`` of a rig file, comparison, and pulse to the interlock.

The watcher compares its own sensors with the values that the test publishes. The result depends only on samples of
the watcher, messages of the test and the watcher's clock, not on ROS or sockets. The first disagreement ends the
pulse permanently. Time stamps are not compared, because clocks differ.

A message received at t was measured between t - ``late`` and t. A sample of the watcher arrives up to ``delay``
after its measurement. Within the tolerances, samples of the watcher must agree with the complete message at some
time between t - ``late`` and t + ``delay``.

Criteria have no defaults. All times are bounded, so the pulse ends at most 50 ms after a limit is exceeded.
"""

from __future__ import annotations

import math
import secrets
import struct
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from operator import itemgetter
from typing import NamedTuple

from rths_nodes.core.addresses import check_address
from rths_nodes.core.errors import ConfigError, join
from rths_nodes.core.parameters import integer, number, params, section, sections, text
from rths_nodes.laboratory.calibration import DisplacementChannel, ForceChannel
from rths_nodes.loop.supervision.limits import NONE, Row, acting, table
from rths_nodes.loop.supervision.states import State

LONGEST_S = 0.04
"""Upper bound of ``late``, ``silence``, ``velocity_over`` and the duration of ``persistence``, s."""
TOLD_HZ = 200.0
"""Default rate at which the test publishes state messages, Hz."""
LEAST_TOLD = 6.0
"""Smallest number of messages that the test sends within ``late``. At least one of them must arrive."""


@params
class Tolerance:
    """Largest permitted differences between the values of test and watcher, for one axis."""

    displacement: float = number("largest difference of the measured displacements", "m", more_than=0.0)
    force: float = number("largest difference of the measured forces", "N", more_than=0.0)
    command: float = number(
        "largest difference between the command and the watcher's displacement; must exceed the lag of the axis "
        "in a valid test",
        "m",
        more_than=0.0,
    )


@params
class WatchLimits:
    """Limits of an axis that the watcher checks with its own sensors, in every state."""

    displacement: float = number("largest magnitude of displacement", "m", more_than=0.0, at_most=100.0)
    velocity: float = number("largest magnitude of velocity", "m/s", more_than=0.0, at_most=1e3)
    velocity_over: float = number(
        "time between the two displacements from which a velocity is computed; a longer time reduces noise",
        "s",
        more_than=0.0,
        at_most=LONGEST_S,
    )
    force: float = number("largest magnitude of force", "N", more_than=0.0, at_most=1e9)
    persistence: int = integer(
        "number of consecutive samples beyond a limit after which the pulse ends", "samples", at_least=1
    )


@params
class WatchedAxis:
    """The watcher's own sensors of one axis, with tolerances and limits."""

    displacement: DisplacementChannel = section(DisplacementChannel, "displacement sensor of the watcher")
    force: ForceChannel = section(ForceChannel, "load cell of the watcher")
    tolerance: Tolerance = section(Tolerance, "largest permitted differences from the values of the test")
    limits: WatchLimits = section(WatchLimits, "limits that the watcher checks")
    rest: float = number(
        "largest motion that the watcher may measure while the axis rests; must exceed noise, relaxation, and the "
        "remaining lag of the actuator",
        "m",
        more_than=0.0,
    )

    def validate(self, path: str) -> None:
        for key, channel, unit in (("displacement", self.displacement, "m"), ("force", self.force, "N")):
            limit, end = getattr(self.limits, key), channel.range_si
            if limit >= end:
                raise ConfigError(
                    f"{join(path, 'limits')}.{key} = {limit:g} {unit}: must be < {end:g} {unit}, the range of "
                    "the sensor"
                )
        if self.rest <= self.displacement.step_si:
            raise ConfigError(
                f"{path}.rest = {self.rest:g} m: must be > {self.displacement.step_si:g} m, the resolution of "
                "the displacement sensor"
            )


@params
class WatchSensors:
    """Sensors of the watcher, from which the watcher receives only *state* datagrams (doc/udp.md)."""

    address: str = text("address of the data acquisition system that sends the samples")
    port: int = integer("UDP port on which the watcher receives the samples", at_least=1, at_most=65535)
    rate: float = number("sampling rate of the sensors", "Hz", at_least=100.0, at_most=100e3)
    delay: float = number(
        "longest time from the measurement of a sample until the watcher receives the sample",
        "s",
        at_least=0.0,
        at_most=0.02,
    )

    def validate(self, path: str) -> None:
        check_address(self.address, f"{path}.address")


@params
class WatchPulse:
    address: str = text("address of the interlock")
    port: int = integer("UDP port of the interlock", at_least=1, at_most=65535)
    period: float = number("time between two pulses", "s", 0.005, at_least=0.001, at_most=0.01)

    def validate(self, path: str) -> None:
        check_address(self.address, f"{path}.address")


@params
class WatchSection:
    """Settings of a watcher on another computer: sensors, watched axes, and pulse to the interlock."""

    sensors: WatchSensors = section(WatchSensors, "connection to the sensors of the watcher")
    pulse: WatchPulse = section(WatchPulse, "pulse to the interlock")
    axes: dict[str, WatchedAxis] = sections(WatchedAxis, "all axes of the rig by name, in the order of the rig")
    late: float = number(
        "longest time from a measurement of the test until the watcher receives the measured values",
        "s",
        more_than=0.0,
        at_most=LONGEST_S,
    )
    silence: float = number(
        "longest permitted time without a sensor sample of the watcher", "s", more_than=0.0, at_most=LONGEST_S
    )
    told: float = number("rate of the test's state messages", "Hz", TOLD_HZ, at_least=50.0, at_most=1000.0)

    def validate(self, path: str) -> None:
        least = LEAST_TOLD / self.told
        if self.late < least:
            raise ConfigError(
                f"{path}.late = {self.late:g} s: must be >= {least:g} s, the time of {LEAST_TOLD:g} messages of "
                f"the test at {path}.told = {self.told:g} Hz"
            )
        if self.silence < 2.0 / self.sensors.rate:
            raise ConfigError(
                f"{path}.silence = {self.silence:g} s: must be >= {2.0 / self.sensors.rate:g} s, the time of two "
                f"samples at sensors.rate = {self.sensors.rate:g} Hz"
            )
        most = LONGEST_S * self.sensors.rate
        for name, axis in self.axes.items():
            if axis.limits.persistence > most:
                raise ConfigError(
                    f"{path}.axes.{name}.limits.persistence = {axis.limits.persistence} samples: must be <= "
                    f"{most:g} samples, {LONGEST_S:g} s at sensors.rate = {self.sensors.rate:g} Hz"
                )
            if axis.limits.velocity_over < 1.0 / self.sensors.rate:
                raise ConfigError(
                    f"{path}.axes.{name}.limits.velocity_over = {axis.limits.velocity_over:g} s: must be >= "
                    f"{1.0 / self.sensors.rate:g} s, the time of one sample at sensors.rate = "
                    f"{self.sensors.rate:g} Hz"
                )


MOVING = frozenset(
    (State.CHECKING, State.POSITIONING, State.RUNNING, State.STOPPING, State.RESUMING, State.UNLOADING)
)
"""States of a procedure in which the rig may move. In all other states the rig must rest."""
BEGINS = frozenset((State.IDLE, State.CONNECTED, State.FINISHED))
"""States in which a port is opened, so the counter of the rig can restart."""
SEEN_S = 0.25
"""Time within which an axis must travel by more than ``rest`` to count as moving, s."""
PIECES = 10
COUNTED_S = 1.0
"""Time over which the watcher compares the test's counter with its own clock, s."""
RATE_ERROR = 0.1
"""Largest relative deviation of the sensors' rate from the declared rate."""
QUANTITIES = (("displacement", "m"), ("force", "N"), ("command", "m"))
Numbers = tuple[float, ...]


class Sample(NamedTuple):
    """Sensor sample of the watcher or state message of the test: time of arrival (s), counter, values by axis.

    Displacements and commands are in m, forces in N. Sensor samples have no commands. Commands of axes under force
    control are NaN.
    """

    at: float
    counter: int
    displacement: Numbers
    force: Numbers
    command: Numbers = ()


class Watch:
    """Compares a watcher's sensors with messages of the test, for the rig of ``section``.

    ``servo_rate`` (Hz) is the rate of the rig's counter. ``ended`` is the reason why the pulse has ended
    permanently, or empty. ``used`` is the largest deviation so far, as a fraction of its tolerance.
    """

    def __init__(self, section: WatchSection, servo_rate: float) -> None:
        axes = section.axes
        self.ended = ""
        self.used = 0.0
        self.names = tuple(axes)
        self._late, self._delay, self._silence = section.late, section.sensors.delay, section.silence
        self._servo_rate, self._rate = servo_rate, section.sensors.rate
        tolerances = [axis.tolerance for axis in axes.values()]
        self._tolerances = tuple((one.displacement, one.force, one.command) for one in tolerances)
        self._rest = [axis.rest for axis in axes.values()]
        self._ends = [(axis.displacement.range_si, axis.force.range_si) for axis in axes.values()]
        self._rows = _rows(section)
        self._limits = table(self._rows)
        self._over = [max(1, round(axis.limits.velocity_over * self._rate)) for axis in axes.values()]
        self._own: deque[Sample] = deque()
        self._before: deque[Sample] = deque(maxlen=1 + max(self._over))
        self._begun_at = self._judged_at = math.nan
        self._sensed = 0
        self._waiting: deque[Sample] = deque()
        self._received: Sample | None = None
        self._counted: deque[tuple[float, float, float]] = deque()
        """Per message (s): arrival, lead of the test's counter over the watcher's clock, largest earlier lead."""
        self._lead = -math.inf
        self._state: State | None = None
        self._place: Numbers | None = None
        self._commanded: Numbers | None = None
        self._seen = Seen(len(axes))

    @property
    def ready(self) -> bool:
        """True once the watcher has enough samples for a comparison, until the pulse ends."""
        span = self._own[-1].at - self._begun_at if self._own else 0.0
        return not self.ended and span >= self._late + self._delay

    def sense(self, sample: Sample) -> None:
        if self._own and sample.counter <= self._own[-1].counter:
            return  # repeated or late samples do not end a silence
        if not self._own:
            self._begun_at = sample.at
        if not self.ready:  # samples queued before the start arrive together and would raise the measured rate
            self._paced = sample
        if (seconds := sample.at - self._paced.at) > COUNTED_S:
            rate, self._paced = (sample.counter - self._paced.counter) / seconds, sample
            if abs(rate - self._rate) > RATE_ERROR * self._rate:  # a wrong rate gives wrong velocities
                self.end(f"the watcher's sensors send {rate:.0f} samples per second instead of {self._rate:g}")
        self._own.append(sample)
        self._before.append(sample)
        self._sensed += 1
        oldest = sample.at - self._late - 2.0 * self._delay - self._silence
        while len(self._own) > 2 and self._own[1].at < oldest:
            self._own.popleft()
        for axis, (x, force) in enumerate(zip(sample.displacement, sample.force, strict=True)):
            end, most = self._ends[axis]
            if not abs(x) < end or not abs(force) < most:
                self.end(
                    f"a sensor of the watcher for {self.names[axis]} is at the end of its range: {x:g} m, "
                    f"{force:g} N"
                )
        if (breach := acting(self._limits, self._judged(sample), self._sensed)) != NONE:
            self.end(self._rows[breach].words(math.nan))
        self._seen.add(sample)

    def _judged(self, sample: Sample) -> list[float]:
        values: list[float] = []
        for axis, over in enumerate(self._over):
            before = self._before[max(0, len(self._before) - 1 - over)]
            samples = sample.counter - before.counter
            x, x_before = sample.displacement[axis], before.displacement[axis]
            velocity = (x - x_before) * self._rate / samples if samples else 0.0
            values.extend((x, velocity, sample.force[axis]))
        return values

    def take_state(self, number: int) -> None:
        try:
            state = State(number)
        except ValueError:
            self.end(f"the test published the unknown state {number}")
            return
        if (state in MOVING) != (self._state in MOVING) or self._state is None:
            self._place = self._commanded = None
            self._seen.forget()
        if state in BEGINS:
            self._received = None
            self._counted.clear()
            self._lead = -math.inf
            self._waiting.clear()
        self._state = state

    def receive(self, statement: Sample) -> None:
        numbers = (
            *statement.displacement,
            *statement.force,
            *(command for command in statement.command if not math.isnan(command)),
        )
        if not all(map(math.isfinite, numbers)):
            self.end("the test published a value that is not finite")
            return
        last = self._received
        if last is not None and statement.counter == last.counter:
            if statement[2:4] != last[2:4]:
                self.end(f"the test published different values for sample {statement.counter}")
            return  # the message is repeated
        if last is not None and statement.counter < last.counter:
            self.end(f"the counter of the test decreased from {last.counter} to {statement.counter}")
            return
        if last is not None and statement.at - last.at > self._late:
            self._counted.clear()  # no messages were sent at rest, or the pulse has ended
        self._received = statement
        self._count(statement)
        self._waiting.append(statement)
        if self._state not in MOVING:
            self._rests_by_command(statement)

    def _count(self, statement: Sample) -> None:
        """Compare the test's counter with the watcher's clock while the rig moves.

        A busy test computer sends messages late. The counter then catches up, at most to its largest earlier lead.
        """
        ahead = statement.counter / self._servo_rate - statement.at
        lead, self._lead = self._lead, max(self._lead, ahead)
        counted = self._counted
        if self._state not in MOVING or not self._moves(statement.at):
            counted.clear()
            return
        counted.append((statement.at, ahead, lead))
        while statement.at - counted[0][0] > COUNTED_S:
            counted.popleft()
        begin, first, lead = counted[0]
        if ahead - lead > self._late:
            self.end(f"the counter of the test runs ahead of the watcher's clock by {ahead - lead:.3f} s")
        if first - ahead > self._late:
            self.end(
                f"the counter of the test lagged the watcher's clock by {first - ahead:.3f} s in "
                f"{statement.at - begin:.3f} s"
            )

    def _moves(self, now: float) -> bool:
        spans = self._seen.spans(now)
        return any(span > rest for span, rest in zip(spans, self._rest, strict=True))

    def _rests_by_command(self, statement: Sample) -> None:
        if self._commanded is None:
            self._commanded = statement.command
        rows = zip(self.names, statement.command, self._commanded, self._tolerances, strict=True)
        for name, now, then, (_, _, tolerance) in rows:
            if abs(now - then) > tolerance:
                self.end(
                    f"the test moved the command of {name} from {then:g} m to {now:g} m in the state "
                    f"{self._stated}, in which the rig must rest"
                )

    @property
    def _stated(self) -> str:
        return "unknown" if self._state is None else self._state.name

    def end(self, reason: str) -> None:
        self.ended = self.ended or reason

    def judge(self, now: float) -> str:
        """Compare the messages due at ``now`` (s). Return the reason why the pulse ends, or an empty string."""
        suspended = now - self._judged_at
        self._judged_at = now
        if self.ended or not self._own:
            return self.ended
        if suspended > self._silence:
            self.end(f"the watcher itself was suspended for {1e3 * suspended:.0f} ms")
        elif (silent := now - self._own[-1].at) > self._silence:
            self.end(f"the watcher's own sensors have been silent for {1e3 * silent:.0f} ms")
        while self._waiting and self._waiting[0].at + self._delay <= now and not self.ended:
            if self._waiting[0].at - self._late > self._own[-1].at:
                break  # the sensors are silent
            statement = self._waiting.popleft()
            if statement.at - self._late >= self._begun_at:  # measured after the watcher's first sample
                self._compare(statement)
        self._rests(now)
        return self.ended

    def _compare(self, statement: Sample) -> None:
        begin, end = statement.at - self._late, statement.at + self._delay
        pairs = [pair for pair in pairwise(self._own) if pair[1].at >= begin and pair[0].at <= end]
        shares = (self._share(statement, *pair) for pair in pairs)
        best, worst = min(shares, key=itemgetter(0), default=(math.inf, ("", "", 0.0)))
        if best <= 1.0:
            self.used = max(self.used, best)
            return
        axis, quantity, off = worst
        unit = dict(QUANTITIES).get(quantity, "")
        self.end(
            f"{axis}: the {quantity} published by the test differs by {off:.4g} {unit} from the watcher's "
            f"sensor, {best:.2g} times the tolerance"
        )

    def _share(self, statement: Sample, one: Sample, other: Sample) -> tuple[float, tuple[str, str, float]]:
        most, largest = 0.0, ("", "", 0.0)
        for axis, tolerances in enumerate(self._tolerances):
            x = one.displacement[axis], other.displacement[axis]
            pairs = (
                (statement.displacement[axis], *x),
                (statement.force[axis], one.force[axis], other.force[axis]),
                (statement.command[axis], *x),
            )
            for (value, a, b), tolerance, (quantity, _) in zip(pairs, tolerances, QUANTITIES, strict=True):
                low, high = (a, b) if a < b else (b, a)
                off = low - value if value < low else value - high if value > high else 0.0
                if off > most * tolerance:
                    most, largest = off / tolerance, (self.names[axis], quantity, off)
        return most, largest

    def _rests(self, now: float) -> None:
        newest = self._own[-1].displacement
        moving = self._state in MOVING
        silent = now - self._received.at if self._received is not None else math.inf
        if moving and silent <= self._late:
            self._place = None
            return
        if self._place is None:
            self._place = newest
        why = f"the state of the test is {self._stated}"
        if moving:
            why = "the test has been silent" + (f" for {1e3 * silent:.0f} ms" if math.isfinite(silent) else "")
        gone = [abs(x - position) for x, position in zip(newest, self._place, strict=True)]
        if moving:
            gone = [max(pair) for pair in zip(gone, self._seen.spans(now), strict=True)]
        for name, way, rest in zip(self.names, gone, self._rest, strict=True):
            if not way <= rest:
                self.end(f"{why}, but {name} moves by {way:.4g} m")


class Seen:
    """Records the range of each axis's displacements (m) during the last ``SEEN_S`` seconds."""

    def __init__(self, n_axes: int) -> None:
        self._none = [0.0] * n_axes
        self._pieces: deque[tuple[float, list[float], list[float]]] = deque()

    def forget(self) -> None:
        self._pieces.clear()

    def add(self, sample: Sample) -> None:
        pieces, x = self._pieces, sample.displacement
        if not pieces or sample.at - pieces[-1][0] >= SEEN_S / PIECES:
            pieces.append((sample.at, list(x), list(x)))
            while sample.at - pieces[0][0] > SEEN_S:
                pieces.popleft()
            return
        _, low, high = pieces[-1]
        for axis, value in enumerate(x):
            low[axis] = value if value < low[axis] else low[axis]
            high[axis] = value if value > high[axis] else high[axis]

    def spans(self, now: float) -> Sequence[float]:
        pieces = [piece for piece in self._pieces if now - piece[0] <= SEEN_S]
        if not pieces:
            return self._none
        lows, highs = zip(*(piece[1] for piece in pieces), strict=True), zip(*(p[2] for p in pieces), strict=True)
        return [max(high) - min(low) for low, high in zip(lows, highs, strict=True)]


def _rows(section: WatchSection) -> list[Row]:
    rows: list[Row] = []
    for name, axis in section.axes.items():
        for quantity, unit in (("displacement", "m"), ("velocity", "m/s"), ("force", "N")):
            bound = getattr(axis.limits, quantity)
            text = f": {quantity} ({unit}) exceeds the watcher's limit, {{1:g}}"
            rows.append(Row(name, len(rows), -bound, bound, axis.limits.persistence, text=text))
    return rows


MAGIC, VERSION = 0x57485452, 1
"""``MAGIC``: the letters RTHW. ``VERSION``: version of LAYOUT."""
LAYOUT = {
    "magic": ("I", "0x57485452, the letters RTHW"),
    "version": ("H", "version of this layout, 1"),
    "period": ("H", "time between two pulses, in units of 0.1 ms"),
    "session": ("I", "number of the watcher's session, not 0; random at each start"),
    "counter": ("I", "number of the pulse, from 1"),
}
"""Fields before the checksum: type (as in ``struct``) and meaning, by name."""
BODY = struct.Struct("<" + "".join(kind for kind, _ in LAYOUT.values()))
CHECKSUM = struct.Struct("<I")
SIZE = BODY.size + CHECKSUM.size
PER_S = 1e4


def pulses(period: float) -> Iterator[bytes]:
    session = secrets.randbelow(2**32 - 1) + 1
    for counter in count(1):
        body = BODY.pack(MAGIC, VERSION, round(period * PER_S), session, counter & 0xFFFFFFFF)
        yield body + CHECKSUM.pack(zlib.crc32(body))


class PulseListener:
    """Receives pulses. ``closed`` returns true from the first pulse until no pulse arrives for ``patience`` s.

    ``opened`` remains true after this timeout.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._session = self._counter = 0
        self._at = 0.0
        self.opened = False

    def receive(self, data: bytes, now: float) -> bool:
        """Return whether ``data``, received at ``now`` (s), is a valid pulse of the session."""
        if len(data) != SIZE or CHECKSUM.unpack_from(data, BODY.size)[0] != zlib.crc32(data[: BODY.size]):
            return False
        magic, version, _, session, counter = BODY.unpack_from(data)
        if (magic, version) != (MAGIC, VERSION) or not session or self.look(now):
            return False
        if self._session and (session != self._session or not 0 < (counter - self._counter) % 2**32 < 2**31):
            return False
        self._session, self._counter, self._at = session, counter, now
        return True

    def look(self, now: float) -> bool:
        self.opened = self.opened or bool(self._session and now - self._at > self._patience)
        return self.opened

    def closed(self, now: float) -> bool:
        return bool(self._session) and not self.look(now)
