# SPDX-License-Identifier: Apache-2.0
"""Tests of version 0.9.0, with two roles, consents, a mandate, and copies that learn: read, reported and compared.

Made by 0.9.0: ``sdof_by_iteration`` for 1.5 s at 128 Hz, on a simulator of ``bench_small_udp`` whose rig file had
``roles``; rung g, the act ``mandate``, two runs of rung h. The recording of the last one was removed.

``learning_0_9_0``: ``chen_ricles_2010`` with an absorber and ``updating.mode: used`` for 1.3 s on a simulated rig;
rungs e and g, the act ``freeze`` at sample 700 of rung g. The recording of rung e was removed.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from messages import mentions

from rths_nodes.app.cli import main
from rths_nodes.app.procedure import signatures
from rths_nodes.app.procedure.ladder import update_specimen
from rths_nodes.core.samples import FLAG_FROZEN
from rths_nodes.recording import procedure
from rths_nodes.recording.reading import read_run

STORED = Path(__file__).with_name("procedure_0_9_0.tar.xz")
LEARNING = Path(__file__).with_name("learning_0_9_0.tar.xz")
SIGNED = """version: 1
rig_hash: abc
signatures:
- {caution: a caution, by: A. Tester, date: '2026-11-28', responsible: R. Sponsible}
...
"""


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Folder of the test."""
    shutil.unpack_archive(STORED, tmp_path)
    return tmp_path / "test_of_0.9.0"


def test_its_record_is_read_with_acts_and_rungs_that_are_gone(stored: Path) -> None:
    record = procedure.read(stored)
    assert {"consent", "withdraw", "mandate"} <= {act.act for act in record.acts}
    assert [(rung.name, rung.run) for rung in record.rungs] == [("g", 0), ("h", 2), ("h", 3)]
    (mandate,) = record.mandates
    assert record.rungs[1].mandate == mandate["hash"]
    assert [row["number"] for row in mandate["rows"]] == [1, 2, 3]
    assert procedure.last_moving(stored) == stored / "rung_h"


def test_its_report_shows_mandate_runs_and_acts_by_their_stored_names(stored: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert main(["report", str(stored / "rung_h"), "--out", str(page)]) == 0
    text, (mandate,) = page.read_text(), procedure.read(stored).mandates
    assert mandate["hash"] in text
    assert mentions(text, "Runs", "mandate")
    assert mandate["ended"] in text
    assert mentions(text, "R. Sponsible", "consents")
    assert "withdraw" in text


def test_its_runs_are_compared(stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "both.html"
    assert main(["report", str(stored / "rung_g"), str(stored / "rung_h"), "--out", str(page)]) == 0
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_rung_h_of_a_real_rig_is_in_the_history_of_its_specimen(stored: Path) -> None:
    record = procedure.read(stored)
    record.port, record.simulated = "udp", ""
    assert update_specimen(record, record.rungs[1])
    assert record.specimen.history[0]["rung"] == "h"


def test_signatures_of_two_roles_are_read(tmp_path: Path) -> None:
    (tmp_path / "bench.signed.yaml").write_text(SIGNED)
    (signature,) = signatures.of_rig(tmp_path / "bench.yaml", "abc").values()
    assert mentions(str(signature), "A. Tester", "R. Sponsible", "2026-11-28")


def test_its_scenario_is_read_without_the_roles_of_its_rig(stored: Path) -> None:
    head = read_run(stored / "rung_g").scenario.rig_file
    assert head is not None
    assert (head.name, head.two_persons) == ("bench_small_udp", False)


@pytest.fixture
def learning(tmp_path: Path) -> Path:
    """Folder of the test with copies that learn."""
    shutil.unpack_archive(LEARNING, tmp_path)
    return tmp_path / "test_of_0.9.0"


def test_what_copies_learnt_until_they_were_frozen_is_read(learning: Path) -> None:
    run = read_run(learning / "rung_g")
    assert [act.act for act in procedure.read(learning).acts][-4:] == ["run", "freeze", "unload", "finish"]
    assert np.flatnonzero(run.flags & FLAG_FROZEN).tolist() == [*range(701, len(run.time))]
    assert run.updating.shape == (134, 10)
    estimates = run.updating[:, :2]
    later = run.updating_time * run.scenario.servo_rate >= 720
    assert np.ptp(estimates[~later], axis=0).min() > 0.0
    assert np.ptp(estimates[later], axis=0).max() == 0.0
    assert run.scenario.updating.mode == "used"


def test_a_report_has_the_frozen_samples_and_the_act(learning: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert main(["report", str(learning / "rung_g"), "--out", str(page)]) == 0
    text = page.read_text()
    assert mentions(text, "640 with frozen copies")
    assert mentions(text, "frozen", "operator", "sample 701")
    assert mentions(text, ">freeze<", "done")


def test_copies_are_estimated_from_the_recording_without_frozen_samples(
    learning: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--for", "updating", "--model", "bouc_wen", "--json"]
    assert main(["estimate", str(learning / "rung_g"), *words]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == {"learnt from": 71, "flagged": 64}
