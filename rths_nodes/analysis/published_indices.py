# SPDX-License-Identifier: Apache-2.0
"""Indices of published benchmarks, and the orders in which they are published.

Standard deviations are about the mean.

RTHS benchmark (Silva et al. 2020): tracking of the first floor, and response of all floors relative to the
reference. The reference is the computed response of the whole structure. The displacement of the first floor is
measured. The other floors have no sensor; their displacement is computed.

Multi-axial benchmark (Condori Uribe et al. 2023): 1 and 2 are the actuators. ``x`` and ``theta`` are translation
and rotation of a story or of the driven node. The motion of this node follows from the measured axes. The
published code repeats J1 for J4. Here J4 is the delay of x and theta.

The module adds a signed delay (from a parabola through the peak of the correlation) and the noise floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rths_nodes.analysis.histories import Evaluation, Indices, rows_of
from rths_nodes.analysis.response_errors import (
    has_undeclared_mass,
    linear_displacement,
    states_its_test,
    whole_response,
)
from rths_nodes.analysis.units import MS, PERCENT
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.loop.indices.tracking import ROUNDING, Delay
from rths_nodes.loop.scenario.assembly import Assembly

LONGEST_LAG = 50
BLOCK = 2048
CODE, PAPER = "code", "paper"
_TRACKING = ("tracking_delay_ms", "tracking_rms_percent", "tracking_peak_percent")
BENCHMARK_2020: dict[str, tuple[str, ...]] = {
    order: (*_TRACKING, *(f"{index}_percent" for index in indices.split()))
    for order, indices in (
        (CODE, "rms_1 peak_1 rms_2 rms_3 peak_2 peak_3"),
        (PAPER, "rms_1 rms_2 rms_3 peak_1 peak_2 peak_3"),
    )
}
MARTHS_2023: dict[str, tuple[str, ...]] = {
    "J1": ("tracking_delay_1_ms", "tracking_delay_2_ms"),
    "J2": ("tracking_rms_1_percent", "tracking_rms_2_percent"),
    "J3": ("tracking_peak_1_percent", "tracking_peak_2_percent"),
    "J4": ("node_delay_x_ms", "node_delay_theta_ms"),
    "J5": ("node_rms_x_percent", "node_rms_theta_percent"),
    "J6": ("node_peak_x_percent", "node_peak_theta_percent"),
    "J7": ("reference_rms_x_percent", "reference_rms_theta_percent"),
    "J8": ("rms_x_2_percent", "rms_theta_2_percent", "rms_x_3_percent", "rms_theta_3_percent"),
    "J9": ("reference_peak_x_percent", "reference_peak_theta_percent"),
    "J10": ("peak_x_2_percent", "peak_theta_2_percent", "peak_x_3_percent", "peak_theta_3_percent"),
}
NODE = (26, 20)
"""Indices of the driven node's x and theta among the multi-axial benchmark's degrees of freedom."""
STORIES = {"x_2": 25, "theta_2": 21, "x_3": 12, "theta_3": 2}
ORDERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "rths_benchmark_2020": BENCHMARK_2020,
    "marths_2023": {CODE: tuple(name for names in MARTHS_2023.values() for name in names)},
}
"""Names of the indices in order (J1 first), by set and publication. A scenario names its set in ``indices``."""
BESIDE: Mapping[str, tuple[str, ...]] = {
    "rths_benchmark_2020": ("signed_delay_ms", "noise_floor_percent"),
    "marths_2023": ("signed_delay_1_ms", "signed_delay_2_ms", "noise_floor_1_percent", "noise_floor_2_percent"),
}
"""Names of the indices that this module adds to the published indices, by set."""
TRUE = "_true"
"""Suffix of indices of a simulator's true displacement."""
Scale = tuple[float, float]
"""Standard deviation and largest magnitude of a history, m."""


class Published(NamedTuple):
    """Published indices by name: of the measured displacement and, if known, of the true displacement."""

    measured: dict[str, float]
    true: dict[str, float]


def numbers(kind: str, name: str) -> dict[str, str]:
    """Return the number of an index in each order of the set ``kind``, e.g. ``{"code": "J5", "paper": "J7"}``."""
    if kind == "marths_2023":
        places = [f"{j},{names.index(name) + 1}" for j, names in MARTHS_2023.items() if name in names]
        return {CODE: places[0]} if places else {}
    orders = ORDERS.get(kind, {})
    return {order: f"J{names.index(name) + 1}" for order, names in orders.items() if name in names}


def heading(kind: str, name: str) -> str:
    numbered = numbers(kind, name.removesuffix(TRUE)).get(CODE)
    return name if numbered is None else f"{numbered} true" if name.endswith(TRUE) else numbered


def legend(kind: str, names: Sequence[str]) -> str:
    headings = {heading(kind, name): name for name in names if heading(kind, name) != name}
    return ", ".join(f"{short} {name}" for short, name in headings.items())


