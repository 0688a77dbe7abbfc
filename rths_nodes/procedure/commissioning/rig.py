# SPDX-License-Identifier: Apache-2.0
"""A rig under commissioning, without a specimen: its sessions, its operator, and motions to be stopped.

Commands are not checked, because some exceed a limit on purpose to test the far end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np

from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.core.port_readings import FarEnd, why_opened
from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import HYDRAULICS_OFF, Array, Command, Measurement
from rths_nodes.laboratory.calibration import Calibration, channels_of
from rths_nodes.loop.pacing import Pacer, pacer_of
from rths_nodes.loop.realtime import real_time
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.drive import awaited, warning_of
from rths_nodes.procedure.motions import accelerations, bounded_ramp

BRAKING_SAMPLES = 8.0
"""Braking time of the slower motion, samples. It suffices to detect half or double the stated deceleration."""
CONSTANT_S, FAST_CONSTANT = 0.2, 48
"""Duration of constant velocity, in which a stop must begin: CONSTANT_S (s) for the slower motion, FAST_CONSTANT
(samples) for the fast motion."""
SHARE_OF_STROKE, SHARE_OF_VELOCITY = 0.5, 0.5
"""Largest fractions of stroke and velocity limit that the slower motion uses."""
FAST_STROKE, FAST_VELOCITY, FAST_ERROR = 1.0, 0.95, 0.5
"""Largest travel, velocity and tracking error of the fast motion, as fractions of the limits."""
FASTER = 1.2
"""Smallest ratio of the velocities of the fast and the slower motion."""
MIDDLE = 0.25
"""Largest permitted distance of the first position from mid-stroke, as a fraction of the stroke."""
REST_S = 0.2
"""Settling time of a free axis, s."""
FREE = 0.05
"""Velocity of a free axis over long distances, as a fraction of the velocity limit."""
AT_HOME = 1e-9
"""Smallest significant distance from home, m."""
FINEST = 1e-6
"""Smallest distance that the rows of the report distinguish, m."""
AGAIN_S, PATIENCE_S = 0.1, 10.0
"""Retry interval and timeout for opening a session, s."""

T = TypeVar("T")


class Refused(RuntimeError):
    """The rig is not free, or it moves or stops by itself. The commissioning ends."""


class TooEarly(RuntimeError):
    """The operator acted before the axes moved. The trial is repeated."""


@dataclass(frozen=True)
class Row:
    """Sample of the rig: commands and displacement (m), force (N), and the reason if the far end ``stopped``."""

    sample: int
    sent: Array
    active: Array
    displacement: Array
    force: Array
    stopped: str
    hydraulics: int


class FreeRig:
    """Drives the rig of ``scenario`` at ``port``; :attr:`rows` contains all samples since :meth:`open`.

    Raises Refused if a force changes by more than a small move permits, or if the far end stops by itself although
    ``awaits_stop`` is false.
    """

    awaits_stop = False

    def __init__(self, port: Port, scenario: Scenario, realtime: bool) -> None:
        self.port, self.scenario, self.realtime = port, scenario, realtime
        self.names = tuple(scenario.axes)
        small = [axis.rig_axis.small_move for axis in scenario.axes.values()]  # type: ignore[union-attr]
        self.way = np.array([move.displacement for move in small])  # type: ignore[union-attr]
        self.velocity = np.array([move.velocity for move in small])  # type: ignore[union-attr]
        self._force = np.array([move.force for move in small])  # type: ignore[union-attr]
        most = np.array([limits.velocity for limits in scenario.limits.values()])
        self.free_velocity = np.maximum(self.velocity, FREE * most)
        """Velocity over long distances, m/s."""
        self.rows: list[Row] = []
        self._passive = np.zeros(len(port.auxiliary_inputs))
        self._open = False

    def open(self) -> None:
        port, follows = self.port, self.port.follows_rig
        port.accept_any_start()
        pace: Pacer | None = None
        if self.realtime:
            pace = pacer_of(self.scenario.dt, 1, self.scenario.port.transport_samples if follows else None)
        port.open(pace)
        self._open = True
        port.begin()
        first = awaited(port, time.sleep, True)
        self.rows = []
        active = port.active_command
        self.command = first.displacement.copy() if active is None else np.array(active, float)
        self._free = first.force
        if pace is not None:
            port.arm_watchdog()
            pace.start()
        self._keep(first)

    def close(self) -> None:
        """Close the port. The far end brakes and holds."""
        if self._open:
            self._open = False
            try:
                self.port.disarm_watchdog()
                self.port.safe()
            finally:
                self.port.close()

    def stated(self) -> FarEnd:
        """Return the limits that the far end states; if it states none, return the limits of the rig file."""
        if self.port.stated is not None:
            return self.port.stated
        rows = [
            (axis.stroke, axis.velocity, axis.deceleration, axis.force) for axis in self.scenario.limits.values()
        ]
        bridged = max(1, self.scenario.bridge.longest(self.scenario.dt))
        stroke, velocity, deceleration, force = np.array(rows).T
        return FarEnd(stroke, velocity, deceleration, force, np.full(len(self.names), np.inf), bridged, bridged)

    def tick(self, command: Array | None = None) -> Row:
        """Send ``command`` ``(n_axes,)`` m, by default the last command, and return the sample."""
        wanted = self.command if command is None else command
        sample = self.port.wait_tick()
        self.port.write(Command(sample, wanted, wanted, self._passive))
        self.command = np.array(wanted, float)
        return self._keep(awaited(self.port, time.sleep, True))

    def _keep(self, measured: Measurement) -> Row:
        port, active = self.port, self.port.active_command
        row = Row(
            measured.sample,
            self.command,
            measured.command.copy() if active is None else np.array(active),
            measured.displacement,
            measured.force,
            why_opened(port, measured),
            port.hydraulics,
        )
        self.rows.append(row)
        if row.stopped and not self.awaits_stop:
            raise Refused(f"the rig has stopped by itself: {row.stopped}")
        if reason := self.obstacle(row.force - self._free):
            raise Refused(reason)
        return row

    def obstacle(self, change: Array) -> str:
        """Return the reason if a ``change`` of force ``(n_axes,)`` N shows an obstacle, or an empty string."""
        size = np.abs(change)
        if (size <= self._force).all():
            return ""
        axis = int(np.argmax(size / self._force))
        return (
            f"axes.{self.names[axis]}: the force has changed by {size[axis] * 1e-3:.3g} kN but may change by "
            f"{self._force[axis] * 1e-3:.3g} kN at most (small_move.force). A specimen is mounted, or an "
            "obstacle is in the way"
        )

    def ramp(self, goal: Array, velocity: Array) -> None:
        for _ in self.ramped(goal, velocity):
            pass

    def ramped(self, goal: Array, velocity: Array) -> Iterator[Row]:
        """Move to ``goal`` ``(n_axes,)`` m at up to ``velocity`` m/s. Yield every sample."""
        most = accelerations(self.scenario.limits)
        for wanted in bounded_ramp(self.command, goal, velocity, most, self.scenario.dt):
            yield self.tick(wanted)

    def hold(self, seconds: float) -> list[Row]:
        return [self.tick() for _ in range(self.samples(seconds))]

    def warn(self) -> None:
        """Hold the rig with its warning output on, for the warning time. Do nothing if there is no such output."""
        if (section := warning_of(self.scenario, self.port)) is None:
            return
        self.port.warn(True)
        try:
            self.hold(section.seconds)
        finally:
            self.port.warn(False)

    def samples(self, seconds: float) -> int:
        return max(8, round(seconds / self.scenario.dt))


def to_and_fro(rig: FreeRig, seconds: float) -> Iterator[Row]:
    """Move all axes slowly out and back by small moves, for ``seconds`` of rig time; yield every sample."""
    start = rig.command
    rig.awaits_stop = True
    end, out = len(rig.rows) + rig.samples(seconds), True
    while len(rig.rows) < end:
        yield from rig.ramped(start + rig.way if out else start, rig.velocity)
        out = not out


class Operator(Protocol):
    def ready(self, words: str, moves: bool = False) -> None:
        """Announce the next step and wait for the operator; if the step ``moves`` the rig, wait for CLEAR."""
        ...

    def meanwhile(self, words: str, tick: Callable[[], object], moves: bool = False) -> None:
        """Wait as :meth:`ready` does. Until the operator is ready, call ``tick``, which holds the rig."""
        ...

    def again(self, words: str) -> bool: ...

    def witness(self, statement: str) -> bool: ...


@dataclass
class Bench:
    """Rig of ``scenario`` without a specimen. ``patience`` is the timeout for an action of the operator, s.

    ``home``, ``(n_axes,)`` m, is the position at the start of the first session. Each session returns to it.
    """

    scenario: Scenario
    realtime: bool
    operator: Operator
    patience: float = 60.0
    home: Array | None = None
    build: str = ""
    """Build of the receiver; an empty string before the first session."""
    fast: Dash | None = None
    """Motion for the fast trials; None if the limits allow none, or if an earlier stop failed or was not tried."""

    @property
    def dt(self) -> float:
        return self.scenario.dt

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.scenario.axes)

    @property
    def transport(self) -> int:
        return int(self.scenario.port.transport_samples)

    @property
    def resolution(self) -> Array:
        """Resolution of the commands, ``(n_axes,)`` m."""
        axes = [axis.rig_axis for axis in self.scenario.axes.values()]
        return np.array([axis.command.resolution * axis.command.unit_si for axis in axes])  # type: ignore[union-attr]

    @property
    def calibration(self) -> Calibration:
        port = Assembly(self.scenario).port
        auxiliary = self.scenario.rig_file.auxiliary if self.scenario.rig_file is not None else {}
        return Calibration(self.scenario.axes, channels_of(port.auxiliary_names, auxiliary))

    def rig(self) -> FreeRig:
        return FreeRig(Assembly(self.scenario).port, self.scenario, self.realtime)

    @contextmanager
    def opened(self) -> Iterator[FreeRig]:
        """Context of a session that begins with the rig at home.

        Raises ConfigError if the session cannot be opened.
        """
        rig = self.rig()
        with real_time(self.realtime):
            self.opening(rig.port.simulated, rig.open)
            try:
                self.build = rig.port.build
                warning_of(self.scenario, rig.port)
                self.go_home(rig)
                yield rig
            finally:
                rig.close()

    def clear(self, rig: FreeRig, motion: str) -> None:
        self.operator.meanwhile(motion, rig.tick, moves=True)
        rig.warn()

    def go_home(self, rig: FreeRig) -> None:
        if self.home is None:
            _check_middle(rig)
            self.home = rig.command
        if (np.abs(self.home - rig.command) > np.maximum(self.resolution, AT_HOME)).any():
            far = np.abs(self.home - rig.command) > rig.way
            velocities = np.where(far, rig.free_velocity, rig.velocity)
            ways = self.ways(self.home - rig.command, velocities)
            self.clear(rig, f"all axes move back to their first position: {ways}")
            rig.ramp(self.home, velocities)
            rig.hold(REST_S)

    def finest(self, index: int) -> float:
        return max(float(self.resolution[index]), FINEST)

    def speed(self, index: int, velocity: float) -> str:
        limit = list(self.scenario.limits.values())[index].velocity
        share = f"{100.0 * abs(velocity) / limit:.2g} % of the limit"
        slow = abs(velocity) < 1e-2
        return f"{1e3 * abs(velocity):.3g} mm/s ({share})" if slow else f"{abs(velocity):.3g} m/s ({share})"

    def ways(self, distances: Array, velocities: Array, up_to: str = "") -> str:
        rows = zip(self.names, distances.tolist(), velocities.tolist(), strict=True)
        return ", ".join(f"{name} {up_to}{1e3 * way:.3g} mm at {1e3 * v:.4g} mm/s" for name, way, v in rows)

    def moving_soon(self, rig: FreeRig, words: str) -> None:
        """Begin a motion during which the operator acts. Raises TooEarly if the operator has already acted."""
        rig.awaits_stop = True
        try:
            self.clear(rig, words)
        except PortError as error:
            raise TooEarly from error
        last = rig.rows[-1]
        if last.stopped or last.hydraulics == HYDRAULICS_OFF:
            raise TooEarly

    def opening(self, emulated: bool, attempt: Callable[[], T]) -> T:
        """Return the result of ``attempt``.

        If ``attempt`` fails, retry if the rig is ``emulated``; otherwise ask the operator.
        """
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                return attempt()
            except ConfigError as error:
                if emulated and time.monotonic() < end:
                    time.sleep(AGAIN_S)
                elif emulated or not self.operator.again(str(error)):
                    raise


def _check_middle(rig: FreeRig) -> None:
    for name, command, limits in zip(rig.names, rig.command, rig.scenario.limits.values(), strict=True):
        if not abs(command) <= MIDDLE * limits.stroke:
            room = 1e3 * MIDDLE * limits.stroke
            raise Refused(
                f"axes.{name}: position = {1e3 * command:.4g} mm: must be within +- {room:.4g} mm, near the "
                "middle of its stroke"
            )


@dataclass(frozen=True)
class Dash:
    """Motion of all axes: ``velocity`` ``(n_axes,)`` m/s from sample ``rising`` to ``until``, then braking.

    The motion begins at the current position, or at ``start`` ``(n_axes,)`` m.
    """

    velocity: Array
    rising: int
    until: int
    dt: float
    start: Array | None = None

    @classmethod
    def resolving(cls, scenario: Scenario, bridged: int) -> Dash:
        """Return a motion that brakes for BRAKING_SAMPLES.

        It brakes for fewer samples if the stroke or the velocity limit requires this.
        """
        limits, dt = scenario.limits.values(), scenario.dt
        constant = max(32, round(CONSTANT_S / dt))
        braking = BRAKING_SAMPLES
        for axis in limits:
            step = axis.deceleration * dt
            braking = min(braking, SHARE_OF_VELOCITY * axis.velocity / step)
            while braking * step * dt * (constant + bridged + 3.0 * braking) > SHARE_OF_STROKE * axis.stroke:
                braking *= 0.9
        velocity = np.array([braking * axis.deceleration * dt for axis in limits])
        return cls._of(velocity, braking, constant, dt)

    @classmethod
    def fastest(cls, scenario: Scenario, stated: FarEnd, lag: Array) -> Dash | None:
        """Return the fastest motion within the limits, or None if it is not much faster than :meth:`resolving`.

        ``lag`` ``(n_axes,)`` s is the delay from the commands to the axes.
        """
        limits, dt = scenario.limits.values(), scenario.dt
        errors = [np.inf if axis.tracking_error is None else axis.tracking_error for axis in limits]
        velocity = np.minimum(
            FAST_VELOCITY * np.minimum(stated.velocity, [axis.velocity for axis in limits]),
            FAST_ERROR * np.minimum(stated.error, errors) / np.maximum(lag, dt),
        )
        step = np.array([axis.deceleration for axis in limits]) * dt
        stroke = FAST_STROKE * np.minimum(stated.stroke, [axis.stroke for axis in limits])
        constant = FAST_CONSTANT + stated.bridged
        while (velocity * dt * (constant + 2.0 * (velocity / step).max() + velocity / step) > stroke).any():
            velocity = 0.98 * velocity
        if (velocity < FASTER * cls.resolving(scenario, stated.bridged).velocity).any():
            return None
        dash = cls._of(velocity, float((velocity / step).max()), FAST_CONSTANT, dt)
        return replace(dash, start=-0.5 * dash.way)

    @classmethod
    def _of(cls, velocity: Array, braking: float, constant: int, dt: float) -> Dash:
        rising = max(1, int(np.ceil(2.0 * braking)))
        return cls(velocity, rising, rising + constant, dt)

    @property
    def way(self) -> Array:
        return self.place(self.until + self.rising)

    def place(self, sample: int) -> Array:
        """Return the distance from the start at ``sample``, ``(n_axes,)`` m."""
        rise = self.rising
        up = min(sample, rise)
        steps = 0.5 * up * (up + 1) / rise + max(0, min(sample, self.until) - rise)
        down = max(0, min(sample - self.until, rise))
        steps += down - 0.5 * down * (down + 1) / rise
        return np.asarray(steps * self.velocity * self.dt)
