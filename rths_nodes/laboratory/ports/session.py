# SPDX-License-Identifier: Apache-2.0
"""Session with a rig: one datagram per tick and direction, over any transport (``udp.py``).

The rig generates and counts the ticks. State k of the rig is Measurement k; Command k answers state k - 1. The
receiver keeps a Command until it takes effect, ``transport_samples`` samples later, and bridges lost Commands.
This module interpolates lost states and flags them. Layout and behaviour: doc/udp.md.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from rths_nodes.core.checks import TestContext
from rths_nodes.core.declarations import FarEnd, Listener
from rths_nodes.core.durations import median_count
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import flag, integer, number, params, text, texts
from rths_nodes.core.protocols import Rig
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
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.common import (
    TRIGGER_CHANNEL,
    Trigger,
    WarningPort,
    longest_wait_parameter,
    trigger_parameter,
)
from rths_nodes.laboratory.ports.datagrams import Answer, Head, RigState, Unreadable
from rths_nodes.laboratory.ports.link import GARBAGE, GOODBYES, Link, SessionListener, Transport
from rths_nodes.laboratory.ports.opening import AGAIN_S, Terms, load_of, opened, stated_of

FURTHEST = 100_000
"""Largest difference of counters, samples. A state further ahead does not belong to this test."""


class SentCommands:
    """Holds the last Command, in the units of the port.

    A Command takes effect after ``transport`` samples of ``dt`` s. It is interpreted in N only while the state
    reports force control. During a change of mode a controller reports the command as a position, or as the force
    at this position.
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
        """Return the datagram rows of ``command``. The slope is zero for an axis whose mode changes."""
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
        """Last Command, used if a state is missing; NaN for axes in force mode."""
        return np.where(by_force(self._modes), np.nan, self.command) if MODE_FORCE in self._modes else self.command

    def applied(self, state: RigState) -> Array:
        """Return the last Command in the unit of ``state``, or the reported command if the receiver changed it.

        The reported command is also returned if ``transport`` is 0 or a mode is changing.
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
        """Return the active commands of a ``state``; for active commands in N, the displacements.

        All are in the port's unit of displacement commands.
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
        "command of the controller within a sample: step (constant) or ramp (along the slope)",
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
        "further measured channels with units, e.g. pressure [Pa], in the order of the datagram; a rig in the "
        "scenario replaces this list"
    )
    auxiliary_inputs: tuple[str, ...] = texts(
        "auxiliary channels of a command with units, in the order of the datagram"
    )
    trigger: bool = trigger_parameter()

    def check_session(self, test: TestContext) -> None:
        if len(test.axes) > datagrams.LARGEST_AXES:
            raise ConfigError(
                f"axes: the number of axes is {len(test.axes)}; must be <= {datagrams.LARGEST_AXES}, because "
                "one datagram has all axes"
            )
        if self.silence < 3.0 * test.dt:
            raise ConfigError(f"silence = {self.silence:g} s: must be >= {3.0 * test.dt:g} s, three servo periods")

    def cautions(self, test: TestContext) -> list[str]:
        caution = "transport_samples = 0: possible only with an emulator in lockstep"
        return [] if self.transport_samples else [caution]


