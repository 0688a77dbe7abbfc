# SPDX-License-Identifier: Apache-2.0
"""Stated and measured figures of a stop, in samples of the rig's own counter, for stops.py."""

from __future__ import annotations

import math
import os
import pickle
import traceback
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rths_nodes.core.braking import braked_together, changes_of_step, samples_to_rest
from rths_nodes.core.samples import Array
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.safe_stop import braking_time, excess_travel

OFF_LINE = 0.01
"""Share of the way by which axes that stop together may leave their straight line."""
ROUNDING = 1e-6
SHORT_M = 1e-6
"""A way that is shorter has no line."""


@dataclass(frozen=True)
class Stated:
    """Samples from the cause to the first that brakes, and to rest; ``way`` (m) of each axis beyond its place."""

    first: int
    rest: int
    way: tuple[float, ...]


@dataclass(frozen=True)
class Found:
    """The same of one run.

    ``moved``: how far the actuators themselves went from where they were at the cause (m), until they stood;
    ``behind``: how far they were behind their commands then (m); nan where that is not known. ``sharpest``: the
    largest deceleration of a command, as a share of the declared one; ``off_line``: how far axes of one group were
    off their line, as a share of the way; nan where that was none.
    """

    first: int
    rest: int
    way: tuple[float, ...]
    sharpest: float = math.nan
    off_line: float = math.nan
    moved: tuple[float, ...] = (math.nan,)
    behind: tuple[float, ...] = (math.nan,)

    def with_actuators(self, commanded: Array, places: Array) -> Found:
        """With where the actuators were, ``(samples, n_axes)`` (m), from the cause on, and their command there."""
        moved, behind = np.abs(places - places[0]).max(axis=0), np.abs(commanded - places[0])
        return replace(self, moved=tuple(moved.tolist()), behind=tuple(behind.tolist()))

    def beyond(self, stated: Stated) -> list[str]:
        """Figures that are beyond the stated ones, in words."""
        rows: list[tuple[str, float, float]] = [
            ("samples to the first that brakes", self.first, stated.first),
            ("samples to rest", self.rest, stated.rest),
            *(("m beyond", way, most * (1.0 + ROUNDING)) for way, most in zip(self.way, stated.way, strict=True)),
            *(
                (
                    "m that an actuator went beyond the place of its command",
                    moved - behind,
                    most * (1.0 + ROUNDING),
                )
                for moved, behind, most in zip(self.moved, self.behind, stated.way, strict=False)
            ),
            ("of the declared deceleration", self.sharpest, 1.0 + ROUNDING),
            ("of the way off the common line", self.off_line, OFF_LINE),
        ]
        return [f"{value:.6g} {what}, stated {most:.6g}" for what, value, most in rows if value > most]


def stated(scenario: Scenario, first: int) -> Stated:
    """Stated figures of a stop that begins at its velocity limits ``first`` samples after the cause."""
    limits, dt = list(scenario.limits.values()), scenario.dt
    way, samples = [0.0] * len(limits), 1
    for group in braked_together(limits, scenario.stop_groups):
        members = [limits[axis] for axis in group]
        needed = samples_to_rest([each.velocity * dt for each in members], changes_of_step(members, dt))
        samples = max(samples, needed)
        for axis in group:
            way[axis] = excess_travel(limits[axis], (first - 1) * dt, time=braking_time(members))
    return Stated(first, first - 1 + samples, tuple(way))


def found(scenario: Scenario, path: Array, at: int, first: int, rest: int | None = None) -> Found:
    """Found figures of the commands ``path`` ``(samples, n_axes)`` (m) with the cause at sample ``at``.

    The first sample that brakes is ``first`` samples later; the rig is at rest ``rest`` samples later, or when the
    last command has changed.
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
    return Found(first, last if rest is None else rest, way, sharpest, off_line)


def _off_line(scenario: Scenario, path: Array, begin: int) -> float:
    """The largest share over all groups of more than one axis; nan for none."""
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
    """All runs of one cause on one host: what is stated, what was found, and what went wrong."""

    host: str
    cause: str
    scenario: Scenario
    stated: Stated
    found: list[Found] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    early: int = 0
    """Runs that had ended before the cause, by the load of the machine; they are not counted."""

    def add(self, run: Found | str, repeat: str = "") -> None:
        """One run; words where it failed otherwise. ``repeat`` says which run it was."""
        told = [run] if isinstance(run, str) else run.beyond(self.stated)
        self.wrong += [f"{self.host}, {self.scenario.name}, {self.cause}{repeat}: {words}" for words in told]
        if not isinstance(run, str):
            self.found.append(run)

    def largest(self, name: str) -> float:
        """Largest of all runs and axes; nan for none."""
        values = [np.max(getattr(each, name)) for each in self.found]
        return float(np.nanmax(values)) if values and not np.all(np.isnan(values)) else math.nan

    def cells(self) -> list[str]:
        """Cells of the table: host, cause, scenario, runs, and stated / largest in ms and mm."""
        dt, given = self.scenario.dt, self.stated

        def pair(most: float, name: str, unit: float, digits: int) -> str:
            largest = unit * self.largest(name)
            return f"{unit * most:.{digits}f} / {largest:.{digits}f}" if math.isfinite(largest) else "-"

        return [
            self.host,
            self.cause,
            self.scenario.name,
            str(len(self.found)),
            pair(given.first, "first", 1e3 * dt, 1),
            pair(given.rest, "rest", 1e3 * dt, 0),
            pair(max(given.way), "way", 1e3, 1),
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
    """Copies of this process that go on by themselves from a moment of a run; ``results`` by moment, in order.

    So a thousand stops need one run, and each happens to the same running test. ``inside`` is true in a copy.
    """

    def __init__(self, at_once: int) -> None:
        self.inside: Any = None
        self.results: list[tuple[Any, Any]] = []
        self._at_once = at_once
        self._open: list[tuple[Any, int, int]] = []
        self._pipe = -1

    def split(self, key: Any) -> bool:
        """True in the copy, whose result will be that of ``key``."""
        if len(self._open) >= self._at_once:
            self._gather()
        there, here = os.pipe()
        process = os.fork()
        if process:
            os.close(here)
            self._open.append((key, process, there))
            return False
        os.close(there)
        self.inside, self._pipe = key, here
        return True

    def finish(self, result: Any) -> None:
        """The end of the copy."""
        with os.fdopen(self._pipe, "wb") as pipe:
            pickle.dump(result, pipe)
        os._exit(0)

    def failed(self) -> None:
        """The end of a copy in which something was raised; nothing in the original."""
        if self.inside is not None:
            self.finish(traceback.format_exc())

    def wait(self) -> list[tuple[Any, Any]]:
        """All results."""
        while self._open:
            self._gather()
        return self.results

    def _gather(self) -> None:
        key, process, there = self._open.pop(0)
        with os.fdopen(there, "rb") as pipe:
            self.results.append((key, pickle.load(pipe)))
        os.waitpid(process, 0)
