# SPDX-License-Identifier: Apache-2.0
"""The ways of a key of a scenario, to its component, and of a force, to a Command: few files have them in hand."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import attrs
import numpy as np
import pytest

from rths_nodes.core.samples import Measurement
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.recording.run import Collector

PACKAGE = Path(files.__file__).parents[2]
TEXT = "17.3125"
OWN = "control/compensators/"
"""Folder of the component: what it is made of is its own matter."""


def holds(value: Any) -> bool:
    """True for the number or its text, and for a section, a list or parameters around it; not for a whole test."""
    if isinstance(value, (str, float)):
        return str(value).partition("=")[2] == TEXT or str(value) == TEXT
    if isinstance(value, dict):
        parts = () if "compensator" in value and "axes" in value else value.values()
    elif isinstance(value, (list, tuple)):
        parts = value
    elif attrs.has(type(value)) and type(value).__name__ == "Params":
        parts = (getattr(value, field.name) for field in attrs.fields(type(value)))
    else:
        return False
    return any(holds(part) for part in parts)


def walked(scenario: Path | str, *overrides: str) -> Counter[tuple[str, str]]:
    """How often each function, by its file, begins or ends with the key in hand, up to the component."""
    assert Assembly(files.load(scenario, overrides)).compensator  # so that nothing is imported on the way
    found: Counter[tuple[str, str]] = Counter()

    def look(frame: FrameType, event: str, result: Any) -> None:
        if event not in ("call", "return") or not (path := Path(frame.f_code.co_filename)).is_relative_to(PACKAGE):
            return
        if any(map(holds, frame.f_locals.values())) or (event == "return" and holds(result)):
            found[path.relative_to(PACKAGE).as_posix(), f"{frame.f_code.co_name} {event}"] += 1

    sys.setprofile(look)
    try:
        built = Assembly(files.load(scenario, overrides)).compensator
    finally:
        sys.setprofile(None)
    assert built.state()[0] == float(TEXT)
    return found


@pytest.mark.parametrize("given", ["in the file", "by --set"])
def test_a_key_passes_few_files_and_one_check(given: str, tmp_path: Path) -> None:
    text, file, changes = files.locate("chen_ricles_2010").read_text(), tmp_path / "x.yaml", []
    if given == "in the file":
        text = text.replace("alpha_es: 15.0, k_p", f"alpha_es: {TEXT}, k_p")
    else:
        changes.append(f"compensator.alpha_es={TEXT}")
    file.write_text(text)
    found = walked(file, *changes)
    passed = {path for path, _ in found}
    assert f"{OWN}adaptive.py" in passed
    assert len([path for path in passed if not path.startswith(OWN)]) + 1 <= 9, sorted(passed)
    assert found["core/validation.py", "checked_number call"] == 1


SAMPLE = 200
"""A sample at which a step of the integrator begins."""
BESIDE = (
    *("loop/indices/", "loop/supervision/", "loop/stages/monitor.py", "loop/stages/frozen.py"),
    *("laboratory/specimens/", "laboratory/actuators/"),
)
"""What makes the force, what judges it and what watches it: beside the way from the port to the Command."""


def in_hand(value: Any, force: float) -> bool:
    """True for the force, an array or a short row with it, and its Measurement."""
    if isinstance(value, np.ndarray):
        return value.dtype == float and value.size < 50 and bool((value == force).any())
    if isinstance(value, (list, tuple)):
        return len(value) < 50 and any(in_hand(each, force) for each in value)
    if isinstance(value, Measurement):
        return value.sample == SAMPLE and in_hand(value.force, force)
    return isinstance(value, float) and value == force


def test_a_force_passes_few_files_to_the_command() -> None:
    scenario = files.load("chen_ricles_2010", ["duration=0.5"])
    first, again = Loop(Assembly(scenario)), Loop(Assembly(scenario))
    collector = Collector(scenario, first.assembly.names)
    first.run([collector])
    force = float(collector.run().force[SAMPLE, 0])
    passed: set[str] = set()

    def look(frame: FrameType, event: str, result: Any) -> None:
        if event not in ("call", "return") or not (path := Path(frame.f_code.co_filename)).is_relative_to(PACKAGE):
            return
        if any(in_hand(each, force) for each in frame.f_locals.values()) or in_hand(result, force):
            passed.add(path.relative_to(PACKAGE).as_posix())

    sys.setprofile(look)
    try:
        again.run()
    finally:
        sys.setprofile(None)
    way = {path for path in passed if not path.startswith(BESIDE)}
    assert {"laboratory/ports/simulator.py", "loop/stages/numerical.py", "loop/stages/command.py"} <= way
    assert len(way) <= 12, sorted(way)
