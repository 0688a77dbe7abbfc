# SPDX-License-Identifier: Apache-2.0
"""Files of other programs, 2 s of a sine of 10 mm at 1024 Hz: read with the right values, or refused."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from messages import mentions
from scipy import io

from rths_nodes.app import cli
from rths_nodes.app.commands import importing
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.recording.tables import Table

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
    """The map of columns, each a name, or a name with its index; the first one is the time."""
    first, *others = [each if isinstance(each, tuple) else (each, 1) for each in columns]
    told = [
        {"column": name, "index": index, "unit": unit}
        for (name, index), unit in zip(others, units[1:], strict=False)
    ]
    time = {"servo_rate": RATE} if rate else {"time": {"column": first[0], "index": first[1], "unit": units[0]}}
    axes = {"a": dict(zip(KEYS, told, strict=False)) | {"limits": LIMITS} | axis}
    return {"version": 1, "name": "elsewhere", **time, "axes": axes}


def read(
    folder: Path, content: bytes | Callable[[Path], None], columns: dict[str, Any], name: str = "file"
) -> Any:
    path = folder / name
    path.write_bytes(content) if isinstance(content, bytes) else content(path)
    (folder / "cols.yaml").write_text(yaml.safe_dump(columns))
    return importing.read(path, folder / "cols.yaml")


def saved(**variables: Any) -> Callable[[Path], None]:
    return lambda path: io.savemat(path, variables, appendmat=False)


def structs() -> Any:
    """A struct array as ControlDesk writes it: rec.Y(k).Data."""
    channels = np.zeros((1, 4), [("Name", object), ("Data", object)])
    for index in range(4):
        channels[0, index] = (NAMES[index + 1], TABLE[:, index + 1][None, :])
    return {"X": {"Data": TABLE[:, 0]}, "Y": channels}


def cells() -> Any:
    found = np.empty((1, 5), object)
    for index in range(5):
        found[0, index] = TABLE[:, index][None, :]
    return found


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
    """Cells and a struct array as version 7.3 of MATLAB writes them."""
    import h5py

    kind = h5py.special_dtype(ref=h5py.Reference)
    for name, shape, words in (("data", (5, 1), b"cell"), ("rec/Data", (5, 1), b"")):
        found = file.create_dataset(name, shape, kind)
        for index in range(5):
            item = file.create_dataset(f"#refs#/{name}{index}", data=TABLE[:, index : index + 1].T)
            item.attrs["MATLAB_class"] = np.bytes_(b"double")
            found[index, 0] = item.ref
        if words:
            found.attrs["MATLAB_class"] = np.bytes_(words)


def packed(file: Any) -> None:
    for index, name in enumerate(NAMES):
        if not index:
            file[name] = TABLE[:, 0]
            continue
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


def content_of(made: Any) -> Any:
    return hdf5(made) if made in BINARY else made


@pytest.mark.parametrize("kind", READ)
def test_values_are_those_of_the_file(kind: str, tmp_path: Path) -> None:
    made, columns = READ[kind]
    found = read(tmp_path, content_of(made), columns)
    assert (len(found.target), found.scenario.servo_rate) == (2049, RATE)
    for key, peak in PEAKS.items():
        # text and packed numbers are rounded to 1e-6 and 1e-3 of their unit
        np.testing.assert_allclose(getattr(found, key)[:, 0], peak * SINE, rtol=0.0, atol=2e-4 * peak, err_msg=key)
    assert len(found.cautions) == kind.startswith("rows")


def test_the_times_of_a_recorder_are_rounded_to_six_digits(tmp_path: Path) -> None:
    table = np.column_stack([37.0 + TIMES, 1e-3 * TABLE[:, [1, 3]]])
    columns = mapped(["1", "2"], units=("s", "m"), displacement={"column": "3", "unit": "m"})
    found = read(tmp_path, lines("", text(table, "%.6g", " ")), columns, "recorder.out")
    assert found.scenario.servo_rate == RATE
    np.testing.assert_allclose(found.displacement[:, 0], 0.0099 * SINE, rtol=1e-5)


def without_one() -> Array:
    return np.delete(TABLE, 1000, 0)


def twice(path: Path) -> None:
    """A file of MATLAB with two variables of one name."""
    one, other = path.with_suffix(".1"), path.with_suffix(".2")
    io.savemat(one, {"data": TABLE}, appendmat=False)
    io.savemat(other, {"data": 2.0 * TABLE}, appendmat=False)
    path.write_bytes(one.read_bytes() + other.read_bytes()[128:])


def damaged(path: Path) -> None:
    io.savemat(path, {"data": TABLE}, appendmat=False, do_compression=True)
    content = bytearray(path.read_bytes())
    content[-9] ^= 0xFF
    path.write_bytes(content)


def states_metres(file: Any) -> None:
    for index, name in enumerate(NAMES):
        file[name] = TABLE[:, index]
    file["m"].attrs["units"] = "m"


def missing(file: Any) -> None:
    for index, name in enumerate(NAMES):
        file[name] = TABLE[:, index]
    file["m"][7] = -999.0
    file["m"].attrs["_FillValue"] = -999.0


def outside(file: Any) -> None:
    from h5py import h5s

    secret = Path(file.filename).with_name("secret")
    secret.write_bytes(np.full(2049, 7.0).tobytes())
    states_metres(file)
    file.create_dataset("v", (2049,), "<f8", external=[(str(secret), 0, h5s.UNLIMITED)])


def virtual(file: Any) -> None:
    import h5py

    other = Path(file.filename).with_name("other.h5")
    with h5py.File(other, "w") as source:
        source["v"] = np.full(2049, 7.0)
    states_metres(file)
    layout = h5py.VirtualLayout((2049,), "<f8")
    layout[:] = h5py.VirtualSource(str(other), "v", (2049,))
    file.create_virtual_dataset("v", layout)


def huge(file: Any) -> None:
    file.create_dataset("t", (1 << 40,), "<f8", chunks=(1 << 10,))


def bomb(file: Any) -> None:
    file.create_dataset("t", (5 << 25,), "<f8", chunks=(1 << 20,), compression="gzip", fillvalue=0.0)


REFUSED: dict[str, tuple[Any, dict[str, Any], tuple[str, ...]]] = {
    "duplicate": (
        lines("t,x,u,m,f,m", [f"{row},0" for row in text()]),
        BY_NAME,
        ("axes.a.displacement.column", "'m'", "4", "6"),
    ),
    "duplicate_variable": (twice, BY_INDEX, ("data", "Duplicate")),
    "channel_numbers": (
        lines("1,2,3,4", text(TABLE[:, 1:])),
        mapped(["", *"1234"], rate=True),
        ("line", "1", "channels"),
    ),
    "channel_names": (
        lines("101,102,205,7", text(TABLE[:, 1:])),
        mapped(["", *"1234"], rate=True),
        ("line", "1", "channels"),
    ),
    "mm_for_m": (lines(), mapped(list(NAMES), units=("s", *"mmmN")), ("axes.a.target", "10 m", "stroke", "0.1 m")),
    "kn_for_n": (
        lines(rows=text(TABLE * [1, 1, 1, 1, 1e3])),
        BY_NAME,
        ("axes.a.force", "4.95e+06 N", "limits.force", "100000 N"),
    ),
    "other_unit": (states_metres, BY_NAME, ("axes.a.displacement.unit", "mm", "m")),
    "fill_value": (missing, BY_NAME, ("axes.a.displacement", "row", "8", "nan", "1 of 2049")),
    "decimal_commas": (
        lines("t;x;u;m;f", [row.replace(".", ",") for row in text(between=";")]),
        BY_NAME,
        ("decimal",),
    ),
    "decimal_commas_alone": (
        lines("", [row.replace(".", ",") for row in text(np.abs(TABLE[:, 1:2]))]),
        mapped(["", "1", "1", "2", "2"], rate=True),
        ("line", "2", "decimal"),
    ),
    "units_row": (lines("t,x,u,m,f\ns,mm,mm,mm,kN"), BY_NAME, ("line", "2", "units")),
    "trailing": (lines("t,x,u,m,f,", [f"{row}," for row in text()]), BY_NAME, ("line", "2", "one cell too many")),
    "missing_cell": (lines(rows=[*text(), "1,2"]), BY_NAME, ("line", "2051", "5 numbers", "2 cells")),
    "underscore": (lines(rows=["1_0,2,3,4,5"]), BY_NAME, ("line", "2", "1_0")),
    "dropped": (saved(data=without_one()), BY_INDEX, ("time", "row", "1001", "0.001953 s", "0.0009766 s")),
    "datenum_as_s": (
        saved(data=np.column_stack([738000.0 + TIMES / 86400.0, TABLE[:, 1:]])),
        BY_INDEX,
        ("servo_rate",),
    ),
    "uneven_datenum": (
        saved(data=np.delete(np.column_stack([738000.0 + TIMES / 86400.0, TABLE[:, 1:]]), 1000, 0)),
        BY_INDEX,
        ("738000.00001131406 s", "1001", "2.258e-08 s", "1.129e-08 s"),
    ),
    "field_of_a_cell": (saved(data=cells()), mapped(list(NAMES)), ("axes.a.target.column", "data{1}")),
    "text": (saved(t=TIMES, x="words"), BY_NAME, ("axes.a.target.column", "text")),
    "complex": (saved(t=TIMES, x=1j * TIMES), BY_NAME, ("axes.a.target.column", "complex128")),
    "damaged": (damaged, BY_INDEX, ("cannot be read", "damaged")),
    "cut_off": (
        lambda path: path.write_bytes(struct.pack("<5i", 0, 1 << 20, 1 << 9, 0, 2) + b"x\0"),
        BY_INDEX,
        ("256 MiB", "--largest"),
    ),
    "external": (outside, BY_NAME, ("v", "other files")),
    "virtual": (virtual, BY_NAME, ("v", "other files")),
    "huge": (huge, BY_NAME, ("256 MiB",)),
    "bomb": (bomb, BY_NAME, ("256 MiB",)),
    "long_line": (b"1," * (1 << 20), BY_NAME, ("line", "1", "characters")),
    "empty": (b"", BY_NAME, ("no numbers",)),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_is_refused_with_the_reason(kind: str, tmp_path: Path) -> None:
    made, columns, parts = REFUSED[kind]
    in_hdf5 = made in (*BINARY, states_metres, missing, outside, virtual, huge, bomb)
    with pytest.raises(ConfigError) as error:
        read(tmp_path, hdf5(made) if in_hdf5 else made, columns)
    message = str(error.value).replace(str(tmp_path), "")
    assert mentions(message, *parts)
    assert len(message) < 300


def test_values_beyond_a_limit_or_at_a_strange_rate_are_cautions(tmp_path: Path) -> None:
    slow = mapped(list(NAMES), units=("s", *UNITS[1:]), limits=LIMITS | {"stroke": 0.0101, "velocity": 0.1})
    found = read(tmp_path, lines(rows=text(TABLE * [1e3, 1, 1, 1, 1])), slow)
    assert mentions(found.cautions, "time", "1.024 Hz")
    assert mentions(found.cautions, "axes.a.command", "0.0102 m", "limits.stroke", "0.0101 m")
    assert len(found.cautions) == 2
    found = read(tmp_path, lines(), slow)
    assert mentions(found.cautions, "axes.a.target", "0.1257 m/s", "limits.velocity", "0.1 m/s")


@pytest.mark.parametrize("path", ["/proc/kmsg", "/dev/zero", "pipe", "."])
def test_only_regular_files_are_read(path: str, tmp_path: Path) -> None:
    if path == "pipe":
        path = str(tmp_path / path)
        os.mkfifo(path)
    with pytest.raises(ConfigError) as error:
        Table(Path(path))
    assert path in str(error.value)


def test_the_largest_size_is_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file.csv").write_bytes(lines(rows=text() * 12)[: (1 << 20) + 100])
    (tmp_path / "cols.yaml").write_text(yaml.safe_dump(mapped(["", *"xumf"], rate=True)))
    words = [str(tmp_path / "file.csv"), str(tmp_path / "cols.yaml"), "--record", str(tmp_path / "out")]
    assert cli.main(["import", *words, "--largest", "1"]) == 2
    assert mentions(capsys.readouterr().err, "1 MiB", "--largest")
