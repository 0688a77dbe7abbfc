# SPDX-License-Identifier: Apache-2.0
"""A run of the loop over kernels, in C or in plain Python.

If a limit is violated, a number is not finite or a part raises an exception, this run is discarded, and the
embedded loop repeats the test from the first sample. Only simulated rigs have kernels, and this run never uses the
port, so no rig moves twice.
"""

from __future__ import annotations

import hashlib
import linecache
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.codegen.building import Unbuilt, check_elementary, toolchain
from rths_nodes.codegen.calling import Slots, loaded
from rths_nodes.codegen.values import Untranslatable, Value, form
from rths_nodes.core.component_guard import labelled
from rths_nodes.core.data import Data
from rths_nodes.core.kernels import Function, identity
from rths_nodes.loop.compiled.history import CHUNK, Histories, given, room
from rths_nodes.loop.compiled.parts import Parts, parts_of
from rths_nodes.loop.compiled.text import FEW
from rths_nodes.loop.embedded import Loop, Outcome, Sink, checked_loop
from rths_nodes.loop.indices.delay import Delay
from rths_nodes.loop.options import COMPILED, KERNELS
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.timing import timing

MANY = 12
"""Largest number of rows of a table that is kept in tuples. C may copy tuples at each access, so longer tables
become arrays."""
SLOWER = "which takes 20 to 100 times as long"
HANDED = ("samples", "before")
"""Names of integer constants that a library takes as arguments. Other integer constants are part of its text."""
TABLES = 4
"""Position of the first argument of ``run`` whose arrays may have any length."""
_ways: dict[object, Way] = {}
_reported: set[str] = set()


class Way(NamedTuple):
    """Function ``run`` of a module from ``text.py``. A compiled function takes arrays instead of lists."""

    run: Function
    compiled: bool
    notes: tuple[str, ...] = ()
    library: str = ""
    untranslatable: str = ""
    """Line of a kernel that cannot be translated to C, with the reason; empty if there is none."""


def function_of(parts: Parts) -> Any:
    """Return the function ``run`` of a loop. The kernels are its globals. Tracebacks show the generated source."""
    text = parts.text
    name = f"<loop {hashlib.sha256(text.encode()).hexdigest()[:12]}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    space: Data = {**parts.kernels, "__name__": "loop"}
    exec(compile(text, name, "exec"), space)
    return space["run"]


def plain(parts: Parts) -> Way:
    return Way(function_of(parts), False)


def is_table(value: tuple[object, ...]) -> bool:
    rows = [row for row in value if isinstance(row, tuple)]
    alike = MANY < len(value) == len(rows) and len(set(map(len, rows))) == 1
    return alike and all(isinstance(number, float) for row in rows for number in row)


