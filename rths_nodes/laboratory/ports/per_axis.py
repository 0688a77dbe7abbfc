# SPDX-License-Identifier: Apache-2.0
"""Port of a rig with one node per axis. The port sends each axis its Command and merges the Measurements.

Every axis node has the port of its axis, checks the axis limits again, and stops the axis if Commands are missing.
The results are bit-identical to the results of a rig with a single node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.protocols import OfPort, Readback
from rths_nodes.core.samples import (
    EMPTY,
    FLAG_SLIPPED,
    FLAG_TRIPPED,
    HYDRAULICS_NOT_TOLD,
    INTERLOCK_NOT_TOLD,
    MODE_NOT_TOLD,
    Array,
    Command,
    Measurement,
    by_force,
)
from rths_nodes.laboratory.force_control import ForceLoops
from rths_nodes.laboratory.ports.wrappers import ForceLoopPort

NOTHING = np.full(1, np.nan)
KEPT = 4096
NO_MODE = bytes([MODE_NOT_TOLD])


class Links(Protocol):
    def send_command(self, axis: str, command: Command) -> None: ...

    def measurement_of(self, axis: str) -> Measurement | None: ...

    def true_state_of(self, axis: str) -> tuple[Measurement, int] | None:
        """Return the next true state of an axis and its time stamp, or None. A real axis has no true states."""
        ...

    def lost(self, axes: Sequence[str], sample: int) -> str:
        """Return the reason for the loss of Measurement ``sample`` of ``axes``; empty if it can still arrive."""
        ...


class PerAxisPort(OfPort, Readback):
    """Sends Commands to the axis nodes of a rig and merges their Measurements.

    The loss of an axis is reported as ``interlock`` and trips the test. A lost axis receives no further Commands,
    and its measurements are NaN. A stop of an axis by its own node is reported as ``partial_stop``.
    """

    external = True
    simulated = True
    auxiliary_names: tuple[str, ...] = ()
    auxiliary_inputs: tuple[str, ...] = ()

    def __init__(self, axes: Sequence[str], transport_samples: int, links: Links) -> None:
        self.transport_samples = transport_samples
        self._links = links
        self._axes = tuple(axes)
        self.open()

    def open(self, pacer: Callable[[], int] | None = None) -> None:
        self._pacer = pacer
        self.sample = 0
        self._slipped = 0
        self._stopping = 0
        self._applied = np.zeros(len(self._axes))
        self._problem = ""
        self._lost: set[str] = set()
        # lost axes, and axes with a missing Measurement
        self._unheard: set[str] = set()
        self._answers: dict[str, Measurement] = {}
        self._awaited: list[str] = []
        self._truths: dict[str, tuple[Measurement, int]] = {}
        self._true_sample = 0
        self._with_truth: set[str] = set()

    def begin(self) -> None:
        self._send(self._applied, 0)

    @property
    def interlock(self) -> str:
        return self._problem if self._unheard else ""

    @property
    def partial_stop(self) -> str:
        return self._problem

    def wait_tick(self) -> int:
        self.sample += 1
        self._slipped = FLAG_SLIPPED if self._pacer is not None and self._pacer() else 0
        return self.sample

    def write(self, command: Command) -> None:
        self._stopping = command.flags & FLAG_TRIPPED
        self._applied = command.command.copy()
        self._send(command.target, command.flags, command.control_mode)

    def _send(self, target: Array, flags: int, modes: bytes = b"") -> None:
        self._answers = {}
        self._awaited = [axis for axis in self._axes if axis not in self._unheard]
        for i, axis in enumerate(self._axes):
            if axis not in self._lost:
                mine = slice(i, i + 1)
                self._links.send_command(
                    axis, Command(self.sample, target[mine], self._applied[mine], EMPTY, flags, modes[mine])
                )

    def ready(self) -> bool:
        answers, links = self._answers, self._links
        for axis in self._awaited:
            measured = links.measurement_of(axis)
            if measured is not None and self._belongs(axis, measured):
                answers[axis] = measured
        self._awaited = [axis for axis in self._awaited if axis not in answers and axis not in self._unheard]
        if self._awaited and (reason := links.lost(self._awaited, self.sample)):
            self._lost.update(self._awaited)
            self._unheard.update(self._awaited)
            self._problem = self._problem or reason
            self._awaited = []
        return not self._awaited

    def read(self) -> Measurement:
        merged = self._merged(self._answers, self.sample)
        merged.flags |= self._slipped
        return merged

    def _belongs(self, axis: str, measured: Measurement) -> bool:
        # an earlier Measurement is a duplicate; a later Measurement reveals a loss
        if measured.sample > self.sample:
            self._unheard.add(axis)
            came = f"received Measurement {measured.sample}, expected Measurement {self.sample}"
            self._problem = self._problem or f"axes.{axis}: {came}"
        elif measured.sample == self.sample and measured.flags & FLAG_TRIPPED and not self._stopping:
            self._problem = self._problem or f"axes.{axis}: the node of this axis has stopped the axis"
        return measured.sample == self.sample

    def _merged(self, by_axis: dict[str, Measurement], sample: int) -> Measurement:
        flags = 0
        for measured in by_axis.values():
            flags |= measured.flags
        rows = [by_axis.get(axis) for axis in self._axes]
        displacement = np.concatenate([NOTHING if row is None else row.displacement for row in rows])
        force = np.concatenate([NOTHING if row is None else row.force for row in rows])
        applied = np.concatenate(
            [self._applied[i : i + 1] if row is None else row.command for i, row in enumerate(rows)]
        )
        modes = b"".join([NO_MODE if row is None else row.control_mode or NO_MODE for row in rows])
        # report the lowest pressure of all axes
        hydraulics = min((m.hydraulics for m in by_axis.values() if m.hydraulics), default=HYDRAULICS_NOT_TOLD)
        interlock = max((m.interlock for m in by_axis.values()), default=INTERLOCK_NOT_TOLD)
        return Measurement(
            sample, displacement, force, applied, EMPTY, flags, modes if any(modes) else b"", hydraulics, interlock
        )

    def true_state(self) -> tuple[Measurement, int] | None:
        """Return the rig's next true state and its time stamp, or None until each axis has a state or is lost."""
        for axis in self._axes:
            while axis not in self._truths and (truth := self._links.true_state_of(axis)) is not None:
                self._with_truth.add(axis)
                if truth[0].sample >= self._true_sample:  # earlier states are duplicates
                    self._truths[axis] = truth
        awaited = [axis for axis in self._axes if axis not in self._truths]
        # with a real axis the true state of the rig is unknown
        complete = len(self._with_truth) == len(self._axes)
        if not complete or not self._truths or not self._lost.issuperset(awaited):
            return None
        merged = self._merged({axis: true for axis, (true, _) in self._truths.items()}, self._true_sample)
        stamp = next(iter(self._truths.values()))[1]
        self._truths.clear()
        self._true_sample += 1
        return merged, stamp

    @property
    def true_state_complete(self) -> bool:
        return self._true_sample > self.sample

    def truth(self) -> None:
        """Return None, because :meth:`true_state` returns the true states."""

    def arm_watchdog(self) -> None: ...

    def disarm_watchdog(self) -> None: ...

    def safe(self) -> None: ...

    def close(self) -> None: ...


