# SPDX-License-Identifier: Apache-2.0
"""Monitor stage: pairs messages of the loop by sample number and passes them to the monitor in order."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from functools import partial

import numpy as np

from rths_nodes.core.data import Data
from rths_nodes.core.samples import (
    FLAG_BRIDGED,
    FLAG_SOFT_START,
    FLAG_TRIPPED,
    MODE_FORCE,
    Array,
    Command,
    Measurement,
    Target,
)
from rths_nodes.loop.indices.live_columns import LiveColumns
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.frozen import FrozenSensors
from rths_nodes.loop.supervision.monitor import Monitor, load_corridor
from rths_nodes.loop.timing import LateData


class MonitorStage:
    """Pairs Targets, Commands and Measurements by number and feeds the ``monitor`` in order.

    ``n_dof`` is the number of degrees of freedom in a Target. ``reference_energy`` (J) is added to the input
    energy in the running energy monitor. Chunks of samples for the delay are processed at their last sample or, if
    ``spread`` is true, by calls of ``monitor.work``. ``live`` enables curves for displays.
    """

    def __init__(
        self, scenario: Scenario, n_dof: int, reference_energy: float, spread: bool = False, live: bool = False
    ) -> None:
        self.substeps = scenario.samples_per_step
        axes, file = scenario.moved_axes, scenario.monitor.corridor
        bands = load_corridor(file, axes, scenario.servo_rate, scenario.samples) if file else None
        scale = scenario.energy_scale
        self.monitor = Monitor(scenario.monitor, axes, n_dof, scenario.dt, reference_energy, scale, bands, spread)
        travels = scenario.monitor.stuck_displacement, scenario.monitor.stuck_force
        moved = {name: scenario.axes[name] for name in axes}
        self.sensors = FrozenSensors(moved, scenario.dt, scenario.transport_samples, *travels)
        self._stride = self.sensors.stride
        self._steps = scenario.steps
        self._prepares = scenario.soft_start is not None
        self._commands: deque[Command] = deque()
        self._measured: deque[Measurement] = deque()
        self._known = -1
        self._last_command = 0
        self._last_driven: int | None = None
        self._bridged: list[int] = []
        self._late = partial(LateData.of_bridged, dt=scenario.dt, max_bridge=scenario.bridge.max_bridge)
        self._aim = self._aim_before = [0.0] * len(scenario.axes)
        self._load_errors = dict.fromkeys(scenario.force_axes, (0, 0.0, 0.0, 0.0))
        """Per force axis: samples in force mode, largest error and target (N), sum of squared errors (N^2).

        An error is target minus measured force. Soft starts are included."""
        self.live = LiveColumns(len(scenario.axes), scenario.servo_rate) if live else None

    @classmethod
    def of(cls, assembly: Assembly, spread: bool = False, live: bool = False) -> MonitorStage:
        return cls(assembly.scenario, len(assembly.names.observed), assembly.reference_energy, spread, live)

    @property
    def sample(self) -> int:
        return self.monitor.sample

    def target(self, target: Target) -> None:
        self._known = sample = target.step * self.substeps
        self.monitor.energy.target(target, sample - self.substeps)

    def resume(self, sample: int, target: Array, moved: Array, force: Array) -> bool:
        """Continue the test after ``sample``, the last sample that the monitor has processed.

        ``target`` (m), ``moved`` (m) and ``force`` (N) are the earlier samples ``(sample + 1, n_axes)``. Return
        False if a displacement sensor was frozen.
        """
        self._known = self._last_command = sample
        columns = (values[:: self._stride].tolist() for values in (target, moved, force))
        for number, row in enumerate(zip(*columns, strict=True)):
            if number:
                self.sensors.add(number * self._stride, *row)
        return not self.sensors.breach

    def command(self, command: Command) -> None:
        if command.sample > self._last_command:
            self._last_command = command.sample
            self._commands.append(command)

    def measurement(self, measured: Measurement) -> None:
        """Receive a Measurement. Pass it to the monitor once Command and Target of its sample are available."""
        sample, commands = measured.sample, self._commands
        if not (commands and 0 < sample <= self._known) or self._measured or measured.flags & FLAG_TRIPPED:
            if self._measured:
                self._measured.append(measured)
                self.work()
            elif not self._feed_undriven(measured):
                self._measured.append(measured)
            return
        command, flags = commands.popleft(), measured.flags
        if command.sample > sample:  # the Command of this sample is lost
            commands.appendleft(command)
            command = self._straight_on(measured, command.flags)
        else:
            flags |= command.flags
        if flags & FLAG_BRIDGED:
            self._bridged.append(sample)
        target = command.target.tolist()
        self._aim_before, self._aim = self._aim, target
        moved, force = measured.displacement.tolist(), measured.force.tolist()
        every = target, moved, force
        if self._load_errors:
            n = len(self.monitor.names)
            self._add_loads(target[n:], force[n:], command.control_mode[n:])
            target, moved, force = target[:n], moved[:n], force[:n]
        if sample % self._stride == 0:
            self.sensors.add(sample, target, moved, force)
            if self.sensors.breach and self.monitor.breach is None:
                self.monitor.breach = sample, self.sensors.breach
        if command.flags & FLAG_SOFT_START:
            self.monitor.prepare(sample, target, moved, force)
        else:
            self.monitor.step(sample, target, moved, force)
        if self.live is not None:
            self._draw(sample, every, command.command.tolist(), command.control_mode)

    def _add_loads(self, target: Sequence[float], force: Sequence[float], modes: bytes) -> None:
        for axis, wanted, measured, mode in zip(self._load_errors, target, force, modes, strict=False):
            if mode == MODE_FORCE:
                samples, largest, most, squares = self._load_errors[axis]
                error = abs(wanted - measured)
                largest = largest if error <= largest else error  # an error of NaN remains the largest
                self._load_errors[axis] = samples + 1, largest, max(most, abs(wanted)), squares + error * error

    def work(self) -> None:
        waiting, self._measured = self._measured, deque()
        while waiting and not self._measured:  # measurement() queues an incomplete sample again
            self.measurement(waiting.popleft())
        self._measured += waiting

    def _feed_undriven(self, measured: Measurement) -> bool:
        """Process a sample without a Command (sample 0, or safe stop). Return False if messages are missing."""
        sample = measured.sample
        if measured.flags & FLAG_TRIPPED:
            if self._last_driven is None:
                self._last_driven = max(self.sample, 0)
            if self._known < min(self._last_driven // self.substeps + 1, self._steps) * self.substeps:
                return False
            self.monitor.skip(sample)
            self._draw_undriven(measured)
            return True
        if sample or self._known < 0:
            return False
        rows = measured.command, measured.displacement, measured.force
        feed = self.monitor.prepare if self._prepares else self.monitor.step
        feed(sample, *(values[: len(self.monitor.names)].tolist() for values in rows))
        self._draw_undriven(measured)
        return True

    def _draw_undriven(self, measured: Measurement) -> None:
        if self.live is not None:
            applied = measured.command.tolist()
            every = applied, measured.displacement.tolist(), measured.force.tolist()
            self._draw(measured.sample, every, applied, b"")

    def _draw(self, sample: int, every: tuple[list[float], ...], energies: list[float], modes: bytes) -> None:
        assert self.live is not None
        target, moved, force = every
        aimed, n, indicator = moved, len(self.monitor.names), self.monitor.tracking.indicator
        if len(moved) > n:  # the test has force axes
            loaded = [len(modes) > i and modes[i] == MODE_FORCE for i in range(n, len(moved))]
            aimed = moved[:n] + [value if on else math.nan for value, on in zip(force[n:], loaded, strict=True)]
            indicator = indicator + [math.nan] * (len(moved) - n)
        self.live.add(sample, target, energies, moved, force, aimed, indicator)

    def _straight_on(self, measured: Measurement, flags: int) -> Command:
        """Return a substitute for a lost Command: displacement targets continue linearly, and loads are held."""
        n = len(self.monitor.names)
        aims = enumerate(zip(self._aim, self._aim_before, strict=True))
        target = np.array([2.0 * aim - before if axis < n else aim for axis, (aim, before) in aims])
        modes = measured.control_mode
        return Command(measured.sample, target, measured.command, flags=flags | FLAG_BRIDGED, control_mode=modes)

    @property
    def late(self) -> LateData:
        """Late periods according to the messages. The rig's clock may have missed additional ticks."""
        return self._late(self._bridged)

    def metrics(self) -> Data:
        loads = {
            axis: {
                "max_force_error_n": largest if samples else math.nan,
                "max_force_error_percent": largest * (100.0 / most) if most else math.nan,
                "rms_force_error_n": math.sqrt(squares / samples) if samples else math.nan,
                "samples": float(samples),
            }
            for axis, (samples, largest, most, squares) in self._load_errors.items()
        }
        return self.monitor.metrics() | self.sensors.metrics() | ({"force_axes": loads} if loads else {})
