# SPDX-License-Identifier: Apache-2.0
"""Session with a rig: one datagram per tick and direction, over any transport (e.g. ``udp.py``).

The rig generates and counts the ticks. State k of the rig is Measurement k. Command k answers state k - 1. The
receiver stores a Command until it takes effect, ``transport_samples`` samples later, and bridges lost Commands.
This module interpolates lost states and flags them. If the settings of the two ends differ, the test is refused
before any motion. Layout and behaviour: doc/udp.md.
"""

from __future__ import annotations

import logging
import math
import secrets
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar, Protocol

import numpy as np

from rths_nodes.core.durations import median_count
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import Limits
from rths_nodes.core.parameters import TestContext, flag, integer, number, params, text, texts
from rths_nodes.core.protocols import FarEnd, Listener, ReportedState, Rig
from rths_nodes.core.samples import (
    EMPTY,
    FLAG_BRIDGED,
    FLAG_SATURATED,
    HYDRAULICS_NOT_TOLD,
    INTERLOCK_OPEN,
    MODE_DISPLACEMENT,
    MODE_FORCE,
    Array,
    Command,
    Measurement,
    by_force,
)
from rths_nodes.laboratory.calibration import Gains, gains_of, limits_of_rig
from rths_nodes.laboratory.force_control import by_controller
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.common import (
    TRIGGER_CHANNEL,
    Trigger,
    WarningPort,
    longest_wait_parameter,
    trigger_parameter,
)
from rths_nodes.laboratory.ports.datagrams import (
    Answer,
    FarLimits,
    FarLoad,
    Head,
    RigState,
    Unreadable,
)

log = logging.getLogger(__name__)

FURTHEST = 100_000
"""Largest lead of a state over the expected state, samples. A state further ahead is not from this test."""
AGAIN_S = 0.02
PROBES, PROBING_S = 64, 1.0
"""Largest number (``PROBES``) and total duration (``PROBING_S``, s) of exchanges to measure the round trip."""
NO_LOCKSTEP, WRONG_AXES, WRONG_PERIOD, WRONG_EMULATOR = 11, 6, 7, 12
_ROUNDING = 1.0 + 1e-6
# largest relative difference between the receiver's and the declared deceleration
_SAME = 0.01

LOST, REPEATED, REORDERED, FOREIGN, GARBAGE = "lost", "repeated", "reordered", "foreign", "garbage"
MOST_AT_ONCE = 256
"""Largest number of datagrams read in one call, so that a flood from another sender cannot block the caller."""
_REMEMBERED = 1024
GOODBYES = 3
"""Number of copies of the datagram that ends a session, because the receiver does not acknowledge it."""


