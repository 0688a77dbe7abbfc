# SPDX-License-Identifier: Apache-2.0
"""Files of other programs: 2 s of a sine of 10 mm at 1024 Hz, with the maps that read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy import io

from rths_nodes.app.commands import exchange
from rths_nodes.core.samples import Array

RATE, NAMES, UNITS = 1024.0, "txumf", ("s", "mm", "mm", "mm", "kN")
KEYS = ("target", "command", "displacement", "force")
LIMITS = {"stroke": 0.1, "velocity": 1.0, "force": 1e5}
TIMES = np.arange(2049) / RATE
SINE = np.sin(2.0 * np.pi * 2.0 * TIMES)
TABLE = np.column_stack([TIMES, 10.0 * SINE, 10.2 * SINE, 9.9 * SINE, 4.95 * SINE])
PEAKS = {"target": 0.010, "command": 0.0102, "displacement": 0.0099, "force": 4950.0}


def text(table: Array = TABLE, form: str = "%.6f", between: str = ",") -> list[str]:
    return [between.join(form % value for value in row) for row in table]


def lines(head: str = "t,x,u,m,f", rows: list[str] | None = None) -> bytes:
    return "\n".join([*([head] if head else []), *(text() if rows is None else rows), ""]).encode()


def mapped(columns: list[Any], rate: bool = False, units: tuple[str, ...] = UNITS, **axis: Any) -> dict[str, Any]:
    """Return the map of columns, which are names or pairs of name and index; the first column is the time."""
    pairs = [column if isinstance(column, tuple) else (column, 1) for column in columns]
    time, *values = [
        {"column": name, "index": index, "unit": unit} for (name, index), unit in zip(pairs, units, strict=False)
    ]
    time = {"servo_rate": RATE} if rate else {"time": time}
    axes = {"a": dict(zip(KEYS, values, strict=False)) | {"limits": LIMITS} | axis}
    return {"version": 1, "name": "elsewhere", **time, "axes": axes}


def read(
    folder: Path, content: bytes | Callable[[Path], None], columns: dict[str, Any], name: str = "file"
) -> Any:
    path = folder / name
    path.write_bytes(content) if isinstance(content, bytes) else content(path)
    (folder / "cols.yaml").write_text(yaml.safe_dump(columns))
    return exchange.read(path, folder / "cols.yaml")


def saved(**variables: Any) -> Callable[[Path], None]:
    return lambda path: io.savemat(path, variables, appendmat=False)


def structs() -> Any:
    """Return a struct array as ControlDesk writes it: rec.Y(k).Data."""
    channels = np.zeros((1, 4), [("Name", object), ("Data", object)])
    for index in range(4):
        channels[0, index] = (NAMES[index + 1], TABLE[:, index + 1][None, :])
    return {"X": {"Data": TABLE[:, 0]}, "Y": channels}


def cells() -> Any:
    array = np.empty((1, 5), object)
    for index in range(5):
        array[0, index] = TABLE[:, index][None, :]
    return array


def hdf5(make: Callable[[Any], None]) -> Callable[[Path], None]:
    h5py = pytest.importorskip("h5py")

    def write(path: Path) -> None:
        with h5py.File(path, "w") as file:
            make(file)

    return write


def compound(file: Any) -> None:
    rows = np.zeros(len(TABLE), [(name, "<f8") for name in NAMES])
    for index, name in enumerate(NAMES):
        rows[name] = TABLE[:, index]
    file["table"] = rows


def references(file: Any) -> None:
    """Write cells and a struct array as version 7.3 of MATLAB does."""
    import h5py

    for name in ("data", "rec/Data"):
        array = file.create_dataset(name, (5, 1), h5py.special_dtype(ref=h5py.Reference))
        for index in range(5):
            item = file.create_dataset(f"#refs#/{name}{index}", data=TABLE[:, index : index + 1].T)
            item.attrs["MATLAB_class"] = np.bytes_(b"double")
            array[index, 0] = item.ref
    file["data"].attrs["MATLAB_class"] = np.bytes_(b"cell")


def packed(file: Any) -> None:
    file["t"] = TABLE[:, 0]
    for index, name in enumerate(NAMES[1:], 1):
        item = file.create_dataset(name, data=np.rint(1e3 * TABLE[:, index]).astype("<i2"))
        item.attrs["scale_factor"], item.attrs["add_offset"] = 1e-3, 0.0


def netcdf3(path: Path) -> None:
    with io.netcdf_file(path, "w") as file:
        file.createDimension("n", len(TABLE))
        for index, name in enumerate(NAMES):
            item = file.createVariable(name, "d" if not index else "h", ("n",))
            item[:] = TABLE[:, 0] if not index else np.rint(1e3 * TABLE[:, index])
            if index:
                item.scale_factor = 1e-3


BY_NAME = mapped(list(NAMES))
BY_INDEX = mapped([("data", index) for index in range(1, 6)])
READ: dict[str, tuple[Any, dict[str, Any]]] = {
    "plain": (lines(), BY_NAME),
    "windows": (lines().replace(b"\n", b"\r\n"), BY_NAME),
    "bom": (b"\xef\xbb\xbf" + lines(), BY_NAME),
    "utf16_little": (b"\xff\xfe" + lines().decode().encode("utf-16-le"), BY_NAME),
    "utf16_big": (b"\xfe\xff" + lines().decode().encode("utf-16-be"), BY_NAME),
    "commented_units": (lines("t,x,u,m,f\n#s,mm,mm,mm,kN"), BY_NAME),
    "unused_duplicate": (lines("t,x,u,m,f,y,y", [f"{row},1,2" for row in text()]), BY_NAME),
    "rows": (saved(data=TABLE.T), BY_INDEX),
    "rows_at_a_rate": (saved(data=TABLE.T), mapped([("data", index) for index in range(1, 6)], rate=True)),
    "structs": (saved(rec=structs()), mapped(["rec.X.Data", *(("rec.Y.Data", index) for index in range(1, 5))])),
    "one_struct": (
        saved(rec=structs()),
        mapped(["rec.X.Data", *(f"rec.Y({index}).Data" for index in range(1, 5))]),
    ),
    "cells": (saved(data=cells()), BY_INDEX),
    "cell": (saved(data=cells()), mapped([f"data{{{index}}}" for index in range(1, 6)])),
    "version_4": (lambda path: io.savemat(path, {"data": TABLE}, appendmat=False, format="4"), BY_INDEX),
    "compound": (compound, mapped([f"table.{name}" for name in NAMES])),
    "cells_7_3": (references, BY_INDEX),
    "structs_7_3": (references, mapped([("rec.Data", index) for index in range(1, 6)])),
    "packed_netcdf4": (packed, BY_NAME),
    "packed_netcdf3": (netcdf3, BY_NAME),
    "datenum": (
        saved(data=np.column_stack([738000.0 + TIMES / 86400.0, TABLE[:, 1:]])),
        mapped([("data", index) for index in range(1, 6)], units=("d", *UNITS[1:])),
    ),
}
BINARY = (compound, references, packed)


def content_of(content: Any) -> Any:
    return hdf5(content) if content in BINARY else content
