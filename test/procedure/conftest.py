# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the procedure: a session on a simulated rig with perfect channels."""

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
    """Makes a walk of a scenario on the bench, with overrides; ``rig``: old and new text of the rig file."""
    sent: list[float] = []
    walks: list[Walk] = []
    ports: list[Any] = []
    write = Simulator.write

    def spy(self: Simulator, command: Command) -> None:
        if ports and self is ports[-1]:
            sent.append(float(command.command[0]))
        write(self, command)

    monkeypatch.setattr(Simulator, "write", spy)

    def make(*sets: str, rig: tuple[str, str] = ("", ""), **further: Any) -> Walk:
        file = tmp_path / "bench.yaml"
        file.write_text(RIG.replace(*rig))
        w = Walk(files.load("chen_ricles_2010", ["duration=0.5", *sets], rig=str(file)), sent, **further)
        w.scenario_file = str(file)
        sent.clear()
        ports.append(w.session.drive.port)
        walks.append(w)
        return w

    yield make
    for w in walks:
        w.session.close()
