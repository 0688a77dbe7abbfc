"""A structure given by its matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.parameters import component, matrix, params, text, texts, vector
from rths_nodes.core.partition import load_of_whole
from rths_nodes.core.samples import Array
from rths_nodes.core.sparse import Matrix, is_sparse
from rths_nodes.core.units import FORCES, LENGTHS
from rths_nodes.numerical.structures.matrix_files import read_pair
from rths_nodes.numerical.structures.partitioned import DAMPING, Partition

EXPERIMENTAL = ("experimental_mass", "experimental_damping", "experimental_stiffness")


class Matrices(Partition):
    """A linear structure given by the matrices of the whole, and of the part that stands in the laboratory.

    Degrees of freedom may have no mass, the rotations of a finite-element model: rows of zeros.
    """

    @params
    class Params:
        mass: tuple[tuple[float, ...], ...] | str = matrix(
            "mass matrix of the whole structure, n rows of n", "kg", large=True
        )
        stiffness: tuple[tuple[float, ...], ...] | str = matrix(
            "stiffness matrix of the whole structure", "N/m", large=True
        )
        force_unit: str = text("unit of forces in mass and stiffness that stand in files", "N", tuple(FORCES))
        length_unit: str = text("unit of lengths there; the mass is in force s^2 / length", "m", tuple(LENGTHS))
        rotations: tuple[float, ...] | None = vector(
            "numbers of the degrees of freedom that are rotations (rad), from 1 on; for a length unit other "
            "than m",
            "1",
            None,
            at_least=1.0,
        )
        node: tuple[str, ...] = texts(
            "what the degrees of freedom of a node are, the same at all nodes, e.g. [x, z, ry]: their names, "
            "which are rotations, and which move with the ground",
            ("x", "y", "z", "rx", "ry", "rz"),
        )
        ground: str = text("direction of the ground motion, where node tells the directions", "x", ("x", "y", "z"))
        storage: str = text(
            "auto: sparse from 65 degrees of freedom on; or dense, or sparse", "auto", ("auto", "dense", "sparse")
        )
        damping: Any = component("damping", "damping of the whole structure", DAMPING)
        experimental_mass: tuple[tuple[float, ...], ...] | None = matrix(
            "the part of the mass that stands in the laboratory", "kg", None
        )
        experimental_stiffness: tuple[tuple[float, ...], ...] | None = matrix(
            "the part of the stiffness that stands in the laboratory", "N/m", None
        )
        experimental_damping: tuple[tuple[float, ...], ...] | None = matrix(
            "the part of the damping that stands in the laboratory", "N s/m", None
        )
        experimental_at: tuple[float, ...] | None = vector(
            "numbers of the degrees of freedom that the experimental matrices belong to, from 1 on; all if left "
            "out",
            "1",
            None,
            at_least=1.0,
        )
        influence: tuple[float, ...] | None = vector(
            "displacement of each degree of freedom per unit of the ground's; ones if left out", "1", None
        )
        ground_load: str = text(
            "mass with which the ground motion loads the numerical substructure. whole: that under test counts, "
            "as a specimen in a laboratory does not feel the ground; numerical: it does not, as a specimen on a "
            "shaking table feels it, or where a benchmark leaves it out",
            "whole",
            ("whole", "numerical"),
        )

        def validate(self, path: str) -> None:
            """Refuses matrices of different size or without symmetry."""
            self._check_units(path)
            given = [getattr(self, name) for name in ("mass", "stiffness")]
            if any(isinstance(rows, str) for rows in given):
                return  # known once they are read
            _check_sizes(self, len(self.mass), path, ("mass", "stiffness", *EXPERIMENTAL))

        def _check_units(self, path: str) -> None:
            in_files = isinstance(self.mass, str) or isinstance(self.stiffness, str)
            if (self.force_unit, self.length_unit) != ("N", "m") and not in_files:
                raise ConfigError(
                    f"{path}.force_unit, {path}.length_unit: are for matrices in files; must be N and m"
                )
            if self.node and (self.rotations is not None or self.influence is not None):
                raise ConfigError(f"{path}.node: tells rotations and influence; these must be left out")

    def __init__(self, params: Params) -> None:
        mass, stiffness = read_pair(params)
        n = mass.shape[0]
        self.names, self.influence = _directions(params, n)
        self._loaded = params.ground_load
        _check_sizes(params, n, "structure", EXPERIMENTAL)  # of files ``validate`` could not know
        at = np.arange(n) if params.experimental_at is None else np.array(params.experimental_at, int) - 1
        sparse = is_sparse(mass)

        def tested(rows: tuple[tuple[float, ...], ...] | None) -> Matrix:
            if sparse:
                return _scattered(n, at, rows)
            found = np.zeros((n, n))
            if rows is not None:
                found[np.ix_(at, at)] = rows
            return found

        of_mass, of_damping, of_stiffness = (tested(getattr(params, name)) for name in EXPERIMENTAL)
        super().__init__(params.damping, (mass, stiffness), (of_mass, of_damping, of_stiffness))

    @property
    def ground_load(self) -> Array:
        """Of the whole, or of the numerical part alone: ``(n_dof,)`` N per m/s^2."""
        if self._loaded == "whole":
            return load_of_whole(self)
        load: Array = self.mass @ self.influence
        return load


def _check_sizes(params: Matrices.Params, n: int, path: str, names: tuple[str, ...]) -> None:
    """Refuses (ConfigError) what does not fit to ``n`` degrees of freedom, and rows that are not symmetric."""
    at, influence = params.experimental_at, params.influence
    if at is not None and (any(one % 1.0 or one > n for one in at) or len(set(at)) < len(at)):
        raise ConfigError(f"{path}.experimental_at = {show(at)}: must be different whole numbers from 1 to {n}")
    for name in names:
        rows = getattr(params, name)
        size, other = (n, "mass") if at is None or name not in EXPERIMENTAL else (len(at), "experimental_at")
        if rows is not None and (np.shape(rows) != (size, size) or not np.allclose(rows, np.transpose(rows))):
            raise ConfigError(
                f"{path}.{name}: must be symmetric, {size} rows of {size} numbers, as many as {other}"
            )
    if influence is not None and len(influence) != n:
        raise ConfigError(f"{path}.influence = {show(influence)}: must be {n} numbers")


def _directions(params: Matrices.Params, n: int) -> tuple[tuple[str, ...], Array]:
    """Names and influence of ``n`` degrees of freedom."""
    node = params.node
    if not node:
        names = tuple(f"x_{index + 1}" for index in range(n))
        return names, np.ones(n) if params.influence is None else np.array(params.influence)
    if n % len(node):
        raise ConfigError(
            f"structure.node = {show(node)}: {n} degrees of freedom are not a whole number of nodes with "
            f"{len(node)}"
        )
    names = tuple(f"node_{index // len(node) + 1}_{node[index % len(node)]}" for index in range(n))
    moved = np.array([float(direction == params.ground) for direction in node])
    return names, np.tile(moved, n // len(node))


def _scattered(n: int, at: NDArray[np.int_], rows: tuple[tuple[float, ...], ...] | None) -> Matrix:
    """A sparse matrix of ``n`` rows with ``rows`` at the places ``at``; zero where there are none."""
    from scipy.sparse import coo_array

    if rows is None:
        return coo_array((n, n)).tocsr()
    places = np.meshgrid(at, at, indexing="ij")
    found = coo_array((np.ravel(rows), (places[0].ravel(), places[1].ravel())), shape=(n, n)).tocsr()
    found.eliminate_zeros()
    return found
