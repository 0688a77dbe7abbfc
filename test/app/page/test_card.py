# SPDX-License-Identifier: Apache-2.0
"""The operator's card says what the procedure says, and is one printed page."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from page_of_test import CHROMIUM

from rths_nodes.core.resources import PACKAGE
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.session import ACTS

CARD = Path(__file__).resolve().parents[3] / PACKAGE / "app" / "page" / "static" / "card.html"


def first_column(table: str) -> list[str]:
    text = CARD.read_text(encoding="utf-8")
    found = re.search(rf'<table id="{table}">.*?</table>', text, re.S)
    assert found
    return ["".join(cell.itertext()) for cell in ElementTree.fromstring(found[0]).iter("th")]


def test_it_has_every_state_and_every_act() -> None:
    assert sorted(first_column("states")) == sorted(state.name for state in State)
    acts = [act for cell in first_column("acts") for act in cell.split(", ")]
    assert acts == [act.replace("_", " ") for act in ACTS]


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed here")
def test_it_is_printed_on_one_page(tmp_path: Path) -> None:
    printed = tmp_path / "card.pdf"
    how = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}")
    subprocess.run([str(CHROMIUM), *how, f"--print-to-pdf={printed}", CARD.as_uri()], check=True, timeout=60.0)
    assert len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes())) == 1
