# SPDX-License-Identifier: Apache-2.0
"""MATLAB files: up to version 7.2 by scipy, version 7.3, which is HDF5, by h5py."""

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
"""Bytes before the HDF5 signature in a file of version 7.3."""


def read(path: Path, place: str = "") -> dict[str, Array]:
    """Return the real numbers in a file by MATLAB's names; fields of a struct as ``results.x``.

    Other values, such as text and cells, are skipped. Raises ConfigError, with ``place`` and the path, for an
    unreadable file, and for version 7.3 without h5py.
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
    """Return the module h5py. Raises ConfigError without it: ``what`` needs it, ``otherwise`` is a remedy."""
    try:
        import h5py
    except ImportError:
        raise ConfigError(
            f"{what} needs h5py: install it (pip install h5py, Debian python3-h5py){otherwise}"
        ) from None
    return h5py


def _numbers(values: Mapping[str, object], before: str = "") -> Iterator[tuple[str, Array]]:
    """Yield real numbers by name, including structs of one element."""
    for name, value in values.items():
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
            yield before + name, np.asarray(value, float)
        elif isinstance(value, np.ndarray) and value.size == 1 and hasattr(value.flat[0], "_fieldnames"):
            yield from _numbers(vars(value.flat[0]), f"{before}{name}.")


def _of_hdf5(path: Path, told: str) -> dict[str, Array]:
    h5py = hdf5(f"{told} is HDF5 (MATLAB's version 7.3), which", ", or save with '-v7'")
    found: dict[str, Array] = {}

    def take(name: str, item: object) -> None:
        hidden = name.startswith("#")  # referenced by cells
        if hidden or not isinstance(item, h5py.Dataset) or item.dtype.kind not in "fiub":
            return
        kind = item.attrs.get("MATLAB_class", b"")
        if kind == b"char" or item.attrs.get("MATLAB_empty", 0):
            return
        values = np.asarray(item[()], float)
        # MATLAB is column-major; other programs' files are read unchanged
        found[name.replace("/", ".")] = values.T if kind else values

    try:
        with h5py.File(path, "r") as file:
            file.visititems(take)
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"{told} cannot be read ({error})") from None
    return found
