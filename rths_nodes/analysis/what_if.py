"""What if: the computed part of a recorded test, run again on what was measured.

With nothing changed, integrator, ramp, setup and compensator make of the recorded Measurements the recorded
Commands, to the bit: up to the first sample that was bridged or lost, where more than messages played a part. That
is the proof that a recording holds all that a test depended on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rths_nodes.analysis.identification.from_recording import usable
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.command import CommandStage
from rths_nodes.loop.stages.numerical import NumericalStage
from rths_nodes.recording.run import Run, measurement_of


@dataclass(frozen=True)
class Reproduction:
    """How far the recorded Commands came out again.

    ``compared`` Commands, from the first on, of ``samples`` in the test; ``first_difference`` is the number of the
    first that differs in any bit, None where none does; ``largest`` the largest difference (m).
    """

    compared: int
    samples: int
    first_difference: int | None
    largest: float


def reproduced(run: Run) -> Reproduction:
    """Run the computed part of ``run`` on its Measurements. Raises ConfigError where it cannot be built here.

    What controls auxiliary inputs of a rig is left out: no Command of an axis depends on it.
    """
    assembly = Assembly(run.scenario)
    numerical = NumericalStage(assembly, controlled=False)
    commands = CommandStage.of(assembly)
    count = usable(run)
    numerical.open()
    try:
        if missing := numerical.missing():
            raise ConfigError(f"integrator: needs {missing}: its part of a test is not computed here")
        commands.target(numerical.first())
        first, largest, compared = None, 0.0, 0
        for sample in range(count - 1):
            measured = measurement_of(run, sample)
            target = numerical.next(measured)
            if numerical.pending:
                target = numerical.answer(wait=True)
            if target is not None:
                commands.target(target)
            command = commands.next(measured)
            if command is None:
                break
            compared += 1
            again = command.command[: len(run.axes)]
            if (again != run.command[sample + 1]).any():
                first = sample + 1 if first is None else first
                largest = max(largest, float(np.abs(again - run.command[sample + 1]).max()))
    finally:
        numerical.close()
    return Reproduction(compared, run.scenario.samples, first, largest)
