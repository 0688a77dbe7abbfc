# SPDX-License-Identifier: Apache-2.0
"""Tests of compensators by target derivatives and by polynomials, and of the ``lead`` of all compensators."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from loop_parts import make
from messages import doubts, mentions, naming
from scipy.linalg import expm

from rths_nodes.control.compensators.per_axis import with_lead
from rths_nodes.control.compensators.polynomial import MAX_ORDER, weights
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.kernels import Kernel, no_state
from rths_nodes.core.samples import Motion, Target
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import replace

DT, DELAY = 1.0 / 1024.0, 0.0137
NOTHING = np.zeros(1)


def curve_motions(curve: np.polynomial.Polynomial, times: np.ndarray) -> list[Motion]:
    """Motions along a polynomial of time, with its exact derivatives."""
    parts = [curve, curve.deriv(), curve.deriv(2)]
    return [Motion(*(np.array([part(t)]) for part in parts)) for t in times]


def ramp_motions(ramp: str, substeps: int, targets: np.ndarray) -> list[Motion]:
    """Motions of a ramp through ``targets``, which start at rest."""
    generator = make("ramp", ramp, DT, substeps, 1)
    motions = []
    for step, x in enumerate(targets.tolist()):
        target = Target(step, np.array([x]), NOTHING, NOTHING, NOTHING, NOTHING, NOTHING)
        if step == 0:
            generator.start(target)
            continue
        generator.follow(target)
        motions += [generator.step(substep) for substep in range(1, substeps + 1)]
    return motions


def commands(compensator: Any, motions: list[Motion]) -> np.ndarray:
    return np.array([compensator.step(motion, NOTHING)[0] for motion in motions])


CUBIC = np.polynomial.Polynomial([0.01, -0.3, 2.0, 5.0])
QUADRATIC = np.polynomial.Polynomial([0.01, -0.3, 2.0])
LINEAR = np.polynomial.Polynomial([0.01, -0.3])
TIMES = DT * np.arange(1, 101)


@pytest.mark.parametrize("spacing", [1, 2, 10, 40])
def test_linear_acceleration_is_exact_on_cubics(spacing: int) -> None:
    compensator = make("compensator", "linear_acceleration", DT, 1, delay=DELAY, spacing=spacing)
    sent = commands(compensator, curve_motions(CUBIC, TIMES))[spacing:]
    np.testing.assert_allclose(sent, CUBIC(TIMES + DELAY)[spacing:], rtol=1e-12)


@pytest.mark.parametrize(("order", "curve"), [(1, LINEAR), (2, QUADRATIC)])
def test_derivative_feedforward_is_exact_to_its_order(order: int, curve: np.polynomial.Polynomial) -> None:
    compensator = make("compensator", "derivative_feedforward", DT, 1, delay=DELAY, order=order)
    sent = commands(compensator, curve_motions(curve, TIMES))
    np.testing.assert_allclose(sent, curve(TIMES + DELAY), rtol=1e-13)


def test_feedforward_error_is_remainder_of_series() -> None:
    """On a cubic, the missing terms are delay^2 a / 2 + delay^3 jerk / 6, and delay^3 jerk / 6."""
    motions = curve_motions(CUBIC, TIMES)
    jerk = 6.0 * CUBIC.coef[3]
    acceleration = CUBIC.deriv(2)(TIMES)
    missing = [
        CUBIC(TIMES + DELAY)
        - commands(make("compensator", "derivative_feedforward", DT, 1, delay=DELAY, order=order), motions)
        for order in (1, 2)
    ]
    np.testing.assert_allclose(missing[0], DELAY**2 * acceleration / 2.0 + DELAY**3 * jerk / 6.0, rtol=1e-9)
    np.testing.assert_allclose(missing[1], DELAY**3 * jerk / 6.0, rtol=1e-8)


def test_feedforward_of_order_1_inverts_first_order_lag() -> None:
    """1 + j w tau against 1 / (1 + j w tau), as a gain of the compensator on a sine."""
    w = 2.0 * math.pi * 3.0
    compensator = make("compensator", "derivative_feedforward", DT, 2, delay=DELAY, order=1)
    z = np.exp(1j * w * 0.2)
    parts = [np.array([(f * z).real, (f * z).imag]) for f in (1.0, 1j * w, -(w**2))]
    late = complex(*compensator.step(Motion(*parts), np.zeros(2)).tolist()) / (1.0 + 1j * w * DELAY)
    assert late == pytest.approx(z, abs=1e-14)


@pytest.mark.parametrize(("ramp", "order"), [("linear", 1), ("quadratic", 2)])
@pytest.mark.parametrize("samples", [0.4, 1.0])
def test_feedforward_after_ramp_equals_polynomial(ramp: str, order: int, samples: float) -> None:
    """A step a sample: the ramp's curve passes through the same points as the extrapolation."""
    targets = np.concatenate(([0.0], np.random.default_rng(3).normal(size=50).cumsum()))
    motions = ramp_motions(ramp, 1, targets)
    delay = samples * DT
    series = make("compensator", "derivative_feedforward", DT, 1, delay=delay, order=order)
    polynomial = make("compensator", "polynomial", DT, 1, delay=delay, order=order, spacing=1)
    np.testing.assert_allclose(commands(series, motions), commands(polynomial, motions), rtol=1e-9, atol=1e-12)


