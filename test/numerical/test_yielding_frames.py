# SPDX-License-Identifier: Apache-2.0
"""Tests of yielding frames with P-Delta: closed forms, identities, partitions, every integrator."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from driven_kernels import BY_MATRICES, LAW, SAMPLES, agree, functions_of, numbers, of_integrator, same, wrong_in
from loop_parts import make, simulate
from messages import mentions, naming
from minimal_components import data_of
from written_history import written_history

from rths_nodes.analysis.histories import Evaluation, energies
from rths_nodes.analysis.report import tables
from rths_nodes.analysis.report.document import render
from rths_nodes.analysis.response_errors import response_errors
from rths_nodes.analysis.stability.judgement import judge
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Kernel, copied
from rths_nodes.core.samples import Array
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario import files
from rths_nodes.mechanics.structure import combined
from rths_nodes.numerical import reductions
from rths_nodes.numerical.structures.damping import modes
from rths_nodes.numerical.structures.restoring_forces import is_linear, trial_force
from rths_nodes.numerical.structures.shear_frame import StoryForces
from rths_nodes.numerical.vectors import SEVERAL

MASSES = [30e3, 30e3, 20e3]
STIFFNESSES = [60e6, 50e6, 40e6]
HEIGHTS = [3.5, 3.0, 3.0]
YIELDS = [100e3, 80e3, 50e3]
"""Yield forces of the stories, N, at drifts of 1.25 to 1.7 mm."""
DT = 0.005
GRAVITY = {"gravity_loads": [9e5, 6e5, 2e5], "story_heights": HEIGHTS}
LAWS: dict[str, Callable[[int], dict[str, Any]]] = {
    "linear": lambda story: {},
    "bouc_wen": lambda story: {"yield_displacement": YIELDS[story] / STIFFNESSES[story], "post_yield_ratio": 0.05},
    "bilinear": lambda story: {"yield_force": YIELDS[story], "post_yield_ratio": 0.05},
    "elastic_plastic": lambda story: {"yield_force": YIELDS[story]},
    "degrading_bouc_wen": lambda story: {
        "yield_displacement": YIELDS[story] / STIFFNESSES[story],
        "post_yield_ratio": 0.05,
        "strength_degradation": 0.02,
        "stiffness_degradation": 0.03,
    },
}
OPTIONS: dict[str, dict[str, Any]] = {
    "hht_alpha": {"iterations": 4},
    "predefined": {"history": written_history(1, 0.01)},
    "prescribed": {"displacement": {"type": "sine", "amplitude": 0.1, "frequency": 2.0}},
}
WITHOUT_A_STRUCTURE = ("predefined", "prescribed")
MATRICES_MADE_BEFORE = ("exact", "newmark")
"""Integrators that refuse yielding structures."""
STEP_BY_STEP = ("central_difference", "cr", "explicit_newmark", "hht_alpha", "kr_alpha", "runge_kutta")


def laws(name: str, stories: tuple[int, ...] = (0, 1, 2)) -> dict[str, dict[str, Any]]:
    return {f"story_{story + 1}": {"type": name, **LAWS[name](story)} for story in stories}


def frame(**more: Any) -> Any:
    damping = {"type": "rayleigh", "ratios": [0.02, 0.02]}
    return make("structure", "shear_frame", masses=MASSES, stiffnesses=STIFFNESSES, damping=damping, **more)


def shaken(structure: Any, dt: float = DT, duration: float = 2.0, peak: float = 4.0) -> Array:
    """Loads ``(steps + 1, n)`` N by a ground acceleration with ``peak`` in m/s^2."""
    time = dt * np.arange(round(duration / dt) + 1)
    acceleration = peak * np.sin(9.0 * time) * np.sin(math.pi * time / duration)
    return np.outer(-acceleration, (structure.mass + structure.experimental_mass) @ structure.influence)


def ride(solver: Any, steps: int, measured: Callable[[Any], Array] | None = None) -> Array:
    """Displacements ``(steps + 1, n)`` m; ``measured`` returns the force at the state of the solver."""
    history = [solver.displacement.copy()]
    for _ in range(steps):
        solver.step(np.zeros(len(history[0])) if measured is None else measured(solver))
        history.append(solver.displacement.copy())
    return np.array(history)


def response(name: str, structure: Any, load: Array, dt: float = DT, **more: Any) -> Array:
    return ride(make("integrator", name, structure, load, dt, **OPTIONS.get(name, {}), **more), len(load) - 1)


def test_gravity_reduces_stiffness_by_load_over_height() -> None:
    leaning = frame(**GRAVITY)
    drifts = np.eye(3) - np.eye(3, k=-1)
    reduction = frame().stiffness - leaning.stiffness
    expected = drifts.T @ np.diag(np.divide(*GRAVITY.values())) @ drifts
    np.testing.assert_allclose(reduction, expected, atol=1e-6)
    np.testing.assert_array_equal(leaning.damping, frame().damping)
    assert is_linear(leaning)
    x = np.array([1e-3, 3e-3, 2e-3])
    np.testing.assert_allclose(leaning.restoring_force.force(x), leaning.stiffness @ x, rtol=1e-12)


@pytest.mark.parametrize("theta", [0.05, 0.3, 0.9])
def test_uniform_stability_coefficient_scales_all_periods(theta: float) -> None:
    """theta = P / (k h) in every story: T = T_0 / sqrt(1 - theta), equal shapes."""
    steep = [8.0, 5.0, 3.0]  # each story carries more than the story above
    loads = [theta * k * h for k, h in zip(STIFFNESSES, steep, strict=True)]
    leaning = frame(gravity_loads=loads, story_heights=steep)
    omega, shapes = modes(leaning.mass, leaning.stiffness)
    omega_0, shapes_0 = modes(frame().mass, frame().stiffness)
    np.testing.assert_allclose(omega, omega_0 * math.sqrt(1.0 - theta), rtol=1e-9)
    np.testing.assert_allclose(np.abs(shapes), np.abs(shapes_0), rtol=1e-6, atol=1e-9)


def test_p_delta_lengthens_period_of_single_mass() -> None:
    theta, mass, stiffness, height = 0.19, 2e4, 8e5, 3.0
    data = {"masses": [mass], "stiffnesses": [stiffness], "damping": {"type": "modal", "ratios": [0.0]}}
    gravity = {"gravity_loads": [theta * stiffness * height], "story_heights": [height]}
    leaning = make("structure", "shear_frame", **data, **gravity)
    period = 2.0 * math.pi * math.sqrt(mass / stiffness) / math.sqrt(1.0 - theta)
    history = response("exact", leaning, np.full((201, 1), 1e3), dt=period / 40.0)[:, 0]
    static = 1e3 / (stiffness * (1.0 - theta))
    np.testing.assert_allclose(history, static * (1.0 - np.cos(2.0 * math.pi * np.arange(201) / 40.0)), atol=1e-9)


def test_yielded_column_collapses_hyperbolically() -> None:
    """Elastic-plastic law under P: m x'' = F - F_y + (P / h) x, unstable with the rate sqrt(P / (h m))."""
    mass, stiffness, load, height, yields = 2e4, 8e5, 4e5, 3.0, 1e4
    law = {"story_1": {"type": "elastic_plastic", "yield_force": yields}}
    data = {"masses": [mass], "stiffnesses": [stiffness], "damping": {"type": "modal", "ratios": [0.0]}}
    gravity = {"gravity_loads": [load], "story_heights": [height]}
    leaning = make("structure", "shear_frame", **data, **gravity, restoring_forces=law)
    push, dt = 1.2e4, 1e-3
    history = ride(make("integrator", "runge_kutta", leaning, np.full((2001, 1), push), dt), 2000)[:, 0]
    elastic, bend = stiffness - load / height, yields / stiffness
    omega, rate = math.sqrt(elastic / mass), math.sqrt(load / height / mass)
    yielded = math.acos(1.0 - bend * elastic / push) / omega
    speed = push / elastic * omega * math.sin(omega * yielded)
    time = dt * np.arange(2001) - yielded
    centre = (yields - push) * height / load
    expected = centre + (bend - centre) * np.cosh(rate * time) + speed / rate * np.sinh(rate * time)
    late = time > 0.0
    np.testing.assert_allclose(history[late], expected[late], rtol=2e-4)
    assert history[-1] > 100.0 * bend


@pytest.mark.parametrize("name", LAWS)
def test_cautions_name_stories_unstable_after_yielding(name: str) -> None:
    """P / h exceeds the 5 % of the stiffness that remain after yielding, or nothing remains."""
    cls = registry.load("structure", "shear_frame").Params
    for share, falls in ((0.9, name == "elastic_plastic"), (1.1, name != "linear")):
        data = {
            "masses": MASSES,
            "stiffnesses": STIFFNESSES,
            "restoring_forces": laws(name, (0,)),
            "gravity_loads": [share * 0.05 * STIFFNESSES[0] * HEIGHTS[0], 0.0, 0.0],
            "story_heights": HEIGHTS,
        }
        cautions = from_data(cls, data, "structure").cautions(None)
        assert [caution.partition(":")[0] for caution in cautions] == ["story_1"] * falls
        # experimental gravity loads do not count
        data["experimental_gravity_loads"] = data["gravity_loads"]
        data["restoring_forces"] = laws("bilinear", (0,))
        assert from_data(cls, data, "structure").cautions(None) == []


def test_critical_gravity_load_is_refused() -> None:
    critical = STIFFNESSES[0] * HEIGHTS[0]
    frame(gravity_loads=[0.999 * critical, 0.0, 0.0], story_heights=HEIGHTS)
    with pytest.raises(ConfigError, match=naming("gravity_loads[0]", "2.1e+08 N")):
        frame(gravity_loads=[critical, 0.0, 0.0], story_heights=HEIGHTS)


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        ({"gravity_loads": [3e5, 2e5, 1e5]}, ("structure.story_heights", "missing", "gravity_loads")),
        ({"gravity_loads": [1e5, 2e5, 1e5], "story_heights": HEIGHTS}, ("gravity_loads[0]", "100000 N")),
        ({"gravity_loads": [1e5]}, ("gravity_loads", "(100000.0,)", "3")),
        ({"experimental_gravity_loads": [1.0, 0.0, 0.0]}, ("experimental_gravity_loads[0]", "1 N", "0 N")),
        ({"restoring_forces": {"floor_1": {"type": "linear"}}}, ("restoring_forces", "unknown", "floor_1")),
        ({"restoring_forces": {"story_1": {"type": "lin"}}}, ("restoring_forces.story_1.type", "linear")),
        ({"restoring_forces": [1]}, ("restoring_forces", "1", "mapping")),
        (
            {"restoring_forces": {"story_2": {"type": "linear", "stiffness": 1e6}}},
            ("restoring_forces.story_2.stiffness", "1e+06 N/m", "5e+07 N/m"),
        ),
        (
            {"restoring_forces": laws("bilinear", (0,)), "experimental_stiffnesses": [60e6, 0.0, 0.0]},
            ("restoring_forces.story_1", "stiffness"),
        ),
    ],
)
def test_invalid_frames_are_refused(data: dict[str, Any], parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*parts)):
        frame(**data)


def test_rigid_plastic_pulse_response() -> None:
    """Displacement a_p t_d^2 / 2 (a_p / a_y - 1) due to a rectangular pulse a_p of duration t_d.

    N. M. Newmark: Effects of earthquakes on dams and embankments. Geotechnique 15, 1965.
    """
    mass, pulse, strength, held, dt = 1e4, 6.0, 2.0, 0.2, 1e-4
    law = {"story_1": {"type": "elastic_plastic", "yield_force": mass * strength}}
    data = {"masses": [mass], "stiffnesses": [mass * 1e6], "damping": {"type": "modal", "ratios": [0.0]}}
    block = make("structure", "shear_frame", **data, restoring_forces=law)
    load = np.zeros((8001, 1))
    load[: round(held / dt)] = mass * pulse
    expected = 0.5 * pulse * held**2 * (pulse / strength - 1.0)
    history = response("explicit_newmark", block, load, dt)[:, 0]
    assert history.max() == pytest.approx(expected, rel=5e-3)
    assert history[-1] == pytest.approx(expected, rel=5e-3)  # elastic part: 2 um


@pytest.mark.parametrize("gravity", [{}, GRAVITY])
def test_linear_restoring_forces_equal_matrix(gravity: dict[str, Any]) -> None:
    by_laws, by_matrix = frame(restoring_forces=laws("linear"), **gravity), frame(**gravity)
    assert is_linear(by_laws)
    for name in ("mass", "damping", "stiffness", "experimental_stiffness"):
        np.testing.assert_array_equal(getattr(by_laws, name), getattr(by_matrix, name))
    x = np.array([0.1, -0.3, 0.2])
    np.testing.assert_array_equal(by_laws.restoring_force.force(x), by_matrix.restoring_force.force(x))


@pytest.mark.parametrize("name", STEP_BY_STEP)
def test_frame_below_yielding_matches_linear_frame(name: str) -> None:
    strong = {f"story_{story}": {"type": "bilinear", "yield_force": 1e12} for story in (1, 2, 3)}
    histories = []
    for more in ({"restoring_forces": strong}, {}):
        structure = frame(**GRAVITY, **more)
        histories.append(response(name, structure, shaken(structure)))
    np.testing.assert_allclose(*histories, atol=1e-9 * np.abs(histories[1]).max())


@pytest.mark.parametrize("name", STEP_BY_STEP)
def test_one_story_frame_equals_single_mass(name: str) -> None:
    mass, frequency = 2e4, 2.0
    stiffness = mass * (2.0 * math.pi * frequency) ** 2
    law = {"type": "bouc_wen", "yield_displacement": 0.002, "post_yield_ratio": 0.05}
    single = make("structure", "sdof", mass=mass, frequency=frequency, damping_ratio=0.02, restoring_force=law)
    damping = {"type": "matrix", "matrix": single.damping.tolist()}
    data = {"masses": [mass], "stiffnesses": [stiffness], "damping": damping}
    story = make("structure", "shear_frame", **data, restoring_forces={"story_1": law})
    assert single.elastic_energy == story.elastic_energy > 0.0
    np.testing.assert_array_equal(*(response(name, structure, shaken(single)) for structure in (single, story)))


def test_trial_force_preserves_story_state() -> None:
    for name in LAWS:
        structure = frame(restoring_forces=laws(name))
        out, back = np.array([0.01, 0.02, 0.03]), np.array([0.0, 0.001, 0.0])
        twin = copy.deepcopy(structure.restoring_force)
        np.testing.assert_array_equal(*(trial_force(structure, out) for _ in range(2)))
        np.testing.assert_array_equal(structure.restoring_force.force(back), twin.force(back))


class LawWithoutKernel:
    """Elastic-plastic spring of another package."""

    def __init__(self, stiffness: float, limit: float) -> None:
        self._stiffness, self._limit = stiffness, limit
        self.initial_stiffness, self.elastic_energy = stiffness, 0.5 * limit**2 / stiffness
        self.reset()

    def reset(self) -> None:
        self._x = self._r = 0.0

    def force(self, displacement: np.ndarray) -> np.ndarray:
        r = self._r + self._stiffness * (float(displacement[0]) - self._x)
        self._x, self._r = float(displacement[0]), min(max(r, -self._limit), self._limit)
        return np.array([self._r])


@pytest.mark.parametrize("name", ["cr", "runge_kutta"])
def test_restoring_force_without_kernel_matches_kernel(name: str) -> None:
    """Stepping leaves the memory of the law itself unchanged."""
    stiffness, limit = 3e6, 2e4
    law = make("restoring_force", "elastic_plastic", 1, stiffness=stiffness, yield_force=limit)
    histories = []
    for force in (law, LawWithoutKernel(stiffness, limit)):
        single = make("structure", "sdof", mass=2e4, frequency=2.0)
        single.restoring_force = force
        several = make("structure", "shear_frame", masses=[2e4, 1e4], stiffnesses=[stiffness, 2e6])
        several.restoring_force = StoryForces(np.array([[2e6, -2e6], [-2e6, 2e6]]), {0: force})
        structures = (single, several)
        histories.append([response(name, structure, 3.0 * shaken(structure)) for structure in structures])
        assert force.force(np.array([1e-3]))[0] == pytest.approx(stiffness * 1e-3)
    for reference, history in zip(*histories, strict=True):
        np.testing.assert_allclose(history, reference, rtol=1e-12, atol=1e-15)
        assert np.abs(reference).max() > 2.0 * limit / stiffness


_references: dict[tuple[object, ...], Array] = {}


def reference(structure: Any, name: str, law: str, dt: float) -> Array:
    """Cached response of the ``structure`` with small steps ``dt``, s."""
    key = name, law, dt
    if key not in _references:
        _references[key] = response(name, structure, shaken(structure, dt), dt)
    return _references[key]


@pytest.mark.parametrize("law", registry.names("restoring_force"))
@pytest.mark.parametrize("name", registry.names("integrator"))
def test_every_integrator_steps_or_refuses_every_law(name: str, law: str) -> None:
    """The constructor refuses with one message."""
    structure = frame(restoring_forces=laws(law), **GRAVITY)
    load = shaken(structure)
    if getattr(registry.load("integrator", name), "external", False):
        pytest.skip("the structure belongs to another program")
    without = name in WITHOUT_A_STRUCTURE
    if without or (name in MATRICES_MADE_BEFORE and law != "linear"):
        reason = "must be left out" if without else f"integrator {name}: requires .* linear .* computed before"
        with pytest.raises(ConfigError, match=reason) as caught:
            make("integrator", name, structure, load, DT, **OPTIONS.get(name, {}))
        assert len(caught.value.problems) == 1
        return
    iterations, fine = OPTIONS.get(name, {}).get("iterations", 1), 16  # an iteration is a step
    load = shaken(structure, DT / iterations)
    history = response(name, structure, load, DT / iterations)[::iterations]
    expected = reference(structure, "explicit_newmark", law, DT / fine)[::fine]
    if law != "linear":
        drifts = np.diff(expected, axis=1, prepend=0.0)
        assert (np.abs(drifts).max(axis=0)[:2] > 1.5 * np.divide(YIELDS, STIFFNESSES)[:2]).all()
    assert np.abs(history - expected).max() < 0.05 * np.abs(expected).max()


@pytest.mark.parametrize(("law", "order"), [("bouc_wen", 2.8), ("degrading_bouc_wen", 2.8), ("bilinear", 1.7)])
@pytest.mark.parametrize("name", ["cr", "central_difference", "explicit_newmark"])
def test_response_converges_with_step(name: str, law: str, order: float) -> None:
    """Second order for smooth forces, reversals apart; at least first order for forces with corners."""
    structure = frame(restoring_forces=laws(law), **GRAVITY)
    steps = (0.004, 0.002, 0.001)
    histories = [response(name, structure, shaken(structure, dt), dt)[:: round(0.004 / dt)] for dt in steps]
    exact = reference(structure, "cr", law, 0.0001)[::40]
    errors = [float(np.abs(history - exact).max()) for history in histories]
    assert errors[0] < 0.05 * np.abs(exact).max()
    assert errors[0] > order * errors[1] > order**2 * errors[2]


@pytest.mark.parametrize("name", ["cr", "central_difference", "explicit_newmark", "kr_alpha"])
def test_experimental_part_counts_once(name: str) -> None:
    """The rig has half of the first story and of its gravity load; the numerical half yields."""
    load_1, tested = 0.5 * GRAVITY["gravity_loads"][0], 30e6
    law = {"story_1": {"type": "bilinear", "yield_force": 50e3, "post_yield_ratio": 0.05}}
    split = frame(
        restoring_forces=law,
        experimental_stiffnesses=[tested, 0.0, 0.0],
        experimental_gravity_loads=[load_1, 0.0, 0.0],
        **GRAVITY,
    )
    for matrix, expected in zip(combined(split), combined(frame(**GRAVITY)), strict=True):
        np.testing.assert_allclose(matrix, expected, rtol=1e-12, atol=1e-6)
    apparent = tested - load_1 / HEIGHTS[0]
    assert split.experimental_stiffness[0, 0] == pytest.approx(apparent)
    load = shaken(split)
    solver = make("integrator", name, split, load, DT)
    history = ride(solver, len(load) - 1, lambda s: np.array([apparent * s.displacement[0], 0.0, 0.0]))
    # undivided frame: a spring of 30e6 N/m in parallel with a story that yields at 50 kN
    both = {"yield_force": 50e3 * 60e6 / 30e6, "post_yield_ratio": (0.05 * 30e6 + tested) / 60e6}
    one_piece = frame(restoring_forces={"story_1": {"type": "bilinear", **both}}, **GRAVITY)
    expected = response(name, one_piece, load)
    assert np.abs(expected[:, 0]).max() > 2.0 * 50e3 / 30e6
    np.testing.assert_allclose(history, expected, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("name", [*STEP_BY_STEP, *MATRICES_MADE_BEFORE])
def test_numerical_gravity_on_fully_experimental_story(name: str) -> None:
    """The numerical part of the story has the stiffness -P / h; the whole frame is stable."""
    gravity = {"gravity_loads": [3e7, 2e7, 1e7], "story_heights": HEIGHTS}
    split = frame(experimental_stiffnesses=[STIFFNESSES[0], 0.0, 0.0], **gravity)
    assert split.stiffness[0, 0] == pytest.approx(STIFFNESSES[1] - (3e7 / 3.5 + 2e7 / 3.0))
    load, tested = shaken(split, 0.0005), np.array([STIFFNESSES[0], 0.0, 0.0])
    options = {"hht_alpha": {"iterations": 1}, "exact": {"measured_force": "extrapolated"}}.get(name, {})
    solver = make("integrator", name, split, load, 0.0005, **options)
    history = ride(solver, len(load) - 1, lambda solver: tested * solver.displacement[0])
    expected = response("exact", frame(**gravity), load, 0.0005)
    without = response("exact", frame(), load, 0.0005)
    size = np.abs(expected).max()
    assert np.abs(without - expected).max() > 0.05 * size
    assert np.abs(history - expected).max() < (0.02 if name == "newmark" else 1e-3) * size


# Integrator kernels for several degrees of freedom: plain and compiled results agree bit for bit

FRAME = {"masses": [1e3, 9e2, 8e2], "stiffnesses": [1e6, 9e5, 8e5]}
KERNEL_LAWS = {"story_1": LAW, "story_3": {"type": "bilinear", "yield_force": 4e3, "post_yield_ratio": 0.1}}
YIELDING = ("central_difference", "cr", "explicit_newmark", "hht_alpha", "kr_alpha", "runge_kutta")


def of_frame(name: str, **more: Any) -> tuple[Kernel, Any, Any]:
    cls = registry.load("integrator", name)
    params = from_data(cls.Params, data_of("integrator", name), "integrator")
    frame = make("structure", "shear_frame", **FRAME, **more)
    return of_integrator(cls, params, np.random.default_rng(5), True, frame)


@pytest.mark.parametrize("name", YIELDING)
def test_plain_and_compiled_yielding_frames_agree(name: str) -> None:
    agree(*of_frame(name, restoring_forces=KERNEL_LAWS))


@pytest.mark.parametrize("name", BY_MATRICES)
def test_plain_and_compiled_linear_frames_agree(name: str) -> None:
    kernel, constants, rows = of_frame(name)
    if name != "newmark":  # the other kernels take scalars for few degrees of freedom
        rows = [(tuple(measured.tolist()), *rest) for measured, *rest in rows]
    agree(kernel, constants, rows)


@pytest.mark.parametrize("name", [*YIELDING, *BY_MATRICES])
def test_copied_state_is_independent(name: str) -> None:
    kernel, constants, rows = of_frame(name, restoring_forces=KERNEL_LAWS if name in YIELDING else {})
    state = copied(kernel.rest(constants))
    twin, before = copied(state), copied(state)
    with np.errstate(all="ignore"):
        for inputs in rows[:20]:
            twin, _ = kernel.step(constants, twin, *inputs)
    assert same(state, before)
    assert not same(twin, before)


def test_plain_and_compiled_energies_agree() -> None:
    structure, rng = make("structure", "shear_frame", **FRAME), np.random.default_rng(2)
    values = numbers(rng, 1.0, True)
    rows = [
        (*(np.array([next(values) for _ in range(3)]) for _ in range(4)), sample == 0) for sample in range(SAMPLES)
    ]
    constants = SEVERAL.operand(structure.mass), SEVERAL.operand(structure.damping)
    step = reductions.energies(SEVERAL.product)
    agree(Kernel(lambda: None, lambda k: (np.zeros((3, 3)), np.zeros(3), 0.0, 0.0, 0.0), step), constants, rows)
    assert {name: fault for name in functions_of(step, {}).values() if (fault := wrong_in(name))} == {}


# Analyses of a yielding frame: energies, reference response, stability, report

NAME = "yielding_five_story"
LINEAR = "structure.restoring_forces={}"
STORIES = tuple(f"story_{story}" for story in range(1, 6))


@pytest.fixture(scope="module")
def shipped() -> Evaluation:
    """The shipped test for the duration of the strong motion."""
    _, run = simulate(NAME, "duration=12")
    return Evaluation(run)


def drifts(evaluation: Evaluation) -> Array:
    return np.diff(evaluation.run.dof_displacement, axis=1, prepend=0.0)


def test_every_story_and_brace_yield(shipped: Evaluation) -> None:
    structure = shipped.scenario.structure
    left = np.subtract(structure.stiffnesses, structure.experimental_stiffnesses)
    yields = [structure.restoring_forces[name].yield_force for name in STORIES] / left
    assert (np.abs(drifts(shipped)).max(axis=0) > 2.0 * yields).all()
    brace = shipped.scenario.axes["brace"].specimen
    assert np.abs(shipped.run.displacement).max() > 2.0 * brace.yield_force / brace.stiffness


def test_energies_balance_input(shipped: Evaluation) -> None:
    """Input = kinetic + damping + numerical (strain, hysteretic, minus gravity) + specimen."""
    parts = energies(shipped)
    total = parts.pop("input")
    scale = total.max()
    np.testing.assert_allclose(sum(parts.values()), total, atol=0.01 * scale)
    assert min(parts["viscous damping"][-1], parts["experimental substructure"][-1]) > 0.05 * scale


def test_numerical_energy_equals_work_of_stories(shipped: Evaluation) -> None:
    """Work of the restoring force = strain energy + hysteretic energy - P / 2 h drift^2, story by story."""
    structure = shipped.scenario.structure
    history = drifts(shipped)
    hysteretic = strain = gravity = 0.0
    left = np.subtract(structure.stiffnesses, structure.experimental_stiffnesses)
    for story, name in enumerate(STORIES):
        law = structure.restoring_forces[name]
        stiffness, eta = left[story], law.post_yield_ratio
        limit, s, plastic = (1.0 - eta) * law.yield_force, 0.0, 0.0
        for move in np.diff(history[:, story]).tolist():
            trial = s + (1.0 - eta) * stiffness * move
            s = min(max(trial, -limit), limit)
            plastic += abs(trial - s) / ((1.0 - eta) * stiffness) * limit
        hysteretic += plastic
        strain += 0.5 * eta * stiffness * history[-1, story] ** 2 + 0.5 * s**2 / ((1.0 - eta) * stiffness)
        gravity += 0.5 * structure.gravity_loads[story] / structure.story_heights[story] * history[-1, story] ** 2
    numerical = energies(shipped)["numerical substructure"][-1]
    assert hysteretic > 0.5 * numerical
    assert numerical == pytest.approx(hysteretic + strain - gravity, rel=0.02)


def test_response_errors_are_small(shipped: Evaluation) -> None:
    """The rig's errors are small: a model with the brace gives the same floor motions."""
    errors = response_errors(shipped)
    assert set(errors) == {f"floor_{floor}" for floor in range(1, 6)}
    assert max(row["displacement"] for row in errors.values()) < 3.0


def test_critical_delay_equals_linear_frame() -> None:
    """For small motions both loops are identical, so the critical delays are equal bitwise."""
    yielding, linear = (judge(files.load(NAME, overrides)) for overrides in ([], [LINEAR]))
    assert yielding.critical_delay == linear.critical_delay
    assert not any("another one" in words for words in yielding.assumptions)  # stiffness as declared
    assert 0.03 < yielding.critical_delay < 0.1


def test_report_lists_restoring_force_of_each_story() -> None:
    sections = {section.title: section.table for section in tables.parameters(files.load(NAME))}
    rows = {row.title: row.values for row in sections["Structure"].rows}
    assert rows["restoring_forces.story_1"] == ["bilinear"]
    assert rows["restoring_forces.story_3.yield_force"] == ["720000"]


def test_report_with_all_figures_is_rendered() -> None:
    _, run = simulate(NAME, "duration=3")
    page = render(run).replace("<wbr>", "")
    assert "restoring_forces.story_5.post_yield_ratio" in page
    assert mentions(page, "strain", "yield")
