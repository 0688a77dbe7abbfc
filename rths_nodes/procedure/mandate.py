# SPDX-License-Identifier: Apache-2.0
"""A mandate: further runs of a test that are corrected from run to run, armed together, each let go by a person.

The first run is a rung g that the operator has armed by hand. The terms say what further runs may do: how many, in
which time, and by how much each axis may be commanded, move and push. A run is made only where it was rehearsed
within these terms, its scenario has the hash of that rehearsal, and a person has given a key for it in time. The
mandate ends with the first thing that goes another way, and never begins again.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise

from rths_nodes.core.errors import Problems
from rths_nodes.core.limits import Limits
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.acts import ActRefused

RUNG = "h"
"""The rung of a run under a mandate."""
FIRST = "g"
"""The rung of the run that the operator arms by hand."""
RUNS = 5
"""So many further runs at most."""
GOOD_FOR_S = 3600.0
"""All of them are over after this time."""
KEY_WITHIN_S = 60.0
"""A person lets a run go within this time, from when the rig stands at its start."""
WITHIN = 1.1
"""No run has more than so many times the command, velocity or force of the first one."""
RISES = 2
"""So many times in a row the error may not rise."""
SOFTER = 0.05
"""Part of its force, for the same motion as in the first run, without which a specimen is another one."""
TOLERANCE = 0.5
"""Error that is enough, % of the rms of the target."""
AT_FLOOR = 2.0
"""The error of two runs of the same commands is sqrt(2) times the noise below the cut-off; this is beyond it."""

UNITS = {"command": "m", "velocity": "m/s", "displacement": "m", "force": "N"}


@dataclass(frozen=True)
class Peaks:
    """Largest magnitudes of an axis in a run, or what they may be: command (m), velocity of the command (m/s),
    measured displacement (m) and force (N), all from the zero of the test.
    """

    command: float
    velocity: float
    displacement: float
    force: float


def risen(errors: Sequence[float]) -> str:
    """Say how the last of the ``errors`` (%) have risen, ``RISES`` times in a row; empty where they have not."""
    tail = errors[-RISES - 1 :]
    if len(tail) <= RISES or not all(after > before for before, after in pairwise(tail)):
        return ""
    return f"the error has risen {RISES} times: {', '.join(f'{each:.3g}' for each in tail)} %"


def enough(error: float, noise: float, tolerance: float = TOLERANCE) -> str:
    """Say within what an ``error`` (%) is, the tolerance or the ``noise``; empty where it is not."""
    if not error <= max(tolerance, AT_FLOOR * noise):
        return ""
    return "the tolerance" if error <= tolerance else "twice the noise of the sensor"


def softened(answer: Mapping[str, float]) -> str:
    """Say in words which axis has lost more than ``SOFTER`` of its force since the first run.

    ``answer`` by axis: the force, as a part of what that of the first run would give to the same motion.
    """
    return "; ".join(
        f"{axis}: {100.0 * (1.0 - part):.3g} % less force for the same motion than in run 1"
        for axis, part in answer.items()
        if part < 1.0 - SOFTER
    )


def without_limit(axis: str, elastic: Mapping[str, float]) -> str:
    """Say that an ``axis`` has no ``elastic`` limit; empty where it has one."""
    missing = f"axes.{axis}: the rig file has no elastic_limit, below which runs under a mandate stay"
    return "" if axis in elastic else missing


@dataclass(frozen=True)
class FirstRun:
    """The run that was armed by hand: hashes of its scenario, offsets, code and recording, and how far it went.

    ``peaks`` by axis; ``zero`` by axis: command (m) and force (N) at the zero of the test, as controller and load
    cell have them. It took ``seconds``.
    """

    scenario_hash: str
    offsets_hash: str
    code: str
    recording: str
    peaks: Mapping[str, Peaks]
    zero: Mapping[str, tuple[float, float]]
    seconds: float


@dataclass(frozen=True)
class Terms:
    """Terms of a mandate, in ``mode``, after the ``first`` run: ``bounds`` by axis, number of runs, time."""

    first: FirstRun
    mode: str
    bounds: Mapping[str, Peaks]
    runs: int = RUNS
    good_for: float = GOOD_FOR_S
    key_within: float = KEY_WITHIN_S

    @classmethod
    def of(cls, first: FirstRun, mode: str, limits: Mapping[str, Limits], elastic: Mapping[str, float]) -> Terms:
        """The narrower of what the rig allows and ``WITHIN`` times ``first``, below the ``elastic`` limits.

        Raises ConfigError where an axis has no elastic limit, or was beyond it in the first run.
        """
        problems, bounds = Problems(), {}
        for axis, most in first.peaks.items():
            far = max(most.command, most.displacement)
            if words := without_limit(axis, elastic):
                problems.append(words)
            elif not far < elastic[axis]:
                problems.append(
                    f"axes.{axis}: went {1e3 * far:.4g} mm in the first run, must be < elastic_limit = "
                    f"{1e3 * elastic[axis]:.4g} mm of the rig file for a mandate"
                )
            else:
                limit, (place, load) = limits[axis], first.zero[axis]
                bounds[axis] = Peaks(
                    min(WITHIN * most.command, limit.stroke - abs(place), elastic[axis]),
                    min(WITHIN * most.velocity, limit.velocity),
                    min(elastic[axis], limit.stroke - abs(place)),
                    min(WITHIN * most.force, limit.force - abs(load)),
                )
        problems.refuse()
        return cls(first, mode, bounds)

    @cached_property
    def hash(self) -> str:
        """Hash that names the mandate when it is armed."""
        told = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Planned:
    """Run ``number``, rehearsed on the identified model: the hash of its scenario, its ``peaks`` by axis."""

    number: int
    scenario_hash: str
    peaks: Mapping[str, Peaks]


@dataclass(frozen=True)
class Told:
    """Result of run ``number``: how it ended, error and noise (%), and the ``answer`` of each specimen."""

    number: int
    outcome: str
    error: float = math.nan
    noise: float = 0.0
    answer: Mapping[str, float] | None = None


_FOLLOWS = {
    State.HELD: (State.POSITIONING,),
    State.POSITIONING: (State.POSITIONED,),
    State.POSITIONED: (State.ARMED,),
    State.ARMED: (State.RUNNING,),
    State.RUNNING: (State.HELD, State.STOPPING),
    State.STOPPING: (State.HELD,),
}
"""Way of a procedure from run to run; a run that was stopped tells so by its outcome."""


class Mandate:
    """A mandate by its ``terms``, armed at ``now`` (ns of the monotonic clock), after what the ``first`` run told.

    ``ended`` is why it is over, in words; empty while it is good. The procedure was in the last state of
    ``history`` then, and had been stopped ``stops`` times.
    """

    def __init__(self, terms: Terms, first: Told, now: int, history: Sequence[State], stops: int) -> None:
        self.terms, self.told = terms, [first]
        self.planned: Planned | None = None
        self.ended, self.converged = "", False
        self._until = now + _ns(terms.good_for)
        self._since, self._stops = len(history) - 1, stops
        self._offered: int | None = None
        self._under_way = 0
        self._judge()

    @property
    def next_number(self) -> int:
        """Number of the next run; the first one has 1."""
        return self.told[-1].number + 1

    def end(self, reason: str) -> None:
        """It is over; the first reason counts."""
        self.ended = self.ended or reason
        self.planned = None

    def look(self, now: int, history: Sequence[State], stops: Sequence[str]) -> str:
        """Why it is over, by clock, states and stops of the procedure; empty while it is good."""
        if not self.ended:
            self._look(now, history, stops)
        return self.ended

    def _look(self, now: int, history: Sequence[State], stops: Sequence[str]) -> None:
        terms, state = self.terms, history[-1]
        if len(stops) > self._stops:
            return self.end(f"stopped by the operator: {stops[self._stops]}")
        for before, after in pairwise(history[self._since :]):
            if after not in _FOLLOWS.get(before, ()):
                return self.end(f"the rig went from {before.name.lower()} to {after.name.lower()}")
        if state in (State.RUNNING, State.STOPPING):
            return None
        if now + _ns(terms.first.seconds) > self._until:
            return self.end(f"no further run ends within {terms.good_for / 60.0:g} minutes")
        late = self._offered is not None and now > self._offered + _ns(terms.key_within)
        if state is State.POSITIONED and late:
            return self.end(f"nobody has given a key for run {self.next_number} within {terms.key_within:g} s")
        return None

    def plan(self, planned: Planned) -> None:
        """Take in the rehearsed run. Raises ActRefused, and is over, where it does not stay within the terms."""
        if self.ended or self.planned is not None or self._under_way:
            raise ActRefused(self.ended or "a run is planned already")
        if planned.number != self.next_number:
            raise ActRefused(f"run {planned.number} is not the next one, which is {self.next_number}")
        if words := self._beyond(planned):
            self.end("; ".join(words))
            raise ActRefused(*words)
        self.planned, self._offered = planned, None

    def _beyond(self, planned: Planned) -> list[str]:
        found = []
        for axis, bound in self.terms.bounds.items():
            expected = planned.peaks.get(axis)
            for name, unit in UNITS.items():
                value, most = math.nan if expected is None else getattr(expected, name), getattr(bound, name)
                within = value < most if name == "displacement" else value <= most
                if not within:
                    first = getattr(self.terms.first.peaks[axis], name)
                    found.append(
                        f"axes.{axis}: run {planned.number} would have a {name} of {value:.6g} {unit}, must be "
                        f"within {most:.6g} {unit}; run 1 had {first:.6g} {unit}"
                    )
        return found

    def offer(self, now: int) -> None:
        """The rig stands at the start of the run that is planned, if one is: the time for a key begins."""
        self._offered = None if self.planned is None else now

    def check(self, rung: str, scenario_hash: str) -> None:
        """Raises ActRefused unless exactly this run is let go now."""
        if self.ended:
            raise ActRefused(f"the mandate is over: {self.ended}")
        if rung != RUNG:
            raise ActRefused(f"rung {rung}: a mandate is armed, under which rung {RUNG} runs alone; stop ends it")
        if self.planned is None or self._offered is None:
            raise ActRefused(f"run {self.next_number} is not rehearsed, and offered, under the mandate")
        if scenario_hash != self.planned.scenario_hash:
            raise ActRefused(
                f"run {self.planned.number} was rehearsed as {self.planned.scenario_hash}, not as "
                f"{scenario_hash or 'empty'}"
            )

    def begin(self, scenario_hash: str) -> int:
        """The run that is planned begins; its number. Raises ActRefused as :meth:`check`."""
        self.check(RUNG, scenario_hash)
        self._under_way, self.planned, self._offered = self.next_number, None, None
        return self._under_way

    def tell(self, told: Told) -> str:
        """Take in what the run under way has told; why the mandate is over, or empty. Raises RuntimeError."""
        if told.number != self._under_way:
            raise RuntimeError(f"run {told.number} tells something, and run {self._under_way} was made")
        self._under_way = 0
        self.told.append(told)
        self._judge()
        return self.ended

    def _judge(self) -> None:
        """End it by what the last run has told."""
        last = self.told[-1]
        answer = last.answer or {}
        if last.outcome != "finished":
            self.end(f"run {last.number} {last.outcome}")
        elif not all(math.isfinite(answer.get(axis, math.nan)) for axis in self.terms.bounds):
            self.end(f"run {last.number} does not tell how stiff the specimen is")
        elif words := softened(answer):
            self.end(f"the specimen has changed: {words}")
        elif not math.isfinite(last.error):
            self.end(f"run {last.number} does not tell its error")
        elif by := enough(last.error, last.noise):
            self.converged = not self.ended
            self.end(f"converged: error {last.error:.3g} %, within {by}")
        elif words := risen([each.error for each in self.told]):
            self.end(words)
        elif len(self.told) > self.terms.runs:
            self.end(f"error {last.error:.3g} % after {self.terms.runs} further runs")


def _ns(seconds: float) -> int:
    return round(1e9 * seconds)
