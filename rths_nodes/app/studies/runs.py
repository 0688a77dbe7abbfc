# SPDX-License-Identifier: Apache-2.0
"""Parallel runs for the commands compare, study, tune and scoreboard.

Each variant is an embedded run, with indices of the true displacement.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rths_nodes.analysis import index_definitions
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.index_definitions import RANGE
from rths_nodes.analysis.published_indices import BESIDE, ORDERS, TRUE, published_indices
from rths_nodes.analysis.response_errors import response_errors
from rths_nodes.analysis.study_table import REFUSED, magnitude
from rths_nodes.app import hosts
from rths_nodes.app.studies import engine
from rths_nodes.app.studies.engine import Lost, Progress, Say, Tell
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.compiled.running import remarks
from rths_nodes.loop.options import AUTO, COMPILED
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.recording.run import Run

SHOWN = ("J1", "J2", "J3", "max_error_mm")
_OF_AXIS, TEST_INDICES = (
    {kind.name: (kind.key, kind.factor) for kind in kinds if kind.name}
    for kinds in (index_definitions.AXIS_INDICES, index_definitions.TEST_INDICES)
)
AXIS_INDICES = {name: _OF_AXIS[name] for name in dict.fromkeys((*SHOWN, *_OF_AXIS))}
"""Indices of an axis: key in the metrics, and factor that converts to the unit of the index."""
RESPONSE = {name: key for name, (_, key) in index_definitions.RESPONSE.items()}
"""Keys of the response errors, by prefix of an index. The rms errors (%) of degree of freedom x are ``response_x``
and ``acceleration_x``."""
FAILED = "failed"


@dataclass(frozen=True, eq=False)
class Findings:
    """Results of one run.

    ``axes``: indices of the true displacement, by axis. ``parameters``: range of each quantity of the compensator,
    by quantity and axis. ``response``: errors (%) relative to the response of the whole structure, by degree of
    freedom.
    """

    outcome: str
    reason: str
    axes: dict[str, dict[str, float]] = field(default_factory=dict)
    metrics: Data = field(default_factory=dict)
    parameters: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)
    wall_s: float = 0.0
    response: dict[str, dict[str, float]] = field(default_factory=dict)
    run: Run | None = None
    samples: int = 0
    published: dict[str, float] = field(default_factory=dict)
    """Indices of the scenario's index set. Names with ``_true`` refer to the true displacement, other names to the
    measured displacement."""
    measured: dict[str, dict[str, float]] = field(default_factory=dict)
    """Indices as in ``axes``, but of the measured displacement. Empty if the true displacement is unknown."""

    @property
    def values(self) -> dict[str, float]:
        """Indices by name, each in its own unit. A name without an axis has the value of the worst axis."""
        indices, metrics = AXIS_INDICES.items(), self.metrics
        values = {name: factor * _worst(self.axes, key) for name, (key, factor) in indices}
        for axis, row in self.axes.items():
            values |= {f"{name}_{axis}": factor * row[key] for name, (key, factor) in indices}
        for dof, errors in self.response.items():
            values |= {f"{name}_{dof}": errors[key] for name, key in RESPONSE.items()}
        values |= {name: factor * metrics[key] for name, (key, factor) in TEST_INDICES.items() if key in metrics}
        for quantity, rows in self.parameters.items():
            values[quantity + RANGE] = max(high - low for low, high in rows.values())
        return values | self.published


def _worst(axes: Mapping[str, Mapping[str, float]], key: str) -> float:
    values = [row[key] for row in axes.values()]
    lacking = [row["max_error_percent"] for row in axes.values() if np.isnan(row[key])]
    # ignore axes at rest, which have no index; an axis that moved but lacks it (delay too long) is the worst
    if len(lacking) == len(values) or not np.isnan(lacking).all():
        return float("nan")
    return values[int(np.nanargmax(magnitude(key, np.array(values))))]


def known_indices(assembly: Assembly) -> list[str]:
    quantities = {name.rpartition(".")[2] for name in assembly.names.state}
    indices = [*AXIS_INDICES, *TEST_INDICES, *(quantity + RANGE for quantity in sorted(quantities))]
    indices += [f"{name}_{axis}" for name in AXIS_INDICES for axis in assembly.names.axes]
    indices += [f"{name}_{dof}" for name in RESPONSE for dof in assembly.names.observed]
    asked = of_set(assembly.scenario)
    published = [*asked, *BESIDE[assembly.scenario.indices]] if asked else []
    return indices + published + [name + TRUE for name in published]


def of_set(scenario: Scenario) -> tuple[str, ...]:
    """Return the scenario's index set, in the order of the benchmark's code; empty without a set."""
    orders = ORDERS.get(scenario.indices, {})
    return next(iter(orders.values()), ())


def shown_indices(scenario: Scenario) -> tuple[str, ...]:
    return of_set(scenario) or SHOWN


def ranking_index(scenario: Scenario) -> str:
    """Return the default ranking index: the tracking error of the true displacement, without sensor noise."""
    tracking = "tracking_rms_percent"
    return tracking + TRUE if tracking in of_set(scenario) else "J2"


def needs_response(names: Iterable[str]) -> bool:
    return any(name.startswith(f"{kind}_") for name in names for kind in RESPONSE)


def findings(
    scenario: Scenario,
    tell: Tell,
    keep: bool = False,
    response: bool = False,
    preferred: str = AUTO,
) -> Findings:
    """Run ``scenario`` embedded, by default on the engine ``preferred``, and return its Findings.

    ``keep`` stores the histories. ``response`` adds the errors of the structure's response. Raises ConfigError if
    the scenario cannot run.
    """
    report = hosts.run(
        scenario,
        brief=not (keep or response),
        progress=lambda sample, samples: tell(min(1.0, sample / samples)),
        interrupted=lambda: False,  # the caller handles stop requests
        preferred=preferred,
    )
    run = report.read()
    evaluation = Evaluation(run, report.metrics["axes"], report.assembly, report.delays)
    measured, true = published_indices(evaluation)
    return Findings(
        outcome=report.outcome,
        reason=report.reason,
        axes=evaluation.indices(true=True),
        metrics={key: report.metrics[key] for key, _ in TEST_INDICES.values()},
        parameters=evaluation.parameter_ranges(),
        wall_s=report.wall_s,
        response=response_errors(evaluation) if response else {},
        run=run if keep else None,
        samples=report.samples,
        published=measured | {name + TRUE: value for name, value in true.items()},
        measured=evaluation.tracked() if evaluation.true_is_known else {},
    )


def to_json(data: Mapping[str, object]) -> str:
    return json.dumps(data, separators=(",", ":"))


def from_json(text: str, origin: str) -> Scenario:
    return files.from_data(json.loads(text), origin)


def decided(where: engine.Where, samples: float, scenarios: Sequence[Scenario], say: Say) -> engine.Where:
    """Return ``where`` with its engine selected for ``samples``. ``say`` reports why runs are not compiled."""
    where = replace(where, engine=where.engine_of(scenarios[0], samples))
    if where.engine == COMPILED:
        kinds = {tuple(type(part) for _, part, _ in scenario.parts()): scenario for scenario in scenarios}
        say(dict.fromkeys(text for scenario in kinds.values() for text in remarks(scenario)))
    return where


def run_remote(scenario: str | Scenario, keep: bool, response: bool, preferred: str, tell: Tell) -> dict[str, Any]:
    """Run a scenario and return its Findings as plain data.

    Another process receives the scenario as JSON and looks up the component classes.
    """
    if isinstance(scenario, str):
        scenario = from_json(scenario, "variant")
    plain = dict(vars(findings(scenario, tell, keep, response, preferred)))
    if (run := plain.pop("run")) is not None:
        plain["run"] = {name: value for name, value in vars(run).items() if name != "scenario"}
    return plain


def run_safely(scenario: str | Scenario, response: bool, preferred: str, tell: Tell) -> Data:
    try:
        return run_remote(scenario, False, response, preferred, tell)
    except ConfigError as error:
        return {"outcome": REFUSED, "reason": "; ".join(error.problems)}
    except Exception as error:  # an error in one run must not end the others
        return {"outcome": FAILED, "reason": f"{type(error).__name__}: {error}"}


def all_of(
    chosen: Sequence[Scenario],
    where: engine.Where,
    keep: bool,
    response: bool = False,
    *,
    progress: Progress | None,
) -> Iterator[tuple[int, Findings]]:
    """Run each scenario in ``chosen``. Yield the number and Findings of each completed run, or raise its error."""
    travels = where.scheduler or where.processes > 1
    preferred = where.engine_of(chosen[0], sum(scenario.samples for scenario in chosen)) if chosen else AUTO
    inputs = (to_json(scenario.data()) if travels else scenario for scenario in chosen)
    jobs = ((number, (one, keep, response, preferred)) for number, one in enumerate(inputs))
    for number, plain in engine.as_completed(run_remote, jobs, len(chosen), where, progress):
        if isinstance(plain, Lost):
            raise ChildProcessError(f"{chosen[number].name}: {plain.reason}")
        run = plain.pop("run", None)
        yield number, Findings(run=None if run is None else Run(scenario=chosen[number], **run), **plain)
