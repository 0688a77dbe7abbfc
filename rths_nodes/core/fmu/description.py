# SPDX-License-Identifier: Apache-2.0
"""Description of an FMU: variables with units, capabilities and platforms.

fmpy reads the description and checks it against the schema of the standard. Document types and entities are
refused, because they could fill the memory or read other files.
"""

from __future__ import annotations

import platform
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rths_nodes.core.dimensions import ACCELERATIONS, FORCES, LENGTHS, VELOCITIES
from rths_nodes.core.errors import ConfigError, show, unknown, within
from rths_nodes.core.fmu.archive import DESCRIPTION, Archive
from rths_nodes.core.text_files import read_head, reason, version_of

FLOATS = ("Real", "Float64")
WHOLE = ("Integer", "Enumeration", *(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)))
DIMENSIONS = ("kg", "m", "s", "A", "K", "mol", "cd", "rad")

QUANTITIES: Mapping[str, tuple[Mapping[str, float], Mapping[str, int]]] = {
    "displacement": (LENGTHS, {"m": 1}),
    "velocity": (VELOCITIES, {"m": 1, "s": -1}),
    "acceleration": (ACCELERATIONS, {"m": 1, "s": -2}),
    "force": (FORCES, {"kg": 1, "m": 1, "s": -2}),
}
"""Quantity of a variable -> factors of its units by name, and exponents of the base units."""

ROUNDED = 1e-5
"""Relative tolerance for factors of known units, which FMUs round."""

LARGEST = sys.float_info.max

IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,199}", re.ASCII)


INSTALL = "pip install fmpy"


def fmpy() -> Any:
    try:
        import fmpy
    except ImportError as error:
        raise ConfigError(
            f"an FMU needs fmpy, which cannot be imported ({error}). Install fmpy: {INSTALL}"
        ) from error
    return fmpy


@dataclass(frozen=True)
class Unit:
    """Describes a unit declared by an FMU: factor to base units, and exponents in the order of ``DIMENSIONS``."""

    name: str
    factor: float | None = None
    offset: float = 0.0
    exponents: tuple[int, ...] = ()


@dataclass(frozen=True)
class Variable:
    """Describes a variable of an FMU.

    ``reference`` is the value reference. ``start`` is the start value as text.
    """

    name: str
    reference: int
    kind: str
    causality: str
    variability: str
    unit: Unit | None
    start: str
    low: float | None
    high: float | None
    array: bool

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """Bounds declared by the FMU, limited to the range of an integer type."""
        if self.kind not in WHOLE:
            return self.low, self.high
        bits = int("".join(filter(str.isdigit, self.kind)) or (32 if self.kind == "Integer" else 64))
        least, most = (0, 2**bits - 1) if self.kind.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return (
            least if self.low is None else max(least, self.low),
            most if self.high is None else min(most, self.high),
        )

    def text(self) -> str:
        unit = f" [{self.unit.name}]" if self.unit else ("" if self.kind in FLOATS else f" ({self.kind})")
        return f"{self.name}{unit}" + (f" = {self.start}" if self.start else "")


@dataclass(frozen=True)
class Description:
    version: int
    name: str
    identifier: str
    token: str
    tool: str
    needs_tool: bool
    keeps_state: bool
    """True if the FMU's state can be saved and restored."""
    fixed_step: float | None
    """Fixed internal step of the FMU, s; None if not declared."""
    tolerance: float | None
    variables: Mapping[str, Variable]
    preferred_step: float | None = None
    """Step of the default experiment, s; None if not declared."""

    @property
    def binaries(self) -> str:
        return "binaries/linux64" if self.version == 2 else f"binaries/{platform.machine()}-linux"

    def of(self, causality: str) -> list[Variable]:
        return [variable for variable in self.variables.values() if variable.causality == causality]

    def variable(self, path: str, name: str, causality: str) -> Variable:
        """Return the float variable ``name`` for parameter ``path``.

        Raises ConfigError if the FMU has no scalar float variable of this name and ``causality``.
        """
        choices = [candidate.name for candidate in self.of(causality) if candidate.kind in FLOATS]
        if (variable := self.variables.get(name)) is None:
            raise unknown(f"{path} = {show(name)}", causality, name, choices)
        if variable.causality != causality:
            raise ConfigError(
                f"{path} = {show(name)}: the variable has the causality {variable.causality} in the FMU, but "
                f"must be one with causality {causality}; known: {', '.join(choices) or 'none'}"
            )
        if variable.kind not in FLOATS or variable.array:
            kind = "an array" if variable.array else f"of the type {variable.kind}"
            raise ConfigError(
                f"{path} = {show(name)}: the variable is {kind} in the FMU: must be {' or '.join(FLOATS)}"
            )
        return variable

    def parameter(self, path: str, name: str, value: Any) -> Variable:
        """Return the parameter ``name``. Raises ConfigError if this parameter cannot be set to ``value``."""
        if (variable := self.variables.get(name)) is None or variable.causality != "parameter":
            raise unknown(path, "parameter", name, [candidate.name for candidate in self.of("parameter")])
        if variable.variability == "constant" or variable.array or variable.kind in ("Binary", "Clock"):
            raise ConfigError(
                f"{path}.{name}: the parameter cannot be set, because it is constant, an array or of "
                f"the type {variable.kind}"
            )
        kind = type(value)
        fits = {bool: ("Boolean",), str: ("String",), int: (*FLOATS, "Float32", *WHOLE)}
        if variable.kind not in fits.get(kind, (*FLOATS, "Float32") if kind is float else ()):
            raise ConfigError(f"{path}.{name} = {show(value)}: must be of the type {variable.kind}")
        if kind in (int, float):
            low, high = variable.bounds
            least, most = (-LARGEST if low is None else low), (LARGEST if high is None else high)
            if not least <= value <= most:  # also refuses nan
                unit = variable.unit.name if variable.unit else ""
                bounds = [
                    f"{sign} {b:g} {unit}".rstrip() for sign, b in ((">=", low), ("<=", high)) if b is not None
                ]
                raise ConfigError(f"{path}.{name} = {show(value)}: must be {' and '.join(bounds) or 'a number'}")
        return variable


