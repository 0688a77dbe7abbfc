# SPDX-License-Identifier: Apache-2.0
"""Tests of model files: exact round trips, and refusals with file, key and reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions, naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.yaml_text import dump, parse
from rths_nodes.mechanics.coupled_rig import coupled_model, feedforward
from rths_nodes.mechanics.loading_model import LoadingModel, load, save

AXES = ("story_1", "story_2")
INVERSE = feedforward(
    coupled_model(
        *([[98.3, 0.0], [0.0, 98.3]], [[125.0, -50.0], [-50.0, 50.0]], [[12e5, -6.84e5], [-6.84e5, 6.84e5]]),
        *([1e-3], [0.1], [-200.0], [1.26e11]),
    )
)
MODEL = LoadingModel(AXES, INVERSE, None, 2000.0, "for this test")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save(MODEL, tmp_path / "model.yaml")
    return tmp_path / "model.yaml"


def test_load_restores_saved_model(file: Path) -> None:
    model = load(file, AXES)
    np.testing.assert_array_equal(model.feedforward, INVERSE)
    assert (model.axes, model.servo_rate, model.provenance) == (AXES, 2000.0, "for this test")
    for matrix, saved in zip(model.plant(), MODEL.plant(), strict=True):
        np.testing.assert_array_equal(matrix, saved)


def test_missing_plant_follows_from_feedforward(file: Path) -> None:
    data = parse(file.read_text(), "")
    del data["plant"]
    file.write_text(dump(data))
    np.testing.assert_array_equal(load(file).plant().system, MODEL.plant().system)


def test_ideal_axes_have_no_state_space(tmp_path: Path) -> None:
    ideal = LoadingModel(AXES, np.array([np.eye(2), *np.zeros((3, 2, 2))]), None, 2000.0)
    save(ideal, tmp_path / "ideal.yaml")
    model = load(tmp_path / "ideal.yaml")
    assert len(model.poles()) == 0
    with pytest.raises(ConfigError, match=naming("dynamics", "space")):
        model.plant()


def test_cautions_report_other_rate_and_axes() -> None:
    assert MODEL.cautions(AXES, 2000.0) == []
    (rate,) = MODEL.cautions(AXES, 1000.0)
    assert mentions(rate, "model", "2000 Hz", "1000 Hz")
    (names,) = MODEL.cautions(("a", "b"), 2000.0)
    assert mentions(names, "model", "a", "story_1", "story_2", "b")


def with_a_copied_state(data: dict[str, Any]) -> None:
    """Add an unobservable state that copies another one."""
    plant = data["plant"]
    system = np.array(plant["system"])
    larger = np.zeros((len(system) + 1, len(system) + 1))
    larger[:-1, :-1] = system
    larger[-1, :-1], larger[-1, -1] = system[0], -3.0
    plant["system"] = larger.tolist()
    plant["inputs"].append(plant["inputs"][0])
    plant["outputs"] = [[*row, 0.0] for row in plant["outputs"]]


def with_an_unstable_plant(data: dict[str, Any]) -> None:
    data["plant"]["system"] = (-np.array(data["plant"]["system"])).tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.update(version=2), ("version", "2", ">= 1", "<= 1")),
        (lambda data: data.update(axes=["a", "a"]), ("axes", "a", "names")),
        (
            lambda data: data["feedforward"].update(displacement=[[1.0]]),
            ("feedforward.displacement", "1 x 1", "2 x 2"),
        ),
        (lambda data: data.update(axes=["b", "a"]), ("axes", "a", "story_1", "story_2")),
        (lambda data: data.pop("axes"), ("axes", "None", "list")),
        (lambda data: data.pop("feedforward"), ("feedforward", "missing")),
        (lambda data: data["feedforward"].update(snap=1), ("feedforward.snap", "snap", "unknown")),
        (lambda data: data["feedforward"].update(jerk=[[1.0, 1.0], [1.0, 1.0]]), ("feedforward.jerk", "singular")),
        (
            lambda data: data["feedforward"].update(velocity=[[-0.01, 0.0], [0.0, -0.01]]),
            ("feedforward", "stable"),
        ),
        (lambda data: data["plant"].update(inputs=[[1.0]]), ("plant.inputs", "1 x 1", "6 x 2")),
        (with_an_unstable_plant, ("plant", "stable", "pole")),
        (with_a_copied_state, ("plant", "minimal")),
    ],
)
def test_invalid_entries_are_refused(file: Path, change: Any, message: tuple[str, ...]) -> None:
    data = parse(file.read_text(), "")
    change(data)
    file.write_text(dump(data))
    with pytest.raises(ConfigError, match=naming("model", "model.yaml", *message)):
        load(file, AXES)


@pytest.mark.parametrize("source", [None, "", "- 1\n", "axes: [a\n"])
def test_missing_or_malformed_file_is_refused(tmp_path: Path, source: str | None) -> None:
    path = tmp_path / "model.yaml"
    if source is not None:
        path.write_text(source)
    with pytest.raises(ConfigError, match=r"model '.*model\.yaml'"):
        load(path)
