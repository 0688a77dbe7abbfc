# SPDX-License-Identifier: Apache-2.0
"""The file of a commissioning: what was written is read again, a changed one is refused with path and words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from commissioned import commissioned
from messages import mentions, naming

from rths_nodes.analysis.report.commissioning import render
from rths_nodes.app.cli import main
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.commissioning import FAILED, KILLED, NOT_TRIED, VOID, AxisHardware, CommissioningRow
from rths_nodes.loop.scenario import files
from rths_nodes.recording import commissioning


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = commissioning.beside(tmp_path / "frame.yaml")
    commissioning.write(commissioned(files.load("chen_ricles_2010", rig="bench_udp")), place)
    return place


def test_what_was_written_is_read_again(path: Path) -> None:
    assert path.name == "frame.commissioned.yaml"
    found = commissioning.of_rig(path.with_name("frame.yaml"))
    assert found is not None
    assert found.rig_hash == commissioned(files.load("chen_ricles_2010", rig="bench_udp")).rig_hash
    assert [row.verdict for row in found.rows] == ["passed"] * 9
    assert "operator: A. Tester\nsecond_person: B. Müller\n" in path.read_text()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_rig_without_one_has_none(tmp_path: Path) -> None:
    assert commissioning.of_rig(tmp_path / "frame.yaml") is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("version: 1", "version: 2"), ("version", "2", "1")),
        (("rig_hash:", "rig_hush:"), ("unknown", "rig_hush", "rig_hash")),
        (("operator: A. Tester\n", ""), ("operator", "missing")),
        (
            ("  verdict: passed", "  verdict: fine"),
            ("rows[0].verdict", "fine", "passed", "failed", "not tried"),
        ),
        (("\n...\n", "\n"), ("damaged", "end", "missing")),
        (("rows:\n- cause", "rows:\n- case"), ("rows[0].case", "case", "unknown")),
    ],
)
def test_a_wrong_one_is_refused_by_its_path(path: Path, change: tuple[str, str], words: tuple[str, ...]) -> None:
    assert change[0] in path.read_text()
    path.write_text(path.read_text().replace(*change, 1))
    with pytest.raises(ConfigError) as refused:
        commissioning.read(path)
    assert mentions(str(refused.value), *words)
    assert all(line.startswith(str(path)) for line in refused.value.problems)


def test_where_it_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=naming("commissioning", "written")):
        commissioning.write(
            commissioned(files.load("chen_ricles_2010", rig="bench_udp")), tmp_path / "file" / "a.yaml"
        )


OF_0_9_0 = """\
# What the commissioning of this rig has found, before any specimen: written by rths commission, not to be
# edited. It holds for 12 months, and for the port, channels, limits and receiver that it was made with.
version: 1
rig: bench
rig_hash: a61fe3098ba53927
build: b1
port: udp
operator: A. Tester
second_person: B. Müller
date: '2029-12-01T12:00:00+01:00'
versions: {}
rows:
- cause: signs and cables
  what: north
  stated: 1 mm
  measured: 0.9 mm
  verdict: passed
- cause: limit of velocity
  what: north
  stated: 1 mm
  measured: 0.9 mm
  verdict: passed
...
"""
"""A file as version 0.9.0 wrote it, with two of its rows."""


def test_a_file_of_0_9_0_is_read_and_printed(tmp_path: Path) -> None:
    (tmp_path / "bench.commissioned.yaml").write_text(OF_0_9_0)
    found = commissioning.of_rig(tmp_path / "bench.yaml")
    assert found is not None
    assert found.counts == "2 rows: 2 passed, 0 failed, 0 not tried, 0 witnessed"
    assert (found.valid_until, found.unsigned, found.rows[0].speed) == ("2030-12-01", False, "")
    assert main(["report", str(tmp_path / "bench.commissioned.yaml")]) == 0
    page = (tmp_path / "bench.commissioned.html").read_text()
    assert "PASSED" in page
    assert "DRAFT" not in page


def test_the_sheet_names_hardware_trials_validity_and_persons() -> None:
    found = commissioned(files.load("chen_ricles_2010", rig="bench_udp"), date="2029-12-01T12:00:00+01:00")
    found.axes = {"north": AxisHardware("Moog D765, no. 1187", "HBM U10M, no. 55", "Temposonics, no. 88")}
    found.rows.append(CommissioningRow("limit of force", "north", "1 kN", "no specimen", NOT_TRIED))
    found.proves = {KILLED: "stops alone"}
    page = render(found)
    for words in ("Moog D765, no. 1187", "no. 55", "no. 88", "2030-12-01", "b1", found.rig_hash, "B. Müller"):
        assert words in page
    assert "10 rows: 9 passed, 0 failed, 1 not tried, 0 witnessed" in page
    assert "stops alone" in page
    assert all(change in page for change in VOID)


def test_the_rows_of_a_sheet_are_grouped_by_cause() -> None:
    found = commissioned(files.load("chen_ricles_2010", rig="bench_udp"))
    found.rows += [replace(found.rows[0], what="second"), replace(found.rows[1], what="third")]
    page = render(found)
    causes = [row.cause.capitalize() for row in found.rows[:2]]
    assert all(page.count(f">{cause}<") == 1 for cause in causes)
    assert page.index(causes[0]) < page.index(">second<") < page.index(causes[1]) < page.index(">third<")


@pytest.mark.parametrize(
    ("change", "badge", "draft"),
    [({}, "PASSED", False), ({"second_person": ""}, "DRAFT", True), ({"operator": "b. müller"}, "DRAFT", True)],
)
def test_an_unsigned_sheet_is_a_draft(change: dict[str, str], badge: str, draft: bool) -> None:
    found = replace(commissioned(files.load("chen_ricles_2010", rig="bench_udp")), **change)
    page = render(found)
    assert f'">{badge}</span>' in page
    assert mentions(page, "DRAFT:", "two persons") is draft
    found.rows[0].verdict = FAILED
    assert '">FAILED</span>' in render(found)


def test_an_emulated_rig_is_not_commissioned_by_its_sheet() -> None:
    found = commissioned(files.load("chen_ricles_2010", rig="bench_udp"))
    found.rig_kind = "EMULATED"
    assert mentions(render(found), "EMULATED: no steel")