def in_arrays(value: object, tables: bool = False) -> Any:
    """Return ``value`` with lists of numbers as arrays and other lists as tuples.

    With ``tables``, long tables of tuples also become arrays.
    """
    if isinstance(value, tuple):
        if tables and is_table(value):
            return np.array(value)
        parts = [in_arrays(entry, tables) for entry in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        numbers = all(isinstance(entry, (int, float)) for entry in value)
        return np.array(value) if numbers else tuple(in_arrays(entry) for entry in value)
    return value


def forces_of(parts: Parts, compiled: bool) -> tuple[object, object]:
    external = parts.external.reshape(-1) if parts.kind.dofs <= FEW else parts.external
    return (in_arrays(parts.excitation), external) if compiled else (parts.excitation, external.tolist())


def way_of(parts: Parts) -> Way:
    """Return the loop in C or, if this fails, in plain Python with the reason in ``notes``.

    Notes that this process has already reported are omitted.
    """
    kernels = tuple((name, identity(kernel)) for name, kernel in parts.kernels.items())
    values = values_of(arguments_of(parts), parts)
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
    slots, of_constants = Slots(), tuple(name not in HANDED for name in parts.constants)
    return [
        slots.value(argument, position == 2 and of_constants, lengths=position < TABLES)
        for position, argument in enumerate(arguments)
    ]


def arguments_of(parts: Parts) -> tuple[object, ...]:
    constants = in_arrays(tuple(parts.constants.values()), tables=True)
    states = in_arrays(tuple(parts.states.values()))
    quiet = parts._replace(noise=[None] * len(parts.noise), channel_noise=None)
    inputs = given(quiet, 1, forces_of(parts, True), False)
    if parts.channel_noise is not None:
        inputs = (*inputs, np.zeros((1, parts.kind.channels)))
    return 0, 1, constants, states, inputs, room(parts, 1, 1)


class KernelLoop:
    """Runs a scenario by the function in ``way`` or, if this is impossible, by the embedded ``loop``.

    ``loop`` must not have run. ``by_kernels`` is true after a run without the embedded loop. ``brief`` requests
    brief histories, which are sufficient for indices.
    """

    def __init__(self, loop: Loop, parts: Parts, way: Way) -> None:
        self.assembly, self.scenario = loop.assembly, loop.scenario
        self.by_kernels = self.brief = False
        self.notes, self.library, self.untranslatable = way.notes, way.library, way.untranslatable
        self._loop, self._parts, self._way = loop, parts, way

    @property
    def engine(self) -> str:
        return COMPILED if self._way.compiled else KERNELS

    @property
    def delays(self) -> list[Delay]:
        return self._parts.monitor.monitor.tracking.delays

    def run(
        self,
        sinks: Sequence[Sink] = (),
        progress: Callable[[int], None] | None = None,
        interrupted: Callable[[], bool] | None = None,
    ) -> Outcome:
        """Run once, like :meth:`Loop.run`. A sink with a method ``whole`` receives all histories in one call."""
        if interrupted and interrupted():  # stop requested during compilation: hold the test
            return self._loop.run(sinks, progress, interrupted)
        reached = 0

        def report(sample: int) -> None:
            nonlocal reached
            if progress and sample > reached:  # a repetition reports only samples after the discarded run
                reached = sample
                progress(sample)

        result = self._by_kernels(bool(sinks), report, interrupted)
        if result is None:
            again = (
                "the test was repeated stage by stage, because the loop over kernels cannot report why it stopped"
            )
            self.notes = (*self.notes, *([again] if self._way.compiled else []))
            return self._loop.run(sinks, report, interrupted)
        self.by_kernels = True
        outcome, histories = result
        rows = histories.rows(outcome.samples) if sinks else {}
        remaining = []
        for sink in sinks:
            if take := getattr(sink, "whole", None):
                take(rows)
            else:
                remaining.append(sink)
        for name, values in histories.messages(outcome.samples) if remaining else ():
            for sink in remaining:
                getattr(sink, name)(*(values if name == "state" else (values,)))
        return outcome

    def _by_kernels(
        self,
        kept: bool,
        progress: Callable[[int], None],
        interrupted: Callable[[], bool] | None,
    ) -> tuple[Outcome, Histories] | None:
        """Return outcome and histories of the run, or None if the embedded loop has to repeat the test."""
        parts, samples = self._parts, self.scenario.samples
        histories = Histories(parts, self.assembly, kept, kept and self.brief)
        for delay in self.delays if histories.brief else ():
            delay.keep()
        run, compiled = self._way.run, self._way.compiled
        constants, states = tuple(parts.constants.values()), tuple(parts.states.values())
        forces, names, begin = forces_of(parts, compiled), list(parts.states), 0
        if compiled:
            constants, states = in_arrays(constants, tables=True), in_arrays(states)
        taken: list[float] = []
        counts: list[int] = []
        began = time.perf_counter()
        if parts.monitor.monitor.breach or parts.monitor.monitor.in_order:
            return None
        while begin <= samples:
            end, started = min(begin + CHUNK, samples + 1), time.perf_counter()
            with np.errstate(all="ignore"):
                try:
                    inputs = given(parts, end - begin, forces, not compiled)
                    out = histories.out(begin, not compiled)
                    stopped, steps, states = run(begin, end, constants, states, inputs, out)
                except Exception:  # any part can raise; the embedded loop then reports the exception
                    return None
                by_name = dict(zip(names, states, strict=True))
                if stopped >= 0 or not histories.take(begin, end, steps, by_name):
                    return None
            count, begin = min(end, samples) - begin, end
            taken.append((time.perf_counter() - started) / max(count, 1))
            counts.append(count)
            progress(min(end, samples))
            if begin <= samples and interrupted and interrupted():
                break
        parts.monitor.monitor.energy.resume(by_name["work"])
        running_s = time.perf_counter() - began
        times = timing(running_s, np.array(taken), np.zeros(0), 0, 0, counts=np.array(counts))
        times |= self._loop.rig.counts
        last = min(begin, samples)
        ended = (State.FINISHED, "") if last == samples else (State.HELD, f"sample {last}: interrupted")
        return Outcome(*ended, last, parts.monitor.metrics(), self._shown(by_name), times), histories

    def _shown(self, states: Data) -> dict[str, float]:
        p, numbers = self._parts, []
        laws = ["law"] if p.kind.coupled_law else [f"law_{axis}" for axis in range(p.kind.axes)]
        for part in range(len(p.kind.shown)):
            shown = p.kernels[f"law_shown_{part}"]
            numbers += [float(number) for law in laws for number in shown(p.constants["of_law"], states[law])]
        return dict(zip(self.assembly.names.state, numbers, strict=True))


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