def test_the_acceleration_is_differenced_over_a_step_of_the_ramp() -> None:
    """Over one sample the difference is a spike once in a step, and the command jumps three times as far."""
    substeps = 10
    steps = DT * substeps * np.arange(60)
    motions = ramp_motions("quadratic", substeps, 5.0 * steps**3)
    exact = 5.0 * (DT * np.arange(1, len(motions) + 1) + DELAY) ** 3

    def worst(spacing: int) -> float:
        compensator = make("compensator", "linear_acceleration", DT, 1, delay=DELAY, spacing=spacing)
        error = commands(compensator, motions) - exact
        return float(np.abs(np.diff(error[5 * substeps :])).max())

    assert worst(1) > 3.0 * worst(substeps)


def test_the_acceleration_at_the_start_is_no_jump() -> None:
    """A test starts with the acceleration of the first ground motion; it was not zero one sample before."""
    constant = Motion(np.array([0.1]), np.array([0.2]), np.array([3.0]))
    compensator = make("compensator", "linear_acceleration", DT, 1, delay=DELAY, spacing=4)
    expected = 0.1 + 0.2 * DELAY + 1.5 * DELAY**2
    np.testing.assert_allclose(commands(compensator, [constant] * 10), expected, rtol=1e-15)


@pytest.mark.parametrize("name", ["linear_acceleration", "derivative_feedforward"])
def test_kernels_accept_any_delay(name: str) -> None:
    cls = registry.load("compensator", name)
    _, constants, rest, led = cls.ADAPTABLE
    k = constants(cls.Params(delay=DELAY), DT)
    for delay in (DELAY, 2.0 * DELAY):
        assert led(k, rest(k), delay, 0.1, 0.5, 0.0)[1] == pytest.approx(0.1 + 0.5 * delay, rel=1e-15)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("linear_acceleration", {"delay": -1e-3}),
        ("linear_acceleration", {"spacing": 0}),
        ("derivative_feedforward", {"order": 0}),
        ("derivative_feedforward", {"order": 3}),
        *(("polynomial", wrong) for wrong in ({"order": 5}, {"order": -1}, {"spacing": 0}, {"spacing": 1.5})),
        ("polynomial", {"delay": -1e-3}),
    ],
)
def test_parameters_out_of_bounds_are_refused(name: str, wrong: dict[str, Any]) -> None:
    key = next(iter(wrong))
    with pytest.raises(ConfigError, match=rf"compensator\.{key} = "):
        make("compensator", name, DT, 1, **({"delay": DELAY} | wrong))


def context(ramp: str, behind: bool = False) -> Any:
    """The test properties that cautions use."""
    return SimpleNamespace(ramp=ramp, samples_per_step=10, behind=behind)


def params(name: str, **data: Any) -> Any:
    return from_data(registry.load("compensator", name).Params, {"delay": DELAY} | data, "compensator")


