# SPDX-License-Identifier: Apache-2.0
"""Explicit integrators, and the kernel that integrators share to solve the equation of motion.

M a + C v + r(x) + r_e = F (Chen & Ricles 2010, Eq. 1a), with the restoring force r, the measured force r_e and the
external force F. The common kernel is

    step(constants, state, measured, excitation, index) -> state, (x, v, a, exact, r)

The kernel completes step ``index`` with the force ``measured`` at this step (N). It returns displacement (m),
velocity (m/s) and predicted acceleration (m/s^2) at the next step, and the exact acceleration and restoring force
(N) at this step. The integration method computes displacement and velocity:

    advance(constants, state, exact, before, measured, external, index) -> of_method, x, v, exact

``before`` and ``measured`` are the forces measured at the previous step and at this step. ``of_method`` is the
method's state. Vectors are floats for one degree of freedom and arrays ``(n_dof,)`` for several. ``excitation`` is
the external force of all steps: floats, or rows ``(steps + 1, n_dof)``. The state may keep the array ``measured``,
so the caller must pass a copy.

Explicit methods compute the next displacement from the forces at this step. Central differences and Newmark's
method yield the same displacements. KR-alpha: Kolay & Ricles 2014, doi 10.1002/eqe.2401.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rths_nodes.core.arithmetic import record
from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.kernels import Kernel, copied
from rths_nodes.core.parameters import AnyParams, number, params
from rths_nodes.core.protocols import Integrator, StepMatrices, Structure
from rths_nodes.core.samples import Array
from rths_nodes.mechanics.structure import Inverse, Matrix, is_definite, is_sparse, massless, numbered
from rths_nodes.numerical.structures.restoring_forces import Change, Force, Law, Lawful, law_of
from rths_nodes.numerical.vectors import LARGE, ONE, Loads, Multiplier, Operand, Vector, Vectors, vectors_of

Moved = tuple[Vector, Vector, Vector, Vector, Vector]
"""Displacement, velocity, acceleration, exact acceleration and restoring force."""
Step = Callable[..., tuple[object, Moved]]


class Stepped(Integrator):
    """Base of integrators with a kernel. Compiled code can continue with the constants, state and excitation."""

    kernel: Kernel
    constants: Any
    excitation: Loads
    state: Any
    in_floats: bool
    """True if the kernel uses floats, for one degree of freedom."""
    in_tuples = False
    """True if the kernel uses tuples or lists instead of arrays."""

    def _follow(self, kernel: Kernel, constants: object, excitation: Loads, first: Array, in_floats: bool) -> None:
        self.kernel, self.constants, self.excitation = kernel, constants, excitation
        self._step, self._first, self.in_floats = kernel.step, first, in_floats
        self.reset()

    def reset(self) -> None:
        self._index = 0
        self.state = copied(self.kernel.rest(self.constants))
        nothing = np.zeros(len(self._first))
        self.displacement = self.velocity = self.exact_acceleration = self.restoring_force = nothing
        self.acceleration = self._first

    def resume(self, index: int, displacement: Array, state: object) -> None:
        """Continue at step ``index`` from ``displacement`` ``(n_dof,)`` m and a ``state`` computed elsewhere."""
        self._index, self.displacement, self.state = index, displacement, state

    def step(self, experimental_force: Array) -> None:
        index = self._index
        self._index = index + 1
        if self.in_tuples:
            measured: object = tuple(experimental_force.tolist())
        else:
            measured = experimental_force.item() if self.in_floats else experimental_force.copy()
        self.state, shown = self._step(self.constants, self.state, measured, self.excitation, index)
        if self.in_floats or self.in_tuples:
            x, v, a, exact, r = shown
            shown = np.empty((5, len(self._first)))
            record(shown, 0, (x, v, a, exact, r) if self.in_floats else (*x, *v, *a, *exact, *r))
        self.displacement, self.velocity, self.acceleration, self.exact_acceleration, self.restoring_force = shown


FEW = 8
"""Largest number of interface forces for which adding columns is faster than solving with the mass matrix."""

OfMethod = Sequence[Vector]
Moving = tuple[OfMethod, Vector, Vector, Vector]
Advance = Callable[..., Moving]
Prepared = tuple[object, OfMethod]


class Constants(NamedTuple):
    """Constants of the kernel: acceleration per load, damping, method, restoring force, and state at step 0."""

    per_load: Operand | Columns
    damping: Operand
    advance: object
    force: object
    start: Any


class State(NamedTuple):
    x: Vector
    v: Vector
    a: Vector
    """Acceleration predicted with the expected measured force."""
    before: Vector
    """Force measured at the last step."""
    expected: Vector
    r: Vector
    load: Vector  # load on the masses, without measured force and inertia
    of_method: OfMethod
    memory: object  # memory of the restoring force


def dynamics(
    advance: Advance,
    force: Force,
    product: Callable[..., Vector],
    accelerated: Callable[..., Vector],
) -> Step:
    def step(k: Constants, s: State, measured: Vector, external: Loads, index: int) -> tuple[object, Moved]:
        """Compute the exact acceleration at this step and the motion at the next, with predicted acceleration."""
        per_load, damping, of_advance, of_force, _ = k
        x, v, a, before, expected, r, load, _, memory = s
        if index == 0:  # earlier values are unknown: assume that they are constant
            before = measured
        exact = accelerated(per_load, load, measured, a, expected, index)
        of_method, x, v, exact = advance(of_advance, s, exact, before, measured, external, index)
        memory, after = force(of_force, memory, x)
        load = external[index + 1] - product(damping, v) - after
        expected = measured + measured - before
        a = product(per_load, load - expected)
        return (x, v, a, measured, expected, after, load, of_method, memory), (x, v, a, exact, r)

    return step


def solved(product: Callable[..., Vector]) -> Callable[..., Vector]:
    def accelerated(
        per_load: Operand, load: Vector, measured: Vector, a: Vector, expected: Vector, index: int
    ) -> Vector:
        """Return the exact acceleration, for which inertia, ``load`` and ``measured`` force are in equilibrium."""
        return product(per_load, load - measured)

    return accelerated


class Columns:
    """Computes the acceleration per load of a large structure by solving with its mass matrix."""

    def __init__(self, solver: Multiplier) -> None:
        self._solver, self._columns = solver, dict[int, Array]()

    def dot(self, load: Array) -> Array:
        return np.asarray(self._solver.dot(load))

    def column(self, index: int, n: int) -> Array:
        if index not in self._columns:
            unit = np.zeros(n)
            unit[index] = 1.0
            self._columns[index] = self.dot(unit)
        return self._columns[index]


def by_columns(per_load: Columns, load: Array, measured: Array, a: Array, expected: Array, index: int) -> Array:
    """Return the exact acceleration of a large structure.

    The predicted acceleration ``a`` is corrected for each interface force that differs from its expected value.
    """
    off = expected - measured
    forces = np.flatnonzero(off).tolist()
    if index == 0 or len(forces) > FEW:
        return per_load.dot(load - measured)
    for column in forces:
        a = a + off[column] * per_load.column(column, len(off))
    return a


def standing(
    vectors: Vectors,
    law: Law,
    k: Constants,
    x: Vector,
    v: Vector,
    before: Vector,
    of_method: OfMethod,
    applied: Vector,
) -> State:
    memory, r = law.force(law.constants, law.rest, x)
    load = applied - vectors.product(k.damping, v) - r
    a = vectors.product(k.per_load, load)
    return State(x, v, a, before, 0.0 * before, r, load, of_method, memory)


class Dynamics(Stepped):
    """Base of integrators for a structure under the external force ``(steps + 1, n_dof)`` N.

    A subclass defines ``advancing`` (the method) and ``prepared`` (its constants and first state).
    """

    takes_massless: ClassVar[bool] = False
    memory: ClassVar[tuple[str, ...]] = ("displacement", "velocity", "experimental_force")
    """Vectors ``(n_dof,)`` that determine the next step, together with the measured force."""

    def __init__(self, params: object, structure: Structure | None, external_force: Array, dt: float) -> None:
        if structure is None:
            raise ConfigError(
                "structure: missing; only the integrators 'prescribed' and 'predefined' do not need a structure"
            )
        self.structure, self.dt = structure, dt
        if not self.takes_massless:
            refuse_massless(structure.mass)
        self.refuse(params, structure, dt)
        self._vectors, self._law = vectors_of(structure.mass), law_of(structure.restoring_force)
        self._external = external_force
        kernel = self.kernel_of(params, structure)
        constants = kernel.constants(params, structure, external_force, dt)
        one = self._vectors is ONE
        excitation = external_force[:, 0].tolist() if one else external_force
        self._follow(kernel, constants, excitation, self._at_rest(constants), one)

    def refuse(self, params: AnyParams, structure: Structure, dt: float) -> None:
        """Raise ConfigError if the method cannot integrate the structure."""

    @staticmethod
    def advancing(vectors: Vectors, law: Law) -> Advance:
        raise TypeError("a subclass of Dynamics must define advancing()")

    @classmethod
    def prepared(cls, params: AnyParams, structure: Structure, dt: float, a: Vector) -> Prepared:
        """Return the constants of ``advance`` and the method's state for the initial acceleration ``a``, m/s^2."""
        return None, ()

    @classmethod
    def kernel_of(cls, params: AnyParams, structure: Structure) -> Kernel:
        """Return the kernel for a structure. The kernel of a sparse structure is not translated to C."""
        vectors, law = vectors_of(structure.mass), law_of(structure.restoring_force)
        exact = by_columns if vectors is LARGE else solved(vectors.product)
        step = dynamics(cls.advancing(vectors, law), law.force, vectors.product, exact)
        return Kernel(cls.constants_of, start, step)

    @classmethod
    def constants_of(cls, params: AnyParams, structure: Structure, external_force: Array, dt: float) -> Any:
        vectors, law = vectors_of(structure.mass), law_of(structure.restoring_force)
        k = Constants(
            per_load_of(vectors, structure.mass), vectors.operand(structure.damping), None, law.constants, None
        )
        nothing = vectors.vector(np.zeros(len(structure.influence)))
        state = standing(vectors, law, k, nothing, nothing, nothing, (), vectors.vector(external_force[0]))
        of_advance, of_method = cls.prepared(params, structure, dt, state.a)
        return k._replace(advance=of_advance, start=state._replace(of_method=of_method))

    def _at_rest(self, constants: Any) -> Array:
        return np.atleast_1d(constants.start.a)

    def renew(self, name: str, change: Change) -> None:
        force = self.structure.restoring_force
        assert isinstance(force, Lawful)
        *rest, memory = self.state
        renewed, memory = force.renewed(name, self.constants.force, memory, change)
        self.state, self.constants = (*rest, memory), self.constants._replace(force=renewed)

    def recalled(self, memory: Array) -> Sequence[object]:
        """Return the kernel state with the vectors ``memory`` (see the class) and the first external force."""
        x, v, before, *of_method = [self._vectors.vector(part) for part in memory.reshape(len(self.memory), -1)]
        return standing(
            self._vectors, self._law, self.constants, x, v, before, tuple(of_method), self.excitation[0]
        )

    def remembered(self, state: Any) -> Array:
        x, v, _, before, _, _, _, of_method, _ = state
        return np.concatenate([np.atleast_1d(part) for part in (x, v, before, *of_method)])

    def linearised(self) -> tuple[StepMatrices, ...]:
        """Return the step matrices of a linear structure, one set for each of ``period`` successive steps.

        Raises ValueError unless the external force is zero and covers at least two periods.
        """
        if len(self._external) <= 2 * self.period or self._external.any():
            raise ValueError(f"external force: must be zero for more than {2 * self.period} steps")
        return tuple(self._step_matrices(self.period + phase) for phase in range(self.period))

    def _step_matrices(self, index: int) -> StepMatrices:
        m, n = len(self.memory) * len(self._first), len(self._first)
        columns = []
        for unit in np.eye(m + n):
            state, force = self.recalled(unit[:m]), self._vectors.vector(unit[m:])
            state, shown = self._step(self.constants, state, force, self.excitation, index)
            columns.append(np.concatenate([self.remembered(state), *map(np.atleast_1d, shown[:3])]))
        both = np.column_stack(columns)
        return StepMatrices(both[:m, :m], both[:m, m:], both[m:, :m], both[m:, m:])


