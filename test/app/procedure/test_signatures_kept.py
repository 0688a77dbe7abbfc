# SPDX-License-Identifier: Apache-2.0
"""What an operator signs for on a real rig, is signed for in later tests on the same rig file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import rig_walk
from rig_runner import referenced

from rths_nodes.app.procedure import signatures
from rths_nodes.app.procedure.ladder import Ladder
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner
from rths_nodes.laboratory.ports.simulator import Simulator
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.scenario import files

BOUNDED = rig_walk.RIG.replace("deceleration: 20.0}", "deceleration: 20.0, tracking_error: 0.02}")
NOISE = ["axes.story_1.sensors.displacement_noise_rms=2e-6", "axes.story_1.sensors.force_noise_rms=50"]


def wanting(folder: Path, rig: Path, sets: Sequence[str] = ()) -> list[str]:
    """Signs for what a test of ``rig`` in ``folder`` wants before its check; the names."""
    scenario = files.load("chen_ricles_2010", ["duration=0.3", *NOISE, *sets], rig=rig)
    record = ProcedureRecord("test", scenario.name, "", operator="A. Tester")
    runner = ProcedureRunner(Ladder(scenario, ("g",), 0.3, 2, False), record, folder)
    try:
        with signatures.kept(runner, str(rig), lambda words: pytest.fail(str(words))):
            referenced(runner)
            names = runner.session.clearance.unsigned()
            for name in names:
                runner.do("sign_for", what=name)
    finally:
        runner.session.close()
    return names


def test_a_caution_is_signed_for_once_for_each_rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulator, "simulated", False)
    rig = tmp_path / "bench.yaml"
    rig.write_text(BOUNDED)
    first = wanting(tmp_path / "first", rig)
    assert "never_calibrated: axes.story_1.rig_axis.force.calibrated" in first
    assert wanting(tmp_path / "second", rig) == []
    rig.write_text(BOUNDED.replace("range: 2000.0", "range: 2100.0"))
    assert wanting(tmp_path / "third", rig) == first, "it is another rig now"


def test_a_small_margin_of_the_delay_is_signed_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first order actuator with 102.7 ms has a margin of 1.5 % without damping in the specimen."""
    monkeypatch.setattr(Simulator, "simulated", False)
    rig = tmp_path / "bench.yaml"
    rig.write_text(BOUNDED)
    assert "delay_margin: stability" not in wanting(tmp_path / "ample", rig)
    sets = ["compensator.type=none", "axes.story_1.specimen.damping=0"]
    assert wanting(tmp_path / "small", rig, sets) == ["delay_margin: stability"]