class Transport(Protocol):
    """Carries complete datagrams to and from a rig.

    ``multiprocessing`` can pickle an open transport, so that another process can receive its datagrams.
    """

    address: str
    unsent: str
    """Reason why the last datagram could not be sent; empty if it was sent."""

    def open(self) -> None: ...

    def settle(self) -> None:
        """Accept only datagrams from the last sender after this call."""

    def send(self, data: bytes) -> None:
        """Send one datagram without waiting. A datagram that cannot be sent is lost."""

    def received(self) -> Iterator[tuple[bytes, str]]:
        """Yield at most MOST_AT_ONCE received datagrams, each with the address of its sender.

        The address is empty if the sender is the rig.
        """
        ...

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for a datagram. Return True if one has arrived."""
        ...

    def close(self) -> None: ...


class Link:
    """Sends and receives the datagrams of one session over a ``transport``, and counts faulty datagrams.

    ``label`` contains the port type ``kind`` and the address of the rig, for messages.
    """

    def __init__(self, transport: Transport, kind: str) -> None:
        self.label = f"port {kind!r} at {transport.address}"
        self.transport = transport
        self._begin(0)

    def _begin(self, session: int) -> None:
        self.session, self.other_version = session, 0
        self.counts: Counter[str] = Counter(dict.fromkeys((LOST, REPEATED, REORDERED, FOREIGN, GARBAGE), 0))
        self.other_sender = ""
        """Unexpected sender of datagrams of the session, e.g. another address of the rig's computer."""
        self._missing: dict[int, None] = {}

    def open(self, session: int) -> None:
        self._begin(session)
        self.transport.open()

    def send(self, head: Head, rows: bytes = b"") -> bytes:
        data = datagrams.packed(head, rows)
        self.transport.send(data)
        return data

    def received(self) -> Iterator[tuple[Head, bytes]]:
        for data, stranger in self.transport.received():
            try:
                head = datagrams.head_of(data)
            except Unreadable as error:
                self.counts[FOREIGN if stranger else GARBAGE] += 1
                if not stranger and error.version and error.session == self.session:
                    self.other_version = error.version
                continue
            if not stranger and head.session == self.session:
                yield head, data
                continue
            self.counts[FOREIGN] += 1
            if stranger and head.session == self.session:
                self.other_sender = stranger

    def lose(self, counter: int) -> None:
        self.counts[LOST] += 1
        self._missing[counter] = None
        if len(self._missing) > _REMEMBERED:
            del self._missing[next(iter(self._missing))]

    def too_late(self, counter: int) -> None:
        if counter in self._missing:
            del self._missing[counter]
            self.counts[LOST] -= 1
            self.counts[REORDERED] += 1
        else:
            self.counts[REPEATED] += 1


class SessionListener(Listener):
    """Receives the states of the session of ``link``, in this or another process.

    ``head`` is the header of the datagrams that :meth:`stop` sends.
    """

    def __init__(self, link: Link, head: Head) -> None:
        self._link, self._head = link, replace(head)

    def states(self, seconds: float) -> list[ReportedState]:
        end = time.monotonic() + seconds
        while True:
            read = [_state(head, data) for head, data in self._link.received()]
            states = [state for state in read if state is not None]
            if states or (left := end - time.monotonic()) <= 0.0:
                return states
            self._link.transport.wait(left)

    def stop(self) -> None:
        for _ in range(GOODBYES):
            self._link.send(replace(self._head, kind=datagrams.CLOSE, counter=0, flags=0))

    def close(self) -> None:
        self._link.transport.close()


def _state(head: Head, data: bytes) -> ReportedState | None:
    if head.kind != datagrams.STATE:
        return None
    try:
        state = datagrams.state_of(data, head)
    except Unreadable:
        return None
    stopped = datagrams.reason_of(head.reason) if head.state >= datagrams.BRAKING else ""
    if head.interlock == INTERLOCK_OPEN:
        stopped = stopped or datagrams.REASONS[3]
    return ReportedState(_measurement(state, state.command, state.auxiliary), head.heard, stopped)


def _measurement(state: RigState, command: Array, auxiliary: Array, flags: int = 0) -> Measurement:
    head, moved, force = state.head, state.displacement, state.force
    return Measurement(
        head.counter, moved, force, command, auxiliary, flags, state.modes, head.hydraulics, head.interlock
    )


