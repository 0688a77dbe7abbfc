"""The four stages of the loop: what a node hosts, without ROS.

    SubstructureStage   ground motion, structure, integrator            Measurement i n -> Target i + 1
    CommandStage        ramp, setup, compensator                        Target, Measurement k -> Command k + 1
    RigStage            port, limits, state of the test, safe stop      Command k -> Measurement k
    MonitorStage        indices, limits on them                         all of them -> breach, metrics

All hosts run the same stages in the same order, so their results are equal to the bit (``loop.py`` is the
reference).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rths_nodes import registry
from rths_nodes.bridges import CommandBridge, Fading, MotionBridge
from rths_nodes.components import (
    EMPTY,
    FLAG_BRIDGED,
    FLAG_RESTING,
    FLAG_SOFT_START,
    FLAG_TRIPPED,
    Array,
    Command,
    Measurement,
    Motion,
    Target,
)
from rths_nodes.monitors import Monitor
from rths_nodes.params import ConfigError
from rths_nodes.safety import ENDED, LimitCheck, SafeStop, State, TestMachine
from rths_nodes.scenario import Scenario


class SubstructureStage:
    """The numerical substructure: turns the forces of the axes into Targets.

    Unless it is ``loaded`` the ground stands still, and no other external force acts.
    """

    def __init__(self, scenario: Scenario, loaded: bool = True) -> None:
        structure = scenario.build_structure()
        self.external_force = scenario.external_force(structure)
        ground_acceleration = scenario.ground_acceleration()
        if not loaded:
            self.external_force = np.zeros_like(self.external_force)
            ground_acceleration = np.zeros_like(ground_acceleration)
        self.n_dof = self.external_force.shape[1]
        self.setup = registry.class_of("setup", scenario.setup)(scenario.setup, self.n_dof, len(scenario.axes))
        self.integrator = registry.class_of("integrator", scenario.integrator)(
            scenario.integrator, structure, self.external_force, scenario.step
        )
        self.substeps = scenario.samples_per_step
        self._ratio = scenario.time_ratio
        self._steps = scenario.steps
        self._index = 0
        self._nothing = np.zeros(self.n_dof)
        self._controller = scenario.build_semi_active(structure)
        self._ground_acceleration = ground_acceleration.tolist()
        self._auxiliary = np.zeros(len(scenario.build_port().auxiliary_inputs))
        self._before = scenario.soft_start_steps
        if scenario.soft_start:
            self._soft_start = self._prescribed(scenario)

    def _prescribed(self, scenario: Scenario) -> list[Target]:
        """The Targets of the soft start; the last is the start of the test."""
        assert scenario.soft_start is not None
        # a setup need not be linear: the whole amplitude is what must be right
        amplitude = scenario.soft_start.amplitude
        unit = self.setup.degrees_of_freedom(np.full(len(scenario.axes), amplitude)) / amplitude
        if not np.isfinite(unit).all():
            raise ConfigError(f"soft_start.amplitude = {amplitude:g} m: lies beyond the reach of the setup")
        *motion, flags = scenario.soft_start.motion(self.substeps * scenario.dt)
        x, v, a = (np.outer(values, unit) for values in motion)
        rest, auxiliary = self._nothing, self._auxiliary
        return [Target(i, x[i], v[i], a[i], a[i], rest, rest, auxiliary, flags[i]) for i in range(len(flags))]

    def first(self) -> Target:
        """Target 0, the start state."""
        return self._soft_start[0] if self._before else self._target(self._nothing)

    def next(self, measured: Measurement) -> Target | None:
        """The next Target, when ``measured`` is the sample it needs and the test goes on; None otherwise."""
        if measured.flags & FLAG_TRIPPED or self._index == self._steps:
            return None
        if measured.sample != self._index * self.substeps:
            return None
        self._index += 1
        if self._index <= self._before:
            return self._soft_start[self._index]
        step = self._index - self._before - 1
        self.integrator.step(self.setup.forces(measured.force, self.integrator.displacement))
        if self._controller is not None:
            self._auxiliary = self._controller.step(measured, self._ground_acceleration[step])
        return self._target(self.external_force[step])

    def _target(self, external: Array) -> Target:
        solver, ratio = self.integrator, self._ratio
        velocity, acceleration, exact = solver.velocity, solver.acceleration, solver.exact_acceleration
        if ratio != 1:  # on the wire stands the motion of the rig
            velocity, acceleration, exact = velocity / ratio, acceleration / ratio**2, exact / ratio**2
        restoring, auxiliary = solver.restoring_force, self._auxiliary
        return Target(
            self._index, solver.displacement, velocity, acceleration, exact, external, restoring, auxiliary
        )


class CommandStage:
    """From Targets at the integration step to compensated Commands at the servo rate.

    A host that cannot wait asks :meth:`ready` and calls :meth:`bridge` in place of :meth:`next` where it is not.
    ``bridged`` counts the samples whose Target was late, ``dropped`` the Targets that came again.
    """

    def __init__(self, scenario: Scenario) -> None:
        n_axes, n_dof = len(scenario.axes), len(scenario.dof_names())
        self.substeps = scenario.samples_per_step
        self.samples = scenario.samples
        self.setup = registry.class_of("setup", scenario.setup)(scenario.setup, n_dof, n_axes)
        self.ramp = registry.class_of("ramp", scenario.ramp)(scenario.ramp, scenario.dt, self.substeps, n_dof)
        self.compensator = scenario.build_compensator()
        self.state_names = scenario.state_names()
        self.bridged = self.dropped = 0
        self._longest = scenario.bridge.longest(scenario.dt)
        self._in_a_row = 0
        self._bridge = MotionBridge(self.setup, scenario.dt, self.substeps, _fading(scenario))
        self._targets: deque[Target] = deque()
        self._next_step = 0
        self._flags = 0
        self._auxiliary = EMPTY
        self._motion = Motion(np.zeros(n_axes), np.zeros(n_axes), np.zeros(n_axes))

    def target(self, target: Target) -> None:
        """Receive the next Target. Raises ValueError when one before it is missing."""
        if target.step < self._next_step:
            self.dropped += 1
            return
        if target.step != self._next_step:
            raise ValueError(f"Target {target.step} came where {self._next_step} was expected")
        self._next_step += 1
        if target.step == 0:
            self._flags, self._auxiliary = target.flags, target.auxiliary
            self.ramp.start(target)
            self._bridge.follow(target)
        else:
            self._targets.append(target)

    def ready(self, sample: int) -> bool:
        """True when the Target that Command ``sample`` needs is here."""
        return self._next_step > -(-sample // self.substeps)

    def next(self, measured: Measurement) -> Command | None:
        """Command k + 1 from Measurement k; None after the last sample or when the rig has tripped.

        The compensator sees the last Measurement, too, so that its state is that of the whole test.
        """
        if measured.flags & FLAG_TRIPPED:
            return None
        sample = measured.sample + 1
        if sample <= self.samples:
            self._follow(-(-sample // self.substeps))
            motion = self.setup.axes(self.ramp.step((sample - 1) % self.substeps + 1))
            self._motion = self._bridge.rejoin(motion, sample)
            self._in_a_row = 0
        return self._command(sample, measured, 0)

    def bridge(self, measured: Measurement) -> Command | None:
        """As :meth:`next`, where the Target is late: the motion goes on from the last one, flagged.

        None also when ``bridge.max_bridge`` is over: the rig, which counts on its own, then trips.
        """
        sample = measured.sample + 1
        if measured.flags & FLAG_TRIPPED or sample > self.samples:
            return self.next(measured)
        if not self._next_step or self._in_a_row == self._longest:
            return None
        self._follow(-(-sample // self.substeps))
        self._motion = self._bridge.motion(sample)
        self._in_a_row += 1
        self.bridged += 1
        return self._command(sample, measured, FLAG_BRIDGED)

    def _follow(self, step: int) -> None:
        """The ramp takes every Target up to ``step`` that is here; one each step, unless they were late."""
        while self._targets and self._targets[0].step <= step:
            target = self._targets.popleft()
            self._flags, self._auxiliary = target.flags, target.auxiliary
            if not self._bridge.follow(target):
                # the limits find it at once, whatever the ramp uses of a Target
                target = replace(target, displacement=np.full_like(target.displacement, np.nan))
            self.ramp.follow(target)

    def _command(self, sample: int, measured: Measurement, flags: int) -> Command | None:
        motion = self._motion
        motion.flagged = bool((measured.flags | flags) & FLAG_BRIDGED or self._flags & FLAG_RESTING)
        motion.preparing = bool(self._flags & FLAG_SOFT_START)
        motion.force = measured.force
        command = self.compensator.step(motion, measured.displacement)
        if sample > self.samples:
            return None
        return Command(sample, motion.displacement, command, self._auxiliary, self._flags | flags)

    def state(self) -> Sequence[float]:
        """Inner numbers of the compensator, named by ``state_names``."""
        values: Sequence[float] = self.compensator.state()
        return values


def _fading(scenario: Scenario) -> Fading:
    """Of the difference that a bridge leaves, within the velocity limits of the axes."""
    fastest = np.array([limits.velocity for limits in scenario.limits.values()])
    return Fading(scenario.bridge.rejoin_samples, scenario.dt, fastest)


class RigStage:
    """The rig behind its port, with limits, the state of the test and the safe stop.

    ``bridged`` counts the samples that were driven without the Target or the Command that belongs to them,
    ``late_commands`` the Commands that came too late to be sent.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.port = scenario.build_port()
        self.machine = TestMachine()
        self.samples = scenario.samples
        self._limits = scenario.limits
        self._dt = scenario.dt
        self._check = LimitCheck(
            scenario.limits, scenario.dt, self.port.auxiliary_inputs, self.port.auxiliary_names
        )
        self._fading = _fading(scenario)
        self._max_bridge = scenario.bridge.max_bridge
        self._longest = scenario.bridge.longest(scenario.dt)
        self.bridged = self.late_commands = 0
        self._in_a_row = 0
        self._missing = ""
        self._stop: SafeStop | None = None
        self._end = State.TRIPPED
        self._trip_at: tuple[int, str] | None = None
        self._sent = self._sent_before = np.zeros(len(scenario.axes))
        self._passive = np.zeros(len(self.port.auxiliary_inputs))
        self.sample = 0

    @property
    def ended(self) -> bool:
        """True when the test is over, one way or another."""
        return self.machine.state in ENDED

    @property
    def stopping(self) -> bool:
        """True while the safe policy, not the compensator, drives the rig."""
        return self._stop is not None

    @property
    def trip_known(self) -> bool:
        """True when a trip has been asked for, now or at a later sample."""
        return self._trip_at is not None

    @property
    def hold_asked(self) -> bool:
        """True when the operator wants the test to end."""
        return self._end is State.HELD

    @property
    def trip_reason(self) -> str:
        """Why a trip has been asked for; empty when none has."""
        return self._trip_at[1] if self._trip_at else ""

    @property
    def trip_due(self) -> bool:
        """True when the next tick belongs to the safe policy."""
        return self._trip_at is not None and self.sample + 1 >= self._trip_at[0]

    def connect(self) -> None:
        """Open the port and walk a simulator, which stands at zero, up to its start position."""
        if not self.port.simulated:
            raise ConfigError(
                "port: is not a simulator: only an operator may arm it, which this version cannot do"
            )
        self.port.open()
        for state in (State.CONNECTED, State.REFERENCED, State.POSITIONED):
            self.machine.to(state)

    def first(self) -> Measurement:
        """Start the test: Measurement 0."""
        self.machine.to(State.RUNNING)
        measured: Measurement = self.port.read()
        self._sent = self._sent_before = measured.command
        self._bridge = CommandBridge(self._fading, self._dt, measured.command, self._passive)
        return measured

    def trip(self, reason: str, sample: int = 0) -> None:
        """Go to the safe policy, at ``sample`` or as soon as it is past; the first reason counts."""
        if self._trip_at is None:
            self._trip_at = (sample, reason)

    def hold(self, reason: str) -> None:
        """Stop at the operator's wish: the same safe stop, another end."""
        if self._trip_at is None and not self.ended:
            self._end = State.HELD
            self.trip(reason)

    def settle(self) -> None:
        """After all was judged: a trip that was asked for too late to stop for still makes a tripped test.

        So a limit of the monitor that was broken in the last samples is not passed over.
        """
        if self.machine.state is State.FINISHED and self._trip_at is not None:
            self.machine.to(State.TRIPPED, f"sample {self.sample}: {self._trip_at[1]}")

    def late_command(self, command: Command) -> None:
        """A Command whose sample is over: it is not sent, but counted, and the bridge goes on from it."""
        self.late_commands += 1
        self._bridge.heard(command)

    def tick(self, command: Command | None, late: bool = False) -> Measurement:
        """One sample: the command if it may be sent, otherwise the safe policy; then measure.

        Without a command the rig trips; unless it is only ``late``, which is bridged.
        """
        sample = self.port.wait_tick()
        command = self._driven(command, late, sample)
        if self._stop is None:
            reason = self._reason(command)
            if reason:
                self._begin_stop(reason, sample)
        if self._stop is not None or command is None:
            assert self._stop is not None
            applied, auxiliary = np.array(self._stop.step()), self._passive
        else:
            applied, auxiliary = command.command.copy(), command.auxiliary
        self.port.write(applied, auxiliary)
        self._sent_before, self._sent = self._sent, applied
        measured: Measurement = self.port.read()
        self.sample = sample
        if self._stop is None and command is not None:
            if command.flags & FLAG_BRIDGED:
                # what the rig did was not made of a Target: nothing is to be learnt from it
                measured.flags |= FLAG_BRIDGED
                self.bridged += 1
            reason = self.port.interlock or self._check.measurement(measured, command.target)
            if reason:
                self._begin_stop(reason, sample)
        if self._stop is not None:
            measured.flags |= FLAG_TRIPPED
            if self._stop.at_rest:
                self.machine.to(self._end)
        elif sample == self.samples:
            self.machine.to(State.FINISHED)
        return measured

    def _driven(self, command: Command | None, late: bool, sample: int) -> Command | None:
        """The Command that drives the rig: the one in time, or a straight line where it is late."""
        if self._stop is not None or (command is None and not late):
            return command
        if command is None:
            missing = "Command"
            command = self._bridge.command(sample)
        else:
            missing = "Target"
            self._bridge.heard(command)
            command = self._bridge.rejoin(command)
        if not command.flags & FLAG_BRIDGED:
            self._in_a_row = 0
            return command
        self._missing = self._missing if self._in_a_row else missing
        self._in_a_row += 1
        return command

    def _reason(self, command: Command | None) -> str:
        if self._trip_at and self.trip_due:
            return self._trip_at[1]
        if self._in_a_row > self._longest:
            late = self._in_a_row * self._dt
            bound = f"must be <= {1e3 * self._max_bridge:g} ms"
            return f"bridge.max_bridge: no {self._missing} for {1e3 * late:.3g} ms: {bound}"
        if command is None:
            return "no command came"
        return self._check.command(command, self._sent)

    def _begin_stop(self, reason: str, sample: int) -> None:
        self.machine.to(State.STOPPING, f"sample {sample}: {reason}")
        velocity = (self._sent - self._sent_before) / self._dt
        self._stop = SafeStop(self._limits, self._dt, self._sent, velocity)


