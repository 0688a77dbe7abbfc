"""The loop of a hybrid test at small motion, in the frequency domain: what can be judged before the test.

    Z(s) = s^2 M + s C + K + T' S(s) H(s / r) T                                 equation of motion, closed loop

M, C, K is the numerical substructure, T takes degrees of freedom to axes, S is the dynamic stiffness of the
specimens and H the way from the target to the displacement that they feel: compensator, transport and actuator.
All of it is a function of the complex frequency s of the structure (rad/s); on a time axis that is r times slower
the rig moves with s / r. Integrator and ramp are taken as exact, measurements as free of error.

Reference: Horiuchi, Nakagawa, Sugano, Konno 1996, Eqs. (1), (5), (6), from one spring to a whole rig.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rths_nodes.analysis.stability.specimen import SmallSpecimen
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.frequency_response import Complex, Frequencies
from rths_nodes.core.samples import Array, Motion
from rths_nodes.core.strict import walk
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario

Response = Callable[[Frequencies], Complex]
"""Angular frequency (rad/s), real or complex, shape ``(n,)`` -> response, ``(n,)`` or ``(n, n_axes, n_axes)``."""
SAME = 0.01
"""Share by which the stiffness under test may differ from what the structure states of it."""


@dataclass(frozen=True, eq=False)
class LinearLoop:
    """A closed loop at small motion, ready to be asked at any complex frequency.

    ``mass``, ``damping``, ``stiffness``: numerical substructure, ``(n_dof, n_dof)``; ``axes_of`` T
    ``(n_axes, n_dof)``; ``forces_of`` T' ``(n_dof, n_axes)``; ``compensator`` for all axes, ``actuators`` one per
    axis, all of them functions of the rig's angular frequency (rad/s). ``dt``: servo period, s.
    """

    mass: Array
    damping: Array
    stiffness: Array
    axes_of: Array
    forces_of: Array
    specimens: tuple[SmallSpecimen, ...]
    compensator: Response
    actuators: tuple[Response, ...]
    dt: float
    transport: float = 0.0
    """Delay of the port, s."""
    time_ratio: float = 1.0
    assumptions: tuple[str, ...] = ()

    @property
    def highest(self) -> float:
        """Angular frequency of the structure at which the servo's samples end, rad/s."""
        return float(self.time_ratio * np.pi / self.dt)

    @cached_property
    def _inverse(self) -> Array:
        return np.asarray(np.linalg.inv(self.mass), float)

    @cached_property
    def whole_stiffness(self) -> Array:
        """Stiffness with the specimens at their place, ``(n_dof, n_dof)`` N/m, memory excluded."""
        tested = np.diag([specimen.stiffness for specimen in self.specimens])
        found: Array = self.stiffness + self.forces_of @ tested @ self.axes_of
        return found

    def rig(self, omega: Frequencies) -> Complex:
        """Displacement of the rig at its own frequencies over the target, ``(n, n_axes, n_axes)``."""
        actuators = np.stack([response(omega) for response in self.actuators], axis=-1)
        late = actuators * np.exp(-1j * omega * self.transport)[:, None]
        command = self.compensator(omega)
        if command.ndim == 1:
            command = command[:, None, None] * np.eye(len(self.actuators))
        return np.asarray(late[:, :, None] * command)

    def specimen_stiffness(self, s: Frequencies) -> Complex:
        """Dynamic stiffness of the specimens at the structure's frequencies, ``(n, n_axes)`` N/m."""
        return np.stack([specimen.at(s / self.time_ratio) for specimen in self.specimens], axis=-1)

    def numerical(self, s: Frequencies) -> Complex:
        """Dynamic stiffness of the numerical substructure, ``(n, n_dof, n_dof)`` N/m."""
        w = s[:, None, None]
        return np.asarray(w**2 * self.mass + w * self.damping + self.stiffness)

    def open_loop(self, s: Frequencies) -> Complex:
        """Force of the specimens per force on the axes, ``(n, n_axes, n_axes)``: unstable around -1."""
        tested = self.specimen_stiffness(s)[:, :, None] * self.rig(-1j * s / self.time_ratio)
        flexibility = self.axes_of @ np.linalg.solve(self.numerical(s), self.forces_of + 0.0 * s[:, None, None])
        return np.asarray(tested @ flexibility)

    def characteristic(self, s: Frequencies, gain: float = 1.0, delay: float = 0.0, ratio: float = 1.0) -> Complex:
        """det(M^-1 Z(s)) ``(n,)``: its zeros are the motions of the closed loop.

        ``gain``: factor on the specimens' forces; ``delay``: further delay of every axis, s; ``ratio``: factor on
        all times of the rig, which is a factor on the natural frequencies of the structure.
        """
        omega = -1j * s * ratio / self.time_ratio
        way = self.rig(omega) * (gain * np.exp(-1j * omega * delay))[:, None, None]
        tested = self.specimen_stiffness(s)[:, :, None] * way
        whole = self.numerical(s) + self.forces_of @ tested @ self.axes_of
        scaled = self._inverse @ whole / self.scale**2
        return np.asarray(np.linalg.det(scaled), complex)

    @cached_property
    def scale(self) -> float:
        """A frequency of the structure, rad/s, that keeps determinants near one."""
        eigenvalues = np.linalg.eigvals(self._inverse @ self.whole_stiffness)
        return float(np.sqrt(np.abs(eigenvalues).max())) or 1.0

    def states(self, rig: NDArray[Any]) -> Complex:
        """Motions (rad/s) of the structure with its specimens behind a constant response ``rig``, ``(n, m)``.

        ``rig`` ``(n, n_axes, n_axes)``: ones on the diagonal give the structure as it is meant to be.
        """
        return np.asarray(np.linalg.eigvals(self._state_matrix(rig)), complex)

    def _state_matrix(self, rig: NDArray[Any]) -> Complex:
        """Of [x, x', inner states of the specimens], with d = rig T x."""
        n, r = len(self.mass), self.time_ratio
        moved = rig @ self.axes_of
        stiffness = np.array([one.stiffness for one in self.specimens])
        damping = np.array([one.damping / r for one in self.specimens])
        held = self.stiffness + self.forces_of @ (stiffness[:, None] * moved)
        slowed = self.damping + self.forces_of @ (damping[:, None] * moved)
        size = 2 * n + sum(len(one.states) for one in self.specimens)
        matrix = np.zeros((len(rig), size, size), complex)
        matrix[:, :n, n : 2 * n] = np.eye(n)
        matrix[:, n : 2 * n, :n] = -self._inverse @ held
        matrix[:, n : 2 * n, n : 2 * n] = -self._inverse @ slowed
        first = 2 * n
        for axis, one in enumerate(self.specimens):
            rows = slice(first, first + len(one.states))
            matrix[:, rows, :n] = r * one.displacement_to_state[:, None] * moved[:, axis, None, :]
            matrix[:, rows, n : 2 * n] = one.velocity_to_state[:, None] * moved[:, axis, None, :]
            matrix[:, rows, rows] = r * one.states
            force = np.outer(self.forces_of[:, axis], one.force_of_state)
            matrix[:, n : 2 * n, rows] = -self._inverse @ force
            first = rows.stop
        return matrix


