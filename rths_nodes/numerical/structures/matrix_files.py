"""Mass and stiffness of a structure from files: CSV, Matrix Market, npz (scipy's, or one with an array)."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np

from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.rounding import ROUNDING
from rths_nodes.core.samples import Array
from rths_nodes.core.sparse import Matrix, dense, is_sparse, largest
from rths_nodes.core.strict import LARGEST
from rths_nodes.core.text_files import read_bytes, read_rows
from rths_nodes.core.units import FORCES, LENGTHS

LARGEST_FILE = 64 << 20
"""Bytes: some million entries."""
MOST = 20_000
"""Degrees of freedom: more do not make a step in real time, and their band takes gigabytes."""
DENSE = 64
"""Degrees of freedom up to which matrices are kept dense: those of a Target."""


def read_pair(params: Any) -> tuple[Matrix, Matrix]:
    """Mass (kg) and stiffness (N/m, N, N m) of the whole structure by the parameters of ``matrices``.

    Raises ConfigError for what cannot be read, is not square, symmetric and finite, or does not fit together.
    """
    given = params.mass, params.stiffness
    if not any(isinstance(one, str) for one in given) and params.storage != "sparse" and len(given[0]) <= DENSE:
        return np.array(params.mass), np.array(params.stiffness)
    force, length = params.force_unit, params.length_unit
    si = (force, length) == ("N", "m")
    units = {"mass": "kg" if si else f"{force} s^2/{length}", "stiffness": f"{force}/{length}"}
    found = [_read(getattr(params, name), f"structure.{name}", unit) for name, unit in units.items()]
    n = found[0].shape[0]
    if found[1].shape[0] != n:
        raise ConfigError(
            f"structure.stiffness: {found[1].shape[0]} rows: must be {n}, as many as structure.mass has"
        )
    scale = _to_si(params, n)
    sparse = n > DENSE if params.storage == "auto" else params.storage == "sparse"
    kept = []
    for name, matrix in zip(("mass", "stiffness"), found, strict=True):
        in_file = isinstance(getattr(params, name), str)
        kept.append(_stored(scale @ matrix @ scale if in_file else matrix, sparse))
    return kept[0], kept[1]


def _stored(matrix: Matrix, sparse: bool) -> Matrix:
    from scipy.sparse import csr_array

    if not sparse:
        return dense(matrix)
    found = csr_array(matrix)
    found = 0.5 * (found + found.T)  # symmetric to the last bit: factors and bands take one half of it
    found.eliminate_zeros()
    found.sort_indices()
    return found


def _to_si(params: Any, n: int) -> Matrix:
    """A diagonal D: D A D is in SI, of a mass or a stiffness A in the file's units of force and length."""
    from scipy.sparse import diags_array

    force, length = FORCES[params.force_unit], LENGTHS[params.length_unit]
    per_dof = np.full(n, 1.0 / length)
    if params.node:
        turned = np.array([direction.startswith("r") for direction in params.node])
        per_dof[np.resize(turned, n)] = 1.0
    elif params.rotations is not None:
        numbers = np.array(params.rotations)
        if (numbers % 1.0).any() or (numbers > n).any():
            raise ConfigError(
                f"structure.rotations = {show(params.rotations)}: must be whole numbers from 1 to {n}"
            )
        per_dof[numbers.astype(int) - 1] = 1.0
    # a force over a length, a force or a moment over a rotation: moments are force times length
    return diags_array(np.sqrt(force * length) * per_dof, format="csr")


def _read(given: Any, place: str, unit: str) -> Matrix:
    """The matrix of a file, or of rows. Raises ConfigError that begins with ``place``."""
    if not isinstance(given, str):
        return np.array(given)
    try:
        matrix = _matrix(given, place.rpartition(".")[2])
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{place} = {show(given)}: cannot be read as a matrix in {unit} ({error})") from None
    rows, *columns = matrix.shape
    if columns != [rows]:
        words = " x ".join(map(str, matrix.shape))
        raise ConfigError(f"{place} = {show(given)}: {words} numbers: must be as many rows as columns")
    if not 1 <= rows <= MOST:
        raise ConfigError(f"{place} = {show(given)}: {rows} rows: must be >= 1 and <= {MOST}")
    values = matrix.data if is_sparse(matrix) else matrix
    if not np.isfinite(values).all() or np.abs(values).max(initial=0.0) > LARGEST:
        raise ConfigError(f"{place} = {show(given)}: must be finite numbers in {unit}, none beyond {LARGEST:g}")
    gap = abs(matrix - matrix.T)
    if gap.max() > ROUNDING * largest(matrix):
        row, column = np.unravel_index(int(np.argmax(dense(gap))), matrix.shape)
        raise ConfigError(
            f"{place} = {show(given)}: must be symmetric; row {row + 1}, column {column + 1} is not its mirror "
            "image"
        )
    return matrix


def _matrix(file: str, name: str) -> Matrix:
    if file.endswith(".npz"):
        return _of_npz(read_bytes(file, LARGEST_FILE), name)
    if file.endswith((".mtx", ".mtx.gz")):
        from scipy.io import mmread

        data = read_bytes(file, LARGEST_FILE)
        if file.endswith(".gz"):
            import gzip

            with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
                data = stream.read(LARGEST_FILE + 1)
            if len(data) > LARGEST_FILE:
                raise ValueError("unpacks to more than it may")
        return _real(mmread(io.BytesIO(data)))
    rows = read_rows(file)
    if len({len(row) for row in rows}) != 1:
        raise ValueError("rows of different length")
    return np.array(rows)


def _of_npz(data: bytes, name: str) -> Matrix:
    """scipy's sparse matrix, the array ``name``, or the only one."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if sum(part.file_size for part in archive.infolist()) > 8 * LARGEST_FILE:
            raise ValueError("unpacks to more than it may")
    with np.load(io.BytesIO(data), allow_pickle=False) as parts:
        known = list(parts)
        if "format" in known:
            from scipy.sparse import load_npz

            return _real(load_npz(io.BytesIO(data)))
        if name not in known and len(known) != 1:
            raise ValueError(f"holds {', '.join(known) or 'nothing'}: must hold {name}, or one array, or scipy's")
        return _real(parts[name if name in known else known[0]])


def _real(matrix: Any) -> Matrix:
    kind = matrix.dtype.kind
    if kind not in "fiu":
        raise ValueError(f"numbers of the kind {matrix.dtype}: must be real")
    if isinstance(matrix, np.ndarray):
        found: Array = matrix.astype(float)
        return found
    from scipy.sparse import csr_array

    return csr_array(matrix.astype(float))
