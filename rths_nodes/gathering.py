"""A rig whose axes have a node each: one axis, and the port that gathers all of them.

The rig keeps one authority: its stage checks the limits of all axes, owns the state of the test and stops all axes
together. Its port is no hardware here but sends every axis its Command and waits for its Measurement, paired by
sample. Every axis has its own port behind it, checks its own limits again and stops by itself when nobody leads it
any more. The same objects, in the same order, as with one node: results are equal to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from rths_nodes.components import EMPTY, FLAG_SLIPPED, FLAG_TRIPPED, Array, Command, Measurement
from rths_nodes.params import ConfigError, as_data, unknown
from rths_nodes.safety import LimitCheck, SafeStop
from rths_nodes.scenario import Scenario, replace
from rths_nodes.stages import RigStage

ACTUATOR_NODES = ("one", "per_axis")
"""One actuator node for the whole rig, or one more for each axis, which it gathers."""

NOTHING = np.full(1, np.nan)
"""What a lost axis has measured."""


def check_layout(scenario: Scenario) -> None:
    """Refuse, with ConfigError, a rig whose axes cannot have a node each."""
    if scenario.rig is not None:
        raise ConfigError("rig: couples its axes, so they have one actuator node; actuator_nodes must be one")
    if getattr(scenario.port, "watchdog", None) is not None:
        raise ConfigError(
            f"port.watchdog = {scenario.port.watchdog:g} s: is for a rig with one actuator node; a node per axis "
            "stops its axis by itself"
        )
    for name in scenario.axes:
        if not name.isidentifier() or not name.isascii() or "__" in name:
            raise ConfigError(
                f"axes.{name}: must be ASCII letters, digits and single _, not a digit first, to name the "
                "namespace of its node"
            )


def alone(scenario: Scenario, axis: str) -> Scenario:
    """The rig of ``scenario`` with this axis only. Raises ConfigError that lists the known axes."""
    check_layout(scenario)
    if axis not in scenario.axes:
        raise unknown("namespace", "axis", axis, scenario.axes)
    return replace(scenario, [(["axes"], {axis: as_data(scenario.axes[axis])})])


class AxisStage:
    """One axis of the rig behind its own port, with its limits and a safe stop of its own. Arrays ``(1,)``.

    ``trip`` is why it does not follow its Commands any more; empty while it does.
    """

    def __init__(self, scenario: Scenario, axis: str) -> None:
        mine = alone(scenario, axis)
        self.port = mine.build_port()
        if not self.port.simulated:
            raise ConfigError(
                "port: is not a simulator: only an operator may arm it, which this version cannot do"
            )
        self._limits, self._dt = mine.limits, mine.dt
        self._check = LimitCheck(self._limits, self._dt)
        self._stop: SafeStop | None = None
        self._next = 0
        self.trip = ""
        self.astray = False
        """True when a Command is missing: the rig, which goes by numbers, cannot lead this axis any more."""
        self.port.open()
        self._sent = self._sent_before = self.port.read().command

    @property
    def sample(self) -> int:
        """The last sample measured; -1 before Measurement 0."""
        return self._next - 1

    @property
    def at_rest(self) -> bool:
        """True when the axis holds, or was not moved by its last Command."""
        return self._stop.at_rest if self._stop is not None else bool((self._sent == self._sent_before).all())

    def stop(self, reason: str) -> None:
        """Follow no Command any more: the safe stop begins with the velocity of the last two."""
        if self._stop is None:
            self.trip = reason
            velocity = (self._sent - self._sent_before) / self._dt
            self._stop = SafeStop(self._limits, self._dt, self._sent, velocity)

    def follow(self, command: Command) -> Measurement | None:
        """Measurement k for Command k; Command 0 moves nothing. One that came twice has none.

        Where a number is left out the axis stops by itself, and its Measurements keep their own numbers.
        """
        if command.sample < self._next:
            return None
        if command.sample > self._next:
            self.astray = True
            self.stop(f"Command {command.sample} came where {self._next} was expected")
            return self.coast()
        if command.sample == 0:
            self._next = 1
            return self._measured()
        if self._stop is None and (reason := self._check.command(command, self._sent)):
            self.stop(reason)
        if self._stop is not None:
            return self.coast()
        measured = self._tick(command.command.copy())
        stopping = command.flags & FLAG_TRIPPED  # the rig stops all axes together: no measurement ends that
        if not stopping and (reason := self._check.measurement(measured, command.target)):
            self.stop(reason)
            measured.flags |= FLAG_TRIPPED
        return measured

    def coast(self) -> Measurement:
        """One sample of the axis' own safe stop."""
        assert self._stop is not None
        measured = self._tick(np.array(self._stop.step()))
        measured.flags |= FLAG_TRIPPED
        return measured

    def _tick(self, applied: Array) -> Measurement:
        self._next = self.port.wait_tick() + 1
        self.port.write(applied)
        self._sent_before, self._sent = self._sent, applied
        return self._measured()

    def _measured(self) -> Measurement:
        measured: Measurement = self.port.read()
        return measured


