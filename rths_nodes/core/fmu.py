# SPDX-License-Identifier: Apache-2.0
"""FMU in a scenario: its file, the values and roles of its variables, and the process that runs it.

The file is an untrusted zip archive, which is checked before any file is written. An archive is refused if it is
damaged or would fill the disk, or if the name of a member leads out of the target folder. Only the description,
the binary of this platform and the resources are unpacked.

fmpy reads the description and checks it against the schema of the standard. Document types and entities are
refused, because they could fill the memory or read other files.

Callers pass the inputs of a step to the process (``fmu_program.py``) and receive the outputs in SI units.
"""

from __future__ import annotations

import logging
import lzma
import os
import platform
import re
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rths_nodes.core.child_process import LEAVING_S, LOOK_S, ChildProcess
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, Problems, show, unknown, within
from rths_nodes.core.expressions import ACCELERATIONS, FORCES, LENGTHS, VELOCITIES, plain_unit
from rths_nodes.core.parameters import TestContext, mapping, number, params, path
from rths_nodes.core.samples import Array
from rths_nodes.core.text_files import read_head, reason, size_of, version_of

if TYPE_CHECKING:
    from fmpy.model_description import ModelDescription, ScalarVariable

DESCRIPTION = "modelDescription.xml"

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

UNDEFINED = re.compile(r'The unit "[^"]*" of variable ".*" \(line \d+\) is not defined\.')
"""Message of fmpy that is ignored, because :meth:`Description.factor` checks the units of all used variables."""

INSTALL = "pip install fmpy"

MOST_LISTED, MOST_PROBLEMS, MOST_CHARACTERS = 50, 4, 200
"""Largest number of listed variables, of problems, and of characters per problem in a message."""

RESOURCES = "resources/"

LARGEST_UNPACKED = 1 << 30
LARGEST_DESCRIPTION = 64 << 20
"""Largest size of the description, bytes. A hundred thousand variables take about 20 MB."""
MOST_MEMBERS = 20_000
LARGEST_DIRECTORY = 16 << 20
"""Largest size of the directory at the end of the archive, bytes. An entry takes a few hundred bytes."""
HIGHEST_RATIO = 100
"""Largest mean compression ratio of an archive. Text reaches 20, and deflated zeros reach 1032."""
SMALL = 64 << 20
LARGEST_SHARE = 0.5

DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, NotImplementedError, ValueError)

END, LOCATOR, END_64 = 22, 20, 56
"""Sizes, bytes. ``END``: end record, excluding its comment. ``LOCATOR``, ``END_64``: zip64 records."""
TAIL = END_64 + LOCATOR + END + (1 << 16)


class Row(NamedTuple):
    """Input or output of an FMU, named by the parameter ``key``. An empty ``quantity`` accepts any unit."""

    key: str
    name: str
    causality: str
    quantity: str


