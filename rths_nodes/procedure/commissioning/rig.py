# SPDX-License-Identifier: Apache-2.0
"""Rig under commissioning, without a specimen: its sessions, its operator, and motions that end in a stop.

Commands are not checked, because some commands deliberately exceed a limit to test the far end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, repeat
from typing import Protocol, TypeVar

import numpy as np

from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.core.protocols import FarEnd, why_opened
from rths_nodes.core.samples import FLAG_BRIDGED, HYDRAULICS_OFF, Array, Command, Measurement
from rths_nodes.loop.pacing import pacer_of
from rths_nodes.loop.realtime import real_time
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.drive import awaited, warning_of
from rths_nodes.procedure.motions import accelerations, bounded_ramp

BRAKING_SAMPLES = 8.0
"""Braking time of the slower motion, samples; long enough to reveal half or double the stated deceleration."""
CONSTANT_S, FAST_CONSTANT = 0.2, 48
"""Duration of the constant velocity, during which a stop must begin: ``CONSTANT_S`` (s) in the slower motion,
``FAST_CONSTANT`` (samples) in the fast motion."""
FAST_VELOCITY, FAST_ERROR = 0.95, 0.5
"""Largest velocity (``FAST_VELOCITY``) and tracking error (``FAST_ERROR``) of the fast motion, as fractions of the
limits."""
REST_S = 0.2
"""Settling time of a free axis, s."""
AGAIN_S, PATIENCE_S, ATTEMPTS = 0.1, 10.0, 10
"""``AGAIN_S``, ``PATIENCE_S``: retry interval and timeout for opening a session, s. ``ATTEMPTS``: number of
premature operator actions after which the commissioning is aborted."""
STEADY = 16
"""Number of samples at constant velocity before a motion is stopped."""
HIGHEST = "from the highest speed"

T = TypeVar("T")


class Refused(RuntimeError):
    """Raised to end the commissioning if the rig is not free, or if it moves or stops by itself."""


@dataclass(frozen=True)
class Row:
    """Sample of the rig: ``sent`` and ``active`` commands (m); ``stopped`` is the reason for a stop, or empty."""

    sent: Array
    active: Array
    measured: Measurement
    stopped: str
    hydraulics: int


class Operator(Protocol):
    def ask(self, instruction: str, tick: Callable[[], object] | None = None, moves: bool = False) -> None:
        """Show an instruction and wait for an answer, which must be CLEAR if the next step ``moves`` the rig.

        Call ``tick`` repeatedly, to hold the rig, until the operator has answered.
        """
        ...

    def agrees(self, question: str) -> bool: ...


class Bench:
    """Rig of ``scenario`` without a specimen, in one session at a time.

    ``patience`` is the timeout for an action of the operator, s. ``home``, ``(n_axes,)`` m, is the position at the
    start of the first session, to which each session returns. ``rows`` contains all samples of this session.

    Raises Refused if a force changes by more than a small move permits, or if a displacement is not measured. Also
    raises Refused if the far end brakes because commands are missing, or stops while ``awaits_stop`` is false.
    """

    stated: FarEnd
    """Limits that the far end stated in the last session, or the limits of the rig file if it states none."""

    def __init__(self, scenario: Scenario, realtime: bool, operator: Operator, patience: float = 60.0) -> None:
        self.scenario, self.realtime, self.operator, self.patience = scenario, realtime, operator, patience
        self.names, self.limits = tuple(scenario.axes), list(scenario.limits.values())
        self.dt, self.transport = scenario.dt, int(scenario.port.transport_samples)
        self.axes = [axis.rig_axis for axis in scenario.axes.values() if axis.rig_axis is not None]
        small = [axis.small_move for axis in self.axes if axis.small_move is not None]
        self.way, self.velocity, self._force = np.array([(s.displacement, s.velocity, s.force) for s in small]).T
        rows = [(axis.stroke, axis.velocity, axis.deceleration, axis.force) for axis in self.limits]
        self.stroke, self.most, self.deceleration, force = np.array(rows).T
        """Stroke, velocity limit and deceleration in the rig file, ``(n_axes,)`` m, m/s and m/s^2."""
        self.free_velocity = np.maximum(self.velocity, 0.05 * self.most)
        """Velocity of motions longer than the small move, ``(n_axes,)`` m/s."""
        self.resolution = np.array([axis.command.step_si for axis in self.axes])
        """Resolution of the commands, ``(n_axes,)`` m."""
        self.finest = np.maximum(self.resolution, 1e-6)
        """Smallest distance that the report resolves, ``(n_axes,)`` m."""
        bridged, none = max(1, scenario.bridge.longest(self.dt)), np.full(len(self.axes), np.inf)
        self._declared = FarEnd(self.stroke, self.most, self.deceleration, force, none, bridged, bridged)
        self.home: Array | None = None
        self.build = ""
        """Build number of the receiver; empty before the first session."""
        self.fast: Dash | None = None
        """Motion for the fast trials; None if the limits do not permit it, or if an earlier stop failed or was not
        tried."""
        self.port, self.rows, self.awaits_stop = Assembly(scenario).port, list[Row](), False
        self._open = False

    @contextmanager
    def opened(self) -> Iterator[Bench]:
        """Context manager for a session that begins at ``home``. Raises ConfigError if it cannot be opened."""
        with real_time(self.realtime):
            try:
                self.port = Assembly(self.scenario).port
                self.opening(self.open)
                warning_of(self.scenario, self.port)
                self._go_home()
                yield self
            finally:
                self.close()

    def open(self) -> None:
        port = self.port
        port.accept_any_start()
        transport = self.scenario.port.transport_samples if port.follows_rig else None
        pace = pacer_of(self.dt, 1, transport) if self.realtime else None
        port.open(pace)
        self._open = True
        port.begin()
        first = awaited(port, time.sleep, True)
        active = port.active_command
        self.command = first.displacement.copy() if active is None else np.array(active, float)
        self.rows, self.awaits_stop, self._free, self._missed = [], False, first.force, 0
        self.build, self.stated = port.build, port.stated or self._declared
        if pace is not None:
            port.arm_watchdog()
            pace.start()
        self._keep(first)

    def close(self) -> None:
        """Close the port. The far end then brakes and holds the axes."""
        if self._open:
            self._open = False
            try:
                self.port.disarm_watchdog()
                self.port.safe()
            finally:
                self.port.close()

    def tick(self, command: Array | None = None) -> Row:
        """Send ``command`` ``(n_axes,)`` m, which defaults to the last command, and return the sample."""
        wanted = self.command if command is None else command
        sample = self.port.wait_tick()
        self.port.write(Command(sample, wanted, wanted, np.zeros(len(self.port.auxiliary_inputs))))
        self.command = np.array(wanted, float)
        return self._keep(awaited(self.port, time.sleep, True))

    def _keep(self, measured: Measurement) -> Row:
        port, active = self.port, self.port.active_command
        active = measured.command.copy() if active is None else np.array(active)
        row = Row(self.command, active, measured, why_opened(port, measured), port.hydraulics)
        self.rows.append(row)
        if row.stopped and not self.awaits_stop:
            raise Refused(f"the rig has stopped by itself: {row.stopped}")
        self._missed = self._missed + 1 if measured.flags & FLAG_BRIDGED else 0
        if self._missed > self.stated.bridged and (np.abs(self.command - active) > self.way).any():
            raise Refused(
                "no command has reached the rig in time, because this computer was suspended or is overloaded"
            )
        for name in np.array(self.names)[np.isnan(measured.displacement)]:
            raise Refused(f"axes.{name}: displacement = nan m: must be measured while the rig is driven")
        if reason := self.obstacle(measured.force - self._free):
            raise Refused(reason)
        return row

    def lag(self, row: Row) -> Array:
        """Return the absolute change of tracking error from the first sample to ``row``, ``(n_axes,)`` m."""
        first = self.rows[0]
        travel = row.measured.displacement - first.measured.displacement
        return np.abs(row.active - first.active - travel)

    def obstacle(self, change: Array) -> str:
        """Return a message if a ``change`` of force ``(n_axes,)`` N reveals an obstacle, or an empty string."""
        size = np.abs(change)
        if (size <= self._force).all():
            return ""
        axis = int(np.argmax(size / self._force))
        return (
            f"axes.{self.names[axis]}: the force has changed by {size[axis] * 1e-3:.3g} kN but may change by "
            f"{self._force[axis] * 1e-3:.3g} kN at most (small_move.force). A specimen is mounted, or an "
            "obstacle is in the way"
        )

    def path(self, start: Array, goal: Array, velocity: Array) -> Iterator[Array]:
        """Return the commands of a ramp from ``start`` to ``goal`` ``(n_axes,)`` m at up to ``velocity`` m/s."""
        return bounded_ramp(start, goal, velocity, accelerations(self.scenario.limits), self.dt)

    def ramped(self, goal: Array, velocity: Array) -> Iterator[Row]:
        return map(self.tick, self.path(self.command, goal, velocity))

    def ramp(self, goal: Array, velocity: Array) -> list[Row]:
        """Move to ``goal`` ``(n_axes,)`` m at up to ``velocity`` m/s, and return all samples until rest."""
        return [*self.ramped(goal, velocity), *self.hold(REST_S)]

    def hold(self, seconds: float) -> list[Row]:
        return [self.tick() for _ in range(self.samples(seconds))]

    def samples(self, seconds: float) -> int:
        return max(8, round(seconds / self.dt))

    def follow(self, seconds: float) -> None:
        """Send the rig's own active command for ``seconds`` s of rig time, so that nothing moves."""
        for _ in range(self.samples(seconds)):
            self.tick(self.rows[-1].active)

    def clear(self, motion: str) -> None:
        """Show ``motion`` and wait for CLEAR. If the rig has a warning output, then warn while the rig is held."""
        self.operator.ask(motion, self.tick, moves=True)
        self.warn()

    def warn(self) -> None:
        if (section := warning_of(self.scenario, self.port)) is None:
            return
        self.port.warn(True)
        try:
            self.hold(section.seconds)
        finally:
            self.port.warn(False)

    @contextmanager
    def acted(self, words: str, seen: Callable[[Row], str], loses_rig: bool = False) -> Iterator[str]:
        """Open a session in which the operator follows the instruction ``words`` while all axes move to and fro.

        Yield the first nonempty result of ``seen(row)``, or an empty string after a timeout. If ``loses_rig``,
        also accept a port error and yield its text. Repeat the session if the operator acts before the motion.
        """
        for _ in range(ATTEMPTS):
            with self.opened():
                if self._begins(words):
                    try:
                        reason = next(filter(None, map(seen, self._to_and_fro())), "")
                    except PortError as error:
                        if not loses_rig:
                            raise
                        reason = str(error)
                    yield reason
                    return
            self.operator.ask("you acted before the axes moved: undo the action, and repeat it while they move")
        raise Refused(f"the operator has acted {ATTEMPTS} times before the axes moved")

    def _begins(self, words: str) -> bool:
        self.awaits_stop, ways = True, self.ways(self.way, self.velocity)
        try:
            self.clear(f"all axes move to and fro for up to {self.patience:g} s: {ways}; {words}")
        except PortError:
            return False
        return not self.rows[-1].stopped and self.rows[-1].hydraulics != HYDRAULICS_OFF

    def _to_and_fro(self) -> Iterator[Row]:
        start, end, out = self.command, len(self.rows) + self.samples(self.patience), True
        while len(self.rows) < end:
            yield from self.ramped(start + self.way if out else start, self.velocity)
            out = not out

    def _go_home(self) -> None:
        if self.home is None:
            for name, command, room in zip(self.names, self.command, 0.25 * self.stroke, strict=True):
                if not abs(command) <= room:
                    raise Refused(
                        f"axes.{name}: position = {1e3 * command:.4g} mm: must be within +- {1e3 * room:.4g} mm, "
                        "near the middle of its stroke"
                    )
            self.home = self.command
        far = np.abs(self.home - self.command)
        if (far > self.finest).any():
            velocities = np.where(far > self.way, self.free_velocity, self.velocity)
            ways = self.ways(self.home - self.command, velocities)
            self.clear(f"all axes move back to their first position: {ways}")
            self.ramp(self.home, velocities)

    def opening(self, attempt: Callable[[], T]) -> T:
        """Return the result of ``attempt()``. If it fails, retry (emulated rig) or let the operator decide."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return attempt()
            except ConfigError as error:
                question = f"{error}. Begin a new session at the rig. Try again now?"
                if self.port.simulated and time.monotonic() < end:
                    time.sleep(AGAIN_S)
                elif self.port.simulated or not self.operator.agrees(question):
                    raise

    def speed(self, index: int, velocity: float) -> str:
        share = f"{100.0 * abs(velocity) / self.most[index]:.2g} % of the limit"
        slow = abs(velocity) < 1e-2
        return f"{1e3 * abs(velocity):.3g} mm/s ({share})" if slow else f"{abs(velocity):.3g} m/s ({share})"

    @property
    def slow(self) -> str:
        """Small-move velocity, as text, of the axis whose velocity is the smallest fraction of its limit."""
        index = int(np.argmin(self.velocity / self.most))
        return self.speed(index, float(self.velocity[index]))

    def ways(self, distances: Array, velocities: Array, up_to: str = "") -> str:
        rows = zip(self.names, distances.tolist(), velocities.tolist(), strict=True)
        return ", ".join(f"{name} {up_to}{1e3 * way:.3g} mm at {1e3 * v:.4g} mm/s" for name, way, v in rows)


@dataclass(frozen=True)
class Dash:
    """Motion of all axes, at ``velocity`` ``(n_axes,)`` m/s from sample ``rising`` to ``until``, then braking.

    The motion begins at ``start`` ``(n_axes,)`` m, or at the current position if ``start`` is None.
    """

    velocity: Array
    rising: int
    until: int
    dt: float
    start: Array | None = None

    @classmethod
    def resolving(cls, bench: Bench) -> Dash:
        """Return the slow motion, bounded by BRAKING_SAMPLES, half the stroke and half the velocity limit."""
        step, constant = bench.deceleration * bench.dt, max(32, round(CONSTANT_S / bench.dt))
        velocity = min(BRAKING_SAMPLES, float((0.5 * bench.most / step).min())) * step
        return cls._within(bench, velocity, constant, 0.5 * bench.stroke, 0.9)

    @classmethod
    def fastest(cls, bench: Bench, lag: Array) -> Dash | None:
        """Return the fastest motion within the limits, or None.

        The result is None if an axis would not be at least 1.2 times as fast as in :meth:`resolving`. ``lag``
        ``(n_axes,)`` s is the delay from the commands to the axes.
        """
        stated = bench.stated
        errors = [np.inf if axis.tracking_error is None else axis.tracking_error for axis in bench.limits]
        velocity = np.minimum(
            FAST_VELOCITY * np.minimum(stated.velocity, bench.most),
            FAST_ERROR * np.minimum(stated.error, errors) / np.maximum(lag, bench.dt),
        )
        dash = cls._within(bench, velocity, FAST_CONSTANT, np.minimum(stated.stroke, bench.stroke), 0.98)
        if (dash.velocity < 1.2 * cls.resolving(bench).velocity).any():
            return None
        return replace(dash, start=-0.5 * dash.way)

    @classmethod
    def _within(cls, bench: Bench, velocity: Array, constant: int, stroke: Array, factor: float) -> Dash:
        """Multiply ``velocity`` by ``factor`` until the motion fits ``stroke`` ``(n_axes,)`` m, and return it."""
        step, longest = bench.deceleration * bench.dt, constant + bench.stated.bridged
        while (velocity * bench.dt * (longest + (velocity / step).max() * 2.0 + velocity / step) > stroke).any():
            velocity = factor * velocity
        rising = max(1, math.ceil(2.0 * float((velocity / step).max()) - 1e-9))
        return cls(velocity, rising, rising + constant, bench.dt)

    @property
    def way(self) -> Array:
        return self.place(self.until + self.rising)

    def commands(self, bench: Bench, command: Array) -> Iterator[tuple[int, Array]]:
        """Yield number (0 during the motion to the start) and command ``(n_axes,)`` m of each sample."""
        if self.start is not None:
            path = bench.path(command, self.start, bench.free_velocity)
            command = self.start
            yield from ((0, wanted) for wanted in chain(path, repeat(command, bench.samples(REST_S))))
        for sample in range(1, self.until + self.rising + 1):
            yield sample, command + self.place(sample)

    @property
    def suffix(self) -> str:
        return "" if self.start is None else f", {HIGHEST}"

    def words(self, bench: Bench, then: str) -> str:
        """Return a description of the motion for the operator. ``then`` describes the end of the motion."""
        ways = bench.ways(self.way, self.velocity, "up to ")
        if self.start is None:
            return f"all axes move together: {ways}; {then}"
        starts = zip(bench.names, self.start.tolist(), strict=True)
        back = ", ".join(f"{name} to {1e3 * start:.3g} mm" for name, start in starts)
        return f"all axes move slowly back, {back}; then fast and together: {ways}; {then}"

    @cached_property
    def _sums(self) -> Array:
        k = np.arange(self.until + self.rising + 1)
        return np.cumsum(np.clip(np.minimum(k, self.until + self.rising - k) / self.rising, 0.0, 1.0))

    def place(self, sample: int) -> Array:
        """Return the distance from the start at sample number ``sample``, ``(n_axes,)`` m."""
        return np.asarray(self._sums[sample] * self.velocity * self.dt)
