# SPDX-License-Identifier: Apache-2.0
"""Observed part of the numerical substructure, and reduction of a large linear structure.

The observed part consists of the interface to the rig, in its own order, and other degrees of freedom. A Target
contains only observed degrees of freedom; the integrator uses all degrees of freedom of the model.

In a reduction a few shapes T replace the degrees of freedom, x = T q. M, C and K of both substructures become
T' M T, T' C T and T' K T. A reduced structure is symmetric and, without damping, conserves energy. Both reductions
preserve the static compliance of the interface, including the part under test.

Craig & Bampton 1968; modes with static correction as in Craig & Kurdila, Fundamentals of Structural Dynamics,
2006, chapter 17.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rths_nodes.core.arithmetic import Numbers, matvec
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Function
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
from rths_nodes.numerical.structures.damping import some_modes
from rths_nodes.numerical.structures.restoring_forces import LinearRestoringForce, is_linear
from rths_nodes.numerical.vectors import LARGE, SEVERAL, Operand

TABLE = {
    "modal": ":Modal",
    "craig_bampton": ":CraigBampton",
}

NOTHING_NEW = 1e-7
"""Smallest part of a static shape outside the modes, relative to the shape, for which the shape is added."""
COMPARED = 40
"""Number of frequencies at which compliances are compared."""
FREQUENCIES = 10
"""Number of natural frequencies that are compared."""


class Observation:
    """Observes all degrees of freedom of the model, in the model's order and without copies."""

    complete = True
    """True if a Target has all degrees of freedom of the model."""
    as_is = True
    """True if all methods return their arguments unchanged."""

    def __init__(self, n_model: int) -> None:
        self.n_model = self.n_observed = self.n_interface = n_model

    def motion(self, values: Array) -> Array:
        """Return the displacements (or rates) of the observed degrees of freedom, ``(n_observed,)``.

        ``values`` has the shape ``(n_model,)`` or, for a history, ``(steps, n_model)``.
        """
        return values

    def interface(self, values: Array) -> Array:
        """Return the displacements (or rates) of the interface, ``(n_interface,)``."""
        return values

    def spread(self, forces: Array) -> Array:
        """Return the forces on the model ``(n_model,)`` for forces at the interface ``(n_interface,)``, N."""
        return forces

    def restoring(self, force: Array, displacement: Array) -> Array:
        """Return the observed part ``(n_observed,)`` of the model's restoring ``force`` at ``displacement``, N."""
        return self.external(force)

    def external(self, force: Array) -> Array:
        """Return the observed part ``(n_observed,)`` of the model's external ``force`` ``(n_model,)``, N."""
        return force

    def influence(self, structure: Structure) -> Array:
        """Return the rigid-body displacement of the observed degrees of freedom per ground displacement."""
        return structure.influence


class Selection(Observation):
    """Observes the degrees of freedom with the indices ``observed``. The interface has the indices ``interface``.

    ``complete`` is true for an external model, whose first degrees of freedom belong to the rig.
    """

    as_is = False

    def __init__(
        self, n_model: int, interface: Sequence[int], observed: Sequence[int], complete: bool = False
    ) -> None:
        super().__init__(n_model)
        self.complete = complete
        self.n_observed, self.n_interface = len(observed), len(interface)
        self._interface, self._observed = np.asarray(interface, int), np.asarray(observed, int)

    def motion(self, values: Array) -> Array:
        return np.asarray(values[..., self._observed])

    def interface(self, values: Array) -> Array:
        return np.asarray(values[..., self._interface])

    def spread(self, forces: Array) -> Array:
        displacement = np.zeros(self.n_model)
        displacement[self._interface] = forces
        return displacement

    def external(self, force: Array) -> Array:
        return np.asarray(force[self._observed])

    def influence(self, structure: Structure) -> Array:
        return np.asarray(structure.influence[self._observed])


class GroundForce:
    """Force on a large model, ``(steps + 1, n_dof)`` N. Row i, ``scale[i] * pattern``, is computed on demand."""

    def __init__(self, scale: Array, pattern: Array) -> None:
        self._scale, self._pattern = scale, pattern
        self.shape = len(scale), len(pattern)

    def __len__(self) -> int:
        return len(self._scale)

    def __getitem__(self, step: int) -> Array:
        return np.asarray(self._scale[step] * self._pattern)


def energies(product: Function) -> Callable[..., tuple[object, Numbers]]:
    def step(
        k: tuple[Operand, Operand],
        s: tuple[Array, Array, float, float, float],
        x: Array,
        velocity: Array,
        restoring: Array,
        external: Array,
        first: bool,
    ) -> tuple[object, Numbers]:
        mass, damping = k
        forces, before, done, strain, damped = s
        now = np.empty((3, len(x)))
        now[0], now[1], now[2] = external, restoring, product(damping, velocity)
        if not first:
            sums = matvec(forces + now, x - before)
            done += 0.5 * float(sums[0])
            strain += 0.5 * float(sums[1])
            damped += 0.5 * float(sums[2])
        kinetic = 0.5 * float(matvec(product(mass, velocity).reshape(1, len(x)), velocity)[0])
        return (now, x, done, strain, damped), (done, kinetic, strain, damped)

    return step