@pytest.mark.parametrize(
    ("own", "ramp", "words"),
    [
        (params("linear_acceleration", spacing=10), "linear", ("linear", "ramp")),
        (params("linear_acceleration", spacing=10), "quadratic", ()),
        (params("linear_acceleration"), "quadratic", ("changes", "10")),
        (params("derivative_feedforward"), "linear", ()),
        (params("derivative_feedforward", order=2), "linear", ("linear", "ramp")),
        (params("derivative_feedforward", order=2), "quadratic", ()),
        (params("adaptive_time_series"), "linear", ("linear", "ramp")),
    ],
)
def test_caution_names_unsuitable_ramp(own: Any, ramp: str, words: tuple[str, ...]) -> None:
    cautions = own.cautions(context(ramp))
    assert bool(cautions) == bool(words)
    assert all(mentions(caution, *words) for caution in cautions)
    assert own.spans()["delay"] == DELAY


@pytest.mark.parametrize("ramp", ["linear", "quadratic"])
def test_second_compensator_has_no_ramp_caution(ramp: str) -> None:
    assert not params("linear_acceleration").cautions(context(ramp, behind=True))


WARNING, SILENT = {"type": "linear_acceleration", "delay": DELAY}, {"type": "polynomial", "delay": DELAY}


def chain(first: Any, second: Any) -> dict[str, Any]:
    return {"type": "chain", "first": first, "second": second}


@pytest.mark.parametrize(
    ("compensator", "path"),
    [
        (WARNING, "compensator"),
        (chain(WARNING, SILENT), "compensator.first"),
        (chain(chain(WARNING, SILENT), SILENT), "compensator.first.first"),
        ({"type": "adaptive", "compensator": WARNING}, "compensator.compensator"),
        (chain(SILENT, WARNING), ""),
        (chain(SILENT, chain(WARNING, SILENT)), ""),
    ],
)
def test_ramp_caution_names_only_first_compensator(compensator: Any, path: str) -> None:
    loaded = files.load("chen_ricles_2010", ["ramp.type=linear"])
    messages = doubts(replace(loaded, [(["compensator"], compensator)]))
    warned = [text.partition(":")[0] for text in messages if "linear ramp" in text]
    assert warned == ([path] if path else [])


LEAD = 3.5 * DT
LEAD_TIMES = DT * np.arange(400)
COMPENSATORS = {
    "none": {},
    "inverse": {"alpha": 12.0},
    "adaptive_inverse": {"alpha_es": 12.0},
    "adaptive": {"compensator": {"type": "derivative_feedforward", "delay": 0.01}},
    "polynomial": {"delay": 0.01},
    "linear_acceleration": {"delay": 0.01},
    "derivative_feedforward": {"delay": 0.01, "order": 2},
    "adaptive_time_series": {"delay": 0.01},
    "discrete_model": {},
    "pi_lead": {},
    "chain": {"first": {"type": "inverse", "alpha": 12.0}, "second": {"type": "polynomial", "delay": 0.01}},
}
"""Compensators that extrapolate the target before any other operation."""


def cubic(times: np.ndarray) -> list[Motion]:
    t = times[:, None] * np.ones(2)
    x, v, a = 0.1 * t**3 + 0.02 * t**2, 0.3 * t**2 + 0.04 * t, 0.6 * t + 0.04
    return [Motion(*row) for row in zip(x, v, a, strict=True)]


PASSING = Kernel(lambda params, dt: (), no_state, lambda k, s, x, v, a, *others: (s, (x, v, a)))
"""Its command is its target."""


def read_ahead(motions: list[Motion]) -> list[Motion]:
    """The extrapolated ``motions``."""
    kernel, extrapolated = with_lead(PASSING, LEAD), []
    k = kernel.constants(None, DT)
    states = [kernel.rest(k) for _ in range(2)]
    for motion in motions:
        targets = []
        for axis, target in enumerate(zip(motion.displacement, motion.velocity, motion.acceleration, strict=True)):
            states[axis], target = kernel.step(k, states[axis], *map(float, target), 0.0, 0.0, False, False)
            targets.append(target)
        extrapolated.append(Motion(*np.transpose(targets)))
    return extrapolated