def factor_of(path: str, variable: Variable, quantity: str, stated: str | None) -> float:
    """Return the factor to SI of ``variable``, from the unit that the FMU declares, or else the ``stated`` unit.

    Raises ConfigError if the unit does not fit.
    """
    table, exponents = QUANTITIES[quantity]
    si, units = next(iter(table)), ", ".join(table)
    unit, here = variable.unit, f"{path} = {show(variable.name)}"
    if not isinstance(stated, (str, type(None))):
        raise ConfigError(f"units.{variable.name} = {show(stated)}: must be text; known: {units}")
    if unit is None:
        if stated is None:
            raise ConfigError(
                f"{here}: the FMU declares no unit. Set units: {{{variable.name}: {si}}}; known: {units}"
            )
        if stated not in table:
            raise unknown(f"units.{variable.name} = {show(stated)}", f"unit of a {quantity}", stated, table)
        return table[stated]
    if stated is not None and _plain(stated) != _plain(unit.name):
        raise ConfigError(
            f"units.{variable.name} = {show(stated)}: must be the unit that the FMU declares, {unit.name!r}"
        )
    named = table.get(_plain(unit.name))
    if unit.factor is None:
        if named is None:
            raise ConfigError(
                f"{here}: the FMU does not define the unit {unit.name!r} of this variable: must be a unit of a "
                f"{quantity}; known: {units}"
            )
        return named
    expected = tuple(exponents.get(dimension, 0) for dimension in DIMENSIONS)
    if unit.exponents != expected or unit.offset:
        raise ConfigError(
            f"{here}: the unit in the FMU is {unit.name!r}, which is {_in_base_units(unit)}: must be a unit of a "
            f"{quantity}, such as {si}"
        )
    if not 0.0 < unit.factor < float("inf"):
        raise ConfigError(f"{here}: the FMU defines {unit.name!r} as {unit.factor:g} {si}: must be > 0")
    if named is not None and abs(unit.factor - named) > ROUNDED * named:
        raise ConfigError(f"{here}: the FMU defines {unit.name!r} as {unit.factor:g} {si}: must be {named:g} {si}")
    return unit.factor


def _plain(name: str) -> str:
    # m/s², m/s2, m.s-2 -> m/s^2
    squared = name.strip().replace("²", "^2").replace(" ", "")
    return re.sub(r"[.*]?s\^?-(\d)$", lambda m: "/s" if m[1] == "1" else f"/s^{m[1]}", squared).replace(
        "/s2", "/s^2"
    )


def _in_base_units(unit: Unit) -> str:
    powers = [
        f"{dimension}^{n}" if n != 1 else dimension
        for dimension, n in zip(DIMENSIONS, unit.exponents, strict=True)
        if n
    ]
    offset = f" + {unit.offset:g}" if unit.offset else ""
    return f"{unit.factor:g} {' '.join(powers) or '(without a dimension)'}{offset}"


def described(file: str) -> Description:
    with within(f"file = {show(file)}"):
        try:
            version = version_of(Path(file))
            read_head(file, 1)
        except (OSError, ValueError) as error:
            raise ConfigError(f"the file cannot be read ({reason(error)})") from error
        return _described(file, version)


@lru_cache(maxsize=8)
def _described(file: str, version: tuple[int, ...]) -> Description:
    archive = Archive(file)
    described = description_of(archive.description())
    if f"{described.binaries}/{described.identifier}.so" not in archive.names:
        there = sorted({"/".join(name.split("/")[:2]) for name in archive.names if name.startswith("binaries/")})
        sources = any(name.startswith("sources/") and name.endswith(".c") for name in archive.names)
        raise ConfigError(
            f"the FMU has no {described.binaries}/{described.identifier}.so, the binary for this machine. It has "
            f"{', '.join(there) or 'no binaries'}"
            + (". Build the binary from its sources with `fmpy compile`" if sources else "")
        )
    return described


