# SPDX-License-Identifier: Apache-2.0
"""The act ``arm`` at the terminal: files of the procedure that it passes, and evaluations of its guards."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

from rig_runner import consoled, positioned

import rths_nodes

ROOMS = tuple(str(Path(rths_nodes.__file__).parent / room) for room in ("procedure", "app/procedure"))
FILES, EVALUATIONS = 14, 2
"""Ratchet: at most. The guards are evaluated when the act is requested, and where it commits."""


def test_the_walk_of_arm(tmp_path: Path) -> None:
    console = consoled(tmp_path, rungs=["a", "d", "g"], arm=["g"])
    positioned(console.runner)
    files: set[str] = set()
    guards: list[str] = []

    def look(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOMS):
            files.add(Path(code.co_filename).name)
            if code.co_name == "_reason":
                guards.append(str(frame.f_locals.get("act")))

    sys.setprofile(look)
    try:
        console._do("arm", "g", console.runner.session.seen)
    finally:
        sys.setprofile(None)
    assert console.runner.state.name == "ARMED"
    console.runner.session.close()
    assert len(files) <= FILES, sorted(files)
    assert len(guards) <= EVALUATIONS, guards
