# SPDX-License-Identifier: Apache-2.0
"""Every kernel and every shipped loop in C under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SELECTED = {"kernels": ("test_kernels.py", "same_bits"), "loops": ("loop/test_native.py", "every_shipped")}
COMPILER = """#!/bin/sh
[ "$1" = --version ] && exec gcc --version
exec gcc "$@" -O1 -fsanitize=address,undefined -fno-sanitize-recover=all
"""


def library(name: str) -> str:
    """Return the path of a library of gcc; its name alone if there is none."""
    return subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which kernels are built and run under the sanitizers."""
    if shutil.which("gcc") is None or not os.path.isabs(library("libasan.so")):
        pytest.skip("no gcc with its sanitizers here: apt install gcc")
    compiler = folder / "cc"
    compiler.write_text(COMPILER, encoding="utf-8")
    compiler.chmod(0o755)
    preloaded = f"{library('libasan.so')} {library('libubsan.so')}"
    return {
        **os.environ,
        "CC": str(compiler),
        "XDG_CACHE_HOME": str(folder),
        "LD_PRELOAD": preloaded,
        "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0",
        "PYTHONMALLOC": "malloc",  # so that the end of each array is watched
        "PYTHONPATH": os.pathsep.join(sys.path),
    }


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("which", SELECTED)
def test_the_sanitizers_find_nothing(which: str, tmp_path: Path) -> None:
    file, words = SELECTED[which]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-q",
        "-m",
        "",
        "-k",
        words,
        str(TESTS / file),
    ]
    done = subprocess.run(command, env=environment(tmp_path), cwd=TESTS.parent, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")[-3000:]


def test_the_sanitizers_see_a_write_beyond_an_array(tmp_path: Path) -> None:
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
    assert b"AddressSanitizer" in done.stderr
    assert b"heap-buffer-overflow" in done.stderr
