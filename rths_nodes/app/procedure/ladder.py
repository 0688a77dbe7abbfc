# SPDX-License-Identifier: Apache-2.0
"""Ladder of a test: scenario and host of each rung, and the expected motion of the rig.

Rungs (a) and (b) run on a simulator, (c) to (g) on the rig. Those that move it below its elastic limit, (d) to
(f), have the reduced level; (e) is slow, all others have the scenario's own time ratio.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rths_nodes.app import hosts
from rths_nodes.app.procedure import comparison
from rths_nodes.app.procedure.answers import REDUCED
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.embedded import checked_loop
from rths_nodes.loop.options import COMPOSED, EMBEDDED, LOCKSTEP, REALTIME
from rths_nodes.loop.procedure_record import RUNGS, Rung
from rths_nodes.loop.provenance import Code
from rths_nodes.loop.scenario import rehearsal
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.procedure.arming import file_hashes, with_copied_files
from rths_nodes.recording.run import Run

SLOW, UNSENT, COMPUTED = "e", "c", "d"
"""Rungs with special treatment."""
MOST = 0.3
"""Largest reduced level that is proposed."""
ROOM = 0.8
"""Share of the elastic limit that a proposed level reaches."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Step:
    """One rung to run: ``scenario`` has its level and time ratio applied."""

    rung: Rung
    scenario: Scenario
    level: float
    ratio: float
    host: str
    pace: str

    @cached_property
    def hash(self) -> str:
        return rehearsal.hash_of(self.scenario)

    @cached_property
    def files(self) -> dict[str, str]:
        return file_hashes(self.scenario)

    def remarks(self) -> list[str]:
        """Return remarks on the limits of this rung."""
        return rehearsal.rate_remarks(self.scenario, self.ratio) if self.rung.name == SLOW else []


