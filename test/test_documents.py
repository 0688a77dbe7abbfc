# SPDX-License-Identifier: Apache-2.0
"""Tests of the documents against the code: files, names, tests, links, printed output, the notebook."""

from __future__ import annotations

import ast
import doctest
import json
import math
import os
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
from rths_nodes.app.results import Run

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "doc").glob("*.md"), ROOT / "benchmarks" / "README.md"])
"""Pages written by hand; those in ``doc/parameters`` and ``doc/reference`` are generated."""
NOTEBOOK = ROOT / "examples" / "tour.ipynb"
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)")

every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)


@cache
def definitions(file: Path) -> set[str]:
    """Names that a module defines at the top, and ``Class.name`` for the definitions within its classes."""
    names: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        names.update(targets(node))
        if isinstance(node, ast.ClassDef):
            names.update(f"{node.name}.{name}" for entry in ast.walk(node) for name in targets(entry))
    return names


def targets(node: ast.AST) -> Iterator[str]:
    """Names that a statement binds."""
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        yield node.name
    elif isinstance(node, ast.Assign):
        yield from (name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def test_code_and_tests_on_papers_page_exist() -> None:
    missing, files = [], {path.name: path for path in (ROOT / "test").rglob("test_*.py")}
    for row in re.findall(r"^\|.*\.py.*$", (ROOT / "doc" / "papers.md").read_text(), re.M):
        for path, name in re.findall(r"`([a-z_]+(?:/[a-z_0-9]+)+\.py)`(?: `([A-Za-z_][\w.]*)`)?", row):
            file = next((top / path for top in (ROOT / "rths_nodes", ROOT) if (top / path).is_file()), None)
            if file is None or (name and name not in definitions(file)):
                missing.append(f"{path} {name}")
        test_file = ""
        for path, name in re.findall(r"`(test_\w+\.py)?(?:::(test_\w+))?`", row):
            test_file = path or test_file
            if test_file and (test_file not in files or (name and name not in definitions(files[test_file]))):
                missing.append(f"{test_file}::{name}")
    assert missing == []


def toctree_pages(page: Path) -> list[str]:
    """Pages that the ``toctree`` blocks of a page list, with or without a title."""
    blocks = re.findall(r"```{toctree}\n(.*?)```", page.read_text(), re.S)
    lines = [line for block in blocks for line in block.splitlines() if not line.startswith(":")]
    return [re.sub(r"^.*<(.*)>$", r"\1", line) for line in lines]


def test_every_page_is_in_index() -> None:
    doc = ROOT / "doc"
    listed = [name for page in ("index", "parameters", "reference") for name in toctree_pages(doc / f"{page}.md")]
    pages = [path for path in doc.rglob("*.*") if path.suffix in (".md", ".rst") and path.name != "index.md"]
    assert sorted(listed) == sorted(str(path.relative_to(doc).with_suffix("")) for path in pages)


def test_project_folder_lists_top_level_pages() -> None:
    """``doc/conf.py`` replaces each file in ``doc/project`` by the top-level file of the same name."""
    names = {path.name for path in (ROOT / "doc" / "project").iterdir()}
    assert names == {*(path.name for path in ROOT.glob("*.md")), "CHANGELOG.rst"}


def test_every_diagram_has_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "doc")
    import draw

    names = {name for name, _ in draw.diagrams()}
    assert len(names) >= 4
    assert names == {path.name for path in draw.PICTURES.iterdir()}, "python doc/draw.py MERMAID_JS"
    for path in draw.PICTURES.iterdir():
        text = path.read_text(encoding="utf-8")
        assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
        assert not re.search(r"https?://(?!www\.w3\.org/)|<script|@import|foreignObject", text)


def test_package_of_components_page_installs_next_to_runs(tmp_path: Path) -> None:
    """Setuptools searches the working folder if the project lists no packages."""
    page = (ROOT / "doc" / "components.md").read_text()
    code, project = (re.findall(rf"```{kind}\n(.*?)```", page, re.S)[0] for kind in ("python", "toml"))
    assert "(`feedforward/component.py`)" in page
    for folder in ("feedforward", "runs/chen_ricles_2010"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "feedforward" / "__init__.py").touch()
    (tmp_path / "feedforward" / "component.py").write_text(code)

    def build(text: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "pyproject.toml").write_text(text)
        options = ["--no-index", "--no-build-isolation", "--no-deps", "--wheel-dir", "wheels"]
        command = [sys.executable, "-m", "pip", "wheel", *options, "."]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    result = build(project)
    assert result.returncode == 0, result.stderr
    (wheel,) = (tmp_path / "wheels").iterdir()
    assert "feedforward/component.py" in zipfile.ZipFile(wheel).namelist()
    assert mentions(build(project.partition("[tool.setuptools]")[0]).stderr, "Multiple", "top-level")


@every_document
def test_links_have_targets(document: Path) -> None:
    dead = []
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", document.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        page = document.parent / target if target else document
        if not page.exists() or (anchor and page.suffix == ".md" and anchor not in anchors(page)):
            dead.append(f"{target}#{anchor}")
    assert dead == []


