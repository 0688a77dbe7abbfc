# SPDX-License-Identifier: Apache-2.0
"""Rehearsal with an OpenSees specimen. A model in another process computes the forces of all axes.

Between two steps the model's initial stiffness continues the force (``external_specimen.py``).
"""

from __future__ import annotations

import logging
import select
import socket
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from rths_nodes.core.checks import TestContext
from rths_nodes.core.child_process import LEAVING_S
from rths_nodes.core.declarations import OfParams
from rths_nodes.core.errors import ConfigError, show, within
from rths_nodes.core.opensees.model import (
    ModelProcess,
    check_count,
    check_files,
    check_rows,
    commands_of,
    whole_rows,
)
from rths_nodes.core.parameters import (
    components,
    flag,
    integer,
    matrix,
    number,
    params,
    path,
    section,
    text,
    texts,
)
from rths_nodes.core.samples import Array
from rths_nodes.laboratory.rigs.external_specimen import Followed

WORK = Path(__file__).with_name("opensees_specimen.py")

IGNORED = "PlainHandler::handle()"
"""Message of OpenSees when it ignores a constraint between nodes."""

log = logging.getLogger(__name__)


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
    """Simulates actuators that move an OpenSees model."""

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
            "the model has gravity loads, so that its forces include their P-Delta effect", default=False
        )
        every: int = integer("number of samples per step of the model", default=1, at_least=1, at_most=1000)
        analysis: Analysis = section(Analysis, "OpenSees commands for a step")
        start_within: float = number(
            "timeout for building the model twice", "s", 60.0, more_than=0.0, at_most=3_600.0
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
        self._hold(params.actuators, params.every, dt)
        task = {
            "interface": whole_rows(params.interface),
            "analysis": commands_of(params.analysis),
            "step": self._step,
            "gravity": params.gravity,
        }
        self._process = ModelProcess(params.model, WORK, task)
        self._channel: socket.socket | None = None
        self.name = self._process.name

    def open(self) -> None:
        self.close()
        with ExitStack() as failed:
            failed.callback(self.close)
            self._channel, theirs = socket.socketpair()
            self._channel.setblocking(False)
            with theirs, within("rig.type = 'opensees'"):
                self._process.start((theirs.fileno(),), channel=theirs.fileno())
            n = self._n
            try:
                numbers = self._receive(n * n + n, self._params.start_within)
                if ignored := self._process.line_with(IGNORED):
                    raise RuntimeError(f"the model has constraints between nodes other than equalDOF ({ignored})")
            except RuntimeError as error:
                raise ConfigError(f"rig.model = {self._process.name!r}: {error}") from error
            self._stiffness = numbers[: n * n].reshape((n, n), order="F")
            log.info(
                "%s is built with the initial stiffness %s N/m. The forces at rest, %s N, count as zero",
                self._process.name,
                self._stiffness.tolist(),
                numbers[n * n :].tolist(),
            )
            failed.pop_all()

    def share_scheduling(self) -> None:
        self._process.share_scheduling()

    def _ask(self, x: Array, v: Array, a: Array) -> Array:
        assert self._channel is not None
        try:
            self._channel.sendall(np.concatenate((x, v, a)).astype("<f8").tobytes())
        except OSError as error:
            raise RuntimeError(self._end(str(error))) from error
        return self._receive(self._n, self._params.answer_within)

    def _receive(self, size: int, within: float) -> Array:
        assert self._channel is not None
        data = b""
        while len(data) < 8 * size:
            if not select.select([self._channel], [], [], within)[0]:
                raise RuntimeError(f"OpenSees has not answered within {within:g} s")
            try:
                part = self._channel.recv(8 * size - len(data))
            except OSError as error:
                raise RuntimeError(self._end(str(error))) from error
            if not part:
                raise RuntimeError(self._end("the connection was closed"))
            data += part
        return np.frombuffer(data, "<f8").copy()

    def _end(self, otherwise: str) -> str:
        return self._process.end(LEAVING_S) or f"OpenSees has ended: {otherwise}"

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self._process.close()