def start(k: Any) -> object:
    return k.start


def per_load_of(vectors: Vectors, mass: Matrix) -> Operand:
    return Columns(Inverse(mass)) if vectors is LARGE else vectors.inverse(mass)


def refuse_massless(mass: Matrix) -> None:
    without = massless(mass)
    if without.any():
        raise ConfigError(
            "integrator: every degree of freedom must have mass, but the structure has no mass at degree of "
            f"freedom {numbered(without)}. Use newmark, which permits zero mass"
        )


def refuse_large(name: str, structure: Structure, reason: str) -> None:
    if is_sparse(structure.mass):
        raise ConfigError(
            f"integrator {name}: cannot integrate a sparse structure of {len(structure.influence)} degrees of "
            f"freedom, because {reason}. Set reduction, or use central_difference, cr, explicit_newmark, "
            "hht_alpha, kr_alpha or newmark"
        )


# Declared specimen of an integrator, and stability checks of the integration with this specimen

GROWTH = 1e-6
"""Largest accepted growth factor per step, minus 1. Rounding errors make an undamped mode grow."""

HALVINGS = 40

CLOSE = 1e-7
"""Relative tolerance of a computed stability limit, which is printed with six digits."""

UNDER_TEST = "stability limit with the part under test"


@params
class Equivalent:
    """Stiffness and damping under test, for structures with one degree of freedom."""

    equivalent_stiffness: float = number(
        "stiffness k_eq under test, for one degree of freedom; 0: the experimental stiffness of the structure",
        "N/m",
        0.0,
        at_least=0.0,
    )
    equivalent_damping: float = number(
        "damping c_eq under test, for one degree of freedom; 0: the experimental damping of the structure",
        "N s/m",
        0.0,
        at_least=0.0,
    )


