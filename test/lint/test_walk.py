# SPDX-License-Identifier: Apache-2.0
"""Files and functions of the package that a parameter, a force, a sample and an operator act pass through."""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import attrs
import numpy as np
import pytest
from rig_runner import consoled, positioned

import rths_nodes
from rths_nodes.app.cli import main
from rths_nodes.core.samples import Measurement
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.procedure.session import ACTS
from rths_nodes.recording.run import Collector

PACKAGE = Path(rths_nodes.__file__).parent
TEXT = "17.3125"
COMPONENT = "control/compensators/"
"""Folder of the component, whose own files are not counted."""
SAMPLE = 200
"""A sample at which a step of the integrator begins."""
OFF_PATH = (
    *("loop/indices/", "loop/supervision/", "loop/stages/monitor.py", "loop/stages/frozen.py"),
    *("laboratory/specimens/", "laboratory/actuators/"),
)
"""Sources and monitors of the force, which are not between the port and the Command."""
GUARDS = [guard.__name__ for guard in ACTS["arm"].guards]


@contextmanager
def profiled(profile: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


def holds(value: Any) -> bool:
    """True for the number or its text, alone or within a section, a list or parameters; not in a scenario."""
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
    return any(map(holds, parts))


@pytest.mark.parametrize("source", ["in the file", "by --set"])
def test_parameter_passes_few_files_and_one_check(source: str, tmp_path: Path) -> None:
    text, file, overrides = files.locate("chen_ricles_2010").read_text(), tmp_path / "x.yaml", []
    if source == "in the file":
        text = text.replace("alpha_es: 15.0, k_p", f"alpha_es: {TEXT}, k_p")
    else:
        overrides.append(f"compensator.alpha_es={TEXT}")
    file.write_text(text)
    assert Assembly(files.load(file, overrides)).compensator  # import all modules before profiling
    calls: Counter[tuple[str, str]] = Counter()

    def count(frame: FrameType, event: str, result: Any) -> None:
        if event not in ("call", "return") or not (path := Path(frame.f_code.co_filename)).is_relative_to(PACKAGE):
            return
        if any(map(holds, frame.f_locals.values())) or (event == "return" and holds(result)):
            calls[path.relative_to(PACKAGE).as_posix(), f"{frame.f_code.co_name} {event}"] += 1

    with profiled(count):
        compensator = Assembly(files.load(file, overrides)).compensator
    assert compensator.state()[0] == float(TEXT)
    passed = {path for path, _ in calls}
    assert f"{COMPONENT}adaptive.py" in passed
    assert len([path for path in passed if not path.startswith(COMPONENT)]) + 1 <= 9, sorted(passed)
    assert calls["core/validation.py", "checked_number call"] == 1


def holds_force(value: Any, force: float) -> bool:
    """True for the force, its Measurement, and an array or a short sequence that contains the force."""
    if isinstance(value, np.ndarray):
        return value.dtype == float and value.size < 50 and bool((value == force).any())
    if isinstance(value, (list, tuple)):
        return len(value) < 50 and any(holds_force(entry, force) for entry in value)
    if isinstance(value, Measurement):
        return value.sample == SAMPLE and holds_force(value.force, force)
    return isinstance(value, float) and value == force


def test_force_passes_few_files_to_command() -> None:
    scenario = files.load("chen_ricles_2010", ["duration=0.5"])
    first, second = Loop(Assembly(scenario)), Loop(Assembly(scenario))
    collector = Collector(scenario, first.assembly.names)
    first.run([collector])
    force = float(collector.run().force[SAMPLE, 0])
    passed: set[str] = set()

    def collect(frame: FrameType, event: str, result: Any) -> None:
        if event not in ("call", "return") or not (path := Path(frame.f_code.co_filename)).is_relative_to(PACKAGE):
            return
        if any(holds_force(value, force) for value in frame.f_locals.values()) or holds_force(result, force):
            passed.add(path.relative_to(PACKAGE).as_posix())

    with profiled(collect):
        second.run()
    on_path = {path for path in passed if not path.startswith(OFF_PATH)}
    assert {"laboratory/ports/simulator.py", "loop/stages/numerical.py", "loop/stages/command.py"} <= on_path
    assert len(on_path) <= 12, sorted(on_path)


@pytest.mark.nodes
def test_sample_takes_few_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one Measurement to the next, in one process. Nine samples in ten have no step of the integrator."""
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    monkeypatch.chdir(tmp_path)
    calls, measured = 0, []

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            calls += 1
            if frame.f_code.co_qualname == "ActuatorNode._complete":
                measured.append(calls)

    with profiled(count):
        assert main(["run", "chen_ricles_2010", "--host", "composed", "--set", "duration=0.3"]) == 0
    assert len(measured) > 300
    assert statistics.median(after - before for before, after in pairwise(measured)) <= 90


def test_arm_passes_few_files_and_each_guard_once(tmp_path: Path) -> None:
    console = consoled(tmp_path, rungs=["a", "d", "g"], arm=["g"])
    session = console.runner.session
    positioned(console.runner)
    passed: set[str] = set()
    guards: list[tuple[str, bool]] = []

    def collect(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith((f"{PACKAGE}/procedure", f"{PACKAGE}/app/procedure")):
            passed.add(Path(code.co_filename).name)
            if code.co_name in GUARDS:
                guards.append((code.co_name, session.lock._is_owned()))

    with profiled(collect):
        console._do("arm", "g", session.seen)
    assert console.runner.state.name == "ARMED"
    session.close()
    assert len(passed) <= 9, sorted(passed)
    assert guards == [(name, True) for name in GUARDS]  # where the act commits
