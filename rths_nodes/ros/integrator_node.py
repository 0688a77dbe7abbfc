"""The integrator node: forces of the rig in, Targets out."""

from __future__ import annotations

from rths_nodes.components import Target
from rths_nodes.ros.names import INTEGRATOR
from rths_nodes.ros.shell import Shell
from rths_nodes.scenario import Scenario
from rths_nodes.stages import SubstructureStage


class IntegratorNode(Shell):
    """Hosts the numerical substructure."""

    role = INTEGRATOR
    sections = ("ground_motion", "structure", "integrator", "setup", "semi_active")

    def build(self, scenario: Scenario) -> None:
        self.stage = SubstructureStage(scenario)
        self._expected = 0

    def work(self, limit: int = 1_000_000) -> bool:
        busy = False
        while limit > 0 and (found := self.next_measurement(self._expected)) is not None:
            measured, stamp = found
            if self._expected == 0:
                self._publish(self.stage.first(), stamp)
            self._expected += 1
            limit -= 1
            busy = True
            target = self.stage.next(measured)
            if target is not None:
                self._publish(target, stamp + round(self.stage.substeps * self.scenario.dt * 1e9))
        if not busy:
            self._finish()
        return busy

    def _publish(self, target: Target, stamp: int) -> None:
        self.send("target", self.codec.pack_target(target, stamp))

    def _finish(self) -> None:
        if self.ended and not self.spoken and (self.lost or self._expected > self.test["sample"]):
            self.last_words()
        self.leave()

    def final_numbers(self) -> tuple[int, dict[str, float]]:
        return self._expected - 1, {}
