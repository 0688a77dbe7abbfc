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

OF_THREADS = """#!/bin/sh
[ "$1" = --version ] && exec gcc --version
case " $* " in *" -shared "*) exec gcc "$@";; esac  # no library of Python's process
exec gcc "$@" -O1 -fsanitize=thread
"""


def library(name: str) -> str:
    """Return the path of a library of gcc; its name alone if there is none."""
    return subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()


def of_threads(folder: Path) -> dict[str, str]:
    """Return an environment in which programs are built and run under the thread sanitizer; a race ends one."""
    if shutil.which("gcc") is None or not os.path.isabs(library("libtsan.so")):
        pytest.skip("no gcc with its sanitizers here: apt install gcc")
    return {
        **os.environ,
        "CC": compiler(folder, OF_THREADS),
        "XDG_CACHE_HOME": str(folder),
        "TSAN_OPTIONS": "halt_on_error=1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }


def compiler(folder: Path, text: str) -> str:
    path = folder / "cc"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which kernels are built and run under the sanitizers."""
    if shutil.which("gcc") is None or not os.path.isabs(library("libasan.so")):
        pytest.skip("no gcc with its sanitizers here: apt install gcc")
    preloaded = f"{library('libasan.so')} {library('libubsan.so')}"
    return {
        **os.environ,
        "CC": compiler(folder, COMPILER),
        "XDG_CACHE_HOME": str(folder),
        "LD_PRELOAD": preloaded,
        "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0",
        "PYTHONMALLOC": "malloc",  # so that the end of each array is watched
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