class SentCommands:
    """Stores the last Command, in the units of the port.

    A Command takes effect after ``transport`` samples of ``dt`` s. The applied command of an axis is in N only
    while the rig reports force control. If the rig reports a command in the other unit, as during a change of
    mode, the measured force or displacement replaces this command.
    """

    def __init__(self, gains: Sequence[Gains], dt: float, transport: int) -> None:
        self._transport = transport
        self._dt, self._by_displacement = dt, bytes([MODE_DISPLACEMENT]) * len(gains)
        self._places = np.array([gain.displacement / gain.command for gain in gains])
        self._forces = np.array([gain.force / gain.newtons for gain in gains])
        self.start([0.0] * len(gains))

    def start(self, active: list[float]) -> None:
        self.command, self._modes = np.array(active), self._by_displacement

    def rows(self, command: Command) -> bytes:
        """Return the datagram rows of ``command``. The slope of an axis is zero if its mode changes."""
        before, sent = self.command.tolist(), command.command.tolist()
        modes = bytes(command.control_mode) or self._by_displacement
        slope = [(now - then) / self._dt for now, then in zip(sent, before, strict=True)]
        if modes != self._modes:
            same = (by_force(modes) == by_force(self._modes)).tolist()
            slope = [value if stays else 0.0 for value, stays in zip(slope, same, strict=True)]
        self.command, self._modes = command.command.copy(), modes
        return datagrams.command_rows(sent, slope, command.auxiliary, modes)

    @property
    def unreported(self) -> Array:
        """Applied command of a missing state: last Command, in units of the port; NaN for axes in force mode."""
        return np.where(by_force(self._modes), np.nan, self.command) if MODE_FORCE in self._modes else self.command

    def applied(self, state: RigState) -> Array:
        """Return the applied command: the last Command or, if the receiver changed it, the command in ``state``.

        The command in ``state`` is also returned if ``transport`` is 0 or a mode is changing.
        """
        head = state.head
        changed = head.flags & (datagrams.BRIDGED | datagrams.LIMITED) or head.state >= datagrams.BRAKING
        if not self._transport or changed:
            return self.shown(state)
        if MODE_FORCE not in self._modes and MODE_FORCE not in state.modes:
            return self.command
        return np.where(by_force(self._modes) == by_force(state.modes), self.command, self.shown(state))

    def shown(self, state: RigState) -> Array:
        newtons, forced = np.array([flag > 0 for flag in state.in_newtons]), by_force(state.modes)
        if not (newtons.any() or forced.any()):
            return state.command
        there = np.where(forced, state.force * self._forces, state.displacement * self._places)
        return np.where(newtons == forced, state.command, there)

    def places(self, state: RigState) -> Array:
        """Return the active commands of ``state`` in the port's unit of displacement commands.

        The result for an axis is the measured displacement if its active command is in N.
        """
        newtons = np.array([flag > 0 for flag in state.in_newtons])
        return np.where(newtons, state.displacement * self._places, state.command)


@params
class SessionParams:
    one_node: ClassVar[bool] = True
    carries_force: ClassVar[bool] = True
    session: int = integer(
        "number of the session; 0: a random number for each test", "", 0, at_least=0, at_most=2**32 - 1
    )
    emulator: bool = flag("the other end is an emulator (rths emulate), and a real rig is refused", False)
    transport_samples: int = integer(
        "number of samples after which a command takes effect: 1 if commands arrive before the next tick, 0 "
        "only with an emulator in lockstep. The receiver keeps a command until it takes effect",
        "",
        1,
        at_least=0,
        at_most=datagrams.LARGEST_QUEUE,
    )
    hold: str = text(
        "command within a sample, in the controller: step (constant) or ramp (along the slope)",
        "step",
        ("step", "ramp"),
    )
    start_tolerance: float = number(
        "largest magnitude of the controller's active command at the start", "m", 1e-4, more_than=0.0, at_most=0.1
    )
    silence: float = number(
        "time without a datagram after which the other end counts as lost; the test computer applies it in "
        "real time only",
        "s",
        0.1,
        at_least=0.005,
        at_most=10.0,
    )
    connect_within: float = number("timeout for the rig's first answer", "s", 5.0, more_than=0.0)
    longest_wait: float = longest_wait_parameter()
    auxiliary_names: tuple[str, ...] = texts(
        "further measured channels with units, e.g. pressure [Pa], in the order of the datagram; a rig model "
        "in the scenario replaces this list"
    )
    auxiliary_inputs: tuple[str, ...] = texts(
        "auxiliary channels of a command with units, in the order of the datagram"
    )
    trigger: bool = trigger_parameter()

    def check_session(self, test: TestContext) -> None:
        if len(test.axes) > datagrams.LARGEST_AXES:
            raise ConfigError(
                f"axes: the number of axes is {len(test.axes)}; must be <= {datagrams.LARGEST_AXES}, because "
                "one datagram contains all axes"
            )
        if self.silence < 3.0 * test.dt:
            raise ConfigError(f"silence = {self.silence:g} s: must be >= {3.0 * test.dt:g} s, three servo periods")

    def cautions(self, test: TestContext) -> list[str]:
        caution = "transport_samples = 0: possible only with an emulator in lockstep"
        return [] if self.transport_samples else [caution]


