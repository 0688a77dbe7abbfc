# SPDX-License-Identifier: Apache-2.0
"""FMU in a scenario: file, values of parameters, and roles of variables in a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rths_nodes.core.checks import TestContext
from rths_nodes.core.data import Data
from rths_nodes.core.errors import Problems
from rths_nodes.core.fmu.description import described, number_in
from rths_nodes.core.parameters import mapping, number, params, path

SHARE_OF_STEP = 1e-9
"""Relative tolerance within which a step is a multiple of the FMU's internal step."""


class Row(NamedTuple):
    """Describes an input or output named by the parameter ``place``. An empty ``quantity`` accepts any unit."""

    place: str
    name: str
    causality: str
    quantity: str


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
                self.factor(row)
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
        inner = number_in(description.simulation.fixedInternalStepSize)
        if inner and abs(step / inner - round(step / inner)) > SHARE_OF_STEP * step / inner:
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

    def factor(self, row: Row) -> float:
        """Return a variable's factor to SI. Raises ConfigError if the FMU declares the variable differently."""
        description = described(self.file)
        variable = description.variable(row.place, row.name, row.causality)
        if not row.quantity:  # shown without conversion
            return 1.0
        return description.factor(row.place, variable, row.quantity, self.units.get(row.name))

    def contents(self) -> list[str]:
        fed = [row.name for row in self.rows() if row.causality == "input"]
        return described(self.file).lines(fed, self.parameters)

    def settings(self) -> list[tuple[str, int, object]]:
        """Return kind, value reference and value of each parameter in ``parameters``.

        Raises ConfigError if a parameter cannot be set to its value.
        """
        description, settings = described(self.file), []
        enumeration = "Integer" if description.version == 2 else "Int64"
        for name, value in self.parameters.items():
            variable = description.parameter("parameters", name, value)
            kind = enumeration if variable.type == "Enumeration" else variable.type
            settings.append((kind, variable.valueReference, value))
        return settings