class Ladder:
    """The ``planned`` rungs of ``scenario``; ``level`` and ``ratio`` may be set (None) until they are used.

    In lockstep the rungs on the rig run embedded, in real time composed.
    """

    def __init__(
        self,
        scenario: Scenario,
        planned: Sequence[str],
        level: float | None,
        ratio: int | None,
        realtime: bool,
    ) -> None:
        self.scenario, self.planned, self.realtime = scenario, tuple(planned), realtime
        self.level, self.ratio = level, ratio
        self.abandoned: Callable[[], bool] = lambda: False
        """Returns True once the operator cancels rehearsals."""
        self._rehearsed: dict[str, Run] = {}
        self._files = file_hashes(scenario)
        self.code = Code.of(scenario)
        """Code that computes the test, at the construction of the ladder."""

    def kept(self, folder: Path) -> Ladder:
        """Return this ladder with its files copied to ``folder``. Raises ConfigError if one has changed."""
        scenario = with_copied_files(self.scenario, folder)
        now = file_hashes(scenario)
        if changed := [path for path, digest in self._files.items() if now[path] != digest]:
            raise ConfigError(*(f"{path}: the file has changed since it was read" for path in changed))
        ladder = Ladder(scenario, self.planned, self.level, self.ratio, self.realtime)
        ladder.code = self.code
        return ladder

    @cached_property
    def simulated(self) -> Scenario:
        """The whole test on a simulator. Raises ConfigError without models."""
        return rehearsal.simulated(self.scenario)

    def step(self, name: str) -> Step:
        """Return the rung ``name``. Raises ConfigError for an unknown or impossible level or ratio."""
        rung = RUNGS[name]
        level = self._known("level", self.level, name) if name in REDUCED else 1.0
        ratio = int(self._known("time_ratio", self.ratio, name)) if name == SLOW else 1
        base = self.scenario if rung.on_rig else self.simulated
        scenario = rehearsal.slower(rehearsal.at_level(base, level), ratio)
        fast = self.realtime and rung.on_rig
        host = COMPOSED if name == "b" or fast else EMBEDDED
        return Step(rung, scenario, level, scenario.time_ratio, host, REALTIME if fast else LOCKSTEP)

    @staticmethod
    def _known(key: str, value: float | None, rung: str) -> float:
        if value is None:
            raise ConfigError(f"{key}: not known yet, rung {rung} needs it")
        return value

    def check(self) -> None:
        """Build every planned rung with a known level and ratio, and its rehearsal. Raises ConfigError."""
        if {"a", "b", UNSENT} & set(self.planned):
            checked_loop(self.simulated)
        for name in self.planned:
            is_set = (self.level is not None or name not in REDUCED) and (self.ratio is not None or name != SLOW)
            if is_set:
                self.step(name)

    def rehearsed(self, name: str, progress: Progress | None = None) -> Run:
        """Run the rung on a simulator, once. Raises ConfigError."""
        scenario = rehearsal.simulated(self.step(name).scenario)
        key = rehearsal.hash_of(scenario)
        if key not in self._rehearsed:
            done = hosts.run(scenario, progress=progress, interrupted=self.abandoned)
            if done.outcome != "finished":
                raise ConfigError(f"rung {name}: its rehearsal was {done.outcome}: {done.reason}")
            self._rehearsed[key] = done.read()
        return self._rehearsed[key]

    def predicted(self, name: str, progress: Progress | None = None) -> dict[str, dict[str, float]]:
        """Return the peaks of the rung by axis, from its rehearsal. Raises ConfigError."""
        return comparison.peaks(self.rehearsed(name, progress))

    def expected(self, name: str, progress: Progress | None = None) -> dict[str, dict[str, float]]:
        return self.predicted(name, progress) if self.has_simulator else {}

    @cached_property
    def has_simulator(self) -> bool:

        try:
            return bool(self.simulated)
        except ConfigError:
            return False

    def stops(self, step: Step) -> dict[str, dict[str, float]]:
        """Return the ``displacement`` (m) and ``force`` (N) at which a rung is stopped, by axis."""
        elastic = rehearsal.elastic_limits(self.scenario) if step.rung.name in REDUCED else {}
        return {
            axis: {"displacement": min(limit.stroke, elastic.get(axis, math.inf)), "force": limit.force}
            for axis, limit in step.scenario.limits.items()
        }

    def unknown(self, name: str) -> list[str]:
        """Return remarks on what cannot be predicted of the rung."""
        if self.has_simulator:
            return []
        message = "there is no simulator of this test, so that nobody knows how far the axes will go"
        limited = name in REDUCED and bool(rehearsal.elastic_limits(self.scenario))
        return [message + "; beyond the elastic limit the rung is stopped" * limited]

    def check_elastic(self, name: str) -> None:
        """Raise ConfigError if a rung below the elastic limit is expected to exceed it."""
        limits = rehearsal.elastic_limits(self.scenario)
        if name not in REDUCED or not limits:
            return
        expected = self.expected(name)
        beyond = [
            f"rung {name}: axes.{axis} is expected to go {1e3 * far:.3g} mm, must be <= elastic_limit = "
            f"{1e3 * limit:.3g} mm of the rig file; lower the level, now {self.level:g}"
            for axis, limit in limits.items()
            if axis in expected and (far := expected[axis]["displacement"]) > limit
        ]
        if beyond:
            raise ConfigError(*beyond)

    def proposed_level(self) -> float | None:
        """Propose a level well below every elastic limit of a linear test, or None."""
        limits = rehearsal.elastic_limits(self.scenario)
        expected = self.expected("g") if limits else {}
        if not expected:
            return None
        shares = [
            ROOM * limit / far for axis, limit in limits.items() if (far := expected[axis]["displacement"]) > 0
        ]
        return min(MOST, _rounded_down(min(shares, default=MOST)))


def _rounded_down(value: float) -> float:
    unit = 10.0 ** math.floor(math.log10(value))
    return round(math.floor(value / unit) * unit, 12)
