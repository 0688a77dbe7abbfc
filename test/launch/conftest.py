# SPDX-License-Identifier: Apache-2.0
"""A launch under way, of which nothing is left behind."""

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
    for one in started:
        if one.popen.poll() is None:
            os.killpg(one.popen.pid, signal.SIGKILL)
            one.popen.wait()
