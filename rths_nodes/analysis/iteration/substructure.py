# SPDX-License-Identifier: Apache-2.0
"""The numerical substructure under a whole history of force, and the structure in one piece.

By exact steps of a system of first order under loads that run straight between samples (``reference/linear.py``),
at the servo rate. Displacements are the axes'; forces act on the structure by virtual work.
"""

from __future__ import annotations

import numpy as np

from rths_nodes.analysis.iteration.specimen import Specimens
from rths_nodes.analysis.reference.linear import recursion
from rths_nodes.analysis.share_of_structure import MODEL, of_axes, partition
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.core.validation import walk
from rths_nodes.loop.scenario.assembly import Assembly, transformation
from rths_nodes.loop.scenario.overrides import replace
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.discretisation import transition
from rths_nodes.mechanics.massless import first_order
from rths_nodes.numerical.structures.linear_force import is_linear

LINEAR = ("kelvin_voigt", "with_mass", "parallel", "maxwell_damper")
"""Specimens with forces proportional to their motion, if their inner specimens are."""
STRAIGHT = 1e-3
"""Largest deviation of the setup from its linear transformation, relative to the motion."""


class Response:
    """A linear structure at the servo rate: motion of the axes under forces on its degrees of freedom."""

    def __init__(self, matrices: tuple[Array, Array, Array], axes: Array, dt: float) -> None:
        """``matrices``: mass, damping, stiffness ``(n_dof, n_dof)``; ``axes`` ``(n_axes, n_dof)``; ``dt`` s."""
        self._system, self._inputs, rows = first_order(*matrices)
        self._rows = axes @ rows
        self._steps = transition(self._system, self._inputs, dt)

    def motion(self, force: Array) -> Array:
        """Displacement, velocity, acceleration ``(samples, 3, n_axes)`` under ``force`` ``(samples, n_dof)`` N."""
        phi, before, now = self._steps
        states = recursion(phi, force[:-1] @ before.T + force[1:] @ now.T)
        rates = states @ self._system.T + force @ self._inputs.T
        over_rates = self._rows @ self._system
        return np.stack([states @ self._rows.T, rates @ self._rows.T, rates @ over_rates.T], axis=1)


class Substructure:
    """Numerical substructure of a scenario with a step in each sample, for whole histories.

    Raises ConfigError for a nonlinear or too large structure, for a nonlinear setup in the expected motion, and
    for an unknown part in the laboratory.
    """

    def __init__(self, scenario: Scenario) -> None:
        assembly = Assembly(scenario)
        structure = assembly.structure
        if structure is None or not is_linear(structure):
            raise ConfigError(
                "structure: must be there and linear for an iteration of whole histories: its response to the "
                "force of a run is computed by exact steps"
            )
        found = partition(assembly, _stiffnesses(scenario))
        if not found.source:
            raise ConfigError(
                "structure: what of it stands in the laboratory is not stated (experimental_stiffness ...), so "
                "that no first history can be predicted"
            )
        self.dt = scenario.dt
        axes, self._spread = transformation(assembly)
        self._ground, own = assembly.external_force, found.numerical
        self.numerical = Response(own, axes, scenario.dt)
        mass, damping, stiffness = (each + lab for each, lab in zip(own, found.experimental, strict=True))
        self.whole = Response((mass, damping, stiffness), axes, scenario.dt)
        self._own, self._transformation = own, axes
        self.predicted = self.whole.motion(assembly.force_on_whole)
        """Motion of the axes in the declared structure in one piece: ``(samples, 3, n_axes)``."""
        self.reference = self._reference(assembly)
        """Its displacement ``(samples, n_axes)`` with the simulated specimens; None if these are not linear."""
        _check_straight(assembly, self.predicted[:, 0])

    def _reference(self, assembly: Assembly) -> Array | None:
        scenario = assembly.scenario
        if scenario.rig is not None or not all(_linear(axis.specimen) for axis in scenario.axes.values()):
            return None
        (mass, damping, stiffness), source = of_axes(scenario, {})
        if source != MODEL:
            return None
        response = self.with_specimen(np.diag(mass), np.diag(damping), np.diag(stiffness))
        return np.asarray(response.motion(assembly.force_on_whole)[:, 0])

    def under(self, force: Array) -> Array:
        """Motion ``(samples, 3, n_axes)`` under ground motion less measured ``force`` ``(samples, n_axes)`` N."""
        return self.numerical.motion(self._ground - force @ self._spread.T)

    def with_specimen(self, mass: Array, damping: Array, stiffness: Array) -> Response:
        """Return the structure with specimens of these ``(n_axes,)`` on its axes."""
        tested = (self._spread @ np.diag(values) @ self._transformation for values in (mass, damping, stiffness))
        m, c, k = (own + lab for own, lab in zip(self._own, tested, strict=True))
        return Response((m, c, k), self._transformation, self.dt)

    def distance(self, residual: Array, specimens: Specimens) -> Array:
        """Return the distance ``(samples, n_axes)`` m to the agreement of both substructures: (1 + G E)^-1 r.

        ``residual`` ``(samples, 3, n_axes)``; ``specimens`` E as of ``specimen.py``.
        """
        return np.asarray((residual - self.pushed(residual, specimens))[:, 0])

    def pushed(self, residual: Array, specimens: Specimens) -> Array:
        """Return the response ``(samples, 3, n_axes)`` of the structure with specimens E to the force E r."""
        return self.answer(self.with_specimen(*specimens), specimens.force(residual))

    def answer(self, response: Response, force: Array) -> Array:
        """Motion ``(samples, 3, n_axes)`` of a ``response`` whose axes are pushed by ``force`` ``(samples,
        n_axes)`` N."""
        return response.motion(force @ self._spread.T)


def _linear(specimen: object) -> bool:
    inner = [value for _, value in walk(specimen)] if specimen is not None else [None]
    return all(each is not None and type(each).type_name in LINEAR for each in inner)


def every_sample(scenario: Scenario) -> Scenario:
    return replace(scenario, [(["substeps"], 1), (["soft_start"], None), (["semi_active"], None)])


def _stiffnesses(scenario: Scenario) -> dict[str, float]:
    """Return the stiffness (N/m) expected by a rig file, by axis."""
    return {
        name: axis.rig_axis.stiffness
        for name, axis in scenario.axes.items()
        if axis.rig_axis is not None and axis.rig_axis.stiffness is not None
    }


def _check_straight(assembly: Assembly, moved: Array) -> None:
    """Refuse a setup without proportional axes at the largest motion ``(samples, n_axes)`` m."""
    peak = moved[np.argmax(np.abs(moved).max(axis=1))]
    pose = assembly.setup.degrees_of_freedom(peak)
    half = assembly.setup.histories(np.array([0.5 * pose, pose]))
    if np.abs(2.0 * half[0] - half[1]).max() > STRAIGHT * np.abs(half[1]).max():
        raise ConfigError(
            "setup: its axes do not move in proportion to the structure in the motion expected: an iteration of "
            "whole histories takes a linear one"
        )
