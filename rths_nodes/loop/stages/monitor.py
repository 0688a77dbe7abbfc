"""Pairs the messages of the loop by their numbers and feeds the monitor in order."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_TRIPPED, Command, Measurement, Target
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.corridor import load
from rths_nodes.loop.supervision.load_tracking import LoadTracking
from rths_nodes.loop.supervision.monitor import Monitor


class MonitorStage:
    """Pairs Targets, Commands and Measurements by their numbers and feeds the monitor in order."""

    def __init__(self, scenario: Scenario, n_dof: int, reference_energy: float) -> None:
        """``n_dof`` degrees of freedom in a Target; ``reference_energy`` (J) is the scale of the energy error."""
        self.substeps = scenario.samples_per_step
        axes, file = scenario.moved_axes, scenario.monitor.corridor
        bands = load(file, axes, scenario.servo_rate, scenario.samples) if file else None
        scale = scenario.energy_scale
        self.monitor = Monitor(scenario.monitor, axes, n_dof, scenario.dt, reference_energy, scale, bands)
        self._steps = scenario.steps
        self._targets: deque[Target] = deque()
        self._commands: deque[Command] = deque()
        self._measured: deque[Measurement] = deque()
        self._last_step = -1
        self._last_command = 0
        self._last_driven = 0
        at_zero = np.zeros(len(scenario.axes))
        self._aim = at_zero, at_zero
        """The targets of the last two Commands, the last one behind."""
        self._loads = LoadTracking(scenario.force_axes, len(axes)) if scenario.force_axes else None

    @classmethod
    def of(cls, assembly: Assembly) -> MonitorStage:
        """The stage of an assembly. Raises ConfigError where a part cannot be built."""
        return cls(assembly.scenario, len(assembly.names.observed), assembly.reference_energy)

    @property
    def sample(self) -> int:
        """The last sample worked in; -1 before Measurement 0."""
        return self.monitor.sample

    def target(self, target: Target) -> None:
        """Receive the next Target."""
        self._last_step = target.step
        self._targets.append(target)

    def command(self, command: Command) -> None:
        """Receive the next Command; what comes again is dropped."""
        if command.sample > self._last_command:
            self._last_command = command.sample
            self._commands.append(command)

    def measurement(self, measured: Measurement) -> None:
        """Receive the next Measurement."""
        self._measured.append(measured)

    def work(self) -> None:
        """Feed the monitor with every sample that is complete."""
        while self._measured and self._complete(self._measured[0]):
            measured = self._measured.popleft()
            sample = measured.sample
            while self._targets and (self._targets[0].step - 1) * self.substeps < sample:
                self.monitor.target(self._targets.popleft())
            if measured.flags & FLAG_TRIPPED:
                self.monitor.skip(sample)
                continue
            self._last_driven = sample
            command = self._command_of(measured) if sample else None
            if self._loads is not None:
                command, measured = self._loads.beside(command, measured)
            self.monitor.step(command, measured)

    def _command_of(self, measured: Measurement) -> Command:
        """The Command of this sample; where a later one tells that it was lost, its target goes on straight."""
        if self._commands[0].sample <= measured.sample:
            command = self._commands.popleft()
        else:
            aim = 2.0 * self._aim[1] - self._aim[0]
            flags, modes = self._commands[0].flags | FLAG_BRIDGED, measured.control_mode
            if self._loads is not None:  # a load is held over a bridge
                aim[len(self.monitor.names) :] = self._aim[1][len(self.monitor.names) :]
            command = Command(measured.sample, aim, measured.command, flags=flags, control_mode=modes)
        self._aim = self._aim[1], command.target.copy()
        return command

    def _complete(self, measured: Measurement) -> bool:
        """True when the Command and the Target that belong to ``measured`` are here.

        A sample of the safe stop has no command; the last Target before it is that of the last driven sample.
        """
        if measured.flags & FLAG_TRIPPED:
            return self._last_step >= min(self._last_driven // self.substeps + 1, self._steps)
        commanded = measured.sample == 0 or bool(self._commands)
        return commanded and self._last_step >= -(-measured.sample // self.substeps)

    def metrics(self) -> dict[str, Any]:
        """The indices of everything fed so far."""
        told = {} if self._loads is None else {"force_axes": self._loads.metrics()}
        return self.monitor.metrics() | told
