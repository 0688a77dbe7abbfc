# SPDX-License-Identifier: Apache-2.0
"""Rehearsal with a functional mock-up unit (FMI) as specimen. The FMU computes the forces of all axes.

The stiffness between two steps of the FMU is a parameter (``external_specimen.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np

from rths_nodes.core.checks import TestContext
from rths_nodes.core.declarations import OfParams
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.fmu.process import FmuParams, FmuProcess, Row
from rths_nodes.core.parameters import components, integer, number, params, sections, text
from rths_nodes.core.samples import Array
from rths_nodes.laboratory.rigs.external_specimen import Followed

NOUNS = ("displacement", "velocity", "acceleration")

log = logging.getLogger(__name__)


@params
class AxisVariables:
    displacement: str = text("input of the FMU: displacement of the actuator")
    velocity: str | None = text("input: its velocity", None)
    acceleration: str | None = text("input: its acceleration", None)
    force: str = text("output of the FMU: restoring force of the specimen; its start value counts as zero")
    stiffness: float = number(
        "initial stiffness of the specimen, which applies between two steps of the FMU", "N/m", 0.0
    )


class Fmu(Followed):
    """Simulates actuators that move an FMU."""

    SOURCES = ("blochwitz_2012",)

    @params
    class Params(FmuParams):
        axes: dict[str, AxisVariables] = sections(
            AxisVariables, "variables of the FMU for each axis, by axis name, in the order of the axes"
        )
        actuators: dict[str, OfParams] = components(
            "actuator", "actuator of each axis, by axis name, in the order of the axes"
        )
        every: int = integer("number of samples per step of the FMU", default=1, at_least=1, at_most=1000)

        def rows(self) -> Iterator[Row]:
            for axis, names in self.axes.items():
                for noun in NOUNS:
                    if (name := getattr(names, noun)) is not None:
                        yield Row(f"axes.{axis}.{noun}", name, "input", noun)
                yield Row(f"axes.{axis}.force", names.force, "output", "force")

        def fits(self, test: TestContext) -> None:
            test.check_order("axes", self.axes)
            test.check_order("actuators", self.actuators)
            self.check(test)

        def step_in(self, test: TestContext) -> float:
            return self.every * test.dt

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        self._process = FmuProcess(params, params.every * dt)
        self.name = self._process.name
        self._hold(params.actuators, params.every, dt)
        self._stiffness = np.diag([names.stiffness for names in params.axes.values()])
        self._signals = [
            (NOUNS.index(noun), axis)
            for axis, names in enumerate(params.axes.values())
            for noun in NOUNS
            if getattr(names, noun) is not None
        ]
        self.reset()

    def reset(self) -> None:
        super().reset()
        self._taken = 0
        process = self._process
        if process.moved:
            try:
                process.set_back()
                process.wait()
            except RuntimeError as error:
                raise ConfigError(f"rig.file = {process.name!r}: {error}") from error

    def open(self) -> None:
        self._at_rest = self._process.start("rig")
        if self._at_rest.any():
            log.info("%s: the forces at the start, %s N, count as zero", self.name, self._at_rest.tolist())

    def share_scheduling(self) -> None:
        self._process.share_scheduling()

    def _ask(self, x: Array, v: Array, a: Array) -> Array:
        nouns = x, v, a
        inputs = np.array([nouns[noun][axis] for noun, axis in self._signals])
        self._process.begin(self._taken, inputs)
        self._taken += 1
        return self._process.wait() - self._at_rest

    def close(self) -> None:
        self._process.close()
