"""Numerical substructures: mass, damping, stiffness, influence vector and restoring force.

The equation of motion is M a + C v + r(x) + r_e = -M 1 a_g (Chen & Ricles 2010, Eq. 1a), x relative to the ground.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rths_nodes import registry
from rths_nodes.hysteresis import Linear
from rths_nodes.params import component, number, params

TABLE = {"sdof": "rths_nodes.structures:Sdof"}


class Sdof:
    """Single degree of freedom: mass, damping c = 2 zeta m w and a restoring force, linear if not given."""

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
        self.influence = np.ones(1)
        self.elastic_energy: float = self.restoring_force.elastic_energy