class SessionPort(WarningPort):
    """Port of a rig whose receiver bridges lost Commands, and then brakes and holds the rig.

    Subclasses add ``Params`` and the transport.
    """

    Params: ClassVar[type]
    external = True
    follows_rig = True
    partial_stop = ""
    trigger: Trigger

    def __init__(
        self, params: SessionParams, axes: Mapping[str, Any], dt: float, seed: int, rig: Rig | None = None
    ) -> None:
        self.params, self.axes, self.dt = params, tuple(axes), dt
        self.gains = tuple(gains_of(axis.rig_axis) for axis in axes.values())
        self.limits = tuple(limits_of_rig(axis) for axis in axes.values())
        self.loads = tuple(load_of(axis) for axis in axes.values())
        """Limits (SI units) of axes whose force loop the controller closes; None for other axes."""
        self.start_tolerance = params.start_tolerance
        self._sent = SentCommands(self.gains, dt, params.transport_samples)
        self.simulated = params.emulator
        self._kind = type(params).type_name  # type: ignore[attr-defined]  # set at registration
        self.label = f"port.type = {self._kind!r}, port.emulator = false"
        self.transport_samples = params.transport_samples
        self.auxiliary_names, self.auxiliary_inputs = params.auxiliary_names, params.auxiliary_inputs
        if rig is not None:
            self.auxiliary_names, self.auxiliary_inputs = rig.auxiliary_names, rig.auxiliary_inputs
        for name in ("auxiliary_names", "auxiliary_inputs"):
            if (count := len(getattr(self, name))) > datagrams.LARGEST_AUXILIARY:
                most = datagrams.LARGEST_AUXILIARY
                raise ConfigError(
                    f"port.{name}: the number of channels is {count}; must be <= {most}, because one datagram "
                    "contains all channels"
                )
        self.channels = self.auxiliary_names
        self.trigger = Trigger(params.trigger)
        if params.trigger:
            self.auxiliary_names = (*self.auxiliary_names, TRIGGER_CHANNEL)
        self.link = Link(self.transport_of(params), self._kind)
        self.address = self.link.transport.address
        self.head = Head(0, len(self.axes), 0, period=round(dt * 1e9), transport=params.transport_samples)
        self.head.auxiliary = len(self.auxiliary_inputs)
        self.interlock = self.build = ""
        self.stated: FarEnd | None = None
        self.ear: Listener | None = None
        self._closed = True
        self.heartbeat = 0
        self.hydraulics, self.control_mode = HYDRAULICS_NOT_TOLD, b""
        self._state: RigState | None = None

    @staticmethod
    def transport_of(params: Any) -> Transport:
        raise NotImplementedError

    def accept_any_start(self) -> None:
        self.start_tolerance = math.inf

    def flags(self, lockstep: bool) -> int:
        flags = datagrams.EMULATOR if self.params.emulator else 0
        flags |= datagrams.LOCKSTEP if lockstep else 0
        flags |= datagrams.RAMP if self.params.hold == "ramp" else 0
        flags |= datagrams.TRIGGER if self.params.trigger else 0
        return flags | (datagrams.NEWTONS if any(self.loads) else 0)

    def open(self, pacer: Callable[[], int] | None = None) -> None:
        """Open the session with the rig at rest. Raises ConfigError if the settings of the two ends differ.

        ``pacer`` is called at each tick of the rig. Without ``pacer`` the rig must wait for every command.
        """
        self._pacer = pacer
        self.sample, self.interlock = 0, ""
        self._expected, self._complete = 0, False
        self._ahead: dict[int, RigState] = {}
        self._state = None
        self._needed: Counter[int] = Counter()
        self._bridged = self._limited = 0
        self._last, self._dropped, self.heartbeat, self.warning = b"", False, 0, False
        self.hydraulics, self.control_mode = HYDRAULICS_NOT_TOLD, b""
        self.trigger.set(False)
        self.link.open(self.params.session or secrets.randbelow(2**32 - 1) + 1)
        self.head.session = self.link.session
        try:
            answer = _opened(self, pacer is None)
        except BaseException:
            self.link.transport.close()
            raise
        self._sent.start(answer.active)
        self.ear = SessionListener(self.link, self.head)
        self._closed = False

    def _of_kind(self, kind: int, counter: int = 0) -> Head:
        self.head.kind, self.head.counter = kind, counter
        self.head.heard = max(self._expected - 1, 0)
        self.head.flags = datagrams.TRIGGER * self.trigger.high if kind == datagrams.COMMAND else 0
        self.head.flags |= datagrams.WARNING if self.warning and kind == datagrams.COMMAND else 0
        return self.head

    def begin(self) -> None:
        self._post(datagrams.BEGIN, 0)

    def arm_watchdog(self) -> None:
        """Do nothing, because the receiver arms its watchdog when the test begins."""

    def disarm_watchdog(self) -> None:
        """Make the receiver brake all moving axes and hold them."""
        self.safe()

    def wait_tick(self) -> int:
        """Begin the next tick without waiting, and return its number."""
        self.sample += 1
        self._expected, self._complete = self.sample, False
        return self.sample

    def write(self, command: Command) -> None:
        rows = self._sent.rows(command)
        if self._dropped:
            self._heard_at = time.monotonic()
            return
        self._post(datagrams.COMMAND, command.sample, rows)
        self.heartbeat = command.sample

    def drop_heartbeat(self) -> None:
        """Stop sending commands, so that the receiver stops the rig. In lockstep, request the stop first."""
        if self.in_lockstep:
            self.safe()
        self._dropped = True

    def _post(self, kind: int, counter: int, rows: bytes = b"") -> None:
        self._last = self.link.send(self._of_kind(kind, counter), rows)
        self._sent_at = self._heard_at = time.monotonic()

    def ready(self) -> bool:
        """Return True if the expected or a later state has arrived, or if the rig is silent."""
        if self._complete or self._silent:
            return True
        for head, data in self.link.received():
            self._take(head, data)
        if self._expected in self._ahead:
            state = self._ahead.pop(self._expected)
            self._hear(state.head)
        elif self._ahead:
            self.link.lose(self._expected)
            after = self._ahead[min(self._ahead)]
            state = datagrams.between(self._state or after, after, self._expected)
        else:
            self._look_at_clock()
            return self._silent
        self._state, self._complete = state, True
        self.hydraulics, self.control_mode = state.head.hydraulics, state.modes
        if self._pacer:
            self._pacer()
        return True

    @property
    def _silent(self) -> bool:
        return self.interlock.startswith("port.silence")

    def _take(self, head: Head, data: bytes) -> None:
        if head.kind != datagrams.STATE:
            return  # a late answer to ``open``
        self._heard_at = time.monotonic()
        if not self._expected <= head.counter < self._expected + FURTHEST:
            if head.counter < self._expected:
                self.link.too_late(head.counter)
            return
        wrong = head.axes != len(self.axes) or head.auxiliary != len(self.channels)
        try:
            state = datagrams.state_of(data, head)
        except Unreadable:
            wrong = True
        if wrong:
            self.link.counts[GARBAGE] += 1
        elif head.counter in self._ahead:
            self.link.too_late(head.counter)
        else:
            self._ahead[head.counter] = state

    def _hear(self, head: Head) -> None:
        if not self.in_lockstep:
            self._needed[head.counter + 1 - head.heard] += 1
        if head.interlock == INTERLOCK_OPEN:
            self.interlock = self.interlock or interlocked(self._kind)
        elif head.state >= datagrams.BRAKING and not self._closed:
            self.interlock = self.interlock or stopped(self._kind, head.reason)

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        patience = self.params.longest_wait if self.in_lockstep else self.params.silence
        if (self.in_lockstep or not self._expected) and now - self._sent_at > AGAIN_S:
            self._sent_at = now
            self.link.transport.send(self._last)
        if now - self._heard_at > patience:
            self.interlock = silent(self.address, patience)

    def wait(self, seconds: float) -> None:
        if not self._complete and not self._silent and not self._ahead:
            self.link.transport.wait(seconds)

    def read(self) -> Measurement:
        while not self.ready():
            self.wait(AGAIN_S)
        state = self._state
        if self._silent or state is None:
            unknown = np.full(len(self.axes), np.nan)
            channels = np.full(len(self.auxiliary_names), np.nan)
            return Measurement(self._expected, unknown, unknown, self._sent.unreported, channels, FLAG_BRIDGED)
        head = state.head
        flags = FLAG_SATURATED if head.flags & datagrams.SATURATED else 0
        if head.flags & datagrams.BRIDGED:
            flags |= FLAG_BRIDGED
            self._bridged += 1
        self._limited += bool(head.flags & datagrams.LIMITED)
        channels = state.auxiliary if len(state.auxiliary) else EMPTY
        if self.trigger.wired:
            channels = np.append(channels, float(head.flags & datagrams.TRIGGER > 0))
        if not self.sample:
            self._sent.start(state.command.tolist())
        return _measurement(state, self._sent.applied(state), channels, flags)

    def truth(self) -> None: ...

    def numbers(self) -> dict[str, float]:
        counts = {"bridged": self._bridged, "limited": self._limited, **self.link.counts}
        return numbers_of(counts, self.transport_samples, self._needed)

    @property
    def active_command(self) -> Array:
        """Last reported active command, in units of the port; see :meth:`SentCommands.places`."""
        return self._sent.command.copy() if self._state is None else self._sent.places(self._state).copy()

    def safe(self) -> None:
        """Make the receiver brake and hold the rig. After :meth:`drop_heartbeat`, missing commands do so."""
        if not self._closed:
            self._closed = True
            for _ in range(0 if self._dropped else GOODBYES):
                self.link.send(self._of_kind(datagrams.CLOSE, self.sample))

    def close(self) -> None:
        self.safe()
        self.link.transport.close()