def test_lead_is_exact_on_cubics() -> None:
    for motion, expected in zip(read_ahead(cubic(LEAD_TIMES))[1:], cubic(LEAD_TIMES + LEAD)[1:], strict=True):
        np.testing.assert_allclose(motion.displacement, expected.displacement, rtol=1e-12)
        np.testing.assert_allclose(motion.velocity, expected.velocity, rtol=1e-9)
        np.testing.assert_allclose(motion.acceleration, expected.acceleration, rtol=1e-9)


def test_zero_lead_keeps_kernel() -> None:
    assert with_lead(PASSING, 0.0) is PASSING


@pytest.mark.parametrize("name", COMPENSATORS)
def test_lead_extrapolates_target_of_each_compensator(name: str) -> None:
    """Cubic motion; the first sample has no jerk yet."""
    plain, led = (make("compensator", name, DT, 2, **COMPENSATORS[name], lead=lead) for lead in (0.0, LEAD))
    for motion, later in zip(cubic(LEAD_TIMES), read_ahead(cubic(LEAD_TIMES)), strict=True):
        measured = 0.9 * motion.displacement
        motion.force = later.force = 1e3 * measured
        np.testing.assert_array_equal(led.step(motion, measured), plain.step(later, measured))


@pytest.mark.parametrize("name", [*COMPENSATORS, "linear", "chain"])
def test_lead_starts_without_jump_of_acceleration(name: str) -> None:
    """The acceleration is constant; the extrapolation is exact from the first sample on."""

    def motion(t: float) -> Motion:
        return Motion(*np.array([[0.02 * t**2], [0.04 * t], [0.04]]))

    params = {"linear": {"law": {"D": [[1.0]]}}}.get(name, COMPENSATORS.get(name, {}))
    if name == "chain":
        params = {"first": {"type": "none"}, "second": {"type": "adaptive_inverse"}}
    plain, led = (make("compensator", name, DT, 1, **params, lead=lead) for lead in (0.0, LEAD))
    for t in LEAD_TIMES[:3].tolist():
        measured = np.array([0.01 * t**2])
        commands = [one.step(motion(t + late), measured) for one, late in ((led, 0.0), (plain, LEAD))]
        np.testing.assert_allclose(*commands, rtol=1e-9)


@pytest.mark.parametrize("name", [name for name in COMPENSATORS if name != "pi_lead"])
def test_frequency_response_includes_lead(name: str) -> None:
    omega = 2.0 * np.pi * np.array([0.5, 2.0, 5.0])
    plain, led = (
        make("compensator", name, DT, 1, **COMPENSATORS[name], lead=lead).frequency_response(omega)
        for lead in (0.0, LEAD)
    )
    np.testing.assert_allclose(led / plain, np.exp(1j * omega * LEAD), atol=1e-5)


def test_all_other_compensators_have_lead() -> None:
    """Adaptive wrappers use the lead of the wrapped law; predefined commands need none."""
    without = {
        name
        for name in registry.built_in("compensator")
        if "lead" not in set(registry.load("compensator", name).Params.__slots__)
    }
    assert without <= {"adaptive_inverse", "adaptive", "predefined"}


def test_transport_is_added_only_to_models_without_it() -> None:
    """0.01 s of transport: a lead of zero reads nothing ahead."""
    changes = ["compensator.type=none", "port.transport_samples=10"]
    compensator = Assembly(files.load("chen_ricles_2010", changes)).compensator
    motion = Motion(np.ones(1), np.ones(1), np.ones(1))
    np.testing.assert_array_equal(compensator.step(motion, np.zeros(1)), [1.0])
    led = files.load("phillips_spencer_2012", ["port.transport_samples=10"])
    assert Assembly(led).compensator.lead == pytest.approx(10 * led.dt)


def test_lead_inside_adaptive_law_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("compensator.lead", "0.01 s")):
        make("compensator", "adaptive", DT, 1, compensator={"type": "inverse", "lead": 0.01})


