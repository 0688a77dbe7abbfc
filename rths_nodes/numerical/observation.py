# SPDX-License-Identifier: Apache-2.0
"""Observed part of the numerical substructure: the interface to the rig, and further observed motion.

The interface is first, in its own order; further degrees of freedom follow. A Target contains only observed
degrees of freedom; the integrator uses all degrees of freedom of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rths_nodes.core.arithmetic import Numbers, matvec
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Function
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.structure import is_sparse, massless
from rths_nodes.numerical.vectors import LARGE, SEVERAL, Operand


class Observation:
    """Observes the whole model in its own order, without copies."""

    complete = True
    """True if a Target has all degrees of freedom of the model."""
    as_is = True
    """True if all methods return their arguments."""

    def __init__(self, n_model: int) -> None:
        self.n_model = self.n_observed = self.n_interface = n_model

    def motion(self, values: Array) -> Array:
        """Select displacements (or rates) of the observed degrees of freedom, ``(n_observed,)``.

        ``values`` are ``(n_model,)``, or a history ``(steps, n_model)``.
        """
        return values

    def interface(self, values: Array) -> Array:
        """Select displacements (or rates) of the interface, ``(n_interface,)``."""
        return values

    def spread(self, forces: Array) -> Array:
        """Return the forces on the model ``(n_model,)`` for forces at the interface ``(n_interface,)``, N."""
        return forces

    def restoring(self, force: Array, displacement: Array) -> Array:
        """Return the observed restoring force ``(n_observed,)`` N for the model's force and ``displacement``."""
        return force

    def external(self, force: Array) -> Array:
        """Return the observed part ``(n_observed,)`` of the model's external ``force`` ``(n_model,)``, N."""
        return force

    def influence(self, structure: Structure) -> Array:
        """Return the rigid-body displacement of the observed degrees of freedom per ground displacement."""
        return structure.influence


class Selection(Observation):
    """Observes selected degrees of freedom, with indices of the ``interface`` and of all ``observed``.

    An external model is ``complete``; its first degrees of freedom belong to the rig.
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

    def restoring(self, force: Array, displacement: Array) -> Array:
        return np.asarray(force[self._observed])

    def external(self, force: Array) -> Array:
        return np.asarray(force[self._observed])

    def influence(self, structure: Structure) -> Array:
        return np.asarray(structure.influence[self._observed])


class GroundForce:
    """Force on a large model, ``(steps + 1, n_dof)`` N, with rows ``scale`` times ``pattern``.

    Each row is computed on demand.
    """

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


class Energies:
    """Computes energies of a large model at each step: input, kinetic, strain and damping, J.

    The trapezoidal rule integrates each term of M a + C v + r + r_e = F over the displacement, as in
    ``analysis/histories.py``.
    """

    def __init__(self, structure: Structure) -> None:
        n = len(structure.influence)
        vectors = LARGE if is_sparse(structure.mass) else SEVERAL
        self._step = energies(vectors.product)
        self._constants = vectors.operand(structure.mass), vectors.operand(structure.damping)
        self._state: object = (np.zeros((3, n)), np.zeros(n), 0.0, 0.0, 0.0)
        self._first = True

    def at(self, displacement: Array, velocity: Array, restoring: Array, external: Array) -> Array:
        """Return the energies ``(4,)``, J, after a move to ``displacement`` (m), which is not copied.

        ``velocity`` is in m/s, forces are in N.
        """
        self._state, energies = self._step(
            self._constants, self._state, displacement, velocity, restoring, external, self._first
        )
        self._first = False
        return np.array(energies)


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
            f"observed: {both!r} is part of interface and therefore already observed; remove it from observed"
        )