class Description:
    """Description of an FMU for co-simulation, as read by fmpy into ``model``.

    ``variables`` and ``units`` map names to objects of fmpy. Raises ConfigError for an unsupported model.
    """

    def __init__(self, model: ModelDescription) -> None:
        simulation = model.coSimulation
        if simulation is None or model.fmiVersion.split(".")[0] not in ("2", "3"):
            kinds = [name for name in ("modelExchange", "scheduledExecution") if getattr(model, name) is not None]
            raise ConfigError(
                f"the file is an FMU of FMI {model.fmiVersion} ({', '.join(kinds) or 'coSimulation'}): must be "
                "for co-simulation with FMI 2.0 or 3.0"
            )
        self.identifier = str(simulation.modelIdentifier or "")
        if not IDENTIFIER.fullmatch(self.identifier):
            raise ConfigError(f"modelIdentifier = {show(simulation.modelIdentifier)}: must be a C identifier")
        self.model, self.simulation, self.version = model, simulation, int(model.fmiVersion[0])
        self.units = {unit.name: unit.baseUnit for unit in model.unitDefinitions}
        self.variables = {variable.name: variable for variable in model.modelVariables}
        for variable in self.with_causality("independent"):
            if (unit := unit_name(variable)) and plain_unit(unit) != "s":
                raise ConfigError(f"the time {variable.name} is in {unit!r}: must be in s")

    @property
    def binaries(self) -> str:
        return "binaries/linux64" if self.version == 2 else f"binaries/{platform.machine()}-linux"

    def with_causality(self, causality: str) -> list[ScalarVariable]:
        return [variable for variable in self.variables.values() if variable.causality == causality]

    def _variable(self, row: Row) -> ScalarVariable:
        path, name, causality, _ = row
        choices = [candidate.name for candidate in self.with_causality(causality) if candidate.type in FLOATS]
        if (variable := self.variables.get(name)) is None:
            raise unknown(f"{path} = {show(name)}", causality, name, choices)
        if variable.causality != causality:
            raise ConfigError(
                f"{path} = {show(name)}: the variable has the causality {variable.causality} in the FMU, but "
                f"must have the causality {causality}; known: {', '.join(choices) or 'none'}"
            )
        if variable.type not in FLOATS or variable.dimensions:
            kind = "an array" if variable.dimensions else f"of the type {variable.type}"
            raise ConfigError(
                f"{path} = {show(name)}: the variable is {kind} in the FMU: must be {' or '.join(FLOATS)}"
            )
        return variable

    def parameter(self, path: str, name: str, value: object) -> ScalarVariable:
        """Return the variable of parameter ``name``. Raises ConfigError if ``name`` or ``value`` is invalid."""
        if (variable := self.variables.get(name)) is None or variable.causality != "parameter":
            raise unknown(
                path, "parameter", name, [candidate.name for candidate in self.with_causality("parameter")]
            )
        if variable.variability == "constant" or variable.dimensions or variable.type in ("Binary", "Clock"):
            raise ConfigError(
                f"{path}.{name}: the parameter cannot be set, because it is constant, an array or of "
                f"the type {variable.type}"
            )
        kind = type(value)
        fits = {bool: ("Boolean",), str: ("String",), int: (*FLOATS, "Float32", *WHOLE)}
        if variable.type not in fits.get(kind, (*FLOATS, "Float32") if kind is float else ()):
            raise ConfigError(f"{path}.{name} = {show(value)}: must be of the type {variable.type}")
        if isinstance(value, (int, float)) and kind is not bool:
            low, high = bounds_of(variable)
            least, most = (-LARGEST if low is None else low), (LARGEST if high is None else high)
            if not least <= value <= most:  # also refuses NaN
                pairs = ((">=", low), ("<=", high))
                bounds = [f"{sign} {b:g} {unit_name(variable)}".rstrip() for sign, b in pairs if b is not None]
                raise ConfigError(f"{path}.{name} = {show(value)}: must be {' and '.join(bounds) or 'a number'}")
        return variable

    def factor(self, row: Row, stated: object) -> float:
        """Return the factor that converts a variable to SI units from its declared unit, or else from ``stated``.

        Raises ConfigError if the FMU has no scalar float variable of this name and causality, or if the unit does
        not fit the quantity.
        """
        variable, quantity = self._variable(row), row.quantity
        if not quantity:  # shown without conversion
            return 1.0
        table, exponents = QUANTITIES[quantity]
        si, units = next(iter(table)), ", ".join(table)
        unit, here = unit_name(variable), f"{row.key} = {show(row.name)}"
        key = f"units.{variable.name} = {show(stated)}"
        if not isinstance(stated, (str, type(None))):
            raise ConfigError(f"{key}: must be the name of a unit; known: {units}")
        if not unit:
            if stated is None:
                raise ConfigError(
                    f"{here}: the FMU declares no unit. Set units: {{{variable.name}: {si}}}; known: {units}"
                )
            if stated not in table:
                raise unknown(key, f"unit of {quantity}", stated, table)
            return table[stated]
        if stated is not None and plain_unit(stated) != plain_unit(unit):
            raise ConfigError(f"{key}: must be the unit that the FMU declares, {unit!r}")
        named = table.get(plain_unit(unit))
        if (base := self.units.get(unit)) is None:
            if named is None:
                raise ConfigError(
                    f"{here}: the FMU does not define the unit {unit!r} of this variable: must be a unit of "
                    f"{quantity}; known: {units}"
                )
            return named
        powers = {dimension: getattr(base, dimension) for dimension in DIMENSIONS}
        if base.offset or any(power != exponents.get(dimension, 0) for dimension, power in powers.items()):
            declared = " ".join(f"{name}^{n}" if n != 1 else name for name, n in powers.items() if n)
            offset = f" + {base.offset:g}" if base.offset else ""
            raise ConfigError(
                f"{here}: the unit in the FMU is {unit!r} ({base.factor:g} {declared or 'without a dimension'}"
                f"{offset}), but must be a unit of {quantity}, such as {si}"
            )
        if not 0.0 < base.factor < float("inf"):
            raise ConfigError(f"{here}: the FMU defines {unit!r} as {base.factor:g} {si}: must be > 0")
        if named is not None and abs(base.factor - named) > ROUNDED * named:
            raise ConfigError(f"{here}: the FMU defines {unit!r} as {base.factor:g} {si}: must be {named:g} {si}")
        return float(base.factor)

    def lines(self, fed: Sequence[str], settings: Mapping[str, object]) -> list[str]:
        """Return lines that describe the FMU: maker, variables, ``settings``, and inputs not in ``fed``."""
        tool = f", by {self.model.generationTool}" if self.model.generationTool else ""
        keeps_state = self.simulation.canGetAndSetFMUstate
        state = "can be saved and restored" if keeps_state else "can be reset only by restarting the FMU"
        needs_tool = self.simulation.needsExecutionTool
        needs = ", and the FMU needs this program while it runs" if needs_tool else ""
        lines = [
            f"{self.model.modelName or ''}: FMI {self.version}.0 for co-simulation{tool}; the state of the FMU "
            f"{state}{needs}"
        ]
        for causality in ("input", "output", "parameter"):
            variables = self.with_causality(causality)
            texts = [text_of(variable) for variable in variables[:MOST_LISTED]]
            more = [f"and {len(variables) - MOST_LISTED} more"] if len(variables) > MOST_LISTED else []
            lines.append(f"{causality}s: {', '.join(texts + more) or 'none'}")
        if settings:
            values = ", ".join(f"{name} = {show(value)}" for name, value in settings.items())
            lines.append(f"set by the scenario: {values}")
        return lines + [
            f"input {variable.name}: the test does not feed this input, which keeps its start value "
            f"{variable.start or 0}"
            for variable in self.with_causality("input")
            if variable.name not in fed
        ]


