"""The compensator node: Targets and Measurements in, Commands out."""

from __future__ import annotations

from collections.abc import Sequence

from rths_nodes.components import FLAG_TRIPPED, Measurement
from rths_nodes.ros.names import COMPENSATOR
from rths_nodes.ros.shell import Shell
from rths_nodes.scenario import Scenario
from rths_nodes.stages import CommandStage


class CompensatorNode(Shell):
    """Hosts ramp, setup and compensator."""

    role = COMPENSATOR
    sections = ("ramp", "setup", "compensator")

    def build(self, scenario: Scenario) -> None:
        self.stage = CommandStage(scenario)
        self._expected = 0
        self._waiting: tuple[Measurement, int] | None = None
        self._period = round(scenario.dt * 1e9)

    def state_names(self) -> Sequence[str]:
        return self.stage.state_names

    def work(self, limit: int = 1_000_000) -> bool:
        busy = False
        while limit > 0:
            if self._waiting is None:
                self._waiting = self.next_measurement(self._expected)
            if self._waiting is None or not self._has_target(self._waiting[0]):
                break
            self._answer(*self._waiting)
            self._waiting = None
            self._expected += 1
            limit -= 1
            busy = True
        if not busy:
            self._finish()
        return busy

    def _has_target(self, measured: Measurement) -> bool:
        """Take Targets until the one that the next Command needs is here."""
        needed = min(measured.sample + 1, self.stage.samples)
        while not measured.flags & FLAG_TRIPPED and not self.stage.ready(needed):
            found = self.receive("target", self.codec.unpack_target)
            if found is None:
                return False
            self.stage.target(found[0])
        return True

    def _answer(self, measured: Measurement, stamp: int) -> None:
        command = self.stage.next(measured)
        if command is not None:
            self.publisher("command")(self.codec.pack_command(command, stamp + self._period))
        if not measured.flags & FLAG_TRIPPED:
            values = self.stage.state()
            self.publisher("compensator_state")(
                self.codec.pack_state(measured.sample, values, measured.flags, stamp)
            )

    def _finish(self) -> None:
        # a dead integrator leaves us with a Measurement whose Target never comes
        answered = self.ended and (self._expected > self.test["sample"] or self._waiting is not None)
        if answered and not self.summary:
            state = dict(zip(self.stage.state_names, self.stage.state(), strict=True))
            self.tell_summary(self._expected - 1, {f"compensator.{name}": value for name, value in state.items()})
        self.leave()
