# SPDX-License-Identifier: Apache-2.0
"""Simulator: a port that simulates a rig and generates its own ticks."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError, show, unknown
from rths_nodes.core.kernels import Kernel
from rths_nodes.core.parameters import TestContext, integer, number, params, text, vector
from rths_nodes.core.protocols import OPENED, Rig
from rths_nodes.core.samples import (
    FLAG_SATURATED,
    FLAG_SLIPPED,
    HYDRAULICS_HIGH,
    HYDRAULICS_LOW,
    HYDRAULICS_NOT_TOLD,
    HYDRAULICS_OFF,
    INTERLOCK_CLOSED,
    INTERLOCK_NOT_TOLD,
    INTERLOCK_OPEN,
    MODE_DISPLACEMENT,
    MODE_FORCE,
    Array,
    Command,
    Measurement,
)
from rths_nodes.laboratory.force_control import CONTROLLER, ForceLoops
from rths_nodes.laboratory.ports.common import (
    TRIGGER_CHANNEL,
    Trigger,
    WarningPort,
    longest_wait_parameter,
    trigger_parameter,
)
from rths_nodes.laboratory.ports.watchdog import Watchdog
from rths_nodes.laboratory.sensors import (
    Noise,
    Output,
    SecondSensors,
    SensorPair,
    auxiliary_noise,
    converted,
    seats,
)

PRESSURES = {"off": HYDRAULICS_OFF, "low": HYDRAULICS_LOW, "high": HYDRAULICS_HIGH}

SETTLING = 1.0 / 36.6
"""Time constant T of a controller's loop, s, as in ``servo_hydraulic`` (Chen & Ricles 2010)."""
WALK, REST = 1.0, 1.0
"""Durations, s, of the motion to the start position (``WALK``) and of the rest before sample 0 (``REST``)."""


class Drive:
    """Moves the actuators of all axes according to the active commands.

    ``dt`` is the period (s), and ``low_velocity`` the largest velocity at low pressure (m/s). Controller i, with
    the active command c_i, is cabled to one actuator and moves this actuator to the position scale c_i + offset.
    A loop with the static stiffness K_i reduces the position by z_i, where z_i' = (F / K_i - z_i) / T. F is the
    force of this actuator, and T is ``SETTLING``. After a reversal, the command crosses the play before the
    actuator moves. No actuator moves without pressure or with an open interlock. Raises ConfigError if two
    commands are cabled to one actuator.
    """

    def __init__(self, outputs: Mapping[str, Output], dt: float, low_velocity: float) -> None:
        names, taken = list(outputs), dict[str, str]()
        for name, output in outputs.items():
            driven = output.cabled_to or name
            if driven in taken:
                guilty, other = (name, taken[driven]) if output.cabled_to else (taken[driven], name)
                raise ConfigError(
                    f"axes.{guilty}.output.cabled_to = {show(driven)}: the command of axes.{other} drives the "
                    "same actuator. Swap both cables"
                )
            taken[driven] = name
        self._places = [names.index(driven) for driven in taken]
        self._rows = [
            (
                output.scale,
                output.offset,
                1.0 / output.static_stiffness if output.static_stiffness else 0.0,
                0.5 * output.lost_motion,
            )
            for output in outputs.values()
        ]
        self._rest = np.array([0.0 - output.offset / output.scale for output in outputs.values()])
        starts = [output.start for output in outputs.values()]
        self.start = np.array([rest if one is None else one for one, rest in zip(starts, self._rest, strict=True)])
        self._dt, self._share = dt, -math.expm1(-dt / SETTLING)
        self._slowest = low_velocity * dt
        self.reset()

    def reset(self) -> None:
        self._short = [0.0] * len(self._rows)
        self._led = [0.0] * len(self._rows)

    def continue_from(self, led: Sequence[float]) -> None:
        self._led = list(led)

    def walk(self) -> Iterator[Array]:
        if (self.start == self._rest).all():
            return
        for step in range(1, round((WALK + REST) / self._dt) + 1):
            share = 0.5 - 0.5 * math.cos(math.pi * min(step * self._dt / WALK, 1.0))
            yield self._rest + share * (self.start - self._rest)

    def led(self, command: Sequence[float], force: Sequence[float], hydraulics: int, stopped: bool) -> list[float]:
        """Return the next positions (m) of all actuators for the active ``command`` (m) and last ``force`` (N)."""
        before, after = self._led, list(self._led)
        rows = zip(command, self._places, self._rows, strict=True)
        for i, (active, position, (scale, offset, compliance, play)) in enumerate(rows):
            if compliance:
                self._short[i] += self._share * (compliance * force[position] - self._short[i])
            wanted = scale * active + offset - self._short[i]
            after[position] = min(max(before[position], wanted - play), wanted + play) if play else wanted
        if stopped or hydraulics == HYDRAULICS_OFF:
            after = before
        elif hydraulics == HYDRAULICS_LOW:
            most = self._slowest
            after = [old + min(max(new - old, -most), most) for old, new in zip(before, after, strict=True)]
        self._led = after
        return after


