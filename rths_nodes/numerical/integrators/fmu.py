# SPDX-License-Identifier: Apache-2.0
"""A numerical substructure as a functional mock-up unit (FMU): a model of another program, in its own process.

At step i the FMU receives the measured force of step i and, optionally, the ground acceleration. The FMU advances
by one step and returns its displacements at step i + 1. The measured force f is a restoring force:

    M a + C v + r(x) + f = -M 1 a_g

Functional Mock-up Interface Specification, Modelica Association: 2.0.5 (2024), 3.0.2 (2024).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.child_process import LOOK_S
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, IntegratorError, within
from rths_nodes.core.fmu import FmuParams, FmuProcess, Row
from rths_nodes.core.parameters import TestContext, number, params, section, sections, text
from rths_nodes.core.protocols import Integrator, Structure
from rths_nodes.core.samples import Array
from rths_nodes.numerical.integrators.rehearsal import rehearse

BRIEF_S = 50e-6
"""Duration of the first wait for the outputs, s. A small FMU responds within this time."""

FARTHEST = 1e6
"""Largest plausible response, m, m/s or m/s^2. Differences of larger values could overflow."""

AT_REST = 1e-12
"""Largest displacement at the start that is treated as zero, m."""

QUANTITIES = ("displacement", "velocity", "acceleration")
TIMES = {"start": (1.0, 0.0), "middle": (0.5, 0.5), "end": (0.0, 1.0)}
"""Instant within a step -> weights of ground accelerations at the start and end of the step."""


@params
class Seen:
    displacement: str = text("output of the FMU for the displacement")
    velocity: str | None = text(
        "output of the FMU for the velocity; default: derived from the displacements",
        None,
    )
    acceleration: str | None = text(
        "output of the FMU for the acceleration; default: derived from the displacements", None
    )


@params
class Driven(Seen):
    force: str = text("input of the FMU for the measured force, which is a restoring force")


@params
class Ground:
    acceleration: str = text("input of the FMU for the ground acceleration")
    taken_at: str = text("instant of the step at which the ground acceleration is taken", "start", tuple(TIMES))


class Fmu(Integrator):
    """Runs an FMU in its own process. Each step of the integrator is one co-simulation step.

    Missing velocities and accelerations are derived from the parabola through the last three displacements.
    External and restoring forces are unknown and remain zero.
    """

    external = True
    SOURCES = ("blochwitz_2012",)

    @params
    class Params(FmuParams):
        observes: ClassVar[bool] = True
        interface: dict[str, Driven] = sections(Driven, "degrees of freedom by name, in the order of the setup")
        observed: dict[str, Seen] = sections(
            Seen, "observed degrees of freedom by name, in the order of the scenario", optional=True
        )
        ground: Ground | None = section(
            Ground, "ground motion as an input of the FMU; required if the scenario has a ground_motion", None
        )
        force_age: float = number(
            "mean delay of the force in the FMU, in steps; 0.5: held over the step, 0: used only at the start "
            "of the step",
            "1",
            0.5,
            at_least=0.0,
            at_most=1.0,
        )

        def rows(self) -> Iterator[Row]:
            dofs: dict[str, Seen] = {f"interface.{name}": dof for name, dof in self.interface.items()}
            dofs |= {f"observed.{name}": dof for name, dof in self.observed.items()}
            for path, dof in dofs.items():
                for quantity in QUANTITIES:
                    if (name := getattr(dof, quantity)) is not None:
                        yield Row(f"{path}.{quantity}", name, "output", quantity)
                if isinstance(dof, Driven):
                    yield Row(f"{path}.force", dof.force, "input", "force")
            if self.ground is not None:
                yield Row("ground.acceleration", self.ground.acceleration, "input", "acceleration")

        def fits(self, test: TestContext) -> None:
            if test.has_structure:
                raise ConfigError(
                    "type = 'fmu': structure must be left out, because the FMU contains the structure"
                )
            for key, matrix, wanted in (
                ("interface", self.interface, test.axes),
                ("observed", self.observed, test.observed),
            ):
                if tuple(matrix) != wanted:
                    raise ConfigError(
                        f"{key}: the names are {', '.join(matrix) or 'none'}, but must be "
                        f"{', '.join(wanted) or 'none'}, in the order of the test"
                    )
            if test.has_ground_motion and self.ground is None:
                raise ConfigError(
                    "ground: missing. Name the input of the FMU for the ground acceleration, or remove "
                    "ground_motion from the scenario"
                )
            if self.ground is not None and not test.has_ground_motion:
                raise ConfigError("ground: the scenario has no ground_motion. Add ground_motion, or remove ground")
            self.check(test)

        def step_in(self, test: TestContext) -> float:
            return test.step

        def cautions(self, test: TestContext) -> list[str]:
            cautions = super().cautions(test)
            if not self.force_age or test.force_lead is not None:
                return cautions
            late = 1e3 * self.force_age * test.step
            return [
                *cautions,
                f"force_age = {self.force_age:g}: the FMU uses the measured force {late:.3g} ms late on average. "
                "This reduces the damping by the stiffness under test times the delay; compensate the delay "
                "with force_lead: 0.0, or use a shorter step",
            ]

    def __init__(self, params: Params, structure: Structure | None, external_force: Array, dt: float) -> None:
        self._steps, self._n = len(external_force) - 1, external_force.shape[1]
        self._params, self._dt = params, dt
        self.force_age = params.force_age
        self._ground = np.zeros(self._steps + 1)
        self._inputs = np.zeros(len(params.interface) + (params.ground is not None))
        self._process = FmuProcess(params, dt)
        dofs = (*params.interface.values(), *params.observed.values())
        self._columns = _columns(self._process.outputs, dofs)
        self._at_start = False
        self.reset()

    def excite(self, ground_acceleration: Array) -> None:
        if (ground := self._params.ground) is not None:
            of_start, of_end = TIMES[ground.taken_at]
            following = np.append(ground_acceleration[1:], ground_acceleration[-1])
            self._ground = of_start * ground_acceleration + of_end * following

    def reset(self) -> None:
        if self._process.is_open and not self._process.moved:
            return
        self.displacement, self.velocity, self.acceleration = np.zeros((3, self._n))
        self.exact_acceleration, self.restoring_force, self._before = np.zeros((3, self._n))
        self._index = 0
        if self._process.is_open:
            self._process.set_back()
            self._at_start = False

    def open(self) -> None:
        with within("integrator"):
            self._process.open()
        self._at_start = False

    def missing(self) -> str:
        """Return a description of the awaited outputs, or an empty string once the initial outputs have arrived.

        Raises ConfigError if the model fails.
        """
        if self._at_start:
            return ""
        try:
            answer = self._process.answer()
            if answer is None:
                return f"the initial outputs of {self._process.name}"
            self._take(answer)
            if (x := float(np.abs(self.displacement).max())) > AT_REST:
                raise RuntimeError(f"the initial displacement is {x:g} m, but must be 0, the position of the rig")
        except (RuntimeError, IntegratorError) as error:
            self.close()
            raise ConfigError(f"integrator.file = {self._process.name!r}: {error}") from error
        self._before, self._at_start = self.displacement.copy(), True
        return ""

    def _take(self, outputs: Array) -> None:
        values = outputs.tolist()
        if not -FARTHEST <= min(values) <= max(values) <= FARTHEST:
            worst = max(values, key=abs)
            raise RuntimeError(
                f"an output is {worst:g} (m, m/s or m/s^2), but must be between -{FARTHEST:g} and {FARTHEST:g}"
            )
        dt, x = self._dt, outputs[self._columns[0]]
        curvature = (x - 2.0 * self.displacement + self._before) * (1.0 / dt**2)
        otherwise = (x - self.displacement) / dt + 0.5 * dt * curvature, curvature
        if not self._at_start:
            otherwise = np.zeros_like(x), np.zeros_like(x)
        self._before, self.displacement = self.displacement, x
        self.velocity, self.acceleration = (
            np.where(columns < 0, derived, outputs[columns])
            for columns, derived in zip(self._columns[1:], otherwise, strict=True)
        )
        self.exact_acceleration = otherwise[1]

    def begin(self, experimental_force: Array) -> None:
        self._process.share_scheduling()
        inputs, n = self._inputs, len(self._params.interface)
        inputs[:n] = experimental_force[:n]
        inputs[n:] = self._ground[self._index]  # no effect without a ground input
        try:
            self._process.begin(self._index, inputs)
        except RuntimeError as error:
            raise IntegratorError(f"{self._process.name}: {error}") from error
        self._answer: Array | None = None
        self._brief = BRIEF_S

    def ready(self) -> bool:
        brief, self._brief = self._brief, 0.0
        return self._answered(brief)

    def _answered(self, wait: float) -> bool:
        if self._answer is None:
            try:
                self._answer = self._process.answer(wait)
            except RuntimeError as error:
                raise IntegratorError(f"{self._process.name}: {error} ({self._where()})") from error
        return self._answer is not None

    def _where(self) -> str:
        return f"in step {self._index + 1} of {self._steps}, at {self._index * self._dt:g} s"

    def step(self, experimental_force: Array) -> None:
        while not self._answered(LOOK_S):
            pass
        assert self._answer is not None
        try:
            self._take(self._answer)
        except RuntimeError as error:
            raise IntegratorError(f"{self._process.name}: {error} ({self._where()})") from error
        self._index += 1

    def rehearsed(self) -> Array:
        force = np.zeros(self._n)
        return rehearse(self, self._steps, lambda: force)

    def numbers(self) -> Data:
        return {"fmu_steps": self._index, "fmu_steps_unchanged": self._process.unchanged}

    def close(self) -> None:
        self._process.close()


def _columns(names: list[str], dofs: Sequence[Seen]) -> list[NDArray[np.intp]]:
    """Return the index in ``names`` of each displacement, velocity and acceleration; -1 for a missing output."""
    variables = [[getattr(dof, quantity) for dof in dofs] for quantity in QUANTITIES]
    return [np.array([-1 if name is None else names.index(name) for name in row]) for row in variables]
