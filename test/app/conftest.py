# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of commands."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from rths_nodes.app.cli import main
from rths_nodes.loop.outcomes import ExitCode


@pytest.fixture
def own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide threads that run before the test, which joblib may have left."""
    running, before = threading.enumerate, set(threading.enumerate()) - {threading.current_thread()}
    monkeypatch.setattr(threading, "enumerate", lambda: [thread for thread in running() if thread not in before])


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that prints nothing to standard error, and return its standard output."""

    def run(*arguments: str, code: int = 0) -> str:
        assert main(arguments) == code
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return run


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
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