def published_indices(evaluation: Evaluation) -> Published:
    """Return the indices of the scenario's set. Both dicts are empty without a set or an evaluated sample.

    Raises ConfigError if the recording is incomplete or the structure cannot be built.
    """
    if evaluation.scenario.indices not in ORDERS or not len(evaluation.counted):
        return Published({}, {})
    if evaluation.gaps:
        raise ConfigError(evaluation.gaps)
    run, several = evaluation.run, evaluation.scenario.indices == "marths_2023"
    n_dof = run.dof_displacement.shape[1]
    as_is = evaluation.assembly.observation.as_is and n_dof > max(*NODE, *STORIES.values())
    if several and not (as_is and len(run.axes) == 2):
        raise ConfigError(
            "indices = 'marths_2023': requires the frame of this benchmark, with 29 degrees of freedom and 2 axes"
        )
    targets = [scale_of(target) for target in run.target[rows_of(evaluation.counted)].T]
    indices = (_multi_axial if several else _benchmark)(evaluation, targets)
    measured = indices(False)
    if not evaluation.true_is_known:
        return Published(measured, {})
    rows = rows_of(evaluation.counted)
    columns = run.displacement[rows].T, run.true_displacement[rows].T, targets
    floors = [share_of(float(np.std(m - true)), y[0]) for m, true, y in zip(*columns, strict=True)]
    names = [name for name in BESIDE[evaluation.scenario.indices] if name.startswith("noise_floor")]
    return Published(measured | dict(zip(names, floors, strict=False)), indices(True))


Compute = Callable[[bool], dict[str, float]]
"""Function that returns the indices of the true displacement (argument true) or the measured displacement."""


def _multi_axial(evaluation: Evaluation, targets: Sequence[Scale]) -> Compute:
    steps, computed, exact = _at_steps(evaluation)
    stories = _stories(computed, exact, STORIES)

    def indices(true: bool) -> dict[str, float]:
        samples, run, displacement = rows_of(evaluation.counted), evaluation.run, evaluation.displacement(true)
        values: dict[str, float] = {}
        for axis, tracked in enumerate(evaluation.tracked(true).values()):
            y, m = run.target[samples, axis], displacement[samples, axis]
            values[f"tracking_delay_{axis + 1}_ms"] = MS * evaluation.scenario.dt * signed_lag(y, m)
            values[f"signed_delay_{axis + 1}_ms"] = MS * tracked["delay_s"]
            values |= errors_of("tracking_", f"_{axis + 1}", m - y, targets[axis])
        driven = displacement[steps * evaluation.scenario.samples_per_step]
        node = evaluation.assembly.fresh("setup").poses(driven)[:, NODE]
        for column, name in enumerate(("x", "theta")):
            m, y, r = node[:, column], computed[:, NODE[column]], exact[:, NODE[column]]
            values[f"node_delay_{name}_ms"] = MS * evaluation.scenario.step * signed_lag(y, m)
            values |= errors_of("node_", f"_{name}", m - y, scale_of(y))
            values |= errors_of("reference_", f"_{name}", m - r, scale_of(r))
        values |= stories
        order = (*ORDERS["marths_2023"][CODE], *values)
        return {name: values[name] for name in dict.fromkeys(order)}

    return indices


def _benchmark(evaluation: Evaluation, targets: Sequence[Scale]) -> Compute:
    steps, computed, exact = _at_steps(evaluation)
    structure = evaluation.assembly.full_structure
    assert structure is not None  # reference_displacement requires a structure
    columns = {name: column for column, name in enumerate(evaluation.run.dof_names)}
    upper = enumerate(structure.names[1:], 2)  # the recorded columns of the floors above the first
    stories = _stories(computed, exact, {str(floor): columns[name] for floor, name in upper if name in columns})
    driven = axes_of(evaluation.assembly, exact)[:, 0]

    def indices(true: bool) -> dict[str, float]:
        samples, displacement = rows_of(evaluation.counted), evaluation.displacement(true)
        y, m = evaluation.run.target[samples, 0], displacement[samples, 0]
        values = {
            "tracking_delay_ms": MS * evaluation.scenario.dt * published_lag(y, m, evaluation.delays(true)[0]),
            "signed_delay_ms": MS * next(iter(evaluation.tracked(true).values()))["delay_s"],
        }
        at_steps = displacement[rows_of(steps * evaluation.scenario.samples_per_step), 0]
        values |= errors_of("tracking_", "", m - y, targets[0])
        return values | errors_of("", "_1", at_steps - driven, scale_of(driven)) | stories

    return indices


def _at_steps(evaluation: Evaluation) -> tuple[Indices, Array, Array]:
    """Return step numbers, and displacements of numerical substructure and reference, ``(n_steps, n_dof)`` m."""
    steps = steps_of(evaluation)
    computed = np.asfortranarray(evaluation.run.dof_displacement[rows_of(steps)])
    exact = reference_displacement(evaluation.assembly)[rows_of(steps - evaluation.first_step)]
    return steps, computed, np.asfortranarray(exact)


