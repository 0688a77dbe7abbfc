# SPDX-License-Identifier: Apache-2.0
"""The act ``arm`` at the terminal: files of the procedure that it passes, and evaluations of its guards."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

from rig_runner import consoled, positioned

import rths_nodes
from rths_nodes.procedure.session import ACTS

ROOMS = tuple(str(Path(rths_nodes.__file__).parent / room) for room in ("procedure", "app/procedure"))
FILES = 9
"""Ratchet: at most."""
GUARDS = [guard.__name__ for guard in ACTS["arm"].guards]


def test_the_walk_of_arm(tmp_path: Path) -> None:
    console = consoled(tmp_path, rungs=["a", "d", "g"], arm=["g"])
    positioned(console.runner)
    files: set[str] = set()
    guards: list[str] = []
    locked: list[bool] = []

    def look(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOMS):
            files.add(Path(code.co_filename).name)
            if code.co_name in GUARDS:
                guards.append(code.co_name)
                locked.append(console.runner.session.lock._is_owned())

    sys.setprofile(look)
    try:
        console._do("arm", "g", console.runner.session.seen)
    finally:
        sys.setprofile(None)
    assert console.runner.state.name == "ARMED"
    console.runner.session.close()
    assert len(files) <= FILES, sorted(files)
    assert (guards, locked) == (GUARDS, [True] * len(GUARDS))  # once each, where the act commits
