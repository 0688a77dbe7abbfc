# SPDX-License-Identifier: Apache-2.0
"""Tests of the import of files of other programs, 2 s of a sine of 10 mm at 1024 Hz."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from foreign_tables import (
    BY_INDEX,
    BY_NAME,
    LIMITS,
    NAMES,
    PEAKS,
    RATE,
    READ,
    SINE,
    TABLE,
    TIMES,
    UNITS,
    cells,
    content_of,
    hdf5,
    lines,
    mapped,
    read,
    saved,
    text,
)
from messages import mentions, naming
from scipy import io

from rths_nodes.app import cli
from rths_nodes.app.commands import exchange
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.tables import Table
from rths_nodes.core.text_files import read_rows
from rths_nodes.loop.scenario import files
from rths_nodes.recording import bag, commissioning


@pytest.mark.parametrize("kind", READ)
def test_values_equal_those_of_file(kind: str, tmp_path: Path) -> None:
    content, columns = READ[kind]
    record = read(tmp_path, content_of(content), columns)
    assert (len(record.target), record.scenario.servo_rate) == (2049, RATE)
    for key, peak in PEAKS.items():
        # text and packed numbers are rounded to 1e-6 and 1e-3 of their unit
        values = getattr(record, key)[:, 0]
        np.testing.assert_allclose(values, peak * SINE, rtol=0.0, atol=2e-4 * peak, err_msg=key)
    assert len(record.cautions) == kind.startswith("rows")


def test_first_sample_of_integers_is_read(tmp_path: Path) -> None:
    """A cosine in the shortest digits begins with 0 and 1."""
    table = np.column_stack([TIMES, np.cos(2.0 * np.pi * TIMES)])
    columns = mapped(["1", "2"], displacement={"column": "2", "unit": "mm"})
    record = read(tmp_path, lines("", text(table, "%.9g", " ")), columns)
    np.testing.assert_allclose(record.displacement[:, 0], 1e-3 * table[:, 1], rtol=0.0, atol=1e-11)


def test_rounded_times_of_recorder_give_exact_rate(tmp_path: Path) -> None:
    table = np.column_stack([37.0 + TIMES, 1e-3 * TABLE[:, [1, 3]]])
    columns = mapped(["1", "2"], units=("s", "m"), displacement={"column": "3", "unit": "m"})
    record = read(tmp_path, lines("", text(table, "%.6g", " ")), columns, "recorder.out")
    assert record.scenario.servo_rate == RATE
    np.testing.assert_allclose(record.displacement[:, 0], 0.0099 * SINE, rtol=1e-5)


def twice(path: Path) -> None:
    """Write a file of MATLAB with two variables of the same name."""
    saved(data=2.0 * TABLE)(path)
    second = path.read_bytes()[128:]
    saved(data=TABLE)(path)
    path.write_bytes(path.read_bytes() + second)


def damaged(path: Path) -> None:
    io.savemat(path, {"data": TABLE}, appendmat=False, do_compression=True)
    content = bytearray(path.read_bytes())
    content[-9] ^= 0xFF
    path.write_bytes(content)


def tables(path: Path) -> None:
    """Write a file of MATLAB with two tables, which are objects without a name in the header."""

    def element(kind: int, content: bytes) -> bytes:
        return struct.pack("<2I", kind, len(content)) + content + bytes(-len(content) % 8)

    names = [[element(1, part) for part in (name, b"MCOS", b"table")] for name in (b"T", b"U")]
    io.savemat(path, {"data": TABLE}, appendmat=False)
    array = path.read_bytes()[128:]
    flags = element(6, struct.pack("<2I", 17, 0))
    objects = [element(14, flags + b"".join(parts) + array) for parts in names]
    path.write_bytes(path.read_bytes() + b"".join(objects))


def table_7_3(file: Any) -> None:
    file["data"] = TABLE.T
    file["data"].attrs["MATLAB_class"] = np.bytes_(b"double")
    file["T"] = np.full((1, 6), 3, np.uint32)
    file["T"].attrs["MATLAB_class"] = np.bytes_(b"table")
    file["T"].attrs["MATLAB_object_decode"] = 3


def in_metres(file: Any) -> None:
    for index, name in enumerate(NAMES):
        file[name] = TABLE[:, index]
    file["m"].attrs["units"] = "m"


def missing(file: Any) -> None:
    in_metres(file)
    del file["m"].attrs["units"]
    file["m"][7] = -999.0
    file["m"].attrs["_FillValue"] = -999.0


def other_file(file: Any) -> str:
    """Write a file with the dataset v next to ``file``; return its path."""
    import h5py

    path = f"{file.filename}.other"
    with h5py.File(path, "w") as other:
        other["v"] = np.full(2049, 7.0)
    return path


def linked(file: Any) -> None:
    import h5py

    in_metres(file)
    del file["m"]
    file["m"] = h5py.ExternalLink(other_file(file), "v")


def external(file: Any) -> None:
    from h5py import h5s

    secret = Path(file.filename).with_name("secret")
    secret.write_bytes(np.full(2049, 7.0).tobytes())
    in_metres(file)
    file.create_dataset("v", (2049,), "<f8", external=[(str(secret), 0, h5s.UNLIMITED)])


def virtual(file: Any) -> None:
    import h5py

    in_metres(file)
    layout = h5py.VirtualLayout((2049,), "<f8")
    layout[:] = h5py.VirtualSource(other_file(file), "v", (2049,))
    file.create_virtual_dataset("v", layout)


def huge(file: Any) -> None:
    file.create_dataset("t", (1 << 40,), "<f8", chunks=(1 << 10,))


def bomb(file: Any) -> None:
    file.create_dataset("t", (5 << 25,), "<f8", chunks=(1 << 20,), compression="gzip", fillvalue=0.0)


TX = ["T", "x", "u", "m"]
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
        ("line", "1", "channel"),
    ),
    "channel_names": (
        lines("101,102,205,7", text(TABLE[:, 1:])),
        mapped(["", *"1234"], rate=True),
        ("line", "1", "channel"),
    ),
    "mm_for_m": (lines(), mapped(list(NAMES), units=("s", *"mmmN")), ("axes.a.target", "10 m", "stroke", "0.1 m")),
    "kn_for_n": (
        lines(rows=text(TABLE * [1, 1, 1, 1, 1e3])),
        BY_NAME,
        ("axes.a.force", "4.95e+06 N", "limits.force", "100000 N"),
    ),
    "other_unit": (in_metres, BY_NAME, ("axes.a.displacement.unit", "mm", "m")),
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
    "dropped": (
        saved(data=np.delete(TABLE, 1000, 0)),
        BY_INDEX,
        ("time", "row", "1001", "0.001953 s", "0.0009766 s"),
    ),
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
    "field_of_a_cell": (saved(data=cells()), mapped(list(NAMES)), ("time.column", "data{1}")),
    "text": (saved(t=TIMES, x="words"), BY_NAME, ("axes.a.target.column", "text")),
    "table": (tables, mapped(["data", *TX]), ("axes.a.target.column", "T", "table")),
    "second_table": (tables, mapped(["data", "U", *TX[1:]]), ("axes.a.target.column", "U", "table")),
    "table_7_3": (table_7_3, mapped(["data", *TX]), ("axes.a.target.column", "T", "table")),
    "external_link": (linked, BY_NAME, ("axes.a.displacement.column", "unknown", "m")),
    "complex": (saved(t=TIMES, x=1j * TIMES), BY_NAME, ("axes.a.target.column", "complex128")),
    "damaged": (damaged, BY_INDEX, ("cannot be read", "damaged")),
    "cut_off": (
        lambda path: path.write_bytes(struct.pack("<5i", 0, 1 << 20, 1 << 9, 0, 2) + b"x\0"),
        BY_INDEX,
        ("256 MiB", "--largest"),
    ),
    "external": (external, BY_NAME, ("v", "other files")),
    "virtual": (virtual, BY_NAME, ("v", "other files")),
    "huge": (huge, BY_NAME, ("256 MiB",)),
    "bomb": (bomb, BY_NAME, ("256 MiB",)),
    "long_line": (b"1," * (1 << 20), BY_NAME, ("line", "1", "characters")),
    "one_row": (lines(rows=text()[:1]), mapped(["t", *"xumf"], rate=True), ("axes.a.target", "1 samples", "3")),
    "empty": (b"", BY_NAME, ("no numbers",)),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_unsuitable_file_is_refused(kind: str, tmp_path: Path) -> None:
    content, columns, parts = REFUSED[kind]
    in_hdf5 = content in (in_metres, missing, external, linked, table_7_3, virtual, huge, bomb)
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, hdf5(content) if in_hdf5 else content, columns)
    message = str(refused.value).replace(str(tmp_path), "")
    assert mentions(message, *parts)
    assert len(message) < 300


def test_unusual_rate_and_exceeded_limit_are_cautions(tmp_path: Path) -> None:
    slow = mapped(list(NAMES), units=("s", *UNITS[1:]), limits=LIMITS | {"stroke": 0.0101, "velocity": 0.1})
    record = read(tmp_path, lines(rows=text(TABLE * [1e3, 1, 1, 1, 1])), slow)
    assert mentions(record.cautions, "time", "1.024 Hz")
    assert mentions(record.cautions, "axes.a.command", "0.0102 m", "limits.stroke", "0.0101 m")
    assert len(record.cautions) == 2
    record = read(tmp_path, lines(), slow)
    assert mentions(record.cautions, "axes.a.target", "0.1257 m/s", "limits.velocity", "0.1 m/s")


def test_dropout_of_sensor_is_a_caution(tmp_path: Path) -> None:
    """Noise of 0.5 mm is no dropout, although its steps exceed the limit of velocity."""
    table = TABLE.copy()
    table[:, 3] += np.random.default_rng(1).normal(0.0, 0.5, len(table))
    assert read(tmp_path, lines(rows=text(table)), BY_NAME).cautions == ()
    table = TABLE.copy()
    table[128, 3] = 0.0  # from 9.9 mm
    (caution,) = read(tmp_path, lines(rows=text(table)), BY_NAME).cautions
    assert mentions(caution, "axes.a.displacement", "10.14 m/s", "128", "limits.velocity", "1 m/s")


@pytest.mark.parametrize("read", [lambda path: Table(path), bag.read, files.load, commissioning.read])
@pytest.mark.parametrize("path", ["/proc/kmsg", "/dev/zero", "pipe", "/"])
def test_only_regular_files_are_read(path: str, read: Callable[[Path], object], tmp_path: Path) -> None:
    if path == "pipe":
        path = str(tmp_path / path)
        os.mkfifo(path)
    with pytest.raises(ConfigError, match=re.escape(path)):
        read(Path(path))


def test_largest_size_is_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file.csv").write_bytes(lines(rows=text() * 12)[: (1 << 20) + 100])
    (tmp_path / "cols.yaml").write_text(yaml.safe_dump(mapped(["", *"xumf"], rate=True)))
    arguments = [str(tmp_path / "file.csv"), str(tmp_path / "cols.yaml"), "--record", str(tmp_path / "out")]
    assert cli.main(["import", *arguments, "--largest", "1"]) == 2
    assert mentions(capsys.readouterr().err, "1 MiB", "--largest")


OF_USERS: dict[tuple[str, str], tuple[str, ...]] = {
    ("plain.csv", "cols.yaml"): (),
    ("bom.csv", "cols.yaml"): (),
    ("utf16.csv", "cols.yaml"): (),
    ("packed.nc", "cols.yaml"): (),
    ("tofile.mat", "cols_tofile_rate.yaml"): (),
    ("tofile.mat", "cols_tofile.yaml"): (),
    ("table.mat", "cols_tofile.yaml"): (),
    ("controldesk.mat", "cols_controldesk.yaml"): (),
    ("cells.mat", "cols_data.yaml"): (),
    ("duplicate.csv", "cols.yaml"): ("'m'", "4", "6"),
    ("channel_numbers.csv", "cols_numbers.yaml"): ("line", "1"),
    ("plain.csv", "cols_no_unit.yaml"): ("10 m", "limits.stroke", "0.1 m"),
    ("damaged_zlib.mat", "cols.yaml"): ("cannot be read",),
    ("damaged_v5.mat", "cols.yaml"): ("cannot be read",),
    ("decimal_comma.csv", "cols.yaml"): ("line", "2", "decimal"),
    ("units_row.csv", "cols.yaml"): ("line", "2", "units"),
    ("trailing.csv", "cols.yaml"): ("line", "2", "one cell too many"),
    ("compound.h5", "cols.yaml"): ("table.x",),
}
"""Files of users with their maps, and the parts of the refusal."""


@pytest.mark.parametrize(("file", "columns"), OF_USERS)
def test_files_of_users(file: str, columns: str, shared_data: Callable[[str], Path]) -> None:
    paths, parts = [shared_data(f"../inputs/turn4/{name}") for name in (file, columns)], OF_USERS[file, columns]
    if parts:
        with pytest.raises(ConfigError, match=naming(*parts)):
            exchange.read(*paths)
        return
    record = exchange.read(*paths)
    assert (record.scenario.servo_rate, len(record.target)) == (RATE, 2049)
    np.testing.assert_allclose(record.target[:, 0], PEAKS["target"] * SINE, rtol=0.0, atol=1e-6)
    np.testing.assert_allclose(np.abs(record.displacement).max(), 0.0099, rtol=2e-3)


@pytest.mark.parametrize("file", ["recorder.out", "recorder.txt"])
def test_recorder_files_of_users(file: str, shared_data: Callable[[str], Path]) -> None:
    record = exchange.read(*[shared_data(f"../inputs/turn4/{name}") for name in (file, "cols_out.yaml")])
    assert (record.scenario.servo_rate, record.target[0, 0]) == (RATE, -0.00111491)


def test_number_with_underscore_is_refused(tmp_path: Path) -> None:
    (tmp_path / "matrix.csv").write_text("1,0\n0,1_0\n")
    with pytest.raises(ValueError, match="line 2"):
        read_rows(tmp_path / "matrix.csv")


@pytest.mark.parametrize(("step", "rate"), [(1e30, 1e-30), (4.0, 0.25), (1.0 / 3.0, 3.0)])
def test_low_rate_is_not_rounded_to_zero(step: float, rate: float) -> None:
    assert exchange._rate(step * np.arange(5)) == pytest.approx(rate)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("times", [[0.0, 5e-324, 1e-323, 1.5e-323], [-1.7e308, 1.7e308], [-1.7e308, 0.0, 1.7e308]])
def test_steps_without_finite_rate_are_refused(times: list[float]) -> None:
    with pytest.raises(ConfigError):
        exchange._rate(np.array(times))


def test_folder_as_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=naming(tmp_path.name, "cannot be read", "directory")):
        exchange.read_map(tmp_path)