class MonitorStage:
    """Pairs Targets, Commands and Measurements by their numbers and feeds the monitor in order."""

    def __init__(self, scenario: Scenario) -> None:
        structure = scenario.build_structure()
        self.substeps = scenario.samples_per_step
        self.monitor = Monitor(
            scenario.monitor,
            tuple(scenario.axes),
            len(scenario.dof_names()),
            scenario.dt,
            scenario.reference_energy(structure),
        )
        self._steps = scenario.steps
        self._targets: deque[Target] = deque()
        self._commands: deque[Command] = deque()
        self._measured: deque[Measurement] = deque()
        self._last_step = -1
        self._last_command = 0
        self._last_driven = 0
        self._aim = np.zeros((2, len(scenario.axes)))

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
            self.monitor.step(self._command_of(measured) if sample else None, measured)

    def _command_of(self, measured: Measurement) -> Command:
        """The Command of this sample; where a later one tells that it was lost, its target goes on straight."""
        if self._commands[0].sample <= measured.sample:
            command = self._commands.popleft()
        else:
            aim = 2.0 * self._aim[1] - self._aim[0]
            flags = self._commands[0].flags | FLAG_BRIDGED
            command = Command(measured.sample, aim, measured.command, flags=flags)
        self._aim[0], self._aim[1] = self._aim[1], command.target
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
        return self.monitor.metrics()