def agree(port: SessionPort, head: Head, answer: Answer, in_lockstep: bool, delays: Sequence[int]) -> None:
    """Store the properties of the rig in ``port``. ``delays`` are the measured round trips, in ticks.

    Raises ConfigError if the median round trip exceeds the declared transport delay.
    """
    declared, address = port.transport_samples, port.address
    needed, worst = (0, 0) if in_lockstep else (round(statistics.median_high(delays)), max(delays))
    if needed > declared:
        raise ConfigError(
            f"port.transport_samples = {declared}: must be >= {needed}, because the round trip to the rig at "
            f"{address} takes {needed} samples (median of {len(delays)} exchanges; longest: {worst})"
        )
    if worst > declared:
        log.warning(
            "port.transport_samples = %d: %d of %d exchanges with the rig took longer (up to %d samples). The "
            "receiver bridges commands that arrive late",
            *(declared, sum(delay > declared for delay in delays), len(delays), worst),
        )
    port.in_lockstep, port.can_warn = in_lockstep, bool(head.flags & datagrams.WARNING)
    port.build = f"{answer.build:016x}"
    pairs = zip(answer.limits, port.gains, strict=True)
    rows = [stated.times(abs(gains.command), abs(gains.force)) for stated, gains in pairs]
    stroke, velocity, deceleration, force, error = np.array(rows).T
    port.stated = FarEnd(stroke, velocity, deceleration, force, error, answer.bridged, answer.watchdog)