def _stories(computed: Array, exact: Array, floors: Mapping[str, int]) -> dict[str, float]:
    errors: dict[str, float] = {}
    for name, dof in floors.items():
        errors |= errors_of("", f"_{name}", computed[:, dof] - exact[:, dof], scale_of(exact[:, dof]))
    return errors


def steps_of(evaluation: Evaluation) -> Indices:
    n = evaluation.scenario.samples_per_step
    steps: Indices = evaluation.counted if n == 1 else evaluation.counted[evaluation.counted % n == 0] // n
    return steps[: np.searchsorted(steps, len(evaluation.run.dof_displacement))]


def axes_of(assembly: Assembly, displacement: Array) -> Array:
    """Return displacements of the axes, ``(steps, n_axes)`` m, for observed ``displacement`` ``(steps, n)`` m."""
    histories: Array = assembly.fresh("setup").histories(displacement[:, : assembly.observation.n_interface])
    return histories


def published_lag(target: Array, measured: Array, delay: Delay | None = None) -> int:
    """Return J1, the lag (0 to 49 samples) at which ``measured`` correlates most with ``target``.

    Both histories are ``(n,)``. The correlation is Pearson's. ``delay`` may supply sums over these histories;
    they exclude the first and the last ``delay.longest`` measurements.
    """
    n = len(target)
    lags = np.arange(min(LONGEST_LAG, n - 1))
    if not len(lags):
        return 0
    total = None if delay is None or delay.longest < len(lags) else delay.total()
    edge = n if delay is None or total is None else delay.longest
    ends, targets, middle = measured[:edge] - measured[0], target[:edge] - target[0], (0.0, 0.0, 0.0, 0.0)
    first, likeness = ends[: len(lags) - 1], products(targets, ends, 0, len(lags) - 1)
    if total is not None:
        middle, end, targets = total[1:5], measured[n - edge :] - measured[0], target[total.samples :] - target[0]
        likeness += total.products(edge + 1)[edge - lags]
        likeness += np.correlate(targets[edge - len(lags) + 1 :], end)[::-1]
        ends = np.append(ends, end)
    x_total, squares_of_x = middle[0] + ends.sum(), middle[1] + ends @ ends
    y_total, squares_of_y = middle[2] + targets.sum(), middle[3] + targets @ targets
    if not (squares_of_x and squares_of_y):  # the test ended before any motion
        return 0
    last = targets[len(targets) - len(lags) + 1 :][::-1]
    later, earlier = rest(x_total, first), rest(y_total, last)
    of_x = rest(squares_of_x, first * first) - later * later / (n - lags)
    of_y = rest(squares_of_y, last * last) - earlier * earlier / (n - lags)
    # the structure may be at rest in parts of a short test
    still = (of_x <= ROUNDING * squares_of_x) | (of_y <= ROUNDING * squares_of_y)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = (likeness - later * earlier / (n - lags)) / np.sqrt(of_x * of_y)
    correlation[still] = -math.inf
    return int(np.argmax(correlation))


def rest(total: float, first: Array) -> Array:
    """Return ``total`` minus the sum of the first 0, 1, ..., n values of ``first`` ``(n,)``, as ``(n + 1,)``."""
    return total - np.append(0.0, np.cumsum(first))


def signed_lag(target: Array, measured: Array) -> int:
    """Return the lag, -49 to 49 samples, at which ``measured`` correlates most with ``target``, ``(n,)`` each."""
    longest = min(LONGEST_LAG, len(target)) - 1
    lags = np.array(sorted(range(-longest, longest + 1), key=abs))  # of equally good lags, prefer the shortest
    return int(lags[np.argmax(products(target, measured, -longest, longest)[lags + longest])])


def products(target: Array, measured: Array, first: int, last: int) -> Array:
    """Return the sum of ``target`` times ``measured`` at each lag from ``first`` to ``last`` samples."""
    around = np.pad(measured, (-first, last))
    sums = np.zeros(last - first + 1)
    for begin in range(0, len(target), BLOCK):
        block = target[begin : begin + BLOCK]
        sums += np.correlate(around[begin : begin + len(block) + last - first], block)
    return sums


def scale_of(values: Array) -> Scale:
    return float(np.std(values)), max(float(values.max()), -float(values.min()))


def share_of(part: float, total: float) -> float:
    return PERCENT * (part / total) if total else math.nan


def errors_of(before: str, after: str, error: Array, scale: Scale) -> dict[str, float]:
    """Return standard deviation (name ``{before}rms{after}_percent``) and peak of ``error``, % of ``scale``."""
    shares = map(share_of, scale_of(error), scale)
    return {f"{before}{name}{after}_percent": share for name, share in zip(("rms", "peak"), shares, strict=True)}


def reference_displacement(assembly: Assembly) -> Array:
    """Return the observed displacement of the whole structure after the soft start, ``(steps + 1, n)`` m."""
    if states_its_test(assembly) and not has_undeclared_mass(assembly):
        return assembly.observation.motion(linear_displacement(assembly))
    return whole_response(assembly.scenario)[0]
