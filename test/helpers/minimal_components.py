# SPDX-License-Identifier: Apache-2.0
"""Data from which each component of this package can be built: defaults, and MINIMAL for the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from written_history import written_history

from rths_nodes.core import registry
from rths_nodes.core.parameters import number, params
from rths_nodes.core.validation import from_data

MINIMAL: dict[tuple[str, str], dict[str, Any]] = {
    ("ground_motion", "record"): {"record": "elcentro_1940_ns"},
    ("ground_motion", "sine"): {"amplitude": 1.0, "frequency": 1.0},
    ("ground_motion", "harmonic"): {"amplitude": 1.0, "frequency": 1.0},
    ("ground_motion", "fema_461"): {"amplitude": 0.05, "velocity": 0.1},
    ("ground_motion", "aisc_341"): {"length": 3.0, "velocity": 0.1},
    ("ground_motion", "band_limited_noise"): {"rms": 1.0},
    ("ground_motion", "delayed"): {"delay": 0.3, "motion": {"type": "sine", "amplitude": 1.0, "frequency": 1.0}},
    ("structure", "sdof"): {"mass": 2.0, "frequency": 1.5},
    ("structure", "shear_frame"): {"masses": [2.0, 1.0], "stiffnesses": [300.0, 200.0]},
    ("structure", "matrices"): {"mass": [[2.0, 0.0], [0.0, 1.0]], "stiffness": [[5.0, -2.0], [-2.0, 2.0]]},
    ("damping", "matrix"): {"matrix": [[3.0, -1.0], [-1.0, 1.0]]},
    ("restoring_force", "linear"): {"stiffness": 3.0},
    ("restoring_force", "bouc_wen"): {"stiffness": 3.0, "yield_displacement": 0.1},
    ("restoring_force", "bilinear"): {"stiffness": 3.0, "yield_force": 0.1},
    ("restoring_force", "elastic_plastic"): {"stiffness": 3.0, "yield_force": 0.1},
    ("restoring_force", "degrading_bouc_wen"): {"stiffness": 3.0, "yield_displacement": 0.1},
    ("specimen", "parallel"): {"first": {"type": "kelvin_voigt"}, "second": {"type": "softening_elastomeric"}},
    ("specimen", "with_mass"): {"mass": 29.0},
    ("specimen", "with_backlash"): {"width": 1e-3},
    ("setup", "matrix"): {"matrix": [[1.0, 0.0], [-1.0, 1.0]]},
    ("setup", "rigid_coupler"): {"anchors": [[0.0, 1.0], [0.0, -1.0]], "attachments": [[2.0, 1.0], [2.0, -1.0]]},
    ("setup", "upright_load"): {"actuator_length": 2.0},
    ("force_controller", "feed_forward_pi"): {"stiffness": 1e9, "lead": 0.02, "column": {"column_length": 3.0}},
    ("force_controller", "servo_valve"): {"stiffness": 1e9, "leakage": 1e-6, "column": {"column_length": 3.0}},
    ("integrator", "prescribed"): {"displacement": {"type": "sine", "amplitude": 0.1, "frequency": 2.0}},
    ("integrator", "predefined"): {"history": written_history(1, 0.01)},
    ("integrator", "remote"): {"experimental_stiffness": [[2.0]]},
    ("integrator", "opensees"): {
        "model": str(Path(__file__).parents[2] / "doc" / "opensees" / "frame.py"),
        "interface": [[1.0, 1.0]],
        "experimental_stiffness": [[2.0]],
    },
    ("integrator", "fmu"): {"file": "frame.fmu", "interface": {"x": {"displacement": "x1", "force": "f1"}}},
    ("actuator", "transfer_function"): {"numerator": [1e4], "denominator": [1.0, 120.0, 1e4]},
    ("rig", "axially_loaded_column"): {"column_length": 3.0, "actuator_length": 2.0, "axial_stiffness": 1e9},
    ("rig", "coupled_servo_hydraulic"): {
        "mass": [[98.3, 0.0], [0.0, 98.3]],
        "damping": [[125.0, -50.0], [-50.0, 50.0]],
        "stiffness": [[12e5, -6.84e5], [-6.84e5, 6.84e5]],
        "damper": {"type": "magnetorheological_damper"},
    },
    ("rig", "coupled_transfer_functions"): {
        "responses": {
            "a": {"static_gains": [0.9, 0.1], "poles": [-3.0, -40.0, -90.0], "zeros": [[-100.0]]},
            "b": {"static_gains": [0.1, 0.9], "poles": [-4.0, -20.0], "zeros": None},
        },
        "coupler": {"anchors": [[0.0, 1.0], [0.0, -1.0]], "attachments": [[2.0, 1.0], [2.0, -1.0]]},
        "frame": {
            "mass": [[9.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            "damping": [[9.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            "stiffness": [[9e3, 1e3, 1e3], [1e3, 2e3, 0.0], [1e3, 0.0, 2e3]],
            "driven": [1, 2],
        },
    },
    ("rig", "opensees"): {
        "model": str(Path(__file__).parents[2] / "doc" / "opensees" / "column.py"),
        "interface": [[1, 1], [1, 3]],
        "actuators": {"a": {"type": "pure_delay"}, "b": {"type": "first_order"}},
        "gravity": True,
    },
    ("rig", "fmu"): {
        "file": "specimen.fmu",
        "axes": {name: {"displacement": f"x_{name}", "force": f"f_{name}"} for name in ("a", "b")},
        "actuators": {"a": {"type": "pure_delay"}, "b": {"type": "first_order"}},
    },
    ("reduction", "modal"): {"modes": 1},
    ("reduction", "craig_bampton"): {"modes": 1},
    ("compensator", "predefined"): {"history": written_history(2, 0.01)},
    ("compensator", "polynomial"): {"delay": 0.02},
    ("compensator", "linear_acceleration"): {"delay": 0.02},
    ("compensator", "derivative_feedforward"): {"delay": 0.02},
    ("compensator", "adaptive_time_series"): {"delay": 0.02},
    ("compensator", "model_based"): {
        "known": {
            "mass": [[9.0, 0.0], [0.0, 9.0]],
            "damping": [[9.0, 0.0], [0.0, 9.0]],
            "stiffness": [[9e3, -4e3], [-4e3, 4e3]],
        },
        "feedback": {},
    },
    ("compensator", "identified_inverse"): {
        "inverse": {
            "displacement": [[1.0, 0.1], [0.0, 1.0]],
            "velocity": [[0.02, 0.0], [0.0, 0.03]],
            "acceleration": [[1e-4, 0.0], [0.0, 1e-4]],
            "jerk": [[0.0, 0.0], [0.0, 0.0]],
        },
        "cutoff_frequency": 5.0,
    },
    ("compensator", "linear"): {
        "law": {"A": [[-20.0, 9.0], [0.0, -30.0]], "B": [[9.0, 0.0], [0.0, 9.0]], "C": [[1.0, 0.0], [0.5, 1.0]]}
    },
    ("quantity", "integral"): {"of": ["force.a"]},
    ("quantity", "low_pass"): {"of": ["force.a"], "frequency": 5.0},
    ("quantity", "moving_rms"): {"of": ["force.a"], "duration": 0.1},
    ("compensator", "fmu"): {
        "file": "controller.fmu",
        "axes": {name: {"target": f"r_{name}", "command": f"u_{name}"} for name in ("a", "b")},
    },
    ("compensator", "chain"): {"first": {"type": "inverse"}, "second": {"type": "polynomial", "delay": 0.02}},
}
"""Data of the components that cannot be built from defaults."""


class ConstantDelay:
    """Compensator of another package: extrapolates the target by a constant delay."""

    state_names: tuple[str, ...] = ()

    @params
    class Params:
        delay: float = number("delay", "s", 0.02, at_least=0.0, at_most=0.1)

    def __init__(self, params: Any, dt: float, n_axes: int) -> None:
        self.delay = params.delay

    def step(self, target: Any, measured: Any) -> Any:
        return target.displacement + self.delay * target.velocity

    def state(self) -> tuple[float, ...]:
        return ()

    def reset(self) -> None: ...


COMPONENTS = [(family, name) for family in registry.FAMILIES for name in registry.names(family)]


def data_of(family: str, name: str) -> dict[str, Any]:
    return MINIMAL.get((family, name), {})


def params_of(family: str, name: str) -> Any:
    return from_data(registry.load(family, name).Params, data_of(family, name), family)


def frame(n_dof: int = 1) -> Any:
    return registry.load("structure", "sdof")(params_of("structure", "sdof"))