def numbers_of(counts: Mapping[str, float], declared: int, needed: Counter[int]) -> dict[str, float]:
    numbers = {**counts, "transport_declared": declared}
    if needed:
        numbers |= {"transport_median": median_count(needed), "transport_largest": max(needed)}
    return numbers


def interlocked(kind: str) -> str:
    return f"port {kind!r}: {datagrams.REASONS[3]}"


def stopped(kind: str, reason: int) -> str:
    return f"port {kind!r}: the receiver has stopped the rig: {datagrams.reason_of(reason)}"


def silent(address: str, patience: float) -> str:
    return f"port.silence: no datagram from the rig at {address} for {patience:g} s"


def _opened(port: SessionPort, lockstep: bool) -> Answer:
    """Open the session, in lockstep if requested. Raises ConfigError if the settings of the two ends differ."""
    numbers = count(1)
    head, data = _asked(port, lockstep, next(numbers))
    if head.reason == NO_LOCKSTEP and port.transport_samples > 1:
        lockstep = False
        head, data = _asked(port, lockstep, next(numbers))
    answer = checked_answer(port, head, data)
    delays: list[int] = []
    end, ticks = time.monotonic() + PROBING_S, head.counter
    while not lockstep and len(delays) < PROBES and (time.monotonic() < end or len(delays) < 3):
        now, _ = _asked(port, lockstep, next(numbers))
        delays.append(max(now.counter - ticks, 1))
        ticks = now.counter
    agree(port, head, answer, lockstep, delays)
    return answer


