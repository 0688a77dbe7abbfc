# SPDX-License-Identifier: Apache-2.0
"""A rig of the port simulator, with perfect channels, and a session that walks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rig_walk import RIG, Walk

from rths_nodes.core.samples import Command
from rths_nodes.laboratory.ports.simulator import Simulator
from rths_nodes.loop.scenario import files


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

    def make(*sets: str, rig: tuple[str, str] = ("", ""), name: str = "chen_ricles_2010", **further: Any) -> Walk:
        file = tmp_path / "bench.yaml"
        file.write_text(RIG.replace(*rig))
        found = Walk(files.load(name, ["duration=0.5", *sets], rig=str(file)), sent, **further)
        found.scenario_file = str(file)
        sent.clear()
        real[:] = [found.session.drive.port]
        made.append(found)
        return found

    yield make
    for each in made:
        each.session.close()
