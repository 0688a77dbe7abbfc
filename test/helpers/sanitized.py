# SPDX-License-Identifier: Apache-2.0
"""An environment in which C code is built and run under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
