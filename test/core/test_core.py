# SPDX-License-Identifier: Apache-2.0
"""The one place from which the author of a component takes what it needs."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from messages import naming

from rths_nodes import core

IMPORTS = {
    alias.name: node.module
    for node in ast.walk(ast.parse(Path(core.__file__).read_text()))
    if isinstance(node, ast.ImportFrom) and str(node.module).startswith("rths_nodes.core.")
    for alias in node.names
}
"""Name -> module, as a type checker sees them."""


def test_all_names_are_known_to_a_type_checker() -> None:
    assert sorted(IMPORTS) == sorted(core.__all__)


@pytest.mark.parametrize("name", core.__all__)
def test_each_name_is_that_of_its_module(name: str) -> None:
    assert getattr(core, name) is getattr(importlib.import_module(str(IMPORTS[name])), name)


def test_no_module_hides_a_name() -> None:
    """A module of this room that is imported becomes an attribute of the room, before any lazy name."""
    modules = {path.stem for path in Path(core.__file__).parent.iterdir()}
    assert not modules & set(core.__all__)


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match=naming("attribute", "numbr")):
        core.numbr  # noqa: B018


def test_nothing_is_loaded_before_it_is_asked_for() -> None:
    words = "import sys, rths_nodes.core; print([name for name in ('numpy', 'attrs') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", words],
        cwd=Path(core.__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
