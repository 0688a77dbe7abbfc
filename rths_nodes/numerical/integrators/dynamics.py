"""What the integrators of an equation of motion share: equilibrium, prediction and the published arrays.

With so few numbers ``@`` takes three times as long as ``dot``, and a loop in real time waits for it.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.discretisation import StepMatrices
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.massless import massless, numbered
from rths_nodes.core.protocols import Integrator, Structure
from rths_nodes.core.samples import Array
from rths_nodes.core.sparse import Inverse, Matrix, inverse, is_sparse, product
from rths_nodes.numerical.structures.linear_force import is_linear

FEW = 8
"""Forces at the interface up to which their columns are quicker than a solution."""


class Dynamics(Integrator):
    """State of M a + C v + r(x) + r_e = F at the current step; all attributes ``(n_dof,)``, SI.

    ``external_force`` has the shape ``(steps + 1, n_dof)`` N. Subclasses implement ``_advance``, which moves
    displacement and velocity to the next step from the exact acceleration of this one. ``_experimental`` is the
    measured force of the step before, ``_load`` what else acts on the masses at the current step, inertia apart.
    A subclass that remembers more from step to step names it in ``memory``.
    """

    takes_massless: ClassVar[bool] = False
    """True for one that can step degrees of freedom without mass."""
    memory: ClassVar[tuple[str, ...]] = ("displacement", "velocity", "_experimental")
    """Attributes ``(n_dof,)`` from which, with the measured force, the next step follows."""

    def __init__(self, structure: Structure | None, external_force: Array, dt: float) -> None:
        if structure is None:
            raise ConfigError("structure: missing; only the integrator 'prescribed' does without")
        self.structure = structure
        self.dt = dt
        self._external = external_force
        self._mass_inverse = self._inverse_of(structure.mass)
        self._damping = product(structure.damping)
        self._acceleration_per_load = self._mass_inverse
        self._n_dof = len(structure.influence)
        self._columns: dict[int, Array] | None = {} if is_sparse(structure.mass) else None

    def _inverse_of(self, mass: Matrix) -> Any:
        """Of the mass, zero where there is none. Raises ConfigError for an integrator that needs some."""
        without = massless(mass)
        if not without.any():
            return inverse(mass)
        if not self.takes_massless:
            raise ConfigError(
                f"integrator: needs a mass everywhere, the degrees of freedom {numbered(without)} of the "
                "structure have none; newmark does without"
            )
        if is_sparse(mass):
            return _OfMasses(mass, without)
        found, kept = np.zeros_like(mass), np.ix_(~without, ~without)
        found[kept] = np.linalg.inv(mass[kept])
        return found

    def reset(self) -> None:
        """At rest at step 0, the predicted acceleration from the first external force."""
        self.structure.restoring_force.reset()
        self._index = 0
        self.displacement = np.zeros(self._n_dof)
        self.velocity = np.zeros(self._n_dof)
        self.exact_acceleration = np.zeros(self._n_dof)
        self.restoring_force = np.zeros(self._n_dof)
        self._experimental = np.zeros(self._n_dof)
        self._force = self.structure.restoring_force.force(self.displacement)
        self._load = self._apart()
        self.acceleration = self._mass_inverse.dot(self._load)

    def step(self, experimental_force: Array) -> None:
        """Finish the current step with the force measured there, ``(n_dof,)`` N, and go to the next."""
        if self._index == 0:  # nothing is known of the time before: as if it had always been so
            self._experimental = experimental_force.copy()
        self.exact_acceleration = self._exact(experimental_force)
        self.restoring_force = self._force
        self._advance(experimental_force)
        self._index += 1
        self._force = self.structure.restoring_force.force(self.displacement)
        self._load = self._apart()
        extrapolated = self._expected = experimental_force + experimental_force - self._experimental
        self._experimental = experimental_force.copy()
        self.acceleration = self._acceleration_per_load.dot(self._load - extrapolated)

    def _exact(self, experimental_force: Array) -> Array:
        """Acceleration of the current step.

        That of a large structure is the predicted one and what the few forces at the interface change in it, which
        takes a column for each of them in place of a solution.
        """
        off = None if self._columns is None or self._index == 0 else self._expected - experimental_force
        places = [] if off is None else np.flatnonzero(off).tolist()
        if off is None or self._columns is None or len(places) > FEW:
            found: Array = self._acceleration_per_load.dot(self._load - experimental_force)
            return found
        found = self.acceleration
        for place in places:
            column = self._columns.get(place)
            if column is None:
                unit = np.zeros(self._n_dof)
                unit[place] = 1.0
                column = self._columns[place] = self._acceleration_per_load.dot(unit)
            found = found + off[place] * column
        return found

    def linearised(self) -> tuple[StepMatrices, ...]:
        """The steps of a period, each taken from every unit of memory and measured force in turn.

        Raises ValueError when the external force is shorter than two periods, or not zero.
        """
        if len(self._external) <= 2 * self.period or self._external.any():
            raise ValueError(f"external force: must be zero, over more than {2 * self.period} steps")
        return tuple(self._step_matrices(phase) for phase in range(self.period))

    def _step_matrices(self, phase: int) -> StepMatrices:
        m = len(self.memory) * self._n_dof
        both = np.column_stack([self._after(phase, unit[:m], unit[m:]) for unit in np.eye(m + self._n_dof)])
        return StepMatrices(both[:m, :m], both[:m, m:], both[m:, :m], both[m:, m:])

    def _after(self, phase: int, memory: Array, force: Array) -> Array:
        """Memory and Target after step ``phase`` of a period, past the start, from ``memory`` and ``force``."""
        twin = copy.copy(self)
        for name, values in zip(self.memory, memory.reshape(-1, self._n_dof), strict=True):
            setattr(twin, name, values.copy())
        twin._index = self.period + phase
        twin._force = self.structure.restoring_force.force(twin.displacement)
        twin._load = twin._apart()
        twin.step(force)
        kept = [getattr(twin, name) for name in self.memory]
        return np.concatenate([*kept, twin.displacement, twin.velocity, twin.acceleration])

    def _apart(self) -> Array:
        load: Array = self._external[self._index] - self._damping.dot(self.velocity) - self._force
        return load

    def _advance(self, experimental_force: Array) -> None:
        raise TypeError(f"{type(self).__name__} does not say how to advance")


class _OfMasses:
    """Multiplies by the inverse of a sparse mass; what is ``without`` any is not accelerated by it."""

    def __init__(self, mass: Matrix, without: NDArray[np.bool_]) -> None:
        from scipy.sparse import diags_array

        self._inverse = Inverse(mass + diags_array(without.astype(float), format="csr"))
        self._without = without

    def dot(self, load: Array) -> Array:
        found = self._inverse.dot(load)
        found[self._without] = 0.0
        return found


def refuse_large(name: str, structure: Structure, reason: str) -> None:
    """Refuses (ConfigError) a structure that is kept sparse, with the reason and what helps."""
    if is_sparse(structure.mass):
        raise ConfigError(
            f"integrator {name}: {reason}: not for a structure of {len(structure.influence)} degrees of freedom "
            "that is kept sparse; give reduction, or take another: central_difference, cr, explicit_newmark, "
            "hht_alpha, kr_alpha, newmark"
        )


def trial_force(structure: Structure, displacement: Array) -> Array:
    """Restoring force at ``displacement`` (m) without going there: its memory stays as it is.

    A restoring force must rebind its memory, not change it in place; all of this package do.
    """
    force = structure.restoring_force
    return (force if is_linear(structure) else copy.copy(force)).force(displacement)
