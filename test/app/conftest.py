# SPDX-License-Identifier: Apache-2.0
"""What the tests of several commands need."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rths_nodes.app.cli import main


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Standard output of a command that succeeds and says nothing else."""

    def output(*words: str, code: int = 0) -> str:
        assert main(words) == code
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return output