class LoadedAxesPort(ForceLoopPort):
    """Closes the force loops of a rig with one node per axis, whose axis nodes receive commands in m.

    Commands in N are stored until the true states of their samples arrive.
    """

    def __init__(self, port: PerAxisPort, loops: ForceLoops) -> None:
        super().__init__(port, loops)
        self._apart = port
        # each entry: sample, mask of axes with commands in N, commands
        self._loaded: deque[tuple[int, NDArray[np.bool_], Array]] = deque(maxlen=KEPT)

    def read(self) -> Measurement:
        measured = super().read()
        if self._command is not None:
            self._loaded.append((measured.sample, by_force(self._loops.modes), self._command.command))
        return measured

    def true_state(self) -> tuple[Measurement, int] | None:
        state = self._apart.true_state()
        if state is None:
            return None
        true = state[0]
        while self._loaded and self._loaded[0][0] <= true.sample:
            sample, forced, command = self._loaded.popleft()
            if sample == true.sample:
                true.command = np.where(forced, command, true.command)
        return state

    @property
    def true_state_complete(self) -> bool:
        return self._apart.true_state_complete


def before_axes(port: PerAxisPort, loops: ForceLoops) -> PerAxisPort | LoadedAxesPort:
    return LoadedAxesPort(port, loops) if loops else port
