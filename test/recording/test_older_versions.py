# SPDX-License-Identifier: Apache-2.0
"""Tests of files of released versions, which keep their meaning (doc/stability.md).

``version_X`` contains the scenarios of version X, and the first quarter of a second of one of them as recorded
by it. Each release adds its own folder; existing files are never regenerated.

``procedure_0_9_0``: a test of version 0.9.0 with two roles, consents and a mandate: ``sdof_by_iteration`` for
1.5 s at 128 Hz, on a simulator of ``bench_small_udp`` whose rig file had ``roles``; rung g, the act ``mandate``,
two runs of rung h. The recording of the last run was removed.

``learning_0_9_0``: a test of version 0.9.0 with learning copies: ``chen_ricles_2010`` with an absorber and
``updating.mode: used`` for 1.3 s on a simulated rig; rungs e and g, the act ``freeze`` at sample 700 of rung g.
The recording of rung e was removed.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from messages import mentions

import rths_nodes
from rths_nodes.app.cli import main
from rths_nodes.app.procedure.procedure_runner import update_specimen
from rths_nodes.core.samples import FLAG_FROZEN
from rths_nodes.recording import procedure, signatures
from rths_nodes.recording.run import Run

HERE = Path(__file__).parent
FOLDERS = sorted(HERE.glob("version_*"))
SCENARIOS = [path for folder in FOLDERS for path in folder.glob("*.yaml") if path.name != "metadata.yaml"]
ROUNDING = 1e-11
"""Effect of another order of sums during this time, relative to the peak of a history."""


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def old(request: pytest.FixtureRequest) -> Run:
    return rths_nodes.read(request.param)


def test_folders_contain_files() -> None:
    assert HERE / "version_0_1_0" in FOLDERS
    assert len(SCENARIOS) >= 2


def test_old_recording_is_complete(old: Run) -> None:
    assert (old.outcome, old.notes) == ("finished", ())
    assert len(old.time) == int(old.information["samples"]) > 0
    assert all(np.isfinite(values).all() for values in old.arrays().values())
    assert old.metrics["axes"].keys() == old.scenario.axes.keys()


def test_recorded_scenario_reproduces_histories(old: Run) -> None:
    histories = rths_nodes.run(old.scenario).arrays()
    for name, values in old.arrays().items():
        peak = np.abs(values).max(initial=0.0)
        np.testing.assert_allclose(histories[name], values, rtol=0.0, atol=ROUNDING * peak, err_msg=name)


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_old_scenario_runs(file: Path) -> None:
    assert yaml.safe_load(file.read_text(encoding="utf-8"))["version"] == 1
    run = rths_nodes.run(file, ["duration=0.5"])
    assert (run.outcome, run.scenario.name) == ("finished", file.stem)


def test_old_recording_has_report(old: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder,) = (folder for folder in FOLDERS if old.information["version"] in folder.name.replace("_", "."))
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert main(["report", str(copy), "--out", str(tmp_path / "page.html")]) == 0, capsys.readouterr().err
    assert old.information["version"] in (tmp_path / "page.html").read_text(encoding="utf-8")


# -- A test of 0.9.0 with roles and a mandate


def report(*recordings: Path) -> str:
    page = recordings[0].parent / "report.html"
    assert main(["report", *map(str, recordings), "--out", str(page)]) == 0
    return page.read_text()


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Folder of the test."""
    shutil.unpack_archive(HERE / "procedure_0_9_0.tar.xz", tmp_path)
    return tmp_path / "test_of_0.9.0"


def test_record_with_removed_acts_and_rungs_is_read(stored: Path) -> None:
    record = procedure.read(stored)
    assert {"consent", "withdraw", "mandate"} <= {act.act for act in record.acts}
    assert [(rung.name, rung.run) for rung in record.rungs] == [("g", 0), ("h", 2), ("h", 3)]
    (mandate,) = record.mandates
    assert record.rungs[1].mandate == mandate["hash"]
    assert [row["number"] for row in mandate["rows"]] == [1, 2, 3]
    assert procedure.last_moving(stored) == stored / "rung_h"
    record.port, record.simulated = "udp", ""  # as on a real rig
    assert update_specimen(record, record.rungs[1])
    assert record.specimen.history[0]["rung"] == "h"


def test_report_shows_mandate_runs_and_removed_acts(stored: Path) -> None:
    text, (mandate,) = report(stored / "rung_h"), procedure.read(stored).mandates
    assert mandate["hash"] in text
    assert mentions(text, "Runs", "mandate")
    assert mandate["ended"] in text
    assert mentions(text, "R. Sponsible", "consents")
    assert "withdraw" in text


def test_runs_are_compared(stored: Path) -> None:
    assert report(stored / "rung_g", stored / "rung_h").startswith("<!DOCTYPE html>")


def test_rig_file_with_roles_is_read(stored: Path) -> None:
    rig_file = rths_nodes.read(stored / "rung_g").scenario.rig_file
    assert (rig_file.name, rig_file.two_persons) == ("bench_small_udp", False)


def test_signatures_of_two_roles_are_read(tmp_path: Path) -> None:
    (tmp_path / "bench.signed.yaml").write_text(
        "version: 1\nrig_hash: abc\nsignatures:\n"
        "- {caution: a caution, by: A. Tester, date: '2026-11-28', responsible: R. Sponsible}\n...\n"
    )
    (signature,) = signatures.of_rig(tmp_path / "bench.yaml", "abc").values()
    assert mentions(str(signature), "A. Tester", "R. Sponsible", "2026-11-28")


# -- A test of 0.9.0 with learning copies


@pytest.fixture
def learning(tmp_path: Path) -> Path:
    """Folder of the test."""
    shutil.unpack_archive(HERE / "learning_0_9_0.tar.xz", tmp_path)
    return tmp_path / "test_of_0.9.0"


def test_estimates_are_constant_in_frozen_samples(learning: Path) -> None:
    run = rths_nodes.read(learning / "rung_g")
    assert [act.act for act in procedure.read(learning).acts][-4:] == ["run", "freeze", "unload", "finish"]
    assert np.flatnonzero(run.flags & FLAG_FROZEN).tolist() == [*range(701, len(run.time))]
    assert run.updating.shape == (134, 10)
    estimates = run.updating[:, :2]
    frozen = run.updating_time * run.scenario.servo_rate >= 720
    assert np.ptp(estimates[~frozen], axis=0).min() > 0.0
    assert np.ptp(estimates[frozen], axis=0).max() == 0.0
    assert run.scenario.updating.mode == "used"


def test_report_shows_frozen_samples_and_act(learning: Path) -> None:
    text = report(learning / "rung_g")
    assert mentions(text, "640 with frozen copies")
    assert mentions(text, "frozen", "operator", "sample 701")
    assert mentions(text, ">freeze<", "done")


def test_estimate_leaves_out_frozen_samples(learning: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--for", "updating", "--model", "bouc_wen", "--json"]
    assert main(["estimate", str(learning / "rung_g"), *options]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == {"learnt from": 71, "flagged": 64}
