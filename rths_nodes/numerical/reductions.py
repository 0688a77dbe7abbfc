# SPDX-License-Identifier: Apache-2.0
"""Reduction of a large linear structure: a few shapes T replace its degrees of freedom, x = T q.

M, C and K of both substructures become T' M T, T' C T and T' K T. A reduced structure is symmetric and, without
damping, conserves energy. Both reductions have the exact static compliance of the interface, including the part
under test.

Craig & Bampton 1968; modes with static correction as in Craig & Kurdila, Fundamentals of Structural Dynamics,
2006, chapter 17.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rths_nodes.core.arithmetic import matvec
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import integer, number, params
from rths_nodes.core.protocols import Reduction, Structure
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.structure import (
    Matrix,
    NotDefinite,
    combined,
    combined_load,
    dense,
    inverse,
    is_sparse,
    massless,
)
from rths_nodes.numerical.observation import Observation
from rths_nodes.numerical.structures.damping import some_modes
from rths_nodes.numerical.structures.restoring_forces import LinearRestoringForce, is_linear

TABLE = {
    "modal": ":Modal",
    "craig_bampton": ":CraigBampton",
}

NOTHING_NEW = 1e-7
"""Smallest relative part of a static shape outside the modes for which the shape is added."""
COMPARED = 40
"""Number of frequencies at which compliances are compared."""
FREQUENCIES = 10
"""Number of natural frequencies in the comparison."""


@params
class Kept:
    modes: int = integer("number of lowest modes to keep", at_least=1, at_most=2000)
    band: float = number(
        "highest frequency at which rths check compares the reduced model with the full model",
        "Hz",
        20.0,
        more_than=0.0,
    )


class Modal:
    """Lowest modes of the whole structure, and static shapes due to forces at the interface."""

    @params
    class Params(Kept):
        pass

    def __init__(self, params: Params) -> None:
        self._p = params

    def basis(self, structure: Structure, places: Sequence[int]) -> tuple[Array, tuple[str, ...]]:
        mass, _, stiffness = combined(structure)
        without = massless(mass)
        bare = [structure.names[index] for index in places if without[index]]
        if bare:
            raise ConfigError(
                f"reduction modal: {bare[0]} at the interface has no mass; use craig_bampton, which does not need "
                "mass"
            )
        shapes = _modes(self._p.modes, mass, stiffness)
        statics = _solved(stiffness, units(len(structure.influence), places))
        kept, names = shapes, [f"mode_{number}" for number in range(1, shapes.shape[1] + 1)]
        for index, static in zip(places, statics.T, strict=True):
            new = static
            for _ in range(2):  # twice, to reduce rounding errors
                new = new - kept @ (kept.T @ (mass @ new))
            size, before = (float(np.sqrt(abs(one @ (mass @ one)))) for one in (new, static))
            if size > NOTHING_NEW * before:
                kept = np.column_stack([kept, new / size])
                names.append(f"static_{structure.names[index]}")
        return kept, tuple(names)


class CraigBampton:
    """Degrees of freedom of the interface, and the lowest modes of the structure with a fixed interface."""

    SOURCES = ("craig_bampton_1968",)

    @params
    class Params(Kept):
        pass

    def __init__(self, params: Params) -> None:
        self._p = params

    def basis(self, structure: Structure, places: Sequence[int]) -> tuple[Array, tuple[str, ...]]:
        mass, _, stiffness = combined(structure)
        n, b = len(structure.influence), list(places)
        i = np.setdiff1d(np.arange(n), b)
        names = tuple(structure.names[index] for index in b)
        if not len(i):
            return units(n, b), names
        inner = stiffness[i][:, i]
        shapes = _modes(self._p.modes, mass[i][:, i], inner)
        basis = np.zeros((n, len(b) + shapes.shape[1]))
        basis[b, : len(b)] = np.eye(len(b))
        basis[i, : len(b)] = -_solved(inner, dense(stiffness[i][:, b]))
        basis[i, len(b) :] = shapes
        return basis, (*names, *(f"held_mode_{number}" for number in range(1, shapes.shape[1] + 1)))


def units(n: int, places: Sequence[int]) -> Array:
    vectors = np.zeros((n, len(places)))
    vectors[list(places), np.arange(len(places))] = 1.0
    return vectors


def _modes(count: int, mass: Matrix, stiffness: Matrix) -> Array:
    most = int((~massless(mass)).sum())
    if count > most:
        raise ConfigError(
            f"reduction.modes = {count}: must be <= {most}, the number of degrees of freedom with mass"
        )
    return some_modes(mass, stiffness, count)[1]


def _solved(stiffness: Matrix, right: Array) -> Array:
    try:
        return np.asarray(inverse(stiffness).dot(right))
    except (NotDefinite, np.linalg.LinAlgError):
        raise ConfigError(
            "reduction: the stiffness of the structure must be positive definite, but parts of the "
            "structure can move freely"
        ) from None


class Reduced:
    """A structure (``core/protocols.py``) in the coordinates q of a reduction, with dense matrices."""

    def __init__(self, full: Structure, shapes: Array, names: tuple[str, ...]) -> None:
        self.full, self.shapes, self.names = full, shapes, names
        self.elastic_energy = full.elastic_energy
        for word in ("mass", "damping", "stiffness"):
            for part in (word, f"experimental_{word}"):
                setattr(self, part, self._projected(getattr(full, part)))
        of_whole = self.mass + self.experimental_mass
        self.influence = np.linalg.solve(of_whole, shapes.T @ combined_load(full))
        self.ground_load = shapes.T @ full.ground_load
        self.restoring_force = LinearRestoringForce(self.stiffness)

    mass: Array
    damping: Array
    stiffness: Array
    experimental_mass: Array
    experimental_damping: Array
    experimental_stiffness: Array

    def _projected(self, matrix: Matrix) -> Array:
        projected = self.shapes.T @ (matrix @ self.shapes)
        return np.asarray(0.5 * (projected + projected.T))


def reduced(reduction: Reduction, full: Structure, places: Sequence[int]) -> Reduced:
    if not is_linear(full):
        raise ConfigError("reduction: requires a structure with a linear restoring force")
    return Reduced(full, *reduction.basis(full, places))


class Recovery(Observation):
    """Recovers observed degrees of freedom of the full model from the integrated reduced model."""

    complete = as_is = False

    def __init__(self, model: Reduced, interface: Sequence[int], observed: Sequence[int]) -> None:
        super().__init__(len(model.names))
        self.n_observed, self.n_interface = len(observed), len(interface)
        at, full = list(observed), model.full
        self._observed, self._interface = model.shapes[at], model.shapes[list(interface)]
        self._restoring = full.stiffness[at] @ model.shapes
        self._influence = full.influence[at]
        load, of_model = full.ground_load[at], model.ground_load
        size = float(of_model @ of_model)
        self._external = np.outer(load, of_model / size) if size else np.zeros((len(at), self.n_model))

    def motion(self, values: Array) -> Array:
        return _seen(self._observed, values)

    def interface(self, values: Array) -> Array:
        return _seen(self._interface, values)

    def spread(self, forces: Array) -> Array:
        return matvec(self._interface.T, forces)

    def restoring(self, force: Array, displacement: Array) -> Array:
        return matvec(self._restoring, displacement)

    def external(self, force: Array) -> Array:
        return matvec(self._external, force)

    def influence(self, structure: Structure) -> Array:
        return self._influence


def _seen(shapes: Array, values: Array) -> Array:
    return matvec(shapes, values) if values.ndim == 1 else np.asarray(values @ shapes.T)


def differences(model: Reduced, places: Sequence[int], band: float) -> tuple[float, float, float]:
    """Return three relative errors: lowest natural frequencies, static compliance, and compliance up to ``band``.

    All compliances refer to the interface. The third error is the largest error up to ``band`` (Hz) divided by the
    largest compliance in this band. Both substructures are combined.
    """
    full = model.full
    count = min(FREQUENCIES, len(model.names))
    exact = some_modes(*combined(full)[::2], count)[0]
    shapes = some_modes(*combined(model)[::2], count)[0]
    n = min(len(exact), len(shapes))
    frequency = float(np.max(np.abs(shapes[:n] / exact[:n] - 1.0)))
    omega = 2.0 * np.pi * band * np.linspace(0.0, 1.0, COMPARED)
    at = list(places)
    of_full = compliance(full, units(len(full.influence), at), omega)
    of_model = compliance(model, model.shapes[at].T, omega)  # type: ignore[arg-type]
    gap, size = np.abs(of_model - of_full).max(axis=(1, 2)), np.abs(of_full).max(axis=(1, 2))
    return frequency, float(gap[0] / size[0]), float(gap.max() / size.max())


def compliance(structure: Structure, at: Array, omega: Array) -> Array:
    """Return the compliance of both substructures at the shapes ``at`` ``(n, m)``: ``(len(omega), m, m)`` m/N."""
    mass, damping, stiffness = combined(structure)
    flexibilities = []
    for one in omega:
        dynamic = stiffness + 1j * one * damping - one**2 * mass
        if is_sparse(dynamic):
            from scipy.sparse.linalg import splu

            columns = dynamic.tocsc()
            for name in ("indices", "indptr"):  # splu of scipy 1.11 needs 32-bit indices
                setattr(columns, name, getattr(columns, name).astype(np.intc))
            moved = splu(columns).solve(at.astype(complex))
        else:
            moved = np.linalg.solve(dynamic, at)
        flexibilities.append(at.T @ moved)
    return np.asarray(flexibilities)
