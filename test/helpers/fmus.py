# SPDX-License-Identifier: Apache-2.0
"""FMUs that a test compiles: the frame of the examples, and models that misbehave when they are told to."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "fmu"

ROGUE = """
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "model.h"

enum { FORCE, AT, X, V, STEPS }; /* what WRONG is, it does from the time AT on */

int model_start(double *v)
{
#ifdef AT_START
    AT_START;
#endif
    return 0;
}

int model_step(double *v, double t, double h)
{
    v[STEPS] += 1.0;
    v[X] = 1e-3 * sin(5.0 * (t + h)) - 1e-9 * v[FORCE];
    v[V] = 5e-3 * cos(5.0 * (t + h));
    if (t >= v[AT]) {
        WRONG;
    }
    return 0;
}
"""
"""A model whose equation is none, so that a wrong one of it is known."""


def skip_without_fmi() -> None:
    """A test that builds an FMU needs fmpy, which brings the headers of the standard, and a compiler."""
    pytest.importorskip("fmpy", reason="fmpy is not installed here: pip install fmpy")
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here (cc)")


@functools.cache
def example() -> Any:
    """The module examples/fmu/build.py."""
    spec = importlib.util.spec_from_file_location("fmu_build", EXAMPLE / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


BUILT = tempfile.TemporaryDirectory(prefix="test_fmus_")
"""Folder of what was compiled, for all tests of a process; it goes with that."""


@functools.cache
def frame(stories: int = 3, version: int = 2, units: tuple[tuple[str, str], ...] = ()) -> Path:
    """The frame of the examples, built once for all tests of a process, perhaps with other ``units``."""
    skip_without_fmi()
    build = example()
    other = dict(units)
    variables = [each._replace(unit=other.get(each.name, each.unit)) for each in build.frame(stories)]
    out = Path(BUILT.name) / f"frame_{stories}_{version}_{abs(hash(units)):x}.fmu"
    built: Path = build.build(EXAMPLE / "frame.c", variables, out, version, [f"-DSTORIES={stories}"])
    return built


@functools.cache
def rogue(wrong: str = "", version: int = 2, at_start: str = "", more: tuple[str, ...] = ()) -> Path:
    """A model that does the C statement ``wrong`` from 0.05 s on, and ``at_start`` where it is initialised."""
    skip_without_fmi()
    build = example()
    of = build.Variable
    variables = [
        of("force", "input", "N"),
        of("at", "parameter", "s", 0.05),
        of("x", "output", "m"),
        of("v", "output", "m/s"),
        of("steps", "output"),
    ]
    defines = (f"-DWRONG={wrong}", *([f"-DAT_START={at_start}"] if at_start else []), *more)
    return of_text("rogue", ROGUE, tuple(variables), version, defines)


@functools.cache
def of_text(
    name: str, text: str, variables: tuple[Any, ...], version: int = 2, defines: tuple[str, ...] = ()
) -> Path:
    """A model of C code, with ``variables`` as (name, causality, unit, start), each of which may be left out."""
    skip_without_fmi()
    build = example()
    name = f"{name}_{abs(hash((text, variables, version, defines))):x}"
    source = Path(BUILT.name) / f"{name}.c"
    source.write_text(text)
    told = [build.Variable(*each) for each in variables]
    built: Path = build.build(source, told, source.with_suffix(".fmu"), version, defines)
    return built


def changed(fmu: Path, out: Path, *pairs: tuple[str, str], more: Mapping[str, bytes] | None = None) -> Path:
    """A copy ``out`` of ``fmu`` with other words in its description, and ``more`` members."""
    with zipfile.ZipFile(fmu) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.infolist():
            data = old.read(member)
            if member.filename == "modelDescription.xml":
                text = data.decode()
                for before, after in pairs:
                    assert before in text, before
                    text = text.replace(before, after)
                data = text.encode()
            new.writestr(member.filename, data)
        for name, data in (more or {}).items():
            new.writestr(name, data)
    return out
