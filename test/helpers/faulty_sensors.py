# SPDX-License-Identifier: Apache-2.0
"""Faults of a simulator's sensors while it runs, between sensor and converter."""

from __future__ import annotations

from rths_nodes.laboratory.ports.simulator import Simulator
from rths_nodes.laboratory.sensors import Channel, SensorPair, read

RIGHT, FROZEN, FLICKERS, FLIPPED, DRIFTS = "right", "frozen", "flickers", "flipped", "drifts"
"""Faults of a channel: none, constant, constant except for its last bit, wrong sign, drift."""
CHANNELS = "displacement", "force"


class ChannelFault:
    """A fault of a channel; ``per_sample`` is its drift."""

    def __init__(self, how: str, per_sample: float) -> None:
        self._how, self._per_sample = how, per_sample
        self._samples = 0
        self._first = 0.0

    def shown(self, value: float, step: float) -> float:
        """Return the reading for ``value``; ``step`` is its last bit."""
        self._first = value if not self._samples else self._first
        self._samples += 1
        if self._how == DRIFTS:
            return value + self._samples * self._per_sample
        if self._how == FLIPPED:
            return 2.0 * self._first - value
        return self._first + (step if self._how == FLICKERS and self._samples % 2 else 0.0)


class FaultySensors(SensorPair):
    """Sensors of one axis whose channels may fail."""

    faults: list[ChannelFault | None]
    healthy: bool

    @classmethod
    def of(cls, pair: SensorPair) -> FaultySensors:
        """Convert a ``pair`` in use so that it may have ``faults``."""
        if not isinstance(pair, cls):
            healthy = pair.perfect
            pair.__class__ = cls
            assert isinstance(pair, cls)
            pair.faults, pair.healthy = [None, None], healthy
        return pair

    def reset(self) -> None:
        super().reset()
        self.faults, self.perfect = [None, None], self.healthy

    def goes_wrong(self, channel: str, how: str, per_sample: float = 0.0) -> None:
        """Begin a fault with the next sample, or end it (``right``)."""
        assert how in (RIGHT, FROZEN, FLICKERS, FLIPPED, DRIFTS)
        self.faults[CHANNELS.index(channel)] = None if how == RIGHT else ChannelFault(how, per_sample)
        self.perfect = self.healthy and self.faults == [None, None]

    def measure(self, displacement: float, force: float) -> tuple[float, float]:
        if self.faults == [None, None]:
            return super().measure(displacement, force)
        noises = [0.0, 0.0]
        if self.noise.any:
            self._drawn = self._drawn or self.noise.numbers()
            noises = list(self._drawn.pop())
        sample, self._sample = self._sample, self._sample + 1
        seen = []
        for k, value, noise, fault in zip(
            self._constants, (displacement, force), noises, self.faults, strict=True
        ):
            shown = read(k, value, noise, sample)
            seen.append(shown if fault is None else fault.shown(shown, k.resolution))
        converters = tuple(Channel(1.0, 0.0, 0.0, False, 0.0, k.resolution, k.limit) for k in self._constants)
        self._state, (displacement, force, self.saturated) = self._kernel.step(
            converters, self._state, *seen, 0.0, 0.0, sample
        )
        return displacement, force


def set_sensor(simulator: Simulator, axis: int, channel: str, how: str, rate: float = 0.0) -> None:
    """Begin or end a fault of a sensor of an axis with the next sample; ``rate`` of a drift in m/s or N/s."""
    pair = FaultySensors.of(simulator._sensors[axis])
    pair.goes_wrong(channel, how, rate * pair._dt)
    simulator.perfect = all(pair.perfect for pair in simulator._sensors) and not simulator._seats