def energies_of(structure: Structure) -> Callable[[Array, Array, Array, Array], Array]:
    """Return a function that computes the energies of a large model. Call the function after each step, in order.

    The arguments are displacement (m), velocity (m/s), restoring force and external force (N) after a step. The
    result is the array ``(4,)`` of input, kinetic, strain and damping energy, J. The displacement is not copied.
    The trapezoidal rule integrates each term of M a + C v + r + r_e = F over the displacement, as in
    ``analysis/histories.py``.
    """
    n = len(structure.influence)
    vectors = LARGE if is_sparse(structure.mass) else SEVERAL
    step = energies(vectors.product)
    constants = vectors.operand(structure.mass), vectors.operand(structure.damping)
    state: object = (np.zeros((3, n)), np.zeros(n), 0.0, 0.0, 0.0)
    first = True

    def next_energies(displacement: Array, velocity: Array, restoring: Array, external: Array) -> Array:
        nonlocal state, first
        state, results = step(constants, state, displacement, velocity, restoring, external, first)
        first = False
        return np.array(results)

    return next_energies


def refuse_tested_elsewhere(structure: Structure, interface: Sequence[int], names: Sequence[str]) -> None:
    """Raise ConfigError if forces of the tested part act outside the interface, where no axis measures them."""
    outside = np.ones(len(names), bool)
    outside[list(interface)] = False
    for word in ("mass", "damping", "stiffness"):
        tested = getattr(structure, f"experimental_{word}")
        pulled = np.flatnonzero(outside & ~massless(tested))
        if len(pulled):
            raise ConfigError(
                f"interface: the {word} under test (structure.experimental_...) acts at {names[pulled[0]]}, but "
                "must act only at the degrees of freedom of the interface, where forces are measured"
            )


def check_names(interface: Sequence[str], observed: Sequence[str]) -> None:
    if observed and not interface:
        raise ConfigError(
            "observed: requires interface, because without interface all degrees of freedom are observed"
        )
    for key, names in (("interface", interface), ("observed", observed)):
        twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
        if twice is not None:
            raise ConfigError(f"{key}: {twice!r} is listed twice")
    both = next((name for name in observed if name in interface), None)
    if both is not None:
        raise ConfigError(
            f"observed: {both!r} is part of interface and therefore already observed. Remove it from observed"
        )


# Reductions


@params
class Kept:
    modes: int = integer("number of lowest modes to keep", at_least=1, at_most=2000)
    band: float = number(
        "highest frequency at which rths check compares the reduced model with the full model",
        "Hz",
        20.0,
        more_than=0.0,
    )


class ByModes:
    def __init__(self, params: Kept) -> None:
        self._p = params


class Modal(ByModes):
    """Lowest modes of the whole structure, and static shapes due to forces at the interface."""

    @params
    class Params(Kept):
        pass

    def basis(self, structure: Structure, places: Sequence[int]) -> tuple[Array, tuple[str, ...]]:
        mass, _, stiffness = combined(structure)
        without = massless(mass)
        bare = [structure.names[index] for index in places if without[index]]
        if bare:
            raise ConfigError(
                f"reduction modal: {bare[0]} at the interface has no mass. Use craig_bampton, which permits zero "
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


class CraigBampton(ByModes):
    """Degrees of freedom of the interface, and the lowest modes of the structure with a fixed interface."""

    SOURCES = ("craig_bampton_1968",)

    @params
    class Params(Kept):
        pass

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
    """A structure (``core/protocols.py``) in the coordinates q of a ``reduction``, with dense matrices.

    Raises ConfigError if the structure ``full`` is not linear, or if the reduction does not apply to it.
    """

    def __init__(self, reduction: Reduction, full: Structure, places: Sequence[int]) -> None:
        if not is_linear(full):
            raise ConfigError("reduction: requires a structure with a linear restoring force")
        shapes, self.names = reduction.basis(full, places)
        self.full, self.shapes = full, shapes
        self.elastic_energy = full.elastic_energy
        projected = self._projected
        self.mass, self.experimental_mass = projected(full.mass), projected(full.experimental_mass)
        self.damping, self.experimental_damping = projected(full.damping), projected(full.experimental_damping)
        self.stiffness = projected(full.stiffness)
        self.experimental_stiffness = projected(full.experimental_stiffness)
        of_whole = self.mass + self.experimental_mass
        self.influence = np.linalg.solve(of_whole, shapes.T @ combined_load(full))
        self.ground_load = shapes.T @ full.ground_load
        self.restoring_force = LinearRestoringForce(self.stiffness)

    def _projected(self, matrix: Matrix) -> Array:
        projected = self.shapes.T @ (matrix @ self.shapes)
        return np.asarray(0.5 * (projected + projected.T))


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
    """Return the relative errors of natural frequencies, static compliance, and compliance up to ``band`` (Hz).

    The reference is the full structure of ``model``. Both substructures are included. Compliances are between the
    degrees of freedom ``places``. The third error is relative to the largest compliance in the band.
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
