# SPDX-License-Identifier: Apache-2.0
"""Cache warm-up: the work of an integration step on a twin, before the step itself.

Between two steps other work evicts code and data of a step from the processor's caches. A warm-up in the time
before a step fetches some of them, and does not affect the test: components share no state
(``core/protocols.py``).
"""

from __future__ import annotations

import numpy as np

from rths_nodes.core.samples import Measurement, Target
from rths_nodes.core.wire.codec import Codec
from rths_nodes.loop.scenario.assembly import Assembly, Names
from rths_nodes.loop.stages.command import CommandStage
from rths_nodes.loop.stages.numerical import NumericalStage


class StepWarmUp:
    def __init__(self, assembly: Assembly) -> None:
        self.stage = NumericalStage.of(assembly.twin(loaded=False))
        self._measured = _resting_measurement(assembly.names)

    def __call__(self, codec: Codec) -> Target | None:
        measured = self._measured
        codec.unpack_measurement(codec.pack_measurement(measured, 0))
        target = self.stage.next(measured)
        if target is not None:
            measured.sample += self.stage.substeps
            codec.pack_target(target, 0)
        return target


class CommandWarmUp:
    """First Command of a step: Target and Measurement in."""

    def __init__(self, assembly: Assembly) -> None:
        names = assembly.names
        self.stage = CommandStage.of(assembly.twin())
        self._measured = _resting_measurement(names)
        nothing, inputs = np.zeros(len(names.observed)), np.zeros(len(names.inputs))
        self._target = Target(0, nothing, nothing, nothing, nothing, nothing, nothing, inputs)
        self.stage.target(self._target)

    def __call__(self, codec: Codec) -> None:
        target, measured = self._target, self._measured
        target.step += 1
        received, _ = codec.unpack_target(codec.pack_target(target, 0))
        self.stage.target(received)
        command = self.stage.next(measured)
        measured.sample += self.stage.substeps
        if command is not None:
            codec.pack_command(command, 0)


def _resting_measurement(names: Names) -> Measurement:
    nothing = np.zeros(len(names.axes))
    return Measurement(0, nothing, nothing, nothing, np.zeros(len(names.auxiliary)))
