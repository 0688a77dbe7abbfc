# SPDX-License-Identifier: Apache-2.0
"""A structure defined by its matrices, in the scenario or in files.

Files are CSV, Matrix Market, or npz (a sparse matrix of scipy, or an array).
"""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.expressions import FORCES, LENGTHS
from rths_nodes.core.parameters import OfParams, component, matrix, params, text, texts, vector
from rths_nodes.core.protocols import StructuralForce
from rths_nodes.core.samples import ROUNDING, Array
from rths_nodes.core.text_files import read_arrays, read_bytes, read_rows
from rths_nodes.core.validation import LARGEST
from rths_nodes.mechanics.structure import (
    Matrix,
    combined_load,
    dense,
    diagonal,
    is_definite,
    is_sparse,
    largest,
    massless,
    zero,
)
from rths_nodes.numerical.structures.restoring_forces import LinearRestoringForce

LARGEST_FILE = 64 << 20
"""Largest file, bytes; enough for several million entries."""
MOST = 20_000
"""Largest number of degrees of freedom. Larger models are too slow for real time and occupy gigabytes."""
DENSE = 64
EXPERIMENTAL = ("experimental_mass", "experimental_damping", "experimental_stiffness")
DAMPING = {"type": "modal", "ratios": [0.02]}


class Partition:
    """A linear structure with a part in the laboratory."""

    elastic_energy: float = 0.0
    influence: Array

    def __init__(
        self, damping: object, total: tuple[Matrix, Matrix], tested: tuple[Matrix, Matrix, Matrix]
    ) -> None:
        """Subtract the part under test from the whole structure.

        ``total`` holds the mass and stiffness of the whole structure, and ``tested`` the mass, damping and
        stiffness under test. Raises ConfigError if the numerical part is not a valid structure.
        """
        mass, stiffness = total
        self.experimental_mass, self.experimental_damping, self.experimental_stiffness = tested
        self.mass = self._rest("mass", mass, tested[0], positive=True)
        self.stiffness = self._rest("stiffness", stiffness, tested[2])
        model = registry.build("damping", damping)
        self.damping = self._rest("damping", model.matrix(mass, stiffness), tested[1])
        self.restoring_force: StructuralForce = LinearRestoringForce(self.stiffness)

    @property
    def ground_load(self) -> Array:
        """Return the load of both parts, ``(n_dof,)`` N, for a ground acceleration of -1 m/s^2.

        The load includes the experimental part, because the laboratory floor does not move.
        """
        return combined_load(self)

    @staticmethod
    def _rest(name: str, matrix: Matrix, tested: Matrix, positive: bool = False) -> Matrix:
        rest = matrix - tested
        rounding = ROUNDING * largest(matrix)
        if is_sparse(rest):
            _refuse_indefinite(name, rest, tested, positive, rounding)
            return rest
        for part, kept, above in (
            (f"{name} under test", tested, False),
            (f"numerical {name} (whole - experimental)", rest, positive),
        ):
            if above:  # massless degrees of freedom are excluded
                some = ~(massless(matrix) & massless(tested))
                kept = kept[np.ix_(some, some)]
            if not len(kept):
                raise ConfigError(f"structure: the {name} must not be zero")
            lowest = float(np.linalg.eigvalsh(kept)[0])
            if lowest < -rounding or (above and lowest <= rounding):
                sign = ">" if above else ">="
                raise ConfigError(f"structure: the {part} has the eigenvalue {lowest:g}, which must be {sign} 0")
        return rest


def _refuse_indefinite(name: str, rest: Matrix, tested: Matrix, positive: bool, rounding: float) -> None:
    one = diagonal(np.ones(rest.shape[0]))
    if not zero(tested) and not is_definite(tested + 2.0 * rounding * one):
        raise ConfigError(
            f"structure: the {name} under test has a negative eigenvalue, but all eigenvalues must be >= 0"
        )
    if zero(rest) and not positive:
        return
    if positive:
        some = ~(massless(rest) & massless(tested))
        if not some.any():
            raise ConfigError(f"structure: the {name} must not be zero")
        rest, one, rounding = rest[some][:, some], one[some][:, some], -rounding
    if not is_definite(rest + (rounding if positive else 2.0 * rounding) * one):
        raise ConfigError(
            f"structure: the numerical {name} (whole - experimental) must have only eigenvalues "
            f"{'>' if positive else '>='} 0"
        )


