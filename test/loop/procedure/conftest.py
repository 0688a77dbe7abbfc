"""A rig of the port simulator, with perfect channels, and a session that walks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rig_walk import Walk

from rths_nodes.core.samples import Command
from rths_nodes.laboratory.ports.simulator import Simulator
from rths_nodes.loop.scenario import files

RIG = """
version: 1
name: bench
port: {type: simulator, transport_samples: 1, hydraulics: high, interlock: closed}
axes:
  bench:
    serves: [story_1]
    displacement: {unit: mm, range: 275.0}
    force: {unit: kN, range: 2000.0}
    command: {unit: mm, range: 260.0}
    limits: {stroke: 0.25, velocity: 1.2, force: 1.8e6, deceleration: 20.0}
    elastic_limit: 0.04
    stiffness: 7.6e6
    stiffness_known_to: 0.03
    small_move: {displacement: 1.0e-3, velocity: 20.0e-3, force: 30.0e3}
    unloading: {travel: 0.05, velocity: 5.0e-3}
"""


@pytest.fixture
def walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Walk]]:
    """Makes a walk of a scenario on the bench, with overrides; ``rig``: (what, in its place) of the rig file."""
    sent: list[float] = []
    write = Simulator.write

    def spy(self: Simulator, command: Command) -> None:
        if real and self is real[0]:
            sent.append(float(command.command[0]))
        write(self, command)

    monkeypatch.setattr(Simulator, "write", spy)
    real: list[Any] = []
    made: list[Walk] = []

    def make(*sets: str, rig: tuple[str, str] = ("", ""), name: str = "chen_ricles_2010") -> Walk:
        file = tmp_path / "bench.yaml"
        file.write_text(RIG.replace(*rig))
        found = Walk(files.load(name, ["duration=0.5", *sets], rig=str(file)), sent)
        found.scenario_file = str(file)
        sent.clear()
        real[:] = [found.session.drive.port]
        made.append(found)
        return found

    yield make
    for each in made:
        each.session.close()
