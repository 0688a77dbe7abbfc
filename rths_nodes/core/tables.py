# SPDX-License-Identifier: Apache-2.0
"""Columns of numbers in files of other programs: text, MATLAB, HDF5 or netCDF, recognised by content.

A separate process reads MATLAB, HDF5 and netCDF files (``table_process.py``).
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from io import BytesIO, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import numpy as np

from rths_nodes.core import expressions, parameters
from rths_nodes.core.child_process import ENDING_S, ChildProcess
from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.expressions import FORCES
from rths_nodes.core.samples import Array
from rths_nodes.core.text_files import (
    LARGEST,
    TooLarge,
    encoding_of,
    number_of,
    read_bytes,
    read_head,
    reason,
    size_of,
)

LENGTHS = {unit: expressions.LENGTHS[unit] for unit in ("m", "cm", "mm", "um", "in")}
VELOCITIES = {f"{unit}/s": factor for unit, factor in LENGTHS.items()}
TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "d": 86400.0}
ACCELERATIONS = {f"{unit}/s^2": factor for unit, factor in LENGTHS.items()} | {"g": 9.80665}
UNITS = LENGTHS | FORCES | TIMES | VELOCITIES | ACCELERATIONS

SEPARATORS = (";", "\t", ",")
COMMENTS = "#%"
_HEAD = 512
_SHOWN = 40
LONGEST_LINE = 1 << 18
_NAMED = 10
_COMPARED = 20
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+(?:e[-+]?\d+)?", re.I)
_WHOLE = re.compile(r"[-+]?\d+")
_PADDED = re.compile(r"[-+]?0\d+")
_UNIT_IN_TITLE = re.compile(r"[(\[]\s*([^\s()\[\]]+)\s*[)\]]\s*")
PROGRAM = Path(__file__).with_name("table_process.py")
HDF5 = b"\x89HDF\r\n\x1a\n"
NETCDF3 = b"CDF"
MATLAB_HEADER = 512
"""Number of bytes before the HDF5 signature in a file of MATLAB 7.3."""
LONGEST_HEAD = 16 << 20


class Contents(NamedTuple):
    """Real numbers and units by name, and the reasons why other values are not read.

    ``repeated`` maps each name shared by several columns to the positions of these columns, from 1.
    """

    columns: dict[str, Array]
    units: dict[str, str] = {}  # noqa: RUF012 (never changed)
    skipped: dict[str, str] = {}  # noqa: RUF012
    repeated: dict[str, list[int]] = {}  # noqa: RUF012


class Table:
    """Columns of a file by name. Raises ConfigError if the file is unreadable or exceeds ``most`` bytes."""

    def __init__(self, path: Path, most: int = LARGEST) -> None:
        self.path = path
        self.notes: list[str] = []
        try:
            head = read_head(path, _HEAD, most)
            if encoding_of(head) == "utf-16" or 0 not in head:
                self._contents = _of_text(read_bytes(path, most))
            else:
                self._contents = read_binary(path, most)
        except TooLarge as error:
            raise ConfigError(f"{path} cannot be read ({error}). Allow a larger file with --largest") from None
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} cannot be read ({reason(error)})") from None
        if not self._contents.columns:
            raise ConfigError(f"{path}: the file contains no numbers{self._skipped()}")

    def unit(self, name: str) -> str:
        """Return the unit that the file states for a column, or else the unit in its title (``x (mm)``)."""
        title = _UNIT_IN_TITLE.search(name)
        return self._contents.units.get(name, title[1] if title and title.end() == len(name) else "")

    @property
    def names(self) -> list[str]:
        return list(self._contents.columns)

    def numbers(self, name: str, index: int, path: str) -> Array:
        """Return column ``index`` (from 1) of ``name``, ``(n,)``.

        In a struct array or a cell array, ``index`` selects the element. Raises ConfigError, which names
        ``path``, if the column is missing or invalid.
        """
        called, index = self._located(name, index, path)
        values = self._contents.columns[called]
        size = " x ".join(map(str, values.shape))
        values = values.reshape(-1, 1) if values.ndim < 2 or min(values.shape) == 1 else values
        if values.ndim == 2 and values.shape[1] > values.shape[0]:
            values = values.T
            note = f"{called} of {self.path} is {size}, so its rows are read as channels"
            self.notes += [note] if note not in self.notes else []
        if values.ndim > 2 or index > values.shape[1]:
            raise ConfigError(
                f"{path}.index = {index}: must be a column of {called} of {self.path}, which is {size}"
            )
        column: Array = values[:, index - 1]
        if not (finite := np.isfinite(column)).all():
            row = int(np.flatnonzero(~finite)[0])
            raise ConfigError(
                f"{path}: row {row + 1} of {called} in {self.path} is {column[row]}: must be finite; "
                f"{np.count_nonzero(~finite)} of {len(column)} numbers are not finite"
            )
        return column

    def _located(self, name: str, index: int, path: str) -> tuple[str, int]:
        if numbers := self._contents.repeated.get(name):
            columns = ", ".join(map(str, numbers[:_NAMED]))
            raise ConfigError(
                f"{path}.column = {name!r}: columns {columns} of {self.path} have this name. Rename "
                "one of the columns"
            )
        if name in self._contents.columns:
            return name, index
        above, dot, field = name.rpartition(".")
        for called in (f"{name}{{{index}}}", f"{above}({index}){dot}{field}"):
            if called in self._contents.columns:
                return called, 1
        if kind := self._contents.skipped.get(name):
            raise ConfigError(f"{path}.column = {name!r}: is {kind}, but must be real numbers")
        error = unknown(f"{path}.column", "column", name, self._contents.columns)
        raise ConfigError(f"{error}{self._skipped()}")

    def _skipped(self) -> str:
        skipped = [f"{name} ({kind})" for name, kind in self._contents.skipped.items()][:_NAMED]
        return "; not read: " + ", ".join(skipped) if skipped else ""


class Placed(Protocol):
    column: str

    def read(self, table: Table, path: str) -> Array:
        """Return the column in SI units, ``(n,)``.

        Raises ConfigError if the column is missing or invalid, or if the file states a different unit.
        """
        ...


def column_class(units: Mapping[str, float]) -> type:
    @parameters.params
    class Column:
        column: str = parameters.text(
            "name of the column or variable; in a text file without names, the number of the column, from 1"
        )
        index: int = parameters.integer(
            "number of the column, from 1, in a variable with several columns", default=1, at_least=1
        )
        unit: str = parameters.text("unit of the column", next(iter(units)), units)
        factor: float = parameters.number(
            "factor by which the column is multiplied, such as -1 for the opposite direction", "1", 1.0
        )

        def read(self, table: Table, path: str) -> Array:
            stated = table.unit(self.column)
            if stated in UNITS and stated != self.unit:
                raise ConfigError(
                    f"{path}.unit = {self.unit}: must agree with {table.path}, which states the unit "
                    f"{stated} of {self.column}"
                )
            return table.numbers(self.column, self.index, path) * (self.factor * units[self.unit])

    return Column


def column(units: Mapping[str, float], doc: str, optional: bool = False) -> parameters.Field:
    declaration = column_class(units)
    return parameters.section(declaration, doc, None) if optional else parameters.section(declaration, doc)


UNIFORM = 0.01
"""Permitted deviation of exact times from uniform times, as a fraction of a step."""
UNIFORM_ROUNDED = 0.15
"""Permitted deviation of rounded times, as in ``UNIFORM``. A missing line causes a deviation of at least 0.16."""
SHORTEST_STEP = float(np.finfo(float).tiny)
"""Shortest step with a finite rate, s."""


def even_step(times: Array, lines: Sequence[int] | None = None) -> tuple[float, float]:
    """Return the uniform step (s) of ``times`` (s) and the tolerance (s) for rounded times.

    Raises ConfigError, naming the line or row of the most uneven time, unless the steps are positive and uniform.
    """
    after = times - times[0]
    index = np.arange(len(times)) - 0.5 * (len(times) - 1)
    step = float(index @ after / (index @ index))
    if not math.isfinite(step) or 0.0 < abs(step) < SHORTEST_STEP:
        raise ConfigError(f"the times from {times[0]:g} s to {times[-1]:g} s have no finite sampling rate")
    tolerance = min(max(UNIFORM * step, _printed_resolution(times)), UNIFORM_ROUNDED * step)
    if step > 0.0 and np.ptp(after - step * index) / 2.0 <= tolerance:
        return step, tolerance
    gaps = np.diff(times)
    usual = float(np.median(gaps))
    odd = int(np.argmax(np.abs(gaps - usual)))
    row, n = ("row", odd + 2) if lines is None else ("line", lines[odd + 1])
    largest, widest = np.abs(times).max() or 1.0, np.abs(gaps).max() or 1.0
    digits = max(9, 3 + math.ceil(math.log10(max(1.0, largest / widest))))
    raise ConfigError(
        f"the time column is not uniform: {row} {n} is {gaps[odd]:.4g} s after the previous {row}, at "
        f"{times[odd + 1]:.{digits}g} s. The times must increase in equal steps; most steps are {usual:.4g} s"
    )


def _printed_resolution(times: Array) -> float:
    for digits in range(8):
        scaled = times * 10.0**digits
        if np.abs(scaled - np.rint(scaled)).max() < 1e-3:
            return 0.51 / 10.0**digits  # half a unit of the last decimal, plus the error of the fit
    return 0.0


class _Text:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.separator: str | None = None
        self.number, first = next(self.rows(), (0, ""))
        self.separator = next((mark for mark in SEPARATORS if mark in first), None)
        self.first = self.cells(first)

    def lines(self) -> Iterator[str]:
        stream = TextIOWrapper(BytesIO(self._data), encoding_of(self._data))
        number = 0
        while line := stream.readline(LONGEST_LINE):
            number += 1
            if len(line) == LONGEST_LINE:
                raise ValueError(f"line {number} has more than {LONGEST_LINE} characters")
            yield line

    def rows(self, after: int = 0) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(self.lines(), 1):
            if number > after and (row := line.strip("\n")).strip() and row.lstrip()[0] not in COMMENTS:
                yield number, row

    def cells(self, row: str) -> list[str]:
        return [cell.strip() for cell in row.split(self.separator)]

    def fault(self, after: int) -> str:
        count = len(self.first)
        for number, row in self.rows(after):
            cells = self.cells(row)
            bad = next((cell for cell in cells if not _is_number(cell)), "")
            if len(cells) == count and all(map(_is_number, cells)):
                continue
            parts = re.split(r"[;\s]+", row.strip())
            if (self.separator != "," or len(parts) > 1) and any(map(_DECIMAL_COMMA.fullmatch, parts)):
                why = "it has decimal commas. Write decimal points"
            elif not cells[-1] and self.separator:
                why = "the separator at the end of the line makes one cell too many. Remove it"
            elif len(cells) != count:
                why = f"it has {len(cells)} cells"
            elif not any(map(_is_number, cells)):
                why = "none of its cells is a number. Begin a row of units with #"
            else:
                why = f"{bad[:_SHOWN]!r} is not a number"
            return f"line {number}: {row.strip()[:_SHOWN]!r} must be {count} numbers, but {why}"
        return ""

    def mistaken(self) -> str:
        rows = [self.cells(row) for _, row in islice(self.rows(self.number), _COMPARED)]
        cells = [cell for row in rows for cell in row]
        if self.separator == "," and all(map(_WHOLE.fullmatch, cells)) and any(map(_PADDED.fullmatch, cells)):
            return (
                f"line {self.number + 1}: {','.join(rows[0])[:_SHOWN]!r} has decimal commas. Write decimal points"
            )
        if not all(map(_WHOLE.fullmatch, self.first)):
            return ""
        numbers = [int(cell) for cell in self.first]
        counted = len(numbers) > 2 and numbers in (list(range(len(numbers))), list(range(1, len(numbers) + 1)))
        fractions = bool(cells) and not any(map(_WHOLE.fullmatch, cells))
        if counted or (fractions and all(numbers)):
            return (
                f"line {self.number}: {' '.join(self.first)[:_SHOWN]!r} contains channel numbers, not data. "
                "Begin the line with #, or add a line of names above it"
            )
        return ""


def _of_text(data: bytes) -> Contents:
    text = _Text(data)
    named = not all(map(_is_number, text.first))
    after = text.number if named else 0
    if next(text.rows(after), None) is None:
        return Contents({})
    names = [cell.strip('"') for cell in text.first] if named else list(map(str, range(1, len(text.first) + 1)))
    try:
        rows = np.loadtxt(text.lines(), delimiter=text.separator, comments=list(COMMENTS), skiprows=after, ndmin=2)
    except ValueError as error:
        raise ValueError(text.fault(after) or str(error)) from None
    if rows.shape[1] != len(names):
        raise ValueError(text.fault(after))
    if problem := text.mistaken():
        raise ValueError(problem)
    numbers: dict[str, list[int]] = {}
    for number, name in enumerate(names, 1):
        numbers.setdefault(name, []).append(number)
    repeated = {name: columns for name, columns in numbers.items() if len(columns) > 1}
    return Contents(dict(zip(names, rows.T, strict=True)), repeated=repeated)


def _is_number(cell: str) -> bool:
    try:
        number_of(cell)
    except ValueError:
        return False
    return True


def read_binary(path: Path, most: int = LARGEST) -> Contents:
    """Read a MATLAB, HDF5 or netCDF file. Struct fields are named ``s.x`` or ``s(2).x``, cells ``c{2}``.

    Raises ValueError for a file that is damaged, exceeds ``most`` bytes (TooLarge) or refers to data in other
    files. Raises OSError for an unreadable file, and ConfigError for HDF5 without h5py.
    """
    head = read_head(path, MATLAB_HEADER + len(HDF5), most)
    if not head:
        raise ValueError("is empty")
    kind = "netCDF" if head.startswith(NETCDF3) else "MATLAB"
    if head.startswith(HDF5) or head[MATLAB_HEADER:] == HDF5:
        hdf5("HDF5 (MATLAB's version 7.3)", ", or save with '-v7'")
        kind = "HDF5"
    reads, writes = os.pipe()
    task = {"path": str(path.absolute()), "most": most, "kind": kind}
    with (
        open(reads, "rb") as results,
        closing(ChildProcess(path.name, "its reader", PROGRAM, task)) as process,
    ):
        try:
            process.start([writes], out=writes)
        finally:
            os.close(writes)
        try:
            return _received(results, most, kind)
        except EOFError:
            raise ValueError(process.end(ENDING_S) or "the process that reads the file has exited") from None


def _received(results: IO[bytes], most: int, kind: str) -> Contents:
    head = results.readline(LONGEST_HEAD)
    if not head.endswith(b"\n"):
        raise EOFError
    answer = json.loads(head)
    if answer["too_large"]:
        raise TooLarge(f"the file contains more than {size_of(most)} of numbers")
    if answer["problem"]:
        raise ValueError(f"{kind}, {answer['problem']}")
    columns = {}
    for name, shape, _ in answer["items"]:
        columns[name] = values = np.empty(shape)
        if results.readinto(values.reshape(-1).view(np.uint8)) < values.nbytes:  # type: ignore[attr-defined]
            raise EOFError
    return Contents(columns, {name: unit for name, _, unit in answer["items"] if unit}, answer["skipped"])


def hdf5(purpose: str, otherwise: str = "") -> Any:
    """Return the module h5py. If it is missing, raise ConfigError with ``purpose`` and advice ``otherwise``."""
    try:
        import h5py
    except ImportError:
        raise ConfigError(
            f"{purpose} requires h5py: install it (pip install h5py, Debian python3-h5py){otherwise}"
        ) from None
    return h5py