class Matrices(Partition):
    """Linear structure with matrices of the whole structure and of the part under test. Masses can be zero."""

    @params
    class Params:
        mass: tuple[tuple[float, ...], ...] | str = matrix(
            "mass matrix (n x n) of the whole structure, including the part in the laboratory",
            "kg",
            large=True,
        )
        stiffness: tuple[tuple[float, ...], ...] | str = matrix(
            "stiffness matrix of the whole structure, including the part in the laboratory", "N/m", large=True
        )
        force_unit: str = text("unit of force in the files of mass and stiffness", "N", tuple(FORCES))
        length_unit: str = text(
            "unit of length in the files; the unit of mass is force s^2 / length", "m", tuple(LENGTHS)
        )
        rotations: tuple[float, ...] | None = vector(
            "numbers (from 1) of the degrees of freedom that are rotations in rad",
            "1",
            None,
            at_least=1.0,
        )
        node: tuple[str, ...] = texts(
            "degrees of freedom of each node, e.g. [x, z, ry]; node defines names, rotations and influence",
            ("x", "y", "z", "rx", "ry", "rz"),
        )
        ground: str = text("direction of the ground motion, if node is set", "x", ("x", "y", "z"))
        storage: str = text(
            "storage of matrices; auto: sparse if there are more than 64 degrees of freedom",
            "auto",
            ("auto", "dense", "sparse"),
        )
        damping: OfParams = component("damping", "damping of the whole structure", DAMPING)
        experimental_mass: tuple[tuple[float, ...], ...] | None = matrix(
            "experimental part of the mass", "kg", None
        )
        experimental_stiffness: tuple[tuple[float, ...], ...] | None = matrix(
            "experimental part of the stiffness", "N/m", None
        )
        experimental_damping: tuple[tuple[float, ...], ...] | None = matrix(
            "experimental part of the damping", "N s/m", None
        )
        experimental_at: tuple[float, ...] | None = vector(
            "numbers (from 1) of the degrees of freedom of the experimental matrices; default: all",
            "1",
            None,
            at_least=1.0,
        )
        influence: tuple[float, ...] | None = vector(
            "displacement of each degree of freedom per ground displacement; default: 1, or 0 for rotations",
            "1",
            None,
        )
        ground_load: str = text(
            "mass in the ground load of the numerical substructure; whole: includes the mass under test "
            "(specimen in a laboratory), numerical: excludes the mass under test (specimen on a shaking table)",
            "whole",
            ("whole", "numerical"),
        )

        def validate(self, path: str) -> None:
            in_files = isinstance(self.mass, str) or isinstance(self.stiffness, str)
            if (self.force_unit, self.length_unit) != ("N", "m") and not in_files:
                raise ConfigError(
                    f"{path}.force_unit, {path}.length_unit: must be N and m unless the matrices are in files"
                )
            if self.node and (self.rotations is not None or self.influence is not None):
                raise ConfigError(f"{path}.node: defines rotations and influence. Remove these two keys")
            if not in_files:  # the sizes of files are known only after reading
                _check_sizes(self, len(self.mass), path, ("mass", "stiffness", *EXPERIMENTAL))

    def __init__(self, params: Params) -> None:
        mass, stiffness = read_pair(params)
        n = mass.shape[0]
        self.names, self.influence = _directions(params, n)
        self._loaded = params.ground_load
        _check_sizes(params, n, "structure", EXPERIMENTAL)  # ``validate`` cannot check the sizes of files
        at = np.arange(n) if params.experimental_at is None else np.array(params.experimental_at, int) - 1
        sparse = is_sparse(mass)

        parts = (_scattered(n, at, getattr(params, name), sparse) for name in EXPERIMENTAL)
        of_mass, of_damping, of_stiffness = parts
        super().__init__(params.damping, (mass, stiffness), (of_mass, of_damping, of_stiffness))

    @property
    def ground_load(self) -> Array:
        if self._loaded == "whole":
            return combined_load(self)
        load: Array = self.mass @ self.influence
        return load


