# SPDX-License-Identifier: Apache-2.0
"""Process of an OpenSees model, run by ``core/child_program.py`` with the task as JSON.

The process calls ``work(ops, task, model)`` in the Python file ``task["work"]``. This function builds the user's
model. Both files import nothing from the package. An error is reported in one line, with exit code 1.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rths_nodes.core.data import Data

PRINTED = 2

LONGEST_REFUSAL = 500


def main(task: Data) -> None:
    try:
        import openseespy.opensees as ops
    except ImportError as error:
        raise SystemExit(
            f"OpenSees cannot be imported ({error}). Run pip install openseespy, and apt install libblas3 "
            "liblapack3 libgfortran5 libgomp1"
        ) from error
    module_of(Path(task["work"])).work(ops, task, Model(ops, Path(task["model"])))
    ops.wipe()


def module_of(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path.name}: must be a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Model:
    def __init__(self, ops: ModuleType, path: Path) -> None:
        self._ops, self._path = ops, path
        self._module: ModuleType | None = None
        sys.path.insert(0, str(path.parent))

    def build(self, step: str, argument: Callable[[], None]) -> None:
        """Call the function that ``step`` names in the user's file, e.g. ``build("model(rig)", rig)``.

        Errors are reported with their line in the user's file. The file gets no command-line arguments.
        """
        path = self._path
        sys.argv = [str(path)]
        try:
            if self._module is None:
                self._module = module_of(path)
            function = getattr(self._module, step.partition("(")[0], None)
            if not callable(function):
                raise SystemExit(f"{path.name} has no function {step}")
            function(argument)
        except Exception as error:
            raise SystemExit(text_of(error, path)) from error
        except SystemExit as error:  # exit code 0 would leave the test waiting for the model
            if error.code:
                raise
            raise SystemExit(f"{path.name} calls sys.exit") from error

    def check_node(self, node: int, number: int, who: str, where: str) -> None:
        if node not in self._ops.getNodeTags():
            raise ValueError(f"{who} needs node {node} of {where}. Build this node first")
        if number > (size := len(self._ops.nodeDisp(node))):
            raise ValueError(f"{where} [{node}, {number}]: the degrees of freedom of node {node} are 1 to {size}")

    def check_free(self, node: int, number: int) -> None:
        if number in self._ops.getFixedDOFs(node):
            raise ValueError(
                f"node {node}, degree of freedom {number} is fixed in the model, but the rig must move it"
            )

    def command(self, name: str, arguments: Sequence[object]) -> None:
        """Run an OpenSees command. Raises SystemExit if the command fails or prints anything.

        For some errors, OpenSees only prints a message and continues with a default value.
        """
        before = os.fstat(PRINTED).st_size
        try:
            getattr(self._ops, name)(*arguments)
            error = ""
        except Exception as raised:
            error = str(raised)
        printed = os.pread(PRINTED, LONGEST_REFUSAL, before).decode(errors="replace")
        if reason := " / ".join(filter(None, map(str.strip, printed.splitlines()))) or error:
            raise SystemExit(f"analysis.{name} = {' '.join(map(str, arguments))!r}: OpenSees reports: {reason}")


def text_of(error: Exception, path: Path) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = frames[-1].lineno if frames else getattr(error, "lineno", None)
    location = f"line {line}: " if line else ""
    return f"{location}{type(error).__name__}: {error}"


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