def _asked(port: SessionPort, lockstep: bool, number: int) -> tuple[Head, bytes]:
    link = port.link
    request = replace(port.head, kind=datagrams.OPEN, counter=number, heard=0, flags=port.flags(lockstep))
    end = time.monotonic() + port.params.connect_within
    while (now := time.monotonic()) < end:
        link.send(request)
        until = min(now + AGAIN_S + 2.0 * port.dt, end)
        while (left := until - time.monotonic()) > 0.0:
            link.transport.wait(left)
            for head, data in link.received():
                if head.kind == datagrams.ANSWER and head.heard == number:
                    link.transport.settle()
                    return head, data
            if link.other_version:
                raise other_version(port, link.other_version)
    raise no_answer(port, link.counts[GARBAGE], link.other_sender, link.transport.unsent)


def other_version(port: SessionPort, version: int) -> ConfigError:
    return ConfigError(
        f"{port.link.label}: refused: the receiver uses version {version} of the datagrams; must be version "
        f"{datagrams.VERSION}. Install examples/udp_target of this package on the target"
    )


def no_answer(port: SessionPort, garbage: int, other_sender: str, unsent: str) -> ConfigError:
    unread = f". Unreadable datagrams received: {garbage}" if garbage else ""
    cause = "Check that the rig, or rths emulate, is running at this address"
    if other_sender:
        cause = f"Answers came from {other_sender}; set port.address to this address"
    elif unsent:
        cause = f"This computer cannot send datagrams to the address ({unsent})"
    return ConfigError(
        f"{port.link.label}: cannot connect, because no answer was received within "
        f"{port.params.connect_within:g} s. {cause}{unread}"
    )


def checked_answer(port: SessionPort, head: Head, data: bytes) -> Answer:
    """Return the answer of the rig. Raises ConfigError if the rig does not match the declarations of ``port``."""
    label, allowed = port.link.label, port.start_tolerance
    if reason := _objection(port, head):
        raise ConfigError(f"{label}: refused: {reason}")
    try:
        answer = datagrams.answer_of(data, head)
    except Unreadable as error:
        raise ConfigError(f"{label}: the answer is invalid ({error})") from error
    wider: list[str] = []
    rows = zip(port.axes, port.limits, port.gains, answer.active, answer.limits, strict=True)
    for name, declared, gains, active, stated in rows:
        command = active * gains.command
        if not abs(command) <= allowed:
            raise ConfigError(
                f"axes.{name}: the active command of the controller = {command:.6g} m: must be within +- "
                f"{allowed:g} m (port.start_tolerance), because the first command would otherwise be a jump"
            )
        far = stated.times(abs(gains.command), abs(gains.force))
        wider += _wider_limits(f"axes.{name}.limits", declared, far)
        if not port.params.emulator and math.isinf(far.error):
            log.warning("axes.%s: the receiver at %s does not limit the tracking error", name, port.address)
    if any(port.loads) and not head.flags & datagrams.NEWTONS:
        raise ConfigError(
            f"{label}: refused: the receiver accepts no commands in N. Install examples/udp_target of this "
            "package on the target"
        )
    if wider := wider or _wider_loads(port, answer):
        raise ConfigError(*(f"{problem} at {port.address}" for problem in wider))
    return answer


