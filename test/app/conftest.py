# SPDX-License-Identifier: Apache-2.0
"""Fixtures of several commands."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from rths_nodes.app.cli import main


@pytest.fixture
def own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only threads of the test are listed, as in a process of its own; those of joblib may be there still."""
    everything, before = threading.enumerate, set(threading.enumerate()) - {threading.current_thread()}
    monkeypatch.setattr(threading, "enumerate", lambda: [each for each in everything() if each not in before])


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Standard output of a command that succeeds and says nothing else."""

    def output(*words: str, code: int = 0) -> str:
        assert main(words) == code
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return output
