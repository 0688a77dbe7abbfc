# SPDX-License-Identifier: Apache-2.0
"""Files that parameters name, whatever component they belong to: absolute, known by their contents, copied."""

from __future__ import annotations

import copy
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from messages import naming

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.inputs import FOLDER, Named, make_absolute, modules_of, named_files, replace_files
from rths_nodes.core.parameters import declared
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.models import file as model_file

NAME = "given.dat"
PLACES: dict[str, tuple[type, dict[str, Any]]] = {}
"""Every parameter of every registered component that may be a file: the root, and data that name one there."""


def below(cls: type, passed: tuple[type, ...]) -> Iterator[tuple[str, type, str, dict[str, Any]]]:
    """Place, class and field of every parameter below ``cls`` that may be a file, and data that have one there."""
    if cls in passed:
        return
    for name, spec in declared(cls).items():
        if spec.kind in ("path", "matrix"):
            yield name, cls, name, {name: NAME}
        kinds = registry.names(spec.family) if spec.family else [""] if spec.cls else []
        for kind in kinds:
            inner = registry.load(spec.family, kind).Params if kind else spec.cls
            many = spec.kind in ("sections", "components")
            for place, owner, field, data in below(inner, (*passed, cls)):
                entry = {"type": kind} | data if kind else data
                middle = f"{name}.one" if many else name
                yield f"{middle}({kind}).{place}", owner, field, {name: {"one": entry} if many else entry}


for root in (Scenario, RigFile):
    reached: set[tuple[type, str]] = set()
    for place, owner, field, data in below(root, ()):
        if (owner, field) not in reached:
            reached.add((owner, field))
            PLACES[f"{root.__name__}.{place}"] = (root, data)


def leaf(data: Any) -> str:
    """The path in data that name one file."""
    if isinstance(data, dict):
        return next(found for key, value in data.items() if key != "type" and (found := leaf(value)))
    return str(data)


@pytest.mark.parametrize("place", PLACES)
def test_a_file_of_any_parameter_is_absolute_known_by_its_contents_and_copied(place: str, tmp_path: Path) -> None:
    cls, data = PLACES[place]
    own = tmp_path / NAME
    own.write_text("1.0\n")
    make_absolute(cls, data := copy.deepcopy(data), tmp_path)
    assert leaf(data) == str(own)
    (named,) = named_files(cls, data)
    first = named.hash()
    replace_files(cls, kept := copy.deepcopy(data), lambda each: each.copy(tmp_path / FOLDER))
    where = Path(leaf(kept))
    assert (where.name, where.read_text()) == (NAME, "1.0\n")
    assert where.relative_to(tmp_path / FOLDER).parts[0] == first
    own.write_text("3.0\n")
    assert named.hash() != first
    (again,) = named_files(cls, kept)
    assert (again.hash(), again.copy(tmp_path / FOLDER)) == (first, str(where))


def test_the_places_are_those_of_every_component() -> None:
    """Which component may be left out of nothing here: each with a file is reached from a scenario."""
    reached = {(owner, field) for place, owner, field, _ in below(Scenario, ())}
    for family in registry.FAMILIES:
        for kind in registry.names(family):
            for _, owner, field, _ in below(registry.load(family, kind).Params, ()):
                assert (owner, field) in reached, f"{family} {kind}: {field}"


def test_copies_can_be_read_only_and_one_that_changed_is_refused(tmp_path: Path) -> None:
    own = tmp_path / NAME
    own.write_text("1")
    where = Path(Named("here", str(own)).copy(tmp_path / FOLDER))
    assert stat.S_IMODE(where.stat().st_mode) == 0o444
    where.chmod(0o644)
    where.write_text("2")
    for path in (where, own):
        with pytest.raises(ConfigError, match="has changed"):
            Named("here", str(path)).copy(tmp_path / FOLDER)


def test_a_file_that_is_not_there_is_named_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=naming("structure.mass", "file")):
        Named("structure.mass", str(tmp_path / "none.csv")).copy(tmp_path / FOLDER)


def test_home_is_that_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Named("", "~/a.txt").absolute(Path()) == str(tmp_path / "a.txt")


PROGRAM = {
    "main.py": "import os, numpy\nimport one\nfrom pack.inner import thing\n\ndef late():\n    import lazy.deep\n",
    "one.py": "def broken(:\n",
    "pack/__init__.py": "from . import beside\n",
    "pack/beside.py": "",
    "pack/inner/__init__.py": "from ..above import x\nfrom .thing import y\n",
    "pack/inner/thing.py": "import main\n",
    "pack/above.py": "x = 1\n",
    "lazy/deep.py": "",
    "unused.py": "",
    "pack/unused.py": "",
}


def written(folder: Path) -> Path:
    for name, text in PROGRAM.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "main.py"


def test_a_program_has_the_modules_that_it_imports_from_below_its_folder(tmp_path: Path) -> None:
    found = {str(path.relative_to(tmp_path)) for path in modules_of(written(tmp_path))}
    assert found == {name for name in PROGRAM if "unused" not in name}


def test_a_program_is_copied_with_its_modules_and_files_as_they_stand_to_each_other(tmp_path: Path) -> None:
    main = written(tmp_path / "work" / "models")
    (tmp_path / "work" / "record.txt").write_text("1 2 3")
    named = Named("model", str(main), program=True, opens=("../record.txt",))
    where = Path(named.copy(tmp_path / FOLDER))
    root = tmp_path / FOLDER / named.hash()
    assert where == root / "models" / "main.py"
    assert (root / "record.txt").read_text() == "1 2 3"
    assert (root / "models" / "pack" / "inner" / "thing.py").is_file()
    assert Named("model", str(where), program=True, opens=("../record.txt",)).hash() == named.hash()


@pytest.mark.parametrize(
    "changed", ["models/main.py", "models/pack/above.py", "models/lazy/deep.py", "record.txt"]
)
def test_each_part_of_a_program_counts(changed: str, tmp_path: Path) -> None:
    named = Named("model", str(written(tmp_path / "models")), program=True, opens=("../record.txt",))
    (tmp_path / "record.txt").write_text("1")
    first = named.hash()
    (tmp_path / changed).write_text("z = 1\n")
    assert named.hash() != first


def test_the_model_of_a_rig_names_no_further_files(tmp_path: Path) -> None:
    """Nobody would know of them."""
    (tmp_path / "model.yaml").write_text("axes: [a]\nversion: 1\nfeedforward: {displacement: rows.csv}\n")
    with pytest.raises(ConfigError, match=naming("feedforward.displacement", "rows.csv")):
        model_file.load(tmp_path / "model.yaml")
