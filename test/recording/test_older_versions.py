# SPDX-License-Identifier: Apache-2.0
"""Files of released versions are read, and mean what they meant (doc/stability.md).

``version_X`` has the scenarios that the version came with, and the first quarter of a second of one of them as it
recorded it. A released version adds its own: no file is ever made anew.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

import rths_nodes
from rths_nodes.app.cli import main
from rths_nodes.recording.run import Run

FOLDERS = sorted(Path(__file__).parent.glob("version_*"))
SCENARIOS = [path for folder in FOLDERS for path in folder.glob("*.yaml") if path.name != "metadata.yaml"]
ROUNDING = 1e-11
"""Of the peak of a history: what a change of the order of sums may make of it in this time."""


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def old(request: pytest.FixtureRequest) -> Run:
    return rths_nodes.read(request.param)


def test_there_is_something_to_read() -> None:
    assert Path(__file__).with_name("version_0_1_0") in FOLDERS
    assert len(SCENARIOS) >= 2


def test_an_old_recording_is_whole(old: Run) -> None:
    assert (old.outcome, old.notes) == ("finished", ())
    assert len(old.time) == int(old.information["samples"]) > 0
    assert all(np.isfinite(values).all() for values in old.arrays().values())
    assert old.metrics["axes"].keys() == old.scenario.axes.keys()


def test_the_test_of_an_old_recording_has_its_histories_today(old: Run) -> None:
    """Its own text of the scenario, run by this version: equal but for rounding."""
    mine = rths_nodes.run(old.scenario).arrays()
    for name, values in old.arrays().items():
        peak = np.abs(values).max(initial=0.0)
        np.testing.assert_allclose(mine[name], values, rtol=0.0, atol=ROUNDING * peak, err_msg=name)


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_old_scenario_runs(file: Path) -> None:
    assert yaml.safe_load(file.read_text(encoding="utf-8"))["version"] == 1
    run = rths_nodes.run(file, ["duration=0.5"])
    assert run.outcome == "finished"
    assert run.scenario.name == file.stem


def test_there_is_a_page_of_an_old_recording(old: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder,) = (folder for folder in FOLDERS if old.information["version"] in folder.name.replace("_", "."))
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert main(["report", str(copy), "--out", str(tmp_path / "page.html")]) == 0, capsys.readouterr().err
    assert old.information["version"] in (tmp_path / "page.html").read_text(encoding="utf-8")