def damping_and_stiffness(params: Equivalent, structure: Structure) -> tuple[Array, Array]:
    """Return the damping (N s/m) and stiffness (N/m) under test, ``(n_dof, n_dof)``.

    Raises ConfigError if ``params`` sets a value and the structure has several degrees of freedom.
    """
    n_dof = len(structure.influence)
    matrices = []
    for name, unit, modelled in (
        ("equivalent_damping", "N s/m", structure.experimental_damping),
        ("equivalent_stiffness", "N/m", structure.experimental_stiffness),
    ):
        value = getattr(params, name)
        if value and n_dof > 1:
            raise ConfigError(
                f"integrator.{name} = {show(value, unit)}: requires one degree of freedom, but the structure has "
                f"{n_dof}. Use the experimental_... keys of the structure instead"
            )
        matrices.append(np.array([[value]]) if value else modelled)
    return matrices[0], matrices[1]


def refuse_beyond_central_limit(name: str, params: Equivalent, structure: Structure, dt: float) -> None:
    """Raise ConfigError if ``dt`` is not below the stability limit.

    For a spring under test the limit is 2/omega_max, with the largest circular frequency omega_max. Forces of
    dashpots C_e under test are late by half a step, and forces of masses M_e by one step. Then 4 (M - M_e) - 2 dt
    C_e - dt^2 K must be positive definite, with the numerical mass M and the whole stiffness K.
    """
    damping, stiffness = damping_and_stiffness(params, structure)
    mass = structure.mass - structure.experimental_mass
    if is_sparse(mass):
        _refuse_indefinite(name, mass, damping, structure.stiffness + stiffness, dt)
        return
    if np.linalg.eigvalsh(mass)[0] <= 0.0:
        raise ConfigError(
            f"integrator {name}: the mass under test must be less than the mass of the numerical substructure, "
            "because the measured inertia force is late by a step"
        )
    inverse = np.linalg.inv(mass)
    nothing, identity = np.zeros_like(mass), np.eye(len(mass))
    quarter = 0.25 * inverse @ (structure.stiffness + stiffness)
    rates = np.linalg.eigvals(np.block([[nothing, identity], [quarter, 0.5 * inverse @ damping]]))
    highest = float(np.max(rates.real))
    if highest > 0.0 and dt * highest >= 1.0:
        late = damping.any() or structure.experimental_mass.any()
        bound = UNDER_TEST if late else "stability limit 2/omega_max"
        raise _too_long(name, dt, 1.0 / highest, bound)