class Parts(NamedTuple):
    """Components of a simulator that a compiled loop can run.

    ``auxiliary`` is the noise of the auxiliary channels. ``converters`` holds (resolution, range) per command.
    ``transport`` is the transport delay in samples.
    """

    rig: Rig
    sensors: Sequence[SensorPair]
    auxiliary: Noise
    converters: Sequence[tuple[float, float]]
    transport: int


class Simulator(WarningPort):
    """Virtual rig with sensors: an actuator and a specimen per axis, or a ``rig`` with coupled axes.

    The force loops of the virtual controller use measured forces, and act after the transport delay.
    """

    @params
    class Params:
        builds_axes: ClassVar[bool] = True
        can_be_switched: ClassVar[bool] = True
        carries_force: ClassVar[bool] = True
        transport_samples: int = integer(
            "number of samples after which a command takes effect: 0 in most papers, at least 1 on a real rig",
            default=0,
            at_least=0,
            at_most=1000,
        )
        longest_wait: float = longest_wait_parameter()
        watchdog: float | None = number(
            "real time without a command after which the port itself holds the rig; default: no watchdog",
            "s",
            None,
            at_least=0.01,
            at_most=10.0,
        )
        auxiliary_noise_rms: tuple[float, ...] | None = vector(
            "rms of the noise of each auxiliary channel of the rig; default: no noise",
            "m/s^2 or m or N",
            None,
            at_least=0.0,
        )
        hydraulics: str | None = text(
            "pressure at the start; no actuator moves without pressure; default: full pressure, which is not "
            "reported",
            None,
            tuple(PRESSURES),
        )
        low_velocity: float = number(
            "largest velocity of the actuators at low pressure", "m/s", 0.01, more_than=0.0, at_most=1e3
        )
        interlock: str | None = text(
            "state of the interlock at the start; no actuator moves while it is open; default: no interlock",
            None,
            ("closed", "open"),
        )
        trigger: bool = trigger_parameter()

        def fits(self, test: TestContext) -> None:
            if self.watchdog is not None and self.watchdog < 2.0 * test.dt:
                raise ConfigError(
                    f"watchdog = {self.watchdog:g} s: must be >= {2.0 * test.dt:g} s, two servo periods"
                )

    simulated = True
    build = ""
    stated = ear = None
    partial_stop: str
    trigger: Trigger

    def __init__(
        self, params: Params, axes: Mapping[str, Any], dt: float, seed: int, rig: Rig | None = None
    ) -> None:
        self.transport_samples = params.transport_samples
        self._limit = params.watchdog
        self._watchdog: Watchdog | None = None
        self._rig: Rig = SeparateAxes(axes, dt) if rig is None else rig
        self.external = self._rig.external
        self._auxiliary = auxiliary_noise(params.auxiliary_noise_rms, self._rig.auxiliary_names, seed)
        sensors = {name: axis.sensors for name, axis in axes.items()}
        self._sensors = [SensorPair(sensor, seed, name, dt) for name, sensor in sensors.items()]
        self._second = SecondSensors(sensors, seed)
        self.trigger = Trigger(params.trigger)
        shown = (TRIGGER_CHANNEL,) if params.trigger else ()
        self.auxiliary_names = (*self._rig.auxiliary_names, *self._second.names, *shown)
        self.auxiliary_inputs = self._rig.auxiliary_inputs
        self._seats = seats(sensors)
        self._seated = list(zip(self._sensors, self._seats or range(len(axes)), strict=True))
        outputs = {name: axis.output for name, axis in axes.items()}
        self._outputs = [output.converter for output in outputs.values()]
        self._converts = any(output.converts for output in outputs.values())
        self._drive = Drive(outputs, dt, params.low_velocity)
        self._loops = ForceLoops(axes, CONTROLLER, dt) or None
        self._astray = any(output.wrong() for output in outputs.values())
        self._at_start = (
            PRESSURES.get(params.hydraulics or "", HYDRAULICS_NOT_TOLD),
            {None: INTERLOCK_NOT_TOLD, "closed": INTERLOCK_CLOSED, "open": INTERLOCK_OPEN}[params.interlock],
        )
        self.control_mode = bytes([MODE_DISPLACEMENT]) * len(axes)
        self._rest(None)

    def open(self, pacer: Callable[[], int] | None = None) -> None:
        if self.external:
            self._rig.open()
        self._rest(pacer, walk=True)

    def _rest(self, pacer: Callable[[], int] | None, walk: bool = False) -> None:
        self._pacer = pacer
        parts: list[Any] = [self._rig, *self._sensors, self._auxiliary, self._second, self._drive]
        for part in parts:
            part.reset()
        self.perfect = all(pair.perfect for pair in self._sensors) and not self._seats
        self.hydraulics, self._interlock = HYDRAULICS_HIGH, INTERLOCK_CLOSED
        none = np.zeros(len(self.auxiliary_inputs))
        self._places, self._forces = self._rig.displacement.tolist(), self._rig.force.tolist()
        for command in self._drive.walk() if walk else ():
            self._lead(command.tolist(), none)
        self.hydraulics, self._interlock = self._at_start
        self._driven = self._astray or self._at_start != (HYDRAULICS_NOT_TOLD, INTERLOCK_NOT_TOLD)
        wrong = self._driven or self._seats or self._loops is not None
        unlike = bool(wrong or self._second.names or self.trigger.wired)
        converters = self._outputs if self._converts else []
        arguments = self._rig, self._sensors, self._auxiliary, converters, self.transport_samples
        self.parts = None if unlike else Parts(*arguments)
        start = self._drive.start
        self._line = deque([(start.tolist(), np.zeros(len(none))) for _ in range(self.transport_samples)])
        self.trigger.set(False)
        self._triggers = deque([False] * self.transport_samples)
        self.partial_stop = ""
        if self._loops is not None:
            self._loops.start(start)
            self.control_mode = self._loops.modes
            self._under_way = deque(Command(0, start.copy(), start.copy()) for _ in range(self.transport_samples))
        self.sample = self.heartbeat = 0
        self._flags = 0
        self._high = False
        self.interlock = OPENED if self._interlock == INTERLOCK_OPEN else ""
        self._command: list[float] = start.tolist()
        self._last, self._applied = self._command, start.copy()
        self._look()

    @property
    def active_command(self) -> Array:
        return np.array(self._command if self._loops is None else self._last)

    def set_hydraulics(self, pressure: str) -> None:
        if pressure not in PRESSURES:
            raise unknown("hydraulics", "pressure", pressure, PRESSURES)
        self._take_over()
        self.hydraulics = PRESSURES[pressure]

    def set_interlock(self, closed: bool) -> None:
        self._take_over()
        self._interlock = INTERLOCK_CLOSED if closed else INTERLOCK_OPEN
        if not closed:
            self.interlock = self.interlock or OPENED
        elif self.interlock == OPENED:
            self.interlock = ""

    def _take_over(self) -> None:
        if not self._driven:
            self._drive.continue_from(self._last)
            self._driven = True

    @property
    def failure(self) -> str:
        return self._rig.failure

    def begin(self) -> None: ...

    def ready(self) -> bool:
        return True

    def arm_watchdog(self) -> None:
        if self._limit is not None:
            self._watchdog = Watchdog(self._limit)

    def disarm_watchdog(self) -> None:
        if self._watchdog is not None:
            self._watchdog.end()
            self._watchdog = None

    def wait_tick(self) -> int:
        self.sample += 1
        missed = self._pacer() if self._pacer else 0
        self._flags = FLAG_SLIPPED if missed else 0
        return self.sample

    def write(self, command: Command) -> None:
        if self._watchdog is not None:
            taken_over = self._watchdog.beat()
            self.interlock = self.interlock or taken_over
        if not self.interlock:  # the rig does not move while ``interlock`` states a reason
            self._command, self._applied = command.command.tolist(), command.command.copy()
            if self._converts:
                self._convert(command.control_mode)
        # commands sent while the interlock is open take effect once it is closed again
        opened = self._interlock == INTERLOCK_OPEN
        driven, auxiliary = command.command.tolist() if opened else self._command, command.auxiliary
        if self.transport_samples:
            self._line.append((driven, auxiliary))
            driven, auxiliary = self._line.popleft()
        if self.trigger.wired:
            self._triggers.append(self.trigger.high)
            self._high = self._triggers.popleft()
        if self._loops is not None:
            self._under_way.append(replace(command, target=command.target.copy(), command=self._applied))
            acting = self._under_way.popleft()
            if not self.interlock:
                self._last = self._loops.led(acting, self._shown_forces).tolist()
            driven = self._last
            self.control_mode, self.partial_stop = self._loops.modes, self._loops.breach
        if self._driven:
            self._lead(driven, auxiliary)
        else:
            self._last = driven
            self._places, self._forces = self._rig.follow(driven, auxiliary)
        self._look()
        self.heartbeat = command.sample

    def _lead(self, command: list[float], auxiliary: Array) -> None:
        stopped = self._interlock == INTERLOCK_OPEN
        led = self._drive.led(command, self._forces, self.hydraulics, stopped)
        self._places, self._forces = self._rig.follow(led, auxiliary)

    def _convert(self, modes: bytes) -> None:
        for index, (output, value) in enumerate(zip(self._outputs, self._command, strict=True)):
            if modes and modes[index] == MODE_FORCE:
                continue
            resolution, limit = output
            sent = self._command[index] = self._applied[index] = converted(value, resolution, limit)
            if abs(sent) >= limit:
                self._flags |= FLAG_SATURATED

    def _look(self) -> None:
        if self.perfect:
            self._shown, self._shown_forces = self._places, self._forces
        else:
            places, forces, shown, shown_forces = self._places, self._forces, [], []
            for pair, seat in self._seated:
                displacement, force = pair.measure(places[seat], forces[seat])
                shown.append(displacement)
                shown_forces.append(force)
                if pair.saturated:
                    self._flags |= FLAG_SATURATED
            self._shown, self._shown_forces = shown, shown_forces
        true = self._rig.auxiliary
        self._channels = true + self._auxiliary.row() if self._auxiliary.any else true
        if self._second.names:
            second = self._second.measure(self._second.true(self._places))
            self._channels = np.concatenate([self._channels, second])

    def resume(self, sample: int, line: Iterable[tuple[list[float], Array]]) -> None:
        self.sample, self._line = sample, deque(line)
        for pair in self._sensors:
            pair.resume(sample)
        self._auxiliary.resume(sample)

    def read(self) -> Measurement:
        return self._measurement(self._shown, self._shown_forces, self._channels)

    def truth(self) -> Measurement:
        channels = self._rig.auxiliary
        if self._second.names:
            channels = np.concatenate([channels, self._second.true(self._places)])
        return self._measurement(self._places, self._forces, channels)

    def _measurement(self, displacement: list[float], force: list[float], channels: Array) -> Measurement:
        if self.trigger.wired:
            channels = np.append(channels, float(self._high))
        return Measurement(
            self.sample,
            np.array(displacement),
            np.array(force),
            self._applied,
            channels,
            self._flags,
            self.control_mode,
            self.hydraulics,
            self._interlock,
        )

    def safe(self) -> None: ...

    def close(self) -> None:
        self.disarm_watchdog()
        if self.external:
            self._rig.close()


class SeparateAxes(Rig):
    def __init__(self, axes: Mapping[str, Any], dt: float) -> None:
        actuators = [
            registry.build("actuator", axis.actuator, dt, registry.build("specimen", axis.specimen))
            for axis in axes.values()
        ]
        self.axes: list[tuple[Kernel, object]] = [actuator.bound() for actuator in actuators]
        self.reset()

    def reset(self) -> None:
        self.states = [kernel.rest(constants) for kernel, constants in self.axes]
        self.displacement, self.velocity, self.force = np.zeros((3, len(self.axes)))

    def step(self, command: Array, auxiliary: Array) -> None:
        places, forces = self.follow(command.tolist(), auxiliary)
        self.displacement, self.velocity, self.force = map(np.array, (places, self._rates, forces))

    def follow(self, command: list[float], auxiliary: Array) -> tuple[list[float], list[float]]:
        states, places, rates, forces = self.states, [], [], []
        for index, ((_, _, step), constants) in enumerate(self.axes):
            states[index], (displacement, rate, force) = step(constants, states[index], command[index])
            places.append(displacement)
            rates.append(rate)
            forces.append(force)
        self._rates = rates
        return places, forces