def anchors(document: Path) -> set[str]:
    """Anchors that GitHub makes from the headings of a Markdown document."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@every_document
def test_table_rows_have_as_many_cells_as_header(document: Path) -> None:
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.M | re.S)
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        table = block.splitlines()
        assert re.fullmatch(r"\|(?: *:?-+:? *\|)+", table[1] if len(table) > 1 else ""), table[0]
        # no separators: bars in code and escaped bars
        bars = [re.sub(r"`[^`]*`|\\\|", "", row).count("|") for row in table]
        assert [row for row, count in zip(table, bars, strict=True) if count != bars[0]] == []


def transcripts() -> Iterator[Any]:
    """Commands and printed output of each ``console`` block of the documents."""
    for document in DOCUMENTS:
        for number, block in enumerate(re.findall(r"^```console\n(.*?)^```", document.read_text(), re.M | re.S)):
            parts = re.split(r"^\$ (.*)\n", block, flags=re.M)[1:]
            pairs = list(zip(parts[::2], parts[1::2], strict=True))
            yield pytest.param(pairs, id=f"{document.stem}-{number}")


@pytest.mark.parametrize("commands", transcripts())
def test_command_prints_documented_output(
    commands: list[tuple[str, str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """``...`` replaces text that was left out or changes from run to run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    for command, expected in commands:
        program, *arguments = shlex.split(command)
        assert program == "rths"
        main(arguments)
        out, err = capsys.readouterr()
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert doctest.OutputChecker().check_output(expected, out + err, flags), out + err


def test_files_on_security_page_exist() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    names = [name for name in re.findall(r"`([\w/.]+)`", text) if "/" in name or name.endswith(".py")]
    assert len(names) >= 8
    for name in names:
        assert (ROOT / name).exists() or (ROOT / "test/app/procedure" / name).exists(), name


# The notebook examples/tour.ipynb


def code_cells() -> list[dict[str, Any]]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def outputs(cell: Any) -> list[tuple[str, str]]:
    """Kind and text of the outputs of a cell; a picture has its kind only, and successive texts are joined.

    Left out is stderr, where the estimated duration of a command depends on the machine.
    """
    parts: list[tuple[str, str]] = []
    for output in cell["outputs"]:
        data = output.get("data", {})
        kind = "picture" if "image/png" in data else "error" if output["output_type"] == "error" else "text"
        text = "".join(output.get("text", data.get("text/plain", "")))
        if output.get("name") == "stderr":
            continue
        if kind == "text" and parts and parts[-1][0] == kind:
            parts[-1] = kind, parts[-1][1] + text
        else:
            parts.append((kind, text))
    return parts


def test_tour_is_stored_as_run() -> None:
    assert NOTEBOOK.stat().st_size < 300_000, "keep the pictures small"
    cells = code_cells()
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), "from top to bottom"
    kinds = [kind for cell in cells for kind, _ in outputs(cell)]
    assert kinds.count("picture") >= 3
    assert "error" not in kinds
    assert not any(output.get("name") == "stderr" for cell in cells for output in cell["outputs"])
    assert all(cell["outputs"] for cell in cells[1:])
    assert not re.search(r"/(home|tmp|root|work)/", NOTEBOOK.read_text(encoding="utf-8"))


def test_tour_uses_only_python_api() -> None:
    text = "".join("".join(cell["source"]) for cell in code_cells())
    assert re.findall(r"^(?:import|from) ([\w.]+)", text, re.M) == ["matplotlib.pyplot", "numpy", "rths_nodes"]
    functions = {"run", "read", "overlay", "stability", "identify", "study", "estimate"}
    assert set(re.findall(r"rths_nodes\.(\w+)\(", text)) == functions
    page = (ROOT / "doc" / "commands.md").read_text(encoding="utf-8")
    assert {*re.findall(r"\brun\.(\w+)", page)} <= {*dir(Run), *Run.__dataclass_fields__}
    assert not re.search(r"^\s*[!%](?!matplotlib inline)", text, re.M), "no command of the shell"


def test_identification_of_tour_has_small_error() -> None:
    text = "".join(text for cell in code_cells() for _, text in outputs(cell) if "fit error" in text)
    for pattern in (r"fit error (\S+) %", r"identified_inverse: finished, error norm (\S+) %"):
        (error,) = re.findall(pattern, text)
        assert float(error) < 5.0


@pytest.mark.timeout(600)
def test_tour_reproduces_its_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words exactly, numbers to six digits."""
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed here")
    client = pytest.importorskip("nbclient", reason="nbclient is not installed here")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed here")
    pytest.importorskip("pandas", reason="pandas is not installed here")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOK, 4)
    (tmp_path / "run").mkdir()
    resources = {"metadata": {"path": str(tmp_path / "run")}}
    client.NotebookClient(notebook, timeout=500, coalesce_streams=True, resources=resources).execute()
    repeated = [cell for cell in notebook.cells if cell["cell_type"] == "code"]
    for stored, cell in zip(code_cells(), repeated, strict=True):
        for (kind, text), (new_kind, new_text) in zip(outputs(stored), outputs(cell), strict=True):
            assert new_kind == kind
            assert without_numbers(new_text) == without_numbers(text)
            numbers = zip(NUMBER.findall(text), NUMBER.findall(new_text), strict=True)
            assert all(math.isclose(float(a), float(b), rel_tol=1e-6, abs_tol=1e-9) for a, b in numbers), new_text


def without_numbers(text: str) -> list[str]:
    """Words of a text. The rules of tables are left out, because numbers determine their width."""
    return re.sub(r"[─━\s]+", " ", NUMBER.sub("#", text)).split()