def _refuse_indefinite(name: str, mass: Matrix, damping: Matrix, stiffness: Matrix, dt: float) -> None:
    def stable(step: float) -> bool:
        return is_definite(4.0 * mass - 2.0 * step * damping - step**2 * stiffness)

    if stable(dt):
        return
    limit = _longest(stable, dt)
    if not stable(limit):
        raise ConfigError(
            f"integrator {name}: every degree of freedom must have more mass in the numerical substructure than "
            "under test"
        )
    raise _too_long(name, dt, limit, UNDER_TEST)


def refuse_growth(name: str, growth: Callable[[float], float], dt: float) -> None:
    """Raise ConfigError if the spectral radius ``growth(dt)`` exceeds 1. The message states a stable step."""

    def stable(step: float) -> bool:
        return growth(step) <= 1.0 + GROWTH

    if not stable(dt):
        raise _too_long(name, dt, _longest(stable, dt), UNDER_TEST)


def _longest(stable: Callable[[float], bool], dt: float) -> float:
    good, bad = 0.5 * dt, dt
    for _ in range(HALVINGS):
        if stable(good):
            break
        good, bad = 0.5 * good, good
    else:
        return good
    while bad - good > CLOSE * good:
        middle = 0.5 * (good + bad)
        good, bad = (middle, bad) if stable(middle) else (good, middle)
    return good


