# SPDX-License-Identifier: Apache-2.0
"""Process of an FMU, run by ``core/child_program.py`` with the task as JSON.

At the start the process sends the outputs of the model. A request contains the step number and the inputs. A
request of one byte resets the model. Each answer contains the outputs after the step or the reset. The process
ends when the connection closes. This file imports nothing from the package. An error is reported in one line, with
exit code 1.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rths_nodes.core.data import Data

STATUS = ("OK", "Warning", "Discard", "Error", "Fatal", "Pending")
GOOD, DISCARD = 1, 2


def main(task: Data) -> None:
    try:
        import fmpy.fmi2
        import fmpy.fmi3
    except ImportError as error:
        raise SystemExit(f"fmpy cannot be imported ({error}). Install fmpy: pip install fmpy") from error
    os.chdir(task["folder"])
    sys.dont_write_bytecode = (
        True  # Python 3.11 would keep a compiled module that the file size limit has truncated
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, (task["largest_file"],) * 2)
    resource.setrlimit(resource.RLIMIT_AS, (task["largest_memory"],) * 2)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores this signal of the file size limit by default
    try:
        unit: Unit = Fmi2(fmpy.fmi2, task) if task["version"] == 2 else Fmi3(fmpy.fmi3, task)
        unit.begin()
    except Exception as error:  # fmpy has no exception class for failed loading or instantiation
        raise SystemExit(f"the model cannot be started: {error or type(error).__name__}") from error
    with socket.socket(fileno=task["channel"]) as channel:
        serve(unit, channel)


def serve(unit: Unit, channel: socket.socket) -> None:
    outputs, request, step = unit.outputs, unit.request, unit.step
    unit.read(0.0)
    channel.send(outputs)
    while size := channel.recv_into(request):
        if size == 1:
            try:
                unit.set_back()
            except Exception as error:  # fmpy raises various exceptions
                raise SystemExit(f"the model cannot be reset: {error}") from error
            unit.read(0.0)
        else:
            step(round(request[0]))
        channel.send(outputs)
    unit.end()


class Unit:
    """Runs an instance of the model. ``request`` (step number and inputs) and ``outputs`` are reused arrays."""

    prefix = ""

    def __init__(self, task: Data, make: Callable[..., Any], reference: Any) -> None:
        self.task, self._dt = task, task["step"]
        self._unit = make(
            guid=task["token"],
            modelIdentifier=task["identifier"],
            unzipDirectory=task["folder"],
            instanceName=task["identifier"],
        )
        inputs, outputs = task["inputs"], task["outputs"]
        self.request = (ctypes.c_double * (1 + len(inputs)))()
        self.outputs = (ctypes.c_double * len(outputs))()
        self._values = (ctypes.c_double * len(inputs)).from_buffer(self.request, ctypes.sizeof(ctypes.c_double))
        self._inputs, self._n_inputs = (reference * len(inputs))(*inputs), len(inputs)
        self._outputs, self._n_outputs = (reference * len(outputs))(*outputs), len(outputs)

    def begin(self) -> None:
        self._unit.instantiate()
        self._initialise()
        self._state = None
        if self.task["keeps_state"]:
            self._state = self._unit.getFMUState()

    def _initialise(self) -> None:
        for kind, reference, value in self.task["parameters"]:
            getattr(self._unit, f"set{kind}")([reference], [value])
        self._enter()
        self._unit.exitInitializationMode()

    def _enter(self) -> None:
        raise NotImplementedError

    def set_back(self) -> None:
        if self._state is not None:
            self._unit.setFMUState(self._state)
            return
        self._unit.reset()
        self._initialise()

    def end(self) -> None:
        with contextlib.suppress(Exception):
            self._unit.terminate()
            self._unit.freeInstance()

    def step(self, number: int) -> None:
        """Compute step ``number``, from 0, with the inputs in ``request``. Raises SystemExit on failure."""
        raise NotImplementedError

    def read(self, time: float) -> None:
        """Read the outputs. Raises SystemExit if an output is NaN or inf."""
        self.check(self.get(self.instance, self._outputs, self._n_outputs, *self.to), self.getter, time)
        if not math.isfinite(sum(self.outputs)):  # the sum of finite outputs may overflow
            for name, value in zip(self.task["names"], self.outputs, strict=True):
                if not math.isfinite(value):
                    raise SystemExit(f"{name} is {value} at {time:g} s: must be a number")

    def check(self, status: int, function: str, time: float) -> None:
        if status > GOOD:
            name = STATUS[status] if status < len(STATUS) else f"the unknown status {status}"
            meaning = f": the model refuses a step of {self._dt:g} s" if status == DISCARD else ""
            raise SystemExit(f"{function} has returned {self.prefix}{name} at {time:g} s{meaning}")

    get: Callable[..., int]
    getter = ""
    to: tuple[object, ...]
    instance: Any


class Fmi2(Unit):
    prefix, getter = "fmi2", "fmi2GetReal"

    def __init__(self, fmi2: ModuleType, task: Data) -> None:
        super().__init__(task, fmi2.FMU2Slave, fmi2.fmi2ValueReference)

    def begin(self) -> None:
        super().begin()
        dll, self.instance = self._unit.dll, self._unit.component
        self.get, self.to = dll.fmi2GetReal, (self.outputs,)
        self._set, self._do_step = dll.fmi2SetReal, dll.fmi2DoStep

    def _enter(self) -> None:
        self._unit.setupExperiment(tolerance=self.task["tolerance"], startTime=0.0)
        self._unit.enterInitializationMode()

    def step(self, number: int) -> None:
        time, instance = number * self._dt, self.instance
        if self._n_inputs:
            self.check(self._set(instance, self._inputs, self._n_inputs, self._values), "fmi2SetReal", time)
        self.check(self._do_step(instance, time, self._dt, 1), "fmi2DoStep", time)
        self.read(time + self._dt)


class Fmi3(Unit):
    prefix, getter = "fmi3", "fmi3GetFloat64"

    def __init__(self, fmi3: ModuleType, task: Data) -> None:
        super().__init__(task, fmi3.FMU3Slave, fmi3.fmi3ValueReference)
        self._flags = tuple(fmi3.fmi3Boolean() for _ in range(3))
        self._last = fmi3.fmi3Float64()
        self._done = *(ctypes.byref(flag) for flag in self._flags), ctypes.byref(self._last)

    def begin(self) -> None:
        super().begin()
        dll, self.instance = self._unit.dll, self._unit.component
        self.get, self.to = dll.fmi3GetFloat64, (self.outputs, self._n_outputs)
        self._set, self._do_step = dll.fmi3SetFloat64, dll.fmi3DoStep

    def _enter(self) -> None:
        self._unit.enterInitializationMode(tolerance=self.task["tolerance"], startTime=0.0)

    def step(self, number: int) -> None:
        time, instance, n = number * self._dt, self.instance, self._n_inputs
        if n:
            self.check(self._set(instance, self._inputs, n, self._values, n), "fmi3SetFloat64", time)
        self.check(self._do_step(instance, time, self._dt, True, *self._done), "fmi3DoStep", time)
        _, ends, early = self._flags
        if ends.value or early.value:
            reason = (
                "requests the end of the simulation" if ends.value else f"has stopped at {self._last.value:g} s"
            )
            raise SystemExit(f"the model {reason} in the step from {time:g} s to {time + self._dt:g} s")
        self.read(time + self._dt)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
