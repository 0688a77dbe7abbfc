# SPDX-License-Identifier: Apache-2.0
"""From what a test publishes to what a watcher judges: its axes, in the order of the rig."""

from __future__ import annotations

import math
from typing import Any

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import MODE_FORCE
from rths_nodes.laboratory.corrections import UNCORRECTED
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.watch.watcher import Statement, Watch


class Hearing:
    """Hands what a test on ``rig`` says to ``watch``."""

    def __init__(self, rig: RigFile, watch: Watch) -> None:
        self._rig, self._watch = rig, watch
        self._places: list[int] = []
        """Where a message has the axes of the rig."""
        self._shown: list[int | None] = []
        """Where a message has what the load cells show; None where that is its force."""
        self._by_force = [axis.force_control is not None for axis in rig.axes.values()]
        self._state = -1

    def state(self, told: Any) -> bool:
        """Take in a TestState of the procedure; whether it is another one than before."""
        try:
            self._understand(list(told.axis_names), list(told.auxiliary_names), told.servo_rate)
        except ConfigError as error:
            self._watch.end(f"the test is none of this rig: {'; '.join(error.problems)}")
        changed = bool(told.state != self._state)
        self._state = told.state
        if changed:
            self._watch.told(told.state)
        return changed

    def _understand(self, axes: list[str], auxiliary: list[str], rate: float) -> None:
        if rate != self._rig.servo_rate:
            raise ConfigError(f"servo_rate = {rate:g} Hz, of the rig {self._rig.servo_rate:g} Hz")
        mine = self._rig.axis_of(axes)
        scenario_of = {axis: name for name, axis in mine.items()}
        names = [scenario_of[axis] for axis in self._rig.axes]
        channels = [each.partition(" [")[0] for each in auxiliary]
        self._places = [axes.index(name) for name in names]
        shown = [f"{UNCORRECTED}{name}" for name in names]
        self._shown = [channels.index(each) if each in channels else None for each in shown]

    def rig(self, at: float, told: Any) -> None:
        """Take in a Measurement of the rig that was heard at ``at`` (s)."""
        if not self._places:
            return  # of a test that has not said which axes it has
        places, n = self._places, len(self._places)
        if any(len(values) != n for values in (told.displacement, told.force, told.command)):
            self._watch.end(f"the test says numbers of {len(told.displacement)} axes, and has {n}")
            return
        if any(each is not None and each >= len(told.auxiliary) for each in self._shown):
            self._watch.end("the test does not say what its load cells show")
            return
        modes = list(told.control_mode) or [0] * n
        commands = []
        for by_force, place in zip(self._by_force, places, strict=True):
            forced = by_force and place < len(modes) and modes[place] == MODE_FORCE
            command = told.command[place]
            commands.append(math.nan if forced else command if math.isfinite(command) else math.inf)
        forces = [
            told.force[place] if channel is None else told.auxiliary[channel]
            for place, channel in zip(places, self._shown, strict=True)
        ]
        displacements = tuple(told.displacement[place] for place in places)
        self._watch.hear(Statement(at, told.sample, displacements, tuple(forces), tuple(commands)))