def _check_sizes(params: Matrices.Params, n: int, path: str, names: tuple[str, ...]) -> None:
    at, influence = params.experimental_at, params.influence
    if at is not None and (any(one % 1.0 or one > n for one in at) or len(set(at)) < len(at)):
        raise ConfigError(f"{path}.experimental_at = {show(at)}: must be different whole numbers from 1 to {n}")
    for name in names:
        rows = getattr(params, name)
        size, other = (n, "mass") if at is None or name not in EXPERIMENTAL else (len(at), "experimental_at")
        if rows is not None and (np.shape(rows) != (size, size) or not np.allclose(rows, np.transpose(rows))):
            raise ConfigError(
                f"{path}.{name}: must be a symmetric {size} x {size} matrix, with as many rows as {other}"
            )
    if influence is not None and len(influence) != n:
        raise ConfigError(f"{path}.influence = {show(influence)}: must be {n} numbers")


def _directions(params: Matrices.Params, n: int) -> tuple[tuple[str, ...], Array]:
    node = params.node
    if not node:
        names = tuple(f"x_{index + 1}" for index in range(n))
        default = np.where(_turned(params, n), 0.0, 1.0)
        return names, default if params.influence is None else np.array(params.influence)
    if n % len(node):
        raise ConfigError(
            f"structure.node = {show(node)}: the number of degrees of freedom, {n}, must be a multiple of "
            f"{len(node)}"
        )
    names = tuple(f"node_{index // len(node) + 1}_{node[index % len(node)]}" for index in range(n))
    moved = np.array([float(direction == params.ground) for direction in node])
    return names, np.tile(moved, n // len(node))


def _scattered(n: int, at: NDArray[np.int_], rows: tuple[tuple[float, ...], ...] | None, sparse: bool) -> Matrix:
    if not sparse:
        matrix = np.zeros((n, n))
        if rows is not None:
            matrix[np.ix_(at, at)] = rows
        return matrix
    from scipy.sparse import coo_array

    if rows is None:
        return coo_array((n, n)).tocsr()
    rows_at, columns_at = np.meshgrid(at, at, indexing="ij")
    matrix = coo_array((np.ravel(rows), (rows_at.ravel(), columns_at.ravel())), shape=(n, n)).tocsr()
    matrix.eliminate_zeros()
    return matrix


def read_pair(params: Matrices.Params) -> tuple[Matrix, Matrix]:
    """Return the mass (kg) and stiffness (N/m, N, N m) of the whole structure.

    Raises ConfigError if a file is unreadable, a matrix is not square, symmetric and finite, or the sizes differ.
    """
    names = params.mass, params.stiffness
    if not any(isinstance(one, str) for one in names) and params.storage != "sparse" and len(names[0]) <= DENSE:
        return np.array(params.mass), np.array(params.stiffness)
    force, length = params.force_unit, params.length_unit
    si = (force, length) == ("N", "m")
    units = {"mass": "kg" if si else f"{force} s^2/{length}", "stiffness": f"{force}/{length}"}
    matrices = [_read(getattr(params, name), f"structure.{name}", unit) for name, unit in units.items()]
    n = matrices[0].shape[0]
    if matrices[1].shape[0] != n:
        raise ConfigError(
            f"structure.stiffness: the number of rows is {matrices[1].shape[0]}, but must be {n}, as in "
            "structure.mass"
        )
    scale = _to_si(params, n)
    sparse = n > DENSE if params.storage == "auto" else params.storage == "sparse"
    kept = []
    for name, one in zip(("mass", "stiffness"), matrices, strict=True):
        in_file = isinstance(getattr(params, name), str)
        kept.append(_stored(scale @ one @ scale if in_file else one, sparse))
    return kept[0], kept[1]


def _stored(matrix: Matrix, sparse: bool) -> Matrix:
    from scipy.sparse import csr_array

    if not sparse:
        return dense(matrix)
    stored = csr_array(matrix)
    stored = 0.5 * (stored + stored.T)  # exactly symmetric, because factors and bands store only one half
    stored.eliminate_zeros()
    stored.sort_indices()
    return stored


def _to_si(params: Matrices.Params, n: int) -> Matrix:
    """Return the diagonal matrix D that converts a mass or stiffness matrix A of the file to SI units: D A D."""
    force, length = FORCES[params.force_unit], LENGTHS[params.length_unit]
    per_dof = np.where(_turned(params, n), 1.0, 1.0 / length)
    # entries are forces or moments per displacement or rotation; a moment is force times length
    return diagonal(np.sqrt(force * length) * per_dof)


def _turned(params: Matrices.Params, n: int) -> NDArray[np.bool_]:
    """Return a mask ``(n,)`` that is true for rotational degrees of freedom."""
    if params.node:
        return np.resize([direction.startswith("r") for direction in params.node], n)
    turned, numbers = np.zeros(n, bool), np.array(params.rotations or ())
    if (numbers % 1.0).any() or (numbers > n).any():
        raise ConfigError(f"structure.rotations = {show(params.rotations)}: must be whole numbers from 1 to {n}")
    turned[numbers.astype(int) - 1] = True
    return turned


def _read(written: object, path: str, unit: str) -> Matrix:
    if not isinstance(written, str):
        return np.array(written)
    try:
        matrix = _matrix(written, path.rpartition(".")[2])
    except Exception as error:  # scipy and gzip have no exception class for damaged files
        raise ConfigError(f"{path} = {show(written)}: cannot be read as a matrix in {unit} ({error})") from None
    rows, *columns = matrix.shape
    if columns != [rows]:
        shape = " x ".join(map(str, matrix.shape))
        raise ConfigError(f"{path} = {show(written)}: the matrix is {shape}, but must be square")
    if not 1 <= rows <= MOST:
        raise ConfigError(
            f"{path} = {show(written)}: the number of rows is {rows}, but must be >= 1 and <= {MOST}"
        )
    values = matrix.data if is_sparse(matrix) else matrix
    if not np.isfinite(values).all() or np.abs(values).max(initial=0.0) > LARGEST:
        raise ConfigError(
            f"{path} = {show(written)}: must be finite numbers in {unit}, of magnitude <= {LARGEST:g}"
        )
    gap = abs(matrix - matrix.T)
    if gap.max() > ROUNDING * largest(matrix):
        row, column = np.unravel_index(int(np.argmax(dense(gap))), matrix.shape)
        raise ConfigError(
            f"{path} = {show(written)}: must be symmetric, but the entry in row {row + 1}, column {column + 1} "
            "differs from its mirror image"
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
                raise ValueError(f"the unpacked file is larger than {LARGEST_FILE} bytes")
        return _real(mmread(io.BytesIO(data)))
    rows = read_rows(file)
    if len({len(row) for row in rows}) != 1:
        raise ValueError("the rows have different lengths")
    return np.array(rows)


def _of_npz(data: bytes, name: str) -> Matrix:
    parts = read_arrays(data, 8 * LARGEST_FILE)
    if "format" in parts:
        from scipy.sparse import load_npz

        return _real(load_npz(io.BytesIO(data)))
    if name not in parts and len(parts) != 1:
        names = ", ".join(parts) or "nothing"
        raise ValueError(
            f"the file has {names}, but must have {name}, a single array, or a sparse matrix of scipy"
        )
    return _real(parts[name if name in parts else next(iter(parts))])


def _real(matrix: Matrix) -> Matrix:
    kind = matrix.dtype.kind
    if kind not in "fiu":
        raise ValueError(f"the numbers are of type {matrix.dtype}, but must be real")
    if isinstance(matrix, np.ndarray):
        return matrix.astype(float)
    from scipy.sparse import csr_array

    return csr_array(matrix.astype(float))
