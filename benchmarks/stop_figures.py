# SPDX-License-Identifier: Apache-2.0
"""Stated and measured figures of a stop, in samples of the rig's counter, for stops.py."""

from __future__ import annotations

import math
import os
import pickle
import traceback
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rths_nodes.core.limits import braked_together, changes_of_step, samples_to_rest
from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.safe_stop import braking_time, excess_travel

MEASURED = ("limit", "pressure", "interlock")
"""Causes that the rig stage finds in a Measurement, which is flagged; the next Command brakes."""
UDP = "port={{type: udp, emulator: true, transport_samples: {}}}"
OFF_LINE = 0.01
"""Largest distance from the common line of axes that stop together, as a fraction of the travel."""
ROUNDING = 1.0 + 1e-6
SHORT_M = 1e-6
"""Shortest travel for which a line is defined, m."""


@dataclass(frozen=True)
class Stated:
    """Samples from the cause to the first braking sample and to rest, and further travel of each axis, m."""

    first: int
    rest: int
    way: tuple[float, ...]


@dataclass(frozen=True)
class Figures:
    """Measured figures of one run; NaN for unknown values.

    ``first``, ``rest`` and ``way`` are the counterparts of Stated.
    """

    first: int
    rest: int
    way: tuple[float, ...]
    sharpest: float = math.nan
    """Largest deceleration of a command, as a fraction of the declared deceleration."""
    off_line: float = math.nan
    """Largest distance of axes of one group from their common line, as a fraction of the travel."""
    moved: tuple[float, ...] = (math.nan,)
    """Travel of the actuators from the cause to rest, m."""
    behind: tuple[float, ...] = (math.nan,)
    """Lag of the actuators behind their commands at the cause, m."""

    def with_actuators(self, command: Array, positions: Array) -> Figures:
        """Add the figures of the actuators. Arguments begin at the cause: first command, and all positions, m."""
        moved, behind = np.abs(positions - positions[0]).max(axis=0), np.abs(command - positions[0])
        return replace(self, moved=tuple(moved.tolist()), behind=tuple(behind.tolist()))

    def beyond(self, stated: Stated) -> list[str]:
        """Describe the figures that exceed the stated figures."""
        past_command = zip(self.moved, self.behind, stated.way, strict=False)
        rows: list[tuple[str, float, float]] = [
            ("samples to the first braking sample", self.first, stated.first),
            ("samples to rest", self.rest, stated.rest),
            *(("m further", way, most * ROUNDING) for way, most in zip(self.way, stated.way, strict=True)),
            *(
                ("m that an actuator went beyond its command", moved - behind, most * ROUNDING)
                for moved, behind, most in past_command
            ),
            ("of the declared deceleration", self.sharpest, ROUNDING),
            ("of the travel off the common line", self.off_line, OFF_LINE),
        ]
        return [f"{value:.6g} {title}, stated {most:.6g}" for title, value, most in rows if value > most]


def stated(scenario: Scenario, first: int) -> Stated:
    """Return the stated figures of a stop from the velocity limits, ``first`` samples after the cause."""
    limits, dt = list(scenario.limits.values()), scenario.dt
    way, samples = [0.0] * len(limits), 1
    for group in braked_together(limits, scenario.stop_groups):
        members = [limits[axis] for axis in group]
        needed = samples_to_rest([limit.velocity * dt for limit in members], changes_of_step(members, dt))
        samples = max(samples, needed)
        for axis in group:
            way[axis] = excess_travel(limits[axis], (first - 1) * dt, time=braking_time(members))
    return Stated(first, first - 1 + samples, tuple(way))


def figures_of(scenario: Scenario, path: Array, at: int, first: int, rest: int | None = None) -> Figures:
    """Measure the figures of the commands ``path`` ``(samples, n_axes)`` (m) with the cause at sample ``at``.

    The first braking sample is ``first`` samples later. The rig is at rest ``rest`` samples later, by default when
    the command last changes.
    """
    after = path[at:]
    changed = np.flatnonzero(np.any(np.diff(after, axis=0) != 0.0, axis=1))
    last = int(changed[-1]) + 1 if len(changed) else 0
    way = tuple(np.abs(after - after[0]).max(axis=0).tolist())
    begin = at + first - 1
    braked = path[max(begin - 1, 0) :]
    change = np.abs(np.diff(braked, 2, axis=0)).max(axis=0, initial=0.0)
    allowed = np.array(changes_of_step(scenario.limits.values(), scenario.dt))
    sharpest = float((np.maximum(change - 1e-14, 0.0) / allowed).max())
    off_line = _off_line(scenario, path, begin)
    return Figures(first, last if rest is None else rest, way, sharpest, off_line)