class SessionPort(WarningPort):
    """Port of a rig whose receiver bridges lost Commands, brakes and holds.

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
        self._params, self._axes = params, tuple(axes)
        gains = tuple(gains_of(axis.rig_axis) for axis in axes.values())
        self._sent = SentCommands(gains, dt, params.transport_samples)
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
                    "has all channels"
                )
        self._n_channels = len(self.auxiliary_names)
        self.trigger = Trigger(params.trigger)
        if params.trigger:
            self.auxiliary_names = (*self.auxiliary_names, TRIGGER_CHANNEL)
        self._transport = self.transport_of(params)
        self._link = Link(self._transport, self._kind)
        self.address = self._transport.address
        self._head = Head(0, len(self._axes), 0, period=round(dt * 1e9), transport=params.transport_samples)
        self._head.auxiliary = len(self.auxiliary_inputs)
        self.terms = Terms(
            self._head,
            self._axes,
            tuple(limits_of_rig(axis) for axis in axes.values()),
            gains,
            tuple(load_of(axis) for axis in axes.values()),
            self.auxiliary_names[: self._n_channels],
            params,
            params.start_tolerance,
            dt,
        )
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
        self.terms = replace(self.terms, start_tolerance=math.inf)

    def open(self, pacer: Callable[[], int] | None = None) -> None:
        """Open the session with the rig at rest. Raises ConfigError if the ends do not agree.

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
        self._link.open(self._params.session or secrets.randbelow(2**32 - 1) + 1)
        self._head.session = self._link.session
        try:
            head, answer, in_lockstep = opened(self._link, self.terms, pacer is None)
        except BaseException:
            self._transport.close()
            raise
        agree(self, head, answer, in_lockstep)
        self._sent.start(answer.active)
        self.ear = SessionListener(self._link, self._head)
        self._closed = False

    def _of_kind(self, kind: int, counter: int = 0) -> Head:
        self._head.kind, self._head.counter = kind, counter
        self._head.heard = max(self._expected - 1, 0)
        self._head.flags = datagrams.TRIGGER * self.trigger.high if kind == datagrams.COMMAND else 0
        self._head.flags |= datagrams.WARNING if self.warning and kind == datagrams.COMMAND else 0
        return self._head

    def begin(self) -> None:
        self._post(datagrams.BEGIN, 0)

    def arm_watchdog(self) -> None:
        """Do nothing; the receiver arms its watchdog when the test begins."""

    def disarm_watchdog(self) -> None:
        """Make the receiver brake moving axes and hold."""
        self.safe()

    def wait_tick(self) -> int:
        """Return the number of the next tick without waiting."""
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
        """Stop sending commands, so that the receiver stops the rig. In lockstep, request the stop."""
        if self.in_lockstep:
            self.safe()
        self._dropped = True

    def _post(self, kind: int, counter: int, rows: bytes = b"") -> None:
        self._last = self._link.send(self._of_kind(kind, counter), rows)
        self._sent_at = self._heard_at = time.monotonic()

    def ready(self) -> bool:
        """Return True if the expected or a later state has arrived, or if the rig is silent."""
        if self._complete or self._silent:
            return True
        for head, data in self._link.received():
            self._take(head, data)
        if self._expected in self._ahead:
            state = self._ahead.pop(self._expected)
            self._hear(state.head)
        elif self._ahead:
            state = self._filled()
        else:
            self._look_at_clock()
            return self._silent
        self._state, self._complete = state, True
        if state is not None:
            self.hydraulics, self.control_mode = state.head.hydraulics, state.modes
        if self._pacer:
            self._pacer()
        return True

    @property
    def _silent(self) -> bool:
        return self.interlock.startswith("port.silence")

    def _take(self, head: Head, data: bytes) -> None:
        if head.kind != datagrams.STATE:
            return  # late answer
        self._heard_at = time.monotonic()
        if not self._expected <= head.counter < self._expected + FURTHEST:
            if head.counter < self._expected:
                self._link.too_late(head.counter)
            return
        wrong = head.axes != len(self._axes) or head.auxiliary != self._n_channels
        try:
            state = datagrams.state_of(data, head)
        except Unreadable:
            wrong = True
        if wrong:
            self._link.counts[GARBAGE] += 1
        elif head.counter in self._ahead:
            self._link.too_late(head.counter)
        else:
            self._ahead[head.counter] = state

    def _hear(self, head: Head) -> None:
        if not self.in_lockstep:
            self._needed[head.counter + 1 - head.heard] += 1
        if head.interlock == INTERLOCK_OPEN:
            self.interlock = self.interlock or interlocked(self._kind)
        elif head.state >= datagrams.BRAKING and not self._closed:
            self.interlock = self.interlock or stopped(self._kind, head.reason)

    def _filled(self) -> RigState:
        self._link.lose(self._expected)
        after = self._ahead[min(self._ahead)]
        return datagrams.between(self._state or after, after, self._expected)

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        patience = self._params.longest_wait if self.in_lockstep else self._params.silence
        if (self.in_lockstep or not self._expected) and now - self._sent_at > AGAIN_S:
            self._sent_at = now
            self._transport.send(self._last)
        if now - self._heard_at > patience:
            self.interlock = silent(self.address, patience)

    def wait(self, seconds: float) -> None:
        if not self._complete and not self._silent and not self._ahead:
            self._transport.wait(seconds)

    def read(self) -> Measurement:
        while not self.ready():
            self.wait(AGAIN_S)
        state, k = self._state, self._expected
        if self._silent or state is None:
            unknown = np.full(len(self._axes), np.nan)
            channels = np.full(len(self.auxiliary_names), np.nan)
            return Measurement(k, unknown, unknown, self._sent.unreported, channels, FLAG_BRIDGED)
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
        command = self._sent.applied(state)
        return Measurement(
            k,
            state.displacement,
            state.force,
            command,
            channels,
            flags,
            state.modes,
            head.hydraulics,
            head.interlock,
        )

    def truth(self) -> None: ...

    def numbers(self) -> dict[str, float]:
        counts = {"bridged": self._bridged, "limited": self._limited, **self._link.counts}
        return numbers_of(counts, self.transport_samples, self._needed)

    @property
    def active_command(self) -> Array:
        """Last reported active command; see :meth:`SentCommands.places`."""
        return self._sent.command.copy() if self._state is None else self._sent.places(self._state).copy()

    def safe(self) -> None:
        """Make the receiver brake and hold. After :meth:`drop_heartbeat` the missing commands have this effect."""
        if not self._closed:
            self._closed = True
            for _ in range(0 if self._dropped else GOODBYES):
                self._link.send(self._of_kind(datagrams.CLOSE, self.sample))

    def close(self) -> None:
        self.safe()
        self._transport.close()


def agree(port: SessionPort, head: Head, answer: Answer, in_lockstep: bool) -> None:
    port.in_lockstep, port.can_warn = in_lockstep, bool(head.flags & datagrams.WARNING)
    port.build = f"{answer.build:016x}"
    port.stated = stated_of(answer, port.terms.gains)


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
