# SPDX-License-Identifier: Apache-2.0
"""Tests of refusals of faulty OpenSees models and settings before the test."""

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
    ("integrator", "expected"),
    [
        ("AlphaSO 0.9", ("unknown", "AlphaSO", "AlphaOS")),
        ("Newmark 0.5 0.25", ("integrator.analysis.integrator", "Newmark", "0.5", "0.25", "unknown")),
    ],
)
def test_unknown_integrators_are_refused(integrator: str, expected: tuple[str, ...]) -> None:
    assert mentions(refused(f"integrator.analysis.integrator={integrator}"), *expected)


@pytest.mark.parametrize(
    ("key", "value", "output"),
    [
        ("integrator", "NewmarkExplicit", "WARNING - incorrect number of args want NewmarkExplicit $gamma"),
        ("system", "Foo", "WARNING unknown system type Foo"),
        ("algorithm", "Foo", "WARNING unknown algorithm type Foo"),
        ("test", "FixedNumIter", "insufficient number of arguments"),
    ],
)
def test_invalid_analysis_commands_are_refused(key: str, value: str, output: str) -> None:
    """OpenSees itself would continue with a default."""
    message = refused(f"integrator.analysis.{key}={value}")
    assert mentions(message, f"analysis.{key}", value, "OpenSees", output)
    assert message.count(output) == 1
    assert "Error" not in message


def test_interface_rows_are_checked() -> None:
    assert mentions(refused("integrator.interface=[[1, 1], [1, 1]]"), "[1, 1]", "twice")
    assert mentions(refused("integrator.interface=[2, 1]"), "integrator.interface", "[2, 1]")
    message = refused("observed=[roof]", "integrator.observed=[[1, 1]]")
    assert mentions(message, "integrator.observed", "[1, 1]", "integrator.interface")


def mine(folder: Path, text: str) -> str:
    """Override for the documented model with ``text`` appended."""
    (folder / "mine.py").write_text(FRAME + text)
    return f"integrator.model={folder / 'mine.py'}"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("import sys\nassert sys.argv == [__file__], sys.argv\nsys.exit('seen')\n", ("code", "1", "seen")),
        ("import sys\nsys.exit()\n", ("mine.py", "sys.exit")),
    ],
)
def test_model_has_no_arguments_and_may_not_exit(text: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    assert mentions(refused(mine(tmp_path, text)), *parts)


FIXED = "node 1, degree of freedom 1 is fixed in the model, but the rig must move it"


@pytest.mark.parametrize("when", ["\n    rig()", "\n    gravity()"])
def test_fixed_interface_node_is_refused(when: str, tmp_path: Path) -> None:
    """Its displacement would always be zero. The model may fix the node before or after rig()."""
    (tmp_path / "mine.py").write_text(FRAME.replace(when, "\n    ops.fix(1, 1)" + when, 1))
    assert FIXED in refused(f"integrator.model={tmp_path / 'mine.py'}")


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["integrator.interface=[[2, 5]]"], ("ValueError", "[2, 5]", "2", "1")),
        (["observed=[roof]", "integrator.observed=[[3, 2]]"], ("ValueError", "[3, 2]", "3", "1")),
        (["observed=[roof]", "integrator.observed=[[4, 1]]"], ("ValueError", "4", "observed")),
    ],
)
def test_missing_degree_of_freedom_is_refused(overrides: list[str], parts: tuple[str, ...]) -> None:
    assert mentions(refused(*overrides), *parts)


def test_uncounted_gravity_steps_are_reported() -> None:
    message = refused("integrator.static_steps=0")
    assert mentions(message, "0 s", "0.5 s", "0.01 s")
    assert mentions(message, "static_steps", "0", "analysis")


def test_refusal_includes_output_of_opensees(tmp_path: Path) -> None:
    """The message has the reason and the line of the user, and at most three lines of output."""
    text = """

def gravity():
    print("one")
    print("two")
    ops.numberer("Plain")
    ops.analysis("Static")
    if ops.analyze(0) or ops.integrator("Foo") is None:
        raise RuntimeError("the static analysis has failed")
"""
    message = refused(mine(tmp_path, text))
    line = len((FRAME + text).splitlines())
    assert mentions(message, line, "RuntimeError")
    assert mentions(message, "WARNING", "unknown", "integrator")
    assert "one" not in message


def test_error_in_imported_file_has_line_of_model(tmp_path: Path) -> None:
    (tmp_path / "parts_of_mine.py").write_text("\n" * 500 + "def broken():\n    return {}['x']\n")
    text = "\n\nimport parts_of_mine\n\n\ndef gravity():\n    parts_of_mine.broken()\n"
    line = len((FRAME + text).splitlines())
    assert f"line {line}: KeyError: 'x'" in refused(mine(tmp_path, text))
