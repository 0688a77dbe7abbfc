# SPDX-License-Identifier: Apache-2.0
"""Test of the report on a recording against the report on the run itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

import rths_nodes
from rths_nodes.analysis.report.document import write_report
from rths_nodes.app import hosts
from rths_nodes.loop.scenario import files
from rths_nodes.recording.run import Run

pytestmark = pytest.mark.nodes


def sections(run: Run | None, file: Path) -> dict[str, str]:
    """Sections of the report on ``run`` by title, except those about the host."""
    assert run is not None
    write_report(run, file)
    matches = re.findall(r"<section><h2>(.*?)</h2>(.*?)</section>", file.read_text(encoding="utf-8"), re.DOTALL)
    # ids are hashes of layout coordinates, whose last bits depend on the order of the solver
    ids = re.compile(r"(?<=[#\"])[pm][0-9a-f]{10}\b")
    return {title: ids.sub("", text) for title, text in matches if title not in ("Timing", "Test")}


def test_report_on_recording_equals_report_on_run(tmp_path: Path) -> None:
    loaded = files.load("phillips_spencer_2012", ["duration=1"], "f")
    live = hosts.run(loaded, record=tmp_path / "embedded")
    expected = sections(live.run, tmp_path / "live.html")
    floor = "Error and floor of the sensor"
    parameters = "Parameters that differ from their defaults"
    assert list(expected) == ["Figures", "Indices", floor, "Limits", "Set-up", parameters]
    assert any("svg" in text for text in expected.values())
    hosts.run(loaded, host="composed", record=tmp_path / "composed", keep=False)
    for host in ("embedded", "composed"):
        assert sections(rths_nodes.read(tmp_path / host), tmp_path / f"{host}.html") == expected, host
