# SPDX-License-Identifier: Apache-2.0
"""Process of an FMU, run by ``core/child_program.py`` with the task as JSON.

First, the process sends the initial outputs of the model. A request contains the step number and the inputs. A
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
from typing import TYPE_CHECKING

from fmpy import fmi2, fmi3
from fmpy.fmi1 import FMICallException

if TYPE_CHECKING:
    from rths_nodes.core.data import Data

STATUS = ("OK", "Warning", "Discard", "Error", "Fatal", "Pending")
DISCARD = 2


def main(task: Data) -> None:
    os.chdir(task["folder"])
    sys.dont_write_bytecode = (
        True  # Python 3.11 would keep a compiled module that the file size limit has truncated
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, (task["largest_file"],) * 2)
    resource.setrlimit(resource.RLIMIT_AS, (task["largest_memory"],) * 2)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # by default Python ignores this signal of the file size limit
    try:
        unit = Unit(task)
    except Exception as error:  # fmpy has no exception class for failed loading or instantiation
        raise SystemExit(f"the model cannot be started: {error or type(error).__name__}") from error
    with socket.socket(fileno=task["channel"]) as channel:
        try:
            serve(unit, channel)
        except FMICallException as error:
            raise SystemExit(unit.problem(error.function, error.status)) from error


def serve(unit: Unit, channel: socket.socket) -> None:
    unit.read(0.0)
    channel.send(unit.outputs)
    while size := channel.recv_into(unit.request):
        if size == 1:
            try:
                unit.set_back()
            except Exception as error:  # fmpy raises various exceptions
                raise SystemExit(f"the model cannot be reset: {error}") from error
        else:
            unit.step(round(unit.request[0]))
        channel.send(unit.outputs)
    unit.end()


class Unit:
    """Runs one instance of the model. The arrays ``request`` (step number, inputs) and ``outputs`` are reused."""

    def __init__(self, task: Data) -> None:
        self._task, self._dt, self._is_fmi2 = task, task["step"], task["version"] == 2
        make, reference, kind = fmi3.FMU3Slave, fmi3.fmi3ValueReference, "Float64"
        if self._is_fmi2:
            make, reference, kind = fmi2.FMU2Slave, fmi2.fmi2ValueReference, "Real"
        self._unit = unit = make(
            guid=task["token"],
            modelIdentifier=task["identifier"],
            unzipDirectory=task["folder"],
            instanceName=task["identifier"],
        )
        inputs, outputs = task["inputs"], task["outputs"]
        self.request = (ctypes.c_double * (1 + len(inputs)))()
        self.outputs = (ctypes.c_double * len(outputs))()
        values = (ctypes.c_double * len(inputs)).from_buffer(self.request, ctypes.sizeof(ctypes.c_double))
        self._event, self._ends, self._early = (fmi3.fmi3Boolean() for _ in range(3))
        self._last = fmi3.fmi3Float64()
        results = (self._event, self._ends, self._early, self._last)
        # value references, their count and the values; FMI 3.0 also takes the number of values
        self._inputs = [(reference * len(inputs))(*inputs), len(inputs), values, len(inputs)]
        self._outputs = [(reference * len(outputs))(*outputs), len(outputs), self.outputs, len(outputs)]
        self._flags = [True, *map(ctypes.byref, results)]
        if self._is_fmi2:
            del self._inputs[3:], self._outputs[3:], self._flags[1:]
        names = (f"Get{kind}", f"Set{kind}", "DoStep")
        self._get, self._set, self._do_step = (getattr(unit, f"fmi{task['version']}{name}") for name in names)
        unit.instantiate()
        self._initialise()
        self._state = unit.getFMUState() if task["keeps_state"] else None

    def _initialise(self) -> None:
        for kind, reference, value in self._task["parameters"]:
            getattr(self._unit, f"set{kind}")([reference], [value])
        experiment = {"tolerance": self._task["tolerance"], "startTime": 0.0}
        if self._is_fmi2:
            self._unit.setupExperiment(**experiment)
            self._unit.enterInitializationMode()
        else:
            self._unit.enterInitializationMode(**experiment)
        self._unit.exitInitializationMode()

    def set_back(self) -> None:
        if self._state is not None:
            self._unit.setFMUState(self._state)
        else:
            self._unit.reset()
            self._initialise()
        self.read(0.0)

    def end(self) -> None:
        with contextlib.suppress(Exception):
            self._unit.terminate()
            self._unit.freeInstance()

    def step(self, number: int) -> None:
        """Compute step ``number`` (from 0) with the inputs in ``request``. Raises FMICallException on failure."""
        self._time = time = number * self._dt
        if self._inputs[1]:
            self._set(self._unit.component, *self._inputs)
        self._do_step(self._unit.component, time, self._dt, *self._flags)
        if self._ends.value or self._early.value:  # set only by FMI 3.0
            ended = self._ends.value
            reason = "requests the end of the simulation" if ended else f"has stopped at {self._last.value:g} s"
            raise SystemExit(f"the model {reason} in the step from {time:g} s to {time + self._dt:g} s")
        self.read(time + self._dt)

    def read(self, time: float) -> None:
        """Read the outputs. Raises SystemExit if an output is NaN or inf."""
        self._time = time
        self._get(self._unit.component, *self._outputs)
        if not math.isfinite(sum(self.outputs)):  # the sum of finite outputs may overflow
            for name, value in zip(self._task["names"], self.outputs, strict=True):
                if not math.isfinite(value):
                    raise SystemExit(f"{name} is {value} at {time:g} s: must be a number")

    def problem(self, function: str, status: int) -> str:
        name = STATUS[status] if status < len(STATUS) else f"the unknown status {status}"
        meaning = f": the model refuses a step of {self._dt:g} s" if status == DISCARD else ""
        return f"{function} has returned {function[:4]}{name} at {self._time:g} s{meaning}"


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
