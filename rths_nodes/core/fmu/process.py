# SPDX-License-Identifier: Apache-2.0
"""FMU in a scenario: file, values of parameters, and roles of variables in a test; and its separate process.

Callers pass the inputs of a step to the process and receive the outputs in SI units.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rths_nodes.core.child_process import LEAVING_S, ChildProcess
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, Problems
from rths_nodes.core.fmu.description import Archive, described, number_in
from rths_nodes.core.parameters import TestContext, mapping, number, params, path
from rths_nodes.core.samples import Array

PROGRAM = Path(__file__).with_name("model_process.py")

LARGEST_FILE = 1 << 30
"""Largest size of a file that an FMU writes, and of its printed output, bytes."""

LARGEST_MEMORY = 8 << 30
"""Largest address space of an FMU, bytes. On small machines the limit is half of the memory."""
LEAST_MEMORY = 1 << 30
"""Smallest limit of the address space, bytes, for Python, fmpy and the libraries of the model."""

LOOK_S = 1.0

FEW_STEPS, LARGEST_UNCHANGED = 20, 0.5
"""Least number of steps for a warning about unchanged outputs, and largest share of such steps without one."""

log = logging.getLogger(__name__)

SET_BACK = b"\0"

SHARE_OF_STEP = 1e-9
"""Relative tolerance within which a step is a multiple of the FMU's internal step."""


class Row(NamedTuple):
    """Describes an input or output named by the parameter ``place``. An empty ``quantity`` accepts any unit."""

    place: str
    name: str
    causality: str
    quantity: str


@params
class FmuParams:
    file: str = path("FMU file for co-simulation (FMI 2.0 or 3.0), with a binary for this machine", runs=True)
    parameters: Data = mapping(
        "values of the FMU's parameters by name; numbers are in the unit that the FMU declares, other "
        "values are true, false or text"
    )
    units: Mapping[str, str] = mapping("units of variables for which the FMU declares none, e.g. {x1: mm}")
    start_within: float = number(
        "timeout for loading and initialising the FMU", "s", 60.0, more_than=0.0, at_most=3_600.0
    )
    answer_within: float = number(
        "timeout for a step of the FMU; in real time, the limit of bridging is shorter",
        "s",
        10.0,
        more_than=0.0,
        at_most=3_600.0,
    )

    def rows(self) -> Iterator[Row]:
        """Yield the inputs and outputs that the test uses, in the order of the model process."""
        raise NotImplementedError

    def step_in(self, test: TestContext) -> float:
        raise NotImplementedError

    def cautions(self, test: TestContext) -> list[str]:
        step, preferred = self.step_in(test), described(self.file).preferred_step or 0.0
        if preferred <= step * (1.0 + SHARE_OF_STEP):
            return []
        return [
            f"file = {self.file!r}: the step is {step:g} s, but the default experiment of the FMU has a stepSize "
            f"of {preferred:g} s. Use a step of {preferred:g} s, because otherwise some steps may not change the "
            "outputs"
        ]

    def check(self, test: TestContext) -> None:
        """Raise ConfigError for variables that the FMU lacks or declares differently, and for an invalid step."""
        description, problems, step = described(self.file), Problems(), self.step_in(test)
        for row in self.rows():
            with problems.gathered():
                self.factor(row)
        for name, value in self.parameters.items():
            with problems.gathered():
                description.parameter("parameters", name, value)
        used = {row.name for row in self.rows() if row.quantity}
        for name, unit in self.units.items():
            if name not in used:
                problems.append(
                    f"units.{name} = {unit!r}: the test does not use this variable, but only "
                    f"{', '.join(sorted(used))}"
                )
        inner = number_in(description.simulation.fixedInternalStepSize)
        if inner and abs(step / inner - round(step / inner)) > SHARE_OF_STEP * step / inner:
            problems.append(
                f"file = {self.file!r}: the step is {step:g} s: must be a multiple of the FMU's "
                f"internal step, {inner:g} s"
            )
        places: dict[str, list[str]] = {}
        for row in self.rows():
            places.setdefault(row.name, []).append(row.place)
        problems += [
            f"{name!r} of the FMU is used twice: {', '.join(twice)}"
            for name, twice in places.items()
            if len(twice) > 1
        ]
        problems.refuse()

    def factor(self, row: Row) -> float:
        """Return a variable's factor to SI. Raises ConfigError if the FMU declares the variable differently."""
        description = described(self.file)
        variable = description.variable(row.place, row.name, row.causality)
        if not row.quantity:  # shown without conversion
            return 1.0
        return description.factor(row.place, variable, row.quantity, self.units.get(row.name))

    def contents(self) -> list[str]:
        fed = [row.name for row in self.rows() if row.causality == "input"]
        return described(self.file).lines(fed, self.parameters)

    def settings(self) -> list[tuple[str, int, object]]:
        """Return kind, value reference and value of each parameter. Raises ConfigError for an invalid value."""
        description, settings = described(self.file), []
        enumeration = "Integer" if description.version == 2 else "Int64"
        for name, value in self.parameters.items():
            variable = description.parameter("parameters", name, value)
            kind = enumeration if variable.type == "Enumeration" else variable.type
            settings.append((kind, variable.valueReference, value))
        return settings


def largest_memory() -> int:
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return max(LEAST_MEMORY, min(LARGEST_MEMORY, half))


