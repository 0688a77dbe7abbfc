# SPDX-License-Identifier: Apache-2.0
"""Tests of the kernels of the laboratory: compiled and interpreted results agree bit by bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from driven_kernels import DT, agree, component, functions_of, motion, of_actuator, of_rig, of_specimen, wrong_in

from rths_nodes.core import registry
from rths_nodes.core.kernels import Kernel, no_state
from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.corrections import filtering, unfiltered
from rths_nodes.laboratory.sensors import SensorPair, Sensors, converted
from rths_nodes.mechanics.butterworth import Butterworth
from rths_nodes.mechanics.coupler import Coupler, Geometry

SPECIMENS = {
    "a power": {"type": "kelvin_voigt", "exponent": 0.4, "reference_velocity": 0.1},
    "a spring": {"type": "computed_spring"},
    "oil": {"type": "relief_valve_damper", "relief_force": 2e4, "relief_damping": 1e5, "damping": 4e5},
    "oil and a spring": {"type": "relief_valve_damper", "relief_force": 2e4, "series_stiffness": 5e7},
    "fluid": {"type": "magnetorheological_damper", "exponent": 1.6, "voltage": 1.0},
    "fast": {"type": "elastoplastic_absorber", "stiffness": 1e8, "yield_force": 5e3, "exponent": 5.0},
    "play": {"type": "with_backlash", "width": 1e-3},
    "heavy": {"type": "with_mass", "mass": 9.0, "specimen": {"type": "slipping_elastomeric"}},
    "beside": {
        "type": "parallel",
        "first": {"type": "parallel", "first": {"type": "kelvin_voigt"}, "second": {"type": "maxwell_damper"}},
        "second": {"type": "slipping_elastomeric"},
    },
}
every_specimen = pytest.mark.parametrize("data", SPECIMENS.values(), ids=SPECIMENS)
extremes = pytest.mark.parametrize("extreme", [False, True], ids=["random", "extreme"])
"""Outermost parameter: both cases run in succession, so that a kernel is compiled once."""


def params_of(family: str, data: dict[str, Any]) -> tuple[Any, Any]:
    """Class and parameters."""
    cls = registry.load(family, data["type"])
    return cls, from_data(cls.Params, {key: value for key, value in data.items() if key != "type"}, family)


def clean(step: Callable[..., Any]) -> None:
    """Assert that a step has no operation with undefined bits."""
    errors = {function.__qualname__: wrong_in(function) for function in functions_of(step, {}).values()}
    assert {name: reason for name, reason in errors.items() if reason} == {}


@extremes
@every_specimen
def test_specimen_kernels_agree(data: dict[str, Any], extreme: bool) -> None:
    kernel, constants, rows = of_specimen(*params_of("specimen", data), np.random.default_rng(2), extreme)
    clean(kernel.step)
    agree(kernel, constants, rows)


HELD = {
    "nothing": ("servo_hydraulic", {}, {"type": "computed_spring"}),
    "a dashpot": ("servo_hydraulic", {"hold": "ramp"}, {"type": "kelvin_voigt"}),
    "halves": ("servo_hydraulic", {"gain": 300.0}, SPECIMENS["fast"]),
    "others": ("servo_hydraulic", {"substeps": 3}, SPECIMENS["beside"]),
    "linear": ("servo_hydraulic_linear", {}, {"type": "kelvin_voigt", "stiffness": 1e6}),
    "at its limit": ("servo_hydraulic_linear", {"max_force": 2e3}, {"type": "kelvin_voigt", "stiffness": 1e6}),
    "a dead band": (
        "servo_hydraulic_linear",
        {"dead_band": 1e-4, "valve_limit": 1e-3, "hold": "ramp"},
        {"type": "kelvin_voigt", "stiffness": 1e6, "damping": 300.0},
    ),
    "many parts": ("servo_hydraulic_linear", {}, SPECIMENS["fast"]),
    "third order": (
        "transfer_function",
        {"numerator": [1e6, 3e7], "denominator": [1.0, 300.0, 3e5, 3e7], "hold": "ramp"},
        SPECIMENS["play"],
    ),
    "late": ("pure_delay", {"delay": 0.0213}, {"type": "kelvin_voigt"}),
}


@extremes
@pytest.mark.parametrize("name", HELD)
def test_actuator_kernels_agree(name: str, extreme: bool) -> None:
    kind, data, held = HELD[name]
    cls, params = params_of("actuator", {"type": kind, **data})
    kernel, constants, rows = of_actuator(cls, params, np.random.default_rng(3), extreme, held)
    clean(kernel.step)
    agree(kernel, constants, rows)


def test_smallest_steps_of_actuator_give_nan() -> None:
    """The states of the specimen and its force are NaN at the largest number of halvings."""
    specimen = component("specimen", {"type": "slipping_elastomeric", "slip_force": 3e3, "exponent": 4.0})
    actuator = registry.load("actuator", "servo_hydraulic")
    built = actuator(actuator.Params(), DT, specimen)
    *head, fastest, last = built.constants
    built.constants = type(built.constants)(*head, tuple(1e-9 for _ in fastest), last)
    for _ in range(40):
        built.step(0.05)
    assert math.isnan(built.force)


GRAVITY = {"mass": [[98.3, 0.0], [0.0, 98.3]], "damping": [[125.0, -50.0], [-50.0, 50.0]]}
PLAIN = GRAVITY | {"stiffness": [[12e5, -6.84e5], [-6.84e5, 6.84e5]]}
COUPLED = {"type": "coupled_servo_hydraulic", **PLAIN}
COLUMN = {"type": "axially_loaded_column", "column_length": 3.0, "axial_stiffness": 1e9}
RIGS = {
    "no damper": COUPLED,
    "several blocks": COUPLED | {"damper": {"type": "maxwell_damper"}, "longest_substep": DT / 33.0},
    "held commands": COUPLED | {"damper": {"type": "magnetorheological_damper"}, "hold": "staircase"},
    "more increments": COUPLED
    | {"damper": {"type": "softening_elastomeric", "slip_displacement": 1e-5}, "damper_location": [-1.0, 1.0]},
    "upright": COLUMN,
    "crushed": COLUMN | {"actuator_length": 2.0, "crushing_force": 1e5, "frame_stiffness": 1e9},
}


@extremes
@pytest.mark.parametrize("name", RIGS)
def test_rig_kernels_agree(name: str, extreme: bool) -> None:
    kernel, constants, rows = of_rig(*params_of("rig", RIGS[name]), np.random.default_rng(5), extreme)
    clean(kernel.step)
    agree(kernel, constants, rows)


TWO = {"anchors": [[0.0, 1.0], [0.0, -1.0]], "attachments": [[2.0, 1.0], [2.0, -1.0]]}
THREE = {
    "anchors": [[-2.0, 0.5], [-2.0, -0.5], [0.3, -3.0]],
    "attachments": [[0.0, 0.5], [0.0, -0.5], [0.3, -0.2]],
}


@extremes
@pytest.mark.parametrize("points", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("kinematics", ["exact", "long", "linear"])
def test_coupler_kernels_agree(points: dict[str, Any], kinematics: str, extreme: bool) -> None:
    """Motions are transformed to the axes and back; some are out of reach."""
    n = len(points["anchors"])
    coupler = Coupler(from_data(Geometry, points | {"kinematics": kinematics}, "x"), n, n, "x")
    axes, forces, axis_forces, _, motion_of = coupler.kernel

    def round_trip(k: Any, s: Any, x: Any, v: Any, a: Any, pushed: Any) -> Any:
        moved = axes(k, x, v, a)
        back = motion_of(k, moved[0], moved[1], moved[2], s)
        force = forces(k, pushed, x)
        return back[0], (moved, back, force, axis_forces(k, force, x))

    rng, rows = np.random.default_rng(4), []
    for x in (0.05 * rng.standard_normal((400, 4, n))).tolist():
        rows.append(tuple(map(tuple, x)))
        if extreme and rng.random() < 0.05:
            rows[-1] = ((math.inf, *rows[-1][0][1:]), *rows[-1][1:])
    kernel = Kernel(no_state, lambda k: (0.0,) * n, round_trip)
    for function in (axes, forces, axis_forces, motion_of):
        clean(function)
    agree(kernel, coupler.constants, rows)


SENSORS = {
    "perfect": {},
    "very late": {"force_delay": 12},
    "late": {"force_delay": 3, "displacement_noise_rms": 1e-5, "displacement_resolution": 1e-5},
    "wrong": {
        "displacement_scale": -1.1,
        "displacement_offset": 1e-3,
        "displacement_drift": 1e-2,
        "displacement_range": 0.005,
        "force_dead": 3.0,
        "force_resolution": 2.0,
    },
}


@extremes
@pytest.mark.parametrize("name", SENSORS)
def test_sensor_kernels_agree(name: str, extreme: bool) -> None:
    params, rng = from_data(Sensors, SENSORS[name]), np.random.default_rng(8)
    kernel = SensorPair.kernel_of(params)
    noise = rng.standard_normal((400, 2)).tolist()
    rows = [
        (x, 1e5 * f, 1e-5 * a, b, k)
        for k, ((x, f), (a, b)) in enumerate(zip(motion(rng, extreme), noise, strict=True))
    ]
    clean(kernel.step)
    agree(kernel, kernel.constants(params, DT), rows)


@extremes
def test_output_kernels_agree(extreme: bool) -> None:
    def step(k: Any, s: Any, value: float) -> Any:
        return s, (converted(value, 0.0, math.nan), converted(value, 1e-4, 0.005), converted(value, 0.0, 0.005))

    clean(converted)
    rows = [(x,) for x, _ in motion(np.random.default_rng(9), extreme)]
    agree(Kernel(no_state, no_state, step), (), rows)


@extremes
@pytest.mark.parametrize("order", [1, 2, 5])
def test_correction_kernels_agree(order: int, extreme: bool) -> None:
    low = Butterworth(order, 60.0, DT)
    rest = False, low.settled(low.constants, 0.0)
    rows = [(1e5 * x, v, 9.0 * v) for x, v in motion(np.random.default_rng(6), extreme)]
    filtered = Kernel(no_state, lambda k: rest, filtering(low.kernel, low.settled))
    for kernel, constants in (
        (filtered, ((30.0, 200.0, 50.0), low.constants)),
        (Kernel(no_state, no_state, unfiltered), (30.0, 0.0, 0.0)),
    ):
        clean(kernel.step)
        agree(kernel, constants, rows)
