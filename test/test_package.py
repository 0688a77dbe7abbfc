# SPDX-License-Identifier: Apache-2.0
"""What the package says of itself is true: licence, version, maintainer, dependencies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LICENCE = "SPDX-License-Identifier: Apache-2.0"
FOLDERS = (
    *("action", "benchmarks", "config", "doc", "examples", "launch", "msg", "rths_nodes", "scripts", "srv", "test"),
    ".ci",
)
SOURCES = {".py", ".c", ".h", ".css", ".js", ".html", ".j2", ".msg", ".srv", ".action"}
NAMES = {"Makefile", "CMakeLists.txt"}
OTHERS = {"uPlot.iife.min.js", "uPlot.min.css"}
"""Sources of other projects, which stand here as they are, beside their licences."""


def sources() -> Iterator[Path]:
    """Every source file of the checkout; what is built and kept below it has other places."""
    for path in [*ROOT.iterdir(), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]:
        program = path.parent.name in ("scripts", ".ci")
        named = path.suffix in SOURCES or path.name in NAMES or (program and not path.suffix)
        if named and path.is_file() and path.name not in OTHERS and "_build" not in path.parts:
            yield path


def names_its_licence(path: Path) -> bool:
    """Look at the first two lines: a program begins with its interpreter, a page with its type."""
    return any(LICENCE in line for line in path.read_text(encoding="utf-8").splitlines()[:2])


def test_every_source_file_names_its_licence(tmp_path: Path) -> None:
    found = list(sources())
    assert {path.suffix for path in found} >= SOURCES
    assert [str(path.relative_to(ROOT)) for path in found if not names_its_licence(path)] == []
    (bare := tmp_path / "bare.py").write_text("import os\n")
    assert not names_its_licence(bare)


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_what_is_not_ours_has_its_licence_beside_it(name: str) -> None:
    (file,) = (ROOT / "rths_nodes").rglob(name)
    assert "MIT" in (file.parent / "uPlot.LICENSE").read_text(encoding="utf-8")