def _objection(port: SessionPort, head: Head) -> str:
    axes, emulator = f"{head.axes} on the rig, {len(port.axes)} in the test", port.params.emulator
    differ = {
        WRONG_AXES: axes,
        WRONG_PERIOD: f"period {head.period} ns on the rig, {port.head.period} ns in the test",
    }
    is_emulator = bool(head.flags & datagrams.EMULATOR)
    if head.reason == NO_LOCKSTEP:
        return (
            "the rig has its own clock. Use pace = realtime (hosts composed and processes), or "
            "port.transport_samples >= 2 with the embedded host"
        )
    if head.reason == WRONG_EMULATOR or is_emulator != emulator:
        there = "an emulator" if is_emulator else "a rig that is not an emulator"
        return f"port.emulator = {str(emulator).lower()}: {there} has answered"
    if head.reason:
        reason = datagrams.reason_of(head.reason)
        return f"{reason} ({differ[head.reason]})" if head.reason in differ else reason
    if head.axes != len(port.axes):
        return f"{datagrams.REASONS[WRONG_AXES]} ({axes})"
    if head.auxiliary != len(port.channels):
        here = ", ".join(port.channels) or "none"
        return f"the number of auxiliary channels is {head.auxiliary} on the rig; the scenario declares {here}"
    return ""


def _wider_limits(path: str, declared: Limits, stated: FarLimits) -> list[str]:
    keys = (("stroke", "m"), ("velocity", "m/s"), ("force", "N"))
    wider = _wider(path, [(key, unit, getattr(declared, key), getattr(stated, key)) for key, unit in keys])
    ours, there = declared.deceleration, stated.acceleration
    if not abs(there - ours) <= _SAME * ours:
        worse = "harder" if there > ours else "longer"
        wider.append(
            f"{path}.deceleration = {ours:.6g} m/s^2: the receiver brakes {worse}; must be {there:.6g} m/s^2, "
            "as in the receiver"
        )
    return wider


def _wider_loads(port: SessionPort, answer: Answer) -> list[str]:
    wider: list[str] = []
    rows = zip(port.axes, port.loads, answer.loads, port.gains, strict=True) if any(port.loads) else ()
    for name, declared, stated, gains in rows:
        if declared is None:
            continue
        if not stated.rate:
            wider.append(
                f"axes.{name}.force_control.closed_by = 'controller': there is no force loop for this axis in "
                "the receiver"
            )
            continue
        far = stated.times(abs(gains.command), abs(gains.newtons))
        limits = [
            ("limits.force_rate", "N/s", declared.rate, far.rate),
            ("limits.force_error", "N", declared.error, far.error),
            ("force_control.largest_correction", "m", declared.travel, far.travel),
        ]
        wider += _wider(f"axes.{name}", limits)
    return wider


def _wider(path: str, limits: Sequence[tuple[str, str, float, float]]) -> list[str]:
    """Return a message for each of ``limits`` (name, unit, declared, receiver's) that is wider in the receiver."""
    return [
        f"{path}.{key} = {ours:.6g} {unit}: the receiver allows {there:.6g} {unit}. Lower the limit of the "
        "receiver"
        for key, unit, ours, there in limits
        if not there <= ours * _ROUNDING
    ]


def load_of(axis: Any) -> FarLoad | None:
    """Return the largest receiver limits allowed for force commands; None if ``axis`` accepts no commands in N."""
    if not by_controller(axis):
        return None
    limits = limits_of_rig(axis)
    return FarLoad(limits.force_rate or 0.0, limits.force_error or 0.0, axis.force_control.largest_correction)