class Links(Protocol):
    """How the gathering port reaches its axes."""

    def send_command(self, axis: str, command: Command) -> None:
        """Hand a Command to an axis."""
        ...

    def measurement_of(self, axis: str) -> Measurement | None:
        """The next Measurement of an axis, if it has come."""
        ...

    def true_state_of(self, axis: str) -> tuple[Measurement, int] | None:
        """The next true state of an axis and its stamp, if it has come; a real axis has none."""
        ...

    def wait_for(self, axes: Sequence[str], sample: int) -> str:
        """Wait a little for Measurement ``sample`` of ``axes``; why they are given up, empty when they are not."""
        ...


class GatheringPort:
    """The port of a rig whose axes have a node each.

    ``problem`` is why the rig must not go on: an axis that is lost, or has stopped by itself. A lost axis is not
    waited for any more, its measurements are nan.
    """

    simulated = True
    auxiliary_names: tuple[str, ...] = ()
    auxiliary_inputs: tuple[str, ...] = ()

    def __init__(self, scenario: Scenario, links: Links) -> None:
        check_layout(scenario)
        self.transport_samples = scenario.port.transport_samples
        self.pacer: Any = None
        self._links = links
        self._axes = tuple(scenario.axes)
        self.open()

    def open(self) -> None:
        """At sample 0, nothing sent."""
        n_axes = len(self._axes)
        self.sample = 0
        self.stopping = False
        self.problem = ""
        self.target = np.zeros(n_axes)
        self.command_flags = 0
        self._slipped = 0
        self._applied = np.zeros(n_axes)
        self.lost: set[str] = set()
        """Axes that do not answer: they are not led any more."""
        self.unheard: set[str] = set()
        """These, and those whose Measurements do not count any more, because one is missing."""
        self._truths: dict[str, tuple[Measurement, int]] = {}
        self._true_sample = 0
        self._tells_truth: set[str] = set()

    def begin(self) -> None:
        """Ask every axis for Measurement 0."""
        self._send(0)

    def wait_tick(self) -> int:
        self.sample += 1
        self._slipped = FLAG_SLIPPED if self.pacer is not None and self.pacer() else 0
        return self.sample

    def write(self, command: Array, auxiliary: Array = EMPTY) -> None:
        self._applied = command
        self._send(FLAG_TRIPPED if self.stopping else self.command_flags)

    def _send(self, flags: int) -> None:
        target = self._applied if self.stopping else self.target
        for i, axis in enumerate(self._axes):
            if axis not in self.lost:
                mine = slice(i, i + 1)
                self._links.send_command(
                    axis, Command(self.sample, target[mine], self._applied[mine], EMPTY, flags)
                )

    def read(self) -> Measurement:
        """Measurement k of all axes; returns when the last one is here, or given up."""
        found: dict[str, Measurement] = {}
        while missing := [axis for axis in self._axes if axis not in found and axis not in self.unheard]:
            for axis in missing:
                measured = self._links.measurement_of(axis)
                if measured is not None and self._belongs(axis, measured):
                    found[axis] = measured
            silent = [axis for axis in missing if axis not in found and axis not in self.unheard]
            if silent and (reason := self._links.wait_for(silent, self.sample)):
                self.lost.update(silent)
                self.unheard.update(silent)
                self.problem = self.problem or reason
        merged = self._merged(found, self.sample)
        merged.flags |= self._slipped
        return merged

    def _belongs(self, axis: str, measured: Measurement) -> bool:
        """True for the Measurement of this sample; an older one came twice, before a later one some are lost."""
        if measured.sample > self.sample:
            self.unheard.add(axis)
            came = f"Measurement {measured.sample} came where {self.sample} was expected"
            self.problem = self.problem or f"axes.{axis}: {came}"
        elif measured.sample == self.sample and measured.flags & FLAG_TRIPPED and not self.stopping:
            self.problem = self.problem or f"axes.{axis}: its node has stopped it"
        return measured.sample == self.sample

    def _merged(self, found: dict[str, Measurement], sample: int) -> Measurement:
        flags = 0
        for measured in found.values():
            flags |= measured.flags
        rows = [found.get(axis) for axis in self._axes]
        displacement = np.concatenate([NOTHING if row is None else row.displacement for row in rows])
        force = np.concatenate([NOTHING if row is None else row.force for row in rows])
        applied = np.concatenate(
            [self._applied[i : i + 1] if row is None else row.command for i, row in enumerate(rows)]
        )
        return Measurement(sample, displacement, force, applied, EMPTY, flags)

    def true_state(self) -> tuple[Measurement, int] | None:
        """The next true state of the rig and its stamp, when those of all axes are here."""
        for axis in self._axes:
            while axis not in self._truths and (found := self._links.true_state_of(axis)) is not None:
                self._tells_truth.add(axis)
                if found[0].sample >= self._true_sample:  # an older one came twice
                    self._truths[axis] = found
        awaited = [axis for axis in self._axes if axis not in self._truths]
        known = len(self._tells_truth) == len(self._axes)  # a real axis has no true state, then the rig has none
        if not known or not self._truths or not self.lost.issuperset(awaited):
            return None
        merged = self._merged({axis: true for axis, (true, _) in self._truths.items()}, self._true_sample)
        stamp = next(iter(self._truths.values()))[1]
        self._truths.clear()
        self._true_sample += 1
        return merged, stamp

    @property
    def true_state_complete(self) -> bool:
        """True when the true state of every sample is told."""
        return self._true_sample > self.sample

    interlock = ""

    def arm_watchdog(self) -> None:
        """Nobody stands behind this port but the axes, and they look after themselves."""

    def disarm_watchdog(self) -> None:
        """There is none."""

    def safe(self) -> None:
        """The axes stop by themselves when nobody leads them: each has its own safe stop."""

    def close(self) -> None:
        """Nothing to give back."""


