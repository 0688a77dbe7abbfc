# SPDX-License-Identifier: Apache-2.0
"""MATLAB's files: up to version 7.2 by scipy, of version 7.3, which are HDF5, by h5py where that is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.core.text_files import read_head, reason

HDF5 = b"\x89HDF\r\n\x1a\n"
MATLAB_HEADER = 512
"""Bytes in front of HDF5's own in a file of version 7.3."""


def read(path: Path, place: str = "") -> dict[str, Array]:
    """The real numbers in a file by their names, as MATLAB shows them; fields of a struct as ``results.x``.

    What is no number, as text and cells, is left out. Raises ConfigError, with ``place`` and the path, for a file
    that cannot be read, and for version 7.3 without h5py.
    """
    told = f"{place}: {path}" if place else str(path)
    try:
        head = read_head(path, MATLAB_HEADER + len(HDF5))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{told} cannot be read ({reason(error)})") from None
    if head.startswith(HDF5) or head[MATLAB_HEADER:] == HDF5:
        return _of_hdf5(path, told)
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        found = loadmat(path, struct_as_record=False, squeeze_me=False)
    except (MatReadError, ValueError, TypeError, LookupError, NotImplementedError, OSError, EOFError) as error:
        raise ConfigError(f"{told} is not a file of MATLAB ({error})") from None
    return dict(_numbers({name: value for name, value in found.items() if not name.startswith("__")}))


def hdf5(what: str, otherwise: str = "") -> Any:
    """The module h5py. Raises ConfigError where it is missing: ``what`` needs it, ``otherwise`` is what helps."""
    try:
        import h5py
    except ImportError:
        raise ConfigError(
            f"{what} needs h5py: install it (pip install h5py, Debian python3-h5py){otherwise}"
        ) from None
    return h5py


def _numbers(values: Mapping[str, object], before: str = "") -> Iterator[tuple[str, Array]]:
    """Real numbers by name, those in structs of one element as well."""
    for name, value in values.items():
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
            yield before + name, np.asarray(value, float)
        elif isinstance(value, np.ndarray) and value.size == 1 and hasattr(value.flat[0], "_fieldnames"):
            yield from _numbers(vars(value.flat[0]), f"{before}{name}.")


def _of_hdf5(path: Path, told: str) -> dict[str, Array]:
    h5py = hdf5(f"{told} is HDF5 (MATLAB's version 7.3), which", ", or save with '-v7'")
    found: dict[str, Array] = {}

    def take(name: str, item: object) -> None:
        hidden = name.startswith("#")  # what cells refer to
        if hidden or not isinstance(item, h5py.Dataset) or item.dtype.kind not in "fiub":
            return
        kind = item.attrs.get("MATLAB_class", b"")
        if kind == b"char" or item.attrs.get("MATLAB_empty", 0):
            return
        values = np.asarray(item[()], float)
        # MATLAB counts the first index first; other programs' files are as they stand
        found[name.replace("/", ".")] = values.T if kind else values

    try:
        with h5py.File(path, "r") as file:
            file.visititems(take)
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"{told} cannot be read ({error})") from None
    return found
