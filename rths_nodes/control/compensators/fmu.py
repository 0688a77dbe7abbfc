# SPDX-License-Identifier: Apache-2.0
"""A controller exported as a functional mock-up unit (FMU), e.g. from Simulink, and run in a separate process.

In each sample the FMU receives the target of the next sample and the last measurement, advances by one sample, and
returns the command. One FMU serves all axes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import numpy as np

from rths_nodes.control.compensators.per_axis import OnNumbers, lead_parameter, read_ahead
from rths_nodes.core.arithmetic import NAN
from rths_nodes.core.control import Floats
from rths_nodes.core.errors import ComponentError
from rths_nodes.core.fmu import FmuParams, FmuProcess, Row, described, unit_name
from rths_nodes.core.parameters import TestContext, number, params, sections, text, texts
from rths_nodes.core.samples import Array

REHEARSED = 5000
INPUTS = {
    "target": "displacement",
    "velocity": "velocity",
    "acceleration": "acceleration",
    "measured": "displacement",
    "force": "force",
}
"""Inputs of an axis and their quantities, in the order that the process expects."""


@params
class AxisVariables:
    command: str = text("output of the FMU: displacement command for the actuator")
    target: str = text("input of the FMU: displacement of the target at the next sample")
    velocity: str | None = text("input: velocity of the target", None)
    acceleration: str | None = text("input: acceleration of the target", None)
    measured: str | None = text("input: displacement measured at the last sample", None)
    force: str | None = text("input: force measured at the last sample", None)


class Fmu(OnNumbers):
    """Runs an FMU as the controller, in a separate process.

    The FMU is not informed of bridged samples or a soft start, so an adaptive controller continues to adapt.
    """

    external = True
    SOURCES = ("blochwitz_2012",)

    @params
    class Params(FmuParams):
        axes: dict[str, AxisVariables] = sections(
            AxisVariables, "variables of the FMU for each axis, by axis name, in the order of the axes"
        )
        lead: float = lead_parameter()
        shown: tuple[str, ...] = texts("outputs of the FMU to record with every sample")
        answer_within: float = number(
            "timeout for one sample of the FMU; in real time the test trips sooner, because bridging is limited",
            "s",
            1.0,
            more_than=0.0,
            at_most=3_600.0,
        )

        def rows(self) -> Iterator[Row]:
            for axis, names in self.axes.items():
                for noun, quantity in INPUTS.items():
                    if (name := getattr(names, noun)) is not None:
                        yield Row(f"axes.{axis}.{noun}", name, "input", quantity)
                yield Row(f"axes.{axis}.command", names.command, "output", "displacement")
            for index, name in enumerate(self.shown):
                yield Row(f"shown[{index}]", name, "output", "")

        def fits(self, test: TestContext) -> None:
            test.check_order("axes", self.axes)
            self.check(test)

        def step_in(self, test: TestContext) -> float:
            return test.dt

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        self._params, self._dt, self._n_axes = params, dt, n_axes
        self._process = FmuProcess(params, dt)
        outputs = self._process.outputs
        self._commands = [outputs.index(names.command) for names in params.axes.values()]
        self._numbers = [outputs.index(name) for name in params.shown]
        self._signals = [
            (index, axis)
            for axis, names in enumerate(params.axes.values())
            for index, noun in enumerate(INPUTS)
            if getattr(names, noun) is not None
        ]
        self.state_names = tuple(_plain(name) for name in params.shown)
        variables = described(params.file).variables if params.shown else {}
        self.state_units: Mapping[str, str] = {
            _plain(name): unit
            for name in params.shown
            if name in variables and (unit := unit_name(variables[name]))
        }
        self._rest()

    def _rest(self) -> None:
        self._sample = 0
        self._acceleration: Floats = [NAN] * self._n_axes
        self._shown = [0.0] * len(self.state_names)

    def open(self) -> None:
        ready = self._process.start("compensator")
        self._rest()
        self._show(ready.tolist())

    def _show(self, outputs: Floats) -> None:
        self._shown = [outputs[number] for number in self._numbers]

    def commands(
        self, x: Floats, v: Floats, a: Floats, measured: Floats, force: Floats, rests: bool, preparing: bool
    ) -> list[float]:
        process = self._process
        if not process.is_open:
            raise ComponentError(f"compensator: {process.name}: the FMU is not open")
        process.share_scheduling()
        if lead := self._params.lead:
            rows = zip(self._acceleration, x, v, a, strict=True)
            self._acceleration = a
            x, v, a = zip(*[read_ahead(lead, self._dt, *row) for row in rows], strict=True)
        nouns = x, v, a, measured, force
        try:
            inputs = np.array([nouns[noun][axis] for noun, axis in self._signals])
            process.begin(self._sample, inputs)
            outputs = process.wait().tolist()
        except RuntimeError as error:
            raise ComponentError(
                f"compensator: {process.name}: {error} (at {self._sample * self._dt:g} s)"
            ) from error
        self._sample += 1
        self._show(outputs)
        return [outputs[number] for number in self._commands]

    def state(self) -> list[float]:
        return self._shown

    def reset(self) -> None:
        if not self._process.moved:
            return
        self._rest()
        try:
            self._process.set_back()
            self._show(self._process.wait().tolist())
        except RuntimeError as error:
            raise ComponentError(f"compensator: {self._process.name}: {error}") from error

    def rehearsed(self) -> Array:
        nothing, took = [0.0] * self._n_axes, []
        try:
            self.open()
            for _ in range(REHEARSED):
                began = time.perf_counter()
                self.commands(nothing, nothing, nothing, nothing, nothing, False, False)
                took.append(time.perf_counter() - began)
        finally:
            self.close()
        return np.array(took)

    def close(self) -> None:
        self._process.close()


def _plain(name: str) -> str:
    return name.replace("[", "_").replace("]", "")
