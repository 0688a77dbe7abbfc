"""The indices of the field's benchmarks, by name, and the orders in which they are published.

RTHS benchmark (Silva et al. 2020): y displacement of the first floor in the numerical substructure, m as measured,
r that of the reference structure, computed in one piece; standard deviations without the mean.

    tracking_delay_ms       lag of the largest correlation of m with y, over 0 to 49 samples: never negative
    tracking_rms_percent    100 std(m - y) / std(y)             tracking_peak_percent    100 max|m - y| / max|y|
    rms_1_percent           100 std(m - r) / std(r), floor 1    peak_1_percent           100 max|m - r| / max|r|
    rms_2_percent ...       the same of the other floors, of which nothing is measured: numerical against reference

The paper's text numbers them in another order than its code. Beside the published delay stands a signed one, by a
parabola through the peak of the correlation: parts of a sample, either way. ``noise_floor_percent`` is what the
noise of the sensor alone makes of tracking_rms_percent; known where the true displacement is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.analysis.histories import Evaluation, Indices
from rths_nodes.analysis.response_errors import whole_response
from rths_nodes.analysis.units import MS, PERCENT
from rths_nodes.core.discretisation import transition
from rths_nodes.core.partition import whole
from rths_nodes.core.samples import Array, Motion
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.numerical.structures.linear_force import is_linear

LONGEST_LAG = 50
"""Samples of lag that the published delay looks at, from zero on."""

CODE, PAPER = "code", "paper"
BENCHMARK_2020: dict[str, tuple[str, ...]] = {
    CODE: (
        "tracking_delay_ms",
        "tracking_rms_percent",
        "tracking_peak_percent",
        "rms_1_percent",
        "peak_1_percent",
        "rms_2_percent",
        "rms_3_percent",
        "peak_2_percent",
        "peak_3_percent",
    ),
    PAPER: (
        "tracking_delay_ms",
        "tracking_rms_percent",
        "tracking_peak_percent",
        "rms_1_percent",
        "rms_2_percent",
        "rms_3_percent",
        "peak_1_percent",
        "peak_2_percent",
        "peak_3_percent",
    ),
}
"""J1 to J9 of the RTHS benchmark in both orders."""
ORDERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {"rths_benchmark_2020": BENCHMARK_2020}
"""The orders of a set of indices, J1 first, by what ``indices`` of a scenario says."""


class Published(NamedTuple):
    """The indices of a test by name, of the measured displacement and of the true one, empty if unknown."""

    measured: dict[str, float]
    true: dict[str, float]


def numbers(which: str, name: str) -> dict[str, str]:
    """Order -> number of the index ``name`` in the set ``which``: ``{"code": "J5", "paper": "J7"}``."""
    orders = ORDERS.get(which, {})
    return {order: f"J{names.index(name) + 1}" for order, names in orders.items() if name in names}


TRUE = "_true"
"""Behind the name of an index: that of the true displacement, which a simulator knows."""


def heading(which: str, name: str) -> str:
    """``J2`` or ``J2 true`` for an index of the set ``which`` in the order of the code, else its name."""
    numbered = numbers(which, name.removesuffix(TRUE)).get(CODE)
    return name if numbered is None else f"{numbered} true" if name.endswith(TRUE) else numbered


def legend(which: str, names: Sequence[str]) -> str:
    """What the headings of ``names`` stand for, in one sentence; empty where nothing is numbered."""
    found = {heading(which, name): name for name in names if heading(which, name) != name}
    return ", ".join(f"{short} {name}" for short, name in found.items())


def published_indices(of: Evaluation) -> Published:
    """The indices of the set that the scenario asks for. Raises ConfigError where its structure cannot be built.

    Both parts are empty for a scenario that asks for none, and for a test in which no step counts.
    """
    if of.scenario.indices not in ORDERS or not len(of.counted):
        return Published({}, {})
    reference = reference_displacement(of.assembly)
    run = of.run
    measured = _benchmark(of, run.displacement, reference)
    if not of.true_is_known:
        return Published(measured, {})
    noise = (run.displacement - run.true_displacement)[of.counted, 0]
    floor = {"noise_floor_percent": PERCENT * float(np.std(noise) / np.std(run.target[of.counted, 0]))}
    return Published(measured | floor, _benchmark(of, run.true_displacement, reference))


def _benchmark(of: Evaluation, displacement: Array, reference: Array) -> dict[str, float]:
    samples, dt = of.counted, of.scenario.dt
    y, m = of.run.target[samples, 0], displacement[samples, 0]
    found = {
        "tracking_delay_ms": MS * dt * published_lag(y, m),
        "signed_delay_ms": MS * next(iter(of.indices(displacement).values()))["delay_s"],
        "tracking_rms_percent": rms_percent(m, y),
        "tracking_peak_percent": peak_percent(m, y),
    }
    steps = steps_of(of)
    numerical, exact = of.run.dof_displacement[steps], reference[steps - of.first_step]
    at_steps = displacement[steps * of.scenario.samples_per_step, 0]
    driven = axes_of(of.assembly, exact)[:, 0]
    found |= {"rms_1_percent": rms_percent(at_steps, driven), "peak_1_percent": peak_percent(at_steps, driven)}
    for dof in range(1, exact.shape[1]):
        pair = numerical[:, dof], exact[:, dof]
        found |= {f"rms_{dof + 1}_percent": rms_percent(*pair), f"peak_{dof + 1}_percent": peak_percent(*pair)}
    return found


def steps_of(of: Evaluation) -> Indices:
    """Numbers of the integration steps whose sample counts."""
    n, step = of.scenario.samples_per_step, np.arange(len(of.run.dof_displacement))
    found: Indices = step[np.isin(step * n, of.counted)]
    return found


def axes_of(assembly: Assembly, displacement: Array) -> Array:
    """Displacements of the axes ``(steps, n_axes)`` m at those of the degrees of freedom ``(steps, n_dof)``."""
    setup = assembly.fresh("setup")
    if hasattr(setup, "histories"):  # fixed combinations, all steps at a time
        found: Array = setup.histories(displacement)
        return found
    still = np.zeros(displacement.shape[1])
    return np.array([setup.axes(Motion(row, still, still)).displacement.copy() for row in displacement])


def published_lag(target: Array, measured: Array) -> int:
    """J1 in samples: the lag from 0 to 49 at which ``measured`` is most like ``target``, ``(n,)`` each."""
    n = len(target)
    if not (target.std() and measured.std()):  # a test that ends before anything has moved
        return 0
    found = [np.corrcoef(measured[lag:], target[: n - lag])[0, 1] for lag in range(min(LONGEST_LAG, n - 1))]
    return int(np.argmax(found)) if found else 0


def rms_percent(found: Array, exact: Array) -> float:
    """100 std(found - exact) / std(exact)."""
    return _share(np.std(found - exact), np.std(exact))


def peak_percent(found: Array, exact: Array) -> float:
    """100 max|found - exact| / max|exact|."""
    return _share(np.abs(found - exact).max(), np.abs(exact).max())


def _share(part: Any, whole: Any) -> float:
    """In %; nan of nothing, as in a test that ends before anything has moved."""
    return PERCENT * float(part / whole) if whole else math.nan


def reference_displacement(assembly: Assembly) -> Array:
    """Displacement ``(steps + 1, n_dof)`` m of the structure in one piece, from the end of a soft start.

    Of a linear one that states what of it is under test by exact steps; any other one by
    :func:`rths_nodes.analysis.response_errors.whole_response`, which takes its specimens.
    """
    structure = assembly.structure
    if structure is None or not (is_linear(structure) and structure.experimental_stiffness.any()):
        return whole_response(assembly.scenario)[0]
    mass, damping, stiffness = whole(structure)
    n, inverse = len(mass), np.linalg.inv(mass)
    nothing, one = np.zeros((n, n)), np.eye(n)
    system = np.block([[nothing, one], [-inverse @ stiffness, -inverse @ damping]])
    phi, before, now = transition(system, np.vstack([nothing, inverse]), assembly.scenario.step)
    force = assembly.external_force
    driven = force[:-1] @ before.T + force[1:] @ now.T
    states = np.zeros((len(force), 2 * n))
    for state, onward, load in zip(states[:-1], states[1:], driven, strict=True):
        phi.dot(state, onward)
        onward += load
    return states[:, :n]
