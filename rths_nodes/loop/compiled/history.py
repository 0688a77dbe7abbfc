"""Chunks of a loop over kernels: noise in, histories and indices out.

A chunk has ``CHUNK`` samples, as those of the delay (``supervision/delay.py``), so that memory stays bounded
where nobody wants the histories.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rths_nodes.core.samples import FLAG_AT_BOUND, FLAG_SOFT_START, Array, Command, Measurement, Target
from rths_nodes.loop.compiled.parts import Parts
from rths_nodes.loop.compiled.text import sample_columns, step_columns, told, width
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.command import bounds_of
from rths_nodes.loop.supervision.delay import CHUNK

Rows = dict[str, dict[str, Array]]
"""By stream and field; a row for each sample or step, from 0 on. What never came is nan."""


def given(parts: Parts, samples: int, excitation: Any) -> tuple[Any, ...]:
    """What is known of the next ``samples`` of a run, in the order in which the text takes it."""
    noise = np.zeros((samples, 2 * len(parts.noise)))
    for axis, stream in enumerate(parts.noise):
        if stream is not None:
            noise[:, 2 * axis : 2 * axis + 2] = stream.ahead(samples)
    control = (parts.ground, parts.chance) if parts.kind.control else ()
    beside = () if parts.channel_noise is None else (parts.channel_noise.ahead(samples),)
    return excitation, *control, noise, *beside


def room(parts: Parts, rows: int, steps: int) -> tuple[Array, Array, Any, Array]:
    """Arrays for so many samples and steps: their numbers, those of the compensator, flags, numbers of steps."""
    kind = parts.kind
    numbers = sum(count for *_, count in told(kind))
    return (
        np.zeros((rows, width(sample_columns(kind)))),
        np.zeros((rows, numbers)),
        np.zeros((rows, 2), np.int64),
        np.zeros((steps, width(step_columns(kind)))),
    )


class Histories:
    """What a run gives: the room for a chunk, and all of it where ``kept``."""

    def __init__(self, parts: Parts, assembly: Assembly, kept: bool) -> None:
        scenario, kind = assembly.scenario, parts.kind
        self._parts, self._scenario, self._kept = parts, scenario, kept
        self._external: Any = assembly.external_force
        self._before, self._substeps = scenario.soft_start_steps, scenario.samples_per_step
        self._columns, self._of_steps = sample_columns(kind), step_columns(kind)
        self._bounds = bounds_of(assembly.compensator)
        self.out = room(parts, CHUNK + 1, CHUNK // self._substeps + 2)
        self._all = room(parts, scenario.samples + 1, scenario.steps + 1) if kept else self.out
        self._steps = 0
        """Targets so far, Target 0 apart."""
        self._energy = parts.monitor.monitor.energy.input

    def take(self, begin: int, end: int, steps: int, states: Mapping[str, Any]) -> bool:
        """A chunk behind Measurement ``begin``, up to ``end``; False where a limit of the monitor is broken."""
        count = min(end, self._scenario.samples) - begin
        rows, shown, marks, of_steps = self.out
        if self._bounds:
            self._mark_bounds(shown[:count], marks[:count])
        if not self._indices(begin, count, of_steps[:steps], states):
            return False
        if self._kept:
            for whole, part in zip(self._all[:3], (rows, shown, marks), strict=True):
                whole[begin : begin + count] = part[:count]
            self._all[1][begin:end] = shown[: end - begin]
            self._all[3][self._steps : self._steps + steps] = of_steps[:steps]
        self._steps += steps
        return True

    def _mark_bounds(self, shown: Array, marks: Any) -> None:
        """Commands of which an adaptive parameter stands at one of its bounds."""
        for place, low, high in self._bounds:
            values = shown[:, place]
            marks[~((low < values) & (values < high)), 0] |= FLAG_AT_BOUND

    def _indices(self, begin: int, count: int, of_steps: Array, states: Mapping[str, Any]) -> bool:
        """The monitor's, of a chunk; whether it goes on."""
        monitor, kind = self._parts.monitor.monitor, self._parts.kind
        rows, _, marks, _ = self.out
        prepared = int(np.count_nonzero(marks[:count, 0] & FLAG_SOFT_START))
        displacement, first = of_steps[:, self._of_steps["displacement"]], self._steps + 1
        soft = min(max(0, self._before + 1 - first), len(of_steps))
        if soft:
            monitor.energy.start(displacement[soft - 1].tolist())
        external = self._external[first + soft - 1 - self._before : first + len(of_steps) - 1 - self._before]
        told = np.full((len(of_steps) - soft, 1), np.nan)
        energies = np.concatenate([[self._energy], monitor.energy.over(displacement[soft:], external, told)])
        self._energy = float(energies[-1])
        measured = rows[prepared:count]
        samples = np.arange(begin + 1 + prepared, begin + count + 1)
        place = np.maximum(-(-samples // self._substeps) - (self._steps + soft), 0)
        columns = self._columns
        errors = measured[:, columns["error"]][:, 0]
        if monitor.breaks(errors, energies[place]):
            return False
        axes = [states[f"index_{axis}"] for axis in range(kind.axes)]
        target, moved = measured[:, columns["target"]], measured[:, columns["displacement"]]
        monitor.tracking.resume(begin + count, axes, target, moved)
        return True

    # -- what others get ----------------------------------------------------------------------------------

    def rows(self) -> Rows:
        """All histories. The arrays are not shared."""
        rows, shown, marks, _ = self._all
        p, n = self._parts, self._parts.kind.axes
        columns = {name: rows[:-1, place] for name, place in self._columns.items()}
        command = columns["applied"] if p.kind.converts else columns["command"]
        wrong = any(p.kind.sensors)
        true = [columns[f"true_{name}" if wrong else name] for name in ("displacement", "force")]
        nothing = np.full(n, np.nan)
        measured = [columns["displacement"], columns["force"], command, marks[:-1, 1:].astype(float)]
        first, none = p.measured, np.full(1, np.nan)
        firsts = first.displacement, first.force, first.command, np.array([float(first.flags)])
        names = "displacement", "force", "command", "flags"
        commands = [columns["target"], columns["command"], marks[:-1, :1].astype(float)]
        of = zip(("target", "command", "flags"), (nothing, nothing, none), commands, strict=True)
        return {
            "measurement": {name: _behind(*each) for name, *each in zip(names, firsts, measured, strict=True)},
            "command": {name: _behind(*each) for name, *each in of},
            "true_state": {
                "displacement": _behind(p.true.displacement, true[0]),
                "force": _behind(p.true.force, true[1]),
            },
            "compensator_state": {"values": shown.copy()},
            "target": self._targets(),
        }

    def _targets(self) -> dict[str, Array]:
        """Those of steps: with the external force, which was known beforehand."""
        first, of_steps = self._parts.target, self._all[3][:-1]
        found = {
            name: _behind(getattr(first, name), of_steps[:, place])
            for name, place in self._of_steps.items()
            if name != "inputs"
        }
        external = np.asarray(self._external)[: len(of_steps) - self._before]
        found["external_force"] = np.vstack([np.zeros((self._before + 1, external.shape[1])), external])
        found["energies"] = np.full((len(of_steps) + 1, 4), np.nan)
        return found

    def told(self) -> Iterator[tuple[str, Any]]:
        """All messages in the order in which a sink hears them: the name of its method, and what it is given."""
        p, scenario, rows = self._parts, self._scenario, self.rows()
        target, command, measured, true = (
            rows[name] for name in ("target", "command", "measurement", "true_state")
        )
        shown, modes = rows["compensator_state"]["values"], p.measured.control_mode
        inputs, channels, true_channels = self._beside()
        targets = 0
        yield "target", p.target
        yield "measurement", p.measured
        yield "truth", p.true
        for sample in range(scenario.samples + 1):
            if sample % self._substeps == 0 and sample < scenario.samples:
                targets += 1
                given = {name: values[targets] for name, values in target.items() if name != "energies"}
                flags = int(command["flags"][sample + 1, 0]) & ~FLAG_AT_BOUND
                yield "target", Target(targets, auxiliary=inputs[targets], flags=flags, **given)
            yield "state", (sample, shown[sample].tolist())
            if sample == scenario.samples:
                return
            k = sample + 1
            flags, marked = int(command["flags"][k, 0]), int(measured["flags"][k, 0])
            moved, pushed, sent = (measured[name][k] for name in ("displacement", "force", "command"))
            yield "command", Command(k, command["target"][k], command["command"][k], inputs[targets], flags)
            yield "measurement", Measurement(k, moved, pushed, sent, channels[k], marked, modes)
            moved, pushed = (true[name][k] for name in ("displacement", "force"))
            yield "truth", Measurement(k, moved, pushed, sent, true_channels[k], marked, modes)

    def _beside(self) -> tuple[Array, Array, Array]:
        """Inputs of each Target, channels of each Measurement, and what is true of these."""
        p, rows = self._parts, self._all[0][:-1]
        inputs = _behind(p.target.auxiliary, self._all[3][:-1, self._of_steps["inputs"]])
        channels = _behind(p.measured.auxiliary, rows[:, self._columns["channels"]])
        wrong = "true_channels" if p.kind.channel_noise else "channels"
        return inputs, channels, _behind(p.true.auxiliary, rows[:, self._columns[wrong]])


def _behind(first: Array, rest: Array) -> Array:
    """``first`` as a row, and the rows of ``rest``."""
    return np.vstack([first, rest])
