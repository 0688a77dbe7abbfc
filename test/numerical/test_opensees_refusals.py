# SPDX-License-Identifier: Apache-2.0
"""What a newcomer gets wrong with OpenSees is refused in words before anything moves."""

from __future__ import annotations

from pathlib import Path

import pytest
from generic_client import models_left, skip_without_opensees
from messages import mentions

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError

FOLDER = Path(__file__).parents[2] / "doc" / "opensees"
STARTED = FOLDER / "frame_started.yaml"
FRAME = (FOLDER / "frame.py").read_text()


@pytest.fixture(scope="module", autouse=True)
def _opensees() -> None:
    skip_without_opensees()


def refused(*overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        hosts.run(STARTED, ["duration=0.1", *overrides])
    assert models_left() == []
    return str(error.value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("AlphaSO 0.9", ("unknown", "AlphaSO", "AlphaOS")),
        ("Newmark 0.5 0.25", ("integrator.analysis.integrator", "Newmark", "0.5", "0.25", "unknown")),
    ],
)
def test_integrators_that_are_not_in_the_table_are_refused(words: str, expected: tuple[str, ...]) -> None:
    assert mentions(refused(f"integrator.analysis.integrator={words}"), *expected)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("integrator", "NewmarkExplicit", "WARNING - incorrect number of args want NewmarkExplicit $gamma"),
        ("system", "Foo", "WARNING unknown system type Foo"),
        ("algorithm", "Foo", "WARNING unknown algorithm type Foo"),
        ("test", "FixedNumIter", "insufficient number of arguments"),
    ],
)
def test_what_opensees_would_replace_by_a_default_is_refused(key: str, value: str, says: str) -> None:
    words = refused(f"integrator.analysis.{key}={value}")
    assert mentions(words, f"analysis.{key}", value, "OpenSees", says)
    assert words.count(says) == 1
    assert "Error" not in words


def test_a_degree_of_freedom_that_stands_twice_is_named() -> None:
    assert mentions(refused("integrator.interface=[[1, 1], [1, 1]]"), "[1, 1]", "twice")
    words = refused("observed=[roof]", "integrator.observed=[[1, 1]]")
    assert mentions(words, "integrator.observed", "[1, 1]", "integrator.interface")


def test_a_row_alone_is_told_how_rows_are_written() -> None:
    words = refused("integrator.interface=[2, 1]")
    assert mentions(words, "integrator.interface", "[2, 1]")


# -- the file of the model ------------------------------------------------------------------------------------


def mine(folder: Path, text: str) -> str:
    """The override for a model of the user's own, ``text`` behind that of the documents."""
    (folder / "mine.py").write_text(FRAME + text)
    return f"integrator.model={folder / 'mine.py'}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import sys\nassert sys.argv == [__file__], sys.argv\nsys.exit('seen')\n", ("code", "1", "seen")),
        ("import sys\nsys.exit()\n", ("mine.py", "sys.exit")),
    ],
)
def test_a_model_that_reads_its_arguments_finds_none_and_may_not_leave(
    text: str, says: tuple[str, ...], tmp_path: Path
) -> None:
    assert mentions(refused(mine(tmp_path, text)), *says)


FIXED = "node 1, degree of freedom 1 is fixed in the model, but the rig must move it"


@pytest.mark.parametrize("when", ["\n    rig()", "\n    gravity()"])
def test_a_node_that_the_model_fixes_is_not_moved_by_the_rig(when: str, tmp_path: Path) -> None:
    """Its displacement would be zero all the time. It may be fixed before rig() or after it."""
    (tmp_path / "mine.py").write_text(FRAME.replace(when, "\n    ops.fix(1, 1)" + when, 1))
    assert FIXED in refused(f"integrator.model={tmp_path / 'mine.py'}")


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (
            ["integrator.interface=[[2, 5]]"],
            ("ValueError", "[2, 5]", "2", "1"),
        ),
        (
            ["observed=[roof]", "integrator.observed=[[3, 2]]"],
            ("ValueError", "[3, 2]", "3", "1"),
        ),
        (["observed=[roof]", "integrator.observed=[[4, 1]]"], ("ValueError", "4", "observed")),
    ],
)
def test_a_degree_of_freedom_that_the_node_does_not_have_is_named(
    overrides: list[str], says: tuple[str, ...]
) -> None:
    assert mentions(refused(*overrides), *says)


def test_a_gravity_analysis_that_is_not_counted_is_guessed() -> None:
    words = refused("integrator.static_steps=0")
    assert mentions(words, "0 s", "0.5 s", "0.01 s")
    assert mentions(words, "static_steps", "0", "analysis")


def test_what_opensees_has_printed_before_an_error_of_the_model_is_told(tmp_path: Path) -> None:
    """Its reason, and the line of the user; not more than three lines, and none twice."""
    text = """

def gravity():
    print("one")
    print("two")
    ops.numberer("Plain")
    ops.analysis("Static")
    if ops.analyze(0) or ops.integrator("Foo") is None:
        raise RuntimeError("the static analysis has failed")
"""
    words = refused(mine(tmp_path, text))
    line = len((FRAME + text).splitlines())
    assert mentions(words, line, "RuntimeError")
    assert mentions(words, "WARNING", "unknown", "integrator")
    assert "one" not in words


def test_an_error_in_a_file_that_the_model_imports_has_the_line_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "parts_of_mine.py").write_text("\n" * 500 + "def broken():\n    return {}['x']\n")
    text = "\n\nimport parts_of_mine\n\n\ndef gravity():\n    parts_of_mine.broken()\n"
    line = len((FRAME + text).splitlines())
    assert f"line {line}: KeyError: 'x'" in refused(mine(tmp_path, text))