def _too_long(name: str, dt: float, limit: float, bound: str) -> ConfigError:
    return ConfigError(
        f"integrator {name}: the step substeps / servo_rate = {dt:g} s must be < {limit:g} s ({bound})"
    )


# Explicit methods

OfCentral = tuple[Operand, Operand, Operand, float]
OfNewmark = tuple[object, object, float, object, object]
OfCr = tuple[Operand, float]
OfKr = tuple[Operand, Operand, float, float, float, float, float]


class CentralDifference(Dynamics):
    """Central difference method: (M/dt^2 + C/2dt) x_{k+1} = F - r - r_e + 2M/dt^2 x_k - (M/dt^2 - C/2dt) x_{k-1}.

    Forces are at step k. The published velocity is predicted, (x_{k+1} - x_k)/dt + a dt/2. Raises ConfigError
    unless dt is below the stability limit (2/w_max for springs, with the largest circular frequency w_max).
    """

    ABOUT = "Central difference method: explicit, conditionally stable, no numerical damping."

    follows = True
    memory = (*Dynamics.memory, "previous")

    @params
    class Params(Equivalent):
        pass

    def refuse(self, params: Params, structure: Structure, dt: float) -> None:
        refuse_beyond_central_limit("central_difference", params, structure, dt)

    @staticmethod
    def advancing(vectors: Vectors, law: Law) -> Advance:
        product = vectors.product

        def advance(
            k: OfCentral, s: State, exact: Vector, before: Vector, measured: Vector, external: Loads, index: int
        ) -> Moving:
            """Compute the next displacement and predicted velocity, and the exact acceleration at this step."""
            left, now, earlier, dt = k
            x, _, _, _, _, r, _, (previous,), _ = s
            load = external[index] - r - measured
            after = product(left, load + product(now, x) - product(earlier, previous))
            exact = (after - 2.0 * x + previous) / (dt * dt)
            return (x,), after, (after - x) / dt + 0.5 * dt * exact, exact

        return advance

    @classmethod
    def prepared(cls, params: Params, structure: Structure, dt: float, a: Vector) -> Prepared:
        mass, damping, vectors = structure.mass, structure.damping, vectors_of(structure.mass)
        left = vectors.inverse(mass / dt**2 + damping / (2.0 * dt))
        now, earlier = vectors.operand(2.0 * mass / dt**2), vectors.operand(mass / dt**2 - damping / (2.0 * dt))
        return (left, now, earlier, dt), (0.5 * dt**2 * a,)


