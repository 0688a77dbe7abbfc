# SPDX-License-Identifier: Apache-2.0
"""Cache warm-up: a twin does the work of an integration step before the step itself.

Between two steps, other work evicts code and data of a step from the caches of the processor. A warm-up loads part
of this code and data again. The twin shares no state with the test (``core/protocols.py``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rths_nodes.core.samples import Command, Measurement, Target
from rths_nodes.core.wire import Codec
from rths_nodes.loop.scenario.assembly import Assembly, Names
from rths_nodes.loop.stages.command import CommandStage
from rths_nodes.loop.stages.numerical import NumericalStage


def step_warm_up(assembly: Assembly) -> Callable[[Codec], Target | None]:
    """Return a function that computes the next Target of a twin; it returns None after the last step."""
    stage, measured = NumericalStage(assembly.twin(loaded=False)), _resting_measurement(assembly.names)

    def warm_up(codec: Codec) -> Target | None:
        codec.unpack_measurement(codec.pack_measurement(measured, 0))
        target = stage.next(measured)
        if target is not None:
            measured.sample += stage.substeps
            codec.pack_target(target, 0)
        return target

    return warm_up


def command_warm_up(assembly: Assembly) -> Callable[[Codec], Command | None]:
    """Return a function that passes a Target to a twin and returns its first Command, or None at the end."""
    names, stage = assembly.names, CommandStage(assembly.twin())
    measured = _resting_measurement(names)
    nothing, inputs = np.zeros(len(names.observed)), np.zeros(len(names.inputs))
    target = Target(0, nothing, nothing, nothing, nothing, nothing, nothing, inputs)
    stage.target(target)

    def warm_up(codec: Codec) -> Command | None:
        target.step += 1
        stage.target(codec.unpack_target(codec.pack_target(target, 0))[0])
        command = stage.next(measured)
        measured.sample += stage.substeps
        if command is not None:
            codec.pack_command(command, 0)
        return command

    return warm_up


def _resting_measurement(names: Names) -> Measurement:
    nothing = np.zeros(len(names.axes))
    return Measurement(0, nothing, nothing, nothing, np.zeros(len(names.auxiliary)))