def _off_line(scenario: Scenario, path: Array, begin: int) -> float:
    """Return the largest fraction over all groups of more than one axis; NaN for none."""
    shares = [math.nan]
    for group in braked_together(scenario.limits.values(), scenario.stop_groups):
        line = path[begin, group] - path[begin - 1, group]
        moved = path[begin:, group] - path[begin, group]
        way = float(np.linalg.norm(moved, axis=1).max())
        if len(group) > 1 and way > SHORT_M:
            along = line / np.linalg.norm(line)
            shares.append(float(np.linalg.norm(moved - np.outer(moved @ along, along), axis=1).max()) / way)
    return float(np.nanmax(shares)) if len(shares) > 1 else math.nan


@dataclass
class Row:
    """All runs of one cause on one host, with stated and measured figures and violations."""

    host: str
    cause: str
    scenario: Scenario
    stated: Stated
    runs: list[Figures] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    early: int = 0
    """Runs that ended before the cause because the machine was busy; not included in ``runs``."""

    def add(self, run: Figures | str, repeat: str = "") -> None:
        """Add a run, or the reason for which it has no figures. ``repeat`` identifies the run in messages."""
        if isinstance(run, str):
            violations = [run]
        else:
            violations = run.beyond(self.stated)
            self.runs.append(run)
        self.wrong += [f"{self.host}, {self.scenario.name}, {self.cause}{repeat}: {text}" for text in violations]

    def largest(self, name: str) -> float:
        """Return the largest value of all runs and axes; NaN for none."""
        values = [np.max(getattr(run, name)) for run in self.runs]
        return float(np.nanmax(values)) if values and not np.all(np.isnan(values)) else math.nan

    def cells(self) -> list[str]:
        """Return the cells of the table: host, cause, scenario, runs, and stated / largest in ms and mm."""
        dt, stated = self.scenario.dt, self.stated

        def pair(most: float, name: str, unit: float, digits: int) -> str:
            largest = unit * self.largest(name)
            return f"{unit * most:.{digits}f} / {largest:.{digits}f}" if math.isfinite(largest) else "-"

        return [
            self.host,
            self.cause,
            self.scenario.name,
            str(len(self.runs)),
            pair(stated.first, "first", 1e3 * dt, 1),
            pair(stated.rest, "rest", 1e3 * dt, 0),
            pair(max(stated.way), "way", 1e3, 1),
            f"{_or_dash(1e3 * self.largest('moved'), 1)} / {_or_dash(1e3 * self.largest('behind'), 1)}",
            _or_dash(self.largest("sharpest"), 3),
            _or_dash(100.0 * self.largest("off_line"), 2),
        ]


HEAD = [
    *("host", "cause", "scenario", "runs", "first braking sample, ms", "at rest, ms", "command beyond, mm"),
    *("actuator beyond / behind before, mm", "of the deceleration", "off the line, %"),
]


def _or_dash(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


class Copies:
    """Copies of this process that continue a run, each with its own cause of a stop.

    A thousand stops therefore need one run. In a copy, ``inside`` is its key; in the original it is None.
    """

    def __init__(self, at_once: int) -> None:
        self.inside: Any = None
        self._results: list[tuple[Any, Any]] = []
        self._at_once = at_once
        self._open: list[tuple[Any, int, int]] = []
        self._pipe = -1

    def split(self, key: Any) -> bool:
        """Fork this process. Return true in the copy, whose result belongs to ``key``."""
        if len(self._open) >= self._at_once:
            self._gather()
        read, write = os.pipe()
        process = os.fork()
        if process:
            os.close(write)
            self._open.append((key, process, read))
            return False
        os.close(read)
        self.inside, self._pipe = key, write
        return True

    def finish(self, result: Any) -> None:
        """Send the result of the copy and end it."""
        with os.fdopen(self._pipe, "wb") as pipe:
            pickle.dump(result, pipe)
        os._exit(0)

    def failed(self) -> None:
        """End the copy with the traceback as its result; no effect in the original."""
        if self.inside is not None:
            self.finish(traceback.format_exc())

    def wait(self) -> list[tuple[Any, Any]]:
        """Wait for all copies and return (key, result) pairs in the order of the splits."""
        while self._open:
            self._gather()
        return self._results

    def _gather(self) -> None:
        key, process, read = self._open.pop(0)
        with os.fdopen(read, "rb") as pipe:
            self._results.append((key, pickle.load(pipe)))
        os.waitpid(process, 0)
