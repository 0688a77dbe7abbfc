# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of commands."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_fixtures import RunCommand

from rths_nodes.app.cli import main
from rths_nodes.core import registry
from rths_nodes.loop.outcomes import ExitCode

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide components that were added before the test, and remove components that the test adds."""
    monkeypatch.setattr(registry, "_added", {})


@pytest.fixture
def load_benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Import a module of ``benchmarks`` for one test."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield importlib.import_module
    for name in sys.modules.keys() - before:
        if (BENCHMARKS / f"{name}.py").is_file():
            del sys.modules[name]


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """Run a command that prints nothing to standard error, and return its standard output."""

    def run(*arguments: str, code: int = 0) -> str:
        assert main(arguments) == code
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return run


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """Run a command that must be refused before anything runs, and return its messages, one line per problem."""

    def run(*arguments: str) -> str:
        assert main(arguments) == ExitCode.REFUSED
        out, err = capsys.readouterr()
        assert out == ""
        assert err.endswith("\n")
        assert all(line.startswith("rths: ") for line in err.splitlines())
        assert "Traceback" not in err
        return err.rstrip("\n")

    return run