def description_of(xml: bytes) -> Description:
    if b"<!DOCTYPE" in xml or b"<!ENTITY" in xml or b"\0" in xml:
        raise ConfigError(f"{DESCRIPTION} must be UTF-8, without document type and entity declarations")
    package = fmpy()
    with tempfile.TemporaryDirectory(prefix="rths_fmu_") as folder:
        Path(folder, DESCRIPTION).write_bytes(xml)
        try:
            read = _read(package, folder)
        except Exception as error:  # fmpy and lxml raise various exceptions
            lines = [_shortened(line.strip("- ")) for line in str(error).splitlines()]
            more = [f"and {len(lines) - MOST_PROBLEMS} more"] if len(lines) > MOST_PROBLEMS else []
            problem = " / ".join(lines[:MOST_PROBLEMS] + more) or type(error).__name__
            raise ConfigError(f"{DESCRIPTION} is not valid FMI ({problem})") from error
    return _of_fmpy(read)


MOST_PROBLEMS = 4
MOST_CHARACTERS = 200
UNDEFINED = re.compile(r'The unit "[^"]*" of variable ".*" \(line \d+\) is not defined\.')
"""Problem found by fmpy that is ignored, because :func:`factor_of` checks the units of all used variables."""


def _read(package: Any, folder: str) -> Any:
    try:
        return package.read_model_description(folder)
    except package.model_description.ValidationError as error:
        if not all(UNDEFINED.fullmatch(problem) for problem in error.problems):
            raise
        return package.read_model_description(folder, validate=False)


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


def _of_fmpy(read: Any) -> Description:
    simulation = read.coSimulation
    if simulation is None or read.fmiVersion.split(".")[0] not in ("2", "3"):
        kinds = [name for name in ("modelExchange", "scheduledExecution") if getattr(read, name) is not None]
        raise ConfigError(
            f"the file is an FMU of FMI {read.fmiVersion} ({', '.join(kinds) or 'coSimulation'}): must be for "
            "co-simulation with FMI 2.0 or 3.0"
        )
    if not IDENTIFIER.fullmatch(simulation.modelIdentifier or ""):
        raise ConfigError(f"modelIdentifier = {show(simulation.modelIdentifier)}: must be a C identifier")
    units = {unit.name: _unit_of(unit) for unit in read.unitDefinitions}
    variables = [_variable_of(variable, units) for variable in read.modelVariables]
    for variable in variables:
        if variable.causality == "independent" and variable.unit is not None and _plain(variable.unit.name) != "s":
            raise ConfigError(f"the time {variable.name} is in {variable.unit.name!r}: must be in s")
    experiment = read.defaultExperiment
    return Description(
        version=int(read.fmiVersion[0]),
        name=read.modelName or "",
        identifier=simulation.modelIdentifier,
        token=read.guid or "",
        tool=read.generationTool or "",
        needs_tool=simulation.needsExecutionTool,
        keeps_state=simulation.canGetAndSetFMUstate,
        fixed_step=_number(simulation.fixedInternalStepSize),
        preferred_step=_number(experiment.stepSize if experiment is not None else None),
        tolerance=_number(experiment.tolerance if experiment is not None else None),
        variables={variable.name: variable for variable in variables},
    )


def _unit_of(unit: Any) -> Unit:
    base = unit.baseUnit
    if base is None:
        return Unit(unit.name)
    return Unit(unit.name, base.factor, base.offset, tuple(getattr(base, dimension) for dimension in DIMENSIONS))


def _variable_of(variable: Any, units: Mapping[str, Unit]) -> Variable:
    name = variable.unit or (variable.declaredType.unit if variable.declaredType is not None else None)
    return Variable(
        name=variable.name,
        reference=int(variable.valueReference),
        kind=variable.type,
        causality=variable.causality or "local",
        variability=variable.variability or "",
        unit=units.get(name, Unit(name)) if name else None,
        start=str(variable.start or ""),
        low=_number(variable.min),
        high=_number(variable.max),
        array=bool(variable.dimensions),
    )


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def listed(description: Description, fed: Sequence[str], settings: Mapping[str, object]) -> list[str]:
    """Return lines that describe an FMU: maker, variables, ``settings``, and inputs that are not ``fed``."""
    tool = f", by {description.tool}" if description.tool else ""
    state = "can be saved and restored" if description.keeps_state else "can be reset only by a new start"
    needs = ", and the FMU needs this program while it runs" if description.needs_tool else ""
    lines = [
        f"{description.name}: FMI {description.version}.0 for co-simulation{tool}; the state of the FMU "
        f"{state}{needs}"
    ]
    for causality in ("input", "output", "parameter"):
        variables = description.of(causality)
        shown_variables = [variable.text() for variable in variables[:MOST_LISTED]]
        more = [f"and {len(variables) - MOST_LISTED} more"] if len(variables) > MOST_LISTED else []
        lines.append(f"{causality}s: {', '.join(shown_variables + more) or 'none'}")
    if settings:
        values = ", ".join(f"{name} = {show(value)}" for name, value in settings.items())
        lines.append(f"set by the scenario: {values}")
    return lines + [
        f"input {variable.name}: the test does not feed this input, which keeps its start value "
        f"{variable.start or 0}"
        for variable in description.of("input")
        if variable.name not in fed
    ]


MOST_LISTED = 50
