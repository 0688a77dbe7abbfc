# SPDX-License-Identifier: Apache-2.0
"""Tests of setups: motions and forces by virtual work."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from loop_parts import make, simulate
from messages import mentions, naming

from rths_nodes.analysis.histories import Evaluation, energies, experimental_force
from rths_nodes.analysis.response_errors import response
from rths_nodes.analysis.stability.of_scenario import sampled_loop
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Motion
from rths_nodes.core.validation import from_data
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.mechanics.axial_load import (
    ColumnGeometry,
    directions_at,
    extension_at,
    horizontal_share,
    lengths_of,
    shortening_at,
)


def test_identity_passes_motion_and_forces() -> None:
    setup = make("setup", "identity", 2, 2)
    motion = Motion(np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([5.0, 6.0]))
    moved = setup.axes(motion)
    np.testing.assert_array_equal(moved.displacement, motion.displacement)
    np.testing.assert_array_equal(setup.forces(np.array([7.0, 8.0]), motion.displacement), [7.0, 8.0])


def test_identity_of_unequal_sizes_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("2", "1", "axes", "one per degree")):
        make("setup", "identity", 1, 2)


@pytest.mark.parametrize(("kind", "data"), [("identity", {}), ("matrix", {"matrix": [[0.0, 1.0], [-2.0, 3.0]]})])
def test_histories_equal_motions_of_single_steps(kind: str, data: dict[str, Any]) -> None:
    setup, x = make("setup", kind, 2, 2, **data), np.random.default_rng(1).standard_normal((5, 2))
    one_by_one = [setup.axes(Motion(row, row, row)).displacement for row in x]
    np.testing.assert_allclose(setup.histories(x), one_by_one, rtol=1e-15)


def test_matrix_moves_axes_between_floors() -> None:
    setup = make("setup", "matrix", 3, 2, matrix=[[1.0, 0.0, 0.0], [0.0, -1.0, 1.0]])
    x = np.array([1.0, 3.0, 7.0])
    motion = setup.axes(Motion(x, 2.0 * x, 3.0 * x))
    np.testing.assert_array_equal(motion.displacement, [1.0, 4.0])
    np.testing.assert_array_equal(motion.velocity, [2.0, 8.0])
    np.testing.assert_array_equal(motion.acceleration, [3.0, 12.0])
    np.testing.assert_array_equal(setup.forces(np.array([10.0, 5.0]), x), [10.0, -5.0, 5.0])
    back = setup.degrees_of_freedom(np.array([0.1, 0.2]))
    np.testing.assert_allclose(setup.axes(Motion(back, back, back)).displacement, [0.1, 0.2])


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ([[1.0, 0.0]], ("setup.matrix", "2 x 3", "1 x 2", "degrees of freedom")),
        ([[1.0, 0.0], [0.0, 1.0]], ("setup.matrix", "2 x 3", "2 x 2", "degrees of freedom")),
        ([[1.0, 0.0, 0.0], [2.0, 0.0, 0.0]], ("setup.matrix", "rows", "independent")),
    ],
)
def test_inconsistent_matrix_is_refused(matrix: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        make("setup", "matrix", 3, 2, matrix=matrix)


TWO = {"anchors": [[-1.5, 0.9], [-1.2, -0.6]], "attachments": [[-0.3, 1.0], [0.2, -0.8]]}
"""Two actuators of unequal length, not parallel, with pins off the line through the reference point."""
THREE = {
    "anchors": [[-1.5, 0.9], [-1.2, -0.6], [0.3, -1.8]],
    "attachments": [[-0.3, 1.0], [0.2, -0.8], [0.5, -0.4]],
    "reference": [0.1, 0.2],
}
COUPLERS = [(2, TWO), (3, THREE)]
POSES = [(0.0, 0.0, 0.0), (0.03, -0.02, 0.05), (-0.2, 0.1, -0.19), (0.15, 0.15, 0.12), (0.0, 0.0, 0.199)]
both = pytest.mark.parametrize(("n", "geometry"), COUPLERS, ids=["two", "three"])
poses = pytest.mark.parametrize("pose", POSES)

STENCIL = ((1, 4 / 5), (2, -1 / 5), (3, 4 / 105), (4, -1 / 280))
"""Weights of the central difference of eighth order."""


def free(n: int, pose: tuple[float, float, float]) -> np.ndarray:
    """Degrees of freedom of a pose, without y where it is guided."""
    return np.array(pose if n == 3 else (pose[0], pose[2]))


def displacement(setup: Any, pose: np.ndarray) -> np.ndarray:
    still = np.zeros_like(pose)
    moved: np.ndarray = setup.axes(Motion(pose, still, still)).displacement
    return moved


def slope(function: Callable[[float], np.ndarray], h: float) -> np.ndarray:
    """Derivative at zero, with an error of h^8."""
    return np.asarray(sum(w * (function(i * h) - function(-i * h)) for i, w in STENCIL) / h)


@both
@poses
def test_exact_forces_satisfy_virtual_work(n: int, geometry: Any, pose: Any) -> None:
    """Reference: Jacobian from differences of the exact displacements."""
    setup = make("setup", "rigid_coupler", n, n, **geometry, largest_rotation=0.5)
    q = free(n, pose)
    jacobian = np.column_stack(
        [slope(lambda h, unit=unit: displacement(setup, q + h * unit), 0.01) for unit in np.eye(n)]
    )
    for force in np.eye(n):
        np.testing.assert_allclose(setup.forces(force, q), force @ jacobian, atol=1e-12)


@both
@poses
def test_velocity_and_acceleration_are_derivatives_of_displacement(n: int, geometry: Any, pose: Any) -> None:
    """Along a curved path q + v t + a t^2 / 2, which includes the derivative of the Jacobian."""
    setup = make("setup", "rigid_coupler", n, n, **geometry, largest_rotation=0.5)
    q, v, a = free(n, pose), free(n, (0.4, -0.3, 0.7)), free(n, (-2.0, 1.0, 3.0))

    def at(t: float) -> Motion:
        moved: Motion = setup.axes(Motion(q + v * t + 0.5 * a * t**2, v + a * t, a))
        return moved

    np.testing.assert_allclose(at(0.0).velocity, slope(lambda t: at(t).displacement, 0.01), atol=1e-11)
    np.testing.assert_allclose(at(0.0).acceleration, slope(lambda t: at(t).velocity, 0.01), atol=1e-10)


@both
@poses
@pytest.mark.parametrize("kinematics", ["exact", "linear"])
def test_axes_are_converted_back_to_pose(n: int, geometry: Any, pose: Any, kinematics: str) -> None:
    setup = make("setup", "rigid_coupler", n, n, **geometry, kinematics=kinematics)
    q = free(n, pose)
    np.testing.assert_allclose(setup.degrees_of_freedom(displacement(setup, q)), q, atol=1e-12)


@both
@pytest.mark.parametrize("kinematics", ["exact", "long", "linear"])
@pytest.mark.parametrize("pose", [False, True])
def test_many_poses_equal_single_poses(n: int, geometry: Any, kinematics: str, pose: bool) -> None:
    """Including axes beyond the reach and degrees of freedom of a structure."""
    rows = {"pose": np.eye(n, n + 2, 1).tolist()} if pose else {}
    setup = make("setup", "rigid_coupler", n + 2 * pose, n, **geometry, kinematics=kinematics, **rows)
    axes = np.random.default_rng(1).uniform(-0.6, 0.6, (200, n))
    axes[:2, 0] = math.nan
    one_by_one = np.array([setup.degrees_of_freedom(row) for row in axes])
    assert 5 < np.isfinite(one_by_one).all(axis=1).sum() < 195
    np.testing.assert_allclose(setup.poses(axes), one_by_one, rtol=1e-11, atol=1e-12)


@both
def test_linear_kinematics_are_derivative_of_exact_at_rest(n: int, geometry: Any) -> None:
    exact = make("setup", "rigid_coupler", n, n, **geometry)
    linear = make("setup", "rigid_coupler", n, n, **geometry, kinematics="linear")
    rest = np.zeros(n)
    for unit in np.eye(n):
        derivative = slope(lambda h, unit=unit: displacement(exact, h * unit), 0.01)
        np.testing.assert_allclose(linear.axes(Motion(0.1 * unit, unit, unit)).velocity, derivative, atol=1e-12)
        np.testing.assert_allclose(exact.axes(Motion(rest, unit, rest)).velocity, derivative, atol=1e-12)
        np.testing.assert_allclose(linear.forces(unit, 0.1 * unit), exact.forces(unit, rest), atol=1e-15)
    direction = free(n, (1.0, 1.0, 1.0))
    gaps = [np.abs(displacement(exact, h * direction) - displacement(linear, h * direction)) for h in (2e-3, 1e-3)]
    np.testing.assert_allclose(gaps[0] / gaps[1], 4.0, rtol=0.02)  # the neglected terms are of second order


def test_parallel_actuators_have_closed_form() -> None:
    """Actuators of length L at levers +- b, pins on the line through the reference point."""
    length, b, x, theta = 2.0, 1.5, 0.1, 0.08
    geometry = {"anchors": [[-length, b], [-length, -b]], "attachments": [[0.0, b], [0.0, -b]]}
    exact = make("setup", "rigid_coupler", 2, 2, **geometry)
    wide, rise = length + x, b * (1.0 - math.cos(theta))
    expected = [math.hypot(wide - sign * b * math.sin(theta), rise) - length for sign in (1.0, -1.0)]
    np.testing.assert_allclose(displacement(exact, np.array([x, theta])), expected, atol=1e-15)
    linear = make("setup", "rigid_coupler", 2, 2, **geometry, kinematics="linear")
    np.testing.assert_allclose(displacement(linear, np.array([x, theta])), [x - b * theta, x + b * theta])
    np.testing.assert_allclose(linear.forces(np.array([3.0, 5.0]), np.zeros(2)), [8.0, 2.0 * b])


def test_rotation_of_plane_has_no_effect() -> None:
    """Three actuators and their degrees of freedom, all rotated by 0.7 rad: the axes move equally."""
    turn = np.array([[math.cos(0.7), -math.sin(0.7)], [math.sin(0.7), math.cos(0.7)]])
    turned = {name: (np.array(points) @ turn.T).tolist() for name, points in THREE.items()}
    original, rotated = (make("setup", "rigid_coupler", 3, 3, **geometry) for geometry in (THREE, turned))
    q, f = np.array([0.1, -0.05, 0.15]), np.array([1.0, -2.0, 3.0])
    rotated_q = np.append(turn @ q[:2], q[2])
    np.testing.assert_allclose(displacement(rotated, rotated_q), displacement(original, q), atol=1e-14)
    expected = original.forces(f, q)
    np.testing.assert_allclose(
        rotated.forces(f, rotated_q), np.append(turn @ expected[:2], expected[2]), atol=1e-14
    )


@pytest.mark.parametrize("kinematics", ["exact", "linear"])
@pytest.mark.parametrize(
    "pose",
    [(0.0, 0.21), (0.0, -0.21), (-1.3, 0.0), (math.nan, 0.0), (0.0, math.inf)],
    ids=["turned", "turned back", "too short", "nan", "inf"],
)
def test_motions_beyond_reach_are_nan(kinematics: str, pose: Any) -> None:
    setup = make("setup", "rigid_coupler", 2, 2, **TWO, kinematics=kinematics, shortest_length=0.3)
    q = np.array(pose)
    moved = setup.axes(Motion(q, np.ones(2), np.ones(2)))
    for values in (moved.displacement, moved.velocity, moved.acceleration, setup.forces(np.ones(2), q)):
        assert np.isnan(values).all()
    assert np.isfinite(displacement(setup, np.zeros(2))).all()  # and no state remains


@pytest.mark.parametrize("kinematics", ["exact", "linear"])
def test_poses_beyond_reach_are_nan(kinematics: str) -> None:
    setup = make("setup", "rigid_coupler", 2, 2, **TWO, kinematics=kinematics)
    for axes in ([-0.9, 0.9], [-1.19, -1.19], [math.nan, 0.0]):
        assert np.isnan(setup.degrees_of_freedom(np.array(axes))).all()


def test_jamming_actuators_are_beyond_reach() -> None:
    """At x = 0.5 the first actuator points at the reference point and drives nothing.

    Beyond, its sign of motion is reversed: a branch that no path without a jam reaches.
    """
    geometry = {"anchors": [[0.5, 1.0], [-1.0, 0.5]], "attachments": [[0.0, -0.2], [0.0, 0.5]]}
    setup = make("setup", "rigid_coupler", 2, 2, **geometry)
    assert np.isfinite(displacement(setup, np.array([0.49, 0.0]))).all()
    for x in (0.5, 0.51, 0.8):
        assert np.isnan(displacement(setup, np.array([x, 0.0]))).all()
        assert np.isnan(setup.forces(np.ones(2), np.array([x, 0.0]))).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"anchors": [[0.0, 1.0]]}, ("setup.anchors", "1", "2", "setup.attachments")),
        ({"anchors": [[0.0, 1.0, 2.0]] * 2}, ("setup.anchors", "rows", "3", "numbers", "2")),
        ({"reference": [0.0]}, ("setup.reference", "(0.0,)", "2")),
        ({"kinematics": "about"}, ("setup.kinematics", "unknown", "about", "exact", "linear")),
        ({"largest_rotation": 1.6}, ("setup.largest_rotation", "1.6 rad", "> 0", "<= 1.5 rad")),
        ({"shortest_length": 1.25}, ("setup.anchors[0]", "1.20416 m", "1.25 m")),
        ({"anchors": TWO["attachments"]}, ("setup.anchors[0]", "0 m")),
        ({"attachments": [[-0.3, 0.9], [0.2, 0.9]], "anchors": [[-1.5, 0.9], [-1.2, 0.9]]}, ("actuators", "jam")),
        ({"attachments": [[0.0, 0.0], [0.0, 0.0]]}, ("actuators", "jam")),
    ],
)
def test_invalid_coupler_is_refused(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        Loop(Assembly(scene(setup={"type": "rigid_coupler", **TWO, **changes})))


@pytest.mark.parametrize(
    ("n_dof", "n_axes", "words"),
    [
        (1, 1, ("1", "degrees", "2", "theta", "3")),
        (2, 3, ("3", "2", "degrees", "freedom")),
        (3, 3, ("setup.anchors", "2", "rows", "3", "axis")),
    ],
)
def test_coupler_with_wrong_number_of_axes_is_refused(n_dof: int, n_axes: int, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        make("setup", "rigid_coupler", n_dof, n_axes, **TWO)


MASS = 2e4
INERTIA = 1.5e4
STIFFNESSES = (4.0e6, 1.5e6)


def scene(**changes: Any) -> Scenario:
    """A floor that two unequal specimens hold, by perfect actuators."""
    data = {
        "version": 1,
        "name": "coupler",
        "servo_rate": 250.0,
        "substeps": 1,
        "duration": 1.5,
        "ground_motion": {"type": "sine", "amplitude": 12.0, "frequency": 1.7},
        "structure": {
            "type": "matrices",
            "mass": [[MASS, 0.0], [0.0, INERTIA]],
            "stiffness": [[0.0, 0.0], [0.0, 0.0]],
            "influence": [1.0, 0.0],
            "damping": {"type": "matrix", "matrix": [[0.0, 0.0], [0.0, 0.0]]},
        },
        "integrator": {"type": "central_difference"},
        "setup": {"type": "rigid_coupler", **TWO},
        "compensator": {"type": "none"},
        "axes": {
            name: {
                "actuator": {"type": "pure_delay"},
                "specimen": {"type": "kelvin_voigt", "stiffness": stiffness, "damping": damping},
                "limits": {"stroke": 1.0, "velocity": 20.0, "force": 1e9},
            }
            for name, stiffness, damping in zip(("north", "south"), STIFFNESSES, (3e4, 8e4), strict=True)
        },
    }
    return from_data(Scenario, data | changes)


def test_loop_with_perfect_actuator_converges_to_whole_response() -> None:
    errors = []
    for rate in (250.0, 500.0, 1000.0):
        changed = scene(servo_rate=rate)
        outcome, result = simulate(changed)
        assert outcome.state is State.FINISHED
        exact = response(changed).displacement
        assert (np.abs(exact).max(axis=0) > (0.05, 0.02)).all()  # large enough to distinguish exact from linear
        errors.append(np.abs(result.dof_displacement[: len(exact)] - exact).max() / np.abs(exact).max())
    assert errors[2] < 0.006
    assert errors[0] > 1.7 * errors[1] > 2.9 * errors[2]


def test_exact_and_linear_kinematics_differ() -> None:
    """By more than the finest error of the loop."""
    exact, linear = (
        response(scene(setup={"type": "rigid_coupler", **TWO, "kinematics": kinematics})).displacement
        for kinematics in ("exact", "linear")
    )
    assert np.abs(exact - linear).max() > 0.03 * np.abs(exact).max()


def test_linear_kinematics_equal_matrix_in_loop() -> None:
    """The geometry and its Jacobian as a matrix give the same test."""
    setup = make("setup", "rigid_coupler", 2, 2, **TWO, kinematics="linear")
    rows = np.array([setup.forces(unit, np.zeros(2)) for unit in np.eye(2)]).tolist()
    _, coupler = simulate(scene(setup={"type": "rigid_coupler", **TWO, "kinematics": "linear"}))
    _, matrix = simulate(scene(setup={"type": "matrix", "matrix": rows}))
    assert np.abs(coupler.dof_displacement).max() > 0.05
    np.testing.assert_allclose(coupler.dof_displacement, matrix.dof_displacement, atol=1e-12)


def test_springs_on_exact_coupler_conserve_energy() -> None:
    """After the push of one sine the kinetic energy and that of the springs have a constant sum."""
    axes = scene().data()["axes"]
    for row in axes.values():
        row["specimen"]["damping"] = 0.0
    push = {"type": "harmonic", "amplitude": 12.0, "frequency": 2.5, "periods": 1}
    result = response(scene(axes=axes, ground_motion=push, duration=1.0), 1e-8)
    kinetic = 0.5 * (result.velocity**2 @ [MASS, INERTIA])
    elastic = 0.5 * (result.force**2 / STIFFNESSES).sum(axis=1)
    free = (kinetic + elastic)[result.times > 0.41]
    assert elastic[result.times > 0.41].max() > 0.9 * free[0]
    assert np.ptp(result.displacement[:, 1]) > 0.02
    np.testing.assert_allclose(free, free[0], rtol=1e-6)


def test_response_beyond_reach_trips_with_reason() -> None:
    outcome, result = simulate(scene(setup={"type": "rigid_coupler", **TWO, "largest_rotation": 0.01}))
    assert outcome.state is State.TRIPPED
    assert mentions(outcome.reason, "axes.north", "target", "nan", "finite")
    assert np.isfinite(result.displacement[: outcome.samples]).all()


def test_soft_start_moves_axes_equally() -> None:
    soft = {"amplitude": 0.05, "frequency": 3.0, "rise_time": 0.3, "duration": 1.0, "fall_time": 0.3}
    changed = scene(duration=0.1, soft_start=soft)
    _, result = simulate(changed)
    steps = changed.soft_start_steps
    assert result.target[:steps].max() == pytest.approx(0.05, rel=0.02)
    np.testing.assert_allclose(result.target[:steps, 0], result.target[:steps, 1], atol=0.002)


def test_soft_start_beyond_reach_is_refused() -> None:
    narrow = {"type": "rigid_coupler", **TWO, "largest_rotation": 1e-4}
    with pytest.raises(ConfigError, match=naming("soft_start.amplitude", "0.05 m")):
        Loop(Assembly(scene(setup=narrow, soft_start={"amplitude": 0.05})))


def test_recording_reproduces_force_in_every_pose() -> None:
    """The force from the recording satisfies the equation of motion at every step."""
    _, result = simulate(scene(integrator={"type": "explicit_newmark"}))
    evaluation = Evaluation(result)
    force = experimental_force(evaluation)
    inertia = result.exact_acceleration[: len(force)] * [MASS, INERTIA]
    load = result.external_force[: len(force)]
    np.testing.assert_allclose(inertia + force, load, atol=1e-9 * np.abs(load).max())
    parts = energies(evaluation)
    absorbed = np.asarray(parts["experimental substructure"])
    work = np.asarray(parts["input"]) - parts["kinetic"]
    assert absorbed.max() > 1e3
    np.testing.assert_allclose(work, absorbed, atol=0.01 * absorbed.max())


def test_stability_uses_jacobian_at_rest() -> None:
    """A unit displacement would be beyond the reach."""
    responses = [
        sampled_loop(scene(setup={"type": "rigid_coupler", **TWO, "kinematics": kinematics}))
        for kinematics in ("exact", "linear")
    ]
    np.testing.assert_allclose(responses[0].axes_of, responses[1].axes_of, atol=1e-15)
    np.testing.assert_array_equal(responses[0].forces_of, responses[0].axes_of.T)


def test_shipped_coupler_tracks_in_both_kinematics() -> None:
    motions = {}
    for case in ("exact", "linear"):
        changed = files.load("two_actuator_coupler", ["duration=4"], case)
        outcome, result = simulate(changed)
        assert outcome.state is State.FINISHED
        assert all(row["error_norm_percent"] < 0.5 for row in outcome.metrics["axes"].values())
        exact = response(changed, 1e-3).displacement
        motions[case] = result.dof_displacement[: len(exact)]
        sizes = np.abs(exact).max(axis=0)
        assert (sizes > (0.03, 0.01)).all()
        assert (np.abs(motions[case] - exact).max(axis=0) < 0.005 * sizes).all()
    apart = np.abs(motions["exact"] - motions["linear"]).max(axis=0) / np.abs(motions["exact"]).max(axis=0)
    assert ((apart > 0.01) & (apart < 0.05)).all()  # several times either error


def test_three_unequal_actuators_follow_their_stories() -> None:
    """The first model learns for every axis; the polynomial alone has one delay for all axes."""
    loaded = files.load("three_independent_axes", ["duration=5"])
    alone = loaded.data()["compensator"]["second"]
    assert alone["type"] == "polynomial"
    (learned, result), (plain, _) = (
        simulate(from_data(Scenario, loaded.data() | change)) for change in ({}, {"compensator": alone})
    )
    assert learned.state is plain.state is State.FINISHED
    delays = [row["delay_s"] for row in plain.metrics["axes"].values()]
    assert delays[0] > 2e-3 > abs(delays[1])
    assert delays[2] < -2e-3
    errors = [
        [row["error_norm_percent"] for row in outcome.metrics["axes"].values()] for outcome in (learned, plain)
    ]
    assert max(errors[0]) < 1.0
    assert errors[1][0] > 4.0 * errors[0][0]
    assert errors[1][2] > 4.0 * errors[0][2]
    drifts = result.target[:: loaded.substeps]
    np.testing.assert_allclose(np.cumsum(drifts, axis=1), result.dof_displacement, atol=1e-12)


def test_coupler_without_anchors_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("setup.anchors", "missing", "wall")):
        Loop(Assembly(files.load("three_independent_axes", ["setup.type=rigid_coupler"])))


PARTIAL = TWO | {"pose": [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, -1.0]]}


def test_pose_selects_degrees_of_freedom_of_coupler() -> None:
    partial, full = make("setup", "rigid_coupler", 4, 2, **PARTIAL), make("setup", "rigid_coupler", 2, 2, **TWO)
    q, pose = np.array([0.3, 0.03, 0.2, -0.05]), np.array([0.03, 0.05])
    moved, expected = partial.axes(Motion(q, 2.0 * q, 3.0 * q)), full.axes(Motion(pose, 2.0 * pose, 3.0 * pose))
    for name in ("displacement", "velocity", "acceleration"):
        np.testing.assert_allclose(getattr(moved, name), getattr(expected, name), rtol=1e-12)
    force = np.array([70.0, -30.0])
    forces = full.forces(force, pose)
    np.testing.assert_allclose(partial.forces(force, q), [0.0, forces[0], 0.0, -forces[1]], rtol=1e-12)
    np.testing.assert_allclose(partial.degrees_of_freedom(moved.displacement), [0.0, 0.03, 0.0, -0.05], atol=1e-12)


@pytest.mark.parametrize(
    ("pose", "words"),
    [
        (None, ("2", "4", "theta", "setup.pose")),
        ([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], ("setup.pose", "columns", "3", "4")),
        ([[0.0, 1.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0]], ("setup.pose", "rows", "independent")),
    ],
)
def test_coupler_without_valid_pose_is_refused(pose: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*words)):
        make("setup", "rigid_coupler", 4, 2, **(TWO | {"pose": pose}))


# Geometry of a column under an inclined actuator against closed form and virtual work


def test_drift_of_20_mm_shortens_3_m_column_by_67_um() -> None:
    load = lengths_of(ColumnGeometry(column_length=3.0))
    assert shortening_at(load, 0.0, 0.020) == pytest.approx(-(0.020**2) / 6.0, rel=2e-5)
    assert shortening_at(load, 0.0, 0.020) * 1e9 == pytest.approx(-66.67e3, rel=1e-4), "67 kN at 1000 kN/mm"
    assert extension_at(load, 0.0, 0.020) == pytest.approx(3.0 - math.sqrt(9.0 - 0.020**2), abs=1e-15)


def test_inclined_actuator_adds_its_own_shortening() -> None:
    load = lengths_of(ColumnGeometry(column_length=3.0, actuator_length=2.0))
    assert extension_at(load, 0.0, 0.020) == pytest.approx(0.020**2 * (1.0 / 6.0 + 1.0 / 4.0), rel=1e-4)


@pytest.mark.parametrize("actuator", [None, 1.5])
@pytest.mark.parametrize("drift", [0.0, 0.02, -0.3])
def test_extension_and_shortening_are_inverse(actuator: float | None, drift: float) -> None:
    load = lengths_of(ColumnGeometry(column_length=3.0, actuator_length=actuator))
    for shortening in (-1e-3, 0.0, 5e-4):
        extension = extension_at(load, shortening, drift)
        assert shortening_at(load, extension, drift) == pytest.approx(shortening, abs=1e-14)


@pytest.mark.parametrize("actuator", [None, 1.5])
def test_directions_satisfy_virtual_work(actuator: float | None) -> None:
    """Unit forces of actuator and column along e and c: dc / de and dc / du."""
    load, e, u, h = lengths_of(ColumnGeometry(column_length=3.0, actuator_length=actuator)), 4e-4, 0.13, 1e-6
    sin_a, cos_a, sin_b, cos_b = directions_at(load, e, u)
    by_extension = (shortening_at(load, e + h, u) - shortening_at(load, e - h, u)) / (2.0 * h)
    by_drift = (shortening_at(load, e, u + h) - shortening_at(load, e, u - h)) / (2.0 * h)
    assert by_extension == pytest.approx(cos_a / cos_b, rel=1e-8)
    assert by_drift == pytest.approx(-sin_a - cos_a / cos_b * sin_b, rel=1e-8)


def test_shortening_beyond_reach_is_nan() -> None:
    load = lengths_of(ColumnGeometry(column_length=3.0, actuator_length=2.0))
    assert math.isnan(shortening_at(load, 0.0, 2.5))
    assert horizontal_share(0.02, 2.0) == pytest.approx(0.01, rel=1e-4)


def test_zero_column_length_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("column_length", "0 m", "> 0")):
        from_data(ColumnGeometry, {"column_length": 0.0})
