# SPDX-License-Identifier: Apache-2.0
"""An FMU as a scenario names it: the file, values of its parameters, and what its variables are in a test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from rths_nodes.core.checks import TestContext
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, Problems
from rths_nodes.core.fmu.description import Description, Variable, described, factor_of, listed
from rths_nodes.core.fmu.process import Feed
from rths_nodes.core.parameters import mapping, number, params, path

SHARE_OF_STEP = 1e-9
"""Share of a step by which it may differ from a whole number of inner steps of the FMU."""


class Row(NamedTuple):
    """A variable of the FMU at its ``place`` in the section, as input or output; empty ``quantity`` for any."""

    place: str
    name: str
    causality: str
    quantity: str

    def factor(self, found: Description, units: Mapping[str, str]) -> float:
        """Return what one of it is in SI. Raises ConfigError where the FMU does not have it so."""
        variable = found.variable(self.place, self.name, self.causality)
        if not self.quantity:  # it is shown as it stands
            return 1.0
        return factor_of(self.place, variable, self.quantity, units.get(self.name))


@params
class FmuParams:
    """Parameters of every component that is an FMU."""

    file: str = path("the FMU: co-simulation, FMI 2.0 or 3.0, with a binary for this machine", runs=True)
    parameters: Data = mapping(
        "parameters of the FMU by name: each a number in the unit that the FMU declares, true, false or text"
    )
    units: Mapping[str, str] = mapping(
        "unit of each variable of the FMU for which it declares none itself, e.g. {x1: mm}"
    )
    start_within: float = number(
        "how long the FMU may take to be loaded and initialised", "s", 60.0, more_than=0.0, at_most=3_600.0
    )
    answer_within: float = number(
        "how long the FMU may take for a step; in real time the bridges end sooner",
        "s",
        10.0,
        more_than=0.0,
        at_most=3_600.0,
    )

    def rows(self) -> Iterator[Row]:
        """The variables that the test feeds or reads, in the order in which a process gets them."""
        raise NotImplementedError

    def check(self, step: float) -> None:
        """Refuses what the FMU in the file does not have, or does not mean so; it is stepped by ``step`` (s)."""
        found, problems = described(self.file), Problems()
        for row in self.rows():
            with problems.gathered():
                row.factor(found, self.units)
        for name, value in self.parameters.items():
            with problems.gathered():
                found.parameter("parameters", name, value)
        _check_units(self, found, problems)
        if (inner := found.fixed_step) and abs(step / inner - round(step / inner)) > SHARE_OF_STEP * step / inner:
            problems.append(
                f"file = {self.file!r}: is stepped by {step:g} s: must be a multiple of its own {inner:g} s"
            )
        names = [row.name for row in self.rows()]
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            problems.append(f"{name!r} of the FMU stands in two places: {', '.join(_places(self, name))}")
        problems.refuse()

    def contents(self) -> list[str]:
        """Describe the FMU: its variables, with their units, and inputs that the test does not feed."""
        fed = [row.name for row in self.rows() if row.causality == "input"]
        return listed(described(self.file), fed, self.parameters)

    def feeds(self) -> tuple[Feed, Feed]:
        """Inputs and outputs of the process. Raises ConfigError as :meth:`check`."""
        found = described(self.file)
        return _feed(self, found, "input"), _feed(self, found, "output")

    def settings(self) -> list[tuple[str, int, object]]:
        """Kind, value reference and value of each parameter that the scenario sets. Raises ConfigError."""
        found = described(self.file)
        of = {name: found.parameter("parameters", name, value) for name, value in self.parameters.items()}
        return [(_setter(found, of[name]), of[name].reference, value) for name, value in self.parameters.items()]


def check_axes(axes: Iterable[str], test: TestContext) -> None:
    """Refuses (ConfigError) variables for other ``axes`` than the test has, or in another order."""
    if (given := tuple(axes)) != test.axes:
        raise ConfigError(
            f"axes: of {', '.join(given) or 'none'}; must be of the axes of the test in their order: "
            f"{', '.join(test.axes)}"
        )


def _check_units(params: FmuParams, found: Description, problems: Problems) -> None:
    """Refuses units of variables that are not converted: one that is misspelt would go unseen."""
    used = {row.name for row in params.rows() if row.quantity}
    for name, unit in params.units.items():
        if name not in used:
            problems.append(
                f"units.{name} = {unit!r}: the test has no such variable; it has {', '.join(sorted(used))}"
            )


def _places(params: FmuParams, name: str) -> list[str]:
    return [row.place for row in params.rows() if row.name == name]


def _feed(params: FmuParams, found: Description, causality: str) -> Feed:
    rows = [row for row in params.rows() if row.causality == causality]
    factors = np.array([row.factor(found, params.units) for row in rows], float)
    return Feed([found.variables[row.name].reference for row in rows], [row.name for row in rows], factors)


def _setter(found: Description, variable: Variable) -> str:
    """Return the type by which fmpy sets a variable; an enumeration is set as the whole number that it is."""
    if variable.kind == "Enumeration":
        return "Integer" if found.version == 2 else "Int64"
    return variable.kind