class GatheringStage(RigStage):
    """The stage of such a rig: what the port finds out about its axes counts as a breach."""

    port: GatheringPort

    def __init__(self, scenario: Scenario, links: Links) -> None:
        super().__init__(scenario)
        self.port = GatheringPort(scenario, links)
        self._check = _Check(scenario, self.port)

    def first(self) -> Measurement:
        """Start the test: Measurement 0, for which the axes are asked."""
        self.port.begin()
        return super().first()

    def _driven(self, command: Command | None, late: bool, sample: int) -> Command | None:
        driving = super()._driven(command, late, sample)
        if driving is not None:
            self.port.target, self.port.command_flags = driving.target, driving.flags
        return driving

    def _begin_stop(self, reason: str, sample: int) -> None:
        self.port.stopping = True
        # an axis is lost because something has happened: who asked for a trip knows what
        told = self._trip_at[1] if self._trip_at is not None and self.port.unheard else reason
        super()._begin_stop(told, sample)


class _Check(LimitCheck):
    """The limits of all axes, and what the port has found out."""

    def __init__(self, scenario: Scenario, port: GatheringPort) -> None:
        super().__init__(scenario.limits, scenario.dt)
        self._port = port

    def measurement(self, measured: Measurement, target: Array) -> str:
        """The limits come first, in the words of a rig with one node; a lost axis has no measurement."""
        if self._port.unheard:
            return self._port.problem
        return super().measurement(measured, target) or self._port.problem
