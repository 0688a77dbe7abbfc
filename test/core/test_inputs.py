# SPDX-License-Identifier: Apache-2.0
"""Tests of files that parameters name: absolute paths, hashes of contents, copies."""

from __future__ import annotations

import copy
import hashlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from messages import naming

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.inputs import FOLDER, Named, contained, make_absolute, modules_of, named_files, replace_files
from rths_nodes.core.parameters import declared
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics import loading_model

NAME = "input.dat"
PARAMETERS: dict[str, tuple[type, dict[str, Any]]] = {}
"""Root class, and data that name a file, of every parameter of every component that may be a file."""


def below(cls: type, passed: tuple[type, ...]) -> Iterator[tuple[str, type, str, dict[str, Any]]]:
    """Yield path, class, field, and data that name a file, of each parameter below ``cls`` that may be one."""
    if cls in passed:
        return
    for name, spec in declared(cls).items():
        if spec.kind in ("path", "matrix"):
            yield name, cls, name, {name: NAME}
        kinds = registry.names(spec.family) if spec.family else [""] if spec.cls else []
        for kind in kinds:
            inner = registry.load(spec.family, kind).Params if kind else spec.cls
            many = spec.kind in ("sections", "components")
            for path, owner, field, data in below(inner, (*passed, cls)):
                entry = {"type": kind} | data if kind else data
                middle = f"{name}.one" if many else name
                yield f"{middle}({kind}).{path}", owner, field, {name: {"one": entry} if many else entry}


for root in (Scenario, RigFile):
    reached: set[tuple[type, str]] = set()
    for path, owner, field, data in below(root, ()):
        if (owner, field) not in reached:
            reached.add((owner, field))
            PARAMETERS[f"{root.__name__}.{path}"] = (root, data)


def leaf(data: Any) -> str:
    """Return the path in data that name one file."""
    if isinstance(data, dict):
        return next(path for key, value in data.items() if key != "type" and (path := leaf(value)))
    return str(data)


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_file_of_parameter_is_absolute_hashed_and_copied(parameter: str, tmp_path: Path) -> None:
    cls, data = PARAMETERS[parameter]
    original = tmp_path / NAME
    original.write_text("1.0\n")
    make_absolute(cls, data := copy.deepcopy(data), tmp_path)
    assert leaf(data) == str(original)
    (named,) = named_files(cls, data)
    first = named.hash()
    replace_files(cls, replaced := copy.deepcopy(data), lambda file: file.copy(tmp_path / FOLDER))
    path = Path(leaf(replaced))
    assert (path.name, path.read_text()) == (NAME, "1.0\n")
    assert path.relative_to(tmp_path / FOLDER).parts[0] == first
    original.write_text("3.0\n")
    assert named.hash() != first
    (again,) = named_files(cls, replaced)
    assert (again.hash(), again.copy(tmp_path / FOLDER)) == (first, str(path))


def test_files_of_all_components_are_reached() -> None:
    """Every component with a file is reached from a scenario."""
    reached = {(owner, field) for _, owner, field, _ in below(Scenario, ())}
    for family in registry.FAMILIES:
        for kind in registry.names(family):
            for _, owner, field, _ in below(registry.load(family, kind).Params, ()):
                assert (owner, field) in reached, f"{family} {kind}: {field}"


def test_copy_is_read_only_and_refused_if_changed(tmp_path: Path) -> None:
    original = tmp_path / NAME
    original.write_text("1")
    duplicate = Path(Named("here", str(original)).copy(tmp_path / FOLDER))
    assert stat.S_IMODE(duplicate.stat().st_mode) == 0o444
    duplicate.chmod(0o644)
    duplicate.write_text("2")
    for path in (duplicate, original):
        with pytest.raises(ConfigError, match="has changed"):
            Named("here", str(path)).copy(tmp_path / FOLDER)


def test_missing_file_is_named_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=naming("structure.mass", "file")):
        Named("structure.mass", str(tmp_path / "none.csv")).copy(tmp_path / FOLDER)


def test_text_that_names_an_unreadable_file_is_hashed_as_text(tmp_path: Path) -> None:
    """Reading ``/proc/self/mem`` fails also for root."""
    (tmp_path / "file").write_text("1")
    data = {"description": "/proc/self/mem", "further": [str(tmp_path / "file")]}
    assert contained(data) == data | {"further": [hashlib.sha256(b"1").hexdigest()]}


def test_path_may_begin_with_two_slashes(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("1")
    plain, doubled = (Named("here", f"{slash}{tmp_path}/{NAME}") for slash in ("", "/"))
    assert doubled.hash() == plain.hash()
    assert doubled.copy(tmp_path / FOLDER) == plain.copy(tmp_path / FOLDER)


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Named("", "~/a.txt").absolute(Path()) == str(tmp_path / "a.txt")


PROGRAM = {
    "main.py": "import os, numpy\nimport one\nfrom pack.inner import thing\n\ndef late():\n    import lazy.deep\n",
    "one.py": "def broken(:\n",
    "pack/__init__.py": "from . import sibling\n",
    "pack/sibling.py": "",
    "pack/inner/__init__.py": "from ..above import x\nfrom .thing import y\n",
    "pack/inner/thing.py": "import main\n",
    "pack/above.py": "x = 1\n",
    "lazy/deep.py": "",
    "unused.py": "",
    "pack/unused.py": "",
}


def program(folder: Path) -> Path:
    """Write PROGRAM into a folder and return its main file."""
    for name, text in PROGRAM.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "main.py"


def test_program_includes_imported_modules(tmp_path: Path) -> None:
    modules = {str(path.relative_to(tmp_path)) for path in modules_of(program(tmp_path))}
    assert modules == {name for name in PROGRAM if "unused" not in name}


def test_program_copy_keeps_relative_paths(tmp_path: Path) -> None:
    main = program(tmp_path / "work" / "models")
    (tmp_path / "work" / "record.txt").write_text("1 2 3")
    named = Named("model", str(main), program=True, opens=("../record.txt",))
    path = Path(named.copy(tmp_path / FOLDER))
    root = tmp_path / FOLDER / named.hash()
    assert path == root / "models" / "main.py"
    assert (root / "record.txt").read_text() == "1 2 3"
    assert (root / "models" / "pack" / "inner" / "thing.py").is_file()
    assert Named("model", str(path), program=True, opens=("../record.txt",)).hash() == named.hash()


@pytest.mark.parametrize(
    "changed", ["models/main.py", "models/pack/above.py", "models/lazy/deep.py", "record.txt"]
)
def test_each_file_of_program_is_hashed(changed: str, tmp_path: Path) -> None:
    named = Named("model", str(program(tmp_path / "models")), program=True, opens=("../record.txt",))
    (tmp_path / "record.txt").write_text("1")
    first = named.hash()
    (tmp_path / changed).write_text("z = 1\n")
    assert named.hash() != first


def test_model_of_rig_refuses_further_files(tmp_path: Path) -> None:
    """Such files would be neither hashed nor copied."""
    (tmp_path / "model.yaml").write_text("axes: [a]\nversion: 1\nfeedforward: {displacement: rows.csv}\n")
    with pytest.raises(ConfigError, match=naming("feedforward.displacement", "rows.csv")):
        loading_model.load(tmp_path / "model.yaml")
