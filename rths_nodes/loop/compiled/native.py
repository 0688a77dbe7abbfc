# SPDX-License-Identifier: Apache-2.0
"""Loops over kernels in C, or in plain Python if this machine cannot build C."""

from __future__ import annotations

import numpy as np

from rths_nodes.codegen.building import Unbuilt, check_elementary, toolchain
from rths_nodes.codegen.calling import Fixed, Slots, loaded
from rths_nodes.codegen.values import Untranslatable, Value, form
from rths_nodes.core.component_guard import labelled
from rths_nodes.core.kernels import identity
from rths_nodes.loop.compiled.history import given, room
from rths_nodes.loop.compiled.parts import Parts, parts_of
from rths_nodes.loop.compiled.running import KernelLoop, Way, forces_of, function_of, in_arrays, plain
from rths_nodes.loop.embedded import Loop, checked_loop
from rths_nodes.loop.scenario.schema import Scenario

SLOWER = "which takes 20 to 100 times as long"
HANDED = ("samples", "before")
"""Names of integer constants that a library takes as arguments. Other integer constants are part of its text."""
_ways: dict[object, Way] = {}
_reported: set[str] = set()


def loop_over_kernels(loop: Loop, compiled: bool) -> KernelLoop | str:
    parts = parts_of(loop.assembly)
    if isinstance(parts, str):
        return parts
    return KernelLoop(loop, parts, way_of(parts) if compiled else plain(parts))


def remarks(scenario: Scenario) -> list[str]:
    """Return the reasons why runs of ``scenario`` are not compiled, or an empty list.

    A process reports each reason of :func:`way_of` only once. Raises ConfigError if the scenario cannot run.
    """
    parts = parts_of(checked_loop(scenario).assembly)
    if isinstance(parts, str):
        return [f"engine python: {parts}"]
    return list(way_of(parts).notes)


def way_of(parts: Parts) -> Way:
    """Return the loop in C or, if this fails, in plain Python with the reason in ``notes``.

    Notes that this process has already reported are omitted.
    """
    kernels = tuple((name, identity(kernel)) for name, kernel in parts.kernels.items())
    values = values_of(_arguments(parts), parts)
    key = parts.kind, tuple(parts.constants), tuple(parts.states), kernels, tuple(map(form, values))
    if key not in _ways:
        try:
            check_elementary(tools := toolchain())
            call, library = loaded(function_of(parts), values, tools)
            _ways[key] = Way(call, True, library.notes, library.digest)
        except (Unbuilt, Untranslatable) as error:
            note = f"{error}. The loop runs in plain Python, {SLOWER}"
            line = labelled(str(error), parts.kernels.values()) if isinstance(error, Untranslatable) else ""
            _ways[key] = plain(parts)._replace(notes=(note,), untranslatable=line)
    way = _ways[key]
    notes = tuple(note for note in way.notes if note not in _reported)
    _reported.update(notes)
    return way._replace(notes=notes)


def values_of(arguments: tuple[object, ...], parts: Parts) -> list[Value]:
    of_constants = tuple(name not in HANDED for name in parts.constants)
    fixed: tuple[Fixed, ...] = (False, False, of_constants, False, False, False)
    slots, pairs = Slots(), zip(arguments, fixed, strict=True)
    return [slots.value(*pair, lengths=position < TABLES) for position, pair in enumerate(pairs)]


TABLES = 4
"""Position of the first argument of ``run`` whose arrays may have any length."""


def _arguments(parts: Parts) -> tuple[object, ...]:
    constants = in_arrays(tuple(parts.constants.values()), tables=True)
    states = in_arrays(tuple(parts.states.values()))
    quiet = parts._replace(noise=[None] * len(parts.noise), channel_noise=None)
    inputs = given(quiet, 1, forces_of(parts, True), False)
    if parts.channel_noise is not None:
        inputs = (*inputs, np.zeros((1, parts.kind.channels)))
    return 0, 1, constants, states, inputs, room(parts, 1, 1)
