# SPDX-License-Identifier: Apache-2.0
"""Loops over kernels, compiled, or in plain Python where that cannot be; each is made once for all of its kind."""

from __future__ import annotations

import hashlib
import importlib.util
import platform
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from rths_nodes.app.compiling import kernels
from rths_nodes.app.compiling.apart import done_apart
from rths_nodes.app.compiling.folder import Module, place
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.version import __version__
from rths_nodes.loop.compiled.history import given, room
from rths_nodes.loop.compiled.parts import Parts, parts_of
from rths_nodes.loop.compiled.pure import digest, form, identity
from rths_nodes.loop.compiled.running import KernelLoop, Way, in_arrays, plain
from rths_nodes.loop.embedded import Loop, checked_loop
from rths_nodes.loop.scenario.schema import Scenario

OLDEST = (0, 61)
"""Version of numba."""
SLOWER = "20 to 100 times as long"
_ways: dict[object, Way] = {}
_told: set[str] = set()


def loop_over_kernels(loop: Loop, compiled: bool) -> KernelLoop | str:
    """The loop of a scenario over its kernels, or in words why there is none; ``loop`` is the embedded one."""
    parts = parts_of(loop.assembly)
    if isinstance(parts, str):
        return parts
    return KernelLoop(loop, parts, way_of(parts) if compiled else plain(parts))


def remarks(scenario: Scenario) -> list[str]:
    """Why runs of this kind are not compiled, in words; nothing where they are.

    Raises ConfigError for what cannot run.
    """
    found = parts_of(checked_loop(scenario).assembly)
    if isinstance(found, str):
        return [f"engine python: {found}"]
    missing = _missing()
    return [f"{missing}; the loops run in plain Python, {SLOWER}"] if missing else []


def way_of(parts: Parts) -> Way:
    """Return the call of a loop: compiled, or in plain Python; then its ``notes`` say why, once in a process."""
    key = parts.kind, tuple(parts.constants), tuple(parts.states), _identities(parts), _forms_of(parts)
    if key not in _ways:
        _ways[key] = _made(parts)
    way = _ways[key]
    notes = tuple(note for note in way.notes if note not in _told)
    _told.update(notes)
    return way._replace(notes=notes)


def _identities(parts: Parts) -> tuple[object, ...]:
    return tuple((name, identity(kernel)) for name, kernel in parts.kernels.items())


def _made(parts: Parts) -> Way:
    if missing := _missing():
        return plain(parts)._replace(notes=(f"{missing}; the loop runs in plain Python, {SLOWER}",))
    try:
        return _compiled(parts)
    except Exception as error:  # whatever a compiler comes upon
        words = str(error).strip().splitlines() or [""]
        why = f"the loop cannot be compiled ({type(error).__name__}: {words[0]}); it runs in plain Python"
        return plain(parts)._replace(notes=(why,))


def _missing() -> str:
    """Why nothing can be compiled, in words; empty where it can."""
    try:
        found = kernels.numba()
    except ConfigError as error:
        return str(error)
    if tuple(map(int, found.__version__.split(".")[:2])) < OLDEST:
        return f"numba: is {found.__version__}: must be >= {'.'.join(map(str, OLDEST))}"
    return ""


def _compiled(parts: Parts) -> Way:
    """The compiled loop, from the disk where it is there. Raises whatever the compiler raises.

    A child compiles the first loop of this process, and its memory ends with the child; this process compiles
    further ones itself, and what they share only once.
    """
    module, notes = Module(parts.text, key_of(parts)), []
    try:
        with module.held():
            whole = module.whole()
            if not whole and module.finished():
                notes.append(f"{place()}: what was compiled there is damaged; it is made anew")
            if not whole and not _ways:
                kernels.begin()
                whole = done_apart(lambda: _make(module, parts))
            if whole:
                with suppress(Exception):  # whatever it has come upon, it is made anew
                    return Way(_typed(parts, _imported(module.path), True), True, tuple(notes))
            return Way(_make(module, parts), True, tuple(notes))
    except OSError as error:
        notes.append(f"{place()}: {error.strerror or error}: what is compiled is not kept for the next time")
        space: dict[str, object] = {}
        exec(compile(parts.text, "<loop over kernels>", "exec"), space)
        return Way(_typed(parts, space, False, _forms(parts)), True, tuple(notes))


def _make(module: Module, parts: Parts) -> Any:
    """Compile the loop and keep it in ``module``. Raises OSError, and whatever the compiler raises."""
    module.write()
    run = _typed(parts, _imported(module.path), True, _forms(parts))
    module.close()
    return run


def _forms(parts: Parts) -> dict[str, object]:
    """The globals of a module: compiled kernels; a law of several axes computes with arrays."""
    apart = {"law_step"} if parts.kind.coupled_law else set()
    forms = kernels.compiled
    return {name: forms(kernel, True, name not in apart) for name, kernel in parts.kernels.items()}


def _imported(path: Path) -> Data:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # by this name the compiler finds it again
    spec.loader.exec_module(module)
    return vars(module)


def _typed(parts: Parts, module: dict[str, object], kept: bool, forms: Mapping[str, object] | None = None) -> Any:
    """The function ``run`` of a ``module`` for the types of these parts.

    Without the ``forms`` of the kernels only where it was compiled before, and ``kept``.
    """
    module.update(forms or {})
    found = kernels.numba()
    made = found.njit(error_model="numpy", cache=kept, no_cfunc_wrapper=True)(module["run"])
    made.compile(tuple(found.typeof(each) for each in _arguments(parts)))
    made.disable_compile()  # other types are a mistake, and would take seconds
    return made


def _forms_of(parts: Parts) -> tuple[object, ...]:
    """Return what tells apart constants and states for which other loops are compiled from the same text."""
    given = *parts.constants.values(), *parts.states.values()
    return tuple(form(each) for each in given), type(parts.excitation).__name__


def _arguments(parts: Parts) -> tuple[object, ...]:
    constants, states = (in_arrays(tuple(each.values())) for each in (parts.constants, parts.states))
    quiet = parts._replace(noise=[None] * len(parts.noise), channel_noise=None)
    known = given(quiet, 1, in_arrays(parts.excitation), False)
    if parts.channel_noise is not None:
        known = (*known, np.zeros((1, parts.kind.channels)))
    return 0, 1, constants, states, known, room(parts, 1, 1)


def key_of(parts: Parts) -> str:
    """A key of all that decides what a compiler makes of the text: kernels, types, versions, processor."""
    found = hashlib.sha256(repr(_forms_of(parts)).encode())
    for name, kernel in sorted(parts.kernels.items()):
        found.update(name.encode() + digest(kernel))
    found.update(Path(kernels.__file__).read_bytes())
    found.update(repr((__version__, kernels.versions(), np.__version__, platform.python_version())).encode())
    return found.hexdigest()
