# SPDX-License-Identifier: Apache-2.0
"""Rehearsal with an external specimen: actuators of this package move an FMU (FMI) or an OpenSees model.

Another process computes the forces of all axes. Every ``every`` samples, the specimen follows the displacement and
velocity of the actuators; its acceleration is the difference quotient of the velocity. Between these samples, a
known stiffness K_0 extrapolates the force:

    F = F_m + K_0 (x - x_m)

F_m and x_m are the force and the displacement when the specimen last moved. K_0 is a parameter for an FMU, and the
initial stiffness of an OpenSees model. An actuator whose motion depends on its specimen uses this force within a
sample. For a linear static specimen, the force is exact at any step length. A yielding specimen has the stiffness
K_0 until the end of a step.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError, show, within
from rths_nodes.core.fmu import FmuParams, FmuProcess, Row
from rths_nodes.core.opensees import ModelProcess, check_count, check_files, check_rows, commands_of, whole_rows
from rths_nodes.core.parameters import (
    OfParams,
    TestContext,
    components,
    flag,
    integer,
    matrix,
    number,
    params,
    path,
    section,
    sections,
    text,
    texts,
)
from rths_nodes.core.samples import Array
from rths_nodes.core.simulators import Rig, Specimen

NOUNS = ("displacement", "velocity", "acceleration")
WORK = Path(__file__).with_name("opensees_specimen.py")
IGNORED = "PlainHandler::handle()"
"""Part of the message that OpenSees prints when it ignores a constraint between nodes."""

log = logging.getLogger(__name__)


class Followed(Rig):
    """Base of rigs whose specimen follows the actuators. ``_stiffness`` ``(n_axes, n_axes)`` is K_0, N/m."""

    external = True

    def _hold(
        self, process: FmuProcess | ModelProcess, actuators: Mapping[str, object], every: int, dt: float
    ) -> None:
        self._process, self.name = process, process.name
        self._n = n = len(actuators)
        self._every, self._step = every, every * dt
        self._felt = [_Felt() for _ in range(n)]
        self._actuators = [
            registry.build("actuator", actuator, dt, felt)
            for actuator, felt in zip(actuators.values(), self._felt, strict=True)
        ]
        self._stiffness = np.zeros((n, n))
        self.reset()

    def reset(self) -> None:
        self.failure = ""
        self.displacement, self.velocity, self.force = np.zeros((3, self._n))
        self._before: tuple[Array, Array, Array] = (self.displacement, self.velocity, self.force)
        self._samples = 0
        self._feel()
        for actuator in self._actuators:
            actuator.reset()

    def step(self, command: Array, auxiliary: Array) -> None:
        self._process.share_scheduling()
        for actuator, value in zip(self._actuators, command.tolist(), strict=True):
            actuator.step(value)
        self.displacement = np.array([actuator.displacement for actuator in self._actuators])
        self.velocity = np.array([actuator.velocity for actuator in self._actuators])
        self._samples += 1
        if not self.failure:
            self._follow()

    def _follow(self) -> None:
        x, v = self.displacement, self.velocity
        before_x, before_v, before_force = self._before
        if self._samples % self._every:
            self.force = before_force + self._stiffness @ (x - before_x)
        else:
            try:
                self.force = self._ask(x, v, (v - before_v) / self._step)
            except RuntimeError as error:
                self.failure = f"{self.name}: {error}"
                return
            self._before = x, v, self.force
        self._feel()

    def _feel(self) -> None:
        of_axis = zip(self._felt, self.displacement.tolist(), self.force.tolist(), strict=True)
        for index, (felt, x, force) in enumerate(of_axis):
            felt.stiffness, felt.displacement, felt.at = float(self._stiffness[index, index]), x, force

    def close(self) -> None:
        self._process.close()

    @abstractmethod
    def _ask(self, x: Array, v: Array, a: Array) -> Array:
        """Return the forces ``(n_axes,)`` N after a step to the motion ``x`` (m), ``v`` (m/s), ``a`` (m/s^2).

        Raises RuntimeError if the other process does not answer.
        """


class _Felt(Specimen):
    initial_state = ()

    def __init__(self) -> None:
        self.stiffness = self.displacement = self.at = 0.0

    def force(self, state: Sequence[float], displacement: float, velocity: float) -> float:
        return self.at + self.stiffness * (displacement - self.displacement)

    def rate(self, state: Sequence[float], displacement: float, velocity: float) -> tuple[float, ...]:
        return ()


@params
class AxisVariables:
    displacement: str = text("input of the FMU: displacement of the actuator")
    velocity: str | None = text("input of the FMU: velocity of the actuator", None)
    acceleration: str | None = text("input of the FMU: acceleration of the actuator", None)
    force: str = text("output of the FMU: restoring force of the specimen; its start value counts as zero")
    stiffness: float = number(
        "initial stiffness of the specimen, which extrapolates the force between two steps of the FMU", "N/m", 0.0
    )


class Fmu(Followed):
    """Simulates actuators with an FMU as their specimen."""

    ABOUT = "Rehearsal with a functional mock-up unit (FMI) as specimen. The FMU computes the forces of all axes."
    SOURCES = ("blochwitz_2012",)

    @params
    class Params(FmuParams):
        axes: dict[str, AxisVariables] = sections(
            AxisVariables, "variables of the FMU for each axis, by axis name, in the order of the axes"
        )
        actuators: dict[str, OfParams] = components(
            "actuator", "actuator of each axis, by axis name, in the order of the axes"
        )
        every: int = integer("number of samples per step of the FMU", default=1, at_least=1, at_most=1000)

        def rows(self) -> Iterator[Row]:
            for axis, names in self.axes.items():
                for noun in NOUNS:
                    if (name := getattr(names, noun)) is not None:
                        yield Row(f"axes.{axis}.{noun}", name, "input", noun)
                yield Row(f"axes.{axis}.force", names.force, "output", "force")

        def fits(self, test: TestContext) -> None:
            test.check_order("axes", self.axes)
            test.check_order("actuators", self.actuators)
            self.check(test)

        def step_in(self, test: TestContext) -> float:
            return self.every * test.dt

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        self._model = FmuProcess(params, params.every * dt)
        self._hold(self._model, params.actuators, params.every, dt)
        self._stiffness = np.diag([names.stiffness for names in params.axes.values()])
        self._signals = [
            (NOUNS.index(noun), axis)
            for axis, names in enumerate(params.axes.values())
            for noun in NOUNS
            if getattr(names, noun) is not None
        ]
        self.reset()

    def reset(self) -> None:
        super().reset()
        self._taken = 0
        process = self._model
        if process.moved:
            try:
                process.set_back()
                process.wait()
            except RuntimeError as error:
                raise ConfigError(f"rig.file = {process.name!r}: {error}") from error

    def open(self) -> None:
        self._at_rest = self._model.start("rig")
        if self._at_rest.any():
            log.info("%s: the forces at the start, %s N, count as zero", self.name, self._at_rest.tolist())

    def _ask(self, x: Array, v: Array, a: Array) -> Array:
        nouns = x, v, a
        inputs = np.array([nouns[noun][axis] for noun, axis in self._signals])
        self._model.begin(self._taken, inputs)
        self._taken += 1
        return self._model.wait() - self._at_rest


@params
class Analysis:
    """Arguments of the OpenSees commands for a step of the specimen, separated by spaces."""

    integrator: str = text("arguments of ops.integrator: Newmark, gamma, beta", "Newmark 0.5 0.25")
    algorithm: str = text("arguments of ops.algorithm", "Newton")
    test: str = text("arguments of ops.test", "NormDispIncr 1e-12 50")
    system: str = text("arguments of ops.system", "BandGeneral")
    numberer: str = text("arguments of ops.numberer", "RCM")

    def validate(self, where: str) -> None:
        if self.integrator.split()[:1] != ["Newmark"]:
            raise ConfigError(f"{where}.integrator = {show(self.integrator)}: must be Newmark, gamma, beta")


class OpenSees(Followed):
    """Simulates actuators with an OpenSees model as their specimen."""

    ABOUT = "Rehearsal with an OpenSees specimen. A model in another process computes the forces of all axes."

    @params
    class Params:
        model: str = path("Python file with the function specimen(hold), which builds the specimen", opens="files")
        files: tuple[str, ...] = texts(
            "files that the model opens, relative to the model file; imported modules are included automatically"
        )
        interface: tuple[tuple[float, ...], ...] = matrix(
            "node and degree of freedom that each axis moves, as numbered in OpenSees", "1"
        )
        actuators: dict[str, OfParams] = components(
            "actuator", "actuator of each axis, by axis name, in the order of the axes"
        )
        gravity: bool = flag(
            "the model has gravity loads; its forces therefore include the P-Delta effect", default=False
        )
        every: int = integer("number of samples per step of the model", default=1, at_least=1, at_most=1000)
        analysis: Analysis = section(Analysis, "arguments of the OpenSees commands for a step")
        start_within: float = number(
            "timeout for building the model, which is built twice", "s", 60.0, more_than=0.0, at_most=3_600.0
        )
        answer_within: float = number("timeout for a step of the model", "s", 10.0, more_than=0.0, at_most=3_600.0)

        def validate(self, where: str) -> None:
            check_rows({f"{where}.interface": self.interface})

        def fits(self, test: TestContext) -> None:
            test.check_order("actuators", self.actuators)
            check_count("interface", self.interface, len(test.axes), "axis")
            check_files(self.model, self.files)
            if self.gravity and test.has_gravity and test.gravity_of_rig is None:
                raise ConfigError(
                    "gravity = True: the structure computes the P-Delta effect of its gravity_loads. Set "
                    "structure.experimental_gravity_loads to the part that the rig applies (0 N if it applies "
                    "none)"
                )
            if not self.gravity and any(test.gravity_of_rig or ()):
                raise ConfigError(
                    "gravity = False: must be True, because the rig applies structure.experimental_gravity_loads"
                )

    def __init__(self, params: Params, dt: float, n_axes: int) -> None:
        self._params = params
        task = {
            "interface": whole_rows(params.interface),
            "analysis": commands_of(params.analysis),
            "step": params.every * dt,
            "gravity": params.gravity,
        }
        self._model = ModelProcess(params.model, WORK, task)
        self._hold(self._model, params.actuators, params.every, dt)

    def open(self) -> None:
        self.close()
        try:
            with within("rig.type = 'opensees'"):
                self._model.connect(self._params.start_within)
            n = self._n
            try:
                numbers = self._receive(n * n + n)
                if ignored := self._model.line_with(IGNORED):
                    raise RuntimeError(f"the model has constraints between nodes other than equalDOF ({ignored})")
            except RuntimeError as error:
                raise ConfigError(f"rig.model = {self._model.name!r}: {error}") from error
            self._stiffness = numbers[: n * n].reshape((n, n), order="F")
            log.info(
                "%s is built with the initial stiffness %s N/m. The forces at rest, %s N, count as zero",
                self._model.name,
                self._stiffness.tolist(),
                numbers[n * n :].tolist(),
            )
        except BaseException:
            self.close()
            raise

    def _ask(self, x: Array, v: Array, a: Array) -> Array:
        self._model.send(np.concatenate((x, v, a)).astype("<f8").tobytes(), self._params.answer_within)
        return self._receive(self._n)

    def _receive(self, size: int) -> Array:
        return np.frombuffer(self._model.wait(8 * size), "<f8").copy()
