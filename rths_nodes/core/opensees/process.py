# SPDX-License-Identifier: Apache-2.0
"""A process with an OpenSees model in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rths_nodes.core.child_process import ChildProcess

PROGRAM = Path(__file__).with_name("model_process.py")


class ModelProcess(ChildProcess):
    """Builds the ``model`` of a file and does with it what the Python file ``work`` says.

    ``task`` is what that one is told.
    """

    farewells = ("Process 0 Terminating",)
    points_back = "See stderr output"  # of an exception of OpenSees, which has printed the reason before

    def __init__(self, model: str, work: Path, task: Mapping[str, object]) -> None:
        whole = {"model": str(Path(model).absolute()), "work": str(work), **task}
        super().__init__(Path(model).name, "OpenSees", PROGRAM, whole)
