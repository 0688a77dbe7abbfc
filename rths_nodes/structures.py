"""Numerical substructures: mass, damping, stiffness, influence vector and restoring force.

The equation of motion is M a + C v + r(x) + r_e = -M 1 a_g (Chen & Ricles 2010, Eq. 1a), x relative to the ground.
Where a structure states which part of it stands in the laboratory, that part is taken out: whole = numerical +
experimental, and the M of the load is that of the whole (Phillips & Spencer 2012, Eq. 1.1).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rths_nodes import registry
from rths_nodes.components import Array
from rths_nodes.hysteresis import Linear
from rths_nodes.params import ConfigError, component, matrix, number, params, show, vector

TABLE = {
    "sdof": "rths_nodes.structures:Sdof",
    "shear_frame": "rths_nodes.structures:ShearFrame",
    "matrices": "rths_nodes.structures:Matrices",
}

DAMPING = {"type": "modal", "ratios": [0.02]}
"""Damping of a structure that states none: that of ``sdof``."""

ROUNDING = 1e-9
"""Relative size below which a negative eigenvalue of a matrix is rounding."""


class LinearRestoringForce:
    """K x with a full matrix ``(n_dof, n_dof)`` N/m."""

    def __init__(self, stiffness: Array) -> None:
        self._stiffness = stiffness

    def force(self, displacement: Array) -> Array:
        """Force ``(n_dof,)`` N at ``displacement`` (m)."""
        force: Array = self._stiffness.dot(displacement)
        return force

    def reset(self) -> None:
        """Nothing to forget."""


def is_linear(structure: Any) -> bool:
    """True when the restoring force of ``structure`` is its stiffness times the displacement."""
    return isinstance(structure.restoring_force, (Linear, LinearRestoringForce))


def whole(structure: Any) -> tuple[Array, Array, Array]:
    """Mass (kg), damping (N s/m) and stiffness (N/m) of both substructures together, ``(n_dof, n_dof)`` each."""
    return (
        structure.mass + structure.experimental_mass,
        structure.damping + structure.experimental_damping,
        structure.stiffness + structure.experimental_stiffness,
    )


class Sdof:
    """Single degree of freedom: mass, damping c = 2 zeta m w and a restoring force, linear if not given.

    The specimen is not part of it. A mass whose whole spring is under test is a ``shear_frame`` of one story.
    """

    @params
    class Params:
        mass: float = number("mass m", "kg", more_than=0.0)
        frequency: float = number("natural frequency without the specimen", "Hz", more_than=0.0)
        damping_ratio: float = number("inherent viscous damping zeta", default=0.02, at_least=0.0, less_than=1.0)
        restoring_force: Any = component(
            "restoring_force", "of the numerical substructure; linear if left out", None
        )

    names: tuple[str, ...] = ("x",)

    def __init__(self, params: Params) -> None:
        omega = 2.0 * math.pi * params.frequency
        force = params.restoring_force
        if force is None:
            self.restoring_force: Any = Linear(Linear.Params(stiffness=params.mass * omega**2), 1)
        else:
            self.restoring_force = registry.class_of("restoring_force", force)(force, 1)
        self.mass = np.array([[params.mass]])
        self.damping = np.array([[2.0 * params.damping_ratio * params.mass * omega]])
        self.stiffness = np.array([[self.restoring_force.initial_stiffness]])
        self.experimental_mass = self.experimental_damping = self.experimental_stiffness = np.zeros((1, 1))
        self.influence = np.ones(1)
        self.elastic_energy: float = self.restoring_force.elastic_energy


class Partition:
    """A linear structure of which a part stands in the laboratory: the numerical part is the difference."""

    elastic_energy = 0.0

    def __init__(self, damping: Any, given: tuple[Array, Array], tested: tuple[Array, Array, Array]) -> None:
        """``given`` is mass and stiffness of the whole, ``tested`` mass, damping and stiffness under test.

        The damping model is formed from the whole. Raises ConfigError when the rest is no structure.
        """
        mass, stiffness = given
        self.experimental_mass, self.experimental_damping, self.experimental_stiffness = tested
        self.mass = self._rest("mass", mass, tested[0], positive=True)
        self.stiffness = self._rest("stiffness", stiffness, tested[2])
        model = registry.class_of("damping", damping)(damping)
        self.damping = self._rest("damping", model.matrix(mass, stiffness), tested[1])
        self.restoring_force = LinearRestoringForce(self.stiffness)

    @staticmethod
    def _rest(name: str, given: Array, tested: Array, positive: bool = False) -> Array:
        rest = given - tested
        rounding = ROUNDING * float(np.abs(given).max())
        for part, kept, above in (
            ("under test", tested, False),
            ("numerical, whole - experimental,", rest, positive),
        ):
            lowest = float(np.linalg.eigvalsh(kept)[0])
            if lowest < -rounding or (above and lowest <= rounding):
                sign = ">" if above else ">="
                raise ConfigError(f"structure: its {name} {part} has the eigenvalue {lowest:g}: must be {sign} 0")
        return rest


def _zeros(n: int, values: tuple[float, ...] | None) -> Array:
    return np.zeros(n) if values is None else np.array(values)


class ShearFrame(Partition):
    """Masses on floors, springs between them: x_i is the displacement of floor i relative to the ground.

    The drift of story i is x_i - x_{i-1}. What is named ``experimental_`` is part of the frame, but stands in the
    laboratory: it is taken out of the numerical substructure. Leave out what is only added by the specimen.
    """

    @params
    class Params:
        masses: tuple[float, ...] = vector("mass of each floor, lowest first", "kg", more_than=0.0)
        stiffnesses: tuple[float, ...] = vector("shear stiffness of each story", "N/m", more_than=0.0)
        damping: Any = component("damping", "of the whole frame", DAMPING)
        experimental_masses: tuple[float, ...] | None = vector(
            "of these, what stands in the laboratory on each floor", "kg", None, at_least=0.0
        )
        experimental_stiffnesses: tuple[float, ...] | None = vector(
            "of these, what stands in the laboratory in each story", "N/m", None, at_least=0.0
        )
        experimental_dampings: tuple[float, ...] | None = vector(
            "dashpots in the laboratory in each story, as part of the damping", "N s/m", None, at_least=0.0
        )

        def validate(self, path: str) -> None:
            """Refuses lists of different length, and a laboratory that holds more than the whole."""
            n = len(self.masses)
            for name in (
                "stiffnesses",
                "experimental_masses",
                "experimental_stiffnesses",
                "experimental_dampings",
            ):
                values = getattr(self, name)
                if values is not None and len(values) != n:
                    raise ConfigError(
                        f"{path}.{name} = {show(values)}: must be {n} numbers, as many as there are masses"
                    )
            for name, unit in (("masses", "kg"), ("stiffnesses", "N/m")):
                parts = getattr(self, f"experimental_{name}") or ()
                for index, (part, all_of_it) in enumerate(zip(parts, getattr(self, name), strict=False)):
                    if part > all_of_it:
                        raise ConfigError(
                            f"{path}.experimental_{name}[{index}] = {show(part, unit)}: must be <= "
                            f"{path}.{name}[{index}] = {show(all_of_it, unit)}"
                        )

    def __init__(self, params: Params) -> None:
        n = len(params.masses)
        self.names = tuple(f"floor_{index + 1}" for index in range(n))
        self.influence = np.ones(n)
        drifts = np.eye(n) - np.eye(n, k=-1)

        def stories(values: tuple[float, ...] | None) -> Array:
            matrix: Array = drifts.T @ np.diag(_zeros(n, values)) @ drifts
            return matrix

        super().__init__(
            params.damping,
            (np.diag(params.masses), stories(params.stiffnesses)),
            (
                np.diag(_zeros(n, params.experimental_masses)),
                stories(params.experimental_dampings),
                stories(params.experimental_stiffnesses),
            ),
        )


class Matrices(Partition):
    """A linear structure given by the matrices of the whole, and of the part that stands in the laboratory."""

    @params
    class Params:
        mass: tuple[tuple[float, ...], ...] = matrix("of the whole structure, n rows of n", "kg")
        stiffness: tuple[tuple[float, ...], ...] = matrix("of the whole structure", "N/m")
        damping: Any = component("damping", "of the whole structure", DAMPING)
        experimental_mass: tuple[tuple[float, ...], ...] | None = matrix(
            "of this, what stands in the laboratory", "kg", None
        )
        experimental_stiffness: tuple[tuple[float, ...], ...] | None = matrix(
            "of this, what stands in the laboratory", "N/m", None
        )
        experimental_damping: tuple[tuple[float, ...], ...] | None = matrix(
            "of the damping, what stands in the laboratory", "N s/m", None
        )
        influence: tuple[float, ...] | None = vector(
            "displacement of each degree of freedom per unit of the ground's; ones if left out", "1", None
        )

        def validate(self, path: str) -> None:
            """Refuses matrices of different size or without symmetry."""
            n = len(self.mass)
            for name in (
                "mass",
                "stiffness",
                "experimental_mass",
                "experimental_stiffness",
                "experimental_damping",
            ):
                rows = getattr(self, name)
                if rows is None:
                    continue
                if len(rows) != n or len(rows[0]) != n or not np.allclose(rows, np.transpose(rows)):
                    raise ConfigError(
                        f"{path}.{name}: must be symmetric, {n} rows of {n} numbers, as many as mass"
                    )
            if self.influence is not None and len(self.influence) != n:
                raise ConfigError(f"{path}.influence = {show(self.influence)}: must be {n} numbers")

    def __init__(self, params: Params) -> None:
        n = len(params.mass)
        self.names = tuple(f"x_{index + 1}" for index in range(n))
        self.influence = np.ones(n) if params.influence is None else np.array(params.influence)

        def square(rows: tuple[tuple[float, ...], ...] | None) -> Array:
            return np.zeros((n, n)) if rows is None else np.array(rows)

        super().__init__(
            params.damping,
            (square(params.mass), square(params.stiffness)),
            (
                square(params.experimental_mass),
                square(params.experimental_damping),
                square(params.experimental_stiffness),
            ),
        )
