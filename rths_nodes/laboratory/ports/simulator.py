"""The simulator: the port of a virtual rig.

The owner of the rig owns the tick: the simulator in a virtual test (paced by the computer's clock, or not at
all in lockstep), the servo-controller behind the port in a laboratory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.checks import TestContext
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import integer, number, params, vector
from rths_nodes.core.protocols import Rig
from rths_nodes.core.samples import (
    EMPTY,
    FLAG_SATURATED,
    FLAG_SLIPPED,
    MODE_DISPLACEMENT,
    Array,
    Command,
    Measurement,
)
from rths_nodes.laboratory.ports.watchdog import Watchdog
from rths_nodes.laboratory.sensors import AuxiliarySensors, Output, SensorPair


class Simulator:
    """A virtual rig with its sensors: an actuator and a specimen per axis, or a ``rig`` whose axes are coupled.

    ``axes`` maps names to the axes' parameters.
    """

    @params
    class Params:
        builds_axes: ClassVar[bool] = True
        transport_samples: int = integer(
            "samples after which a command acts; 0 is the papers' idealisation, a real rig has at least 1",
            default=0,
            at_least=0,
            at_most=1000,
        )
        longest_wait: float = number("time without a command after which the rig trips", "s", 5.0, more_than=0.0)
        watchdog: float | None = number(
            "time without a command after which the port itself holds the rig, whatever its node does, in real "
            "time; none if left out",
            "s",
            None,
            at_least=0.01,
            at_most=10.0,
        )
        auxiliary_noise_rms: tuple[float, ...] | None = vector(
            "rms of the noise of each auxiliary channel; none if left out", "m/s^2 or m or N", None, at_least=0.0
        )

        def fits(self, test: TestContext) -> None:
            """Raises ConfigError for a watchdog that would not wait for two commands."""
            if self.watchdog is not None and self.watchdog < 2.0 * test.dt:
                raise ConfigError(
                    f"watchdog = {self.watchdog:g} s: must be >= {2.0 * test.dt:g} s, two servo periods"
                )

    simulated = True
    partial_stop = ""

    def __init__(
        self, params: Params, axes: Mapping[str, Any], dt: float, seed: int, rig: Rig | None = None
    ) -> None:
        self.transport_samples = params.transport_samples
        self._limit = params.watchdog
        self._watchdog: Watchdog | None = None
        self._rig: Any = SeparateAxes(axes, dt) if rig is None else rig
        self.external = getattr(self._rig, "external", False)
        self.auxiliary_names, self.auxiliary_inputs = self._rig.auxiliary_names, self._rig.auxiliary_inputs
        self._sensors = [SensorPair(axis.sensors, seed, name) for name, axis in axes.items()]
        self._auxiliary = AuxiliarySensors(params.auxiliary_noise_rms, self.auxiliary_names, seed)
        outputs = [axis.output for axis in axes.values()]
        self._outputs = [] if all(output == Output() for output in outputs) else outputs
        self._modes = bytes([MODE_DISPLACEMENT]) * len(axes)
        self.perfect = all(pair.perfect for pair in self._sensors)
        self._rest(None)

    def open(self, pacer: Callable[[], int] | None = None) -> None:
        """At rest at zero, no command under way, sample 0. Raises ConfigError for a rig that cannot be started."""
        if self.external:
            self._rig.open()
        self._rest(pacer)

    def _rest(self, pacer: Callable[[], int] | None) -> None:
        self._pacer = pacer
        for part in (self._rig, *self._sensors, self._auxiliary):
            part.reset()
        n_axes, n_inputs = len(self._sensors), len(self.auxiliary_inputs)
        self._line = deque([(np.zeros(n_axes), np.zeros(n_inputs)) for _ in range(self.transport_samples)])
        self.sample = 0
        self._flags = 0
        self.interlock = ""
        self._command = np.zeros(n_axes)
        self._look()

    @property
    def failure(self) -> str:
        """Why the rig cannot go on, in words; empty while it can."""
        return getattr(self._rig, "failure", "")

    def begin(self) -> None:
        """Measurement 0 is there."""

    def ready(self) -> bool:
        return True

    def arm_watchdog(self) -> None:
        """Start the watchdog, where there is to be one; it watches from the first command on."""
        if self._limit is not None:
            self._watchdog = Watchdog(self._limit)

    def disarm_watchdog(self) -> None:
        """The test is over: no more commands, in order."""
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
            self.interlock = self._watchdog.beat()
        if not self.interlock:  # else it stands where it stood
            self._command = command.command.copy()
            if self._outputs:
                self._convert()
        self._line.append((self._command, command.auxiliary))
        self._rig.step(*self._line.popleft())
        self._look()

    def _convert(self) -> None:
        """The command as the converters send it."""
        for index, (output, value) in enumerate(zip(self._outputs, self._command.tolist(), strict=True)):
            sent = self._command[index] = output.sent(value)
            if output.range is not None and abs(sent) >= output.range:
                self._flags |= FLAG_SATURATED

    def _look(self) -> None:
        rig = self._rig
        self._true = list(zip(rig.displacement, rig.force, strict=True))
        if self.perfect:
            self._seen = self._true
        else:
            self._seen = [pair.measure(*true) for pair, true in zip(self._sensors, self._true, strict=True)]
            for pair in self._sensors:
                if pair.saturated:
                    self._flags |= FLAG_SATURATED
        self._channels = self._auxiliary.measure(rig.auxiliary)

    def read(self) -> Measurement:
        return self._measurement(self._seen, self._channels)

    def truth(self) -> Measurement:
        """The true, noise-free state at the same sample."""
        return self._measurement(self._true, self._rig.auxiliary)

    def _measurement(self, pairs: list[tuple[float, float]], channels: Array) -> Measurement:
        displacement, force = map(np.array, zip(*pairs, strict=True))
        return Measurement(self.sample, displacement, force, self._command, channels, self._flags, self._modes)

    def safe(self) -> None:
        """A simulator stands still when nobody drives it."""

    def close(self) -> None:
        """The watchdog may go, and what computes outside of this process."""
        self.disarm_watchdog()
        if self.external:
            self._rig.close()


class SeparateAxes:
    """A rig whose axes have nothing to do with each other; in plain floats, which is faster for a few axes."""

    auxiliary_names: tuple[str, ...] = ()
    auxiliary_inputs: tuple[str, ...] = ()
    auxiliary = EMPTY

    def __init__(self, axes: Mapping[str, Any], dt: float) -> None:
        self._actuators = [
            registry.build("actuator", axis.actuator, dt, registry.build("specimen", axis.specimen))
            for axis in axes.values()
        ]

    @property
    def displacement(self) -> list[float]:
        return [actuator.displacement for actuator in self._actuators]

    @property
    def force(self) -> list[float]:
        return [actuator.force for actuator in self._actuators]

    def step(self, command: Array, auxiliary: Array) -> None:
        for actuator, value in zip(self._actuators, command.tolist(), strict=True):
            actuator.step(value)

    def reset(self) -> None:
        for actuator in self._actuators:
            actuator.reset()
