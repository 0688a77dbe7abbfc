# SPDX-License-Identifier: Apache-2.0
"""Iterative tests: repeated runs with commands or targets corrected by the previous run.

``analysis/iteration/corrections.py`` computes the corrections. On simulated rigs only: each run has a new rig, and
``changes`` modify it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rths_nodes.analysis.iteration import bounds, corrections, learning
from rths_nodes.analysis.iteration.convergence import CONVERGED, ENDED, HELD, Row
from rths_nodes.analysis.iteration.corrections import Corrections, Settings
from rths_nodes.app import hosts
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.options import AUTO
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.recording.run import Run

OF_VERDICT = {CONVERGED: ExitCode.FINISHED, HELD: ExitCode.HELD}
"""Exit codes of verdicts; others ended before convergence."""


@dataclass(frozen=True, eq=False)
class Iteration:
    """Result: rows of the runs, verdict with its reason, the learned inverse, the ``last`` run."""

    rows: list[Row]
    verdict: str
    reason: str
    inverse: learning.Inverse | None
    last: Run
    exit_code: int


def iterate(
    scenario: Scenario,
    settings: Settings,
    folder: Path,
    record: bool = True,
    engine: Callable[[Scenario, float], str] = lambda scenario, samples: AUTO,
    progress: Callable[[float, float], None] = lambda done, of: None,
    tell: Callable[[Row], None] = lambda row: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Iteration:
    """Run ``scenario`` repeatedly until its rule ends it; histories and recordings go to ``folder``.

    ``engine`` chooses the engine for a number of samples; ``tell`` gets the row of each run. Raises ConfigError.
    """
    check(scenario)
    work = Corrections(scenario, settings)
    preferred, rows = engine(work.base, settings.rule.runs * work.base.samples), work.rows
    for number in range(1, settings.rule.runs + 1):
        words = f"rths iterate {work.base.name} --mode {settings.mode}: run {number}"
        planned = work.planned(number, folder, words)
        result = hosts.run(
            planned,
            record=str(folder / f"run_{number}") if record else "",
            keep=True,
            preferred=preferred,
            progress=partial(_share, progress, number - 1, settings.rule.runs),
            interrupted=interrupted,
        )
        last = result.read()
        work.learn(number, result.outcome, result.reason, str(result.recording or ""), last)
        tell(rows[-1])
        verdict, reason = settings.rule.verdict(rows)
        if verdict:
            break
        work.correct()
        if settings.within is not None:
            expected = work.rehearsed().peaks
            if above := bounds.above_first(number + 1, expected, work.first, settings.within):
                verdict, reason = HELD, "; ".join(above)
                break
    code = result.exit_code if verdict == ENDED else OF_VERDICT.get(verdict, ExitCode.TRIPPED)
    return Iteration(rows, verdict, reason, work.inverse, last, code)


def _share(
    progress: Callable[[float, float], None], before: int, runs: int, sample: float, samples: float
) -> None:
    progress(before * samples + sample, runs * samples)


def check(scenario: Scenario) -> None:
    """Raise ConfigError for a scenario that cannot be iterated, and for a real rig."""
    if registry.class_of("port", scenario.port).external or not Assembly(scenario).port.simulated:
        raise ConfigError(
            f"port.type = {type(scenario.port).type_name!r}: rths iterate runs on simulated rigs only; "
            "for a series on a real rig use rths test, rung g, and rths iterate --next FOLDER"
        )
    corrections.check(scenario)
