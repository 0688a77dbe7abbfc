# SPDX-License-Identifier: Apache-2.0
"""Fixture that starts launches and kills those left at the end of a test."""

from __future__ import annotations

import os
import signal

import pytest
from launched import Launch

FILE = "rths.launch.py"


@pytest.fixture
def launch(tmp_path):
    started: list[Launch] = []

    def start(*arguments: str, file: str = FILE, **environment: str) -> Launch:
        started.append(Launch(tmp_path, file, *arguments, **environment))
        return started[-1]

    yield start
    for run in started:
        if run.popen.poll() is None:
            os.killpg(run.popen.pid, signal.SIGKILL)
            run.popen.wait()
