# SPDX-License-Identifier: Apache-2.0
"""The file of a commissioning: what was written is read again, a changed one is refused with path and words."""

from __future__ import annotations

from pathlib import Path

import pytest
from commissioned import commissioned
from messages import mentions, naming

from rths_nodes.core.errors import ConfigError
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
