# SPDX-License-Identifier: Apache-2.0
"""Runs of the loop over kernels, in C or in plain Python, with a handover to the embedded loop if necessary.

The embedded loop takes over if a limit is violated, a number is not finite or a component raises an exception. It
continues from an earlier sample (a handover), or repeats the test if no handover is possible. A repetition is
safe, because only simulated rigs have kernels and these runs never use the port.

A run has chunks of ``CHUNK`` samples, so its memory is bounded unless complete histories are stored.
"""

from __future__ import annotations

import hashlib
import linecache
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rths_nodes.codegen.building import Unbuilt, check_elementary, toolchain
from rths_nodes.codegen.calling import entry_values, loaded
from rths_nodes.codegen.values import Untranslatable, Value, form
from rths_nodes.control.compensators.per_axis import PerAxis
from rths_nodes.core.component_guard import labelled
from rths_nodes.core.data import Data
from rths_nodes.core.kernels import Function, identity
from rths_nodes.core.samples import FLAG_AT_BOUND, FLAG_SOFT_START, Array, Command, Measurement, Target
from rths_nodes.laboratory.ports.simulator import SeparateAxes
from rths_nodes.loop.compiled.parts import Parts, parts_of
from rths_nodes.loop.compiled.text import FEW, laws, sample_columns, step_columns, told, width
from rths_nodes.loop.embedded import Loop, Outcome, Sink, checked_loop
from rths_nodes.loop.indices import tracking
from rths_nodes.loop.indices.tracking import Delay
from rths_nodes.loop.options import COMPILED, KERNELS
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.command import bounds_of
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.timing import timing

CHUNK = 2 * tracking.CHUNK
"""Number of samples in a chunk. With twice the monitor's chunk, a run is 5 % faster."""
UNSENT = "inputs", "input_energy"
Rows = dict[str, dict[str, Array]]
"""Histories by stream and field, with one row per sample or step from number 0 on. Missing values are NaN."""
MANY = 12
"""Largest number of rows of a table that remains a tuple. Compiled code may copy a tuple at each access, so
longer tables become arrays."""
SLOWER = "which takes 20 to 100 times as long"
HANDED = ("samples", "before")
"""Names of integer constants that a compiled library takes as arguments. Other constants are part of it."""
TABLES = 4
"""Position of the first argument of ``run`` whose arrays may have any length."""
_ways: dict[object, Way] = {}
_reported: set[str] = set()


class Way(NamedTuple):
    """Function ``run`` of a generated module (``text.py``). A compiled function takes arrays instead of lists."""

    run: Function
    compiled: bool
    notes: tuple[str, ...] = ()
    library: str = ""
    untranslatable: str = ""
    """First line of a kernel that cannot be translated to C, followed by the reason. Empty if all lines can."""


def function_of(parts: Parts) -> Any:
    """Return the function ``run`` of a loop, with the kernels as its globals."""
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
    """Return ``value`` with lists of numbers converted to arrays, and other lists to tuples.

    Tables of tuples with more than MANY rows also become arrays if ``tables`` is true.
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
    """Return the loop compiled as C, or in plain Python if the loop cannot be compiled.

    The field ``notes`` contains the reason for plain Python. Notes already reported by this process are omitted.
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
    fixed = tuple(name not in HANDED for name in parts.constants)
    return entry_values(
        (argument, position == 2 and fixed, position < TABLES) for position, argument in enumerate(arguments)
    )


def arguments_of(parts: Parts) -> tuple[object, ...]:
    constants = in_arrays(tuple(parts.constants.values()), tables=True)
    states = in_arrays(tuple(parts.states.values()))
    quiet = parts._replace(noise=[None] * len(parts.noise), channel_noise=None)
    inputs = given(quiet, 1, forces_of(parts, True), False)
    if parts.channel_noise is not None:
        inputs = (*inputs, np.zeros((1, parts.kind.channels)))
    return 0, 1, constants, states, inputs, room(parts, 1, 1)


