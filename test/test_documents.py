# SPDX-License-Identifier: Apache-2.0
"""What the documents say of the code is there: files, names, tests, links."""

from __future__ import annotations

import ast
import doctest
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from messages import mentions

from rths_nodes.app.cli import main

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "doc").glob("*.md"), ROOT / "benchmarks" / "README.md"])
"""Pages that people write; those of ``doc/parameters`` and ``doc/reference`` are made."""


@cache
def defined(file: Path) -> set[str]:
    """Names that a module defines at the top, and ``Class.name`` of what its classes define."""
    found: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        names = list(targets(node))
        found.update(names)
        if isinstance(node, ast.ClassDef):
            inner = [name for entry in ast.walk(node) for name in targets(entry)]
            found.update(f"{node.name}.{name}" for name in inner)
    return found


def targets(node: ast.AST) -> Iterator[str]:
    """The names that a statement binds."""
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        yield node.name
    elif isinstance(node, ast.Assign):
        yield from (name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def rows() -> list[str]:
    """The rows of tables in doc/papers.md that name code."""
    return [
        line for line in (ROOT / "doc" / "papers.md").read_text().splitlines() if re.search(r"^\|.*\.py", line)
    ]


def test_the_code_that_the_papers_page_names_is_there() -> None:
    missing = []
    for row in rows():
        for place, name in re.findall(r"`([a-z_]+(?:/[a-z_0-9]+)+\.py)`(?: `([A-Za-z_][\w.]*)`)?", row):
            file = next((top / place for top in (ROOT / "rths_nodes", ROOT) if (top / place).is_file()), None)
            if file is None or (name and name not in defined(file)):
                missing.append(f"{place} {name}")
    assert missing == []


def test_the_tests_that_the_papers_page_names_are_there() -> None:
    missing, files = [], {path.name: path for path in (ROOT / "test").rglob("test_*.py")}
    for row in rows():
        file = ""
        for given, name in re.findall(r"`(test_\w+\.py)?(?:::(test_\w+))?`", row):
            file = given or file
            if file and (file not in files or (name and name not in defined(files[file]))):
                missing.append(f"{file}::{name}")
    assert missing == []


def in_trees(page: Path) -> list[str]:
    """The pages that the trees of a page name, with or without a title of their own."""
    blocks = re.findall(r"```{toctree}\n(.*?)```", page.read_text(), re.S)
    lines = [line for block in blocks for line in block.splitlines() if not line.startswith(":")]
    return [re.sub(r"^.*<(.*)>$", r"\1", line) for line in lines]


def test_every_page_is_in_the_index() -> None:
    doc = ROOT / "doc"
    named = [name for page in ("index", "parameters", "reference") for name in in_trees(doc / f"{page}.md")]
    pages = [path for path in doc.rglob("*.*") if path.suffix in (".md", ".rst") and path.name != "index.md"]
    assert sorted(named) == sorted(str(path.relative_to(doc).with_suffix("")) for path in pages)


def test_the_pages_of_the_site_beside_its_folder_are_there() -> None:
    """``doc/conf.py`` puts the file of the same name there."""
    names = {path.name for path in (ROOT / "doc" / "project").iterdir()}
    assert names == {*(path.name for path in ROOT.glob("*.md")), "CHANGELOG.rst"}


def test_every_diagram_has_its_picture() -> None:
    sys.path.insert(0, str(ROOT / "doc"))
    try:
        import draw
    finally:
        sys.path.pop(0)
    wanted = {name for name, _ in draw.diagrams()}
    assert len(wanted) >= 4
    assert wanted == {path.name for path in draw.PICTURES.iterdir()}, "python doc/draw.py MERMAID_JS"
    for path in draw.PICTURES.iterdir():
        text = path.read_text(encoding="utf-8")
        assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
        assert not re.search(r"https?://(?!www\.w3\.org/)|<script|@import|foreignObject", text)


def test_the_package_of_the_components_page_installs_beside_its_runs(tmp_path: Path) -> None:
    """Setuptools looks for packages in the working folder where none are named."""
    page = (ROOT / "doc" / "components.md").read_text()
    code, project = (re.findall(rf"```{kind}\n(.*?)```", page, re.S)[0] for kind in ("python", "toml"))
    assert "(`feedforward/component.py`)" in page
    for folder in ("feedforward", "runs/chen_ricles_2010"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "feedforward" / "__init__.py").touch()
    (tmp_path / "feedforward" / "component.py").write_text(code)

    def build(text: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "pyproject.toml").write_text(text)
        words = ["wheel", "--no-index", "--no-build-isolation", "--no-deps", "--wheel-dir", "wheels", "."]
        command = [sys.executable, "-m", "pip", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    done = build(project)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "wheels").iterdir()
    assert "feedforward/component.py" in zipfile.ZipFile(wheel).namelist()
    assert mentions(build(project.partition("[tool.setuptools]")[0]).stderr, "Multiple", "top-level")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    text = document.read_text()
    dead = []
    for target in re.findall(r"\]\(([^)#\s]*)(?:#[^)]*)?\)", text):
        if target and not re.match(r"[a-z]+:", target) and not (document.parent / target).exists():
            dead.append(target)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", text):
        other = document.parent / target if target else document
        if other.suffix == ".md" and other.is_file() and anchor not in anchors(other):
            dead.append(f"{target}#{anchor}")
    assert dead == []


def tables(page: str) -> list[list[str]]:
    """The tables of a page, as lines; blocks of code are none."""
    text = re.sub(r"^```.*?^```", "", page, flags=re.M | re.S)
    return [block.splitlines() for block in re.findall(r"(?:^\|.*\n)+", text, re.M)]


def cells(row: str) -> int:
    """The number of cells of a row; a bar in code or behind a backslash divides none."""
    return len(re.sub(r"`[^`]*`|\\\|", "", row).split("|"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_row_of_a_table_has_the_cells_of_its_head(document: Path) -> None:
    for table in tables(document.read_text()):
        assert re.fullmatch(r"\|(?: *:?-+:? *\|)+", table[1] if len(table) > 1 else ""), table[0]
        assert [row for row in table if cells(row) != cells(table[0])] == []


def transcripts() -> list[Any]:
    """Every ``console`` block of the documents: its commands, each with what it is to print."""
    found = []
    for document in DOCUMENTS:
        for number, block in enumerate(re.findall(r"^```console\n(.*?)^```", document.read_text(), re.M | re.S)):
            parts = re.split(r"^\$ (.*)\n", block, flags=re.M)[1:]
            pairs = list(zip(parts[::2], parts[1::2], strict=True))
            found.append(pytest.param(pairs, id=f"{document.stem}-{number}"))
    return found


@pytest.mark.parametrize("commands", transcripts())
def test_a_command_prints_what_the_document_shows(
    commands: list[tuple[str, str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """``...`` stands for what changes from run to run, or was left out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    for command, shown in commands:
        program, *words = shlex.split(command)
        assert program == "rths"
        main(words)
        out, err = capsys.readouterr()
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert doctest.OutputChecker().check_output(shown, out + err, flags), out + err


def anchors(document: Path) -> set[str]:
    """The anchors of the headings of a Markdown document, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_files_that_say_how_something_is_defended_are_there() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    named = [name for name in re.findall(r"`([\w/.]+)`", text) if "/" in name or name.endswith(".py")]
    assert len(named) >= 8
    for name in named:
        assert (ROOT / name).exists() or (ROOT / "test/app/procedure" / name).exists(), name
