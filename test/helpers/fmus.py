# SPDX-License-Identifier: Apache-2.0
"""FMUs that a test compiles: the frame of the examples, and misbehaving models."""

from __future__ import annotations

import functools
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from programs import module_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "fmu"

ROGUE = """
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "model.h"

enum { FORCE, AT, X, V, STEPS }; /* WRONG is executed from the time AT on */

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
"""A model that prescribes its motion, so that the exact result is known."""


def skip_without_fmi() -> None:
    """Skip without fmpy, which contains the headers of the standard, or without a compiler."""
    pytest.importorskip("fmpy", reason="fmpy is not installed here: pip install fmpy")
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here (cc)")


@functools.cache
def example() -> Any:
    """Load the module examples/fmu/build.py."""
    return module_of(EXAMPLE / "build.py", "fmu_build")


BUILT = tempfile.TemporaryDirectory(prefix="test_fmus_")
"""Folder of the compiled FMUs of this process, deleted at its end."""


@functools.cache
def frame(stories: int = 3, version: int = 2, units: tuple[tuple[str, str], ...] = ()) -> Path:
    """Build the frame of the examples once per process, possibly with other ``units``."""
    skip_without_fmi()
    build = example()
    changed_units = dict(units)
    variables = [
        variable._replace(unit=changed_units.get(variable.name, variable.unit))
        for variable in build.frame(stories)
    ]
    out = Path(BUILT.name) / f"frame_{stories}_{version}_{abs(hash(units)):x}.fmu"
    built: Path = build.build(EXAMPLE / "frame.c", variables, out, version, [f"-DSTORIES={stories}"])
    return built


@functools.cache
def rogue(wrong: str = "", version: int = 2, at_start: str = "", more: tuple[str, ...] = ()) -> Path:
    """Build a model that executes the C statements ``wrong`` from 0.05 s on and ``at_start`` at its start."""
    skip_without_fmi()
    variable = example().Variable
    variables = (
        *(variable("force", "input", "N"), variable("at", "parameter", "s", 0.05), variable("x", "output", "m")),
        *(variable("v", "output", "m/s"), variable("steps", "output")),
    )
    defines = (f"-DWRONG={wrong}", *([f"-DAT_START={at_start}"] if at_start else []), *more)
    return of_text("rogue", ROGUE, variables, version, defines)


@functools.cache
def of_text(
    name: str, text: str, variables: tuple[Any, ...], version: int = 2, defines: tuple[str, ...] = ()
) -> Path:
    """Build a model of C code, with ``variables`` as (name, causality, unit, start), the last of them optional."""
    skip_without_fmi()
    build = example()
    name = f"{name}_{abs(hash((text, variables, version, defines))):x}"
    source = Path(BUILT.name) / f"{name}.c"
    source.write_text(text)
    built: Path = build.build(
        source, [build.Variable(*row) for row in variables], source.with_suffix(".fmu"), version, defines
    )
    return built


def changed(fmu: Path, out: Path, *pairs: tuple[str, str], more: Mapping[str, bytes] | None = None) -> Path:
    """Copy ``fmu`` to ``out`` with replaced texts in its description, and ``more`` members."""
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
