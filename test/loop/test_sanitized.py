# SPDX-License-Identifier: Apache-2.0
"""Tests of compiled kernels and loops under the address, undefined-behaviour and thread sanitizers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sanitized import environment, of_threads

TESTS = Path(__file__).parents[1]
SELECTED = {
    "kernels": ("test_kernels.py", "same_bits"),
    "loops": ("loop/test_native.py", "every_shipped"),
    "executive": ("loop/test_executive.py", "(bits and chen) or limit_trips or operator or left_behind"),
    "executive by udp": ("loop/test_executive_udp.py", "bits_of_the_stages or rests[0] or interlock"),
    "threads": ("loop/test_executive_stops.py", "program"),
    "threads by udp": ("loop/test_executive_udp.py", "bits_of_the_stages"),
}


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", SELECTED)
def test_sanitizers_find_nothing_in_compiled_code(case: str, tmp_path: Path) -> None:
    file, selection = SELECTED[case]
    options = ["-p", "no:cacheprovider", "-q", "-m", "", "-k", selection]
    command = [sys.executable, "-m", "pytest", *options, str(TESTS / file)]
    env = (of_threads if "threads" in case else environment)(tmp_path)
    done = subprocess.run(command, env=env, cwd=TESTS.parent, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")[-3000:]


def test_sanitizers_detect_write_beyond_array(tmp_path: Path) -> None:
    program = """
import numpy as np
from in_c import compiled
def beyond(a, at):
    a[at] = 1.0
    return a[0]
compiled(beyond, (np.zeros(3), 1), (False, False))(np.zeros(3), 3)
"""
    source = tmp_path / "beyond.py"
    source.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(source)], env=environment(tmp_path), capture_output=True, check=False
    )
    assert done.returncode != 0
    assert all(word in done.stderr for word in (b"AddressSanitizer", b"heap-buffer-overflow"))
