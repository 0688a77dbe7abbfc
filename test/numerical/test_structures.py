# SPDX-License-Identifier: Apache-2.0
"""Structures: the matrices of the paper's frame."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.app import hosts
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files
from rths_nodes.mechanics.structure import combined, combined_load
from rths_nodes.numerical.structures.damping import frequencies_and_ratios
from rths_nodes.numerical.structures.restoring_forces.linear import is_linear

MASS, FREQUENCY = 503.4e3, 0.77
OMEGA = 2.0 * math.pi * FREQUENCY


def test_sdof_has_the_damping_and_the_linear_stiffness_of_its_frequency(make: Callable[..., Any]) -> None:
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, damping_ratio=0.02)
    np.testing.assert_array_equal(frame.mass, [[MASS]])
    np.testing.assert_allclose(frame.damping, [[2.0 * 0.02 * MASS * OMEGA]])
    np.testing.assert_allclose(frame.stiffness, [[MASS * OMEGA**2]])
    np.testing.assert_array_equal(frame.influence, [1.0])
    assert frame.names == ("x",)
    assert frame.elastic_energy == 0.0


def test_sdof_takes_the_stiffness_and_the_energy_of_its_restoring_force(make: Callable[..., Any]) -> None:
    force = {"type": "bouc_wen", "stiffness": 11.76e6, "yield_displacement": 0.01}
    frame = make("structure", "sdof", mass=MASS, frequency=FREQUENCY, restoring_force=force)
    np.testing.assert_array_equal(frame.stiffness, [[11.76e6]])
    assert frame.elastic_energy == pytest.approx(588.0)
    # the paper's 11.76 kN/mm and 0.77 Hz agree to the digits it prints
    assert pytest.approx(11.76e6, rel=5e-3) == MASS * OMEGA**2


# Frames of several stories


FRAME = {"masses": [2e4] * 3, "stiffnesses": [4e7] * 3}


def test_the_frame_of_the_tadc_paper(make: Callable[..., Any]) -> None:
    frame = make("structure", "shear_frame", **FRAME, damping={"type": "rayleigh"})
    frequencies, ratios = frequencies_and_ratios(frame.mass, frame.damping, frame.stiffness)
    np.testing.assert_allclose(frequencies, [3.16764, 8.87553, 12.82552], atol=5e-6)
    np.testing.assert_allclose(ratios[:2], 0.02, rtol=1e-9)
    assert frame.names == ("floor_1", "floor_2", "floor_3")
    np.testing.assert_array_equal(frame.influence, np.ones(3))
    for matrix in (frame.experimental_mass, frame.experimental_damping, frame.experimental_stiffness):
        np.testing.assert_array_equal(matrix, np.zeros((3, 3)))


def test_story_stiffnesses_act_on_drifts(make: Callable[..., Any]) -> None:
    frame = make("structure", "shear_frame", masses=[3.0, 2.0, 1.0], stiffnesses=[5.0, 7.0, 11.0])
    np.testing.assert_array_equal(frame.mass, np.diag([3.0, 2.0, 1.0]))
    np.testing.assert_array_equal(frame.stiffness, [[12.0, -7.0, 0.0], [-7.0, 18.0, -11.0], [0.0, -11.0, 11.0]])
    # all drifts 1: the story shears are the stiffnesses
    np.testing.assert_allclose(frame.restoring_force.force(np.array([1.0, 2.0, 3.0])), [-2.0, -4.0, 11.0])


def test_what_stands_in_the_laboratory_is_taken_out(make: Callable[..., Any]) -> None:
    whole_frame = make("structure", "shear_frame", **FRAME)
    tested = {
        "experimental_masses": [2e3, 0.0, 1e3],
        "experimental_stiffnesses": [4e7, 1e7, 0.0],
        "experimental_dampings": [1e4, 0.0, 0.0],
    }
    frame = make("structure", "shear_frame", **FRAME, **tested)
    for one, other in zip(combined(frame), combined(whole_frame), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-9)
    np.testing.assert_array_equal(frame.experimental_mass, np.diag([2e3, 0.0, 1e3]))
    np.testing.assert_array_equal(frame.experimental_stiffness[0], [5e7, -1e7, 0.0])
    np.testing.assert_array_equal(frame.experimental_damping[0], [1e4, 0.0, 0.0])
    displacement = np.array([1e-3, -2e-3, 3e-3])
    np.testing.assert_allclose(frame.restoring_force.force(displacement), frame.stiffness @ displacement)


def test_a_mass_whose_whole_spring_is_under_test(make: Callable[..., Any]) -> None:
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


def test_the_structure_of_phillips_and_spencer(make: Callable[..., Any]) -> None:
    """2012, their example: the whole stiffness and a tenth of the mass stand in the laboratory."""
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


def test_matrices_take_an_influence(make: Callable[..., Any]) -> None:
    data = {"mass": [[2.0, 0.0], [0.0, 1.0]], "stiffness": [[5.0, -2.0], [-2.0, 2.0]]}
    assert make("structure", "matrices", **data).influence.tolist() == [1.0, 1.0]
    assert make("structure", "matrices", **data, influence=[1.0, 0.0]).influence.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_the_ground_loads_the_whole_or_the_numerical_part(make: Callable[..., Any], storage: str) -> None:
    """Of the same motion of the whole: a specimen that feels the ground adds what the load leaves out."""
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
    for one in (frame, shaken):
        np.testing.assert_allclose(combined_load(one), [6.0, 4.0])
    # inertia of what is under test, by its motion relative to the ground, or by its absolute motion on a table
    ground, relative = 2.0, np.array([0.7, -0.3])
    absolute = frame.experimental_mass @ (relative + ground * frame.influence)
    left = -ground * frame.ground_load - frame.experimental_mass @ relative
    np.testing.assert_allclose(-ground * shaken.ground_load - absolute, left)


def test_a_linear_structure_is_known_as_one(make: Callable[..., Any]) -> None:
    force = {"type": "bouc_wen", "stiffness": 11.76e6, "yield_displacement": 0.01}
    assert is_linear(make("structure", "shear_frame", **FRAME))
    assert is_linear(make("structure", "sdof", mass=MASS, frequency=FREQUENCY))
    assert not is_linear(make("structure", "sdof", mass=MASS, frequency=FREQUENCY, restoring_force=force))


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        (
            "shear_frame",
            {"stiffnesses": [4e7]},
            ("structure.stiffnesses", "3", "numbers"),
        ),
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
def test_what_is_no_structure_is_refused(
    make: Callable[..., Any], name: str, data: dict[str, Any], words: tuple[str, ...]
) -> None:
    square = {"mass": [[2.0, 0.0], [0.0, 1.0]], "stiffness": [[5.0, -2.0], [-2.0, 2.0]]}
    with pytest.raises(ConfigError, match=naming(*words)):
        make("structure", name, **((FRAME if name == "shear_frame" else square) | data))


PHYSICAL = [
    *("structure.masses=[1e4, 1e4]", "structure.stiffnesses=[1e7, 2e7]", "setup.matrix=[[1, 0]]", "duration=2"),
    *("compensator.type=none", "axes.story_1.actuator.delay=0", "ground_motion.duration=2"),
]


@pytest.mark.parametrize("integrator", ["central_difference", "cr", "explicit_newmark", "hht_alpha", "kr_alpha"])
def test_a_frame_with_a_physical_story_moves_as_the_whole_one(integrator: str) -> None:
    """All of a story in the laboratory and an exact rig: the frame that is computed in one piece."""
    moved = []
    for tested, stiffness in (("[1e7, 0]", 1e7), ("null", 0.0)):
        sets = [
            *PHYSICAL,
            f"integrator.type={integrator}",
            f"structure.experimental_stiffnesses={tested}",
            f"axes.story_1.specimen.stiffness={stiffness!r}",
        ]
        run = hosts.run(files.load("horiuchi_1996_verification", sets)).read()
        moved.append(run.displacement)
    assert np.abs(moved[1]).max() > 1e-4
    np.testing.assert_allclose(moved[0], moved[1], rtol=0.0, atol=1e-9 * np.abs(moved[1]).max())


def test_a_story_without_stiffness_is_refused_and_told_how_a_physical_one_is_written() -> None:
    sets = [*PHYSICAL, "structure.experimental_stiffnesses=null", "structure.stiffnesses=[2e7, 0]"]
    with pytest.raises(ConfigError) as refused:
        files.load("horiuchi_1996_verification", sets)
    for words in ("structure.stiffnesses[1] = 0 N/m", "> 0 N/m", "structure.experimental_stiffnesses"):
        assert words in str(refused.value)
