# SPDX-License-Identifier: Apache-2.0
"""A runner of a test on the simulated bench, and its acts up to the start."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import yaml

from rths_nodes.app.procedure.answers import Answers
from rths_nodes.app.procedure.console import Console
from rths_nodes.app.procedure.procedure_runner import Ladder, ProcedureRunner
from rths_nodes.core.validation import from_data
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.scenario import files

NAMED = {act: {"moves": "y"} for act in ("check", "position", "run", "unload")}
"""Answers that name each motion of a whole test."""
ANSWERS: dict[str, Any] = {
    "test_id": "first",
    "operator": "A. Tester",
    "specimen": "D-17",
    "offsets_seconds": 0.2,
    "confirm_offsets": True,
    "unloaded": True,
    **NAMED,
}
"""Answers to all questions of a test but those on its rungs."""
OF_RUNG_G = ANSWERS | {"rungs": ["g"], "arm": ["g"]}


def conducted(
    folder: Path, *overrides: str, rig: str | Path = "bench_simulated", rungs: str = "adg"
) -> ProcedureRunner:
    """A short test on a ``rig`` with these rungs, recorded into ``folder``."""
    scenario = files.load("chen_ricles_2010", ["duration=0.3", *overrides], rig=rig)
    ladder = Ladder(scenario, tuple(rungs), 0.3, 2, False)
    return ProcedureRunner(ladder, ProcedureRecord("test", scenario.name, "", operator="A. Tester"), folder)


def referenced(runner: ProcedureRunner, seconds: float = 0.1) -> None:
    """Connect the rig and confirm its offsets."""
    runner.do("connect")
    runner.do("take_offsets", seconds=seconds)
    assert runner.session.taken is not None
    runner.do("confirm_offsets", hash=runner.session.taken.hash, unloaded=True)


def positioned(runner: ProcedureRunner) -> None:
    """Lead a cold rig to the start."""
    runner.do("rehearse")
    referenced(runner)
    runner.do("check", clear="CLEAR")
    for name in runner.session.clearance.unsigned():
        runner.do("sign_for", what=name)
    runner.do("position", clear="CLEAR")


def arm(runner: ProcedureRunner, rung: str, by: str = "", way: str = "", **second: str) -> str:
    """Arm a rung with the current hashes; return the reported result."""
    hashes = {"scenario_hash": runner.ladder.step(rung).hash, "offsets_hash": runner.session.offsets.hash}
    return runner.do("arm", by, way, rung=rung, **hashes, **second)


def rig_file(folder: Path, rig: str = "bench_simulated", **keys: Any) -> Path:
    """Write a shipped rig file with changed top-level keys to ``bench.yaml``; return its path."""
    data = yaml.safe_load(files.locate(rig, files.RIG).read_text()) | keys
    (folder / "bench.yaml").write_text(yaml.safe_dump(data))
    return folder / "bench.yaml"


class Bar:
    """Progress that is not shown."""

    def __call__(self, *_: object) -> None: ...

    def starting(self, _: str) -> None: ...


def consoled(folder: Path, **answers: Any) -> Console:
    """A console with ``answers`` and no terminal, attached to the test of :func:`conducted`."""
    console = Console(from_data(Answers, answers), None, print)
    console.attach(conducted(folder), lambda name: nullcontext(Bar()), leads=False)
    return console
