# SPDX-License-Identifier: Apache-2.0
"""Commands computed before the test, one for each sample and independent of the target.

``rths iterate`` writes the commands, corrected for the tracking error of the previous run.
"""

from __future__ import annotations

import numpy as np

from rths_nodes.control.compensators.per_axis import CoupledKernel, PerAxis
from rths_nodes.core.arithmetic import Numbers, first, numbers
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.parameters import TestContext, params, path
from rths_nodes.core.samples import Array
from rths_nodes.mechanics import history

Constants = tuple[Array]
"""Commands (m), ``(n, n_axes)``: one row per sample."""
State = tuple[int]


def step(
    k: Constants,
    s: State,
    x: Numbers,
    v: Numbers,
    a: Numbers,
    m: Numbers,
    f: Numbers,
    rests: bool,
    preparing: bool,
) -> tuple[State, Numbers]:
    """Return the predefined command of this sample, or the last command after the end of the history."""
    (commands,) = k
    (sample,) = s
    sample = min(sample + 1, len(commands) - 1)
    return (sample,), first(x, numbers(commands[sample]))


def constants(params: Predefined.Params, dt: float) -> Constants:
    return (np.ascontiguousarray(history.load(params.history).command),)


class Predefined(PerAxis):
    """Commands from a file, independent of target and measurement."""

    @params
    class Params:
        history: str = path("history of a run (.npz) with commands, written by rths iterate")

        def fits(self, test: TestContext) -> None:
            if test.has_structure:
                raise ConfigError(
                    "type = 'predefined': the targets must be fixed before the test. Set integrator.type to "
                    "predefined or prescribed"
                )
            if test.has_soft_start:
                raise ConfigError(
                    "type = 'predefined': soft_start must be left out, because the commands begin with the test"
                )
            loaded, path = history.load(self.history), f"history = {show(self.history)}"
            loaded.check(test.axes, test.servo_rate, path)
            loaded.check_length(round(test.duration * test.servo_rate) + 1, path)

    KERNEL = CoupledKernel(constants, lambda k: (0,), step)

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        loaded, path = history.load(params.history), f"compensator.history = {show(params.history)}"
        if not len(loaded.command):
            raise ConfigError(f"{path}: the file has targets, but no commands")
        if len(loaded.axes) != n_axes:
            raise ConfigError(
                f"{path}: the number of axes is {len(loaded.axes)}, but must be {n_axes}, as in the test"
            )
        super().__init__(params, dt, n_axes)
