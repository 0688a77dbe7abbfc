# SPDX-License-Identifier: Apache-2.0
"""Process that reads a MATLAB, HDF5 or netCDF file, run by ``core/child_program.py`` with the task as JSON.

A damaged file can crash the libraries or exhaust the memory, but ends only this process. The process writes one
line of JSON, then the numbers as float64, to the descriptor ``out``. This file imports nothing from the package.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from h5py import Dataset, File

    from rths_nodes.core.data import Data

NUMBERS = "fiub"
ATTRIBUTES = ("_FillValue", "missing_value", "scale_factor", "add_offset", "units", "unit")
OBJECT = "an object, such as a table or timetable"
LONGEST_TEXT = 300
CPU_S, CPU_RATE = 6, 8 << 20


class Refused(Exception): ...


Part = tuple[str, "Dataset", str | None]
"""Name of an array, its dataset, and its field if the dataset is compound."""


class Reader:
    """Collects arrays of numbers (at most ``most`` bytes as float64) and the kinds of other values, by name."""

    def __init__(self, most: int) -> None:
        self._left = most
        self.columns: dict[str, NDArray[np.float64]] = {}
        self.units: dict[str, str] = {}
        self.skipped: dict[str, str] = {}

    def reserve(self, count: int) -> None:
        self._left -= 8 * count
        if self._left < 0:
            raise MemoryError

    def add(self, name: str, values: NDArray[np.float64], unit: str = "") -> None:
        if name in self.columns:
            raise Refused(f"two variables of the file are called {name!r}")
        self.columns[name], self.units[name] = values, unit

    def matlab(self, path: str) -> None:
        from scipy.io import loadmat
        from scipy.io.matlab import MatlabOpaque

        with warnings.catch_warnings():
            warnings.filterwarnings("error", "Duplicate variable name")
            warnings.filterwarnings("ignore", 'Duplicate variable name "None"')  # MATLAB objects
            variables = loadmat(path)
        for name, value in variables.items():
            if isinstance(value, MatlabOpaque):
                self.skipped[np.asarray(value).flat[0]["s0"].decode(errors="replace")] = OBJECT
            elif not name.startswith("__"):
                self._take(name, value)

    def _take(self, name: str, value: object) -> None:
        if not isinstance(value, np.ndarray):  # a sparse array, or an array that scipy cannot read
            self.skipped[name] = f"of the class {type(value).__name__}"
        elif value.dtype.names is not None:
            for number, element in enumerate(value.flat, 1):
                index = f"({number})" if value.size > 1 else ""
                for field in value.dtype.names:
                    self._take(f"{name}{index}.{field}", element[field])
        elif value.dtype.kind == "O":
            for number, element in enumerate(value.flat, 1):
                self._take(f"{name}{{{number}}}", element)
        elif value.dtype.kind in NUMBERS:
            self.reserve(value.size)
            self.add(name, np.asarray(value, float))
        else:
            self.skipped[name] = "text" if value.dtype.kind in "US" else f"of the type {value.dtype}"

    def netcdf3(self, path: str) -> None:
        from scipy.io import netcdf_file

        with netcdf_file(path, mmap=False) as file:
            for name, variable in file.variables.items():
                if variable.data.dtype.kind in NUMBERS:
                    self.reserve(variable.data.size)
                    self.add(name, *unpacked(variable.data, vars(variable).get("_attributes", {})))
                else:
                    self.skipped[name] = "text"

    def hdf5(self, path: str) -> None:
        import h5py

        datasets: dict[str, Dataset] = {}

        def visit(name: str, item: object) -> None:
            # MATLAB stores the contents of cells in the group #refs#
            if not name.startswith("#") and isinstance(item, h5py.Dataset):
                dotted = name.replace("/", ".")
                if dotted in datasets:
                    raise Refused(f"two datasets of the file are called {dotted!r}")
                datasets[dotted] = item

        with h5py.File(path, "r") as file:
            file.visititems(visit)
            parts = [part for name, item in datasets.items() for part in self._parts(file, name, item)]
            for _, item, field in parts:
                kind = item.dtype if field is None else item.dtype[field]
                self.reserve(item.size * math.prod(kind.shape))
            for name, item, field in parts:
                self.add(name, *dataset(item, field))

    def _parts(self, file: File, name: str, item: Dataset, depth: int = 0) -> Iterator[Part]:
        if item.external or item.is_virtual:
            raise Refused(f"{name} is stored in other files (external storage or a virtual dataset)")
        kind, matlab = item.dtype, item.attrs.get("MATLAB_class", b"")
        if item.shape is None or item.attrs.get("MATLAB_empty", 0):
            self.skipped[name] = "empty"
        elif matlab == b"char":
            self.skipped[name] = "text"
        elif "MATLAB_object_decode" in item.attrs:
            self.skipped[name] = OBJECT
        elif kind.names is not None:
            for field in kind.names:
                if kind[field].base.kind in NUMBERS:
                    yield f"{name}.{field}", item, field
                else:
                    self.skipped[f"{name}.{field}"] = f"of the type {kind[field]}"
        elif kind.kind == "O" and kind.metadata and "ref" in kind.metadata and depth < 2:
            self.reserve(item.size)
            above, dot, field = name.rpartition(".")
            for number, reference in enumerate(item[()].T.ravel(), 1):
                called = f"{name}{{{number}}}" if matlab == b"cell" else f"{above}({number}){dot}{field}"
                element = file[reference]
                if hasattr(element, "dtype"):
                    yield from self._parts(file, called, element, depth + 1)
                else:
                    self.skipped[called] = "a struct in a cell"
        elif kind.kind in NUMBERS:
            yield name, item, None
        else:
            self.skipped[name] = f"of the type {kind}"


def dataset(item: Dataset, field: str | None) -> tuple[NDArray[np.float64], str]:
    if field is not None:
        return np.asarray(item.fields(field)[()], float), ""
    values, unit = unpacked(item[()], {name: item.attrs[name] for name in ATTRIBUTES if name in item.attrs})
    # MATLAB is column-major; other programs' files are read unchanged
    return values.T if "MATLAB_class" in item.attrs else values, unit


def unpacked(raw: NDArray[np.float64], attributes: Mapping[str, object]) -> tuple[NDArray[np.float64], str]:
    """Return the numbers and their unit. Numbers are scaled as netCDF prescribes. Missing values are NaN."""
    values = np.array(raw, float)
    for name in ATTRIBUTES[:2]:
        if name in attributes:
            values[np.isin(raw, np.asarray(attributes[name]))] = np.nan
    for name, combine in (("scale_factor", np.multiply), ("add_offset", np.add)):
        if name in attributes:
            combine(values, float(np.asarray(attributes[name]).item()), out=values)
    unit = attributes.get("units", attributes.get("unit", ""))
    return values, unit.decode(errors="replace") if isinstance(unit, bytes) else str(unit)


def bounded(most: int, size: int) -> None:
    """Limit the additional memory to ``3 * most`` bytes, and the CPU time according to ``size + most``."""
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    seconds = CPU_S + (size + most) // CPU_RATE
    for kind, wanted in ((resource.RLIMIT_AS, used + 3 * most), (resource.RLIMIT_CPU, seconds)):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def main(task: Data) -> None:
    path, most, kind = str(task["path"]), int(task["most"]), str(task["kind"])
    __import__({"HDF5": "h5py"}.get(kind, "scipy.io"))
    bounded(most, Path(path).stat().st_size)
    reader = Reader(most)
    head: Data = {"problem": "", "too_large": False, "skipped": reader.skipped}
    try:
        {"HDF5": reader.hdf5, "netCDF": reader.netcdf3, "MATLAB": reader.matlab}[kind](path)
    except MemoryError:
        reader.columns.clear()
        head["too_large"] = True
    except Refused as error:
        head["problem"] = str(error)
    except Exception as error:  # scipy and h5py have no class of exceptions for damaged files
        head["problem"] = f"damaged: {type(error).__name__}: {' '.join(str(error).split())[:LONGEST_TEXT]}"
    columns = {} if head["problem"] or head["too_large"] else reader.columns
    head["items"] = [(name, values.shape, reader.units[name]) for name, values in columns.items()]
    with os.fdopen(int(task["out"]), "wb") as out:
        out.write(json.dumps(head).encode() + b"\n")
        for values in columns.values():
            out.write(np.ascontiguousarray(values).data)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
