"""What may become of a channel of a simulator while it measures."""

from __future__ import annotations

RIGHT, FROZEN, FLICKERS, FLIPPED, DRIFTS = SENSOR_FAULTS = ("right", "frozen", "flickers", "flipped", "drifts")
"""What becomes of a channel: nothing; it stays where it is; the same, and its last bit changes; it counts the
other way from there; it drifts away."""


class ChannelFault:
    """A channel that goes wrong (SENSOR_FAULTS) while it measures; ``per_sample`` is what it drifts by."""

    def __init__(self, how: str, per_sample: float) -> None:
        self._how, self._per_sample = how, per_sample
        self._samples = 0
        self._first = 0.0

    def shown(self, value: float, step: float) -> float:
        """What is shown of ``value``; ``step`` is its last bit."""
        self._first = value if not self._samples else self._first
        self._samples += 1
        if self._how == DRIFTS:
            return value + self._samples * self._per_sample
        if self._how == FLIPPED:
            return 2.0 * self._first - value
        return self._first + (step if self._how == FLICKERS and self._samples % 2 else 0.0)