class FmuProcess:
    """Runs the FMU of ``params`` in a process. The model starts at 0 s and advances in steps of ``dt`` (s)."""

    def __init__(self, params: FmuParams, dt: float) -> None:
        self._params, self._dt = params, dt
        self._inputs = [row for row in params.rows() if row.causality == "input"]
        self._outputs = [row for row in params.rows() if row.causality == "output"]
        self.outputs = [row.name for row in self._outputs]
        self._request = np.zeros(1 + len(self._inputs))
        self._process: ChildProcess | None = None
        self._channel: socket.socket | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._within = self._due = 0.0
        self._works = True  # the model is computing, and will not notice the end of the connection
        self.moved = False
        """True from the first step until the model is reset."""
        self.steps = self.unchanged = 0
        """Number of steps with changed inputs, and number of such steps that changed no output."""
        self._fed = self._told = b""
        self._changed = False

    @property
    def name(self) -> str:
        return Path(self._params.file).name

    @property
    def is_open(self) -> bool:
        return self._channel is not None

    def open(self) -> None:
        """Start the process. Raises ConfigError if the FMU cannot be unpacked or contradicts the parameters."""
        self.close()
        params, description = self._params, described(self._params.file)
        variables = description.variables
        self._per_input: Array = 1.0 / np.array([params.factor(row) for row in self._inputs])
        self._factors: Array = np.array([params.factor(row) for row in self._outputs])
        with ExitStack() as failed:
            failed.callback(self.close)
            self._folder = tempfile.TemporaryDirectory(prefix="rths_fmu_")
            try:
                Archive(params.file).unpack(Path(self._folder.name), description.binaries)
            except ConfigError as error:
                raise error.within(f"file = {self.name!r}") from error
            experiment = description.model.defaultExperiment
            task: Mapping[str, object] = {
                "folder": self._folder.name,
                "largest_file": LARGEST_FILE,
                "largest_memory": largest_memory(),
                "version": description.version,
                "token": description.model.guid or "",
                "identifier": description.identifier,
                "keeps_state": description.simulation.canGetAndSetFMUstate,
                "tolerance": None if experiment is None else number_in(experiment.tolerance),
                "step": self._dt,
                "inputs": [variables[row.name].valueReference for row in self._inputs],
                "outputs": [variables[name].valueReference for name in self.outputs],
                "names": self.outputs,
                "parameters": params.settings(),
            }
            self._process = ChildProcess(self.name, "the FMU", PROGRAM, task)
            self.steps = self.unchanged = 0
            self._fed = self._told = b""
            self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._channel.setblocking(False)
            with theirs:
                self._process.start((theirs.fileno(),), channel=theirs.fileno())
            self._expect(params.start_within)
            failed.pop_all()

    def start(self, path: str) -> Array:
        """Open the process and return the initial outputs in SI units.

        Raises ConfigError, with the ``path`` of the FMU's section, if the model does not start.
        """
        self.open()
        try:
            return self.wait()
        except RuntimeError as error:
            self.close()
            raise ConfigError(f"{path}.file = {self.name!r}: {error}") from error

    def begin(self, step: int, inputs: Array) -> None:
        """Send step number ``step`` (from 0) with ``inputs`` in SI units. Raises RuntimeError if sending fails."""
        request = self._request
        request[0] = step
        np.multiply(inputs, self._per_input, out=request[1:])
        message = request.tobytes()
        self._changed, self._fed = message[8:] != self._fed, message[8:]
        self.steps += self._changed
        self.moved = True
        self._send(message, self._params.answer_within)

    def set_back(self) -> None:
        self._send(SET_BACK, self._params.start_within)
        self.moved = self._changed = False

    def _send(self, message: bytes, within: float) -> None:
        assert self._channel is not None
        try:
            self._channel.send(message)
        except OSError as error:
            raise RuntimeError(self._end(str(error))) from error
        self._expect(within)

    def _expect(self, within: float) -> None:
        self._works = True
        self._within, self._due = within, time.monotonic() + within

    def answer(self, wait: float = 0.0) -> Array | None:
        """Return the outputs in SI units; None after ``wait`` s. Raises RuntimeError for a failed or late step."""
        assert self._channel is not None
        if wait:
            select.select([self._channel], [], [], max(0.0, min(wait, self._due - time.monotonic())))
        try:
            message = self._channel.recv(8 * len(self.outputs) + 1)
        except BlockingIOError:
            if time.monotonic() >= self._due:
                raise RuntimeError(f"the FMU has not answered in {self._within:g} s") from None
            return None
        except OSError as error:
            raise RuntimeError(self._end(str(error))) from error
        if len(message) != 8 * len(self.outputs):
            raise RuntimeError(self._end("the FMU process has closed the connection"))
        self._works = False
        self.unchanged += self._changed and message == self._told
        self._told = message
        return np.frombuffer(message) * self._factors

    def wait(self) -> Array:
        while (answer := self.answer(LOOK_S)) is None:
            pass
        return answer

    def share_scheduling(self) -> None:
        if self._process is not None:
            self._process.share_scheduling()

    def _end(self, otherwise: str) -> str:
        assert self._process is not None
        return self._process.end(LEAVING_S) or f"the FMU has ended: {otherwise}"

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._process.close(0.0 if self._works else LEAVING_S)
            self._process = None
            self.moved = self._changed = False
            if self.steps >= FEW_STEPS and self.unchanged > LARGEST_UNCHANGED * self.steps:
                log.warning(
                    "%s: no output has changed in %d of %d steps with new inputs. The internal step "
                    "of the FMU may be longer",
                    self.name,
                    self.unchanged,
                    self.steps,
                )
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