def linear_loop(scenario: Scenario) -> LinearLoop:
    """The loop of ``scenario`` at small motion. Raises ConfigError for a part whose response is not known."""
    assembly = Assembly(scenario)
    structure = assembly.structure
    if structure is None:
        raise ConfigError("structure: missing; a test with prescribed displacements has no loop to be unstable")
    if getattr(scenario, "rig", None) is not None:
        raise ConfigError("rig: a coupled rig has no response per axis; its stability is not judged here")
    n_axes = len(scenario.axes)
    axes_of, forces_of = _transformation(assembly.setup, len(structure.influence), n_axes)
    compensator = assembly.compensator
    specimens = _specimens(scenario)
    return LinearLoop(
        structure.mass,
        structure.damping,
        structure.stiffness,
        axes_of,
        forces_of,
        specimens,
        _response(compensator, "compensator", "compensator", scenario.compensator),
        _actuators(scenario),
        scenario.dt,
        scenario.port.transport_samples * scenario.dt,
        float(scenario.time_ratio),
        tuple(_assumptions(scenario, structure, compensator, specimens, forces_of, axes_of)),
    )


def _transformation(setup: Any, n_dof: int, n_axes: int) -> tuple[Array, Array]:
    """T and T' of any setup, a unit of velocity and of force at a time: for small motions around the start."""
    nothing = np.zeros(n_dof)
    axes = [setup.axes(Motion(nothing, unit, nothing)).velocity for unit in np.eye(n_dof)]
    forces = [setup.forces(unit, nothing) for unit in np.eye(n_axes)]
    return np.column_stack(axes), np.column_stack(forces)


def _response(part: Any, family: str, path: str, params: Any) -> Response:
    """That of ``part``, after a look at the components within it."""
    names = registry.names(family)
    known = [name for name in names if hasattr(registry.load(family, name), "frequency_response")]
    for place, inner in walk(params, path):
        name = getattr(type(inner), "type_name", "")
        mine = name in names and isinstance(inner, registry.load(family, name).Params)
        if mine and name not in known:
            raise ConfigError(
                f"{place}.type = {name!r}: has no frequency response, so the "
                f"stability cannot be judged before the test; known: {', '.join(known) or 'none'}"
            )
    found: Response = part.frequency_response
    return found


def _actuators(scenario: Scenario) -> tuple[Response, ...]:
    """The actuators' responses; a specimen at small motion does not change them."""
    found = []
    for name in scenario.axes:
        specimen = registry.build("specimen", scenario.model_of(name, "specimen"))
        params = scenario.model_of(name, "actuator")
        actuator = registry.build("actuator", params, scenario.dt, specimen)
        found.append(_response(actuator, "actuator", f"axes.{name}.actuator", params))
    return tuple(found)


def _specimens(scenario: Scenario) -> tuple[SmallSpecimen, ...]:
    found = []
    for name in scenario.axes:
        params = scenario.model_of(name, "specimen")
        try:
            found.append(SmallSpecimen.of(registry.build("specimen", params)))
        except ValueError as error:
            raise ConfigError(
                f"axes.{name}.specimen.type = {type(params).type_name!r}: is not linear at small motion "
                f"({error}), so its stability cannot be judged before the test"
            ) from None
    return tuple(found)


def _assumptions(
    scenario: Scenario,
    structure: Any,
    compensator: Any,
    specimens: Sequence[SmallSpecimen],
    forces_of: Array,
    axes_of: Array,
) -> list[str]:
    """What the analysis takes for granted here, in words."""
    words = ["small motion: specimens, numerical substructure and setup with their slopes at rest"]
    words.append("integrator and ramp exact, sensors without error: limits of delay are those of continuous time")
    if compensator.state_names:
        name = type(scenario.compensator).type_name
        words.append(f"{name}: judged with its initial parameters, what it learns or feeds back left out")
    tested = forces_of @ np.diag([specimen.stiffness for specimen in specimens]) @ axes_of
    stated = structure.experimental_stiffness
    if stated.any() and not np.allclose(tested, stated, rtol=SAME, atol=SAME * np.abs(stated).max()):
        words.append("the specimens' stiffness counts; the structure's experimental stiffness is another one")
    if structure.experimental_mass.any():
        words.append("the mass under test is left out: the simulated specimens have no inertia")
    return words