def predict(
    dt: float, s: State, exact: Vector, before: Vector, measured: Vector, external: Loads, index: int
) -> Moving:
    """Advance the displacement and predicted velocity by an explicit Newmark step."""
    x, v, _, _, _, _, _, of_method, _ = s
    half = 0.5 * dt * exact
    velocity = v + half
    return of_method, x + dt * (velocity + half), velocity + half, exact


def corrected(predicted: Step) -> Step:
    def step(k: OfNewmark, s: object, measured: Vector, external: Loads, index: int) -> tuple[object, Moved]:
        """Perform an explicit Newmark step, and correct the velocity with the predicted acceleration."""
        _, _, dt, _, _ = k
        s, (x, v, a, exact, r) = predicted(k, s, measured, external, index)
        return s, (x, v + 0.5 * dt * a, a, exact, r)

    return step


class ExplicitNewmark(Dynamics):
    """Explicit Newmark method, with the velocity v~ predicted and then corrected.

        x_{k+1} = x_k + dt v_k + dt^2/2 a_k,  v~_{k+1} = v_k + dt/2 a_k
        (M + dt/2 C) a_{k+1} = F - C v~_{k+1} - r - r_e,  v_{k+1} = v~_{k+1} + dt/2 a_{k+1}

    Forces are at step k + 1. ``memory`` contains v~. The published velocity is corrected with the predicted
    acceleration. Raises ConfigError unless dt is below the stability limit (2/w_max for springs, with the largest
    circular frequency w_max).
    """

    ABOUT = (
        "Explicit Newmark method (gamma = 1/2, beta = 0): predictor and corrector of the velocity (Newmark 1959)."
    )
    SOURCES = ("newmark_1959",)

    follows = True
    memory = ("displacement", "predicted_velocity", "experimental_force")

    @params
    class Params(Equivalent):
        pass

    def refuse(self, params: Params, structure: Structure, dt: float) -> None:
        refuse_beyond_central_limit("explicit_newmark", params, structure, dt)

    @staticmethod
    def advancing(vectors: Vectors, law: Law) -> Advance:
        return predict

    @classmethod
    def kernel_of(cls, params: AnyParams, structure: Structure) -> Kernel:
        return Kernel(cls.constants_of, start, corrected(super().kernel_of(params, structure).step))

    @classmethod
    def constants_of(cls, params: AnyParams, structure: Structure, external_force: Array, dt: float) -> Constants:
        k: Constants = super().constants_of(params, structure, external_force, dt)
        vectors, law = vectors_of(structure.mass), law_of(structure.restoring_force)
        heavier = structure.mass + 0.5 * dt * structure.damping
        k = k._replace(per_load=per_load_of(vectors, heavier), advance=dt)
        nothing, a, applied = k.start.x, k.start.a, vectors.vector(external_force[0])
        state = standing(vectors, law, k, nothing, -0.5 * dt * a, nothing, (), applied)
        return k._replace(start=state._replace(a=a))


class ChenRicles(Dynamics):
    """CR algorithm: v_{k+1} = v_k + dt alpha a_k, x_{k+1} = x_k + dt v_k + dt^2 alpha a_k.

    alpha is the matrix [4 M + 2 dt C + dt^2 K]^-1 4 M. If alpha omits the stiffness and damping under test (Eq.
    12a of Chen & Ricles 2010 instead of 12b), only the numerical part is unconditionally stable. The published
    velocity is the backward difference (x_{k+1} - x_k) / dt, half a step late.
    """

    ABOUT = "The explicit, unconditionally stable CR algorithm (Chen & Ricles 2008; 2010, Eqs. 11a-12b)."
    SOURCES = ("chen_ricles_2008",)

    follows = True
    late_velocity = True

    @params
    class Params(Equivalent):
        pass

    @staticmethod
    def advancing(vectors: Vectors, law: Law) -> Advance:
        product = vectors.product

        def advance(
            k: OfCr, s: State, exact: Vector, before: Vector, measured: Vector, external: Loads, index: int
        ) -> Moving:
            """Advance the displacement and velocity by the CR algorithm."""
            alpha, dt = k
            x, v, _, _, _, _, _, of_method, _ = s
            increment = dt * product(alpha, exact)
            return of_method, x + dt * (v + increment), v + increment, exact

        return advance

    @classmethod
    def prepared(cls, params: Params, structure: Structure, dt: float, a: Vector) -> Prepared:
        damping, stiffness = damping_and_stiffness(params, structure)
        damping, stiffness = structure.damping + damping, structure.stiffness + stiffness
        four_mass = 4.0 * (structure.mass + structure.experimental_mass)
        effective_mass = four_mass + 2.0 * dt * damping + dt**2 * stiffness
        return (vectors_of(effective_mass).quotient(effective_mass, four_mass), dt), ()


