"""The numerical substructure is a model of OpenSees that runs in a process of its own, which the test starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from rths_nodes.core.checks import TestContext
from rths_nodes.core.errors import ClientLeft, ConfigError, IntegratorError, show
from rths_nodes.core.parameters import matrix, params, path, section, text
from rths_nodes.core.protocols import Structure
from rths_nodes.core.samples import Array
from rths_nodes.core.strict import as_data
from rths_nodes.numerical.integrators.remote.connection import Connection, ConnectionEnded
from rths_nodes.numerical.integrators.remote.integrator import Served

PROGRAM = Path(__file__).with_name("model_process.py")

LEAVING_S = 2.0
"""s that the process has to end by itself once it has said goodbye or closed its connection."""

FAREWELLS = ("Process 0 Terminating",)
"""What OpenSees says at every end."""

POINTS_BACK = "See stderr output"
"""What an exception of OpenSees says in place of the reason, which it has printed before."""

LAST_WORDS = 2000
"""Bytes of what the process has printed that are looked at for the reason of its end."""


@params
class Analysis:
    """The commands of OpenSees for a step of the dynamic analysis, each as the words that it takes."""

    integrator: str = text("words of ops.integrator: explicit, or with fixed iterations", "NewmarkExplicit 0.5")
    algorithm: str = text("words of ops.algorithm", "Linear")
    test: str | None = text("words of ops.test, e.g. FixedNumIter 5", None)
    system: str = text("words of ops.system", "BandGeneral")
    numberer: str = text("words of ops.numberer", "RCM")
    constraints: str = text("words of ops.constraints", "Plain")


class OpenSees(Served):
    """A client that the test starts: a Python file builds the model, and its steps are analysed in a new process.

    The process ends with the test, however that ends, and with this process.
    """

    @params
    class Params(Served.Params):
        model: str = path("Python file with the function model(rig), which builds the model")
        interface: tuple[tuple[float, ...], ...] = matrix(
            "node and degree of freedom of each number that the rig takes, as OpenSees counts them", "1"
        )
        analysis: Analysis = section(Analysis, "how OpenSees takes a step")

        def validate(self, where: str) -> None:
            """Refuses an interface that is not made of nodes and their degrees of freedom."""
            nodes = [row[0] for row in self.interface]
            whole = all(len(row) == 2 and not any(one % 1.0 for one in row) for row in self.interface)
            if not whole or any(row[1] < 1 for row in self.interface) or len(set(self.interface)) < len(nodes):
                raise ConfigError(
                    f"{where}.interface = {show(self.interface)}: must be rows [node, degree of freedom] of whole "
                    "numbers, each another"
                )
            if len(list(groupby(nodes))) > len(set(nodes)):
                raise ConfigError(
                    f"{where}.interface = {show(self.interface)}: the degrees of freedom of a node must stand "
                    "one after another"
                )

        def fits(self, test: TestContext) -> None:
            """Refuses a structure, and a file that is not there."""
            Served.Params.fits(self, test)
            if not Path(self.model).is_file():
                raise ConfigError(f"model = {self.model!r}: there is no such file")

    def __init__(self, params: Params, structure: Structure | None, external_force: Array, dt: float) -> None:
        steps, n = external_force.shape
        if len(params.interface) != n:
            raise ConfigError(
                f"integrator.interface: must be {n} rows, one for each degree of freedom of the setup"
            )
        super().__init__(params, external_force, dt, Connection("127.0.0.1", 0))
        self._task = {
            "model": str(Path(params.model).absolute()),
            "interface": [[int(node), int(number)] for node, number in params.interface],
            "analysis": as_data(params.analysis),
            "steps": (steps - 1) // params.iterations,
            "step": params.iterations * dt,
        }
        self._name = Path(params.model).name
        self._process: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Listen, and start the model. Raises ConfigError where that cannot be."""
        super().open()
        task = self._task | {"port": self._connection.port, "parent": os.getpid()}
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 (close() closes it)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-uP", PROGRAM, json.dumps(task)],
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=subprocess.STDOUT,
                env=os.environ | one_thread,
                start_new_session=True,  # Ctrl-C is for the test, which stops the rig first
            )
        except OSError as error:
            raise ConfigError(f"integrator.type = 'opensees': cannot start {sys.executable}: {error}") from error

    def missing(self) -> str:
        """As any client; a model that ends is none. Raises ConfigError with what it has said last."""
        if self._process is not None and self._process.poll() and not self._connection.accept():
            words = self._end()
            self.close()
            raise ConfigError(f"integrator.model = {self._name!r}: {words}")
        return super().missing()

    def ready(self) -> bool:
        """As of any client. Raises IntegratorError with what the model has said last where it ends too soon."""
        try:
            return super().ready()
        except IntegratorError as error:
            left = isinstance(error, ClientLeft) or isinstance(error.__cause__, ConnectionEnded)
            if words := self._end(LEAVING_S if left else 0.0):
                raise IntegratorError(f"{self._name}: {words} ({error})") from error
            raise

    def _end(self, within: float = 0.0) -> str:
        """How the process has come, ``within`` s, to an end that it should not have come to, in words."""
        if self._process is None:
            return ""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(within)
        code = self._process.returncode
        if not code:
            return ""
        if code < 0:
            return f"OpenSees was ended by {signal.Signals(-code).name}"
        said = self._last_words()
        return f"OpenSees has ended with code {code}" + (f": {said}" if said else "")

    def _last_words(self) -> str:
        """The last line that the process has printed, after what OpenSees said before if that explains it."""
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - LAST_WORDS))
        lines = [line.strip() for line in self._printed.read().decode(errors="replace").splitlines()]
        *before, last = ["", *(line for line in lines if line and line not in FAREWELLS)]
        return last.replace(POINTS_BACK, before[-1]) if before else last

    def close(self) -> None:
        """End the process, which waits for answers with all its might once there is no server."""
        super().close()
        if self._process is None:
            return
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVING_S if self.talk.idle else 0.0)
        self._process.kill()
        self._process.wait()
        self._printed.close()
        self._process = None
