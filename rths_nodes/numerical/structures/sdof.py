# SPDX-License-Identifier: Apache-2.0
"""Single degree of freedom."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.declarations import OfParams
from rths_nodes.core.parameters import completed, component, number, params
from rths_nodes.numerical.structures.restoring_forces.linear import Linear

NAME = "x"


class Sdof:
    """Single degree of freedom: mass, damping c = 2 zeta m w, and a restoring force (linear by default).

    A restoring force without a stiffness uses the structure's stiffness, which excludes the specimen. For a mass
    whose whole spring is under test, use a ``shear_frame`` of one story.
    """

    @params
    class Params:
        mass: float = number("mass m of the numerical part, without the specimen", "kg", more_than=0.0)
        frequency: float = number("natural frequency without the specimen", "Hz", more_than=0.0)
        damping_ratio: float = number("inherent viscous damping zeta", default=0.02, at_least=0.0, less_than=1.0)
        restoring_force: OfParams | None = component(
            "restoring_force", "restoring force of the numerical substructure; default: linear", None
        )

        @property
        def stiffness(self) -> float:
            omega = 2.0 * math.pi * self.frequency
            return self.mass * omega**2

        def laws(self) -> dict[str, OfParams]:
            force = self.restoring_force
            return {} if force is None else {NAME: completed(force, "stiffness", self.stiffness)}

    names: tuple[str, ...] = (NAME,)

    def __init__(self, params: Params) -> None:
        omega = 2.0 * math.pi * params.frequency
        if params.restoring_force is None:
            self.restoring_force: Any = Linear(Linear.Params(stiffness=params.stiffness), 1)
        else:
            self.restoring_force = registry.build("restoring_force", params.laws()[NAME], 1)
        self.mass = np.array([[params.mass]])
        self.damping = np.array([[2.0 * params.damping_ratio * params.mass * omega]])
        self.stiffness = np.array([[self.restoring_force.initial_stiffness]])
        self.experimental_mass = self.experimental_damping = self.experimental_stiffness = np.zeros((1, 1))
        self.influence = np.ones(1)
        self.ground_load = np.array([params.mass])
        self.elastic_energy: float = self.restoring_force.elastic_energy