class KolayRicles(Dynamics):
    """KR-alpha algorithm: v_{k+1} = v_k + dt c_k, x_{k+1} = x_k + dt v_k + dt^2 (1/2 + gamma) c_k.

    c = alpha1 a. The paper's matrices alpha1 and alpha3 have the same modes, so the acceleration a can be
    eliminated:

        c_k = [(1 - alpha_m) M + (1 - alpha_f) R]^-1 M (l - e c_{k-1}) - f c_{k-1}
        f = alpha_f / (1 - alpha_f),  e = alpha_m - f (1 - alpha_m),  R = gamma dt C + beta dt^2 K

    M l is the unbalanced load, weighted by 1 - alpha_f at step k and by alpha_f at step k - 1. ``rho_infinity`` is
    the spectral radius at infinite frequency: 1 gives no dissipation (the CR algorithm), 0 the largest
    dissipation. M and R include the part under test. The published velocity is late by gamma = 1/2 - alpha_m +
    alpha_f steps; in the middle of the step the velocity is (x_{k+1} - x_k) / dt.
    """

    ABOUT = "Explicit KR-alpha algorithm: unconditionally stable, with numerical damping of the high modes."
    SOURCES = ("kolay_ricles_2014",)

    follows = True
    late_velocity = True
    memory = (*Dynamics.memory, "acceleration_before", "change")

    @params
    class Params(Equivalent):
        rho_infinity: float = number(
            "spectral radius at infinite frequency; 1: no numerical damping", "1", 0.75, at_least=0.0, at_most=1.0
        )

    @staticmethod
    def advancing(vectors: Vectors, law: Law) -> Advance:
        product = vectors.product

        def advance(
            k: OfKr, s: State, exact: Vector, before: Vector, measured: Vector, external: Loads, index: int
        ) -> Moving:
            """Advance the displacement and velocity by the KR-alpha algorithm."""
            alpha1, weight, alpha_f, kept, faded, share, dt = k
            x, v, _, _, _, _, _, (earlier, change), _ = s
            if index == 0:
                change = product(alpha1, exact)
            else:
                load = (1.0 - alpha_f) * exact + alpha_f * earlier
                change = product(weight, load - kept * change) - faded * change
            return (exact, change), x + dt * (v + dt * share * change), v + dt * change, exact

        return advance

    @classmethod
    def prepared(cls, params: Params, structure: Structure, dt: float, a: Vector) -> Prepared:
        vectors, rho = vectors_of(structure.mass), params.rho_infinity
        alpha_m, alpha_f = (2.0 * rho - 1.0) / (rho + 1.0), rho / (rho + 1.0)
        gamma = 0.5 - alpha_m + alpha_f
        beta = 0.25 * (0.5 + gamma) ** 2
        damping, stiffness = damping_and_stiffness(params, structure)
        mass = structure.mass + structure.experimental_mass
        rest = gamma * dt * (structure.damping + damping)
        rest = rest + beta * dt**2 * (structure.stiffness + stiffness)
        faded = alpha_f / (1.0 - alpha_f)
        alpha1 = vectors.quotient(mass + rest, mass)
        weight = vectors.quotient((1.0 - alpha_m) * mass + (1.0 - alpha_f) * rest, mass)
        kept = alpha_m - faded * (1.0 - alpha_m)
        return (alpha1, weight, alpha_f, kept, faded, 0.5 + gamma, dt), (0.0 * a, 0.0 * a)
