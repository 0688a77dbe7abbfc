"""What goes with a Measurement: true states, the time of the test, a change of its state."""

from __future__ import annotations

from rths_nodes.ros.nodes.simulated_time import SimulatedTime
from rths_nodes.ros.nodes.state_announcer import StateAnnouncer
from rths_nodes.ros.nodes.true_states import TrueStates


class Accompaniment:
    """Sends what goes with each Measurement when the loop does not wait for it."""

    def __init__(self, true_states: TrueStates, simulated_time: SimulatedTime, announcer: StateAnnouncer) -> None:
        self._true_states, self._simulated_time, self._announcer = true_states, simulated_time, announcer
        self._due: tuple[int, int] | None = None

    def measured(self, sample: int, stamp: int) -> None:
        """Measurement ``sample`` was sent, with this ``stamp``, ns."""
        self._due = sample, stamp

    def send(self) -> None:
        """Send what goes with the last Measurement, if that has not been done."""
        if self._due is not None:
            sample, stamp = self._due
            self._due = None
            self._true_states.measured(stamp)
            self._simulated_time.measured(sample, stamp)
            self._announcer.announce_change()