class KernelLoop:
    """Runs a scenario with the function of ``way``, or with the embedded ``loop`` if ``way`` cannot complete it.

    ``loop`` must not have run. ``by_kernels`` is true after a run without the embedded loop. ``brief`` requests
    brief histories, which suffice to compute indices.
    """

    def __init__(self, loop: Loop, parts: Parts, way: Way) -> None:
        self.assembly, self.scenario = loop.assembly, loop.scenario
        self.by_kernels = self.brief = False
        self.notes, self.library, self.untranslatable = way.notes, way.library, way.untranslatable
        self._loop, self._parts, self._way = loop, parts, way
        self._reached, self._states = 0, parts.states
        """``_reached``: sample at which the last chunk stopped or, if it did not stop, its first sample.
        ``_states``: states after the last chunk."""

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
        if interrupted and interrupted():  # a stop was requested during compilation, so the test must be held
            return self._loop.run(sinks, progress, interrupted)
        takers = [getattr(sink, "whole", None) for sink in sinks]
        reached = 0

        def report(sample: int) -> None:
            nonlocal reached
            if progress and sample > reached:  # a discarded run has already reported earlier samples
                reached = sample
                progress(sample)

        result = self._by_kernels(bool(sinks), report, interrupted)
        if result is None:
            again = (
                "the test was repeated stage by stage, because the loop over kernels cannot report why it stopped"
            )
            self.notes = (*self.notes, *([again] if self._way.compiled else []))
            begin = self._repeated([*filter(None, takers)] if all(takers) else [])
            return self._loop.run(sinks, report, interrupted, begin)
        self.by_kernels = True
        outcome, histories = result
        rows = histories.rows(outcome.samples) if sinks else {}
        remaining = []
        for sink, take in zip(sinks, takers, strict=True):
            if take:
                take(rows)
            else:
                remaining.append(sink)
        for name, values in histories.messages(outcome.samples) if remaining else ():
            for sink in remaining:
                getattr(sink, name)(*(values if name == "state" else (values,)))
        return outcome

    def _repeated(self, takers: Sequence[Callable[[Rows], None]]) -> Callable[[], Measurement] | None:
        """Repeat the samples before the handover and pass their histories to ``takers``.

        Return the argument ``begin`` of :meth:`Loop.run`, or None if no handover is possible.
        """
        loop, last = self._loop, handover_sample(self._loop, self._parts, self._reached)
        if not (takers and last):
            return None
        parts = parts_of(self.assembly)
        assert isinstance(parts, Parts)
        self._parts = parts
        result = self._by_kernels(True, None, None, last)
        if result is None:
            return None
        rows = result[1].rows(last)
        measured = rows["measurement"]
        if not parts.monitor.resume(last, rows["command"]["target"], measured["displacement"], measured["force"]):
            return None
        for take in takers:
            take(rows)
        loop.monitor = parts.monitor
        return lambda: hand_over(loop, parts, self._states, rows, last)

    def _by_kernels(
        self,
        kept: bool,
        progress: Callable[[int], None] | None,
        interrupted: Callable[[], bool] | None,
        last: int | None = None,
    ) -> tuple[Outcome, Histories] | None:
        """Run up to Measurement ``last`` (default: the end). Return None if the embedded loop must take over."""
        parts, samples = self._parts, self.scenario.samples
        histories = Histories(parts, self.assembly, kept, kept and self.brief and last is None)
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
        final = samples + 1 if last is None else last
        while begin < final:
            end, started = min(begin + CHUNK, final), time.perf_counter()
            self._reached = begin
            with np.errstate(all="ignore"):
                try:
                    inputs = given(parts, end - begin, forces, not compiled)
                    out = histories.out(begin, not compiled)
                    stopped, steps, states = run(begin, end, constants, states, inputs, out)
                except Exception:  # any part can raise; the embedded loop then reports the exception
                    return None
                self._reached, self._states = max(begin, stopped), dict(zip(names, states, strict=True))
                if stopped >= 0 or not histories.take(begin, end, steps, self._states):
                    return None
            count, begin = min(end, samples) - begin, end
            taken.append((time.perf_counter() - started) / max(count, 1))
            counts.append(count)
            if progress:
                progress(min(end, samples))
            if begin <= samples and interrupted and interrupted():
                break
        parts.monitor.monitor.energy.resume(self._states["work"])
        running_s = time.perf_counter() - began
        times = timing(running_s, np.array(taken), np.zeros(0), 0, 0, counts=np.array(counts))
        return self._outcome(self._states, min(begin, samples), times), histories

    def _outcome(self, states: dict[str, object], samples: int, times: dict[str, object]) -> Outcome:
        ended = samples == self.scenario.samples
        state, reason = (State.FINISHED, "") if ended else (State.HELD, f"sample {samples}: interrupted")
        metrics = self._parts.monitor.metrics()
        times |= self._loop.rig.counts
        return Outcome(state, reason, samples, metrics, self._shown(states), times)

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

    Reasons that :func:`way_of` has already reported are omitted. Raises ConfigError if the scenario cannot run.
    """
    parts = parts_of(checked_loop(scenario).assembly)
    if isinstance(parts, str):
        return [f"engine python: {parts}"]
    return list(way_of(parts).notes)


def handover_sample(loop: Loop, parts: Parts, reached: int) -> int:
    """Return the sample of the handover, at least two before ``reached``, or 0 if no handover is possible."""
    plain = type(loop.assembly.compensator).bound is PerAxis.bound
    if parts.kind.control or loop.scenario.hops.depth or not plain:
        return 0
    substeps = loop.scenario.samples_per_step
    sample = (reached - 2) // substeps * substeps
    return sample if sample > (loop.scenario.soft_start_steps + 1) * substeps else 0


def hand_over(loop: Loop, parts: Parts, states: Data, rows: Rows, sample: int) -> Measurement:
    a, axes, step = loop.assembly, parts.kind.axes, states["step"]
    loop.rig.first(sample, [states[f"sent_{axis}"] for axis in range(axes)])
    windows = [states[f"window_{axis}"][:-1] for axis in range(axes)] if parts.kind.lead else []
    loop.substructure.resume(step, [*map(list, zip(*windows, strict=True))])
    solver: Any = a.integrator
    state = like(solver.state, states["solver"])
    solver.resume(step - loop.scenario.soft_start_steps, np.array(states["pose"]), state)
    _resume_commands(loop, parts, states)
    _resume_port(a.port, axes, states, sample)
    now = {name: values[sample] for name, values in rows["measurement"].items()}
    channels = np.array(states.get("channels", parts.measured.auxiliary))
    moved, force, command, flags = now["displacement"], now["force"], now["command"], int(now["flags"][0])
    return Measurement(sample, moved, force, command, channels, flags, parts.measured.control_mode)


def _resume_commands(loop: Loop, parts: Parts, states: Data) -> None:
    ramp, law = loop.assembly.ramp, loop.assembly.compensator
    ramp.start(parts.target)
    before = states["x_before"].tolist() if "x_before" in states else [*_numbered("x_before", states)]
    loop.commands.resume(states["step"], before)
    held: Any = ramp
    if not held.hands_on:
        held.take(lambda before: [*map(like, before, _numbered("ramp", states))])
    if isinstance(law, PerAxis):
        law.states[:] = map(like, law.states, _numbered("law", states))


def _resume_port(port: Any, axes: int, states: Data, sample: int) -> None:
    rig = port.parts.rig
    if isinstance(rig, SeparateAxes):
        rig.states[:] = map(like, rig.states, _numbered("rig", states))
    else:
        rig.state = like(rig.state, states["rig"])
    for axis, pair in enumerate(port.parts.sensors):
        if not pair.perfect:
            pair.take(partial(like, value=states[f"sensed_{axis}"]))
    none = np.zeros(len(port.auxiliary_inputs))
    line: Array = np.reshape(states.get("line", ()), (-1, axes))
    port.resume(sample, [(row, none) for row in np.roll(line, -states.get("at", 0), axis=0).tolist()])


def _numbered(name: str, states: Data) -> Iterator[Any]:
    names = [name] if name in states else [f"{name}_{number}" for number in range(len(states))]
    return (states[key] for key in names if key in states)


def like(sample: Any, value: Any) -> Any:
    if isinstance(sample, list) and isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(sample, (tuple, list)):
        kept: Any = type(sample)
        items = map(like, sample, value)
        return kept(*items) if hasattr(sample, "_fields") else kept(items)
    return value


def given(parts: Parts, samples: int, forces: tuple[object, ...], in_lists: bool) -> tuple[object, ...]:
    """Return the argument ``given`` of the generated function: known inputs of the next ``samples`` samples.

    ``forces`` are the excitation and, unless the loop is live, the external forces. Noise is a list if
    ``in_lists`` is true, because plain Python reads a list twice as fast as an array.
    """
    noise = [np.zeros((samples, 2)) if stream is None else stream.ahead(samples) for stream in parts.noise]
    control = (parts.ground, parts.chance) if parts.kind.control else ()
    beside = () if parts.channel_noise is None else (parts.channel_noise.ahead(samples),)
    flat = (noise[0] if len(noise) == 1 else np.hstack(noise)).reshape(-1)
    return *forces, *control, flat.tolist() if in_lists else flat, *beside


def room(parts: Parts, rows: int, steps: int) -> tuple[Array, int, Array, NDArray[np.int64], Array]:
    """Return zeroed arrays for sample values (with their stride), compensator values, marks and step values.

    Sample values are stored by columns with the returned stride, all other values by rows. A row of marks contains
    the flags of Command and Measurement. If laws report only changes, the row also marks laws that have reported.
    """
    kind = parts.kind
    numbers = sum(count for *_, count in told(kind))
    return (
        np.zeros(rows * width(sample_columns(kind))),
        rows,
        np.zeros(rows * numbers),
        np.zeros((rows, 2 + laws(kind) * kind.renewed), np.int64),
        np.zeros(steps * width(step_columns(kind))),
    )


class Histories:
    """Stores histories: of the complete run if ``kept`` is true, otherwise of one chunk.

    A ``brief`` instance stores only the displacements of Targets, and compensator values only when reported.
    """

    def __init__(self, parts: Parts, assembly: Assembly, kept: bool, brief: bool = False) -> None:
        scenario, kind = assembly.scenario, parts.kind
        self._parts, self._scenario, self._kept = parts, scenario, kept
        self.brief, self._reported = brief, list[Array]()
        self._external = assembly.external_force
        self._before, self._substeps = scenario.soft_start_steps, scenario.samples_per_step
        self._columns, self._of_steps = sample_columns(kind), step_columns(kind)
        self._bounds = bounds_of(assembly.compensator)
        rows, _, shown, self._marks, steps = room(parts, CHUNK + 1, CHUNK // self._substeps + 2)
        self._samples = rows.reshape(width(self._columns), -1)
        self._shown = shown.reshape(len(self._marks), len(shown) // len(self._marks))
        self._targets = steps.reshape(-1, width(self._of_steps))
        if kept:
            self._begin()
        self._steps = 0
        self._energy = parts.monitor.monitor.energy.input

    def out(self, begin: int, in_views: bool) -> tuple[Array | memoryview, int, Array, NDArray[np.int64], Array]:
        rows = self._samples.reshape(-1)[self._row(begin) :]
        table = rows.data if in_views else rows
        length = self._samples.shape[1]
        return table, length, self._shown.reshape(-1), self._marks, self._next_targets.reshape(-1)

    def _row(self, begin: int) -> int:
        return begin + 1 if self._kept else 0

    @property
    def _next_targets(self) -> Array:
        return self._targets[self._steps + 1 :] if self._kept and not self.brief else self._targets

    def _begin(self) -> None:
        p, samples, steps = self._parts, self._scenario.samples + 1, self._scenario.steps + 1
        now, true = p.measured, p.true if any(p.kind.sensors) else p.measured
        firsts: dict[str, Array | float] = {"target": math.nan, "command": math.nan}
        firsts |= {"applied" if p.kind.converts else "command": now.command}
        firsts |= {"displacement": now.displacement, "force": now.force, "channels": now.auxiliary}
        firsts |= {"true_displacement": true.displacement, "true_force": true.force}
        firsts |= {"true_channels": p.true.auxiliary}
        self._samples = np.empty((len(self._samples), samples))
        for name, first in firsts.items():
            if (columns := self._columns[name]).stop > columns.start:
                self._samples[columns, 0] = first
        # stored by columns, because monitor and analysis read columns
        self._displacement = np.empty((steps, len(p.target.displacement)), order="F")
        self._displacement[0] = p.target.displacement
        self._all_marks: Any = np.zeros((samples, 2), np.uint32)
        self._all_marks[0, 1] = now.flags
        if self.brief:
            return
        self._targets = np.empty((steps, self._targets.shape[1]))
        self._targets[0, self._of_steps["inputs"]] = p.target.auxiliary
        for name in self._of_steps.keys() - set(UNSENT):
            self._targets[0, self._of_steps[name]] = getattr(p.target, name)
        self._all_shown = np.full((self._shown.shape[1], samples), math.nan)

    def take(self, begin: int, end: int, steps: int, states: Data) -> bool:
        """Store the chunk from ``begin`` to ``end``, with ``steps`` integration steps and the final ``states``.

        Return False if the embedded loop must check a limit of the monitor or a sensor, otherwise True.
        """
        count = min(end, self._scenario.samples) - begin
        marks = self._marks
        every = self._kept and not self.brief
        if self.brief:
            self._report(end - begin)
        if self._bounds or every:
            shown = self._all_shown[:, begin:end] if every else np.empty((self._shown.shape[1], end - begin))
            self._repeat(shown)
        for column, low, high in self._bounds:
            values = shown[column, :count]
            marks[:count][~((low < values) & (values < high)), 0] |= FLAG_AT_BOUND
        made = self._next_targets[:steps]
        if self._kept:
            behind = slice(self._steps + 1, self._steps + 1 + steps)
            self._displacement[behind] = made[:, self._of_steps["displacement"]]
        if not self._indices(begin, count, made[:, self._of_steps["input_energy"].start], states):
            return False
        if self._kept and (marks[:count, 0] | marks[:count, 1]).any():
            self._all_marks[begin + 1 : begin + 1 + count] = marks[:count, :2]
        self._steps += steps
        marks[:] = 0
        return True

    def _repeat(self, table: Array) -> None:
        kind, count, first = self._parts.kind, table.shape[1], 0
        if not kind.renewed:
            table[:] = self._shown[:count].T
            return
        for _, law, numbers in told(kind):
            changed = self._marks[:count, 2 + law] > 0
            reported = np.append(0, np.flatnonzero(changed))
            latest = np.cumsum(changed)
            for column in range(first, first + numbers):
                self._shown[reported, column].take(latest, out=table[column], mode="clip")
            first += numbers

    def _report(self, count: int) -> None:
        if self._parts.kind.renewed and laws(self._parts.kind) == 1:
            reported = np.append(0, np.flatnonzero(self._marks[:count, 2]))
            self._reported.append(self._shown[reported])
        else:
            table = np.empty((self._shown.shape[1], count))
            self._repeat(table)
            self._reported.append(table.T)

    def _indices(self, begin: int, count: int, energies: Array, states: Data) -> bool:
        monitor, kind = self._parts.monitor.monitor, self._parts.kind
        marks, columns = self._marks, self._columns
        prepared = int(np.count_nonzero(marks[:count, 0] & FLAG_SOFT_START)) if self._before else 0
        row = self._row(begin)
        measured = self._samples[:, row + prepared : row + count]
        errors = measured[columns["error"]][0]
        target, moved, force = (measured[columns[name]].T for name in ("target", "displacement", "force"))
        if self._parts.monitor.sensors.in_doubt(target, moved, force):
            return False
        doubtful = monitor.doubtful(errors)
        if len(doubtful):
            position = -(-(begin + 1 + prepared + doubtful) // self._substeps) - self._steps
            if monitor.breaks(errors[doubtful], np.append(self._energy, energies)[np.maximum(position, 0)]):
                return False
        if len(energies):
            self._energy = float(energies[-1])
        axes = [states[f"index_{axis}"] for axis in range(kind.axes)]
        monitor.tracking.resume(begin + count, axes, target, moved)
        return True

    def rows(self, last: int) -> Rows:
        behind = slice(last + 1)
        columns = {name: self._column(name)[behind] for name in self._columns}
        p, marks = self._parts, self._all_marks[behind]
        true = "true_" if any(p.kind.sensors) else ""
        # without converters, the sent commands are applied; row 0 is from Measurement 0
        sent = columns["command"]
        applied = self._arrived(columns["applied" if p.kind.converts else "command"])
        measured = {"displacement": columns["displacement"], "force": columns["force"]}
        return {
            "measurement": {**measured, "command": applied, "flags": marks[:, 1:]},
            "command": {"target": columns["target"], "command": sent, "flags": marks[:, :1]},
            "true_state": {name: columns[true + name] for name in measured},
            "compensator_state": {
                "values": np.vstack(self._reported) if self.brief else self._all_shown.T[behind]
            },
            "target": self._of_targets(),
        }

    def _column(self, name: str) -> Array:
        return np.ascontiguousarray(self._samples[self._columns[name]].T)

    def _arrived(self, sent: Array) -> Array:
        depth = self._scenario.hops.depth
        return np.concatenate([np.repeat(sent[:1], depth, axis=0), sent])[: len(sent)] if depth else sent

    def _of_targets(self) -> dict[str, Array]:
        count = self._steps + 1
        kept = self._targets[: 0 if self.brief else count]
        histories = {name: kept[:, columns] for name, columns in self._of_steps.items() if name not in UNSENT}
        histories["displacement"] = self._displacement[:count]
        external = np.asarray(self._external)
        all_forces = np.vstack([np.zeros((self._before + 1, external.shape[1])), external])
        histories["external_force"] = all_forces[:count]
        return histories

    def messages(self, last: int) -> Iterator[tuple[str, Any]]:
        """Yield (name, values) of every message up to Measurement ``last``, in the order of the embedded loop."""
        p, rows = self._parts, self.rows(last)
        target, command, measured, true = (
            rows[name] for name in ("target", "command", "measurement", "true_state")
        )
        shown, modes = rows["compensator_state"]["values"], p.measured.control_mode
        inputs, channels = self._targets[:, self._of_steps["inputs"]], self._column("channels")
        true_channels = self._column("true_channels") if p.kind.channel_noise else channels
        targets = 0
        yield "target", p.target
        yield "measurement", p.measured
        yield "truth", p.true
        for sample in range(last + 1):
            if sample % self._substeps == 0 and sample < last:
                targets += 1
                values_by_name = {name: values[targets] for name, values in target.items()}
                flags = int(command["flags"][sample + 1, 0]) & ~FLAG_AT_BOUND
                yield "target", Target(targets, auxiliary=inputs[targets], flags=flags, **values_by_name)
            # an interrupted test ends before the compensator processes the last Measurement
            if sample < last or last == self._scenario.samples:
                yield "state", (sample, shown[sample].tolist())
            if sample == last:
                return
            k = sample + 1
            flags, marked = int(command["flags"][k, 0]), int(measured["flags"][k, 0])
            moved, pushed, sent = (measured[name][k] for name in ("displacement", "force", "command"))
            yield "command", Command(k, command["target"][k], command["command"][k], inputs[targets], flags)
            yield "measurement", Measurement(k, moved, pushed, sent, channels[k], marked, modes)
            moved, pushed = (true[name][k] for name in ("displacement", "force"))
            yield "truth", Measurement(k, moved, pushed, sent, true_channels[k], marked, modes)