ORDERS = range(MAX_ORDER + 1)
TABLE_1 = [[1], [2, -1], [3, -3, 1], [4, -6, 4, -1], [5, -10, 10, -5, 1]]


def commands_to(compensator: Any, targets: np.ndarray) -> np.ndarray:
    """Commands for one axis, ``(n,)``."""
    return commands(compensator, [Motion(np.array([x]), NOTHING, NOTHING) for x in targets])


@pytest.mark.parametrize("order", range(len(TABLE_1)))
def test_weights_equal_table_1(order: int) -> None:
    assert weights(order, 1.0).tolist() == TABLE_1[order]
    assert TABLE_1[order] == [(-1) ** i * math.comb(order + 1, i + 1) for i in range(order + 1)]


@pytest.mark.parametrize("eta", [0.0, 0.3, 0.978, 1.0, 1.7, 2.0])
def test_weights_of_order_2_equal_eq_2_of_tadc(eta: float) -> None:
    expected = [1.0 + 1.5 * eta + 0.5 * eta**2, -(2.0 * eta + eta**2), 0.5 * eta + 0.5 * eta**2]
    np.testing.assert_allclose(weights(2, eta), expected, rtol=1e-15, atol=1e-16)


@pytest.mark.parametrize("order", ORDERS)
def test_weights_without_delay_are_identity_and_sum_to_one(order: int) -> None:
    assert weights(order, 0.0).tolist() == [1.0] + [0.0] * order
    assert weights(order, 0.37).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("order", [-1, 5])
def test_order_outside_table_is_refused(order: int) -> None:
    with pytest.raises(ValueError, match=f"order = {order}: must be 0 to 4"):
        weights(order, 1.0)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("spacing", [None, 1, 9, 30])
def test_extrapolation_is_exact_on_polynomials_of_its_order(order: int, spacing: int | None) -> None:
    delay = 0.0137 if spacing is None else 0.8 * max(order, 1) * spacing * DT
    curve = np.polynomial.Polynomial(np.arange(1.0, order + 2.0))
    times = DT * np.arange(200)
    compensator = make("compensator", "polynomial", DT, 1, delay=delay, order=order, spacing=spacing)
    sent = commands_to(compensator, curve(times))[order * (spacing or 14) :]
    expected = curve(times + delay) if order else curve(times)
    np.testing.assert_allclose(sent, expected[-len(sent) :], rtol=1e-10)


def test_pure_delay_is_compensated() -> None:
    specimen = make("specimen", "kelvin_voigt", stiffness=0.0, damping=0.0)
    actuator = make("actuator", "pure_delay", DT, specimen, delay=14 * DT)
    targets = 1e-3 * (DT * np.arange(1, 300)) ** 3
    compensator = make("compensator", "polynomial", DT, 1, delay=14 * DT, order=3)
    measured = []
    for command in commands_to(compensator, targets).tolist():
        actuator.step(command)
        measured.append(actuator.displacement)
    # 42 samples fill the history, its first command takes 14 more
    np.testing.assert_allclose(measured[60:], targets[60:], rtol=1e-9)


def apparent(order: int, phase: float, spacing: int = 8) -> complex:
    """k*/k + j c* w/k: a unit spring delayed by one spacing, for a sine of ``phase`` per spacing."""
    compensator = make("compensator", "polynomial", DT, 2, delay=spacing * DT, order=order)
    samples = (order + 1) * spacing
    for k in range(-samples, 1):
        angle = phase * (k - spacing) / spacing  # delayed actuator
        x = np.array([math.cos(angle), math.sin(angle)])
        command = compensator.step(Motion(x, x, x), x)
    return complex(command[0], command[1])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("phase", [0.1, 0.7025, 1.0, 2.5])
def test_apparent_spring_has_closed_form(order: int, phase: float) -> None:
    """``test_stability.py`` has the signs of this damping, with the published phases."""
    closed = 1.0 - (1.0 - np.exp(-1j * phase)) ** (order + 1)
    ratio = apparent(order, phase)
    assert ratio == pytest.approx(closed, abs=1e-12)
    damping = -((2.0 * math.sin(phase / 2.0)) ** (order + 1)) * math.sin((order + 1) * (math.pi - phase) / 2.0)
    assert ratio.imag == pytest.approx(damping, abs=1e-12)


