# SPDX-License-Identifier: Apache-2.0
"""FMU in a scenario: file, values of parameters, and roles of variables in a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from rths_nodes.core.checks import TestContext
from rths_nodes.core.data import Data
from rths_nodes.core.errors import Problems
from rths_nodes.core.fmu.description import Description, Variable, described, factor_of, listed
from rths_nodes.core.fmu.process import Feed
from rths_nodes.core.parameters import mapping, number, params, path

SHARE_OF_STEP = 1e-9
"""Relative tolerance within which a step is a multiple of the FMU's internal step."""


class Row(NamedTuple):
    """Describes an input or output named by the parameter ``place``. An empty ``quantity`` accepts any unit."""

    place: str
    name: str
    causality: str
    quantity: str

    def factor(self, description: Description, units: Mapping[str, str]) -> float:
        """Return the variable's factor to SI. Raises ConfigError if the FMU declares the variable differently."""
        variable = description.variable(self.place, self.name, self.causality)
        if not self.quantity:  # shown without conversion
            return 1.0
        return factor_of(self.place, variable, self.quantity, units.get(self.name))


@params
class FmuParams:
    file: str = path("FMU file for co-simulation (FMI 2.0 or 3.0), with a binary for this machine", runs=True)
    parameters: Data = mapping(
        "values of the FMU's parameters by name; numbers are in the unit that the FMU declares, other "
        "values are true, false or text"
    )
    units: Mapping[str, str] = mapping("units of variables for which the FMU declares none, e.g. {x1: mm}")
    start_within: float = number(
        "timeout for loading and initialising the FMU", "s", 60.0, more_than=0.0, at_most=3_600.0
    )
    answer_within: float = number(
        "timeout for a step of the FMU; in real time, the limit of bridging is shorter",
        "s",
        10.0,
        more_than=0.0,
        at_most=3_600.0,
    )

    def rows(self) -> Iterator[Row]:
        """Yield the inputs and outputs that the test uses, in the order of the model process."""
        raise NotImplementedError

    def step_in(self, test: TestContext) -> float:
        raise NotImplementedError

    def cautions(self, test: TestContext) -> list[str]:
        step, preferred = self.step_in(test), described(self.file).preferred_step or 0.0
        if preferred <= step * (1.0 + SHARE_OF_STEP):
            return []
        return [
            f"file = {self.file!r}: the step is {step:g} s, but the default experiment of the FMU has a stepSize "
            f"of {preferred:g} s. Use a step of {preferred:g} s, because otherwise some steps may not change the "
            "outputs"
        ]

    def check(self, test: TestContext) -> None:
        """Raise ConfigError for variables that the FMU lacks or declares differently, and for an invalid step."""
        description, problems, step = described(self.file), Problems(), self.step_in(test)
        for row in self.rows():
            with problems.gathered():
                row.factor(description, self.units)
        for name, value in self.parameters.items():
            with problems.gathered():
                description.parameter("parameters", name, value)
        used = {row.name for row in self.rows() if row.quantity}
        for name, unit in self.units.items():
            if name not in used:
                problems.append(
                    f"units.{name} = {unit!r}: the test does not use this variable, but only "
                    f"{', '.join(sorted(used))}"
                )
        if (inner := description.fixed_step) and abs(
            step / inner - round(step / inner)
        ) > SHARE_OF_STEP * step / inner:
            problems.append(
                f"file = {self.file!r}: the step is {step:g} s: must be a multiple of the FMU's "
                f"internal step, {inner:g} s"
            )
        places: dict[str, list[str]] = {}
        for row in self.rows():
            places.setdefault(row.name, []).append(row.place)
        problems += [
            f"{name!r} of the FMU is used twice: {', '.join(twice)}"
            for name, twice in places.items()
            if len(twice) > 1
        ]
        problems.refuse()

    def contents(self) -> list[str]:
        fed = [row.name for row in self.rows() if row.causality == "input"]
        return listed(described(self.file), fed, self.parameters)

    def feeds(self) -> tuple[Feed, Feed]:
        """Return the inputs and outputs that the test uses. Raises the errors of :meth:`check`."""
        description = described(self.file)
        return _feed(self, description, "input"), _feed(self, description, "output")

    def settings(self) -> list[tuple[str, int, object]]:
        """Return kind, value reference and value of each parameter in ``parameters``.

        Raises ConfigError if a parameter cannot be set to its value.
        """
        description = described(self.file)
        variables = {
            name: description.parameter("parameters", name, value) for name, value in self.parameters.items()
        }
        return [
            (_setter(description, variables[name]), variables[name].reference, value)
            for name, value in self.parameters.items()
        ]


def _feed(params: FmuParams, description: Description, causality: str) -> Feed:
    rows = [row for row in params.rows() if row.causality == causality]
    factors = np.array([row.factor(description, params.units) for row in rows], float)
    return Feed([description.variables[row.name].reference for row in rows], [row.name for row in rows], factors)


def _setter(description: Description, variable: Variable) -> str:
    if variable.kind == "Enumeration":
        return "Integer" if description.version == 2 else "Int64"
    return variable.kind