def unit_name(variable: ScalarVariable) -> str:
    declared = variable.declaredType
    return variable.unit or (declared.unit if declared is not None else None) or ""


def bounds_of(variable: ScalarVariable) -> tuple[float | None, float | None]:
    """Return the bounds that the FMU declares. Bounds of an integer are limited to the range of its type."""
    low, high, kind = number_in(variable.min), number_in(variable.max), variable.type
    if kind not in WHOLE:
        return low, high
    bits = int("".join(filter(str.isdigit, kind)) or (32 if kind == "Integer" else 64))
    least, most = (0, 2**bits - 1) if kind.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return least if low is None else max(least, low), most if high is None else min(most, high)


def text_of(variable: ScalarVariable) -> str:
    kind = "" if variable.type in FLOATS else f" ({variable.type})"
    unit = f" [{name}]" if (name := unit_name(variable)) else kind
    return f"{variable.name}{unit}" + (f" = {variable.start}" if variable.start else "")


def number_in(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def directory_size(tail: bytes) -> int:
    """Return the size (bytes) of a zip directory from the last bytes of the archive; 0 without an end record."""
    plain = tail[-END:].startswith(b"PK\5\6") and tail.endswith(b"\0\0")
    end = len(tail) - END if plain else tail.rfind(b"PK\5\6")
    if end < 0 or len(tail) < end + END:
        return 0
    size = int.from_bytes(tail[end + 12 : end + 16], "little")
    large = end - LOCATOR - END_64
    if large >= 0 and tail[end - LOCATOR :].startswith(b"PK\6\7"):
        size = max(size if size != 0xFFFFFFFF else 0, int.from_bytes(tail[large + 40 : large + 48], "little"))
    return size


@contextmanager
def archive(path: str) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """Open an FMU and yield the archive and its members by name. Raises ConfigError for an unsafe archive."""
    try:
        with Path(path).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            size = directory_size(file.read(TAIL))
        if size > LARGEST_DIRECTORY:
            raise ConfigError(
                f"the archive has a directory of {size_of(size)}: must be <= {size_of(LARGEST_DIRECTORY)}"
            )
        with zipfile.ZipFile(path) as opened:
            yield opened, _members(opened.infolist())
    except ConfigError:
        raise
    except OSError as error:
        raise ConfigError(f"the file cannot be read ({reason(error)})") from error
    except DAMAGED as error:
        raise ConfigError(f"the archive cannot be unpacked ({error})") from error


def _members(listed: Sequence[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    if len(listed) > MOST_MEMBERS:
        raise ConfigError(f"the archive has {len(listed)} members: must be <= {MOST_MEMBERS}")
    size, packed = unpacked_size(listed), sum(member.compress_size for member in listed)
    if size > LARGEST_UNPACKED or size > max(SMALL, HIGHEST_RATIO * packed):
        raise ConfigError(
            f"the archive would unpack from {size_of(packed)} to {size_of(size)}: must be <= "
            f"{size_of(LARGEST_UNPACKED)} and, above {size_of(SMALL)}, <= {HIGHEST_RATIO} times the packed size"
        )
    members = {_checked(member.orig_filename): member for member in listed}
    if len({name.rstrip("/") for name in members}) < len(listed):
        raise ConfigError("the archive has two members of the same name")
    if DESCRIPTION not in members:
        raise ConfigError(f"the file is not an FMU, because it has no {DESCRIPTION}")
    return members


def unpacked_size(members: Iterable[zipfile.ZipInfo]) -> int:
    return sum(member.file_size for member in members)


def unpack(path: str, folder: Path, binaries: str) -> None:
    """Extract description, resources and the files below ``binaries`` from the FMU ``path`` to ``folder``.

    Raises ConfigError if the archive is damaged, dangerous, or too large for the disk.
    """
    with archive(path) as (opened, members):
        size, free = unpacked_size(members.values()), shutil.disk_usage(folder).free
        if size > LARGEST_SHARE * free:
            raise ConfigError(
                f"the archive would unpack {size_of(size)} into {folder.parent}: must be <= "
                f"{size_of(int(LARGEST_SHARE * free))}, which is half of the free space there"
            )
        for name, member in members.items():
            if name == DESCRIPTION or name.startswith((RESOURCES, f"{binaries}/")):
                opened.extract(member, folder)  # zipfile writes a symbolic link as a text file
    (folder / RESOURCES).mkdir(exist_ok=True)  # an FMU receives this path even if it has no resources


def _checked(name: str) -> str:
    name = name.removeprefix("./")
    parts = name.rstrip("/").split("/")
    if "\\" in name or ":" in name or "\0" in name or not all(part not in ("", ".", "..") for part in parts):
        raise ConfigError(f"the archive has a member {name!r}: a path must not lead out of the archive's folder")
    return name


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
    with archive(file) as (opened, members):
        if (size := members[DESCRIPTION].file_size) > LARGEST_DESCRIPTION:
            raise ConfigError(f"{DESCRIPTION} has {size_of(size)}: must be <= {size_of(LARGEST_DESCRIPTION)}")
        xml = opened.read(members[DESCRIPTION])
    described = description_of(xml)
    if f"{described.binaries}/{described.identifier}.so" not in members:
        there = sorted({"/".join(name.split("/")[:2]) for name in members if name.startswith("binaries/")})
        sources = any(name.startswith("sources/") and name.endswith(".c") for name in members)
        raise ConfigError(
            f"the FMU has no {described.binaries}/{described.identifier}.so, the binary for this machine. It has "
            f"{', '.join(there) or 'no binaries'}"
            + (". Build the binary from the sources in the FMU with `fmpy compile`" if sources else "")
        )
    return described


def description_of(xml: bytes) -> Description:
    if b"<!DOCTYPE" in xml or b"<!ENTITY" in xml or b"\0" in xml:
        raise ConfigError(f"{DESCRIPTION} must be UTF-8, without document type and entity declarations")
    try:
        import fmpy
    except ImportError as error:
        raise ConfigError(
            f"an FMU requires fmpy, which cannot be imported ({error}). Install fmpy: {INSTALL}"
        ) from error
    with tempfile.TemporaryDirectory(prefix="rths_fmu_") as folder:
        Path(folder, DESCRIPTION).write_bytes(xml)
        try:
            read = _read(fmpy, folder)
        except Exception as error:  # fmpy and lxml raise various exceptions
            lines = [line.strip("- ") for line in str(error).splitlines()]
            lines = [f"{line[:MOST_CHARACTERS]}..." if len(line) > MOST_CHARACTERS else line for line in lines]
            more = [f"and {len(lines) - MOST_PROBLEMS} more"] if len(lines) > MOST_PROBLEMS else []
            problem = " / ".join(lines[:MOST_PROBLEMS] + more) or type(error).__name__
            raise ConfigError(f"{DESCRIPTION} is not valid FMI ({problem})") from error
    return Description(read)


def _read(package: ModuleType, folder: str) -> ModelDescription:
    try:
        return package.read_model_description(folder)
    except package.model_description.ValidationError as error:
        if not all(UNDEFINED.fullmatch(problem) for problem in error.problems):
            raise
        return package.read_model_description(folder, validate=False)


PROGRAM = Path(__file__).with_name("fmu_program.py")

LARGEST_FILE = 1 << 30
"""Largest size of a file that an FMU writes, and of its printed output, bytes."""

LARGEST_MEMORY = 8 << 30
"""Largest address space of an FMU, bytes. On small machines the limit is half of the memory."""
LEAST_MEMORY = 1 << 30
"""Smallest limit of the address space, bytes. Python, fmpy and the libraries of the model need it."""

FEW_STEPS, LARGEST_UNCHANGED = 20, 0.5
"""Limits for a warning about unchanged outputs. ``FEW_STEPS``: smallest number of steps with changed inputs.
``LARGEST_UNCHANGED``: largest fraction of these steps in which the outputs may remain unchanged."""

log = logging.getLogger(__name__)

SET_BACK = b"\0"

SHARE_OF_STEP = 1e-9
"""Relative tolerance within which a step is a multiple of the FMU's internal step."""


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
        """Yield the inputs and outputs that the test uses, in the order that the model process expects."""
        raise NotImplementedError

    def step_in(self, test: TestContext) -> float:
        raise NotImplementedError

    def cautions(self, test: TestContext) -> list[str]:
        step, experiment = self.step_in(test), described(self.file).model.defaultExperiment
        preferred = (None if experiment is None else number_in(experiment.stepSize)) or 0.0
        if preferred <= step * (1.0 + SHARE_OF_STEP):
            return []
        return [
            f"file = {self.file!r}: the step is {step:g} s, but the default experiment of the FMU has a stepSize "
            f"of {preferred:g} s. Use a step of {preferred:g} s, because otherwise some steps may not change the "
            "outputs"
        ]

    def check(self, test: TestContext) -> None:
        """Raise ConfigError if the FMU lacks a variable or declares it differently, or if the step is invalid."""
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
        keys: dict[str, list[str]] = {}
        for row in self.rows():
            keys.setdefault(row.name, []).append(row.key)
        problems += [
            f"{name!r} of the FMU is used twice: {', '.join(twice)}"
            for name, twice in keys.items()
            if len(twice) > 1
        ]
        problems.refuse()

    def factor(self, row: Row) -> float:
        return described(self.file).factor(row, self.units.get(row.name))

    def contents(self) -> list[str]:
        fed = [row.name for row in self.rows() if row.causality == "input"]
        return described(self.file).lines(fed, self.parameters)

    def settings(self) -> list[tuple[str, int, object]]:
        """Return the kind, reference and value of each parameter. Raises ConfigError for an invalid value."""
        description, settings = described(self.file), []
        enumeration = "Integer" if description.version == 2 else "Int64"
        for name, value in self.parameters.items():
            variable = description.parameter("parameters", name, value)
            kind = enumeration if variable.type == "Enumeration" else variable.type
            settings.append((kind, variable.valueReference, value))
        return settings


def largest_memory() -> int:
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return max(LEAST_MEMORY, min(LARGEST_MEMORY, half))


class FmuProcess:
    """Runs the FMU of ``params`` in a separate process, from time 0 in steps of ``dt`` (s)."""

    def __init__(self, params: FmuParams, dt: float) -> None:
        self._params, self._dt = params, dt
        self._inputs = [row for row in params.rows() if row.causality == "input"]
        self._outputs = [row for row in params.rows() if row.causality == "output"]
        self.outputs = [row.name for row in self._outputs]
        self.name = Path(params.file).name
        self._request = np.zeros(1 + len(self._inputs))
        self._process = ChildProcess(self.name, "the FMU", PROGRAM, {})
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.moved = False
        """True from the first step until the model is reset."""
        self.steps = self.unchanged = 0
        """``steps``: steps with changed inputs. ``unchanged``: number of these steps with unchanged outputs."""
        self._fed = self._told = b""
        self._changed = False

    @property
    def is_open(self) -> bool:
        return self._process.is_connected

    def open(self) -> None:
        """Start the process. Raises ConfigError if the FMU cannot be unpacked or contradicts the parameters."""
        self.close()
        params, description = self._params, described(self._params.file)
        variables, experiment = description.variables, description.model.defaultExperiment
        self._per_input: Array = 1.0 / np.array([params.factor(row) for row in self._inputs])
        self._factors: Array = np.array([params.factor(row) for row in self._outputs])
        self.steps = self.unchanged = 0
        self._fed = self._told = b""
        with ExitStack() as failed:
            failed.callback(self.close)
            self._folder = tempfile.TemporaryDirectory(prefix="rths_fmu_")
            with within(f"file = {self.name!r}"):
                unpack(params.file, Path(self._folder.name), description.binaries)
            self._process.connect(
                params.start_within,
                folder=self._folder.name,
                largest_file=LARGEST_FILE,
                largest_memory=largest_memory(),
                version=description.version,
                token=description.model.guid or "",
                identifier=description.identifier,
                keeps_state=description.simulation.canGetAndSetFMUstate,
                tolerance=None if experiment is None else number_in(experiment.tolerance),
                step=self._dt,
                inputs=[variables[row.name].valueReference for row in self._inputs],
                outputs=[variables[name].valueReference for name in self.outputs],
                names=self.outputs,
                parameters=params.settings(),
            )
            failed.pop_all()

    def start(self, path: str) -> Array:
        """Start the process and return the initial outputs in SI units.

        Raises ConfigError, with the ``path`` of the FMU's section, if the model does not start.
        """
        self.open()
        try:
            return self.wait()
        except RuntimeError as error:
            self.close()
            raise ConfigError(f"{path}.file = {self.name!r}: {error}") from error

    def begin(self, step: int, inputs: Array) -> None:
        """Send step number ``step`` (from 0) with ``inputs`` in SI units. Raises RuntimeError if sending fails."""
        request = self._request
        request[0] = step
        np.multiply(inputs, self._per_input, out=request[1:])
        message = request.tobytes()
        self._changed, self._fed = message[8:] != self._fed, message[8:]
        self.steps += self._changed
        self.moved = True
        self._process.send(message, self._params.answer_within)

    def set_back(self) -> None:
        self._process.send(SET_BACK, self._params.start_within)
        self.moved = self._changed = False

    def answer(self, wait: float = 0.0) -> Array | None:
        """Return the outputs in SI units, or None if none arrive in ``wait`` s. Raises RuntimeError on failure."""
        if (message := self._process.receive(8 * len(self.outputs), wait)) is None:
            return None
        self.unchanged += self._changed and message == self._told
        self._told = message
        return np.frombuffer(message) * self._factors

    def wait(self) -> Array:
        while (answer := self.answer(LOOK_S)) is None:
            pass
        return answer

    def share_scheduling(self) -> None:
        self._process.share_scheduling()

    def close(self) -> None:
        was_open, self.moved, self._changed = self.is_open, False, False
        self._process.close(0.0 if self._process.computes else LEAVING_S)
        if was_open and self.steps >= FEW_STEPS and self.unchanged > LARGEST_UNCHANGED * self.steps:
            log.warning(
                "%s: no output has changed in %d of %d steps with new inputs. The internal step of the FMU "
                "may be longer than the step of the test",
                self.name,
                self.unchanged,
                self.steps,
            )
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
