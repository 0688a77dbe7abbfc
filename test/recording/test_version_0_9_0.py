# SPDX-License-Identifier: Apache-2.0
"""A test of version 0.9.0, with two roles, consents and a mandate: it is read, reported and compared.

Made by 0.9.0: ``sdof_by_iteration`` for 1.5 s at 128 Hz, on a simulator of ``bench_small_udp`` whose rig file had
``roles``; rung g, the act ``mandate``, two runs of rung h. The recording of the last one was removed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from messages import mentions

from rths_nodes.app.cli import main
from rths_nodes.app.procedure import signatures
from rths_nodes.app.procedure.ladder import update_specimen
from rths_nodes.recording import procedure

STORED = Path(__file__).with_name("procedure_0_9_0.tar.xz")
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
    from rths_nodes.recording.reading import read_run

    head = read_run(stored / "rung_g").scenario.rig_file
    assert head is not None
    assert (head.name, head.two_persons) == ("bench_small_udp", False)
