# SPDX-License-Identifier: Apache-2.0
"""The notebook examples/tour.ipynb: its outputs are kept, and come out again."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parents[1] / "examples" / "tour.ipynb"
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)")
LARGEST = 300_000
"""Bytes of the file: pictures are small."""


def cells() -> list[dict[str, Any]]:
    found = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def outputs(cell: Any) -> list[tuple[str, str]]:
    """Kind and text of the outputs of a cell; of a picture only that there is one.

    What goes to stderr, how long a command will take, depends on the machine. Texts behind each other are one.
    """
    found: list[tuple[str, str]] = []
    for each in cell["outputs"]:
        data = each.get("data", {})
        kind = "picture" if "image/png" in data else "error" if each["output_type"] == "error" else "text"
        text = "".join(each.get("text", data.get("text/plain", "")))
        if each.get("name") == "stderr":
            continue
        if kind == "text" and found and found[-1][0] == kind:
            found[-1] = kind, found[-1][1] + text
        else:
            found.append((kind, text))
    return found


def test_the_tour_is_kept_as_it_was_run() -> None:
    assert NOTEBOOK.stat().st_size < LARGEST
    code = cells()
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), "from top to bottom"
    kinds = [kind for cell in code for kind, _ in outputs(cell)]
    assert kinds.count("picture") >= 3
    assert "error" not in kinds
    assert not any(each.get("name") == "stderr" for cell in code for each in cell["outputs"])
    assert all(cell["outputs"] for cell in code[1:])
    assert not re.search(r"/(home|tmp|root|work)/", NOTEBOOK.read_text(encoding="utf-8"))


def test_the_tour_uses_the_python_api_only() -> None:
    text = "".join("".join(cell["source"]) for cell in cells())
    modules = re.findall(r"^(?:import|from) ([\w.]+)", text, re.M)
    assert modules == ["matplotlib.pyplot", "numpy", "rths_nodes"]
    called = set(re.findall(r"rths_nodes\.(\w+)\(", text))
    assert called == {"run", "read", "overlay", "stability", "identify", "study", "estimate"}
    assert not re.search(r"^\s*[!%](?!matplotlib inline)", text, re.M), "no command of the shell"


def test_the_identification_of_the_tour_has_a_small_error() -> None:
    texts = [text for cell in cells() for _, text in outputs(cell) if "fit error" in text]
    (error,) = re.findall(r"fit error (\S+) %", "".join(texts))
    (norm,) = re.findall(r"identified_inverse: finished, error norm (\S+) %", "".join(texts))
    assert float(error) < 5.0
    assert float(norm) < 5.0


@pytest.mark.timeout(600)
def test_the_outputs_of_the_tour_come_out_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words to the letter, numbers to six digits."""
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed here")
    client = pytest.importorskip("nbclient", reason="nbclient is not installed here")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed here")
    pytest.importorskip("pandas", reason="pandas is not installed here")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOK, 4)
    (tmp_path / "run").mkdir()
    there = {"metadata": {"path": str(tmp_path / "run")}}
    client.NotebookClient(notebook, timeout=500, coalesce_streams=True, resources=there).execute()
    again = [cell for cell in notebook.cells if cell["cell_type"] == "code"]
    for kept, made in zip(cells(), again, strict=True):
        for (kind, text), (kind_now, text_now) in zip(outputs(kept), outputs(made), strict=True):
            assert kind_now == kind
            assert words_of(text_now) == words_of(text)
            numbers = zip(NUMBER.findall(text), NUMBER.findall(text_now), strict=True)
            assert all(math.isclose(float(a), float(b), rel_tol=1e-6, abs_tol=1e-9) for a, b in numbers), text_now


def words_of(text: str) -> list[str]:
    """The text without its numbers, and without the lines of tables, whose width they decide."""
    return re.sub(r"[─━\s]+", " ", NUMBER.sub("#", text)).split()
