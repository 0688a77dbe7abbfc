# SPDX-License-Identifier: Apache-2.0
"""Tests of signatures for cautions about a rig, which hold for later tests with the same rig file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import rig_walk
from messages import naming
from rig_runner import referenced

from rths_nodes.app.procedure.procedure_runner import Ladder, ProcedureRunner
from rths_nodes.core.errors import ConfigError
from rths_nodes.laboratory.ports.simulator import Simulator
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.scenario import files
from rths_nodes.recording import signatures

LONG = "port.silence = 10 s: port.longest_wait is 5 s"
OTHER = "port.silence = 20 s: port.longest_wait is 5 s"
BOUNDED = rig_walk.RIG.replace("deceleration: 20.0}", "deceleration: 20.0, tracking_error: 0.02}")
NOISE = ["axes.story_1.sensors.displacement_noise_rms=2e-6", "axes.story_1.sensors.force_noise_rms=50"]


def test_signature_holds_for_its_rig_only(tmp_path: Path) -> None:
    rig = tmp_path / "bench.yaml"
    signatures.add(rig, "c0ffee", {}, "A. Müller", "2026-06-01")
    assert list(tmp_path.iterdir()) == []
    assert signatures.of_rig(rig, "c0ffee") == {}
    signatures.add(rig, "c0ffee", {LONG: {}}, "A. Müller", "2026-06-01")
    signatures.add(rig, "c0ffee", {LONG: {}, OTHER: {}}, "B. Tester", "2026-06-02")
    assert {caution: str(signature) for caution, signature in signatures.of_rig(rig, "c0ffee").items()} == {
        LONG: "by A. Müller on 2026-06-01",
        OTHER: "by B. Tester on 2026-06-02",
    }
    assert signatures.of_rig(rig, "another") == {}
    signatures.add(rig, "another", {OTHER: {}}, "B. Tester", "2026-06-03")
    assert list(signatures.of_rig(rig, "another")) == [OTHER]


def test_damaged_file_or_missing_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bench.signed.yaml").write_text("version: 1\nrig_hash: 3\n")
    with pytest.raises(ConfigError, match=r"bench\.signed\.yaml"):
        signatures.of_rig(tmp_path / "bench.yaml", "c0ffee")
    with pytest.raises(ConfigError, match=naming("signatures", "written")):
        signatures.add(tmp_path / "gone" / "bench.yaml", "c0ffee", {LONG: {}}, "A. Müller", "2026-06-01")


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Simulator, "simulated", False)
    (tmp_path / "bench.yaml").write_text(BOUNDED)
    return tmp_path / "bench.yaml"


def sign_all(folder: Path, rig: Path, overrides: Sequence[str] = ()) -> list[str]:
    """Sign for everything that a test on ``rig`` requires before its check; return the names."""
    scenario = files.load("chen_ricles_2010", ["duration=0.3", *NOISE, *overrides], rig=rig)
    record = ProcedureRecord("test", scenario.name, "", operator="A. Tester")
    runner = ProcedureRunner(Ladder(scenario, ("g",), 0.3, 2, False), record, folder)
    try:
        with signatures.kept(runner.session, str(rig), lambda line: pytest.fail(str(line))):
            referenced(runner)
            names = runner.session.clearance.unsigned()
            for name in names:
                runner.do("sign_for", what=name)
    finally:
        runner.session.close()
    return names


def test_cautions_are_signed_for_once_per_rig(rig: Path, tmp_path: Path) -> None:
    first = sign_all(tmp_path / "first", rig)
    assert "never_calibrated: axes.story_1.rig_axis.force.calibrated" in first
    assert sign_all(tmp_path / "second", rig) == []
    rig.write_text(BOUNDED.replace("range: 2000.0", "range: 2100.0"))
    assert sign_all(tmp_path / "third", rig) == first, "another rig"


def test_small_delay_margin_needs_a_signature(rig: Path, tmp_path: Path) -> None:
    """The first order actuator with 102.7 ms has a margin of 1.5 % without damping in the specimen."""
    assert "delay_margin: stability" not in sign_all(tmp_path / "ample", rig)
    overrides = ["compensator.type=none", "axes.story_1.specimen.damping=0"]
    assert sign_all(tmp_path / "small", rig, overrides) == ["delay_margin: stability"]
