# SPDX-License-Identifier: Apache-2.0
"""A numerical substructure as an OpenSees model in a separate process that the test starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from rths_nodes.core.arithmetic import matvec
from rths_nodes.core.child_process import LEAVING_S
from rths_nodes.core.errors import ClientLeft, ConfigError, IntegratorError, show, unknown, within
from rths_nodes.core.opensees import ModelProcess, check_count, check_files, check_rows, commands_of, whole_rows
from rths_nodes.core.parameters import TestContext, matrix, params, path, section, text, texts
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.numerical.integrators.rehearsal import rehearse
from rths_nodes.numerical.integrators.remote.integrator import CLIENT, Connection, ConnectionEnded, Served

WORK = Path(__file__).with_name("analysis.py")

INTEGRATORS = (
    "AlphaOS",
    "CentralDifference",
    "HHTHSFixedNumIter",
    "KRAlphaExplicit",
    "KRAlphaExplicit_TP",
    "NewmarkExplicit",
)
"""OpenSees integrators whose number of displacements per step does not depend on the force (doc/opensees.md)."""


@params
class Analysis:
    integrator: str = text(
        "arguments of ops.integrator (explicit, or with a fixed number of iterations)", "NewmarkExplicit 0.5"
    )
    algorithm: str = text("arguments of ops.algorithm", "Linear")
    test: str | None = text("arguments of ops.test, e.g. FixedNumIter 5", None)
    system: str = text("arguments of ops.system", "BandGeneral")
    numberer: str = text("arguments of ops.numberer", "RCM")
    constraints: str = text("arguments of ops.constraints", "Plain")

    def validate(self, where: str) -> None:
        name = next(iter(self.integrator.split()), "")
        if name not in INTEGRATORS:
            raise unknown(f"{where}.integrator = {show(self.integrator)}", "integrator", name, INTEGRATORS)


def by_node(nodes: Sequence[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[int]]:
    """Return the pairs (node, degree of freedom) in the element's order, and the new index of each input pair."""
    first = {node: index for index, (node, _) in reversed(list(enumerate(nodes)))}
    wire = sorted(nodes, key=lambda pair: first[pair[0]])
    return wire, [wire.index(pair) for pair in nodes]


class OpenSees(Served):
    """A client that the test starts: a Python file builds the model, which a new process analyses step by step.

    The new process exits after the test, or earlier if the test's process exits.
    """

    @params
    class Params(Served.Params):
        who: ClassVar[str] = "the model"
        model: str = path("Python file with the function model(rig), which builds the model", opens="files")
        files: tuple[str, ...] = texts(
            "files that the model opens, relative to the model file; imported modules need not be listed"
        )
        interface: tuple[tuple[float, ...], ...] = matrix(
            "node and degree of freedom of each axis, as numbered in OpenSees", "1"
        )
        observed: tuple[tuple[float, ...], ...] | None = matrix(
            "node and degree of freedom of each observed motion of the scenario", "1", None
        )
        analysis: Analysis = section(Analysis, "commands of the OpenSees analysis")

        def validate(self, where: str) -> None:
            check_rows({f"{where}.interface": self.interface, f"{where}.observed": self.observed or ()})

        def fits(self, test: TestContext) -> None:
            Served.Params.fits(self, test)
            check_count("interface", self.interface, len(test.axes), "degree of freedom of the setup")
            names = f" ({', '.join(test.observed)})" if test.observed else ""
            check_count("observed", self.observed or (), len(test.observed), f"name of observed{names}")
            check_files(self.model, self.files)

    def __init__(self, params: Params, structure: Structure | None, external_force: Array, dt: float) -> None:
        steps, _ = external_force.shape
        wire, columns = by_node(whole_rows(params.interface, params.observed or ()))
        super().__init__(params, external_force, dt, Connection("127.0.0.1", 0), columns)
        task = {
            "interface": whole_rows(params.interface),
            "observed": whole_rows(params.observed or ()),
            "wire": wire,
            "analysis": commands_of(params.analysis),
            "steps": (steps - 1) // params.iterations,
            "step": params.iterations * dt,
        }
        self._process = ModelProcess(params.model, WORK, task)
        self._steps = steps - 1

    def open(self) -> None:
        super().open()
        with within("integrator.type = 'opensees'"):
            self._process.start(port=self._connection.port)

    def missing(self) -> str:
        if self._process.failed and not self._connection.accept():
            problem = self._process.end()
            self.close()
            raise ConfigError(f"integrator.model = {self._process.name!r}: {problem}")
        return super().missing()

    def begin(self, experimental_force: Array) -> None:
        self._process.share_scheduling()
        super().begin(experimental_force)

    def ready(self) -> bool:
        try:
            return super().ready()
        except IntegratorError as error:
            left = isinstance(error, ClientLeft) or isinstance(error.__cause__, ConnectionEnded)
            problem = str(error).replace(CLIENT, self.Params.who)
            if ending := self._process.end(LEAVING_S if left else 0.0):
                raise IntegratorError(f"{self._process.name}: {ending} ({problem})") from error
            raise (ClientLeft if isinstance(error, ClientLeft) else IntegratorError)(problem) from error

    def rehearsed(self) -> Array:
        stiffness = self._matrix("stiffness")
        return rehearse(self, self._steps, lambda: matvec(stiffness, self.displacement))

    def close(self) -> None:
        """Terminate the process, which would otherwise wait for answers in a busy loop."""
        super().close()
        self._process.close(LEAVING_S if self.talk.idle else 0.0)
