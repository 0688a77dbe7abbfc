# SPDX-License-Identifier: Apache-2.0
"""Tests of structures and damping models: closed forms, published frames, partitions, refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from loop_parts import make
from messages import naming

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files
from rths_nodes.mechanics.structure import combined, combined_load
from rths_nodes.numerical.structures.damping import frequencies_and_ratios, modes
from rths_nodes.numerical.structures.restoring_forces import is_linear

MASS, FREQUENCY = 503.4e3, 0.77
OMEGA = 2.0 * math.pi * FREQUENCY
FRAME = {"masses": [2e4] * 3, "stiffnesses": [4e7] * 3}
BOUC_WEN = {"type": "bouc_wen", "stiffness": 11.76e6, "yield_displacement": 0.01}


def test_sdof_matrices_follow_from_frequency() -> None:
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, damping_ratio=0.02)
    np.testing.assert_array_equal(frame.mass, [[MASS]])
    np.testing.assert_allclose(frame.damping, [[2.0 * 0.02 * MASS * OMEGA]])
    np.testing.assert_allclose(frame.stiffness, [[MASS * OMEGA**2]])
    np.testing.assert_array_equal(frame.influence, [1.0])
    assert frame.names == ("x",)
    assert frame.elastic_energy == 0.0


def test_sdof_uses_stiffness_and_energy_of_restoring_force() -> None:
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, restoring_force=BOUC_WEN)
    np.testing.assert_array_equal(frame.stiffness, [[11.76e6]])
    assert frame.elastic_energy == pytest.approx(588.0)
    # the paper's 11.76 kN/mm and 0.77 Hz agree to the printed digits
    assert pytest.approx(11.76e6, rel=5e-3) == MASS * OMEGA**2


def test_shear_frame_matches_tadc_paper() -> None:
    frame = make("structure", "shear_frame", **FRAME, damping={"type": "rayleigh"})
    frequencies, ratios = frequencies_and_ratios(frame.mass, frame.damping, frame.stiffness)
    np.testing.assert_allclose(frequencies, [3.16764, 8.87553, 12.82552], atol=5e-6)
    np.testing.assert_allclose(ratios[:2], 0.02, rtol=1e-9)
    assert frame.names == ("floor_1", "floor_2", "floor_3")
    np.testing.assert_array_equal(frame.influence, np.ones(3))
    for matrix in (frame.experimental_mass, frame.experimental_damping, frame.experimental_stiffness):
        np.testing.assert_array_equal(matrix, np.zeros((3, 3)))


def test_story_stiffnesses_act_on_drifts() -> None:
    frame = make("structure", "shear_frame", masses=[3.0, 2.0, 1.0], stiffnesses=[5.0, 7.0, 11.0])
    np.testing.assert_array_equal(frame.mass, np.diag([3.0, 2.0, 1.0]))
    np.testing.assert_array_equal(frame.stiffness, [[12.0, -7.0, 0.0], [-7.0, 18.0, -11.0], [0.0, -11.0, 11.0]])
    # all drifts 1: the story shears are the stiffnesses
    np.testing.assert_allclose(frame.restoring_force.force(np.array([1.0, 2.0, 3.0])), [-2.0, -4.0, 11.0])


def test_experimental_part_is_subtracted() -> None:
    undivided = make("structure", "shear_frame", **FRAME)
    experimental = {
        "experimental_masses": [2e3, 0.0, 1e3],
        "experimental_stiffnesses": [4e7, 1e7, 0.0],
        "experimental_dampings": [1e4, 0.0, 0.0],
    }
    frame = make("structure", "shear_frame", **FRAME, **experimental)
    for matrix, expected in zip(combined(frame), combined(undivided), strict=True):
        np.testing.assert_allclose(matrix, expected, rtol=1e-12, atol=1e-9)
    np.testing.assert_array_equal(frame.experimental_mass, np.diag([2e3, 0.0, 1e3]))
    np.testing.assert_array_equal(frame.experimental_stiffness[0], [5e7, -1e7, 0.0])
    np.testing.assert_array_equal(frame.experimental_damping[0], [1e4, 0.0, 0.0])
    displacement = np.array([1e-3, -2e-3, 3e-3])
    np.testing.assert_allclose(frame.restoring_force.force(displacement), frame.stiffness @ displacement)


def test_fully_experimental_spring_leaves_no_stiffness() -> None:
    frame = make(
        "structure",
        "shear_frame",
        masses=[MASS],
        stiffnesses=[MASS * OMEGA**2],
        damping={"type": "modal", "ratios": [0.02]},
        experimental_stiffnesses=[MASS * OMEGA**2],
    )
    np.testing.assert_array_equal(frame.stiffness, [[0.0]])
    np.testing.assert_array_equal(frame.restoring_force.force(np.array([1.0])), [0.0])
    np.testing.assert_allclose(frame.damping, [[2.0 * 0.02 * MASS * OMEGA]])


def test_matrices_match_phillips_and_spencer() -> None:
    """Example of the paper of 2012: the whole stiffness and a tenth of the mass are experimental."""
    stiffness = (1e5 * np.array([[12.0, -6.84, 0.0], [-6.84, 13.7, -6.84], [0.0, -6.84, 6.84]])).tolist()
    damping = [[175.0, -50.0, 0.0], [-50.0, 100.0, -50.0], [0.0, -50.0, 50.0]]
    frame = make(
        "structure",
        "matrices",
        mass=(983.0 * np.eye(3)).tolist(),
        stiffness=stiffness,
        damping={"type": "modal", "ratios": [0.01, 0.01, 0.0157]},
        experimental_mass=(98.3 * np.eye(3)).tolist(),
        experimental_stiffness=stiffness,
        experimental_damping=damping,
    )
    tested = (frame.experimental_mass, frame.experimental_damping, frame.experimental_stiffness)
    frequencies, ratios = frequencies_and_ratios(*tested)
    np.testing.assert_allclose(frequencies, [5.457, 15.811, 23.638], atol=6e-4)
    np.testing.assert_allclose(100.0 * ratios, [0.31, 0.62, 0.63], atol=6e-3)
    frequencies, ratios = frequencies_and_ratios(*combined(frame))
    np.testing.assert_allclose(frequencies, [1.726, 5.000, 7.475], atol=6e-4)
    np.testing.assert_allclose(ratios, [0.01, 0.01, 0.0157], rtol=1e-6)
    np.testing.assert_array_equal(frame.stiffness, np.zeros((3, 3)))
    np.testing.assert_allclose(frame.mass, 9.0 * frame.experimental_mass)
    assert frame.names == ("x_1", "x_2", "x_3")


def test_matrices_accept_influence_vector() -> None:
    data = {"mass": [[2.0, 0.0], [0.0, 1.0]], "stiffness": [[5.0, -2.0], [-2.0, 2.0]]}
    assert make("structure", "matrices", **data).influence.tolist() == [1.0, 1.0]
    assert make("structure", "matrices", **data, influence=[1.0, 0.0]).influence.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_ground_load_of_whole_or_numerical_part(storage: str) -> None:
    """A specimen on a shaking table adds the load omitted from the numerical part."""
    data = {
        "mass": [[5.0, 1.0], [1.0, 3.0]],
        "stiffness": [[50.0, -20.0], [-20.0, 20.0]],
        "damping": {"type": "rayleigh"},
        "experimental_at": [2],
        "experimental_mass": [[1.5]],
        "storage": storage,
    }
    frame = make("structure", "matrices", **data)
    shaken = make("structure", "matrices", **data, ground_load="numerical")
    np.testing.assert_allclose(frame.ground_load, [6.0, 4.0])
    np.testing.assert_allclose(shaken.ground_load, [6.0, 2.5])
    for structure in (frame, shaken):
        np.testing.assert_allclose(combined_load(structure), [6.0, 4.0])
    # inertia force of the specimen: by its relative motion, or by its absolute motion on a table
    ground, relative = 2.0, np.array([0.7, -0.3])
    absolute = frame.experimental_mass @ (relative + ground * frame.influence)
    expected = -ground * frame.ground_load - frame.experimental_mass @ relative
    np.testing.assert_allclose(-ground * shaken.ground_load - absolute, expected)


def test_is_linear() -> None:
    assert is_linear(make("structure", "shear_frame", **FRAME))
    assert is_linear(make("structure", "sdof", mass=MASS, frequency=FREQUENCY))
    assert not is_linear(make("structure", "sdof", mass=MASS, frequency=FREQUENCY, restoring_force=BOUC_WEN))


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("shear_frame", {"stiffnesses": [4e7]}, ("structure.stiffnesses", "3", "numbers")),
        ("shear_frame", {"experimental_masses": [1.0]}, ("experimental_masses", "(1.0,)", "3")),
        (
            "shear_frame",
            {"experimental_stiffnesses": [0.0, 5e7, 0.0]},
            ("structure.experimental_stiffnesses[1]", "1", "5e+07 N/m", "<= structure.stiffnesses"),
        ),
        ("shear_frame", {"masses": [2e4, 0.0, 2e4]}, ("masses[1]", "0 kg", "> 0")),
        ("shear_frame", {"experimental_masses": [2e4, 0.0, 0.0]}, ("mass", "> 0")),
        ("shear_frame", {"experimental_dampings": [1e9, 0.0, 0.0]}, ("damping", ">= 0")),
        ("matrices", {"stiffness": [[1.0]]}, ("structure.stiffness", "symmetric", "2", "rows")),
        ("matrices", {"stiffness": [[1.0, 0.5], [0.0, 1.0]]}, ("structure.stiffness", "symmetric")),
        ("matrices", {"influence": [1.0]}, ("structure.influence", "(1.0,)", "2")),
        ("matrices", {"mass": [[1.0, 2.0], [2.0, 1.0]]}, ("mass", "> 0")),
        ("matrices", {"experimental_mass": [[-1.0, 0.0], [0.0, 1.0]]}, ("mass", ">= 0")),
    ],
)
def test_invalid_structures_are_refused(name: str, data: dict[str, Any], expected: tuple[str, ...]) -> None:
    square = {"mass": [[2.0, 0.0], [0.0, 1.0]], "stiffness": [[5.0, -2.0], [-2.0, 2.0]]}
    with pytest.raises(ConfigError, match=naming(*expected)):
        make("structure", name, **((FRAME if name == "shear_frame" else square) | data))


PHYSICAL = [
    *("structure.masses=[1e4, 1e4]", "structure.stiffnesses=[1e7, 2e7]", "setup.matrix=[[1, 0]]", "duration=2"),
    *("compensator.type=none", "axes.story_1.actuator.delay=0", "ground_motion.duration=2"),
]


@pytest.mark.parametrize("integrator", ["central_difference", "cr", "explicit_newmark", "hht_alpha", "kr_alpha"])
def test_frame_with_physical_story_matches_whole_frame(integrator: str) -> None:
    """One story is physical, on an exact rig."""
    displacements = []
    for tested, stiffness in (("[1e7, 0]", 1e7), ("null", 0.0)):
        sets = [
            *PHYSICAL,
            f"integrator.type={integrator}",
            f"structure.experimental_stiffnesses={tested}",
            f"axes.story_1.specimen.stiffness={stiffness!r}",
        ]
        displacements.append(hosts.run(files.load("horiuchi_1996_verification", sets)).read().displacement)
    peak = np.abs(displacements[1]).max()
    assert peak > 1e-4
    np.testing.assert_allclose(*displacements, rtol=0.0, atol=1e-9 * peak)


def test_zero_story_stiffness_is_refused_with_hint() -> None:
    sets = [*PHYSICAL, "structure.experimental_stiffnesses=null", "structure.stiffnesses=[2e7, 0]"]
    with pytest.raises(ConfigError) as refused:
        files.load("horiuchi_1996_verification", sets)
    for part in ("structure.stiffnesses[1] = 0 N/m", "> 0 N/m", "structure.experimental_stiffnesses"):
        assert part in str(refused.value)


# Damping models

M = 2e4 * np.eye(3)
K = 4e7 * np.array([[2.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]])


def test_modes_of_uniform_frame_match_closed_form() -> None:
    """w_j = 2 sqrt(k/m) sin((2 j - 1) pi / (2 (2 n + 1)))."""
    omega, shapes = modes(M, K)
    angles = (2.0 * np.arange(1, 4) - 1.0) * math.pi / 14.0
    np.testing.assert_allclose(omega, 2.0 * math.sqrt(4e7 / 2e4) * np.sin(angles), rtol=1e-12)
    np.testing.assert_allclose(shapes.T @ M @ shapes, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(shapes.T @ K @ shapes, np.diag(omega**2), atol=1e-9)


def test_free_body_has_zero_frequency_mode() -> None:
    omega, _ = modes(np.eye(2), np.array([[1.0, -1.0], [-1.0, 1.0]]))
    np.testing.assert_allclose(omega, [0.0, math.sqrt(2.0)], atol=1e-7)


def test_rayleigh_coefficients_match_tadc_frame() -> None:
    a, b = make("damping", "rayleigh").coefficients(M, K)
    assert a == pytest.approx(0.586717901, abs=1e-9)
    assert b == pytest.approx(5.286145631e-4, abs=1e-13)


def test_rayleigh_damping_ratios_in_all_modes() -> None:
    model = make("damping", "rayleigh", ratios=[0.01, 0.05], modes=[3, 1])
    a, b = model.coefficients(M, K)
    frequencies, ratios = frequencies_and_ratios(M, model.matrix(M, K), K)
    omega = 2.0 * math.pi * frequencies
    np.testing.assert_allclose(ratios, 0.5 * (a / omega + b * omega), rtol=1e-9)
    np.testing.assert_allclose(ratios[[0, 2]], [0.05, 0.01], rtol=1e-9)


@pytest.mark.parametrize("ratios", [(0.05,), (0.01, 0.2, 0.7)])
def test_modal_damping_ratios_in_every_mode(ratios: tuple[float, ...]) -> None:
    damping = make("damping", "modal", ratios=list(ratios)).matrix(M, K)
    frequencies, computed = frequencies_and_ratios(M, damping, K)
    np.testing.assert_allclose(computed, ratios * (3 // len(ratios)), rtol=1e-9)
    np.testing.assert_allclose(2.0 * math.pi * frequencies, modes(M, K)[0], rtol=1e-9)


def test_modal_and_rayleigh_damping_agree_on_two_masses() -> None:
    mass, stiffness = np.diag([2.0, 3.0]), np.array([[50.0, -20.0], [-20.0, 20.0]])
    models = [make("damping", name, ratios=[0.02, 0.04]) for name in ("rayleigh", "modal")]
    np.testing.assert_allclose(*(model.matrix(mass, stiffness) for model in models), rtol=1e-12)


def test_overdamped_masses_have_ratios_above_one() -> None:
    """The third mass moves freely."""
    frequencies, ratios = frequencies_and_ratios(np.eye(3), np.diag([50.0, 4.0, 0.0]), np.diag([100.0, 1.0, 0.0]))
    assert frequencies == pytest.approx(np.array([0.0, 1.0, 10.0]) / (2.0 * math.pi))
    assert ratios == pytest.approx([0.0, 2.0, 2.5])


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("rayleigh", {"ratios": [0.02]}, ("damping.ratios", "(0.02,)", "2")),
        ("rayleigh", {"modes": [1, 1]}, ("damping.modes", "(1.0, 1.0)", "2")),
        ("rayleigh", {"modes": [1, 1.5]}, ("2", "different", "whole", "numbers")),
        ("rayleigh", {"modes": [1, 4]}, ("structure.damping.modes", "(1.0, 4.0)", "<= 3")),
        ("modal", {"ratios": [0.02, 0.03]}, ("structure.damping.ratios", "1", "3", "numbers")),
        ("modal", {"ratios": [1.0]}, ("damping.ratios[0]", "1", ">= 0", "< 1")),
        ("matrix", {"matrix": [[1.0]]}, ("structure.damping.matrix", "symmetric", "3 x 3")),
        (
            "matrix",
            {"matrix": [[1.0, 2.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]},
            ("structure.damping.matrix", "symmetric"),
        ),
    ],
)
def test_invalid_damping_is_refused(name: str, data: dict[str, Any], expected: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*expected)):
        make("damping", name, **data).matrix(M, K)


def test_rayleigh_damping_by_frequencies() -> None:
    """5 % at 13.493 and 165.125 rad/s gives a = 1.2474, b = 5.5986e-4."""
    omega, _ = modes(M, K)
    frequencies = (omega[[0, 2]] / (2.0 * math.pi)).tolist()
    by_frequency = make("damping", "rayleigh", ratios=[0.01, 0.05], frequencies=frequencies)
    by_mode = make("damping", "rayleigh", ratios=[0.01, 0.05], modes=[1, 3])
    assert by_frequency.coefficients(M, K) == pytest.approx(by_mode.coefficients(M, K))
    pair = [13.493 / (2.0 * math.pi), 165.125 / (2.0 * math.pi)]
    a, b = make("damping", "rayleigh", ratios=[0.05, 0.05], frequencies=pair).coefficients(M, K)
    assert a == pytest.approx(2.0 * 0.05 * 13.493 * 165.125 / (13.493 + 165.125))
    assert b == pytest.approx(2.0 * 0.05 / (13.493 + 165.125))


def test_rayleigh_damping_refuses_equal_frequencies() -> None:
    with pytest.raises(ConfigError, match=naming("> 0", "differ")):
        make("damping", "rayleigh").matrix(np.eye(2), np.eye(2))
    with pytest.raises(ConfigError, match=naming("damping.frequencies", "2", "numbers")):
        make("damping", "rayleigh", frequencies=[2.0, 2.0])
