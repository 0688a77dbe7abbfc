"""The hardware port and its first implementation, the simulator.

The owner of the rig owns the tick: the simulator in a virtual test (paced by the computer's clock, or not at
all in lockstep), the servo-controller behind the port in a laboratory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rths_nodes import registry
from rths_nodes.components import FLAG_SATURATED, FLAG_SLIPPED, Array, Measurement
from rths_nodes.params import integer, number, params
from rths_nodes.sensors import SensorPair

TABLE = {"simulator": "rths_nodes.ports:Simulator"}


class Simulator:
    """A virtual rig: an actuator with its specimen and sensors per axis.

    ``axes`` maps names to the axes' parameters. ``pacer`` waits for the next tick and returns the periods that
    were missed; without one the rig runs as fast as it can (lockstep).
    """

    @params
    class Params:
        transport_samples: int = integer(
            "samples after which a command acts; 0 is the papers' idealisation, a real rig has at least 1",
            default=0,
            at_least=0,
            at_most=1000,
        )
        longest_wait: float = number("time without a command after which the rig trips", "s", 5.0, more_than=0.0)

    simulated = True
    auxiliary_names: tuple[str, ...] = ()

    def __init__(self, params: Params, axes: Mapping[str, Any], dt: float, seed: int) -> None:
        self.transport_samples = params.transport_samples
        self.pacer: Callable[[], int] | None = None
        self._actuators = [
            registry.class_of("actuator", axis.actuator)(
                axis.actuator, dt, registry.class_of("specimen", axis.specimen)(axis.specimen)
            )
            for axis in axes.values()
        ]
        self._sensors = [SensorPair(axis.sensors, seed, name) for name, axis in axes.items()]
        self.perfect = all(pair.perfect for pair in self._sensors)
        self.open()

    def open(self) -> None:
        """At rest at zero, no command under way, sample 0."""
        for part in (*self._actuators, *self._sensors):
            part.reset()
        n_axes = len(self._actuators)
        self._line = deque([np.zeros(n_axes) for _ in range(self.transport_samples)])
        self.sample = 0
        self._flags = 0
        self._command = np.zeros(n_axes)
        self._look()

    def wait_tick(self) -> int:
        self.sample += 1
        missed = self.pacer() if self.pacer else 0
        self._flags = FLAG_SLIPPED if missed else 0
        return self.sample

    def write(self, command: Array) -> None:
        self._command = command
        self._line.append(self._command)
        for actuator, value in zip(self._actuators, self._line.popleft().tolist(), strict=True):
            actuator.step(value)
        self._look()

    def _look(self) -> None:
        self._true = [(actuator.displacement, actuator.force) for actuator in self._actuators]
        self._seen = [pair.measure(*true) for pair, true in zip(self._sensors, self._true, strict=True)]
        if not self.perfect and any(pair.saturated for pair in self._sensors):
            self._flags |= FLAG_SATURATED

    def read(self) -> Measurement:
        return self._measurement(self._seen)

    def truth(self) -> Measurement:
        """The true, noise-free state at the same sample."""
        return self._measurement(self._true)

    def _measurement(self, pairs: list[tuple[float, float]]) -> Measurement:
        displacement, force = np.array(pairs).T.copy()
        return Measurement(self.sample, displacement, force, self._command, flags=self._flags)

    def safe(self) -> None:
        """A simulator stands still when nobody drives it."""

    def close(self) -> None:
        """Nothing to give back."""
