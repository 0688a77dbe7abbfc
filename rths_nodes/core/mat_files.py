# SPDX-License-Identifier: Apache-2.0
"""MATLAB, HDF5 and netCDF files, read in a separate process (``table_process.py``)."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from rths_nodes.core.child_process import ENDING_S, ChildProcess
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.core.text_files import LARGEST, TooLarge, read_head, size_of

PROGRAM = Path(__file__).with_name("table_process.py")
HDF5 = b"\x89HDF\r\n\x1a\n"
NETCDF3 = b"CDF"
MATLAB_HEADER = 512
"""Number of bytes before the HDF5 signature in a file of MATLAB 7.3."""
LONGEST_HEAD = 16 << 20


class Contents(NamedTuple):
    """Holds real numbers and units by name, and the reasons why other values are not read."""

    columns: dict[str, Array]
    units: dict[str, str] = {}  # noqa: RUF012 (never changed)
    skipped: dict[str, str] = {}  # noqa: RUF012


def read(path: Path, most: int = LARGEST) -> Contents:
    """Return numbers by name: ``s.x`` or ``s(2).x`` for elements of structs, ``c{2}`` for elements of cell arrays.

    Raises ValueError for a file that is damaged, exceeds ``most`` bytes (TooLarge) or refers to data in other
    files. Raises OSError if the file cannot be read, and ConfigError for HDF5 without h5py.
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
            raise ValueError(process.end(ENDING_S) or "the reader of the file has ended") from None


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
    """Return the module h5py. Raises ConfigError, with the advice ``otherwise``, if h5py is not installed."""
    try:
        import h5py
    except ImportError:
        raise ConfigError(
            f"{purpose} needs h5py: install it (pip install h5py, Debian python3-h5py){otherwise}"
        ) from None
    return h5py