def test_default_spacing_is_delay() -> None:
    targets = np.random.default_rng(1).normal(size=100)
    default, explicit = (
        commands_to(make("compensator", "polynomial", DT, 1, delay=0.0137, order=2, **spacing), targets)
        for spacing in ({}, {"spacing": 14})
    )
    np.testing.assert_array_equal(default, explicit)
    history = np.concatenate((np.zeros(28), targets))
    a = weights(2, 0.0137 / (14 * DT))
    expected = a[0] * targets + a[1] * history[14:-14] + a[2] * history[:-28]
    np.testing.assert_allclose(explicit, expected, rtol=1e-12)


@pytest.mark.parametrize("order", ORDERS)
def test_zero_delay_sends_target(order: int) -> None:
    targets = np.random.default_rng(2).normal(size=20)
    compensator = make("compensator", "polynomial", DT, 1, delay=0.0, order=order)
    np.testing.assert_array_equal(commands_to(compensator, targets), targets)


def test_default_spacing_accepts_any_delay() -> None:
    for samples in (0.2, 0.5, 1.49, 1.5, 13.5, 14.03, 14.49):
        make("compensator", "polynomial", DT, 1, delay=samples * DT, order=1)


def test_delay_beyond_history_is_refused() -> None:
    make("compensator", "polynomial", DT, 1, delay=28 * DT, order=2, spacing=14)
    with pytest.raises(ConfigError, match=naming("compensator.delay", "0.03 s", "<= 0.0273438 s")):
        make("compensator", "polynomial", DT, 1, delay=0.030, order=2, spacing=14)
    make("compensator", "polynomial", DT, 1, delay=0.030, order=0, spacing=1)  # uses no history
    with pytest.raises(ConfigError, match=naming("compensator.delay", "137000 s", "<= 97.6562 s")):
        make("compensator", "polynomial", DT, 1, delay=137e3)  # in milliseconds


def test_spans_include_history() -> None:
    params = make("compensator", "polynomial", DT, 1, delay=0.01, order=3).Params
    assert params(delay=0.01, order=3).spans() == {"delay": 0.03}
    assert params(delay=0.01, order=0).spans() == {"delay": 0.01}
    assert params(delay=0.01, order=3, spacing=5).spans() == {"delay": 0.01}


def test_tadc_sweep_has_reference_errors() -> None:
    """J2 = 21.54 %, J3 = 54.55 %: the actuator lags and the polynomial amplifies above 6 Hz."""
    times = DT * np.arange(50 * 1024 + 1)
    targets = 1e-3 * np.sin(2.0 * np.pi * (0.1 * times + 9.9 / 100.0 * times**2))
    sent = commands_to(make("compensator", "polynomial", DT, 1, delay=0.0137, order=2, spacing=14), targets)
    error = held_second_order(sent[:-1], 15.571359045, 0.6415455449) - targets
    assert 100.0 * np.linalg.norm(error) / np.linalg.norm(targets) == pytest.approx(21.54, abs=0.005)
    assert 100.0 * np.abs(error).max() / np.abs(targets).max() == pytest.approx(54.55, abs=0.005)


def held_second_order(held: np.ndarray, frequency: float, damping_ratio: float) -> np.ndarray:
    """Displacement at the samples 0..n of an actuator whose command i is held from sample i to i + 1."""
    w = 2.0 * math.pi * frequency
    system = np.array([[0.0, 1.0, 0.0], [-(w**2), -2.0 * damping_ratio * w, w**2], [0.0, 0.0, 0.0]])
    (a, b, c), (d, e, f), _ = expm(system * DT).tolist()
    x, v, moved = 0.0, 0.0, [0.0]
    for command in held.tolist():
        x, v = a * x + b * v + c * command, d * x + e * v + f * command
        moved.append(x)
    return np.array(moved)
