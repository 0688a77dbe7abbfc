# SPDX-License-Identifier: Apache-2.0
"""Inputs and results of a loop over kernels, in chunks of ``CHUNK`` samples.

The memory is bounded, unless complete histories are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rths_nodes.core.data import Data
from rths_nodes.core.samples import FLAG_AT_BOUND, FLAG_SOFT_START, Array, Command, Measurement, Target
from rths_nodes.loop.compiled.parts import Parts
from rths_nodes.loop.compiled.text import laws, sample_columns, step_columns, told, width
from rths_nodes.loop.indices import delay
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.command import bounds_of

CHUNK = 2 * delay.CHUNK
"""Number of samples in a chunk. Twice the chunk of the monitor shortens a run by 5 %."""
UNSENT = "inputs", "input_energy"
Rows = dict[str, dict[str, Array]]
"""Histories by stream and field. Each sample or step has one row, from number 0 on. Missing values are NaN."""


def given(parts: Parts, samples: int, forces: tuple[object, ...], in_lists: bool) -> tuple[object, ...]:
    """Return the known inputs of the next ``samples``, in the order of ``given`` in the generated function.

    ``forces`` are the excitation and, unless the loop is live, the external forces. If ``in_lists`` is true, noise
    is a list, which plain Python reads twice as fast as an array.
    """
    noise = [np.zeros((samples, 2)) if stream is None else stream.ahead(samples) for stream in parts.noise]
    control = (parts.ground, parts.chance) if parts.kind.control else ()
    beside = () if parts.channel_noise is None else (parts.channel_noise.ahead(samples),)
    flat = (noise[0] if len(noise) == 1 else np.hstack(noise)).reshape(-1)
    return *forces, *control, flat.tolist() if in_lists else flat, *beside


def room(parts: Parts, rows: int, steps: int) -> tuple[Array, int, Array, NDArray[np.int64], Array]:
    """Return zeroed arrays for sample values (with their stride), compensator values, marks and step values.

    Sample values are stored by columns with the returned stride, all other values by rows. Marks are the flags of
    Command and Measurement. If a law reports its values only on changes, the marks also contain the number of the
    row with these values.
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
    """Stores the histories of a run, in arrays for one chunk or, if ``kept``, for the complete run.

    If ``brief``, Targets are stored only as displacements, and compensator values only when reported.
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
        # by columns, because monitor and analysis read columns
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
        """Store the chunk from ``begin`` to ``end``; return whether the chunk is valid.

        The result is False if a limit of the monitor is exceeded or a sensor is in doubt.
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
        # without converters, these are the applied commands; row 0 is from Measurement 0
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
        histories["energies"] = np.broadcast_to(math.nan, (count, 4))
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
                values_by_name = {name: values[targets] for name, values in target.items() if name != "energies"}
                flags = int(command["flags"][sample + 1, 0]) & ~FLAG_AT_BOUND
                yield "target", Target(targets, auxiliary=inputs[targets], flags=flags, **values_by_name)
            # an interrupted test ends before the answer of the compensator
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
