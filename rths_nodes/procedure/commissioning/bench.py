# SPDX-License-Identifier: Apache-2.0
"""Rig under commissioning and its operator: sessions, questions, and the motion that is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.core.samples import HYDRAULICS_OFF, Array
from rths_nodes.laboratory.calibration import Calibration, channels_of
from rths_nodes.loop.realtime import real_time
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.commissioning.free_rig import FreeRig, Refused, TooEarly
from rths_nodes.procedure.motions import positioning_velocities
from rths_nodes.procedure.warning import warning_of

BRAKING_SAMPLES = 8.0
"""Duration of the measured stops, samples: enough to distinguish half and double decelerations."""
CONSTANT_S = 0.2
"""Time of constant velocity in which a stop has to begin, s."""
SHARE_OF_STROKE, SHARE_OF_VELOCITY = 0.5, 0.5
"""Shares of the limits that this motion uses at most."""
MIDDLE = 0.25
"""Largest distance from the middle, as a share of the stroke: with the other half still within the limits."""
REST_S = 0.2
"""Settling time of a free axis, s."""
AT_HOME = 1e-9
"""Smallest distance from the first position that counts as one, m."""
AGAIN_S, PATIENCE_S = 0.1, 10.0
"""Retry interval and timeout, s: an emulator needs time between two sessions."""

T = TypeVar("T")


class Operator(Protocol):
    def ready(self, words: str, moves: bool = False) -> None:
        """State the next step and wait for the operator; if it ``moves`` the rig, for CLEAR."""
        ...

    def meanwhile(self, words: str, tick: Callable[[], object], moves: bool = False) -> None:
        """As :meth:`ready`, while ``tick`` holds the rig."""
        ...

    def again(self, words: str) -> bool: ...


@dataclass
class Bench:
    """Rig of ``scenario`` without a specimen; ``patience`` is the time for the operator to act, s.

    ``home`` ``(n_axes,)`` m is its position in the first session, to which each session returns.
    """

    scenario: Scenario
    realtime: bool
    operator: Operator
    patience: float = 60.0
    home: Array | None = None
    build: str = ""
    """Build of the receiver, after the first session."""

    @property
    def dt(self) -> float:
        """Sample period, s."""
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
        known = self.scenario.rig_file.auxiliary if self.scenario.rig_file is not None else {}
        return Calibration.of(self.scenario.axes, channels_of(port.auxiliary_names, known))

    def rig(self) -> FreeRig:
        return FreeRig(Assembly(self.scenario).port, self.scenario, self.realtime)

    @contextmanager
    def opened(self) -> Iterator[FreeRig]:
        """Open a session of the rig, at home. Raises ConfigError if the operator gives up on a failed one."""
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
        """State a motion, wait for the operator to clear it, and warn of it."""
        self.operator.meanwhile(motion, rig.tick, moves=True)
        rig.warn()

    def go_home(self, rig: FreeRig) -> None:
        """Move slowly to the position of the first session, once cleared."""
        if self.home is None:
            _check_middle(rig)
            self.home = rig.command
        if (np.abs(self.home - rig.command) > np.maximum(self.resolution, AT_HOME)).any():
            velocities = positioning_velocities(self.scenario)
            ways = self.ways(self.home - rig.command, velocities)
            self.clear(rig, f"all axes move back to their first position: {ways}")
            rig.ramp(self.home, velocities)
            rig.hold(REST_S)

    def ways(self, distances: Array, velocities: Array, up_to: str = "") -> str:
        """Return distance and largest speed of each axis, for the operator."""
        rows = zip(self.names, distances.tolist(), velocities.tolist(), strict=True)
        return ", ".join(f"{name} {up_to}{1e3 * way:.3g} mm at {1e3 * v:.3g} mm/s" for name, way, v in rows)

    def moving_soon(self, rig: FreeRig, words: str) -> None:
        """Begin a motion during which the operator acts. Raises TooEarly if the operator acted before it."""
        rig.awaits_stop = True
        try:
            self.clear(rig, words)
        except PortError as error:
            raise TooEarly from error
        last = rig.rows[-1]
        if last.stopped or last.hydraulics == HYDRAULICS_OFF:
            raise TooEarly

    def opening(self, emulated: bool, attempt: Callable[[], T]) -> T:
        """Return the result of ``attempt``; retry with an emulator for a time, otherwise ask the operator."""
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
    for name, place, limits in zip(rig.names, rig.command, rig.scenario.limits.values(), strict=True):
        if not abs(place) <= MIDDLE * limits.stroke:
            room = 1e3 * MIDDLE * limits.stroke
            raise Refused(
                f"axes.{name}: stands at {1e3 * place:.4g} mm: must be within +- {room:.4g} mm, near the middle "
                "of its stroke"
            )


@dataclass(frozen=True)
class Dash:
    """Motion of all axes to a constant ``velocity`` ``(n_axes,)`` m/s, and to rest unless stopped before.

    The velocity is constant from sample ``rising`` to sample ``until``.
    """

    velocity: Array
    rising: int
    until: int
    dt: float

    @classmethod
    def of(cls, scenario: Scenario, bridged: int) -> Dash:
        """Return a motion whose stop takes BRAKING_SAMPLES, within its shares of stroke and velocity."""
        limits, dt = scenario.limits.values(), scenario.dt
        constant = max(32, round(CONSTANT_S / dt))
        braking = BRAKING_SAMPLES
        for each in limits:
            step = each.deceleration * dt
            braking = min(braking, SHARE_OF_VELOCITY * each.velocity / step)
            while braking * step * dt * (constant + bridged + 3.0 * braking) > SHARE_OF_STROKE * each.stroke:
                braking *= 0.9
        rising = max(1, int(np.ceil(2.0 * braking)))
        velocity = np.array([braking * each.deceleration * dt for each in limits])
        return cls(velocity, rising, rising + constant, dt)

    @property
    def way(self) -> Array:
        """Distance from start to end, m."""
        return self.place(self.until + self.rising)

    def place(self, sample: int) -> Array:
        """Return the distance from the start at ``sample``, ``(n_axes,)`` m."""
        rise = self.rising
        up = min(sample, rise)
        steps = 0.5 * up * (up + 1) / rise + max(0, min(sample, self.until) - rise)
        down = max(0, min(sample - self.until, rise))
        steps += down - 0.5 * down * (down + 1) / rise
        return np.asarray(steps * self.velocity * self.dt)
