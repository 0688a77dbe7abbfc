# SPDX-License-Identifier: Apache-2.0
"""The disk space that ``rths check`` prints is that of the recording."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

import rths_nodes
from rths_nodes.app.cli import main
from rths_nodes.recording import bag


@pytest.mark.parametrize("name", ["chen_ricles_2010", "three_independent_axes"])
def test_check_prints_the_size_of_the_journal(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    close = bag.Writer.close

    def measured(self: bag.Writer, information: Mapping[str, str]) -> None:
        self.flush()
        sizes.append(self.path.stat().st_size)
        close(self, information)

    monkeypatch.setattr(bag.Writer, "close", measured)
    rths_nodes.run(name, ["duration=4"], record=tmp_path / "run")
    assert main(["check", name, "--set", "duration=4"]) == 0
    found = re.search(r"recording: ([\d.]+) MB", capsys.readouterr().out)
    assert found
    assert float(found[1]) == pytest.approx(1e-6 * sizes[0], rel=0.05)
